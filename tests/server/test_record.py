"""Notes of services that run: each under its own name, and none of one that has gone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger.home import Home, open_home
from remit.server.run_files import all_running, load_running, run_file

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home") as opened:
        yield opened


def test_a_service_is_found_by_its_name_while_it_runs(home: Home) -> None:
    assert (load_running(home, "hub"), all_running(home, "proxy")) == (None, [])
    with run_file(home, "hub", "http://127.0.0.1:8765", {"port": 1}) as note:
        assert load_running(home, "hub") is None
        note()
        running = load_running(home, "hub")
        assert running is not None
        assert (running.listening, running.pid, running.asked) == ("http://127.0.0.1:8765", os.getpid(), {"port": 1})
        assert all_running(home, "proxy") == []
    assert load_running(home, "hub") is None


def test_two_services_of_one_process_leave_two_notes(home: Home) -> None:
    with run_file(home, "hub", "http://a", {}) as hub, run_file(home, "proxy", "https://b", {}) as proxy:
        hub()
        proxy()
        found = [running.listening for service in ("hub", "proxy") for running in all_running(home, service)]
        assert found == ["http://a", "https://b"]
        with home.folder("run") as folder:
            assert {f"hub-{os.getpid()}.json", f"proxy-{os.getpid()}.json"} <= set(folder.names())


KILLED = """
import os, signal, sys
from pathlib import Path
from remit.server.run_files import run_file
from remit.ledger.home import open_home
with open_home(Path(sys.argv[1])) as home, run_file(home, "hub", "http://a", {}) as note:
    note()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_note_of_one_that_was_killed_does_not_count_and_is_cleared_away(home: Home, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "home")], check=False, timeout=60)
    assert len(list((tmp_path / "home" / "run").glob("hub-*.json"))) == 1
    assert all_running(home, "hub") == []
    assert list((tmp_path / "home" / "run").iterdir()) == []
