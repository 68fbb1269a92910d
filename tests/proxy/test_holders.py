"""Mutual TLS on a real proxy: who started a session keeps it, and certificates change while it runs."""

import hashlib
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit import Confirmation
from remit.claims.canonical import sha256_base64url
from tests.proxy.certificates import Pair, Workshop
from tests.proxy.service import HTTP, read_answer
from tests.proxy.visitor import README, Visitor, visiting

PATIENCE_S = 60.0


class Party(NamedTuple):
    """Two clients with certificates of one authority, and that authority."""

    workshop: Workshop
    authority: Pair
    a: Pair
    b: Pair


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Party:
    workshop = Workshop(tmp_path_factory.mktemp("certificates"))
    authority = workshop.authority()
    return Party(workshop, authority, workshop.client(authority), workshop.client(authority))


@pytest.fixture(scope="module")
def visitor(party: Party, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    home = tmp_path_factory.mktemp("proxy") / "home"
    with visiting(home, "--client-ca", party.authority.cert_path) as visitor:
        yield visitor


def _showing(visitor: Visitor, pair: Pair) -> Visitor:
    return replace(visitor, certificate=(pair.cert_path, pair.key_path))


@pytest.fixture
def a(visitor: Visitor, party: Party) -> Visitor:
    return _showing(visitor, party.a)


@pytest.fixture
def b(visitor: Visitor, party: Party) -> Visitor:
    return _showing(visitor, party.b)


def _asked_of(session: str, receipt: str) -> list[tuple[str, dict[str, Any]]]:
    """Return everything that can be asked of a session."""
    mission = {"agent_id": "agent:b", "mission": "Take over", "max_tool_calls": 1, "max_duration_s": 60}
    return [
        ("/evaluate", {"session_id": session, "tool_name": "Read", "arguments": {"file_path": README}}),
        (
            "/result",
            {"session_id": session, "receipt_id": receipt, "result_hash": {"alg": "sha-256", "value": "A" * 43}},
        ),
        ("/delegate", {"session_id": session, "request_id": "r", "mission": mission}),
        (f"/sessions/{session}/attest", {"end": True}),
        ("/session/end", {"session_id": session}),
    ]


def test_a_session_is_its_starters_and_nobody_elses(a: Visitor, b: Visitor) -> None:
    token = a.passport()
    session = a.told("/session/start", {"token": token})["session_id"]
    receipt = a.read(session)["receipt_id"]
    assert b.refused("/session/start", {"token": token}) == "403 holder_mismatch"
    for path, body in _asked_of(session, receipt):
        assert b.refused(path, body) == "403 holder_mismatch", path
    for path, body in _asked_of(session, receipt):
        assert a.told(path, body)["ok"] is True, path


def test_without_a_certificate_nobody_is_served(visitor: Visitor, party: Party) -> None:
    stranger = _showing(visitor, party.workshop.wrong_client("of another authority", party.authority))
    for client in (visitor, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.get("/health")


def test_a_passport_that_is_bound_starts_for_its_holder_alone(a: Visitor, b: Visitor, party: Party) -> None:
    thumbprint = sha256_base64url(party.a.der)
    token = a.passport(bound_to=Confirmation(certificate=thumbprint))
    assert b.refused("/session/start", {"token": token}) == "403 holder_mismatch"
    assert a.told("/session/start", {"token": token})["existing"] is False


def test_a_passport_that_is_bound_to_a_key_starts_for_nobody(a: Visitor) -> None:
    token = a.passport(bound_to=Confirmation(jkt="A" * 43))
    assert a.refused("/session/start", {"token": token}) == "403 holder_mismatch"


def test_a_delegate_is_bound_to_whom_its_parent_says(a: Visitor, b: Visitor, party: Party) -> None:
    mission = {"agent_id": "agent:b", "mission": "Help", "allowed_tools": ["Read"], "resource_scope": [README]}
    asked = {
        "session_id": a.start(),
        "request_id": "r",
        "mission": mission | {"max_tool_calls": 1, "max_duration_s": 60},
        "cnf": {"x5t#S256": sha256_base64url(party.b.der)},
    }
    token = a.told("/delegate", asked)["token"]
    assert a.refused("/session/start", {"token": token}) == "403 holder_mismatch"
    assert b.read(b.told("/session/start", {"token": token})["session_id"])["decision"] == "PERMIT"


def test_without_mutual_tls_sessions_are_bound_to_nobody_and_bound_passports_start_nothing(
    party: Party, tmp_path: Path
) -> None:
    with visiting(tmp_path / "home", HTTP) as visitor:
        bound = visitor.passport(bound_to=Confirmation(certificate=sha256_base64url(party.a.der)))
        assert visitor.refused("/session/start", {"token": bound}) == "403 holder_mismatch"
        free, session = visitor.passport(), visitor.start()
        visitor.told("/session/start", {"token": free})
    with visiting(tmp_path / "home", "--client-ca", party.authority.cert_path) as visitor:
        assert _showing(visitor, party.a).read(session)["decision"] == "PERMIT"
        assert _showing(visitor, party.b).read(session)["decision"] == "PERMIT"
        assert _showing(visitor, party.b).told("/session/start", {"token": free})["existing"] is True


def test_the_binding_outlives_the_process(party: Party, tmp_path: Path) -> None:
    with visiting(tmp_path / "home", "--client-ca", party.authority.cert_path) as visitor:
        session = _showing(visitor, party.a).start()
    with visiting(tmp_path / "home", "--client-ca", party.authority.cert_path) as visitor:
        mine, other = _showing(visitor, party.a), _showing(visitor, party.b)
        assert other.refused("/session/end", {"session_id": session}) == "403 holder_mismatch"
        assert mine.read(session)["decision"] == "PERMIT"


class Files(NamedTuple):
    """The files that a proxy was started with, to be replaced while it runs."""

    cert: Path
    key: Path
    client_ca: Path

    def put(self, server: Pair, clients: Pair) -> None:
        """Replace them, each in one step."""
        for place, source in zip(self, (server.cert_path, server.key_path, clients.cert_path), strict=True):
            shutil.copy(source, place.with_suffix(".new"))
            place.with_suffix(".new").replace(place)


class Changing(NamedTuple):
    """A proxy whose files are replaced, and the certificate that it shows at first."""

    visitor: Visitor
    files: Files
    first: Pair


@pytest.fixture(scope="module")
def brought(party: Party, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    """A proxy with certificates that somebody else brought."""
    folder = tmp_path_factory.mktemp("brought")
    files = Files(folder / "cert.pem", folder / "key.pem", folder / "clients.pem")
    server = party.workshop.server(party.authority)
    files.put(server, party.authority)
    (folder / "home" / "tls").mkdir(parents=True, mode=0o700)
    (folder / "home").chmod(0o700)
    shutil.copy(party.authority.cert_path, folder / "home" / "tls" / "ca.pem")
    options = ["--tls-cert", str(files.cert), "--tls-key", str(files.key), "--client-ca", str(files.client_ca)]
    with visiting(folder / "home", *options) as visitor:
        yield Changing(_showing(visitor, party.a), files, server)


@pytest.fixture
def changing(brought: Changing, party: Party) -> Changing:
    """The same, with the files that it had at first."""
    brought.files.put(brought.first, party.authority)
    _hang_up(brought.visitor, "certificates_read")
    return brought


def _shown(visitor: Visitor) -> str:
    """Return the thumbprint of the certificate that the proxy shows to a new connection."""
    with visitor.proxy.connect(visitor.certificate) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        return hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()


def _fingerprint(pair: Pair) -> str:
    return hashlib.sha256(pair.der).hexdigest()


def _hang_up(visitor: Visitor, event: str) -> None:
    """Tell the proxy to read its files again, and wait until it says how that went."""
    said = visitor.proxy.log.count(event)
    os.kill(visitor.proxy.pid, signal.SIGHUP)
    _await(lambda: visitor.proxy.log.count(event) > said)


def _await(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def _asks_again(visitor: Visitor, connection: socket.socket) -> int:
    connection.sendall(visitor.proxy.request("GET", "/health"))
    return read_answer(connection).status


def test_a_new_certificate_is_for_new_connections_and_old_ones_go_on(changing: Changing, party: Party) -> None:
    visitor, files, first = changing
    second = party.workshop.server(party.authority)
    with visitor.proxy.connect(visitor.certificate) as connection:
        assert _asks_again(visitor, connection) == 200
        files.put(second, party.authority)
        assert _shown(visitor) == _fingerprint(first)
        _hang_up(visitor, "certificates_read")
        assert _asks_again(visitor, connection) == 200
    assert _shown(visitor) == _fingerprint(second)


@pytest.mark.parametrize("broken", ["cert", "key", "client_ca"])
def test_a_broken_file_leaves_the_old_ones_in_use_and_is_told(changing: Changing, broken: str) -> None:
    visitor, files, first = changing
    getattr(files, broken).write_text("not a certificate")
    _hang_up(visitor, "settings_kept")
    assert _shown(visitor) == _fingerprint(first)
    assert visitor.get("/health").status == 200


def test_clients_of_an_authority_that_was_replaced_are_not_served_any_more(changing: Changing, party: Party) -> None:
    visitor, files, first = changing
    others = party.workshop.authority("Another authority")
    files.put(first, others)
    _hang_up(visitor, "certificates_read")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        visitor.get("/health")
    assert _showing(visitor, party.workshop.client(others)).get("/health").status == 200
