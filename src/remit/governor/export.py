"""Exports the evidence as one JSON document, as a stream.

Memory use does not depend on the number of receipts: pages are read while the document is written. Each chain is
complete up to its head at the time its session was read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import orjson

from remit.claims.canonical import canonicalize
from remit.claims.keys import VerifyingKey
from remit.claims.strictjson import JSON
from remit.governor.clock import format_timestamp
from remit.ledger.records import Session, StoredReceipt
from remit.ledger.store import LedgerReader

_PAGE: Final = 500


def export_evidence(
    reader: LedgerReader,
    first: Mapping[str, JSON],
    session_id: str | None = None,
    *,
    view: Callable[[Session], Mapping[str, JSON]] | None = None,
    beside: Mapping[str, Callable[[Session], bytes | None]] | None = None,
) -> Iterator[bytes]:
    """Yield one JSON object: the members of `first`, then sessions, receipts, attestations and keys.

    With `session_id`, only that session is exported. `view` returns the members of a session. `beside` maps the names
    of additional lists to functions that return the JSON item of a session, or None.
    """
    session_json = view or session_view
    yield b"{" + b"".join(_member(name, value) + b"," for name, value in first.items())
    yield b'"sessions":['
    yield from _join(orjson.dumps(session_json(session)) for session in _sessions(reader, session_id))
    for name, item_of in (beside or {}).items():
        yield b"]," + orjson.dumps(name) + b":["
        yield from _join(item for one in _sessions(reader, session_id) if (item := item_of(one)) is not None)
    yield b'],"receipts":['
    yield from _join(
        orjson.dumps(stored.token) for session in _sessions(reader, session_id) for stored in _receipts(reader, session)
    )
    yield b'],"attestations":['
    yield from _join(
        orjson.dumps(token) for session in _sessions(reader, session_id) for token in reader.attestations(session.id)
    )
    records = reader.keys()
    keys: list[JSON] = [VerifyingKey.from_pem(record.public_pem.encode()).to_jwk() for record in records]
    changes: list[JSON] = [record.change for record in records if record.change]
    limits: list[JSON] = [record.token for record in reader.limits()]
    yield b"]," + _member("public_keys", {"keys": keys}) + b"," + _member("key_changes", changes)
    yield b"," + _member("key_limits", limits) + b"}"


def session_view(session: Session) -> dict[str, JSON]:
    """Return the public members of a session, without its passport."""
    return {
        "session_id": session.id,
        "agent_id": session.actor,
        "parent_session_id": session.parent,
        "state": session.state,
        "started_at": format_timestamp(session.started_ms),
        "ended_at": None if session.ended_ms is None else format_timestamp(session.ended_ms),
        "receipts": session.length,
        "last_receipt_id": session.receipt_id,
        "last_receipt_hash": session.receipt_hash,
        "verdicts": {
            "compliant": session.compliant,
            "violation": session.violation,
            "insufficient_evidence": session.insufficient_evidence,
        },
        "tool_calls": {"limit": session.limit, "used": session.used, "reserved": session.reserved},
    }


def _member(name: str, value: JSON) -> bytes:
    return orjson.dumps(name) + b":" + canonicalize(value)


def _join(items: Iterator[bytes]) -> Iterator[bytes]:
    comma = b""
    for item in items:
        yield comma + item
        comma = b","


def _sessions(reader: LedgerReader, session_id: str | None) -> Iterator[Session]:
    if session_id is not None:
        session = reader.session(session_id)
        yield from () if session is None else (session,)
        return
    after = 0
    while page := reader.sessions(after=after, limit=_PAGE):
        yield from page
        after = page[-1].number


def _receipts(reader: LedgerReader, session: Session) -> Iterator[StoredReceipt]:
    after = 0
    while page := reader.receipts(session.id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq
