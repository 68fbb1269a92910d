"""What a ledger holds of the sessions of one assistant, chains verified before anything in them is believed.

Who reports to a session is not signed: it only says where to look. What counts is in the receipts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from remit.assistants.reconcile.coverage import Decided, decided_in
from remit.assistants.records import Protection
from remit.claims.chain import Head, walk_chain
from remit.claims.keys import Keyring
from remit.claims.receipt import SignedReceipt, verify_receipt
from remit.errors import BrokenChain, TokenError
from remit.governor.leads import generation_of
from remit.governor.tampering import TAMPERED
from remit.ledger.port import Reader
from remit.ledger.records import Session

__all__ = [
    "BYPASSES",
    "Governed",
    "Held",
    "Recent",
    "ended_for_tampering",
    "governed_sessions",
    "held_of",
    "recent",
    "refusal_in",
]

# What is signed when a call was made without being asked for, or although it was refused.
BYPASSES: Final = ("run_unasked", "denied_but_run")

_PAGE: Final = 500
_SECOND: Final = len("2000-01-01T00:00:00")
_told_in: Final = msgspec.json.Decoder(dict[str, str]).decode


class Governed(NamedTuple):
    """One session of an assistant: its own name of it, the protection, and the chains that were kept of it."""

    name: str
    protection: str
    # That of the assistant itself first, then those of its subagents.
    sessions: tuple[Session, ...]
    # That of the protection when the last of them was started.
    generation: int = 0

    @property
    def started_ms(self) -> int:
        """Return when it was first heard of."""
        return min(session.started_ms for session in self.sessions)

    @property
    def has_permitted(self) -> bool:
        """Tell whether anything was permitted in it."""
        return any(session.used for session in self.sessions)


class Recent(NamedTuple):
    """What the last receipts say of an assistant."""

    # The ids of receipts that say a call got past its hooks.
    bypassed: tuple[str, ...]
    # In which permission modes calls were made.
    modes: frozenset[str]


class Held(NamedTuple):
    """The decisions of one session, and the codes of findings; `broken` says which chains do not verify."""

    decisions: tuple[Decided, ...]
    broken: tuple[str, ...]


def governed_sessions(reader: Reader, assistant: str) -> list[Governed]:
    """Return the sessions of an assistant that the ledger knows, oldest first."""
    children = dict[str, list[Session]]()
    for session in _all_sessions(reader):
        if session.parent is not None:
            children.setdefault(session.parent, []).append(session)
    found = dict[tuple[str, str], list[Session]]()
    generations = dict[tuple[str, str], int]()
    for session, told in _reported(reader):
        if told.get("app") == assistant and told.get("id"):
            key = (told["id"], told.get("protection", ""))
            found.setdefault(key, []).extend(_with_children(session, children))
            generations[key] = generation_of(told)
    return [Governed(*key, tuple(sessions), generations[key]) for key, sessions in found.items()]


def ended_for_tampering(governed: Iterable[Governed], protection: Protection) -> list[Session]:
    """Return the sessions of a protection that were ended for tampering since a person last protected the assistant."""
    ours = (one for one in governed if one.protection == protection.id and one.generation >= protection.generation)
    return [session for one in ours for session in one.sessions if session.cause == TAMPERED]


def _all_sessions(reader: Reader) -> Iterator[Session]:
    after = 0
    while page := reader.sessions(after=after, limit=_PAGE):
        yield from page
        after = page[-1].number


def _reported(reader: Reader) -> Iterator[tuple[Session, Mapping[str, str]]]:
    after = 0
    while page := reader.sources(after=after, limit=_PAGE):
        for session, source in page:
            try:
                yield session, _told_in(source.told)
            except msgspec.DecodeError:
                continue  # nothing signs it, so it may be anything; the session is none of an assistant then
        after = page[-1][0].number


def _with_children(session: Session, children: Mapping[str, list[Session]]) -> Iterator[Session]:
    waiting = [session]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += children.get(one.id, [])


def held_of(reader: Reader, governed: Iterable[Governed], assistant: str, keyring: Keyring) -> Held:
    """Return the decisions of sessions, up to where each chain verifies."""
    decisions, broken = list[Decided](), list[str]()
    for one in governed:
        for session in one.sessions:
            chain, whole = _verified(reader, session, keyring)
            decisions += decided_in(chain, assistant, one.name)
            if not whole:
                broken.append(session.id)
    return Held(tuple(decisions), tuple(broken))


def _verified(reader: Reader, session: Session, keyring: Keyring) -> tuple[list[SignedReceipt], bool]:
    """Return the receipts of a chain as far as they verify, and whether that is all that the session says."""
    chain, head = list[SignedReceipt](), None
    try:
        for receipt, reached in walk_chain(_tokens(reader, session), keyring):
            chain.append(receipt)
            head = reached
    except BrokenChain:
        return chain, False
    return chain, _ends(head, session)


def _ends(head: Head | None, session: Session) -> bool:
    reached = (head.lineage.grant_id, head.length, head.receipt_hash) if head else (session.id, 0, None)
    return reached == (session.id, session.length, session.receipt_hash)


def _tokens(reader: Reader, session: Session) -> Iterator[str]:
    """Yield the tokens of a session up to where it stood when it was read: it may go on meanwhile."""
    after = 0
    while after < session.length:
        page = reader.receipts(session.id, after=after, limit=min(_PAGE, session.length - after))
        if not page:
            return
        yield from (kept.token for kept in page)
        after = page[-1].seq


def recent(reader: Reader, governed: Iterable[Governed], assistant: str, keyring: Keyring, since: str) -> Recent:
    """Return what the last receipts say of an assistant, from a moment on; those that do not verify say nothing."""
    sessions = {session.id for one in governed for session in one.sessions}
    kept = [numbered.kept for code in BYPASSES for numbered in reader.denials(code, limit=_PAGE)]
    found = [receipt for one in kept if one.session_id in sessions for receipt in _genuine(one.token, keyring)]
    bypassed = (one.claims.receipt_id for one in found if one.claims.timestamp[:_SECOND] >= since[:_SECOND])
    last = [one.kept for one in reader.latest(limit=_PAGE) if one.kept.session_id in sessions]
    decisions = decided_in((receipt for one in last for receipt in _genuine(one.token, keyring)), assistant, "")
    return Recent(tuple(bypassed), frozenset(one.mode for one in decisions if one.mode))


def refusal_in(reader: Reader, receipt_id: str, keyring: Keyring, tool: str) -> str | None:
    """Return the session of a receipt that verifies and refuses a call of this tool; None if there is no such one."""
    kept = reader.receipt(receipt_id)
    for one in _genuine(kept.token, keyring) if kept else ():
        if (one.claims.receipt_id, one.claims.tool) == (receipt_id, tool) and one.claims.verdict != "compliant":
            return one.claims.grant_id
    return None


def _genuine(token: str, keyring: Keyring) -> Iterator[SignedReceipt]:
    try:
        yield verify_receipt(token, keyring)
    except TokenError:
        return
