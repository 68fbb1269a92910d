"""`remit inspect`: shows the content of a token, and whether it verifies.

Invariant: `details` of an examined token has verified facts only; `peeked` has unverified content.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import click

from remit.claims.attestation import verify_attestation
from remit.claims.bookmark import verify_bookmark
from remit.claims.canonical import sha256_hex
from remit.claims.chain import verifier_id
from remit.claims.jws import (
    ATTESTATION,
    BOOKMARK,
    KEY_CHANGE,
    KEY_LIMIT,
    PASSPORT,
    RECEIPT,
    UnverifiedToken,
    unsafe_peek,
)
from remit.claims.keys import Keyring, TrustedKey, VerifyingKey
from remit.claims.passport import Passport
from remit.claims.public import public_view
from remit.claims.receipt import verify_receipt
from remit.claims.strictjson import JSON, parse_object
from remit.claims.succession import verify_key_change, verify_key_limit
from remit.cli.errors import DONE, NO, failure, report_errors
from remit.cli.options import common_options
from remit.cli.render import date, escape_text, show_data, show_facts
from remit.cli.token_input import read_token_argument, verify_passport_ignoring_time
from remit.config import home_path
from remit.errors import (
    FieldInvalid,
    InputError,
    KeyMalformed,
    KeyMaterialError,
    KeyNotP256,
    KeyPeriodEnded,
    KeyUnknown,
    PassportError,
    RemitError,
    StateMissing,
    TokenError,
    TokenKindMismatch,
    TokenMalformed,
)
from remit.ledger.embedded import open_rows
from remit.ledger.findings import FAULTS, limits_fault, period_fault
from remit.ledger.home import open_home
from remit.ledger.keys import KeyPeriods, build_keyring
from remit.ledger.rows import LedgerQueries

_MAX_BYTES: Final = 256 * 1024
_PEM: Final = re.compile(rb"-----BEGIN .*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL)


def load_keyring(file: Path, issuer: JSON) -> Keyring:
    """Return the keys in a file: PEM, a JWK or a JWKS.

    They are trusted for `issuer`, the issuer that the token names. If it names none, each key is trusted for its own
    verifier id.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES)
    except (OSError, ValueError):
        raise FieldInvalid(f"the file {file} cannot be read", place="$.key") from None
    keys = list(_from_json(data) if data.lstrip().startswith(b"{") else _from_pem(data))
    if not keys:
        raise KeyMalformed("the file has no public key that verifies ES256")
    return Keyring(_trust_key(key, issuer) for key in keys)


def _from_pem(data: bytes) -> Iterator[VerifyingKey]:
    return map(VerifyingKey.from_pem, _PEM.findall(data))


def _from_json(data: bytes) -> Iterator[VerifyingKey]:
    """Yield the P-256 keys of a key set. It may hold keys for other uses, which are skipped."""
    value = parse_object(data, max_bytes=_MAX_BYTES)
    listed = value.get("keys", [value])
    for jwk in listed if isinstance(listed, list) else []:
        try:
            yield VerifyingKey.from_jwk(jwk if isinstance(jwk, dict) else {})
        except KeyNotP256:
            continue


def _trust_key(key: VerifyingKey, issuer: JSON) -> TrustedKey:
    own = verifier_id(key)
    return (
        TrustedKey(key, issuer, foreign=issuer != own) if isinstance(issuer, str) and issuer else TrustedKey(key, own)
    )


RECEIPT_KIND: Final = "receipt"
_PASSPORT_KIND: Final = "passport"
_Details: TypeAlias = Mapping[str, JSON]
# The token is not genuine. Any other error is a fault of the ledger.
_NOT_GENUINE: Final = (TokenError, PassportError, KeyMaterialError, InputError)


class ExaminedToken(NamedTuple):
    """A token and the result of verifying it. `error` is the reason why it does not verify; None if it does."""

    kind: str
    error: RemitError | None
    kid: str
    details: _Details
    peeked: UnverifiedToken


def examine_token(
    token: str, peeked: UnverifiedToken, keyring: Keyring, rows: LedgerQueries | None, now: int
) -> ExaminedToken:
    """Verify a token with `keyring`, and look it up in the ledger if there is one."""
    kind, look = _KINDS.get(_typ(peeked), ("", None))
    if look is None:
        readable = peeked.header is not None
        unknown = TokenKindMismatch("its typ is not a kind of token of Remit") if readable else None
        return ExaminedToken(
            kind, unknown or TokenMalformed("it is not a token: its header cannot be read"), "", {}, peeked
        )
    kid = str((peeked.header or {}).get("kid"))
    try:
        details = look(token, keyring, rows, now)
        if rows is not None:
            _check_period(kind, kid, details, rows)
    except _NOT_GENUINE as error:
        return ExaminedToken(kind, error, "", {}, peeked)
    return ExaminedToken(kind, None, kid, details, peeked)


