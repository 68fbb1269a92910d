"""Two judges, written apart, agree on every random case."""

import random
from typing import Final

import pytest

from remit.claims.mission import SIDE_EFFECT_CLASSES, Mission
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import judge
from remit.policy.engines import SessionStatus
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine
from tests.policy.judging import still
from tests.policy.obvious import verdict

pytestmark = pytest.mark.slow

CASES: Final = 20_000
# The tool, the argument that names its resource, what it does to it, and its side effect.
TOOLS: Final = {
    "Read": ("file_path", "read", "none"),
    "Write": ("file_path", "write", "internal_write"),
    "WebFetch": ("url", "contact", "none"),
    "delete_file": ("path", "delete", "internal_write"),
    "TodoWrite": ("", "", "state_change"),
}
ENTRIES: Final = (
    "Read",
    "Write",
    "WebFetch",
    "delete_file",
    "TodoWrite",
    "*",
    "Re*",
    "?rite",
    "[RW]*",
    "read",
    "Read ",
    "W*e",
)
NAMES: Final = ("a", "b", "src", "data[1]", "x.py", "y.md", "A", "..", ".", "a b")
SCOPE_NAMES: Final = ("a", "b", "src", "*", "**", "*.py", "?", "[ab]", "A", "x.py")
HOSTS: Final = (
    "example.com",
    "api.example.com",
    "EXAMPLE.com",
    "example.com.evil.org",
    "a.b.example.com",
    "example.com:8443",
)


def path(chance: random.Random, names: tuple[str, ...], *, absolute: bool) -> str:
    text = "/".join(chance.choice(names) for _ in range(chance.randint(1, 4)))
    return f"/{text}" if absolute else text


def url(chance: random.Random) -> str:
    scheme, host = chance.choice(("http", "https")), chance.choice(HOSTS)
    return f"{scheme}://{host}/{path(chance, ('a', 'b', 'v1', '..'), absolute=False)}"


def entry(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.05:
        return "**"
    if kind < 0.3:
        host = chance.choice(("example.com", "api.example.com", "*.example.com", "example.com:8443"))
        tail = chance.choice(("", "/", "/a", "/a/**", "/v1/", "/**"))
        return f"{chance.choice(('http', 'https'))}://{host}{tail}"
    text = path(chance, SCOPE_NAMES, absolute=chance.random() < 0.8)
    # A `**` alone means everything; as a relative name it is not asked for here.
    return (text if text != "**" else "a") + chance.choice(("", "", "/**"))


def mission(chance: random.Random) -> Mission:
    return Mission(
        agent_id="agent-1",
        mission="work",
        allowed_tools=tuple(chance.choices(ENTRIES, k=chance.randint(0, 4))),
        forbidden_tools=tuple(chance.choices(ENTRIES, k=chance.choice((0, 0, 1)))),
        resource_scope=tuple(entry(chance) for _ in range(chance.randint(0, 4))),
        allowed_side_effect_classes=tuple(chance.sample(SIDE_EFFECT_CLASSES, k=chance.randint(1, 4))),
        cwd=chance.choice((None, "/a", "/a/src")),
    )


def test_both_judges_agree_on_random_cases() -> None:
    chance = random.Random(20_000)
    engines, files = [NativeEngine()], TextFiles()
    for _ in range(CASES):
        asked = mission(chance)
        tool = chance.choice(list(TOOLS))
        argument, verb, side = TOOLS[tool]
        given = url(chance) if argument == "url" else path(chance, NAMES, absolute=chance.random() < 0.6)
        budget = chance.choice(((5, 5), (5, 5), (5, 5), (0, 5), (5, 0)))
        call = ToolCall(tool, {argument: given} if argument else {"todos": []})
        decision = judge(
            call, asked, SessionStatus("session-1", Budget(*budget)), engines=engines, files=files, clock=still
        )
        code = decision.code or ""
        named = given if argument else None
        expected = verdict(asked, tool, named, verb=verb, side_effect=side, budget=budget)
        same = code == expected or (expected == "out_of_scope" and code == "target_unknown")
        assert same, (asked, tool, given, code, expected)
