"""Everything that a receipt says, in groups: its claims as names and values for a page.

Nothing is left out. What is told by a page of its own (the session, the receipts before and after) is told here by id.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import UNSET, to_builtins

from remit.claims.receipt import Digest, LineageBudgetDelta, Measurement, Receipt, SignedReceipt
from remit.claims.shapes import encode
from remit.governor.receipts import clip
from remit.hub.dashboard.entries import measured
from remit.hub.dashboard.figures import Times, number, span
from remit.hub.dashboard.words import PUBLIC_REASONS, meaning_of
from remit.policy.evidence import EFFECTS, REMEDY

__all__ = ["Field", "Group", "groups_of"]

_LONG: Final = 4096


class Field(NamedTuple):
    """A name with a value; `form` says how it is set: as prose, as code, or as a code that has a page."""

    name: str
    value: str
    form: str = "prose"


class Group(NamedTuple):
    """Fields that belong together."""

    title: str
    fields: tuple[Field, ...]


def groups_of(receipt: SignedReceipt, times: Times) -> tuple[Group, ...]:
    """Return what a verified receipt says."""
    claims = receipt.claims
    return (
        Group("Decision", tuple(_decision(claims))),
        Group("Call", tuple(_call(claims))),
        Group("Evidence", tuple(_evidence(claims))),
        Group("Budget", tuple(_budget(claims))),
        Group("Chain", tuple(_chain(claims))),
        Group("Signature", tuple(_signature(receipt, times))),
    )


def _decision(claims: Receipt) -> Iterator[Field]:
    yield Field("Verdict", claims.verdict, "code")
    yield Field("Reason", claims.reason)
    if claims.internal_denial_code:
        yield Field("Denial code", claims.internal_denial_code, "denial")
        yield Field("What it means", meaning_of(claims.internal_denial_code).sentence)
    if claims.public_denial_reason:
        told = PUBLIC_REASONS[claims.public_denial_reason]
        yield Field("What others are told", f"{told} ({claims.public_denial_reason})")
    if remedy := measured(claims, REMEDY):
        yield Field("What would have helped", remedy)
    for said in claims.policy_decisions:
        took = f" in {said.eval_ms:g} ms" if said.eval_ms is not UNSET else ""
        yield Field(f"Engine {clip(said.backend, 64)}", f"{said.decision}{took}: {said.reason or 'no reason given'}")


def _call(claims: Receipt) -> Iterator[Field]:
    yield Field("Tool", claims.tool, "code")
    yield Field("Target", claims.target, "code")
    if effects := measured(claims, EFFECTS):
        yield Field("Effects", effects)
    yield Field("Action class", claims.action_class)
    yield Field("Resource family", claims.resource_family)
    yield Field("Side effects", claims.side_effect_class)
    yield Field("Happened at", claims.timestamp, "code")
    yield Field("Arguments (SHA-256)", claims.arguments_hash, "code")
    yield Field("Invocation", _digest(claims.invocation_digest), "code")


def _evidence(claims: Receipt) -> Iterator[Field]:
    yield Field("Evidence level", claims.evidence_level)
    for name, value in (
        ("Content class", claims.content_class),
        ("Provenance", claims.content_provenance),
        ("Sensitivity", claims.sensitivity),
        ("Bore instructions", claims.instruction_bearing),
        ("Proof", claims.evidence_proof_ref),
    ):
        if value is not UNSET:
            yield Field(name, _plain(value))
    if claims.result_hash is not UNSET:
        yield Field("Digest of the content", _digest(claims.result_hash), "code")
    for name, measurement in (claims.measurements or {}).items():
        yield Field(name, _measured(measurement, told=name in (EFFECTS, REMEDY)))


def _budget(claims: Receipt) -> Iterator[Field]:
    for name, left in claims.budget_remaining.items():
        yield Field(f"{_BUDGETS.get(name, name)} left", span(left) if name == "duration_s" else number(left))
    delta = claims.budget_delta
    if isinstance(delta, LineageBudgetDelta):
        yield Field("This step", f"{delta.operation} {number(delta.amount)} of {delta.resource}")
    if delta is not UNSET:
        yield Field("As it is signed", _plain(delta), "code")


def _chain(claims: Receipt) -> Iterator[Field]:
    yield Field("Step", claims.step_id, "code")
    yield Field("Receipt", claims.receipt_id, "code")
    yield Field("Parent", claims.parent_receipt_id or "none: the first of its chain", "code")
    yield Field("Hash of the parent", claims.parent_receipt_hash or "none", "code")
    yield Field("Passport (grant)", claims.grant_id, "code")
    yield Field("Agent (actor)", claims.actor, "code")
    yield Field("Run", f"{claims.trace_id} · {claims.run_nonce}", "code")


def _signature(receipt: SignedReceipt, times: Times) -> Iterator[Field]:
    claims = receipt.claims
    issued, ends = times.when(claims.iat), times.when(claims.exp)
    yield Field("Issuer", claims.iss, "code")
    yield Field("Key", receipt.kid, "code")
    yield Field("Issued", f"{issued.clock} ({issued.iso})")
    yield Field("Kept valid until", f"{ends.clock} ({ends.iso})")
    yield Field("Token id", claims.jti, "code")
    yield Field("Hash of this receipt", receipt.hash, "code")


_BUDGETS: Final = {"tool_calls": "Calls", "duration_s": "Time"}


def _digest(digest: Digest) -> str:
    return f"{digest.alg}:{digest.value}"


def _measured(measurement: Measurement, *, told: bool) -> str:
    """Return what was measured; its description only where it is not told elsewhere."""
    description = "" if told else measurement.description or ""
    digest = "" if measurement.digest is UNSET else _digest(measurement.digest)
    collected = "" if measurement.collected_at is UNSET else f"collected {measurement.collected_at}"
    detached = "detached" if measurement.detached else ""
    parts = (f"{measurement.kind}, {measurement.status}", description, digest, collected, detached)
    return " · ".join(part for part in parts if part)


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON that a receipt may hold
    if isinstance(value, str):
        return clip(value, _LONG)
    return clip(encode(to_builtins(value)).decode("utf-8", "replace"), _LONG)
