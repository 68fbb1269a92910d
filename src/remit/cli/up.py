"""`remit up`: the Hub and the proxy together, set up where that was not done, until they are stopped.

Keeps this invariant: in the foreground, what was started here ends with it, however it ends but by force; what ran
before goes on.
"""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import click

from remit.cli.background import NAMES, Listening, stop_in_background
from remit.cli.hub import hub_options
from remit.cli.opening import opened_home
from remit.cli.options import everywhere
from remit.cli.render import note, show_data, show_facts
from remit.cli.serving import show_stopped, start_with
from remit.cli.setup import prepare
from remit.config import collector, home_path, user_home
from remit.errors import RemitError, ServiceUnavailable
from remit.http.record import ServiceName
from remit.ledger.home import Home
from remit.proxy.options import ProxyOptions

__all__ = ["up"]

_STOP_S: Final = 8.0
_NEXT: Final = """
Next:
  remit open         the dashboard, in a browser
  remit demo --live  one governed session, from its passport to its attestation
  remit status       how the Hub stands\
"""


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The port of the Hub. Without it: as it was set up.")
@click.option("--proxy-port", type=click.IntRange(0, 65535), default=0, help="The port of the proxy; 0: any.")
@click.option("--background", is_flag=True, help="Leave both running, and return when they are ready.")
@click.option("--stop", is_flag=True, help="Stop both.")
@everywhere
def up(*, port: int | None, proxy_port: int, background: bool, stop: bool, home: str | None, as_json: bool) -> None:
    """Start the Hub and the proxy, and print where they listen. The home is set up first, if it is not.

    Ctrl-C or SIGTERM stops both. If one of them ends by itself, the other is stopped too: exit code 69.

    Example: remit up --background
    """
    if stop:
        return _stop(home, as_json=as_json)
    prepare(home, as_json=as_json)
    with opened_home(home, as_json=as_json) as opened:
        ending = _listen_for_signals() if not background else None
        started = _start(opened, home, port, proxy_port)
        _show(started, as_json=as_json)
        if ending is not None:
            _stay(ending, started)
    return None


def _start(opened: Home, home: str | None, port: int | None, proxy_port: int) -> dict[ServiceName, Listening]:
    """Start both, or neither."""
    path = home_path(home)
    hub = hub_options(home, port=port)
    proxy = ProxyOptions(home=str(path), port=proxy_port, user_home=user_home(), otlp_endpoint=collector())
    asked: dict[ServiceName, tuple[Mapping[str, object], Mapping[str, Any]]] = {
        "hub": ({"home": path, "host": hub.host, "port": hub.port}, hub.asked()),
        "proxy": ({"home": path, "port": proxy_port}, proxy.asked()),
    }
    started = dict[ServiceName, Listening]()
    try:
        for service, (given, beyond) in asked.items():
            started[service] = start_with(opened, service, given, beyond)
    except RemitError:
        _end([one.child for one in started.values() if one.child])
        raise
    return started


def _show(started: Mapping[ServiceName, Listening], *, as_json: bool) -> None:
    for service, listening in started.items():
        if listening.child is None:
            note(f"the {NAMES[service]} was running already")
    dashboard = f"{started['hub'].address}/dashboard"
    if as_json:
        both = {str(service): {"listening": one.address, "pid": one.pid} for service, one in started.items()}
        show_data({"ok": True, **both, "dashboard": dashboard})
    else:
        show_facts({**{service: one.address for service, one in started.items()}, "dashboard": dashboard})
        click.echo(_NEXT)
    sys.stdout.flush()


def _listen_for_signals() -> "SimpleQueue[ServiceName | None]":
    """Return what tells that it is time to end: by a signal, or by the name of a service that has ended by itself."""
    ending: SimpleQueue[ServiceName | None] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: ending.put(None))
    return ending


def _stay(ending: "SimpleQueue[ServiceName | None]", started: Mapping[ServiceName, Listening]) -> None:
    """Wait for the end, and stop what was started here."""
    children = {service: one.child for service, one in started.items() if one.child is not None}
    if not children:
        return
    for service, child in children.items():
        Thread(target=_tell_end, args=(service, child, ending), daemon=True).start()
    first = ending.get()
    _end(list(children.values()))
    if first is not None:
        raise ServiceUnavailable(f"the {NAMES[first]} has ended by itself: log/{first}.log in the home says why")


def _tell_end(
    service: ServiceName, child: "subprocess.Popen[bytes]", ending: "SimpleQueue[ServiceName | None]"
) -> None:
    child.wait()
    ending.put(service)


def _end(children: "Sequence[subprocess.Popen[bytes]]") -> None:
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _stop(home: str | None, *, as_json: bool) -> None:
    with opened_home(home, as_json=as_json) as opened:
        services: tuple[ServiceName, ...] = ("hub", "proxy")
        stopped = [running.listening for service in services for running in stop_in_background(opened, service)]
    show_stopped(stopped, "neither the Hub nor the proxy of this home is running", as_json=as_json)
