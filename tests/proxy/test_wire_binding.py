"""Where the proxy listens, and what becomes of it when there are more connections than files."""

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.proxy.certificates import program
from tests.proxy.service import HTTP, Running, running

LOOPBACK = "0100007F"
LISTENS = "0A"


def listening(port: int) -> set[str]:
    """The addresses at which a port is listened on, as the system writes them."""
    rows = [
        line.split()
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]
    ]
    local = [row[1].split(":") for row in rows if row[3] == LISTENS]
    return {address for address, number in local if int(number, 16) == port}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def failing(*options: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "remit", "proxy", "--home", str(home), *options]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module", params=[(HTTP,), ()], ids=["plain", "tls"])
def proxy(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("proxy") / "home", *request.param) as proxy:
        yield proxy


def test_only_the_loopback_address_is_listened_on(proxy: Running) -> None:
    assert listening(proxy.port) == {LOOPBACK}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", proxy.port), timeout=5)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_plain_http_is_for_loopback_addresses_only(tmp_path: Path, host: str) -> None:
    done = failing(HTTP, "--host", host, home=tmp_path / "home")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "home").exists()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = failing(HTTP, "--port", str(port), home=tmp_path / "home")
    assert done.returncode == 78
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def stalled(proxy: Running, stack: ExitStack, count: int) -> None:
    for _ in range(count):
        stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=10))


def answered_within(proxy: Running, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            return proxy.ask("GET", "/health").status == 200 and time.monotonic() < end
        except OSError:
            time.sleep(0.1)
    return False


@pytest.mark.parametrize("options", [(HTTP,), ()], ids=["plain", "tls"])
def test_more_connections_than_files_neither_keep_it_busy_nor_others_out(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with running(tmp_path / "home", *options, under=(program("prlimit"), "--nofile=64")) as proxy:
        with ExitStack() as stack:
            stalled(proxy, stack, 200)
            before = cpu_s(proxy.pid)
            time.sleep(1)
            assert cpu_s(proxy.pid) - before <= 0.5
            assert answered_within(proxy, 5)
        assert answered_within(proxy, 5)


def test_without_a_file_left_for_a_connection_it_waits_without_being_busy(tmp_path: Path) -> None:
    with running(tmp_path / "home", HTTP) as proxy:
        opened = len(list(Path(f"/proc/{proxy.pid}/fd").iterdir()))
        _, hard = resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (opened + 2, hard))
        with ExitStack() as stack:
            stalled(proxy, stack, 200)
            before = cpu_s(proxy.pid)
            time.sleep(1)
            assert cpu_s(proxy.pid) - before <= 0.5
        assert answered_within(proxy, 5)


def test_two_hundred_stalled_connections_keep_nobody_out(proxy: Running) -> None:
    with ExitStack() as stack:
        stalled(proxy, stack, 200)
        assert proxy.ask("GET", "/health").status == 200