def _check_period(kind: str, kid: str, details: _Details, rows: LedgerQueries) -> None:
    """Raise if the period of the key has ended, and the ledger does not hold the token from before that."""
    limits = KeyPeriods(rows).limits().get(kid, ())
    if not limits:
        return
    if not details.get("in_ledger", details.get("registered")):
        raise KeyPeriodEnded(f"the period of its key has ended, and the {kind} is not in this ledger")
    passed = [
        limit for limit in limits if kind == _PASSPORT_KIND and details["id"] in rows.signed_after(kid, limit.position)
    ]
    if passed:
        raise KeyPeriodEnded(FAULTS[limits_fault(passed)])


def _typ(peeked: UnverifiedToken) -> str:
    typ = (peeked.header or {}).get("typ")
    return typ.lower().removeprefix("application/") if isinstance(typ, str) else ""


def _examine_passport(token: str, keyring: Keyring, rows: LedgerQueries | None, now: int) -> _Details:
    passport = verify_passport_ignoring_time(token, keyring)
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


def _is_registered(passport: Passport, rows: LedgerQueries) -> bool:
    """Return whether the home has issued exactly this token, or started a session with it."""
    registered, token = rows.registered(passport.jti), passport.token
    if registered is not None and registered.hash == sha256_hex(token.encode()):
        return True
    return any(
        row is not None and row.passport == token
        for row in (rows.session(passport.jti), rows.delegation_to(passport.jti))
    )


def _is_revoked(passport: Passport, rows: LedgerQueries) -> bool:
    """Return whether the passport or one that it was delegated from was revoked."""
    jti, parent = passport.jti, passport.parent_jti
    while True:
        session = rows.session(jti)
        if rows.revoked(jti) or (session is not None and session.state == "revoked"):
            return True
        if parent is None:
            return False
        above = rows.session(parent)
        jti, parent = parent, above.parent if above else None


def _examine_receipt(token: str, keyring: Keyring, rows: LedgerQueries | None, now: int) -> _Details:
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
    stored = rows.receipt(claims.receipt_id)
    if stored is None or stored.token != token:
        return details | {"in_ledger": False}
    fault = period_fault(KeyPeriods(rows).limits(), receipt.kid, stored.number)
    if fault is not None:
        raise KeyPeriodEnded(FAULTS[fault])
    return details | {
        "in_ledger": True,
        "session": stored.session_id,
        "place": stored.seq,
        "of": rows.count(stored.session_id),
    }


