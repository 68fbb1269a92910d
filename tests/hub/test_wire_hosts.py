"""Which `Host` the Hub serves, over raw sockets: the same table as the proxy's, at health and at pages too.

A page of another name that points at our address gets nothing, token or not.
"""

import socket
from collections.abc import Iterator

import pytest

from tests.hub.service import Hub, error_of, running
from tests.proxy.service import Answer
from tests.proxy.test_wire_hosts import REFUSED, SERVED, TARGETS_REFUSED

PATHS = ("/healthz", "/health", "/", "/dashboard", "/dashboard/sessions", "/v1/status", "/v1/export", "/nowhere")
NOT_OURS = "403 host_not_allowed"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        yield hub


def get(hub: Hub, target: str, hosts: str) -> Answer:
    lines = f"{hosts}X-Service-Hub-Token: {hub.token}\r\nConnection: close\r\n\r\n"
    (answer,) = hub.send(f"GET {target} HTTP/1.1\r\n{lines}".replace("$PORT", str(hub.port)).encode("latin-1"))
    return answer


@pytest.mark.parametrize("hosts", REFUSED.values(), ids=REFUSED)
def test_a_host_that_is_not_ours_gets_nothing_even_with_the_token(hub: Hub, hosts: str) -> None:
    answers = [get(hub, path, hosts) for path in PATHS]
    assert {error_of(answer) for answer in answers} == {NOT_OURS}
    assert len({answer.body for answer in answers}) == 1


@pytest.mark.parametrize("host", SERVED)
def test_a_host_of_ours_is_served(hub: Hub, host: str) -> None:
    assert {get(hub, path, f"Host: {host}\r\n").status for path in PATHS[:-1]} == {200}


@pytest.mark.parametrize("target", TARGETS_REFUSED)
def test_a_target_that_names_another_host_gets_nothing(hub: Hub, target: str) -> None:
    for path in PATHS:
        answer = get(hub, target.replace("$PATH", path), "Host: 127.0.0.1:$PORT\r\n")
        assert error_of(answer) == NOT_OURS


def test_the_host_comes_before_the_token_and_before_a_preflight(hub: Hub) -> None:
    crossing = "Origin: http://127.0.0.1:1\r\nAccess-Control-Request-Method: GET\r\n"
    for head in ("GET /v1/status", "OPTIONS /v1/status", "POST /v1/events/observe"):
        request = f"{head} HTTP/1.1\r\nHost: evil.example\r\n{crossing}Connection: close\r\n\r\n"
        (answer,) = hub.send(request.encode())
        assert error_of(answer) == NOT_OURS


def test_an_origin_that_equals_a_foreign_host_helps_nobody(hub: Hub) -> None:
    lines = "Host: evil.example:$PORT\r\nOrigin: http://evil.example:$PORT\r\nSec-Fetch-Site: same-origin\r\n"
    assert error_of(get(hub, "/v1/status", lines)) == NOT_OURS


def test_no_other_address_of_this_machine_answers(hub: Hub) -> None:
    for address in ("127.0.0.2", _address_outside()):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, hub.port), timeout=5)


def _address_outside() -> str:
    """Return an address of this machine that others would use, or one more of its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.3"
        return str(probe.getsockname()[0])
