"""`remit profile` and `remit issue --from-profile`: files that are written, read and compiled."""

import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.cli.errors import DONE, USAGE
from remit.cli.profile import choose_profile
from remit.errors import FieldInvalid
from remit.profiles.templates import TEMPLATES, template
from tests.cli.running import run

MINE = "Mode: allow\nMission: Look around\n\n## Allowed\n- Read files\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def checked(place: Path, text: str) -> dict[str, Any]:
    Path("REMIT.md").write_text(text, encoding="utf-8")
    result = run(place, "profile", "check", "--json")
    assert result.exit_code == DONE, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def refused(place: Path, *arguments: str) -> str:
    result = run(place, *arguments, "--json")
    assert result.exit_code == USAGE, result.output
    document = json.loads(result.stdout)
    assert (document["ok"], document["error_code"]) == (False, "field_invalid")
    error: str = document["error"]
    return error


def test_a_profile_is_written_and_says_what_is_next(place: Path) -> None:
    told = run(place, "profile", "init")
    assert (told.exit_code, told.stderr) == (DONE, "")
    assert Path("REMIT.md").read_text(encoding="utf-8") == template("safe-coding")
    assert told.stdout.splitlines() == [
        "written      REMIT.md (safe-coding)",
        "next         edit it, then: remit profile check",
        "then         remit protect claude-code",
    ]
    assert not place.exists()


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_written_and_checks(place: Path, name: str) -> None:
    assert run(place, "profile", "init", "--template", name, "--path", "my.md").exit_code == DONE
    told = run(place, "profile", "check", "my.md")
    assert (told.exit_code, told.stderr) == (DONE, "")
    assert "It may read and search files in its folders." in told.stdout.splitlines()


def test_a_file_that_is_there_is_kept_unless_forced(place: Path) -> None:
    file = Path("REMIT.md")
    file.write_text("mine", encoding="utf-8")
    file.chmod(0o640)
    assert "REMIT.md" in refused(place, "profile", "init")
    assert file.read_text(encoding="utf-8") == "mine"
    assert run(place, "profile", "init", "--force").exit_code == DONE
    assert (file.read_text(encoding="utf-8"), file.stat().st_mode & 0o777) == (template("safe-coding"), 0o640)
    assert list(Path().iterdir()) == [file]


def test_a_link_is_written_through_only_when_forced(place: Path) -> None:
    file = Path("REMIT.md")
    file.symlink_to("../elsewhere.md")
    refused(place, "profile", "init")
    assert not Path("../elsewhere.md").exists()
    assert run(place, "profile", "init", "--force").exit_code == DONE
    assert file.is_symlink()
    assert Path("../elsewhere.md").read_text(encoding="utf-8") == template("safe-coding")


def test_force_replaces_files_and_nothing_else(place: Path) -> None:
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    Path("folder").mkdir()
    for path in ("pipe", "link", "folder"):
        refused(place, "profile", "init", "--force", "--path", path)
    assert stat.S_ISFIFO(Path("pipe").lstat().st_mode)
    assert {path.name for path in Path().iterdir()} == {"folder", "link", "pipe"}


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond a few bytes, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_what_was_there(place: Path) -> None:
    with full_disk():
        refused(place, "profile", "init")
    file = Path("REMIT.md")
    assert list(Path().iterdir()) == []
    file.write_text("mine", encoding="utf-8")
    with full_disk():
        refused(place, "profile", "init", "--force")
    assert list(Path().iterdir()) == [file]
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("path", ["nowhere/REMIT.md", ".", "\0", "~nobody-of-this-name/x"])
def test_a_place_that_cannot_be_written_is_refused(place: Path, path: str) -> None:
    refused(place, "profile", "init", "--path", path)
    refused(place, "profile", "init", "--force", "--path", path)


def test_check_shows_the_mission_to_programs(place: Path) -> None:
    document = checked(place, MINE)
    assert (document["ok"], document["mode"], document["remarks"]) == (True, "allow", [])
    mission = document["mission"]
    folder = str(place.parent / "project")
    assert (mission["agent_id"], mission["mission"]) == ("agent:assistant", "Look around")
    assert (mission["resource_scope"], mission["cwd"]) == ([folder], folder)


def test_check_shows_contradictions_beside_the_result(place: Path) -> None:
    Path("REMIT.md").write_text(MINE + "## Blocked\n- Read files\n", encoding="utf-8")
    told = run(place, "profile", "check")
    assert told.exit_code == DONE
    assert told.stderr.startswith("remit: line 5: ")
    assert told.stdout.splitlines()[-1].startswith("Mode allow: ")


