"""A file tree below a temporary folder that looks as if it started at the root."""

import json
from pathlib import Path
from typing import Any

from remit.policy.files import LocalFiles, ResolvedPath, Survey

__all__ = ["FIXTURE", "VECTORS", "Tree", "rows"]

VECTORS = Path(__file__).parent.parent.parent / "vectors"
FIXTURE: dict[str, Any] = json.loads((VECTORS / "calls.fixture.json").read_text(encoding="utf-8"))
# These are the machine's own: links of /proc are what they are.
OWN = ("/proc", "/dev")


def rows() -> list[dict[str, Any]]:
    """The corpus of calls, one row per call."""
    return [json.loads(line) for line in (VECTORS / "calls.jsonl").read_text(encoding="utf-8").splitlines()]


class Tree(LocalFiles):
    """The fixture's files under `root`; every path that is asked about starts there."""

    def __init__(self, root: Path, *, dashes: bool = True) -> None:
        super().__init__(home=FIXTURE["home"])
        self.root = str(root)
        for name, text in FIXTURE["files"].items():
            if dashes or "/-" not in name:
                self.write(name, text)
        for folder in FIXTURE["git_init"]:
            (root / folder.strip("/") / ".git").mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        path = Path(self.root + name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def arrange(self, setup: list[dict[str, str]]) -> None:
        """Make the links of a row; absolute targets lie in the tree too."""
        for step in setup:
            path, target = Path(self.root + step["path"]), step["target"]
            path.parent.mkdir(parents=True, exist_ok=True)
            placed = self.root + target if target.startswith("/") and not target.startswith(OWN) else target
            if step["op"] == "hardlink":
                path.hardlink_to(placed)
            else:
                path.symlink_to(placed)

    def resolve(self, path: str) -> ResolvedPath:
        if path.startswith(OWN):
            return super().resolve(path)
        found = super().resolve(self.root + path)
        inside = found.path == self.root or found.path.startswith(self.root + "/")
        return found._replace(path=found.path[len(self.root) :] or "/") if inside else found

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        return super().expand(self.root + directory, pattern)

    def survey(self, directory: str) -> Survey | None:
        found = super().survey(self.root + directory)
        return found and found._replace(links=tuple(link[len(self.root) :] for link in found.links))
