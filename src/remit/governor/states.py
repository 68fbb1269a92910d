"""The states of a session and the moves between them, and how a session stands at a moment.

`active` is the only state that can be left; the others are final. Nothing here writes: `lifecycle.py` does.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import structs

from remit.claims.attestation import SessionState
from remit.governor.clock import Moment, elapsed_between
from remit.ledger.records import Session, Switches
from remit.policy.budget import Account, Budget
from remit.policy.engines import Standing

__all__ = [
    "MOVES",
    "QUARANTINED",
    "Move",
    "account_of",
    "duration_left_s",
    "left_ms",
    "move_of",
    "same_answer",
    "standing_of",
    "touched",
]


class Move(NamedTuple):
    """What takes a session out of its active state: the state it leads to, and the code that calls then get."""

    state: SessionState
    code: str


MOVES: Final[Mapping[str, Move]] = {
    "end": Move("ended", "session_ended"),
    "expire": Move("expired", "duration_exceeded"),
    "revoke_passport": Move("revoked", "passport_revoked"),
    "revoke_session": Move("revoked", "session_revoked"),
    "kill": Move("revoked", "kill_switch"),
    "tamper": Move("revoked", "protection_tampered"),
}


# Not a move: the session stays active, and all its calls are denied.
QUARANTINED: Final = "chain_broken"


def move_of(session: Session) -> Move:
    """Return what has ended a session that is over. A broken chain is its cause alone, not that of its delegates."""
    if session.cause != QUARANTINED:
        return Move(session.state, session.cause)
    return MOVES["end" if session.state == "ended" else "expire"]


def touched(session: Session, now: Moment) -> Session:
    """Return the session with its time counted up to `now`. Whether that is too long, `duration_left_s` tells.

    Requests are not committed in the order in which they came: time that a later one has counted is not counted twice.
    """
    if session.state != "active" or (session.seen_boot == now.boot and now.mono_ms < session.seen_mono_ms):
        return session
    passed = elapsed_between(session.seen_boot, session.seen_mono_ms, session.seen_wall_ms, now)
    return structs.replace(
        session,
        elapsed_ms=session.elapsed_ms + passed,
        seen_boot=now.boot,
        seen_mono_ms=now.mono_ms,
        # Never backwards: no receipt may be dated before the one that was made at this moment.
        seen_wall_ms=max(session.seen_wall_ms, now.wall_ms),
    )


def left_ms(session: Session) -> int:
    """Return how long a session may still last, as of when it was touched: by its duration and its passport's end."""
    return max(0, min(session.lifetime_ms - session.elapsed_ms, session.expires_ms - session.seen_wall_ms))


def duration_left_s(session: Session) -> int:
    """Return the seconds that are left, the last one begun counted whole: none are left when the time is over."""
    left = min(session.lifetime_ms - session.elapsed_ms, session.expires_ms - session.seen_wall_ms)
    return -(-left // 1000) if left > 0 else 0


def account_of(session: Session) -> Account:
    """Return the account of tool calls."""
    return Account(session.limit, session.used, session.reserved)


def standing_of(session: Session, switches: Switches, *, above: str = "") -> Standing:
    """Return how a session stands that was touched just now; `above` is the code by which its lineage has ended it."""
    calls = max(0, session.limit - session.used - session.reserved)
    left = duration_left_s(session)
    refusal = session.cause
    if not refusal:
        if above:
            refusal = above
        elif switches.kill_switch or 0 < session.number <= switches.killed_up_to:
            refusal = MOVES["kill"].code
        elif left <= 0:
            refusal = MOVES["expire"].code
    return Standing(session.id, Budget(calls, left, own_calls=session.used >= session.limit), refusal)


def same_answer(judged: Standing, actual: Standing, *, exactly: bool) -> bool:
    """Tell whether a call judged under one standing would be answered alike under the other.

    The passport's own rules only ask whether anything is left; engines that are shown how many calls are left need to
    see them `exactly`. A second more or less is no other answer: judging takes time.
    """
    if exactly and judged.budget.tool_calls != actual.budget.tool_calls:
        return False
    return (
        judged.refusal == actual.refusal
        and (judged.budget.tool_calls > 0) == (actual.budget.tool_calls > 0)
        and (actual.budget.tool_calls > 0 or judged.budget.own_calls == actual.budget.own_calls)
    )
