"""Whose calls a session is for: those of a client that holds its passport, or those that a source reports.

Keeps this invariant: a session that a source reports to is used through that source alone. A client of the proxy that
knows its id, or has found its passport, gets nothing by it; and nothing is delegated from a session for observation.
Sessions of the first release are told apart by their source, because their passports all have the same audience.
"""

from typing import Final

from remit.claims.passport import OBSERVE_AUDIENCE, Passport
from remit.errors import AudienceMismatch
from remit.ledger.port import Reader
from remit.ledger.records import Session, Source

__all__ = ["HOOK_KEY", "check_client", "check_delegable"]

# What the keys of sources begin with that are hooks of an assistant: they decide on calls before these are made.
HOOK_KEY: Final = "hook:"


def check_client(reader: Reader, session: Session | None) -> None:
    """Raise unless a client that holds a passport may use the session, or there is none."""
    if session is not None and _source_of(reader, session) is not None:
        raise AudienceMismatch("the session belongs to what reports to the Hub, and is not used through the proxy")


def check_delegable(reader: Reader, session: Session, passport: Passport) -> None:
    """Raise if the session only records what was observed: there is no authority in it to delegate."""
    source = _source_of(reader, session)
    if passport.audience == OBSERVE_AUDIENCE or (source is not None and not source.key.startswith(HOOK_KEY)):
        raise AudienceMismatch("the session only records what was observed: nothing is delegated from it")


def _source_of(reader: Reader, session: Session) -> Source | None:
    """Return who reports to the session that a lineage began with."""
    while session.parent is not None:
        parent = reader.session(session.parent)
        if parent is None:
            break
        session = parent
    return reader.source_of(session.id)
