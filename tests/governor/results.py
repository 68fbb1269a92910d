"""Digests of outcomes, for the tests that record them."""

from remit.claims.canonical import sha256_base64url
from remit.claims.receipt import Digest

__all__ = ["DIGEST", "digest_of"]


def digest_of(outcome: bytes) -> Digest:
    """Return the digest of an outcome."""
    return Digest(alg="sha-256", value=sha256_base64url(outcome), scope="result")


DIGEST = digest_of(b"the outcome")
