"""What the Hub says and does when what it keeps is damaged, and that it keeps all it has answered for."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from remit.ledger.schema import PAGE_SIZE
from tests.hub.service import Hub, claims_of, error_of, event, receipt_claims, running
from tests.proxy.service import Answer, read_answer

CORRUPT = "500 state_corrupt"
BROKEN_CONFIGS = (b"", b"{", b"[]", b'{"hub_token": 7}', b'{"hub_url": "http://evil.example:1"}', b"\xff", b"{}" * 2)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        yield hub


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a home with something in it, of a Hub that has ended."""
    home = tmp_path_factory.mktemp("kept") / "home"
    with running(home) as hub:
        for number in range(60):
            hub.observe(f"session {number // 20}")
    return home


@pytest.fixture
def home(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "home"))


def told_corrupt(answer: Answer, name: str) -> None:
    """Check that an answer says which file is damaged, by its name alone, and what to do."""
    assert error_of(answer) == CORRUPT
    assert name in answer.json["error"]
    assert "/" not in answer.json["error"].replace("http://HOST:PORT", "")


# Settings


@pytest.mark.parametrize("written", BROKEN_CONFIGS)
def test_a_broken_config_is_told_where_it_is_needed_and_nothing_else_stops(hub: Hub, written: bytes) -> None:
    config = hub.home / "config.json"
    before = config.read_bytes()
    config.write_bytes(written)
    try:
        for path in ("/v1/status", "/v1/export"):
            answer = hub.get(path)
            told_corrupt(answer, "config.json")
            assert "Repair it, or move config.json away" in answer.json["error"]
        assert hub.observe("goes on")["decision"] == "PERMIT"
        assert hub.get("/dashboard").status == 200
    finally:
        config.write_bytes(before)
    assert hub.get("/v1/status").status == 200


def test_a_broken_config_does_not_change_the_token_of_a_hub_that_runs(hub: Hub) -> None:
    config = hub.home / "config.json"
    before = config.read_bytes()
    config.write_bytes(b"{")
    try:
        os.kill(hub.pid, signal.SIGHUP)
        assert hub.observe("after a signal")["decision"] == "PERMIT"
    finally:
        config.write_bytes(before)


def test_a_hub_does_not_start_over_a_broken_config(home: Path) -> None:
    (home / "config.json").write_bytes(b"{")
    with pytest.raises(AssertionError, match="state_corrupt"), running(home):
        pass


# The ledger


