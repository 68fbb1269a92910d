"""Both clients against the real Hub, with its keys: whatever is checked in an answer, a genuine one has."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from remit.claims.keys import Keyring
from remit.governor.observe import SourceType
from remit.ledger.embedded import open_rows
from remit.ledger.home import open_home
from remit.ledger.keys import build_keyring
from remit.schemas.hub import Consent, Event, Message, SessionInfo, SourceInfo
from tests.client.conftest import ConnectHub
from tests.hub.service import DIGEST, Hub, running


class Service(NamedTuple):
    """A real Hub, and the keys that it signs with."""

    running: Hub
    keyring: Keyring

    @property
    def port(self) -> int:
        return int(self.running.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("real") / "home"
    with running(place) as hub:
        with open_home(place) as home, open_rows(home) as (_, rows):
            keyring = build_keyring(rows.keys())
        yield Service(hub, keyring)


AGREED = Consent(visible_text=True)
EVENTS = {
    "nothing": Event(),
    "page": Event(kind="page", action_class="read", target="https://example.com/?q=é", content_digest=DIGEST),
    "command": Event(command=("pytest", "-q"), exit_code=0, stdout_digest=DIGEST.upper().replace("SHA", "sha")),
    "line": Event(command="true; false", exit_code=1, stderr_digest=DIGEST, observed_at="2026-01-01T00:00:00Z"),
    "no command": Event(command="", capture_mode=""),
    "text": Event(text_excerpt="hello", consent=AGREED, messages=(Message(role="user", text_excerpt="hi"),)),
    "hidden": Event(hidden_provider_activity={"calls": 1.5}),
    "nothing hidden": Event(hidden_provider_activity=[]),
    "secret": Event(action_class="send", target="https://example.com/.env?token=abc"),
}


@pytest.mark.parametrize("kind", ["browser", "desktop", "cli"])
@pytest.mark.parametrize("name", EVENTS)
def test_the_receipt_of_an_event_is_believed(
    kind: SourceType, name: str, connect_hub: ConnectHub, service: Service
) -> None:
    hub = connect_hub(service.port, service.running.token, keyring=service.keyring)
    source, session = SourceInfo(type=kind, app="it"), SessionInfo(title=name)
    first, again = (hub.observe(source, EVENTS[name], session=session, idempotency_key=name) for _ in range(2))
    assert (first.receipt_id, first.decision) == (again.receipt_id, again.decision)
    assert hub.attest(first.ardur_session_id).claims.chain_verified


def test_an_export_is_one(connect_hub: ConnectHub, service: Service) -> None:
    whole = b"".join(connect_hub(service.port, service.running.token).export())
    assert whole.startswith(b'{"ok":true')
