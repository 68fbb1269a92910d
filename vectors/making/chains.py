"""Chains and attestations, whole and broken."""

import json
from collections.abc import Iterator

from msgspec import to_builtins

from remit import Head, Position, SignedReceipt, sign_key_change, sign_key_limit
from remit.claims.canonical import decode_base64url
from remit.claims.keys import ORDER
from vectors.making.world import (
    ATTESTATION,
    HEADER,
    KEY_CHANGE,
    LAST,
    NEXT,
    NOW,
    OURS,
    RECEIPTS,
    US,
    Case,
    attestation,
    chain,
    lineage,
    mint,
    resign,
)


def chain_cases() -> Iterator[Case]:
    """Yield chains whole and broken, with the first bad index and the fault."""
    tokens = [receipt.token for receipt in RECEIPTS]
    last = RECEIPTS[-1].hash
    other = [receipt.token for receipt in chain("other", 7)]
    forked = chain("vectors", 1, head=_head_after(3))
    fork = [*tokens[:3], mint(HEADER, to_builtins(forked[0].claims) | {"reason": "rewritten"}), *tokens[4:]]
    yield {"name": "whole", "tokens": tokens, "result": "ok", "length": 7, "head": last}
    yield {"name": "empty", "tokens": [], "result": "ok", "length": 0, "head": None}
    yield {
        "name": "a beginning, the end unknown",
        "tokens": tokens[:4],
        "result": "ok",
        "length": 4,
        "head": RECEIPTS[3].hash,
    }
    for name, mutated, index, fault in (
        ("first receipt missing", tokens[1:], 0, "root_has_parent"),
        ("a receipt missing", tokens[:3] + tokens[4:], 3, "parent_id_mismatch"),
        ("two receipts swapped", [*tokens[:2], tokens[3], tokens[2], *tokens[4:]], 2, "parent_id_mismatch"),
        ("a receipt twice", [*tokens[:3], tokens[2], *tokens[3:]], 3, "parent_id_mismatch"),
        ("a receipt of another session put in", [*tokens[:3], other[3], *tokens[3:]], 3, "lineage_changed"),
        ("the rest of another session", tokens[:3] + other[3:], 3, "lineage_changed"),
        ("a second root", [*tokens[:3], tokens[0], *tokens[3:]], 3, "parent_missing"),
        ("a receipt rewritten by the issuer", fork, 4, "parent_hash_mismatch"),
        ("a signature replaced", [*tokens[:3], tokens[3][:-86] + tokens[2][-86:], *tokens[4:]], 3, "signature_invalid"),
        (
            "the other s",
            [*tokens[:3], resign(tokens[3], lambda r, s: (r, ORDER - s)), *tokens[4:]],
            3,
            "signature_not_low_s",
        ),
    ):
        yield {"name": name, "tokens": mutated, "result": "chain_broken", "index": index, "fault": fault}
    for name, change, fault in (
        ("a step left out by the issuer", {"step_id": "step:000005"}, "step_out_of_order"),
        ("issued before the one before", {"iat": NOW}, "time_went_back"),
        ("jti and id differ", {"jti": "rcpt:" + "0" * 32}, "id_mismatch"),
        ("another run", {"run_nonce": "0" * 24}, "lineage_changed"),
        ("another actor", {"actor": "agent:other"}, "lineage_changed"),
        ("no parent hash", {"parent_receipt_hash": None}, "parent_missing"),
    ):
        rewritten = mint(HEADER, to_builtins(RECEIPTS[3].claims) | change)
        yield {"name": name, "tokens": [*tokens[:3], rewritten], "result": "chain_broken", "index": 3, "fault": fault}
    for name, cut in (("last receipt missing", tokens[:-1]), ("all receipts missing", [])):
        yield {
            "name": name,
            "tokens": cut,
            "last_hash": last,
            "result": "chain_broken",
            "index": len(cut),
            "fault": "head_mismatch",
        }


def succession_cases() -> Iterator[Case]:
    """Yield chains that changed their key, with the `key_changes` that a verifier was given."""
    again = sign_key_change(NEXT, LAST.public, jti="keys:vectors:0002", now=NOW + 200)
    back = sign_key_change(NEXT, OURS.public, jti="keys:vectors:0003", now=NOW + 200)
    fork = sign_key_change(OURS, LAST.public, jti="keys:vectors:0004", now=NOW + 200)
    begun = RECEIPTS[:3]
    by_next = chain("vectors", 2, NEXT, _head_after(3).handed_to(NEXT.public))
    by_last = chain("vectors", 2, LAST, _after(_head_after(3), by_next).handed_to(LAST.public))
    at_once = chain("vectors", 2, LAST, _head_after(3).handed_to(LAST.public))
    returned = chain("vectors", 1, OURS, _after(_head_after(3), by_next).handed_to(OURS.public))
    for name, receipts, changes in (
        ("a change of key", [*begun, *by_next], [KEY_CHANGE]),
        ("a change of key, recorded twice", [*begun, *by_next], [KEY_CHANGE, KEY_CHANGE]),
        ("two changes of key", [*begun, *by_next, *by_last], [KEY_CHANGE, again]),
        ("two changes of key between two receipts", [*begun, *at_once], [KEY_CHANGE, again]),
        ("a change of key not needed", RECEIPTS, [KEY_CHANGE]),
    ):
        tokens, head = [receipt.token for receipt in receipts], receipts[-1].hash
        yield _changed(name, tokens, changes) | {"result": "ok", "length": len(tokens), "head": head}
    for name, receipts, changes, index, fault in (
        ("a change of key without its record", [*begun, *by_next], [], 3, "key_unknown"),
        ("back to the key before", [*begun, *by_next, *returned], [KEY_CHANGE], 5, "issuer_changed"),
    ):
        broken = {"result": "chain_broken", "index": index, "fault": fault}
        yield _changed(name, [receipt.token for receipt in receipts], changes) | broken
    for name, changes, result in (
        ("two successors of one key", [KEY_CHANGE, fork], "key_conflict"),
        ("a key that succeeds its successor", [KEY_CHANGE, back], "key_conflict"),
        ("key changes in the wrong order", [again, KEY_CHANGE], "key_unknown"),
    ):
        yield _changed(name, [], changes) | {"result": result}


