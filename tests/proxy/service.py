"""The real services as processes of their own, for tests that talk to them over raw sockets; the proxy among them.

`launched` starts one, tells where it is reached, and always ends it; what it wrote to its log is shown if anything
fails. The Hub has a file like this of its own, with the rest of what it needs.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from click.testing import CliRunner, Result

from remit.cli import main

__all__ = [
    "HTTP",
    "Answer",
    "PowerCut",
    "Running",
    "Service",
    "command",
    "error_code",
    "launched",
    "read_answer",
    "read_answers",
    "running",
]

HTTP = "--insecure-http"
PATIENCE_S = 60.0


class Answer(NamedTuple):
    """One answer as it came; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as a value."""
        return json.loads(self.body)


class PowerCut(Exception):
    """Not an error: a service is gone, as if the power was cut."""


@dataclass(frozen=True)
class Service:
    """A service that is running."""

    url: str
    pid: int
    home: Path
    log_path: Path

    @property
    def host(self) -> str:
        """Return the address and port, as `Host` has it."""
        return urlsplit(self.url).netloc

    @property
    def port(self) -> int:
        """Return the port."""
        return urlsplit(self.url).port or 0

    @property
    def ca(self) -> Path:
        """Return the certificate that clients are to trust, where there is one."""
        return self.home / "tls" / "ca.pem"

    @property
    def log(self) -> str:
        """Return what was written to the log so far: the line of a request comes some time after its answer."""
        return self.log_path.read_text(encoding="utf-8")

    def log_to_here(self) -> str:
        """Return the log once it has the lines of all that was answered; lines keep their order."""
        deadline, asked = time.monotonic() + PATIENCE_S, list[str]()
        while not any(request in self.log for request in asked):
            assert time.monotonic() < deadline, "the log does not have the last requests"
            asked.append(self.ask("GET", "/nowhere").headers["x-request-id"])  # too many in a second have no line
            time.sleep(0.05)
        return self.log

    def connect(self, certificate: tuple[str, str] | None = None, *, timeout: float = PATIENCE_S) -> socket.socket:
        """Return a connection, over TLS where that is served; `certificate` is its file and that of its key."""
        plain = socket.create_connection((urlsplit(self.url).hostname, self.port), timeout=timeout)
        if self.url.startswith("http:"):
            return plain
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate:
            context.load_cert_chain(*certificate)
        try:
            return context.wrap_socket(plain, server_hostname=urlsplit(self.url).hostname)
        except BaseException:
            plain.close()
            raise

    def send(self, data: bytes, *, timeout: float = PATIENCE_S) -> list[Answer]:
        """Return all answers to these bytes, read until the service closes; times out if it does not."""
        with self.connect(timeout=timeout) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may close before it has all
                connection.sendall(data)
            return read_answers(connection)

    def request(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str | None
    ) -> bytes:
        """Return the bytes of a request; `content_type="x"` sets a header, and None leaves one out."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given: dict[str, str | None] = {"host": self.host}
        if body is not None:
            given |= {"content-type": "application/json", "content-length": str(len(content))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in given.items() if value is not None),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + content

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        certificate: tuple[str, str] | None = None,
        **headers: str | None,
    ) -> Answer:
        """Return the answer to one request on a connection of its own."""
        with self.connect(certificate) as connection:
            connection.sendall(self.request(method, path, body, **{"connection": "close", **headers}))
            return read_answer(connection, method)

    def cut_power(self) -> None:
        """Let it die at once, and leave the block that runs it."""
        os.kill(self.pid, signal.SIGKILL)
        raise PowerCut


class Running(Service):
    """A proxy that is running."""

    def passport(self, *tools: str, scope: str = "/srv/project/**") -> str:
        """Return a passport of this home, issued by the command line."""
        given = ["--agent-id", "agent:test", "--mission", "be tested", "--resource-scope", scope]
        issued = command("issue", "--home", str(self.home), *given, "--allowed-tools", *(tools or ("Read",)))
        return issued.stdout.strip()

    def session(
        self,
        *tools: str,
        scope: str = "/srv/project/**",
        certificate: tuple[str, str] | None = None,
        **headers: str | None,
    ) -> str:
        """Return the id of a new session."""
        start = {"token": self.passport(*tools, scope=scope)}
        answer = self.ask("POST", "/session/start", start, certificate=certificate, **headers)
        return str(answer.json["session_id"])

    def token(self, name: str) -> str:
        """Return a token of this home: `admin` or `proxy`."""
        return command("token", name, "--home", str(self.home)).stdout.strip()


