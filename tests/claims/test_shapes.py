"""From strict JSON to typed values: messages are for people, and safe to show."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta

from remit import parse_mission, parse_receipt
from remit.claims.passport import Confirmation
from remit.claims.types import Claims, build_decoder, check_leap_second, convert, encode
from remit.errors import FieldInvalid


class _Chosen(Claims, frozen=True, kw_only=True):
    plain: Literal["a", "b"] = "a"
    described: Annotated[Literal["c", "d"], Meta(description="one of two")] = "c"
    optional: Literal["e"] | None = None
    counted: dict[Literal["f"], int] | None = None


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ({"plain": "x"}, "$.plain", "must be one of a, b"),
        ({"described": "x"}, "$.described", "must be one of c, d"),
        ({"optional": "x"}, "$.optional", "must be one of e"),
        # A name of a member is no value: the library's own words say enough.
        ({"counted": {"x": 1}}, "$.counted", "invalid enum value 'x'"),
    ],
)
def test_an_unknown_value_of_an_enumeration_names_those_allowed(given: object, place: str, said: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        convert(_Chosen, given)
    assert (caught.value.place, caught.value.problem) == (place, said)


def test_an_unknown_name_is_shown_escaped_and_clipped() -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_mission({"agent_id": "a", "mission": "m", "evil\n\x1b[31m\u202e" + "x" * 999: 1})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", ["x` - at `\n\x1b[31mFAKE", "x` - at `$." + "y" * 999, "\u2028" * 500])
def test_a_name_cannot_write_a_line_or_a_place_of_its_own(name: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_mission({"agent_id": "a", "mission": "m", name: 1})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


def test_what_the_strict_reader_never_gives_is_refused_all_the_same() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for odd in ({"\ud800": 1}, {"allowed_tools": deep}):
        with pytest.raises(FieldInvalid):
            parse_mission({"agent_id": "a", "mission": "m", **odd})
    with pytest.raises(FieldInvalid):
        parse_receipt({"evidence_proof_ref": {"type": deep}})


def test_values_from_outside_are_not_repeated() -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_mission({"agent_id": "a", "mission": "m", "max_tool_calls": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_what_is_read_back_is_held_to_the_rules() -> None:
    read_back = build_decoder(Confirmation)
    assert read_back(encode(Confirmation(jkt="A" * 43))) == Confirmation(jkt="A" * 43)
    with pytest.raises(FieldInvalid) as caught:
        read_back(b'{"jkt":"short"}')
    assert caught.value.place == "$.jkt"


def test_a_rule_that_is_a_pattern_is_told_in_words_and_at_its_place() -> None:
    for member in ("jkt", "x5t#S256"):
        with pytest.raises(FieldInvalid) as caught:
            build_decoder(Confirmation)(encode({member: "short"}))
        assert caught.value.place == f"$.{member}"
        assert not set("\\()[]{}") & set(caught.value.problem)


@pytest.mark.parametrize("offset", range(-23 * 60 - 59, 24 * 60, 37))
def test_a_leap_second_is_at_2359_utc_in_every_zone(offset: int) -> None:
    """Local time is UTC plus the offset, around the clock."""
    sign, size = ("-", -offset) if offset < 0 else ("+", offset)
    for minute in (23 * 60 + 59, 23 * 60 + 58, 0, 12 * 60):
        local = (minute + offset) % (24 * 60)
        moment = f"2016-12-31T{local // 60:02}:{local % 60:02}:60.5{sign}{size // 60:02}:{size % 60:02}"
        if minute == 23 * 60 + 59:
            check_leap_second(moment, "$")
        else:
            with pytest.raises(FieldInvalid):
                check_leap_second(moment, "$")
