"""Metrics: what is counted, in one process and over several, and that the page of docs lists all of it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.build import ROOT
from prometheus_client.parser import text_string_to_metric_families

from remit.errors import LedgerUnavailable, StateMissing
from remit.ledger.commit import MAX_GROUP, GroupCommit
from remit.ledger.records import LedgerState
from remit.server.telemetry import OTHER, STAGES, Metrics, mark_dead
from remit.version import __version__
from tests.ledger.memory import MemoryStore, MemoryTables

pytestmark = pytest.mark.slow

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(page: bytes) -> Samples:
    families = text_string_to_metric_families(page.decode())
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics.render()[0]).get((name, frozenset(labels.items())))


def families(metrics: Metrics) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", metrics.render()[0].decode(), re.MULTILINE))


def test_decisions_are_counted_by_what_came_out_and_why() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.decided("PERMIT", "compliant", "none")
    metrics.decided("DENY", "violation", "out_of_scope")
    name = "remit_decisions_total"
    assert value(metrics, name, decision="PERMIT", verdict="compliant", reason="none") == 2
    assert value(metrics, name, decision="DENY", verdict="violation", reason="out_of_scope") == 1


def test_stages_are_there_before_the_first_request_and_fall_into_their_buckets() -> None:
    metrics = Metrics()
    assert [value(metrics, "remit_stage_seconds_count", stage=stage) for stage in STAGES] == [0, 0, 0]
    for seconds in (0.00004, 0.00005, 0.00006, 99.0):
        metrics.observe_stages({"decide": seconds})
    counted = [
        value(metrics, "remit_stage_seconds_bucket", stage="decide", le=le) for le in ("5e-05", "0.0001", "5.0", "+Inf")
    ]
    assert counted == [2, 3, 3, 4]
    assert value(metrics, "remit_stage_seconds_sum", stage="decide") == pytest.approx(99.00015)


def test_answers_are_counted_by_route_and_status() -> None:
    metrics = Metrics()
    for status in (200, 200, 503):
        metrics.answered("/evaluate", status)
    assert value(metrics, "remit_http_requests_total", route="/evaluate", status="200") == 2
    assert value(metrics, "remit_http_requests_total", route="/evaluate", status="503") == 1


def test_nobody_can_make_series_without_end() -> None:
    metrics = Metrics()
    for number in range(5_000):
        metrics.decided("DENY", "violation", f"code_{number}")
        metrics.refused(f"code_{number}")
        metrics.answered(f"/{number}", 404)
    assert len(metrics.render()[0]) < 100_000
    assert value(metrics, "remit_http_refused_total", reason=OTHER) == 4_800


def test_refusals_and_broken_chains_are_counted() -> None:
    metrics = Metrics()
    metrics.refused("busy")
    metrics.chain_failed()
    assert value(metrics, "remit_http_refused_total", reason="busy") == 1
    assert value(metrics, "remit_chain_failures_total") == 1


def test_gauges_are_asked_for_when_somebody_looks() -> None:
    metrics, standing = Metrics(), {"open": 7}
    metrics.set_gauges(open_sessions=lambda: standing["open"], kill_switch=lambda: standing["open"] == 0)
    assert (value(metrics, "remit_open_sessions"), value(metrics, "remit_kill_switch")) == (7, 0)
    standing["open"] = 0
    assert (value(metrics, "remit_open_sessions"), value(metrics, "remit_kill_switch")) == (0, 1)
    assert value(metrics, "remit_build_info", version=__version__) == 1


def test_a_gauge_that_cannot_be_told_leaves_the_others() -> None:
    metrics = Metrics()
    metrics.set_gauges(open_sessions=lambda: 1 // 0, kill_switch=lambda: False)
    assert value(metrics, "remit_open_sessions") is None
    assert value(metrics, "remit_kill_switch") == 0


def test_the_ledger_tells_of_its_groups_and_failures() -> None:
    metrics = Metrics()
    store = MemoryStore(MemoryTables("ledger:test", LedgerState("epoch")))
    metrics.ledger.committed(store, 3, 0.002)
    metrics.ledger.committed(store, MAX_GROUP, 0.002)
    metrics.ledger.failed(OSError())
    assert value(metrics, "remit_ledger_syncs_total") == 2
    assert value(metrics, "remit_ledger_group_size_bucket", le="4.0") == 1
    assert value(metrics, "remit_ledger_group_size_bucket", le="256.0") == 2
    assert value(metrics, "remit_ledger_sync_seconds_sum") == pytest.approx(0.004)
    assert value(metrics, "remit_evidence_write_failures_total") == 1


def test_a_ledger_that_writes_is_counted() -> None:
    metrics, shelf = Metrics(), MemoryTables("ledger:test", LedgerState("epoch"))
    ledger = GroupCommit(lambda: MemoryStore(shelf), MemoryStore(shelf), observer=metrics.ledger)
    ledger.run(lambda transaction: transaction.put_revocation("pass:test:1", at_ms=1, reason=""))
    ledger.close()
    assert value(metrics, "remit_ledger_syncs_total") == 1
    assert value(metrics, "remit_ledger_sync_seconds_count") == 1
    assert value(metrics, "remit_evidence_write_failures_total") == 0


def test_a_ledger_that_cannot_write_is_counted() -> None:
    def gone() -> MemoryStore:
        raise LedgerUnavailable("the disk is gone")

    metrics, shelf = Metrics(), MemoryTables("ledger:test", LedgerState("epoch"))
    ledger = GroupCommit(gone, MemoryStore(shelf), observer=metrics.ledger)
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.run(lambda transaction: transaction.ledger_state)
    ledger.close()
    assert caught.value.code == "ledger_unavailable"
    assert value(metrics, "remit_evidence_write_failures_total") == 1


WORKER = """
import sys
from remit.server.telemetry import Metrics
metrics = Metrics(sys.argv[1])
metrics.set_gauges(open_sessions=lambda: 5, kill_switch=lambda: False)
print("ready", flush=True)
for line in sys.stdin:
    metrics.decided("PERMIT", "compliant", "none")
    metrics.observe_stages({"decide": 0.0007})
    metrics.answered("/evaluate", 200)
    metrics.ledger.committed(None, 2, 0.001)
    if line == "render\\n":
        sys.stdout.buffer.write(metrics.render()[0] + b"end\\n")
    else:
        print("done")
    sys.stdout.flush()
