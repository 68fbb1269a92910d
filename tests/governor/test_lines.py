"""What was revoked, killed or quarantined in one session of an assistant stays so in all that continue it.

Sequences are drawn from seeds: ends, continuations, revocations, kill switches, restarts, quarantines and protections
in any order. A plain model says what must hold: once any session of an assistant was revoked, killed or quarantined,
no call is permitted in any of them, and never more calls than the mission has.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from msgspec import structs

from remit.errors import PassportRevoked
from remit.governor.assistants import (
    Actor,
    AssistantEvaluation,
    BeginAssistantSession,
    EndAssistantSession,
    EvaluateAssistantCall,
)
from remit.governor.revoke import CloseRevoked, KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, StartSession
from remit.governor.sources import Reporter, StartSourceSession
from remit.governor.tampering import EndReporterSession, RevokeTamperedSessions
from remit.governor.verification import Quarantine
from remit.ledger.records import Session
from tests.governor.places import MemoryPlace, Place, SqlitePlace
from tests.governor.stepping import Commit, steps_of
from tests.governor.world import ALLOWED, Service, mission

pytestmark = pytest.mark.slow

# The profile decides: `--hypothesis-profile=thorough` asks for thousands of runs.
_THOROUGH = settings.default is not None and settings.default.max_examples > 1000
LIMIT = 12
# What a subagent holds at a time.
SHARE = LIMIT // 4
MISSION = mission(allowed_tools=("read_file", "Agent"), max_tool_calls=LIMIT, max_duration_s=80_000)


def actor(name: str = "one", agent: str = "", generation: int = 0) -> Actor:
    told = {"type": "cli", "app": "claude-code", "id": name, "protection": name, "generation": str(generation)}
    reporter = Reporter(f"hook:{name}", json.dumps(told), MISSION, generation=generation)
    return Actor(reporter, agent, withheld=("Agent",))


ONE, AGENT, PROTECTED_AGAIN = actor(), actor(agent="a1"), actor(generation=1)


def governed(service: Service, call_id: str, who: Actor = ONE) -> AssistantEvaluation:
    return service.run(EvaluateAssistantCall(who, ALLOWED, call_id, f"claude-code {call_id}"))


def permits(service: Service, call_id: str, who: Actor = ONE) -> bool:
    service.clock.pass_s(1)  # calls of a session that is over are limited to ten a second
    return governed(service, call_id, who).answer.permits


def ended(service: Service) -> str:
    """Return a session of the assistant that has made a call and was ended."""
    session_id = governed(service, "c1").session_id
    service.run(EndAssistantSession(ONE))
    return session_id


def continued(service: Service) -> tuple[str, str]:
    """Return a session that was ended, and the active one that continues it."""
    return ended(service), governed(service, "c2").session_id


def test_a_session_that_is_revoked_after_its_end_is_not_continued(service: Service) -> None:
    session_id = ended(service)
    answer = service.run(RevokeSession(session_id))
    assert (answer.id, answer.state) == (session_id, "ended")
    assert governed(service, "c2").session_id == session_id
    assert not any(permits(service, "c3", who) for who in (ONE, AGENT, PROTECTED_AGAIN))


def test_the_passport_of_a_session_that_is_revoked_after_its_end_is_refused(service: Service) -> None:
    started = service.start()
    service.run(EndSession(started.session.id))
    service.run(RevokeSession(started.session.id))
    with pytest.raises(PassportRevoked):
        service.run(StartSession(started.passport.token))


def test_what_a_person_revokes_after_tampering_is_not_lifted_by_protecting_again(service: Service) -> None:
    session_id = governed(service, "c1").session_id
    service.run(RevokeTamperedSessions("one"))
    service.run(RevokeSession(session_id))
    assert not permits(service, "c2", PROTECTED_AGAIN)


def test_protecting_again_lifts_what_tampering_has_ended(service: Service) -> None:
    governed(service, "c1")
    service.run(RevokeTamperedSessions("one"))
    assert not permits(service, "c2")
    assert permits(service, "c3", PROTECTED_AGAIN)


def test_tampering_after_protecting_again_is_lifted_only_by_protecting_once_more(service: Service) -> None:
    governed(service, "c1")
    service.run(RevokeTamperedSessions("one", generation=1))
    assert not permits(service, "c2", PROTECTED_AGAIN)
    assert permits(service, "c3", actor(generation=2))


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with others active"])
def test_a_session_that_had_ended_before_the_kill_switch_is_not_continued_after_it(
    service: Service, others: int
) -> None:
    for _ in range(others):
        service.start()
    ended(service)
    assert service.run(KillSwitch(on=True)) == others
    service.run(KillSwitch(on=False))
    assert not any(permits(service, f"c{who.reporter.generation}x", who) for who in (ONE, PROTECTED_AGAIN))
    assert permits(service, "c1", actor("another session of the assistant"))


REVOCATIONS: dict[str, Callable[[str], Any]] = {
    "session": RevokeSession,
    "lineage": lambda name: RevokeSession(name, lineage=True),
    "passport": RevokePassport,
    "passports that were revoked": lambda name: CloseRevoked([name]),
    "quarantine": Quarantine,
}


@pytest.mark.parametrize("revoke", REVOCATIONS.values(), ids=REVOCATIONS)
@pytest.mark.parametrize("end_again", [False, True])
def test_revoking_an_earlier_session_stops_those_that_continue_it(
    service: Service, revoke: Callable[[str], Any], end_again: bool
) -> None:
    first, second = continued(service)
    if end_again:
        service.run(EndAssistantSession(ONE))
    service.run(revoke(first))
    service.restart()
    assert service.session(second).state == ("ended" if end_again else "revoked")
    assert not any(permits(service, f"c{who.reporter.generation}x", who) for who in (ONE, PROTECTED_AGAIN))
    assert not permits(service, "c4", AGENT)
    assert service.session(first).broken == (revoke is Quarantine)
    assert not service.session(second).broken


def test_a_passport_is_revoked_with_those_that_continue_it_in_one_commit(service: Service) -> None:
    first, _ = continued(service)
    step = next(steps_of(RevokePassport(first), service.governor.context))
    assert isinstance(step, Commit)
    service.ledger.run(step.work)
    assert not permits(service, "c3")


@pytest.mark.parametrize("revoke", [RevokeSession, RevokePassport, Quarantine])
def test_a_session_that_another_process_continues_at_the_same_moment_is_stopped_too(
    pair: tuple[Service, Service], revoke: Callable[[str], Any]
) -> None:
    one, two = pair
    session_id = ended(one)
    one.weather.meanwhile = lambda: two.run(BeginAssistantSession(ONE.reporter))
    one.run(revoke(session_id))
    assert not permits(one, "c2")
    assert not permits(two, "c3")


def test_a_subagent_whose_session_is_revoked_after_its_end_does_not_come_back(service: Service) -> None:
    child = governed(service, "c1", AGENT).session_id
    service.run(EndAssistantSession(AGENT))
    service.run(RevokeSession(child))
    for remembered in (True, False):
        again = governed(service, f"c2 {remembered}", AGENT)
        assert (again.session_id, again.answer.permits) == (child, False)
        service.governor.context.sources.clear()
    assert permits(service, "c3")


def test_revoking_a_session_of_an_adapter_leaves_the_one_that_it_has_now(service: Service) -> None:
    reporter = ONE.reporter._replace(key="browser:one")
    first = service.run(StartSourceSession(reporter)).session.id
    service.run(EndSession(first))
    second = service.run(StartSourceSession(reporter)).session.id
    service.run(RevokeSession(first))
    assert service.session(second).state == "active"


def test_a_quarantine_outlasts_the_end_of_the_session(service: Service) -> None:
    session_id = governed(service, "c1").session_id
    service.run(Quarantine(session_id))
    service.run(EndAssistantSession(ONE))
    assert (service.session(session_id).state, service.session(session_id).cause) == ("ended", "chain_broken")
    for who in (ONE, PROTECTED_AGAIN):
        denied = governed(service, f"c{who.reporter.generation}x", who)
        assert (denied.session_id, denied.answer.permits) == (session_id, False)
        assert denied.answer.receipt.claims.internal_denial_code == "chain_broken"


def test_delegates_of_a_quarantined_session_end_with_it_and_are_not_called_broken(service: Service) -> None:
    child = governed(service, "c1", AGENT).session_id
    service.run(Quarantine(service.session(child).parent or ""))
    service.run(EndAssistantSession(ONE))
    assert (service.session(child).state, service.session(child).cause) == ("ended", "session_ended")


# Of the calls, and of the time: its end on the wall bounds it as well.
ROW_CHANGES: list[dict[str, int]] = [
    {"used": 0},
    {"limit": 100},
    {"elapsed_ms": 0, "expires_ms": 2**50},
    {"lifetime_ms": 10**9, "expires_ms": 2**50},
]


def edit(service: Service, session_id: str, **changes: Any) -> None:
    """Overwrite the row of a session, as a process with write access to the ledger file can."""
    there = service.session(session_id)
    service.shelf.sessions[session_id] = structs.replace(there, **changes)
    service.restart()


@pytest.mark.parametrize("changes", ROW_CHANGES, ids=" and ".join)
@pytest.mark.parametrize("when", ["before its end", "after its end"])
def test_calls_and_time_that_a_row_is_given_are_not_taken_over(changes: dict[str, int], when: str) -> None:
    service = Service()
    for number in range(LIMIT - 1):
        governed(service, f"c{number}")
    service.clock.pass_s(100)
    session_id = governed(service, "c last").session_id
    if when == "after its end":
        service.run(EndAssistantSession(ONE))
    edit(service, session_id, **changes)
    service.run(EndAssistantSession(ONE))
    assert not permits(service, "c next")
    assert service.session(session_id).broken
    service.close()


def test_calls_that_a_session_without_a_receipt_is_given_are_not_taken_over() -> None:
    service = Service()
    ended(service)
    session_id = service.run(BeginAssistantSession(ONE.reporter))
    service.clock.pass_s(100)
    service.run(EndAssistantSession(ONE))
    assert service.session(session_id).receipt_id is None
    edit(service, session_id, limit=LIMIT, lifetime_ms=10**9, elapsed_ms=0, expires_ms=2**50)
    session = service.session(service.run(BeginAssistantSession(ONE.reporter)))
    assert session.limit == LIMIT - 1
    assert session.lifetime_ms <= MISSION.max_duration_s * 1000
    service.close()


@dataclass
class Line:
    """What the model knows of the sessions of one assistant session."""

    name: str
    generation: int = 0
    # Revoked, killed or quarantined.
    stopped: bool = False
    tampered: bool = False
    # A row was overwritten or a chain is broken: only the forbidden outcomes are checked then.
    doubtful: bool = False
    permitted: int = 0
    # Sessions of subagents that were revoked.
    revoked: set[str] = field(default_factory=set)
    probed: int = 0


class Sequence:
    """Events of two assistant sessions and what people do meanwhile, in two processes over one place."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        self.chance = chance
        self.service = Service(place)
        self.other = Service(place, clock=self.service.clock, name="other")
        self.lines = [Line("0"), Line("1")]
        self.is_killed = False
        self.count = 0
        self.done: list[str] = []

    def play(self, events: int) -> Counter[str]:
        """Do what the seed says, and return how often what came of calls."""
        answers: Counter[str] = Counter()
        try:
            for _ in range(events):
                act = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                slot = self.chance.randrange(2)
                self.done.append(f"{act.__name__} {slot}")
                act(self, slot)
                # After whatever has happened, both may still make a call, or not.
                for probed in range(2) if self.chance.random() < PROBED else ():
                    answers[self.call(probed)] += 1
                self.check_states()
        except BaseException as error:
            error.add_note("\n".join(self.done))
            raise
        finally:
            self.other.close(with_place=False)
            self.service.close()
        return answers

    def sessions_of(self, slot: int) -> list[Session]:
        """Return the sessions of an assistant session, oldest first."""
        key = f"hook:{self.lines[slot].name}"
        return [session for session, told in self.service.reader.sources(limit=1000) if told.key == key]

    def actor(self, slot: int, agent: str = "") -> Actor:
        """Return who acts, under the protection as it is now."""
        return actor(self.lines[slot].name, agent, self.lines[slot].generation)

    def agent(self) -> str:
        """Return a subagent, or the assistant itself."""
        return self.chance.choice(["", "", "a1"])

    def call(self, slot: int) -> str:
        """A call is asked for, which must not be permitted once one of the sessions was stopped."""
        self.count += 1
        line, agent = self.lines[slot], self.agent()
        self.service.clock.pass_s(1)  # calls of a session that is over are limited to ten a second
        session_id, answer = governed(self.service, f"c{self.count}", self.actor(slot, agent))
        self.done.append(f"call {slot} {agent}: {answer.receipt.claims.internal_denial_code or answer.refusal}")
        line.permitted += answer.permits
        assert line.permitted <= LIMIT, "more calls were permitted than the mission has"
        if line.tampered or self.is_killed or session_id in line.revoked:
            assert not answer.permits
        # Subagents of a session go on when it is quarantined.
        if line.stopped and not (agent and line.doubtful):
            assert not answer.permits
        if not agent and not (line.stopped or line.tampered or line.doubtful or self.is_killed):
            assert answer.permits or line.permitted + SHARE >= LIMIT
        line.probed += line.stopped
        if line.probed > ENOUGH:
            self.lines[slot] = Line(str(self.count))
        return "permitted" if answer.permits else "stopped" if line.stopped else "denied"

    def end(self, slot: int) -> None:
        """The assistant or its subagent ends."""
        self.service.run(EndAssistantSession(self.actor(slot, self.agent())))

    def begin(self, slot: int) -> None:
        """The assistant begins."""
        self.service.run(BeginAssistantSession(self.actor(slot).reporter))

    def revoke(self, slot: int) -> None:
        """A person revokes one of the sessions of the assistant, which may be over."""
        sessions = self.sessions_of(slot)
        if sessions:
            chosen = self.chance.choice(sessions)
            revoke = self.chance.choice([REVOCATIONS["session"], REVOCATIONS["lineage"], REVOCATIONS["passport"]])
            answer = self.service.run(revoke(chosen.id))
            assert answer.state == ("revoked" if chosen.state == "active" else chosen.state)
            self.lines[slot].stopped = True

    def revoke_subagent(self, slot: int) -> None:
        """A person revokes one of the sessions of its subagent."""
        leads = {session.id for session in self.sessions_of(slot)}
        children = [session.id for session in self.service.sessions() if session.parent in leads]
        if children:
            chosen = self.chance.choice(children)
            self.service.run(RevokeSession(chosen))
            self.lines[slot].revoked.add(chosen)

    def quarantine(self, slot: int) -> None:
        """The chain of one of the sessions is found broken."""
        sessions = self.sessions_of(slot)
        if sessions:
            self.service.run(Quarantine(self.chance.choice(sessions).id))
            self.lines[slot].stopped = self.lines[slot].doubtful = True

    def give_calls_back(self, slot: int) -> None:
        """Somebody writes the row of the last session, while no service runs."""
        sessions = self.sessions_of(slot)
        if sessions and isinstance(self.service.place, MemoryPlace):
            edit(self.service, sessions[-1].id, used=0)
            self.other.restart()
            self.lines[slot].doubtful = True

    def turn_kill_switch(self, _: int) -> None:
        """A person turns the kill switch."""
        self.is_killed = not self.is_killed
        self.service.run(KillSwitch(on=self.is_killed))
        for slot, line in enumerate(self.lines) if self.is_killed else ():
            line.stopped = line.stopped or bool(self.sessions_of(slot))

    def tamper(self, slot: int) -> None:
        """The settings that protect the assistant are tampered with."""
        line = self.lines[slot]
        if self.chance.random() < 0.5:
            line.tampered = bool(self.service.run(RevokeTamperedSessions(line.name, line.generation))) or line.tampered
        else:
            self.service.run(EndReporterSession(self.actor(slot).reporter))
            line.tampered = True

    def protect(self, slot: int) -> None:
        """A person protects the assistant again."""
        line = self.lines[slot]
        line.generation += 1
        line.tampered, line.permitted = False, 0

    def restart(self, _: int) -> None:
        """One of the services starts anew, or forgets what it knows."""
        context = self.service.governor.context
        context.sources.clear()
        context.heads.clear()
        if isinstance(self.service.place, MemoryPlace):  # the other process has the files open
            self.service.restart()

    def change_process(self, _: int) -> None:
        """The other process goes on."""
        self.service, self.other = self.other, self.service

    def check_states(self) -> None:
        """At most the last session of each is active."""
        for slot in range(len(self.lines)):
            assert "active" not in [session.state for session in self.sessions_of(slot)[:-1]]


