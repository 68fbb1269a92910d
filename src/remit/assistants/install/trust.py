"""Which hooks Codex trusts: it runs none that nobody has reviewed, and says nothing about it.

Codex itself is asked for the name and the digest of each hook, because both are its own affair. Keeps this invariant:
nothing is trusted but hooks that name the protection, and all of them are there.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

from remit.claims.strictjson import parse_object
from remit.errors import FieldInvalid, InputError

__all__ = ["ask_hooks", "trusting"]

_PATIENCE_S: Final = 30
_MAX_LINE: Final = 4 * 1024 * 1024
_MAX_LINES: Final = 200
_ASKED: Final = 2
_PLACE: Final = "--program"


def ask_hooks(program: str, folder: str) -> Sequence[Mapping[str, Any]]:
    """Return what Codex says of the hooks that it would run in a folder."""
    if not program:
        raise FieldInvalid("was not found, and only Codex itself can tell how its hooks are trusted", place=_PLACE)
    messages = (
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "remit", "version": "1"}}},
        {"method": "initialized"},
        {"id": _ASKED, "method": "hooks/list", "params": {"cwds": [folder]}},
    )
    try:
        with _served(program) as (said, heard):
            said.write("".join(json.dumps(message) + "\n" for message in messages).encode("utf-8"))
            said.flush()
            return _hooks_in(heard)
    except (OSError, InputError, KeyError, TypeError, IndexError):
        raise FieldInvalid("does not tell which hooks it trusts: update Codex", place=_PLACE) from None


def trusting(hooks: Sequence[Mapping[str, Any]], protection: str, count: int) -> str:
    """Return the lines of Codex's settings that make it trust the hooks of a protection; none if it does already."""
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
def _served(program: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Run Codex as a server for as long as the block is, and no longer than our patience."""
    # Not in the folder that is to be governed: nothing that lies there has a say in this.
    with subprocess.Popen(  # noqa: S603 - what the user starts as well
        [program, "app-server"], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        over = threading.Timer(_PATIENCE_S, server.kill)
        over.start()
        try:
            if server.stdin is None or server.stdout is None:
                raise OSError("no pipes")
            yield server.stdin, server.stdout
        finally:
            over.cancel()
            server.kill()


def _hooks_in(heard: IO[bytes]) -> Sequence[Mapping[str, Any]]:
    """Return the hooks from the answer among everything that the server says."""
    for _ in range(_MAX_LINES):
        message: dict[str, Any] = dict(parse_object(heard.readline(_MAX_LINE)))
        if message.get("id") == _ASKED:
            hooks: Sequence[Mapping[str, Any]] = message["result"]["data"][0]["hooks"]
            return hooks
    raise FieldInvalid("has said too much")
