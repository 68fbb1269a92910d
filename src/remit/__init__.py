"""Remit governs the tool calls of AI agents and leaves evidence that anyone can check.

These are the names a program needs to issue passports, make receipts and verify either. Everything else is inside.
"""

from remit.claims.attestation import (
    Attestation,
    SessionSummary,
    SignedAttestation,
    Tally,
    sign_attestation,
    verify_attestation,
    verify_session,
)
from remit.claims.bookmark import sign_bookmark, verify_bookmark
from remit.claims.canonical import canonicalize
from remit.claims.chain import (
    Head,
    Lineage,
    extend,
    ordered_receipt_id,
    receipt_id,
    verifier_id,
    verify_chain,
    walk_chain,
)
from remit.claims.keys import Keyring, SigningKey, TrustedKey, VerifyingKey
from remit.claims.mission import Mission, narrow, parse_mission
from remit.claims.passport import Confirmation, Passport, issue_passport, verify_passport
from remit.claims.public import public_view
from remit.claims.receipt import (
    ActionClass,
    ContentProvenance,
    Digest,
    LegacyBudgetDelta,
    LineageBudgetDelta,
    Measurement,
    PolicyDecision,
    Receipt,
    SignedReceipt,
    Step,
    parse_receipt,
    sign_receipt,
    verify_receipt,
)
from remit.claims.strictjson import parse_json
from remit.claims.succession import (
    KeyChange,
    KeyLimit,
    Position,
    sign_key_change,
    sign_key_limit,
    verify_key_change,
    verify_key_limit,
    with_successors,
)
from remit.claims.types import SideEffectClass
from remit.errors import BrokenChain, RemitError
from remit.version import __version__

__all__ = [
    "ActionClass",
    "Attestation",
    "BrokenChain",
    "Confirmation",
    "ContentProvenance",
    "Digest",
    "Head",
    "KeyChange",
    "KeyLimit",
    "Keyring",
    "LegacyBudgetDelta",
    "Lineage",
    "LineageBudgetDelta",
    "Measurement",
    "Mission",
    "Passport",
    "PolicyDecision",
    "Position",
    "Receipt",
    "RemitError",
    "SessionSummary",
    "SideEffectClass",
    "SignedAttestation",
    "SignedReceipt",
    "SigningKey",
    "Step",
    "Tally",
    "TrustedKey",
    "VerifyingKey",
    "__version__",
    "canonicalize",
    "extend",
    "issue_passport",
    "narrow",
    "ordered_receipt_id",
    "parse_json",
    "parse_mission",
    "parse_receipt",
    "public_view",
    "receipt_id",
    "sign_attestation",
    "sign_bookmark",
    "sign_key_change",
    "sign_key_limit",
    "sign_receipt",
    "verifier_id",
    "verify_attestation",
    "verify_bookmark",
    "verify_chain",
    "verify_key_change",
    "verify_key_limit",
    "verify_passport",
    "verify_receipt",
    "verify_session",
    "walk_chain",
    "with_successors",
]
