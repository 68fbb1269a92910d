"""Finds running assistants that were started with an option or variable that bypasses hooks or permission prompts.

Processes are read from /proc on Linux and from ps elsewhere, which does not show environment variables. Processes that
have ended are not found. Invariant: of the environment of a process, only the names of relevant variables are kept, and
the environment of processes of other users is not read.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Final, Literal, NamedTuple, TypeAlias

# bypassing: hooks other than managed ones do not run. misleading: requests of hooks may not reach the Hub.
# unasking: the assistant does not prompt the user. steering: further settings apply, which were not checked.
OptionEffect: TypeAlias = Literal["bypassing", "misleading", "unasking", "steering"]
# The options with each effect, some of them with their value.
OPTIONS: Final[Mapping[str, Mapping[OptionEffect, tuple[str, ...]]]] = {
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
# A setting that turns hooks off, and that may be part of any argument.
_DISABLING_SETTING: Final[Mapping[str, str]] = {"claude-code": "disableAllHooks"}
_PROC: Final = Path("/proc")
_MAX_BYTES: Final = 256 * 1024
_TIMEOUT_S: Final = 10
# The program name is among these first arguments: an interpreter, an option of it, and the script.
_FIRST_WORDS: Final = 3
_INTERPRETERS: Final = re.compile(r"(node|nodejs|bun|deno|sh|bash|dash|python[0-9.]*)")
# The npm packages of the assistants.
_PACKAGES: Final[Mapping[str, str]] = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "copilot": "@github/copilot",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
}
_DELETED: Final = " (deleted)"
_STATUS: Final = re.compile(r"^(PPid|State):\s*(\S+)", re.MULTILINE)
# Variables with which hooks do not run.
_BYPASSING_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")
}
# Also in lower case. HTTP requests of hooks are sent to these proxies.
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_NO_PROXY: Final = "NO_PROXY"
_THIS_MACHINE: Final = ("*", "127.0.0.1")
_OFF: Final = ("", "0", "false", "no", "off")
_SWITCHES: Final = frozenset(name for names in _BYPASSING_VARIABLES.values() for name in names)


class Process(NamedTuple):
    """A running process."""

    pid: int
    # The command line.
    words: tuple[str, ...]
    # The working directory; empty if unknown.
    folder: str = ""
    # The names of relevant environment variables.
    variables: tuple[str, ...] = ()
    # The owner; None if unknown.
    uid: int | None = None


class SuspectProcess(NamedTuple):
    """A running assistant with a relevant option or variable."""

    pid: int
    option: str
    effect: OptionEffect


def find_suspects(
    assistant: str,
    program: str,
    processes: Sequence[Process],
    folders: Sequence[str | None],
    *,
    over_http: bool = False,
) -> list[SuspectProcess]:
    """Return the processes of an assistant with such an option in one of these folders; None is any folder.

    `over_http` means that its hooks send HTTP requests, which a proxy may intercept.
    """
    found = list[SuspectProcess]()
    for process in processes:
        if _is_assistant(program, process) and any(_may_be_within(process.folder, folder) for folder in folders):
            effects = {**_by_option(assistant, process), **_by_variable(assistant, process, over_http=over_http)}
            found += [SuspectProcess(process.pid, option, effect) for option, effect in effects.items()]
    return found


def _by_option(assistant: str, process: Process) -> dict[str, OptionEffect]:
    given = dict.fromkeys(_options(process.words))
    effects = {one: effect for effect, options in OPTIONS.get(assistant, {}).items() for one in given if one in options}
    setting = _DISABLING_SETTING.get(assistant)
    if setting and any(setting in word for word in process.words):
        effects[setting] = "bypassing"
    return effects


def _by_variable(assistant: str, process: Process, *, over_http: bool) -> dict[str, OptionEffect]:
    effects: dict[str, OptionEffect] = {}
    effects |= {name: "bypassing" for name in process.variables if name in _BYPASSING_VARIABLES.get(assistant, ())}
    if over_http:
        effects |= {name: "misleading" for name in process.variables if name.upper() in _PROXY_VARIABLES}
    return effects


def _options(words: Sequence[str]) -> Iterator[str]:
    """Yield the options in a command line, each with and without its value."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, _, value = word.partition("=")
        yield from (name, f"{name} {value}", f"{word} {following}")


def _is_assistant(program: str, process: Process) -> bool:
    names = (PurePath(word).name for word in process.words[:_FIRST_WORDS])
    return any(name.removesuffix(".exe").removesuffix(".js") == program for name in names)


def _may_be_within(path: str, folder: str | None) -> bool:
    """Return whether a process may be in a folder. An unknown working directory counts as within."""
    return folder is None or not path or PurePath(path).is_relative_to(folder)


