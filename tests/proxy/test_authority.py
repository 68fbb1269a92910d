"""The local authorities: what they issue, when they issue it anew, and what they never do silently."""

import os
import re
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from remit.errors import CertificateUnusable, FieldInvalid, HomeUnsafe, RemitError, StateCorrupt, StateMissing
from remit.ledger.home import Home, open_home
from remit.proxy.authority import Identity, issue_client, server_identity
from tests.proxy.certificates import Workshop, program

NAMES = ("127.0.0.1", "::1", "localhost")
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
FILES = ("ca.pem", "ca-key.pem", "proxy.pem", "proxy-key.pem")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def home(place: Path) -> Iterator[Home]:
    with open_home(place) as opened:
        yield opened


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (place / "tls").iterdir()}


def certificate(path: str | Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


def verified_name(identity: Identity, name: str) -> bool:
    """Tell whether Python's default client, made strict, takes the certificate for this name."""
    client_context = ssl.create_default_context(cafile=identity.ca)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(identity.cert, identity.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for turn in (client, server, client):
        try:
            turn.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_trusts_the_authority_takes_every_name(home: Home, name: str) -> None:
    assert verified_name(server_identity(home, NAMES, NOW), name)


@pytest.mark.parametrize("name", ["127.0.0.2", "localhost.example", "example.org", "::2"])
def test_no_other_name_is_in_the_certificate(home: Home, name: str) -> None:
    assert not verified_name(server_identity(home, NAMES, NOW), name)


def test_openssl_verifies_it_too_for_servers_and_for_nothing_else(home: Home) -> None:
    cert, _, ca = server_identity(home, NAMES, NOW)

    def verdict(purpose: str) -> int:
        command = [program("openssl"), "verify", "-x509_strict", "-purpose", purpose, "-CAfile", ca, cert]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert verdict("sslserver") == 0
    assert verdict("sslclient") != 0


def test_the_authority_is_one_for_ten_years_and_cannot_make_others(home: Home) -> None:
    ca = certificate(server_identity(home, NAMES, NOW).ca)
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage)
    assert (constraints.critical, constraints.value) == (True, x509.BasicConstraints(ca=True, path_length=0))
    assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, True, True)
    assert not usage.value.digital_signature
    assert ca.not_valid_after_utc == NOW + timedelta(days=3650)
    assert re.fullmatch("CN=Remit local authority [0-9a-f]{8}", ca.subject.rfc4514_string())


def test_the_certificate_is_for_servers_for_ninety_days_from_an_hour_ago(home: Home) -> None:
    leaf = certificate(server_identity(home, NAMES, NOW).cert)
    uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert (leaf.not_valid_before_utc, leaf.not_valid_after_utc) == (NOW - timedelta(hours=1), NOW + 90 * DAY)
    assert leaf.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature


def test_the_certificate_never_outlives_its_authority(home: Home) -> None:
    end = certificate(server_identity(home, NAMES, NOW).ca).not_valid_after_utc
    assert certificate(server_identity(home, NAMES, end - DAY).cert).not_valid_after_utc == end


def test_it_is_kept_as_it_is_while_nothing_changes(home: Home, place: Path) -> None:
    server_identity(home, NAMES, NOW)
    before = contents(place)
    server_identity(home, [*reversed(NAMES), "LocalHost"], NOW + 60 * DAY)
    assert contents(place) == before


@pytest.mark.parametrize(
    ("names", "now"),
    [
        (("127.0.0.1", "localhost"), NOW),
        ((*NAMES, "proxy.example"), NOW),
        (NAMES, NOW + 60 * DAY + timedelta(seconds=1)),
        (NAMES, NOW + 400 * DAY),
    ],
)
def test_it_is_made_anew_for_other_names_and_near_its_end(
    home: Home, place: Path, names: tuple[str, ...], now: datetime
) -> None:
    server_identity(home, NAMES, NOW)
    before = contents(place)
    identity = server_identity(home, names, now)
    after = contents(place)
    assert {name for name in after if after[name] != before[name]} == {"proxy.pem"}
    assert certificate(identity.cert).not_valid_after_utc == now + 90 * DAY


