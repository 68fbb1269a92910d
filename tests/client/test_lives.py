"""The lives of clients: many threads, one that is closed, one that is forgotten, one in a forked process."""

import asyncio
import dis
import gc
import logging
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import FrameType
from typing import Any

import anyio
import pytest

from remit.client import AsyncProxy, Proxy, loop_thread
from remit.client.loop_thread import LoopThread
from remit.client.resolver import ResolvingLoop
from remit.errors import ServiceUnavailable
from tests.client.conftest import Connect
from tests.client.service import PASSPORT, SESSION, Desk
from tests.client.wire import Fault, relay


def threads() -> int:
    return sum(thread.name == "remit-client" for thread in threading.enumerate())


def test_many_threads_share_a_client(desk: Desk, port: int) -> None:
    with Proxy(f"http://127.0.0.1:{port}") as proxy, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: proxy.evaluate(SESSION, "read_file", {"n": number}), range(64)))
    assert {answer.decision for answer in answers} == {"PERMIT"}
    assert len(desk.decided) == 64


def test_many_tasks_share_a_client(desk: Desk, port: int) -> None:
    async def ask() -> list[str]:
        async with AsyncProxy(f"http://127.0.0.1:{port}") as proxy:
            asked = [proxy.evaluate(SESSION, "read_file", {"n": number}) for number in range(64)]
            return [answer.decision for answer in await asyncio.gather(*asked)]

    assert set(asyncio.run(ask())) == {"PERMIT"}
    assert len(desk.decided) == 64


def test_a_waiting_client_works_inside_a_loop(port: int) -> None:
    async def ask() -> bool:
        with Proxy(f"http://127.0.0.1:{port}") as proxy:
            return proxy.health().ok

    assert asyncio.run(ask())


def test_a_closed_client_answers_nothing(connect: Connect, port: int) -> None:
    proxy = connect(port)
    assert proxy.health().ok
    proxy.close()
    with pytest.raises(ServiceUnavailable):
        proxy.health()


def test_closing_gives_up_what_is_under_way(port: int) -> None:
    with relay(port, Fault("drop", "down", 0)) as relayed, ThreadPoolExecutor(1) as pool:
        proxy = Proxy(f"http://127.0.0.1:{relayed}", timeout_s=600)
        waiting = pool.submit(proxy.health)
        while not threads() and not waiting.done():
            time.sleep(0.01)
        proxy.close()
        with pytest.raises(ServiceUnavailable):
            waiting.result(60)
    assert threads() == 0


