"""Hook events of coding assistants in one form, and the interface of the adapters that translate them.

An adapter parses the payloads of one assistant's hooks and builds the responses that this assistant understands. It
makes no decisions.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

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
_EMPTY: Final[Mapping[str, JSON]] = {}
_MAX_TEXT: Final = 4096


class HookEvent(NamedTuple):
    """One hook event, parsed from the payload of an assistant."""

    kind: HookEventKind
    # The assistant's name for the event. Responses repeat it.
    event: str
    # The assistant's session id.
    session: str
    cwd: str | None = None
    tool: str = ""
    arguments: Mapping[str, JSON] = _EMPTY
    # Empty if the assistant sends none.
    call_id: str = ""
    # The result of the tool, or the error it failed with.
    result: JSON = None
    # The id of the subagent that makes the call; empty for the main agent.
    agent: str = ""
    agent_type: str = ""
    permission_mode: str = ""
    transcript: str = ""


class HookAdapter(Protocol):
    """Translates between the hooks of one assistant and `HookEvent`."""

    @property
    def name(self) -> str:
        """Return the assistant's name in commands and paths."""

    @property
    def title(self) -> str:
        """Return the assistant's display name."""

    def event_name(self, payload: Mapping[str, JSON]) -> str:
        """Return the assistant's name for the event, or an empty string if the payload has none. Never raises."""

    def parse_event(self, payload: Mapping[str, JSON]) -> HookEvent:
        """Parse a payload. Raises `FieldInvalid`, which names the invalid member."""

    def permit_response(self, event: HookEvent, *, allow: bool, context: str) -> Mapping[str, JSON]:
        """Build the response that lets the assistant continue.

        With `allow`, the response also skips the assistant's own permission prompt. `context` is text for the model.
        """

    def deny_response(self, event_name: str, reason: str) -> Mapping[str, JSON]:
        """Build the response that blocks the call. Accepts every event name, and an empty one."""


def require_text(payload: Mapping[str, JSON], name: str) -> str:
    """Return a member that must be a non-empty string."""
    value = payload.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEXT:
        raise FieldInvalid(f"must be a text of 1 to {_MAX_TEXT} characters", place=f"$.{name}")
    return value


def text_or_empty(payload: Mapping[str, JSON], name: str) -> str:
    """Return a member if it is a string of acceptable length, else an empty string. Never raises."""
    value = payload.get(name)
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT else ""


def optional_text(payload: Mapping[str, JSON], name: str) -> str:
    """Return a member that may be missing, as an empty string then. Raises if it is present and not a string."""
    value = payload.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise FieldInvalid(f"must be a text of at most {_MAX_TEXT} characters", place=f"$.{name}")
    return value


def require_object(payload: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    """Return a member that must be an object."""
    value = payload.get(name)
    if not isinstance(value, dict):
        raise FieldInvalid("must be an object", place=f"$.{name}")
    return value
