"""A proxy that is killed, paused and stopped, and clients that keep it under load and remember all they were told.

Each client has a connection of its own and one call on its way at any time, so there are never more calls without an
answer than clients.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from remit.claims.canonical import sha256_hex
from tests.faults.service import call_of
from tests.proxy.service import HTTP, Answer, Running, why_not

__all__ = [
    "CLIENTS",
    "Ack",
    "Client",
    "Load",
    "Proxy",
    "ask",
    "body_of",
    "freeze",
    "is_running",
    "launched",
    "ledger_processes_of",
    "pause",
    "session_in",
    "until",
    "workers_of",
]

CLIENTS = 8
PATIENCE_S = 60.0
OK = 200


def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds; it must in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)


class Proxy(NamedTuple):
    """A proxy as a process of ours, whose end is seen."""

    running: Running
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Tell it to stop; return its exit code, and how long it took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S), time.monotonic() - begun


@contextmanager
def launched(home: Path, *options: str, plain: bool = True) -> Iterator[Proxy]:
    """Give a proxy, which nobody expects to be there in the end; workers go with it."""
    log_path = home.with_name(f"{home.name}.log")
    words = [sys.executable, "-m", "remit", "proxy", "--home", str(home), "--json", *options]
    with log_path.open("ab") as log:
        process = subprocess.Popen([*words, HTTP] if plain else words, stdout=subprocess.PIPE, stderr=log, text=True)
    workers: list[int] = []
    with process:
        try:
            said = process.stdout.readline() if process.stdout else ""
            assert "listening" in said, why_not(process, said, log_path)
            told = json.loads(said)
            workers = workers_of(told["pid"])
            yield Proxy(Running(told["listening"], told["pid"], home, log_path), process)
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            until(lambda: not any(is_running(pid) for pid in workers))


def workers_of(pid: int) -> list[int]:
    """Return the processes that serve for this one."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in children if b"spawn_main" in _command_line(int(child))]


def ledger_processes_of(home: Path) -> list[int]:
    """Return the processes that write the ledger of a home and do nothing else."""
    words = b"run_ledger_process\0" + os.fsencode(home.resolve())
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if words in _command_line(pid)]


