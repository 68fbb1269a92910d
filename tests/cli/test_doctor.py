"""`remit doctor`: one line for each thing, what to do, and an exit code."""

import json
import os
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import apsw
import pytest

from remit.cli.errors import DONE, STATE, USAGE
from remit.ledger.home import open_home
from remit.proxy.authority import issue_client, server_identity
from tests.cli.running import issued, lines, piped, run
from tests.faults.proxy_driver import freeze
from tests.hub.service import running as running_hub
from tests.ledger.service import Service
from tests.proxy.service import HTTP, running

NAMES = [
    "python",
    "sqlite",
    "umask",
    "disk",
    "home",
    "settings",
    "certificate",
    "ledger",
    "verification",
    "keys",
    "kill switch",
    "clock",
    "hub",
    "proxy",
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    service = Service(tmp_path / "home")
    service.call(service.start())
    service.close()
    return tmp_path / "home"


def checks(place: Path, *arguments: str, code: int = DONE) -> dict[str, dict[str, str]]:
    result = run(place, "doctor", "--json", *arguments)
    assert result.exit_code == code, result.output
    document = json.loads(result.stdout)
    assert list(document) == (["ok", "checks"] if code == DONE else ["ok", "error", "error_code", "checks"])
    listed = document["checks"]
    assert all(set(check) == {"name", "state", "said", "advice"} for check in listed)
    assert all(check["advice"] for check in listed if check["state"] != "ok")
    return {check["name"]: check for check in listed}


def test_a_healthy_home_is_ok_in_a_line_each(place: Path) -> None:
    result = run(place, "doctor")
    assert result.exit_code == DONE
    shown = [line for line in lines(result.stdout) if not line.startswith(" ")]
    assert [line[9:22].strip() for line in shown] == NAMES
    assert [line for line in shown if not line.startswith("ok ")] == [
        "warning  verification not verified continuously: neither the Hub nor the proxy is running"
    ]
    assert "ok       keys         1, signing <kid>" in shown
    assert {name for name, check in checks(place).items() if check["state"] != "ok"} == {"verification"}


def test_a_broken_chain_is_a_problem_whether_or_not_a_service_runs(place: Path) -> None:
    with closing(apsw.Connection(str(place / "ledger.db"))) as ledger:
        ledger.execute("UPDATE sessions SET broken = 1, cause = 'chain_broken'")
    found = checks(place, code=STATE)["verification"]
    assert found["state"] == "problem"
    assert "is broken" in found["said"]


def test_without_a_home_it_says_so_and_makes_none(tmp_path: Path) -> None:
    found = checks(tmp_path / "nowhere")
    assert found["home"]["state"] == "warning"
    assert set(found) == set(NAMES[:5])
    assert list(tmp_path.iterdir()) == []


def test_a_home_without_a_ledger_gets_none(tmp_path: Path) -> None:
    run(tmp_path / "home", "token", "admin")
    assert checks(tmp_path / "home")["ledger"]["state"] == "warning"
    assert not (tmp_path / "home" / "ledger.db").exists()


def test_a_folder_for_the_home_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert checks(tmp_path / "no" / "where", code=STATE)["disk"]["state"] == "problem"


def open_to_others(place: Path) -> None:
    (place / "config.json").write_text("{}", encoding="ascii")
    (place / "config.json").chmod(0o644)


def rolled_back(place: Path) -> None:
    anchor = json.loads((place / "ledger.anchor").read_bytes())
    (place / "ledger.anchor").write_text(json.dumps(anchor | {"receipts": 7}), encoding="ascii")


def from_the_future(place: Path) -> None:
    """Put the receipt of a session in the place of one that a clock ahead of ours has made."""
    from remit import Mission
    from remit.governor.clock import Moment
    from remit.governor.evaluate import Evaluate
    from remit.governor.issue import IssuePassport, PassportRequest
    from remit.governor.sessions import StartSession
    from remit.policy.call import ToolCall
    from remit.wiring import build_service

    class Ahead:
        def now(self) -> Moment:
            ms = int(datetime.now(UTC).timestamp() * 1000) + 3_600_000
            return Moment(ms, ms, "boot")

    service = build_service(place)
    service.governor.context.clock = Ahead()
    token = service.governor.run(
        IssuePassport(PassportRequest(Mission(agent_id="a", mission="b"), "pass:from-later"))
    ).token
    session = service.governor.run(StartSession(token)).session
    service.governor.run(Evaluate(session.id, ToolCall("Read", {})))
    service.close()


def foreign(place: Path) -> None:
    connection = apsw.Connection(str(place / "ledger.db"))
    connection.pragma("application_id", 1)
    connection.close()


BREAKS = {
    "home": open_to_others,
    "settings": lambda place: (place / "config.json").write_text("{", encoding="ascii"),
    "ledger": rolled_back,
    "keys": lambda place: next((place / "keys").glob("*.pem")).unlink(),
    "clock": from_the_future,
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_a_problem_with_advice(place: Path, name: str) -> None:
    BREAKS[name](place)
    found = checks(place, code=STATE)
    assert found[name]["state"] == "problem"
    shown = run(place, "doctor").stdout.splitlines()
    (at,) = (at for at, line in enumerate(shown) if line.startswith("problem") and line[9:].startswith(name))
    assert shown[at + 1].startswith(" " * 22)


def opened(name: str, *, is_folder: bool) -> Callable[[Path], None]:
    def break_it(place: Path) -> None:
        made = place / name
        made.parent.mkdir(mode=0o700, exist_ok=True)
        (made.mkdir if is_folder else made.touch)()
        made.chmod(0o777 if is_folder else 0o666)

    return break_it


OPENED: dict[str, Callable[[Path], object]] = {
    "log": opened("log", is_folder=True),
    "proxy.log": opened("log/proxy.log", is_folder=False),
    "notes": opened("notes", is_folder=False),
    "within": opened("one/two", is_folder=True),
    "link": lambda place: (place / "elsewhere").symlink_to("/"),
    "link within": lambda place: (place / "keys" / "elsewhere.pem").symlink_to("/etc/passwd"),
    "second name": lambda place: os.link(place / "ledger.db", place.parent / "second"),
}


@pytest.mark.parametrize("what", OPENED)
def test_everything_in_the_home_must_be_its_owners_alone(place: Path, what: str) -> None:
    OPENED[what](place)
    assert checks(place, code=STATE)["home"]["state"] == "problem"


@pytest.mark.parametrize(
    "break_it",
    [
        foreign,
        lambda place: (place / "ledger.db").unlink(),
        lambda place: (place / "ledger.anchor").write_text("x", encoding="ascii"),
    ],
)
def test_a_ledger_that_does_not_open_is_a_problem(place: Path, break_it: object) -> None:
    break_it(place)  # type: ignore[operator]
    assert checks(place, code=STATE)["ledger"]["state"] == "problem"


def test_a_home_that_is_open_to_others_is_a_problem(place: Path) -> None:
    place.chmod(0o755)
    assert checks(place, code=STATE)["home"]["state"] == "problem"


def test_a_kill_switch_is_a_warning(place: Path) -> None:
    run(place, "kill-switch", "on")
    assert checks(place)["kill switch"]["state"] == "warning"


def test_a_umask_that_keeps_files_from_their_owner_is_a_problem(place: Path) -> None:
    result = piped(place, "doctor", "--json", umask=0o777)
    found = {check["name"]: check["state"] for check in json.loads(result.stdout)["checks"]}
    assert (result.returncode, found["umask"]) == (STATE, "problem")


@pytest.mark.parametrize(
    ("age_days", "state", "code"), [(0, "ok", DONE), (85, "warning", DONE), (91, "problem", STATE)]
)
def test_the_days_of_the_certificate_are_counted(place: Path, age_days: int, state: str, code: int) -> None:
    with open_home(place) as home:
        server_identity(home, ["localhost"], datetime.now(UTC) - timedelta(days=age_days))
    assert checks(place, code=code)["certificate"]["state"] == state


TLS_FILES = ["proxy.pem", "proxy-key.pem", "ca.pem", "ca-key.pem", "client-ca.pem", "client-ca-key.pem"]


def with_certificates(place: Path) -> Path:
    with open_home(place) as home:
        server_identity(home, ["localhost"], datetime.now(UTC))
        issue_client(home, "agent", datetime.now(UTC))
    assert sorted(file.name for file in (place / "tls").iterdir()) == sorted(TLS_FILES)
    return place / "tls"


@pytest.mark.parametrize("name", TLS_FILES)
def test_a_certificate_or_an_authority_that_cannot_be_used_is_a_problem(place: Path, name: str) -> None:
    tls = with_certificates(place)
    assert checks(place)["certificate"]["state"] == "ok"
    (tls / name).write_text("no", encoding="ascii")
    assert checks(place, code=STATE)["certificate"]["state"] == "problem"
    assert (tls / name).read_text(encoding="ascii") == "no"


@pytest.mark.parametrize("name", ["ca-key.pem", "client-ca-key.pem"])
def test_an_authority_without_its_own_key_is_a_problem_and_gets_none(place: Path, name: str) -> None:
    tls = with_certificates(place)
    (tls / name).write_bytes((tls / "proxy-key.pem").read_bytes())
    assert checks(place, code=STATE)["certificate"]["state"] == "problem"
    (tls / name).unlink()
    assert checks(place, code=STATE)["certificate"]["state"] == "problem"
    assert not (tls / name).exists()
    for cert in ("ca.pem", "client-ca.pem", "proxy.pem"):
        (tls / cert).unlink()
    assert checks(place)["certificate"]["state"] == "ok"
    assert len(list(tls.iterdir())) == 2


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"ok": True, "schema_version": "1", "version": "9.9.9"}).encode()
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Answers) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_a_proxy_that_answers_is_ok(place: Path, server: HTTPServer) -> None:
    found = checks(place, "--url", f"http://127.0.0.1:{server.server_port}")
    assert (found["proxy"]["state"], found["proxy"]["said"]) == ("ok", "remit 9.9.9 answers")


