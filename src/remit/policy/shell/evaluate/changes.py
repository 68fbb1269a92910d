"""Tracks the changes that a script makes to files, because they affect its later commands.

A file that the script writes may contain anything, so running it is not running project code. A name that it creates (a
link, a copy, a new name) may lead elsewhere. A directory that it removes cannot be entered.
"""

import re
from collections.abc import Sequence
from typing import Final

from remit.policy.call import Effect
from remit.policy.files import LimitedFiles, without_dots
from remit.policy.shell.evaluate.downloads import RUNS_DOWNLOAD, UNKNOWN_PLACE, Downloads
from remit.policy.trace import Trace

_UNKNOWN: Final = ""
_SEPARATORS: Final = re.compile("(?<=[^/])/")
# File types that programs which run project code load by themselves.
_SOURCES: Final = tuple(
    ".py .pyi .js .mjs .cjs .ts .mts .cts .jsx .tsx .sh .bash .rb .go .rs .c .cc .cpp .h .hpp .java .kt .kts .scala "
    ".php .pl .lua .mk .cmake .gradle .groovy .swift .ex .exs .hs .zig .dart .cs".split()
)


def _leads_through(path: str, name: str) -> bool:
    """Return whether a path, as written, passes through a name, even if it leads back with `..`."""
    return any(without_dots(path[: mark.start()]) == name for mark in _SEPARATORS.finditer(f"{path}/"))


