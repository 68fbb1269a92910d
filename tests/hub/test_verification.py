"""The verifier of real services: what is altered in the ledger's file stops its session, and everyone is told."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.hub.service import Hub, running
from tests.proxy.service import HTTP, PowerCut, Running, command
from tests.proxy.service import running as proxy_running

PATIENCE_S = 120.0


def until(holds: Callable[[], Any], what: str) -> Any:
    """Return what `holds` returns, once that is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def verification(hub: Hub) -> dict[str, Any]:
    return dict(hub.told("/v1/status")["verification"])


def verified(hub: Hub) -> dict[str, Any]:
    """Return the status once everything that is there was verified."""

    def holds() -> dict[str, Any] | None:
        status = hub.told("/v1/status")
        found, last = status["verification"], status["latest_receipt"]
        done = found["state"] == "verified" and found["verified_through"] == (last and last["receipt_id"])
        return dict(found) if done else None

    found: dict[str, Any] = until(holds, "it is not verified")
    return found


def published(home: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((home / "run" / "verification.json").read_bytes()))
    except FileNotFoundError:
        return {}


def verifiers(home: Path) -> list[int]:
    """Return the processes that verify the ledger of a home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"remit.governor.verifier_process" in words and str(home).encode() in words:
            found.append(int(process.name))
    return found


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with running(tmp_path / "home") as hub:
        yield hub


def is_quarantined(home: Path, session: str) -> bool:
    with closing(sqlite3.connect(f"file:{home / 'ledger.db'}?mode=ro", uri=True, timeout=30)) as ledger:
        return bool(ledger.execute("SELECT broken FROM sessions WHERE id = ?", (session,)).fetchone()[0])


def alter(home: Path, session: str, *statements: str) -> None:
    with closing(sqlite3.connect(home / "ledger.db", timeout=30)) as ledger, ledger:
        (number,) = ledger.execute("SELECT number FROM sessions WHERE id = ?", (session,)).fetchone()
        for statement in statements:
            ledger.execute(statement, {"number": number})


SWAP = ((2, 99), (3, 2), (99, 3))
SESSION = "session = :number"
ROW = "number = :number"
DAMAGES = {
    "token bytes": [f"UPDATE receipts SET token = substr(token, 1, 900) || 'A' WHERE {SESSION} AND seq = 2"],
    "swapped rows": [f"UPDATE receipts SET seq = {after} WHERE {SESSION} AND seq = {before}" for before, after in SWAP],
    "a removed row": [f"DELETE FROM receipts WHERE {SESSION} AND seq = 2"],
    "the session row's head": [f"UPDATE sessions SET receipt_hash = '{'0' * 64}' WHERE {ROW}"],
    "the session row's count of calls": [f"UPDATE sessions SET used = used - 1 WHERE {ROW}"],
    "the code of a denial": [f"UPDATE receipts SET code = 'out_of_scope' WHERE {SESSION} AND seq = 2"],
}


def test_sessions_that_are_altered_in_the_file_are_stopped_while_the_hub_runs(hub: Hub) -> None:
    hub.observe("other")
    names = {damage: hub.observe(damage)["ardur_session_id"] for damage in DAMAGES}
    for damage in [*DAMAGES] * 3:
        hub.observe(damage)
    assert (verified(hub)["sessions_verified"], verified(hub)["sessions"]) == (7, 7)
    assert b"All is well up to" in hub.get("/dashboard").body
    for damage, statements in DAMAGES.items():
        alter(hub.home, names[damage], *statements)
    for damage, name in names.items():
        until(partial(is_quarantined, hub.home, name), f"{damage}: the session is not stopped")
        denied = hub.observe(damage)
        assert (denied["decision"], denied["receipt"]["verdict"]) == ("DENY", "violation"), damage
    found = until(lambda: len(it := verification(hub)["broken"]) == len(names) and it, "not all is found")
    assert {one["session_id"] for one in found} == {*names.values()}
    assert hub.observe("other")["decision"] == "PERMIT"
    page = hub.get("/dashboard").body
    assert b'class="hero broken"' in page
    assert b"All is well" not in page
    examined = examined_by("doctor", "--home", str(hub.home), "--json")
    (check,) = [one for one in examined if one["name"] == "verification"]
    assert check["state"] == "problem"
    assert any(name in check["said"] for name in names.values())


def examined_by(*words: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "remit", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 78, ended
    return list(json.loads(ended.stdout)["checks"])


def test_a_break_is_signed_as_a_statement_and_survives_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home) as hub:
        name = hub.observe("altered")["ardur_session_id"]
        for _ in range(2):
            hub.observe("altered")
        verified(hub)
        alter(home, name, *DAMAGES["token bytes"])
        until(lambda: "remit.verify" in json.dumps(hub.told("/v1/status")["latest_receipt"]), "nothing was signed")
    with running(home) as hub:
        assert hub.observe("altered")["decision"] == "DENY"
        found = until(lambda: verification(hub)["broken"], "the break is forgotten")
        assert [one["session_id"] for one in found] == [name]


def test_a_verifier_that_is_killed_is_started_again_and_the_status_says_so(hub: Hub) -> None:
    hub.observe("one")
    verified(hub)
    (pid,) = verifiers(hub.home)
    os.kill(pid, signal.SIGKILL)
    until(lambda: "exit status -9" in verification(hub)["problem"], "nothing is said")
    assert b'class="hero unknown"' in hub.get("/dashboard").body
    until(lambda: (now := verifiers(hub.home)) and pid not in now, "it is not started again")
    assert verified(hub)["problem"] == ""


def test_no_verifier_outlives_a_service_that_is_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home) as hub:
        hub.observe("one")
        verified(hub)
        assert len(verifiers(home)) == 1
    assert verifiers(home) == []
    assert [path.name for path in home.glob("ledger.db*")] == ["ledger.db"]


def test_no_verifier_outlives_a_service_that_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with suppress(PowerCut), running(home) as hub:
        hub.observe("one")
        verified(hub)
        assert len(verifiers(home)) == 1
        hub.cut_power()
    until(lambda: not verifiers(home), "it goes on")


def test_one_verifier_serves_a_home_and_another_service_takes_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with ExitStack() as held, ExitStack() as first:
        proxy = first.enter_context(proxy_running(home, HTTP, "--port", "0", "--processes", "3"))
        assert evaluate(proxy, proxy.session())["decision"] == "PERMIT"
        (pid,) = until(lambda: verifiers(home), "the proxy has none")
        hub = held.enter_context(running(home))
        hub.observe("one")
        assert verified(hub)["sessions_verified"] == 2
        assert verifiers(home) == [pid]
        first.close()
        until(lambda: (now := verifiers(home)) and pid not in now, "nobody takes over")
        assert verified(hub)["sessions_verified"] == 2


def evaluate(proxy: Running, session: str) -> dict[str, Any]:
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": "/srv/project/a"}}
    answer = proxy.ask("POST", "/evaluate", call)
    return dict(answer.json)


def test_a_session_that_is_altered_in_the_file_is_stopped_while_the_proxy_runs(tmp_path: Path) -> None:
    with proxy_running(tmp_path / "home", HTTP, "--port", "0") as proxy:
        session = proxy.session()
        for _ in range(4):
            assert evaluate(proxy, session)["decision"] == "PERMIT"
        until(lambda: (published(proxy.home).get("summary") or {}).get("receipts_verified") == 4, "not verified")
        alter(proxy.home, session, *DAMAGES["token bytes"])
        until(lambda: is_quarantined(proxy.home, session), "it goes on")
        denied = evaluate(proxy, session)
        assert (denied["decision"], denied["public_denial_reason"]) == ("DENY", "chain_invalid")
        metrics = proxy.ask("GET", "/metrics", authorization=f"Bearer {proxy.token('admin')}").body
        assert b"remit_broken_sessions 1.0" in metrics


def test_status_says_up_to_when_everything_was_verified(hub: Hub) -> None:
    hub.observe("one")
    found = verified(hub)
    said = command("status", "--home", str(hub.home)).stdout
    assert "1 of 1 sessions" in said
    assert found["verified_at"][:10] in said
    assert found["last_full_pass_at"] is not None
