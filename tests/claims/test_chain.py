"""Chains: whatever is done to one, verification finds the first receipt that is wrong, and says what is."""

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from remit import (
    BrokenChain,
    Head,
    Keyring,
    SigningKey,
    TrustedKey,
    canonicalize,
    extend,
    ordered_receipt_id,
    receipt_id,
    sign_receipt,
    verifier_id,
    verify_chain,
    walk_chain,
)
from remit.claims.chain import FAULTS, invocation_digest, step_id
from remit.claims.keys import ORDER
from remit.errors import FieldInvalid, IssuerMismatch, TokenError
from tests.world import (
    ISSUER,
    KEYRING,
    NOW,
    OURS,
    STRANGER,
    Session,
    error_classes,
    lineage_named,
    permitted,
    session_of,
)

LENGTH = 110
WHOLE = session_of(LENGTH)
OTHER = session_of(LENGTH, "other")
SUCCESSOR = session_of(
    LENGTH, key=STRANGER, keyring=Keyring([TrustedKey(STRANGER.public, verifier_id(STRANGER.public))])
)
BOTH_KEYS = Keyring([*KEYRING, TrustedKey(STRANGER.public, verifier_id(STRANGER.public))])
LAST = WHOLE.receipts[-1].hash


def resigned(index: int, key: SigningKey = OURS, **changes: object) -> str:
    """Return receipt `index` with changes, signed again as its issuer could."""
    return sign_receipt(structs.replace(WHOLE.receipts[index].claims, **changes), key).token


def other_s(token: str) -> str:
    message, _, part = token.rpartition(".")
    from remit.claims.canonical import decode_base64url, encode_base64url

    raw = decode_base64url(part)
    s = ORDER - int.from_bytes(raw[32:], "big")
    return f"{message}.{encode_base64url(raw[:32] + s.to_bytes(32, 'big'))}"


Mutation = Callable[[list[str], int], tuple[list[str], int, str]]

# Each takes the chain and a place in its middle, and returns the new chain, where it breaks first, and why.
MUTATIONS: dict[str, Mutation] = {
    "delete": lambda tokens, at: ([*tokens[:at], *tokens[at + 1 :]], at, "parent_id_mismatch"),
    "swap": lambda tokens, at: (
        [*tokens[:at], tokens[at + 1], tokens[at], *tokens[at + 2 :]],
        at,
        "parent_id_mismatch",
    ),
    "replay": lambda tokens, at: ([*tokens[:at], tokens[at - 1], *tokens[at:]], at, replayed(at)),
    "splice": lambda tokens, at: ([*tokens[:at], *OTHER.tokens[at:]], at, "lineage_changed"),
    "insert": lambda tokens, at: ([*tokens[:at], OTHER.tokens[at], *tokens[at:]], at, "lineage_changed"),
    "rewrite": lambda tokens, at: (
        [*tokens[:at], resigned(at, reason="rewritten"), *tokens[at + 1 :]],
        at + 1,
        "parent_hash_mismatch",
    ),
    "fork": lambda tokens, at: (
        [*tokens[:at], resigned(at, receipt_id="rcpt:fork", jti="rcpt:fork"), *tokens[at + 1 :]],
        at + 1,
        "parent_id_mismatch",
    ),
    "new key": lambda tokens, at: ([*tokens[:at], *SUCCESSOR.tokens[at:]], at, "issuer_changed"),
    "unknown key": lambda tokens, at: (
        [*tokens[:at], resigned(at, SigningKey.derive(bytes(40))), *tokens[at + 1 :]],
        at,
        "key_unknown",
    ),
    "new root": lambda tokens, at: (
        [*tokens[:at], resigned(at, parent_receipt_id=None, parent_receipt_hash=None), *tokens[at + 1 :]],
        at,
        "parent_missing",
    ),
    "signature": lambda tokens, at: (
        [*tokens[:at], tokens[at][:-86] + tokens[at - 1][-86:], *tokens[at + 1 :]],
        at,
        "signature_invalid",
    ),
    "other s": lambda tokens, at: ([*tokens[:at], other_s(tokens[at]), *tokens[at + 1 :]], at, "signature_not_low_s"),
    "clock set back": lambda tokens, at: ([*tokens[:at], resigned(at, iat=NOW - 1)], at, "time_went_back"),
    "step skipped": lambda tokens, at: ([*tokens[:at], resigned(at, step_id=step_id(at + 2))], at, "step_out_of_order"),
    "another id": lambda tokens, at: ([*tokens[:at], resigned(at, jti="rcpt:other")], at, "id_mismatch"),
    "another run": lambda tokens, at: ([*tokens[:at], resigned(at, run_nonce="0" * 24)], at, "lineage_changed"),
    "cut": lambda tokens, at: (tokens[:at], at, "head_mismatch"),
}


