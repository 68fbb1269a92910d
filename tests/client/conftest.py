"""A service, and clients of both kinds that are used alike."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol, cast

import pytest

from remit.client import AsyncProxy, Proxy
from tests.client.service import Desk, serve


class Connect(Protocol):
    """Makes clients, which are closed when the test is over."""

    def __call__(self, port: int, **settings: Any) -> Proxy: ...


class _Looped:
    """An `AsyncProxy` in a loop that runs while one waits for it."""

    def __init__(self, url: str, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._proxy = AsyncProxy(url, **settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._run, name)

    def __repr__(self) -> str:
        return repr(self._proxy)

    def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            return await getattr(self._proxy, name)(*args, **kwargs)

        return self._runner.run(run())

    def close(self) -> None:
        self._run("aclose")

    def finish(self) -> None:
        self.close()
        self._runner.close()


@pytest.fixture(params=["waiting", "awaiting"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    kind = Proxy if request.param == "waiting" else _Looped
    with ExitStack() as open_clients:

        def make(port: int, *, scheme: str = "http", host: str = "127.0.0.1", **settings: Any) -> Proxy:
            client = kind(f"{scheme}://{host}:{port}", **settings)
            open_clients.callback(client.finish if isinstance(client, _Looped) else client.close)
            return cast("Proxy", client)

        yield make


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def port(desk: Desk) -> Iterator[int]:
    with serve(desk) as port:
        yield port
