"""Properties: whatever stands in a profile, blocked is never allowed, and no text is an unforeseen error."""

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.claims.mission import Mission
from remit.errors import FieldInvalid
from remit.policy.scope import match_tool
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.phrases import KnownPhrase, load_phrases
from remit.profiles.profile import parse_profile
from remit.profiles.values import KINDS
from remit.profiles.words import describe_mission
from tests.profiles.writing import FOLDER, called, written

FIXED = [known for known in load_phrases().values() if not known.kind]
ALLOWED = st.lists(st.sampled_from([known.says[0] for known in FIXED if not known.unallowable]), max_size=8)
BLOCKED = st.lists(st.sampled_from([known for known in FIXED if not known.unblockable]), max_size=4)


def compiled(allowed: list[str], blocked: list[str]) -> Mission:
    return compile_profile(parse_profile(written(allowed, blocked)), FOLDER, "agent:one")


@given(ALLOWED, BLOCKED)
def test_what_is_blocked_is_never_allowed(allowed: list[str], blocked: list[KnownPhrase]) -> None:
    mission = compiled(allowed, [known.says[0] for known in blocked])
    barred = {side for known in blocked for side in known.bars}
    assert not barred & set(mission.allowed_side_effect_classes)
    for tool in {tool for known in blocked for tool in (*known.tools, *known.blocks)}:
        assert match_tool(mission.forbidden_tools, tool) is not None
        assert called(mission, tool).code == "tool_forbidden"


@given(ALLOWED, ALLOWED)
def test_a_blocked_line_never_widens(allowed: list[str], more: list[str]) -> None:
    known = {one.says[0]: one for one in FIXED}
    blocked = [text for text in more if not known[text].unblockable]
    wide, narrow = compiled(allowed, []), compiled(allowed, blocked)
    assert set(narrow.allowed_tools) <= set(wide.allowed_tools)
    assert set(narrow.resource_scope) <= set(wide.resource_scope)
    assert set(narrow.allowed_side_effect_classes) <= set(wide.allowed_side_effect_classes)


PIECES = (
    "# T|## Allowed|## Blocked|## Limits|## Notes|Mission: x|Mode: ask|- Read files|- Run git||---|<!--|-->|```|text|"
    "- Use ../x|- Reach a.org|  more|- At most 5 hours|> x|- **x**|1. Run ls"
)


def place_of_refusal(text: str) -> str:
    """Return where a text is refused, or nothing for one that is a profile."""
    try:
        profile = parse_profile(text)
        mission = compile_profile(profile, FOLDER, "agent:one")
    except FieldInvalid as error:
        return error.place
    return "" if all((*remarks_on(profile), *describe_mission(mission))) else "words"


@given(st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES.split("|")), max_size=20).map("\n".join)))
@settings(max_examples=300)
def test_any_text_is_a_profile_or_an_error_that_names_its_place(text: str) -> None:
    place = place_of_refusal(text)
    assert place in ("", "profile", "Mission", "Folder") or place.startswith("line ")


@given(st.sampled_from(sorted(KINDS)), st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_a_value_that_is_taken_holds_nothing_that_lists_of_tools_read_otherwise(kind: str, text: str) -> None:
    value = KINDS[kind].read(text)
    if value is not None and kind in ("program", "server", "tool"):
        assert not set("*?[]()\n") & set(value)