def find_assistant_processes(program: str, processes: Sequence[Process], folder: str | None) -> list[Process]:
    """Return the processes of this user that run an assistant in a folder or below it; None is any folder.

    Stricter than `find_suspects`: a process with an unknown owner or working directory is left out.
    """
    return [
        process
        for process in processes
        if process.uid == os.geteuid()
        and _runs(program, process.words)
        and (folder is None or _is_within(process.folder, folder))
    ]


def _runs(program: str, words: Sequence[str]) -> bool:
    """Return whether a command line runs a program, directly or as the script of an interpreter."""
    if not words:
        return False
    names = [words[0]]
    if _INTERPRETERS.fullmatch(PurePath(words[0]).name):
        names += [word for word in words[1:] if not word.startswith("-")][:1]
    return any(_is_program(program, word) for word in names)


def _is_program(program: str, word: str) -> bool:
    name = PurePath(word).name.removesuffix(".exe").removesuffix(".js")
    return name == program or f"/node_modules/{_PACKAGES.get(program, program)}/" in word


def _is_within(path: str, folder: str) -> bool:
    real = os.path.realpath(folder)
    return bool(path) and PurePath(path.removesuffix(_DELETED)).is_relative_to(real)


def ancestors(pid: int) -> frozenset[int]:
    """Return the ids of a process and its ancestors."""
    found = list[int]()
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = _read_parent(pid)
    return frozenset(found)


def _read_parent(pid: int) -> int:
    if _PROC.joinpath("self", "status").exists():
        status = dict(_STATUS.findall(_read(_PROC / str(pid) / "status").decode("utf-8", "replace")))
        return int(status.get("PPid", "0"))
    return next((int(words[1]) for words in _ps("pid=,ppid=") if words[0] == str(pid)), 0)


def find_process(pid: int) -> Process | None:
    """Return a process by its id, or None if there is none or it is a zombie."""
    if not _PROC.joinpath("self", "cmdline").exists():
        return next((one for one in _from_ps() if one.pid == pid), None)
    entry = _PROC / str(pid)
    status = dict(_STATUS.findall(_read(entry / "status").decode("utf-8", "replace")))
    return None if status.get("State", "Z") in "ZX" else _read_process(entry)


def running_processes() -> list[Process]:
    """Return the processes that this user can see."""
    return [*_from_proc()] if _PROC.joinpath("self", "cmdline").exists() else [*_from_ps()]


def _from_proc() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            yield _read_process(entry)


def _read_process(entry: Path) -> Process:
    line = _read(entry / "cmdline")
    words = tuple(line.decode("utf-8", "replace").rstrip("\0").split("\0")) if line else ()
    return Process(int(entry.name), words, _read_folder(entry), _read_variables(entry), _read_owner(entry))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:  # it has ended, or belongs to another user
        return b""


def _read_variables(entry: Path) -> tuple[str, ...]:
    return relevant_variables(_read(entry / "environ")) if _read_owner(entry) == os.geteuid() else ()


def _read_owner(entry: Path) -> int | None:
    try:
        return entry.stat().st_uid
    except OSError:
        return None


def _read_folder(entry: Path) -> str:
    try:
        return os.readlink(entry / "cwd")  # noqa: PTH115 - the exact text
    except OSError:
        return ""


def _from_ps() -> Iterator[Process]:
    """Yield processes from ps. Its output does not show where arguments end, so they are split at spaces."""
    for number, uid, *words in _ps("pid=,uid=,command="):
        if number.isdecimal() and uid.isdecimal() and words:
            yield Process(int(number), tuple(words), uid=int(uid))


def _ps(columns: str) -> Iterator[list[str]]:
    try:
        output = subprocess.run(  # noqa: S603 - constant arguments
            ["/bin/ps", "-axww", "-o", columns], capture_output=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    for line in output.decode("utf-8", "replace").splitlines():
        if len(words := line.split()) > 1:
            yield words


def relevant_variables(environ: bytes) -> tuple[str, ...]:
    """Return the names of relevant variables in the content of /proc/PID/environ.

    Proxy variables are relevant only if NO_PROXY does not except this machine.
    """
    variables = dict(_pairs(environ))
    switched = [name for name, value in variables.items() if name in _SWITCHES and value.strip().lower() not in _OFF]
    if _excepts_this_machine(variables):
        return tuple(switched)
    return (*switched, *(name for name, value in variables.items() if name.upper() in _PROXY_VARIABLES and value))


def _pairs(environ: bytes) -> Iterator[tuple[str, str]]:
    for item in environ.decode("utf-8", "replace").split("\0"):
        name, _, value = item.partition("=")
        if name in _SWITCHES or name.upper() in (*_PROXY_VARIABLES, _NO_PROXY):
            yield name, value


def _excepts_this_machine(variables: Mapping[str, str]) -> bool:
    """Return whether NO_PROXY excepts this machine, in each spelling of it that is set."""
    lists = [value.replace(",", " ").split() for name, value in variables.items() if name.upper() == _NO_PROXY]
    return bool(lists) and all(any(item in _THIS_MACHINE for item in listed) for listed in lists)
