"""What services and commands know about verification: reports are taken strictly, and breaks are not forgotten."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from remit.errors import BrokenChain
from remit.governor.verification import (
    STALE_S,
    BrokenChainFound,
    Quarantine,
    SessionProgress,
    SessionsVerified,
    SessionVerified,
    VerificationState,
    VerificationSummary,
    VerifierProblem,
    load_snapshot,
)
from remit.ledger.home import open_home
from tests.governor.world import Service
from tests.world import NOW

SUMMARY = VerificationSummary("continuous", 2, 9, 9, "rcpt:9", NOW, NOW - 5, NOW - 1, 0, NOW)


@pytest.fixture
def service() -> Iterator[Service]:
    built = Service()
    yield built
    built.close()


@pytest.fixture
def now() -> list[float]:
    return [float(NOW)]


@pytest.fixture
def state(now: list[float]) -> VerificationState:
    return VerificationState(wall=lambda: now[0])


def test_a_report_that_is_old_is_not_taken_for_the_present(state: VerificationState, now: list[float]) -> None:
    assert (state.summary, state.problem) == (None, "the verifier has not reported yet")
    state.apply(SUMMARY)
    assert (state.summary, state.problem) == (SUMMARY, "")
    now[0] += STALE_S + 1
    assert (state.summary, state.problem) == (None, "the verifier does not report")


def test_a_problem_stands_until_the_next_summary(state: VerificationState) -> None:
    state.apply(VerifierProblem("ledger.db is damaged"))
    assert state.problem == "ledger.db is damaged"
    state.apply(SUMMARY)
    assert state.problem == ""


def test_a_verifier_that_begins_again_has_verified_nothing_and_breaks_stay(state: VerificationState) -> None:
    state.apply(SUMMARY)
    state.apply(BrokenChainFound("pass:1", 3, "signature_invalid", "receipt 3: it does not verify"))
    state.restarted("exit status -9")
    assert (state.summary, state.problem) == (None, "exit status -9")
    assert list(state.faults()) == ["pass:1"]


def test_progress_is_that_of_the_session_or_follows_from_the_summary(
    service: Service, state: VerificationState
) -> None:
    name = service.start().session.id
    for _ in range(4):
        service.call(name)
    session = service.session(name)
    assert state.progress(session) == SessionProgress(0, 4)
    state.apply(SUMMARY)
    assert state.progress(session) == SessionProgress(4, 4, None, NOW)
    state.apply(SessionsVerified([SessionVerified(name, 3, NOW - 7)]))
    assert state.progress(session) == SessionProgress(3, 4, None, NOW - 7)
    state.report(name, BrokenChain(2, "signature_invalid", "it does not verify"))
    progress = state.progress(session)
    assert (progress.verified, progress.complete) == (2, False)
    assert progress.fault is not None
    assert (progress.fault.index, progress.fault.fault) == (2, "signature_invalid")


def test_nothing_counts_as_verified_while_the_verifier_does_not_report(
    service: Service, state: VerificationState, now: list[float]
) -> None:
    name = service.start().session.id
    service.call(name)
    session = service.session(name)
    state.apply(SUMMARY)
    assert state.progress(session).complete
    state.apply(SessionsVerified([SessionVerified(name, 1, NOW)]))
    assert state.progress(session).complete
    now[0] += STALE_S + 1
    assert state.progress(session) == SessionProgress(0, 1)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "stale"])
def test_what_another_service_had_verified_is_forgotten_when_it_stops_publishing(
    service: Service, state: VerificationState, now: list[float], gone: bool
) -> None:
    name = service.start().session.id
    service.call(name)
    state.apply(SUMMARY)
    state.apply(SessionsVerified([SessionVerified(name, 1, NOW)]))
    follower, snapshot = VerificationState(wall=lambda: now[0]), state.snapshot()
    follower.follow(snapshot)
    assert follower.progress(service.session(name)).complete
    now[0] += STALE_S + 1
    follower.follow(None if gone else snapshot)
    # Another service verifies from the beginning, and has not come to this session yet.
    follower.apply(structs.replace(SUMMARY, through=0, verified_at=None, at=int(now[0])))
    assert follower.progress(service.session(name)) == SessionProgress(0, 1)


def test_the_first_break_of_a_chain_is_kept(state: VerificationState) -> None:
    told: list[BrokenChainFound] = []
    state.on_broken = told.append
    for index in (5, 7, 2, 2):
        state.report("pass:1", BrokenChain(index, "signature_invalid", "it does not verify"))
    assert state.faults()["pass:1"].index == 2
    assert [found.index for found in told] == [5, 2]


def test_sessions_beyond_those_remembered_push_no_break_out(state: VerificationState) -> None:
    state.report("pass:first", BrokenChain(0, "signature_invalid", "it does not verify"))
    for number in range(50):
        state.apply(SessionsVerified([SessionVerified(f"pass:{number}:{one}", 1, NOW) for one in range(100)]))
    assert len(state._sessions) == 4096
    assert list(state.faults()) == ["pass:first"]


def test_other_services_follow_what_is_published_while_it_is_fresh(state: VerificationState, now: list[float]) -> None:
    state.apply(SUMMARY)
    state.apply(SessionsVerified([SessionVerified("pass:2", 1, NOW)]))
    state.apply(BrokenChainFound("pass:1", 3, "signature_invalid", "receipt 3: it does not verify"))
    snapshot = state.snapshot()
    follower = VerificationState(wall=lambda: now[0])
    follower.follow(snapshot)
    assert (follower.summary, list(follower.faults())) == (SUMMARY, ["pass:1"])
    now[0] += STALE_S + 1
    follower.follow(snapshot)
    assert (follower.summary, follower.problem) == (None, "no verifier reports")
    assert list(follower.faults()) == ["pass:1"]


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"summary": 7}', b"\xff" * 10])
def test_a_published_file_that_cannot_be_read_says_nothing(tmp_path: Path, written: bytes) -> None:
    with open_home(tmp_path / "home") as home:
        assert load_snapshot(home) is None
        with home.folder("run") as folder:
            folder.replace("verification.json", written)
        assert load_snapshot(home) is None


def test_a_published_file_is_read_as_it_was_written(tmp_path: Path, state: VerificationState) -> None:
    state.apply(SUMMARY)
    snapshot = state.snapshot()
    with open_home(tmp_path / "home") as home:
        with home.folder("run") as folder:
            folder.replace("verification.json", json.dumps(msgspec.to_builtins(snapshot)).encode())
        assert load_snapshot(home) == snapshot


def test_a_quarantined_session_takes_no_further_call_and_others_do(service: Service) -> None:
    broken, other = service.start().session.id, service.start().session.id
    service.call(broken)
    assert service.run(Quarantine(broken)) is True
    assert service.run(Quarantine(broken)) is False
    answer = service.call(broken)
    assert (answer.permits, answer.receipt.claims.public_denial_reason) == (False, "chain_invalid")
    assert service.call(other).permits
    assert service.session(broken).broken == 1


def test_a_delegate_of_a_quarantined_session_goes_on(service: Service) -> None:
    parent = service.start(max_tool_calls=50).session.id
    child = service.start_delegate(parent, max_tool_calls=5)
    service.run(Quarantine(parent))
    assert service.call(child).permits
    assert not service.call(parent).permits


def test_a_session_that_is_not_there_is_no_error(service: Service) -> None:
    assert service.run(Quarantine("pass:none")) is False
