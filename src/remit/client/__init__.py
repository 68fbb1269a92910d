"""A client of the governance proxy: `Proxy` for threads, `AsyncProxy` for event loops.

Invariant: every failure raises, and no error can be taken for a PERMIT. The requests are defined once, in
`calls.py`; the client of the Hub is in `hub.py`.
"""

from typing import final

from remit.claims.keys import Keyring
from remit.client import call, calls
from remit.client.base import AsyncClient, Client, SyncClient, async_method, sync_method
from remit.client.settings import ClientCert, FilePath, make_settings

__all__ = ["AsyncProxy", "Proxy"]


class _ProxyClient(Client):
    """The settings of both clients. `ca` and `client_cert` are PEM files.

    With a `keyring`, signatures in responses are verified, and that they are about the request.
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
            make_settings(
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
class AsyncProxy(_ProxyClient, AsyncClient):
    """The governance proxy, for async code. Use it in one event loop."""

    start = async_method(calls.start)
    evaluate = async_method(calls.evaluate)
    result = async_method(calls.result)
    end = async_method(calls.end)
    attest = async_method(calls.attest)
    delegate = async_method(calls.delegate)
    revoke = async_method(calls.revoke)
    kill_switch = async_method(calls.kill_switch)
    health = async_method(call.health)
    keys = async_method(calls.keys)


@final
class Proxy(_ProxyClient, SyncClient):
    """The governance proxy, for blocking code. Any number of threads may share one."""

    start = sync_method(calls.start)
    evaluate = sync_method(calls.evaluate)
    result = sync_method(calls.result)
    end = sync_method(calls.end)
    attest = sync_method(calls.attest)
    delegate = sync_method(calls.delegate)
    revoke = sync_method(calls.revoke)
    kill_switch = sync_method(calls.kill_switch)
    health = sync_method(call.health)
    keys = sync_method(calls.keys)
