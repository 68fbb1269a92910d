"""Private keys in files: the name is the key's thumbprint, and nothing else is ever taken for it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.claims.keys import SigningKey
from remit.errors import HomeUnsafe, LedgerUnavailable, StateCorrupt, StateMissing
from remit.ledger.home import open_home
from remit.ledger.keyfiles import KeyFiles

UNKNOWN = "A" * 43


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def files(place: Path) -> Iterator[KeyFiles]:
    with open_home(place) as folder:
        yield KeyFiles(folder)


def test_a_key_is_loaded_as_it_was_made(files: KeyFiles) -> None:
    key = files.create()
    loaded = files.load(key.kid)
    assert loaded.kid == key.kid == key.public.thumbprint()
    key.public.check(b"message", loaded.sign(b"message"))


def test_every_key_is_another_one(files: KeyFiles) -> None:
    kids = {files.create().kid for _ in range(20)}
    assert len(kids) == 20
    assert files.kids() == sorted(kids)


def test_a_key_is_in_one_file_that_is_its_owners_alone(files: KeyFiles, place: Path) -> None:
    key = files.create()
    assert [path.name for path in place.iterdir()] == [f"{key.kid}.pem"]
    assert stat.S_IMODE((place / f"{key.kid}.pem").stat().st_mode) == 0o600
    assert (place / f"{key.kid}.pem").read_bytes() == key.unsafe_to_pem()


@pytest.mark.parametrize(
    "kid", [UNKNOWN, "", ".", "..", "../other", "x" * 42, "x" * 44, "x" * 42 + "/", "x" * 43 + "\n"]
)
def test_a_key_that_has_no_file_is_missing_and_not_made(files: KeyFiles, kid: str) -> None:
    with pytest.raises(StateMissing):
        files.load(kid)
    files.remove(kid)
    assert files.kids() == []


def test_a_removed_key_is_missing(files: KeyFiles) -> None:
    key, other = files.create(), files.create()
    files.remove(key.kid)
    assert files.kids() == [other.kid]
    with pytest.raises(StateMissing):
        files.load(key.kid)


def test_a_file_with_the_key_of_another_is_corrupt(files: KeyFiles, place: Path) -> None:
    key, other = files.create(), files.create()
    (place / f"{other.kid}.pem").rename(place / f"{key.kid}.pem")
    with pytest.raises(StateCorrupt):
        files.load(key.kid)


PEM = SigningKey.derive(bytes(40)).unsafe_to_pem()
PUBLIC = SigningKey.derive(bytes(40)).public.to_pem()


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"key", PEM[:-1][:-30], PEM[:100], PEM * 2, PUBLIC, b"\xff" * 300, PEM * 40]
)
def test_a_damaged_file_is_corrupt(files: KeyFiles, place: Path, content: bytes) -> None:
    key = files.create()
    (place / f"{key.kid}.pem").write_bytes(content)
    with pytest.raises(StateCorrupt) as caught:
        files.load(key.kid)
    assert "PRIVATE" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_every_cut_of_a_file_is_corrupt(files: KeyFiles, place: Path) -> None:
    key = files.create()
    pem = key.unsafe_to_pem()
    for length in range(len(pem) - 1):  # the last newline is no part of it
        (place / f"{key.kid}.pem").write_bytes(pem[:length])
        with pytest.raises(StateCorrupt):
            files.load(key.kid)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666])
def test_a_key_that_others_can_read_is_not_used(files: KeyFiles, place: Path, mode: int) -> None:
    key = files.create()
    (place / f"{key.kid}.pem").chmod(mode)
    with pytest.raises(HomeUnsafe):
        files.load(key.kid)


def test_a_link_in_the_place_of_a_key_is_not_followed(files: KeyFiles, place: Path) -> None:
    key = files.create()
    (place / f"{key.kid}.pem").rename(place.parent / "elsewhere")
    (place / f"{key.kid}.pem").symlink_to(place.parent / "elsewhere")
    with pytest.raises(HomeUnsafe):
        files.load(key.kid)


def test_files_that_are_no_keys_are_not_listed(files: KeyFiles, place: Path) -> None:
    for name in ("README", "key.pem", UNKNOWN, f"{UNKNOWN}.pem.old", f"{UNKNOWN}x.pem", ".pem"):
        (place / name).touch(0o600)
    key = files.create()
    assert files.kids() == [key.kid]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_disk_that_fails_leaves_no_key(
    files: KeyFiles, place: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(LedgerUnavailable):
            files.create()
    assert list(place.iterdir()) == []
