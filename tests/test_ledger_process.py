"""The ledger in a process of its own: who is let in, what is read, and what becomes of asks when it ends or hangs."""

import asyncio
import os
import secrets
import signal
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from msgspec import msgpack

from remit import Mission
from remit.errors import (
    FieldInvalid,
    LedgerInUse,
    LedgerUnavailable,
    PolicyInvalid,
    RemitError,
    SessionNotFound,
    StateMissing,
)
from remit.governor import handshake
from remit.governor.context import UseCaseRunner
from remit.governor.evaluate import Evaluate
from remit.governor.governor import Governor
from remit.governor.handshake import SOCKET_NAME, Introduction, PolicySettings
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.keys import DistrustKey, RotateKey
from remit.governor.remote import LedgerProcessNotRunning, RemoteGovernor, connect
from remit.governor.revoke import KillSwitch, RevokePassport
from remit.governor.sessions import EndSession, StartSession
from remit.governor.wire import (
    HEADER_BYTES,
    MAX_FRAME,
    FrameDecoder,
    decode_failure,
    decode_messages,
    encode_frame,
    encode_message,
)
from remit.ledger.home import open_home
from remit.policy.call import ToolCall
from remit.wiring import Service, build_service
from tests.cli.running import run
from tests.faults.proxy_driver import freeze, ledger_processes_of, until

PROJECT = "/srv/project"
ALLOWED = ToolCall("Read", {"file_path": f"{PROJECT}/a"})
SCRIPT = ToolCall("Bash", {"command": "cat a b c | sort | uniq -c"})
FORBIDDEN = ToolCall("Read", {"file_path": "/etc/passwd"})
IN_TIME_S = 20.0


def begun(governor: UseCaseRunner, calls: int = 100) -> str:
    """Return the id of a new session."""
    mission = Mission(
        agent_id="agent:test", mission="Test", allowed_tools=("Read", "Bash"), resource_scope=(PROJECT,),
        max_tool_calls=calls, cwd=PROJECT,
    )  # fmt: skip
    passport = governor.run(IssuePassport(PassportRequest(mission, f"pass:{secrets.token_hex(16)}")))
    return governor.run(StartSession(passport.token)).session.id


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "home"
    yield place
    for pid in ledger_processes_of(place):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def front(home: Path) -> Iterator[Service]:
    """Give a service whose ledger is in a process of its own."""
    with closing(build_service(home, service="test", processes=2)) as service:
        yield service


@contextmanager
def connected(home: Path) -> Iterator[socket.socket]:
    """Give a connection that has passed the handshake."""
    with open_home(home) as opened, connect(opened, Introduction("", PolicySettings())) as connection:
        connection.settimeout(IN_TIME_S)
        yield connection


def received(connection: socket.socket) -> list[RemitError]:
    """Return the failures of the next frame that holds any."""
    frames = FrameDecoder()
    while data := connection.recv(65536):
        for body in frames.feed(data):
            found = [decode_failure(content) for _, _, content in decode_messages(body)]
            if found:
                return [error for error in found if isinstance(error, RemitError)]
    return []


def ended(connection: socket.socket) -> bool:
    """Tell whether the other end has hung up."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def raw(home: Path) -> socket.socket:
    """Return a connection that has said nothing yet."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(IN_TIME_S)
    with open_home(home) as opened, opened.folder("run") as folder:
        connection.connect(folder.socket_address(SOCKET_NAME))
    return connection


def works(service: Service) -> bool:
    """Tell whether the ledger takes something."""
    return service.governor.run(Evaluate(begun(service.governor), ALLOWED)).permits


