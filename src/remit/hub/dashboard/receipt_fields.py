"""All claims of a receipt, in groups of names and values, for its page.

No claim is left out. Sessions and other receipts are given by their ids.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import UNSET, to_builtins

from remit.claims.receipt import Digest, LineageBudgetDelta, Measurement, Receipt, SignedReceipt
from remit.claims.types import encode
from remit.governor.receipts import clip
from remit.hub.dashboard.entries import measurement_text
from remit.hub.dashboard.formatting import TimeFormatter, format_duration, format_number
from remit.hub.dashboard.labels import PUBLIC_REASONS, find_meaning
from remit.policy.evidence import EFFECTS_MEASUREMENT, REMEDY_MEASUREMENT

_LONG: Final = 4096


class DisplayField(NamedTuple):
    """A name and a value. `form` is how it is displayed: `prose`, `code`, or `denial` for a code with a page."""

    name: str
    value: str
    form: str = "prose"


class FieldGroup(NamedTuple):
    """Fields that belong together."""

    title: str
    fields: tuple[DisplayField, ...]


def field_groups(receipt: SignedReceipt, times: TimeFormatter) -> tuple[FieldGroup, ...]:
    """Return the fields of a verified receipt."""
    claims = receipt.claims
    return (
        FieldGroup("Decision", tuple(_decision(claims))),
        FieldGroup("Call", tuple(_call(claims))),
        FieldGroup("Evidence", tuple(_evidence(claims))),
        FieldGroup("Budget", tuple(_budget(claims))),
        FieldGroup("Chain", tuple(_chain(claims))),
        FieldGroup("Signature", tuple(_signature(receipt, times))),
    )


def _decision(claims: Receipt) -> Iterator[DisplayField]:
    yield DisplayField("Verdict", claims.verdict, "code")
    yield DisplayField("Reason", claims.reason)
    if claims.internal_denial_code:
        yield DisplayField("Denial code", claims.internal_denial_code, "denial")
        yield DisplayField("What it means", find_meaning(claims.internal_denial_code).sentence)
    if claims.public_denial_reason:
        public = PUBLIC_REASONS[claims.public_denial_reason]
        yield DisplayField("Shown to others", f"{public} ({claims.public_denial_reason})")
    if remedy := measurement_text(claims, REMEDY_MEASUREMENT):
        yield DisplayField("What would have helped", remedy)
    for decision in claims.policy_decisions:
        took = f" in {decision.eval_ms:g} ms" if decision.eval_ms is not UNSET else ""
        yield DisplayField(
            f"Engine {clip(decision.backend, 64)}", f"{decision.decision}{took}: {decision.reason or 'no reason given'}"
        )


def _call(claims: Receipt) -> Iterator[DisplayField]:
    yield DisplayField("Tool", claims.tool, "code")
    yield DisplayField("Target", claims.target, "code")
    if effects := measurement_text(claims, EFFECTS_MEASUREMENT):
        yield DisplayField("Effects", effects)
    yield DisplayField("Action class", claims.action_class)
    yield DisplayField("Resource family", claims.resource_family)
    yield DisplayField("Side effects", claims.side_effect_class)
    yield DisplayField("Happened at", claims.timestamp, "code")
    yield DisplayField("Arguments (SHA-256)", claims.arguments_hash, "code")
    yield DisplayField("Invocation", _digest(claims.invocation_digest), "code")


def _evidence(claims: Receipt) -> Iterator[DisplayField]:
    yield DisplayField("Evidence level", claims.evidence_level)
    for name, value in (
        ("Content class", claims.content_class),
        ("Provenance", claims.content_provenance),
        ("Sensitivity", claims.sensitivity),
        ("Bore instructions", claims.instruction_bearing),
        ("Proof", claims.evidence_proof_ref),
    ):
        if value is not UNSET:
            yield DisplayField(name, _plain(value))
    if claims.result_hash is not UNSET:
        yield DisplayField("Digest of the content", _digest(claims.result_hash), "code")
    for name, measurement in (claims.measurements or {}).items():
        yield DisplayField(
            name,
            _describe_measurement(measurement, with_description=name not in (EFFECTS_MEASUREMENT, REMEDY_MEASUREMENT)),
        )


def _budget(claims: Receipt) -> Iterator[DisplayField]:
    for name, left in claims.budget_remaining.items():
        yield DisplayField(
            f"{_BUDGETS.get(name, name)} left", format_duration(left) if name == "duration_s" else format_number(left)
        )
    delta = claims.budget_delta
    if isinstance(delta, LineageBudgetDelta):
        yield DisplayField("This step", f"{delta.operation} {format_number(delta.amount)} of {delta.resource}")
    if delta is not UNSET:
        yield DisplayField("As it is signed", _plain(delta), "code")


def _chain(claims: Receipt) -> Iterator[DisplayField]:
    yield DisplayField("Step", claims.step_id, "code")
    yield DisplayField("Receipt", claims.receipt_id, "code")
    yield DisplayField("Parent", claims.parent_receipt_id or "none: the first of its chain", "code")
    yield DisplayField("Hash of the parent", claims.parent_receipt_hash or "none", "code")
    yield DisplayField("Passport (grant)", claims.grant_id, "code")
    yield DisplayField("Agent (actor)", claims.actor, "code")
    yield DisplayField("Run", f"{claims.trace_id} · {claims.run_nonce}", "code")


def _signature(receipt: SignedReceipt, times: TimeFormatter) -> Iterator[DisplayField]:
    claims = receipt.claims
    issued, ends = times.when(claims.iat), times.when(claims.exp)
    yield DisplayField("Issuer", claims.iss, "code")
    yield DisplayField("Key", receipt.kid, "code")
    yield DisplayField("Issued", f"{issued.clock} ({issued.iso})")
    yield DisplayField("Kept valid until", f"{ends.clock} ({ends.iso})")
    yield DisplayField("Token id", claims.jti, "code")
    yield DisplayField("Hash of this receipt", receipt.hash, "code")


_BUDGETS: Final = {"tool_calls": "Calls", "duration_s": "Time"}


def _digest(digest: Digest) -> str:
    return f"{digest.alg}:{digest.value}"


def _describe_measurement(measurement: Measurement, *, with_description: bool) -> str:
    """Return a measurement in one line; its description only if it is not shown elsewhere."""
    description = measurement.description or "" if with_description else ""
    digest = "" if measurement.digest is UNSET else _digest(measurement.digest)
    collected = "" if measurement.collected_at is UNSET else f"collected {measurement.collected_at}"
    detached = "detached" if measurement.detached else ""
    parts = (f"{measurement.kind}, {measurement.status}", description, digest, collected, detached)
    return " · ".join(part for part in parts if part)


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON that a receipt may hold
    if isinstance(value, str):
        return clip(value, _LONG)
    return clip(encode(to_builtins(value)).decode("utf-8", "replace"), _LONG)
