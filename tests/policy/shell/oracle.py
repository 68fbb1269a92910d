"""Holds what we read in a script against what a real shell runs.

The shell runs scripts whose programs are functions that record their words. Many scripts run in one process, each in a
subshell; where that makes a difference (an error that drops the rest of a line ends a subshell), and before a script is
reported, it runs in a process of its own. Every command that was run must match one that we saw: exact fields exactly,
patterns as themselves or their matches, all others as wildcards. Other shells than bash are held to the names of
programs only: they do not expand every word alike, and one reading stands for all of them. A script is refused, and
matches whatever it runs, if we noted an unbounded doubt, which denies the call.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from remit.policy.field import Field
from remit.policy.files import LocalFiles, without_dots
from remit.policy.shell.evaluate.script import ScriptEvaluator
from remit.policy.shell.evaluate.state import Outcome, ShellState
from remit.policy.shell.programs.handlers import judge_words
from remit.policy.trace import Trace
from tests.policy.shell.scripts import PROGRAMS, Script, is_safe, tokens

__all__ = [
    "HOME",
    "Failure",
    "Oracle",
    "Ran",
    "Reading",
    "Seen",
    "Shell",
    "find_missed",
    "find_shell",
    "make_tree",
    "minimise",
]

HOME: Final = "/home/somebody"
_WORD, _END, _DONE, _LINE = "\x1f", "\x1e", "\x1d", "\x1c"
_BATCH: Final = 50
_MAX_TRIES: Final = 300
_BATCH_TIMEOUT_S: Final = 30
_ALONE_TIMEOUT_S: Final = 5
_ENVIRONMENT: Final = {"PATH": "/nonexistent", "HOME": HOME, "LC_ALL": "C.UTF-8"}
# Records the words of a command in one write, for which no line may end in it. What it returns depends
# on the seed, and on how many ran before it. Where a script has set PWD, the directory is not known.
_RECORD: Final = """\
__d=$PWD{check}; printf '%s\\037' "$__n" "$__d" {name} {words} "$__end" >&9{output}
__k=$(( (__k * 1103515245 + 12345) & 2147483647 )); return "$(( (__k >> 16) & 1 ))"; }}
"""
_LIMITS: Final = "exec 9>&1 >/dev/null 2>/dev/null; ulimit -t 4; ulimit -f 0; __n=0 __k=0 __end=$(printf '\\036')\n"


class Ran(NamedTuple):
    """A command that a shell ran: its words with an end mark after each, and its directory where that is known."""

    words: str
    cwd: str

    @property
    def name(self) -> str:
        """Return the name of the program."""
        return self.words.partition(_WORD)[0]


class Seen(NamedTuple):
    """A command that we saw, and the directory it runs in where that is known."""

    fields: tuple[Field, ...]
    cwd: str | None


class Reading(NamedTuple):
    """What we see in a script."""

    commands: list[Seen]
    refused: bool


class Failure(NamedTuple):
    """A script that runs a command that we did not see."""

    script: Script
    kind: str
    ran: Ran
    seen: list[Seen]

    def __str__(self) -> str:
        """Return the script and the command, for a person."""
        words = self.ran.words.split(_WORD)[:-1]
        known = "\n".join(f"    {' '.join(_shown(field) for field in seen.fields)}" for seen in self.seen)
        environment = f"\n  environment {self.script.environment}" if self.script.environment else ""
        return f"{self.kind}: {words}{environment}\n  script {self.script.text!r}\n  seen\n{known}"


def _shown(field: Field) -> str:
    return repr(field.text) if field.kind == "exact" else f"{field.kind}({field.text!r}{', splits' * field.splits})"


class Recording(ScriptEvaluator):
    """A run that notes the words of every program instead of judging them."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, judge_words)
        self.seen: list[Seen] = []

    def _run_program(self, name: Field, rest: Sequence[Field], world: ShellState) -> Outcome:
        self.seen.append(Seen((name, *rest), world.cwd))
        return Outcome((world,), (world,))


def read_script(text: str, folder: str, *, posix: bool) -> Reading:
    """Return the commands that we see in a script."""
    trace = Trace(LocalFiles(HOME))
    run = Recording(trace)
    run.judge(text, folder, posix=posix)
    return Reading(run.seen, any(doubt.unbounded for doubt in trace.doubts))


