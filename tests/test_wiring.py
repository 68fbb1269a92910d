"""The parts put together: a service over a home, and a rehearsal that leaves nothing behind."""

import asyncio
import secrets
import threading
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from remit import Mission
from remit.errors import PolicyInvalid
from remit.governor.context import UseCaseRunner
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate, Evaluation, Evidence
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.ledger.embedded import open_embedded_ledger
from remit.policy.call import ToolCall
from remit.wiring import build_in_memory, build_service
from tests.governor.stepping import Commit, steps_of

NO_SECRETS = """permit(principal, action, resource);
@id("no-secrets") forbid(principal, action, resource) when { context.paths.contains("/srv/project/secret") };"""


def begun(governor: UseCaseRunner) -> str:
    mission = Mission(
        agent_id="agent:test", mission="Test", allowed_tools=("Read", "cli_command"), resource_scope=("/srv/project",)
    )
    passport = governor.run(IssuePassport(PassportRequest(mission, f"pass:{secrets.token_hex(16)}")))
    return governor.run(StartSession(passport.token)).session.id


def read(governor: UseCaseRunner, session_id: str, path: str) -> Evaluation:
    return governor.run(Evaluate(session_id, ToolCall("Read", {"file_path": path})))


def test_a_service_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    first = build_service(tmp_path / "home")
    session_id = begun(first.governor)
    one = read(first.governor, session_id, "/srv/project/a")
    first.close()
    second = build_service(tmp_path / "home")
    two = read(second.governor, session_id, "/srv/project/b")
    second.close()
    assert (one.permits, two.permits) == (True, True)
    assert two.receipt.claims.parent_receipt_hash == one.receipt.hash


def test_a_service_that_starts_closes_what_the_last_one_has_left_open(tmp_path: Path) -> None:
    first = build_service(tmp_path / "home")
    session_id = begun(first.governor)
    mission = first.governor.run(GetSession(session_id)).passport.mission
    for number in range(70):
        first.governor.run(Delegate(session_id, structs.replace(mission, max_tool_calls=1), f"request-{number}"))
    steps = steps_of(EndSession(session_id), first.governor.context)
    asked = next(steps)
    assert isinstance(asked, Commit)
    with closing(open_embedded_ledger(tmp_path / "home")) as beside:
        assert beside.ledger.run(asked.work).reserved == 70  # and there it stops
    first.close()
    second = build_service(tmp_path / "home")
    before = set(threading.enumerate())
    second.finish_closing()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    ended = second.reader.session(session_id)
    second.close()
    assert ended is not None
    assert (ended.state, ended.reserved, ended.used) == ("ended", 0, 0)


def test_cedar_policies_are_asked_after_the_passport(tmp_path: Path) -> None:
    (tmp_path / "rules.cedar").write_text(NO_SECRETS, encoding="utf-8")
    service = build_service(tmp_path / "home", policies=str(tmp_path / "rules.cedar"))
    session_id = begun(service.governor)
    allowed = read(service.governor, session_id, "/srv/project/a")
    refused = read(service.governor, session_id, "/srv/project/secret")
    service.close()
    assert [said.backend for said in allowed.receipt.claims.policy_decisions] == ["native", "guard", "cedar"]
    assert refused.receipt.claims.internal_denial_code == "engine_denied"


def test_policies_that_cannot_be_read_leave_no_home_behind(tmp_path: Path) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        build_service(tmp_path / "home", policies=str(tmp_path / "nowhere"))
    assert caught.value.code == "policy_invalid"
    assert not (tmp_path / "home").exists()


def test_what_is_observed_is_judged_for_danger_first(tmp_path: Path) -> None:
    service = build_service(tmp_path / "home", user_home="/home/user")
    session_id = begun(service.governor)
    call = ToolCall("cli_command", {"command": "rm -rf ~"})
    observed = service.governor.run(Evaluate(session_id, call, evidence=Evidence()))
    service.close()
    assert observed.receipt.claims.internal_denial_code == "dangerous_effect"
    assert observed.receipt.claims.policy_decisions[0].backend == "observation"


def test_a_rehearsal_gives_receipts_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with build_in_memory() as (governor, _):
        answer = read(governor, begun(governor), "/srv/project/a")
    assert answer.permits
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_is_closed_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    service = build_service(tmp_path / "home")
    session_id = begun(service.governor)
    call = ToolCall("cli_command", {"command": "ls /srv/project"})
    asyncio.run(service.governor.arun(Evaluate(session_id, call)))
    service.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before
