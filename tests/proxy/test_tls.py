"""TLS as others see it: the real openssl client against a server on our context.

In TLS 1.3 a client has finished its handshake before the server looks at its certificate, so a refusal shows on the
first read. Being served is what these tests look at. Where a client must fail, a lax server serves it: else its failure
would say nothing about us.
"""

import asyncio
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
import uvloop

from remit.claims.canonical import sha256_base64url
from remit.errors import CertificateUnusable
from remit.ledger.home import open_home
from remit.proxy.authority import issue_client, server_identity
from remit.proxy.tls import CertificateFiles, server_context
from tests.proxy.certificates import ADDRESS, DAY, SERVER, WRONG_CLIENTS, Pair, Workshop, program, rsa_key

VERSIONS = ("-tls1_2", "-tls1_3")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
WAYS = list(product(VERSIONS, LOOPS))
WEAK_SUITES = (
    "AES128-SHA", "AES256-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-SHA256",
    "ECDHE-RSA-AES256-SHA384",
)  # fmt: skip
SERVED = b"served to "
LAX = "ALL:@SECLEVEL=0"


@contextmanager
def serving(
    context: ssl.SSLContext, new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
) -> Iterator[int]:
    """Serve one line to everyone who gets through and says one; yield the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.write(SERVED + (sha256_base64url(der) if der else "anyone").encode() + b"\n")
        writer.close()

    loop = new_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    server = loop.run_until_complete(asyncio.start_server(serve, ADDRESS, 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.get_loop().call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ask(port: int, *options: str, client: Pair | None = None) -> bytes:
    """Return all that openssl's client shows of one request."""
    shown = ("-cert", client.cert_path, "-key", client.key_path) if client else ()
    command = [program("openssl"), "s_client", "-connect", f"{ADDRESS}:{port}", "-ign_eof", *shown, *options]
    done = subprocess.run(command, input=b"GET /\n", capture_output=True, check=False, timeout=120)
    return done.stdout + done.stderr


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture
def authority(workshop: Workshop) -> Pair:
    return workshop.authority()


@pytest.fixture
def credentials(workshop: Workshop, authority: Pair) -> CertificateFiles:
    """Mutual TLS; the server has an authority of its own."""
    server = workshop.server(workshop.authority("An authority of servers"))
    return CertificateFiles(server.cert_path, server.key_path, authority.cert_path)


