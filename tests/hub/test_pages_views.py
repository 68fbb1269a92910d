"""What pages are made of, without a ledger: words, figures, charts and links."""

from datetime import UTC, timedelta, timezone
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.chain import FAULTS
from remit.claims.mission import Mission
from remit.claims.receipt import PublicDenialReason
from remit.claims.types import SideEffectClass
from remit.errors import FieldInvalid
from remit.hub.dashboard.chart import HEIGHT, RANGES, WIDTH, build_chart, first_minute, get_tone
from remit.hub.dashboard.formatting import TimeFormatter, format_duration, format_number, pluralize
from remit.hub.dashboard.labels import (
    FAULT_WORDS,
    MEANINGS,
    PUBLIC_REASONS,
    STATES,
    VERDICTS,
    describe_fault,
    find_meaning,
)
from remit.hub.dashboard.paging import PAGE_SIZE, Links, chain_pager, is_live, parse_choice, parse_position
from remit.hub.dashboard.sessions import passport_limits, review_actions
from remit.hub.dashboard.summary import (
    NOT_PREVENTED,
    BrokenChains,
    Counts,
    VerificationProgress,
    build_tiles,
    count_verdicts,
    denial_reasons,
    summarize,
)
from remit.hub.dashboard.text import make_visible
from remit.ledger.records import FINAL_STATES, CodeCount, EventNote, MinuteCount
from remit.policy.engines import DENIALS
from tests.world import NOW

TIMES = TimeFormatter(NOW, UTC)
MINUTE = NOW // 60


def test_every_denial_code_has_words() -> None:
    assert MEANINGS.keys() == DENIALS.keys()
    assert all(meaning.title and meaning.sentence.endswith(".") for meaning in MEANINGS.values())
    assert len({meaning.title for meaning in MEANINGS.values()}) == len(MEANINGS)


def test_every_public_reason_verdict_state_and_fault_has_words() -> None:
    assert PUBLIC_REASONS.keys() == set(PublicDenialReason.__args__)  # type: ignore[attr-defined]
    assert VERDICTS.keys() == {verdict for _, verdict in DENIALS.values()} | {"compliant"}
    assert STATES.keys() >= {"active", *FINAL_STATES}
    assert FAULT_WORDS.keys() >= set(FAULTS)


def test_verdicts_differ_in_word_and_sign_as_well_as_in_colour() -> None:
    marks = list(VERDICTS.values())
    for part in ("word", "sign", "tone"):
        assert len({getattr(mark, part) for mark in marks}) == len(marks)


def test_a_code_without_words_is_shown_as_it_is() -> None:
    assert find_meaning("moon_phase").title == "moon_phase"
    assert "moon_phase" in describe_fault("moon_phase")
    assert get_tone("moon_phase") == "deny"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("nul\x00", "nul␀"),
        ("\x1b[31mred", "␛[31mred"),
        ("report\u202efdp.exe", "report⟨U+202E⟩fdp.exe"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("half \ud800", "half ⟨U+D800⟩"),
        ("tag \U000e0041", "tag ⟨U+E0041⟩"),
        ("Ünïcödé und 日本語 und עברית", "Ünïcödé und 日本語 und עברית"),
    ],
)
def test_what_hides_or_reorders_text_is_made_visible(text: str, shown: str) -> None:
    assert make_visible(text) == shown


def test_marks_that_climb_out_of_their_line_are_counted_out() -> None:
    assert make_visible("o" + "\u0301" * 30).count("\u0301") == 4


@given(st.text())
def test_whatever_is_shown_can_be_seen_and_encoded(text: str) -> None:
    shown = make_visible(text)
    shown.encode("utf-8")
    assert not {category(one) for one in shown if one not in "\n\t"} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min"), (3661, "1 h 1 min"), (90_000, "1 d 1 h"), (-5, "0 s")],
)
def test_spans_are_told_in_their_largest_units(seconds: int, told: str) -> None:
    assert format_duration(seconds) == told


def test_numbers_have_narrow_spaces() -> None:
    assert format_number(1234567) == "1\u202f234\u202f567"
    assert (pluralize(1, "call"), pluralize(2, "call")) == ("1 call", "2 calls")


