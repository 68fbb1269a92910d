"""The real Hub as a process of its own, for tests that talk to it over raw sockets.

`running` starts it, gives where it is reached and what its token is, and always ends it. What it signs is read by a
library of others, under the key that its status names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jwt
from jsonschema import Draft202012Validator

from tests.proxy.service import Answer, Service, launched

__all__ = ["DIGEST", "PAGE", "Hub", "claims_of", "error_of", "event", "receipt_claims", "running"]

DIGEST: Final = f"sha-256:{'ab' * 32}"
PAGE: Final = {"kind": "page", "action_class": "read", "target": "https://chat.example/c/1", "content_digest": DIGEST}
_RECEIPTS: Final = Draft202012Validator(
    json.loads(files("remit.claims").joinpath("receipt.schema.json").read_text(encoding="utf-8")),
    format_checker=Draft202012Validator.FORMAT_CHECKER,
)


@dataclass(frozen=True)
class Hub(Service):
    """A Hub that is running, asked with its token unless a test says otherwise."""

    token: str = field(repr=False)

    def get(self, path: str, **headers: str | None) -> Answer:
        """Return whatever is answered to the token."""
        return self.ask("GET", path, None, certificate=None, **{"x_service_hub_token": self.token, **headers})

    def post(self, path: str, body: Mapping[str, Any] | bytes | None = None, **headers: str | None) -> Answer:
        """Return whatever is answered to the token."""
        return self.ask("POST", path, body, certificate=None, **{"x_service_hub_token": self.token, **headers})

    def told(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what is answered, which must be a success; without a body it is read, with one it is sent."""
        answer = self.get(path) if body is None else self.post(path, body)
        assert answer.status == 200, answer
        assert answer.json["ok"] is True
        return dict(answer.json)

    def start(self, session: str, kind: str = "browser", /, **members: Any) -> dict[str, Any]:
        """Return a session of this name, started or found."""
        asked = {"source": {"type": kind}, "session": {"title": session}, **members}
        return self.told("/v1/sessions/start", asked)

    def observe(self, session: str, kind: str = "browser", /, **changes: Any) -> dict[str, Any]:
        """Return the answer to a page that was seen, with changes to the event."""
        return self.told("/v1/events/observe", event(session, kind, **changes))

    def check(self, session: str, kind: str = "browser", /, **changes: Any) -> dict[str, Any]:
        """Return what would be answered."""
        return self.told("/v1/policy/check", event(session, kind, **changes))

    def attest(self, session_id: str, **body: Any) -> dict[str, Any]:
        """Return the attestation of a session."""
        return self.told(f"/v1/sessions/{session_id}/attest", body)


def event(session: str, kind: str = "browser", /, **changes: Any) -> dict[str, Any]:
    """Return a report of a page that was seen, with changes to the event; None leaves a member out."""
    seen = {name: value for name, value in (PAGE | changes).items() if value is not None}
    return {"source": {"type": kind}, "session": {"title": session}, "event": seen}


def error_of(answer: Answer) -> str:
    """Return the status and the code of an error, which has the one shape that all have."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert list(answer.json) == ["ok", "error", "error_code"]
    assert answer.json["ok"] is False
    assert isinstance(answer.json["error"], str)
    assert not [word for word in (b"Traceback", b".py", b"/home", b"/tmp", b"0x", b"\\n") if word in answer.body]
    return f"{answer.status} {answer.json['error_code']}"


def claims_of(hub: Hub, token: str, kind: str) -> dict[str, Any]:
    """Return what a token says once its signature and its type are right, as others check them."""
    pem = hub.told("/v1/status")["public_key_pem"]
    assert jwt.get_unverified_header(token)["typ"] == f"remit-{kind}+jwt"
    return dict(jwt.decode(token, pem, algorithms=["ES256"], options={"verify_aud": False}, leeway=60))


def receipt_claims(hub: Hub, token: str) -> dict[str, Any]:
    """Return the claims of a receipt that verifies, and is what the schema says."""
    claims = claims_of(hub, token, "receipt")
    assert not list(_RECEIPTS.iter_errors(claims))
    return claims


@contextmanager
def running(home: Path, *options: str, under: Sequence[str] = ()) -> Iterator[Hub]:
    """Run a Hub over `home`, at a port that the system chooses; `under` is a command that starts it."""
    # One process starts in half the time. The tests of the proxy have a ledger process beside it.
    if "--processes" not in options:
        options = ("--processes", "1", *options)
    with launched("hub", home, "--port", "0", *options, under=under) as (url, pid, log_path):
        token = json.loads((home / "config.json").read_text(encoding="utf-8"))["hub_token"]
        yield Hub(url, pid, home, log_path, token)
