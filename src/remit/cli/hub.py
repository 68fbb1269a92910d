"""`remit hub`: runs the Personal Hub. `remit hub start` runs the governance proxy, like `remit proxy`."""

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from remit.cli.background import announce_address, start_and_announce, stop_services
from remit.cli.errors import report_errors
from remit.cli.options import common_options
from remit.cli.program import fast_imports
from remit.cli.proxy import proxy
from remit.config import (
    HUB_HOSTS,
    HUB_URL,
    check_hub_host,
    home_path,
    load_settings,
    otlp_endpoint_from_environment,
    parse_hub_url,
    user_home,
)
from remit.errors import StateMissing
from remit.hub.options import HubOptions
from remit.ledger.home import open_home
from remit.server.log import LEVELS


@click.group(invoke_without_command=True)
@click.option("--host", metavar="HOST", help=f"The address to listen on: {', '.join(HUB_HOSTS)}. Default: see setup.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port; 0 lets the system choose. Default: the port of remit setup, else 8765.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 2),
    help="2: a separate process writes the ledger; 1: one process does all. Default: 2, on one core 1.",
)
@click.option("--policies", metavar="PATH", help="Cedar policies, a file or a folder, in addition to the passports.")
@click.option("--otlp-endpoint", metavar="URL", help="Send traces and receipts to an OpenTelemetry collector.")
@click.option(
    "--log-level", type=click.Choice(list(LEVELS)), default="info", show_default=True, help="How much to log."
)
@click.option("--background", is_flag=True, help="Run it in the background, and return when it is ready.")
@click.option("--stop", is_flag=True, help="Stop the Hub that runs in the background.")
@common_options
@click.pass_context
def hub(
    context: click.Context,
    /,
    *,
    home: str | None,
    as_json: bool,
    background: bool,
    stop: bool,
    **chosen: Any,  # noqa: ANN401 - as `hub_options` has them
) -> None:
    """Start the Personal Hub on this machine, and print its address.

    It records evidence from adapters and serves the dashboard (remit open). Clients need the token of: remit token hub
    Ctrl-C or SIGTERM stops it; SIGHUP makes it read the token again.

    Example: remit hub --background
    """
    if context.invoked_subcommand is not None:
        return _refuse_options(context)
    if stop:
        return stop_services("hub", home=home, as_json=as_json)
    with report_errors(as_json=as_json):
        options = hub_options(home, **chosen)
    if background:
        given = {"home": home_path(home), "host": options.host, "port": options.port}
        given |= {name: chosen[name] for name in ("policies", "otlp_endpoint", "log_level", "processes")}
        return start_and_announce("hub", home, given, options.asked(), as_json=as_json)
    with fast_imports():
        from remit.wiring.hub import run_hub  # noqa: PLC0415 - only needed by the process that serves
        from remit.wiring.ledger_process import exit_now  # noqa: PLC0415
    with report_errors(as_json=as_json):
        run_hub(options, lambda url: announce_address("hub", url, os.getpid(), as_json=as_json))
    return exit_now()


hub.add_command(proxy, "start")


def hub_options(
    home: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    processes: int | None = None,
    policies: str | None = None,
    otlp_endpoint: str | None = None,
    log_level: str = "info",
) -> HubOptions:
    """Return the options of the Hub. Those that are not given are as `remit setup` has stored them."""
    path = home_path(home)
    stored_host, stored_port = parse_hub_url(_stored_url(path))
    if host is not None:
        check_hub_host(host, "--host")
    return HubOptions(
        home=str(path),
        host=host or stored_host,
        port=stored_port if port is None else port,
        processes=processes,
        policies=policies,
        user_home=user_home(),
        log_level=log_level,
        log_json=not sys.stderr.isatty(),
        otlp_endpoint=otlp_endpoint or otlp_endpoint_from_environment(),
    )


def _stored_url(path: Path) -> str:
    try:
        with open_home(path, create=False) as home:
            return load_settings(home).hub_url
    except StateMissing:
        return HUB_URL


def _refuse_options(context: click.Context) -> None:
    """Refuse options before the name of a subcommand: click would drop them silently."""
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"Option '{parameter.opts[0]}' must come after '{context.invoked_subcommand}'.")