def test_a_proxy_is_asked_over_tls_with_the_authority_of_the_home(place: Path, server: HTTPServer) -> None:
    with open_home(place) as home:
        cert, key, _ = server_identity(home, ["127.0.0.1"], datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    assert checks(place, "--url", f"https://127.0.0.1:{server.server_port}")["proxy"]["state"] == "ok"


def test_a_proxy_that_does_not_answer_is_a_problem(place: Path) -> None:
    assert checks(place, "--url", "http://127.0.0.1:1", code=STATE)["proxy"]["state"] == "problem"
    run(place, "token", "admin")
    (place / "config.json").write_text("{", encoding="ascii")
    checks(place, "--url", "http://127.0.0.1:1", code=STATE)


@pytest.mark.parametrize("url", ["nowhere", "http://example.com", "ftp://127.0.0.1", "https://a b"])
def test_an_address_that_is_none_is_a_usage_error(place: Path, url: str) -> None:
    assert run(place, "doctor", "--url", url).exit_code == USAGE


def test_an_authority_that_is_none_is_a_fault_of_what_was_given(place: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no", encoding="ascii")
    given = ("--url", "https://127.0.0.1:1", "--ca", str(tmp_path / "ca.pem"))
    assert checks(place, *given, code=STATE)["authority"]["state"] == "problem"
    assert checks(place, *given[:2], code=STATE)["proxy"]["state"] == "problem"


@pytest.mark.parametrize("options", [[], [HTTP, "--require-token"], ["--host", "0.0.0.0"]], ids=" ".join)
def test_the_proxy_that_runs_is_looked_at_by_itself(place: Path, options: list[str]) -> None:
    with running(place, *options) as proxy:
        found = checks(place)["proxy"]
    assert found["state"] == "ok"
    assert proxy.url in found["said"]


def test_a_proxy_that_needs_a_certificate_is_a_warning(place: Path) -> None:
    with running(place, "--client-ca", str(with_certificates(place) / "client-ca.pem")):
        assert checks(place)["proxy"]["state"] == "warning"


def test_a_proxy_with_a_certificate_of_another_authority_is_a_warning(place: Path, tmp_path: Path) -> None:
    with open_home(tmp_path / "other") as other:
        cert, key, _ = server_identity(other, ["127.0.0.1"], datetime.now(UTC))
    with_certificates(place)
    with running(place, "--tls-cert", cert, "--tls-key", key):
        assert checks(place)["proxy"]["state"] == "warning"


def test_a_proxy_that_runs_and_does_not_answer_is_a_problem(place: Path) -> None:
    with running(place) as proxy:
        freeze(proxy.pid)
        try:
            found = checks(place, code=STATE)["proxy"]
        finally:
            os.kill(proxy.pid, signal.SIGCONT)
    assert (found["state"], proxy.url in found["said"]) == ("problem", True)


def test_the_hub_that_runs_is_looked_at_by_itself(place: Path) -> None:
    with running_hub(place) as hub:
        found = checks(place)["hub"]
        freeze(hub.pid)
        try:
            silent = checks(place, code=STATE)["hub"]
        finally:
            os.kill(hub.pid, signal.SIGCONT)
    assert (found["state"], hub.url in found["said"]) == ("ok", True)
    assert (silent["state"], hub.url in silent["said"]) == ("problem", True)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    issued(home)
    # SQLite puts these beside a file that is read.
    passing = {home / "ledger.db-wal", home / "ledger.db-shm"}
    before = {file: file.stat().st_mtime_ns for file in home.rglob("*") if file not in passing}
    checks(home)
    assert {file for file in home.rglob("*") if file not in passing} == before.keys()
    assert all(file.stat().st_mtime_ns == before[file] for file in before if file.is_file())
