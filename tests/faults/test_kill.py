"""Processes that are killed at any moment: what was answered is there, and nothing is there twice."""

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.driver import Ack, Worker
from tests.faults.service import Audit, Service, integrity, open_service, session_of

IN_FLIGHT = 8


def kill_at_random(worker: Worker, chance: random.Random, *, early: bool) -> None:
    """Kill a worker: while it opens the home, or in the midst of its load."""
    worker.require("ready")
    if early:
        worker.kill_after(chance.uniform(0, 0.05))
    else:
        worker.require("ack")
        worker.kill_after(chance.uniform(0.005, 0.5))


def check_after_kill(service: Service, audit: Audit, worker: Worker) -> int:
    """Raise if an answer was lost, or something is there that nobody asked for; return how many answers there were."""
    new = audit.grow(service)
    acks = worker.acks
    assert [ack for ack in acks if not audit.holds(ack.receipt_id, ack.receipt_hash)] == []
    assert 0 <= new - len(acks) <= len(worker.unanswered) <= IN_FLIGHT
    for ack in acks[-IN_FLIGHT:]:
        again = service.ask(audit.session, ack.key)
        assert (again.receipt.claims.receipt_id, again.receipt.hash) == (ack.receipt_id, ack.receipt_hash)
        assert again.permits == (ack.decision == "PERMIT")
        assert again.repeated
    check_unanswered(service, audit, worker.unanswered, written=new - len(acks))
    return len(acks)


def check_unanswered(service: Service, audit: Audit, keys: list[str], written: int) -> None:
    """Raise unless calls without an answer are answered once: by the receipt that was written, or by a new one."""
    known = set(audit.hashes)
    answers = [service.ask(audit.session, key) for key in keys]
    repeated = [answer.receipt.claims.receipt_id for answer in answers if answer.repeated]
    assert len(set(repeated)) == len(repeated) == written
    assert known.issuperset(repeated)
    assert audit.grow(service) == len(keys) - written
    assert [service.ask(audit.session, key).receipt.hash for key in keys] == [it.receipt.hash for it in answers]


def test_killing_the_process_at_any_moment_loses_no_answer_and_repeats_none(
    tmp_path: Path, full: bool, record_property: Callable[[str, object], None]
) -> None:
    chance, home, answered = random.Random(1), tmp_path / "home", 0
    with open_service(home) as service:
        token = service.passport()
        audit = Audit(session_of(service.governor, token))
    for cycle in range(200 if full else 8):
        with Worker(home, token, f"cycle{cycle}") as worker:
            kill_at_random(worker, chance, early=cycle % 4 == 3)
        with open_service(home) as service:
            answered += check_after_kill(service, audit, worker)
    record_property("answered", answered)
    assert answered > 0
    assert integrity(home / "ledger.db") == []
    with open_service(home) as service:
        assert Audit(audit.session).grow(service) == audit.length


def test_killing_the_process_while_it_makes_the_home_leaves_one_that_can_be_opened(tmp_path: Path, full: bool) -> None:
    chance = random.Random(2)
    for cycle in range(40 if full else 4):
        home = tmp_path / f"home{cycle}"
        with Worker(home, "-", "new") as worker:
            worker.require("ready")
            worker.kill_after(chance.uniform(0, 0.05))
        with open_service(home) as service:
            sessions = service.reader.sessions()
            audits = [Audit(session.id) for session in sessions]
            assert sum(audit.grow(service) for audit in audits) >= len(worker.acks)
            assert service.ask(service.start(), "after").permits
        assert integrity(home / "ledger.db") == []


def waiting(home: Path, token: str, prefix: str) -> Worker:
    """Return a worker that has opened the home and waits at its gate."""
    worker = Worker(home, token, prefix, "--clients", 16, "--until-denied", "--gate")
    worker.require("open")
    return worker


def pause(worker: Worker, other: Worker) -> None:
    """Stop a worker, wherever it is, until the other one has said something."""
    worker.process.send_signal(signal.SIGSTOP)
    other.wait_for_more()
    worker.process.send_signal(signal.SIGCONT)


def share(home: Path, token: str, kills: int, *, paused: bool) -> tuple[list[Ack], int]:
    """Let one worker run to its end beside others that are killed; return all answers, and how many kills hit."""
    chance, hit = random.Random(3), 0
    others = [waiting(home, token, f"other{number}") for number in range(kills)]
    with waiting(home, token, "steady") as steady:
        steady.begin()
        for other in others:
            other.begin()
            hit += other.wait_for("ack", chance.randrange(1, 20))
            if paused:
                pause(other, steady)
            other.kill_after(chance.uniform(0, 0.02))
        steady.finish()
    return [ack for worker in (steady, *others) for ack in worker.acks], hit


@pytest.mark.parametrize("paused", [False, True], ids=["killed", "paused and killed"])
def test_two_processes_share_one_budget_exactly_though_one_of_them_is_killed(
    tmp_path: Path, full: bool, paused: bool
) -> None:
    home, kills, limit = tmp_path / "home", 20 if full else 3, 4_000 if full else 1_000
    with open_service(home) as service:
        token = service.passport(limit)
        audit = Audit(session_of(service.governor, token))
    acks, hit = share(home, token, kills, paused=paused)
    with open_service(home) as service:
        audit.grow(service)
    assert hit > 0
    assert audit.permits == limit
    assert [ack for ack in acks if not audit.holds(ack.receipt_id, ack.receipt_hash)] == []
    assert len({ack.receipt_id for ack in acks}) == len(acks)
    assert integrity(home / "ledger.db") == []
