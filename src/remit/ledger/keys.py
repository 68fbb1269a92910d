"""The keys of a ledger: which one signs, which are believed, and how one hands over to the next.

Keeps this invariant: a key is used only if the ledger names it, and a new one comes into use only by a record that the
one before has signed. Nobody makes a key in the place of one that is lost.
"""

import secrets
import threading
from collections.abc import Iterable

from remit.claims.chain import verifier_id
from remit.claims.keys import Keyring, SigningKey, TrustedKey, VerifyingKey
from remit.claims.succession import sign_key_change, with_successors
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.port import Ledger, Reader, Transaction
from remit.ledger.records import KeyRecord

__all__ = ["LedgerKeys", "first_key", "keyring_of", "rotate"]


def first_key(files: KeyFiles, now_ms: int) -> KeyRecord:
    """Return the key that a new ledger begins with: one that lies there from an earlier try, or a new one."""
    kids = files.kids()
    key = files.load(kids[0]) if kids else files.create()
    return KeyRecord(key.kid, key.public.to_pem().decode("ascii"), None, now_ms)


def keyring_of(records: Iterable[KeyRecord], foreign: Iterable[TrustedKey] = ()) -> Keyring:
    """Return the keys that are believed: the first of ours, those it has led to, and those of others."""
    first, *later = records
    key = VerifyingKey.from_pem(first.public_pem.encode("ascii"))
    ring = Keyring([TrustedKey(key, verifier_id(key)), *foreign])
    return with_successors(ring, [record.change for record in later if record.change])


class LedgerKeys:
    """Our private keys, read once, and the keyring that follows from the ledger."""

    def __init__(self, files: KeyFiles, reader: Reader, foreign: Iterable[TrustedKey] = ()) -> None:
        self._files = files
        self._reader = reader
        self._foreign = tuple(foreign)
        self._signing: dict[str, SigningKey] = {}
        self._lock = threading.Lock()
        self._keyring = keyring_of(reader.keys(), self._foreign)

    def signing(self, kid: str) -> SigningKey:
        """Return the private key of this id. One that another process has made since is read, and believed."""
        key = self._signing.get(kid)
        if key is None:
            with self._lock:
                key = self._signing[kid] = self._files.load(kid)
            self.refresh()
        return key

    def keyring(self) -> Keyring:
        """Return the keys that are believed."""
        return self._keyring

    def refresh(self) -> Keyring:
        """Read again which keys are believed, and return them."""
        self._keyring = keyring_of(self._reader.keys(), self._foreign)
        return self._keyring


def rotate(ledger: Ledger, keys: LedgerKeys, files: KeyFiles, now_ms: int) -> KeyRecord:
    """Let the key that signs hand over to a new one, and remove its file; return the new one.

    Chains go on with the new key. What the old one has signed stays believed.
    """
    new = files.create()

    def work(transaction: Transaction) -> tuple[KeyRecord, str]:
        old = keys.signing(transaction.switches.kid)
        change = sign_key_change(old, new.public, jti=f"key:{secrets.token_hex(16)}", now=now_ms // 1000)
        record = KeyRecord(new.kid, new.public.to_pem().decode("ascii"), change, now_ms)
        transaction.put_key(record)
        transaction.put_switches(transaction.switches._replace(kid=new.kid))
        return record, old.kid

    record, retired = ledger.run(work, alone=True)
    keys.refresh()
    files.remove(retired)
    return record
