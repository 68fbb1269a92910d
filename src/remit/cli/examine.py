"""What can be said of a token: its kind, who signed it, and what the ledger knows of it.

Keeps this invariant: what is in `details` was verified. What a token says without that is in `peeked`
alone.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from remit.claims.attestation import verify_attestation
from remit.claims.bookmark import verify_bookmark
from remit.claims.canonical import sha256_hex
from remit.claims.jws import ATTESTATION, BOOKMARK, KEY_CHANGE, KEY_LIMIT, PASSPORT, RECEIPT, Peeked
from remit.claims.keys import Keyring
from remit.claims.passport import Passport
from remit.claims.receipt import verify_receipt
from remit.claims.strictjson import JSON
from remit.claims.succession import verify_key_change, verify_key_limit
from remit.cli.given import genuine_passport
from remit.errors import (
    InputError,
    KeyMaterialError,
    KeyPeriodEnded,
    PassportError,
    RemitError,
    TokenError,
    TokenKindMismatch,
    TokenMalformed,
)
from remit.ledger.findings import FAULTS, fault_of_limits, fault_of_period
from remit.ledger.keys import Periods
from remit.ledger.rows import Rows

__all__ = ["RECEIPT_KIND", "Examined", "examine"]

RECEIPT_KIND: Final = "receipt"
_PASSPORT_KIND: Final = "passport"
_Details: TypeAlias = Mapping[str, JSON]
# All else is a fault of the ledger, not of the token.
_NOT_GENUINE: Final = (TokenError, PassportError, KeyMaterialError, InputError)


class Examined(NamedTuple):
    """A token, looked at. `error` says why it is not verified, where it is not."""

    kind: str
    error: RemitError | None
    kid: str
    details: _Details
    peeked: Peeked


def examine(token: str, peeked: Peeked, keyring: Keyring, rows: Rows | None, now: int) -> Examined:
    """Verify a token with `keyring`, and say what the ledger knows of it, if there is one."""
    kind, look = _KINDS.get(_typ(peeked), ("", None))
    if look is None:
        readable = peeked.header is not None
        unknown = TokenKindMismatch("typ is of no kind that is known here") if readable else None
        return Examined(kind, unknown or TokenMalformed("it is not a token: its header cannot be read"), "", {}, peeked)
    kid = str((peeked.header or {}).get("kid"))
    try:
        details = look(token, keyring, rows, now)
        if rows is not None:
            _check_period(kind, kid, details, rows)
    except _NOT_GENUINE as error:
        return Examined(kind, error, "", {}, peeked)
    return Examined(kind, None, kid, details, peeked)


def _check_period(kind: str, kid: str, details: _Details, rows: Rows) -> None:
    """Raise if the period of a key has ended and the ledger does not hold the token, or holds it after that."""
    limits = Periods(rows).limits().get(kid, ())
    if not limits:
        return
    if not details.get("in_ledger", details.get("registered")):
        raise KeyPeriodEnded(f"the period of its key has ended, and this ledger does not have the {kind}")
    passed = [
        limit for limit in limits if kind == _PASSPORT_KIND and details["id"] in rows.signed_after(kid, limit.position)
    ]
    if passed:
        raise KeyPeriodEnded(FAULTS[fault_of_limits(passed)])


def _typ(peeked: Peeked) -> str:
    typ = (peeked.header or {}).get("typ")
    return typ.lower().removeprefix("application/") if isinstance(typ, str) else ""


def _passport(token: str, keyring: Keyring, rows: Rows | None, now: int) -> _Details:
    passport = genuine_passport(token, keyring)
    details: dict[str, JSON] = {
        "id": passport.jti,
        "issuer": passport.issuer,
        "expires_at": passport.expires_at,
        "expired": now >= passport.expires_at,
    }
    if rows is None:
        return details | {"revoked": None}
    session = rows.session(passport.jti)
    state = session.state if session else "not started"
    here = _is_registered(passport, rows)
    return details | {"registered": here, "revoked": _is_revoked(passport, rows), "session": state}


def _is_registered(passport: Passport, rows: Rows) -> bool:
    """Tell whether the home has issued this very token, or started a session with it."""
    registered, token = rows.registered(passport.jti), passport.token
    if registered is not None and registered.hash == sha256_hex(token.encode()):
        return True
    return any(
        row is not None and row.passport == token
        for row in (rows.session(passport.jti), rows.delegation_to(passport.jti))
    )


def _is_revoked(passport: Passport, rows: Rows) -> bool:
    """Tell whether it was revoked, or one that it was delegated from."""
    jti, parent = passport.jti, passport.parent_jti
    while True:
        session = rows.session(jti)
        if rows.revoked(jti) or (session is not None and session.state == "revoked"):
            return True
        if parent is None:
            return False
        above = rows.session(parent)
        jti, parent = parent, above.parent if above else None


def _receipt(token: str, keyring: Keyring, rows: Rows | None, now: int) -> _Details:
    receipt = verify_receipt(token, keyring)
    claims = receipt.claims
    details: dict[str, JSON] = {
        "id": claims.receipt_id,
        "issuer": claims.iss,
        "hash": receipt.hash,
        "expires_at": claims.exp,
        "expired": now >= claims.exp,
    }
    if rows is None:
        return details
    kept = rows.receipt(claims.receipt_id)
    if kept is None or kept.token != token:
        return details | {"in_ledger": False}
    fault = fault_of_period(Periods(rows).limits(), receipt.kid, kept.number)
    if fault is not None:
        raise KeyPeriodEnded(FAULTS[fault])
    return details | {
        "in_ledger": True,
        "session": kept.session_id,
        "place": kept.seq,
        "of": rows.count(kept.session_id),
    }


def _attestation(token: str, keyring: Keyring, rows: Rows | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    claims = verify_attestation(token, keyring)
    details: dict[str, JSON] = {"id": claims.jti, "issuer": claims.iss, "session": claims.session_id}
    return details if rows is None else details | {"in_ledger": token in rows.attestations(claims.session_id)}


def _key_change(token: str, keyring: Keyring, rows: Rows | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    change = verify_key_change(token, keyring)
    details: dict[str, JSON] = {"id": change.jti, "predecessor": change.predecessor, "successor": change.successor.kid}
    if rows is None:
        return details
    return details | {"in_ledger": token in [record.change for record in rows.keys()]}  # noqa: SIM118 - not a dictionary


def _key_limit(token: str, keyring: Keyring, rows: Rows | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    limit = verify_key_limit(token, keyring)
    details: dict[str, JSON] = {"id": limit.jti, "key": limit.kid, **limit.position._asdict()}
    if limit.distrusted_from is not None:
        details["distrusted_from"] = limit.distrusted_from
    return details if rows is None else details | {"in_ledger": token in [record.token for record in rows.limits()]}


def _bookmark(token: str, keyring: Keyring, rows: Rows | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    head, _ = verify_bookmark(token, keyring)
    session_id = head.lineage.grant_id
    details: dict[str, JSON] = {"session": session_id, "place": head.length}
    return details if rows is None else details | {"in_ledger": rows.bookmark(session_id) == token}


_KINDS: Final[Mapping[str, tuple[str, Callable[[str, Keyring, Rows | None, int], _Details] | None]]] = {
    PASSPORT.typ: (_PASSPORT_KIND, _passport),
    RECEIPT.typ: (RECEIPT_KIND, _receipt),
    ATTESTATION.typ: ("attestation", _attestation),
    KEY_CHANGE.typ: ("change of key", _key_change),
    KEY_LIMIT.typ: ("end of a key's period", _key_limit),
    BOOKMARK.typ: ("bookmark", _bookmark),
}
