"""Protections in the home: kept, seen at once, and an error where one is damaged."""

import stat
from pathlib import Path

import pytest

from remit.assistants.records import Protections
from remit.errors import FieldInvalid, StateCorrupt
from remit.ledger.home import open_home
from tests.assistants.protection.places import ID, protection

OTHER = "prot-ffffffffffff"


def kept(tmp_path: Path) -> Protections:
    return Protections(open_home(tmp_path / "home"))


def test_a_protection_is_kept_for_its_owner_alone_and_forgotten(tmp_path: Path) -> None:
    protections = kept(tmp_path)
    protections.put(protection(), {"token": "secret"})
    folder = tmp_path / "home" / "protections"
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {
        f"{ID}.json": 0o600,
        f"{ID}.wire.json": 0o600,
    }
    assert protections.get(ID) == protection()
    protections.remove(ID)
    assert (list(folder.iterdir()), protections.get(ID)) == ([], None)


def sees(protections: Protections, guards: tuple[str, ...]) -> bool:
    """Tell whether these are guarded, within a moment."""
    return any(protections.guarded() == guards for _ in range(1_000_000))


def test_what_another_process_keeps_is_seen_at_once_and_what_stays_is_the_same_thing(tmp_path: Path) -> None:
    one, other = kept(tmp_path), kept(tmp_path)
    assert (one.get(ID), one.all(), one.guarded()) == (None, [], ())
    other.put(protection(guards=("/a",)))
    first = one.get(ID)
    assert one.get(ID) is first
    other.put(protection(guards=("/a", "/d")))
    other.put(protection(OTHER, guards=("/a", "/c")))
    assert [found.id for found in one.all()] == [ID, OTHER]
    assert sees(one, ("/a", "/d", "/c"))
    other.put(protection(OTHER))
    assert sees(one, ("/a", "/d"))


def test_a_name_that_is_no_id_finds_nothing(tmp_path: Path) -> None:
    protections = kept(tmp_path)
    protections.put(protection(), {"token": "secret"})
    assert [protections.get(name) for name in ("", "..", f"{ID}.wire", f"../{ID}", ID.upper())] == [None] * 5


@pytest.mark.parametrize("data", [b"", b"{}", b'{"id": "prot-ffffffffffff"}'])
def test_a_damaged_record_is_an_error_and_never_no_protection(data: bytes, tmp_path: Path) -> None:
    protections = kept(tmp_path)
    protections.put(protection())
    (tmp_path / "home" / "protections" / f"{ID}.json").write_bytes(data)
    for act in (lambda: protections.get(ID), protections.guarded):
        with pytest.raises(StateCorrupt) as damaged:
            act()
        assert damaged.value.code == "state_corrupt"


def test_a_record_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    protections = kept(tmp_path)
    protections.put(protection())
    folder = tmp_path / "home" / "protections"
    (folder / f"{ID}.json").rename(folder / f"{OTHER}.json")
    with pytest.raises(StateCorrupt) as damaged:
        protections.get(OTHER)
    assert damaged.value.code == "state_corrupt"


def test_nothing_is_kept_that_could_not_be_read_again(tmp_path: Path) -> None:
    protections = kept(tmp_path)
    with pytest.raises(FieldInvalid) as refused:
        protections.put(protection(mission={"agent_id": "x"}))
    assert (refused.value.code, protections.get(ID)) == ("field_invalid", None)


def test_who_can_do_without_a_damaged_record_is_told_of_it_and_gets_the_others(tmp_path: Path) -> None:
    protections, told = kept(tmp_path), list[StateCorrupt]()
    protections.put(protection())
    protections.put(protection(OTHER))
    (tmp_path / "home" / "protections" / f"{ID}.json").write_bytes(b"{")
    assert [one.id for one in protections.all(damaged=told.append)] == [OTHER]
    assert [error.code for error in told] == ["state_corrupt"]
    assert (protections.holds(ID), protections.holds("prot-000000000000")) == (True, False)
    with pytest.raises(StateCorrupt):
        protections.all()
