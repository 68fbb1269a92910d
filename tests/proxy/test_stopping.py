"""Told to stop, a proxy takes nothing new, finishes what was asked, and is gone in time."""

import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from remit.ledger.commit import DEADLINE_S
from remit.wiring.serving import DRAIN_S
from tests.faults.proxy_driver import Load, Proxy, ask, body_of, is_running, launched, session_in, until, workers_of
from tests.faults.service import Audit, open_service, pages, session_of
from tests.proxy.service import Answer, read_answer, read_answers

# A stop that is held up takes for ever; a busy machine needs some seconds to end processes.
IN_TIME_S = 30.0
# Where the machine is busy, a single stop may take longer; one that is held up always does.
TRIES = 5
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Tell whether it is tried often."""
    return bool(request.config.getoption("--full", default=False))


def started(home: Path) -> tuple[str, Audit]:
    with open_service(home) as service:
        token = service.passport()
        return token, Audit(session_of(service.governor, token))


def check_stop(home: Path, audit: Audit, load: Load, took: float) -> None:
    """Raise unless each client had a whole answer that is in the ledger, or nothing at all."""
    assert [came for came in load.cut if came] == []
    assert load.errors == []
    with open_service(home) as service:
        new = audit.grow(service)
        tokens = {kept.token for kept in pages(service.reader, audit.session)}
    assert {ack.receipt for ack in load.acks.values()} <= tokens
    # What was decided was answered, too, unless the machine was so busy that there was no time for it.
    assert new == len(load.acks) or (took > DRAIN_S and new > len(load.acks))


@pytest.mark.parametrize(
    ("processes", "runs"),
    [("1", (2, 35)), ("2", (2, 35)), ("3", (2, 15))],
    ids=["all in one", "one front", "two fronts"],
)
def test_a_stop_under_load_leaves_whole_answers_and_no_process(
    tmp_path: Path, full: bool, processes: str, runs: tuple[int, int]
) -> None:
    chance, home = random.Random(4), tmp_path / "home"
    token, audit = started(home)
    for run in range(runs[full]):
        with launched(home, "--processes", processes) as proxy:
            session_in(proxy.running, token)
            served_by = workers_of(proxy.running.pid)
            with Load(proxy.running, audit.session, f"run{run}") as load, proxy.running.connect():
                load.wait_for_acks()
                time.sleep(chance.uniform(0, 0.1))
                code, took = proxy.stop(SIGNALS[run % 2])
            assert (code, took < IN_TIME_S) == (0, True)
            assert not [pid for pid in served_by if is_running(pid)]
            assert list((home / "run").glob("proxy-*")) == []
        check_stop(home, audit, load, took)


def test_what_was_asked_before_the_stop_is_answered_after_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    token, audit = started(home)
    answer = next(filter(None, (stop_while_held(home, token, audit, "1") for _ in range(TRIES))))
    assert answer.headers["connection"] == "close"
    with launched(home) as proxy:
        assert ask(proxy.running, audit.session, "slow").receipt == answer.json["receipt"]


def stop_while_held(home: Path, token: str, audit: Audit, processes: str) -> Answer | None:
    """Stop a proxy while the ledger keeps it from answering; return its answer, None if that was for too long."""
    with launched(home, "--processes", processes) as proxy, proxy.running.connect() as connection:
        session_in(proxy.running, token)
        with held(home):
            begun = time.monotonic()
            connection.sendall(proxy.running.request("POST", "/evaluate", body_of(audit.session, "slow")))
            until_known(proxy)
            proxy.process.send_signal(signal.SIGTERM)
            until(lambda: refuses(proxy))
            assert proxy.process.poll() is None
        took = time.monotonic() - begun
        answer = read_answer(connection)
        assert connection.recv(1) == b""
        assert proxy.process.wait(IN_TIME_S) == 0
    assert answer.status == 200 or took > DEADLINE_S / 2
    return answer if answer.status == 200 else None


@contextmanager
def held(home: Path) -> Iterator[None]:
    """Keep the ledger to ourselves, so that nothing can be decided meanwhile."""
    with closing(sqlite3.connect(home / "ledger.db", isolation_level=None, timeout=IN_TIME_S)) as ledger:
        ledger.execute("BEGIN IMMEDIATE")
        yield
        ledger.execute("ROLLBACK")


def until_known(proxy: Proxy) -> None:
    """Wait until the proxy has read what was sent to it before; it reads in the order things come."""
    assert proxy.running.ask("GET", "/health").status == 200


def refuses(proxy: Proxy) -> bool:
    """Tell whether nobody listens any more."""
    try:
        proxy.running.connect().close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("processes", ["1", "2", "3"])
def test_a_stop_closes_idle_connections_and_a_request_that_never_ends(tmp_path: Path, processes: str) -> None:
    with launched(tmp_path / "home", "--processes", processes, plain=False) as proxy:
        idle = [proxy.running.connect() for _ in range(8)]
        for connection in idle:
            connection.sendall(proxy.running.request("GET", "/health"))
            assert read_answer(connection).status == 200
        with proxy.running.connect() as endless:
            endless.sendall(proxy.running.request("POST", "/evaluate", {})[:-1])
            code, _ = proxy.stop()
            assert read_answers(endless) == []
        assert code == 0
        for connection in idle:
            assert read_answers(connection) == []
            connection.close()


def test_while_a_proxy_of_two_workers_stops_nobody_new_is_let_in(tmp_path: Path) -> None:
    home = tmp_path / "home"
    token, audit = started(home)
    assert any(stop_while_held(home, token, audit, "2") for _ in range(TRIES))
