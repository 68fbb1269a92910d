"""The Hub of a home that is running, reached as its owner reaches it: by the note of where it listens, and a token.

Keeps this invariant: the token goes to the Hub of this home and to nobody else who listens on its port. Where no note
says that it runs, nobody is asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from remit.claims.keys import Keyring
from remit.cli.errors import reported
from remit.client.hub import Hub
from remit.config import home_path, load_settings
from remit.errors import HubUnavailable, StateMissing
from remit.ledger.home import Home, open_home
from remit.server.record import Running, load_running

__all__ = ["home_of_hub", "reach_hub", "reached_hub", "running_hub", "token_of"]

_START: Final = "Start it, and the proxy with it: remit up --background"
_MAKE: Final = "Look whether --home or REMIT_HOME names the right folder; to make one, and start the Hub: remit up"


@contextmanager
def home_of_hub(option: str | None, *, as_json: bool) -> Iterator[Home]:
    """Give the home whose Hub is wanted; errors are told by `reported`."""
    with reported(as_json=as_json):
        try:
            home = open_home(home_path(option), create=False)
        except StateMissing as missing:
            missing.add_note(_MAKE)
            raise
        with home:
            yield home


def running_hub(home: Home) -> Running:
    """Return the Hub of a home that was started last, or raise if none runs."""
    running = load_running(home, "hub")
    if running is None:
        refused = HubUnavailable("no Hub of this home is running")
        refused.add_note(_START)
        raise refused
    return running


def token_of(home: Home) -> str:
    """Return the Hub token of a home whose Hub runs: it has made one."""
    token = load_settings(home).hub_token
    if token is None:
        refused = HubUnavailable("the Hub runs, and its token is gone from config.json")
        refused.add_note("Make a new one: remit setup --rotate-token; then restart the Hub.")
        raise refused
    return token


def reach_hub(
    home: Home, running: Running, *, timeout_s: float = 10.0, retries: int = 3, keyring: Keyring | None = None
) -> Hub:
    """Return a client of a Hub that runs."""
    return Hub(running.listening, token_of(home), timeout_s=timeout_s, retries=retries, keyring=keyring)


@contextmanager
def reached_hub(option: str | None, *, as_json: bool) -> Iterator[Hub]:
    """Give a client of the Hub of the home; errors are told by `reported`."""
    with home_of_hub(option, as_json=as_json) as home, reach_hub(home, running_hub(home)) as hub:
        yield hub
