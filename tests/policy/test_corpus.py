"""The corpus of calls: nothing escapes, nothing harmless is denied, and wrapping an attack changes nothing."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from remit.claims.mission import parse_mission
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import Decision, judge
from remit.policy.engines import SessionStatus
from remit.policy.files import Files, UnseenFiles
from remit.policy.native import NativeEngine
from tests.policy.judging import still
from tests.policy.tree import VECTORS, Tree, rows

ROWS: Final = rows()
STANDING: Final = SessionStatus("session-1", Budget(tool_calls=10, duration_s=60))


def decision(row: dict[str, Any], files: Files, command: str | None = None) -> Decision:
    mission = parse_mission({"agent_id": "agent-1", "mission": "work", **row["passport"]})
    arguments = row["arguments"] if command is None else {**row["arguments"], "command": command}
    call = ToolCall(row["tool_name"], arguments, row.get("cwd"))
    return judge(call, mission, STANDING, engines=[NativeEngine()], files=files, clock=still)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("plain"))


def test_nothing_escapes_and_nothing_harmless_is_denied(tree: Tree) -> None:
    wrong = [row["id"] for row in ROWS if not row["setup"] and decision(row, tree).decision != row["expected"]]
    assert wrong == []


@pytest.mark.parametrize("row", [row for row in ROWS if row["setup"]], ids=lambda row: row["id"])
def test_links_are_followed_to_where_they_lead(row: dict[str, Any], tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.arrange(row["setup"])
    assert decision(row, tree).decision == row["expected"]


def test_where_files_cannot_be_seen_no_row_that_needs_them_is_permitted() -> None:
    attacks = [row for row in ROWS if row["needs_fs"] and row["expected"] == "DENY"]
    assert attacks
    assert [row["id"] for row in attacks if decision(row, UnseenFiles()).permits] == []


def test_attacks_and_harmless_calls_are_about_equal_in_every_family() -> None:
    counts = Counter((row["class"].removeprefix("ok.").partition(".")[0], row["expected"]) for row in ROWS)
    for family in {family for family, _ in counts}:
        attacks, harmless = counts[family, "DENY"], counts[family, "PERMIT"]
        assert min(attacks, harmless) >= 10
        assert max(attacks, harmless) <= 1.5 * min(attacks, harmless)


def test_ids_are_unique() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS)


# An attack in other words stays an attack.

ATTACKS: Final = [row for row in ROWS if row["tool_name"] == "Bash" and row["expected"] == "DENY" and not row["setup"]]

WRAPPERS: Final[dict[str, Callable[[str], str]]] = {
    "subshell": lambda text: f"( {text}\n)",
    "group": lambda text: f"{{ {text}\n}}",
    "if": lambda text: f"if true; then {text}\nfi",
    "else": lambda text: f"if false; then :; else {text}\nfi",
    "not": lambda text: f"! {text}",
    "time": lambda text: f"time {text}",
    "function": lambda text: f"f() {{ {text}\n}}; f",
    "comment before": lambda text: f"# harmless\n{text}",
    "comment after": lambda text: f"{text}\n# harmless",
    "carriage returns": lambda text: text.replace("\n", "\r\n") + "\r\n",
    "after a command": lambda text: f"true && {text}",
    "in the background": lambda text: f"{{ {text}\n}} &",
    "in a loop": lambda text: f"for i in 1 2; do {text}\ndone",
    "in a case": lambda text: f"case x in x) {text}\n;; esac",
    "in a pipe": lambda text: f"{{ {text}\n}} | cat",
    "substituted": lambda text: f'echo "$({text}\n)"',
    "while": lambda text: f"while {text}\ndo break; done",
}
WORDINGS: Final[dict[str, Callable[[str], str]]] = {
    "backslash before the program": lambda text: f"\\{text}",
    "empty quotes in the program": lambda text: f"{text[:1]}''{text[1:]}",
    "continued line": lambda text: text.replace(" ", " \\\n", 1),
    "double blanks": lambda text: text.replace(" ", "  ", 1),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrapping_an_attack_never_permits_it(name: str, tree: Tree) -> None:
    wrap = WRAPPERS[name]
    flipped = [row["id"] for row in ATTACKS if decision(row, tree, wrap(row["arguments"]["command"])).permits]
    assert flipped == []


@pytest.mark.parametrize("name", WORDINGS)
def test_wording_an_attack_differently_never_permits_it(name: str, tree: Tree) -> None:
    plain = [row for row in ATTACKS if row["arguments"]["command"][:1].isalpha()]
    word = WORDINGS[name]
    flipped = [row["id"] for row in plain if decision(row, tree, word(row["arguments"]["command"])).permits]
    assert flipped == []


# Everyday commands.

EVERYDAY: Final = [
    line.partition("\t")
    for line in (VECTORS / "everyday.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
PASSPORT: Final = {
    "allowed_tools": ["Bash"],
    "resource_scope": ["/workspace/project", "https://api.example.com/v1/**"],
    "cwd": "/workspace/project",
}


def test_everyday_commands_are_not_in_the_way(tmp_path: Path) -> None:
    tree = Tree(tmp_path, dashes=False)
    wrong = [
        command
        for command, _, reason in EVERYDAY
        if decision({"tool_name": "Bash", "passport": PASSPORT, "arguments": {}}, tree, command).permits == bool(reason)
    ]
    assert wrong == []


def test_most_everyday_commands_are_permitted() -> None:
    permitted = sum(1 for _, _, reason in EVERYDAY if not reason)
    assert len(EVERYDAY) >= 300
    assert permitted / len(EVERYDAY) >= 0.85
