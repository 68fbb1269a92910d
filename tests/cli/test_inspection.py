"""`remit inspect`: who vouches for a token, what the ledger knows of it, and what it says if nobody does."""

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from remit import Mission, SigningKey, issue_passport
from remit.claims.canonical import encode_base64url
from remit.claims.jws import BOOKMARK, KEY_CHANGE, KINDS, PASSPORT, sign_token, unsafe_peek, verify_token
from remit.claims.public import AUDIT_ONLY
from remit.claims.receipt import sign_receipt
from remit.cli.errors import DONE, NO, STATE, USAGE
from remit.governor.attest import Attest
from remit.ledger.embedded import open_embedded_ledger
from tests.cli.running import issued, lines, run, started
from tests.ledger.service import Service
from tests.ledger.test_periods import forged_after, key_of, put_in, rotated
from tests.world import register


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


def told(place: Path, token: str, *arguments: str, code: int = DONE) -> dict[str, Any]:
    result = run(place, "inspect", token, "--json", *arguments)
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["verified"] is document["ok"] is (code == DONE)
    return document


def test_a_passport_is_verified_and_shown(place: Path) -> None:
    result = run(place, "inspect", issued(place, "--resource-scope", "/srv"))
    assert result.exit_code == DONE
    assert lines(result.stdout)[:10] == [
        "VERIFIED passport",
        "signed by    <kid>",
        "id           <pass>",
        "issuer       <remit>",
        "expires at   <date>",
        "expired      no",
        "registered   yes",
        "revoked      no",
        "session      not started",
        "it says:",
    ]
    assert '    "mission": "Read what is there",' in result.stdout.splitlines()


def test_the_state_of_its_session_is_told(place: Path) -> None:
    session_id = started(place)
    with_session = open_embedded_ledger(place)
    token = with_session.reader.session(session_id).passport  # type: ignore[union-attr]
    with_session.close()
    assert told(place, token)["session"] == "active"
    run(place, "revoke", session_id, "--session")
    assert (told(place, token)["session"], told(place, token)["revoked"]) == ("revoked", True)


def test_a_delegate_of_a_revoked_passport_is_revoked(place: Path) -> None:
    parent = started(place)
    asked = ("--agent-id", "a", "--mission", "b", "--max-tool-calls", "1")
    token = run(place, "delegate", parent, *asked).stdout.strip()
    assert told(place, token)["revoked"] is False
    run(place, "revoke", parent)
    assert told(place, token)["revoked"] is True


def test_an_expired_passport_is_genuine_and_said_to_be_over(place: Path) -> None:
    issued(place)
    embedded = open_embedded_ledger(place)
    key = embedded.keys.signing(embedded.reader.ledger_state().kid)
    embedded.close()
    old = issue_passport(
        Mission(agent_id="a", mission="b"), key, issuer=f"remit:{key.kid}", jti="pass:of-long-ago", now=1_000_000
    )
    assert told(place, old.token)["expired"] is True
    assert "yes" in run(place, "inspect", old.token).stdout


def test_a_receipt_is_found_at_its_place_in_the_chain(place: Path, tmp_path: Path) -> None:
    service = Service(place)
    session_id = service.start()
    receipts = [service.call(session_id) for _ in range(3)]
    attested = service.governor.run(Attest(session_id)).attestation.token
    service.close()
    found = told(place, receipts[1].token)
    assert (found["kind"], found["in_ledger"], found["session"]) == ("receipt", True, session_id)
    assert (found["place"], found["of"], found["hash"]) == (2, 3, receipts[1].hash)
    attestation = told(place, attested)
    assert (attestation["kind"], attestation["in_ledger"]) == ("attestation", True)
    run(place, "ledger", "backup", str(tmp_path / "copy.db"))
    lost = tmp_path / "keys.jwks"
    run(place, "keys", "export", "--out", str(lost))
    assert "in_ledger" not in told(tmp_path / "nowhere", receipts[0].token, "--key", str(lost))


def test_a_receipt_that_the_ledger_lacks_is_said_to_be_missing(place: Path, tmp_path: Path) -> None:
    service = Service(place)
    session_id = service.start()
    service.call(session_id)
    run(place, "ledger", "backup", str(tmp_path / "copy.db"))
    later = service.call(session_id)
    service.close()
    run(place, "ledger", "restore", str(tmp_path / "copy.db"), "--accept-loss")
    assert told(place, later.token)["in_ledger"] is False
    assert "no" in run(place, "inspect", later.token).stdout


