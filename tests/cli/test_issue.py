"""`remit issue`: a token that anyone can verify, for what was asked and where that really is."""

import json
import ssl
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest

from remit.claims.canonical import encode_base64url
from remit.cli.errors import DONE, STATE, USAGE
from remit.ledger.home import open_home
from remit.policy.call import Effect
from remit.policy.scope import build_scope, covers
from remit.proxy.authority import server_identity
from tests.cli.running import ASKED, issued, piped, run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def claims_of(place: Path, *arguments: str) -> dict[str, Any]:
    result = run(place, "issue", *ASKED, *arguments, "--json")
    assert result.exit_code == DONE, result.output
    document = json.loads(result.stdout)
    assert set(document) == {"token", "claims"}
    claims: dict[str, Any] = document["claims"]
    return claims


def test_the_token_is_all_there_is_on_stdout_and_verifies_with_the_exported_keys(place: Path) -> None:
    token = piped(place, "issue", *ASKED).stdout.decode()
    assert token.endswith("\n")
    keys = jwt.PyJWKSet.from_json(piped(place, "keys", "export").stdout.decode())
    key = keys[jwt.get_unverified_header(token.strip())["kid"]]
    claims = jwt.decode(token.strip(), key, algorithms=["ES256"], audience="remit")
    assert (claims["sub"], claims["mission"], claims["allowed_tools"]) == ("agent:me", ASKED[3], ["Read", "Grep"])


def test_what_is_not_said_has_its_default(place: Path) -> None:
    claims = claims_of(place)
    assert (claims["max_tool_calls"], claims["max_duration_s"], claims["exp"] - claims["iat"]) == (100, 3600, 3600)
    assert (claims["forbidden_tools"], len(claims["allowed_side_effect_classes"])) == ([], 4)
    assert claims["iss"].startswith("remit:")
    assert len(claims["jti"]) == len("pass:") + 32
    assert "cnf" not in claims


def test_everything_that_is_said_is_signed(place: Path) -> None:
    said = (
        "--forbidden-tools Bash Write --resource-scope /srv/a https://example.com/x --max-tool-calls 7 "
        "--max-duration-s 60 --lifetime-s 30 --allowed-side-effects none internal_write --cwd /srv/a"
    )
    claims = claims_of(place, *said.split())
    assert claims["forbidden_tools"] == ["Bash", "Write"]
    assert claims["resource_scope"] == ["/srv/a", "https://example.com/x"]
    assert (claims["max_tool_calls"], claims["max_duration_s"], claims["exp"] - claims["iat"]) == (7, 60, 30)
    assert (claims["allowed_side_effect_classes"], claims["cwd"]) == (["none", "internal_write"], "/srv/a")


def test_without_a_scope_it_is_the_current_directory_and_says_so(place: Path) -> None:
    told = run(place, "issue", *ASKED, "--json")
    here = str(place.parent / "project")
    claims = json.loads(told.stdout)["claims"]
    assert (claims["resource_scope"], claims["cwd"]) == ([here], here)
    assert told.stderr.splitlines() == [
        f"remit: no --resource-scope: the passport is for the current directory, {here}",
        f"remit: creating a new home: {place}",
    ]
    assert run(place, "issue", *ASKED, "--resource-scope", ".").stderr == ""


