"""A long run of one process: it grows no more once it is warm."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.driver import Worker
from tests.faults.service import Audit, open_service, session_of

WARM = 10_000
LONG = 100_000
LOG_LIMIT = 64 * 1024 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process holds")
def test_a_process_that_runs_long_holds_no_more_memory_files_or_log(
    tmp_path: Path, full: bool, record_property: Callable[[str, object], None]
) -> None:
    if not full:
        pytest.skip("takes minutes: make test-faults")
    home = tmp_path / "home"
    with open_service(home) as service:
        token = service.passport()
        audit = Audit(session_of(service.governor, token))
    with Worker(home, token, "soak", "--calls", LONG, "--report-every", WARM) as worker:
        worker.finish()
    states = [[int(word) for word in line] for line in worker.said("state")]
    record_property("states", states)
    with open_service(home) as service:
        assert audit.grow(service) == LONG
    resident, descriptors, logs = ([state[place] for state in states] for place in (1, 2, 3))
    assert max(logs) <= LOG_LIMIT, states
    assert len(set(descriptors)) == 1, states
    assert max(resident) <= resident[0] * 1.05, states