def test_another_receipt_under_the_same_id_is_not_the_one_in_the_ledger(place: Path) -> None:
    service = Service(place)
    receipt = service.call(service.start())
    key = service.open.keys.signing(receipt.kid)
    service.close()
    other = sign_receipt(structs.replace(receipt.claims, reason="nothing to see here"), key)
    assert told(place, other.token)["in_ledger"] is False


def test_changes_of_key_and_bookmarks_are_verified_too(place: Path) -> None:
    service = Service(place)
    session_id = service.start()
    service.call(session_id)
    service.governor.run(Attest(session_id))
    run(place, "keys", "rotate")
    change, bookmark = service.open.reader.keys()[-1].change, service.open.reader.bookmark(session_id)
    service.close()
    assert told(place, change or "")["kind"] == "change of key"
    assert told(place, change or "")["in_ledger"] is True
    assert told(place, bookmark or "")["in_ledger"] is True


def test_the_end_of_a_period_is_verified_too(place: Path) -> None:
    kid = told(place, issued(place))["kid"]
    run(place, "keys", "distrust", kid, "--from", "now", "--yes")
    with closing(open_embedded_ledger(place)) as embedded:
        ends = [told(place, record.token) for record in embedded.reader.limits()]
    assert [(end["kind"], end["key"], end["in_ledger"]) for end in ends] == [("end of a key's period", kid, True)] * 2
    assert [end.get("distrusted_from") is None for end in ends] == [True, False]


def test_a_receipt_that_a_key_signed_after_its_period_is_not_verified(place: Path) -> None:
    service = Service(place)
    key, session_id = key_of(service), service.start()
    receipt = service.call(session_id)
    rotated(service)
    service.close()
    assert told(place, receipt.token)["in_ledger"] is True
    late, claims = forged_after(receipt, key)
    unknown = told(place, late, code=NO)
    assert (unknown["error_code"], unknown["kind"]) == ("key_period_ended", "receipt")
    put_in(place, session_id, late, claims)
    assert told(place, late, code=NO)["error_code"] == "key_period_ended"
    shown = run(place, "inspect", late).stdout
    assert "NOT VERIFIED receipt" in shown
    assert "it was signed with a key after that key had handed over to another" in shown
    assert told(place, receipt.token)["in_ledger"] is True


def test_a_key_whose_period_has_ended_vouches_only_for_what_the_ledger_has(place: Path) -> None:
    service = Service(place)
    key, session_id = key_of(service), service.start()
    kept = [service.passport(), service.call(session_id).token]
    kept += [service.governor.run(Attest(session_id)).attestation.token]
    rotated(service)
    kept += [service.open.reader.bookmark(session_id) or "", service.open.reader.keys()[-1].change or ""]
    second = key_of(service)
    rotated(service)
    (first, limit) = service.open.reader.limits()
    kept += [first.token]
    service.close()
    assert limit.kid == second.kid
    for token in kept:
        peeked = unsafe_peek(token)
        signer = key if (peeked.header or {})["kid"] == key.kid else second
        kind = next(one for one in KINDS if one.typ == (peeked.header or {})["typ"])
        other = sign_token(kind, json.dumps(peeked.claims, indent=1).encode(), signer)
        assert told(place, token)["ok"]
        assert told(place, other, code=NO)["error_code"] == "key_period_ended", kind


def test_a_registered_passport_that_a_key_signed_after_its_period_is_not_verified(place: Path) -> None:
    service = Service(place)
    token, key = service.passport(), key_of(service)
    rotated(service)
    issuer, now = f"remit:{key.kid}", int(time.time())
    late = issue_passport(Mission(agent_id="a", mission="b"), key, issuer=issuer, jti="pass:late:0001", now=now).token
    register(service.open.ledger, late)
    service.close()
    assert told(place, token)["registered"]
    assert told(place, late, code=NO)["error_code"] == "key_period_ended"


def test_a_genuine_passport_that_the_home_has_not_issued_is_shown_as_such(place: Path) -> None:
    from remit import Mission, issue_passport

    token = issued(place)
    with closing(open_embedded_ledger(place)) as embedded:
        key = embedded.keys.signing(embedded.reader.ledger_state().kid)
    issuer, now = f"remit:{key.kid}", int(time.time())
    forged = issue_passport(Mission(agent_id="a", mission="b"), key, issuer=issuer, jti="pass:forged:1", now=now).token
    assert (told(place, token)["registered"], told(place, forged)["registered"]) == (True, False)
    assert "starts no session with it" in run(place, "inspect", forged).stdout


