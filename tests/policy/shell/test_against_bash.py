"""Our reading of a script against the real bash: every command that bash runs is one that we saw, word for word."""

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from remit.policy.files import SeenFiles
from remit.policy.shell.run import Run
from remit.policy.shell.world import Field, Outcome, World
from remit.policy.trace import Trace

BASH: Final = shutil.which("bash")
SCRIPTS: Final = 600
BATCHES: Final = 6
HOME: Final = "/home/somebody"
ATOMS: Final = (
    "a", "b1", "/x", "../y", "'q r'", '"d q"', '"$v"', "$v", "${v}", '"${v}z"', "$w", "{a,b}", "{1..3}", "x{,y}z",
    "\\;",
    '\\"', "$'t\\x41\\n'", '"a\\$b"', "$(zz k)", '"$(zz k)"', "`zz k`", "$((1+2))", "#c", "a#b", "~", "=", "-o",
    "--k=v",
    '"a`zz`b"', "${v:-d}", "${u:-d e}", "${v:+p}", '"${v%a}"', "${w#*a}", "$1", '"$@"', "*", "?", "[ab]", "{x", "y}",
    "\\\n",
    "a\\\nb", '"l1\nl2"', "!", "{}", "{a,{b,c}}", '"{a,b}"', "'a'\"b\"c", '$"x"', "\\ ", "${#v}", "$?", "a=b", "%s",
    "${v/a/b}", '"$v"$w', '{a,"b c"}', "${v,,}", "{$v,$w}", "\\\\", '"\\\\"', '""', "''", '"$u"', "$u",
)  # fmt: skip
BODIES: Final = ("hi", "$v x", "$(zz)", "a \\$x `zz`", "l\\\\ ")
VALUES: Final = ("1", "'a b'", '"x y"', "$v", "abc", "{a,b}", "~", "", "$(zz)", "a\\ b")
# Prints the words of every command that bash does not find, in one piece, and fails now and then.
RECORD: Final = """command_not_found_handle() {
  local record; printf -v record '%s\\037' "$@"; printf '%s\\036' "$record" >&FD; return $((RANDOM % 2)); }
"""


class Recording(Run):
    """A run that notes the words of every program instead of judging them."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.seen: list[list[Field]] = []

    def _program(self, name: Field, rest: Sequence[Field], world: World) -> Outcome:
        self.seen.append([name, *rest])
        return Outcome((world,), (world,))


def word(chance: random.Random) -> str:
    return "".join(chance.choice(ATOMS) for _ in range(chance.choice((1, 1, 1, 2, 2, 3))))


def simple(chance: random.Random) -> str:
    count = chance.choice((0, 0, 0, 1, 2))
    before = "".join(f"{chance.choice('vwn')}={chance.choice(VALUES)} " for _ in range(count))
    if before and chance.random() < 0.15:
        return before.strip()
    text = f"{before}{chance.choice(('cmd', 'c2', 'c3'))} {' '.join(word(chance) for _ in range(chance.randint(0, 4)))}"
    kind = chance.random()
    if kind < 0.1:
        text += chance.choice((" >/dev/null", " 2>&1", " </dev/null", ' <<<"$v"', " 2>/dev/null", " >&2"))
    elif kind < 0.16:
        text += f" <<E\n{chance.choice(BODIES)}\nE\n"
    return text


def ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}; "


def script(chance: random.Random, depth: int = 0) -> str:
    def inner() -> str:
        return script(chance, depth + 1)

    kind = chance.random()
    if depth > 2 or kind < 0.55:
        return simple(chance)
    if kind < 0.75:
        first = inner()
        return (
            first + inner() if first.endswith("\n") else first + chance.choice((" ; ", " && ", " || ", "\n")) + inner()
        )
    forms = (
        lambda: f"( {inner()}\n)",
        lambda: f"{{ {ended(inner())}}}",
        lambda: f"if {ended(inner())}then {ended(inner())}else {ended(inner())}fi",
        lambda: f"for v in {word(chance)} {word(chance)}; do {ended(inner())}done",
        lambda: f"f() {{ {ended(inner())}}}; f {word(chance)}",
        lambda: f"case {word(chance)} in a|b) {inner()}\n;; *) {inner()}\n;; esac",
        lambda: f"! {inner()}",
        lambda: f"[[ {chance.choice(('a == b', '-n $v', '$v == a*', 'x < y && a'))} ]]; {inner()}",
        lambda: f"set -- {word(chance)} {word(chance)}; shift; {inner()}",
        lambda: "eval '" + simple(chance).replace("'", "") + "'",
    )
    return chance.choice(forms)()


def ours(text: str, folder: Path) -> tuple[list[list[Field]], bool]:
    """The words of every program that we see, and whether anything is in doubt."""
    trace = Trace(SeenFiles(HOME))
    run = Recording(trace)
    run.judge(text, str(folder))
    return run.seen, bool(trace.doubts) or any(field.kind != "exact" for words in run.seen for field in words)


def theirs(text: str, folder: Path) -> list[list[str]]:
    """The words of every program that bash looks for."""
    reading, writing = os.pipe()
    subprocess.run(
        [str(BASH), "-c", RECORD.replace("FD", str(writing)) + text],
        cwd=folder, env={"PATH": "/nonexistent", "HOME": HOME, "LC_ALL": "C.UTF-8"}, pass_fds=(writing,),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as stream:
        return [record.split("\x1f")[:-1] for record in stream.read().split("\x1e")[:-1]]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_command_that_bash_runs_is_one_that_we_saw(batch: int, tmp_path: Path) -> None:
    certain = 0
    for seed in range(batch, SCRIPTS, BATCHES):
        text = script(random.Random(seed))
        seen, doubtful = ours(text, tmp_path)
        if doubtful:
            continue
        known = [[field.text for field in words] for words in seen]
        missed = [words for words in theirs(text, tmp_path) if words not in known]
        assert not missed, (text, missed, known)
        certain += 1
    assert certain > SCRIPTS / BATCHES / 10
