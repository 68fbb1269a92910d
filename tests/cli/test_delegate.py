"""`remit delegate`: a narrower passport, paid for by the session it comes from."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from remit.cli.errors import DONE, NO, STATE, USAGE
from tests.cli.running import issued, run, started
from tests.ledger.service import Service

CHILD = ("--agent-id", "agent:child", "--mission", "Look at a part of it")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project" / "part").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


@pytest.fixture
def parent(place: Path) -> str:
    return started(place, "--resource-scope", ".", "--max-tool-calls", "10", "--forbidden-tools", "Bash")


def delegated(place: Path, parent: str, *arguments: str) -> Result:
    return run(place, "delegate", parent, *CHILD, *arguments)


def claims_of(place: Path, parent: str, *arguments: str) -> dict[str, Any]:
    result = delegated(place, parent, *arguments, "--json")
    assert result.exit_code == DONE, result.output
    claims: dict[str, Any] = json.loads(result.stdout)["claims"]
    return claims


def test_the_token_is_all_there_is_and_starts_a_session(place: Path, parent: str) -> None:
    result = delegated(place, parent, "--max-tool-calls", "4")
    assert (result.exit_code, result.stderr) == (DONE, "")
    service = Service(place)
    session_id = service.start(result.stdout.strip())
    service.close()
    assert session_id.startswith("pass:")


def test_what_is_not_said_is_as_the_parent_has_it(place: Path, parent: str) -> None:
    claims = claims_of(place, parent, "--max-tool-calls", "4")
    here = str(place.parent / "project")
    assert (claims["parent_jti"], claims["delegation_depth"], claims["max_tool_calls"]) == (parent, 1, 4)
    assert (claims["allowed_tools"], claims["forbidden_tools"]) == (["Read", "Grep"], ["Bash"])
    assert (claims["resource_scope"], claims["cwd"], claims["max_duration_s"]) == ([here], here, 3600)
    assert len(claims["allowed_side_effect_classes"]) == 4


def test_what_is_said_is_narrower(place: Path, parent: str) -> None:
    said = "--max-tool-calls 4 --allowed-tools Read --forbidden-tools Grep --resource-scope part --max-duration-s 60"
    claims = claims_of(place, parent, *said.split(), "--allowed-side-effects", "none")
    part = str(place.parent / "project" / "part")
    assert (claims["allowed_tools"], claims["forbidden_tools"]) == (["Read"], ["Bash", "Grep"])
    assert (claims["resource_scope"], claims["cwd"]) == ([part], part)
    assert (claims["max_duration_s"], claims["allowed_side_effect_classes"]) == (60, ["none"])


@pytest.mark.parametrize(
    "more", [["--allowed-tools", "Write"], ["--resource-scope", ".."], ["--max-duration-s", "3601"]]
)
def test_what_would_be_wider_is_refused(place: Path, parent: str, more: list[str]) -> None:
    refused = delegated(place, parent, "--max-tool-calls", "1", *more, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (NO, "mission_widened")


@pytest.mark.parametrize("calls", ["0", "-1", str(2**60), "x", "9" * 5000])
def test_a_number_that_is_no_budget_is_refused(place: Path, parent: str, calls: str) -> None:
    assert delegated(place, parent, "--max-tool-calls", calls).exit_code == USAGE


def test_a_budget_that_is_used_up_refuses_with_its_reason(place: Path, parent: str) -> None:
    assert delegated(place, parent, "--max-tool-calls", "8").exit_code == DONE
    refused = delegated(place, parent, "--max-tool-calls", "8")
    assert (refused.exit_code, refused.stdout) == (NO, "")
    wrong, advice = refused.stderr.splitlines()
    assert "fewer calls left" in wrong
    assert advice.startswith("       ")
    coded = delegated(place, parent, "--max-tool-calls", "8", "--json")
    assert json.loads(coded.stdout)["error_code"] == "lineage_budget_exhausted"


def test_the_same_request_gets_the_same_passport(place: Path, parent: str) -> None:
    first, second = (delegated(place, parent, "--max-tool-calls", "4", "--request-id", "r-1", "--json") for _ in "ab")
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert one["token"] == two["token"]
    assert (one["repeated"], two["repeated"], two["request_id"]) == (False, True, "r-1")
    assert two["budget_remaining"]["tool_calls"] == 6
    other = delegated(place, parent, "--max-tool-calls", "5", "--request-id", "r-1", "--json")
    assert (other.exit_code, json.loads(other.stdout)["error_code"]) == (NO, "request_conflict")


def test_a_repeated_request_under_a_revoked_parent_is_refused(place: Path, parent: str) -> None:
    asked = ("--max-tool-calls", "4", "--request-id", "r-1", "--json")
    delegated(place, parent, *asked)
    run(place, "revoke", parent)
    refused = delegated(place, parent, *asked)
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (NO, "passport_revoked")


def test_a_session_that_is_not_there_delegates_nothing(place: Path, parent: str) -> None:
    refused = delegated(place, "pass:of-nobody-here", "--max-tool-calls", "1", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (NO, "session_not_found")
    assert delegated(place.parent / "nowhere", parent, "--max-tool-calls", "1").exit_code == STATE


def test_a_number_of_calls_must_be_named(place: Path, parent: str) -> None:
    assert delegated(place, parent).exit_code == USAGE


def test_a_passport_without_a_session_delegates_nothing(place: Path) -> None:
    token = issued(place)
    jti = json.loads(run(place, "inspect", token, "--json").stdout)["id"]
    assert delegated(place, jti, "--max-tool-calls", "1").exit_code == NO