"""


class Worker:
    """A real process that counts one of each for every line, and shows what all have counted when asked."""

    def __init__(self, folder: Path) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder)],
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._lines("ready") == b""

    def _lines(self, last: str) -> bytes:
        assert self.running.stdout is not None
        return b"".join(iter(self.running.stdout.readline, f"{last}\n".encode()))

    def tell(self, word: str, last: str) -> bytes:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{word}\n".encode())
        self.running.stdin.flush()
        return self._lines(last)

    def kill(self) -> None:
        self.running.kill()
        self.running.communicate()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[Worker, Worker]]:
    both = Worker(tmp_path), Worker(tmp_path)
    yield both
    for worker in both:
        worker.kill()


def summary(page: bytes) -> list[float | None]:
    found = samples(page)
    return [
        found.get((name, frozenset(labels.items())))
        for name, labels in (
            ("remit_decisions_total", {"decision": "PERMIT", "verdict": "compliant", "reason": "none"}),
            ("remit_stage_seconds_count", {"stage": "decide"}),
            ("remit_http_requests_total", {"route": "/evaluate", "status": "200"}),
            ("remit_ledger_syncs_total", {}),
            ("remit_ledger_group_size_sum", {}),
            ("remit_open_sessions", {}),
        )
    ]


def test_every_worker_answers_for_all_and_the_dead_stay_counted(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    one, other = workers
    for _ in range(3):
        one.tell("count", "done")
    assert summary(other.tell("render", "end")) == [4, 4, 4, 4, 8, 5]
    one.kill()
    mark_dead(str(tmp_path), one.running.pid)
    assert summary(other.tell("render", "end")) == [5, 5, 5, 5, 10, 5]


def test_a_shared_folder_that_came_too_late_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateMissing) as caught:
        Metrics(str(tmp_path))
    assert caught.value.code == "state_missing"


def test_the_page_lists_every_metric_and_no_other() -> None:
    metrics = Metrics()
    metrics.set_gauges(
        open_sessions=lambda: 0, kill_switch=lambda: False, broken_sessions=lambda: 0, verified_at=lambda: 0.0
    )
    page = (ROOT / "docs" / "operate" / "operations.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(remit_\w+)", page, re.MULTILINE))
    assert listed == {name for name in families(metrics) if name.startswith("remit_")}
