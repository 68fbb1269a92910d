"""A call that nobody makes, sent through a hook just as the assistant would: it must come back refused, with a receipt.

The canary asks for something in Remit's own home, which no passport permits. Keeps this invariant: a token goes only
where the protection says that the Hub is; and a command is run only if it is the one that was written.
"""

import http.client
import json
import re
import secrets
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from remit.assistants.doctor.settings import Hook
from remit.assistants.events import HookAdapter

__all__ = ["CALLING_EVENTS", "CANARY_TOOL", "Answer", "Canary", "Sent", "answer_of", "new_canary", "send"]

CANARY_TOOL: Final = "remit_canary"
# refused: in the assistant's own words, and with a receipt; blocked: without an answer, so that nothing runs.
Answer: TypeAlias = Literal["refused", "let through", "blocked", "unanswered"]
_PATIENCE_S: Final = 30.0
_MAX_ANSWER: Final = 1024 * 1024
_OK: Final = 200
_BLOCKED: Final = 2
_RECEIPT: Final = re.compile(r"rcpt:[0-9a-f]{32}")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class Canary(NamedTuple):
    """A call that nobody makes: its name, and the payload of the hook that asks for it."""

    name: str
    event: str
    payload: bytes


class Sent(NamedTuple):
    """What came back: how it is to be taken, and the id of the receipt that it names."""

    answer: Answer
    receipt_id: str = ""
    why: str = ""


def _as_claude_code(name: str, folder: str, target: str) -> dict[str, Any]:
    return {
        "session_id": name,
        "transcript_path": "",
        "cwd": folder,
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": CANARY_TOOL,
        "tool_input": {"path": target},
        "tool_use_id": name,
    }


def _as_gemini(name: str, folder: str, target: str) -> dict[str, Any]:
    told = _as_claude_code(name, folder, target)
    del told["tool_use_id"], told["permission_mode"]
    return told | {"hook_event_name": "BeforeTool"}


def _as_copilot(name: str, folder: str, target: str) -> dict[str, Any]:
    return {"sessionId": name, "timestamp": 0, "cwd": folder, "toolName": CANARY_TOOL, "toolArgs": {"path": target}}


def _as_opencode(name: str, folder: str, target: str) -> dict[str, Any]:
    told = {"event": "tool.execute.before", "session": name, "lead": name, "directory": folder}
    return {**told, "tool": CANARY_TOOL, "arguments": {"path": target}, "call": name}


_PAYLOADS: Final[Mapping[str, Callable[[str, str, str], dict[str, Any]]]] = {
    "claude-code": _as_claude_code,
    "codex": _as_claude_code,
    "gemini": _as_gemini,
    "copilot": _as_copilot,
    "opencode": _as_opencode,
}
# What each assistant calls the event in which a call can still be stopped.
CALLING_EVENTS: Final[Mapping[str, str]] = {
    "claude-code": "PreToolUse",
    "codex": "PreToolUse",
    "gemini": "BeforeTool",
    "copilot": "preToolUse",
    "opencode": "tool.execute.before",
}


def new_canary(assistant: str, folder: str, target: str) -> Canary:
    """Return a call of a name that nobody has used, for something that nobody may touch."""
    name = f"remit-canary-{secrets.token_hex(8)}"
    payload = json.dumps(_PAYLOADS[assistant](name, folder, target)).encode()
    return Canary(name, CALLING_EVENTS[assistant], payload)


def send(hook: Hook, canary: Canary, adapter: HookAdapter, variables: Callable[[str], str], folder: str) -> Sent:
    """Return what comes back from a hook; `variables` are those of the environment that its headers may name."""
    url, command = hook.says.get("url"), hook.says.get("command") or hook.says.get("bash")
    if isinstance(url, str):
        return _posted(url, _headers(hook, variables), canary, adapter)
    if isinstance(command, str):
        return _run(command, canary, adapter, folder)
    return Sent("unanswered", why="the hook says neither an address nor a command")


def _headers(hook: Hook, variables: Callable[[str], str]) -> dict[str, str]:
    """Return the headers of a hook; only variables that it lists are filled in, all others are empty."""
    listed, given = hook.says.get("allowedEnvVars"), hook.says.get("headers")
    names = listed if isinstance(listed, list) else []
    headers = given if isinstance(given, dict) else {}

    def value(found: re.Match[str]) -> str:
        return variables(found[1]) if found[1] in names else ""

    return {str(name): _VARIABLE.sub(value, str(text)) for name, text in headers.items()}


def _posted(url: str, headers: Mapping[str, str], canary: Canary, adapter: HookAdapter) -> Sent:
    where = urlsplit(url)
    if where.scheme != "http" or where.hostname not in ("127.0.0.1", "localhost", "::1"):
        return Sent("unanswered", why="the hook names an address that is not on this machine")
    try:
        peer = http.client.HTTPConnection(where.hostname, where.port, timeout=_PATIENCE_S)
        try:
            peer.request("POST", where.path, canary.payload, {"Content-Type": "application/json", **headers})
            answer = peer.getresponse()
            body = answer.read(_MAX_ANSWER)
        finally:
            peer.close()
    except (OSError, http.client.HTTPException, ValueError):
        return Sent("unanswered", why="nothing answers at the address of the hook")
    if answer.status != _OK:
        return Sent("unanswered", why=f"status {answer.status}, which is no decision")
    return answer_of(body, canary, adapter)


def _run(command: str, canary: Canary, adapter: HookAdapter, folder: str) -> Sent:
    try:
        done = subprocess.run(  # noqa: S603 - the command that we wrote, as the assistant runs it
            ["/bin/sh", "-c", command],
            input=canary.payload,
            capture_output=True,
            timeout=_PATIENCE_S,
            cwd=folder,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return Sent("unanswered", why="the command of the hook cannot be run, or does not end")
    if done.returncode == _BLOCKED:
        return Sent("blocked", why=_said(done.stderr))
    if done.returncode:
        return Sent("unanswered", why=f"the command of the hook ended with {done.returncode}")
    return answer_of(done.stdout[:_MAX_ANSWER], canary, adapter)


def _said(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()[:300]


def answer_of(body: bytes, canary: Canary, adapter: HookAdapter) -> Sent:
    """Return how an answer is to be taken: it is a refusal only if it is just what the adapter says for one."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return Sent("unanswered", why="the answer is not JSON")
    for reason in _texts(told):
        if told == adapter.deny_response(canary.event, reason):
            found = _RECEIPT.search(reason)
            if found is None:
                return Sent("blocked", why=reason[:300])
            return Sent("refused", found[0])
    return Sent("let through", why="the answer refuses nothing")


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    return []