def test_paths_are_made_absolute_and_real(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = place.parent
    (top / "link").symlink_to(top / "project")
    monkeypatch.setenv("HOME", str(top))
    given = [".", "src", "../link/x", "~/link", "~", "src/*.py", "../link/**", "~/a*/b", "*.md", "**"]
    assert claims_of(place, "--resource-scope", *given)["resource_scope"] == [
        f"{top}/project",
        f"{top}/project/src",
        f"{top}/project/x",
        f"{top}/project",
        f"{top}",
        f"{top}/project/src/*.py",
        f"{top}/project/**",
        f"{top}/a*/b",
        f"{top}/project/*.md",
        "**",
    ]


@pytest.mark.parametrize("entry", ["db://app_dev", "process://*", "container://volume/data", "package://pip/six"])
def test_a_resource_of_the_machine_can_be_in_the_scope(place: Path, entry: str) -> None:
    assert claims_of(place, "--resource-scope", entry)["resource_scope"] == [entry]


@pytest.mark.parametrize(
    "entry", ["", "~nobody-of-this-name/x", "HTTPS://x", "http://", "/a b ", "\0", "a\x1b", "db://", "disk://a"]
)
def test_an_entry_that_means_nothing_is_refused(place: Path, entry: str) -> None:
    refused = run(place, "issue", *ASKED, f"--resource-scope={entry}", "--json")
    assert refused.exit_code == USAGE
    assert json.loads(refused.stdout)["error_code"] == "field_invalid"
    assert "$.resource_scope[0]" in json.loads(refused.stdout)["error"]


def test_a_folder_that_reads_as_a_glob_is_taken_by_its_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = place.parent / "My [Project]"
    odd.mkdir()
    monkeypatch.chdir(odd)
    exact = f"{place.parent}/My [[]Project]"
    for claims in (claims_of(place, "--resource-scope", "."), claims_of(place)):
        assert (claims["resource_scope"], claims["cwd"]) == ([exact], str(odd))
    assert claims_of(place, "--resource-scope", "*.py")["resource_scope"] == [f"{exact}/*.py"]
    (odd / "a*").mkdir()
    monkeypatch.chdir(odd / "a*")
    assert claims_of(place)["resource_scope"] == [f"{exact}/a[*]"]


def test_a_name_with_a_bracket_means_itself_and_none_that_it_would_match(place: Path) -> None:
    project = place.parent / "project"
    for name in ("data[12]", "a[b"):
        (project / name).mkdir()
    (project / "f[12]").touch()
    claims = claims_of(place, "--resource-scope", "data[12]", "f[12]", "a[b")
    written = [f"{project}/{name}" for name in ("data[[]12]", "f[[]12]", "a[[]b")]
    assert claims["resource_scope"] == written
    scope = build_scope(tuple(written), None)
    covered = {name: covers(scope, Effect("read", f"{project}/{name}", "")) for name in ("data1", "data[12]/x", "f1")}
    assert covered == {"data1": False, "data[12]/x": True, "f1": False}
    (project / "data[12]").rename(project / "data")
    assert claims_of(place, "--resource-scope", "data[12]")["resource_scope"] == [f"{project}/data[12]"]


@pytest.mark.parametrize(
    ("name", "entry"),
    [("src*", "src*"), ("src*", "./src*"), ("a?", "a?"), ("d[12]", "d[12]"), ("d[12]", "d[12]/etc"), ("x*", "x*/etc")],
)
def test_a_link_that_is_called_like_a_pattern_does_not_say_what_it_means(place: Path, name: str, entry: str) -> None:
    (place.parent / "project" / name).symlink_to("/")
    refused = run(place, "issue", *ASKED, "--resource-scope", entry, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert "$.resource_scope[0]" in json.loads(refused.stdout)["error"]


def test_a_file_that_is_called_like_a_pattern_is_named_with_brackets(place: Path) -> None:
    (place.parent / "project" / "src*").touch()
    assert run(place, "issue", *ASKED, "--resource-scope", "src*").exit_code == USAGE
    assert claims_of(place, "--resource-scope", "src[*]")["resource_scope"] == [f"{place.parent}/project/src[*]"]


def test_where_a_link_leads_is_said(place: Path) -> None:
    project, top = place.parent / "project", place.parent
    issued(place)
    (project / "docs").symlink_to(top)
    given = ["--resource-scope", "docs", "docs/*.md", "src", "--cwd", "docs/x"]
    assert run(place, "issue", *ASKED, *given).stderr.splitlines() == [
        f"remit: 'docs' resolves to {top}",
        f"remit: 'docs/' resolves to {top}",
        f"remit: 'docs/x' resolves to {top}/x",
    ]


def test_relative_paths_start_at_the_first_directory_of_the_scope_if_not_here(place: Path) -> None:
    (place.parent / "other").mkdir()
    other = str(place.parent / "other")
    assert claims_of(place, "--resource-scope", "https://x.example", other)["cwd"] == other
    assert claims_of(place, "--resource-scope", f"{other}/**")["cwd"] == other
    assert claims_of(place, "--resource-scope", other, ".")["cwd"] == str(place.parent / "project")
    assert "cwd" not in claims_of(place, "--resource-scope", "https://x.example")


HOSTILE = {
    "mission": ["--mission", "a\x1b]0;x\x07b"],
    "agent_id": ["--agent-id", "x" * 257],
    "allowed_tools": ["--allowed-tools="],
    "max_tool_calls": ["--max-tool-calls", str(2**53)],
    "max_duration_s": ["--max-duration-s", "0"],
    "lifetime_s": ["--lifetime-s", "3601"],
}


@pytest.mark.parametrize("member", HOSTILE)
def test_values_that_no_passport_has_are_refused_by_name(place: Path, member: str) -> None:
    refused = run(place, "issue", *ASKED, "--resource-scope=.", *HOSTILE[member], "--json")
    assert refused.exit_code == USAGE
    assert json.loads(refused.stdout)["error_code"] == "field_invalid"
    assert f"$.{member}" in json.loads(refused.stdout)["error"]


@pytest.mark.parametrize("value", ["9" * 30, "9" * 5000, "-1", "1.5", "many", "\ud800"])
def test_numbers_that_are_none_or_too_large_are_refused(place: Path, value: str) -> None:
    refused = run(place, "issue", *ASKED, "--max-tool-calls", value)
    assert refused.exit_code == USAGE
    assert len(refused.stderr) < 1000


def test_a_mission_of_a_megabyte_is_refused_in_a_line(place: Path) -> None:
    refused = run(place, "issue", "--agent-id", "a", "--mission", "x" * 1_000_000)
    assert (refused.exit_code, refused.stdout) == (USAGE, "")
    assert len(refused.stderr) < 1000


def test_more_than_a_passport_can_hold_is_refused_as_such(place: Path) -> None:
    refused = run(place, "issue", *ASKED, "--resource-scope", *(f"/srv/{'x' * 200}{n}" for n in range(100)), "--json")
    assert refused.exit_code == USAGE
    assert json.loads(refused.stdout)["error_code"] == "field_invalid"


def test_tools_that_nobody_knows_are_allowed_by_name(place: Path) -> None:
    assert claims_of(place, "--allowed-tools", "größer", "mcp__x__*")["allowed_tools"][-2:] == ["größer", "mcp__x__*"]


def test_without_tools_the_passport_is_issued_and_says_so(place: Path) -> None:
    told = run(place, "issue", "--agent-id", "a", "--mission", "b", "--resource-scope", ".")
    assert told.exit_code == DONE
    assert "the passport allows no tool" in told.stderr


def test_a_passport_is_bound_to_a_certificate(place: Path) -> None:
    issued(place)
    with open_home(place) as home:
        file = server_identity(home, ["localhost"], datetime.now(UTC)).cert
    der = ssl.PEM_cert_to_DER_cert(Path(file).read_text(encoding="ascii"))
    expected = encode_base64url(sha256(der).digest())
    assert claims_of(place, "--bind-certificate", file)["cnf"] == {"x5t#S256": expected}


@pytest.mark.parametrize("text", ["", "no", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ü"])
def test_a_file_that_is_no_certificate_is_refused(place: Path, text: str) -> None:
    file = place.parent / "cert.pem"
    file.write_text(text, encoding="utf-8")
    for named in (file, place.parent / "nowhere"):
        refused = run(place, "issue", *ASKED, "--bind-certificate", str(named), "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (STATE, "certificate_unusable")
    assert not place.exists()


def test_a_passport_under_a_kill_switch_is_issued_with_a_word(place: Path) -> None:
    issued(place)
    run(place, "kill-switch", "on")
    told = run(place, "issue", *ASKED, "--resource-scope", ".")
    assert told.exit_code == DONE
    assert told.stderr == "remit: the kill switch is on: no session can start until it is off\n"
