"""Watched from outside: nobody is answered before the disk is, and a sync that fails is no answer."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.driver import Worker
from tests.faults.service import Audit, integrity, open_service, session_of


def strace_works() -> bool:
    found = shutil.which("strace")
    return found is not None and subprocess.run([found, "true"], check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not strace_works(), reason="strace is not there, or may not watch processes")

_CALL = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. )?(?P<name>\w+)(?:\((?P<rest>.*)| resumed>(?P<resumed>.*))")
_SAID = re.compile(r'1<[^>]*>, "(submit|ack) (\S+?)(?: |\\n)')


class Trace(NamedTuple):
    """Lines of a trace: when each call was submitted and answered, and from when to when the log was synced."""

    submitted: dict[str, int]
    answered: dict[str, int]
    syncs: list[tuple[int, int]]

    def synced_between(self, first: int, last: int) -> bool:
        return any(first < begun and ended < last for begun, ended in self.syncs)


def read_trace(path: Path) -> Trace:
    """Read what strace wrote; a call that another came between has two lines."""
    trace, begun = Trace({}, {}, []), dict[str, int]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        call = _CALL.match(line)
        if call is None:
            continue
        pid, rest = call["pid"], call["rest"] or ""
        if call["name"] == "write" and (said := _SAID.match(rest)):
            (trace.submitted if said[1] == "submit" else trace.answered).setdefault(said[2], number)
        elif call["name"] == "fdatasync":
            if rest:
                begun[pid] = number if "ledger.db-wal" in rest else -1
            if line.endswith("= 0") and begun.get(pid, -1) >= 0:
                trace.syncs.append((begun[pid], number))
    return trace


def test_between_a_call_and_its_answer_lies_a_sync_of_the_log(tmp_path: Path, full: bool) -> None:
    calls, home, report = 1_000 if full else 200, tmp_path / "home", tmp_path / "trace"
    strace = ["strace", "-f", "-y", "-s", "300", "-e", "trace=fdatasync,write", "-e", "signal=none", "-o", str(report)]
    with open_service(home) as service:
        token = service.passport()
        session_of(service.governor, token)
    with Worker(home, token, "watched", "--calls", calls, under=strace) as worker:
        worker.finish()
    trace = read_trace(report)
    assert len(worker.acks) == len(trace.answered) == len(trace.submitted) == calls
    early = [key for key, line in trace.answered.items() if not trace.synced_between(trace.submitted[key], line)]
    assert early == []


@contextmanager
def failing_syncs(worker: Worker, when: str, report: Path) -> Iterator[None]:
    """Let syncs of a running worker fail; its end is the end of this."""
    inject = f"inject=fdatasync:error=EIO:when={when}"
    command = ["strace", "-f", "-e", "trace=fdatasync", "-e", inject, "-o", str(report), "-p", str(worker.process.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        assert b"attached" in strace.stderr.readline()
        try:
            yield
        finally:
            worker.kill()
    assert "(INJECTED)" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("when", ["1", "3", "2+2", "2..9"])
def test_syncs_that_fail_lose_no_answer_and_the_process_goes_on(tmp_path: Path, full: bool, when: str) -> None:
    calls, home = 400 if full else 80, tmp_path / "home"
    with open_service(home) as service:
        token = service.passport()
        audit = Audit(session_of(service.governor, token))
    with Worker(home, token, "failing", "--calls", calls, "--gate") as worker:
        worker.require("open")
        with failing_syncs(worker, when, tmp_path / "trace"):
            worker.begin()
            worker.finish()
    acks = worker.acks
    assert {code for _, code in worker.said("fail")} == {"ledger_unavailable"}
    with open_service(home) as service:
        assert audit.grow(service) == len(acks) == calls
    assert [ack for ack in acks if not audit.holds(ack.receipt_id, ack.receipt_hash)] == []
    assert integrity(home / "ledger.db") == []