def lax_context(credentials: CertificateFiles) -> ssl.SSLContext:
    """Return a server that takes everyone, as old and weak as they are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers(LAX)
    context.load_cert_chain(credentials.cert, credentials.key)
    return context


@pytest.mark.parametrize(("version", "loop"), WAYS)
def test_a_good_client_is_served_and_known(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair, version: str, loop: str
) -> None:
    client = workshop.client(authority)
    with serving(credentials.context(), LOOPS[loop]) as port:
        assert SERVED + sha256_base64url(client.der).encode() in ask(port, version, client=client)


@pytest.mark.parametrize(("version", "loop"), WAYS)
@pytest.mark.parametrize("kind", WRONG_CLIENTS)
def test_a_wrong_client_is_not_served(workshop: Workshop, authority: Pair, kind: str, version: str, loop: str) -> None:
    client, server = workshop.wrong_client(kind, authority), workshop.server(workshop.authority("Of servers"))
    with serving(server_context(server.cert_path, server.key_path, authority.cert_path), LOOPS[loop]) as port:
        assert SERVED not in ask(port, version, client=client)
        assert SERVED in ask(port, version, client=workshop.client(authority))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", WRONG_CLIENTS)
def test_a_wrong_client_would_be_served_by_who_does_not_ask(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair, kind: str, version: str
) -> None:
    with serving(credentials._replace(client_ca=None).context()) as port:
        assert SERVED + b"anyone" in ask(port, version, client=workshop.wrong_client(kind, authority))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_a_certificate_is_not_served(credentials: CertificateFiles, version: str) -> None:
    context = credentials.context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    with serving(context) as port:
        assert SERVED not in ask(port, version)
    with serving(credentials._replace(client_ca=None).context()) as port:
        assert SERVED + b"anyone" in ask(port, version)


@pytest.mark.parametrize("kind", ["without a use", "for servers only"])
def test_a_blocking_server_refuses_it_too(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair, kind: str
) -> None:
    client = workshop.wrong_client(kind, authority)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(client.cert_path, client.key_path)
    ours, theirs = socket.socketpair()
    caller = threading.Thread(target=lambda: context.wrap_socket(theirs).close())
    caller.start()
    with ours, theirs, pytest.raises(ssl.SSLError):
        credentials.context().wrap_socket(ours, server_side=True)
    caller.join()


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_not_spoken(credentials: CertificateFiles, version: str) -> None:
    with serving(lax_context(credentials)) as port:
        assert SERVED in ask(port, version, "-cipher", LAX)
    with serving(credentials._replace(client_ca=None).context()) as port:
        assert SERVED not in ask(port, version, "-cipher", LAX)


@pytest.mark.parametrize("suite", WEAK_SUITES)
def test_weak_suites_are_not_spoken(workshop: Workshop, authority: Pair, suite: str) -> None:
    server = workshop.server(authority, key=rsa_key())
    credentials = CertificateFiles(server.cert_path, server.key_path)
    options = ("-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0")
    with serving(lax_context(credentials)) as port:
        assert SERVED in ask(port, *options)
    with serving(credentials.context()) as port:
        assert SERVED not in ask(port, *options)


@pytest.mark.parametrize("suite", ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"])
def test_an_rsa_certificate_is_served_with_good_suites(workshop: Workshop, authority: Pair, suite: str) -> None:
    server = workshop.server(authority, key=rsa_key())
    with serving(server_context(server.cert_path, server.key_path)) as port:
        assert SERVED in ask(port, "-tls1_2", "-cipher", suite)


def test_the_servers_order_of_suites_counts(credentials: CertificateFiles) -> None:
    offered = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256"
    with serving(credentials._replace(client_ca=None).context()) as port:
        assert b"Cipher is ECDHE-ECDSA-AES128-GCM-SHA256" in ask(port, "-tls1_2", "-cipher", offered)


def test_http_1_1_is_agreed_on_and_nothing_is_compressed(credentials: CertificateFiles) -> None:
    with serving(credentials._replace(client_ca=None).context()) as port:
        said = ask(port, "-tls1_2", "-alpn", "h2,http/1.1", "-comp")
    assert b"ALPN protocol: http/1.1" in said
    assert b"Compression: NONE" in said


def test_nobody_can_ask_for_another_handshake(credentials: CertificateFiles) -> None:
    command = [program("openssl"), "s_client", "-tls1_2", "-connect"]
    with serving(credentials._replace(client_ca=None).context()) as port:
        done = subprocess.run(
            [*command, f"{ADDRESS}:{port}"], input=b"R\n", capture_output=True, check=False, timeout=120
        )
    assert b"no renegotiation" in done.stderr


def test_tls_1_3_gives_no_ticket_to_come_back_with(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    session = workshop.folder / "session"
    with serving(credentials.context()) as port:
        assert SERVED in ask(port, "-tls1_3", "-sess_out", str(session), client=workshop.client(authority))
    assert not session.exists()


def test_a_session_does_not_outlive_the_trust_in_its_certificate(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    session, client = str(workshop.folder / "session"), workshop.client(authority)
    with serving(credentials.context()) as port:
        assert SERVED in ask(port, "-tls1_2", "-sess_out", session, client=client)
    with serving(credentials._replace(client_ca=workshop.authority("The next").cert_path).context()) as port:
        assert SERVED not in ask(port, "-tls1_2", "-sess_in", session, client=client)
        assert SERVED not in ask(port, "-tls1_2", "-sess_in", session)


def test_a_resumed_session_is_of_the_same_client(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    session, client = str(workshop.folder / "session"), workshop.client(authority)
    with serving(credentials.context()) as port:
        ask(port, "-tls1_2", "-sess_out", session, client=client)
        said = ask(port, "-tls1_2", "-sess_in", session, client=workshop.client(authority))
    assert b"Reused, TLSv1.2" in said
    assert SERVED + sha256_base64url(client.der).encode() in said


def test_a_session_does_not_outlive_its_certificate(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    session, end = str(workshop.folder / "session"), datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    client = workshop.client(authority, until=end)
    with serving(credentials.context()) as port:
        assert SERVED in ask(port, "-tls1_2", "-sess_out", session, client=client)
        while datetime.now(UTC) <= end:
            time.sleep(0.05)
        said = ask(port, "-tls1_2", "-sess_in", session, client=client)
    assert b"Reused, TLSv1.2" in said
    assert SERVED not in said


def test_an_authority_in_between_counts_by_itself(workshop: Workshop, authority: Pair) -> None:
    """Whoever names it trusts what it signs, and not all that its root signs."""
    between = workshop.pair("In between", issuer=authority, is_authority=True)
    server = workshop.server(authority)
    with serving(server_context(server.cert_path, server.key_path, between.cert_path)) as port:
        assert SERVED in ask(port, client=workshop.client(between))
        assert SERVED not in ask(port, client=workshop.client(authority))


def test_strict_rules_hold_where_the_authority_keeps_them(workshop: Workshop, authority: Pair) -> None:
    plain = workshop.authority("A plain authority", strict=False)
    server = workshop.server(authority)
    with serving(server_context(server.cert_path, server.key_path, plain.cert_path)) as port:
        assert SERVED in ask(port, client=workshop.client(plain, strict=False))
        assert SERVED not in ask(port, client=workshop.wrong_client("without a use", plain))
    with serving(server_context(server.cert_path, server.key_path, authority.cert_path)) as port:
        assert SERVED not in ask(port, client=workshop.client(authority, strict=False))


def test_the_local_authorities_serve_each_other(workshop: Workshop) -> None:
    now = datetime.now(UTC)
    with open_home(workshop.folder / "home") as home:
        cert, key, ca = server_identity(home, [ADDRESS], now)
        client = issue_client(home, "agent", now)
    shown = ("-cert", workshop.file(client.cert), "-key", workshop.file(client.key))
    verifying = ("-CAfile", ca, "-verify_return_error", "-verify_ip", ADDRESS, "-x509_strict")
    with serving(CertificateFiles(cert, key, client.client_ca).context()) as port:
        assert SERVED in ask(port, *shown, *verifying)
        assert SERVED not in ask(port, "-cert", cert, "-key", key, *verifying)


def test_a_context_is_of_what_the_files_hold_now(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    old, client = credentials.context(), workshop.client(authority)
    Path(credentials.cert).write_bytes(b"nonsense")
    with pytest.raises(CertificateUnusable):
        credentials.context()
    with serving(old) as port:
        assert SERVED in ask(port, client=client)


@pytest.mark.parametrize("role", ["cert", "key", "client_ca"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b"x" * 5_000_000])
def test_what_is_not_pem_is_refused(
    credentials: CertificateFiles, workshop: Workshop, role: str, content: bytes
) -> None:
    with pytest.raises(CertificateUnusable) as caught:
        credentials._replace(**{role: workshop.file(content)}).context()
    assert caught.value.code == "certificate_unusable"


@pytest.mark.parametrize("role", ["cert", "key", "client_ca"])
@pytest.mark.parametrize("label", ["CERTIFICATE", "PRIVATE KEY"])
def test_pem_that_holds_nonsense_is_refused(
    credentials: CertificateFiles, workshop: Workshop, role: str, label: str
) -> None:
    content = f"-----BEGIN {label}-----\nbm9uc2Vuc2U=\n-----END {label}-----\n".encode()
    with pytest.raises(CertificateUnusable):
        credentials._replace(**{role: workshop.file(content)}).context()


@pytest.mark.parametrize("role", ["cert", "key", "client_ca"])
def test_what_cannot_be_read_is_refused_and_named_without_its_place(
    credentials: CertificateFiles, workshop: Workshop, role: str
) -> None:
    os.mkfifo(workshop.folder / "pipe")
    for place in (workshop.folder / "missing", workshop.folder / "pipe", workshop.folder, Path("nul\0")):
        with pytest.raises(CertificateUnusable) as caught:
            credentials._replace(**{role: str(place)}).context()
        assert str(workshop.folder) not in str(caught.value)


def test_a_key_of_another_certificate_is_refused(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    for other in (workshop.client(authority), workshop.client(authority, key=rsa_key())):
        with pytest.raises(CertificateUnusable):
            credentials._replace(key=other.key_path).context()


def test_an_encrypted_key_is_refused_and_nobody_is_asked(workshop: Workshop, authority: Pair) -> None:
    server = workshop.server(authority, password=b"secret")
    with pytest.raises(CertificateUnusable):
        server_context(server.cert_path, server.key_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"since": datetime.now(UTC) - 2 * DAY, "until": datetime.now(UTC) - DAY},
        {"since": datetime.now(UTC) + DAY, "until": datetime.now(UTC) + 2 * DAY},
    ],
)
def test_a_certificate_of_ours_that_is_not_valid_now_is_refused(
    workshop: Workshop, authority: Pair, changes: dict[str, datetime]
) -> None:
    server = workshop.server(authority, **changes)
    with pytest.raises(CertificateUnusable):
        server_context(server.cert_path, server.key_path)


def test_a_certificate_that_is_not_for_servers_is_refused(workshop: Workshop, authority: Pair) -> None:
    client = workshop.client(authority)
    with pytest.raises(CertificateUnusable):
        server_context(client.cert_path, client.key_path)


def test_a_self_signed_certificate_and_a_whole_chain_are_fine(workshop: Workshop, authority: Pair) -> None:
    alone = workshop.pair("Alone", issuer=None, uses=SERVER, names=[ADDRESS])
    server = workshop.server(authority)
    chain = workshop.file(
        Path(server.cert_path).read_bytes() + "# Übung\n".encode() + Path(authority.cert_path).read_bytes()
    )
    assert server_context(alone.cert_path, alone.key_path).cert_store_stats()["x509"] == 0
    with serving(server_context(chain, server.key_path)) as port:
        assert b"Verification: OK" in ask(port, "-CAfile", authority.cert_path)


def test_what_is_no_authority_or_has_expired_cannot_vouch_for_clients(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    past = workshop.authority("A past one", since=datetime.now(UTC) - 2 * DAY, until=datetime.now(UTC) - DAY)
    for wrong in (workshop.client(authority), past):
        with pytest.raises(CertificateUnusable):
            credentials._replace(client_ca=wrong.cert_path).context()


def test_an_authority_whose_end_cannot_be_read_is_refused(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    first, second, rest = authority.der.split(b"\x17\x0d", 2)  # times of two digits for the year
    spoilt = b"\x17\x0d".join((first, second, b"9999" + rest[4:]))
    path = workshop.file(ssl.DER_cert_to_PEM_cert(spoilt).encode())
    with pytest.raises(CertificateUnusable) as refused:
        credentials._replace(client_ca=path).context()
    assert refused.value.code == "certificate_unusable"


def test_an_expired_authority_beside_a_valid_one_does_no_harm(
    credentials: CertificateFiles, workshop: Workshop, authority: Pair
) -> None:
    past = workshop.authority("A past one", since=datetime.now(UTC) - 2 * DAY, until=datetime.now(UTC) - DAY)
    both = workshop.file(Path(past.cert_path).read_bytes() + Path(authority.cert_path).read_bytes())
    with serving(credentials._replace(client_ca=both).context()) as port:
        assert SERVED in ask(port, client=workshop.client(authority))
        assert SERVED not in ask(port, client=workshop.client(past))
