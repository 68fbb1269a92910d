"""A stand-in for the API of a model, on loopback: it plays a script to any assistant that asks.

One port speaks every protocol of `protocols`. A request without tools, for a title or a summary, is none of the
script's turns and gets an empty answer. What was asked is kept: a test sees what an assistant told its model.
"""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.agents.protocols import Event, protocol_of
from tests.agents.script import Do, Say, Script, Step

__all__ = ["Model", "playing"]

ASIDE: Final = (Say("{}"),)
COUNTED: Final = {"input_tokens": 10, "totalTokens": 10}
KNOWN: Final = {"object": "list", "data": [{"id": "stand-in", "object": "model", "type": "model"}], "has_more": False}


class Model:
    """A model that plays its script, and remembers what it was asked."""

    def __init__(self, script: Script, port: int) -> None:
        self.script = script
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[dict[str, Any]] = []

    def heard(self, words: str) -> bool:
        """Tell whether an assistant said these words to its model."""
        return any(words in json.dumps(request, ensure_ascii=False) for request in self.requests)

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | Iterator[Event]:
        """Return the next turn of the conversation in a request, whole or as events."""
        speech = protocol_of(path)
        if speech is None:
            return COUNTED
        self.requests.append(body)
        asked = speech.read(body)
        steps = self._steps(asked.opening, asked.turns) if asked.tools else ASIDE
        return speech.events(asked, steps) if asked.stream else speech.whole(asked, steps)

    def _steps(self, opening: str, number: int) -> tuple[Step, ...]:
        turn = self.script.turn(opening, number)
        for step in turn:
            if isinstance(step, Do):
                step.act()
        return tuple(step for step in turn if not isinstance(step, Do))


class _Answering(BaseHTTPRequestHandler):
    """One request to the model that the server was given."""

    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Say nothing: what was asked is kept by the model."""

    def do_GET(self) -> None:
        """Answer what models there are, to whoever looks first."""
        self._document(KNOWN)

    def do_POST(self) -> None:
        """Answer with the next turn."""
        body = json.loads(self._body() or b"{}")
        answer = self.model.answer(self.path.partition("?")[0], body)
        if isinstance(answer, dict):
            self._document(answer)
        else:
            self._stream(answer)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            content = b"".join(iter(self._chunk, b""))
        else:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(content) if self.headers.get("content-encoding") == "gzip" else content

    def _chunk(self) -> bytes:
        content = self.rfile.read(int(self.rfile.readline().partition(b";")[0], 16))
        self.rfile.readline()
        return content

    def _document(self, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[Event]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            name = f"event: {event.name}\n" if event.name else ""
            data = event.data if isinstance(event.data, str) else json.dumps(event.data)
            self.wfile.write(f"{name}data: {data}\n\n".encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of assistants that hang up: they end before they have read everything."""


@contextmanager
def playing(script: Script) -> Iterator[Model]:
    """Give a model that plays a script, until it is no longer needed."""
    answering = type("Answering", (_Answering,), {})
    with _Server(("127.0.0.1", 0), answering) as server:
        answering.model = model = Model(script, server.server_port)  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