class Changes:
    """The changes of a script to the file system, as far as they are known."""

    def __init__(self, files: LimitedFiles) -> None:
        self._files = files
        self.written: set[str] = set()
        # Written from scratch, not edited in place.
        self.created: set[str] = set()
        # Directories in which files with unknown names were written.
        self.filled: set[str] = set()
        # Paths that were removed or moved, with duplicates. A trailing slash means something unknown in the directory.
        self.removed: list[str] = []
        # Directories in which something unknown was removed.
        self.unsure: set[str] = set()
        # Paths that a program writes or deletes, and directories below which it does. A directory among them may be
        # gone, or no longer be accessible.
        self._reshaped: set[str] = set()
        self._reshaped_beneath: set[str] = set()
        # A program that may remove any directory has run.
        self.unsettled = False
        # Directories into which an archive was unpacked that the script itself has created.
        self.unpacked: set[str] = set()
        self._code: set[tuple[str, str]] = set()
        self._controls: set[tuple[str, str]] = set()
        self._runners: set[tuple[str, str]] = set()
        self.aliases = files.links
        self.downloads = Downloads(self.aliases)
        # Words that run something that was downloaded, with the program that downloaded it.
        self._downloaded_code: dict[str, tuple[str, bool]] = {}

    @property
    def version(self) -> tuple[int, ...]:
        """Return a value that changes whenever a change may affect commands that were evaluated before."""
        sets = (self.filled, self.unsure, self._reshaped, self._reshaped_beneath, self.unpacked)
        return (*map(len, (*sets, set(self.removed))), len(self.aliases), self._files.count_made(), self.unsettled)

    def write(self, path: str, *, from_scratch: bool) -> None:
        """Record a written file; `from_scratch` if it is written from scratch."""
        self.written.add(path)
        if from_scratch:
            self.created.add(path)

    def snapshot(self) -> tuple[set[str], set[str], set[str]]:
        """Return what was written so far, for `restore`."""
        return set(self.written), set(self.created), set(self.filled)

    def restore(self, before: tuple[set[str], set[str], set[str]]) -> None:
        """Forget later writes, because their content is as trustworthy as their source."""
        self.written, self.created, self.filled = before

    def is_tainted(self, path: str, depth: int = 0) -> bool:
        """Return whether the script has written a file, or something in a directory."""
        if path in self.written or any(written.startswith(path + "/") for written in self.written):
            return True
        if any(path == folder or path.startswith(folder + "/") for folder in self.filled):
            return True
        for name, target in self.aliases.items():
            if path == name or path.startswith(name + "/"):
                source = target + path[len(name) :]
                if target == _UNKNOWN or depth > len(self.aliases) or self.is_tainted(source, depth + 1):
                    return True
        return False

    def run(self, path: str, source: str) -> None:
        """Record a file that is run."""
        program = self.downloads.program_for(path)
        if program:
            self.run_download(source, program)
        else:
            self._code.add((path, source))

    def run_download(self, source: str, program: str, *, starts: bool = True) -> None:
        """Record that a word runs a download; not `starts` if another doubt already covers the start."""
        self._downloaded_code[source] = (program, starts)

    def steer(self, controls: tuple[str, ...], source: str) -> None:
        """Record the names of files that control what a program does."""
        self._controls.update((control, source) for control in controls)

    def build(self, cwd: str | None, source: str) -> None:
        """Record a program that runs the code in a directory."""
        self._runners.add((cwd or "/", source))

    def build_download(self, cwd: str | None, controls: tuple[str, ...], source: str) -> None:
        """Record a program that runs the code in a directory, if that or a file that controls it was downloaded."""
        place = cwd or UNKNOWN_PLACE
        downloaded = (self.downloads.program_for(f"{place}/{control}") for control in controls)
        program = self.downloads.program_for_folder(place) or next(filter(None, downloaded), "")
        if program:
            self.run_download(source, program)

    def alias(self, name: str, target: str | None) -> None:
        """Record that `name` leads to `target` from now on; None if the target is not known."""
        for other, leads_to in self.aliases.items():
            if _leads_through(leads_to, name):
                self._files.link(other, _UNKNOWN)
        self._files.link(name, target if target is not None else _UNKNOWN)

    def crosses(self, path: str, *, upwards: bool = True) -> bool:
        """Return whether a path passes through a name that the script creates; `upwards` if `..` must follow it."""
        kept: list[str] = []
        inside = False
        for name in path.split("/"):
            if name == "..":
                if inside:
                    return True
                del kept[-1:]
            elif name not in ("", "."):
                kept.append(name)
            here = "/" + "/".join(kept)
            inside = any(here == made or here.startswith(made + "/") for made in self.aliases)
        return inside and not upwards

    def may_be_gone(self, path: str, since: int = 0) -> bool:
        """Return whether a directory, or a parent, was removed or moved after the first `since` removals."""
        return any(path == gone or path.startswith(gone.rstrip("/") + "/") for gone in self.removed[since:])

    def reshape(self, effects: Sequence[Effect]) -> None:
        """Record the files that a program writes and deletes."""
        self._reshaped.update(effect.resource for effect in effects if not effect.beneath)
        self._reshaped_beneath.update(effect.resource for effect in effects if effect.beneath)

    def is_certain(self, path: str) -> bool:
        """Return whether a directory from before the script certainly still exists and can be entered."""
        above = [path[:at] or "/" for at, mark in enumerate(path) if mark == "/"]
        beneath = self._reshaped_beneath | self.unsure
        changed = path in self._reshaped or not self._reshaped.isdisjoint(above) or not beneath.isdisjoint(above)
        return not self.unsettled and not self.may_be_gone(path) and not changed

    def unpack(self, folder: str) -> None:
        """Record that a folder may contain anything from now on, including links."""
        self.filled.add(folder)
        self.unpacked.add(folder)
        self.alias(folder, None)

    def check(self, trace: Trace) -> None:
        """Record doubts about code that the script itself has downloaded or written."""
        for source, (program, starts) in self._downloaded_code.items():
            trace.doubt(source, RUNS_DOWNLOAD + program, unbounded=True, starts=starts)
        for path, source in self._code:
            if self.is_tainted(path):
                trace.doubt(source, "it runs a file that the same command writes", unbounded=True)
        for control, source in self._controls:
            if any(f"/{control}/" in f"{path}/" for path in self.written):
                trace.doubt(source, f"it is steered by {control}, which the same command writes", unbounded=True)
        for cwd, source in self._runners:
            inside = cwd.rstrip("/") + "/"
            written = any(path.startswith(inside) and path.endswith(_SOURCES) for path in self.created)
            if written or any(f"{folder}/".startswith(inside) for folder in self.unpacked):
                trace.doubt(source, "it runs code that the same command writes", unbounded=True)
