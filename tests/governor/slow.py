"""A slow, obvious evaluator: what every receipt, answer and error must be, said again with plain dictionaries.

It follows the pages in `docs/spec`, and uses nothing of `remit.governor` or `remit.ledger`. An operation is a generator
that yields between the commits that it may take, because other operations can come in between: `explain` finds an order
of these steps in which everything that was answered and kept is exactly what this evaluator expects.

What is random (ids, nonces) is taken from what was kept, held against its form, and must be new. All other claims are
computed. A token must be, byte for byte, what the key that signs makes of these claims.
"""

import copy
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from msgspec import to_builtins

from remit.claims.canonical import (
    canonicalize,
    canonicalize_arguments,
    decode_base64url,
    sha256_base64url,
    sha256_hex,
)
from remit.claims.jws import ATTESTATION, PASSPORT, RECEIPT, TokenKind, sign_token
from remit.claims.keys import SigningKey
from remit.claims.mission import SIDE_EFFECT_CLASSES, Mission, narrow
from remit.claims.receipt import Digest
from remit.claims.strictjson import parse_object
from remit.errors import RemitError
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.decide import Decision, judge, judge_again, policy_decisions
from remit.policy.engines import DENIALS, Engine, SessionStatus
from remit.policy.evidence import measurements, redact
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine
from remit.policy.observation import ObservationEngine

__all__ = ["Event", "Grant", "Kept", "Mismatch", "Moment", "Operation", "Refused", "Skipped", "Slow", "explain"]

SKEW_S = 60
YEAR_S = 31_536_000
MAX_DEPTH = 8
MAX_OPEN = 100
MAX_EXPLORED = 3000
VERDICTS = "compliant", "violation", "insufficient_evidence"

Claims = dict[str, Any]
Steps = Generator[None, None, Claims]

ERRORS = {
    "SessionNotFound": "no session has this id",
    "SessionSealed": "the session was restored from an older copy of the ledger; start one with a new passport",
    "KillSwitchOn": "no session starts until the kill switch is released",
    "LineageUnknown": "the passport was delegated, but this ledger has no such delegation",
    "ReceiptNotFound": "no receipt of the session has this id",
    "DelegationTooDeep": "a lineage has at most 8 delegations",
    "PassportUnregistered": (
        "the passport is not registered in this home: issue it again with `remit issue` (it may have been issued "
        "before passports were registered)"
    ),
}


class Mismatch(AssertionError):
    """What happened is not what this evaluator expects."""


class Refused(Exception):
    """The operation fails with this error, and leaves nothing behind."""

    def __init__(self, name: str, message: str = "") -> None:
        self.name = name
        self.message = message or ERRORS[name]
        super().__init__(name, self.message)


class Moment(NamedTuple):
    """When an operation is asked for."""

    wall_ms: int
    mono_ms: int
    boot: str

    @property
    def wall_s(self) -> int:
        """The whole seconds on the wall."""
        return self.wall_ms // 1000


class Kept(Protocol):
    """What is kept, once a group of operations is done."""

    def tokens(self, session_id: str) -> Sequence[str]:
        """Return the receipts of a session."""

    def is_drawn(self, part: bytes) -> bool:
        """Tell whether these random bytes were drawn."""

    def kid(self) -> str:
        """Return the id of the key that signs."""


class Event(NamedTuple):
    """What an observer brings beside a call."""

    content: Digest | None
    marks: tuple[str, ...]
    actions: tuple[Mapping[str, Any], ...]
    observed_ms: int | None


class Skipped(NamedTuple):
    """How many calls of a session were not evaluated, and since when."""

    calls: int
    since_ms: int


class At(NamedTuple):
    """When an operation is asked for, what is kept in the end, and what was answered."""

    now: Moment
    kept: Kept
    answer: Any


@dataclass
class Grant:
    """A passport."""

    id: str
    token: str
    mission: Mission
    not_before: int
    expires_at: int
    parent: str | None = None
    depth: int = 0


@dataclass
class Delegation:
    """Calls that are set aside for a delegate."""

    parent: str
    request: str
    mission: Mission
    child: str
    receipt: int
    settled: bool = False

    @property
    def amount(self) -> int:
        """How many calls were set aside."""
        return self.mission.max_tool_calls


class Repeat(NamedTuple):
    """What was asked under a key, and the place of its receipt."""

    asked: object
    receipt: int


class Seen(NamedTuple):
    """How long a session has lasted, up to which moment."""

    elapsed_ms: int
    boot: str
    mono_ms: int
    wall_ms: int


