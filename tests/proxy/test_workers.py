"""A proxy of several workers: one ledger, one count, one end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from tests.faults.proxy_driver import Load, ask, is_running, launched, session_in, until, workers_of
from tests.faults.service import Audit, open_service, pages, session_of
from tests.proxy.service import Running, running
from tests.proxy.visitor import visiting

LIMIT = 100
THREADS = 32


def test_workers_share_the_budget_of_a_session_exactly_and_count_together(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with visiting(home, "--processes", "3", "--insecure-http", "--connections-per-peer", "100") as visitor:
        with open_service(home) as service:
            audit = Audit(session_of(service.governor, service.passport(LIMIT)))
        with Load(visitor.proxy, audit.session, "share", clients=THREADS, until_denied=True) as load:
            load.join()
        assert (load.errors, load.cut) == ([], [])
        permitted = visitor.metric("remit_decisions_total", decision="PERMIT")
        answered = visitor.metric("remit_http_requests_total", route="/evaluate", status="200")
        with open_service(home) as service:
            audit.grow(service)
    decisions = Counter(ack.decision for ack in load.acks.values())
    assert decisions == {"PERMIT": LIMIT, "DENY": THREADS}
    assert (audit.permits, audit.length) == (LIMIT, LIMIT + THREADS)
    assert (permitted, answered) == (LIMIT, LIMIT + THREADS)


def test_a_worker_that_is_killed_is_replaced_and_what_it_counted_stays_counted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with visiting(home, "--processes", "3", "--insecure-http") as visitor:
        session = visitor.start(max_tool_calls=LIMIT)
        before = workers_of(visitor.proxy.pid)
        for number in range(20):
            visitor.read(session, idempotency_key=f"before{number}")
        for number, worker in enumerate(before):
            os.kill(worker, signal.SIGKILL)
            until(lambda: visitor.proxy.log.count("worker_lost") == number + 1)  # noqa: B023
            for again in range(10):
                visitor.read(session, idempotency_key=f"after{number}{again}")
        assert visitor.metric("remit_decisions_total", decision="PERMIT") == 40
        assert len(set(workers_of(visitor.proxy.pid)) - set(before)) == 2


def test_a_hang_up_signal_reaches_every_worker_and_ends_none_not_even_one_that_is_starting(tmp_path: Path) -> None:
    with running(tmp_path / "home", "--processes", "3") as proxy:
        before = workers_of(proxy.pid)
        os.kill(proxy.pid, signal.SIGHUP)
        until(lambda: proxy.log.count("certificates_read") == 2)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(set(workers_of(proxy.pid)) - set(before)) == 1)
        replaced = workers_of(proxy.pid)
        until(lambda: told(proxy) and all(listens(pid) for pid in replaced))
        assert workers_of(proxy.pid) == replaced
        assert before[1] in replaced


def told(proxy: Running) -> bool:
    """Tell a proxy to read its files again."""
    os.kill(proxy.pid, signal.SIGHUP)
    return True


def listens(pid: int) -> bool:
    """Tell whether a worker has come so far that it takes signals."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught & 1 << (signal.SIGHUP - 1))


def test_no_worker_outlives_the_one_who_watches_over_it(tmp_path: Path) -> None:
    with launched(tmp_path / "home", "--processes", "3") as proxy:
        workers = workers_of(proxy.running.pid)
        assert len(workers) == 2
        proxy.kill()
        until(lambda: not any(is_running(pid) for pid in workers))


def test_workers_that_cannot_live_any_more_end_the_service(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with launched(home, "--processes", "3") as proxy:
        home.chmod(0o777)
        os.kill(workers_of(proxy.running.pid)[0], signal.SIGKILL)
        assert proxy.process.wait(60) == 69
        assert proxy.process.stdout is not None
        assert json.loads(proxy.process.stdout.readline())["error_code"] == "service_unavailable"
    assert "home_unsafe" in proxy.running.log
    home.chmod(0o700)


def test_policies_that_cannot_be_read_are_told_as_by_one_worker(tmp_path: Path) -> None:
    (tmp_path / "bad.cedar").write_text("permit(", encoding="utf-8")
    given = ["--home", str(tmp_path / "home"), "--json", "--policies", str(tmp_path / "bad.cedar")]
    command = [sys.executable, "-m", "remit", "proxy", *given]
    told = [
        subprocess.run([*command, "--processes", count], check=False, capture_output=True, timeout=60)
        for count in ("1", "2", "3")
    ]
    assert [one.returncode for one in told] == [2, 2, 2]
    assert told[0].stdout == told[1].stdout == told[2].stdout
    assert json.loads(told[0].stdout)["error_code"] == "policy_invalid"


def test_calls_at_once_under_one_key_get_one_receipt_from_whichever_worker(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with launched(home, "--processes", "3") as proxy:
        with open_service(home) as service:
            token = service.passport()
        session, receipts = session_in(proxy.running, token), list[str]()
        asking = [
            threading.Thread(target=lambda: receipts.append(ask(proxy.running, session, "one").receipt))
            for _ in range(16)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        assert len(receipts) == 16
        with open_service(home) as service:
            assert [kept.token for kept in pages(service.reader, session)] == [*set(receipts)]
