"""A proxy that is killed, paused or left waiting by its disk: what clients were told stays true."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.claims.canonical import decode_base64url
from remit.claims.receipt import verify_receipt
from remit.client import Proxy as ClientOfProxy
from tests.faults.proxy_driver import (
    CLIENTS,
    Asked,
    Load,
    Proxy,
    ask,
    body_of,
    is_running,
    launched,
    ledger_processes_of,
    pause,
    session_in,
    until,
    workers_of,
)
from tests.faults.service import Audit, integrity, open_service, pages, session_of
from tests.ports import spare_port
from tests.proxy.service import Running, error_code, read_answer, running
from tests.proxy.visitor import Visitor, key_of


def prepared(home: Path, calls: int) -> tuple[str, Audit]:
    """Return a passport of a new home, and the audit of its session."""
    with open_service(home) as service:
        token = service.passport(calls)
        return token, Audit(session_of(service.governor, token))


def check_answers(home: Path, audit: Audit, load: Load) -> None:
    """Raise if an answer was lost, or there is more than was asked for."""
    with open_service(home) as service:
        new = audit.grow(service)
        tokens = {kept.receipt_id: kept.token for kept in pages(service.reader, audit.session)}
    assert [ack for ack in load.acks.values() if tokens.get(ack.receipt_id) != ack.receipt] == []
    assert len({ack.receipt_id for ack in load.acks.values()}) == len(load.acks)
    assert 0 <= new - len(load.acks) <= len(load.unanswered) <= CLIENTS


def check_again(proxy: Running, session: str, load: Load) -> None:
    """Raise unless the same key gets the same receipt, whether its call had been answered or not."""
    for key in list(load.acks)[-CLIENTS:]:
        assert ask(proxy, session, key) == load.acks[key]
    for key in load.unanswered:
        assert ask(proxy, session, key) == ask(proxy, session, key)


def check_end(home: Path, audit: Audit, limit: int) -> None:
    """Raise unless the budget was used up to the last call and no further, in one chain."""
    with open_service(home) as service:
        audit.grow(service)
        assert Audit(audit.session).grow(service) == audit.length
    assert audit.permits == limit
    assert integrity(home / "ledger.db") == []


def use_up(proxy: Running, session: str) -> None:
    """Ask until nothing is permitted any more."""
    with Load(proxy, session, "last", until_denied=True, insist=True) as load:
        load.join()


def kill_service(proxy: Proxy) -> None:
    proxy.kill()


def kill_supervisor(proxy: Proxy) -> None:
    """Kill the one who watches over the workers; they leave by themselves."""
    workers = workers_of(proxy.running.pid)
    assert len(workers) == 2
    proxy.kill()
    until(lambda: not any(is_running(pid) for pid in workers))


@pytest.mark.parametrize(
    ("processes", "kill", "cycles"),
    [("1", kill_service, (2, 200)), ("2", kill_service, (2, 200)), ("3", kill_supervisor, (1, 200))],
)
def test_killing_the_proxy_at_any_moment_loses_no_answer_and_repeats_none(
    tmp_path: Path, full: bool, processes: str, kill: Callable[[Proxy], None], cycles: tuple[int, int]
) -> None:
    chance, home, limit = random.Random(1), tmp_path / "home", 5_000 if full else 150
    token, audit = prepared(home, limit)
    load: Load | None = None
    for cycle in range(cycles[full]):
        with launched(home, "--processes", processes) as proxy:
            assert session_in(proxy.running, token) == audit.session
            if load is not None:
                check_again(proxy.running, audit.session, load)
                with open_service(home) as service:
                    audit.grow(service)
            with Load(proxy.running, audit.session, f"cycle{cycle}") as load:
                load.wait_for_acks()
                time.sleep(chance.uniform(0.005, 0.5))
                kill(proxy)
        check_answers(home, audit, load)
    with launched(home) as proxy:
        assert load is not None
        check_again(proxy.running, audit.session, load)
        use_up(proxy.running, audit.session)
    check_end(home, audit, limit)


def test_killing_workers_loses_no_answer_and_the_others_go_on(tmp_path: Path, full: bool) -> None:
    chance, home, limit = random.Random(2), tmp_path / "home", 5_000 if full else 150
    token, audit = prepared(home, limit)
    for cycle in range(20 if full else 1):
        with launched(home, "--processes", "3") as proxy:
            session_in(proxy.running, token)
            with Load(proxy.running, audit.session, f"cycle{cycle}", insist=True) as load:
                for _ in range(3):
                    load.wait_for_acks()
                    time.sleep(chance.uniform(0.005, 0.5))
                    before = workers_of(proxy.running.pid)
                    os.kill(chance.choice(before), signal.SIGKILL)
                    load.wait_for_acks(CLIENTS)
                    until(lambda: len(set(workers_of(proxy.running.pid)) - set(before)) == 1)  # noqa: B023
            assert load.unanswered == []
            check_again(proxy.running, audit.session, load)
        check_answers(home, audit, load)
    with launched(home) as proxy:
        use_up(proxy.running, audit.session)
    check_end(home, audit, limit)


@pytest.mark.parametrize("processes", ["2", "3"])
def test_killing_the_ledger_process_loses_no_answer_and_forks_nothing(
    tmp_path: Path, full: bool, processes: str
) -> None:
    chance, home, limit = random.Random(3), tmp_path / "home", 5_000 if full else 150
    token, audit = prepared(home, limit)
    with launched(home, "--processes", processes) as proxy:
        session_in(proxy.running, token)
        for cycle in range(100 if full else 3):
            with Load(proxy.running, audit.session, f"cycle{cycle}", insist=True) as load:
                load.wait_for_acks()
                time.sleep(chance.uniform(0.005, 0.3))
                before = ledger_processes_of(home)
                assert len(before) == 1
                os.kill(before[0], signal.SIGKILL)
                load.wait_for_acks(CLIENTS)
                until(lambda: len(set(ledger_processes_of(home)) - set(before)) == 1)  # noqa: B023
                load.wait_for_acks(CLIENTS)
            assert load.unanswered == []
            check_answers(home, audit, load)
            check_again(proxy.running, audit.session, load)
        use_up(proxy.running, audit.session)
        assert proxy.stop()[0] == 0
        until(lambda: ledger_processes_of(home) == [])
    check_end(home, audit, limit)


def test_a_client_is_carried_over_a_restart_by_its_own_retries(tmp_path: Path) -> None:
    home, receipts = tmp_path / "home", dict[str, str]()
    _, audit = prepared(home, 1_000)
    port = str(spare_port())
    with running(home, "--port", port) as first:
        url = first.url
    with ClientOfProxy(url, ca=first.ca, retries=10, timeout_s=60) as client:

        def read(name: str) -> None:
            path = f"/srv/project/{name}"
            answer = client.evaluate(audit.session, "Read", {"file_path": path}, idempotency_key=name)
            receipts[name] = answer.receipt

        with launched(home, "--port", port, plain=False) as proxy:
            read("before")
            readers = [threading.Thread(target=read, args=(f"over{number}",)) for number in range(CLIENTS)]
            for reader in readers:
                reader.start()
            proxy.kill()
        with launched(home, "--port", port, plain=False):
            for reader in readers:
                reader.join()
            before = receipts.pop("before")
            read("before")
            assert receipts["before"] == before
    with open_service(home) as service:
        assert audit.grow(service) == len(receipts) == CLIENTS + 1
        assert {kept.token for kept in pages(service.reader, audit.session)} == set(receipts.values())


def test_a_proxy_that_was_paused_answers_each_call_once(tmp_path: Path, full: bool) -> None:
    home = tmp_path / "home"
    token, audit = prepared(home, 1_000_000)
    with launched(home) as proxy:
        session_in(proxy.running, token)
        for run in range(20 if full else 1):
            with Load(proxy.running, audit.session, f"run{run}", insist=True) as load:
                load.wait_for_acks(CLIENTS)
                pause(proxy.process.pid, 30 if full else 2)
                load.wait_for_acks(CLIENTS)
            assert load.unanswered == []
            check_again(proxy.running, audit.session, load)
            check_answers(home, audit, load)


def test_nothing_is_permitted_after_a_pause_in_which_the_passport_ran_out(tmp_path: Path, full: bool) -> None:
    home = tmp_path / "home"
    with launched(home) as proxy:
        token = Visitor(proxy.running, key_of(home), "").passport(lifetime_s=10, max_tool_calls=1_000_000)
        expires: int = json.loads(decode_base64url(token.split(".")[1]))["exp"]
        session = session_in(proxy.running, token)
        with Load(proxy.running, session, "run", insist=True, until_denied=True) as load:
            load.wait_for_acks(CLIENTS)
            pause(proxy.process.pid, max(30 if full else 0, expires + 0.5 - time.time()))
            load.join()
    with open_service(home) as service:
        ring = service.opened.keys.keyring()
        receipts = [verify_receipt(kept.token, ring).claims for kept in pages(service.reader, session)]
    permitted = [receipt for receipt in receipts if receipt.verdict == "compliant"]
    assert len(receipts) == len(load.acks) == len(load.submitted)
    # Each client left with a denial; some for a call that was permitted in time, and asked for again when it was over.
    assert [ack.decision for ack in load.acks.values()].count("DENY") == CLIENTS
    assert permitted
    assert max(receipt.iat for receipt in permitted) < expires


# Far longer than anybody is to wait, on a busy machine too.
HUNG_S = 60


def strace_works() -> bool:
    found = shutil.which("strace")
    return found is not None and subprocess.run([found, "true"], check=False, capture_output=True).returncode == 0


@contextmanager
def slow_syncs(pid: int, report: Path, seconds: int) -> Iterator[None]:
    """Let every sync of a running process take so long."""
    inject = f"inject=fdatasync:delay_enter={seconds}000000"
    words = ["strace", "-f", "-e", "trace=fdatasync", "-e", inject, "-o", str(report), "-p", str(pid)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        assert b"attached" in strace.stderr.readline()
        try:
            yield
        finally:
            strace.kill()


def writer_of(proxy: Proxy, home: Path) -> int:
    """Return the process that writes the ledger: one of its own, or the proxy itself."""
    return next(iter(ledger_processes_of(home)), proxy.running.pid)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.skipif(not strace_works(), reason="strace is not there, or may not watch processes")
def test_a_disk_that_hangs_keeps_no_client_waiting(tmp_path: Path, processes: str) -> None:
    home = tmp_path / "home"
    token, audit = prepared(home, 1_000)
    with launched(home, "--processes", processes) as proxy:
        session_in(proxy.running, token)
        before = ask(proxy.running, audit.session, "before")
        with slow_syncs(writer_of(proxy, home), tmp_path / "trace", HUNG_S):
            asked = [Asked(proxy.running, "POST", "/evaluate", body_of(audit.session, f"hung{n}")) for n in range(4)]
            healthy = Asked(proxy.running, "GET", "/health")
            assert {error_code(one.answer) for one in asked} == {"ledger_unavailable"}
            assert {one.answer.status for one in asked} == {503}
            assert healthy.answer.status == 200
            # Nobody waited for the disk. What is killed ends when strace lets go of it.
            assert max(one.took for one in (*asked, healthy)) < HUNG_S
            proxy.process.kill()
    with launched(home) as proxy:
        assert ask(proxy.running, audit.session, "before") == before
        for number in range(len(asked)):
            ask(proxy.running, audit.session, f"hung{number}")
    with open_service(home) as service:
        assert audit.grow(service) == 1 + len(asked)


def told_again(proxy: Proxy) -> bool:
    """Tell a proxy that is stopping to stop, as someone does who has no patience."""
    proxy.process.send_signal(signal.SIGTERM)
    return True


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.skipif(not strace_works(), reason="strace is not there, or may not watch processes")
def test_neither_a_disk_that_hangs_nor_being_told_twice_spoils_a_stop(tmp_path: Path, processes: str) -> None:
    home = tmp_path / "home"
    token, audit = prepared(home, 1_000)
    with launched(home, "--processes", processes) as proxy:
        session_in(proxy.running, token)
        with slow_syncs(writer_of(proxy, home), tmp_path / "trace", HUNG_S):
            assert Asked(proxy.running, "POST", "/evaluate", body_of(audit.session, "hung")).answer.status == 503
            with proxy.running.connect() as connection:
                connection.sendall(proxy.running.request("POST", "/evaluate", body_of(audit.session, "last")))
                assert proxy.running.ask("GET", "/health").status == 200
                proxy.process.send_signal(signal.SIGTERM)
                assert read_answer(connection).status == 503
            # Taking back the note is the last thing that is done; strace keeps the process from being gone.
            until(lambda: told_again(proxy) and not list((home / "run").glob("proxy-*")), HUNG_S / 2)
        assert proxy.process.wait(60) == 0