def test_moments_are_told_for_people_and_programs() -> None:
    when = TIMES.when(NOW - 125)
    assert (when.iso, when.clock, when.ago) == ("2026-09-21T14:11:15Z", "14:11:15", "2 min ago")
    assert TIMES.when(NOW - 86_400 * 3).clock == "18 Sep 14:13"
    assert TIMES.when(NOW - 86_400 * 400).clock == "17 Aug 2025 14:13"
    assert TimeFormatter(NOW, timezone(timedelta(hours=2))).when(NOW).clock == "16:13:20"
    assert (TIMES.when(NOW).ago, TIMES.when(NOW + 90).ago) == ("just now", "in 1 min")


@pytest.mark.parametrize("moment", [2**53, -(2**60), 10**14])
def test_a_moment_that_no_calendar_has_is_a_number(moment: int) -> None:
    assert TIMES.when(moment).clock == str(moment)


@pytest.mark.parametrize("name", RANGES)
def test_a_timeline_ends_now_and_stays_inside_its_frame(name: str) -> None:
    chosen = RANGES[name]
    counts = [
        MinuteCount(MINUTE, "", 10_000),
        MinuteCount(MINUTE, "out_of_scope", 1),
        MinuteCount(first_minute(chosen, NOW), "target_unknown", 3),
        MinuteCount(first_minute(chosen, NOW) - 1, "", 5),
    ]
    chart = build_chart(counts, chosen, TIMES)
    assert len(chart.bars) == chosen.bars
    assert (chart.bars[-1].permit, chart.bars[-1].deny, chart.bars[0].unknown) == (10_000, 1, 3)
    assert sum(bar.total for bar in chart.bars) == 10_004
    for bar in chart.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH
        assert all(block.y >= 0 and block.height <= HEIGHT for block in bar.blocks)


def test_one_refusal_among_many_calls_is_still_drawn() -> None:
    chart = build_chart(
        [MinuteCount(MINUTE, "", 10_000), MinuteCount(MINUTE, "engine_denied", 1)], RANGES["hour"], TIMES
    )
    deny = next(block for block in chart.bars[-1].blocks if block.tone == "deny")
    assert deny.height >= 2
    assert "1 refused" in chart.bars[-1].text


def test_an_empty_timeline_says_so() -> None:
    chart = build_chart([], RANGES["day"], TIMES)
    assert not any(bar.blocks for bar in chart.bars)
    assert (chart.text, chart.top) == ("No receipts in this time.", 5)


CALM: dict[str, Any] = {
    "failure": "",
    "kill_switch": False,
    "broken": BrokenChains(0, ()),
    "done": {},
    "active": 1,
    "last": "",
    "verified": VerificationProgress("14:13:20", 12, 12, 4, ""),
}


def test_all_is_well_unless_something_is_not() -> None:
    calm = summarize(**CALM, last_hour=Counts(5, 0, 0))
    busy = summarize(**CALM, last_hour=Counts(5, 2, 1))
    assert (calm.tone, calm.headline, calm.alerts) == ("permit", "All is well up to 14:13:20.", ())
    assert (busy.tone, [notice.to for notice in busy.alerts]) == ("permit", [("denials",)])
    assert busy.alerts[0].text == "3 refusals in the last hour, 1 of them for want of evidence."


@pytest.mark.parametrize(
    ("verified", "headline", "told"),
    [
        (
            VerificationProgress(None, 3, 12, 0, ""),
            "The evidence is being verified.",
            "Verified so far: 3 of 12 sessions.",
        ),
        (
            VerificationProgress(None, 0, 12, 0, "it died"),
            "The evidence is not being verified.",
            "Not verified: it died.",
        ),
        (
            VerificationProgress("14:13:20", 12, 12, 301, ""),
            "Nothing was verified after 14:13:20.",
            "Verified up to 14:13:20, 12 of 12 sessions.",
        ),
    ],
)
def test_all_is_not_called_well_beyond_what_was_verified(
    verified: VerificationProgress, headline: str, told: str
) -> None:
    summary = summarize(**CALM | {"verified": verified}, last_hour=Counts(5, 0, 0))
    assert (summary.tone, summary.headline) == ("unknown", headline)
    assert summary.text.startswith(told)


def test_each_thing_that_is_wrong_is_said_with_where_to_look() -> None:
    one = BrokenChains(1, (("pass:one", "One"),))
    troubles = {
        "failure": "14:13:20 (the disk is full)",
        "kill_switch": True,
        "broken": one,
        "done": dict.fromkeys(NOT_PREVENTED, 2),
    }
    wrong = summarize(**CALM | troubles, last_hour=Counts(0, 0, 0))
    assert (wrong.tone, wrong.headline) == ("broken", "9 things need your attention.")
    assert [notice.to for notice in wrong.alerts] == [
        (),
        ("denials", "kill_switch"),
        ("sessions", "pass:one"),
        ("denials", "denied_but_run"),
        ("denials", "run_unasked"),
        ("denials", "coverage_gap"),
        ("denials", "enforcement_gap"),
        ("denials", "dangerous_effect"),
        ("denials", "secret_target"),
    ]


