"""The programs that a command line would start, noted while it is followed.

Every program is noted, also one that another starts. What cannot be told is noted too, as a program without a name: a
list of programs must never read as complete when it is not. Which of them are allowed is for `scope.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from remit.policy.call import STOPPERS, Launched
from remit.policy.files import LimitedFiles, join, without_dots
from remit.policy.shell.state import Field

__all__ = ["SYSTEM_FOLDERS", "SpawnedPrograms"]

# Programs in these folders are the ones that a bare name means.
SYSTEM_FOLDERS: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
# Programs that do nothing but start another one, which is judged by itself.
_CARRIERS: Final = frozenset((
    "ash", "bash", "dash", "sh", "caffeinate", "chronic", "env", "genv", "gtimeout", "gxargs", "ionice", "nice",
    "nohup", "setsid", "stdbuf", "timeout", "unbuffer", "xargs", "xvfb-run",
    "npx", "npm exec", "npm x", "bunx", "bun x", "uvx", "uv run", "pdm run", "poetry run", "hatch run", "bundle exec",
))  # fmt: skip
# Programs that start another one in the environment of the project.
_PROJECT_RUNNERS: Final = frozenset((("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run")))
_NAMELESS: Final = Launched()
_MAX_WORDS: Final = 16
# Longer than any entry of a passport.
_MAX_WORD: Final = 256
_MAX_PATH: Final = 4096

_Carriers: TypeAlias = tuple[tuple[str, ...], ...]


class _Started:
    """A program, and what turned out while its words were judged."""

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
        # What it starts was judged.
        self.carries = False

    def words(self) -> tuple[str, ...]:
        """Return the words up to the first that is not certain; none where the name is not."""
        words = [self.name] if 0 < len(self.name) <= _MAX_WORD else []
        for field in self.rest[: _MAX_WORDS - 1] if words else ():
            if field.kind != "exact" or len(field.text) > _MAX_WORD:
                break
            words.append(field.text)
        return tuple(words)

    def launched(self) -> Launched:
        words = self.words()
        if not words:
            return _NAMELESS
        plain = (self.name, *self.subs) if not self.doubtful else ()
        carrier = self.carries and " ".join(plain) in _CARRIERS
        targets = self.targets
        if targets is None:
            stops = self.name in STOPPERS
            targets = tuple(field.text if field.kind == "exact" else None for field in self.rest) if stops else ()
        return Launched(words, len(words) <= len(self.rest), plain, self.carriers, carrier, self.runs, targets)

    def carriers_of(self, name: Field | None) -> _Carriers:
        """Return the words before a program that this one starts, after those of what started this one."""
        words = self.words()
        before = next((at for at, field in enumerate(self.rest, 1) if name and field.source == name.source), None)
        return () if before is None or before > len(words) else (*self.carriers, words[:before])


_State: TypeAlias = tuple[_Started | None, _Carriers]


class SpawnedPrograms:
    """The programs in the order they were met, and the one being judged.

    They are put into words when somebody looks: most passports name no programs.
    """

    def __init__(self) -> None:
        self._started: list[_Started | None] = []
        self._current: _Started | None = None
        self._carriers: _Carriers = ()

    def __iter__(self) -> Iterator[Launched]:
        """Yield each program once."""
        return iter(dict.fromkeys(started.launched() if started else _NAMELESS for started in self._started))

    def restart(self) -> None:
        """Forget what was being judged when another script could not be read to its end."""
        self._current, self._carriers = None, ()

    def doubt(self) -> None:
        """Record that something may be done that is not known: by the program being judged, or by whatever."""
        if self._current is None:
            self._started.append(None)
        else:
            self._current.doubtful = True

    def start(self, name: str, rest: Sequence[Field], cwd: str | None, files: LimitedFiles) -> None:
        """Begin with a program."""
        named = name if "/" not in name else _located(name, cwd, files)
        self._current = _Started(named, rest, self._carriers, self._current)
        self._started.append(self._current)

    def end(self) -> None:
        """Be done with the program that was begun last."""
        self._current = self._current and self._current.outer

    def subcommand(self, word: str) -> None:
        """Record which of its commands the program is given."""
        if self._current is not None:
            self._current.subs += (word,)

    def subcommands(self) -> tuple[str, ...]:
        """Return which of its commands the program is given."""
        return self._current.subs if self._current is not None else ()

    def runs(self, text: str) -> None:
        """Record what the program is told to run: a file, a module, a package."""
        if self._current is not None:
            self._current.runs += (text[:_MAX_PATH],)

    def enter(self, name: Field | None = None) -> _State:
        """Go into what the current program starts, one named program or a script; return what `leave` needs."""
        state = (self._current, self._carriers)
        if self._current is not None:
            self._current.carries = True
            self._carriers = self._current.carriers_of(name)
            self._current = None
        return state

    def leave(self, state: _State) -> None:
        """Go back to the program that started it."""
        self._current, self._carriers = state

    def builtin(self, name: str, fields: Sequence[Field], targets: tuple[str | None, ...] | None = None) -> None:
        """Record a builtin that has effects of its own; `targets` as `Launched` says."""
        started = _Started(name, fields, self._carriers, None)
        started.targets = targets
        self._started.append(started)

    def environment(self) -> str | None:
        """Return the program being judged if a path names it, or what starts it in the project's environment.

        That is the folder of an environment: `/srv/app/.venv` for `.venv/bin/pip`, nothing where the project has it.
        """
        current = self._current
        if current is None:
            return None
        if current.name.startswith("/"):
            return current.name.rpartition("/")[0].rpartition("/")[0] or "/"
        carried = any(words[:2] in _PROJECT_RUNNERS for words in current.carriers)
        return "" if carried else None

    def sources(self, ending: str) -> bool:
        """Return whether the script reads a file with this ending into its own shell."""
        return any(
            started is not None and started.name == "source" and field.kind == "exact" and field.text.endswith(ending)
            for started in self._started
            for field in (started.rest[:1] if started is not None else ())
        )


def _located(text: str, cwd: str | None, files: LimitedFiles) -> str:
    """Return the name of a program that PATH would find too, the absolute path of any other; nothing where unknown."""
    folder, _, base = text.rpartition("/")
    if f"{folder}/" in SYSTEM_FOLDERS:
        return base
    if cwd is None and not text.startswith("/"):
        return ""
    path = join(cwd or "/", text)
    # Behind a link `..` leads elsewhere than the text says.
    return files.resolve(path).path if ".." in text else without_dots(path)
