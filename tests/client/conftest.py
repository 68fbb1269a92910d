"""A service, and clients of both kinds that are used alike."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol, cast

import pytest

from remit.client import AsyncProxy, Proxy
from remit.client.hub import AsyncHub, Hub
from tests.client.service import Desk, serve


class Connect(Protocol):
    """Makes clients, which are closed when the test is over."""

    def __call__(self, port: int, **settings: Any) -> Proxy: ...


class ConnectHub(Protocol):
    """Makes clients of a Hub, which are closed when the test is over."""

    def __call__(self, port: int, token: str | None = "s3cret", **settings: Any) -> Hub: ...


class _Looped:
    """A client that is awaited, in a loop that runs while one waits for it."""

    def __init__(self, client: AsyncProxy | AsyncHub) -> None:
        self._runner = asyncio.Runner()
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._run, name)

    def __repr__(self) -> str:
        return repr(self._client)

    def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            return await getattr(self._client, name)(*args, **kwargs)

        return self._runner.run(run())

    def export(self) -> Iterator[bytes]:
        parts = cast("AsyncHub", self._client).export()

        async def part() -> bytes:
            return await anext(parts, b"")

        while given := self._runner.run(part()):
            yield given

    def close(self) -> None:
        self._run("aclose")

    def finish(self) -> None:
        self.close()
        self._runner.close()


@pytest.fixture(params=["waiting", "awaiting"])
def is_waiting(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "waiting")


@pytest.fixture
def connect(is_waiting: bool) -> Iterator[Connect]:
    with ExitStack() as open_clients:

        def make(port: int, *, scheme: str = "http", host: str = "127.0.0.1", **settings: Any) -> Proxy:
            url = f"{scheme}://{host}:{port}"
            client = Proxy(url, **settings) if is_waiting else _Looped(AsyncProxy(url, **settings))
            open_clients.callback(client.finish if isinstance(client, _Looped) else client.close)
            return cast("Proxy", client)

        yield make


@pytest.fixture
def connect_hub(is_waiting: bool) -> Iterator[ConnectHub]:
    with ExitStack() as open_clients:

        def make(port: int, token: str | None = "s3cret", **settings: Any) -> Hub:
            url = f"http://127.0.0.1:{port}"
            client = Hub(url, token, **settings) if is_waiting else _Looped(AsyncHub(url, token, **settings))
            open_clients.callback(client.finish if isinstance(client, _Looped) else client.close)
            return cast("Hub", client)

        yield make


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def port(desk: Desk) -> Iterator[int]:
    with serve(desk) as port:
        yield port
