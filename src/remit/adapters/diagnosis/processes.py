"""Assistants that run at this moment with an option that leaves hooks out, or that asks nobody any more.

Only processes that the system shows are seen: on Linux by /proc, elsewhere by ps. What ran and has ended is for the
evidence to tell.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Final, NamedTuple

__all__ = ["BYPASSING", "UNASKING", "Process", "Suspect", "running_processes", "suspects"]

# Options with which hooks that are not managed do not run; some are so by their value.
BYPASSING: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("--bare", "--safe-mode", "--setting-sources"),
    "codex": ("--disable hooks", "-c features.hooks=false", "--config features.hooks=false"),
    "opencode": ("--pure",),
}
# What in a word of its own says that no hooks run.
_SAYING: Final[Mapping[str, str]] = {"claude-code": "disableAllHooks"}
# Options with which nobody is asked but the hooks.
UNASKING: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("--dangerously-skip-permissions", "--allow-dangerously-skip-permissions"),
    "codex": ("--dangerously-bypass-approvals-and-sandbox", "--yolo"),
    "gemini": ("--yolo", "-y"),
    "copilot": ("--allow-all-tools", "--allow-all", "--yolo"),
}
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


class Suspect(NamedTuple):
    """An assistant that runs with an option that matters."""

    pid: int
    option: str
    bypasses: bool


def suspects(
    assistant: str, program: str, processes: Sequence[Process], folders: Sequence[str | None]
) -> list[Suspect]:
    """Return the processes of an assistant that run with such an option, in one of these folders; None is any."""
    found = list[Suspect]()
    for process in processes:
        if not _is(program, process) or not any(_within(process.folder, folder) for folder in folders):
            continue
        given = dict.fromkeys(_options(process.words))
        found += [Suspect(process.pid, one, bypasses=True) for one in given if one in BYPASSING.get(assistant, ())]
        if any(_SAYING[assistant] in word for word in process.words if assistant in _SAYING):
            found.append(Suspect(process.pid, _SAYING[assistant], bypasses=True))
        found += [Suspect(process.pid, one, bypasses=False) for one in given if one in UNASKING.get(assistant, ())]
    return found


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
        try:
            with (entry / "cmdline").open("rb") as file:
                line = file.read(_MAX_BYTES)
        except OSError:
            continue
        words = tuple(line.decode("utf-8", "replace").rstrip("\0").split("\0")) if line else ()
        yield Process(int(entry.name), words, _folder_of(entry))


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
