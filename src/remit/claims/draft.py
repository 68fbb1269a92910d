"""Receipts before they are signed: everything but the signature and the hash of the receipt before.

Keeps this invariant: a draft obeys every rule of the claims set already, and the hash that is put into it is one. So
receipts that follow each other can be drafted first, and then signed in a row: a signature takes only as long as it
must, and nothing can go wrong any more.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import structs

from remit.claims.jws import RECEIPT
from remit.claims.keys import SigningKey
from remit.claims.receipt import Receipt, SignedReceipt, Step, check_free_members, read_back, seal
from remit.claims.shapes import SHA256_HEX, encode
from remit.errors import FieldInvalid, TokenTooLarge

__all__ = ["Draft", "draft_step", "sign_draft"]


class Draft(NamedTuple):
    """A receipt that lacks only its signature and the hash of the receipt before it.

    It obeys every rule already. Receipts that follow each other can all be drafted first, and then signed in a row.
    """

    rest: bytes
    # With a hash that stands for the one to come.
    claims: Receipt


_PARENT: Final = b'{"parent_receipt_hash":'
_SOME_HASH: Final = "0" * 64
_HASH: Final = re.compile(SHA256_HEX)
# Around the payload: a header with the longest key id, two dots, a signature.
_AROUND: Final = 512


def draft_step(step: Step, link: Mapping[str, object]) -> Draft:
    """Return the receipt of `step` as a draft; `link` holds what it has beyond a step, but for the parent's hash.

    The two are joined as text: a receipt need not be built only to be taken apart again.
    """
    if isinstance(step, Receipt):
        raise FieldInvalid("a receipt is not a step: it hangs in a chain already")
    check_free_members(step)
    rest = b"," + encode(link)[1:-1] + b"," + encode(step)[1:]
    payload = _payload(rest, None if link.get("parent_receipt_id") is None else _SOME_HASH)
    if len(payload) * 4 > (RECEIPT.max_length - _AROUND) * 3:
        raise TokenTooLarge(f"a receipt of {len(payload)} bytes does not fit a token")
    return Draft(rest, read_back(payload, step))


def _payload(rest: bytes, parent_hash: str | None) -> bytes:
    return _PARENT + (b"null" if parent_hash is None else b'"%b"' % parent_hash.encode("ascii")) + rest


def sign_draft(draft: Draft, parent_hash: str | None, key: SigningKey) -> SignedReceipt:
    """Return a draft signed, on the receipt that has this hash."""
    claims = draft.claims
    root = claims.parent_receipt_id is None
    if root != (parent_hash is None) or not (root or _HASH.fullmatch(parent_hash or "")):
        raise FieldInvalid(
            "a receipt names its parent by id and by hash, or is the first", place="$.parent_receipt_hash"
        )
    if not root:
        claims = structs.replace(claims, parent_receipt_hash=parent_hash)
    return seal(_payload(draft.rest, parent_hash), claims, key)
