"""Plain words: what a mission says, and nothing that it does not."""

import pytest

from remit import Mission
from remit.profiles.phrases import load_phrases
from remit.profiles.words import describe_mission, lasting
from tests.profiles.writing import compiled

UNBOUNDED = "What code that a command runs does, such as a script or a test, is not known: only a sandbox limits it."
FIXED = {name: known for name, known in load_phrases().items() if not known.kind}


@pytest.mark.parametrize("name", [name for name, known in FIXED.items() if known.tools and not known.unallowable])
def test_an_allowed_phrase_is_told_and_no_other(name: str) -> None:
    said = describe_mission(compiled([FIXED[name].says[0]]))
    told = [known.does for known in FIXED.values() if f"It may {known.does}." in said]
    assert told == [FIXED[name].does]


@pytest.mark.parametrize("name", [name for name, known in FIXED.items() if known.tools and not known.unblockable])
def test_a_blocked_phrase_is_told(name: str) -> None:
    known = FIXED[name]
    assert f"It may not {known.refuses or known.does}." in describe_mission(compiled([], [known.says[0]]))


def test_values_places_and_limits_are_told() -> None:
    allowed = ["Run npm run lint", "Use the tools of github", "Use the tool Foo", "Use /opt/x", "Reach example.org"]
    assert describe_mission(compiled(allowed, ["Run git push"])) == [
        "It is asked to: Fix the tests",
        "It may fetch pages from the hosts that it may reach.",
        "It may run: “npm run lint”.",
        "It may use the tools of: github.",
        "It may use: BashOutput, KillShell, TaskOutput, TaskStop, read_bash, list_bash, stop_bash, Foo.",
        "It may not run: “git push”.",
        "It may use: /srv/project, /opt/x, and everything in it.",
        "It may reach: https://example.org.",
        "Its calls may change files, change other things, such as tasks and processes, send data.",
        UNBOUNDED,
        "It may make 500 tool calls in 8 hours.",
        "Everything else is denied.",
    ]


@pytest.mark.parametrize("allowed", ["Run developer commands", "Run tests", "Run python3"])
def test_code_that_may_run_is_told_not_to_be_bounded(allowed: str) -> None:
    assert UNBOUNDED in describe_mission(compiled([allowed, "Plan"]))
    assert UNBOUNDED in describe_mission(compiled([allowed, "Plan"], ["Edit files"]))
    assert UNBOUNDED not in describe_mission(compiled([allowed], ["Let tools change other things"]))


def test_where_no_code_may_run_nothing_is_said_about_it() -> None:
    assert UNBOUNDED not in describe_mission(compiled(["Read files", "Run commands that only read", "Plan"]))


def test_side_effects_are_refused_as_far_as_they_are_known() -> None:
    said = describe_mission(compiled(["Read files", "Plan"], ["Edit files"]))
    assert "Denied is every call that is known to change files, send data." in said


def test_state_of_the_machine_is_told_apart_from_hosts() -> None:
    told = describe_mission(compiled(["Use the database app_dev", "Reach example.org", "Manage containers"]))
    assert "It may reach: https://example.org." in told
    assert "It may use and change: db://app_dev, container://*." in told
    assert any(line.startswith("It may start, change and remove containers") for line in told)
    assert not any("use and change" in line for line in describe_mission(compiled(["Read files"])))


def test_two_programs_are_told_apart() -> None:
    assert "It may run: “make”, “cmake”." in describe_mission(compiled(["Run make", "Run cmake"]))


def test_a_mission_of_any_origin_is_told() -> None:
    said = describe_mission(Mission(agent_id="a", mission="b", resource_scope=("**",), max_tool_calls=1))
    assert "It may use no tool." in said
    assert "It may use everything: every file and every host." in said
    assert "It may make 1 tool call in 1 hour." in said


def test_long_lists_are_cut() -> None:
    names = tuple(f"tool{number}" for number in range(20))
    assert any(
        line.endswith("tool11 and 8 more.")
        for line in describe_mission(Mission(agent_id="a", mission="b", allowed_tools=names))
    )


@pytest.mark.parametrize(("folder", "told"), [(None, "the folder that it is started in"), ("/srv/a[b", "/srv/a[b")])
def test_the_folder_is_told_as_people_know_it(folder: str | None, told: str) -> None:
    assert f"It may use: {told}, and everything in it." in describe_mission(compiled(["Read files"], folder=folder))


@pytest.mark.parametrize(
    ("seconds", "told"), [(1, "1 second"), (90, "90 seconds"), (3600, "1 hour"), (172_800, "2 days")]
)
def test_durations_are_told_in_the_largest_unit_that_fits(seconds: int, told: str) -> None:
    assert lasting(seconds) == told
