"""What a coding assistant waits for before it acts: `python -m bench.hooks`, or `make bench`.

A call of Claude Code waits for its hook, and the outcome for another. Each is measured as it is sent: over one kept
connection, or by a command that the shell starts anew; and beside it a hook that does nothing, in the same way. They
take turns call by call. What counts is the difference of the medians of one round: what Remit adds to a hook at all.
The exit code is 1 if one misses its limit.
"""

import argparse
import functools
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from bench.homes import Home, new_home, new_hub_home
from bench.results import Limit, Spread, machine, spread
from bench.servers import HELLO, HUB, WARM_UP, Target, launch
from bench.tables import limits_table, table
from bench.turns import sync_us
from remit.assistants.install.plan import HookConnection
from remit.assistants.records import SECRETS, Protection, Protections, hook_script_text
from remit.claims.mission import Mission
from remit.config import ensure_token
from remit.ledger.home import open_home
from remit.server.hook_tokens import hook_token, proof_key
from remit.version import __version__

__all__ = ["main"]

PROTECTION: Final = "prot-be0c0be0c0be"
PATH: Final = f"/v1/hooks/claude-code/{PROTECTION}"
SESSION: Final = "0e87c2f4-6a1f-4c55-9d0f-6f3c9a1b2c3d"
SECRET: Final = "0" * 64
SCRIPT: Final = "remit.assistants.hook_command"
# No opinion: the call is permitted, and the assistant goes on as it would.
PERMITTED: Final = b"{}"
DEADLINE_S: Final = 20.0
LIMIT_MS: Final = 5.0

DECISION: Final = "decision, by HTTP"
OUTCOME: Final = "outcome, by HTTP"
NOTHING: Final = "nothing, by HTTP"
DECISION_BY_COMMAND: Final = "decision, by a command"
NOTHING_BY_COMMAND: Final = "nothing, by a command"

Way: TypeAlias = Callable[[int], bytes]


class Held(NamedTuple):
    """A way beside one that does nothing, and by how much longer it may take."""

    way: str
    nothing: str
    limit: float
    decides: bool = True


HELD: Final = (
    Held(DECISION, NOTHING, LIMIT_MS),
    Held(OUTCOME, NOTHING, LIMIT_MS),
    # Most of it is the start of an interpreter, which is the machine's.
    Held(DECISION_BY_COMMAND, NOTHING_BY_COMMAND, 100.0, decides=False),
)


class Row(NamedTuple):
    """What one way took."""

    way: str
    p50_ms: Spread
    p99_ms: Spread


def payload(folder: Path, number: int, event: str, **members: object) -> dict[str, object]:
    """Return what Claude Code says of a call; each call has a number of its own."""
    return {
        "session_id": SESSION,
        "transcript_path": str(folder / "transcript.jsonl"),
        "cwd": str(folder),
        "permission_mode": "default",
        "hook_event_name": event,
        "tool_name": "Bash",
        "tool_input": {"command": "grep -rn TODO src | head -20", "description": "Look for what is left to do"},
        "tool_use_id": f"toolu_{number:024x}",
        **members,
    }


def asking(folder: Path, number: int) -> bytes:
    """Return what is said before a call."""
    return msgspec.json.encode(payload(folder, number, "PreToolUse"))


def telling(folder: Path, number: int) -> bytes:
    """Return what is said after a call."""
    response = {"stdout": "src/app.py:1:# TODO\n", "stderr": "", "interrupted": False, "isImage": False}
    return msgspec.json.encode(payload(folder, number, "PostToolUse", tool_response=response, duration_ms=3))


def protected_home(root: Path) -> tuple[Home, Path]:
    """Return a home of the Hub with one protection, and the folder that is protected."""
    home = new_hub_home(root)
    folder = root / "project"
    (folder / "src").mkdir(parents=True)
    with open_home(home.folder) as opened:
        hub_token = ensure_token(opened, "hub")
    token = hook_token(hub_token, PROTECTION)
    bodies = tuple(asking(folder, number).decode() for number in range(WARM_UP))
    keep(home, folder, "", token)
    headers = {"Authorization": f"Bearer {token}", "X-Remit-Session": SECRET}
    return home._replace(bodies=bodies, headers=headers), folder


def keep(home: Home, folder: Path, url: str, token: str) -> HookConnection:
    """Keep the protection with what its hooks need to reach a Hub, and return that."""
    mission = Mission(
        agent_id="claude-code",
        mission="Find what is left to do",
        allowed_tools=("Bash", "Read"),
        resource_scope=(f"{folder}/**",),
        max_tool_calls=10**9,
        max_duration_s=24 * 3600,
        cwd=str(folder),
    )
    protection = Protection(
        id=PROTECTION,
        assistant="claude-code",
        level="local",
        folder=str(folder),
        mode="ask",
        mission=msgspec.to_builtins(mission),
        profile="bench",
        profile_digest="",
        made_at="",
        hub_url=url,
        form="command",
        generation=1,
    )
    with open_home(home.folder) as opened:
        proof = proof_key(ensure_token(opened, "hub"), PROTECTION)
        address = {"url": url + PATH, "token": token, "proof": proof, "assistant": "claude-code"}
        protections = Protections(opened)
        with protections.locked():
            protections.put_script(hook_script_text().encode())
            protections.put(protection, {**address, "deadline_s": DEADLINE_S})
        path = protections.wire_path(PROTECTION)
        # Calls over HTTP and those by the command are of one session, so they show one secret.
        name = hashlib.sha256(f"{PATH}\n{SESSION}".encode()).hexdigest()
        secret = home.folder / "protections" / SECRETS / name
        secret.write_text(SECRET)
        secret.chmod(0o600)
    script = find_spec(SCRIPT)
    return HookConnection(
        protection=PROTECTION,
        assistant="claude-code",
        url=url + PATH,
        token=token,
        proof=proof,
        path=path,
        python=sys.executable,
        script=str(script.origin if script else ""),
    )


