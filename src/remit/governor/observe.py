"""Taking evidence in: what an adapter has seen is judged and receipted like a call, on the same path.

Keeps this invariant: what goes into a receipt of an event is facts and digests. Text that an adapter was allowed to
bring is not looked at here, and no receipt holds it: a receipt holds the hash of the event.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from remit.claims.canonical import encode_base64url
from remit.claims.receipt import Digest
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid
from remit.governor.evaluate import Answer, Evaluate, Evidence, judged
from remit.governor.lifecycle import standing_in
from remit.governor.means import Aside, Commit, Means, Steps
from remit.governor.sessions import Look, found
from remit.governor.states import touched
from remit.ledger.port import Transaction
from remit.policy.call import ToolCall
from remit.policy.decide import Decision
from remit.policy.engines import Standing

__all__ = ["Consider", "Observe", "SourceType", "parse_digest"]

SourceType: TypeAlias = Literal["browser", "desktop", "cli"]

_TOOLS: Final[Mapping[str, str]] = {"browser": "browser_observe", "desktop": "desktop_observe", "cli": "cli_observe"}
_COMMAND_TOOL: Final = "cli_command"
_DIGEST: Final = re.compile(r"sha-256:([A-Fa-f0-9]{64})")


def parse_digest(text: JSON, place: str = "$.event.content_digest") -> Digest:
    """Return the digest of content that stays where it is, from `sha-256:<hex>`."""
    match = _DIGEST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise FieldInvalid("must be sha-256: and 64 hex digits", place=place)
    value = encode_base64url(bytes.fromhex(match[1]))
    return Digest(alg="sha-256", value=value, canonicalization="none", scope="result")


@dataclass(frozen=True)
class Observe:
    """Take an event into the chain of a session. `event` holds its members as they were reported, without text."""

    session_id: str
    source: SourceType
    event: Mapping[str, JSON]
    idempotency_key: str = ""

    def steps(self, means: Means) -> Steps[Answer]:
        """Evaluate, with the digest of what was seen as evidence."""
        return (yield from self.as_call().steps(means))

    def as_call(self) -> Evaluate:
        """Return the event as a call with evidence."""
        if self.source not in _TOOLS:
            raise FieldInvalid(f"must be one of {', '.join(_TOOLS)}", place="$.source.type")
        digest = self.event.get("content_digest")
        evidence = Evidence(content=None if digest is None else parse_digest(digest))
        return Evaluate(self.session_id, _call(self.source, self.event), self.idempotency_key, evidence)


def _call(source: SourceType, event: Mapping[str, JSON]) -> ToolCall:
    """Return the event as a call of the tool that stands for its source."""
    tool = _COMMAND_TOOL if source == "cli" and event.get("command") else _TOOLS[source]
    return ToolCall(tool, event)


@dataclass(frozen=True)
class Consider:
    """Say what would be decided on an event, or on a call. Nothing is kept of it, and nothing is used up."""

    asked: Evaluate | Observe

    def steps(self, means: Means) -> Steps[Decision]:
        """Judge by how the session stands."""
        name = self.asked.session_id
        request = self.asked if isinstance(self.asked, Evaluate) else self.asked.as_call()
        passport = means.passports.get(name) or (yield from Look(name).steps(means)).passport

        def work(transaction: Transaction) -> Standing:
            session = touched(found(transaction, name), means.clock.now())
            return standing_in(transaction, session)

        standing: Standing = yield Commit(work)
        compute = partial(judged, means, request, passport.mission, standing)
        decision: Decision = yield Aside(compute, fair_to=name)
        return decision
