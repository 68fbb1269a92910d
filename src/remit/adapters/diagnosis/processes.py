"""Assistants that run at this moment with an option that leaves hooks out, or that asks nobody any more.

Only processes that the system shows are seen: on Linux by /proc, elsewhere by ps, which tells no variables. What ran
and has ended is for the evidence to tell. Keeps this invariant: of the environment of a process nothing is kept but
names of variables that matter; those of other users are not read.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.adapters.diagnosis.variables import PROXIES, TURNING_OFF, telling_variables

__all__ = ["OPTIONS", "Effect", "Process", "Suspect", "running_processes", "suspects"]

# bypassing: hooks that are not managed do not run; misleading: what they ask may not reach the Hub; unasking: nobody is
# asked but they; steering: settings count that were not looked at.
Effect: TypeAlias = Literal["bypassing", "misleading", "unasking", "steering"]
# Options that matter; some do so by their value.
OPTIONS: Final[Mapping[str, Mapping[Effect, tuple[str, ...]]]] = {
    "claude-code": {
        "bypassing": ("--bare", "--safe-mode", "--setting-sources"),
        "unasking": ("--dangerously-skip-permissions", "--allow-dangerously-skip-permissions"),
        "steering": ("--settings",),
    },
    "codex": {
        "bypassing": ("--disable hooks", "-c features.hooks=false", "--config features.hooks=false"),
        "unasking": ("--dangerously-bypass-approvals-and-sandbox", "--yolo"),
    },
    "opencode": {"bypassing": ("--pure",)},
    "gemini": {"unasking": ("--yolo", "-y")},
    "copilot": {"unasking": ("--allow-all-tools", "--allow-all", "--yolo")},
}
# What in a word of its own says that no hooks run.
_SAYING: Final[Mapping[str, str]] = {"claude-code": "disableAllHooks"}
_PROC: Final = Path("/proc")
_MAX_BYTES: Final = 256 * 1024
_PATIENCE_S: Final = 10
# An interpreter, an option of it and the script.
_FIRST_WORDS: Final = 3


class Process(NamedTuple):
    """A program that runs; the folder is empty where it cannot be told."""

    pid: int
    words: tuple[str, ...]
    folder: str = ""
    # The names of variables that matter, as they are set there.
    variables: tuple[str, ...] = ()


class Suspect(NamedTuple):
    """An assistant that runs with an option or a variable that matters."""

    pid: int
    option: str
    effect: Effect


def suspects(
    assistant: str,
    program: str,
    processes: Sequence[Process],
    folders: Sequence[str | None],
    *,
    over_http: bool = False,
) -> list[Suspect]:
    """Return the processes of an assistant that run with such an option, in one of these folders; None is any.

    `over_http` says that its hooks are asked over HTTP, which a proxy may stand in the way of.
    """
    found = list[Suspect]()
    for process in processes:
        if _is(program, process) and any(_within(process.folder, folder) for folder in folders):
            effects = {**_by_option(assistant, process), **_by_variable(assistant, process, over_http=over_http)}
            found += [Suspect(process.pid, option, effect) for option, effect in effects.items()]
    return found


def _by_option(assistant: str, process: Process) -> dict[str, Effect]:
    given = dict.fromkeys(_options(process.words))
    effects = {one: effect for effect, options in OPTIONS.get(assistant, {}).items() for one in given if one in options}
    saying = _SAYING.get(assistant)
    if saying and any(saying in word for word in process.words):
        effects[saying] = "bypassing"
    return effects


def _by_variable(assistant: str, process: Process, *, over_http: bool) -> dict[str, Effect]:
    effects: dict[str, Effect] = {}
    effects |= {name: "bypassing" for name in process.variables if name in TURNING_OFF.get(assistant, ())}
    if over_http:
        effects |= {name: "misleading" for name in process.variables if name.upper() in PROXIES}
    return effects


def _options(words: Sequence[str]) -> Iterator[str]:
    """Yield the options in words: each by itself, and each with its value."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, _, value = word.partition("=")
        yield from (name, f"{name} {value}", f"{word} {following}")


def _is(program: str, process: Process) -> bool:
    names = (PurePath(word).name for word in process.words[:_FIRST_WORDS])
    return any(name.removesuffix(".exe").removesuffix(".js") == program for name in names)


def _within(place: str, folder: str | None) -> bool:
    """Tell whether a process may be in a folder; what cannot be told counts as within."""
    return folder is None or not place or PurePath(place).is_relative_to(folder)


def running_processes() -> list[Process]:
    """Return the processes that the system shows to this user."""
    return [*_from_proc()] if _PROC.joinpath("self", "cmdline").exists() else [*_from_ps()]


def _from_proc() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        line = _told(entry / "cmdline")
        words = tuple(line.decode("utf-8", "replace").rstrip("\0").split("\0")) if line else ()
        yield Process(int(entry.name), words, _folder_of(entry), _variables_of(entry))


def _told(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:  # it has ended, or is another user's
        return b""


def _variables_of(entry: Path) -> tuple[str, ...]:
    try:
        is_ours = entry.stat().st_uid == os.geteuid()
    except OSError:
        return ()
    return telling_variables(_told(entry / "environ")) if is_ours else ()


def _folder_of(entry: Path) -> str:
    try:
        return os.readlink(entry / "cwd")  # noqa: PTH115 - as the system writes it
    except OSError:
        return ""


def _from_ps() -> Iterator[Process]:
    """Ask ps, which tells words without saying where each ends: an option is still one of them."""
    try:
        told = subprocess.run(
            ["/bin/ps", "-axww", "-o", "pid=,command="], capture_output=True, timeout=_PATIENCE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    for line in told.decode("utf-8", "replace").splitlines():
        number, *words = line.split()
        if number.isdecimal() and words:
            yield Process(int(number), tuple(words))
