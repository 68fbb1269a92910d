"""Copies of the home that the first release made, each in a folder of its own."""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["MADE_AT_MS", "PROJECT", "Kept", "first_release"]

_FIXTURE: Final = Path(__file__).parent / "first"
# The folder that passports in its ledger name, and when it was made.
PROJECT: Final = "/srv/first/project"
MADE_AT_MS: Final = 1_794_793_380_000
_PROTECTIONS: Final = {"claude-code": "prot-b56ac6db04d9", "gemini": "prot-1341f8a3f9c0"}


@dataclass(frozen=True)
class Kept:
    """A home, the project beside it, and what is known of the sessions."""

    home: Path
    project: Path
    known: dict[str, Any]

    def session(self, name: str) -> str:
        """Return the id of a session."""
        return str(self.known[name]["session_id"])

    def token(self, name: str) -> str:
        """Return the passport of a session."""
        return str(self.known[name]["token"])


def first_release(root: Path) -> Kept:
    """Copy the home to `root`, with the modes and the paths that it would have had there."""
    paths = {"@ROOT@": str(root), "@PYTHON@": sys.executable}
    names = {kept: _protection_id(assistant, root) for assistant, kept in _PROTECTIONS.items()}
    for source in sorted(_FIXTURE.rglob("*")):
        if source.is_file() and source.parent != _FIXTURE:
            target = _replaced(_real_name(source.relative_to(_FIXTURE)), names)
            _copy(source, root / target, paths | names)
    for folder in (root / "home", *(path for path in (root / "home").rglob("*") if path.is_dir())):
        folder.chmod(0o700)
    for record in (root / "home" / "protections").glob("prot-????????????.json"):
        _renew_digests(record)
    known = json.loads(_replaced((_FIXTURE / "known.json").read_text(encoding="utf-8"), names))
    return Kept(root / "home", root / "project", known)


def _protection_id(assistant: str, root: Path) -> str:
    """Return the id that the first release gave to a local protection of this assistant in the project."""
    place = json.dumps([assistant, "local", f"{root}/project", f"{root}/home"], separators=(",", ":"))
    return "prot-" + hashlib.sha256(place.encode()).hexdigest()[:12]


def _real_name(path: Path) -> str:
    """Return the name of a file: hidden folders and Python files are kept under other names in the repository."""
    return "/".join(part.replace("dot_", ".").removesuffix(".txt") for part in path.parts)


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _copy(source: Path, target: Path, values: Mapping[str, str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".db":
        shutil.copyfile(source, target)
    else:
        target.write_text(_replaced(source.read_text(encoding="utf-8"), values), encoding="utf-8")
    target.chmod(0o600)


def _renew_digests(record: Path) -> None:
    """Let a record know the files again that were written with other paths."""
    protection = json.loads(record.read_text(encoding="utf-8"))
    for written in protection["files"]:
        written["after"] = hashlib.sha256(Path(written["path"]).read_bytes()).hexdigest()
    record.write_text(json.dumps(protection, separators=(",", ":")), encoding="utf-8")
