"""`remit token`: made once, printed alone, and renewed on demand."""

import json
from pathlib import Path

import pytest

from remit.cli.errors import DONE, STATE
from tests.cli.running import run


@pytest.mark.parametrize("name", ["admin", "proxy"])
def test_a_token_is_made_on_first_use_and_stays(tmp_path: Path, name: str) -> None:
    first = run(tmp_path / "home", "token", name)
    again = run(tmp_path / "home", "token", name, "--json")
    assert (first.exit_code, first.stderr) == (DONE, f"remit: making a new home: {tmp_path / 'home'}\n")
    assert json.loads(again.stdout) == {"ok": True, "name": name, "token": first.stdout.strip()}
    assert len(first.stdout.strip()) == 43


def test_the_two_tokens_differ_and_one_is_renewed_alone(tmp_path: Path) -> None:
    place = tmp_path / "home"
    admin, proxy = (run(place, "token", name).stdout for name in ("admin", "proxy"))
    renewed = run(place, "token", "admin", "--rotate")
    assert len({admin, proxy, renewed.stdout}) == 3
    assert "SIGHUP" in renewed.stderr
    assert [run(place, "token", name).stdout for name in ("admin", "proxy")] == [renewed.stdout, proxy]


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "home"
    run(place, "token", "admin")
    (place / "config.json").write_text("{", encoding="utf-8")
    for arguments in (["token", "admin"], ["token", "proxy", "--rotate"]):
        refused = run(place, *arguments)
        assert (refused.exit_code, refused.stdout) == (STATE, "")
        assert "config.json" in refused.stderr
    assert (place / "config.json").read_text(encoding="utf-8") == "{"
