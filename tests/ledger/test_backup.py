"""Copies of the ledger: taken under load, put back only when that is safe, and never at the price of a silent loss."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from remit import RemitError
from remit.errors import (
    FieldInvalid,
    KillSwitchOn,
    LedgerForeign,
    LedgerInUse,
    LedgerRolledBack,
    PassportRevoked,
    SessionSealed,
    StateCorrupt,
    StateMissing,
)
from remit.governor.assistants import Actor, BeginAssistantSession, EndAssistantSession
from remit.governor.delegate import Delegate
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import StartSession
from remit.governor.sources import Reporter
from remit.ledger.backup import backup
from remit.ledger.check import check_ledger
from remit.ledger.embedded import USE_LOCK, open_embedded_ledger
from remit.ledger.home import Home, open_home
from remit.ledger.records import RESTORED, LedgerOverview, Session
from remit.ledger.restore import RestoreResult, restore
from tests.ledger.changing import rotate
from tests.ledger.service import MISSION, Service

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


@pytest.fixture
def service(place: Path) -> Iterator[Service]:
    service = Service(place)
    yield service
    service.close()


def took(place: Path, copy: Path) -> LedgerOverview:
    with open_home(place, create=False) as home:
        return backup(home, copy)


def put(place: Path, copy: Path, *, accept_loss: bool = False) -> RestoreResult:
    with open_home(place, create=False) as home:
        return restore(home, copy, accept_loss=accept_loss)


def refusal(place: Path, copy: Path) -> type[RemitError]:
    """Restore, expect a refusal that has changed nothing, and return it."""
    before = contents(place)
    with pytest.raises(RemitError) as refused:
        put(place, copy)
    assert contents(place) == before
    assert refused.value.code == refused.type.code
    return refused.type


def contents(place: Path) -> dict[str, bytes]:
    """What lies in a home, without locks and without what SQLite puts beside a file that is read."""
    passing = {USE_LOCK, "ledger.db-wal", "ledger.db-shm"}
    return {file.name: file.read_bytes() for file in place.iterdir() if file.is_file() and file.name not in passing}


def findings(place: Path) -> list[str]:
    with open_home(place, create=False) as home:
        return [finding.fault for finding in check_ledger(home).findings]


def kept(place: Path, session_id: str) -> Session:
    opened = open_embedded_ledger(place)
    session = opened.ledger.read().session(session_id)
    opened.close()
    assert session is not None
    return session


# Taking a copy.


def test_a_copy_taken_while_others_write_is_the_ledger_at_one_moment(
    service: Service, place: Path, copy: Path, tmp_path: Path
) -> None:
    sessions, stop = [service.start() for _ in range(3)], threading.Event()

    def write(session_id: str) -> None:
        while not stop.is_set():
            service.call(session_id, "/etc/passwd")

    threads = [threading.Thread(target=write, args=(session_id,)) for session_id in sessions]
    for thread in threads:
        thread.start()
    overviews = [took(place, tmp_path / f"copy-{number}.db") for number in range(5)]
    stop.set()
    for thread in threads:
        thread.join()
    service.close()
    assert sorted(overviews, key=lambda it: it.receipts) == overviews
    for number in range(5):
        put(place, tmp_path / f"copy-{number}.db", accept_loss=True)
        assert findings(place) == []


def test_a_copy_is_one_file_for_its_owner_alone(service: Service, place: Path, copy: Path) -> None:
    service.call(service.start())
    before = os.umask(0)
    took(place, copy)
    os.umask(before)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in copy.parent.iterdir() if file.name.startswith("copy")] == ["copy.db"]


def test_a_copy_never_overwrites(service: Service, place: Path, copy: Path) -> None:
    copy.write_text("mine")
    with pytest.raises(FieldInvalid) as refused:
        took(place, copy)
    assert refused.value.code == "field_invalid"
    assert copy.read_text() == "mine"


@pytest.mark.parametrize("name", ["none/copy.db", ".."])
def test_a_copy_needs_a_name_in_a_folder_that_is_there(
    service: Service, place: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(FieldInvalid):
        took(place, tmp_path / name)


def test_no_half_copy_is_left_of_a_damaged_ledger(place: Path, copy: Path) -> None:
    service = Service(place)
    for _ in range(60):
        service.call(service.start())
    service.close()
    damage(place / "ledger.db")
    with pytest.raises(StateCorrupt):
        took(place, copy)
    assert not copy.exists()


def test_a_home_without_a_ledger_has_nothing_to_copy(place: Path, copy: Path) -> None:
    open_home(place).close()
    with pytest.raises(StateMissing):
        took(place, copy)
    assert not copy.exists()


# What is refused.


def damage(file: Path) -> None:
    """Overwrite some pages in the middle."""
    data = bytearray(file.read_bytes())
    data[8192 * 4 : 8192 * 20] = os.urandom(8192 * 16)
    file.write_bytes(data)


def test_nothing_is_restored_while_the_ledger_is_open(service: Service, place: Path, copy: Path) -> None:
    took(place, copy)
    with pytest.raises(LedgerInUse) as refused:
        put(place, copy)
    assert refused.value.code == "ledger_in_use"


def test_nothing_is_opened_while_the_ledger_is_restored(place: Path) -> None:
    with open_home(place) as home, home.locked(USE_LOCK):
        with pytest.raises(LedgerInUse):
            open_embedded_ledger(place)
        with open_home(place) as other, pytest.raises(LedgerInUse), other.locked(USE_LOCK, shared=True, wait=False):
            pass


def test_only_a_ledger_is_restored(place: Path, copy: Path) -> None:
    Service(place).close()
    copy.write_bytes(b"")
    assert refusal(place, copy) is LedgerForeign
    copy.write_bytes(b"not a database " * 1000)
    assert refusal(place, copy) is LedgerForeign
    copy.unlink()
    with sqlite3.connect(copy) as other:
        other.execute("CREATE TABLE receipts (number)")
    other.close()
    assert refusal(place, copy) is LedgerForeign
    copy.unlink()
    assert refusal(place, copy) is FieldInvalid


def test_a_ledger_of_a_newer_version_is_not_restored(service: Service, place: Path, copy: Path) -> None:
    took(place, copy)
    service.close()
    connection = apsw.Connection(str(copy))
    connection.pragma("user_version", 99)
    connection.close()
    assert refusal(place, copy) is LedgerForeign


@pytest.mark.parametrize("without", ["nothing", "ledger.db", "ledger.anchor"])
def test_another_ledger_is_not_restored(place: Path, copy: Path, tmp_path: Path, without: str) -> None:
    Service(tmp_path / "other").close()
    took(tmp_path / "other", copy)
    Service(place).close()
    (place / without).unlink(missing_ok=True)
    assert refusal(place, copy) is LedgerForeign


def test_a_damaged_copy_is_not_restored(service: Service, place: Path, copy: Path) -> None:
    for _ in range(60):
        service.call(service.start())
    took(place, copy)
    service.close()
    damage(copy)
    assert refusal(place, copy) is StateCorrupt


def test_a_copy_that_was_cut_short_is_not_restored(service: Service, place: Path, copy: Path) -> None:
    for _ in range(60):
        service.call(service.start())
    took(place, copy)
    service.close()
    os.truncate(copy, copy.stat().st_size // 2)
    assert refusal(place, copy) is StateCorrupt


def test_a_copy_whose_key_is_gone_is_not_restored(service: Service, place: Path, copy: Path) -> None:
    took(place, copy)
    service.close()
    (place / "ledger.db").unlink()
    for file in (place / "keys").iterdir():
        file.unlink()
    assert refusal(place, copy) is StateMissing


def test_an_older_copy_is_not_restored(service: Service, place: Path, copy: Path) -> None:
    session_id = service.start()
    service.call(session_id)
    took(place, copy)
    service.call(session_id)
    service.close()
    assert refusal(place, copy) is LedgerRolledBack
    (place / "ledger.db").unlink()
    assert refusal(place, copy) is LedgerRolledBack


def test_a_copy_is_older_if_only_a_revocation_came_after_it(service: Service, place: Path, copy: Path) -> None:
    session_id = service.start()
    service.call(session_id)
    took(place, copy)
    service.governor.run(RevokeSession(session_id))
    service.close()
    assert refusal(place, copy) is LedgerRolledBack


# What is restored, and what that means.


def test_the_same_ledger_put_back_changes_nothing(service: Service, place: Path, copy: Path) -> None:
    session_id = service.start()
    service.call(session_id)
    overview = took(place, copy)
    service.close()
    assert put(place, copy) == RestoreResult(overview, 0, 0, "ledger.replaced-1.db", anchored=True)
    again = Service(place)
    assert again.call(session_id).claims.step_id == "step:000002"
    again.close()
    assert findings(place) == []


def test_a_loss_that_is_accepted_closes_every_session_for_good(service: Service, place: Path, copy: Path) -> None:
    token = service.passport()
    session_id = service.start(token)
    service.call(session_id)
    took(place, copy)
    for _ in range(3):
        service.call(session_id)
    service.close()
    restored = put(place, copy, accept_loss=True)
    assert (restored.overview.receipts, restored.lost_receipts, restored.closed_sessions) == (1, 3, 1)
    session = kept(place, session_id)
    assert (session.state, session.cause, session.length) == ("revoked", RESTORED, 1)
    again = Service(place)
    with pytest.raises(SessionSealed) as refused:
        again.call(session_id)
    assert refused.value.code == "session_sealed"
    with pytest.raises(SessionSealed):
        again.governor.run(StartSession(token))
    again.call(again.start())
    again.close()
    assert findings(place) == []


def test_a_ledger_without_its_anchor_is_accepted_by_a_restore_that_says_so_and_closes_its_sessions(
    service: Service, place: Path, copy: Path
) -> None:
    session_id = service.start()
    service.call(session_id)
    overview = took(place, copy)
    service.close()
    (place / "ledger.anchor").unlink()
    assert refusal(place, copy) is StateMissing
    assert put(place, copy, accept_loss=True) == RestoreResult(overview, 0, 1, "ledger.replaced-1.db", anchored=False)
    assert (kept(place, session_id).state, kept(place, session_id).cause) == ("revoked", RESTORED)
    again = Service(place)
    again.call(again.start())
    again.close()
    assert findings(place) == []


def test_the_ledger_that_was_replaced_is_kept_whole(service: Service, place: Path, copy: Path) -> None:
    session_id = service.start()
    took(place, copy)
    service.call(session_id)
    service.close()
    replaced = [put(place, copy, accept_loss=True).replaced for _ in range(2)]
    assert replaced == ["ledger.replaced-1.db", "ledger.replaced-2.db"]
    assert put(place, place / "ledger.replaced-1.db", accept_loss=True).overview.receipts == 1
    assert {file.stat().st_mode & 0o777 for file in place.glob("ledger.*")} == {0o600}


@pytest.mark.parametrize("deed", [damage, Path.unlink, lambda file: file.write_bytes(b"x" * 9000)])
def test_a_ledger_that_cannot_be_read_is_replaced_by_the_last_copy(place: Path, copy: Path, deed: object) -> None:
    service = Service(place)
    session_id = service.start()
    for _ in range(60):
        service.call(session_id, "/etc/passwd")
    service.close()
    took(place, copy)
    assert callable(deed)
    deed(place / "ledger.db")
    restored = put(place, copy)
    assert (restored.overview.receipts, restored.lost_receipts) == (60, 0)
    assert findings(place) == []


def test_sessions_are_closed_unless_the_ledger_that_is_there_proves_the_copy(place: Path, copy: Path) -> None:
    service = Service(place)
    session_id = service.start()
    service.call(session_id)
    service.close()
    took(place, copy)
    (place / "ledger.db").unlink()
    assert put(place, copy).closed_sessions == 1
    assert kept(place, session_id).cause == RESTORED


def test_a_copy_can_be_put_into_a_new_home_that_has_the_key(
    service: Service, place: Path, copy: Path, tmp_path: Path
) -> None:
    service.call(service.start())
    took(place, copy)
    with open_home(tmp_path / "new") as home, home.folder("keys") as keys:
        for file in (place / "keys").iterdir():
            keys.create(file.name, file.read_bytes())
    assert put(tmp_path / "new", copy).closed_sessions == 1
    assert findings(tmp_path / "new") == []


def test_what_was_revoked_stays_revoked(service: Service, place: Path, copy: Path) -> None:
    revoked, later = service.passport(), service.passport()
    took(place, copy)
    started = service.start(later)
    service.call(started)
    jti = service.start(revoked)
    service.governor.run(RevokePassport(jti, "stolen"))
    service.close()
    put(place, copy, accept_loss=True)
    again = Service(place)
    for token in (revoked, later):
        with pytest.raises(PassportRevoked):
            again.start(token)
    again.close()


@pytest.mark.parametrize("stop", ["revoke the next one", "kill", "nothing"])
def test_sessions_of_an_assistant_that_were_stopped_after_the_copy_do_not_begin_again(
    service: Service, place: Path, copy: Path, stop: str
) -> None:
    who = Actor(Reporter("hook:one", "{}", MISSION))
    service.governor.run(BeginAssistantSession(who.reporter))
    took(place, copy)
    service.governor.run(EndAssistantSession(who))
    second = service.governor.run(BeginAssistantSession(who.reporter))
    if stop == "kill":
        service.governor.run(KillSwitch(on=True))
        service.governor.run(KillSwitch(on=False))
    elif stop != "nothing":
        service.governor.run(RevokeSession(second))
    service.close()
    put(place, copy, accept_loss=True)
    again = Service(place)
    if stop == "nothing":
        again.governor.run(BeginAssistantSession(who.reporter))
    else:
        with pytest.raises(SessionSealed):
            again.governor.run(BeginAssistantSession(who.reporter))
    again.call(again.start())
    again.close()


def test_the_kill_switch_stays_on(service: Service, place: Path, copy: Path) -> None:
    took(place, copy)
    token = service.passport()
    service.governor.run(KillSwitch(on=True))
    service.close()
    put(place, copy, accept_loss=True)
    again = Service(place)
    with pytest.raises(KillSwitchOn):
        again.start(token)
    again.close()


def test_a_delegate_that_was_not_started_does_not_start_after_a_restore(
    service: Service, place: Path, copy: Path
) -> None:
    session_id = service.start()
    mission = structs.replace(MISSION, agent_id="agent:delegate", max_tool_calls=5)
    delegated = service.governor.run(Delegate(session_id, mission, "request:1"))
    took(place, copy)
    service.call(session_id)
    service.close()
    put(place, copy, accept_loss=True)
    again = Service(place)
    with pytest.raises(PassportRevoked):
        again.start(delegated.passport or "")
    again.close()
    assert findings(place) == []


def test_a_key_that_was_changed_since_goes_on_signing(service: Service, place: Path, copy: Path) -> None:
    service.call(service.start())
    took(place, copy)
    new = rotate(service.open.ledger, service.open.keys, service.open.key_files, 1_800_000_000_000)
    service.close()
    put(place, copy, accept_loss=True)
    again = Service(place)
    assert again.call(again.start()).kid == new.kid
    again.close()
    assert findings(place) == []


def test_a_damaged_anchor_is_set_anew_only_with_an_accepted_loss(service: Service, place: Path, copy: Path) -> None:
    took(place, copy)
    service.close()
    (place / "ledger.anchor").write_text("{}")
    assert refusal(place, copy) is StateCorrupt
    put(place, copy, accept_loss=True)
    Service(place).close()


def test_the_log_of_the_old_ledger_is_not_played_into_the_new_one(place: Path, copy: Path) -> None:
    service = Service(place)
    session_id = service.start()
    took(place, copy)
    for _ in range(5):
        service.call(session_id)
    log = (place / "ledger.db-wal").read_bytes()
    service.close()
    (place / "ledger.db-wal").write_bytes(log)
    (place / "ledger.db-wal").chmod(0o600)
    put(place, copy, accept_loss=True)
    assert not (place / "ledger.db-wal").exists()
    assert findings(place) == []


def test_one_who_shares_a_lock_is_not_held_up_by_another(place: Path) -> None:
    with (
        open_home(place) as home,
        home.locked(USE_LOCK, shared=True),
        home.locked(USE_LOCK, shared=True, wait=False),
        pytest.raises(LedgerInUse),
    ):
        taken_alone(home)
    with open_home(place) as home:
        taken_alone(home)


def taken_alone(home: Home) -> None:
    with home.locked(USE_LOCK, wait=False):
        pass
