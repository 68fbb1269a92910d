"""Text among the rules: what looks like a rule is refused with its line, and other text is for people."""

import pytest

from remit.errors import FieldInvalid
from remit.profiles.profile import parse_profile

RULES = [
    "-Run git push", "+Run git push", "\u2022 Run git push", "\u2013 Run git push", "-\u00a0Run git push",
    "Run git push",
    "| Run git push |", "| 1 | Run git push | bad |", "> - Run git push", "> Run git push", "**Run git push**",
    "**Run** git push", "~~Run git push~~", "`Run git push`", "Run `git push`", "“Run git push”", "1.Run git push",
    "(1) Run git push", "a) Run git push", "[x] Run git push", "\\- Run git push", "<li>Run git push</li>",
    "&bull; Run git push", "Blocked: Run git push", "Run make, cmake", "Edit files", "edit files.", "Edit filez",
    "Edit files, run commands", "Use the tool Foo for this", "Use ../shared", "Reach https://example.org",
    "\u2022 whatever", "At most 5 tool calls", "> At most five calls", "5 tool calls",
]  # fmt: skip
WORDS = [
    "We read a lot here.", "Ask Ann: she knows.", "Run the tests before you commit.", "Use the wrapper, please.",
    "Reach out to Ann.", "Read the docs first.", "> quoted words", "|---|---|", "*Everything else is denied.*",
    "See https://example.org",
]  # fmt: skip


def under(heading: str, text: str) -> str:
    return f"Mission: x\n\n## {heading}\n\n{text}\n"


@pytest.mark.parametrize("heading", ["Limits", "Allowed", "Blocked"])
@pytest.mark.parametrize("text", RULES)
def test_text_that_looks_like_a_rule_is_an_error_with_its_line(heading: str, text: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_profile(under(heading, text))
    assert (caught.value.code, caught.value.place) == ("field_invalid", "line 5")


@pytest.mark.parametrize("text", WORDS)
def test_other_text_is_for_people(text: str) -> None:
    assert parse_profile(under("Blocked", text)) == parse_profile("Mission: x")


@pytest.mark.parametrize("text", RULES)
def test_under_notes_and_in_code_and_comments_everything_is_for_people(text: str) -> None:
    for aside in (under("Notes", text), under("Blocked", f"```\n{text}\n```"), under("Blocked", f"<!--\n{text}\n-->")):
        assert parse_profile(aside) == parse_profile("Mission: x")
