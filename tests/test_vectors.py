"""The vector files: the library gives what each case says, and the files are what their script makes."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from vectors import make

import remit.errors
from remit import (
    Head,
    Keyring,
    RemitError,
    TrustedKey,
    VerifyingKey,
    canonicalize,
    narrow,
    parse_json,
    parse_mission,
    parse_receipt,
    verify_attestation,
    verify_bookmark,
    verify_chain,
    verify_key_change,
    verify_key_limit,
    verify_passport,
    verify_receipt,
    verify_session,
    with_successors,
)
from remit.claims.canonical import canonicalize_arguments, sha256_hex
from remit.claims.chain import FAULTS, invocation_digest
from remit.claims.merkle import hash_leaf, merkle_root, verify_consistency, verify_inclusion
from remit.errors import InputError, TokenError
from tests.world import error_classes

VECTORS = Path(make.__file__).parent
CODES = {error.code for error in error_classes()}

Case = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return content


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case.get("name", str(index))) for index, case in enumerate(load(name)["cases"])]


def keyring(name: str) -> Keyring:
    return Keyring(
        TrustedKey(VerifyingKey.from_jwk(key["jwk"]), key["issuer"], key["foreign"]) for key in load(name)["keys"]
    )


def test_the_files_are_what_their_script_makes() -> None:
    for name, content in make.files().items():
        assert (VECTORS / name).read_text(encoding="utf-8") == make.render(content), name


def test_every_result_comes_from_the_closed_list() -> None:
    for name in make.files():
        for case in load(name)["cases"]:
            assert case.get("result", "ok") in {"ok", *CODES}, case["name"]
            assert case.get("fault", "field_invalid") in {*CODES, *FAULTS}, case["name"]


@pytest.mark.parametrize("case", cases("json.json"))
def test_strict_json(case: Case) -> None:
    data = bytes.fromhex(case["hex"])
    if case["result"] == "ok":
        assert parse_json(data) == json.loads(data)
        return
    with pytest.raises(InputError) as caught:
        parse_json(data)
    assert (caught.value.code, caught.value.place) == (case["result"], case["place"])


@pytest.mark.parametrize("case", cases("canonical.json"))
def test_canonical_form(case: Case) -> None:
    form = canonicalize(parse_json(case["json"].encode()))
    assert form == case["canonical"].encode()
    assert sha256_hex(form) == case["sha256"]


@pytest.mark.parametrize("case", load("canonical.json")["arguments"], ids=lambda case: case["name"])
def test_forms_of_arguments(case: Case) -> None:
    data = case["json"].encode()
    if case["result"] != "ok":
        with pytest.raises(InputError) as caught:
            parse_json(data, exact_integers=True)
        assert (caught.value.code, caught.value.place) == (case["result"], case["place"])
        return
    form = canonicalize_arguments(parse_json(data, exact_integers=True))
    assert form == case["form"].encode()
    assert sha256_hex(form) == case["sha256"]
    digest = invocation_digest("tool", form, "pass:session", "step:000001")
    assert (digest.canonicalization or None) == case["canonicalization"]


@pytest.mark.parametrize("case", load("canonical.json")["numbers"], ids=lambda case: case["ieee754"])
def test_canonical_numbers(case: Case) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(case["ieee754"]))
    assert canonicalize(number) == case["canonical"].encode()


@pytest.mark.parametrize("case", cases("ecdsa.json"))
def test_signatures(case: Case) -> None:
    key = VerifyingKey.from_jwk(case["jwk"])
    message, signature = bytes.fromhex(case["message"]), bytes.fromhex(case["signature"])
    if case["result"] == "ok":
        key.check(message, signature)
        return
    with pytest.raises(TokenError) as caught:
        key.check(message, signature)
    assert caught.value.code == case["result"]
    if case["result"] == "signature_not_low_s":
        _check_high_s(key, message, signature, case["name"])


def _check_high_s(key: VerifyingKey, message: bytes, signature: bytes, name: str) -> None:
    """Without the rule on s, the high forms made from real signatures verify and the made-up ones do not."""
    if name.startswith("s = n - "):
        key.check(message, signature, low_s=False)
    else:
        with pytest.raises(TokenError) as caught:
            key.check(message, signature, low_s=False)
        assert caught.value.code == "signature_invalid"


@pytest.mark.parametrize("case", cases("tokens.json"))
def test_tokens(case: Case) -> None:
    ring, now = keyring("tokens.json"), load("tokens.json")["now"]
    of_kind: dict[str, Callable[[str], object]] = {
        "passport": lambda token: verify_passport(token, ring, now=now),
        "receipt": lambda token: verify_receipt(token, ring),
        "attestation": lambda token: verify_attestation(token, ring),
        "key change": lambda token: verify_key_change(token, ring),
        "bookmark": lambda token: verify_bookmark(token, ring),
    }
    verify = of_kind[case["kind"]]
    if case["result"] == "ok":
        verify(case["token"])
        return
    with pytest.raises(RemitError) as caught:
        verify(case["token"])
    assert (caught.value.code, getattr(caught.value, "fault", None)) == (case["result"], case.get("fault"))


@pytest.mark.parametrize("case", cases("receipts.json"))
def test_receipts(case: Case) -> None:
    if case["result"] == "ok":
        assert canonicalize(to_builtins(parse_receipt(case["claims"]))) == canonicalize(case["claims"])
        return
    with pytest.raises(InputError) as caught:
        parse_receipt(case["claims"])
    assert (caught.value.code, caught.value.place) == (case["result"], case["place"])


@pytest.mark.parametrize("case", cases("missions.json"))
def test_narrowing(case: Case) -> None:
    parent, child = parse_mission(case["parent"]), parse_mission(case["child"])
    if case["result"] == "ok":
        assert set(parent.forbidden_tools) <= set(narrow(parent, child).forbidden_tools)
        return
    with pytest.raises(remit.errors.MissionWidened) as caught:
        narrow(parent, child)
    assert (caught.value.code, caught.value.member) == (case["result"], case["member"])


@pytest.mark.parametrize("case", cases("chains.json"))
def test_chains(case: Case) -> None:
    if case["result"] == "ok":
        head = _verify_chain(case)
        assert (head.length if head else 0, head.receipt_hash if head else None) == (case["length"], case["head"])
        return
    with pytest.raises(RemitError) as caught:
        _verify_chain(case)
    found = (caught.value.code, getattr(caught.value, "index", None), getattr(caught.value, "fault", None))
    assert found == (case["result"], case.get("index"), case.get("fault"))


def _verify_chain(case: Case) -> Head | None:
    ring = with_successors(keyring("chains.json"), case.get("key_changes", []))
    return verify_chain(case["tokens"], ring, last_hash=case.get("last_hash"))


@pytest.mark.parametrize("case", cases("limits.json"))
def test_key_limits(case: Case) -> None:
    ring = with_successors(keyring("limits.json"), case["key_changes"])
    if case["result"] == "ok":
        found = verify_key_limit(case["token"], ring)
        said = {"key": found.kid, **found.position._asdict()}
        more = {} if found.distrusted_from is None else {"distrusted_from": found.distrusted_from}
        assert said | more == case["limit"]
        return
    with pytest.raises(RemitError) as caught:
        verify_key_limit(case["token"], ring)
    assert caught.value.code == case["result"]


@pytest.mark.parametrize("case", cases("attestations.json"))
def test_attestations(case: Case) -> None:
    ring = keyring("attestations.json")
    if "broken_at" in case:
        stated = verify_attestation(case["token"], ring)
        assert (stated.receipts, stated.broken_at) == (len(case["receipts"]), case["broken_at"])
    if case["result"] == "ok":
        assert verify_session(case["token"], case["receipts"], ring).chain_verified
        return
    with pytest.raises(RemitError) as caught:
        verify_session(case["token"], case["receipts"], ring)
    assert (caught.value.code, getattr(caught.value, "member", None)) == (case["result"], case.get("member"))


@pytest.mark.parametrize("case", cases("merkle.json"))
def test_merkle_trees(case: Case) -> None:
    leaves = [hash_leaf(str(number).encode()) for number in range(case["size"])]
    root = bytes.fromhex(case["root"])
    assert merkle_root(leaves) == root
    for index, path in enumerate(case["inclusion"]):
        verify_inclusion(leaves[index], index, case["size"], [bytes.fromhex(node) for node in path], root)
    for old, path in enumerate(case["consistency"], 1):
        verify_consistency(old, merkle_root(leaves[:old]), case["size"], root, [bytes.fromhex(node) for node in path])
