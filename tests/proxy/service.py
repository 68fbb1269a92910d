"""The real proxy as a process of its own, for tests that talk to it over raw sockets.

`running` starts it, gives where it is reached, and always ends it; what it wrote to its log is shown if anything fails.
"""

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

__all__ = ["HTTP", "Answer", "Running", "command", "error_code", "read_answer", "read_answers", "running"]

HTTP = "--insecure-http"
PATIENCE_S = 20.0


class Answer(NamedTuple):
    """One answer as it came; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as a value."""
        return json.loads(self.body)


class Running(NamedTuple):
    """A proxy that is running."""

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
        """Return the certificate that clients are to trust."""
        return self.home / "tls" / "ca.pem"

    @property
    def log(self) -> str:
        """Return what was logged so far."""
        return self.log_path.read_text(encoding="utf-8")

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
        """Return all answers to these bytes, read until the proxy closes; times out if it does not."""
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
    assert answer.headers["x-request-id"]
    assert list(answer.json) == ["ok", "error", "error_code"]
    assert answer.json["ok"] is False
    assert not [word for word in (b"Traceback", b".py", b"/home", b"/tmp", b"0x") if word in answer.body]
    return str(answer.json["error_code"])


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end; it must succeed."""
    return subprocess.run(
        [sys.executable, "-m", "remit", *words], check=True, capture_output=True, text=True, timeout=60
    )


@contextmanager
def running(home: Path, *options: str, under: Sequence[str] = ()) -> Iterator[Running]:
    """Run a proxy over `home`; `under` is a command that starts it, such as `prlimit`."""
    log_path = home.with_name(f"{home.name}.log")
    words = [*under, sys.executable, "-m", "remit", "proxy", "--home", str(home), "--json", *options]
    with log_path.open("ab") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            said = process.stdout.readline() if process.stdout else ""
            assert "listening" in said, f"the proxy did not start: {said}"
            told = json.loads(said)
            yield Running(told["listening"], told["pid"], home, log_path)
            assert process.poll() is None, "the proxy ended by itself"
        except BaseException:
            sys.stderr.write(log_path.read_text(encoding="utf-8", errors="replace"))
            raise
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, kindly at first: workers end with it."""
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()


def read_answers(connection: socket.socket) -> list[Answer]:
    """Return all answers until the connection is closed, or cut off."""
    stream, answers = b"", []
    try:
        while part := connection.recv(65536):
            stream += part
    except ConnectionResetError:
        pass
    while stream:
        answer, stream = _parted(stream)
        answers.append(answer)
    return answers


def read_answer(connection: socket.socket, method: str = "GET") -> Answer:
    """Return the next answer; nothing is read beyond it."""
    with connection.makefile("rb", buffering=0) as stream:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = stream.read(1)
            if not byte:
                raise ConnectionResetError(f"closed after {head!r}")
            head += byte
        status, headers = _head(head)
        body = b""
        while method != "HEAD" and len(body) < int(headers["content-length"]):
            part = stream.read(int(headers["content-length"]) - len(body))
            if not part:
                raise ConnectionResetError("closed in the middle of an answer")
            body += part
        return Answer(status, headers, body)


def _parted(stream: bytes) -> tuple[Answer, bytes]:
    head, _, rest = stream.partition(b"\r\n\r\n")
    status, headers = _head(head)
    length = int(headers["content-length"])
    assert len(rest) >= length, "an answer was cut off"
    return Answer(status, headers, rest[:length]), rest[length:]


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}