def error_code(answer: Answer) -> str:
    """Return the code of an error, which has the one shape that all have, and says nothing of our insides."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"]
    assert list(answer.json) == ["ok", "error", "error_code"]
    assert answer.json["ok"] is False
    assert not [word for word in (b"Traceback", b".py", b"/home", b"/tmp", b"0x") if word in answer.body]
    return str(answer.json["error_code"])


def command(*words: str) -> Result:
    """Run a command of ours to its end, in this process; it must succeed."""
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result


@contextmanager
def running(home: Path, *options: str, under: Sequence[str] = ()) -> Iterator[Running]:
    """Run a proxy over `home`; `under` is a command that starts it, such as `prlimit`."""
    with launched("proxy", home, *options, under=under) as (url, pid, log_path):
        yield Running(url, pid, home, log_path)


@contextmanager
def launched(name: str, home: Path, *options: str, under: Sequence[str] = ()) -> Iterator[tuple[str, int, Path]]:
    """Run the service that a command starts, and give where it listens, its process id and its log."""
    log_path = home.with_name(f"{home.name}.log")
    words = [*under, sys.executable, "-m", "remit", name, "--home", str(home), "--json", *options]
    with log_path.open("ab") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            said = process.stdout.readline() if process.stdout else ""
            assert "listening" in said, why_not(process, said, log_path)
            told = json.loads(said)
            yield told["listening"], told["pid"], log_path
            assert process.poll() is None, f"the {name} ended by itself"
        except PowerCut:
            process.wait(timeout=PATIENCE_S)
        except BaseException:
            sys.stderr.write(log_path.read_text(encoding="utf-8", errors="replace"))
            raise
        finally:
            _end(process)


def why_not(process: subprocess.Popen[str], said: str, log_path: Path) -> str:
    """Return all that is known of a service that did not start."""
    process.kill() if said else None
    status, log = process.wait(PATIENCE_S), log_path.read_text(encoding="utf-8", errors="replace")
    return f"it did not start, exit status {status}: {said}{log}"


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, kindly at first: workers end with it."""
    process.terminate()
    try:
        process.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def read_answers(connection: socket.socket) -> list[Answer]:
    """Return all answers until the connection is closed, or cut off."""
    gathered = b""
    try:
        while part := connection.recv(65536):
            gathered += part
    except ConnectionResetError:
        pass
    stream, answers = BytesIO(gathered), []
    while stream.tell() < len(gathered):
        answers.append(_next_answer(stream))
    return answers


def read_answer(connection: socket.socket, method: str = "GET") -> Answer:
    """Return the next answer; nothing is read beyond it."""
    with connection.makefile("rb", buffering=0) as stream:
        return _next_answer(stream, method)


def _next_answer(stream: RawIOBase | BytesIO, method: str = "GET") -> Answer:
    """Return an answer with its whole body, which may come in chunks."""
    status, headers = _head(_until(stream, b"\r\n\r\n"))
    if method == "HEAD" or status == 204:
        return Answer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, b"".join(_chunks(stream)))
    return Answer(status, headers, _exactly(stream, int(headers["content-length"])))


def _chunks(stream: RawIOBase | BytesIO) -> Iterator[bytes]:
    while size := int(_until(stream, b"\r\n"), 16):
        yield _exactly(stream, size)
        assert _exactly(stream, 2) == b"\r\n"
    assert _exactly(stream, 2) == b"\r\n"


def _until(stream: RawIOBase | BytesIO, end: bytes) -> bytes:
    gathered = b""
    while not gathered.endswith(end):
        gathered += _exactly(stream, 1)
    return gathered


def _exactly(stream: RawIOBase | BytesIO, size: int) -> bytes:
    gathered = bytearray()
    while len(gathered) < size:
        part = stream.read(size - len(gathered))
        if not part:
            raise ConnectionResetError(f"closed in the middle of an answer, after {bytes(gathered[-100:])!r}")
        gathered += part
    return bytes(gathered)


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}
