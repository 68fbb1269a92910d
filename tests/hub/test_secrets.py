"""What nobody else may see: the token of the Hub is found nowhere but in its file, and the home is its owner's alone.

A whole life of a Hub under the widest umask comes first; the tests look at what it has left behind.
"""

import base64
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from remit.hub.routes import documented_routes
from remit.schemas.hub import MAX_BODY_BYTES
from tests.hub.service import Hub, error_of, event, running
from tests.proxy.service import Answer, read_answer

OPEN_TO_ALL = ("sh", "-c", 'umask 000; exec "$@"', "sh")


class Life(NamedTuple):
    """A Hub that still runs, and every answer it has given."""

    hub: Hub
    answers: list[Answer]


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    with tempfile.TemporaryDirectory() as folder:
        # Where others could look, if the home let them.
        Path(folder).chmod(0o755)
        home = Path(folder, "home")
        words = [*OPEN_TO_ALL, sys.executable, "-m", "remit", "setup", "--home", str(home), "--json"]
        made = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
        with running(home, "--log-level", "debug", under=OPEN_TO_ALL) as hub:
            assert json.loads(made.stdout)["token"] == hub.token
            yield Life(hub, [*live(hub), *go_wrong(hub)])


def live(hub: Hub) -> Iterator[Answer]:
    """Yield the answers to what adapters and people do."""
    yield hub.post("/v1/sessions/start", event("secrets"))
    yield hub.post("/v1/events/observe", event("secrets"))
    denied = hub.post("/v1/events/observe", event("secrets", "cli", command="sudo rm -rf /"))
    yield denied
    session, receipt = denied.json["ardur_session_id"], denied.json["receipt_id"]
    yield hub.post("/v1/policy/check", event("secrets"))
    yield hub.post(f"/v1/sessions/{session}/attest", {"end": True})
    yield hub.ask("GET", f"/?token={hub.token}")
    yield hub.ask("GET", f"/dashboard?token={hub.token}&live=off")
    names = {"session_id": session, "ardur_session_id": session, "receipt_id": receipt, "code": "dangerous_effect"}
    for route in documented_routes():
        if route.method == "GET":
            yield hub.get(route.path.format(**names))
            yield hub.ask("GET", route.path.format(**names), authorization=f"Bearer {hub.token}")


def go_wrong(hub: Hub) -> Iterator[Answer]:
    """Yield the answers to what goes wrong, with the token in every place that a client could put it."""
    token = hub.token
    yield hub.get(f"/nowhere/{token}?token={token}")
    yield hub.get(f"/dashboard/sessions/{token}")
    yield hub.ask("GET", f"/v1/status?token={token}")
    yield hub.ask("GET", f"/dashboard?token={token}&token={token}")
    yield hub.ask("GET", f"/dashboard?range={token}&token={token}")
    yield hub.ask("GET", f"/dashboard?token={token}x")
    yield hub.ask("GET", "/v1/status", authorization=f"Basic {token}")
    yield hub.ask("GET", "/v1/status", cookie=f"remit_dashboard={token}")
    yield hub.ask("GET", "/v1/status", host=f"{token}.example", x_service_hub_token=token)
    yield hub.post("/v1/events/observe", b'{"' + token.encode() + b'":')
    yield hub.post("/v1/events/observe", b" " * (MAX_BODY_BYTES + 1))
    yield hub.post("/v1/events/observe", event("secrets"), origin=f"https://{token}.example")
    with hub.connect() as connection:
        connection.sendall(f"GET /?token={token} HTTP/1.1\r\nx-service-hub-token {token}\r\n\r\n".encode())
        yield read_answer(connection)
    yield internal_error(hub)


def internal_error(hub: Hub) -> Answer:
    """Return the answer to what nobody has thought of: a session that begins when no clock can tell."""
    _begin_at(hub, 10**17)
    answer = hub.get("/v1/export")
    _begin_at(hub, 0)
    return answer


def _begin_at(hub: Hub, started_ms: int) -> None:
    with closing(sqlite3.connect(hub.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE sessions SET started_ms = ?", (started_ms,))


def shows(data: bytes, token: str) -> bool:
    encoded = base64.b64encode(token.encode()).rstrip(b"=")
    return token.encode() in data or encoded in data


def files_of(home: Path) -> list[Path]:
    """Return the files of a home; the socket of its ledger is none."""
    found = (Path(folder, name) for folder, _, names in os.walk(home) for name in names)
    return [path for path in found if not path.is_socket()]


def test_all_of_it_has_happened(life: Life) -> None:
    statuses = {answer.status for answer in life.answers}
    assert statuses >= {200, 400, 401, 403, 404, 413, 500}
    assert [error_of(answer) for answer in life.answers if answer.status == 500] == ["500 internal_error"]
    assert '"level":"debug"' in life.hub.log_to_here()


def test_the_token_is_in_no_answer(life: Life) -> None:
    for answer in life.answers:
        assert not shows(answer.body, life.hub.token)
        assert not shows(json.dumps(dict(answer.headers)).encode(), life.hub.token)


def test_the_token_is_in_no_log(life: Life) -> None:
    assert not shows(life.hub.log_to_here().encode(), life.hub.token)


def test_the_token_is_in_no_file_of_the_home_but_its_own(life: Life) -> None:
    found = {str(path.relative_to(life.hub.home)) for path in files_of(life.hub.home) if _holds(path, life.hub.token)}
    assert found == {"config.json"}
    assert {"ledger.db", "ledger.db-wal"} <= {path.name for path in files_of(life.hub.home)}


def _holds(path: Path, token: str) -> bool:
    return shows(path.read_bytes(), token)


def test_the_token_is_in_no_process(life: Life) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                data = (process / name).read_bytes()
            except OSError:
                continue  # it has ended, or is not ours to look at
            assert not shows(data, life.hub.token)


def test_nothing_of_the_home_is_open_to_others_whatever_the_umask(life: Life) -> None:
    places = [life.hub.home, *life.hub.home.rglob("*")]
    assert [str(path) for path in places if path.lstat().st_mode & 0o077] == []
    assert life.hub.home.stat().st_mode & 0o777 == 0o700


# Run by root, who becomes somebody else once everything is loaded, and then tries all that it is told to.
NOBODY = """
import json, os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)

def opened(path):
    try:
        return bool(os.listdir(path) if os.path.isdir(path) else open(path, "rb"))
    except PermissionError:
        return False

def answered(request):
    with socket.socket() as connection:
        connection.settimeout(20)
        connection.connect(("127.0.0.1", asked["port"]))
        connection.sendall(request.encode())
        return int(connection.recv(12).split()[1])

asked = json.load(sys.stdin)
told = {"opened": [path for path in asked["paths"] if opened(path)]}
told["answered"] = [answered(request) for request in asked["requests"]]
print(json.dumps(told))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_nothing_and_is_told_nothing_but_that_the_hub_is_there(life: Life) -> None:
    folder, routes = life.hub.home.parent, documented_routes()
    asked = {
        "paths": [str(path) for path in (folder, life.hub.home, *files_of(life.hub.home))],
        "port": life.hub.port,
        "requests": [life.hub.request(route.method, route.path).decode() for route in routes],
    }
    words = [sys.executable, "-I", "-W", "ignore", "-c", NOBODY]
    said = subprocess.run(words, input=json.dumps(asked), check=True, capture_output=True, text=True, timeout=60)
    told = json.loads(said.stdout)
    assert told["opened"] == [str(folder)]
    expected = [200 if route.path in ("/health", "/healthz") else 401 for route in routes]
    assert told["answered"] == expected
