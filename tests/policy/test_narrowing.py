"""A delegate's lists name nothing that its parent's do not, as the policy reads both; it works where its parent may.

`claims/mission.py` decides by text what a delegate gets; `policy/scope.py` says what an entry means. These tests hold
the one against the other.
"""

import posixpath
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from remit.claims.mission import EVERYTHING, MACHINE_KINDS, Mission, narrow
from remit.errors import MissionWidened
from remit.policy.call import Effect, SpawnedProgram
from remit.policy.scope import allows_tool, build_scope, covers, find_not_allowed, program_entries, tool_entry

# Few letters, so that entries and names meet often; all characters that mean something in an entry.
NAMES = st.text("ab(*?[]) !x", min_size=1, max_size=7).filter(lambda text: text.strip() == text)
KNOWN = st.sampled_from(
    ["a", "a(b)", "a(*)", "a(b x)", "a*", "a(", "a)", "*", "*(b)", "[a](b)", "a(?)", "a[(]b)", "a(b[)]"]
)
ENTRIES = st.one_of(KNOWN, NAMES)
LISTS = st.lists(ENTRIES, min_size=1, max_size=3).map(tuple)
WORDS = st.lists(st.sampled_from(["b", "x", "*", "?"]), min_size=1, max_size=3).map(tuple)


def mission(**members: object) -> Mission:
    return structs.replace(Mission(agent_id="agent:a", mission="m"), **members)


def narrowed(parent: Mission, child: Mission) -> Mission | None:
    try:
        return narrow(parent, child)
    except MissionWidened:
        return None


def allowed(entries: tuple[str, ...], tool: str, launched: SpawnedProgram) -> bool:
    """Tell whether entries allow a call of a tool that starts one program, as the passport's rules read them."""
    if allows_tool(entries, tool) is not None:
        return True
    programs = program_entries(entries, tool, None)
    return bool(programs) and not list(find_not_allowed(programs, [launched]))


PARTS = st.sampled_from(["a", "b", "*", "**", "a*", "[*]", "[a]", "[ab]", "?", "[[]", "a[", "[*", "x]"])
PATHS = st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(PATHS, min_size=1, max_size=2), PATHS, PATHS)
@example(["/a/[*]"], "/a/[*]/*", "/a/[*]/*/b")
@example(["/x/**/**"], "/x/**/**", "/x/**/**/b")
def test_a_delegates_scope_covers_no_path_that_its_parents_does_not(own: list[str], asked: str, path: str) -> None:
    child = narrowed(mission(resource_scope=tuple(own)), mission(resource_scope=(asked,)))
    if child is not None:
        for verb in ("read", "write", "delete"):
            effect = Effect(verb, path, "path")
            if covers(build_scope(child.resource_scope, None), effect):
                assert covers(build_scope(tuple(own), None), effect)


STATE_NAMES = st.lists(st.sampled_from(["a", "b", "ab", "*", "**", "[*]", "a*", "", "..", "?"]), min_size=1, max_size=3)
STATE = st.builds(
    lambda kind, names, end: f"{kind}://{'/'.join(names)}{end}",
    st.sampled_from([*MACHINE_KINDS, "https", "host"]),
    STATE_NAMES,
    st.sampled_from(["", "", "/", "/**"]),
)


@given(st.lists(STATE, min_size=1, max_size=2), STATE, STATE)
@example(["db://*"], "db://a", "db://a")
@example(["db://a/"], "db://a/b", "db://a/b")
@example(["package://a/**"], "package://a/**", "package://a")
@example(["db://[*]"], "db://[*]", "db://*")
@example(["process://a"], "process://*", "process://*")
def test_a_delegates_scope_covers_no_state_of_the_machine_that_its_parents_does_not(
    own: list[str], asked: str, resource: str
) -> None:
    child = narrowed(mission(resource_scope=tuple(own)), mission(resource_scope=(asked,)))
    if child is not None and covers(build_scope(child.resource_scope, None), Effect("manage", resource, "word")):
        assert covers(build_scope(tuple(own), None), Effect("manage", resource, "word"))


@pytest.mark.parametrize(
    ("own", "asked", "fits"),
    [
        ("db://*", "db://app", True),
        ("db://*", "db://*", True),
        ("db://app", "db://app", True),
        ("db://app", "db://*", False),
        ("db://app", "db://app2", False),
        ("db://*", "process://*", False),
        ("package://pip", "package://pip/six", True),
        ("package://pip/six", "package://pip", False),
        ("package://*", "package://npm/@a/b", True),
        ("container://volume", "container://volume/x", True),
        ("process://4242", "process://4242", True),
        ("/srv", "process://4242", False),
        ("https://**", "db://app", False),
        ("**", "db://*", True),
    ],
)
def test_what_a_delegate_may_get_of_the_machine(own: str, asked: str, fits: bool) -> None:
    found = narrowed(mission(resource_scope=(own,)), mission(resource_scope=(asked,)))
    assert (found is not None) == fits


