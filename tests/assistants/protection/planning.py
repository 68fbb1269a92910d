"""A place for a planner to plan for, and what its plan writes, as tests of plans look at it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from remit.assistants.install.plan import (
    HookConnection,
    InstallTarget,
    JsonEdit,
    OwnFile,
    Plan,
    Planner,
    TomlBlock,
)
from remit.assistants.records import Level
from tests.assistants.protection.places import wire

__all__ = ["Drawing"]


class Drawing(NamedTuple):
    """Where plans are made."""

    root: Path
    planner: Planner

    @property
    def wire(self) -> HookConnection:
        """The wire of the assistant."""
        return replace(wire(), assistant=self.planner.name)

    def place(self, level: Level, **members: Any) -> InstallTarget:
        """Return the place at a level: the project, or wherever the assistant is started."""
        folder = str(self.root / "project") if level == "local" else None
        place = InstallTarget(level, folder, str(self.root / "user"), managed=str(self.root / "machine"))
        return place._replace(**members)

    def plan(self, level: Level, **members: Any) -> Plan:
        """Return the plan for a level."""
        return self.planner.plan(self.place(level, **members), self.wire)

    def write(self, name: str, text: str) -> None:
        """Put a file there beforehand."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def written(self, plan: Plan) -> dict[str, str]:
        """Return the text that each change writes, by its path below the root."""
        return {str(Path(change.path).relative_to(self.root)): _text(change) for change in plan.changes}

    def guarded(self, plan: Plan) -> set[str]:
        """Return what is guarded, by its path below the root."""
        return {guard.removeprefix(f"{self.root}/") for guard in plan.guards}


def _text(change: JsonEdit | TomlBlock | OwnFile) -> str:
    if isinstance(change, JsonEdit):
        return json.dumps({entry.where[-1]: entry.value for entry in change.entries})
    return change.text
