"""Sends a canary through an installed hook: a test call that must be denied, with a receipt.

The canary asks for a path in Remit's home, which no passport permits. Invariants: a token is sent only to the Hub that
the protection names, and a command is run only if Remit wrote it.
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

CANARY_TOOL: Final = "remit_canary"
# refused: denied in the assistant's format, with a receipt. blocked: denied without a receipt, as after a failure.
CanaryAnswer: TypeAlias = Literal["refused", "let through", "blocked", "unanswered"]
_TIMEOUT_S: Final = 30.0
_MAX_ANSWER: Final = 1024 * 1024
_OK: Final = 200
_BLOCKED: Final = 2
_RECEIPT: Final = re.compile(r"rcpt:[0-9a-f]{32}")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class Canary(NamedTuple):
    """A test call: its id, the name of its hook event, and the payload."""

    name: str
    event: str
    payload: bytes


class CanaryResult(NamedTuple):
    """The response to a canary, and the id of the receipt that it names."""

    answer: CanaryAnswer
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
    payload = _as_claude_code(name, folder, target)
    del payload["tool_use_id"], payload["permission_mode"]
    return payload | {"hook_event_name": "BeforeTool"}


def _as_copilot(name: str, folder: str, target: str) -> dict[str, Any]:
    return {"sessionId": name, "timestamp": 0, "cwd": folder, "toolName": CANARY_TOOL, "toolArgs": {"path": target}}


def _as_opencode(name: str, folder: str, target: str) -> dict[str, Any]:
    payload = {"event": "tool.execute.before", "session": name, "lead": name, "directory": folder}
    return {**payload, "tool": CANARY_TOOL, "arguments": {"path": target}, "call": name}


_PAYLOADS: Final[Mapping[str, Callable[[str, str, str], dict[str, Any]]]] = {
    "claude-code": _as_claude_code,
    "codex": _as_claude_code,
    "gemini": _as_gemini,
    "copilot": _as_copilot,
    "opencode": _as_opencode,
}
# The name of the hook event before a call, for each assistant.
BEFORE_CALL_EVENTS: Final[Mapping[str, str]] = {
    "claude-code": "PreToolUse",
    "codex": "PreToolUse",
    "gemini": "BeforeTool",
    "copilot": "preToolUse",
    "opencode": "tool.execute.before",
}


def new_canary(assistant: str, folder: str, target: str) -> Canary:
    """Create a canary with a random id, which asks for the path `target`."""
    name = f"remit-canary-{secrets.token_hex(8)}"
    payload = json.dumps(_PAYLOADS[assistant](name, folder, target)).encode()
    return Canary(name, BEFORE_CALL_EVENTS[assistant], payload)


def send_canary(
    hook: Hook, canary: Canary, adapter: HookAdapter, variables: Callable[[str], str], folder: str
) -> CanaryResult:
    """Send a canary through a hook. `variables` looks up environment variables, which the headers of a hook may use."""
    url, command = hook.says.get("url"), hook.says.get("command") or hook.says.get("bash")
    if isinstance(url, str):
        return _post(url, _headers(hook, variables), canary, adapter)
    if isinstance(command, str):
        return _run(command, canary, adapter, folder)
    return CanaryResult("unanswered", why="the hook has neither a URL nor a command")


def _headers(hook: Hook, variables: Callable[[str], str]) -> dict[str, str]:
    """Return the headers of a hook. Variables that it does not list in `allowedEnvVars` are replaced by nothing."""
    listed, headers_value = hook.says.get("allowedEnvVars"), hook.says.get("headers")
    names = listed if isinstance(listed, list) else []
    headers = headers_value if isinstance(headers_value, dict) else {}

    def value(found: re.Match[str]) -> str:
        return variables(found[1]) if found[1] in names else ""

    return {str(name): _VARIABLE.sub(value, str(text)) for name, text in headers.items()}


def _post(url: str, headers: Mapping[str, str], canary: Canary, adapter: HookAdapter) -> CanaryResult:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return CanaryResult("unanswered", why="the URL of the hook is not on this machine")
    try:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", parts.path, canary.payload, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            body = response.read(_MAX_ANSWER)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        return CanaryResult("unanswered", why="nothing answers at the URL of the hook")
    if response.status != _OK:
        return CanaryResult("unanswered", why=f"status {response.status}, which is no decision")
    return classify_answer(body, canary, adapter)


def _run(command: str, canary: Canary, adapter: HookAdapter, folder: str) -> CanaryResult:
    try:
        done = subprocess.run(  # noqa: S603 - a command that Remit wrote, run as the assistant does
            ["/bin/sh", "-c", command],
            input=canary.payload,
            capture_output=True,
            timeout=_TIMEOUT_S,
            cwd=folder,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return CanaryResult("unanswered", why="the command of the hook cannot be run, or does not end")
    if done.returncode == _BLOCKED:
        return CanaryResult("blocked", why=_decode_error(done.stderr))
    if done.returncode:
        return CanaryResult("unanswered", why=f"the command of the hook ended with {done.returncode}")
    return classify_answer(done.stdout[:_MAX_ANSWER], canary, adapter)


def _decode_error(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()[:300]


def classify_answer(body: bytes, canary: Canary, adapter: HookAdapter) -> CanaryResult:
    """Classify a response. It is a denial only if it is exactly what the adapter builds for one."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return CanaryResult("unanswered", why="the answer is not JSON")
    for reason in _texts(value):
        if value == adapter.deny_response(canary.event, reason):
            found = _RECEIPT.search(reason)
            if found is None:
                return CanaryResult("blocked", why=reason[:300])
            return CanaryResult("refused", found[0])
    return CanaryResult("let through", why="the answer refuses nothing")


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    return []
