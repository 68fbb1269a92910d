"""Reads the sessions and decisions of one assistant from the ledger. Receipt chains are verified before use.

The source of a session is not signed, and is used only to find its receipts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from remit.assistants.reconcile.coverage import SignedDecision, find_decisions
from remit.assistants.records import Protection
from remit.claims.chain import Head, walk_chain
from remit.claims.keys import Keyring
from remit.claims.receipt import SignedReceipt, verify_receipt
from remit.errors import BrokenChain, TokenError
from remit.governor.assistant_sessions import read_generation
from remit.governor.tampering import TAMPERED
from remit.ledger.records import Session
from remit.ledger.store import LedgerReader

# Denial codes of receipts about calls that ran without a decision, or after a denial.
BYPASSES: Final = ("run_unasked", "denied_but_run")

_PAGE: Final = 500
_SECOND: Final = len("2000-01-01T00:00:00")
_decode_source: Final = msgspec.json.Decoder(dict[str, str]).decode


class GovernedSession(NamedTuple):
    """One session of an assistant."""

    # The session id that the assistant uses.
    name: str
    protection: str
    # The sessions in the ledger: that of the main agent first, then those of its subagents.
    sessions: tuple[Session, ...]
    # The generation of the protection when the last of them was started.
    generation: int = 0

    @property
    def started_ms(self) -> int:
        """Return the start of the earliest session, in milliseconds."""
        return min(session.started_ms for session in self.sessions)

    @property
    def has_permitted(self) -> bool:
        """Return whether any call was permitted in it."""
        return any(session.used for session in self.sessions)


class RecentFindings(NamedTuple):
    """Findings in the most recent receipts of an assistant."""

    # The ids of receipts about calls that bypassed the hooks.
    bypassed: tuple[str, ...]
    # The permission modes in which calls were made.
    modes: frozenset[str]


class LedgerDecisions(NamedTuple):
    """The decisions in a set of sessions."""

    decisions: tuple[SignedDecision, ...]
    # The ids of sessions whose chain does not verify.
    broken: tuple[str, ...]


def load_governed_sessions(reader: LedgerReader, assistant: str) -> list[GovernedSession]:
    """Return the sessions of an assistant in the ledger, oldest first."""
    children = dict[str, list[Session]]()
    for session in _all_sessions(reader):
        if session.parent is not None:
            children.setdefault(session.parent, []).append(session)
    found = dict[tuple[str, str], list[Session]]()
    generations = dict[tuple[str, str], int]()
    for session, source in _sources(reader):
        if source.get("app") == assistant and source.get("id"):
            key = (source["id"], source.get("protection", ""))
            found.setdefault(key, []).extend(_with_children(session, children))
            generations[key] = read_generation(source)
    return [GovernedSession(*key, tuple(sessions), generations[key]) for key, sessions in found.items()]


def find_ended_for_tampering(governed: Iterable[GovernedSession], protection: Protection) -> list[Session]:
    """Return the sessions of a protection that were ended for tampering since `remit protect` was last run."""
    current = (one for one in governed if one.protection == protection.id and one.generation >= protection.generation)
    return [session for one in current for session in one.sessions if session.cause == TAMPERED]


def _all_sessions(reader: LedgerReader) -> Iterator[Session]:
    after = 0
    while page := reader.sessions(after=after, limit=_PAGE):
        yield from page
        after = page[-1].number


def _sources(reader: LedgerReader) -> Iterator[tuple[Session, Mapping[str, str]]]:
    after = 0
    while page := reader.sources(after=after, limit=_PAGE):
        for session, source in page:
            try:
                yield session, _decode_source(source.told)
            except msgspec.DecodeError:
                continue  # it is not signed, so it may be anything; such a session is not one of an assistant
        after = page[-1][0].number


def _with_children(session: Session, children: Mapping[str, list[Session]]) -> Iterator[Session]:
    pending = [session]
    while pending:
        one = pending.pop()
        yield one
        pending += children.get(one.id, [])


def load_decisions(
    reader: LedgerReader, governed: Iterable[GovernedSession], assistant: str, keyring: Keyring
) -> LedgerDecisions:
    """Return the decisions in sessions, from the part of each chain that verifies."""
    decisions, broken = list[SignedDecision](), list[str]()
    for one in governed:
        for session in one.sessions:
            chain, is_whole = _verify_chain(reader, session, keyring)
            decisions += find_decisions(chain, assistant, one.name)
            if not is_whole:
                broken.append(session.id)
    return LedgerDecisions(tuple(decisions), tuple(broken))


def _verify_chain(reader: LedgerReader, session: Session, keyring: Keyring) -> tuple[list[SignedReceipt], bool]:
    """Return the receipts of a chain as far as they verify, and whether the whole chain does."""
    chain, head = list[SignedReceipt](), None
    try:
        for receipt, reached in walk_chain(_tokens(reader, session), keyring):
            chain.append(receipt)
            head = reached
    except BrokenChain:
        return chain, False
    return chain, _matches_head(head, session)


def _matches_head(head: Head | None, session: Session) -> bool:
    reached = (head.lineage.grant_id, head.length, head.receipt_hash) if head else (session.id, 0, None)
    return reached == (session.id, session.length, session.receipt_hash)


def _tokens(reader: LedgerReader, session: Session) -> Iterator[str]:
    """Yield the receipt tokens of a session, up to the length that it had when it was read."""
    after = 0
    while after < session.length:
        page = reader.receipts(session.id, after=after, limit=min(_PAGE, session.length - after))
        if not page:
            return
        yield from (kept.token for kept in page)
        after = page[-1].seq


def load_recent_findings(
    reader: LedgerReader, governed: Iterable[GovernedSession], assistant: str, keyring: Keyring, since: str
) -> RecentFindings:
    """Return findings in the most recent receipts of an assistant that verify.

    Bypassed calls before `since` are left out; it does not apply to the permission modes.
    """
    sessions = {session.id for one in governed for session in one.sessions}
    kept = [numbered.kept for code in BYPASSES for numbered in reader.denials(code, limit=_PAGE)]
    found = [receipt for one in kept if one.session_id in sessions for receipt in _verify_receipts(one.token, keyring)]
    bypassed = (one.claims.receipt_id for one in found if one.claims.timestamp[:_SECOND] >= since[:_SECOND])
    last = [one.kept for one in reader.latest_receipts(limit=_PAGE) if one.kept.session_id in sessions]
    decisions = find_decisions(
        (receipt for one in last for receipt in _verify_receipts(one.token, keyring)), assistant, ""
    )
    return RecentFindings(tuple(bypassed), frozenset(one.mode for one in decisions if one.mode))


def find_denial(reader: LedgerReader, receipt_id: str, keyring: Keyring, tool: str) -> str | None:
    """Return the session of a receipt, if it verifies and denies a call of this tool; else None."""
    kept = reader.receipt(receipt_id)
    for one in _verify_receipts(kept.token, keyring) if kept else ():
        if (one.claims.receipt_id, one.claims.tool) == (receipt_id, tool) and one.claims.verdict != "compliant":
            return one.claims.grant_id
    return None


def _verify_receipts(token: str, keyring: Keyring) -> Iterator[SignedReceipt]:
    try:
        yield verify_receipt(token, keyring)
    except TokenError:
        return
