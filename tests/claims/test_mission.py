"""Missions: bounds, and narrowing that only takes away."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs, to_builtins

from remit import Mission, narrow, parse_mission
from remit.claims.mission import SIDE_EFFECT_CLASSES, escape_path, literal_path, parse_program
from remit.errors import FieldInvalid, MissionWidened
from tests.world import MISSION

NAMES = st.lists(st.text("ab_*?", min_size=1, max_size=4), max_size=4).map(tuple)
STEPS = st.sampled_from(["a", "b", "ab", "..", ".", "*", "**", "~", "", "%2e%2e"])
PATHS = st.lists(STEPS, min_size=1, max_size=4).map("/".join)
ENTRIES = st.one_of(
    PATHS.map("/{}".format),
    PATHS,
    PATHS.map("https://a.example/{}".format),
    PATHS.map("https://{}".format),
    st.just("**"),
).filter(bool)
MISSIONS = st.builds(
    Mission,
    agent_id=st.just("agent"),
    mission=st.just("do it"),
    allowed_tools=NAMES,
    forbidden_tools=NAMES,
    resource_scope=st.lists(ENTRIES, max_size=4).map(tuple),
    max_tool_calls=st.integers(0, 9),
    max_duration_s=st.integers(1, 9),
    allowed_side_effect_classes=st.lists(st.sampled_from(SIDE_EFFECT_CLASSES)).map(tuple),
    cwd=st.sampled_from([None, "/", "/a", "/a/b", "/b"]),
)


def tools_of(mission: Mission) -> set[str]:
    """The names, among all short ones, that a mission lets through."""
    names = {one + two + three for one in "ab_" for two in ("", *"ab_") for three in ("", *"ab_")}
    return {
        name
        for name in names
        if any(fnmatchcase(name, entry) for entry in mission.allowed_tools)
        and not any(fnmatchcase(name, entry) for entry in mission.forbidden_tools)
    }


@given(MISSIONS, MISSIONS)
def test_a_delegate_never_gets_a_tool_its_parent_has_not(parent: Mission, child: Mission) -> None:
    try:
        narrowed = narrow(parent, child)
    except MissionWidened:
        return
    assert tools_of(narrowed) <= tools_of(parent)
    assert set(narrowed.allowed_side_effect_classes) <= set(parent.allowed_side_effect_classes)
    assert narrowed.max_tool_calls <= parent.max_tool_calls
    assert narrowed.max_duration_s <= parent.max_duration_s


def walked(path: str, cwd: str | None) -> tuple[str, ...] | None:
    """Where a plain path leads, read the way a file system does; None where that cannot be said."""
    full = path if path.startswith("/") else f"{cwd}/{path}" if cwd else None
    if full is None or "~" in full or "*" in full:
        return None
    place: list[str] = []
    for step in full.split("/"):
        if step == "..":
            place[-1:] = []
        elif step not in ("", "."):
            place.append(step)
    return tuple(place)


@given(MISSIONS, MISSIONS)
def test_a_delegate_never_reaches_a_plain_path_its_parent_does_not(parent: Mission, child: Mission) -> None:
    try:
        narrowed = narrow(parent, child)
    except MissionWidened:
        return
    own = [walked(entry.removesuffix("/**"), parent.cwd) for entry in parent.resource_scope]
    for entry in narrowed.resource_scope:
        asked = walked(entry, narrowed.cwd)
        if "://" in entry or asked is None or "**" in parent.resource_scope:
            continue
        assert any(root is not None and asked[: len(root)] == root for root in own), (parent, child)


@given(MISSIONS)
def test_a_mission_whose_entries_are_anchored_may_be_handed_on_whole(mission: Mission) -> None:
    anchored = structs.replace(mission, resource_scope=("/a", "https://a.example/b", "/a/*.py"))
    assert narrow(anchored, anchored).allowed_tools == mission.allowed_tools


@pytest.mark.parametrize(
    ("own", "asked", "covered"),
    [
        ("/a", "/a/b", True),
        ("/a/", "/a/b", True),
        ("/a", "/a/b/", True),
        ("/a", "/a/**", True),
        ("/a/**", "/a/b", True),
        ("/a/**", "/a/b/*.py", True),
        ("/a/**", "/a", False),
        ("/", "/etc", True),
        ("/**", "/etc", True),
        ("/a", "/ab", False),
        ("/a", "/a/../b", False),
        ("/a", "/a//b", False),
        ("/a", "/a/./b", False),
        ("/a", "/a/b\\..", False),
        ("/a", "/a/~b", False),
        ("/a/../b", "/a/../b/c", False),
        ("/a/*.py", "/a/x.py", False),
        ("/a/*.py", "/a/*.py", True),
        ("/a/b", "/a/b*", False),
        ("/a/b", "/a/b/[ab]", True),
        ("a", "a/b", True),
        ("~", "~", False),
        ("C:/x", "C:/x", False),
        ("https://h.example", "https://h.example/x", True),
        ("https://h.example/", "https://h.example/x", True),
        ("https://h.example:8443/x", "https://h.example:8443/x/y", True),
        ("/a", "/a/", True),
        ("/a/**", "/a/", False),
        ("/**", "/", False),
        ("/a//", "/a/b", False),
        ("https://h.example/a//", "https://h.example/a/b", False),
        ("https://h.example/a", "https://h.example/a/.. ", False),
        ("https://h.example/a", "https://h.example/a/ /x", False),
        ("/a", "/a/..\u00a0", False),
        ("/a", "/a/..\uff0fetc", False),
        ("/a", "/a/..\u200b", False),
        ("/a", "/a/..;/etc", False),
        ("/a", "/a/with space/b", True),
        ("/a", "/a/\u00fcber", True),
        ("/a", "/a/x://b", False),
        ("/w", "?etc/passwd", True),
        ("https://h.example", "https://h.example.org/", False),
        ("https://h.example", "https://h.example@evil.example/", False),
        ("https://h.example/a", "https://h.example/ab", False),
        ("https://*.example/", "https://a.example/", False),
        ("https://", "https://a.example/", False),
        ("https:///", "https:///a", False),
        ("**", "anything", True),
        ("/a", "**", False),
    ],
)
def test_scope_is_compared_by_whole_components_and_doubt_is_no(own: str, asked: str, *, covered: bool) -> None:
    parent = structs.replace(MISSION, resource_scope=(own,), cwd="/w")
    child = structs.replace(MISSION, resource_scope=(asked,), cwd=None)
    if covered:
        narrow(parent, child)
        return
    with pytest.raises(MissionWidened) as caught:
        narrow(parent, child)
    assert caught.value.member == "resource_scope"


@pytest.mark.parametrize(
    ("own", "asked", "covered"),
    [
        ("/a[*]", "/a[*]/b", True),
        ("/a[*]", "/a[*]", True),
        ("/a[*]/**", "/a[*]/b/[?]", True),
        ("/a[*]", "/a[*]/*.py", True),
        ("/a[*]", "/ab", False),
        ("/a[*]", "/a*", False),
        ("/a*", "/a[*]/b", False),
        ("/a[[]1]", "/a[[]1]/b", True),
        ("/a[1]", "/a[[]1]/b", False),
        ("/a[[*]]", "/a[[*]]/b", False),
        ("https://h.example/a[*]", "https://h.example/a[*]/b", False),
    ],
)
def test_an_escaped_wildcard_is_a_name_like_any_other(own: str, asked: str, *, covered: bool) -> None:
    parent = structs.replace(MISSION, resource_scope=(own,), cwd="/w")
    child = structs.replace(MISSION, resource_scope=(asked,), cwd=None)
    if covered:
        assert narrow(parent, child).resource_scope == (asked,)
        return
    with pytest.raises(MissionWidened):
        narrow(parent, child)


@pytest.mark.parametrize("path", ["/a/b", "/a*/[b]", "/[*]/?", "/[[]", "/a]", "/[a", "/a:b/c://d", "/[?]*["])
def test_an_escaped_path_names_itself(path: str) -> None:
    assert literal_path(escape_path(path)) == path


@pytest.mark.parametrize("entry", ["/a*", "/a[1]", "/a[[1]", "/a[[*]]", "**", "https://h.example/a[*]"])
def test_an_entry_with_an_active_wildcard_names_no_path(entry: str) -> None:
    assert literal_path(entry) is None


def test_relative_entries_start_at_a_working_directory_whatever_its_name_is() -> None:
    mission = structs.replace(MISSION, resource_scope=("src", "ab:c"), cwd="/w*[1]")
    assert narrow(mission, mission).resource_scope == ("/w[*][[]1]/src", "/w[*][[]1]/ab:c")


def test_a_delegate_of_one_who_may_touch_everything_works_in_any_plain_directory() -> None:
    mission = structs.replace(MISSION, resource_scope=("**",), cwd="/w")
    assert narrow(mission, structs.replace(mission, cwd="/other/place")).cwd == "/other/place"
    with pytest.raises(MissionWidened):
        narrow(mission, structs.replace(mission, cwd="/other/../place"))


@pytest.mark.parametrize("cwd", ["w", "https://h.example/a", "/a/../b", "/a b /c"])
def test_a_working_directory_that_could_be_elsewhere_anchors_nothing(cwd: str) -> None:
    mission = structs.replace(MISSION, resource_scope=("src",), cwd=cwd)
    with pytest.raises(MissionWidened):
        narrow(mission, mission)


@pytest.mark.parametrize(
    ("own", "asked", "covered"),
    [
        ("read", "read", True),
        ("read", "read2", False),
        ("a?", "ab", True),
        ("a?", "abb", False),
        ("a*b", "axxb", True),
        ("a*b", "axx", False),
        ("[ab]x", "bx", True),
        ("[ab]x", "cx", False),
        ("a*", "ab*", True),
        ("a*", "a[bc]", True),
        ("ab*", "a*", False),
        ("a*b", "a*bb", False),
        ("*", "**", True),
        ("read", "Read", False),
        ("Bash", "Bash(pytest)", True),
        ("*", "Bash(pytest)", True),
        ("B*", "Bash(pytest)", True),
        ("B*", "Ba*(pytest)", True),
        ("Bash(pytest)", "Bash( pytest )", True),
        ("Bash(npm)", "Bash(npm test)", True),
        ("*(npm)", "Bash(npm test)", True),
        ("B*(npm)", "Ba*(npm)", True),
        ("Bash(pytest)", "Bash", False),
        ("Bash(pytest)", "*", False),
        ("Bash(npm test)", "Bash(npm)", False),
        ("Bash(npm)", "Bash(npmx)", False),
        ("Bash(npm)", "Shell(npm)", False),
        ("Bash(npm)", "*(npm)", False),
        ("Bash(npm test)", "Bash(npm testing)", False),
        ("Read", "Bash(pytest)", False),
        ("Bash(*", "Bash(pytest)", False),
        ("*)", "Bash(pytest)", False),
        ("Bash(*)", "Bash(pytest)", False),
        ("Bash(p*)", "Bash(pytest)", False),
        ("Bash(a)*", "Bash(a)b", True),
    ],
)
def test_tools_are_covered_by_name_by_glob_or_by_a_fixed_beginning(own: str, asked: str, *, covered: bool) -> None:
    parent = structs.replace(MISSION, allowed_tools=(own,))
    child = structs.replace(MISSION, allowed_tools=(asked,))
    if covered:
        narrow(parent, child)
        return
    with pytest.raises(MissionWidened) as caught:
        narrow(parent, child)
    assert caught.value.member == "allowed_tools"


@pytest.mark.parametrize(
    ("own", "asked", "covered"),
    [
        ("Bash(./run.sh)", "Bash(./run.sh)", False),
        ("Bash(bin/run)", "Bash(bin/run all)", False),
        ("Bash(/a/run.sh)", "Bash(/a/run.sh)", True),
        ("Bash(pytest)", "Bash(pytest a/b)", True),
        ("Bash", "Bash(./run.sh)", True),
    ],
)
def test_a_relative_program_is_another_one_in_another_directory(own: str, asked: str, *, covered: bool) -> None:
    parent = structs.replace(MISSION, allowed_tools=(own,), resource_scope=("/a",), cwd="/a")
    child = structs.replace(parent, allowed_tools=(asked,))
    assert narrow(parent, child).allowed_tools == (asked,) or not covered
    moved = structs.replace(child, cwd="/a/b")
    if covered:
        narrow(parent, moved)
        return
    with pytest.raises(MissionWidened) as caught:
        narrow(parent, moved)
    assert caught.value.member == "allowed_tools"


WORDS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3).map(tuple)
TOOLS = st.sampled_from(["T", "U", "T*", "?", "*"])
NAMED = st.one_of(TOOLS, st.builds(lambda tool, words: f"{tool}({' '.join(words)})", TOOLS, WORDS))


@given(st.lists(NAMED, max_size=3).map(tuple), st.lists(NAMED, max_size=3).map(tuple), WORDS)
def test_a_delegate_never_runs_a_program_its_parent_may_not(
    own: tuple[str, ...], asked: tuple[str, ...], words: tuple[str, ...]
) -> None:
    parent = structs.replace(MISSION, allowed_tools=own)
    try:
        child = narrow(parent, structs.replace(MISSION, allowed_tools=asked))
    except MissionWidened:
        return
    for tool in ("T", "U"):
        assert runs(parent, tool, words) or not runs(child, tool, words)


def runs(mission: Mission, tool: str, words: tuple[str, ...]) -> bool:
    """Whether a mission lets a tool run a command that starts with these words."""
    for entry in mission.allowed_tools:
        named, wanted = parse_program(entry) or (entry, ())
        if fnmatchcase(tool, named) and words[: len(wanted)] == wanted:
            return True
    return False


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("Bash(pytest)", ("Bash", ("pytest",))),
        ("Bash( npm  test )", ("Bash", ("npm", "test"))),
        ("a(b(c))", ("a", ("b(c)",))),
        ("Bash", None),
        ("Bash()", None),
        ("Bash( )", None),
        ("(pytest)", None),
        ("Bash(pytest", None),
        ("Bash(pytest) ", None),
        ("Bash)pytest(", None),
    ],
)
def test_a_program_stands_in_brackets_behind_its_tool(entry: str, named: tuple[str, tuple[str, ...]] | None) -> None:
    assert parse_program(entry) == named


def test_long_scopes_do_not_take_longer_than_their_length_explains() -> None:
    """Every entry once against every other: a backtracking pattern would not end here."""
    parent = structs.replace(MISSION, resource_scope=tuple(f"/{number}" for number in range(300)))
    child = structs.replace(MISSION, resource_scope=("a" * 4000,) * 100, cwd=None)
    with pytest.raises(MissionWidened):
        narrow(structs.replace(parent, cwd=None), child)
    fitting = structs.replace(MISSION, resource_scope=("/299/" + "a" * 4000,) * 100)
    assert len(narrow(parent, fitting).resource_scope) == 100


def test_a_relative_path_that_nothing_anchors_proves_nothing() -> None:
    unanchored = structs.replace(MISSION, resource_scope=("src",), cwd=None)
    with pytest.raises(MissionWidened):
        narrow(unanchored, unanchored)


def test_moving_the_working_directory_does_not_move_a_home() -> None:
    parent = structs.replace(MISSION, resource_scope=("work/~",), cwd="/")
    with pytest.raises(MissionWidened):
        narrow(parent, structs.replace(MISSION, resource_scope=("~",), cwd="/work"))


def test_what_the_parent_forbids_stays_forbidden_unasked() -> None:
    child = structs.replace(MISSION, forbidden_tools=("git_log",))
    assert narrow(MISSION, child).forbidden_tools == ("git_push", "git_log")
    assert narrow(MISSION, structs.replace(MISSION, cwd=None)).cwd == MISSION.cwd


def test_a_refusal_names_the_member_and_clips_what_was_asked() -> None:
    with pytest.raises(MissionWidened) as caught:
        narrow(MISSION, structs.replace(MISSION, allowed_tools=("x" * 250,)))
    assert caught.value.member == "allowed_tools"
    assert len(str(caught.value)) < 150


def test_what_is_left_out_has_its_default() -> None:
    assert parse_mission({"agent_id": "a", "mission": "m"}) == Mission(agent_id="a", mission="m")
    bare = Mission(agent_id="a", mission="m")
    assert (bare.allowed_tools, bare.forbidden_tools, bare.resource_scope) == ((), (), ())
    assert bare.allowed_side_effect_classes == SIDE_EFFECT_CLASSES
    assert (bare.max_tool_calls, bare.max_duration_s, bare.cwd) == (100, 3600, None)


def test_a_face_may_have_defaults_of_its_own() -> None:
    hub = parse_mission(
        {"agent_id": "a", "mission": "m", "max_tool_calls": 7}, {"resource_scope": ["**"], "max_tool_calls": 5000}
    )
    assert (hub.resource_scope, hub.max_tool_calls) == (("**",), 7)


@pytest.mark.parametrize("value", [None, [], "mission", 5])
def test_a_mission_is_an_object(value: object) -> None:
    with pytest.raises(FieldInvalid):
        parse_mission(value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"agent_id": ""}, "$.agent_id"),
        ({"agent_id": "a" * 257}, "$.agent_id"),
        ({"agent_id": "a\x1bb"}, "$.agent_id"),
        ({"mission": ""}, "$.mission"),
        ({"mission": "m" * 4097}, "$.mission"),
        ({"mission": "\x1b[31m"}, "$.mission"),
        ({"agent_id": "a\u202eb"}, "$.agent_id"),
        ({"allowed_tools": ["a\u200bb"]}, "$.allowed_tools[0]"),
        ({"allowed_tools": "read_file"}, "$.allowed_tools"),
        ({"allowed_tools": [""]}, "$.allowed_tools[0]"),
        ({"allowed_tools": ["ok", "a\nb"]}, "$.allowed_tools[1]"),
        ({"allowed_tools": ["t"] * 1001}, "$.allowed_tools"),
        ({"resource_scope": ["/" + "a" * 4096]}, "$.resource_scope[0]"),
        ({"resource_scope": ["/a\0"]}, "$.resource_scope[0]"),
        ({"max_tool_calls": -1}, "$.max_tool_calls"),
        ({"max_tool_calls": 1.0}, "$.max_tool_calls"),
        ({"max_tool_calls": True}, "$.max_tool_calls"),
        ({"max_duration_s": 0}, "$.max_duration_s"),
        ({"max_duration_s": 10**9}, "$.max_duration_s"),
        ({"allowed_side_effect_classes": ["everything"]}, "$.allowed_side_effect_classes[0]"),
        ({"max_tokens": 5}, "$"),
    ],
    ids=str,
)
def test_a_mission_out_of_bounds_is_refused_with_its_place(change: dict[str, Any], place: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_mission(to_builtins(MISSION) | change)
    assert caught.value.place == place
