"""Ids of protections: one for one place, and that of shared settings for all who share them."""

import json
from pathlib import Path

from remit.assistants.install.plan import InstallTarget
from remit.assistants.install.protect import find_shared_protection_id, protection_id
from tests.assistants.protection.places import ID, added, entry, plan_of, wire


def test_the_same_place_has_the_same_id_and_no_other_has() -> None:
    places = [
        InstallTarget(level, folder, "/user") for level in ("local", "project", "user") for folder in ("/a", "/b")
    ]
    ids = [protection_id("claude-code", place, home) for place in places for home in ("/h", "/i")]
    # For a user it is one, whatever folder it is for.
    assert len(set(ids)) == 2 * 2 * 2 + 2
    assert ids == [protection_id("claude-code", place, home) for place in places for home in ("/h", "/i")]
    assert protection_id("codex", places[0], "/h") not in ids


def test_shared_settings_name_an_id_for_all(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    plan = plan_of(added(file, entry()))
    assert find_shared_protection_id(plan) is None
    file.write_text(json.dumps([wire().shared_command()] * 2))
    assert find_shared_protection_id(plan) == ID
    # As the first release wrote it.
    file.write_text(f'["http://127.0.0.1:8765/v1/hooks/claude-code/{ID}"]' * 2)
    assert find_shared_protection_id(plan) == ID
    file.write_text(json.dumps([wire().shared_command(), wire("prot-ffffffffffff").shared_command()]))
    assert find_shared_protection_id(plan) is None
