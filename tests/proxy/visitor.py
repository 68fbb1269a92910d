"""Someone who asks a running proxy for things, and holds the key of its home to make passports with."""

import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from msgspec import structs

from remit import Confirmation, Mission, SigningKey, issue_passport
from remit.config import ensure_token
from remit.ledger.embedded import open_embedded_ledger
from remit.ledger.home import open_home
from tests.proxy.service import Answer, Running, running
from tests.world import registered_in

__all__ = ["MISSION", "PROJECT", "README", "Visitor", "error_of", "key_of", "killed", "visiting"]

PROJECT: Final = "/srv/project"
README: Final = f"{PROJECT}/README.md"
MISSION: Final = Mission(
    agent_id="agent:visitor",
    mission="Review the pull request",
    allowed_tools=("Read", "Write", "Bash"),
    forbidden_tools=("WebFetch",),
    resource_scope=(PROJECT,),
    max_tool_calls=5,
    max_duration_s=900,
    cwd=PROJECT,
)


@dataclass(frozen=True)
class Visitor:
    """A client of a proxy; `certificate` is the file of the one it shows, and that of its key."""

    proxy: Running
    key: SigningKey
    admin: str = field(repr=False)
    certificate: tuple[str, str] | None = None

    def post(self, path: str, body: Mapping[str, Any] | bytes | None = None, **headers: str | None) -> Answer:
        """Return whatever is answered."""
        return self.proxy.ask("POST", path, body, certificate=self.certificate, **headers)

    def get(self, path: str, **headers: str | None) -> Answer:
        """Return whatever is answered."""
        return self.proxy.ask("GET", path, None, certificate=self.certificate, **headers)

    def told(self, path: str, body: Mapping[str, Any] | None = None, **headers: str) -> dict[str, Any]:
        """Return what is answered, which must be a success."""
        answer = self.post(path, body, **headers)
        assert answer.status == 200, answer
        assert answer.json["ok"] is True
        return dict(answer.json)

    def refused(self, path: str, body: Mapping[str, Any] | bytes | None = None, **headers: str | None) -> str:
        """Return the status and the code of an error, which must have the form of all errors."""
        return error_of(self.post(path, body, **headers))

    def as_admin(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the administrator is told."""
        return self.told(path, body, authorization=f"Bearer {self.admin}")

    def passport(
        self,
        *,
        jti: str | None = None,
        lifetime_s: int | None = None,
        bound_to: Confirmation | None = None,
        **changes: Any,
    ) -> str:
        """Return a passport of this home, for the mission with changes; it is registered."""
        issued = issue_passport(
            structs.replace(MISSION, **changes),
            self.key,
            issuer=f"remit:{self.key.kid}",
            jti=jti or f"pass:{secrets.token_hex(16)}",
            now=int(time.time()),
            lifetime_s=lifetime_s,
            bound_to=bound_to,
        )
        return registered_in(self.proxy.home, issued.token)

    def start(self, **changes: Any) -> str:
        """Return the id of a new session."""
        return str(self.told("/session/start", {"token": self.passport(**changes)})["session_id"])

    def read(self, session_id: str, path: str = README, **members: str) -> dict[str, Any]:
        """Return the decision on reading a file."""
        call = {"session_id": session_id, "tool_name": "Read", "arguments": {"file_path": path}}
        return self.told("/evaluate", call | members)

    def metric(self, name: str, **labels: str) -> float:
        """Return what a counter shows; 0 if it was never moved."""
        for line in self.get("/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(
                f'{label}="{text}"' in series for label, text in labels.items()
            ):
                return float(value)
        return 0.0


def error_of(answer: Answer) -> str:
    """Return the status and the code of an error, which must have the form of all errors."""
    told = answer.json
    assert told.keys() == {"ok", "error", "error_code"}, answer
    assert told["ok"] is False
    assert isinstance(told["error"], str)
    assert "\n" not in told["error"]
    return f"{answer.status} {told['error_code']}"


def key_of(home: Path) -> SigningKey:
    """Return the key that signs in a home, which is made where there is none."""
    with closing(open_embedded_ledger(home)) as embedded:
        return embedded.keys.signing(embedded.reader.ledger_state().kid)


@contextmanager
def visiting(home: Path, *options: str) -> Iterator[Visitor]:
    """Run a proxy, and give someone who visits it."""
    with running(home, *options) as proxy, open_home(home) as folder:
        yield Visitor(proxy, key_of(home), ensure_token(folder, "admin"))


@contextmanager
def killed(home: Path, *options: str) -> Iterator[Visitor]:
    """Run a proxy as above, and let it die in the end as if the power was cut."""
    try:
        with visiting(home, *options) as visitor:
            yield visitor
            _cut_power(visitor.proxy.pid)
    except _PowerCut:
        return


def _cut_power(pid: int) -> NoReturn:
    os.kill(pid, signal.SIGKILL)
    raise _PowerCut


class _PowerCut(Exception):
    """Not an error."""
