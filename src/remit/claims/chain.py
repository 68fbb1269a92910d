"""Chains of receipts: extend a chain, verify one, and report where it breaks.

Invariant: in a chain that verifies, each receipt names the one before by id and by hash of its token,
counts one further, belongs to the same run, is issued with the same key or one that succeeds it, and is not older. So
no receipt but the last can be changed, removed, added or moved without being detected; for the last ones, compare the
head with one that was stored elsewhere. The keyring knows which key succeeds which.

The numbered steps are those of docs/audit/chain.md.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec import UNSET, Raw
from msgspec.json import Encoder

from remit.claims.canonical import ExactForm, canonicalize_arguments, sha256_base64url
from remit.claims.keys import Keyring, SigningKey, VerifyingKey
from remit.claims.receipt import (
    Digest,
    Draft,
    Receipt,
    SignedReceipt,
    Step,
    draft_step,
    sign_draft,
    verify_receipt,
)
from remit.claims.types import encode
from remit.errors import BrokenChain, FieldInvalid, IssuerMismatch, TokenError

__all__ = [
    "FAULTS",
    "RECEIPT_LIFETIME_S",
    "Each",
    "Head",
    "Lineage",
    "draft",
    "extend",
    "invocation_digest",
    "ordered_receipt_id",
    "receipt_id",
    "step_id",
    "verifier_id",
    "verify_chain",
    "walk_chain",
]

RECEIPT_LIFETIME_S: Final = 365 * 24 * 3600
_VERIFIER: Final = "remit:"
_ID_BYTES: Final = 16
_ORDERED_ID_BYTES: Final = 10
_MAX_MILLISECONDS: Final = 2**48 - 1


def verifier_id(key: VerifyingKey) -> str:
    """Return the name under which the holder of `key` issues receipts."""
    return _VERIFIER + key.thumbprint()


def receipt_id(entropy: bytes) -> str:
    """Return a receipt id from 16 random bytes, which the caller draws from `secrets`."""
    if len(entropy) != _ID_BYTES:
        raise FieldInvalid(f"an id is made of {_ID_BYTES} random bytes")
    return f"rcpt:{entropy.hex()}"


def ordered_receipt_id(now_ms: int, entropy: bytes) -> str:
    """Return a receipt id from the time in milliseconds and 10 random bytes, which the caller draws from `secrets`.

    Later ids sort after earlier ones, so an index over them grows at its end.
    """
    if len(entropy) != _ORDERED_ID_BYTES:
        raise FieldInvalid(f"an ordered id is made of {_ORDERED_ID_BYTES} random bytes")
    if not 0 <= now_ms <= _MAX_MILLISECONDS:
        raise FieldInvalid("the time of an id has 48 bits")
    return f"rcpt:{now_ms:012x}{entropy.hex()}"


def step_id(number: int) -> str:
    """Return the id of the n-th step of a session, counted from 1."""
    return f"step:{number:06d}"


class Lineage(NamedTuple):
    """The members that all receipts of a session share; the `verifier_id` changes when a key hands over to another."""

    grant_id: str
    actor: str
    verifier_id: str
    trace_id: str
    run_nonce: str


class Head(NamedTuple):
    """The end of a chain: what its next receipt must follow."""

    lineage: Lineage
    length: int = 0
    receipt_id: str | None = None
    receipt_hash: str | None = None
    iat: int = 0
    kid: str | None = None

    def after(self, receipt: SignedReceipt) -> "Head":
        """Return the head once `receipt` is appended."""
        claims, lineage = receipt.claims, self.lineage
        if claims.verifier_id != lineage.verifier_id:
            lineage = lineage._replace(verifier_id=claims.verifier_id)
        return Head(lineage, self.length + 1, claims.receipt_id, receipt.hash, claims.iat, receipt.kid)

    def handed_to(self, key: VerifyingKey) -> "Head":
        """Return the head that the successor `key` extends.

        The chain's last key stays that of its last receipt, so a verifier asks for the change of key all the same.
        """
        return self._replace(lineage=self.lineage._replace(verifier_id=verifier_id(key)))


def invocation_digest(tool: str, arguments: bytes, session_id: str, step: str) -> Digest:
    """Return the digest of the invocation envelope; `arguments` are in canonical form already.

    If that is not RFC 8785's, because of large integers, the digest names no canonicalization. The envelope's own
    canonical form has its members in this order, so it can be put together from theirs. A string's canonical form is
    its plain JSON.
    """
    envelope = encode({"arguments": Raw(arguments), "session_id": session_id, "step_id": step, "tool": tool})
    return Digest(
        alg="sha-256",
        value=sha256_base64url(envelope),
        canonicalization=UNSET if isinstance(arguments, ExactForm) else "jcs-rfc8785",
        scope="normalized_input",
    )


def extend(head: Head, step: Step, key: SigningKey, *, arguments: object, new_id: str, now: int) -> SignedReceipt:
    """Return the receipt of `step`, signed, that follows `head`.

    `arguments` is the JSON value of the tool call's. Time never runs backwards in a chain: if the clock was set back,
    the receipt carries the time of the one before. The key is the one that the lineage's `verifier_id` names.
    """
    if head.lineage.verifier_id != _VERIFIER + key.kid:
        raise IssuerMismatch("the key is not the verifier's that the lineage names")
    drafted = draft(head, step, form=canonicalize_arguments(arguments), new_id=new_id, now=now)
    return sign_draft(drafted, head.receipt_hash, key)


def draft(head: Head, step: Step, *, form: bytes, new_id: str, now: int) -> Draft:
    """Return the receipt of `step` that follows `head`, without its signature and the hash of the one before.

    `form` is the canonical form of the call's arguments.
    """
    lineage = head.lineage
    number = step_id(head.length + 1)
    issued_at = max(now, head.iat)
    own_id = _json(new_id)
    link = _build_link(lineage) % (
        own_id,
        _json(head.receipt_id),
        _json(number),
        _json(invocation_digest(step.tool, form, lineage.grant_id, number)),
        sha256(form).hexdigest().encode("ascii"),
        issued_at,
        issued_at + RECEIPT_LIFETIME_S,
        own_id,
    )
    return draft_step(step, link, is_first=head.receipt_id is None)


_json: Final = Encoder().encode
_LINK: Final = (
    b',"receipt_id":%%b,"grant_id":%b,"parent_receipt_id":%%b,"actor":%b,"verifier_id":%b,"trace_id":%b,"run_nonce":%b,'
    b'"step_id":%%b,"invocation_digest":%%b,"arguments_hash":"%%b","iss":%b,"iat":%%d,"exp":%%d,"jti":%%b,'
)


@lru_cache(maxsize=4096)
def _build_link(lineage: Lineage) -> bytes:
    """Return the linking members of receipts of a lineage, as JSON with placeholders for those that differ."""
    named = lineage.grant_id, lineage.actor, lineage.verifier_id, lineage.trace_id, lineage.run_nonce
    return _LINK % tuple(encode(text).replace(b"%", b"%%") for text in (*named, lineage.verifier_id))


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class Each(Protocol):
    """Applies a function to many things in order: `map`, or the `map` of a pool of threads."""

    def __call__(self, function: Callable[[_Given], _Made], things: Iterable[_Given], /) -> Iterable[_Made]:
        """Return the results in the order of the things."""


def verify_chain(
    tokens: Iterable[str],
    keyring: Keyring,
    *,
    start: Head | None = None,
    last_hash: str | None = None,
    each: Each = map,
) -> Head | None:
    """Return the head of the chain that `tokens` form, or raise `BrokenChain`. No tokens have no head.

    `start` is where an earlier verification ended. `last_hash` is the hash of the last receipt as it was kept
    elsewhere (an attestation, a checkpoint); only with it is a truncated chain detected. `each` may be that of a pool.
    """
    head = start
    for _receipt, reached in walk_chain(tokens, keyring, start=start, each=each):
        head = reached
    if last_hash is not None and (head is None or head.receipt_hash != last_hash.lower()):
        length = head.length if head else 0
        raise BrokenChain(length, "head_mismatch", "the chain does not end where it must")
    return head


def walk_chain(
    tokens: Iterable[str], keyring: Keyring, *, start: Head | None = None, each: Each = map
) -> Iterator[tuple[SignedReceipt, Head]]:
    """Yield each verified receipt with the head it leads to; raise `BrokenChain` at the first that is wrong."""
    head = start
    for outcome in _outcomes(tokens, keyring, each):
        index = head.length if head else 0
        if isinstance(outcome, TokenError):  # 1
            raise BrokenChain(index, outcome.code, str(outcome)) from outcome
        if head is None:
            head = Head(_get_lineage(outcome.claims))
        for fault, holds, problem in _RULES:  # 2 to 10
            if not holds(head, outcome, keyring):
                raise BrokenChain(index, fault, problem)
        head = head.after(outcome)
        yield outcome, head


# Signatures are checked in batches, so that a pool has enough work, and one batch after the other, so that a chain may
# be larger than the memory.
_BATCH: Final = 64
_WAVE: Final = 64


def _outcomes(tokens: Iterable[str], keyring: Keyring, each: Each) -> Iterator[SignedReceipt | TokenError]:
    batches = _batch(tokens, _BATCH)
    for wave in _batch(batches, _WAVE):
        for outcomes in each(partial(_verify_batch, keyring), wave):
            yield from outcomes


def _batch(things: Iterable[_Given], size: int) -> Iterator[list[_Given]]:
    rest = iter(things)
    while batch := list(islice(rest, size)):
        yield batch


def _verify_batch(keyring: Keyring, tokens: list[str]) -> list[SignedReceipt | TokenError]:
    return [_verify_one(keyring, token) for token in tokens]


def _verify_one(keyring: Keyring, token: str) -> SignedReceipt | TokenError:
    try:
        return verify_receipt(token, keyring)
    except TokenError as error:
        return error


def _get_lineage(claims: Receipt) -> Lineage:
    return Lineage(*(getattr(claims, name) for name in Lineage._fields))


def _is_issued_in_succession(head: Head, receipt: SignedReceipt, keyring: Keyring) -> bool:
    """Return whether the receipt was issued with the key of the chain, or with one that succeeds it."""
    claims, lineage, kid = receipt.claims, head.lineage, receipt.kid
    if claims.iss != claims.verifier_id:
        return False
    if claims.verifier_id == lineage.verifier_id and head.kid in (None, kid):
        return True
    last_kid = head.kid or lineage.verifier_id.removeprefix(_VERIFIER)
    return claims.verifier_id == _VERIFIER + kid and keyring.succeeds(kid, last_kid)


# The members of a receipt that stay the same when the key changes; a lineage has them too.
_run_of: Final = attrgetter("grant_id", "actor", "trace_id", "run_nonce")

_Rule = tuple[str, Callable[[Head, SignedReceipt, Keyring], bool], str]

# In this order, so that the fault named is the one that explains the others.
_RULES: Final[tuple[_Rule, ...]] = (
    (
        "issuer_changed",  # 2
        _is_issued_in_succession,
        "not issued with the key of the receipt before it, nor with one that succeeds it",
    ),
    (
        "lineage_changed",  # 3
        lambda head, receipt, _keyring: _run_of(receipt.claims) == _run_of(head.lineage),
        "belongs to another session, run or actor",
    ),
    (
        "root_has_parent",  # 4
        lambda head, receipt, _keyring: (
            bool(head.length) or receipt.claims.parent_receipt_id is receipt.claims.parent_receipt_hash is None
        ),
        "the first receipt names a parent",
    ),
    (
        "parent_missing",  # 5
        lambda head, receipt, _keyring: (
            not head.length or None not in (receipt.claims.parent_receipt_id, receipt.claims.parent_receipt_hash)
        ),
        "names no parent, and only the first receipt may",
    ),
    (
        "parent_id_mismatch",  # 6
        lambda head, receipt, _keyring: receipt.claims.parent_receipt_id == head.receipt_id,
        "does not name the receipt before it",
    ),
    (
        "parent_hash_mismatch",  # 7
        lambda head, receipt, _keyring: (receipt.claims.parent_receipt_hash or "").lower() == (head.receipt_hash or ""),
        "the receipt before it is not the one that was there",
    ),
    (
        "step_out_of_order",  # 8
        lambda head, receipt, _keyring: receipt.claims.step_id == step_id(head.length + 1),
        "is not the next step",
    ),
    (
        "time_went_back",  # 9
        lambda head, receipt, _keyring: head.iat <= receipt.claims.iat < receipt.claims.exp,
        "was issued before the receipt before it, or after its own end",
    ),
    (
        "id_mismatch",  # 10
        lambda head, receipt, _keyring: receipt.claims.jti == receipt.claims.receipt_id != head.receipt_id,
        "jti and receipt_id differ, or are those of the receipt before it",
    ),
)

FAULTS: Final = (*(fault for fault, _, _ in _RULES), "head_mismatch")
