"""Ending the sessions of a protection whose enforcement was tampered with.

A session that is ended here is revoked with the cause `protection_tampered`. No hook event starts another one for the
same assistant session: its calls are denied, each with a receipt. Only `remit protect`, run by a person, lets the
assistant session begin again. When sessions are to be ended is decided by the settings monitor of the Hub.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from remit.governor.assistants import Begin
from remit.governor.audiences import HOOK_KEY
from remit.governor.closing import finish
from remit.governor.leads import tampered_name
from remit.governor.lifecycle import MAX_CLOSED, MOVES, close, looked_at
from remit.governor.means import Means
from remit.governor.sessions import found
from remit.governor.sources import Reporter
from remit.ledger.port import Reader, Transaction
from remit.ledger.records import Session

__all__ = ["TAMPERED", "EndReporter", "EndTampered"]

# The cause of sessions that were ended here.
TAMPERED: Final = MOVES["tamper"].code
_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True)
class EndTampered:
    """End every active session that reports under a protection, with its delegates; returns their ids.

    What was protected up to this generation does not let them begin again: only a later one does.
    """

    protection: str
    generation: int = 0

    async def run(self, means: Means) -> tuple[str, ...]:
        """Find the active sessions of the protection, and close them in batches."""
        active: list[str] = await means.transact(lambda transaction: list(transaction.active_sessions()), alone=True)
        ours: list[str] = await means.aside(lambda: [one for one in active if _reports_under(means.reader, one, self)])
        for start in range(0, len(ours), MAX_CLOSED):
            batch = ours[start : start + MAX_CLOSED]
            await _close_all(means, batch, self.generation)
        return tuple(ours)


@dataclass(frozen=True)
class EndReporter:
    """End the session of one assistant session; one that has none yet gets one, so that denials have receipts."""

    reporter: Reporter

    async def run(self, means: Means) -> str:
        """Return the session, which is not active any more."""
        name = await Begin(self.reporter).run(means)
        await _close_all(means, [name], self.reporter.generation)
        return name


def _reports_under(reader: Reader, session_id: str, wanted: EndTampered) -> bool:
    source = reader.source_of(session_id)
    if source is None or not source.key.startswith(HOOK_KEY):
        return False
    try:
        return _decode(source.told).get("protection") == wanted.protection
    except msgspec.DecodeError:
        return False


async def _close_all(means: Means, names: list[str], generation: int) -> None:
    """Close sessions in one transaction, and then their delegates, a bounded number at a time."""

    def work(transaction: Transaction) -> list[Session]:
        now = means.now
        sessions = [looked_at(means, transaction, found(transaction, name), now) for name in names]
        for name in names:
            source = transaction.source_of(name)
            if source is not None:
                tampered = tampered_name(source.key, generation)
                transaction.put_revocation(tampered, at_ms=now.wall_ms, reason=TAMPERED)
        return [close(means, transaction, session, MOVES["tamper"], now) for session in sessions]

    closed: list[Session] = await means.transact(work, alone=True)
    for session in closed:
        await finish(means, session)