def test_a_front_decides_and_records_by_the_ledger_process_and_holds_no_private_key(front: Service) -> None:
    governor = front.governor
    assert isinstance(governor, RemoteGovernor)
    session = begun(governor)
    answers = [governor.run(Evaluate(session, call, key)) for key, call in enumerate_calls()]
    assert [answer.permits for answer in answers] == [True, True, False, True]
    assert answers[3].repeated
    assert answers[3].receipt == answers[0].receipt
    with pytest.raises(LedgerUnavailable, match="no private keys"):
        front.keys.signing(front.reader.ledger_state().kid)
    with pytest.raises(SessionNotFound):
        governor.run(EndSession("pass:nobody"))
    with pytest.raises(FieldInvalid, match=r"\$\.tool_name"):
        governor.run(Evaluate(session, ToolCall("", {})))


async def disconnected(service: Service) -> None:
    """Close the connection of this loop, which ends."""
    assert isinstance(service.governor, RemoteGovernor)
    await service.governor.disconnect()


def enumerate_calls() -> list[tuple[str, ToolCall]]:
    """Return calls with their keys, the last one again."""
    return [("a", ALLOWED), ("b", SCRIPT), ("c", FORBIDDEN), ("a", ALLOWED)]


def test_what_is_asked_together_on_a_loop_is_answered_and_the_budget_is_exact(front: Service) -> None:
    session = begun(front.governor, calls=40)

    async def ask() -> list[bool]:
        answers = await asyncio.gather(
            *(front.governor.arun(Evaluate(session, SCRIPT if n % 8 == 0 else ALLOWED)) for n in range(60))
        )
        await disconnected(front)
        return [answer.permits for answer in answers]

    assert sum(asyncio.run(ask())) == 40
    kept = front.reader.session(session)
    assert kept is not None
    assert (kept.used, kept.length) == (40, 60)


def test_a_revocation_between_judging_and_appending_is_kept_to(front: Service) -> None:
    session = begun(front.governor)
    assert front.governor.run(Evaluate(session, ALLOWED)).permits
    front.governor.run(RevokePassport(session))
    refused = front.governor.run(Evaluate(session, ALLOWED))
    assert not refused.permits
    assert refused.receipt.claims.internal_denial_code == "passport_revoked"
    other = begun(front.governor)
    front.governor.run(KillSwitch(on=True))
    assert not front.governor.run(Evaluate(other, SCRIPT)).permits


def test_keys_are_changed_by_the_process_that_holds_them(front: Service) -> None:
    session = begun(front.governor)
    before = front.governor.run(Evaluate(session, ALLOWED)).receipt
    record = front.governor.run(RotateKey())
    after = front.governor.run(Evaluate(session, ALLOWED)).receipt
    assert (after.kid, before.kid != after.kid) == (record.kid, True)
    done = front.governor.run(DistrustKey(record.kid, int(time.time() * 1000) + 60_000))
    assert (done.rotated, done.signing != record.kid) == (True, True)
    assert front.governor.run(Evaluate(session, ALLOWED)).permits
    with pytest.raises(FieldInvalid, match="no key of this home"):
        front.governor.run(DistrustKey("nobody", 0))


def test_others_are_clients_of_whoever_holds_the_ledger(home: Path) -> None:
    with closing(build_service(home)) as first, closing(build_service(home)) as second:
        assert isinstance(first.governor, Governor)
        assert isinstance(second.governor, RemoteGovernor)
        session = begun(second.governor)
        assert first.governor.run(Evaluate(session, ALLOWED)).permits
        assert second.governor.run(Evaluate(session, ALLOWED)).permits
    with closing(build_service(home)) as third:
        assert isinstance(third.governor, Governor)


