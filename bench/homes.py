"""Homes to be measured: each with what it is asked again and again, over the wire or without a server.

A home of the proxy has sessions that may read a file often; one of the Hub has a session that may report often.
"""

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from bench.governor import Bench, Groups, load, opened, start
from remit.claims.types import convert
from remit.config import ensure_token
from remit.governor.context import UseCase
from remit.governor.evaluate import Evaluation
from remit.governor.sources import StartSourceSession
from remit.hub.evidence import OBSERVATION_TOOLS, build_report, build_reporter
from remit.ledger.home import open_home
from remit.schemas.hub import HubStartRequest, ObserveRequest
from remit.wiring import build_service

__all__ = ["SESSIONS", "Home", "new_home", "new_hub_home"]

SESSIONS: Final = 32
GROWING: Final = 128
# What a report says of its sender, and all of it with what was seen.
SENDER: Final[Mapping[str, Any]] = {
    "source": {"type": "browser", "origin": "https://example.com"},
    "session": {"id": "bench"},
}
REPORT: Final[Mapping[str, Any]] = {
    **SENDER,
    "event": {
        "kind": "page",
        "action_class": "read",
        "target": "https://example.com/page?n=1",
        "content_digest": f"sha-256:{'5e' * 32}",
    },
}
MISSION: Final = {
    "allowed_tools": OBSERVATION_TOOLS,
    "max_tool_calls": 10**9,
    "max_duration_s": 24 * 3600,
}


class Home(NamedTuple):
    """A home, what is sent for each of its sessions, what opens its service, and the same request without a wire."""

    folder: Path
    bodies: tuple[str, ...]
    headers: Mapping[str, str]
    case: UseCase[Evaluation]

    def grow(self, count: int) -> None:
        """Make more receipts in the first session, without a server."""
        with closing(build_service(self.folder)) as service:
            load(Bench(service, self.case, Groups()), GROWING, count=count)


def new_home(root: Path) -> Home:
    """Return a fresh home of the proxy."""
    folder = Path(tempfile.mkdtemp(dir=root))
    with opened(folder) as bench:
        first = bench.case
        more = (start(bench.service, folder / "project") for _ in range(SESSIONS - 1))
        asked = {"tool_name": first.call.tool_name, "arguments": first.call.arguments}
        bodies = tuple(_text({"session_id": name, **asked}) for name in (first.session_id, *more))
    return Home(folder / "home", bodies, {}, first)


def new_hub_home(root: Path) -> Home:
    """Return a fresh home of the Hub."""
    folder = Path(tempfile.mkdtemp(dir=root)) / "home"
    begin = StartSourceSession(build_reporter(convert(HubStartRequest, {**SENDER, "mission": MISSION})))
    with closing(build_service(folder)) as service:
        session_id = service.governor.run(begin).session.id
    with open_home(folder) as home:
        headers = {"X-Service-Hub-Token": ensure_token(home, "hub")}
    observe = structs.replace(
        build_report(convert(ObserveRequest, REPORT), time.time_ns() // 1_000_000).observe, session_id=session_id
    )
    return Home(folder, (_text(REPORT),), headers, observe)


def _text(request: Mapping[str, Any]) -> str:
    return msgspec.json.encode(request).decode()
