"""A client of the governance proxy: `Proxy` for threads, `AsyncProxy` for event loops.

Keeps this invariant: whatever goes wrong raises, and nothing that raises reads as PERMIT. What can be asked is written
once, in `calls.py`; the client of the Hub is in `hub.py`.
"""

from typing import final

from remit.claims.keys import Keyring
from remit.client import call, calls
from remit.client.settings import ClientCert, FilePath, read_settings
from remit.client.waiting import Awaiting, Client, Waiting, awaiting, waiting

__all__ = ["AsyncProxy", "Proxy"]


class _OfProxy(Client):
    """What both clients are told. `ca` and `client_cert` are PEM files.

    With a `keyring`, what is signed in an answer is verified, and that it is about what was asked.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: FilePath | None = None,
        client_cert: ClientCert | None = None,
        token: str | None = None,
        admin_token: str | None = None,
        timeout_s: float = 10.0,
        retries: int = 3,
        keyring: Keyring | None = None,
    ) -> None:
        """Check the settings. Nothing is connected yet."""
        super().__init__(
            read_settings(
                url,
                ca=ca,
                client_cert=client_cert,
                token=token,
                admin_token=admin_token,
                timeout_s=timeout_s,
                retries=retries,
                keyring=keyring,
            )
        )


@final
class AsyncProxy(_OfProxy, Awaiting):
    """The governance proxy, for code that awaits. Use it in one event loop."""

    start = awaiting(calls.start)
    evaluate = awaiting(calls.evaluate)
    result = awaiting(calls.result)
    end = awaiting(calls.end)
    attest = awaiting(calls.attest)
    delegate = awaiting(calls.delegate)
    revoke = awaiting(calls.revoke)
    kill_switch = awaiting(calls.kill_switch)
    health = awaiting(call.health)
    keys = awaiting(calls.keys)


@final
class Proxy(_OfProxy, Waiting):
    """The governance proxy, for code that waits. Any number of threads may share one."""

    start = waiting(calls.start)
    evaluate = waiting(calls.evaluate)
    result = waiting(calls.result)
    end = waiting(calls.end)
    attest = waiting(calls.attest)
    delegate = waiting(calls.delegate)
    revoke = waiting(calls.revoke)
    kill_switch = waiting(calls.kill_switch)
    health = waiting(call.health)
    keys = waiting(calls.keys)
