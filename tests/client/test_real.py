"""Both clients against the real proxy, over TLS, with its keys: whatever is checked in an answer, a genuine one has."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from remit import Keyring, Mission, TrustedKey, VerifyingKey, verifier_id
from remit.claims.receipt import Digest
from remit.client import Proxy
from remit.errors import ServiceRefused, ServiceUnavailable
from tests.client.conftest import Connect
from tests.proxy.service import Running, running

OUTCOME = Digest(alg="sha-256", value="A" * 43)
PATH = {"file_path": "/srv/project/README.md"}
MISSION = Mission(
    agent_id="agent:delegate",
    mission="Read the sources",
    allowed_tools=("Read",),
    forbidden_tools=("Write",),
    resource_scope=("/srv/project/src",),
    max_tool_calls=2,
    max_duration_s=60,
)


class Service(NamedTuple):
    """A real proxy, its keys, and the token of those who run it."""

    running: Running
    keyring: Keyring
    admin: str

    def client(self, connect: Connect) -> Proxy:
        """Return a client that believes what these keys have signed."""
        where = {"scheme": "https", "ca": self.running.ca}
        return connect(self.running.port, **where, keyring=self.keyring, admin_token=self.admin)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("real") / "home") as proxy:
        with Proxy(proxy.url, ca=proxy.ca) as client:
            keys = [VerifyingKey.from_jwk(jwk) for jwk in client.keys().keys]
        yield Service(proxy, Keyring([TrustedKey(key, verifier_id(key)) for key in keys]), proxy.token("admin"))


def test_a_session_is_lived_from_its_start_to_its_end(connect: Connect, service: Service) -> None:
    proxy = service.client(connect)
    session = proxy.start(service.running.passport("Read", "Glob"))
    assert (session.state, session.allowed_tools) == ("active", ("Read", "Glob"))
    permit = proxy.evaluate(session.session_id, "Read", PATH)
    denial = proxy.evaluate(session.session_id, "Bash", {"command": "true"})
    assert (permit.decision, denial.decision) == ("PERMIT", "DENY")
    told = [proxy.result(session.session_id, permit.receipt_id, OUTCOME).repeated for _ in range(2)]
    assert told == [False, True]
    assert proxy.attest(session.session_id).claims.receipts == 3
    assert proxy.end(session.session_id).state == "ended"
    assert proxy.attest(session.session_id, end=True).claims.verdicts["violation"] == 1


def test_a_session_is_started_again_by_the_same_passport(connect: Connect, service: Service) -> None:
    proxy, passport = service.client(connect), service.running.passport()
    first, second = proxy.start(passport), proxy.start(passport)
    assert (first.session_id, first.existing, second.existing) == (second.session_id, False, True)


def test_a_call_of_ones_own_key_is_decided_once(connect: Connect, service: Service) -> None:
    session = service.client(connect).start(service.running.passport()).session_id
    clients = [service.client(connect)] * 2 + [service.client(connect)]
    answers = [proxy.evaluate(session, "Read", PATH, idempotency_key="mine") for proxy in clients]
    assert ({answer.decision for answer in answers}, len({answer.receipt_id for answer in answers})) == ({"PERMIT"}, 1)


def test_long_and_strange_names_of_tools_are_known_in_their_receipts(connect: Connect, service: Service) -> None:
    proxy = service.client(connect)
    session = proxy.start(service.running.passport()).session_id
    for tool in ("t" * 300, "名" * 256, "a\nb", "\U0001f600" * 257):
        assert proxy.evaluate(session, tool, {}).decision == "DENY"


@pytest.mark.parametrize("number", [2**53, 10**64 - 1, 2.0**68, 1e20, 0.1])
def test_numbers_of_every_size_are_known_in_their_receipts(connect: Connect, service: Service, number: float) -> None:
    proxy = service.client(connect)
    session = proxy.start(service.running.passport("Read"))
    assert proxy.evaluate(session.session_id, "Read", {**PATH, "limit": number}).decision == "PERMIT"


def test_a_delegate_is_made_and_acts(connect: Connect, service: Service) -> None:
    proxy = service.client(connect)
    parent = proxy.start(service.running.passport()).session_id
    made = [proxy.delegate(parent, MISSION, request_id="one") for _ in range(2)]
    assert [(one.decision, one.repeated) for one in made] == [("PERMIT", False), ("PERMIT", True)]
    child = proxy.start(str(made[0].token))
    assert (child.session_id, child.max_tool_calls) == (made[0].delegate_id, 2)
    inside = {"file_path": "/srv/project/src/main.py"}
    assert proxy.evaluate(child.session_id, "Read", inside).decision == "PERMIT"
    assert proxy.attest(child.session_id, end=True).claims.state == "ended"


def test_a_delegation_that_cannot_be_paid_for_is_a_denial(connect: Connect, service: Service) -> None:
    proxy = service.client(connect)
    session = proxy.start(service.running.passport())
    whole = Mission(agent_id="agent:delegate", mission="Read", max_tool_calls=session.max_tool_calls)
    answers = [proxy.delegate(session.session_id, whole, request_id=name).decision for name in ("one", "two")]
    assert answers == ["PERMIT", "DENY"]


def test_what_is_revoked_permits_nothing(connect: Connect, service: Service) -> None:
    proxy = service.client(connect)
    session = proxy.start(service.running.passport()).session_id
    assert proxy.evaluate(session, "Read", PATH, idempotency_key="mine").decision == "PERMIT"
    made = proxy.delegate(session, MISSION, request_id="one")
    revoked = proxy.revoke(session_id=session, lineage=True)
    assert (revoked.revoked, revoked.session and revoked.session.state) == (session, "revoked")
    assert proxy.evaluate(session, "Read", PATH, idempotency_key="mine").decision == "DENY"
    assert proxy.evaluate(session, "Read", PATH).decision == "DENY"
    assert proxy.delegate(session, MISSION, request_id="one").decision == "DENY"
    with pytest.raises(ServiceRefused):
        proxy.start(str(made.token))
    assert proxy.revoke(passport_id="pass:never:used:0001").session is None


def test_keys_of_others_are_not_those_of_the_service(connect: Connect, service: Service) -> None:
    proxy = service._replace(keyring=Keyring([])).client(connect)
    session = proxy.start(service.running.passport()).session_id
    with pytest.raises(ServiceUnavailable):
        proxy.evaluate(session, "Read", PATH)
    with pytest.raises(ServiceUnavailable):
        proxy.attest(session)
    with pytest.raises(ServiceUnavailable):
        proxy.delegate(session, MISSION, request_id="one")