@dataclass
class Session:
    """A session."""

    grant: Grant
    trace_id: str
    run_nonce: str
    lifetime_ms: int
    seen: Seen
    started_ms: int
    ended_ms: int | None = None
    state: str = "active"
    cause: str = ""
    used: int = 0
    reserved: int = 0
    observed: int = 0
    marks: frozenset[str] = frozenset()
    chain: list[Claims] = field(default_factory=list)
    repeats: dict[str, Repeat] = field(default_factory=dict)
    # By the id of a decision: the place of the receipt of its outcome.
    results: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id of a session is that of its passport."""
        return self.grant.id

    @property
    def limit(self) -> int:
        """The calls of the passport."""
        return self.grant.mission.max_tool_calls

    @property
    def left(self) -> int:
        """The calls that are left."""
        return max(0, self.limit - self.used - self.reserved)

    @property
    def is_open(self) -> bool:
        """Whether it is over and its delegates are still to be closed."""
        return self.state != "active" and self.reserved > 0 and self.cause != "restored"

    @property
    def iat(self) -> int:
        """When its last receipt was issued."""
        return int(self.chain[-1]["iat"]) if self.chain else 0

    def row(self) -> Claims:
        """Return what the row of the session must say."""
        verdicts = [claims["verdict"] for claims in self.chain]
        return {
            "state": self.state,
            "cause": self.cause,
            "limit": self.limit,
            "used": self.used,
            "reserved": self.reserved,
            "length": len(self.chain),
            "observed": self.observed,
            "marks": " ".join(sorted(self.marks)),
            "trace_id": self.trace_id,
            "run_nonce": self.run_nonce,
            "compliant": verdicts.count("compliant"),
            "violation": verdicts.count("violation"),
            "insufficient_evidence": verdicts.count("insufficient_evidence"),
        }


class Slow:
    """Everything that is known, and how operations change it."""

    row_names = (
        *("state", "cause", "limit", "used", "reserved", "length", "observed", "marks", "trace_id", "run_nonce"),
        *("compliant", "violation", "insufficient_evidence"),
    )

    def __init__(self, key: SigningKey, engines: Sequence[Engine] = ()) -> None:
        """Begin with this key; `engines` judge calls beside the passport's own rules."""
        self.key = key
        self.engines = engines
        self.grants: dict[str, Grant] = {}
        self.registered: dict[str, str] = {}
        self.sessions: dict[str, Session] = {}
        self.delegations: list[Delegation] = []
        self.revoked: set[str] = set()
        self.killed: set[str] = set()
        self.kill_switch = False
        self.ids: set[str] = set()

    def copy(self) -> "Slow":
        """Return a copy that changes on its own."""
        other = copy.copy(self)
        other.grants, other.registered = dict(self.grants), dict(self.registered)
        other.sessions = {
            name: replace(it, chain=list(it.chain), repeats=dict(it.repeats), results=dict(it.results))
            for name, it in self.sessions.items()
        }
        other.delegations = [replace(it) for it in self.delegations]
        other.revoked, other.killed, other.ids = set(self.revoked), set(self.killed), set(self.ids)
        return other

    def fingerprint(self) -> object:
        """Return what tells two states apart that the same operations have led to."""
        sessions = (
            (name, it.state, it.cause, it.used, it.reserved, it.seen, it.marks, tuple(_names(it.chain)))
            for name, it in self.sessions.items()
        )
        settled = tuple(it.settled for it in self.delegations)
        ledger_state = self.key.kid, self.kill_switch, frozenset(self.killed), frozenset(self.revoked)
        return tuple(sessions), settled, ledger_state

    def restored(self, backup: "Slow") -> "Slow":
        """Return what is known after a copy was put in the place of all this."""
        after = backup.copy()
        after.key = self.key
        after.kill_switch = self.kill_switch or backup.kill_switch
        after.revoked |= self.revoked
        after.revoked |= {it.child for it in after.delegations if not it.settled}
        after.revoked |= self.sessions.keys() - after.sessions.keys()
        after.killed |= self.killed & after.sessions.keys()
        after.grants = dict(self.grants)
        for session in after.sessions.values():
            session.state = "revoked" if session.state == "active" else session.state
            session.cause = "restored"
        return after

    # Time.

    def _seen(self, session: Session, now: Moment) -> Seen:
        """Return how long a session has lasted now; the clock of the boot counts, and the wall only across a reboot."""
        before = session.seen
        if session.state != "active" or (before.boot == now.boot and now.mono_ms < before.mono_ms):
            return before
        same = before.boot == now.boot
        passed = now.mono_ms - before.mono_ms if same else max(0, now.wall_ms - before.wall_ms)
        return Seen(before.elapsed_ms + passed, now.boot, now.mono_ms, max(before.wall_ms, now.wall_ms))

    def _left_ms(self, session: Session, now: Moment) -> int:
        seen = self._seen(session, now)
        return max(0, min(session.lifetime_ms - seen.elapsed_ms, session.grant.expires_at * 1000 - seen.wall_ms))

    def _left_s(self, session: Session, now: Moment) -> int:
        """Return the seconds that are left; one that has begun counts."""
        return (self._left_ms(session, now) + 999) // 1000

    def _latest_ms(self, session: Session, now: Moment) -> int:
        return max(now.wall_ms, session.seen.wall_ms, session.iat * 1000)

    # The end of sessions.

    def _found(self, session_id: str) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            raise Refused("SessionNotFound")
        if session.cause == "restored":
            raise Refused("SessionSealed")
        return session

    def _ended_above(self, session: Session) -> tuple[str, str] | None:
        """Return the state and the cause by which a passport or its lineage has ended a session."""
        while session.id not in self.revoked:
            if session.grant.parent is None:
                return None
            parent = self.sessions.get(session.grant.parent)
            if parent is None or parent.cause == "restored":
                break
            if parent.state != "active":
                return parent.state, parent.cause
            session = parent
        return "revoked", "passport_revoked"

    def _refusal(self, session: Session, now: Moment) -> str:
        """Return the code that every call gets, or nothing."""
        if session.cause:
            return session.cause
        above = self._ended_above(session)
        if above is not None:
            return above[1]
        if self.kill_switch or session.id in self.killed:
            return "kill_switch"
        return "duration_exceeded" if self._left_s(session, now) <= 0 else ""

    def _look(self, session: Session, at: At) -> None:
        """Close a session that is over."""
        if session.state != "active":
            return
        ended = self._ended_above(session)
        if ended is None and session.id in self.killed:
            ended = "revoked", "kill_switch"
        if ended is None and self._left_s(session, at.now) <= 0:
            ended = "expired", "duration_exceeded"
        if ended is not None:
            self._close(session, *ended, at)

    def _close(self, session: Session, state: str, cause: str, at: At) -> None:
        if session.state != "active":
            return
        session.seen = self._seen(session, at.now)
        session.state, session.cause = state, cause
        session.ended_ms = max(at.now.wall_ms, session.started_ms)
        if not session.reserved:
            self._settle_given(session, at)

    def _settle_given(self, session: Session, at: At) -> None:
        for delegation in self.delegations:
            if delegation.child == session.id and not delegation.settled:
                self._settle(delegation, at)

    def _open(self, parent: str, at: At) -> list[Delegation]:
        """Return the open delegations of a session, in the order in which they were given back.

        Nothing says which of several comes first, so this follows what was kept.
        """
        order = [_claims_of(token)["target"] for token in at.kept.tokens(parent)]
        found = [it for it in self.delegations if it.parent == parent and not it.settled]
        last = {child: place for place, child in enumerate(order)}
        return sorted(found, key=lambda it: last.get(it.child, len(order)))

    def _close_delegates(self, session: Session, at: At) -> None:
        """Close the delegates of a session that is over, and theirs."""
        if not session.is_open:
            return
        for delegation in self._open(session.id, at):
            child = self.sessions.get(delegation.child)
            if child is None:
                self._settle(delegation, at)
                continue
            self._close(child, session.state, session.cause, at)
            self._close_delegates(child, at)

    def _settle_overdue(self, session: Session, at: At) -> list[str]:
        """Take back what delegates hold whose time is over; return those that have delegates of their own."""
        unfinished = []
        for delegation in self._open(session.id, at):
            child = self.sessions.get(delegation.child)
            if child is not None:
                self._look(child, at)
                if child.is_open:
                    unfinished.append(child.id)
            elif at.now.wall_ms >= self.grants[delegation.child].expires_at * 1000:
                self._settle(delegation, at)
        return unfinished

    def _settle(self, delegation: Delegation, at: At) -> None:
        parent = self.sessions[delegation.parent]
        if parent.cause == "restored":
            return
        child = self.sessions.get(delegation.child)
        used = child.used if child else 0
        delegation.settled = True
        parent.used += used
        parent.reserved -= delegation.amount
        reason = f"a delegate has ended; of {delegation.amount} calls set aside for it, {used} were used"
        step = {
            "tool": "remit.release",
            "action_class": "delegate",
            "target": delegation.child,
            "resource_family": "passport",
            "side_effect_class": "none",
            "verdict": "compliant",
            "reason": reason,
            "policy_decisions": [{"backend": "governor", "decision": "permit", "reason": reason}],
            "budget_delta": {
                "operation": "release",
                "resource": "tool_calls",
                "amount": delegation.amount - used,
                "unit": "invocations",
                "remaining_for_parent": parent.left,
                "used_total": parent.used,
                "reserved_total": parent.reserved,
                "delegation_request_id": delegation.request,
            },
        }
        self._append(parent, step, {"request": delegation.request, "used": used}, at)
        if parent.state != "active" and not parent.reserved:
            self._settle_given(parent, at)

    # Receipts.

    def _append(self, session: Session, step: Claims, arguments: object, at: At, at_ms: int | None = None) -> int:
        """Append a receipt to a chain, and return its place. It must be the one that is kept there."""
        place = len(session.chain)
        tokens = at.kept.tokens(session.id)
        if place >= len(tokens):
            raise Mismatch(f"receipt {place + 1} of {session.id} is missing: {step}")
        form = canonicalize_arguments(arguments)
        issued_at = max(at.now.wall_s, session.iat)
        moment = self._latest_ms(session, at.now) if at_ms is None else at_ms
        step_id = f"step:{place + 1:06d}"
        envelope = {
            "tool": step["tool"],
            "arguments": arguments,
            "session_id": session.id,
            "step_id": step_id,
        }
        receipt_id = _claims_of(tokens[place])["receipt_id"]
        self._draw(receipt_id, f"rcpt:{at.now.wall_ms:012x}", 10, at)
        claims = {
            "receipt_id": receipt_id,
            "grant_id": session.id,
            "parent_receipt_id": session.chain[-1]["receipt_id"] if place else None,
            "parent_receipt_hash": sha256_hex(tokens[place - 1].encode()) if place else None,
            "actor": session.grant.mission.agent_id,
            "verifier_id": f"remit:{self.key.kid}",
            "trace_id": session.trace_id,
            "run_nonce": session.run_nonce,
            "step_id": step_id,
            "invocation_digest": {
                "alg": "sha-256",
                "value": sha256_base64url(canonicalize(envelope)),
                "canonicalization": "jcs-rfc8785",
                "scope": "normalized_input",
            },
            "arguments_hash": sha256_hex(form),
            "iss": f"remit:{self.key.kid}",
            "iat": issued_at,
            "exp": issued_at + YEAR_S,
            "jti": receipt_id,
            "evidence_level": "self_signed",
            "budget_remaining": {
                "tool_calls": session.left,
                "duration_s": self._left_s(session, at.now) if session.state == "active" else 0,
            },
            "timestamp": _timestamp(moment),
            **step,
        }
        self._check_token(f"receipt {place + 1} of {session.id}", RECEIPT, tokens[place], claims)
        session.chain.append(claims)
        session.seen = self._seen(session, at.now)
        session.seen = session.seen._replace(wall_ms=max(session.seen.wall_ms, at.now.wall_ms))
        return place

    def _check_token(self, what: str, kind: TokenKind, token: str, claims: Claims) -> None:
        """Raise unless a token holds these claims and nothing else, signed with the key that signs now."""
        payload = decode_base64url(token.split(".")[1])
        actual = parse_object(payload)
        if canonicalize(actual) != canonicalize(claims):
            names = sorted(actual.keys() | claims.keys())
            differ = {
                name: (claims.get(name), actual.get(name)) for name in names if claims.get(name) != actual.get(name)
            }
            raise Mismatch(f"{what}: expected and kept differ in {differ}")
        if sign_token(kind, payload, self.key) != token:
            raise Mismatch(f"{what}: the header or the signature is not that of the key that signs")

    def _draw(self, text: str, prefix: str, size: int, at: At) -> None:
        """Raise unless an id is a prefix and so many random bytes that nothing else has."""
        if not re.fullmatch(re.escape(prefix) + f"[0-9a-f]{{{2 * size}}}", text):
            raise Mismatch(f"{text} is not {prefix} and {size} bytes")
        self._draw_bytes(bytes.fromhex(text[-2 * size :]), at)

    def _draw_bytes(self, part: bytes, at: At) -> None:
        if part.hex() in self.ids or not at.kept.is_drawn(part):
            raise Mismatch(f"{part.hex()} is used twice, or was not drawn")
        self.ids.add(part.hex())

    # Operations.

    def issue(self, grant: Grant) -> None:
        """Register a passport."""
        self.grants[grant.id] = grant
        self.registered[grant.id] = grant.token

    def start(self, at: At, passport_id: str) -> Steps:
        """Start a session from a passport, or find the one that is there."""
        grant = self.grants[passport_id]
        if at.now.wall_s < grant.not_before - SKEW_S:
            raise Refused("PassportNotYetValid", f"good from {grant.not_before}, it is {at.now.wall_s}")
        if at.now.wall_s >= grant.expires_at + SKEW_S:
            raise Refused("PassportExpired", f"good until {grant.expires_at}, it is {at.now.wall_s}")
        if grant.id in self.sessions:
            return (yield from self._start_again(at, grant.id))
        lifetime_ms = self._lifetime_ms(grant, at.now)
        if grant.parent is not None:
            parent = self._delegating(grant, at.now)
            lifetime_ms = min(lifetime_ms, self._left_ms(parent, at.now))
            parent.seen = self._seen(parent, at.now)
        if "trace_id" not in at.answer:
            raise Mismatch(f"a session was to be started: {at.answer}")
        trace_id, run_nonce = at.answer["trace_id"], at.answer["run_nonce"]
        self._draw(trace_id, "trace:", 16, at)
        self._draw_bytes(decode_base64url(run_nonce), at)
        seen = Seen(0, at.now.boot, at.now.mono_ms, at.now.wall_ms)
        self.sessions[grant.id] = Session(grant, trace_id, run_nonce, lifetime_ms, seen, at.now.wall_ms)
        return {"existing": False, "session": grant.id, "trace_id": trace_id, "run_nonce": run_nonce}

    def _start_again(self, at: At, session_id: str) -> Steps:
        """Find the session that a passport has started."""
        yield from self.look(at, session_id)
        session = self.sessions[session_id]
        if session.state == "revoked" or session.id in self.revoked:
            cause = (session.cause or "passport_revoked").replace("_", " ")
            return _failed("PassportRevoked", f"the passport was revoked ({cause})")
        if session.state == "expired":
            return _failed("PassportExpired", "the session of the passport has expired")
        return {"existing": True, "session": session_id}

    def _lifetime_ms(self, grant: Grant, now: Moment) -> int:
        """Return how long a session of a passport may last, if one may be started."""
        if self.kill_switch:
            raise Refused("KillSwitchOn")
        if grant.id in self.revoked:
            raise Refused("PassportRevoked", "the passport was revoked")
        if grant.parent is None and self.registered.get(grant.id) != grant.token:
            raise Refused("PassportUnregistered")
        lifetime_ms = min(grant.mission.max_duration_s * 1000, grant.expires_at * 1000 - now.wall_ms)
        if lifetime_ms <= 0:
            raise Refused("PassportExpired", f"good until {grant.expires_at}, it is {now.wall_s}")
        return lifetime_ms

    def _delegating(self, grant: Grant, now: Moment) -> Session:
        """Return the session that a delegate's passport comes from, if it may still act."""
        delegation = next((it for it in self.delegations if it.child == grant.id), None)
        if delegation is None:
            raise Refused("LineageUnknown")
        if delegation.settled:
            raise Refused("PassportRevoked", "the session that the passport was delegated from has ended")
        parent = self._found(delegation.parent)
        if self._refusal(parent, now):
            message = "the session that the passport was delegated from no longer permits calls"
            raise Refused("PassportRevoked", message)
        return parent

    def look(self, at: At, session_id: str) -> Steps:
        """Look at a session; one that is over is closed, with its delegates."""
        self._look(self._found(session_id), at)
        if self.sessions[session_id].is_open:
            yield
            self._close_delegates(self.sessions[session_id], at)
        return {}

    def evaluate(
        self,
        at: At,
        session_id: str,
        call: ToolCall,
        key: str = "",
        event: Event | None = None,
        *,
        early: bool = False,
    ) -> Steps:
        """Decide on a call, or on an event that was observed.

        A call that takes long to judge may have been looked into before its turn (`early`), when its session still
        permitted something. Its receipt then says what the call would have done.
        """
        while True:
            session = self._found(session_id)
            self._look(session, at)
            asked = call, event and event[:3]
            if key in session.repeats:
                before = session.repeats[key]
                if before.asked != asked:
                    raise Refused("RequestConflict", "the idempotency key was used for another call")
                outcome = self._answered(session, before.receipt, at)
                outcome |= {"repeated": True, "refusal": self._refusal(session, at.now)}
                break
            if session.reserved and session.used + session.reserved >= session.limit:
                unfinished = self._settle_overdue(session, at)
                if unfinished and session.used + session.reserved >= session.limit:
                    for name in unfinished:
                        yield
                        self._close_delegates(self.sessions[name], at)
                    yield
                    continue
            outcome = self._decided(session, at, call, event, early=early)
            if key:
                session.repeats[key] = Repeat(asked, len(session.chain) - 1)
            break
        self._check_answer(outcome, at)
        if session.is_open:
            yield
            self._close_delegates(self.sessions[session_id], at)
        return outcome

    def _check_answer(self, outcome: Claims, at: At) -> None:
        """Raise unless this is the answer, before further steps are taken.

        `explain` takes two orders that lead to the same state for one, and nothing but their answers tells two calls
        apart that are alike and have got each other's receipts.
        """
        if outcome != at.answer:
            raise Mismatch(f"expected the answer {outcome}, and it is {at.answer}")

    def _answered(self, session: Session, place: int, at: At) -> Claims:
        token = at.kept.tokens(session.id)[place]
        stands = [session.state, session.used, session.reserved, len(session.chain)]
        return {"token": token, "repeated": False, "refusal": "", "remedy": None, "note": None, "stands": stands}

    def _decided(self, session: Session, at: At, call: ToolCall, event: Event | None, *, early: bool) -> Claims:
        budget = Budget(session.left, self._left_s(session, at.now), own_calls=session.used >= session.limit)
        native = NativeEngine()
        engines: list[Engine] = [native, *self.engines] if event is None else [ObservationEngine(), native]
        standing = SessionStatus(session.id, budget, self._refusal(session, at.now))
        mission = session.grant.mission
        decision = judge(call, mission, standing, engines=engines, files=TextFiles(), clock=_stopwatch)
        if early and standing.refusal and self._was_looked_into(session, at, decision):
            before = judge(
                call, mission, standing._replace(refusal=""), engines=engines, files=TextFiles(), clock=_stopwatch
            )
            decision = judge_again(before, call, mission, standing, engines=engines, clock=_stopwatch)
        action = decision.action
        step: Claims = {
            "tool": action.tool,
            "action_class": action.action_class,
            "target": redact(action.target),
            "resource_family": action.resource_family,
            "side_effect_class": action.side_effect_class,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "policy_decisions": to_builtins(policy_decisions(decision)),
        }
        measured = to_builtins(measurements(action, decision.remedy))
        if measured:
            step["measurements"] = measured
        if decision.permits:
            session.used += 1
            step["budget_delta"] = {
                "operation": "consume",
                "resource": "tool_calls",
                "amount": 1,
                "unit": "invocations",
                "remaining_after": session.left,
                "used_total": session.used,
                "reserved_total": session.reserved,
            }
        else:
            step["public_denial_reason"], step["internal_denial_code"] = decision.public_reason, decision.code
        at_ms = None
        if event is not None:
            session.observed += 1
            session.marks |= {*event.marks, *([decision.code] if decision.code else [])}
            if event.content is not None:
                step["result_hash"] = to_builtins(event.content)
            at_ms = self._reported_ms(session, at.now, event.observed_ms)
        place = self._append(session, step, dict(call.arguments), at, at_ms)
        outcome = self._answered(session, place, at)
        outcome["remedy"] = decision.remedy.sentence if decision.remedy else None
        if event is not None:
            claims = session.chain[place]
            said = {"verdict": decision.verdict, "receipt_id": claims["receipt_id"]}
            noted = [{"observed_at": claims["timestamp"], **action, **said} for action in event.actions]
            outcome["note"] = [session.observed, noted]
        return outcome

    def _was_looked_into(self, session: Session, at: At, decision: Decision) -> bool:
        tokens, place = at.kept.tokens(session.id), len(session.chain)
        names = "action_class", "resource_family", "side_effect_class", "target"
        return place < len(tokens) and any(
            _claims_of(tokens[place])[name] != getattr(decision.action, name) for name in names
        )

    def _reported_ms(self, session: Session, now: Moment, observed_ms: int | None) -> int:
        """Return when an event is said to have been observed: not before the last receipt, and not after now."""
        latest = self._latest_ms(session, now)
        if observed_ms is None or observed_ms >= latest:
            return latest
        return max(observed_ms, _parse_timestamp(session.chain[-1]["timestamp"]) if session.chain else 0)

    def permits_nothing(self, session_id: str, now: Moment) -> bool:
        """Tell whether every call of a session is refused, with a receipt."""
        session = self.sessions.get(session_id)
        return session is not None and session.cause != "restored" and bool(self._refusal(session, now))

    def limit(self, at: At, session_id: str, skipped: Skipped | None) -> Steps:
        """Do not evaluate a call, because too many come to a session that permits nothing; report some if due."""
        if skipped is not None:
            self._report(session_id, skipped, at)
        yield from ()
        message = "the session denies every call; calls beyond 10 a second are counted, but not evaluated"
        return _failed("RateLimited", message)

    def report(self, at: At, skipped: Mapping[str, Skipped]) -> Steps:
        """Report all calls that were not evaluated."""
        yield from ()
        for session_id, some in skipped.items():
            self._report(session_id, some, at)
        return {"state": None}

    def _report(self, session_id: str, skipped: Skipped, at: At) -> None:
        session, since = self.sessions[session_id], _timestamp(skipped.since_ms)
        self._look(session, at)
        calls = "1 call was" if skipped.calls == 1 else f"{skipped.calls} calls were"
        counted = f"{calls} not evaluated since {since}"
        reason = f"{counted}: a session that permits nothing any more gets 10 decisions a second"
        step: Claims = {
            "tool": "remit.rate_limit",
            "action_class": "observe",
            "target": session_id,
            "resource_family": "evidence",
            "side_effect_class": "none",
            "verdict": DENIALS["rate_limited"][1],
            "reason": reason,
            "policy_decisions": [{"backend": "governor", "decision": "deny", "reason": reason}],
            "public_denial_reason": DENIALS["rate_limited"][0],
            "internal_denial_code": "rate_limited",
            "measurements": {"remit.rate_limit": {"kind": "telemetry", "status": "not-run", "description": counted}},
        }
        self._append(session, step, {"calls": skipped.calls, "since": since}, at)

    def result(self, at: At, session_id: str, receipt_id: str, result: Digest) -> Steps:
        """Record the outcome of a call."""
        yield from ()
        session = self._found(session_id)
        decision = next((it for it in session.chain if it["receipt_id"] == receipt_id), None)
        if decision is None:
            raise Refused("ReceiptNotFound")
        repeated = receipt_id in session.results
        if not repeated:
            if decision["policy_decisions"][0]["backend"] == "governor":
                raise Refused("ReceiptNotFound", "the receipt of this id is not a decision on a call")
            self._look(session, at)
            session.results[receipt_id] = self._record(session, at, decision, result)
        place = session.results[receipt_id]
        if session.chain[place]["result_hash"] != to_builtins(result):
            return _failed("RequestConflict", "another outcome was recorded for this call")
        return {"token": at.kept.tokens(session_id)[place], "repeated": repeated}

    def _record(self, session: Session, at: At, decision: Claims, result: Digest) -> int:
        permitted = decision["verdict"] == "compliant"
        reason = (
            "the outcome of a call that was permitted" if permitted else "the call was denied, and made all the same"
        )
        token = at.kept.tokens(session.id)[session.chain.index(decision)]
        step: Claims = {
            "tool": "remit.result",
            "action_class": "observe",
            "target": decision["target"],
            "resource_family": decision["resource_family"],
            "side_effect_class": "none" if permitted else decision["side_effect_class"],
            "verdict": "compliant" if permitted else "violation",
            "reason": reason,
            "policy_decisions": [
                {"backend": "governor", "decision": "permit" if permitted else "deny", "reason": reason}
            ],
            "result_hash": to_builtins(result),
            "evidence_proof_ref": {
                "type": "remit.decision",
                "receipt_id": decision["receipt_id"],
                "receipt_hash": sha256_hex(token.encode()),
            },
        }
        if not permitted:
            step |= {"public_denial_reason": "policy_denied", "internal_denial_code": "denied_but_run"}
        return self._append(session, step, {"receipt_id": decision["receipt_id"], "result": result.value}, at)

    def delegate(self, at: At, session_id: str, mission: Mission, request: str) -> Steps:
        """Make a passport for a delegate, and set its calls aside."""
        yield from self.look(at, session_id)
        parent = self.sessions[session_id].grant
        try:
            narrow(parent.mission, mission)
        except RemitError as error:
            return _failed(type(error).__name__, str(error))
        yield
        session = self._found(session_id)
        self._look(session, at)
        known = next((it for it in self.delegations if (it.parent, it.request) == (session_id, request)), None)
        if known is not None:
            return self._delegated_before(session, known, mission, at)
        calls = mission.max_tool_calls
        if session.reserved and session.left < calls:
            unfinished = self._settle_overdue(session, at)
            if unfinished and session.left < calls:
                for name in unfinished:
                    yield
                    self._close_delegates(self.sessions[name], at)
                yield
                session = self._found(session_id)
                self._look(session, at)
                self._settle_overdue(session, at)
        refusal = self._refusal(session, at.now)
        is_full = session.left < calls or len(self._open(session_id, at)) >= MAX_OPEN
        if refusal or is_full:
            code = refusal or "lineage_budget_exhausted"
            place = self._append_delegation(session, mission, request, session_id, at, code=code)
            token = at.kept.tokens(session_id)[place]
            return {"passport": None, "child_id": None, "token": token, "repeated": False, "refusal": ""}
        child = self._child(session, mission, at)
        session.reserved += calls
        place = self._append_delegation(session, mission, request, child.id, at)
        self.grants[child.id] = child
        self.delegations.append(Delegation(session_id, request, mission, child.id, place))
        token = at.kept.tokens(session_id)[place]
        return {"passport": child.token, "child_id": child.id, "token": token, "repeated": False, "refusal": ""}

    def _child(self, session: Session, mission: Mission, at: At) -> Grant:
        """Return the passport of a delegate, which must say what it has to."""
        parent = session.grant
        issued_at = max(at.now.wall_s, session.iat, parent.not_before)
        if parent.depth >= MAX_DEPTH:
            raise Refused("DelegationTooDeep")
        if issued_at >= parent.expires_at:
            raise Refused("PassportExpired", "the parent passport has expired")
        if not at.answer.get("passport"):
            raise Mismatch(f"a delegate was to get a passport: {at.answer}")
        narrowed = narrow(parent.mission, mission)
        expires_at = min(issued_at + mission.max_duration_s, parent.expires_at)
        claims = {
            "iss": f"remit:{self.key.kid}",
            "sub": narrowed.agent_id,
            "aud": "remit",
            "iat": issued_at,
            "nbf": issued_at,
            "exp": expires_at,
            "jti": at.answer["child_id"],
            **{
                name: value for name, value in to_builtins(narrowed).items() if name != "agent_id" and value is not None
            },
            "parent_jti": parent.id,
            "delegation_depth": parent.depth + 1,
        }
        self._draw(at.answer["child_id"], "pass:", 16, at)
        self._check_token("the passport of a delegate", PASSPORT, at.answer["passport"], claims)
        return Grant(
            at.answer["child_id"], at.answer["passport"], narrowed, issued_at, expires_at, parent.id, parent.depth + 1
        )

    def _append_delegation(
        self, session: Session, mission: Mission, request: str, target: str, at: At, *, code: str = ""
    ) -> int:
        reasons = {
            "": "the delegate's mission is within the parent's, and its calls are set aside",
            "lineage_budget_exhausted": (
                "the parent has fewer calls left than the delegate asks for, or too many delegates"
            ),
        }
        reason = reasons.get(code, f"the session does not delegate any more ({code.replace('_', ' ')})")
        step: Claims = {
            "tool": "remit.delegate",
            "action_class": "delegate",
            "target": target,
            "resource_family": "passport",
            "side_effect_class": "none",
            "verdict": DENIALS[code][1] if code else "compliant",
            "reason": f"{reason}: {mission.agent_id}",
            "policy_decisions": [{"backend": "governor", "decision": "deny" if code else "permit"}],
            "budget_delta": {
                "operation": "reject" if code else "reserve",
                "resource": "tool_calls",
                "amount": mission.max_tool_calls,
                "unit": "invocations",
                "remaining_for_parent": session.left,
                "used_total": session.used,
                "reserved_total": session.reserved,
                "delegation_request_id": request,
            },
        }
        if code:
            step |= {"public_denial_reason": DENIALS[code][0], "internal_denial_code": code}
        arguments = {"request": request, "mission": to_builtins(mission)}
        return self._append(session, step, arguments, at)

    def _delegated_before(self, session: Session, known: Delegation, mission: Mission, at: At) -> Claims:
        if known.mission != mission:
            raise Refused("RequestConflict", "the delegation request id was used before, for another mission")
        child = self.sessions.get(known.child)
        refusal = self._refusal(session, at.now)
        if not refusal and child is not None and child.state == "revoked":
            refusal = child.cause
        if not refusal and known.child in self.revoked:
            refusal = "passport_revoked"
        if not refusal:
            refusal = (child.cause if child else "") or ("session_ended" if known.settled else "")
        return {
            "passport": self.grants[known.child].token,
            "child_id": known.child,
            "token": at.kept.tokens(session.id)[known.receipt],
            "repeated": True,
            "refusal": refusal,
        }

    def end(self, at: At, session_id: str) -> Steps:
        """End a session, and then its delegates."""
        session = self._found(session_id)
        self._look(session, at)
        self._close(session, "ended", "session_ended", at)
        if session.is_open:
            yield
            self._close_delegates(self.sessions[session_id], at)
        return self._over(session_id)

    def _over(self, session_id: str) -> Claims:
        session = self.sessions[session_id]
        return {"state": session.state, "cause": session.cause}

    def attest(self, at: At, session_id: str, *, end: bool) -> Steps:
        """Attest a session as it stands after it was looked at, or was ended first; sign that with the key of then."""
        if end:
            yield from self.end(at, session_id)
            yield
        yield from self.look(at, session_id)
        yield
        claims = self._attestation(self.sessions[session_id], at)
        yield
        claims["iss"] = f"remit:{self.key.kid}"
        self._draw(claims["jti"], "att:", 16, at)
        self._check_token(f"the attestation of {session_id}", ATTESTATION, at.answer["attestation"], claims)
        return {"attestation": at.answer["attestation"], "fault": None}

    def _attestation(self, session: Session, at: At) -> Claims:
        """Return the claims over a session, which must be those of the attestation but for who has signed it."""
        if "attestation" not in at.answer:
            raise Mismatch(f"{session.id} was to be attested: {at.answer}")
        given = _claims_of(at.answer["attestation"])
        chain, tokens = session.chain, at.kept.tokens(session.id)[: len(session.chain)]
        issued_at = max(at.now.wall_s, session.iat)
        permitted = [claims for claims in chain if "public_denial_reason" not in claims]
        denied = [claims["public_denial_reason"] for claims in chain if "public_denial_reason" in claims]
        claims: Claims = {
            "iss": given["iss"],
            "sub": session.grant.mission.agent_id,
            "iat": issued_at,
            "exp": issued_at + YEAR_S,
            "jti": given["jti"],
            "session_id": session.id,
            "mission": session.grant.mission.mission,
            "state": session.state,
            "started_at": _timestamp(session.started_ms),
            "ended_at": None if session.ended_ms is None else _timestamp(session.ended_ms),
            "receipts": len(chain),
            "verdicts": _counted(VERDICTS, [claims["verdict"] for claims in chain]),
            "tools": _counted((), [claims["tool"] for claims in chain]),
            "side_effects": _counted(SIDE_EFFECT_CLASSES, [claims["side_effect_class"] for claims in permitted]),
            "denials": _counted((), denied),
            "budget_used": {
                "tool_calls": session.used,
                "duration_s": max(0, session.lifetime_ms // 1000 - self._left_s(session, at.now)),
            },
            "first_receipt_id": chain[0]["receipt_id"] if chain else None,
            "last_receipt_id": chain[-1]["receipt_id"] if chain else None,
            "last_receipt_hash": sha256_hex(tokens[-1].encode()) if chain else None,
            "receipts_root": _root([token.encode() for token in tokens]).hex(),
            "chain_verified": True,
        }
        if claims != given:
            differ = {name: (claims.get(name), given.get(name)) for name in claims if claims[name] != given.get(name)}
            raise Mismatch(f"the attestation of {session.id}: expected and signed differ in {differ}")
        return claims

    def revoke_passport(self, at: At, passport_id: str) -> Steps:
        """Revoke a passport, then close what runs under it."""
        self.revoked.add(passport_id)
        yield
        session = self.sessions.get(passport_id)
        if session is None:
            for delegation in self.delegations:
                if delegation.child == passport_id and not delegation.settled:
                    self._settle(delegation, at)
            return {"state": None}
        self._close(session, "revoked", "passport_revoked", at)
        if session.is_open:
            yield
            self._close_delegates(self.sessions[passport_id], at)
        return self._over(passport_id)

    def revoke_session(self, at: At, session_id: str, *, lineage: bool) -> Steps:
        """Revoke a session, or its whole lineage."""
        first = self.sessions.get(session_id)
        if first is None:
            raise Refused("SessionNotFound")
        while lineage and first.grant.parent is not None:
            first = self.sessions[first.grant.parent]
        name = first.id
        self._look(first, at)
        self._close(first, "revoked", "session_revoked", at)
        self.revoked.add(name)
        if first.is_open:
            yield
            self._close_delegates(self.sessions[name], at)
        return self._over(session_id)

    def turn_kill_switch(self, at: At, *, on: bool) -> Steps:
        """Turn the kill switch, then close every session."""
        self.kill_switch = on
        active = [name for name, it in self.sessions.items() if it.state == "active"] if on else []
        if on:
            self.killed |= self.sessions.keys()
        self._check_answer({"revoked": len(active)}, at)
        if active:
            yield
            for name in list(self.sessions):
                session = self.sessions[name]
                if session.state == "active":
                    self._close(session, "revoked", "kill_switch", at)
                    self._close_delegates(session, at)
        return {"revoked": len(active)}

    def rotate(self, at: At) -> Steps:
        """Go on with the next key."""
        yield from ()
        self.key = at.answer["key"]
        return {"key": self.key}


def _failed(name: str, message: str) -> Claims:
    """Return the outcome of an operation that fails although what it found out is kept."""
    return {"error": name, "message": message}


def _counted(names: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """Return how often each is found; those of `names` also where they are not."""
    counts = dict.fromkeys(names, 0)
    for name in found:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _root(entries: Sequence[bytes]) -> bytes:
    """Return the root of the Merkle tree over entries, as RFC 9162 defines it."""
    if len(entries) <= 1:
        return sha256(b"\x00" + entries[0] if entries else b"").digest()
    half = 1
    while half * 2 < len(entries):
        half *= 2
    return sha256(b"\x01" + _root(entries[:half]) + _root(entries[half:])).digest()


def _names(chain: Iterable[Claims]) -> Iterable[str]:
    return (claims["receipt_id"] for claims in chain)


def _stopwatch() -> float:
    return 0.0


def _timestamp(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000:03d}Z"


def _parse_timestamp(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@lru_cache(maxsize=4096)
def _claims_of(token: str) -> Claims:
    return parse_object(decode_base64url(token.split(".")[1]))


@dataclass(frozen=True)
class Operation:
    """An operation that was done: what this evaluator does for it, and what was answered.

    Operations with the same `turn` were handed over together to one process: their first steps are taken in this order.
    Those of an earlier `phase` were over before those of a later one were decided.
    """

    steps: Callable[[Slow], Callable[..., Steps]]
    arguments: Mapping[str, Any]
    now: Moment
    answer: Claims
    turn: str = ""
    phase: int = 0
    # The session that a process looks at first if it sees it for the first time.
    looks_at: str = ""


class _Run:
    """One operation under way."""

    def __init__(self, slow: Slow, operation: Operation, kept: Kept) -> None:
        self.operation = operation
        self.at = At(operation.now, kept, operation.answer)
        self.steps = operation.steps(slow)(self.at, **operation.arguments)
        self.has_looked = not operation.looks_at
        self.looking: Steps | None = None
        self.taken = 0
        self.done = False

    @property
    def progress(self) -> object:
        """What tells how far it is."""
        return self.taken, self.has_looked, self.looking is None

    def look(self, slow: Slow) -> None:
        """Begin to look at the session, before the first step; this may take steps of its own."""
        self.has_looked = True
        self.looking = slow.look(self.at, self.operation.looks_at)
        self.advance(slow)

    def advance(self, slow: Slow) -> None:
        """Take the next step; after the last one, the answer must be the one that was given."""
        self.taken += 1
        before = slow.copy()
        if self.looking is not None:
            try:
                next(self.looking)
            except StopIteration:
                self.looking = None
            except Refused:
                self.looking = None
                slow.__dict__.update(before.__dict__)
            return
        try:
            next(self.steps)
        except StopIteration as end:
            expected: Claims = end.value
        except Refused as refused:
            slow.__dict__.update(before.__dict__)
            expected = _failed(refused.name, refused.message)
        else:
            return
        self.done = True
        if expected != self.operation.answer:
            raise Mismatch(f"{self.operation}: expected the answer {expected}")


def explain(before: Slow, operations: Sequence[Operation], kept: Kept, rows: Mapping[str, Claims]) -> Slow:
    """Return what is known after these operations, in an order that explains all answers and everything that is kept.

    Each operation takes its steps in order. The order that is tried first is that of groups: the first step of every
    operation, then the second of those that have one.
    """
    waiting: list[tuple[int, ...]] = [()]
    failures: list[tuple[int, Mismatch]] = []
    visited: set[object] = set()
    while waiting and len(failures) < MAX_EXPLORED:
        order = waiting.pop()
        slow = before.copy()
        runs = [_Run(slow, operation, kept) for operation in operations]
        try:
            for number in order:
                _take(slow, runs, number)
            while numbers := _next(runs):
                reached = slow.fingerprint(), *(run.progress for run in runs)
                if reached in visited:
                    break  # another order led here, and nowhere
                visited.add(reached)
                waiting += [(*order, number) for number in reversed(numbers[1:])]
                order = (*order, numbers[0])
                _take(slow, runs, numbers[0])
            else:
                _check_rows(slow, rows, kept)
                return slow
        except Mismatch as mismatch:
            failures.append((len(order), mismatch))
    raise max(failures, key=lambda it: it[0])[1]


def _next(runs: Sequence[_Run]) -> list[int]:
    """Return which operations may take a step, the best guess first; negative where they look at their session."""
    numbers = []
    phase = min((run.operation.phase for run in runs if not run.done), default=0)
    for number, run in enumerate(runs):
        if run.operation.phase != phase:
            continue
        turn = run.operation.turn
        follows = turn and any(it.operation.turn == turn and not it.taken for it in runs[:number])
        if not run.done and not (follows and not run.taken):
            numbers.append(number)
    numbers.sort(key=lambda number: runs[number].taken)
    # One that may look at its session most probably does, because it is seen for the first time.
    looking = {number for number in numbers if not runs[number].has_looked and not runs[number].taken}
    guesses = [~number if number in looking else number for number in numbers]
    return guesses + [number for number in numbers if number in looking]


def _take(slow: Slow, runs: Sequence[_Run], number: int) -> None:
    if number < 0:
        runs[~number].look(slow)
    else:
        runs[number].advance(slow)


def _check_rows(slow: Slow, rows: Mapping[str, Claims], kept: Kept) -> None:
    """Raise unless the rows of the sessions say the same, no receipt is left over, and the same key signs."""
    if slow.key.kid != kept.kid():
        raise Mismatch(f"expected that {slow.key.kid} signs, and it is {kept.kid()}")
    expected = {name: session.row() for name, session in slow.sessions.items()}
    for name in sorted(expected.keys() | rows.keys()):
        if expected.get(name) != rows.get(name):
            raise Mismatch(f"session {name}: expected {expected.get(name)}, kept {rows.get(name)}")
        if len(kept.tokens(name)) != len(slow.sessions[name].chain):
            raise Mismatch(f"session {name} has receipts that nothing explains: {kept.tokens(name)}")