@given(LISTS, LISTS, st.one_of(KNOWN, NAMES))
@example(("Read",), ("Read(*)",), "Read(x)")
@example(("Read",), ("Read(x)",), "Read(x)")
@example(("Read(x)",), ("Read(x y)",), "Read(x y)")
@example(("a",), ("a(*)",), "a(b)")
def test_a_delegates_list_allows_no_tool_that_its_parents_does_not(
    own: tuple[str, ...], asked: tuple[str, ...], tool: str
) -> None:
    child = narrowed(mission(allowed_tools=own), mission(allowed_tools=asked))
    if child is not None and allows_tool(child.allowed_tools, tool) is not None:
        assert allows_tool(own, tool) is not None


@given(LISTS, LISTS, st.one_of(KNOWN, NAMES), WORDS)
def test_a_delegates_list_allows_no_program_that_its_parents_does_not(
    own: tuple[str, ...], asked: tuple[str, ...], tool: str, words: tuple[str, ...]
) -> None:
    child = narrowed(mission(allowed_tools=own), mission(allowed_tools=asked))
    launched = SpawnedProgram(words)
    if child is not None and allowed(child.allowed_tools, tool, launched):
        assert allowed(own, tool, launched)


@given(st.one_of(KNOWN, NAMES))
@example("Read(x)")
@example("a(b)")
def test_the_entry_that_is_proposed_for_a_tool_allows_it(tool: str) -> None:
    entry = tool_entry(tool)
    assert entry is not None
    assert allows_tool((entry,), tool) == entry


# Working directories

PARTS = st.sampled_from(["a", "b", "ab", "..", ".", "", "*", "a*", "[a]", "%2e", " a", "~"])
PATHS = st.tuples(st.sampled_from(["", "/"]), st.lists(PARTS, max_size=4)).map(lambda it: it[0] + "/".join(it[1]))
PLACES = st.one_of(PATHS, st.sampled_from(["/a", "/a/b", "/a/**", "/**", "/", EVERYTHING])).filter(bool)


def inside(directory: str, place: str) -> bool:
    if place == EVERYTHING:
        return True
    root = posixpath.normpath(place.removesuffix("/**") or "/")
    return PurePosixPath(directory).is_relative_to(root)


def anchored(entry: str, cwd: str | None) -> str:
    return entry if not cwd or entry.startswith("/") or entry == EVERYTHING else f"{cwd}/{entry}"


@given(st.one_of(st.none(), PLACES), st.lists(PLACES, max_size=2).map(tuple), PLACES)
def test_a_delegate_works_inside_what_its_parent_has_and_nowhere_else(
    own: str | None, scope: tuple[str, ...], asked: str
) -> None:
    parent = mission(resource_scope=scope, cwd=own)
    child = narrowed(parent, mission(cwd=asked))
    if child is None or asked == own:
        return
    assert child.cwd == asked
    assert asked.startswith("/")
    assert posixpath.normpath(asked) == (asked.rstrip("/") or "/")
    assert not set(asked) & set("*?[")
    starts = [
        f"{own}/{entry}" if own and not entry.startswith("/") and entry != EVERYTHING else entry for entry in scope
    ]
    assert any(inside(asked, place) for place in [*starts, *([own] if own else [])])


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ("/srv/project", True),
        ("/srv/project/src", True),
        ("/srv/project/src/", True),
        ("/srv/data/sub", True),
        ("/srv", False),
        ("/srv/project2", False),
        ("/srv/project/../../etc", False),
        ("../../etc", False),
        ("src", False),
        ("/srv/project/*", False),
        ("/etc", False),
        ("~", False),
    ],
)
def test_where_a_delegate_may_work(asked: str, fits: bool) -> None:
    parent = mission(resource_scope=("/srv/data/**",), cwd="/srv/project")
    found = narrowed(parent, mission(cwd=asked))
    assert (found is not None) == fits


def test_a_refused_working_directory_is_named() -> None:
    with pytest.raises(MissionWidened) as caught:
        narrow(mission(cwd="/srv/project"), mission(cwd="../../etc"))
    assert caught.value.member == "cwd"
