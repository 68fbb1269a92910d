"""The running Hub keeps the hooks of assistants in force, and signs when they were not."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from remit.assistants.claude_code.settings import ClaudeCodePlanner
from remit.assistants.install.install import install
from tests.assistants.protection.places import ID, NEW, Scene, protection, wire
from tests.hub.service import Hub, running

PATIENCE_S = 60.0
WITNESS = "prot-ba9876543210"


class Kept(NamedTuple):
    """A Hub, the project that it keeps protected, and another one that shows when it has looked at both."""

    hub: Hub
    scene: Scene
    witness: Scene

    def signed(self) -> list[dict[str, Any]]:
        """Return what the keeper has had signed."""
        exported = self.hub.get("/v1/export").json["receipts"]
        claims = (jwt.decode(token, options={"verify_signature": False}) for token in exported)
        return [one for one in claims if one["tool"] == "remit.keeper"]

    def found(self) -> list[dict[str, Any]]:
        """Return what the keeper has had signed about the project."""
        return [one for one in self.signed() if one["target"] != str(self.witness.settings)]

    def look(self) -> None:
        """Return when the keeper has looked at everything, and has had signed whatever it found.

        What it is given to find in the other project is found in a look that may have begun before, and signed before
        what it finds in this one. The second time, both are over.
        """
        for count in (1, 2):
            self.witness.settings.unlink()
            until(lambda count=count: len(self.signed()) - len(self.found()) == count)  # type: ignore[misc]


def until(true: Callable[[], Any]) -> None:
    """Wait until something is so, which it must be within seconds."""
    ends = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """Give a Hub that has seen two protections in force."""
    scene = Scene.at(tmp_path)
    witness = Scene(tmp_path / "witness", scene.protections)
    witness.folder.mkdir()
    for name, one in ((ID, scene), (WITNESS, witness)):
        plan = ClaudeCodePlanner().plan(one.place(), wire(name))
        with one.protections.locked():
            install(one.protections, protection(name, folder=str(one.folder), version=NEW), plan, wire(name).content())
    with running(tmp_path / "home") as hub:
        yield Kept(hub, scene, witness)


def test_hooks_that_are_gone_come_back_and_a_signed_finding_says_so(kept: Kept) -> None:
    settings = kept.scene.settings
    before = settings.read_bytes()
    settings.unlink()
    until(settings.exists)
    until(kept.found)
    assert settings.read_bytes() == before
    (claims,) = kept.found()
    assert (claims["verdict"], claims["internal_denial_code"]) == ("violation", "enforcement_gap")
    assert claims["target"] == str(settings)
    assert "GAP FOUND" in kept.hub.get("/").body.decode()


def test_what_others_change_is_not_touched_and_not_signed(kept: Kept) -> None:
    settings = kept.scene.settings
    changed = settings.read_bytes().replace(b"{", b'{\n  "model": "x",', 1)
    settings.write_bytes(changed)
    (kept.scene.folder / ".claude" / "other.json").touch()
    kept.look()
    assert (settings.read_bytes(), kept.found()) == (changed, [])


def test_a_protection_that_is_undone_stays_undone_under_a_hub_that_runs(kept: Kept) -> None:
    kept.scene.undo()
    kept.look()
    assert (kept.scene.settings.exists(), kept.found()) == (False, [])


def test_a_hub_goes_on_when_a_record_is_damaged_and_logs_it_once(kept: Kept) -> None:
    record = kept.hub.home / "protections" / f"{ID}.json"
    record.write_bytes(b"{")
    until(lambda: "keeper_failed" in kept.hub.log_path.read_text("utf-8"))
    time.sleep(2.5)
    assert kept.hub.log_path.read_text("utf-8").count("keeper_failed") == 1
    assert kept.hub.get("/health").status == 200
