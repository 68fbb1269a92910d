"""A crash at every single operation: the files as they lie on the disk right then are a ledger that goes on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from tests.faults.service import Audit, integrity, open_service
from tests.faults.vfs import broken_disk

CALLS = [f"call-{number}" for number in range(6)]
LOG_PAGES = 20
# Of all operations, those at which a crash is tried with every run of the tests.
STRIDE = 4


class Image(NamedTuple):
    """A home as a crash leaves it, and the hashes of what was answered before."""

    home: Path
    answered: list[str]


class Images:
    """Copies a home before every operation of its disk, or before some."""

    def __init__(self, home: Path, folder: Path, stride: int) -> None:
        self._home = home
        self._folder = folder
        self._stride = stride
        self._operations = 0
        self.answered: list[str] = []
        self.taken: list[Image] = []

    def take(self) -> None:
        """Take an image, if it is time for one."""
        self._operations += 1
        if self._operations % self._stride == 0:
            image = self._folder / f"{self._operations}"
            shutil.copytree(self._home, image)
            self.taken.append(Image(image, list(self.answered)))


@pytest.fixture
def stride(full: bool) -> Iterator[int]:
    """Bring the log over into the file after a few commits; return how many operations lie between two crashes."""

    def shorten(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(LOG_PAGES)

    apsw.connection_hooks.append(shorten)
    yield 1 if full else STRIDE
    apsw.connection_hooks.remove(shorten)


def check(image: Image) -> None:
    """Raise unless the image can be opened, has all that was answered and at most one receipt more, and goes on."""
    with open_service(image.home) as service:
        sessions = service.reader.sessions()
        audit = Audit(sessions[0].id if sessions else service.start())
        assert audit.grow(service) - len(image.answered) in (0, 1)
        assert list(audit.hashes.values())[: len(image.answered)] == image.answered
        for key in CALLS:
            service.ask(audit.session, key)
        audit.grow(service)
        assert audit.length == len(CALLS)
    assert integrity(image.home / "ledger.db") == []
    shutil.rmtree(image.home)


def test_a_crash_at_any_operation_leaves_a_ledger_with_all_answers_that_goes_on(tmp_path: Path, stride: int) -> None:
    home = tmp_path / "home"
    images = Images(home, tmp_path, stride)
    with broken_disk() as disk:
        disk.spy = images.take
        with open_service(home, vfs=disk.name) as service:
            session = service.start()
            for key in CALLS:
                images.answered.append(service.ask(session, key).receipt.hash)
        disk.heal()
    assert images.taken
    for image in images.taken:
        check(image)
