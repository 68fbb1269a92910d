"""Revoking the sessions of a protection whose settings were tampered with.

The sessions are revoked with the cause `protection_tampered`. No hook event starts another one for the same assistant
session: its calls are denied, each with a receipt. Only `remit protect`, run by a person, allows a new session. The
settings monitor of the Hub decides when to revoke.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from remit.governor.assistant_sessions import tampering_key
from remit.governor.assistants import BeginAssistantSession
from remit.governor.audiences import HOOK_KEY
from remit.governor.closing import close_all_delegates
from remit.governor.context import Context
from remit.governor.lifecycle import MAX_CLOSED, TRANSITIONS, close, refresh
from remit.governor.sessions import get_session
from remit.governor.sources import Reporter
from remit.ledger.records import Session
from remit.ledger.store import LedgerReader, Transaction

# The cause of sessions that were revoked here.
TAMPERED: Final = TRANSITIONS["tamper"].code
_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True)
class RevokeTamperedSessions:
    """Revoke every active session of a protection, with its delegates; return their ids.

    They can be continued only in a later generation of the protection.
    """

    protection: str
    generation: int = 0

    async def run(self, context: Context) -> tuple[str, ...]:
        """Find the active sessions of the protection, and close them in batches."""
        active: list[str] = await context.transact(lambda transaction: list(transaction.active_sessions()), alone=True)
        ours: list[str] = await context.to_thread(
            lambda: [one for one in active if _reports_under(context.reader, one, self)]
        )
        for start in range(0, len(ours), MAX_CLOSED):
            batch = ours[start : start + MAX_CLOSED]
            await _close_all(context, batch, self.generation)
        return tuple(ours)


@dataclass(frozen=True)
class EndReporterSession:
    """Revoke the session of a reporter; if there is none, one is started first, so that denials have receipts."""

    reporter: Reporter

    async def run(self, context: Context) -> str:
        """Return the id of the revoked session."""
        name = await BeginAssistantSession(self.reporter).run(context)
        await _close_all(context, [name], self.reporter.generation)
        return name


def _reports_under(reader: LedgerReader, session_id: str, wanted: RevokeTamperedSessions) -> bool:
    source = reader.source_of(session_id)
    if source is None or not source.key.startswith(HOOK_KEY):
        return False
    try:
        return _decode(source.told).get("protection") == wanted.protection
    except msgspec.DecodeError:
        return False


async def _close_all(context: Context, names: list[str], generation: int) -> None:
    """Close sessions in one transaction, and then their delegates, a bounded number at a time."""

    def work(transaction: Transaction) -> list[Session]:
        now = context.now
        sessions = [refresh(context, transaction, get_session(transaction, name), now) for name in names]
        for name in names:
            source = transaction.source_of(name)
            if source is not None:
                tampered = tampering_key(source.key, generation)
                transaction.put_revocation(tampered, at_ms=now.wall_ms, reason=TAMPERED)
        return [close(context, transaction, session, TRANSITIONS["tamper"], now) for session in sessions]

    closed: list[Session] = await context.transact(work, alone=True)
    for session in closed:
        await close_all_delegates(context, session)
