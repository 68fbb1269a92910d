"""`remit proxy`, or `remit hub start`: the governance proxy, until it is stopped."""

import os
import sys
from typing import Any, Final

import click

from remit.cli.background import announce_address, start_and_announce, stop_services
from remit.cli.errors import report_errors
from remit.cli.options import common_options
from remit.cli.render import note
from remit.config import collector, home_path, user_home
from remit.proxy.options import ProxyOptions
from remit.server.hosts import is_wildcard
from remit.server.log import LEVELS
from remit.wiring.ledger_process import end_now
from remit.wiring.proxy import run_proxy

__all__ = ["proxy"]

_MAX_PROCESSES: Final = 64


def _refuse_workers(context: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001
    if value is not None:
        raise click.NoSuchOption("--workers", message="No such option: --workers. Write --processes instead.")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; 0 lets the system choose.")
@click.option(
    "--processes",
    type=click.IntRange(1, _MAX_PROCESSES),
    help="How many processes: one writes the ledger, the others serve; 1 is all in one. Without it: 2 on many cores.",
)
@click.option("--workers", hidden=True, expose_value=False, callback=_refuse_workers)
@click.option("--tls-cert", metavar="FILE", help="Your own certificate, with its chain, instead of a local one.")
@click.option("--tls-key", metavar="FILE", help="The key of your own certificate.")
@click.option(
    "--client-ca", metavar="FILE", help="Mutual TLS: serve only clients with a certificate of this authority."
)
@click.option("--insecure-http", is_flag=True, help="Plain HTTP, on a loopback address only.")
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME", help="A further Host to serve; repeats."
)
@click.option("--require-token", is_flag=True, help="Ask everyone for the token of: remit token proxy")
@click.option("--policies", metavar="PATH", help="Cedar policies, a file or a folder, beside the passport's own rules.")
@click.option(
    "--connections-per-peer",
    type=click.IntRange(1, 65535),
    default=64,
    show_default=True,
    help="How many connections one address may have.",
)
@click.option("--otlp-endpoint", metavar="URL", help="Send traces and receipts to an OpenTelemetry collector.")
@click.option(
    "--log-level", type=click.Choice(list(LEVELS)), default="info", show_default=True, help="How much to log."
)
@click.option("--background", is_flag=True, help="Leave it running, and return when it is ready.")
@click.option("--stop", is_flag=True, help="Stop the one that runs in the background.")
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
    """Start the governance proxy, and print where it listens.

    The first start makes a home, an authority and a certificate: clients trust tls/ca.pem in the home. SIGTERM or
    Ctrl-C stops it; SIGHUP makes it read certificates and tokens again.

    Example: remit proxy --port 8443
    """
    if stop:
        return stop_services("proxy", home=home, as_json=as_json)
    with report_errors(as_json=as_json):
        options = ProxyOptions(
            home=str(home_path(home)),
            user_home=user_home(),
            otlp_endpoint=otlp_endpoint or collector(),
            log_json=not sys.stderr.isatty(),
            **chosen,
        )
    if background:
        given = {"home": home_path(home), "otlp_endpoint": otlp_endpoint, **chosen}
        return start_and_announce("proxy", home, given, options.asked(), as_json=as_json)
    with report_errors(as_json=as_json):
        if is_wildcard(options.host):
            note("listening on every address of this machine: name those that clients use with --allowed-host")
        run_proxy(options, lambda url: announce_address("proxy", url, os.getpid(), as_json=as_json))
    return end_now()
