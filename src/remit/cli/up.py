"""`remit up`: sets up the home if necessary, and runs the Hub and the proxy.

Invariant: in the foreground, services that this command started are stopped when it ends, except by SIGKILL.
Services that were already running are left alone.
"""

import signal
import subprocess
from collections.abc import Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

import click

from remit.cli.background import NAMES, StartedService, start_service, stop_services, terminate_children
from remit.cli.errors import DONE
from remit.cli.homes import open_command_home
from remit.cli.hub import hub_options
from remit.cli.options import common_options
from remit.cli.render import detect_lost_output, note, show_data, show_facts
from remit.cli.setup import OPENED_BY, prepare_home
from remit.config import home_path, otlp_endpoint_from_environment, user_home
from remit.errors import ServiceUnavailable
from remit.ledger.home import Home
from remit.proxy.options import ProxyOptions
from remit.server.run_files import ServiceName

# The exit code that a shell gives to a program that was ended by a signal, minus the signal number.
_SIGNALLED: Final = 128
_NEXT: Final = """
Next:
  remit open         the dashboard, in a browser
  remit demo --live  one governed session, from its passport to its attestation
  remit status       the status of the Hub\
"""


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The port of the Hub. Default: that of remit setup.")
@click.option("--proxy-port", type=click.IntRange(0, 65535), default=0, help="The port of the proxy. Default: any.")
@click.option("--background", is_flag=True, help="Run both in the background, and return when they are ready.")
@click.option("--stop", is_flag=True, help="Stop the Hub and the proxy.")
@common_options
def up(*, port: int | None, proxy_port: int, background: bool, stop: bool, home: str | None, as_json: bool) -> None:
    """Start the Hub and the proxy, and print their addresses. Sets up the home first if necessary.

    Ctrl-C or SIGTERM stops what this command has started. If one fails, the other is stopped too, and the exit
    code is 69. A service that already runs with the same options is left alone, with other options it is an error; if
    both run, the command ends at once with exit code 0.

    Example: remit up --background
    """
    if stop:
        return stop_services("hub", "proxy", home=home, as_json=as_json)
    prepare_home(home, as_json=as_json)
    with open_command_home(home, as_json=as_json) as opened:
        ending = _queue_signals()
        started = _start(opened, _service_options(home, port, proxy_port), ending, foreground=not background)
        if background:
            return _show(started, as_json=as_json)
        try:
            _show(started, as_json=as_json)
            _wait(ending, started)
        finally:
            terminate_children(_children(started))
    return None


_ServiceOptions: TypeAlias = Mapping[ServiceName, tuple[Mapping[str, object], Mapping[str, Any]]]
# Why `remit up` ends: the number of a signal, or the name of a service that has ended unexpectedly.
_Ends: TypeAlias = "SimpleQueue[ServiceName | int]"


def _service_options(home: str | None, port: int | None, proxy_port: int) -> _ServiceOptions:
    """Return the command line options of each service, and all its options that are not defaults, to compare them."""
    path = home_path(home)
    hub = hub_options(home, port=port)
    proxy = ProxyOptions(
        home=str(path), port=proxy_port, user_home=user_home(), otlp_endpoint=otlp_endpoint_from_environment()
    )
    return {
        "hub": ({"home": path, "host": hub.host, "port": hub.port}, hub.asked()),
        "proxy": ({"home": path, "port": proxy_port}, proxy.asked()),
    }


def _start(
    opened: Home, services: _ServiceOptions, ending: _Ends, *, foreground: bool
) -> dict[ServiceName, StartedService]:
    """Start both services or neither: if a signal arrives, those that were started are stopped."""
    started = dict[ServiceName, StartedService]()
    try:
        for service, (given, non_defaults) in services.items():
            started[service] = start_service(opened, service, given, non_defaults)
            _exit_on_signal(ending, foreground=foreground)
    except BaseException:
        terminate_children(_children(started))
        raise
    return started


def _exit_on_signal(ending: _Ends, *, foreground: bool) -> None:
    """Exit if a signal has arrived: with 0 in the foreground, where a signal is the normal end."""
    if not ending.empty():
        number = ending.get()
        raise SystemExit(DONE if foreground or not isinstance(number, int) else _SIGNALLED + number)


def _children(started: Mapping[ServiceName, StartedService]) -> "list[subprocess.Popen[bytes]]":
    return [one.child for one in started.values() if one.child is not None]


def _show(started: Mapping[ServiceName, StartedService], *, as_json: bool) -> None:
    for service, listening in started.items():
        if listening.child is None:
            note(f"the {NAMES[service]} was already running")
    dashboard = f"{started['hub'].address}/dashboard"
    with detect_lost_output():
        if as_json:
            both = {str(service): {"listening": one.address, "pid": one.pid} for service, one in started.items()}
            return show_data({"ok": True, **both, "dashboard": dashboard})
        where = {str(service): one.address for service, one in started.items()}
        show_facts(where | {"dashboard": f"{dashboard} ({OPENED_BY})"})
        return click.echo(_NEXT)


def _queue_signals() -> _Ends:
    """Return a queue for signals. Handling them at once could interrupt the start of a child and orphan it."""
    ending: _Ends = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: ending.put(number))
    return ending


def _wait(ending: _Ends, started: Mapping[ServiceName, StartedService]) -> None:
    """Wait for a signal. Raises if a service that was started here ends unexpectedly."""
    children = {service: one.child for service, one in started.items() if one.child is not None}
    if not children:
        return
    for service, child in children.items():
        Thread(target=_report_end, args=(service, child, ending), daemon=True).start()
    first = ending.get()
    if not isinstance(first, int):
        raise ServiceUnavailable(f"the {NAMES[first]} has ended unexpectedly: see log/{first}.log in the home")


def _report_end(service: ServiceName, child: "subprocess.Popen[bytes]", ending: _Ends) -> None:
    child.wait()
    ending.put(service)