@pytest.mark.parametrize("way", ["-", "file"])
def test_a_token_need_not_stand_on_the_command_line(place: Path, tmp_path: Path, way: str) -> None:
    token = issued(place)
    (tmp_path / "token").write_text(f"\n{token}\n", encoding="ascii")
    given = "-" if way == "-" else f"@{tmp_path / 'token'}"
    result = run(place, "inspect", given, "--json", given=f"{token}\n")
    assert (result.exit_code, json.loads(result.stdout)["verified"]) == (DONE, True)


def test_a_file_that_is_not_there_is_a_usage_error(place: Path, tmp_path: Path) -> None:
    issued(place)
    assert run(place, "inspect", f"@{tmp_path / 'nowhere'}").exit_code == USAGE
    assert run(place, "inspect", issued(place), "--key", str(tmp_path / "nowhere")).exit_code == USAGE


def test_what_nobody_vouches_for_is_shown_as_such(place: Path, tmp_path: Path) -> None:
    issued(place)
    foreign = issued(tmp_path / "elsewhere", "--resource-scope", "/srv")
    result = run(place, "inspect", foreign)
    assert result.exit_code == NO
    assert lines(result.stdout)[0] == "NOT VERIFIED passport"
    assert "it says, unverified:" in result.stdout
    document = told(place, foreign, code=NO)
    assert (document["error_code"], document["unverified"]["claims"]["mission"]) == (
        "key_unknown",
        "Read what is there",
    )
    assert "claims" not in document


def faults(place: Path) -> dict[str, str]:
    head, payload, signature = issued(place).split(".")
    other = encode_base64url(b'{"iss":"x"}')
    return {
        "signature_invalid": f"{head}.{other}.{signature}",
        "token_malformed": f"{head}.{payload}",
        "token_kind_mismatch": f"{encode_base64url(b'{}')}.{payload}.{signature}",
        "token_encoding_invalid": f"{head}.{payload}.{signature[:-1]}!",
    }


@pytest.mark.parametrize(
    "code", ["signature_invalid", "token_malformed", "token_kind_mismatch", "token_encoding_invalid"]
)
def test_each_fault_has_its_reason(place: Path, code: str) -> None:
    assert told(place, faults(place)[code], code=NO)["error_code"] == code


@pytest.mark.parametrize("text", ["", "abc", "a.b.c", "\x1b[2J", "é" * 200, "x" * 200_000, "{}"])
def test_what_is_no_token_at_all_is_not_verified(place: Path, text: str) -> None:
    issued(place)
    document = told(place, text, code=NO)
    assert document["error_code"] == "token_malformed"
    assert document["unverified"] == {"header": None, "claims": None}
    assert "\x1b" not in run(place, "inspect", text).output


def test_bytes_that_are_no_text_are_not_verified(place: Path) -> None:
    issued(place)
    result = run(place, "inspect", "-", given=b"\xff\xfe\x00\x1b" * 100_000)
    assert (result.exit_code, "\x1b" in result.output) == (NO, False)


HOSTILE = {"iss": "x", "a\x1b[31m": "\x1b]0;owned\x07\x9b31m\u202e\u2028 [red]:smile:[/]", "n": [{"\x7f": "\r\n"}]}


def test_what_a_token_says_steers_no_terminal(place: Path) -> None:
    issued(place)
    token = sign_token(PASSPORT, json.dumps(HOSTILE).encode(), SigningKey.derive(b"k" * 40))
    shown = run(place, "inspect", token).output
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert "[red]:smile:[/]" in shown


def test_without_a_home_or_a_ledger_nothing_is_verified_and_none_is_made(place: Path, tmp_path: Path) -> None:
    token = issued(tmp_path / "elsewhere")
    assert told(place, token, code=NO)["error_code"] == "key_unknown"
    assert not place.exists()
    run(place, "token", "admin")
    assert told(place, token, code=NO)["error_code"] == "key_unknown"
    assert not (place / "ledger.db").exists()


def test_a_genuine_passport_for_someone_else_is_not_verified_and_shown(place: Path) -> None:
    issued(place)
    embedded = open_embedded_ledger(place)
    key = embedded.keys.signing(embedded.reader.ledger_state().kid)
    claims = verify_token(PASSPORT, issued(place), embedded.keys.keyring()).claims | {"aud": "another"}
    embedded.close()
    document = told(place, sign_token(PASSPORT, json.dumps(claims).encode(), key), code=NO)
    assert (document["error_code"], document["unverified"]["claims"]["aud"]) == ("audience_mismatch", "another")


