"""A whole service over a home of its own: the clocks and the entropy are those of the machine."""

import secrets
from pathlib import Path

from remit import Mission
from remit.claims.receipt import SignedReceipt
from remit.governor.clock import SystemClock
from remit.governor.context import Context
from remit.governor.evaluate import Evaluate
from remit.governor.governor import Governor
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.sessions import StartSession
from remit.ledger.embedded import EmbeddedLedger, open_embedded_ledger
from remit.policy.call import ToolCall
from remit.policy.files import TextFiles
from remit.policy.native import NativeEngine

__all__ = ["MISSION", "Service"]

MISSION = Mission(
    agent_id="agent:tester",
    mission="Read what is there",
    allowed_tools=("Read",),
    resource_scope=("/srv/project",),
    max_tool_calls=100,
    max_duration_s=3600,
)


class Service:
    """A ledger in `place`, a governor over it, and passports signed with its key."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.open: EmbeddedLedger = open_embedded_ledger(
            place, deadline_s=60
        )  # a busy machine is not a disk that hangs
        context = Context(
            keys=self.open.keys,
            engines=[NativeEngine()],
            observers=[NativeEngine()],
            files=TextFiles(),
            clock=SystemClock(),
            stopwatch=lambda: 0.0,  # a busy machine is not a slow engine
            entropy=secrets.token_bytes,
            reader=self.open.ledger.read(),
        )
        self.governor = Governor(self.open.ledger, context)

    def passport(self, mission: Mission = MISSION) -> str:
        """Return the token of a new passport."""
        return self.governor.run(IssuePassport(PassportRequest(mission, f"pass:{secrets.token_hex(16)}"))).token

    def start(self, token: str = "") -> str:
        """Start a session and return its id."""
        return self.governor.run(StartSession(token or self.passport())).session.id

    def call(self, session_id: str, path: str = "/srv/project/a") -> SignedReceipt:
        """Let the agent read a file, and return the receipt."""
        return self.governor.run(Evaluate(session_id, ToolCall("Read", {"file_path": path}))).receipt

    def close(self) -> None:
        """Stop the service."""
        self.open.close()
