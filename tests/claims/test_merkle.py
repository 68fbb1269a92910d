"""Merkle trees: every proof of every small tree, and no proof for anything else."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.merkle import (
    EMPTY_ROOT,
    Frontier,
    hash_leaf,
    hash_node,
    merkle_root,
    prove_consistency,
    prove_inclusion,
    verify_consistency,
    verify_inclusion,
)
from remit.errors import FieldInvalid, ProofInvalid

SIZE = 64
LEAVES = [hash_leaf(str(number).encode()) for number in range(SIZE)]


def textbook_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 9162, 2.1.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = max(2**power for power in range(10) if 2**power < len(leaves))
    return hash_node(textbook_root(leaves[:split]), textbook_root(leaves[split:]))


ROOTS = [textbook_root(LEAVES[:size]) for size in range(SIZE + 1)]


def test_roots_are_those_of_the_definition_and_grow_step_by_step() -> None:
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT == ROOTS[0]
    for size, leaf in enumerate(LEAVES, 1):
        frontier.append(leaf)
        assert (frontier.size, frontier.root()) == (size, ROOTS[size])
        assert merkle_root(LEAVES[:size]) == ROOTS[size]


def test_known_roots_of_certificate_transparency() -> None:
    entries = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [hash_leaf(bytes.fromhex(entry)) for entry in entries]
    assert merkle_root(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    assert merkle_root(leaves[:3]).hex() == "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"


def test_every_leaf_of_every_small_tree_is_proved_and_only_at_its_place() -> None:
    for size in range(1, SIZE + 1):
        for index in range(size):
            path = prove_inclusion(LEAVES[:size], index)
            verify_inclusion(LEAVES[index], index, size, path, ROOTS[size])
            for other in {(index + 1) % size, size - 1 - index} - {index}:
                with pytest.raises(ProofInvalid):
                    verify_inclusion(LEAVES[index], other, size, path, ROOTS[size])


def test_every_small_tree_is_proved_to_be_the_beginning_of_every_larger_one() -> None:
    for size in range(1, SIZE + 1):
        for old in range(1, size + 1):
            path = prove_consistency(LEAVES[:size], old)
            verify_consistency(old, ROOTS[old], size, ROOTS[size], path)


@given(st.integers(1, SIZE), st.data())
def test_no_bit_of_an_inclusion_proof_can_be_flipped(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    path = prove_inclusion(LEAVES[:size], index)
    parts = [LEAVES[index], *path, ROOTS[size]]
    leaf, *changed, root = flip_a_bit(parts, data)
    with pytest.raises(ProofInvalid):
        verify_inclusion(leaf, index, size, changed, root)


@given(st.integers(2, SIZE), st.data())
def test_no_bit_of_a_consistency_proof_can_be_flipped(size: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, size - 1))
    parts = [ROOTS[old], *prove_consistency(LEAVES[:size], old), ROOTS[size]]
    old_root, *changed, root = flip_a_bit(parts, data)
    with pytest.raises(ProofInvalid):
        verify_consistency(old, old_root, size, root, changed)


def flip_a_bit(parts: list[bytes], data: st.DataObject) -> list[bytes]:
    which = data.draw(st.integers(0, len(parts) - 1))
    bit = data.draw(st.integers(0, 255))
    changed = (int.from_bytes(parts[which], "big") ^ (1 << bit)).to_bytes(32, "big")
    return [*parts[:which], changed, *parts[which + 1 :]]


@given(st.integers(1, SIZE), st.data())
def test_a_proof_with_a_node_too_many_or_too_few_is_refused(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    path = prove_inclusion(LEAVES[:size], index)
    for wrong in ([*path, LEAVES[0]], path[:-1]):
        if wrong != path:
            with pytest.raises(ProofInvalid):
                verify_inclusion(LEAVES[index], index, size, wrong, ROOTS[size])
    old = data.draw(st.integers(1, size))
    path = prove_consistency(LEAVES[:size], old)
    for wrong in ([*path, LEAVES[0]], path[:-1]):
        if wrong != path:
            with pytest.raises(ProofInvalid):
                verify_consistency(old, ROOTS[old], size, ROOTS[size], wrong)


def test_places_outside_the_tree_have_no_proof() -> None:
    for index in (-1, 3):
        with pytest.raises(ProofInvalid):
            prove_inclusion(LEAVES[:3], index)
        with pytest.raises(ProofInvalid):
            verify_inclusion(LEAVES[0], index, 3, [], ROOTS[3])
    for old in (0, 4):
        with pytest.raises(ProofInvalid):
            prove_consistency(LEAVES[:3], old)
        with pytest.raises(ProofInvalid):
            verify_consistency(old, ROOTS[1], 3, ROOTS[3], [])


def test_a_path_that_ends_below_the_root_of_the_size_it_names_is_refused() -> None:
    with pytest.raises(ProofInvalid):
        verify_inclusion(LEAVES[0], 0, 2, [], LEAVES[0])
    with pytest.raises(ProofInvalid):
        verify_inclusion(LEAVES[0], 0, 5, prove_inclusion(LEAVES[:2], 0), ROOTS[2])
    with pytest.raises(ProofInvalid):
        verify_consistency(2, ROOTS[2], 9, ROOTS[4], prove_consistency(LEAVES[:4], 2))


def test_a_path_that_goes_on_above_the_root_of_the_size_it_names_is_refused() -> None:
    with pytest.raises(ProofInvalid):
        verify_inclusion(LEAVES[0], 0, 1, [LEAVES[1]], ROOTS[2])
    with pytest.raises(ProofInvalid):
        verify_consistency(1, ROOTS[1], 2, hash_node(ROOTS[2], ROOTS[1]), [LEAVES[1], ROOTS[1]])


def test_a_place_outside_the_tree_is_refused_even_if_the_hashes_fit() -> None:
    for index in (1, 2, -1):
        with pytest.raises(ProofInvalid):
            verify_inclusion(LEAVES[0], index, 1, [], ROOTS[1])
    with pytest.raises(ProofInvalid):
        verify_consistency(0, EMPTY_ROOT, 0, EMPTY_ROOT, [])


def test_two_trees_of_one_size_must_be_the_same() -> None:
    with pytest.raises(ProofInvalid):
        verify_consistency(3, ROOTS[2], 3, ROOTS[3], [])


def test_an_empty_path_joins_nothing() -> None:
    with pytest.raises(ProofInvalid):
        verify_consistency(3, ROOTS[3], 5, ROOTS[5], [])


def test_nodes_of_another_length_prove_nothing() -> None:
    left, right = LEAVES[:2]
    for leaf, path in ((left + right, [b""]), (b"", [left + right])):
        with pytest.raises(ProofInvalid):
            verify_inclusion(leaf, 1, 2, path, ROOTS[2])
    third, fourth = LEAVES[2:4]
    forged = hash_node(ROOTS[2] + third[:1], hash_node(third[1:], fourth))
    with pytest.raises(ProofInvalid):
        verify_consistency(3, ROOTS[3], 4, forged, [third[1:], fourth, ROOTS[2] + third[:1]])
    with pytest.raises(ProofInvalid):
        merkle_root([left, right[1:]])


def test_sizes_beyond_any_log_are_refused_at_once() -> None:
    for size in (2**63, 10**5000):
        with pytest.raises(ProofInvalid):
            verify_inclusion(LEAVES[0], 0, size, [], ROOTS[1])
        with pytest.raises(ProofInvalid):
            verify_consistency(1, ROOTS[1], size, ROOTS[2], [])
        with pytest.raises(ProofInvalid):
            prove_inclusion(LEAVES, size)


@given(st.integers(0, SIZE), st.integers(0, SIZE))
def test_a_tree_that_was_written_down_grows_on_as_before(first: int, size: int) -> None:
    frontier = Frontier()
    for leaf in LEAVES[:first]:
        frontier.append(leaf)
    restored = Frontier.from_state(json.loads(json.dumps(frontier.to_state())))
    for leaf in LEAVES[first:size]:
        restored.append(leaf)
    assert (restored.size, restored.root()) == (max(first, size), ROOTS[max(first, size)])


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"size": 0, "peaks": ["0" * 64]}, "$.peaks"),
        ({"size": 3, "peaks": ["0" * 64]}, "$.peaks"),
        ({"size": 1, "peaks": ["A" * 64]}, "$.peaks[0]"),
        ({"size": 1, "peaks": ["0" * 62]}, "$.peaks[0]"),
        ({"size": -1, "peaks": []}, "$.size"),
        ({"size": 0.0, "peaks": []}, "$.size"),
        ({"size": 0}, "$"),
        ({"size": 0, "peaks": [], "root": ""}, "$"),
        ([], "$"),
    ],
    ids=str,
)
def test_a_tree_that_cannot_be_is_refused(state: object, place: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        Frontier.from_state(state)
    assert (caught.value.code, caught.value.place) == ("field_invalid", place)
