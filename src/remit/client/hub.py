"""A client of the Personal Hub: `Hub` for threads, `AsyncHub` for event loops.

Keeps this invariant: whatever goes wrong raises, `HubUnavailable` where no answer came; an export that raises in the
middle is not whole. What can be asked is written once, in `hub_calls.py`.
"""

from collections.abc import AsyncIterator, Iterator
from typing import final

from remit.claims.keys import Keyring
from remit.client import call, hub_calls
from remit.client.settings import read_settings
from remit.client.waiting import Awaiting, Client, Waiting, awaiting, waiting
from remit.errors import HubUnavailable

__all__ = ["AsyncHub", "Hub"]


class _OfHub(Client):
    """What both clients are told. With a `keyring`, what is signed in an answer is verified."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float = 10.0,
        retries: int = 3,
        keyring: Keyring | None = None,
    ) -> None:
        """Check the settings. Nothing is connected yet. Without a token, only health is answered."""
        super().__init__(
            read_settings(
                url,
                ca=None,
                client_cert=None,
                token=token,
                admin_token=None,
                timeout_s=timeout_s,
                retries=retries,
                keyring=keyring,
                silence=HubUnavailable,
            )
        )


@final
class AsyncHub(_OfHub, Awaiting):
    """The Personal Hub, for code that awaits. Use it in one event loop."""

    health = awaiting(call.health)
    status = awaiting(hub_calls.status)
    start = awaiting(hub_calls.start)
    observe = awaiting(hub_calls.observe)
    check = awaiting(hub_calls.check)
    attest = awaiting(hub_calls.attest)

    def export(self) -> AsyncIterator[bytes]:
        """Give all evidence, as one JSON document in parts: whole only if they come to their end without an error."""
        return self.stream(hub_calls.export())


@final
class Hub(_OfHub, Waiting):
    """The Personal Hub, for code that waits. Any number of threads may share one."""

    health = waiting(call.health)
    status = waiting(hub_calls.status)
    start = waiting(hub_calls.start)
    observe = waiting(hub_calls.observe)
    check = waiting(hub_calls.check)
    attest = waiting(hub_calls.attest)

    def export(self) -> Iterator[bytes]:
        """Give all evidence, as one JSON document in parts: whole only if they come to their end without an error."""
        return self.stream(hub_calls.export())
