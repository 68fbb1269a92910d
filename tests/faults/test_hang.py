"""A disk that hangs: callers are told in time, readers do not notice, and all goes on when it ends."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.errors import LedgerUnavailable
from remit.governor.evaluate import Evaluate, Evaluation
from tests.faults.service import Audit, Service, call_of, integrity, open_service
from tests.faults.vfs import Disk, broken_disk

DEADLINE_S = 1.0
KEYS = [f"hung-{number}0" for number in range(16)]


@pytest.fixture
def disk() -> Iterator[Disk]:
    with broken_disk() as disk:
        yield disk


def started(home: Path, disk: Disk) -> Audit:
    """Start a session, however long that takes on a busy machine."""
    with open_service(home, vfs=disk.name) as service:
        return Audit(service.start())


async def ask_all(service: Service, session: str) -> list[Evaluation | BaseException]:
    asked = (service.governor.arun(Evaluate(session, call_of(key), idempotency_key=key)) for key in KEYS)
    return await asyncio.gather(*asked, return_exceptions=True)


def check_late(answers: list[Evaluation | BaseException]) -> None:
    assert [type(answer) for answer in answers] == [LedgerUnavailable] * len(KEYS)
    assert {answer.code for answer in answers if isinstance(answer, LedgerUnavailable)} == {"ledger_unavailable"}


def test_a_disk_that_hangs_keeps_no_caller_and_no_reader_waiting_and_loses_nothing(tmp_path: Path, disk: Disk) -> None:
    audit, other = started(tmp_path / "home", disk), started(tmp_path / "home", disk)
    with open_service(tmp_path / "home", vfs=disk.name, deadline_s=DEADLINE_S) as service:
        before = service.insist(other.session, "before-0").receipt
        with disk.hanging() as hung:
            check_late(asyncio.run(ask_all(service, audit.session)))
            assert hung.is_set()
            with pytest.raises(LedgerUnavailable) as caught:
                service.ask(other.session, "hung-0")
            assert caught.value.code == "ledger_unavailable"
            assert other.grow(service) == 1
            assert other.holds(before.claims.receipt_id, before.hash)
        hashes = [service.insist(audit.session, key).receipt.hash for key in KEYS]
        assert service.insist(other.session, "before-0").receipt.hash == before.hash
        assert audit.grow(service) == len(set(hashes)) == len(KEYS)
        assert set(audit.hashes.values()) == set(hashes)
        assert integrity(service.opened.path) == []


def test_work_that_nobody_waits_for_any_more_is_not_begun(tmp_path: Path, disk: Disk) -> None:
    audit = started(tmp_path / "home", disk)
    with open_service(tmp_path / "home", vfs=disk.name, deadline_s=DEADLINE_S) as service:
        service.insist(audit.session, "before-0")
        with disk.hanging() as hung:
            with pytest.raises(LedgerUnavailable):
                service.ask(audit.session, "begun-0")
            assert hung.is_set()
            check_late(asyncio.run(ask_all(service, audit.session)))
        service.insist(audit.session, "after-0")
        # The first, the one that the disk hung with, and the last.
        assert audit.grow(service) == 3
