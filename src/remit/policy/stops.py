"""Finds command lines that would, or may, stop Remit or an assistant.

`kill` is judged by its process ids; a job of the same script (`%1`, `$!`) is not a process of Remit. `pkill` and
`killall` are judged by the names they are given, if they select by names only. Every other selection is refused,
because the selected processes are not known before the command runs. The same holds for an unknown word or option, and
for a pattern that Python and `pkill` may read differently: it may select anything.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from remit.policy.agents import AGENTS
from remit.policy.call import SpawnedProgram

# Placeholders for a word of `kill`: a job of the same script, and a word that expands to process ids.
JOB: Final = "%"
NUMBERS: Final = "?"

# None is a word that is not known: it may expand to several words, or to none.
_Words: TypeAlias = Sequence[str | None]


class ProcessMatch(NamedTuple):
    """A program that would stop Remit or an assistant: `by` is the selecting word; without `surely` it only may."""

    program: str
    by: str
    surely: bool = True


class _Options(NamedTuple):
    """The options of a program that select no processes, or only narrow the selection by name."""

    letters: str
    names: frozenset[str]
    # Options with a value.
    values: frozenset[str]


_BY_NAME: Final = {
    "pkill": _Options(
        "fxiealnohVHI",
        frozenset((
            "--full", "--exact", "--ignore-case", "--echo", "--newest", "--oldest", "--help", "--version",
            "--require-handler",
        )),
        frozenset(("--signal",)),
    ),
    "killall": _Options(
        "eIiqvwrlVhdm",
        frozenset((
            "--exact", "--ignore-case", "--interactive", "--quiet", "--verbose", "--wait", "--regexp", "--list",
            "--version", "--help",
        )),
        frozenset(("-s", "--signal")),
    ),
}  # fmt: skip
_HARMLESS: Final = frozenset(("-l", "--list", "-V", "--version", "-h", "--help"))
# They select by more than names and process ids.
_BY_OTHERS: Final = frozenset("skill snice slay killall5".split())
_SERVICES: Final = frozenset("systemctl service launchctl".split())
_BOXES: Final = frozenset("busybox toybox".split())
_SIGNAL: Final = re.compile(
    r"-(?:[0-9]{1,2}|(?:SIG)?(?:HUP|INT|QUIT|ILL|TRAP|ABRT|IOT|BUS|FPE|KILL|USR1|SEGV|USR2|PIPE|ALRM|TERM|STKFLT|CHLD"
    r"|CONT|STOP|TSTP|TTIN|TTOU|URG|XCPU|XFSZ|VTALRM|PROF|WINCH|IO|POLL|PWR|SYS))",
    re.IGNORECASE,
)
_SIGNAL_OPTIONS: Final = frozenset(("-s", "-n", "--signal"))
_LISTS: Final = frozenset(("-l", "-L", "--list", "--table"))
# The patterns that Python reads as `pkill` does, without slow backtracking: no character classes such as `[:alpha:]`,
# no backslash before a letter, no counted repetition, and no repetition of a repetition or group.
_PATTERN: Final = re.compile(r"(?:[^][\\{}()*+?]|\\[^\w<>`']|\[\^?[^][\\^]+\]|\((?!\?)|\)|(?<![*+?()|^])[*+?])*")
_REPEATED: Final = re.compile(r"[*+?]")
_MAX_REPEATED: Final = 3
_FUSER_KILLS: Final = re.compile(r"-[A-Za-z]*k|--k")
_WILDCARDS: Final = frozenset("*?[")
_GOVERNOR: Final = "remit"
_EVERYONE: Final = -1
_OWN_GROUP: Final = 0
# A process id has 32 bits; programs truncate larger numbers.
_BITS: Final = 1 << 32
_COMM: Final = 15


def find_match(commands: Iterable[SpawnedProgram], numbers: frozenset[int], line: str) -> ProcessMatch | None:
    """Return the first program of a command line that would or may stop Remit or an assistant.

    `numbers` are the process and group ids of Remit, `line` is its command line.
    """
    for launched in commands:
        if launched.words:
            found = _judge_program(launched.words[0], launched.targets, numbers, line)
            if found is not None:
                return found
    return None


def _judge_program(name: str, given: _Words, numbers: frozenset[int], line: str) -> ProcessMatch | None:
    if name in _BOXES and given and given[0] is not None:
        name, given = given[0], given[1:]
    if name == "kill":
        return _by_number(given, numbers, line)
    if name in _BY_NAME:
        return _by_name(name, given, line)
    if name in _SERVICES:
        return _by_service(name, given)
    if name in _BY_OTHERS:
        return ProcessMatch(name, name, surely=False)
    if name == "fuser":
        kills = next((word for word in given if word is None or _FUSER_KILLS.match(word)), "")
        return None if kills == "" else ProcessMatch(name, kills or name, surely=False)
    return None


def _by_number(given: _Words, own: frozenset[int], line: str) -> ProcessMatch | None:
    """Judge `kill`. A process id that is not known before it runs may be any."""
    words = kill_targets(given)
    for word in (each for each in words if each is not None):
        number = process_number(word)
        if number is None:
            # Some versions of `kill` accept names too.
            if not word.startswith(("-", JOB)) and _matches(word, line):
                return ProcessMatch("kill", word)
        elif number in (_EVERYONE, _OWN_GROUP):
            return ProcessMatch("kill", word, surely=number == _EVERYONE)
        elif abs(number) in own:
            return ProcessMatch("kill", word)
    return ProcessMatch("kill", "a process that is not known before it runs", surely=False) if None in words else None


def kill_targets(given: _Words) -> list[str | None]:
    """Return the words of `kill` that name processes, with None for each unknown word; empty if none is stopped.

    Signal 0 only tests whether a process exists, and `-l` lists signals.
    """
    signals, at = list[str | None](), 0
    while at < len(given):
        word = given[at]
        if word is None or (word in _LISTS and not at):
            break
        if word == "--":
            at += 1
            break
        if word in _SIGNAL_OPTIONS:
            at += 1
            signals.append(given[at] if at < len(given) else "")
        elif not word.startswith("-") or (signals and process_number(word) is not None):
            break
        else:
            signals.append(word[1:])
        at += 1
    words = list(given[at:])
    looks = words[:1] and words[0] in _LISTS and not at
    if looks or (signals and set(signals) == {"0"} and None not in words):
        return []
    # An unknown signal may expand to several words.
    return [None if word == NUMBERS else word for word in (*words, *(each for each in signals if each is None))]


def process_number(word: str) -> int | None:
    """Return a process id truncated to 32 bits; `4711:99` is a process id with its inode."""
    text = word.partition(":")[0]
    for base in (10, 0):
        try:
            number = int(text, base)
        except ValueError:
            continue
        return (number + _BITS // 2) % _BITS - _BITS // 2
    return None


def _by_name(program: str, given: _Words, line: str) -> ProcessMatch | None:
    """Judge a program that selects by names; refuse any other selection."""
    names, signalled, at, ended = list[str](), False, 0, False
    options = _BY_NAME[program]
    if given and all(word in _HARMLESS for word in given):
        return None
    while at < len(given):
        word = given[at]
        at += 1
        if word is None:
            return ProcessMatch(program, "a word that is not certain", surely=False)
        if ended or not word.startswith("-"):
            names.append(word)
        elif word == "--":
            ended = True
        elif _SIGNAL.fullmatch(word) and not signalled:
            signalled = True
        elif word in options.values and at < len(given) and not (given[at] or "").startswith("-"):
            at += 1
        elif word.partition("=")[0] not in options.names | options.values and not _is_cluster(word, options.letters):
            return ProcessMatch(program, word, surely=False)
    picked = next((name for name in names if _matches(name, line)), None)
    if picked is not None:
        return ProcessMatch(program, picked)
    return None if names else ProcessMatch(program, "no name", surely=False)


def _is_cluster(word: str, letters: str) -> bool:
    return len(word) > 1 and set(word[1:]) <= set(letters)


def _by_service(program: str, given: _Words) -> ProcessMatch | None:
    for word in given:
        if word is not None and _GOVERNOR in word:
            return ProcessMatch(program, word)
        if word is not None and not _WILDCARDS.isdisjoint(word):
            return ProcessMatch(program, word, surely=False)
    return None


def _matches(word: str, line: str) -> bool:
    """Return whether a name or pattern may match a process of Remit or an assistant; unsupported patterns may."""
    if _PATTERN.fullmatch(word) is None or len(_REPEATED.findall(word)) > _MAX_REPEATED:
        return True
    try:
        pattern = re.compile(word, re.IGNORECASE | re.DOTALL)
    except re.error:
        return True
    return _GOVERNOR in word.casefold() or any(pattern.search(text) for text in _process_names(line))


def _process_names(line: str) -> list[str]:
    """Return the names of processes of Remit and of assistants.

    For Remit: its command line, the words in it, and their file names, also truncated as in `/proc/PID/comm`.
    """
    words = line.split()
    files = [word.rpartition("/")[2] for word in words]
    return [_GOVERNOR, *AGENTS, *([line] if line else ()), *words, *files, *(file[:_COMM] for file in files)]