class EndsLate(ResolvingLoop):  # type: ignore[misc]  # it is final for everybody else
    """A loop that is closed while its thread goes on, until `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.release = threading.Event(), threading.Event()

    def close(self) -> None:
        super().close()
        self.closed.set()
        assert self.release.wait(60)


def test_a_stop_does_nothing_while_the_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EndsLate()
    monkeypatch.setattr(loop_thread, "ResolvingLoop", lambda: loop)
    running = LoopThread(nothing)
    running.stop()
    assert loop.closed.wait(60)
    try:
        running.stop()
    finally:
        loop.release.set()
    running.join()
    assert not running.is_alive


class Interrupt(BaseException):
    """What a signal handler raises."""


class InterruptAt:
    """Traces a thread, and raises in the middle of its code as a signal handler does, at one moment of many.

    The interpreter runs signal handlers when a function begins, after a call, and when it jumps back.
    """

    def __init__(self, moment: int) -> None:
        self.left = moment
        self.last: dict[FrameType, str] = {}

    def __call__(self, frame: FrameType, event: str, _value: Any) -> "InterruptAt":
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = self.last.get(frame, "RESUME")
            self.last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self.left -= before.startswith(("CALL", "JUMP_BACKWARD", "RESUME"))
            if self.left == 0:
                sys.settrace(None)
                raise Interrupt
        return self


def test_a_signal_handler_may_raise_at_any_moment_of_waiting(port: int) -> None:
    with Proxy(f"http://127.0.0.1:{port}") as proxy:
        proxy.health()
        for moment in count(1):
            try:
                sys.settrace(InterruptAt(moment))
                proxy.health()
                break
            except Interrupt:
                # Asked in another thread: what this one has left locked would be open to it.
                asking = threading.Thread(target=proxy.health, daemon=True)
                asking.start()
                asking.join(60)
                assert not asking.is_alive(), moment
            finally:
                sys.settrace(None)
    assert moment > 20


async def nothing() -> None:
    """Be the last that is awaited."""


@pytest.mark.parametrize("turns", range(6))
def test_a_stop_lets_tasks_cancel_the_tasks_that_they_start(turns: int) -> None:
    running = LoopThread(nothing)

    async def work() -> None:
        running.stop()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with anyio.create_task_group() as group:
            group.start_soon(asyncio.sleep, 600)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(asyncio.CancelledError):
            running.submit(work).result(60)
        running.join()
        gc.collect()
    assert [str(warning.message) for warning in told] == []


def test_whoever_is_cancelled_is_not_answered(port: int) -> None:
    async def ask(relayed: int) -> None:
        async with AsyncProxy(f"http://127.0.0.1:{relayed}", timeout_s=600) as proxy:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await proxy.health()

    with relay(port, Fault("drop", "down", 0)) as relayed:
        asyncio.run(ask(relayed))


def test_whoever_is_cancelled_in_a_tls_handshake_leaves_no_connection() -> None:
    async def ask() -> bytes:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(0)
            async with AsyncProxy(f"https://127.0.0.1:{silent.getsockname()[1]}", timeout_s=600) as proxy:
                asking = asyncio.create_task(proxy.health())
                connection, _ = await loop.sock_accept(silent)
                with connection:
                    assert await loop.sock_recv(connection, 65536)
                    asking.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asking
                    async with asyncio.timeout(10):
                        return await loop.sock_recv(connection, 65536)

    gc.disable()  # it would close the connection too, at some time
    try:
        assert asyncio.run(ask()) == b""
    finally:
        gc.enable()


def test_a_client_that_is_forgotten_leaves_no_thread(port: int) -> None:
    proxy = Proxy(f"http://127.0.0.1:{port}")
    assert proxy.health().ok
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "remit-client"]
    del proxy
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


FORK = """
import os, sys
from remit.client import Proxy
proxy = Proxy(f"http://127.0.0.1:{sys.argv[1]}")
assert proxy.health().ok
child = os.fork()
ok = proxy.health().ok
if child == 0:
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert proxy.health().ok
proxy.close()
"""


def test_a_client_goes_on_in_both_halves_of_a_fork(desk: Desk, port: int) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, str(port)], timeout=120, check=False)
    assert (done.returncode, len(desk.seen)) == (0, 4)
    assert len({seen.connection for seen in desk.seen}) == 2


HELD = """
import os, sys, signal
from remit.client import Proxy
proxy = Proxy(f"http://127.0.0.1:{sys.argv[1]}")
assert proxy.health().ok
with proxy._lock():
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if proxy.health().ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
proxy.close()
"""


def test_a_fork_in_the_middle_of_a_call_of_another_thread_leaves_nothing_locked(port: int) -> None:
    assert subprocess.run([sys.executable, "-c", HELD, str(port)], timeout=120, check=False).returncode == 0


HANGING = """
import socket, threading
from remit.client import Proxy
from remit.errors import ServiceUnavailable
socket.getaddrinfo = lambda *_: threading.Event().wait()
with Proxy("https://proxy.example", timeout_s=2) as proxy:
    try:
        proxy.health()
    except ServiceUnavailable:
        print([thread.name for thread in threading.enumerate() if thread.name == "remit-lookup"])
"""


def test_a_lookup_that_hangs_does_not_keep_the_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], timeout=120, check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("['remit-lookup']", "")


def test_a_lookup_that_fails_late_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    over, tries = threading.Event(), []

    def late(*_asked: object) -> None:
        tries.append(threading.current_thread())
        over.wait(120)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", late)
    with Proxy("https://proxy.example", timeout_s=0.5) as proxy:
        while not tries:  # on a busy machine, the time may be over before the lookup began
            with pytest.raises(ServiceUnavailable):
                proxy.health()
        assert len(tries) == 1  # all attempts wait for the same
        over.set()
        tries[0].join()
        while len(tries) == 1:
            with pytest.raises(ServiceUnavailable):
                proxy.health()
    gc.collect()
    assert caplog.records == []


def test_the_environment_changes_nothing(
    connect: Connect, desk: Desk, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert connect(port).health().ok
    assert "Authorization" not in desk.seen[0].headers


def test_logs_hold_no_secret(connect: Connect, port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        proxy = connect(port, token="s3cret-token", admin_token="s3cret-admin")
        proxy.start(PASSPORT.token)
        proxy.kill_switch(on=True)
    assert caplog.records
    assert "s3cret" not in caplog.text
    assert PASSPORT.token not in caplog.text
