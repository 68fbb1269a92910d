"""Drafts: everything but the signature and the hash of the receipt before."""

import pytest

from remit import Head, receipt_id, verify_chain
from remit.claims.chain import draft, extend
from remit.claims.receipt import PolicyDecision, sign_draft
from remit.errors import FieldInvalid, TokenTooLarge
from tests.world import KEYRING, NOW, OURS, Session, lineage_named, permitted

FIRST = Head(lineage_named())
ID = receipt_id(bytes(16))


def test_receipts_drafted_first_and_signed_afterwards_form_the_same_chain() -> None:
    session = Session()
    one = session.append()
    drafted = draft(session.head, permitted(), form=b'{"path":"x"}', new_id=ID, now=NOW)
    two = sign_draft(drafted, one.hash, OURS)
    assert two == extend(session.head, permitted(), OURS, arguments={"path": "x"}, new_id=ID, now=NOW)
    assert verify_chain([one.token, two.token], KEYRING) == session.head.after(two)


@pytest.mark.parametrize("parent_hash", [None, "0" * 63, "x" * 64, "0" * 64 + "\n", '"' * 64])
def test_a_receipt_with_a_parent_needs_its_hash(parent_hash: str | None) -> None:
    session = Session()
    session.append()
    drafted = draft(session.head, permitted(), form=b"{}", new_id=ID, now=NOW)
    with pytest.raises(FieldInvalid) as error:
        sign_draft(drafted, parent_hash, OURS)
    assert error.value.place == "$.parent_receipt_hash"


def test_the_first_receipt_has_no_parent_to_be_signed_on() -> None:
    drafted = draft(FIRST, permitted(), form=b"{}", new_id=ID, now=NOW)
    with pytest.raises(FieldInvalid):
        sign_draft(drafted, "0" * 64, OURS)


def test_what_does_not_fit_a_token_is_seen_before_it_is_signed() -> None:
    said = PolicyDecision(backend="native", decision="permit", reason="\x01" * 9000)
    with pytest.raises(TokenTooLarge):
        draft(FIRST, permitted(policy_decisions=(said,)), form=b"{}", new_id=ID, now=NOW)


def test_the_largest_draft_that_is_taken_can_be_signed() -> None:
    taken = 0
    for length in range(45_000, 50_000, 250):
        said = PolicyDecision(backend="native", decision="permit", reason="x" * length)
        try:
            drafted = draft(FIRST, permitted(policy_decisions=(said,)), form=b"{}", new_id=ID, now=NOW)
        except TokenTooLarge:
            break
        sign_draft(drafted, None, OURS)
        taken = length
    assert 45_000 < taken < 49_750
