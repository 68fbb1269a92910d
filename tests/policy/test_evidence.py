"""What receipts and people are told about the effects of an action."""

from remit.policy.call import Action, Doubt, Effect
from remit.policy.engines import Remedy
from remit.policy.evidence import (
    EFFECTS_MEASUREMENT,
    REMEDY_MEASUREMENT,
    STATIC_SCOPE_ONLY,
    describe,
    effects_json,
    measurements,
)


def action(*effects: Effect, doubts: tuple[Doubt, ...] = (), runs_code: bool = False) -> Action:
    return Action("Bash", "read", "shell", "/a", frozenset({"none"}), effects, doubts, runs_code)


READS = Effect("read", "/a/b", "b")
SENDS = Effect("send", "https://h.example/x", "x")


def test_a_receipt_carries_the_digest_of_the_effects_and_a_summary() -> None:
    told = measurements(action(READS, SENDS))
    assert set(told) == {EFFECTS_MEASUREMENT}
    assert told[EFFECTS_MEASUREMENT].status == "success"
    assert told[EFFECTS_MEASUREMENT].description == "reads /a/b; sends to https://h.example/x"


def test_other_effects_have_another_digest() -> None:
    first, second = measurements(action(READS)), measurements(action(READS._replace(resource="/a/c")))
    assert first[EFFECTS_MEASUREMENT].digest != second[EFFECTS_MEASUREMENT].digest


def test_doubts_are_told_too() -> None:
    doubted = action(READS, doubts=(Doubt("target_unknown", "$X", "not known"),))
    assert measurements(doubted)[EFFECTS_MEASUREMENT].status == "fail"
    assert effects_json(doubted)[-1] == {"doubt": "$X", "reason": "not known"}


def test_code_that_static_policy_does_not_bound_is_said_to_be_so() -> None:
    assert STATIC_SCOPE_ONLY in measurements(action(READS, runs_code=True))
    assert STATIC_SCOPE_ONLY not in measurements(action(READS))


def test_a_call_without_effects_has_nothing_to_measure() -> None:
    assert measurements(action()) == {}


def test_an_effect_is_said_in_words() -> None:
    assert describe(READS) == "reads /a/b"
    assert describe(Effect("delete", "/a", "a", beneath=True)) == "deletes /a/…"


def test_a_denial_says_what_would_have_permitted_it() -> None:
    told = measurements(action(), Remedy((), "Add 'Read' to allowed_tools."))
    assert (told[REMEDY_MEASUREMENT].status, told[REMEDY_MEASUREMENT].description) == (
        "absent",
        "Add 'Read' to allowed_tools.",
    )


def test_effects_of_one_kind_are_named_together_and_once() -> None:
    runs = Effect("run", "cat", "cat")
    description = measurements(action(runs, READS, READS._replace(resource="/c"), READS))[
        EFFECTS_MEASUREMENT
    ].description
    assert description == "runs cat; reads /a/b, /c"


def test_however_many_effects_there_are_their_summary_is_short() -> None:
    many = [READS._replace(resource=f"/a/{number}/{'x' * 5000}") for number in range(3000)]
    description = measurements(action(*many), Remedy((), "y" * 10_000))
    assert [len(one.description or "") for one in description.values()] == [512, 1024]