def root_page(home: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{home / 'ledger.db'}?mode=ro", uri=True)) as ledger:
        (page,) = ledger.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return int(page)


def overwrite(home: Path, page: int) -> None:
    """Damage a page of the ledger, as a disk does that has gone bad."""
    with (home / "ledger.db").open("r+b") as ledger:
        ledger.seek((page - 1) * PAGE_SIZE)
        ledger.write(b"\xa5" * PAGE_SIZE)


@pytest.mark.parametrize("while_it_runs", [False, True])
def test_a_damaged_ledger_is_told_and_decides_nothing(home: Path, while_it_runs: bool) -> None:
    page = root_page(home, "sessions")
    if not while_it_runs:
        overwrite(home, page)
    with running(home) as hub:
        if while_it_runs:
            overwrite(home, page)
        for path in ("/v1/status", "/v1/export", "/dashboard", "/dashboard/sessions"):
            told_corrupt(hub.get(path), "ledger")
        for path in ("/v1/sessions/start", "/v1/events/observe", "/v1/policy/check"):
            told_corrupt(hub.post(path, event("session 1")), "ledger")
        assert hub.ask("GET", "/health").status == 200


def remove_the_ledger(home: Path) -> None:
    for path in home.glob("ledger.db*"):
        path.unlink()


def put_a_copy_in_its_place(home: Path) -> None:
    shutil.copy2(home / "ledger.db", home / "copy.db")
    (home / "copy.db").rename(home / "ledger.db")


def truncate_the_log(home: Path) -> None:
    os.truncate(home / "ledger.db-wal", 0)


def write_an_older_one_into_it(home: Path) -> None:
    (home / "ledger.db").write_bytes((home / "ledger.db").read_bytes()[: 4 * PAGE_SIZE])


def put_another_in_its_place(home: Path) -> None:
    shutil.copytree(home, home.with_name("another"), ignore=shutil.ignore_patterns("*.sock"))
    (home.with_name("another") / "ledger.db").rename(home / "ledger.db")


@pytest.mark.parametrize(
    "deed",
    [
        remove_the_ledger,
        put_a_copy_in_its_place,
        put_another_in_its_place,
        truncate_the_log,
        write_an_older_one_into_it,
    ],
)
def test_a_ledger_that_was_removed_replaced_or_truncated_under_a_running_hub_permits_nothing(
    home: Path, deed: Callable[[Path], None]
) -> None:
    with running(home) as hub:
        assert hub.observe("session 1")["decision"] == "PERMIT"
        deed(home)
        for _ in range(3):
            for path in ("/v1/events/observe", "/v1/sessions/start"):
                answer = hub.post(path, event("session 1"))
                assert error_of(answer) == "503 ledger_unavailable"
                assert "remit ledger restore" in answer.json["error"]
        assert error_of(hub.get("/v1/status")) == "503 ledger_unavailable"
        assert hub.ask("GET", "/health").status == 200


@pytest.mark.parametrize("table", ["ledger", "keys"])
def test_a_hub_does_not_start_over_a_ledger_that_has_lost_its_beginning(home: Path, table: str) -> None:
    overwrite(home, root_page(home, table))
    with pytest.raises(AssertionError, match="state_corrupt"), running(home):
        pass


def test_an_export_that_meets_damage_on_its_way_cannot_be_taken_for_whole(home: Path) -> None:
    with running(home) as hub:
        token = hub.told("/v1/export")["receipts"][45]
    where = (home / "ledger.db").read_bytes().index(token[-200:].encode())
    overwrite(home, where // PAGE_SIZE + 1)
    with running(home) as hub:
        with pytest.raises(ConnectionResetError):
            hub.get("/v1/export")
        # Damage that anyone has met stops everything: what else it has reached is unknown.
        told_corrupt(hub.get("/v1/status"), "ledger.db")
        told_corrupt(hub.post("/v1/events/observe", event("session 1")), "ledger.db")


# Chains


def forge(hub: Hub, session: str, seq: int) -> None:
    """Put a signature that is not ours under a receipt where it is kept."""
    with closing(sqlite3.connect(hub.home / "ledger.db")) as ledger, ledger:
        ledger.execute(
            "UPDATE receipts SET token = substr(token, 1, length(token) - 86) || ? "
            "WHERE seq = ? AND session = (SELECT number FROM sessions WHERE id = ?)",
            ("A" * 86, seq, session),
        )


def test_a_session_with_a_broken_chain_is_denied_and_others_go_on(hub: Hub) -> None:
    (session,) = {hub.observe("broken")["ardur_session_id"] for _ in range(3)}
    forge(hub, session, 2)
    attested = hub.attest(session)
    assert claims_of(hub, attested["token"], "attestation")["chain_verified"] is False
    answer = hub.observe("broken")
    claims = receipt_claims(hub, answer["receipt"]["jwt"])
    assert (answer["decision"], answer["ardur_session_id"]) == ("DENY", session)
    assert (claims["public_denial_reason"], claims["internal_denial_code"]) == ("chain_invalid", "chain_broken")
    assert hub.check("broken")["policy"]["decision"] == "violation"
    assert hub.observe("whole")["decision"] == "PERMIT"


def test_a_last_receipt_that_does_not_verify_is_not_shown_as_one_that_does(hub: Hub) -> None:
    session = hub.observe("broken at its end")["ardur_session_id"]
    forge(hub, session, 1)
    told_corrupt(hub.get("/v1/status"), "ledger.db")
    hub.observe("whole")
    export = hub.told("/v1/export")
    assert session not in {one["ardur_session_id"] for one in export["latest_receipts"]}
    assert session in {one["ardur_session_id"] for one in export["sessions"]}
    assert hub.attest(session)["claims"]["chain_verified"] is False


def test_a_receipt_that_was_damaged_where_it_is_kept_is_not_given_again(hub: Hub) -> None:
    report = event("repeated") | {"idempotency_key": "k"}
    forge(hub, hub.told("/v1/events/observe", report)["ardur_session_id"], 1)
    told_corrupt(hub.post("/v1/events/observe", report), "ledger.db")


def test_a_passport_that_does_not_verify_any_more_is_not_the_adapters_fault(home: Path) -> None:
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE sessions SET passport = substr(passport, 1, 200) WHERE number = 1")
    with running(home) as hub:
        export = hub.told("/v1/export")
        session = export["sessions"][0]["ardur_session_id"]
        told_corrupt(hub.post("/v1/events/observe", event("session 0")), "session")
        told_corrupt(hub.post("/v1/policy/check", event("session 0")), "session")
        told_corrupt(hub.post("/v1/sessions/start", event("session 0")), "session")
        told_corrupt(hub.post(f"/v1/sessions/{session}/attest"), "session")
        assert hub.observe("session 1")["decision"] == "PERMIT"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sources SET told = '{'",
        """UPDATE sources SET told = '{"title":7,"origin":5}'""",
        "UPDATE notes SET text = '[1'",
        "UPDATE notes SET text = '{}'",
    ],
)
def test_what_nothing_signs_is_left_out_where_it_cannot_be_read_and_evidence_goes_on(home: Path, damage: str) -> None:
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        ledger.execute(damage)
    with running(home) as hub:
        before = hub.told("/v1/export")
        assert hub.observe("session 0")["decision"] == "PERMIT"
        after = hub.told("/v1/export")
        assert len(after["receipts"]) == len(before["receipts"]) + 1
        assert len(after["session_reviews"]) == len(before["session_reviews"])


