"""`remit proxy`, also `remit hub start`: runs the governance proxy."""

import os
import sys
from typing import Any, Final

import click

from remit.cli.background import announce_address, start_and_announce, stop_services
from remit.cli.errors import report_errors
from remit.cli.options import common_options
from remit.cli.program import fast_imports
from remit.cli.render import note
from remit.config import home_path, otlp_endpoint_from_environment, user_home
from remit.proxy.options import ProxyOptions
from remit.server.hosts import is_wildcard
from remit.server.log import LEVELS

_MAX_PROCESSES: Final = 64


def _refuse_workers(context: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001
    if value is not None:
        raise click.NoSuchOption("--workers", message="No such option: --workers. Use --processes instead.")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; 0 lets the system choose.")
@click.option(
    "--processes",
    type=click.IntRange(1, _MAX_PROCESSES),
    help="The number of processes: one writes the ledger, the others serve; 1 does both. Default: 2 on several cores.",
)
@click.option("--workers", hidden=True, expose_value=False, callback=_refuse_workers)
@click.option("--tls-cert", metavar="FILE", help="A certificate with its chain, to use instead of a generated one.")
@click.option("--tls-key", metavar="FILE", help="The key of --tls-cert.")
@click.option(
    "--client-ca", metavar="FILE", help="Mutual TLS: serve only clients with a certificate from this authority."
)
@click.option("--insecure-http", is_flag=True, help="Use plain HTTP; on a loopback address only.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further Host header to accept; repeatable.",
)
@click.option("--require-token", is_flag=True, help="Require the token of: remit token proxy")
@click.option("--policies", metavar="PATH", help="Cedar policies, a file or a folder, in addition to the passports.")
@click.option(
    "--connections-per-peer",
    type=click.IntRange(1, 65535),
    default=64,
    show_default=True,
    help="The number of connections that one address may open.",
)
@click.option("--otlp-endpoint", metavar="URL", help="Send traces and receipts to an OpenTelemetry collector.")
@click.option(
    "--log-level", type=click.Choice(list(LEVELS)), default="info", show_default=True, help="How much to log."
)
@click.option("--background", is_flag=True, help="Run it in the background, and return when it is ready.")
@click.option("--stop", is_flag=True, help="Stop the proxy that runs in the background.")
@common_options
def proxy(
    *,
    home: str | None,
    as_json: bool,
    otlp_endpoint: str | None,
    background: bool,
    stop: bool,
    **chosen: Any,  # noqa: ANN401 - as `ProxyOptions` has them
) -> None:
    """Start the governance proxy, and print its address.

    The first start creates a home, an authority and a certificate: clients must trust tls/ca.pem of the home.
    Ctrl-C or SIGTERM stops it; SIGHUP makes it read certificates and tokens again.

    Example: remit proxy --port 8443
    """
    if stop:
        return stop_services("proxy", home=home, as_json=as_json)
    with report_errors(as_json=as_json):
        options = ProxyOptions(
            home=str(home_path(home)),
            user_home=user_home(),
            otlp_endpoint=otlp_endpoint or otlp_endpoint_from_environment(),
            log_json=not sys.stderr.isatty(),
            **chosen,
        )
    if background:
        given = {"home": home_path(home), "otlp_endpoint": otlp_endpoint, **chosen}
        return start_and_announce("proxy", home, given, options.asked(), as_json=as_json)
    with fast_imports():
        from remit.wiring.ledger_process import exit_now  # noqa: PLC0415 - only needed by the process that serves
        from remit.wiring.proxy import run_proxy  # noqa: PLC0415
    with report_errors(as_json=as_json):
        if is_wildcard(options.host):
            note("listening on all addresses of this machine: allow the names that clients use with --allowed-host")
        run_proxy(options, lambda url: announce_address("proxy", url, os.getpid(), as_json=as_json))
    return exit_now()