@pytest.mark.parametrize("form", ["jwks", "pem"])
def test_a_file_of_keys_stands_in_for_the_home(place: Path, tmp_path: Path, form: str) -> None:
    tokens = [issued(place)]
    run(place, "keys", "rotate")
    tokens.append(issued(place))
    run(place, "keys", "export", "--format", form, "--out", str(tmp_path / "keys"))
    for token in tokens:
        document = told(tmp_path / "nowhere", token, "--key", str(tmp_path / "keys"))
        assert "session" not in document
        assert told(tmp_path / "nowhere", token[:-4] + "AAAA", "--key", str(tmp_path / "keys"), code=NO)


def test_a_foreign_issuer_is_verified_with_its_key(place: Path, tmp_path: Path) -> None:
    from remit import Mission, issue_passport

    key = SigningKey.derive(b"f" * 40)
    issuer = "https://issuer.example"
    passport = issue_passport(Mission(agent_id="a", mission="b"), key, issuer=issuer, jti="pass:foreign", now=1_000_000)
    jwks = {"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, key.public.to_jwk()]}
    (tmp_path / "keys").write_text(json.dumps(jwks), encoding="ascii")
    assert told(place, passport.token, "--key", str(tmp_path / "keys"))["issuer"] == issuer


BAD_KEYS = {
    "": "key_malformed",
    "no key": "key_malformed",
    '{"keys": []}': "key_malformed",
    '{"keys": 1}': "key_malformed",
    "{": "json_syntax",
    "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----": "key_malformed",
}


@pytest.mark.parametrize("text", BAD_KEYS)
def test_a_file_that_holds_no_key_is_refused(place: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text, encoding="ascii")
    refused = run(place, "inspect", issued(place), "--key", str(tmp_path / "keys"), "--json")
    assert refused.exit_code in {STATE, USAGE}
    assert json.loads(refused.stdout)["error_code"] == BAD_KEYS[text]


def test_a_private_key_is_refused_where_a_public_one_belongs(place: Path) -> None:
    token = issued(place)
    (private,) = (place / "keys").glob("*.pem")
    refused = run(place, "inspect", token, "--key", str(private), "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (STATE, "key_malformed")
    assert "PRIVATE" not in refused.output


def test_every_kind_of_token_is_known(place: Path) -> None:
    issued(place)
    key = SigningKey.derive(b"k" * 40)
    kinds = [told(place, sign_token(kind, b'{"iss":"x"}', key), code=NO)["kind"] for kind in KINDS]
    assert len({*kinds} - {None}) == len(KINDS)
    assert {KEY_CHANGE, BOOKMARK} <= set(KINDS)


def test_a_passport_that_is_verified_with_a_key_alone_says_that_revocation_was_not_looked_at(
    place: Path, tmp_path: Path
) -> None:
    token = issued(place)
    run(place, "revoke", token)
    (tmp_path / "keys").write_text(run(place, "keys", "export").stdout, encoding="ascii")
    assert told(place, token, "--key", str(tmp_path / "keys"))["revoked"] is None
    shown = run(place, "inspect", token, "--key", str(tmp_path / "keys")).stdout
    assert next(line for line in shown.splitlines() if line.startswith("revoked ")).split()[1:3] == ["not", "checked:"]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_the_public_view_of_a_receipt_leaves_out_what_is_for_auditors(place: Path, arguments: tuple[str, ...]) -> None:
    service = Service(place)
    receipt = service.call(service.start())
    service.close()
    result = run(place, "inspect", receipt.token, "--public", *arguments)
    assert result.exit_code == DONE
    document = json.loads(result.stdout)
    assert (document["ok"], document["signed"], document["receipt_hash"]) == (True, False, receipt.hash)
    assert not document["claims"].keys() & set(AUDIT_ONLY)
    assert receipt.claims.reason not in result.stdout
    assert receipt.token not in result.stdout


def test_only_a_receipt_that_is_verified_has_a_public_view(place: Path) -> None:
    passport = issued(place, "--resource-scope", "/srv")
    refused = run(place, "inspect", passport, "--public")
    assert (refused.exit_code, "only receipts have a public view" in refused.stderr) == (USAGE, True)
    service = Service(place)
    receipt = service.call(service.start())
    service.close()
    forged = receipt.token[:-4] + ("AAAA" if receipt.token[-4:] != "AAAA" else "BBBB")
    for arguments in ((), ("--json",)):
        result = run(place, "inspect", forged, "--public", *arguments)
        assert result.exit_code == NO
        assert receipt.claims.receipt_id not in result.stdout