# How often each happens, and how often calls are made after it.
WEIGHTS: dict[Callable[[Sequence, int], None], int] = {
    Sequence.end: 6, Sequence.begin: 2, Sequence.revoke: 2, Sequence.revoke_subagent: 1, Sequence.quarantine: 1,
    Sequence.give_calls_back: 1, Sequence.turn_kill_switch: 1, Sequence.tamper: 1, Sequence.protect: 2,
    Sequence.restart: 1, Sequence.change_process: 2,
}  # fmt: skip
PROBED = 0.5
# Calls of a session that was stopped, until another one of the assistant comes in its place.
ENOUGH = 6
EVENTS = 20


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def play(places: Callable[[int], Place], sequences: range) -> None:
    answers: Counter[str] = Counter()
    for seed in sequences:
        try:
            answers += Sequence(places(seed), random.Random(seed)).play(EVENTS)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    # All of it happens often, or nothing was tried.
    assert min(answers[name] for name in ("permitted", "stopped", "denied")) > len(sequences), answers


def test_no_order_of_events_permits_a_call_after_a_revocation() -> None:
    play(lambda _: MemoryPlace(), range(20_000 if _THOROUGH else 30))


def test_no_order_of_events_permits_a_call_after_a_revocation_on_disk(tmp_path: Path) -> None:
    play(lambda seed: SqlitePlace(_made(tmp_path / str(seed))), range(2000 if _THOROUGH else 10))