class Shell(NamedTuple):
    """A real shell; `posix` where scripts for it are read as those of any shell."""

    path: str
    posix: bool

    def run(self, scripts: Sequence[Script], folder: str) -> list[list[Ran]]:
        """Return what each of the scripts runs."""
        results: list[list[Ran]] = []
        for start in range(0, len(scripts), _BATCH):
            results.extend(self._run_batch(scripts[start : start + _BATCH], folder))
        return results

    def _run_batch(self, scripts: Sequence[Script], folder: str) -> list[list[Ran]]:
        lines = [
            f"( __n={number} __k={script.seed % 1_000_000}; {_exports(script)}eval {shlex.quote(script.text)}\n"
            f"printf '%s\\037' {number} {_DONE} \"$__end\" >&9 )\n"
            for number, script in enumerate(scripts)
        ]
        output = _output_of([self.path, "-c", self._prelude() + "".join(lines)], folder, _BATCH_TIMEOUT_S)
        if output is None:
            return [self.run_alone(script, folder) for script in scripts]
        results, done = _records(output, len(scripts))
        if not self.posix:
            for number, script in enumerate(scripts):
                if number not in done and "\n" in script.text:
                    results[number] = self.run_alone(script, folder)
        return results

    def run_alone(self, script: Script, folder: str) -> list[Ran]:
        """Return what one script runs in a process of its own; nothing where it does not end."""
        text = f"{self._prelude()}__k={script.seed % 1_000_000}; {_exports(script)}\n{script.text}"
        output = _output_of([self.path, "-c", text], folder, _ALONE_TIMEOUT_S)
        return _records(output, 1)[0][0] if output is not None else []

    def _prelude(self) -> str:
        # No command is used for it: a script can disable those, or put others in their place.
        check = "" if self.posix else "; [[ $__d -ef . ]] || __d="
        words = '"$@"' if self.posix else f"\"${{@//$'\\n'/{_LINE}}}\""
        functions = "".join(
            f"{name}() {{ "
            + _RECORD.format(check=check, name=name, words=words, output=f"; printf '%s' '{text}'" * bool(text))
            for name, text in PROGRAMS.items()
        )
        missing = "command_not_found_handle() { " + _RECORD.format(check=check, name="", words=words, output="")
        return _LIMITS + functions + (missing if not self.posix else "")


def find_shell(name: str) -> Shell | None:
    """Return a shell of this machine."""
    path = shutil.which(name)
    return Shell(path, posix=name != "bash") if path is not None else None


def _exports(script: Script) -> str:
    return "".join(f"export {name}={shlex.quote(value)}; " for name, value in script.environment.items())


