"""What a governor must do, said again in the simplest way: dictionaries, one clock, no receipts, no ledger.

The model knows how sessions stand and what is left of their budgets. Expiry is found at a touch, so a session whose
time is over may still be called active until somebody looks.
"""

from dataclasses import dataclass, field

from remit.claims.passport import MAX_SKEW_S, Passport

__all__ = ["Grant", "Model", "Run"]


@dataclass
class Grant:
    """A passport, and where its calls come from if it is a delegate's."""

    id: str
    token: str
    not_before: int
    expires_at: int
    calls: int
    duration_s: int
    parent: str | None = None
    request: str = ""
    settled: bool = False

    @classmethod
    def of(cls, passport: Passport, request: str = "") -> "Grant":
        """Return the grant of a passport."""
        return cls(
            id=passport.jti,
            token=passport.token,
            not_before=passport.not_before,
            expires_at=passport.expires_at,
            calls=passport.mission.max_tool_calls,
            duration_s=passport.mission.max_duration_s,
            parent=passport.parent_jti,
            request=request,
        )

    def good_at(self, wall_s: int) -> bool:
        """Tell whether the passport can be presented."""
        return self.not_before - MAX_SKEW_S <= wall_s < self.expires_at + MAX_SKEW_S


@dataclass
class Run:
    """A session."""

    grant: Grant
    started_mono_ms: int
    lifetime_ms: int
    state: str = "active"
    cause: str = ""
    used: int = 0
    reserved: int = 0

    @property
    def left(self) -> int:
        """The calls that are left."""
        return self.grant.calls - self.used - self.reserved


@dataclass
class Model:
    """All sessions."""

    grants: dict[str, Grant] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    kill_switch: bool = False

    def overdue(self, run: Run, mono_ms: int, wall_ms: int) -> bool:
        """Tell whether the time of a session is over."""
        return self.left_ms(run, mono_ms, wall_ms) <= 0

    def left_ms(self, run: Run, mono_ms: int, wall_ms: int) -> int:
        """Return how long a session may still last: by its duration, and until its passport ends on the wall."""
        return min(run.lifetime_ms - (mono_ms - run.started_mono_ms), run.grant.expires_at * 1000 - wall_ms)

    def refusal_to_start(self, grant: Grant, wall_ms: int, mono_ms: int) -> str:
        """Return the code of the error that a start meets, or nothing; a session whose time is over is found."""
        wall_s = wall_ms // 1000
        if wall_s < grant.not_before - MAX_SKEW_S:
            return "passport_not_yet_valid"
        if wall_s >= grant.expires_at + MAX_SKEW_S:
            return "passport_expired"
        if grant.id in self.runs:
            self.look(grant.id, mono_ms, wall_ms)
            refusals = {"revoked": "passport_revoked", "expired": "passport_expired"}
            return "passport_revoked" if grant.id in self.revoked else refusals.get(self.runs[grant.id].state, "")
        if self.kill_switch:
            return "kill_switch"
        if wall_s >= grant.expires_at and grant.id not in self.revoked:
            return "passport_expired"
        return "passport_revoked" if grant.id in self.revoked or grant.settled else ""

    def start(self, grant: Grant, wall_ms: int, mono_ms: int) -> None:
        """Start a session, or look at the one that is there."""
        if grant.id in self.runs:
            return self.look(grant.id, mono_ms, wall_ms)
        lifetime_ms = max(0, min(grant.duration_s * 1000, grant.expires_at * 1000 - wall_ms))
        if grant.parent is not None:
            lifetime_ms = min(lifetime_ms, max(0, self.left_ms(self.runs[grant.parent], mono_ms, wall_ms)))
        self.runs[grant.id] = Run(grant, mono_ms, lifetime_ms)
        return None

    def look(self, name: str, mono_ms: int, wall_ms: int) -> None:
        """Find that the time of a session is over."""
        run = self.runs[name]
        if run.state == "active" and self.overdue(run, mono_ms, wall_ms):
            self.close(name, "expired", "duration_exceeded")

    def close(self, name: str, state: str, cause: str) -> None:
        """Close a session and everything that was delegated from it."""
        run = self.runs[name]
        if run.state != "active":
            return
        for grant in self.open_grants(name):
            if grant.id in self.runs:
                self.close(grant.id, state, cause)
            else:
                self.settle(grant)
        run.state, run.cause = state, cause
        if run.grant.parent is not None:
            self.settle(run.grant)

    def open_grants(self, parent: str) -> list[Grant]:
        """Return what a session has delegated and not got back."""
        return [grant for grant in self.grants.values() if grant.parent == parent and not grant.settled]

    def settle(self, grant: Grant) -> None:
        """Give back what a delegate has not used."""
        if grant.settled or grant.parent is None:
            return
        grant.settled = True
        parent, used = self.runs[grant.parent], self.runs[grant.id].used if grant.id in self.runs else 0
        parent.reserved -= grant.calls
        parent.used += used

    def settle_overdue(self, name: str, wall_ms: int, mono_ms: int) -> None:
        """Get back what delegates hold whose time is over."""
        for grant in self.open_grants(name):
            if grant.id in self.runs:
                self.look(grant.id, mono_ms, wall_ms)
            elif wall_ms >= grant.expires_at * 1000:
                self.settle(grant)

    def answer(self, name: str, wall_ms: int, mono_ms: int, *, allowed: bool) -> str:
        """Count a call, and return the code that denies it, or nothing."""
        self.look(name, mono_ms, wall_ms)
        run = self.runs[name]
        if run.left <= 0 and run.reserved:
            self.settle_overdue(name, wall_ms, mono_ms)
        if run.cause:
            return run.cause
        if run.left <= 0:
            return "lineage_budget_exhausted" if run.used < run.grant.calls else "tool_calls_exhausted"
        if not allowed:
            return "tool_forbidden"
        run.used += 1
        return ""

    def reserve(self, name: str, calls: int, wall_ms: int, mono_ms: int) -> str:
        """Return why calls cannot be set aside for a delegate, or nothing. Sets nothing aside."""
        self.look(name, mono_ms, wall_ms)
        run = self.runs[name]
        if run.left < calls and run.reserved:
            self.settle_overdue(name, wall_ms, mono_ms)
        if run.cause:
            return run.cause
        return "lineage_budget_exhausted" if run.left < calls else ""

    def revoke_passport(self, name: str) -> None:
        """Revoke a passport, used or not."""
        self.revoked.add(name)
        if name in self.runs:
            self.close(name, "revoked", "passport_revoked")
        elif name in self.grants:
            self.settle(self.grants[name])

    def first_of(self, name: str) -> str:
        """Return the session that a lineage began with."""
        parent = self.runs[name].grant.parent
        return name if parent is None else self.first_of(parent)

    def used_below(self, name: str) -> int:
        """Return the calls that a session and all its delegates have made: what was given back is counted once."""
        return self.runs[name].used + sum(
            self.used_below(grant.id) for grant in self.open_grants(name) if grant.id in self.runs
        )
