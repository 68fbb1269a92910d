"""The plugin of opencode, loaded by a JavaScript engine, before a Hub that answers as a test says."""

import hmac
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from remit.assistants.opencode.settings import plugin_text
from tests.assistants.protection.places import wire

__all__ = ["ANSWERS", "TOKEN", "drive", "hub_that", "install"]

TOKEN: Final = "secret-of-hooks"
PROOF: Final = "secret-of-the-hub"
DRIVER: Final = Path(__file__).with_name("plugin_driver.mjs")
Answer = Callable[[BaseHTTPRequestHandler], None]


def _says(status: int, body: bytes, *, mark: str = "", length: int | None = None, of: bytes | None = None) -> Answer:
    """Return how an answer is given, with the proof of the Hub for this request, or for the one that is named."""

    def answer(asked: BaseHTTPRequestHandler) -> None:
        asked.send_response(status)
        request = asked.headers["x-digest-of-the-request"] if of is None else sha256(of).hexdigest()
        proved = f"{asked.headers['x-remit-nonce']}\n{request}\n".encode() + body
        proof = hmac.digest(PROOF.encode(), proved, "sha256").hex()
        asked.send_header("x-remit-hook", mark or proof)
        asked.send_header("location", "/elsewhere")
        asked.send_header("content-length", str(len(body) if length is None else length))
        asked.send_header("connection", "close")
        asked.end_headers()
        asked.wfile.write(body)

    return answer


PERMIT: Final = b'{"decision": "permit", "told": "be careful"}'
ANSWERS: Final[Mapping[str, Answer]] = {
    "permit": _says(200, PERMIT),
    "the answer to another event": _says(200, PERMIT, of=b'{"event": "session.idle"}'),
    "deny": _says(200, b'{"decision": "deny", "reason": "policy says no"}'),
    "an empty object": _says(200, b"{}"),
    "no object": _says(200, b"null"),
    "no json": _says(200, b"permit"),
    "nothing": _says(200, b""),
    "no mark of the hub": _says(200, PERMIT, mark="1"),
    "an error": _says(500, PERMIT),
    "a redirection": _says(302, PERMIT),
    "less than it promised": _says(200, PERMIT, length=len(PERMIT) + 1),
    "too much": _says(200, PERMIT + b" " * 2_000_000),
}


@contextmanager
def hub_that(answer: Answer) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Serve one answer for everything; give the port, and what was said with the token."""
    heard: list[dict[str, Any]] = []

    class Desk(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            said = json.loads(data)
            self.headers["x-digest-of-the-request"] = sha256(data).hexdigest()
            if self.headers["authorization"] == f"Bearer {TOKEN}":
                heard.append(said)
            answer(self)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            del code, size

    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port, heard
        finally:
            server.shutdown()


def install(folder: Path, port: int, **wired: object) -> Path:
    """Write the plugin and its wire file into a folder, and return the plugin."""
    home = folder / "it's"
    home.mkdir()
    moved = replace(wire(), path=str(home / "wire.json"))
    (home / "sessions").mkdir()
    said = {"url": f"http://127.0.0.1:{port}/v1/hooks/opencode/x", "token": TOKEN, "proof": PROOF, "deadline_s": 10}
    said |= wired
    Path(moved.path).write_text(json.dumps(said), encoding="utf-8")
    plugin = folder / "plugin.mjs"
    plugin.write_text(plugin_text(moved), encoding="utf-8")
    return plugin


def drive(plugin: Path, command: str = "echo hi", *, program: str = "", **environment: str) -> dict[str, Any]:
    """Return what came of a call, by an engine that is given or by the one that is installed."""
    engine = program or shutil.which("node")
    if engine is None:
        pytest.skip("no JavaScript engine")
    done = subprocess.run(
        [engine, str(DRIVER), str(plugin), command],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert TOKEN not in done.stdout + done.stderr
    return dict(json.loads(done.stdout))