def replayed(at: int) -> str:
    return "parent_missing" if at == 1 else "parent_id_mismatch"


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_at_a_hundred_places_is_found_where_it_is(name: str) -> None:
    for at in range(1, 101):
        tokens, index, fault = MUTATIONS[name](WHOLE.tokens, at)
        # Verified up to just before, so that a hundred places take no longer than one chain.
        start = head_after(max(0, at - 2))
        with pytest.raises(BrokenChain) as caught:
            verify_chain(tokens[start.length : at + 4], BOTH_KEYS, start=start, last_hash=LAST)
        assert (caught.value.index, caught.value.fault) == (index, fault)


def head_after(length: int) -> Head:
    head = Head(lineage_named())
    for receipt in WHOLE.receipts[:length]:
        head = head.after(receipt)
    return head


@settings(max_examples=20)
@given(st.sampled_from(sorted(MUTATIONS)), st.integers(1, LENGTH - 3))
def test_the_first_bad_index_is_found_from_the_beginning_too(name: str, at: int) -> None:
    tokens, index, fault = MUTATIONS[name](WHOLE.tokens, at)
    with pytest.raises(BrokenChain) as caught:
        verify_chain(tokens, BOTH_KEYS, last_hash=LAST)
    assert (caught.value.index, caught.value.fault) == (index, fault)


@given(st.lists(st.integers(0, 9), max_size=12))
def test_only_the_receipts_in_their_order_are_a_chain(order: list[int]) -> None:
    tokens = [WHOLE.tokens[index] for index in order]
    if order == list(range(len(order))):
        head = verify_chain(tokens, KEYRING)
        assert (head.length if head else 0) == len(order)
        return
    with pytest.raises(BrokenChain) as caught:
        verify_chain(tokens, KEYRING)
    assert caught.value.index == next(place for place, index in enumerate(order) if place != index)


def test_another_key_of_the_same_issuer_does_not_go_on_with_a_chain() -> None:
    """A name can be given to two keys; that is no change of key."""
    ring = Keyring([TrustedKey(OURS.public, ISSUER), TrustedKey(STRANGER.public, ISSUER)])
    with pytest.raises(BrokenChain) as caught:
        verify_chain([*WHOLE.tokens[:3], resigned(3, STRANGER)], ring)
    assert (caught.value.index, caught.value.fault) == (3, "issuer_changed")


def test_a_receipt_does_not_take_the_id_of_the_one_before() -> None:
    taken = WHOLE.receipts[2].claims.receipt_id
    with pytest.raises(BrokenChain) as caught:
        verify_chain([*WHOLE.tokens[:3], resigned(3, receipt_id=taken, jti=taken)], KEYRING)
    assert caught.value.fault == "id_mismatch"


def test_a_chain_is_extended_with_the_key_it_names() -> None:
    with pytest.raises(IssuerMismatch):
        extend(WHOLE.head, permitted(), STRANGER, arguments={}, new_id="rcpt:other", now=NOW)


@pytest.mark.parametrize("entropy", [b"", bytes(15), bytes(17)], ids=len)
def test_an_id_is_made_of_sixteen_bytes(entropy: bytes) -> None:
    with pytest.raises(FieldInvalid):
        receipt_id(entropy)


@pytest.mark.parametrize(
    ("now_ms", "entropy"), [(0, bytes(9)), (0, bytes(11)), (-1, bytes(10)), (2**48, bytes(10))], ids=str
)
def test_an_ordered_id_is_made_of_a_time_of_48_bits_and_ten_bytes(now_ms: int, entropy: bytes) -> None:
    with pytest.raises(FieldInvalid) as caught:
        ordered_receipt_id(now_ms, entropy)
    assert caught.value.code == "field_invalid"


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_ordered_ids_sort_by_time(first: int, second: int, entropy: bytes) -> None:
    ids = ordered_receipt_id(first, entropy), ordered_receipt_id(second, entropy)
    assert (ids[0] < ids[1], len(ids[0])) == (first < second, len(receipt_id(bytes(16))))
    assert ids[0][5:] == f"{first:012x}{entropy.hex()}"


def test_a_whole_chain_leads_to_its_head() -> None:
    assert verify_chain(WHOLE.tokens, KEYRING, last_hash=LAST) == WHOLE.head
    assert verify_chain(WHOLE.tokens, KEYRING, last_hash=LAST.upper()) == WHOLE.head


def test_verification_goes_on_where_it_ended() -> None:
    middle = verify_chain(WHOLE.tokens[:50], KEYRING)
    assert verify_chain(WHOLE.tokens[50:], KEYRING, start=middle, last_hash=LAST) == WHOLE.head
    assert verify_chain([], KEYRING, start=middle) == middle