def test_tiles_and_reasons_count_by_verdict() -> None:
    codes = [CodeCount("", 90), CodeCount("out_of_scope", 8), CodeCount("target_unknown", 2)]
    assert count_verdicts(codes) == Counts(90, 8, 2)
    assert [(reason.code, reason.refusals, reason.share) for reason in denial_reasons(codes)] == [
        ("out_of_scope", 8, 100.0),
        ("target_unknown", 2, 25.0),
    ]
    tiles = build_tiles(active=1, sessions=2, receipts=100, counts=count_verdicts(codes))
    assert [(tile.value, tile.more) for tile in tiles][2:] == [
        ("90", "90 % of receipts"),
        ("8", "8 % of receipts"),
        ("2", "2 % of receipts"),
    ]


def test_links_quote_ids_and_stay_below_the_dashboard() -> None:
    link = Links(live=True)
    assert link("sessions", "../../v1/export?x#y") == "/dashboard/sessions/..%2F..%2Fv1%2Fexport%3Fx%23y"
    assert link("denials", before=5, show=None) == "/dashboard/denials?before=5"
    assert Links(live=False)("overview") == "/dashboard/overview?live=off"
    assert Links(live=False)("overview", live="on") == "/dashboard/overview?live=on"


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1e3", "x", "", " 7", "٣", "1" * 16])
def test_a_place_that_is_no_number_is_refused_by_name(value: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_position({"before": value})
    assert (caught.value.code, caught.value.place) == ("field_invalid", "before")


def test_a_choice_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_choice({"range": "year"}, "range", tuple(RANGES))
    assert (caught.value.code, caught.value.place) == ("field_invalid", "range")
    with pytest.raises(FieldInvalid) as caught:
        is_live({"live": "maybe"})
    assert (caught.value.code, caught.value.place) == ("field_invalid", "live")


@given(st.integers(0, 100_000), st.one_of(st.none(), st.integers(1, 200_000)))
def test_pages_of_a_chain_follow_each_other_without_gap_or_overlap(length: int, before: int | None) -> None:
    after, limit, pager = chain_pager(length, before)
    assert 0 <= after <= after + limit <= length
    assert limit <= PAGE_SIZE
    if pager.older is not None:
        older, count, _ = chain_pager(length, pager.older)
        assert older + count == after
    if pager.newer is not None:
        newer, count, _ = chain_pager(length, pager.newer)
        assert newer <= after + limit < newer + count
    assert (pager.newer is None) == pager.newest == (after + limit == length)


def test_long_lists_of_a_passport_are_cut_and_say_so() -> None:
    mission = Mission(
        agent_id="a", mission="m", allowed_tools=tuple(f"tool_{n}" for n in range(250)), resource_scope=("**",)
    )
    limits = passport_limits(mission)
    assert (len(limits.allowed), limits.allowed[-1], limits.scope) == (101, "and 150 more", ("everything",))
    assert limits.effects == SideEffectClass.__args__  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["", "nonsense", "7", "null", '"text"', "[7, null]", "[[]]"])
def test_a_note_that_is_none_is_left_out(text: str) -> None:
    assert review_actions([EventNote(1, text)]) == ()


def test_deeds_are_newest_first_and_hold_only_text() -> None:
    actions = review_actions(
        [EventNote(1, '[{"summary": "one"}, {"summary": "two", "kind": 7}]'), EventNote(2, '[{"summary": "three"}]')]
    )
    assert [(action.text, action.kind) for action in actions] == [("three", ""), ("two", ""), ("one", "")]


class Unread(EventNote):
    """A note that must not be read."""

    @property
    def text(self) -> str:
        raise AssertionError("it was read")


def test_notes_are_read_only_as_far_as_they_are_shown() -> None:
    busy = EventNote(2, "[" + ", ".join(f'{{"summary": "{number}"}}' for number in range(60)) + "]")
    actions = review_actions([Unread(1, ""), busy])
    assert [action.text for action in actions] == [str(number) for number in range(59, 9, -1)]
