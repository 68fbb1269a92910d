"""A Hub with a protected assistant, for tests: payloads as Claude Code sends them, and what is answered."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jwt

from remit.assistants.records import Protection, Protections
from remit.ledger.home import open_home
from remit.server.hook_tokens import hook_token
from tests.hub.service import Hub, running
from tests.proxy.service import Answer

__all__ = ["PROTECTION", "Scene", "deny_reason", "protection", "secret_of", "staged"]

PROTECTION: Final = "prot-0123456789ab"


def protection(folder: Path | None, **changes: Any) -> Protection:
    """Return a protection of Claude Code in a folder, with changes to its members and its mission."""
    mission = {
        "agent_id": "claude-code",
        "mission": "Fix the tests",
        "allowed_tools": ["Read", "Write", "Bash", "Agent"],
        "forbidden_tools": ["WebFetch"],
        "resource_scope": ["."],
        "max_tool_calls": 40,
        "max_duration_s": 3600,
        "allowed_side_effect_classes": ["none", "internal_write", "state_change"],
    }
    if folder is not None:
        mission |= {"resource_scope": [str(folder)], "cwd": str(folder)}
    members = {
        "id": PROTECTION, "assistant": "claude-code", "level": "local", "folder": folder and str(folder), "mode": "ask",
        "profile": "safe-coding", "profile_digest": "0" * 64, "made_at": "2026-01-01T00:00:00Z",
        "hub_url": "http://127.0.0.1:8765", "form": "command", "generation": 1,
    }  # fmt: skip
    return Protection(**{**members, **changes, "mission": mission | changes.get("mission", {})})


@dataclass(frozen=True)
class Scene:
    """A Hub, the folder that an assistant works in, and the hook that it calls."""

    hub: Hub
    folder: Path
    session: str = "11111111-2222-3333-4444-555555555555"
    counted: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        """Return the token that hooks show."""
        return hook_token(self.hub.token, PROTECTION)

    def post(self, body: Mapping[str, Any] | bytes, **headers: str | None) -> Answer:
        """Return whatever is answered to a hook that shows the secret of the session."""
        own = {"authorization": f"Bearer {self.token}", "x_remit_session": secret_of(self.session)}
        shown = {**own, "x_service_hub_token": None, **headers}
        return self.hub.post(f"/v1/hooks/claude-code/{PROTECTION}", body, **shown)

    def told(self, event: str, /, **members: Any) -> dict[str, Any]:
        """Return the answer to an event, which is always 200 and always ours."""
        answer = self.post(self.payload(event, **members))
        assert (answer.status, answer.headers["x-remit-hook"]) == (200, "1")
        return dict(answer.json)

    def payload(self, event: str, /, **members: Any) -> dict[str, Any]:
        """Return what Claude Code sends."""
        common = {"session_id": self.session, "transcript_path": "/t.jsonl", "cwd": str(self.folder)}
        return {**common, "permission_mode": "default", "hook_event_name": event, **members}

    def asked(self, tool: str, given: Mapping[str, Any], /, **members: Any) -> dict[str, Any]:
        """Return the answer to a call that is about to be made; each gets a name of its own."""
        return self.told("PreToolUse", tool_name=tool, tool_input=given, **{"tool_use_id": self.name(), **members})

    def name(self) -> str:
        """Return a name that no call has had."""
        self.counted.append(f"toolu_{len(self.counted):04d}")
        return self.counted[-1]

    def receipts(self) -> list[dict[str, Any]]:
        """Return the claims of all receipts, in the order of their chains."""
        exported = self.hub.get("/v1/export").json
        return [jwt.decode(token, options={"verify_signature": False}) for token in exported["receipts"]]


def secret_of(session: str) -> str:
    """Return the secret of a session."""
    return hashlib.sha256(session.encode()).hexdigest()


@contextmanager
def staged(place: Path, kept: Protection | None = None, *options: str) -> Iterator[Scene]:
    """Run a Hub that knows a protection of the folder `project` at a place."""
    folder, home = place / "project", place / "home"
    folder.mkdir()
    with open_home(home) as opened:
        protections = Protections(opened)
        protections.put(kept or protection(folder))
    with running(home, *options) as hub:
        yield Scene(hub, folder)


def deny_reason(answer: Mapping[str, Any]) -> str:
    """Return why a call was denied, which it must be."""
    given = answer["hookSpecificOutput"]
    assert (given["hookEventName"], given["permissionDecision"]) == ("PreToolUse", "deny"), json.dumps(answer)
    return str(given["permissionDecisionReason"])
