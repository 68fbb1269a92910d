"""The check of a whole ledger: all is well with one that was only used, and every kind of tampering is named."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from remit import SigningKey, TrustedKey, verifier_id
from remit.claims.chain import FAULTS as CHAIN_FAULTS
from remit.claims.keys import Keyring
from remit.claims.receipt import Digest
from remit.governor.assistants import Actor, EvaluateAssistantCall
from remit.governor.attest import Attest
from remit.governor.delegate import Delegate
from remit.governor.results import RecordResult
from remit.governor.sessions import EndSession
from remit.governor.sources import Reporter
from remit.ledger.check import check_ledger
from remit.ledger.findings import FAULTS, MAX_FINDINGS, LedgerReport
from remit.ledger.home import open_home
from remit.ledger.records import Source
from remit.ledger.store import Transaction, Work
from remit.policy.call import ToolCall
from tests.ledger.changing import rotate
from tests.ledger.service import MISSION, Service
from tests.world import error_classes

pytestmark = pytest.mark.slow

DELEGATE = structs.replace(MISSION, agent_id="agent:delegate", max_tool_calls=5)
RESULT = Digest(alg="sha-256", value="A" * 43, canonicalization="jcs-rfc8785", scope="normalized_input")


def use(service: Service) -> str:
    """Let everything happen that a session can have in its chain, and return the id of the session."""
    session_id = service.start()
    permitted = service.call(session_id)
    service.governor.run(RecordResult(session_id, permitted.claims.receipt_id, RESULT))
    denied = service.call(session_id, "/etc/passwd")
    service.governor.run(RecordResult(session_id, denied.claims.receipt_id, RESULT))
    service.governor.run(Attest(session_id))
    children = [delegate(service, session_id, f"request:{number}") for number in range(2)]
    service.governor.run(EndSession(children[0]))
    service.governor.run(Attest(session_id))
    return session_id


def delegate(service: Service, session_id: str, request: str) -> str:
    """Let a delegate make a call, and return its session."""
    child = service.start(service.governor.run(Delegate(session_id, DELEGATE, request)).passport or "")
    service.call(child)
    return child


def tell(session_id: str) -> Work[None]:
    """Return the work of saying who reports to a session."""

    def work(transaction: Transaction) -> None:
        session = transaction.session(session_id)
        assert session is not None
        transaction.put_session(session)
        transaction.put_source(Source(session_id, "key", "{}"))

    return work


@pytest.fixture
def place(tmp_path: Path) -> Path:
    service = Service(tmp_path / "home")
    use(service)
    rotate(service.open.ledger, service.open.keys, service.open.key_files, time.time_ns() // 1_000_000)
    use(service)
    service.open.ledger.run(tell(service.start()), alone=True)
    call = ToolCall("read_file", {"path": "/srv/project/a"})
    service.governor.run(
        EvaluateAssistantCall(Actor(Reporter("hook:one", "{}", MISSION)), call, "c1", "claude-code c1")
    )
    service.close()
    return tmp_path / "home"


def checked(place: Path, **options: object) -> LedgerReport:
    with open_home(place, create=False) as home:
        return check_ledger(home, **options)  # type: ignore[arg-type]


def edit(place: Path, *statements: str) -> None:
    """Change the file of the ledger as one would who has no key."""
    connection = apsw.Connection(str(place / "ledger.db"))
    connection.pragma("ignore_check_constraints", 1)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_nothing_is_wrong_with_a_ledger_that_was_only_used(place: Path) -> None:
    report = checked(place)
    assert report.findings == ()
    assert (report.sessions, report.attestations, report.keys, report.found) == (8, 4, 2, 0)


def test_nothing_is_wrong_with_an_empty_ledger(tmp_path: Path) -> None:
    Service(tmp_path / "home").close()
    assert checked(tmp_path / "home") == LedgerReport(0, 0, 0, 1, 0, ())


def test_threads_find_what_one_finds(place: Path) -> None:
    edit(place, "UPDATE receipts SET token = token || 'A' WHERE number % 5 = 0")
    with ThreadPoolExecutor(2) as pool:
        assert checked(place, each=pool.map) == checked(place)


def test_a_ledger_can_be_checked_while_others_write(tmp_path: Path) -> None:
    service, stop = Service(tmp_path / "home"), threading.Event()
    session_id = service.start()

    def write() -> None:
        while not stop.is_set():
            service.call(session_id, "/etc/passwd")
            service.start()

    thread = threading.Thread(target=write)
    thread.start()
    reports = [checked(tmp_path / "home") for _ in range(10)]
    stop.set()
    thread.join()
    service.close()
    assert [report.findings for report in reports] == [()] * 10


def test_progress_ends_with_all_receipts(place: Path) -> None:
    told: list[tuple[int, int]] = []
    report = checked(place, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (report.receipts, report.receipts)


TAMPERED = {
    "a token is changed": (
        "UPDATE receipts SET token = substr(token, 1, 300) || iif(substr(token, 301, 1) = 'A', 'B', 'A')"
        " || substr(token, 302) WHERE seq = 2",
        "signature_invalid",
    ),
    "a receipt is removed": ("DELETE FROM receipts WHERE number = 2", "parent_id_mismatch"),
    "the last receipt is removed": (
        "DELETE FROM receipts WHERE number = (SELECT max(number) FROM receipts)",
        "head_mismatch",
    ),
    "receipts are swapped": (
        "UPDATE receipts SET token = CASE number WHEN 2 THEN (SELECT token FROM receipts WHERE number = 3)"
        " ELSE (SELECT token FROM receipts WHERE number = 2) END WHERE number IN (2, 3)",
        "parent_id_mismatch",
    ),
    "a receipt has another id": ("UPDATE receipts SET id = 'rcpt:x' WHERE number = 2", "row_mismatch"),
    "a receipt has another place": (
        "UPDATE receipts SET seq = 100 WHERE number = (SELECT max(number) FROM receipts WHERE session = 1)",
        "row_mismatch",
    ),
    "a denial is hidden": ("UPDATE receipts SET code = '' WHERE code != ''", "row_mismatch"),
    "a denial has another code": ("UPDATE receipts SET code = 'x' WHERE code != ''", "row_mismatch"),
    "a permitted call is a denial": ("UPDATE receipts SET code = 'x' WHERE number = 1", "row_mismatch"),
    "a receipt hangs on another": ("UPDATE receipts SET parent = 999 WHERE number = 3", "row_mismatch"),
    "a session is shorter": ("UPDATE sessions SET length = length - 1 WHERE number = 1", "head_mismatch"),
    "a session has another head": ("UPDATE sessions SET receipt_hash = 'x' WHERE number = 1", "head_mismatch"),
    "a session has another key": ("UPDATE sessions SET kid = 'x' WHERE number = 1", "session_mismatch"),
    "a session has another run": ("UPDATE sessions SET run_nonce = 'x' WHERE number = 1", "session_mismatch"),
    "a session has another last receipt": ("UPDATE sessions SET last_number = 1 WHERE number = 1", "session_mismatch"),
    "a violation is not counted": ("UPDATE sessions SET violation = 0 WHERE number = 1", "session_mismatch"),
    "more events than receipts": ("UPDATE sessions SET observed = length + 1 WHERE number = 1", "session_mismatch"),
    "a session of hooks has another source": (
        "UPDATE sources SET key = 'hook:two' WHERE key = 'hook:one'",
        "session_mismatch",
    ),
    "a session of hooks has no source": (
        "DELETE FROM sources WHERE key = 'hook:one'; UPDATE ledger SET sources = sources - 1",
        "session_mismatch",
    ),
    "calls are given back": ("UPDATE sessions SET used = 0 WHERE number = 1", "budget_mismatch"),
    "nothing is set aside any more": ("UPDATE sessions SET reserved = 0 WHERE number = 1", "budget_mismatch"),
    "a delegation is made smaller": ("UPDATE delegations SET amount = 1", "budget_mismatch"),
    "a delegation is forgotten": ("DELETE FROM delegations", "budget_mismatch"),
    "a limit is raised": ('UPDATE sessions SET "limit" = 100000 WHERE number = 1', "passport_mismatch"),
    "a session lasts longer": ("UPDATE sessions SET lifetime_ms = 1000000000 WHERE number = 1", "passport_mismatch"),
    "a session has another passport": (
        "UPDATE sessions SET passport = (SELECT passport FROM sessions WHERE number = 4) WHERE number = 1",
        "passport_mismatch",
    ),
    "an attestation is changed": (
        "UPDATE attestations SET token = substr(token, 1, length(token) - 2) || 'AA'",
        "attestation_mismatch",
    ),
    "an attestation is of another session": ("UPDATE attestations SET session = 4", "attestation_mismatch"),
    "a bookmark is of another session": (
        "UPDATE bookmarks SET token = (SELECT max(token) FROM bookmarks)",
        "bookmark_mismatch",
    ),
    "a key is not handed over to": ("UPDATE keys SET change = NULL", "key_mismatch"),
    "a key is exchanged": (
        "UPDATE keys SET public_pem = (SELECT public_pem FROM keys WHERE number = 1) WHERE number = 2",
        "key_mismatch",
    ),
    "another key signs": ("UPDATE ledger SET kid = (SELECT kid FROM keys WHERE number = 1)", "key_mismatch"),
    "a session is removed": ("DELETE FROM sessions WHERE number = 7", "count_mismatch"),
    "a code is counted less often": ("UPDATE codes SET count = count - 1 WHERE code != ''", "count_mismatch"),
    "permitted calls are counted as a code": ("INSERT INTO codes VALUES ('', 1)", "count_mismatch"),
    "a code is not counted": ("DELETE FROM codes WHERE code != ''", "count_mismatch"),
    "a code is made up": ("INSERT INTO codes VALUES ('x', 1)", "count_mismatch"),
    "a code is made up everywhere": (
        "INSERT INTO codes VALUES ('x', 1); INSERT INTO minutes VALUES (1, 'x', 1)",
        "count_mismatch",
    ),
    "a minute counts more": ("UPDATE minutes SET count = count + 1 WHERE code = ''", "count_mismatch"),
    "a minute is forgotten": ("DELETE FROM minutes WHERE code != ''", "count_mismatch"),
    "minutes count more than can be added": (
        "INSERT INTO minutes VALUES (1, '', 9223372036854775807), (2, '', 9223372036854775807)",
        "count_mismatch",
    ),
    "a source is forgotten": ("DELETE FROM sources", "count_mismatch"),
    "a source is made up": ("INSERT INTO sources VALUES (1, 'key', '{}')", "count_mismatch"),
    "a source has no session": ("UPDATE sources SET session = 99 WHERE key = 'key'", "reference_missing"),
    "a note has no session": ("INSERT INTO notes VALUES (99, 1, 1, 'text')", "reference_missing"),
    "a receipt has no session": ("UPDATE receipts SET session = 99 WHERE number = 2", "reference_missing"),
}


@pytest.mark.parametrize("deed", TAMPERED)
def test_tampering_is_found_and_named(place: Path, deed: str) -> None:
    statement, fault = TAMPERED[deed]
    edit(place, statement)
    report = checked(place)
    assert fault in {finding.fault for finding in report.findings}
    assert report.found == len(report.findings)


def test_a_finding_says_where(place: Path) -> None:
    edit(place, "UPDATE receipts SET token = 'a.b.c' WHERE number = 2")
    (finding,) = checked(place).findings
    assert (finding.receipt, finding.fault) == (2, "token_malformed")
    assert (finding.session_id or "").startswith("pass:")


def test_a_tail_that_was_cut_with_its_session_row_is_found_by_what_was_attested(place: Path) -> None:
    edit(
        place,
        "DELETE FROM results",
        "DELETE FROM receipts WHERE session = 1 AND seq > 2",
        "UPDATE sessions SET length = 2, receipt_id = r.id FROM receipts r WHERE r.session = 1 AND r.seq = 2 AND"
        " sessions.number = 1",
    )
    faults = [(finding.fault, finding.receipt) for finding in checked(place).findings]
    assert ("head_mismatch", 2) in faults


def test_a_ledger_behind_its_anchor_is_found(place: Path) -> None:
    edit(place, "DELETE FROM receipts WHERE number = (SELECT max(number) FROM receipts)")
    assert "ledger_rolled_back" in {finding.fault for finding in checked(place).findings}


def test_a_key_that_is_gone_is_found(place: Path) -> None:
    for file in (place / "keys").iterdir():
        file.unlink()
    assert [finding.fault for finding in checked(place).findings] == ["state_missing"]


def test_a_damaged_file_is_found(place: Path) -> None:
    data = bytearray((place / "ledger.db").read_bytes())
    data[8192 * 6 : 8192 * 9] = bytes(8192 * 3)
    (place / "ledger.db").write_bytes(data)
    assert {"database_damaged", "state_corrupt"} & {finding.fault for finding in checked(place).findings}


def test_receipts_of_a_key_that_is_not_believed_are_found(place: Path) -> None:
    stranger = SigningKey.derive(bytes(40))
    ring = Keyring([TrustedKey(stranger.public, verifier_id(stranger.public))])
    assert "key_unknown" in {finding.fault for finding in checked(place, keyring=ring).findings}


def test_a_report_is_never_longer_than_a_person_can_use(place: Path) -> None:
    edit(
        place,
        "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1500)"
        " INSERT INTO repeats SELECT 1, 'key' || i, 'digest', 999999 FROM n",
    )
    report = checked(place)
    assert (len(report.findings), report.found) == (MAX_FINDINGS, 1500)


def test_every_fault_of_a_check_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate" / "ledger.md").read_text(encoding="utf-8")
    assert [fault for fault in FAULTS if f"`{fault}`" not in page] == []


def test_faults_have_one_meaning_each() -> None:
    assert not FAULTS.keys() & set(CHAIN_FAULTS)
    assert FAULTS.keys() & {error.code for error in error_classes()} == {"attestation_mismatch"}
