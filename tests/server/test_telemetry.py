"""Telemetry of a running proxy: decisions, syncs and errors are counted, and log lines have no input in them."""

import io
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remit.server import log
from remit.server.telemetry import LineLimiter, Metrics, Telemetry
from tests.proxy.service import HTTP, Running, read_answer
from tests.proxy.visitor import README, Visitor, visiting

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(tmp_path_factory.mktemp("proxy") / "home", HTTP) as visitor:
        yield visitor


def _decisions(visitor: Visitor, decision: str, verdict: str, reason: str) -> float:
    return visitor.metric("remit_decisions_total", decision=decision, verdict=verdict, reason=reason)


def test_decisions_are_counted_by_what_came_out_and_why(visitor: Visitor) -> None:
    counted = {
        ("PERMIT", "compliant", "none"): README,
        ("DENY", "violation", "out_of_scope"): "/etc/passwd",
    }
    session = visitor.start()
    for labels, path in counted.items():
        before = _decisions(visitor, *labels)
        visitor.read(session, path)
        assert _decisions(visitor, *labels) == before + 1


def test_a_permit_that_does_not_hold_any_more_is_counted_as_a_denial(visitor: Visitor) -> None:
    session = visitor.start()
    visitor.read(session, idempotency_key="k")
    visitor.told("/session/end", {"session_id": session})
    before = visitor.metric("remit_decisions_total", decision="DENY", reason="session_ended")
    visitor.read(session, idempotency_key="k")
    assert visitor.metric("remit_decisions_total", decision="DENY", reason="session_ended") == before + 1


def test_syncs_of_the_ledger_are_counted_and_timed(visitor: Visitor) -> None:
    session = visitor.start()
    # In this order: the sync of the start may be counted between the two requests.
    seconds, syncs = visitor.metric("remit_ledger_sync_seconds_sum"), visitor.metric("remit_ledger_syncs_total")
    visitor.read(session)
    _await(lambda: visitor.metric("remit_ledger_syncs_total") > syncs)  # it is counted after the answer
    assert visitor.metric("remit_ledger_sync_seconds_sum") > seconds
    assert visitor.metric("remit_ledger_group_size_sum") >= visitor.metric("remit_ledger_group_size_count") > 0


def _await(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_answers_are_counted_by_route_and_status_and_never_by_what_was_sent(visitor: Visitor) -> None:
    before = visitor.metric("remit_http_requests_total", route="/sessions/{session_id}/attest", status="404")
    visitor.refused("/sessions/pass:nobody/attest")
    after = visitor.metric("remit_http_requests_total", route="/sessions/{session_id}/attest", status="404")
    assert after == before + 1
    visitor.get("/a-path-that-somebody-made-up")
    page = visitor.get("/metrics").body.decode()
    assert "made-up" not in page
    assert "nobody" not in page


def test_sessions_that_are_open_are_shown(visitor: Visitor) -> None:
    before = visitor.metric("remit_open_sessions")
    session = visitor.start()
    assert visitor.metric("remit_open_sessions") == before + 1
    visitor.told("/session/end", {"session_id": session})
    assert visitor.metric("remit_open_sessions") == before


def test_what_is_turned_away_at_the_door_is_counted(visitor: Visitor) -> None:
    before = visitor.metric("remit_http_refused_total", reason="http_malformed")
    visitor.proxy.send(b"this is not HTTP\r\n\r\n")
    assert visitor.metric("remit_http_refused_total", reason="http_malformed") == before + 1


def test_a_ration_is_so_many_in_a_second_and_counts_the_rest() -> None:
    now = [0.0]
    ration = LineLimiter(2, lambda: now[0])
    assert [ration.allows() for _ in range(5)] == [True, True, False, False, False]
    assert ration.left_out() == 0
    now[0] = 1.0
    assert [ration.left_out(), ration.left_out(), ration.allows()] == [3, 0, True]


def test_strangers_do_not_fill_the_log(visitor: Visitor) -> None:
    def left_out() -> int:
        visitor.get("/health")
        lines = map(json.loads, visitor.proxy.log.splitlines()[before:])
        return sum(line["count"] for line in lines if line["event"] == "refusals_left_out")

    def more_left_out() -> bool:
        for _ in range(50):
            visitor.proxy.send(b"nonsense\r\n\r\n")
            visitor.get("/nowhere")
            sent.append(2)
        return left_out() > 0

    sent, before = list[int](), len(visitor.proxy.log.splitlines())
    _await(more_left_out)
    told = visitor.proxy.log.count("turned_away") + visitor.proxy.log.count("/nowhere")
    assert told < sum(sent)
    _await(lambda: len(visitor.proxy.log.splitlines()) - before + left_out() > sum(sent))


def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "remit", "proxy", "--home", str(tmp_path / "home"), "--json", HTTP]
    pipe = subprocess.PIPE
    with subprocess.Popen([*words, "--log-level", "debug"], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        proxy = Running(told["listening"], told["pid"], tmp_path / "home", tmp_path / "log")
        with proxy.connect(timeout=PATIENCE_S) as connection:
            for _ in range(1_000):
                connection.sendall(proxy.request("GET", "/health"))
                assert read_answer(connection).status == 200
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a_receipt_that_somebody_has_changed_is_found_told_and_counted(visitor: Visitor) -> None:
    session = visitor.start()
    first, _ = visitor.read(session), visitor.read(session)
    before = visitor.metric("remit_chain_failures_total")
    with closing(sqlite3.connect(visitor.proxy.home / "ledger.db")) as ledger, ledger:
        forged = first["receipt"][:-86] + "A" * 86
        ledger.execute("UPDATE receipts SET token = ? WHERE id = ?", (forged, first["receipt_id"]))
    claims = visitor.told(f"/sessions/{session}/attest")["claims"]
    assert (claims["chain_verified"], claims["receipts"]) == (False, 2)
    assert visitor.metric("remit_chain_failures_total") == before + 1
    denied = visitor.read(session)
    assert (denied["decision"], denied["public_denial_reason"]) == ("DENY", "chain_invalid")
    assert visitor.read(visitor.start())["decision"] == "PERMIT"


def test_the_page_is_what_prometheus_reads(visitor: Visitor) -> None:
    answer = visitor.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert visitor.metric("remit_build_info") == 1


def test_an_answer_that_was_cut_off_has_a_line_that_names_no_words_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    for name, value in {"threshold": 0, "_format": json.dumps, "_stream": stream}.items():
        monkeypatch.setattr(log._OUTPUT, name, value)
    Telemetry(Metrics(None)).cut_off("/stream", "id-1", ValueError("secret"))
    log.flush()
    line = json.loads(stream.getvalue())
    assert [line[name] for name in ("event", "level", "route", "request_id")] == ["cut_off", "error", "/stream", "id-1"]
    assert "secret" not in stream.getvalue()
