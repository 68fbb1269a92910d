"""The public view of a receipt, for people who may see the decision, but not all of its reasons.

Invariant: the view cannot be mistaken for a receipt. It states that it is unsigned, lists the omitted members, and
refers to the signed receipt by id and hash. It is not a signed format with selective disclosure.
"""

from typing import Final

from msgspec import to_builtins

from remit.claims.receipt import SignedReceipt
from remit.claims.strictjson import JSON

__all__ = ["AUDIT_ONLY", "public_view"]

# Explanations quote rules, paths and foreign text; short arguments can be guessed from their hashes.
AUDIT_ONLY: Final = (
    "arguments_hash",
    "content_provenance",
    "evidence_proof_ref",
    "internal_denial_code",
    "invocation_digest",
    "measurements",
    "policy_decisions",
    "reason",
    "result_hash",
    "run_nonce",
)


def public_view(receipt: SignedReceipt) -> dict[str, JSON]:
    """Return the public view of a verified receipt."""
    members: dict[str, JSON] = to_builtins(receipt.claims)
    return {
        "view": "remit-receipt-public",
        "signed": False,
        "receipt_id": receipt.claims.receipt_id,
        "receipt_hash": receipt.hash,
        "omitted": [name for name in AUDIT_ONLY if name in members],
        "claims": {name: item for name, item in members.items() if name not in AUDIT_ONLY},
    }