def limit_cases() -> Iterator[Case]:
    """Yield records of where the period of a key ended, with the `key_changes` that a verifier was given."""
    position, jti = Position(7, 2, 1), "keys:vectors:0010"
    rotated = sign_key_limit(NEXT, OURS.kid, position, jti=jti, now=NOW + 100)
    distrusted = sign_key_limit(NEXT, OURS.kid, position, jti=jti, now=NOW + 100, distrusted_from=NOW + 50)
    said = {"key": OURS.kid, **position._asdict()}
    for name, token, limit in (
        ("a key that has handed over", rotated, said),
        ("a key that is distrusted", distrusted, said | {"distrusted_from": NOW + 50}),
    ):
        yield {"name": name, "key_changes": [KEY_CHANGE], "token": token, "result": "ok", "limit": limit}
    by_itself = {"iss": US, "iat": NOW, "jti": jti, **said}
    own_header = {"alg": "ES256", "kid": OURS.kid, "typ": "remit-key-limit+jwt"}
    claims = by_itself | {"iss": f"remit:{NEXT.kid}"}
    header = own_header | {"kid": NEXT.kid}
    theirs = sign_key_limit(OURS, NEXT.kid, position, jti=jti, now=NOW)
    for name, token, result in (
        ("by a key that it has not handed over to", theirs, "key_use_forbidden"),
        ("of a key that nobody knows", mint(header, claims | {"key": "nobody"}, NEXT), "key_use_forbidden"),
        ("by the key itself", mint(own_header, by_itself), "payload_invalid"),
        ("with a member more", mint(header, claims | {"until": NOW}, NEXT), "payload_invalid"),
        ("with a position below zero", mint(header, claims | {"receipts": -1}, NEXT), "payload_invalid"),
        ("without a position", mint(header, {**claims, "receipts": None}, NEXT), "payload_invalid"),
        ("that is a change of key", KEY_CHANGE, "token_kind_mismatch"),
    ):
        yield {"name": name, "key_changes": [KEY_CHANGE], "token": token, "result": result}
    yield {"name": "without the change of key", "key_changes": [], "token": rotated, "result": "key_unknown"}


def _changed(name: str, tokens: list[str], changes: list[str]) -> Case:
    return {"name": name, "key_changes": changes, "tokens": tokens}


def _after(head: Head, receipts: list[SignedReceipt]) -> Head:
    for receipt in receipts:
        head = head.after(receipt)
    return head


def _head_after(length: int) -> Head:
    return _after(Head(lineage("vectors")), RECEIPTS[:length])


def attestation_cases() -> Iterator[Case]:
    """Yield attestations with receipts that they do or do not describe."""
    tokens = [receipt.token for receipt in RECEIPTS]
    yield {"name": "describes its receipts", "token": ATTESTATION, "receipts": tokens, "result": "ok"}
    yield {"name": "of an empty session", "token": attestation([]), "receipts": [], "result": "ok"}
    for name, token, receipts, member in (
        ("one receipt too few", ATTESTATION, tokens[:-1], "receipts"),
        ("of another session", attestation(RECEIPTS, name="other"), tokens, "session_id"),
        ("says itself that the chain is broken", attestation(RECEIPTS, chain_verified=False), tokens, "chain_verified"),
        ("counts that do not add up", _miscounted(), tokens, "tools"),
    ):
        yield {"name": name, "token": token, "receipts": receipts, "result": "attestation_mismatch", "member": member}
    yield {
        "name": "says where the chain is broken, and of how many receipts",
        "token": attestation(RECEIPTS[:2], chain_verified=False, in_all=len(RECEIPTS)),
        "receipts": tokens,
        "result": "attestation_mismatch",
        "member": "chain_verified",
        "broken_at": 3,
    }
    yield {
        "name": "over a broken chain",
        "token": ATTESTATION,
        "receipts": tokens[:3] + tokens[4:],
        "result": "chain_broken",
    }


def _miscounted() -> str:
    claims = json.loads(decode_base64url(ATTESTATION.split(".")[1]))
    return mint(HEADER | {"typ": "remit-attestation+jwt"}, claims | {"tools": {"read_file": 7}})
