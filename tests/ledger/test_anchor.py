"""The anchor: the mark only moves forward, and a ledger that is behind it, or another, is noticed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.canonical import sha256_hex
from remit.errors import FieldInvalid, HomeUnsafe, LedgerForeign, LedgerInUse, LedgerRolledBack, StateCorrupt
from remit.ledger.anchor import Anchor, AnchorMark, check_anchor
from remit.ledger.home import Home, open_home

pytestmark = pytest.mark.slow

EMPTY = AnchorMark("ledger-1", 0, None, None)


def hash_of(place: int, branch: str = "main") -> str:
    return sha256_hex(f"{branch} {place}".encode())


def mark_at(receipts: int, branch: str = "main") -> AnchorMark:
    return AnchorMark("ledger-1", receipts, f"receipt-{receipts}", hash_of(receipts, branch)) if receipts else EMPTY


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def anchor(home: Home) -> Anchor:
    return Anchor(home)


def test_there_is_no_mark_before_the_first(anchor: Anchor) -> None:
    assert anchor.read() is None


@pytest.mark.parametrize("mark", [EMPTY, mark_at(1), mark_at(2**53 - 1)])
def test_a_mark_is_read_as_it_was_written(anchor: Anchor, mark: AnchorMark) -> None:
    assert anchor.advance(mark) == mark
    assert anchor.read() == mark


def test_a_mark_is_one_plain_object(anchor: Anchor, home: Home) -> None:
    anchor.advance(mark_at(3))
    assert json.loads(home.read("ledger.anchor", max_bytes=1000) or b"") == {
        "ledger": "ledger-1",
        "receipts": 3,
        "last_receipt_id": "receipt-3",
        "last_receipt_hash": hash_of(3),
        "sessions": 0,
        "epoch": 0,
    }


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (mark_at(3)._replace(sessions=6), mark_at(3)._replace(sessions=4)),
        (mark_at(3)._replace(epoch=6), mark_at(3)._replace(epoch=4)),
    ],
)
def test_a_ledger_that_lacks_what_leaves_no_receipt_is_behind_its_mark(more: AnchorMark, less: AnchorMark) -> None:
    check_anchor(less, more, hash_of)
    with pytest.raises(LedgerRolledBack) as caught:
        check_anchor(more, less, hash_of)
    assert caught.value.code == "ledger_rolled_back"


def test_nobody_waits_for_someone_who_moves_the_mark(anchor: Anchor, home: Home) -> None:
    with home.locked("ledger.anchor.lock"), pytest.raises(LedgerInUse):
        anchor.advance(mark_at(1))
    assert anchor.advance(mark_at(1)) == mark_at(1)


def test_a_mark_moves_forward_only(anchor: Anchor) -> None:
    for receipts, expected in [(0, 0), (5, 5), (3, 5), (0, 5), (5, 5), (6, 6)]:
        assert anchor.advance(mark_at(receipts)) == anchor.read() == mark_at(expected)


def test_a_mark_that_stands_is_not_written_again(anchor: Anchor, tmp_path: Path) -> None:
    anchor.advance(mark_at(5))
    file = tmp_path / "home" / "ledger.anchor"
    before = file.stat()
    anchor.advance(mark_at(5))
    anchor.advance(mark_at(4))
    # Reading it may move the time of the last access.
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_another_receipt_at_the_same_place_is_refused(anchor: Anchor) -> None:
    anchor.advance(mark_at(5))
    with pytest.raises(LedgerRolledBack):
        anchor.advance(mark_at(5, "fork"))
    assert anchor.read() == mark_at(5)


@pytest.mark.parametrize("receipts", [0, 4, 5, 6])
def test_the_mark_of_another_ledger_is_refused(anchor: Anchor, receipts: int) -> None:
    anchor.advance(mark_at(5))
    with pytest.raises(LedgerForeign):
        anchor.advance(mark_at(receipts)._replace(ledger="ledger-2"))
    assert anchor.read() == mark_at(5)


def test_an_accepted_restore_sets_the_mark_anew(anchor: Anchor, home: Home) -> None:
    for before in (b'{"damaged', b"{}"):
        home.replace("ledger.anchor", before)
        anchor.reset(mark_at(2, "fork"))
        assert anchor.read() == mark_at(2, "fork")


def test_a_link_in_the_place_of_the_mark_is_refused(anchor: Anchor, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch(0o600)
    (tmp_path / "home" / "ledger.anchor").symlink_to(tmp_path / "elsewhere")
    for use in (anchor.read, lambda: anchor.advance(EMPTY), lambda: anchor.reset(EMPTY)):
        with pytest.raises(HomeUnsafe):
            use()
    assert (tmp_path / "elsewhere").read_bytes() == b""


RIGHT = mark_at(1)._asdict()
WRONG: list[dict[str, object]] = [
    {"ledger": ""},
    {"ledger": "x" * 129},
    {"ledger": None},
    {"ledger": 1},
    {"receipts": -1},
    {"receipts": 0},
    {"receipts": 1.5},
    {"receipts": "1"},
    {"receipts": True},
    {"receipts": None},
    {"receipts": 2**53},
    {"last_receipt_id": None},
    {"last_receipt_id": ""},
    {"last_receipt_id": "no receipt"},
    {"last_receipt_hash": None},
    {"last_receipt_hash": hash_of(1).upper()},
    {"last_receipt_hash": hash_of(1)[1:]},
    {"last_receipt_hash": hash_of(1) + "\n"},
    {"last_receipt_id": None, "last_receipt_hash": None},
]
GARBAGE = [
    b"",
    b"\0" * 200,
    b"null",
    b"[]",
    b"{}",
    b"\xff\xfe",
    json.dumps(RIGHT).encode()[:-1],
    json.dumps(RIGHT).encode() * 2,
    json.dumps(RIGHT).encode()[:-1] + b', "receipts": 1}',
    b" " * 5000 + json.dumps(RIGHT).encode(),
    json.dumps(RIGHT | {"more": 1}).encode(),
    *(json.dumps({name: value for name, value in RIGHT.items() if name != gone}).encode() for gone in RIGHT),
    *(json.dumps(RIGHT | change).encode() for change in WRONG),
]


@pytest.mark.parametrize("content", GARBAGE)
def test_a_damaged_mark_is_corrupt_and_not_written_over(anchor: Anchor, home: Home, content: bytes) -> None:
    home.create("ledger.anchor", content)
    with pytest.raises(StateCorrupt):
        anchor.read()
    with pytest.raises(StateCorrupt):
        anchor.advance(mark_at(9))
    assert home.read("ledger.anchor", max_bytes=10_000) == content


@pytest.mark.parametrize("change", WRONG)
def test_a_mark_that_could_not_be_read_is_not_written(anchor: Anchor, change: dict[str, object]) -> None:
    wrong = AnchorMark(**(RIGHT | change))
    for use in (anchor.advance, anchor.reset):
        with pytest.raises(FieldInvalid):
            use(wrong)
    assert anchor.read() is None


RACING = """
import sys
from pathlib import Path
from remit.errors import LedgerInUse
from remit.ledger.anchor import Anchor
from remit.ledger.home import open_home
from tests.ledger.test_anchor import mark_at
anchor = Anchor(open_home(Path(sys.argv[1])))
seen = 0
for receipts in range(int(sys.argv[2]), 200, 2):
    stands = None
    while stands is None:
        try:
            stands = anchor.advance(mark_at(receipts)).receipts
        except LedgerInUse:
            pass
    assert max(seen, receipts) <= stands, (seen, receipts, stands)
    seen = stands
