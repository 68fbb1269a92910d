"""Assistants that run at this moment with an option that leaves hooks out, or that asks nobody any more.

Only processes that the system shows are seen: on Linux by /proc, elsewhere by ps, which tells no variables. What ran
and has ended is for the evidence to tell. Keeps this invariant: of the environment of a process nothing is kept but
names of variables that matter; those of other users are not read.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.assistants.doctor.variables import PROXIES, TURNING_OFF, telling_variables

__all__ = [
    "OPTIONS",
    "Effect",
    "Process",
    "Suspect",
    "ancestors",
    "assistants_among",
    "process_of",
    "running_processes",
    "suspects",
]

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
_INTERPRETERS: Final = re.compile(r"(node|nodejs|bun|deno|sh|bash|dash|python[0-9.]*)")
# The packages that programs of assistants are installed from.
_PACKAGES: Final[Mapping[str, str]] = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "copilot": "@github/copilot",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
}
_DELETED: Final = " (deleted)"
_STATUS: Final = re.compile(r"^(PPid|State):\s*(\S+)", re.MULTILINE)


class Process(NamedTuple):
    """A program that runs; the folder is empty where it cannot be told."""

    pid: int
    words: tuple[str, ...]
    folder: str = ""
    # The names of variables that matter, as they are set there.
    variables: tuple[str, ...] = ()
    # Whose it is; None where that cannot be told.
    uid: int | None = None


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


def assistants_among(program: str, processes: Sequence[Process], folder: str | None) -> list[Process]:
    """Return the processes of this user that run a program of an assistant, in a folder or beneath it; None is any.

    This is stricter than what `suspects` looks for: what cannot be told does not count.
    """
    return [
        process
        for process in processes
        if process.uid == os.geteuid()
        and _runs(program, process.words)
        and (folder is None or _is_within(process.folder, folder))
    ]


def _runs(program: str, words: Sequence[str]) -> bool:
    """Tell whether a command line is that of a program: by its own name, or as the script of an interpreter."""
    if not words:
        return False
    named = [words[0]]
    if _INTERPRETERS.fullmatch(PurePath(words[0]).name):
        named += [word for word in words[1:] if not word.startswith("-")][:1]
    return any(_is_program(program, word) for word in named)


def _is_program(program: str, word: str) -> bool:
    name = PurePath(word).name.removesuffix(".exe").removesuffix(".js")
    return name == program or f"/node_modules/{_PACKAGES.get(program, program)}/" in word


def _is_within(place: str, folder: str) -> bool:
    real = os.path.realpath(folder)
    return bool(place) and PurePath(place.removesuffix(_DELETED)).is_relative_to(real)


def ancestors(pid: int) -> frozenset[int]:
    """Return a process and those that it descends from, as far as the system tells."""
    found = list[int]()
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = _parent_of(pid)
    return frozenset(found)


def _parent_of(pid: int) -> int:
    if _PROC.joinpath("self", "status").exists():
        told = dict(_STATUS.findall(_told(_PROC / str(pid) / "status").decode("utf-8", "replace")))
        return int(told.get("PPid", "0"))
    return next((int(words[1]) for words in _ps("pid=,ppid=") if words[0] == str(pid)), 0)


def process_of(pid: int) -> Process | None:
    """Return the process of this number, or None if there is none, or one that has ended and was not waited for."""
    if not _PROC.joinpath("self", "cmdline").exists():
        return next((one for one in _from_ps() if one.pid == pid), None)
    entry = _PROC / str(pid)
    told = dict(_STATUS.findall(_told(entry / "status").decode("utf-8", "replace")))
    return None if told.get("State", "Z") in "ZX" else _process_in(entry)


def running_processes() -> list[Process]:
    """Return the processes that the system shows to this user."""
    return [*_from_proc()] if _PROC.joinpath("self", "cmdline").exists() else [*_from_ps()]


def _from_proc() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            yield _process_in(entry)


def _process_in(entry: Path) -> Process:
    line = _told(entry / "cmdline")
    words = tuple(line.decode("utf-8", "replace").rstrip("\0").split("\0")) if line else ()
    return Process(int(entry.name), words, _folder_of(entry), _variables_of(entry), _owner_of(entry))


def _told(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:  # it has ended, or is another user's
        return b""


def _variables_of(entry: Path) -> tuple[str, ...]:
    return telling_variables(_told(entry / "environ")) if _owner_of(entry) == os.geteuid() else ()


def _owner_of(entry: Path) -> int | None:
    try:
        return entry.stat().st_uid
    except OSError:
        return None


def _folder_of(entry: Path) -> str:
    try:
        return os.readlink(entry / "cwd")  # noqa: PTH115 - as the system writes it
    except OSError:
        return ""


def _from_ps() -> Iterator[Process]:
    """Ask ps, which tells words without saying where each ends: an option is still one of them."""
    for number, uid, *words in _ps("pid=,uid=,command="):
        if number.isdecimal() and uid.isdecimal() and words:
            yield Process(int(number), tuple(words), uid=int(uid))


def _ps(columns: str) -> Iterator[list[str]]:
    try:
        told = subprocess.run(  # noqa: S603 - no word of it comes from outside
            ["/bin/ps", "-axww", "-o", columns], capture_output=True, timeout=_PATIENCE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    for line in told.decode("utf-8", "replace").splitlines():
        if len(words := line.split()) > 1:
            yield words