def test_no_receipts_have_no_head_and_do_not_end_anywhere() -> None:
    assert verify_chain([], KEYRING) is None
    with pytest.raises(BrokenChain) as caught:
        verify_chain([], KEYRING, last_hash=LAST)
    assert (caught.value.index, caught.value.fault) == (0, "head_mismatch")


def test_the_first_receipt_has_no_parent() -> None:
    with pytest.raises(BrokenChain) as caught:
        verify_chain(WHOLE.tokens[1:], KEYRING)
    assert (caught.value.index, caught.value.fault) == (0, "root_has_parent")
    half = resigned(0, parent_receipt_hash="0" * 64)
    with pytest.raises(BrokenChain) as caught:
        verify_chain([half], KEYRING)
    assert caught.value.fault == "root_has_parent"


def test_a_receipt_that_ends_before_it_begins_is_found() -> None:
    with pytest.raises(BrokenChain) as caught:
        verify_chain([resigned(0, exp=NOW)], KEYRING)
    assert caught.value.fault == "time_went_back"


def test_many_threads_give_the_same_answer_as_one() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert verify_chain(WHOLE.tokens, KEYRING, each=pool.map) == WHOLE.head
        with pytest.raises(BrokenChain) as caught:
            verify_chain([*WHOLE.tokens[:99], WHOLE.tokens[0]], KEYRING, each=pool.map)
    assert caught.value.index == 99


@pytest.mark.slow
def test_a_chain_streams_through() -> None:
    """The walk must not ask for the last token before it has yielded the first receipts."""
    asked: list[int] = []

    def tokens() -> Iterable[str]:
        session = Session("streamed")
        while True:
            asked.append(len(asked))
            yield session.append().token

    receipts = walk_chain(tokens(), KEYRING)
    first, head = next(receipts)
    assert head.receipt_hash == first.hash
    assert len(asked) <= 64 * 64


def test_a_broken_chain_carries_what_the_receipt_itself_says() -> None:
    with pytest.raises(BrokenChain) as caught:
        verify_chain(["not a token"], KEYRING)
    assert isinstance(caught.value.__cause__, TokenError)
    assert caught.value.fault == "token_malformed"


def test_every_fault_comes_from_the_closed_list() -> None:
    codes = {error.code for error in error_classes()}
    faults = {MUTATIONS[name](WHOLE.tokens, 5)[2] for name in MUTATIONS} | {"root_has_parent"}
    assert faults <= {*FAULTS, *codes}
    assert set(FAULTS) <= faults


def test_time_never_runs_backwards_even_if_the_clock_does() -> None:
    session = session_of(2)
    session.now = NOW - 10_000
    assert session.append().claims.iat == NOW + 1


def test_receipts_say_what_was_called_without_saying_it() -> None:
    arguments = {"path": "/etc/shadow", "mode": "r"}
    claims = Session().append(arguments=arguments).claims
    form = canonicalize(arguments)
    envelope = {"tool": "read_file", "arguments": arguments, "session_id": claims.grant_id, "step_id": "step:000001"}
    assert claims.arguments_hash == hashlib.sha256(form).hexdigest()
    assert claims.invocation_digest == invocation_digest("read_file", form, claims.grant_id, "step:000001")
    from remit.claims.canonical import sha256_base64url

    assert claims.invocation_digest.value == sha256_base64url(canonicalize(envelope))
    assert "shadow" not in str(claims)


def test_ids_have_their_form() -> None:
    claims = Session().append().claims
    assert claims.receipt_id == claims.jti
    assert claims.iss == claims.verifier_id == f"remit:{OURS.kid}"
    assert receipt_id(bytes(16)) == "rcpt:" + "0" * 32
    assert claims.exp == claims.iat + 365 * 24 * 3600


def test_stored_sent_and_hashed_bytes_are_the_same() -> None:
    for before, after in zip(WHOLE.receipts, WHOLE.receipts[1:], strict=False):
        assert after.claims.parent_receipt_hash == hashlib.sha256(before.token.encode("ascii")).hexdigest()


def test_extending_the_same_head_twice_gives_two_receipts_that_cannot_both_stay() -> None:
    session = session_of(3)
    twins = [
        extend(session.head, permitted(reason=reason), OURS, arguments={}, new_id=f"rcpt:{reason}", now=session.now)
        for reason in ("first", "second")
    ]
    for twin in twins:
        assert verify_chain([*session.tokens, twin.token], KEYRING)
    with pytest.raises(BrokenChain):
        verify_chain([*session.tokens, *(twin.token for twin in twins)], KEYRING)
