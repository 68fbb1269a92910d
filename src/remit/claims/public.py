"""A receipt for people who may see what was decided, but not why in full.

Keeps this invariant: the view never passes for a receipt. It says that it is unsigned, names what it leaves out, and
points to the signed receipt by id and hash. A signed form with members held back is another format, not this one.
"""

from typing import Final

from msgspec import to_builtins

from remit.claims.receipt import SignedReceipt
from remit.claims.strictjson import JSON

__all__ = ["AUDIT_ONLY", "public_view"]

# Explanations name rules, paths and other people's words; hashes of short arguments can be guessed back.
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
    """Return what anyone may see of a verified receipt."""
    members: dict[str, JSON] = to_builtins(receipt.claims)
    return {
        "view": "remit-receipt-public",
        "signed": False,
        "receipt_id": receipt.claims.receipt_id,
        "receipt_hash": receipt.hash,
        "omitted": [name for name in AUDIT_ONLY if name in members],
        "claims": {name: item for name, item in members.items() if name not in AUDIT_ONLY},
    }
