"""A client of the Personal Hub: `Hub` for threads, `AsyncHub` for event loops.

Invariant: every failure raises, `HubUnavailable` if there was no response; an export that raises before its
end is incomplete. The requests are defined once, in `hub_calls.py`.
"""

from collections.abc import AsyncIterator, Iterator
from typing import final

from remit.claims.keys import Keyring
from remit.client import call, hub_calls
from remit.client.base import AsyncClient, Client, SyncClient, async_method, sync_method
from remit.client.settings import make_settings
from remit.errors import HubUnavailable

__all__ = ["AsyncHub", "Hub"]


class _HubClient(Client):
    """The settings of both clients. With a `keyring`, signatures in responses are verified."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float = 10.0,
        retries: int = 3,
        keyring: Keyring | None = None,
    ) -> None:
        """Check the settings. Nothing is connected yet. Without a token, only `health` works."""
        super().__init__(
            make_settings(
                url,
                ca=None,
                client_cert=None,
                token=token,
                admin_token=None,
                timeout_s=timeout_s,
                retries=retries,
                keyring=keyring,
                unavailable_error=HubUnavailable,
            )
        )


@final
class AsyncHub(_HubClient, AsyncClient):
    """The Personal Hub, for async code. Use it in one event loop."""

    health = async_method(call.health)
    status = async_method(hub_calls.status)
    start = async_method(hub_calls.start)
    observe = async_method(hub_calls.observe)
    check = async_method(hub_calls.check)
    attest = async_method(hub_calls.attest)

    def export(self) -> AsyncIterator[bytes]:
        """Yield all evidence as one JSON document in chunks. It is complete only if no error is raised."""
        return self.stream(hub_calls.export())


@final
class Hub(_HubClient, SyncClient):
    """The Personal Hub, for blocking code. Any number of threads may share one."""

    health = sync_method(call.health)
    status = sync_method(hub_calls.status)
    start = sync_method(hub_calls.start)
    observe = sync_method(hub_calls.observe)
    check = sync_method(hub_calls.check)
    attest = sync_method(hub_calls.attest)

    def export(self) -> Iterator[bytes]:
        """Yield all evidence as one JSON document in chunks. It is complete only if no error is raised."""
        return self.stream(hub_calls.export())
