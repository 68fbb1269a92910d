"""What a hook of a coding assistant says, in one form for all of them.

A dialect reads the payload of one assistant and writes the answers that it understands. It judges nothing.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.strictjson import JSON

__all__ = ["HookAdapter", "HookEvent", "HookEventKind"]

HookEventKind: TypeAlias = Literal[
    "call",
    "outcome",
    "failure",
    "agent_started",
    "agent_ended",
    "session_started",
    "session_ended",
    "other",
]
_NOTHING: Final[Mapping[str, JSON]] = {}


class HookEvent(NamedTuple):
    """One event, as an assistant has told it."""

    kind: HookEventKind
    # What the assistant calls the event: answers name it.
    event: str
    # The assistant's own name for its session.
    session: str
    cwd: str | None = None
    tool: str = ""
    arguments: Mapping[str, JSON] = _NOTHING
    # Empty where the assistant tells none.
    call_id: str = ""
    # What a tool has answered, or why it has failed.
    result: JSON = None
    # The subagent that acts, where it is not the assistant itself.
    agent: str = ""
    agent_type: str = ""
    # The session that a subagent's session belongs to, where subagents have sessions of their own.
    parent: str = ""
    permission_mode: str = ""
    transcript: str = ""


class HookAdapter(Protocol):
    """How one assistant speaks with its hooks."""

    @property
    def name(self) -> str:
        """Return its name in commands and paths."""

    @property
    def title(self) -> str:
        """Return its name for people."""

    def event_of(self, payload: Mapping[str, JSON]) -> str:
        """Return what the assistant calls the event, or nothing where that cannot be told."""

    def read(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Return what a payload says; `FieldInvalid` names the member that is wrong."""

    def permitted(self, notice: HookEvent, *, allow: bool, told: str) -> Mapping[str, JSON]:
        """Return the answer that lets things go on: an opinion only with `allow`; `told` is for the model to know."""

    def denied(self, event: str, reason: str) -> Mapping[str, JSON]:
        """Return the answer that stops a call, whatever its event is called."""