def is_running(pid: int) -> bool:
    """Tell whether a process of ours is there, and not only its number, which another one may have got since."""
    return any(word in _command_line(pid) for word in (b"remit", b"spawn_main"))


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class Asked:
    """A request that is under way, and how long its answer took."""

    def __init__(self, proxy: Running, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        self.took = 0.0
        self._answers: list[Answer] = []
        self._thread = threading.Thread(target=self._ask, args=(proxy, method, path, body))
        self._thread.start()

    @property
    def answer(self) -> Answer:
        """Return the answer when it is there."""
        self._thread.join(PATIENCE_S)
        return self._answers[0]

    def _ask(self, proxy: Running, method: str, path: str, body: dict[str, Any] | None) -> None:
        begun = time.monotonic()
        self._answers.append(proxy.ask(method, path, body))
        self.took = time.monotonic() - begun


class Ack(NamedTuple):
    """An answer that a client was given in full."""

    receipt: str
    receipt_id: str
    receipt_hash: str
    decision: str


def body_of(session: str, key: str) -> dict[str, Any]:
    """Return the request for the call of this key, always the same."""
    call = call_of(key)
    return {
        "session_id": session,
        "tool_name": call.tool_name,
        "arguments": call.arguments,
        "idempotency_key": key,
    }


def ack_of(answer: Answer) -> Ack:
    """Return what an answer says, which must be a decision."""
    assert answer.status == OK, answer
    told = answer.json
    assert told["receipt_hash"] == sha256_hex(told["receipt"].encode())
    return Ack(told["receipt"], told["receipt_id"], told["receipt_hash"], told["decision"])


def ask(proxy: Running, session: str, key: str) -> Ack:
    """Return the decision on the call of this key."""
    return ack_of(proxy.ask("POST", "/evaluate", body_of(session, key)))


def session_in(proxy: Running, token: str) -> str:
    """Return the id of the session of a passport, started if it was not."""
    answer = proxy.ask("POST", "/session/start", {"token": token})
    assert answer.status == OK, answer
    return str(answer.json["session_id"])


class Client:
    """One client, with one connection at a time."""

    def __init__(self, proxy: Running, session: str) -> None:
        self._proxy = proxy
        self._session = session
        self._connection: socket.socket | None = None

    def attempt(self, key: str) -> Answer | bytes:
        """Ask once; return the answer, or what came of it before the connection was cut."""
        came = b""
        try:
            self._connection = self._connection or self._proxy.connect(timeout=PATIENCE_S)
            self._connection.sendall(self._proxy.request("POST", "/evaluate", body_of(self._session, key)))
            while part := self._connection.recv(65536):
                came += part
                if (answer := _complete(came)) is not None:
                    if answer.headers.get("connection") == "close":
                        self.close()
                    return answer
        except ConnectionError:
            pass
        self.close()
        return came

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _complete(came: bytes) -> Answer | None:
    head, _, body = came.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if b"\r\n\r\n" not in came or len(body) < int(headers["content-length"]):
        return None
    return Answer(int(first.split()[1]), headers, body)


class Load:
    """Clients of one session. With `insist` they ask until they are answered, else they leave when they are cut off."""

    def __init__(
        self,
        proxy: Running,
        session: str,
        prefix: str,
        *,
        clients: int = CLIENTS,
        insist: bool = False,
        until_denied: bool = False,
    ) -> None:
        self.submitted: list[str] = []
        self.acks: dict[str, Ack] = {}
        self.errors: list[str] = []
        # What came before a connection was cut, in most cases nothing.
        self.cut: list[bytes] = []
        self._failures: list[BaseException] = []
        self._proxy = proxy
        self._session = session
        # Of the calls that end in 7 some policy says no; where a denial is the end, there are none of them.
        self._keys = (f"{prefix}-{number}" + ("-0" if until_denied else "") for number in count())
        self._insist = insist
        self._until_denied = until_denied
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._clients = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Self:
        """Begin."""
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let each client have its last answer."""
        self._over.set()
        self.join()

    def join(self) -> None:
        """Wait until all clients have left."""
        for client in self._clients:
            client.join(PATIENCE_S)
            assert not client.is_alive()
        assert self._failures == []

    @property
    def unanswered(self) -> list[str]:
        """Return the keys of the calls that have had no answer."""
        return [key for key in self.submitted if key not in self.acks]

    def wait_for_acks(self, more: int = 1) -> None:
        """Wait until so many answers were given from now on, or nobody asks any more."""
        goal = len(self.acks) + more
        until(lambda: len(self.acks) >= goal or not any(client.is_alive() for client in self._clients))

    def _run(self) -> None:
        client = Client(self._proxy, self._session)
        try:
            while not self._over.is_set() and self._goes_on(client, self._next()):
                continue
        except BaseException as error:  # noqa: BLE001 - told where all are waited for
            self._failures.append(error)
        finally:
            client.close()

    def _next(self) -> str:
        with self._lock:
            key = next(self._keys)
            self.submitted.append(key)
            return key

    def _goes_on(self, client: Client, key: str) -> bool:
        """Get an answer to the call of this key; tell whether this client asks for more."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = client.attempt(key)
            if isinstance(answer, Answer) and answer.status == OK:
                self.acks[key] = ack_of(answer)
                return not (self._until_denied and self.acks[key].decision == "DENY")
            if isinstance(answer, Answer):
                self.errors.append(f"{answer.status} {answer.json['error_code']}")
            else:
                self.cut.append(answer)
            if not self._insist:
                return False
        raise TimeoutError(f"no answer to {key}")


def freeze(pid: int) -> None:
    """Stop a process wherever it is. Its threads go on until each is scheduled, which a busy machine delays."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(_state(stat) == "T" for stat in Path(f"/proc/{pid}/task").glob("*/stat")))


def _state(stat: Path) -> str:
    return stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]


def pause(pid: int, seconds: float) -> None:
    """Stop a process for some seconds."""
    freeze(pid)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
