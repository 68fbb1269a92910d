"""The work is bounded: four times the text is at most about four times the steps, whatever the text is.

Steps are counted, not timed: every call of a function of ours or of the interpreter is one.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

from remit.claims.mission import Mission
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import judge
from remit.policy.engines import SessionStatus
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine
from tests.policy.judging import still

pytestmark = pytest.mark.slow

SIZE: Final = 65_536
MISSION: Final = Mission(
    agent_id="agent-1", mission="work", allowed_tools=("*",), resource_scope=("/a", "/b/*/c*d*/**/x*"), cwd="/a"
)
PIECES: Final = (
    "ls;", "(", "$(", "((", "`", "{", '"$(', "if true; then ", "case x in a) ", "<<a ", "$((", "${x:-", "[[ ", "a|",
    "<", "\n", "'", '"', "a=(", "@(", "! ", "f() ", "x[", "a &&", "{a,", "{a,b}", "a=$a$a;", "for x in a b; do ",
    "f(){ f;f; };", "*/", "../", "$x", "\\\n", "\\", "{1..9}", "cat <<E\nE\n", " -x", " a", "cd a;", "cd ..;",
    "ln -s a b;", "[", "]", "$'\\x41'", "eval 'ls';", "env ", "nice ", "find . -exec ", "((x++));",
    "while true; do ", "A=B ", "<(ls)", "echo hi > x;", "#c\n", "sed 's/a/b/;", "awk '{", "python3 -c '1+",
    "bash -c '",
)  # fmt: skip
ARGUMENTS: Final = (
    ("Read", "file_path"),
    ("WebFetch", "url"),
    ("frobnicate", "note"),
    ("Glob", "pattern"),
    ("query", "sql"),
)


def steps(work: Callable[[], object]) -> int:
    """The number of calls that some work takes."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def work(tool: str, arguments: dict[str, Any]) -> Callable[[], object]:
    standing, files = SessionStatus("session-1", Budget(5, 5)), TextFiles()
    return lambda: judge(
        ToolCall(tool, arguments), MISSION, standing, engines=[NativeEngine()], files=files, clock=still
    )


def check_bounded(tool: str, argument: str, piece: str) -> None:
    few, many = (steps(work(tool, {argument: (piece * SIZE)[:size]})) for size in (SIZE // 4, SIZE))
    assert many <= 5 * few + 20_000


@pytest.mark.parametrize("piece", PIECES)
def test_no_command_makes_the_work_grow_faster_than_its_text(piece: str) -> None:
    check_bounded("Bash", "command", piece)


@pytest.mark.parametrize("piece", PIECES)
def test_no_argument_makes_the_work_grow_faster_than_its_text(piece: str) -> None:
    for tool, argument in ARGUMENTS:
        check_bounded(tool, argument, piece)
