"""The keys of a ledger: the signing key, the trusted keys, key rotation and distrust.

Invariants: a key is used only if the ledger names it, and a new key only with a key change signed by its predecessor. A
lost key is never replaced silently. The end of a key's period is recorded as a position in the ledger and signed by a
succeeding key, so that a stolen key cannot move it by choosing dates.
"""

import secrets
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from remit.claims.chain import verifier_id
from remit.claims.keys import Keyring, SigningKey, TrustedKey, VerifyingKey
from remit.claims.succession import (
    KeyLimit,
    Position,
    sign_key_change,
    sign_key_limit,
    verify_key_limit,
    with_successors,
)
from remit.errors import FieldInvalid, RemitError
from remit.ledger.findings import Limits
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.records import KeyRecord, LimitRecord
from remit.ledger.store import LedgerReader, Transaction

_DISTRUSTED: Final = "the key that signed it is distrusted"


def first_key(files: KeyFiles, now_ms: int) -> KeyRecord:
    """Return the first key of a new ledger: one left by an earlier attempt, or a new one."""
    kids = files.kids()
    key = files.load(kids[0]) if kids else files.create()
    return KeyRecord(key.kid, key.public.to_pem().decode("ascii"), None, now_ms)


def build_keyring(records: Iterable[KeyRecord], foreign: Iterable[TrustedKey] = ()) -> Keyring:
    """Return the trusted keys: the first key of the ledger, its successors, and foreign keys."""
    first, *later = records
    key = VerifyingKey.from_pem(first.public_pem.encode("ascii"))
    ring = Keyring([TrustedKey(key, verifier_id(key)), *foreign])
    return with_successors(ring, [record.change for record in later if record.change])


class LedgerKeys:
    """The private keys, each read once, and the keyring according to the ledger."""

    def __init__(self, files: KeyFiles, reader: LedgerReader, foreign: Iterable[TrustedKey] = ()) -> None:
        self._files = files
        self._reader = reader
        self._foreign = tuple(foreign)
        self._signing: dict[str, SigningKey] = {}
        self._lock = threading.Lock()
        self._keyring = build_keyring(reader.keys(), self._foreign)

    def signing(self, kid: str) -> SigningKey:
        """Return the private key with this id. If it is new, load it and refresh the keyring."""
        key = self._signing.get(kid)
        if key is None:
            with self._lock:
                key = self._signing[kid] = self._files.load(kid)
            self.refresh()
        return key

    def keyring(self) -> Keyring:
        """Return the trusted keys."""
        return self._keyring

    def refresh(self) -> Keyring:
        """Reload the trusted keys and return them."""
        self._keyring = build_keyring(self._reader.keys(), self._foreign)
        return self._keyring


def key_limit_ids(records: Iterable[LimitRecord], keyring: Keyring) -> frozenset[str]:
    """Return the ids of the key limit records that verify."""
    ids = set[str]()
    for record in records:
        with suppress(RemitError):
            ids.add(verify_key_limit(record.token, keyring).jti)
    return frozenset(ids)


def load_key_limits(records: Iterable[LimitRecord], keyring: Keyring) -> list[KeyLimit]:
    """Verify the key limit records, and return the ends of key periods."""
    return [verify_key_limit(record.token, keyring) for record in records]


class KeyPeriods:
    """The ends of the key periods of a ledger. Records are verified only when they have changed."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader
        self._records: list[LimitRecord] = []
        self._limits: dict[str, list[KeyLimit]] = {}

    def limits(self) -> Limits:
        """Return the current limits by key id."""
        # Read the limits before the keys: a key is never recorded later than the first limit that it signs.
        records = self._reader.limits()
        if records != self._records:
            found: dict[str, list[KeyLimit]] = {}
            for limit in load_key_limits(records, build_keyring(self._reader.keys())):
                found.setdefault(limit.kid, []).append(limit)
            self._records, self._limits = records, found
        return self._limits


def find_distrusted(limits: Iterable[KeyLimit]) -> dict[str, int]:
    """Return the distrusted keys, each with the earliest time from which it is distrusted."""
    found: dict[str, int] = {}
    for limit in limits:
        if limit.distrusted_from is not None:
            found[limit.kid] = min(limit.distrusted_from, found.get(limit.kid, limit.distrusted_from))
    return found


class _SigningKeys(Protocol):
    def signing(self, kid: str) -> SigningKey: ...


def hand_over(transaction: Transaction, keys: _SigningKeys, new: SigningKey, now_ms: int) -> tuple[KeyRecord, str]:
    """Replace the signing key with `new` and record the end of its period; return the record and the old key's id.

    It runs in a write transaction, so the old key can sign no receipt or registration after it.
    """
    old = keys.signing(transaction.ledger_state.kid)
    change = sign_key_change(old, new.public, jti=_new_id(), now=now_ms // 1000)
    record = KeyRecord(new.kid, new.public.to_pem().decode("ascii"), change, now_ms)
    transaction.put_key(record)
    transaction.put_ledger_state(transaction.ledger_state._replace(kid=new.kid))
    _limit(transaction, new, (old.kid, transaction.position()), now_ms)
    return record, old.kid


def _limit(transaction: Transaction, signer: SigningKey, limit: tuple[str, Position], now_ms: int, **more: int) -> None:
    """Sign and store the record that the period of a key ended at a position."""
    kid, position = limit
    token = sign_key_limit(signer, kid, position, jti=_new_id(), now=now_ms // 1000, **more)
    transaction.put_limit(LimitRecord(kid, token))


def _new_id() -> str:
    return f"key:{secrets.token_hex(16)}"


class Distrusted(NamedTuple):
    """The result of distrusting a key: the position, the passports revoked, and the current signing key.

    `rotated`: whether the distrusted key was the signing key, and was replaced.
    """

    position: Position
    passports: list[str]
    signing: str
    rotated: bool


def create_successor(reader: LedgerReader, files: KeyFiles, kid: str) -> SigningKey | None:
    """Create the successor of a key to be distrusted; None if it is not the signing key."""
    if kid not in {record.kid for record in reader.keys()}:  # noqa: SIM118 - not a dictionary
        raise FieldInvalid("no key of this home has this id: remit keys list", place="$.kid")
    return files.create() if reader.ledger_state().kid == kid else None


def distrust_in(
    transaction: Transaction, keys: _SigningKeys, kid: str, new: SigningKey | None, *, from_ms: int, now_ms: int
) -> Distrusted:
    """Distrust what a key has signed after `from_ms`; `new` is its successor, if it is the signing key.

    The time is converted here to a position in the ledger. Passports that the key has signed after it are
    revoked in the same transaction, whether they were started or not.
    """
    if new is not None and transaction.ledger_state.kid == kid:
        hand_over(transaction, keys, new, now_ms)
        signer = new
    else:
        signer = keys.signing(transaction.ledger_state.kid)
    position = transaction.position(from_ms)
    _limit(transaction, signer, (kid, position), now_ms, distrusted_from=from_ms // 1000)
    passports = transaction.signed_after(kid, position)
    for passport_id in passports:
        transaction.put_revocation(passport_id, at_ms=now_ms, reason=_DISTRUSTED)
    return Distrusted(position, passports, signer.kid, signer is new)


def remove_unused(files: KeyFiles, kid: str, new: SigningKey | None, distrusted: Distrusted) -> None:
    """Remove the file of the replaced key, or of the new key if it was not needed."""
    if distrusted.rotated:
        files.remove(kid)
    elif new is not None:
        files.remove(new.kid)