def test_a_profile_is_for_the_folder_that_it_names_beside_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = place.parent
    (top / "project" / "src").mkdir()
    (top / "link").symlink_to("project/src")
    (top / "shared.md").write_text("Mission: x\nFolder: ./link\n## Allowed\n- Use ~/a\n- Use ../b\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(top))
    result = run(place, "profile", "check", "../shared.md", "--json")
    scope = json.loads(result.stdout)["mission"]["resource_scope"]
    assert scope == [f"{top}/project/src", f"{top}/a", f"{top}/project/b"]


def test_a_link_that_leads_out_of_the_folder_is_no_folder(place: Path) -> None:
    Path("src").symlink_to("..")
    Path("REMIT.md").write_text("Mission: x\nFolder: ./src\n", encoding="utf-8")
    assert refused(place, "profile", "check").startswith("Folder: ")


@pytest.mark.usefixtures("place")
def test_a_template_stands_in_for_no_file_that_is_there() -> None:
    assert choose_profile(None, ".").path is None
    for target in ("nowhere.md", "REMIT.md"):
        Path("REMIT.md").symlink_to(target)
        with pytest.raises(FieldInvalid) as caught:
            choose_profile(None, ".")
        assert (caught.value.code, caught.value.place) == ("field_invalid", "REMIT.md")
        Path("REMIT.md").unlink()


@pytest.mark.usefixtures("place")
def test_a_profile_may_be_named_from_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "P.md").write_text(MINE, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert choose_profile("~/P.md", ".").path == str(tmp_path / "P.md")


def test_a_link_to_a_profile_is_taken_where_it_lies(place: Path) -> None:
    (place.parent / "shared.md").write_text(MINE, encoding="utf-8")
    Path("REMIT.md").symlink_to("../shared.md")
    result = run(place, "profile", "check", "--json")
    assert json.loads(result.stdout)["mission"]["cwd"] == str(place.parent / "project")


def test_errors_name_the_line_of_the_file(place: Path) -> None:
    Path("REMIT.md").write_bytes(b"Mission: x\r\n## Allowed\r\n- Read filez\r\n")
    assert refused(place, "profile", "check").startswith("REMIT.md line 3: ")
    Path("REMIT.md").write_bytes(b"Mission: x\n\xff")
    refused(place, "profile", "check")


@pytest.mark.parametrize("path", ["nowhere.md", ".", "/dev/zero", "\0"])
def test_what_is_no_file_is_refused(place: Path, path: str) -> None:
    refused(place, "profile", "check", path)


def test_a_pipe_is_refused_without_waiting_for_it(place: Path) -> None:
    os.mkfifo("REMIT.md")
    refused(place, "profile", "check")


def issued(place: Path, *arguments: str) -> dict[str, Any]:
    result = run(place, "issue", "--from-profile", "REMIT.md", *arguments, "--json")
    assert result.exit_code == DONE, result.output
    claims: dict[str, Any] = json.loads(result.stdout)["claims"]
    return claims


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_passport_is_issued_from_a_profile(place: Path, name: str) -> None:
    mission = checked(place, template(name))["mission"]
    claims = issued(place)
    assert claims["sub"] == mission.pop("agent_id")
    assert {member: claims[member] for member in mission} == mission


def test_options_override_the_profile(place: Path) -> None:
    checked(place, MINE)
    said = (
        "--agent-id agent:me --mission Read --allowed-tools Grep --forbidden-tools Bash --max-tool-calls 7 "
        "--max-duration-s 60 --allowed-side-effects none internal_write --resource-scope /srv/a"
    )
    claims = issued(place, *said.split())
    assert (claims["sub"], claims["mission"], claims["allowed_tools"]) == ("agent:me", "Read", ["Grep"])
    assert (claims["forbidden_tools"], claims["resource_scope"]) == (["Bash"], ["/srv/a"])
    assert (claims["max_tool_calls"], claims["max_duration_s"]) == (7, 60)
    assert claims["allowed_side_effect_classes"] == ["none", "internal_write"]


def test_one_option_leaves_the_rest_as_the_profile_has_it(place: Path) -> None:
    checked(place, MINE)
    claims = issued(place, "--cwd", "/srv/a")
    assert (claims["cwd"], claims["resource_scope"]) == ("/srv/a", [str(place.parent / "project")])
    assert (claims["mission"], claims["max_tool_calls"]) == ("Look around", 500)


def test_a_profile_that_is_none_makes_no_passport(place: Path) -> None:
    refused(place, "issue", "--from-profile", "nowhere.md")
    assert not place.exists()


@pytest.mark.parametrize("left_out", ["--agent-id", "--mission"])
def test_without_a_profile_who_and_what_for_must_be_said(place: Path, left_out: str) -> None:
    said = [word for option in ("--agent-id", "--mission") if option != left_out for word in (option, "x")]
    told = run(place, "issue", *said, "--json")
    assert (told.exit_code, json.loads(told.stdout)["error_code"]) == (USAGE, "usage")
    assert not place.exists()