@pytest.mark.parametrize("name", ["proxy.pem", "proxy-key.pem"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", b"x" * 100_000, None])
def test_what_the_proxy_alone_uses_is_made_anew_when_damaged(
    home: Home, place: Path, name: str, damage: bytes | None
) -> None:
    server_identity(home, NAMES, NOW)
    if damage is None:
        (place / "tls" / name).unlink()
    else:
        (place / "tls" / name).write_bytes(damage)
    assert verified_name(server_identity(home, NAMES, NOW), "localhost")


@pytest.mark.parametrize("swapped", [("proxy.pem",), ("proxy-key.pem",), ("proxy.pem", "proxy-key.pem")])
def test_a_certificate_of_another_key_or_another_authority_is_made_anew(
    home: Home, place: Path, swapped: tuple[str, ...]
) -> None:
    server_identity(home, NAMES, NOW)
    with open_home(place.parent / "other") as other:
        server_identity(other, NAMES, NOW)
    for name in swapped:
        (place / "tls" / name).write_bytes((place.parent / "other" / "tls" / name).read_bytes())
    assert verified_name(server_identity(home, NAMES, NOW), "localhost")


@pytest.mark.parametrize(
    ("name", "damage", "error"),
    [
        ("ca-key.pem", None, StateMissing),
        ("ca-key.pem", b"", StateCorrupt),
        ("ca-key.pem", b"nonsense", StateCorrupt),
        ("ca.pem", b"", StateCorrupt),
        ("ca.pem", b"nonsense", StateCorrupt),
    ],
)
def test_an_authority_that_clients_trust_is_never_replaced(
    home: Home, place: Path, name: str, damage: bytes | None, error: type[RemitError]
) -> None:
    server_identity(home, NAMES, NOW)
    if damage is None:
        (place / "tls" / name).unlink()
    else:
        (place / "tls" / name).write_bytes(damage)
    before = contents(place)
    with pytest.raises(error) as caught:
        server_identity(home, NAMES, NOW + 80 * DAY)
    assert caught.value.code == error.code
    assert contents(place) == before


def test_the_key_of_another_authority_is_refused(home: Home, place: Path, tmp_path: Path) -> None:
    server_identity(home, NAMES, NOW)
    (place / "tls" / "ca-key.pem").write_bytes(Path(Workshop(tmp_path).authority().key_path).read_bytes())
    with pytest.raises(StateCorrupt):
        server_identity(home, NAMES, NOW)


def test_a_certificate_made_again_from_the_authoritys_key_is_what_clients_trusted(home: Home, place: Path) -> None:
    trusted = place.parent / "trusted.pem"
    trusted.write_bytes(Path(server_identity(home, NAMES, NOW).ca).read_bytes())
    (place / "tls" / "ca.pem").unlink()
    identity = server_identity(home, ["localhost"], NOW)
    assert verified_name(identity, "localhost")
    assert verified_name(identity._replace(ca=str(trusted)), "localhost")


@pytest.mark.parametrize("now", [NOW + 3651 * DAY, NOW - DAY])
def test_an_authority_that_is_not_valid_now_is_not_used(home: Home, now: datetime) -> None:
    server_identity(home, NAMES, NOW)
    with pytest.raises(CertificateUnusable) as caught:
        server_identity(home, NAMES, now)
    assert caught.value.code == "certificate_unusable"


@pytest.mark.parametrize(
    "name",
    ["", "*", "*.example.org", "a b", "a..b", ".a", "a.", "-a", "a-", "127.1", "999.0.0.1", "1.2.3.4.5", "[::1]", "ü",
     "a\0", "a\n", "a/b", "a:80", "x" * 64, ".".join(["x" * 60] * 5)],
)  # fmt: skip
def test_what_is_no_host_and_no_address_gets_no_certificate(home: Home, place: Path, name: str) -> None:
    with pytest.raises(FieldInvalid):
        server_identity(home, ["localhost", name], NOW)
    assert not (place / "tls").exists()


def test_no_name_at_all_gets_no_certificate(home: Home) -> None:
    with pytest.raises(FieldInvalid):
        server_identity(home, [], NOW)


def test_an_address_with_a_zone_is_named_without_it(home: Home, place: Path) -> None:
    assert verified_name(server_identity(home, ["fe80::1%eth0"], NOW), "fe80::1")
    before = contents(place)
    server_identity(home, ["fe80::1%eth1"], NOW)
    assert contents(place) == before


def test_files_are_their_owners_alone_whatever_the_umask(home: Home, place: Path) -> None:
    before = os.umask(0)
    try:
        server_identity(home, NAMES, NOW)
        issue_client(home, "agent", NOW)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place / "tls").iterdir()}
    assert set(modes) == {*FILES, "client-ca.pem", "client-ca-key.pem"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((place / "tls").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_the_place_of_a_file_is_refused(home: Home, place: Path, name: str) -> None:
    server_identity(home, NAMES, NOW)
    target = place.parent / "target"
    (place / "tls" / name).rename(target)
    (place / "tls" / name).symlink_to(target)
    before = target.read_bytes()
    with pytest.raises(HomeUnsafe):
        server_identity(home, ["elsewhere"], NOW)
    assert target.read_bytes() == before


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_others_can_read_is_refused(home: Home, place: Path, name: str) -> None:
    server_identity(home, NAMES, NOW)
    (place / "tls" / name).chmod(0o640)
    with pytest.raises(HomeUnsafe):
        server_identity(home, NAMES, NOW)


STARTED_AT_ONCE = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from remit.ledger.home import open_home
from remit.proxy.authority import server_identity
with open_home(Path(sys.argv[1])) as home:
    print("ready", flush=True)
    sys.stdin.read()
    identity = server_identity(home, ["localhost"], datetime.now(UTC))
    print(*(Path(path).read_bytes().hex() for path in identity))
"""


def test_processes_that_start_at_once_share_one_identity(home: Home, place: Path) -> None:
    command = [sys.executable, "-c", STARTED_AT_ONCE, str(place)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    assert [worker.stdout.readline() for worker in started if worker.stdout] == [b"ready\n"] * 4
    for worker in started:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.stdin = None
    said = {worker.communicate(timeout=60) for worker in started}
    assert len(said) == 1
    assert len(said.pop()[0].split()) == 3


def test_a_client_is_vouched_for_by_the_authority_of_clients_alone(home: Home, tmp_path: Path) -> None:
    server = server_identity(home, NAMES, NOW)
    client = issue_client(home, "agent:reviewer", NOW)
    path = tmp_path / "client.pem"
    path.write_bytes(client.cert)

    def verdict(ca: str, purpose: str) -> int:
        command = [program("openssl"), "verify", "-x509_strict", "-purpose", purpose, "-CAfile", ca, str(path)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert verdict(client.client_ca, "sslclient") == 0
    assert verdict(client.client_ca, "sslserver") != 0
    assert verdict(server.ca, "sslclient") != 0
    assert certificate(path).subject.rfc4514_string() == "CN=agent:reviewer"


def test_a_client_has_a_key_of_its_own_that_is_not_shown(home: Home, place: Path) -> None:
    one, other = issue_client(home, "one", NOW), issue_client(home, "other", NOW)
    assert one.client_ca == other.client_ca
    assert one.key != other.key
    assert b"PRIVATE KEY" in one.key
    assert "PRIVATE KEY" not in repr(one)
    assert set(contents(place)) == {"client-ca.pem", "client-ca-key.pem"}


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0", "a,CN=b", "a/CN=b", "ü", "x" * 65, "-a"])
def test_a_client_needs_a_plain_name(home: Home, name: str) -> None:
    with pytest.raises(FieldInvalid):
        issue_client(home, name, NOW)


@pytest.mark.parametrize("lifetime", [timedelta(), -DAY, 3651 * DAY])
def test_a_client_is_vouched_for_over_a_time_that_makes_sense(home: Home, lifetime: timedelta) -> None:
    with pytest.raises(FieldInvalid):
        issue_client(home, "agent", NOW, lifetime=lifetime)
