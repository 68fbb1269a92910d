"""A small fixed world for tests: the keys, mission and steps of the vectors, and chains of any length."""

import hashlib
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET
from vectors.making.world import DENIAL, MISSION, NOW, OURS, STRANGER, THEIRS, key_named, lineage, step
from vectors.making.world import THEM as THEIR_ISSUER
from vectors.making.world import US as ISSUER

from remit import (
    Head,
    Keyring,
    Lineage,
    RemitError,
    SignedReceipt,
    SigningKey,
    Step,
    TrustedKey,
    extend,
    receipt_id,
    verify_chain,
)
from remit.claims.canonical import sha256_hex
from remit.claims.jws import unsafe_peek
from remit.ledger.embedded import open_embedded_ledger
from remit.ledger.records import PassportRegistration
from remit.ledger.store import Ledger

__all__ = [
    "ISSUER",
    "KEYRING",
    "MISSION",
    "NOW",
    "OURS",
    "STRANGER",
    "THEIRS",
    "THEIR_ISSUER",
    "Session",
    "denied",
    "error_classes",
    "key_named",
    "lineage_named",
    "permitted",
    "register",
    "registered_in",
    "session_of",
]

KEYRING = Keyring([TrustedKey(OURS.public, ISSUER), TrustedKey(THEIRS.public, THEIR_ISSUER, foreign=True)])


def error_classes(root: type[RemitError] = RemitError) -> list[type[RemitError]]:
    """Return every class of the error tree, each before its leaves."""
    return [root, *(error for child in root.__subclasses__() for error in error_classes(child))]


def register(ledger: Ledger, token: str, *, at_ms: int | None = None) -> str:
    """Register the token of a passport as one that was issued here, and return it."""
    peeked = unsafe_peek(token)
    header, claims = peeked.header or {}, peeked.claims or {}
    moment = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    record = PassportRegistration(str(claims["jti"]), sha256_hex(token.encode()), str(header["kid"]), moment)
    ledger.run(lambda transaction: transaction.put_passport(record))
    return token


def registered_in(home: Path, token: str) -> str:
    """Register the token of a passport in a home, beside whatever has its ledger open, and return it."""
    with closing(open_embedded_ledger(home)) as embedded:
        return register(embedded.ledger, token)


def permitted(**changes: object) -> Step:
    """Return a permitted step, with changes."""
    return step(**changes)


def denied(**changes: object) -> Step:
    """Return a denied step, with changes."""
    return step(**(DENIAL | changes))


def lineage_named(name: str = "first", key: SigningKey = OURS) -> Lineage:
    """Return the lineage of a session, one for each name."""
    return lineage(name, key)


@dataclass
class Session:
    """A chain under construction. It verifies itself after every step."""

    name: str = "first"
    key: SigningKey = OURS
    keyring: Keyring = KEYRING
    now: int = NOW
    receipts: list[SignedReceipt] = field(default_factory=list)
    head: Head = field(init=False)

    def __post_init__(self) -> None:
        self.head = Head(lineage_named(self.name, self.key))

    def append(self, step: Step | None = None, arguments: object = UNSET) -> SignedReceipt:
        """Append a step, one second after the last."""
        number = self.head.length
        signed = extend(
            self.head,
            step or permitted(),
            self.key,
            arguments={"path": f"file-{number}"} if arguments is UNSET else arguments,
            new_id=receipt_id(hashlib.sha256(f"{self.name} {number}".encode()).digest()[:16]),
            now=self.now,
        )
        before = self.head
        self.receipts.append(signed)
        self.now += 1
        self.head = self.head.after(signed)
        assert verify_chain([signed.token], self.keyring, start=before) == self.head
        return signed

    @property
    def tokens(self) -> list[str]:
        """The chain as tokens, in order."""
        return [receipt.token for receipt in self.receipts]


def session_of(length: int, name: str = "first", key: SigningKey = OURS, keyring: Keyring = KEYRING) -> Session:
    """Return a session with `length` receipts, every third one a denial."""
    session = Session(name, key, keyring)
    for number in range(length):
        session.append(denied() if number % 3 == 2 else permitted())
    return session
