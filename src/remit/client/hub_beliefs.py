"""What the answer to an event must say to belong to it, and what in it must be signed.

Keeps these invariants: a PERMIT is one in every part; and with a keyring, the receipt is of this event: of its tool,
and of arguments that hold each of its facts as it was sent. The review is signed by nobody. Pure, as `beliefs.py` is.
"""

from collections.abc import Mapping
from typing import Any, Final

from remit.claims.canonical import canonicalize_arguments, sha256_hex
from remit.claims.receipt import Receipt, verify_receipt
from remit.client.beliefs import Grounds, must
from remit.schemas.hub import Event, ObserveAnswer, ObserveRequest, SourceTold

__all__ = ["check_observed"]

_TOOLS: Final[Mapping[str, str]] = {"browser": "browser_observe", "desktop": "desktop_observe", "cli": "cli_observe"}
_COMMAND_TOOL: Final = "cli_command"
# Whether there was any is what counts.
_HIDDEN: Final = "hidden_provider_activity"
# What is judged as it was sent. Text is judged by its digest, which the Hub makes.
_FACTS: Final = (
    "kind",
    "action_class",
    "target",
    "content_digest",
    "exit_code",
    "stdout_digest",
    "stderr_digest",
    "capture_mode",
    "observed_at",
)


def check_observed(answer: ObserveAnswer, request: ObserveRequest, grounds: Grounds, *, is_drawn: bool) -> None:
    """Raise for an answer that is not whole, and for a receipt that is not that of this event.

    Under a key that was drawn for the event, there is no receipt from before.
    """
    _check_whole(answer, request.source)
    if grounds.keyring is None:
        return
    claims = verify_receipt(answer.receipt.jwt, grounds.keyring).claims
    must(claims.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    must(claims.grant_id == answer.ardur_session_id, "is of another session", "$.receipt.jwt")
    must(claims.verdict == answer.receipt.verdict, "is not what the receipt says", "$.receipt.verdict")
    _check_event(claims, answer.policy.arguments, request)
    must(not is_drawn or grounds.is_fresh(claims.iat), "is older than the event", "$.receipt.jwt")
    known = grounds.given.take(claims.receipt_id, request.idempotency_key or "")
    must(known, "was given for another event", "$.receipt.jwt")


def _check_whole(answer: ObserveAnswer, source: SourceTold) -> None:
    """Raise for a PERMIT that is not one in every part, and for a review that is of another source or session."""
    permits, receipt, review = answer.decision == "PERMIT", answer.receipt, answer.session_review
    must(receipt.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    must(receipt.receipt_hash == sha256_hex(receipt.jwt.encode()), "is of another receipt", "$.receipt.receipt_hash")
    must(answer.policy.decision == receipt.verdict == "compliant" or not permits, "permits a denial", "$.decision")
    must(review.source.get("type") == source.type, "is another source", "$.session_review.source.type")
    must(review.session_id == answer.session_id, "is another key", "$.session_review.session_id")
    must(review.ardur_session_id == answer.ardur_session_id, "is another session", "$.session_review.ardur_session_id")


def _check_event(claims: Receipt, arguments: dict[str, Any], request: ObserveRequest) -> None:
    """Raise unless a receipt is about arguments, and these about the event."""
    must(claims.tool == _tool(request), "is about another tool", "$.receipt.jwt")
    form = canonicalize_arguments(arguments)
    must(claims.arguments_hash.lower() == sha256_hex(form), "is about other arguments", "$.receipt.jwt")
    for name, sent in _facts(request.event).items():
        must(arguments.get(name) == sent, "is not what was sent", f"$.policy.arguments.{name}")
    hidden = bool(request.event.hidden_provider_activity)
    must(bool(arguments.get(_HIDDEN)) == hidden, "is not what was sent", f"$.policy.arguments.{_HIDDEN}")


def _tool(request: ObserveRequest) -> str:
    source = request.source.type
    return _COMMAND_TOOL if source == "cli" and request.event.command else _TOOLS[source]


def _facts(event: Event) -> dict[str, Any]:
    """Return the facts of an event as they are judged; what was not sent is None."""
    facts: dict[str, Any] = {name: getattr(event, name) for name in _FACTS}
    command = event.command
    facts["command"] = list(command) if command is not None and not isinstance(command, str) else command
    return facts
