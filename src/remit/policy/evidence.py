"""Effects as evidence: for a receipt's `measurements`, and in words for a person.

A receipt carries the digest of the effects and a short description; whoever keeps the effects themselves can show later
that these were the ones. Where static policy does not bound what runs, the receipt says so; where a call was denied, it
says what would have permitted it.
"""

from typing import Final

from msgspec.json import Encoder

from remit.claims.canonical import canonicalize, sha256_base64url
from remit.claims.receipt import Digest, Measurement
from remit.claims.strictjson import JSON
from remit.errors import NotCanonicalizable
from remit.policy.call import Action, Effect
from remit.policy.engines import Remedy
from remit.policy.redaction import redacted

__all__ = ["CALL", "EFFECTS", "REMEDY", "STATIC_SCOPE_ONLY", "bound_to", "describe", "effects_json", "measurements"]

CALL: Final = "remit.call"
EFFECTS: Final = "remit.effects"
REMEDY: Final = "remit.remedy"
STATIC_SCOPE_ONLY: Final = "remit.static_scope_only"
_json: Final = Encoder().encode
_MAX_DESCRIPTION: Final = 512
_MAX_REMEDY: Final = 1024
_MAX_SEARCHED: Final = 4 * _MAX_DESCRIPTION
_SAID: Final = {
    "read": "reads", "write": "writes", "delete": "deletes", "contact": "contacts", "send": "sends to", "run": "runs",
    "setenv": "sets", "escalate": "acts as", "export": "exports credentials with",
    "manage": "manages",
}  # fmt: skip


def describe(effect: Effect) -> str:
    """Return one effect in words."""
    below = "/…" if effect.beneath else ""
    return f"{_SAID[effect.verb]} {effect.resource}{below}"


def effects_json(action: Action) -> list[JSON]:
    """Return the effects and doubts of an action as values, in the order they were met."""
    told: list[JSON] = [
        {"verb": effect.verb, "resource": effect.resource, "beneath": effect.beneath} for effect in action.effects
    ]
    if action.doubts:
        told.extend({"doubt": doubt.word, "reason": doubt.reason} for doubt in action.doubts)
    return told


def _canonical_effects(action: Action) -> bytes:
    """Return the canonical form of `effects_json`, put together: the form of a string is its plain JSON."""
    if action.doubts:
        return canonicalize(effects_json(action))
    told = [
        b'{"beneath":%b,"resource":%b,"verb":%b}' % (_json(effect.beneath), _json(effect.resource), _json(effect.verb))
        for effect in action.effects
    ]
    return b"[" + b",".join(told) + b"]"


def measurements(action: Action, remedy: Remedy | None = None, envelope: str = "") -> dict[str, Measurement]:
    """Return what a receipt says about the effects of an action, what would have permitted it, and where it is from."""
    told = bound_to(envelope) if envelope else {}
    if action.effects or action.doubts:
        try:
            form = _canonical_effects(action)
        except UnicodeEncodeError:
            raise NotCanonicalizable("has no canonical form") from None
        told[EFFECTS] = Measurement(
            kind="custom",
            status="fail" if action.doubts else "success",
            digest=Digest(
                alg="sha-256",
                value=sha256_base64url(form),
                canonicalization="jcs-rfc8785",
                scope="measurement",
            ),
            description=_summary(action),
        )
    if action.runs_code:
        told[STATIC_SCOPE_ONLY] = Measurement(
            kind="custom",
            status="not-run",
            description="runs code of the project, which static policy does not bound",
        )
    if remedy is not None:
        told[REMEDY] = Measurement(kind="custom", status="absent", description=_clipped(remedy.sentence, _MAX_REMEDY))
    return told


def bound_to(envelope: str) -> dict[str, Measurement]:
    """Return what a receipt says of where a call comes from."""
    description = _clipped(envelope, _MAX_DESCRIPTION)
    return {CALL: Measurement(kind="envelope_binding", status="success", description=description)}


def _summary(action: Action) -> str:
    """Return the effects in words, those of one kind together."""
    named: dict[str, list[str]] = {}
    for effect in action.effects[:_MAX_DESCRIPTION]:
        below = "/…" if effect.beneath else ""
        named.setdefault(effect.verb, []).append(effect.resource[:_MAX_SEARCHED] + below)
    parts = [f"{_SAID[verb]} {', '.join(dict.fromkeys(resources))}" for verb, resources in named.items()]
    parts += [f"cannot tell what is done with {len(action.doubts)} of its words"] if action.doubts else []
    # Before it is cut: a part of a secret is not known as one.
    return _clipped(redacted("; ".join(parts)[:_MAX_SEARCHED]), _MAX_DESCRIPTION)


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
