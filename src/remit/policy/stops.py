"""Which command lines would stop the process that judges or an assistant, or may do so.

`kill` is judged by the numbers it is given; a job of the same script (`%1`, `$!`) is no process of Remit. `pkill` and
`killall` are judged by their names, as long as names are all that they select by. Every other way to select processes
is refused, because what it selects is not known before it runs. Keeps this invariant: a word or an option that is not
known here, or a pattern that other programs read in another way, may select anything.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from remit.policy.agents import AGENTS
from remit.policy.call import Launched

__all__ = ["JOB", "NUMBERS", "Selected", "killed", "process_number", "selected"]

# What stands for a word of `kill` that is a job of the same script, and for one that comes to numbers only.
JOB: Final = "%"
NUMBERS: Final = "?"

# None is a word that is not certain: it may come to several words, or to none.
_Words: TypeAlias = Sequence[str | None]


class Selected(NamedTuple):
    """A program that would stop Remit or an assistant: `by` is the word that selects it, `surely` says that it does."""

    program: str
    by: str
    surely: bool = True


class _Options(NamedTuple):
    """The options of a program that do not select processes, or only fewer of those that a name selects."""

    letters: str
    names: frozenset[str]
    # These take a value.
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
# What they stop is never a matter of names or numbers alone.
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
# The patterns that Python reads as `pkill` does, and quickly: not among them are classes in brackets, backslashes
# before letters, counted repetitions, and repetitions of repetitions or of groups.
_PATTERN: Final = re.compile(r"(?:[^][\\{}()*+?]|\\[^\w<>`']|\[\^?[^][\\^]+\]|\((?!\?)|\)|(?<![*+?()|^])[*+?])*")
_REPEATED: Final = re.compile(r"[*+?]")
_MAX_REPEATED: Final = 3
_FUSER_KILLS: Final = re.compile(r"-[A-Za-z]*k|--k")
_WILDCARDS: Final = frozenset("*?[")
_GOVERNOR: Final = "remit"
_EVERYONE: Final = -1
_OWN_GROUP: Final = 0
# The numbers of processes have 32 bits, and programs cut off what is more.
_BITS: Final = 1 << 32
_COMM: Final = 15


def selected(commands: Iterable[Launched], numbers: frozenset[int], line: str) -> Selected | None:
    """Return the first program of a command line that would stop Remit or an assistant, or may do so.

    `numbers` are those of the process that judges and of its group, `line` is what it was started by.
    """
    for launched in commands:
        if launched.words:
            found = _selected(launched.words[0], launched.targets, numbers, line)
            if found is not None:
                return found
    return None


def _selected(name: str, given: _Words, numbers: frozenset[int], line: str) -> Selected | None:
    if name in _BOXES and given and given[0] is not None:
        name, given = given[0], given[1:]
    if name == "kill":
        return _by_number(given, numbers, line)
    if name in _BY_NAME:
        return _by_name(name, given, line)
    if name in _SERVICES:
        return _by_service(name, given)
    if name in _BY_OTHERS:
        return Selected(name, name, surely=False)
    if name == "fuser":
        kills = next((word for word in given if word is None or _FUSER_KILLS.match(word)), "")
        return None if kills == "" else Selected(name, kills or name, surely=False)
    return None


def _by_number(given: _Words, own: frozenset[int], line: str) -> Selected | None:
    """Judge `kill`; a process that is not known before it runs may be any."""
    words = killed(given)
    for word in (each for each in words if each is not None):
        number = process_number(word)
        if number is None:
            # Some kinds of `kill` take names too.
            if not word.startswith(("-", JOB)) and _matches(word, line):
                return Selected("kill", word)
        elif number in (_EVERYONE, _OWN_GROUP):
            return Selected("kill", word, surely=number == _EVERYONE)
        elif abs(number) in own:
            return Selected("kill", word)
    return Selected("kill", "a process that is not known before it runs", surely=False) if None in words else None


def killed(given: _Words) -> list[str | None]:
    """Return the words of `kill` that name processes, None for each that is not certain; none where it only looks.

    With signal 0 it tells whether a process is there, and with `-l` it lists signals.
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
    # A signal that is not certain may come to several words.
    return [None if word == NUMBERS else word for word in (*words, *(each for each in signals if each is None))]


def process_number(word: str) -> int | None:
    """Return the number of a process as 32 bits hold it; `4711:99` names one with its inode."""
    text = word.partition(":")[0]
    for base in (10, 0):
        try:
            number = int(text, base)
        except ValueError:
            continue
        return (number + _BITS // 2) % _BITS - _BITS // 2
    return None


def _by_name(program: str, given: _Words, line: str) -> Selected | None:
    """Judge a program that selects by names, or refuse what else it selects by."""
    names, signalled, at, ended = list[str](), False, 0, False
    options = _BY_NAME[program]
    if given and all(word in _HARMLESS for word in given):
        return None
    while at < len(given):
        word = given[at]
        at += 1
        if word is None:
            return Selected(program, "a word that is not certain", surely=False)
        if ended or not word.startswith("-"):
            names.append(word)
        elif word == "--":
            ended = True
        elif _SIGNAL.fullmatch(word) and not signalled:
            signalled = True
        elif word in options.values and at < len(given) and not (given[at] or "").startswith("-"):
            at += 1
        elif word.partition("=")[0] not in options.names | options.values and not _is_cluster(word, options.letters):
            return Selected(program, word, surely=False)
    picked = next((name for name in names if _matches(name, line)), None)
    if picked is not None:
        return Selected(program, picked)
    return None if names else Selected(program, "no name", surely=False)


def _is_cluster(word: str, letters: str) -> bool:
    return len(word) > 1 and set(word[1:]) <= set(letters)


def _by_service(program: str, given: _Words) -> Selected | None:
    for word in given:
        if word is not None and _GOVERNOR in word:
            return Selected(program, word)
        if word is not None and not _WILDCARDS.isdisjoint(word):
            return Selected(program, word, surely=False)
    return None


def _matches(word: str, line: str) -> bool:
    """Return whether a name or pattern may match a process with this command line; unreadable patterns may."""
    if _PATTERN.fullmatch(word) is None or len(_REPEATED.findall(word)) > _MAX_REPEATED:
        return True
    try:
        pattern = re.compile(word, re.IGNORECASE | re.DOTALL)
    except re.error:
        return True
    return _GOVERNOR in word.casefold() or any(pattern.search(text) for text in _known_as(line))


def _known_as(line: str) -> list[str]:
    """Return what processes of Remit and of assistants are called.

    Of Remit that is its line, the words of it, and their file names, whole and cut.
    """
    words = line.split()
    files = [word.rpartition("/")[2] for word in words]
    return [_GOVERNOR, *AGENTS, *([line] if line else ()), *words, *files, *(file[:_COMM] for file in files)]
