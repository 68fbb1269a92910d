"""The period of a key: it ends at a position in the ledger, and what the key signs after that does not count."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from msgspec import structs, to_builtins

from remit.claims.attestation import Tally
from remit.claims.bookmark import sign_bookmark
from remit.claims.canonical import sha256_hex
from remit.claims.chain import verifier_id
from remit.claims.jws import KEY_LIMIT, RECEIPT, sign_token, unsafe_peek
from remit.claims.keys import SigningKey
from remit.claims.passport import issue_passport
from remit.claims.receipt import SignedReceipt, verify_receipt
from remit.claims.succession import Position, verify_key_limit
from remit.errors import FieldInvalid, LedgerRolledBack, PassportRevoked, PassportUnregistered, RequestConflict
from remit.governor.attest import Attest, verify_stored
from remit.governor.delegate import Delegate
from remit.governor.revoke import CloseRevoked
from remit.governor.sessions import StartSession
from remit.governor.verification import BrokenChainFound, Message
from remit.governor.verifier import Verifier
from remit.governor.verifier_process import LedgerCheck
from remit.ledger.backup import backup
from remit.ledger.check import check_ledger
from remit.ledger.embedded import open_embedded_ledger, open_rows
from remit.ledger.findings import LedgerFinding
from remit.ledger.home import open_home
from remit.ledger.keys import Distrusted, find_distrusted, load_key_limits
from remit.ledger.records import LedgerState, PassportRegistration
from remit.ledger.restore import restore
from tests.cli.running import run
from tests.governor.verifying import StillPace
from tests.governor.world import SetClock
from tests.ledger.changing import distrust, rotate
from tests.ledger.memory import MemoryStore, MemoryTables
from tests.ledger.service import MISSION, Service
from tests.world import register

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def service(place: Path) -> Iterator[Service]:
    service = Service(place)
    yield service
    service.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def a_while_passes(service: Service) -> int:
    """Let the clock of a service go on by some seconds, and return a time in between."""
    clock = service.governor.context.clock
    shown = clock.now()
    service.governor.context.clock = SetClock(shown.wall_ms + 10_000, shown.mono_ms + 10_000, shown.boot)
    return shown.wall_ms + 5000


def key_of(service: Service) -> SigningKey:
    return service.open.keys.signing(service.open.reader.ledger_state().kid)


def rotated(service: Service) -> str:
    return rotate(service.open.ledger, service.open.keys, service.open.key_files, now_ms()).kid


def distrusted(service: Service, kid: str, from_ms: int) -> Distrusted:
    opened = service.open
    return distrust(opened.ledger, opened.keys, opened.key_files, kid, from_ms=from_ms, now_ms=now_ms())


def findings(place: Path) -> list[LedgerFinding]:
    with open_home(place, create=False) as home:
        return list(check_ledger(home).findings)


def faults(place: Path) -> list[tuple[str | None, int | None, str]]:
    return [(found.session_id, found.receipt, found.fault) for found in findings(place)]


def as_of_the_first_release(place: Path) -> None:
    """Make the file of a ledger what the first release has left: registration is not known in it."""
    connection = apsw.Connection(str(place / "ledger.db"))
    connection.execute("DROP TABLE passports; DROP TABLE key_limits")
    connection.pragma("user_version", 1)
    connection.close()


def forged_after(receipt: SignedReceipt, key: SigningKey) -> tuple[str, dict[str, object]]:
    """Return a receipt that follows another in its chain, and is right in all but the time when its key signed it."""
    claims = to_builtins(receipt.claims) | {
        "receipt_id": "rcpt:" + "f" * 32,
        "jti": "rcpt:" + "f" * 32,
        "parent_receipt_id": receipt.claims.receipt_id,
        "parent_receipt_hash": receipt.hash,
        "step_id": f"step:{int(receipt.claims.step_id[5:]) + 1:06d}",
    }
    return sign_token(RECEIPT, json.dumps(claims).encode(), key), claims


def put_in(place: Path, session_id: str, token: str, claims: dict[str, object]) -> None:
    """Append a receipt to the file of a ledger, with everything that is counted, as a thief of home and key could."""
    db = apsw.Connection(str(place / "ledger.db"))
    (session, last, length) = db.execute(
        "SELECT number, last_number, length FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()  # type: ignore[misc]
    (newest,) = db.execute("SELECT max(number) FROM receipts").fetchone()  # type: ignore[misc]
    row = (newest + 1, session, length + 1, last, claims["receipt_id"], token)
    db.execute(
        "INSERT INTO receipts (number, session, seq, parent, id, code, token) VALUES (?, ?, ?, ?, ?, '', ?)", row
    )
    db.execute(
        "UPDATE sessions SET length = length + 1, receipt_id = ?, receipt_hash = ?, last_number = ?, iat = ?, "
        "used = used + 1, compliant = compliant + 1 WHERE number = ?",
        (claims["receipt_id"], sha256_hex(token.encode()), newest + 1, claims["iat"], session),
    )
    db.execute(
        "INSERT INTO minutes VALUES (?, '', 1) ON CONFLICT (minute, code) DO UPDATE SET count = count + 1",
        (int(str(claims["iat"])) // 60,),
    )
    db.close()


# Hand-over


def test_a_key_that_hands_over_gets_the_end_of_its_period_signed_by_its_successor(service: Service) -> None:
    old, session_id = key_of(service), service.start()
    service.call(session_id)
    new = rotated(service)
    (record,) = service.open.reader.limits()
    limit = verify_key_limit(record.token, service.open.keys.keyring())
    assert (record.kid, limit.kid, limit.position, limit.distrusted_from) == (old.kid, old.kid, Position(1, 1, 1), None)
    assert (unsafe_peek(record.token).header or {})["kid"] == new


def test_a_receipt_that_a_retired_key_signs_after_its_hand_over_is_named(service: Service, place: Path) -> None:
    old, session_id = key_of(service), service.start()
    receipt = service.call(session_id)
    rotated(service)
    service.close()
    assert findings(place) == []
    put_in(place, session_id, *forged_after(receipt, old))
    assert faults(place) == [(session_id, 2, "key_retired")]


@pytest.mark.parametrize("later_receipt", [True, False])
def test_a_hand_over_of_the_first_release_is_held_to_the_first_receipt_of_the_new_key(
    service: Service, place: Path, *, later_receipt: bool
) -> None:
    old, session_id = key_of(service), service.start()
    receipt, other = service.call(session_id), service.start()
    rotated(service)
    if later_receipt:
        service.call(other)
    service.close()
    as_of_the_first_release(place)
    assert findings(place) == []
    put_in(place, session_id, *forged_after(receipt, old))
    named = [found for found in findings(place) if found.fault == "key_retired"]
    assert len(named) == later_receipt
    assert all(f"receipt 2 of {session_id}" in found.sentence for found in named)


def test_a_session_under_a_passport_that_a_retired_key_signed_later_is_named(service: Service, place: Path) -> None:
    old = key_of(service)
    session_id = service.start()
    rotated(service)
    late = issue_passport(MISSION, old, issuer=verifier_id(old.public), jti="pass:late:0001", now=int(time.time()))
    record = PassportRegistration(late.jti, sha256_hex(late.token.encode()), old.kid, 0)
    service.open.ledger.run(lambda transaction: transaction.put_passport(record))
    service.start(late.token)
    service.close()
    assert [found.sentence.partition(":")[0] for found in findings(place) if found.fault == "key_retired"] == [
        "passport pass"
    ]
    assert late.jti in findings(place)[0].sentence
    assert session_id not in str(findings(place))


def test_a_record_of_a_period_that_was_changed_is_named(service: Service, place: Path) -> None:
    old = key_of(service)
    rotated(service)
    service.close()
    claims = {"iss": verifier_id(old.public), "iat": 1, "jti": "key:tests:0001", "key": "a" * 43}
    token = sign_token(KEY_LIMIT, json.dumps(claims | Position(9, 9, 9)._asdict()).encode(), old)
    db = apsw.Connection(str(place / "ledger.db"))
    db.execute("UPDATE key_limits SET token = ?", (token,))
    db.close()
    assert [found.fault for found in findings(place)] == ["key_mismatch"]


# What services do with a receipt that a key signed after its period


def signed_late(service: Service, place: Path, *, by_thief: bool) -> str:
    """Return a session whose second receipt lies after the period of its key, as a thief of the key adds it."""
    old, session_id = key_of(service), service.start()
    receipt = service.call(session_id)
    rotated(service)
    service.close()
    if by_thief:
        put_in(place, session_id, *forged_after(receipt, old))
    return session_id


def broken(place: Path, *, whole_pass: bool) -> list[tuple[str, int, str]]:
    """Return what the background verifier reports as broken, after its first pass or after a check of everything."""
    told: list[Message] = []
    with open_home(place, create=False) as home, open_rows(home) as (connection, rows):
        verifier = Verifier(rows, LedgerCheck(connection, rows), told.append, StillPace(SetClock()))
        verifier.full_pass() if whole_pass else verifier.first_pass()
    return [(one.session_id, one.index, one.fault) for one in told if isinstance(one, BrokenChainFound)]


@pytest.mark.parametrize("whole_pass", [True, False])
@pytest.mark.parametrize("by_thief", [True, False])
def test_the_verifier_reports_a_receipt_that_a_retired_key_signed_later(
    service: Service, place: Path, *, whole_pass: bool, by_thief: bool
) -> None:
    session_id = signed_late(service, place, by_thief=by_thief)
    assert broken(place, whole_pass=whole_pass) == ([(session_id, 1, "key_retired")] if by_thief else [])


def test_a_verifier_that_runs_sees_that_a_key_was_retired_meanwhile(service: Service, place: Path) -> None:
    told: list[Message] = []
    old, session_id = key_of(service), service.start()
    receipt = service.call(session_id)
    with open_home(place, create=False) as home, open_rows(home) as (_, rows):
        verifier = Verifier(rows, lambda *_: None, told.append, StillPace(SetClock()))
        verifier.first_pass()
        rotated(service)
        service.close()
        put_in(place, session_id, *forged_after(receipt, old))
        verifier.catch_up()
    assert [(one.index, one.fault) for one in told if isinstance(one, BrokenChainFound)] == [(1, "key_retired")]


def test_an_attestation_says_that_a_retired_key_signed_later(service: Service, place: Path) -> None:
    session_id = signed_late(service, place, by_thief=True)
    again = Service(place)
    attested = again.governor.run(Attest(session_id))
    again.close()
    assert attested.fault is not None
    assert (attested.fault.index, attested.fault.fault) == (1, "key_retired")
    claims = attested.attestation.claims
    assert (claims.chain_verified, claims.receipts, claims.broken_at) == (False, 2, 2)


def test_nothing_is_permitted_upon_a_receipt_that_a_retired_key_signed_later(service: Service, place: Path) -> None:
    session_id = signed_late(service, place, by_thief=True)
    again = Service(place)
    assert again.call(session_id).claims.internal_denial_code == "chain_broken"
    again.close()


@pytest.mark.parametrize("of_thief", [True, False])
def test_a_bookmark_does_not_cover_what_a_key_signed_after_its_period(
    service: Service, place: Path, *, of_thief: bool
) -> None:
    """A thief makes one with the retired key; or one of a good key is older than the distrust of the other."""
    old, session_id = key_of(service), service.start()
    receipt = service.call(session_id)
    if of_thief:
        rotated(service)
        service.close()
        put_in(place, session_id, *forged_after(receipt, old))
    else:
        moment = a_while_passes(service)
        service.call(session_id)
        rotated(service)
        service.governor.run(Attest(session_id))
        distrusted(service, old.kid, moment)
        service.close()
    again = Service(place)
    session = again.open.reader.session(session_id)
    assert session is not None
    if of_thief:
        head, tally = session.head, Tally()
        for kept in again.open.reader.receipts(session_id):
            tally.add(verify_receipt(kept.token, again.open.keys.keyring()))
        assert head is not None
        bookmark = sign_bookmark(head, tally, old, now=head.iat)
        again.open.ledger.run(lambda it: it.put_attestation(session_id, "att:thief", "x", bookmark))
    fault = verify_stored(again.open.reader, session, again.open.keys.keyring()).fault
    again.close()
    expected = 1, "key_retired" if of_thief else "key_distrusted"
    assert fault is not None
    assert (fault.index, fault.fault) == expected
    assert broken(place, whole_pass=False) == [(session_id, *expected)]


# Records that were removed


def without_limits(place: Path, where: str = "1") -> None:
    db = apsw.Connection(str(place / "ledger.db"))
    db.execute(f"DELETE FROM key_limits WHERE {where}")
    db.close()


@pytest.mark.parametrize("way", ["rotate", "distrust now", "distrust earlier"])
def test_the_end_of_a_period_that_was_removed_is_missed(service: Service, place: Path, way: str) -> None:
    kid, session_id = key_of(service).kid, service.start()
    service.call(session_id)
    service.close()
    how = {"distrust now": "now", "distrust earlier": "2026-01-01T00:00:00Z"}.get(way)
    arguments = ("distrust", kid, "--from", how, "--yes") if how else ("rotate",)
    # The second statement goes into a session that is there.
    for words in (arguments, ("rotate",)):
        done = run(place, "keys", *words)
        assert (done.exit_code, done.stderr) == (0, "")
    there = {fault for *_, fault in faults(place)}
    assert "limit_missing" not in there
    assert not [one for one in broken(place, whole_pass=False) if one[2] == "limit_missing"]
    without_limits(place, f"token = (SELECT token FROM key_limits WHERE kid = '{kid}' ORDER BY number DESC LIMIT 1)")
    assert "limit_missing" in {fault for *_, fault in faults(place)}
    for whole_pass in (True, False):
        assert "limit_missing" in {fault for *_, fault in broken(place, whole_pass=whole_pass)}
    without_limits(place)
    assert "limit_missing" in {fault for *_, fault in faults(place)}
    assert run(place, "ledger", "check").exit_code == 1


def test_a_key_that_handed_over_after_one_with_an_end_has_one_too(service: Service, place: Path) -> None:
    kids = [key_of(service).kid, rotated(service)]
    rotated(service)
    service.close()
    assert findings(place) == []
    without_limits(place, f"kid = '{kids[1]}'")
    (found,) = findings(place)
    assert (found.fault, kids[1] in found.sentence) == ("limit_missing", True)
    # Before that, keys may have handed over under the first release.
    without_limits(place)
    assert findings(place) == []


def test_a_key_that_has_registered_passports_and_handed_over_has_an_end(service: Service, place: Path) -> None:
    kid, _ = key_of(service).kid, service.start()
    distrusted(service, kid, now_ms())
    service.close()
    assert findings(place) == []
    without_limits(place)
    (found,) = findings(place)
    assert (found.fault, kid in found.sentence) == ("limit_missing", True)


# Distrust


def test_what_a_key_signed_later_is_refused_and_what_it_signed_before_is_not(service: Service, place: Path) -> None:
    kid = key_of(service).kid
    before, unstarted_before = service.start(), service.passport()
    service.call(before)
    moment = a_while_passes(service)
    after, unstarted_after = service.start(), service.passport()
    service.call(after)
    found = distrusted(service, kid, moment)
    assert (found.position, found.rotated, len(found.passports)) == (Position(1, 2, 1), True, 2)
    assert found.signing == key_of(service).kid != kid
    assert service.governor.run(CloseRevoked(found.passports)) == 1
    assert service.call(before).claims.verdict == "compliant"
    denied = service.call(after).claims
    assert (denied.public_denial_reason, denied.internal_denial_code) == ("revoked", "passport_revoked")
    assert service.start(unstarted_before)
    with pytest.raises(PassportRevoked):
        service.start(unstarted_after)
    service.close()
    named = findings(place)
    assert {found.fault for found in named} == {"key_distrusted"}
    assert [(it.session_id, it.receipt) for it in named if it.receipt] == [(after, 1)]
    said = [it.sentence for it in named if not it.receipt]
    assert len(said) == 2
    assert all(any(passport in sentence for sentence in said) for passport in found.passports)


def test_a_running_process_sees_a_distrust_at_its_next_call(service: Service, place: Path) -> None:
    kid, session_id = key_of(service).kid, service.start()
    assert service.call(session_id).claims.verdict == "compliant"
    other = Service(place)
    distrusted(other, kid, 0)
    other.close()
    assert service.call(session_id).claims.internal_denial_code == "passport_revoked"
    assert service.open.reader.session(session_id) is not None


def test_delegates_that_a_key_signed_later_are_refused_with_it(service: Service) -> None:
    kid, parent = key_of(service).kid, service.start()
    moment = a_while_passes(service)
    wanted = structs.replace(MISSION, max_tool_calls=5)
    started = service.start(service.governor.run(Delegate(parent, wanted, "one")).passport or "")
    waiting = service.governor.run(Delegate(parent, wanted, "two")).passport or ""
    found = distrusted(service, kid, moment)
    assert len(found.passports) == 2
    service.governor.run(CloseRevoked(found.passports))
    assert service.call(started).claims.internal_denial_code == "passport_revoked"
    with pytest.raises(PassportRevoked):
        service.governor.run(StartSession(waiting))
    session = service.open.reader.session(parent)
    assert session is not None
    assert (session.state, session.reserved) == ("active", 0)


def test_a_date_in_a_token_moves_nothing(service: Service) -> None:
    """A thief dates a passport long before; it is registered later, and that is what counts."""
    key, moment = key_of(service), now_ms()
    wanted = structs.replace(MISSION, max_duration_s=7200)
    issuer, now = verifier_id(key.public), int(time.time()) - 3600
    early = issue_passport(wanted, key, issuer=issuer, jti="pass:early:0001", now=now)
    register(service.open.ledger, early.token, at_ms=moment + 1)
    assert distrusted(service, key.kid, moment).passports == [early.jti]


def test_a_key_that_handed_over_already_is_distrusted_without_another_change(service: Service, place: Path) -> None:
    kid, session_id = key_of(service).kid, service.start()
    new = rotated(service)
    found = distrusted(service, kid, 0)
    assert (found.rotated, found.signing, found.passports) == (False, new, [session_id])
    assert service.open.key_files.kids() == [new]
    assert len(service.open.reader.keys()) == 2
    limits = load_key_limits(service.open.reader.limits(), service.open.keys.keyring())
    assert find_distrusted(limits) == {kid: 0}


def test_the_epoch_moves_and_the_record_survives_a_restart(service: Service, place: Path) -> None:
    kid, before = key_of(service).kid, service.open.reader.overview().epoch
    distrusted(service, kid, now_ms())
    records = service.open.reader.limits()
    assert service.open.reader.overview().epoch > before
    service.close()
    again = open_embedded_ledger(place)
    assert again.reader.limits() == records
    again.close()


def test_a_key_that_is_not_of_the_home_is_not_distrusted(service: Service) -> None:
    before = service.open.key_files.kids()
    with pytest.raises(FieldInvalid) as caught:
        distrusted(service, "a" * 43, 0)
    assert caught.value.place == "$.kid"
    assert service.open.key_files.kids() == before


def test_the_earliest_time_of_several_counts(service: Service) -> None:
    kid = key_of(service).kid
    distrusted(service, kid, 5_000_000)
    distrusted(service, kid, 3_000_000)
    distrusted(service, kid, 4_000_000)
    limits = load_key_limits(service.open.reader.limits(), service.open.keys.keyring())
    assert find_distrusted(limits) == {kid: 3000}


def test_a_copy_from_before_a_distrust_does_not_bring_trust_back(service: Service, place: Path, tmp_path: Path) -> None:
    kid, session_id, waiting = key_of(service).kid, service.start(), service.passport()
    with open_home(place, create=False) as home:
        backup(home, tmp_path / "copy.db")
    distrusted(service, kid, 0)
    service.close()
    with open_home(place, create=False) as home:
        with pytest.raises(LedgerRolledBack):
            restore(home, tmp_path / "copy.db")
        restore(home, tmp_path / "copy.db", accept_loss=True)
    again = Service(place)
    limits = load_key_limits(again.open.reader.limits(), again.open.keys.keyring())
    assert find_distrusted(limits) == {kid: 0}
    with pytest.raises(PassportRevoked):
        again.start(waiting)
    assert key_of(again).kid != kid
    again.close()
    assert {found.fault for found in findings(place)} == {"key_distrusted"}
    assert session_id in str(findings(place))


def test_a_copy_that_lacks_a_registration_is_older(service: Service, place: Path, tmp_path: Path) -> None:
    with open_home(place, create=False) as home:
        backup(home, tmp_path / "copy.db")
        service.passport()
        service.close()
        with pytest.raises(LedgerRolledBack):
            restore(home, tmp_path / "copy.db")


# Files of the first release


def test_a_ledger_of_the_first_release_goes_on_and_registers(service: Service, place: Path) -> None:
    session_id, waiting = service.start(), service.passport()
    parent = service.start()
    child = service.governor.run(Delegate(parent, structs.replace(MISSION, max_tool_calls=5), "one")).passport or ""
    token = service.passport()
    service.start(token)
    service.close()
    as_of_the_first_release(place)
    again = Service(place)
    assert again.call(session_id).claims.verdict == "compliant"
    assert again.governor.run(StartSession(token)).existing
    assert again.start(child)
    with pytest.raises(PassportUnregistered) as caught:
        again.start(waiting)
    assert "remit issue" in str(caught.value)
    assert again.start(again.passport())
    again.close()
    assert findings(place) == []


def test_a_ledger_of_the_first_release_can_be_read_before_anyone_opens_it(service: Service, place: Path) -> None:
    session_id = service.start()
    service.close()
    as_of_the_first_release(place)
    assert findings(place) == []
    with open_home(place, create=False) as home, open_rows(home) as (connection, rows):
        assert rows.limits() == []
        assert rows.registered(session_id) is None
        assert connection.pragma("user_version") == 1


def test_a_ledger_of_the_first_release_is_brought_up_to_date_beside_a_process_that_has_it_open(
    service: Service, place: Path
) -> None:
    session_id = service.start()
    as_of_the_first_release(place)
    other = open_embedded_ledger(place)
    other.close()
    assert service.call(session_id).claims.verdict == "compliant"
    assert service.start()


def test_a_copy_of_the_first_release_is_restored(service: Service, place: Path, tmp_path: Path) -> None:
    session_id = service.start()
    service.close()
    as_of_the_first_release(place)
    with open_home(place, create=False) as home:
        backup(home, tmp_path / "copy.db")
        restored = restore(home, tmp_path / "copy.db")
    assert restored.closed_sessions == 0
    again = Service(place)
    assert again.call(session_id).claims.verdict == "compliant"
    again.close()


# Registration


def test_one_id_is_registered_once(service: Service) -> None:
    token = service.passport()
    with pytest.raises(RequestConflict):
        register(service.open.ledger, token)
    record = service.open.reader.registered(str((unsafe_peek(token).claims or {})["jti"]))
    assert record is not None
    assert (record.hash, record.kid) == (sha256_hex(token.encode()), key_of(service).kid)


def test_a_session_whose_passport_is_not_the_registered_one_is_named(service: Service, place: Path) -> None:
    session_id = service.start()
    service.close()
    db = apsw.Connection(str(place / "ledger.db"))
    db.execute("UPDATE passports SET hash = ?", ("0" * 64,))
    db.close()
    assert faults(place) == [(session_id, None, "passport_mismatch")]


def test_a_key_that_hands_over_while_a_passport_is_issued_signs_nothing_after_that(
    service: Service, place: Path
) -> None:
    """Another process changes the key after the work has read which one signs, and before it is written."""
    from remit.governor.issue import PassportRequest, issue_in

    other, kids = Service(place), list[str]()
    key_of(service)

    def work(transaction: object) -> str:
        if not kids:
            kids.append(rotated(other))
        order = PassportRequest(MISSION, "pass:racing:0001")
        return issue_in(transaction, service.open.keys, order, now_ms()).token  # type: ignore[arg-type]

    token = service.open.ledger.run(work)
    assert (unsafe_peek(token).header or {})["kid"] == kids[0]
    assert service.start(token)
    other.close()
    service.close()
    assert findings(place) == []


def test_a_ledger_in_memory_finds_the_same_position() -> None:
    shelf = MemoryTables("ledger:test", LedgerState("kid"))
    shelf.passports = {name: PassportRegistration(name, "", "kid", at) for name, at in (("a", 5), ("b", 9), ("c", 7))}
    store = MemoryStore(shelf)
    assert store.position() == Position(0, 3, 0)
    assert [store.position(until).passports for until in (4, 5, 7, 9)] == [0, 1, 1, 3]
    assert store.signed_after("kid", Position(0, 1, 0)) == ["b", "c"]
    assert store.signed_after("other", Position(0, 0, 0)) == []
