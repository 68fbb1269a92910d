"""Connections without a token, by the hundred: hooks and clients with a token are answered all the same."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from remit.server.hook_tokens import hook_token
from tests.hub.service import Hub, running
from tests.proxy.service import read_answer

PROTECTION = "prot-000000000000"
HOOK = f"/v1/hooks/claude-code/{PROTECTION}"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        yield hub


def asked_by_a_hook(hub: Hub) -> int:
    """Return the status of a hook, over a connection of its own."""
    authorization = f"Bearer {hook_token(hub.token, PROTECTION)}"
    answer = hub.ask("POST", HOOK, {"hook_event_name": "PreToolUse"}, certificate=None, authorization=authorization)
    assert answer.headers["x-remit-hook"] == "1"
    return answer.status


def test_a_hook_is_answered_among_many_idle_connections_without_a_token(hub: Hub) -> None:
    with ExitStack() as held:
        for _ in range(400):
            held.enter_context(hub.connect())
        assert {asked_by_a_hook(hub) for _ in range(20)} == {200}


def test_an_idle_connection_that_has_shown_the_token_outlasts_those_that_have_not(hub: Hub) -> None:
    with ExitStack() as held, hub.connect() as known:
        known.sendall(hub.request("GET", "/v1/status", x_service_hub_token=hub.token))
        assert read_answer(known).status == 200
        for _ in range(1200):
            held.enter_context(hub.connect())
        known.sendall(hub.request("GET", "/v1/status", x_service_hub_token=hub.token))
        assert read_answer(known).status == 200


@contextmanager
def flooded(hub: Hub) -> Iterator[None]:
    """Open connections as fast as this machine can, and keep the last of them open."""
    over = threading.Event()

    def flood() -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", hub.port), timeout=5))
            if len(held) > 100:
                held.pop(0).close()
        for one in held:
            one.close()

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_hooks_are_answered_while_connections_without_a_token_keep_coming(tmp_path: Path) -> None:
    with running(tmp_path / "home") as hub, flooded(hub):
        assert [asked_by_a_hook(hub) for _ in range(40)] == [200] * 40