# Ends


def test_a_restart_keeps_sessions_and_reviews(home: Path) -> None:
    with running(home) as hub:
        hub.observe("session 1", consent={"visible_text": True}, text_excerpt="before")
        before, review = hub.start("session 1"), hub.told("/v1/export")["session_reviews"]
    with running(home) as hub:
        assert hub.start("session 1") == before | {"existing": True}
        assert hub.told("/v1/export")["session_reviews"] == review
        answer = hub.observe("session 1")
    assert answer["session_review"]["observations"] == 22
    assert [action["summary"] for action in answer["session_review"]["actions"]][-2] == "before"


def test_of_what_was_acknowledged_nothing_is_lost_when_the_power_is_cut(tmp_path: Path) -> None:
    acknowledged: list[dict[str, Any]] = []
    with running(tmp_path / "home") as hub:
        threads = [
            Thread(target=_report_on, args=(hub, f"session {number}", acknowledged.append)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 100:
            assert any(thread.is_alive() for thread in threads)
        hub.cut_power()
    for thread in threads:
        thread.join()
    with running(tmp_path / "home") as hub:
        there = set(hub.told("/v1/export")["receipts"])
        assert {answer["receipt"]["jwt"] for answer in acknowledged} <= there
        assert len(there) <= len(acknowledged) + len(threads)
        for session in {answer["ardur_session_id"] for answer in acknowledged}:
            assert hub.attest(session)["claims"]["chain_verified"] is True


def _report_on(hub: Hub, session: str, tell: Callable[[dict[str, Any]], None]) -> None:
    """Report on one connection until it is cut, and tell every answer."""
    request = hub.request("POST", "/v1/events/observe", event(session), x_service_hub_token=hub.token)
    try:
        with hub.connect() as connection:
            while True:
                connection.sendall(request)
                tell(json.loads(read_answer(connection).body))
    except OSError:
        return