def test_the_policies_of_a_front_hold_in_the_ledger_process_too(home: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.cedar"
    rules.write_text(
        "permit(principal, action, resource); forbid(principal, action, resource) "
        f'when {{ context.paths.contains("{PROJECT}/a") }};',
        encoding="utf-8",
    )
    with closing(build_service(home)) as first, closing(build_service(home, policies=str(rules))) as second:
        session = begun(first.governor)
        assert first.governor.run(Evaluate(session, ALLOWED)).permits
        denied = second.governor.run(Evaluate(session, ALLOWED))
        assert denied.receipt.claims.internal_denial_code == "engine_denied"
        with open_home(home) as opened, pytest.raises(PolicyInvalid):
            connect(opened, Introduction("", PolicySettings(policies="permit(")))


def test_the_socket_is_its_owners_alone_wherever_the_home_lies(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 40)
    place.mkdir()
    with closing(build_service(place / "home")), closing(build_service(place / "home")) as client:
        found = (place / "home/run" / SOCKET_NAME).stat()
        assert (stat.S_IMODE(found.st_mode), stat.S_ISSOCK(found.st_mode)) == (0o600, True)
        assert stat.S_IMODE((place / "home/run").stat().st_mode) == 0o700
        assert stat.S_IMODE((place / "home/run/ledger.secret").stat().st_mode) == 0o600
        assert isinstance(client.governor, RemoteGovernor)
        assert works(client)


def test_who_does_not_know_the_secret_is_not_served_and_not_believed(home: Path) -> None:
    with closing(build_service(home)) as service:
        secret = home / "run/ledger.secret"
        right = secret.read_bytes()
        secret.write_bytes(secrets.token_bytes(32))
        with open_home(home) as opened, pytest.raises(LedgerUnavailable, match="does not know the secret"):
            connect(opened, Introduction("", PolicySettings()))
        # Anyone could prove to know a secret that is empty.
        secret.write_bytes(b"")
        with open_home(home) as opened, pytest.raises(LedgerProcessNotRunning):
            connect(opened, Introduction("", PolicySettings()))
        secret.write_bytes(right)
        for proof in (b"", b"x" * 32, None):
            with raw(home) as connection:
                mine = handshake.new_hello()
                send(connection, handshake.encode(mine))
                other = handshake.decode_hello(connection.recv(4096)[HEADER_BYTES:])
                # The proof of the other side, sent back, proves nothing.
                send(connection, handshake.encode(other.proof if proof is None else proof))
                send(connection, handshake.encode(Introduction("test", PolicySettings())))
                assert ended(connection)
        assert works(service)


def send(connection: socket.socket, message: bytes) -> None:
    """Send a message of the handshake."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(len(message).to_bytes(HEADER_BYTES) + message)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\1\xc1",
        encode_frame([encode_message(1, "EndSession", {"session_id": "a"})]),
        b"\0\0\4\1" + b"x" * 1025,
    ],
    ids=repr,
)
def test_what_is_no_handshake_is_cut_off(home: Path, data: bytes) -> None:
    with closing(build_service(home)) as service:
        with raw(home) as connection:
            connection.sendall(data)
            assert ended(connection)
        assert works(service)


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\1\xc1", (MAX_FRAME + 1).to_bytes(HEADER_BYTES), b"\0\0\0\2\x91\1", b"\0\0\0\0"],
    ids=repr,
)
def test_what_is_no_frame_of_messages_is_cut_off(home: Path, data: bytes) -> None:
    with closing(build_service(home)) as service, connected(home) as connection:
        connection.sendall(data)
        assert ended(connection)
        assert works(service)


def test_what_is_no_use_case_is_refused_and_the_connection_goes_on(home: Path) -> None:
    with closing(build_service(home)) as service, connected(home) as connection:
        asks = [
            ("Nothing", {}),
            ("End", {"session_id": 5}),
            ("Issue", {"order": {"mission": {"agent_id": "", "mission": ""}, "jti": "x"}}),
            ("Evaluate", {"session_id": "a", "call": ["Read", {}], "idempotency_key": "x" * 300}),
        ]
        for name, content in asks:
            connection.sendall(encode_frame([encode_message(7, name, content)]))
            assert [type(error) for error in received(connection)] == [FieldInvalid]
        connection.sendall(encode_frame([encode_message(8, "EndSession", {"session_id": "pass:nobody"})]))
        assert [type(error) for error in received(connection)] == [SessionNotFound]
        assert works(service)


PERMITTED = ["native", "", "permitted", None, 0.0]
GUARDED = ["guard", "", "permitted", None, 0.0]


@pytest.mark.parametrize(
    ("findings", "changes"),
    [
        ([["mine", "", "permitted", None, 0.0]], {}),
        ([], {}),
        ([PERMITTED], {}),
        ([GUARDED, PERMITTED], {}),
        ([PERMITTED, GUARDED, GUARDED], {}),
        ([["native", "nonsense", "denied", None, 0.0]], {}),
        ([["native", "out_of_scope", "denied", None, 0.0], GUARDED], {}),
        ([PERMITTED, GUARDED], {"session": "pass:another"}),
        ([PERMITTED, GUARDED], {"tool": "Write"}),
        ([PERMITTED, GUARDED], {"sides": []}),
        ([PERMITTED, GUARDED], {"once": ["key", "digest"]}),
    ],
    ids=str,
)
def test_findings_that_the_engines_here_could_not_have_had_do_not_count(
    home: Path, findings: list[list[object]], changes: dict[str, object]
) -> None:
    with closing(build_service(home)) as service, connected(home) as connection:
        session = begun(service.governor)
        forged = {
            "session_id": session,
            "call": ["Read", {"file_path": "/etc/passwd"}],
            "prejudged": [
                b"{}",
                False,
                changes.get("once"),
                [changes.get("session", session), [1, 1, True], ""],
                findings,
                [changes.get("tool", "Read"), "read", "file", "/etc/passwd", changes.get("sides", ["none"])],
            ],
        }
        connection.sendall(encode_frame([encode_message(1, "Evaluate", forged)]))
        until(lambda: bool(service.reader.receipts(session)))
        [kept] = service.reader.receipts(session)
        assert service.governor.context.receipt(kept.token).claims.verdict == "violation"


def test_another_version_is_refused_by_a_sentence(home: Path, front: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert works(front)
    monkeypatch.setattr(handshake, "__version__", "9.9.9")
    with pytest.raises(LedgerInUse, match=r"is Remit 0.*, and this is Remit 9\.9\.9: restart the services"):
        build_service(home)


def test_a_process_that_was_killed_is_replaced_and_nothing_is_permitted_meanwhile(home: Path, front: Service) -> None:
    session = begun(front.governor)
    first = front.governor.run(Evaluate(session, ALLOWED, "key"))
    [pid] = ledger_processes_of(home)
    os.kill(pid, signal.SIGKILL)
    with suppress(LedgerUnavailable):
        assert front.governor.run(Evaluate(session, ALLOWED, "key")).receipt == first.receipt
    until(lambda: ledger_processes_of(home) not in ([], [pid]))

    def again() -> bool:
        try:
            return front.governor.run(Evaluate(session, ALLOWED, "key")).repeated
        except LedgerUnavailable:
            return False

    until(again)
    assert front.governor.run(Evaluate(session, ALLOWED, "key")).receipt == first.receipt


def test_a_process_that_hangs_is_given_up_in_time(home: Path, front: Service) -> None:
    session = begun(front.governor)
    [pid] = ledger_processes_of(home)

    async def ask() -> tuple[float, Sequence[object]]:
        assert (await front.governor.arun(Evaluate(session, ALLOWED))).permits
        freeze(pid)
        begun_at = time.monotonic()
        asks = (front.governor.arun(Evaluate(session, ALLOWED, f"hang{n}")) for n in range(5))
        answers = list(await asyncio.gather(*asks, return_exceptions=True))
        await disconnected(front)
        return begun_at, answers

    try:
        begun_at, answers = asyncio.run(ask())
        with pytest.raises(LedgerUnavailable):
            front.governor.run(Evaluate(session, ALLOWED, "hang5"))
        assert time.monotonic() - begun_at < IN_TIME_S
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [type(answer) for answer in answers] == [LedgerUnavailable] * 5
    until(lambda: works(front))
    receipts = [front.governor.run(Evaluate(session, ALLOWED, f"hang{n}")).receipt.hash for n in range(6)]
    assert len(set(receipts)) == 6


def test_it_outlives_the_service_that_started_it_and_ends_with_the_last(home: Path) -> None:
    first = build_service(home, service="one", processes=2)
    second = build_service(home, service="two", processes=1)
    [pid] = ledger_processes_of(home)
    first.close()
    assert works(second)
    os.kill(pid, signal.SIGTERM)  # it is asked to end, and does so when nobody needs it
    assert works(second)
    assert ledger_processes_of(home) == [pid]
    second.close()
    until(lambda: ledger_processes_of(home) == [])
    assert not (home / "ledger.db-wal").exists()
    with open_home(home) as opened, pytest.raises(LedgerProcessNotRunning):
        connect(opened, Introduction("", PolicySettings()))


def test_a_service_starts_a_process_when_the_one_that_held_the_ledger_has_ended(home: Path) -> None:
    first = build_service(home, service="one", processes=1)
    second = build_service(home, service="two", processes=1)
    assert isinstance(second.governor, RemoteGovernor)
    assert works(second)
    first.close()
    until(lambda: ledger_processes_of(home) != [])
    until(lambda: quietly(second))
    second.close()
    until(lambda: ledger_processes_of(home) == [])


def quietly(service: Service) -> bool:
    """Tell whether the ledger takes something by now."""
    try:
        return works(service)
    except LedgerUnavailable:
        return False


def test_what_is_wrong_with_the_home_is_said_as_in_one_process(home: Path) -> None:
    with closing(build_service(home)) as service:
        assert works(service)
    (home / "ledger.db").unlink()
    said = list[str]()
    for processes in (1, 2):
        with pytest.raises(StateMissing) as refused:
            build_service(home, service="test", processes=processes)
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert "remit ledger restore" in said[0]
    assert not (home / "ledger.db").exists()


def test_a_ledger_that_is_gone_is_not_made_again_when_its_process_was_killed(home: Path, front: Service) -> None:
    session = begun(front.governor)
    [pid] = ledger_processes_of(home)
    kept = {path.name for path in home.iterdir()}
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.id", "ledger.anchor"):
        (home / name).unlink(missing_ok=True)
    os.kill(pid, signal.SIGKILL)
    until(lambda: "state_missing" in (home / "log/ledger.log").read_text(encoding="utf-8"))
    with pytest.raises(LedgerUnavailable):
        front.governor.run(Evaluate(session, ALLOWED))
    assert {path.name for path in home.iterdir()} < kept


def test_messages_are_plain_data() -> None:
    # Nothing that is decoded can name code: what arrives is arrays, maps, texts, numbers and bytes.
    assert msgpack.decode(encode_message(1, "EndSession", EndSession("a"))) == [1, "EndSession", {"session_id": "a"}]


def test_services_of_one_home_share_one_process_and_commands_are_its_clients(home: Path) -> None:
    with (
        closing(build_service(home, service="hub", processes=2)) as hub,
        closing(build_service(home, service="proxy", processes=2)) as proxy,
    ):
        assert len(ledger_processes_of(home)) == 1
        token = run(home, "issue", "--agent-id", "agent:test", "--mission", "Test", "--allowed-tools", "Read",
                    "--resource-scope", PROJECT).stdout.strip()  # fmt: skip
        session = proxy.governor.run(StartSession(token)).session.id
        assert hub.governor.run(Evaluate(session, ALLOWED)).permits
        assert run(home, "keys", "rotate").exit_code == 0
        assert proxy.governor.run(Evaluate(session, ALLOWED)).permits
        assert run(home, "revoke", session).exit_code == 0
        assert not hub.governor.run(Evaluate(session, ALLOWED)).permits
        copy = home.with_name("copy.db")
        assert run(home, "ledger", "backup", str(copy)).exit_code == 0
        assert run(home, "ledger", "check").exit_code == 0
        refused = run(home, "ledger", "restore", str(copy))
        assert (refused.exit_code, "stop the Hub and the proxy first" in refused.stderr) == (78, True)
    until(lambda: ledger_processes_of(home) == [])
    assert run(home, "ledger", "restore", str(copy)).exit_code == 0