def _output_of(words: Sequence[str], folder: str, timeout_s: float) -> str | None:
    """Return what a process prints, or None where it does not end in time."""
    process = subprocess.Popen(
        words, cwd=folder, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return process.communicate(timeout=timeout_s)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def _records(output: str, count: int) -> tuple[list[list[Ran]], set[int]]:
    """Return the commands of each script, and which scripts came to their end."""
    results: list[list[Ran]] = [[] for _ in range(count)]
    done: set[int] = set()
    for record in output.split(_END + _WORD)[:-1]:
        number, _, rest = record.partition(_WORD)
        if not number.isdigit():
            continue
        if rest == _DONE + _WORD:
            done.add(int(number))
        else:
            cwd, _, words = rest.partition(_WORD)
            results[int(number)].append(Ran(words.replace(_LINE, "\n"), cwd))
    return results, done


# Comparing

_ANY: Final = f"[^{_WORD}]*"
_CLASS: Final = re.compile(r"\[[!^]?(?:\[:\w+:\]|.)(?:\[:\w+:\]|[^\]])*\]", re.DOTALL)


def _field_pattern(field: Field) -> str:
    """Return the pattern of the words that a field stands for."""
    if field.kind == "exact":
        return re.escape(field.text) + _WORD
    if field.kind == "pattern":
        # As often as there are matches, or as it was written where there is none.
        # A mark in brackets stands for itself; the script may have written it so.
        written = "|".join(map(re.escape, (field.text, re.sub(r"\[([*?\[])\]", r"\1", field.text))))
        if field.numbered:
            written = written.replace(re.escape("*"), _ANY)
        return f"(?:(?:{written}){_WORD}|(?:{_glob_pattern(field.text)}{_WORD})+)"
    prefix = re.escape(field.text) if field.kind == "unknown" else ""
    if not field.splits:
        return prefix + _ANY + _WORD
    return f"(?:{prefix}{_ANY}{_WORD}(?:{_ANY}{_WORD})*)" + "?" * (not prefix)


def _glob_pattern(text: str) -> str:
    pattern, at = "", 0
    while at < len(text):
        if text[at] in "*?":
            pattern += _ANY if text[at] == "*" else f"[^{_WORD}]"
        elif text[at] == "[" and (found := _CLASS.match(text, at)):
            pattern += f"[^{_WORD}]"
            at = found.end() - 1
        else:
            pattern += re.escape(text[at])
        at += 1
    return pattern


def _matches(seen: Seen, ran: Ran) -> bool:
    if re.fullmatch("".join(map(_field_pattern, seen.fields)), ran.words, re.DOTALL) is None:
        return False
    below = [field for field in seen.fields if field.kind == "below" and field.text != "/dev/fd"]
    words = ran.words.split(_WORD)[:-1]
    return not ran.cwd or all(any(_is_below(word, field.text, ran.cwd) for word in words) for field in below)


def _is_below(word: str, folder: str, cwd: str) -> bool:
    path = without_dots(word if word.startswith("/") else f"{cwd}/{word}")
    return path == folder or path.startswith(f"{folder}/")


def _stands_in(seen: Seen, ran: Ran) -> bool:
    return (
        seen.cwd is None
        or not ran.cwd
        or seen.cwd == ran.cwd
        or os.path.realpath(seen.cwd) == os.path.realpath(ran.cwd)
    )


def find_missed(reading: Reading, results: Iterable[Ran], *, by_name: bool) -> tuple[str, Ran] | None:
    """Return the first command that was run and not seen, and what is wrong with it; `by_name` whatever its words."""
    for ran in results:
        if not any(seen.fields[0].kind != "exact" or seen.fields[0].text == ran.name for seen in reading.commands):
            return "program not seen", ran
        if by_name:
            continue
        matching = [seen for seen in reading.commands if _matches(seen, ran)]
        if not matching:
            return "other words", ran
        if not any(_stands_in(seen, ran) for seen in matching):
            return "other directory", ran
    return None


class Oracle:
    """Compares scripts, and counts."""

    def __init__(self, shell: Shell, folder: str) -> None:
        self.shell = shell
        self.folder = folder
        self.figures: Counter[str] = Counter()

    def check(self, scripts: Sequence[Script]) -> list[Failure]:
        """Return the scripts that run a command that we did not see."""
        readings = [read_script(script.text, self.folder, posix=self.shell.posix) for script in scripts]
        open_ones = [index for index, reading in enumerate(readings) if not reading.refused]
        results = self.shell.run([scripts[index] for index in open_ones], self.folder)
        self.figures.update(
            scripts=len(scripts), refused=len(scripts) - len(open_ones), commands=sum(map(len, results))
        )
        suspects = [
            scripts[index]
            for index, result in zip(open_ones, results, strict=True)
            if find_missed(readings[index], result, by_name=self.shell.posix) is not None
        ]
        return [failure for script in suspects if (failure := self.check_alone(script)) is not None]

    def check_alone(self, script: Script) -> Failure | None:
        """Return what is wrong with one script, which runs in a process of its own."""
        reading = read_script(script.text, self.folder, posix=self.shell.posix)
        if reading.refused:
            return None
        missed = find_missed(reading, self.shell.run_alone(script, self.folder), by_name=self.shell.posix)
        return Failure(script, *missed, reading.commands) if missed is not None else None

    def minimise(self, failure: Failure) -> Failure:
        """Return the failure with as little of its script as still fails in the same way."""
        smallest = failure

        def fails(text: str, environment: dict[str, str]) -> bool:
            nonlocal smallest
            found = self.check_alone(Script(text, environment, failure.script.seed)) if is_safe(text) else None
            if found is None or found.kind != failure.kind or found.ran.name != failure.ran.name:
                return False
            smallest = found
            return True

        if failure.script.environment:
            fails(failure.script.text, {})
        environment = smallest.script.environment
        minimise(tokens(failure.script.text), lambda text: fails(text, environment))
        return smallest


def minimise(parts: Sequence[str], fails: Callable[[str], bool]) -> list[str]:
    """Return as few of the parts as still fail, within some tries: ever smaller stretches are left out."""
    kept, tries = list(parts), _MAX_TRIES
    size = max(1, len(kept) // 2)
    while True:
        at, before = 0, len(kept)
        while at < len(kept) and tries:
            shorter = kept[:at] + kept[at + size :]
            tries -= 1
            if shorter and fails("".join(shorter)):
                kept = shorter
            else:
                at += size
        if not tries or (size == 1 and len(kept) == before):
            return kept
        size = max(1, size // 2)


def make_tree(folder: Path) -> str:
    """Make files for wildcards to match; return where scripts start."""
    start = folder / "one" / "two" / "start"
    for name in ("a", "b1", "d/a", "d/e/a", "q r", "-o", "ab"):
        path = start / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return str(start)