"""


def test_two_processes_never_move_the_mark_back(anchor: Anchor, tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", RACING, str(tmp_path / "home"), str(first)] for first in (0, 1)]
    root = Path(__file__).parent.parent.parent
    racing = [subprocess.Popen(command, cwd=root) for command in commands]
    seen = 0
    while any(process.poll() is None for process in racing):
        now = anchor.read() or EMPTY
        assert now.receipts >= seen
        seen = now.receipts
    assert [process.wait() for process in racing] == [0, 0]
    assert anchor.read() == mark_at(199)


@given(marked=st.integers(0, 20), present=st.integers(0, 20), fork=st.integers(1, 21))
def test_a_ledger_passes_if_and_only_if_it_has_grown_from_the_mark(marked: int, present: int, fork: int) -> None:
    """The present ledger has another receipt from `fork` on."""

    def hash_at(place: int) -> str | None:
        return hash_of(place, "main" if place < fork else "fork") if 1 <= place <= present else None

    now = mark_at(present, "main" if present < fork else "fork")
    if present >= marked and marked < fork:
        check_anchor(mark_at(marked), now, hash_at)
    else:
        with pytest.raises(LedgerRolledBack):
            check_anchor(mark_at(marked), now, hash_at)


def test_the_receipt_at_the_mark_must_be_there() -> None:
    with pytest.raises(LedgerRolledBack):
        check_anchor(mark_at(5), mark_at(5), lambda _: None)


@pytest.mark.parametrize("receipts", [0, 5])
def test_another_ledger_is_foreign(receipts: int) -> None:
    with pytest.raises(LedgerForeign):
        check_anchor(mark_at(receipts), mark_at(9)._replace(ledger="ledger-2"), hash_of)


def test_any_ledger_has_grown_from_its_own_empty_mark() -> None:
    check_anchor(EMPTY, mark_at(5), hash_of)


def test_without_a_mark_any_ledger_passes() -> None:
    check_anchor(None, mark_at(5), lambda _: None)
