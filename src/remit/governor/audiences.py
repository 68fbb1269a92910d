"""Checks who may use a session: a client that has its passport, or the source that reports to it.

Invariant: a session that has a source is used through that source only. A client of the proxy that knows its id or its
passport cannot use it; and nothing is delegated from a session that only records observations. Sessions of the first
release are distinguished by their source, because their passports all have the same audience.
"""

from typing import Final

from remit.claims.passport import OBSERVE_AUDIENCE, Passport
from remit.errors import AudienceMismatch
from remit.ledger.records import Session, Source
from remit.ledger.store import LedgerReader

# The prefix of source keys of assistant hooks, whose calls are decided on before they are made.
HOOK_KEY: Final = "hook:"


def check_client(reader: LedgerReader, session: Session | None) -> None:
    """Raise `AudienceMismatch` if the session has a source, so that clients of the proxy may not use it."""
    if session is not None and _find_source(reader, session) is not None:
        raise AudienceMismatch(
            "the session belongs to a source that reports to the Hub; it cannot be used by the proxy"
        )


def check_delegable(reader: LedgerReader, session: Session, passport: Passport) -> None:
    """Raise `AudienceMismatch` if the session only records observations, so there is nothing to delegate."""
    source = _find_source(reader, session)
    if passport.audience == OBSERVE_AUDIENCE or (source is not None and not source.key.startswith(HOOK_KEY)):
        raise AudienceMismatch("the session only records observations: nothing can be delegated from it")


def _find_source(reader: LedgerReader, session: Session) -> Source | None:
    """Return the source of the root session of a lineage, or None."""
    while session.parent is not None:
        parent = reader.session(session.parent)
        if parent is None:
            break
        session = parent
    return reader.source_of(session.id)
