"""What the first release made goes on working: ledger, sessions, protections."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.claims.receipt import verify_receipt
from remit.governor.attest import Attest
from remit.governor.evaluate import Evaluate
from remit.governor.sessions import StartSession
from remit.policy.call import ToolCall
from remit.wiring import Service, build_service
from tests.cli.running import run
from tests.governor.world import SetClock
from tests.hub.service import Hub, running
from tests.releases.home import MADE_AT_MS, PROJECT, Kept, first_release

READ = ToolCall("Read", {"file_path": f"{PROJECT}/README.md"})


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return first_release(tmp_path)


@pytest.fixture
def service(kept: Kept) -> Iterator[Service]:
    """A service over the home, a minute after it was made."""
    service = build_service(kept.home)
    service.governor.context.clock = SetClock(wall_ms=MADE_AT_MS + 60_000)
    try:
        yield service
    finally:
        service.close()


def test_its_ledger_checks_without_a_finding(kept: Kept) -> None:
    result = run(kept.home, "ledger", "check", "--json")

    assert result.exit_code == 0, result.output
    assert '"receipts": 19' in result.stdout


def test_its_ledger_still_checks_after_this_version_has_appended_to_it(kept: Kept, service: Service) -> None:
    service.governor.run(Evaluate(kept.session("active"), READ))
    service.close()

    result = run(kept.home, "ledger", "check", "--json")

    assert result.exit_code == 0, result.output
    assert '"receipts": 20' in result.stdout


@pytest.mark.parametrize("name", ["active", "delegate"])
def test_an_active_session_goes_on_with_the_budget_it_had(kept: Kept, service: Service, name: str) -> None:
    before = service.governor.context.reader.session(kept.session(name))
    assert before is not None

    answer = service.governor.run(Evaluate(kept.session(name), READ))

    assert answer.permits, answer.receipt.claims.reason
    assert answer.receipt.claims.parent_receipt_id == before.receipt_id
    assert answer.receipt.claims.budget_remaining["tool_calls"] == before.limit - before.used - before.reserved - 1


def test_a_started_passport_is_still_the_same_session(kept: Kept, service: Service) -> None:
    started = service.governor.run(StartSession(kept.token("active")))

    assert (started.existing, started.session.id) == (True, kept.session("active"))


@pytest.mark.parametrize(("name", "state"), [("ended", "ended"), ("revoked", "revoked")])
def test_a_session_that_is_over_stays_over(kept: Kept, service: Service, name: str, state: str) -> None:
    answer = service.governor.run(Evaluate(kept.session(name), READ))

    assert not answer.permits
    session = service.governor.context.reader.session(kept.session(name))
    assert session is not None
    assert session.state == state


def test_its_chains_are_attested_across_the_change_of_key(kept: Kept, service: Service) -> None:
    attested = service.governor.run(Attest(kept.session("active")))

    assert attested.attestation.claims.chain_verified
    receipts = list(service.governor.context.reader.receipts(kept.session("active")))
    keys = {verify_receipt(row.token, service.governor.context.keys.keyring()).claims.iss for row in receipts}
    assert len(keys) == 2


def _ask_hook(hub: Hub, kept: Kept, path: str, **call: object) -> dict[str, object]:
    """Return the answer to a hook as the settings of the first release send it."""
    settings = (kept.project / ".claude/settings.local.json").read_text(encoding="utf-8")
    token = settings.split("Bearer ")[1].split('"')[0]
    event = {"session_id": "a-new-session", "cwd": str(kept.project), "hook_event_name": "PreToolUse", **call}
    answer = hub.post(
        f"/v1/hooks/claude-code/{kept.known['claude_protection']}",
        {**event, "tool_name": "Read", "tool_input": {"file_path": path}},
        authorization=f"Bearer {token}",
        x_service_hub_token=None,
    )
    assert answer.status == 200
    return dict(answer.json)


def test_its_hooks_are_still_answered_with_the_token_they_hold(kept: Kept) -> None:
    with running(kept.home) as hub:
        inside = _ask_hook(hub, kept, str(kept.project / "README.md"), tool_use_id="toolu_1")
        outside = _ask_hook(hub, kept, "/etc/passwd", tool_use_id="toolu_2")

    assert inside == {}
    assert "deny" in str(outside)


@pytest.mark.parametrize("assistant", ["claude-code", "gemini"])
def test_its_protections_are_undone_to_the_byte(kept: Kept, assistant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kept.project)

    result = run(kept.home, "protect", assistant, "--undo")

    assert result.exit_code == 0, result.output
    settings = kept.project / ".claude/settings.local.json"
    if assistant == "claude-code":
        assert settings.read_text(encoding="utf-8") == '{\n  "permissions": {"allow": ["Bash(ls)"]}\n}\n'
    else:
        assert not (kept.project / ".gemini").exists()