def posting(target: Target, body: Callable[[int], bytes]) -> Way:
    """Return a hook over one connection, which is kept."""
    connection = HTTPConnection(urlsplit(target.server.url).netloc)
    headers = {"Content-Type": "application/json", **target.headers}

    def way(number: int) -> bytes:
        connection.request("POST", target.path, body(number), headers)
        return connection.getresponse().read()

    return way


def starting(command: str, body: Callable[[int], bytes]) -> Way:
    """Return a hook by a command, which the shell starts for each call."""

    def way(number: int) -> bytes:
        done = subprocess.run(["/bin/sh", "-c", command], input=body(number), stdout=subprocess.PIPE, check=True)
        return done.stdout

    return way


def ways_of(stack: ExitStack, root: Path) -> Mapping[str, tuple[Way, bytes]]:
    """Return all ways, each with the answer that is expected of it."""
    home, folder = protected_home(root)
    hub = launch(stack, HUB._replace(path=PATH, expect="\r\n\r\n{}"), home)
    hello = launch(stack, HELLO.with_options("--insecure-http"), new_home(root))
    wire = keep(home, folder, hub.server.url, home.headers["Authorization"].removeprefix("Bearer "))
    before, after = functools.partial(asking, folder), functools.partial(telling, folder)
    return {
        DECISION: (posting(hub, before), PERMITTED),
        OUTCOME: (posting(hub, after), PERMITTED),
        NOTHING: (posting(hello, before), b'{"ok":true}'),
        # The same call would not be decided on again: these have numbers of their own.
        DECISION_BY_COMMAND: (starting(wire.command(), lambda number: before(number + 2**32)), PERMITTED),
        NOTHING_BY_COMMAND: (starting("true", before), b""),
    }


def take_turns(ways: Mapping[str, tuple[Way, bytes]], first: int, calls: int) -> dict[str, list[float]]:
    """Return the milliseconds of each way, after so many calls of each."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(first, first + calls):
        for name, (way, expected) in ways.items():
            begun = time.perf_counter()
            answer = way(number)
            took[name].append((time.perf_counter() - begun) * 1e3)
            if answer != expected:
                raise RuntimeError(f"{name}: {answer[:500]!r}")
    return took


def p99(values: Sequence[float]) -> float:
    """Return what all but one of a hundred stay below."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def rows_of(rounds: Sequence[Mapping[str, Sequence[float]]]) -> list[Row]:
    """Return the lines of the table."""
    return [
        Row(name, spread(statistics.median(each[name]) for each in rounds), spread(p99(each[name]) for each in rounds))
        for name in rounds[0]
    ]


def limits_of(rounds: Sequence[Mapping[str, Sequence[float]]]) -> list[Limit]:
    """Return by how much longer each way takes than one that does nothing."""
    return [
        Limit(
            name=f"{held.way}, beyond {held.nothing}, p50 in milliseconds",
            figure=spread(statistics.median(each[held.way]) - statistics.median(each[held.nothing]) for each in rounds),
            limit=held.limit,
            at_least=False,
            decides=held.decides,
        )
        for held in HELD
    ]


def main() -> int:
    """Measure, print the tables, and tell whether all limits are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=300, help="of each way in a round (300)")
    parser.add_argument("--quick", action="store_true", help="see that it works: the figures mean nothing")
    chosen = parser.parse_args()
    count, calls = (2, 10) if chosen.quick else (chosen.rounds, chosen.calls)
    rounds: list[dict[str, list[float]]] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        # Without links: paths of a protection are real ones.
        root = Path(folder).resolve()
        ways = ways_of(stack, root)
        sync = sync_us(root)
        for number in range(count):
            print(f"round {number + 1} of {count}", file=sys.stderr)
            rounds.append(take_turns(ways, WARM_UP + number * calls, calls))
    limits = limits_of(rounds)
    here = machine()
    print(f"{here.cores} cores, {here.architecture}, {here.system}; Remit {__version__}; one disk sync {sync:.0f} us\n")
    shown = ((row.way, row.p50_ms.show(2), row.p99_ms.show(2)) for row in rows_of(rounds))
    print(f"{table(('hook', 'p50 ms', 'p99 ms'), shown)}\n\n{limits_table(limits)}")
    return 0 if all(limit.met for limit in limits if limit.decides) else 1


if __name__ == "__main__":
    sys.exit(main())
