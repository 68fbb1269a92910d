"""The export: one JSON document that is written as it is read, and that proves itself without anything else."""

import json
from typing import Any

import pytest

from remit.claims.attestation import verify_session
from remit.claims.chain import verifier_id, verify_chain
from remit.claims.jws import PASSPORT
from remit.claims.keys import Keyring, TrustedKey, VerifyingKey
from remit.claims.strictjson import parse_object
from remit.claims.succession import with_successors
from remit.governor.export import export_evidence, session_view
from remit.governor.sessions import EndSession
from tests.governor.places import CountingReader
from tests.governor.world import FORBIDDEN, Service


def _lived(service: Service) -> tuple[str, str]:
    one = service.start().session.id
    two = service.start_delegate(one, max_tool_calls=5)
    for name in (one, two, one):
        service.call(name)
    service.rotate()
    service.call(two, FORBIDDEN)
    service.run(EndSession(two))
    service.attest(one)
    return one, two


def _exported(service: Service, session_id: str | None = None) -> dict[str, Any]:
    document = b"".join(export_evidence(service.reader, {"ok": True, "exported_at": "now"}, session_id))
    value: dict[str, Any] = json.loads(document)
    return value


def _keyring_of(document: dict[str, Any]) -> Keyring:
    """Return the keyring of someone who has the export and trusts its first key."""
    first = VerifyingKey.from_jwk(document["public_keys"]["keys"][0])
    return with_successors(Keyring([TrustedKey(first, verifier_id(first))]), document["key_changes"])


def test_an_export_is_one_strict_json_object(service: Service) -> None:
    _lived(service)
    document = b"".join(export_evidence(service.reader, {"ok": True}))
    assert list(parse_object(document)) == [
        "ok",
        "sessions",
        "receipts",
        "attestations",
        "public_keys",
        "key_changes",
        "key_limits",
    ]


def test_an_empty_ledger_exports_empty_lists(service: Service) -> None:
    document = _exported(service)
    assert (document["sessions"], document["receipts"], document["attestations"]) == ([], [], [])
    assert len(document["public_keys"]["keys"]) == 1


def test_the_members_that_are_given_come_first(service: Service) -> None:
    document = _exported(service)
    assert list(document)[:2] == ["ok", "exported_at"]


def test_exported_receipts_verify_with_the_exported_keys_alone(service: Service) -> None:
    one, two = _lived(service)
    document = _exported(service)
    keyring = _keyring_of(document)
    first, second = (view["receipts"] for view in document["sessions"])
    head = verify_chain(document["receipts"][:first], keyring)
    other = verify_chain(document["receipts"][first:], keyring)
    assert head is not None
    assert other is not None
    assert (head.lineage.grant_id, head.length) == (one, first)
    assert (other.lineage.grant_id, other.length) == (two, second)
    assert [view["last_receipt_hash"] for view in document["sessions"]] == [head.receipt_hash, other.receipt_hash]


def test_exported_attestations_verify_with_the_exported_receipts(service: Service) -> None:
    one, _ = _lived(service)
    document = _exported(service, one)
    (token,) = document["attestations"]
    assert verify_session(token, document["receipts"], _keyring_of(document)).session_id == one


def test_one_session_can_be_exported_alone(service: Service) -> None:
    _, two = _lived(service)
    document = _exported(service, two)
    assert [view["session_id"] for view in document["sessions"]] == [two]
    assert document["receipts"] == service.tokens(two)
    assert document["attestations"] == []


def test_a_session_that_does_not_exist_exports_nothing(service: Service) -> None:
    _lived(service)
    document = _exported(service, "pass:nobody:1")
    assert (document["sessions"], document["receipts"], document["attestations"]) == ([], [], [])


@pytest.mark.parametrize("alone", [False, True])
def test_passports_are_not_exported(service: Service, alone: bool) -> None:
    one, _ = _lived(service)
    document = b"".join(export_evidence(service.reader, {}, one if alone else None))
    for session in service.sessions():
        assert session.passport.encode() not in document
        assert session.passport.split(".")[2].encode() not in document
    assert PASSPORT.typ.encode() not in document


def test_a_view_of_a_session_says_how_it_stands(service: Service) -> None:
    one, two = _lived(service)
    view = session_view(service.session(two))
    assert (view["state"], view["parent_session_id"]) == ("ended", one)
    assert view["verdicts"] == {"compliant": 1, "violation": 1, "insufficient_evidence": 0}
    assert view["tool_calls"] == {"limit": 5, "used": 1, "reserved": 0}
    assert session_view(service.session(one))["ended_at"] is None


def test_an_export_is_written_while_it_is_read(service: Service) -> None:
    name = service.start(max_tool_calls=0).session.id
    kept = service.call(name)
    # The same receipt many times over: the export does not verify, and a page is a page.
    service.shelf.chains[name] = [service.shelf.chains[name][0]._replace(seq=seq) for seq in range(1, 2002)]
    reader = CountingReader(service.shelf)
    pieces = export_evidence(reader, {})
    token = json.dumps(kept.receipt.token).encode()
    assert next(piece for piece in pieces if token in piece)
    assert (reader.pages_read, reader.receipts_read) == (1, 500)
    longest = max(len(piece) for piece in pieces)
    assert reader.receipts_read == 2001
    assert longest <= len(token) + 1
    del service.shelf.chains[name][1:]


def test_an_export_of_many_sessions_has_each_once(service: Service) -> None:
    names = [service.start().session.id for _ in range(501)]
    document = _exported(service)
    assert [view["session_id"] for view in document["sessions"]] == names
