"""Checks that a response of the Hub is to the event that was sent, and verifies its receipt.

Invariants: a PERMIT is accepted only if every field agrees with it. With a keyring, the receipt must be
about this event: its tool, and arguments that hold each of its facts as sent. The review is not signed. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from remit.claims.canonical import canonicalize_arguments, sha256_hex
from remit.claims.receipt import Receipt, verify_receipt
from remit.client.response_checks import CheckContext, require
from remit.schemas.hub import Event, ObserveAnswer, ObserveRequest, SourceInfo

__all__ = ["check_observation"]

_TOOLS: Final[Mapping[str, str]] = {"browser": "browser_observe", "desktop": "desktop_observe", "cli": "cli_observe"}
_COMMAND_TOOL: Final = "cli_command"
# Compared by whether there was any.
_HIDDEN: Final = "hidden_provider_activity"
# Facts that are judged as they were sent. Text is judged by its digest, which the Hub computes.
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


def check_observation(
    answer: ObserveAnswer, request: ObserveRequest, context: CheckContext, *, has_random_key: bool
) -> None:
    """Raise for a response that contradicts itself or whose receipt is not about this event.

    With a random idempotency key, an older receipt is refused.
    """
    _check_consistency(answer, request.source)
    if context.keyring is None:
        return
    claims = verify_receipt(answer.receipt.jwt, context.keyring).claims
    require(claims.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    require(claims.grant_id == answer.ardur_session_id, "is of another session", "$.receipt.jwt")
    require(claims.verdict == answer.receipt.verdict, "differs from the receipt", "$.receipt.verdict")
    _check_event_matches(claims, answer.policy.arguments, request)
    require(not has_random_key or context.is_fresh(claims.iat), "is older than the event", "$.receipt.jwt")
    known = context.seen_receipts.remember(claims.receipt_id, request.idempotency_key or "")
    require(known, "was given for another event", "$.receipt.jwt")


def _check_consistency(answer: ObserveAnswer, source: SourceInfo) -> None:
    """Raise for a PERMIT that another field contradicts, and for a review of another source or session."""
    permits, receipt, review = answer.decision == "PERMIT", answer.receipt, answer.session_review
    require(receipt.receipt_id == answer.receipt_id, "is of another receipt", "$.receipt_id")
    require(receipt.receipt_hash == sha256_hex(receipt.jwt.encode()), "is of another receipt", "$.receipt.receipt_hash")
    require(answer.policy.decision == receipt.verdict == "compliant" or not permits, "permits a denial", "$.decision")
    require(review.source.get("type") == source.type, "is not the requested source", "$.session_review.source.type")
    require(review.session_id == answer.session_id, "is another key", "$.session_review.session_id")
    require(
        review.ardur_session_id == answer.ardur_session_id, "is another session", "$.session_review.ardur_session_id"
    )


def _check_event_matches(claims: Receipt, arguments: dict[str, Any], request: ObserveRequest) -> None:
    """Raise unless the receipt is about these arguments, and the arguments are those of the event."""
    require(claims.tool == _tool(request), "is about another tool", "$.receipt.jwt")
    canonical_arguments = canonicalize_arguments(arguments)
    require(
        claims.arguments_hash.lower() == sha256_hex(canonical_arguments), "is about other arguments", "$.receipt.jwt"
    )
    for name, sent in _facts(request.event).items():
        require(arguments.get(name) == sent, "is not what was sent", f"$.policy.arguments.{name}")
    hidden = bool(request.event.hidden_provider_activity)
    require(bool(arguments.get(_HIDDEN)) == hidden, "is not what was sent", f"$.policy.arguments.{_HIDDEN}")


def _tool(request: ObserveRequest) -> str:
    source = request.source.type
    return _COMMAND_TOOL if source == "cli" and request.event.command else _TOOLS[source]


def _facts(event: Event) -> dict[str, Any]:
    """Return the facts of an event as they are judged; None for what was not sent."""
    facts: dict[str, Any] = {name: getattr(event, name) for name in _FACTS}
    command = event.command
    facts["command"] = list(command) if command is not None and not isinstance(command, str) else command
    return facts
