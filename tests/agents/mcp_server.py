"""A server of tools for assistants, over its standard streams: `python mcp_server.py` keeps notes in files.

It speaks as much of the Model Context Protocol as an assistant needs to find one tool and call it, and needs nothing
but Python, because an assistant starts it wherever it happens to be.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOTE = {
    "name": "note",
    "description": "Keeps a note in a file.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path", "text"],
    },
}


def keep(params: dict[str, Any]) -> dict[str, Any]:
    """Keep a note, and say so."""
    asked = params["arguments"]
    Path(asked["path"]).write_text(asked["text"], encoding="utf-8")
    return {"content": [{"type": "text", "text": "kept"}]}


def introduce(params: dict[str, Any]) -> dict[str, Any]:
    """Agree on whatever version of the protocol the other side speaks."""
    told = {"name": "desk", "version": "1"}
    return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": told}


ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": introduce,
    "tools/list": lambda _: {"tools": [NOTE]},
    "tools/call": keep,
    "ping": lambda _: {},
}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    known = ANSWERS.get(asked["method"])
    if known is None:
        return {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no such method"}}
    return {"jsonrpc": "2.0", "id": asked["id"], "result": known(asked.get("params") or {})}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            sys.stdout.write(json.dumps(answer(request)) + "\n")
            sys.stdout.flush()
