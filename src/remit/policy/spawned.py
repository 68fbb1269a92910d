"""Collects the programs that a command line would start, while it is evaluated.

Every program is recorded, including those that another program starts. A program that is not known is recorded without
a name, so that an incomplete list cannot look complete. `scope.py` decides which programs are allowed.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from remit.policy.call import STOPPERS, SpawnedProgram
from remit.policy.field import Field
from remit.policy.files import LimitedFiles, join, without_dots

# PATH finds the programs in these folders by their bare names.
SYSTEM_FOLDERS: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
# Programs that only start another one, which is judged separately.
_CARRIERS: Final = frozenset((
    "ash", "bash", "dash", "sh", "caffeinate", "chronic", "env", "genv", "gtimeout", "gxargs", "ionice", "nice",
    "nohup", "setsid", "stdbuf", "timeout", "unbuffer", "xargs", "xvfb-run",
    "npx", "npm exec", "npm x", "bunx", "bun x", "uvx", "uv run", "pdm run", "poetry run", "hatch run", "bundle exec",
))  # fmt: skip
# Programs that start another one in the virtual environment of the project.
_PROJECT_RUNNERS: Final = frozenset((("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run")))
_NAMELESS: Final = SpawnedProgram()
_MAX_WORDS: Final = 16
# Longer than any entry of a passport.
_MAX_WORD: Final = 256
_MAX_PATH: Final = 4096

_Carriers: TypeAlias = tuple[tuple[str, ...], ...]


class _Started:
    """A started program, with what was found out while its words were judged."""

    __slots__ = ("carriers", "carries", "doubtful", "name", "outer", "rest", "runs", "subs", "targets")

    def __init__(self, name: str, rest: Sequence[Field], carriers: _Carriers, outer: "_Started | None") -> None:
        self.name = name
        self.rest = rest
        self.carriers = carriers
        self.outer = outer
        self.subs: tuple[str, ...] = ()
        self.runs: tuple[str, ...] = ()
        self.targets: tuple[str | None, ...] | None = None
        # Something about it is not known: an option may change what it runs.
        self.doubtful = False
        # The program that it starts was judged.
        self.carries = False

    def words(self) -> tuple[str, ...]:
        """Return the words up to the first unknown one; empty if the name is not known."""
        words = [self.name] if 0 < len(self.name) <= _MAX_WORD else []
        for field in self.rest[: _MAX_WORDS - 1] if words else ():
            if field.kind != "exact" or len(field.text) > _MAX_WORD:
                break
            words.append(field.text)
        return tuple(words)

    def launched(self) -> SpawnedProgram:
        words = self.words()
        if not words:
            return _NAMELESS
        plain = (self.name, *self.subs) if not self.doubtful else ()
        carrier = self.carries and " ".join(plain) in _CARRIERS
        targets = self.targets
        if targets is None:
            stops = self.name in STOPPERS
            targets = tuple(field.text if field.kind == "exact" else None for field in self.rest) if stops else ()
        return SpawnedProgram(words, len(words) <= len(self.rest), plain, self.carriers, carrier, self.runs, targets)

    def carriers_of(self, name: Field | None) -> _Carriers:
        """Return the words of all programs that start a program given by `name`, up to that name, outermost first."""
        words = self.words()
        before = next((at for at, field in enumerate(self.rest, 1) if name and field.source == name.source), None)
        return () if before is None or before > len(words) else (*self.carriers, words[:before])


_State: TypeAlias = tuple[_Started | None, _Carriers]


class SpawnedPrograms:
    """The started programs in order, and the one being judged.

    They are converted to `SpawnedProgram` on iteration only, because most passports name no programs.
    """

    def __init__(self) -> None:
        self._started: list[_Started | None] = []
        self._current: _Started | None = None
        self._carriers: _Carriers = ()

    def __iter__(self) -> Iterator[SpawnedProgram]:
        """Yield each program once."""
        return iter(dict.fromkeys(started.launched() if started else _NAMELESS for started in self._started))

    def restart(self) -> None:
        """Reset the current program, after a script that could not be parsed completely."""
        self._current, self._carriers = None, ()

    def doubt(self) -> None:
        """Record an unknown: in the program being judged, or else a program without a name."""
        if self._current is None:
            self._started.append(None)
        else:
            self._current.doubtful = True

    def start(self, name: str, rest: Sequence[Field], cwd: str | None, files: LimitedFiles) -> None:
        """Record a program and make it the current one."""
        named = name if "/" not in name else _locate(name, cwd, files)
        self._current = _Started(named, rest, self._carriers, self._current)
        self._started.append(self._current)

    def end(self) -> None:
        """Return to the program before the current one."""
        self._current = self._current and self._current.outer

    def subcommand(self, word: str) -> None:
        """Record a subcommand of the current program."""
        if self._current is not None:
            self._current.subs += (word,)

    def subcommands(self) -> tuple[str, ...]:
        """Return the subcommands of the current program."""
        return self._current.subs if self._current is not None else ()

    def runs(self, text: str) -> None:
        """Record a file, module or package that the current program is told to run."""
        if self._current is not None:
            self._current.runs += (text[:_MAX_PATH],)

    def enter(self, name: Field | None = None) -> _State:
        """Enter the program or script that the current program starts; return the state for `leave`."""
        state = (self._current, self._carriers)
        if self._current is not None:
            self._current.carries = True
            self._carriers = self._current.carriers_of(name)
            self._current = None
        return state

    def leave(self, state: _State) -> None:
        """Return to the program that `enter` left."""
        self._current, self._carriers = state

    def builtin(self, name: str, fields: Sequence[Field], targets: tuple[str | None, ...] | None = None) -> None:
        """Record a builtin that has effects of its own; `targets` as in `SpawnedProgram`."""
        started = _Started(name, fields, self._carriers, None)
        started.targets = targets
        self._started.append(started)

    def environment(self) -> str | None:
        """Return the virtual environment that the current program runs in.

        That is its folder if the program is started by a path (`/srv/app/.venv` for `.venv/bin/pip`), an empty string
        if a runner such as `uv run` starts it in the project's environment, and None otherwise.
        """
        current = self._current
        if current is None:
            return None
        if current.name.startswith("/"):
            return current.name.rpartition("/")[0].rpartition("/")[0] or "/"
        carried = any(words[:2] in _PROJECT_RUNNERS for words in current.carriers)
        return "" if carried else None

    def sources(self, ending: str) -> bool:
        """Return whether the script sources a file with this suffix."""
        return any(
            started is not None and started.name == "source" and field.kind == "exact" and field.text.endswith(ending)
            for started in self._started
            for field in (started.rest[:1] if started is not None else ())
        )


def _locate(text: str, cwd: str | None, files: LimitedFiles) -> str:
    """Return the name of a program that PATH finds, the absolute path of any other, or "" if it is not known."""
    folder, _, base = text.rpartition("/")
    if f"{folder}/" in SYSTEM_FOLDERS:
        return base
    if cwd is None and not text.startswith("/"):
        return ""
    path = join(cwd or "/", text)
    # After a symbolic link, `..` leads elsewhere than the text suggests.
    return files.resolve(path).path if ".." in text else without_dots(path)
