"""`remit setup`: made once, the same ever after, and a unit that starts it with the machine."""

import json
import os
import plistlib
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.cli.errors import DONE, USAGE
from remit.cli.units import launchd_agent, systemd_unit, unit_for
from remit.errors import FieldInvalid
from tests.cli.running import lines, run
from tests.hub.service import running


def told(place: Path, *options: str) -> dict[str, Any]:
    result = run(place, "setup", "--json", *options)
    assert result.exit_code == DONE, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_home_is_made_and_the_token_is_shown_once(tmp_path: Path) -> None:
    place = tmp_path / "home"
    first = told(place)
    kept = json.loads((place / "config.json").read_bytes())
    assert (kept["hub_token"], kept["hub_url"]) == (first["token"], first["hub_url"])
    assert {"ledger.db", "keys"} <= {file.name for file in place.iterdir()}
    assert stat.S_IMODE((place / "config.json").stat().st_mode) == 0o600
    again = told(place)
    assert again == {name: value for name, value in first.items() if name != "token"}
    assert run(place, "token", "hub").stdout.strip() == first["token"]


def test_people_read_where_the_dashboard_is(tmp_path: Path) -> None:
    shown = lines(run(tmp_path / "home", "setup").stdout)
    assert [line.split()[0] for line in shown] == ["home", "hub", "dashboard", "token", "next"]
    assert shown[2].split()[1] == "http://127.0.0.1:8765/dashboard"
    assert "remit open" in shown[2]
    assert shown[3].endswith("<kid>")
    assert "remit token hub" in run(tmp_path / "home", "setup").stdout


def test_host_and_port_are_kept_until_others_are_named(tmp_path: Path) -> None:
    assert told(tmp_path / "home", "--port", "1234")["hub_url"] == "http://127.0.0.1:1234"
    assert told(tmp_path / "home", "--host", "::1")["hub_url"] == "http://[::1]:1234"
    assert told(tmp_path / "home")["hub_url"] == "http://[::1]:1234"


def test_a_rotated_token_is_shown_and_the_hub_that_has_taken_it_is_named(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with running(place) as hub:
        renewed = run(place, "setup", "--rotate-token", "--port", "1234")
    assert f"the Hub at {hub.url} accepts the new token, and refuses the old one" in renewed.stderr
    assert hub.url in renewed.stderr
    assert hub.token not in renewed.output
    assert run(place, "token", "hub").stdout.strip() in renewed.stdout


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--host", "192.0.2.1"], ["--port", "0"]], ids=" ".join)
def test_an_address_that_others_could_reach_is_refused(tmp_path: Path, options: list[str]) -> None:
    refused = run(tmp_path / "home", "setup", "--json", *options)
    assert refused.exit_code == USAGE
    assert json.loads(refused.stdout)["error_code"] in {"field_invalid", "usage"}


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "systemd" / "user" / "remit.service"


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_a_unit_is_written_without_a_token_and_told_how_to_enable(tmp_path: Path, units: Path) -> None:
    first = told(tmp_path / "home", "--service")
    assert first["service"] == {
        "file": str(units),
        "enable": "systemctl --user daemon-reload && systemctl --user enable --now remit",
    }
    text = units.read_text(encoding="utf-8")
    home = tmp_path / "home"
    assert f'ExecStart="{sys.executable}" "-P" "-m" "remit" "up" "--home" "{home}"' in text.splitlines()
    assert first["token"] not in text
    assert told(tmp_path / "home", "--service")["service"] == first["service"]
    assert [file.name for file in units.parent.iterdir()] == ["remit.service"]


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_a_unit_of_another_is_not_overwritten_without_a_word(tmp_path: Path, units: Path) -> None:
    units.parent.mkdir(parents=True)
    units.write_text("[Service]", encoding="utf-8")
    refused = run(tmp_path / "home", "setup", "--service", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert units.read_text(encoding="utf-8") == "[Service]"
    assert not (tmp_path / "home").exists()
    told(tmp_path / "home", "--service", "--force")
    assert "ExecStart" in units.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_a_unit_is_its_owners_alone_whatever_the_umask(tmp_path: Path, units: Path) -> None:
    before = os.umask(0)
    try:
        told(tmp_path / "home", "--service")
    finally:
        os.umask(before)
    made = [units, *units.parents[:3]]
    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o600, 0o700, 0o700, 0o700]


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_a_unit_that_cannot_be_written_costs_no_token_that_nobody_has_seen(tmp_path: Path, units: Path) -> None:
    units.parents[2].mkdir()
    units.parents[1].symlink_to(tmp_path / "nowhere")
    refused = run(tmp_path / "home", "setup", "--service", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert not (tmp_path / "home").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_a_host_that_is_refused_leaves_no_unit(tmp_path: Path, units: Path) -> None:
    assert run(tmp_path / "home", "setup", "--service", "--host", "0.0.0.0").exit_code == USAGE
    assert not units.exists()


ODD = [
    ("/home/a b/.remit", '"/home/a b/.remit"'),
    ("/home/100%/%h", '"/home/100%%/%%h"'),
    ("/home/$USER/${HOME}", '"/home/$$USER/$${HOME}"'),
    ('/home/"quoted"', '"/home/\\"quoted\\""'),
    ("/home/back\\slash", '"/home/back\\\\slash"'),
    ("/home/'one';two", "\"/home/'one';two\""),
]


@pytest.mark.parametrize(("word", "written"), ODD)
def test_systemd_reads_every_path_back_as_it_was(units: Path, word: str, written: str) -> None:
    text = systemd_unit(["/usr/bin/python3", word]).content.decode()
    assert f'ExecStart="/usr/bin/python3" {written}' in text.splitlines()


@pytest.mark.parametrize(("word", "_written"), ODD)
def test_launchd_reads_every_path_back_as_it_was(units: Path, word: str, _written: str) -> None:
    unit = launchd_agent(["/usr/bin/python3", word])
    assert plistlib.loads(unit.content)["ProgramArguments"] == ["/usr/bin/python3", word]
    assert unit.path == units.parents[3] / "Library" / "LaunchAgents" / "remit.plist"


@pytest.mark.parametrize("path", ["/home/two\nlines", "/home/\x1b[31m", "/home/\udcff"])
def test_a_path_that_no_unit_can_hold_is_refused(units: Path, path: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        unit_for(Path(path))
    assert (refused.value.code, refused.value.place) == ("field_invalid", "--service")
