"""Merkle trees of RFC 9162: hashes, roots, inclusion and consistency proofs.

Invariant: a proof that verifies shows that a leaf is in a tree (or an older tree in a newer one) if
SHA-256 has no collisions. Leaves are the exact bytes of receipt tokens. Roots are signed elsewhere.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from msgspec import to_builtins

from remit.claims.strictjson import JSON
from remit.claims.types import Claims, Count, LowerHex, convert
from remit.errors import FieldInvalid, ProofInvalid

__all__ = [
    "EMPTY_ROOT",
    "Frontier",
    "FrontierState",
    "hash_leaf",
    "hash_node",
    "merkle_root",
    "prove_consistency",
    "prove_inclusion",
    "verify_consistency",
    "verify_inclusion",
]

EMPTY_ROOT: Final = hashlib.sha256(b"").digest()


def hash_leaf(entry: bytes) -> bytes:
    """Return the hash of a leaf; the prefix distinguishes leaves from nodes (RFC 9162, 2.1.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class FrontierState(Claims, frozen=True, kw_only=True):
    """The serialized form of a `Frontier`: one hash for each bit of the size that is set, the largest subtree first."""

    size: Count
    peaks: list[LowerHex]

    def __post_init__(self) -> None:
        """Check that there are as many peaks as a tree of this size has."""
        if len(self.peaks) != self.size.bit_count():
            raise FieldInvalid("a tree of this size has another number of peaks", place="$.peaks")


class Frontier:
    """A tree that only grows, represented by the roots of its complete subtrees, in logarithmic space."""

    __slots__ = ("_peaks", "size")

    def __init__(self) -> None:
        """Start empty."""
        self.size = 0
        self._peaks: list[bytes] = []

    @classmethod
    def from_state(cls, value: object) -> "Frontier":
        """Return the tree that `to_state` has serialized, or raise `FieldInvalid`. Does not prove who wrote it."""
        state = convert(FrontierState, value)
        frontier = cls()
        frontier.size = state.size
        frontier._peaks = [bytes.fromhex(peak) for peak in state.peaks]
        return frontier

    def to_state(self) -> dict[str, JSON]:
        """Return the tree as JSON, for `from_state`."""
        peaks = [peak.hex() for peak in self._peaks]
        state: dict[str, JSON] = to_builtins(FrontierState(size=self.size, peaks=peaks))
        return state

    def append(self, leaf: bytes) -> None:
        """Add the hash of one more leaf."""
        _check_hashes(leaf)
        size, peak = self.size, leaf
        while size & 1:
            peak = hash_node(self._peaks.pop(), peak)
            size >>= 1
        self._peaks.append(peak)
        self.size += 1

    def root(self) -> bytes:
        """Return the current root of the tree."""
        if not self._peaks:
            return EMPTY_ROOT
        *rest, root = self._peaks
        for peak in reversed(rest):
            root = hash_node(peak, root)
        return root


_HASH_BYTES: Final = 32
_MAX_SIZE: Final = 2**63


def _check_hashes(*hashes: bytes) -> None:
    """Raise unless all have the length of a hash: a node of another length could be split differently."""
    if any(len(node) != _HASH_BYTES for node in hashes):
        raise ProofInvalid(f"a hash has {_HASH_BYTES} bytes")


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root()


def _split(size: int) -> int:
    """Return the largest power of two smaller than `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def prove_inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the path from leaf `index` to the root (RFC 9162, 2.1.3.1)."""
    if not 0 <= index < len(leaves):
        raise ProofInvalid("the tree has no such leaf")
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if index < middle:
        return [*prove_inclusion(left, index), merkle_root(right)]
    return [*prove_inclusion(right, index - middle), merkle_root(left)]


def prove_consistency(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """Return the proof that the first `old_size` leaves are the older tree (RFC 9162, 2.1.4.1)."""
    if not 0 < old_size <= len(leaves):
        raise ProofInvalid("the tree has no such beginning")
    return _subproof(leaves, old_size, whole=True)


def _subproof(leaves: Sequence[bytes], old_size: int, *, whole: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if whole else [merkle_root(leaves)]
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if old_size <= middle:
        return [*_subproof(left, old_size, whole=whole), merkle_root(right)]
    return [*_subproof(right, old_size - middle, whole=False), merkle_root(left)]


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Raise `ProofInvalid` unless `path` leads from leaf `index` of `size` to `root` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size < _MAX_SIZE:
        raise ProofInvalid("the tree has no such leaf")
    _check_hashes(leaf, *path, root)
    node, last, reached = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            raise ProofInvalid("the path is too long")
        if node & 1 or node == last:
            reached = hash_node(sibling, reached)
            node, last = _skip_even(node, last)
        else:
            reached = hash_node(reached, sibling)
        node, last = node >> 1, last >> 1
    if last != 0 or reached != root:
        raise ProofInvalid("the path does not lead to the root")


def _skip_even(node: int, last: int) -> tuple[int, int]:
    """Climb to where `node` is a right child: on the rim of the tree, levels without a sibling leave no hash."""
    while node and not node & 1:
        node, last = node >> 1, last >> 1
    return node, last


def verify_consistency(old_size: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> None:
    """Raise `ProofInvalid` unless the tree of `old_size` is the beginning of the newer one (RFC 9162, 2.1.4.2)."""
    if not 0 < old_size <= size < _MAX_SIZE:
        raise ProofInvalid("the tree has no such beginning")
    _check_hashes(old_root, *path, root)
    if old_size == size:
        if path or old_root != root:
            raise ProofInvalid("trees of one size differ")
        return
    hashes = list(path) if old_size & (old_size - 1) else [old_root, *path]
    if not hashes:
        raise ProofInvalid("the path is empty")
    _climb(old_size - 1, size - 1, hashes, old_root, root)


def _climb(node: int, last: int, hashes: list[bytes], old_root: bytes, root: bytes) -> None:
    while node & 1:
        node, last = node >> 1, last >> 1
    old_reached = reached = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            raise ProofInvalid("the path is too long")
        if node & 1 or node == last:
            old_reached = hash_node(sibling, old_reached)
            reached = hash_node(sibling, reached)
            node, last = _skip_even(node, last)
        else:
            reached = hash_node(reached, sibling)
        node, last = node >> 1, last >> 1
    if last != 0 or old_reached != old_root or reached != root:
        raise ProofInvalid("the path does not join the two trees")
