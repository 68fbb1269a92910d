"""What must hold for every passport and every call: nothing that only takes away can permit more."""

from typing import Final

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from remit.claims.mission import SIDE_EFFECT_CLASSES, Mission, narrow
from remit.errors import MissionWidened
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import Decision, judge
from remit.policy.engines import SessionStatus
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine
from tests.policy.judging import applied, still

STANDING: Final = SessionStatus("session-1", Budget(tool_calls=5, duration_s=60))
TOOL_ENTRIES: Final = st.sampled_from((
    "Read", "Write", "Bash", "WebFetch", "frobnicate", "*", "R*", "[WB]*",
    "Bash(cat)", "Bash(rm -rf)", "Bash(rm)", "*(cat)", "[WB]*(./x.sh)", "Bash(/a/x.sh)",
))  # fmt: skip
SCOPE_ENTRIES: Final = st.sampled_from(
    (
        "/a",
        "/a/**",
        "/a/b",
        "/a/*.py",
        "/a/**/c",
        "/",
        "b",
        "src/**",
        "https://h.example/v1/**",
        "https://*.example",
        "**",
    )
)
PATHS: Final = st.sampled_from(
    ("/a", "/a/b", "/a/x.py", "/a/b/c", "/b/x", "b", "../x", "/a/../b", "src/y", "~/x", "$X")
)
COMMANDS: Final = st.sampled_from(
    (
        "ls",
        "cat /a/b",
        "cat x | wc -l",
        "rm -rf b",
        "cd b && cat ../../x",
        "curl https://h.example/v1/y",
        "echo $(",
        "frob",
        "./x.sh",
        "cd b && ./x.sh",
        "env cat /a/b",
        "rm -rf b; $X",
    )
)
URLS: Final = st.sampled_from(
    ("https://h.example/v1/y", "https://h.example/", "http://h.example/v1/y", "https://127.0.0.1/")
)
MISSIONS: Final = st.builds(
    Mission,
    agent_id=st.just("agent-1"),
    mission=st.just("work"),
    allowed_tools=st.lists(TOOL_ENTRIES, max_size=4).map(tuple),
    forbidden_tools=st.lists(TOOL_ENTRIES, max_size=1).map(tuple),
    resource_scope=st.lists(SCOPE_ENTRIES, max_size=4).map(tuple),
    allowed_side_effect_classes=st.lists(st.sampled_from(SIDE_EFFECT_CLASSES), max_size=4, unique=True).map(tuple),
    cwd=st.sampled_from((None, "/a", "/a/b")),
)
CALLS: Final = st.one_of(
    PATHS.map(lambda path: ToolCall("Read", {"file_path": path})),
    PATHS.map(lambda path: ToolCall("Write", {"file_path": path, "content": "x"})),
    PATHS.map(lambda path: ToolCall("frobnicate", {"input": {"file": path}})),
    COMMANDS.map(lambda text: ToolCall("Bash", {"command": text})),
    URLS.map(lambda url: ToolCall("WebFetch", {"url": url, "prompt": "x"})),
)


def judged(mission: Mission, call: ToolCall) -> Decision:
    return judge(call, mission, STANDING, engines=[NativeEngine()], files=TextFiles(), clock=still)


@given(MISSIONS, CALLS, TOOL_ENTRIES)
def test_forbidding_one_more_tool_never_permits_more(mission: Mission, call: ToolCall, entry: str) -> None:
    stricter = structs.replace(mission, forbidden_tools=(*mission.forbidden_tools, entry))
    assert judged(mission, call).permits or not judged(stricter, call).permits


@given(MISSIONS, CALLS, st.randoms(use_true_random=False))
def test_order_and_duplicates_do_not_matter(mission: Mission, call: ToolCall, chance: "st.Random") -> None:  # type: ignore[name-defined]
    # Relative paths may start at the first directory of the scope: where the order counts, it is kept.
    assume(mission.cwd is not None)
    mixed = {
        name: tuple(chance.sample(values * 2, k=len(values) * 2))
        for name in ("allowed_tools", "forbidden_tools", "resource_scope", "allowed_side_effect_classes")
        if (values := getattr(mission, name))
    }
    assert judged(structs.replace(mission, **mixed), call).code == judged(mission, call).code


DEEPER: Final = st.sampled_from(("", "", "/b", "/b/**", "/*.py", "/x.py"))


@given(MISSIONS, st.data())
def test_a_child_never_permits_what_its_parent_denies(parent: Mission, data: st.DataObject) -> None:
    call = data.draw(CALLS)
    scope = [entry.removesuffix("/**") + data.draw(DEEPER) for entry in parent.resource_scope]
    child = structs.replace(
        parent,
        allowed_tools=tuple(data.draw(st.sampled_from((entry, "Read"))) for entry in parent.allowed_tools),
        resource_scope=tuple(scope),
        cwd=data.draw(st.sampled_from((None, "/a", "/a/b"))),
    )
    try:
        narrowed = narrow(parent, child)
    except MissionWidened:
        return
    # What a relative path means depends on where it starts: parent and child are asked about the same place.
    asked = call._replace(cwd=narrowed.cwd)
    if narrowed.cwd is not None and judged(narrowed, asked).permits:
        assert judged(parent, asked).permits


@given(MISSIONS, CALLS)
def test_an_empty_passport_permits_nothing(mission: Mission, call: ToolCall) -> None:
    assert not judged(structs.replace(mission, allowed_tools=()), call).permits


@given(MISSIONS, CALLS)
def test_the_remedy_permits_and_nothing_smaller_does(mission: Mission, call: ToolCall) -> None:
    decision = judged(mission, call)
    if decision.remedy is None or not decision.remedy.changes:
        return
    changes = decision.remedy.changes
    assert judged(applied(mission, changes, STANDING)[0], call).permits
    for index in range(len(changes)):
        assert not judged(applied(mission, changes[:index] + changes[index + 1 :], STANDING)[0], call).permits
