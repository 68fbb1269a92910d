"""The public view: nothing of the audit in it, and no mistaking it for a receipt."""

import json

import pytest

from remit import public_view
from remit.claims.public import AUDIT_ONLY
from remit.claims.receipt import Receipt
from remit.errors import FieldInvalid
from tests.world import Session, denied, session_of


def test_the_view_leaves_out_what_is_for_auditors_and_says_so() -> None:
    receipt = Session().append(denied())
    view = public_view(receipt)
    claims = view["claims"]
    assert isinstance(claims, dict)
    assert not claims.keys() & set(AUDIT_ONLY)
    assert claims["public_denial_reason"] == "policy_denied"
    assert view["omitted"] == [name for name in AUDIT_ONLY if hasattr(receipt.claims, name) and name not in ABSENT]
    text = json.dumps(view)
    assert receipt.claims.reason not in text
    assert "tool_not_allowed" not in text


ABSENT = {"content_provenance", "evidence_proof_ref", "measurements", "result_hash"}


def test_the_view_points_to_the_receipt_and_is_none_itself() -> None:
    receipt = session_of(1).receipts[0]
    view = public_view(receipt)
    assert view["signed"] is False
    assert (view["receipt_id"], view["receipt_hash"]) == (receipt.claims.receipt_id, receipt.hash)
    assert receipt.token not in json.dumps(view)
    from remit import parse_receipt

    with pytest.raises(FieldInvalid):
        parse_receipt(view["claims"])


def test_every_name_that_is_left_out_is_a_member_of_a_receipt() -> None:
    assert set(AUDIT_ONLY) <= set(Receipt.__struct_fields__)
    assert list(AUDIT_ONLY) == sorted(AUDIT_ONLY)