def _examine_attestation(token: str, keyring: Keyring, rows: LedgerQueries | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    claims = verify_attestation(token, keyring)
    details: dict[str, JSON] = {"id": claims.jti, "issuer": claims.iss, "session": claims.session_id}
    return details if rows is None else details | {"in_ledger": token in rows.attestations(claims.session_id)}


def _examine_key_change(token: str, keyring: Keyring, rows: LedgerQueries | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    change = verify_key_change(token, keyring)
    details: dict[str, JSON] = {"id": change.jti, "predecessor": change.predecessor, "successor": change.successor.kid}
    if rows is None:
        return details
    return details | {"in_ledger": token in [record.change for record in rows.keys()]}  # noqa: SIM118 - not a dictionary


def _examine_key_limit(token: str, keyring: Keyring, rows: LedgerQueries | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    limit = verify_key_limit(token, keyring)
    details: dict[str, JSON] = {"id": limit.jti, "key": limit.kid, **limit.position._asdict()}
    if limit.distrusted_from is not None:
        details["distrusted_from"] = limit.distrusted_from
    return details if rows is None else details | {"in_ledger": token in [record.token for record in rows.limits()]}


def _examine_bookmark(token: str, keyring: Keyring, rows: LedgerQueries | None, now: int) -> _Details:  # noqa: ARG001 - one signature
    head, _ = verify_bookmark(token, keyring)
    session_id = head.lineage.grant_id
    details: dict[str, JSON] = {"session": session_id, "place": head.length}
    return details if rows is None else details | {"in_ledger": rows.bookmark(session_id) == token}


_KINDS: Final[Mapping[str, tuple[str, Callable[[str, Keyring, LedgerQueries | None, int], _Details] | None]]] = {
    PASSPORT.typ: (_PASSPORT_KIND, _examine_passport),
    RECEIPT.typ: (RECEIPT_KIND, _examine_receipt),
    ATTESTATION.typ: ("attestation", _examine_attestation),
    KEY_CHANGE.typ: ("change of key", _examine_key_change),
    KEY_LIMIT.typ: ("end of a key's period", _examine_key_limit),
    BOOKMARK.typ: ("bookmark", _examine_bookmark),
}


@click.command()
@click.argument("token")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="Verify with the keys in FILE (PEM or JWKS)."
)
@click.option("--public", is_flag=True, help="Of a receipt: print only its public view, as JSON.")
@common_options
def inspect(*, token: str, key: Path | None, public: bool, home: str | None, as_json: bool) -> None:
    """Show the content of TOKEN, and verify it with the keys of the home. `-` reads it from stdin, @FILE from a file.

    Exit code 0 if it is verified, 1 if not. A genuine passport is verified even if it has expired or was revoked; that
    is shown. With --key, revocation is not checked.

    The public view of a receipt omits the internal denial code and everything else for auditors only. It is not signed,
    and only a verified receipt has one.

    Example: remit issue ... | remit inspect -
    """
    with report_errors(as_json=as_json):
        given = read_token_argument(token)
        peeked = unsafe_peek(given)
        with _open_keys(home, key, peeked) as (keyring, rows):
            examined = examine_token(given, peeked, keyring, rows, int(time.time()))
            view = _public_view(examined, given, keyring) if public else None
    if public:
        _show_public(examined, view, as_json=as_json)
    elif as_json:
        show_data(_as_json(examined))
    else:
        _show(examined)
    raise SystemExit(DONE if examined.error is None else NO)


def _public_view(examined: ExaminedToken, token: str, keyring: Keyring) -> dict[str, JSON] | None:
    """Return the public view of a receipt; None if it is not verified."""
    if examined.kind and examined.kind != RECEIPT_KIND:
        raise FieldInvalid(f"only receipts have a public view, and this is a {examined.kind}", place="--public")
    return None if examined.error is not None else public_view(verify_receipt(token, keyring))


def _show_public(examined: ExaminedToken, view: dict[str, JSON] | None, *, as_json: bool) -> None:
    """Print the public view. Of a receipt that is not verified, print only that."""
    if view is not None:
        show_data({"ok": True, **view})
    elif as_json:
        show_data({name: value for name, value in _as_json(examined).items() if name != "unverified"})
    else:
        show_facts({"because": _failure_reason(examined)}, mark=f"NOT VERIFIED {examined.kind or 'token'}", style="red")


@contextmanager
def _open_keys(
    home: str | None, key: Path | None, peeked: UnverifiedToken
) -> Iterator[tuple[Keyring, LedgerQueries | None]]:
    """Return the keys to verify with, and the ledger if there is a home."""
    if key is not None:
        yield load_keyring(key, (peeked.claims or {}).get("iss")), None
        return
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_home(home_path(home), create=False))
            _, rows = stack.enter_context(open_rows(opened))
        except StateMissing:
            yield Keyring([]), None
            return
        yield build_keyring(rows.keys()), rows


def _as_json(examined: ExaminedToken) -> dict[str, Any]:
    kind = {"kind": examined.kind or None, "verified": examined.error is None}
    said = {"header": examined.peeked.header, "claims": examined.peeked.claims}
    if examined.error is not None:
        return failure(str(examined.error), examined.error.code) | kind | {"unverified": said}
    return {"ok": True} | kind | {"kid": examined.kid} | dict(examined.details) | said


def _show(examined: ExaminedToken) -> None:
    if examined.error is not None:
        show_facts({"because": _failure_reason(examined)}, mark=f"NOT VERIFIED {examined.kind or 'token'}", style="red")
        click.echo("it says, unverified:")
    else:
        details = {name.replace("_", " "): _FORMATS.get(name, str)(value) for name, value in examined.details.items()}
        show_facts({"signed by": examined.kid, **details}, mark=f"VERIFIED {examined.kind}", style="green")
        click.echo("it says:")
    for part in examined.peeked:
        text = "(cannot be read)" if part is None else json.dumps(part, indent=2, ensure_ascii=False)
        for line in text.split("\n"):
            click.echo(f"  {escape_text(line)}")


def _failure_reason(examined: ExaminedToken) -> str:
    if isinstance(examined.error, KeyUnknown):
        return f"{examined.error}: it was signed elsewhere, or --home is wrong"
    return str(examined.error)


_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "expires_at": date,
    "expired": lambda yes: "yes" if yes else "no",
    "registered": {
        True: "yes",
        False: "no: this home has not issued it, and starts no session with it",
    }.__getitem__,
    "revoked": {
        True: "yes: no call is permitted under it",
        False: "no",
        None: "not checked: that needs the ledger of the home",
    }.__getitem__,
    "in_ledger": lambda yes: "yes" if yes else "no",
}
