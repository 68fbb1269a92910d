"""Running an assistant as a person would, but alone: with a home of its own, an empty environment, and no person.

It gets a place of three folders: its home, the project it works in, and one outside of both. Everything it starts is
ended with it. What it did is seen on the disk; what it says it did is only its word.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.agents.model import Model

__all__ = ["Place", "Ran", "run"]

PATIENCE_S: Final = 120.0


@dataclass(frozen=True)
class Place:
    """Where an assistant runs."""

    root: Path

    def __post_init__(self) -> None:
        for folder in (self.home, self.project, self.outside):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        """The home of whoever runs the assistant."""
        return self.root / "user"

    @property
    def project(self) -> Path:
        """The folder it works in."""
        return self.root / "project"

    @property
    def outside(self) -> Path:
        """A folder in which it has no business."""
        return self.root / "outside"

    def made(self) -> frozenset[str]:
        """Return the files in the project and outside of it, but for those of assistants themselves."""
        found = (path for folder in (self.project, self.outside) for path in folder.rglob("*") if path.is_file())
        names = (path.relative_to(self.root) for path in found)
        return frozenset(str(name) for name in names if not any(part.startswith(".") for part in name.parts))


@dataclass(frozen=True)
class Ran:
    """A run that is over: how it ended, what it printed, where it was, and the model that it asked."""

    code: int
    out: str
    err: str
    place: Place
    model: Model

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it printed, where that is one document a line."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    @property
    def made(self) -> frozenset[str]:
        """The files that are there now."""
        return self.place.made()


def run(program: Path, arguments: Sequence[str], place: Place, model: Model, **environment: str) -> Ran:
    """Run an assistant in the project to its end, and end all that it started."""
    found = shutil.which("node")
    search = [str(Path(found).parent)] if found else []
    whole = {
        "HOME": str(place.home),
        "PATH": os.pathsep.join([*search, "/usr/local/bin", "/usr/bin", "/bin"]),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        **environment,
    }
    with subprocess.Popen(
        [program, *arguments],
        cwd=place.project,
        env=whole,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            out, err = running.communicate(timeout=PATIENCE_S)
        finally:
            _end_all(running.pid)
    return Ran(running.returncode, out, err, place, model)


def _end_all(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
