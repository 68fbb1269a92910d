"""A disk that is full: no permit without its receipt, and permits again once there is room."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from remit.errors import LedgerUnavailable
from tests.faults.service import Audit, Service, integrity, open_service

ROOM = 256 * 1024
BLOCK = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root on Linux can mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", str(place)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("this machine does not allow to mount a small disk")
    yield place
    # Lazily, because a disk that stays would be in the way of everyone who cleans up here.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(ballast: Path, leave: int) -> None:
    """Take all room but so much."""
    found = os.statvfs(ballast.parent)
    with ballast.open("ab") as file:
        file.write(bytes(max(0, found.f_bavail * found.f_frsize - leave)))


def ask_until_full(service: Service, session: str, round_: int) -> dict[str, tuple[str, str]]:
    """Return all answers up to the first error."""
    told: dict[str, tuple[str, str]] = {}
    with pytest.raises(LedgerUnavailable) as caught:  # noqa: PT012 - which call it is depends on the disk
        for number in count():
            receipt = service.ask(session, f"round{round_}-{number}").receipt
            told[f"round{round_}-{number}"] = receipt.claims.receipt_id, receipt.hash
    assert caught.value.code == "ledger_unavailable"
    return told


def test_a_full_disk_gives_no_permit_and_permits_resume_when_there_is_room(small_disk: Path, full: bool) -> None:
    ballast = small_disk / "ballast"
    with open_service(small_disk / "home") as service:
        audit = Audit(service.start())
        for round_ in range(10 if full else 3):
            fill(ballast, leave=ROOM - round_ * BLOCK)
            told = ask_until_full(service, audit.session, round_)
            fill(ballast, leave=0)
            for number in range(3):
                with pytest.raises(LedgerUnavailable) as caught:
                    service.ask(audit.session, f"full{round_}-{number}")
                assert caught.value.code == "ledger_unavailable"
            audit.grow(service)
            assert told
            assert all(audit.holds(*answer) for answer in told.values())
            ballast.unlink()
            assert service.ask(audit.session, f"free{round_}-0").permits
            assert [service.ask(audit.session, key).receipt.hash for key in told] == [it[1] for it in told.values()]
            assert audit.grow(service) >= 1
            assert integrity(service.opened.path) == []
