"""An assistant under Remit: the real Hub, `remit protect` as a person types it, and the evidence that is left.

Everything is reached by commands and files, as its user has it. Chains are verified here again, under the public keys
of the home, before a test believes what is in them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from remit.claims.chain import walk_chain
from remit.claims.receipt import Receipt
from remit.policy.evidence import CALL_MEASUREMENT
from remit.wiring import build_service
from tests.agents.install import Assistant, program_of
from tests.agents.running import Place
from tests.hub.service import Hub, running

__all__ = ["PROFILE", "Governed", "governed", "home_of", "receipts", "remit", "verdicts"]

PATIENCE_S: Final = 60.0
# Everything that the scenario does, and nothing outside of the project.
PROFILE: Final = """
Mode: ask
Mission: Act in the project, and nowhere else.

## Limits

- At most 100 tool calls

## Allowed

- Read files
- Edit files
- Run developer commands
- Start subagents
- Use the tools of desk
"""


@dataclass(frozen=True)
class Governed:
    """A Hub that runs, and an assistant that it governs."""

    place: Place
    assistant: Assistant
    hub: Hub
    _running: ExitStack = field(repr=False)

    def stop(self) -> None:
        """End the Hub; once it is gone, that changes nothing."""
        self._running.close()

    def remit(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Return what a command of ours came to, run by the user of the assistant, in its project."""
        return remit(self.place, *words)

    def protect(self, *options: str, profile: str = PROFILE) -> dict[str, Any]:
        """Protect the assistant by a profile, and return what was said; it must succeed."""
        file = self.place.root / "REMIT.md"
        file.write_text(profile, encoding="utf-8")
        given = ("--profile", str(file), "--program", str(program_of(self.assistant)), "--yes", *options)
        return self.told("protect", self.assistant.name, *given)

    def hurry(self) -> None:
        """Let hooks wait for a second or so, so that a test of a Hub that hangs need not wait for longer either."""
        # A command gives up before it is given up, as it does in settings that nobody has changed.
        for file in (home_of(self.place) / "protections").glob("*.wire.json"):
            _rewrite(file, "deadline_s", 1)
        for file in (self.place.project / ".claude").glob("*.json"):
            _rewrite(file, "timeout", 3)

    def told(self, *words: str) -> dict[str, Any]:
        """Return what a command says to programs; it must succeed."""
        done = self.remit(*words, "--json")
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return dict(json.loads(done.stdout))


def _rewrite(file: Path, name: str, number: int) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(re.sub(rf'("{name}": ?)[0-9.]+', rf"\g<1>{number}", text), encoding="utf-8")


def remit(place: Place, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of ours as the user of a place."""
    environment = {"HOME": str(place.home), "REMIT_HOME": str(home_of(place)), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-m", "remit", *words],
        cwd=place.project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def home_of(place: Place) -> Path:
    """Return the home of Remit in a place."""
    return place.root / "remit"


@contextmanager
def governed(assistant: Assistant, place: Place) -> Iterator[Governed]:
    """Run a Hub, and give what governs an assistant once it is protected."""
    program_of(assistant)
    with ExitStack() as stack:
        hub = stack.enter_context(running(home_of(place)))
        yield Governed(place, assistant, hub, stack)


def receipts(place: Place) -> list[Receipt]:
    """Return the receipts of all sessions, once each chain verifies up to where its session says that it ends."""
    with closing(build_service(home_of(place))) as service:
        reader, keyring = service.reader, service.governor.context.keys.refresh()
        found: list[Receipt] = []
        for session in reader.sessions():
            chain = list(walk_chain([kept.token for kept in reader.receipts(session.id)], keyring))
            assert len(chain) == session.length
            found += [signed.claims for signed, _ in chain]
    return found


def verdicts(place: Place) -> dict[str, str]:
    """Return how each call was decided on, by the assistant's own ids of its calls."""
    told = ((receipt.measurements or {}).get(CALL_MEASUREMENT) for receipt in receipts(place))
    names = [str(measured.description).split(" ")[1] if measured else "" for measured in told]
    return {name: receipt.verdict for name, receipt in zip(names, receipts(place), strict=True) if name}
