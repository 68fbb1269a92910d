"""Profiles: settings, limits and lists, and an error with its line for everything that could be meant as a rule."""

import pytest

from remit.errors import FieldInvalid
from remit.profiles.profile import parse_profile
from tests.profiles.writing import written


def refusal(text: str) -> FieldInvalid:
    with pytest.raises(FieldInvalid) as caught:
        parse_profile(text)
    assert caught.value.code == "field_invalid"
    return caught.value


def test_a_profile_says_what_is_in_it() -> None:
    text = "# Rules\nMode: Allow\nMission: Fix the tests,\n  all of them.\nFolder: ./src\n\n"
    text += "## Limits\n- At most 5,000 tool calls\n"
    profile = parse_profile(
        text + "- Up to 2 hours.\n## Allowed\n- Read files\n- read files.\n## Blocked\n- Run git push\n"
    )
    assert (profile.mode, profile.mission, profile.folder) == ("allow", "Fix the tests, all of them.", "./src")
    assert (profile.max_tool_calls, profile.max_duration_s) == (5000, 7200)
    assert [phrase[:2] for phrase in profile.allowed] == [("read-files", "")]
    assert profile.blocked == (("run-program", "git push", 14),)


def test_settings_may_be_a_list_and_in_bold() -> None:
    profile = parse_profile("- **Mode:** ask\n* __Mission__: Look\n- Folder: `My Files`\n")
    assert (profile.mode, profile.mission, profile.folder) == ("ask", "Look", "My Files")


def test_what_is_not_said_has_its_default() -> None:
    profile = parse_profile("Mission: Look")
    assert (profile.mode, profile.folder, profile.max_tool_calls, profile.max_duration_s) == ("ask", ".", 500, 28_800)
    assert (profile.allowed, profile.blocked) == ((), ())


def test_text_beside_the_rules_is_for_people() -> None:
    text = written(["Read files\n\nWe read a lot here.\n\n> Much of it is old.\n\n```text\n- Edit files\n```"])
    assert [
        phrase.name for phrase in parse_profile(text + "\n## Notes\n\nAsk Ann: she knows.\n- Whatever\n").allowed
    ] == ["read-files"]


@pytest.mark.parametrize(
    ("heading", "nearest"),
    [
        ("## Alowed", "Allowed"),
        ("## Bloked", "Blocked"),
        ("### Limit", "Limits"),
        ("# Permissions", "Allowed"),
        ("##", "Notes"),
    ],
)
def test_an_unknown_heading_is_an_error_with_a_known_one(heading: str, nearest: str) -> None:
    error = refusal(f"# Rules\nMission: x\n\n{heading}\n- Read files")
    assert error.place == "line 4"
    assert f"“{nearest}”" in error.problem


@pytest.mark.parametrize(
    "hidden", ["Blocked:", "**Blocked**", "__Blocked:__", "<h2>Blocked</h2>", "BLOCKED", "> Blocked"]
)
def test_text_that_looks_like_a_heading_is_an_error(hidden: str) -> None:
    assert refusal(f"Mission: x\n## Allowed\n- Read files\n\n{hidden}\n\n- Run git push").place == "line 5"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Mission: x\nMission: y", 2),
        ("Mission: x\nMode: yes", 2),
        ("Mission: x\n\nMoode: allow", 3),
        ("Mission: x\n\n- Read files", 3),
        ("Mission: x\n- Colour: blue", 2),
        ("Mission: x\nFolder: https://x", 2),
        ("Mission: x\nFolder: src*/", 2),
        ("Mission:\n\n## Allowed", 1),
        ("Mission: x\n## Allowed\nMode: allow", 3),
        ("Mission: x\n## Allowed\n- Read files\n## allowed\n- Edit files", 4),
        ("Mission: x\n## Limits\n- At most 0 tool calls", 3),
        ("Mission: x\n## Limits\n- At most 400 days", 3),
        ("Mission: x\n## Limits\n- At most 1,5 hours", 3),
        ("Mission: x\n## Limits\n- At most 99999999999999999 tool calls", 3),
        ("Mission: x\n## Limits\n- Not much", 3),
        ("Mission: x\n## Limits\n- At most 2 hours\n- At most 5 minutes", 4),
        ("Mission: x\n## Allowed\n- Use the network", 3),
        ("Mission: x\n## Blocked\n- Use ./secrets", 3),
        ("Mission: x\n## Blocked\n- Read ./secrets", 3),
        ("Mission: x\n## Blocked\n- Reach example.org", 3),
        ("Mission: x\n## Blocked\n- Send to example.org", 3),
        ("Mission: x\n## Allowed\n- Read files\nBlocked:", 4),
        ("Mission: x\n## Allowed\n- Run npm\n  run lint", 4),
        ("Mission: x\n## Blocked\n- Run git push\nThis is dangerous.", 4),
        ("Mission: x\n## Limits\n- At most 5 hours\nAt most 5 tool calls", 4),
        ("Mission: x\n## Allowed\nSome words\nRun git push", 4),
    ],
)
def test_each_error_names_its_line(text: str, line: int) -> None:
    assert refusal(text).place == f"line {line}"


@pytest.mark.parametrize("folder", ["..", "../..", "src/../../x", "/srv", "~", "~/x", "`/srv`"])
def test_a_folder_outside_of_that_of_the_file_is_refused(folder: str) -> None:
    assert refusal(f"Mission: x\nFolder: {folder}").place == "line 2"


@pytest.mark.parametrize("folder", [".", "./src", "src/../lib", "./..odd"])
def test_a_folder_inside_that_of_the_file_is_taken(folder: str) -> None:
    assert parse_profile(f"Mission: x\nFolder: {folder}").folder == folder


def test_only_a_heading_of_the_first_level_is_a_title() -> None:
    assert refusal("## Rules\nMission: x").place == "line 1"
    assert refusal("# Rules\nMission: x\n# More rules").place == "line 3"


def test_a_profile_without_a_mission_is_refused() -> None:
    assert refusal("# Rules\n## Allowed\n- Read files").place == "Mission"


def test_a_profile_has_an_end_of_rules() -> None:
    assert refusal(written([f"Run tool{number}" for number in range(201)])).place == "line 210"
