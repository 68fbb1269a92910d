"""The export of the Hub: everything in the ledger as one JSON document, streamed.

Memory use does not grow with the number of receipts. Stored values that do not verify are left out of the summaries;
the tokens themselves are always exported.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import orjson
from msgspec import json, structs, to_builtins

from remit.claims.strictjson import JSON
from remit.errors import StateCorrupt
from remit.governor.clock import format_timestamp
from remit.governor.context import Context
from remit.governor.export import export_evidence, session_view
from remit.hub.answers import receipt_answer, verify_stored_receipt
from remit.hub.reviews import load_review, review_answer, source_members
from remit.hub.status import HubInfo, SourceActivity, build_status
from remit.ledger.records import Session
from remit.schemas.hub import SCHEMA_VERSION


def export_hub(context: Context, info: HubInfo, activity: SourceActivity) -> Iterator[bytes]:
    """Yield the parts of the JSON document."""
    first: Mapping[str, JSON] = {
        "ok": True,
        "schema_version": SCHEMA_VERSION,
        "exported_at": format_timestamp(context.clock.now().wall_ms),
        "status": to_builtins(build_status(context, info, activity)),
    }
    beside = {"session_reviews": partial(_review, context), "latest_receipts": partial(_latest_receipt, context)}
    return export_evidence(context.reader, first, view=partial(_session, context), beside=beside)


def _session(context: Context, session: Session) -> Mapping[str, JSON]:
    """Return the exported members of a session; with its source, if it has one."""
    view = session_view(session) | {"ardur_session_id": session.id, "mission": _mission(context, session)}
    review = load_review(context, session.id)
    if review is None:
        return view
    return view | {"source": source_members(review.details), "title": review.details.get("title")}


def _mission(context: Context, session: Session) -> str | None:
    try:
        return context.passport_of(session).mission.mission
    except StateCorrupt:
        return None


def _review(context: Context, session: Session) -> bytes | None:
    review = load_review(context, session.id)
    return None if review is None else json.encode(review_answer(session, review))


def _latest_receipt(context: Context, session: Session) -> bytes | None:
    kept = None if session.receipt_id is None else context.reader.receipt(session.receipt_id)
    if kept is None:
        return None
    try:
        answer = receipt_answer(verify_stored_receipt(context, kept.token))
    except StateCorrupt:
        return None  # its token is among the exported receipts
    return orjson.dumps({"ardur_session_id": session.id, **structs.asdict(answer)})
