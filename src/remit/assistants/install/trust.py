"""Makes Codex trust the hooks of a protection. Codex silently skips hooks that the user has not reviewed.

The key and the hash of each hook are requested from Codex, because their computation is not documented. Invariant:
only hooks that contain the protection id are trusted, and only if all of them are present.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

from remit.claims.strictjson import parse_object
from remit.errors import FieldInvalid, InputError

_TIMEOUT_S: Final = 30
_MAX_LINE: Final = 4 * 1024 * 1024
_MAX_LINES: Final = 200
_REQUEST_ID: Final = 2
_PLACE: Final = "--program"


def list_hooks(program: str, folder: str) -> Sequence[Mapping[str, Any]]:
    """Return the hooks that Codex would run in a folder, as its app server lists them."""
    if not program:
        raise FieldInvalid("was not found; without Codex its hooks cannot be marked as trusted", place=_PLACE)
    messages = (
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "remit", "version": "1"}}},
        {"method": "initialized"},
        {"id": _REQUEST_ID, "method": "hooks/list", "params": {"cwds": [folder]}},
    )
    try:
        with _app_server(program) as (stdin, stdout):
            stdin.write("".join(json.dumps(message) + "\n" for message in messages).encode("utf-8"))
            stdin.flush()
            return _read_hooks(stdout)
    except (OSError, InputError, KeyError, TypeError, IndexError):
        raise FieldInvalid("does not list the hooks that it trusts: update Codex", place=_PLACE) from None


def trust_settings(hooks: Sequence[Mapping[str, Any]], protection: str, count: int) -> str:
    """Return the settings that make Codex trust the hooks of a protection. Empty if it trusts them already."""
    ours = [hook for hook in hooks if protection in str(hook.get("command", ""))]
    if len(ours) != count:
        raise FieldInvalid(
            "Codex does not see hooks there: start it in the folder once and trust the folder, or use --settings user",
            place="--settings",
        )
    lines = list[str]()
    for hook in ours:
        if hook.get("trustStatus") != "trusted":
            lines += [f"[hooks.state.{json.dumps(hook['key'])}]", f"trusted_hash = {json.dumps(hook['currentHash'])}"]
    return "\n".join(lines)


@contextmanager
def _app_server(program: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Run the Codex app server for the duration of the block. It is killed after a timeout."""
    # Not in the folder that is to be governed, so that its content cannot influence Codex.
    with subprocess.Popen(  # noqa: S603 - the program that the user starts
        [program, "app-server"], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        timer = threading.Timer(_TIMEOUT_S, server.kill)
        timer.start()
        try:
            if server.stdin is None or server.stdout is None:
                raise OSError("no pipes")
            yield server.stdin, server.stdout
        finally:
            timer.cancel()
            server.kill()


def _read_hooks(stdout: IO[bytes]) -> Sequence[Mapping[str, Any]]:
    """Return the hooks from the response, which may come after other messages."""
    for _ in range(_MAX_LINES):
        message: dict[str, Any] = dict(parse_object(stdout.readline(_MAX_LINE)))
        if message.get("id") == _REQUEST_ID:
            hooks: Sequence[Mapping[str, Any]] = message["result"]["data"][0]["hooks"]
            return hooks
    raise FieldInvalid("sent too many messages")
