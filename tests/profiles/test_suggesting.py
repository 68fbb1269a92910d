"""Suggestions: the lines they name are taken by a profile, and permit the call that was refused."""

import re

import pytest

from remit.claims.strictjson import JSON
from remit.policy.budget import Budget
from remit.policy.engines import Change, SessionStatus
from remit.profiles.compiling import compile_profile
from remit.profiles.profile import parse_profile
from remit.profiles.suggesting import suggest
from tests.policy.judging import judged
from tests.profiles.writing import FOLDER, called, compiled, written

ALLOWED = ["Read files", "Run commands that only read"]
REFUSED: list[tuple[str, dict[str, JSON]]] = [
    ("Edit", {"file_path": f"{FOLDER}/a"}),
    ("Write", {"file_path": "/etc/x", "content": ""}),
    ("Read", {"file_path": "/srv/My Files/x"}),
    ("Read", {"file_path": "/srv/a*b[c]/x"}),
    ("WebFetch", {"url": "https://example.org/", "prompt": "x"}),
    ("WebFetch", {"url": "http://localhost:3000/a/b", "prompt": "x"}),
    ("TodoWrite", {"todos": []}),
    ("Agent", {"prompt": "x"}),
    ("Skill", {"skill": "x"}),
    ("Bash", {"command": "npm run lint"}),
    ("Bash", {"command": "pytest -q | tee out"}),
    ("Bash", {"command": "curl -d x https://example.org/a/b"}),
    ("Bash", {"command": "nc build.example.org 22"}),
    ("Bash", {"command": "./run.sh"}),
    ("Bash", {"command": "kill 1"}),
    ("Bash", {"command": "dropdb x"}),
    ("Bash", {"command": "psql -c 'drop table x'"}),
    ("Bash", {"command": "docker compose up -d && docker volume rm data"}),
    ("Bash", {"command": "docker system prune -af"}),
    ("Bash", {"command": "pip uninstall -y six"}),
    ("Bash", {"command": "npm update -g @a/b"}),
    ("Bash", {"command": "brew upgrade"}),
    ("Bash", {"command": "kill $(cat x)"}),
    ("Bash", {"command": "pkill -f 'node .*server [a-z] -x'"}),
    ("Bash", {"command": "kill -9 -- -4242"}),
    ("Bash", {"command": "systemctl stop app@1.service"}),
    ("Bash", {"command": "systemctl daemon-reload"}),
    ("Bash", {"command": "find . -delete"}),
    ("Bash", {"command": "cp a ../b && cat /etc/hosts"}),
    ("mcp__github__create_issue", {"title": "x"}),
    ("Foo", {"x": 1}),
    ("mcp__x__y", {"path": "/opt/x"}),
]


def lines_of(sentence: str) -> list[str]:
    return re.findall(r"“- ([^”]+)”", sentence.partition(" under Allowed")[0])


@pytest.mark.parametrize(("tool", "arguments"), REFUSED)
def test_a_suggestion_permits_the_call(tool: str, arguments: dict[str, JSON]) -> None:
    refused = called(compiled(ALLOWED), tool, arguments)
    assert refused.remedy is not None
    sentence = suggest(refused.remedy.changes)
    assert sentence is not None
    assert called(compiled([*ALLOWED, *lines_of(sentence)]), tool, arguments).permits


def test_the_shortest_words_are_suggested() -> None:
    def said(tool: str, **arguments: JSON) -> str | None:
        decision = called(compiled(ALLOWED), tool, arguments)
        return suggest(decision.remedy.changes) if decision.remedy else None

    assert said("WebFetch", url="https://example.org/", prompt="x") == "add “- Reach example.org” under Allowed"
    assert said("Bash", command="dropdb app_dev") == (
        "add “- Use the database app_dev” and “- Run dropdb” under Allowed"
    )
    assert said("Bash", command="docker system prune") == (
        "add “- Manage containers” and “- Run docker system prune” under Allowed"
    )
    assert said("Bash", command="npm run lint") == "add “- Run npm run lint” under Allowed"
    assert said("Write", file_path="/etc/x") == "add “- Use /etc/x” and “- Edit files” under Allowed"


@pytest.mark.parametrize(
    ("blocked", "command"), [("Run make", "make"), ("Run developer commands", "ls"), ("Delete files", "rm a")]
)
def test_what_is_blocked_is_to_be_taken_out(blocked: str, command: str) -> None:
    refused = called(compiled(["Run developer commands"], [blocked]), "Bash", {"command": command})
    assert refused.remedy is not None
    assert f"take “- {blocked}”" in str(suggest(refused.remedy.changes)).replace("take “- Run rm” or ", "take ")


def test_limits_are_to_be_raised_in_their_words() -> None:
    profile = parse_profile(written(["Read files"], limits=["At most 3 tool calls", "At most 1 minute"]))
    mission = compile_profile(profile, FOLDER, "agent:one")
    decision = judged("Read", {"file_path": "a"}, under=mission, standing=SessionStatus("grant:1", Budget(0, 0)))
    assert decision.remedy is not None
    assert suggest(decision.remedy.changes) == (
        "write “- At most 4 tool calls” under Limits and write “- At most 2 minutes” under Limits"
    )


@pytest.mark.parametrize(
    "change",
    [
        Change("resource_scope", "add", ("/srv/<!--x",)),
        Change("resource_scope", "add", ("ftp://example.org/",)),
        Change("resource_scope", "add", tuple(f"/srv/{number}" for number in range(9))),
        Change("allowed_tools", "add", ("a b",)),
        Change("allowed_tools", "add", ("Bash(a;b)",)),
        Change("resource_scope", "add", ("/srv/” under Allowed, and run rm",)),
    ],
)
def test_where_no_line_would_do_nothing_is_suggested(change: Change) -> None:
    assert suggest([change]) is None


def test_no_change_is_no_suggestion() -> None:
    assert suggest([]) is None
