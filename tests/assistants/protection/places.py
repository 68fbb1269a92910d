"""A home, a folder of a project and a plan for it, as tests of protections need them."""

from pathlib import Path
from typing import Any, NamedTuple

from remit.assistants.claude_code.settings import ClaudeCodePlanner
from remit.assistants.install.install import UndoneFile, install, uninstall
from remit.assistants.install.plan import (
    Entry,
    FileChange,
    HookConnection,
    InstallTarget,
    JsonEdit,
    Plan,
)
from remit.assistants.records import Level, Protection, Protections
from remit.ledger.home import open_home

__all__ = ["ID", "NEW", "OLD", "Scene", "added", "entry", "plan_of", "protection", "wire"]

ID = "prot-0123456789ab"
NEW, OLD = "2.1.325", "2.1.197"
_MISSION = {"agent_id": "claude-code", "mission": "Help"}


def wire(name: str = ID) -> HookConnection:
    """Return a wire to a Hub that is not there."""
    return HookConnection(
        protection=name,
        assistant="claude-code",
        url=f"http://127.0.0.1:8765/v1/hooks/claude-code/{name}",
        token="secret-of-hooks",
        proof="secret-of-the-hub",
        path=f"/home/of remit/protections/{name}.wire.json",
        python="/usr/bin/python3",
        script="/home/of remit/protections/hook.py",
    )


def protection(name: str = ID, **members: Any) -> Protection:
    """Return a protection without files."""
    known: dict[str, Any] = {
        "id": name,
        "assistant": "claude-code",
        "level": "local",
        "folder": "/project",
        "mode": "ask",
        "mission": _MISSION,
        "profile": "REMIT.md",
        "profile_digest": "0" * 64,
        "made_at": "2026-01-01T00:00:00Z",
        "hub_url": "http://127.0.0.1:8765",
        "form": "command",
        "generation": 1,
    }
    return Protection(**known | members)


def plan_of(*changes: FileChange, **members: Any) -> Plan:
    """Return a plan of nothing but changes."""
    return Plan("command", changes, (), (), (), **members)


class Scene(NamedTuple):
    """A project with its protections."""

    folder: Path
    protections: Protections

    @classmethod
    def at(cls, tmp_path: Path) -> "Scene":
        """Make one."""
        (tmp_path / "project").mkdir()
        return cls(tmp_path / "project", Protections(open_home(tmp_path / "home")))

    @property
    def settings(self) -> Path:
        """The settings file that protecting writes to."""
        return self.folder / ".claude" / "settings.local.json"

    def place(self, level: Level = "local", version: str = NEW) -> InstallTarget:
        """Return the place that is this project."""
        return InstallTarget(level, str(self.folder), str(self.folder.parent / "user"), version=version)

    def protect(
        self, name: str = ID, *, level: Level = "local", plan: Plan | None = None, adopted: bool = False
    ) -> Protection:
        """Carry out a plan: that of Claude Code, if no other is given."""
        made = plan or ClaudeCodePlanner().plan(self.place(level), wire(name))
        with self.protections.locked():
            kept = protection(name, level=level)
            return install(self.protections, kept, made, wire(name).content(), adopted=adopted)

    def undo(self, name: str = ID) -> list[UndoneFile]:
        """Undo what was carried out."""
        kept = self.protections.get(name)
        assert kept is not None
        with self.protections.locked():
            return uninstall(self.protections, kept)

    def write(self, data: bytes) -> None:
        """Put settings there."""
        self.settings.parent.mkdir(exist_ok=True)
        self.settings.write_bytes(data)


def entry(name: str = ID, where: tuple[str, ...] = ("hooks", "PreToolUse")) -> Entry:
    """Return a small entry of a protection."""
    return Entry(where, {"hooks": [{"type": "command", "command": f"/{name}"}]})


def added(path: Path, *entries: Entry) -> JsonEdit:
    """Return the change that adds entries."""
    return JsonEdit(str(path), entries)
