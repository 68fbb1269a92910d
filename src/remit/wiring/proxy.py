"""A governance proxy put together: from its options to a server that runs, in this process or in several."""

import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from remit.config import CONFIG_FILE, distrust_current_folder, ensure_token, load_settings, share_metrics
from remit.errors import FieldInvalid, RemitError
from remit.governor.verification import Verification
from remit.ledger.commit import Observer
from remit.ledger.home import Home, open_home
from remit.proxy.authority import server_identity
from remit.proxy.handlers import Handlers
from remit.proxy.options import ProxyOptions
from remit.proxy.routes import describe_proxy, proxy_routes
from remit.proxy.tls import CertificateFiles
from remit.server.application import Application
from remit.server.auth import Access, ReloadingAuthenticator, TokenAuthenticator
from remit.server.hosts import allowed_hosts, host_name, is_loopback, is_wildcard
from remit.server.limits import Limits
from remit.server.log import configure, hide, logger
from remit.server.server import Server, bind, run_server, url_of
from remit.server.telemetry import Metrics, Telemetry, mark_dead, start_exporter
from remit.server.workers import Workers
from remit.version import __version__
from remit.wiring import Service, build_service, default_processes
from remit.wiring.ledger_process import end_now
from remit.wiring.serving import FINISHING_S, close_all, noted_in, watch_ledger, with_pages

__all__ = ["proxy_worker", "run_proxy"]

# A front, and the ledger process.
_ONE_FRONT: Final = 2
_LOCAL_NAMES: Final = ("127.0.0.1", "::1", "localhost")


def run_proxy(options: ProxyOptions, ready: Callable[[str], None]) -> None:
    """Run a proxy until it is stopped; `ready` is told where it listens.

    What can be wrong with the options, the home, the certificates or the port is found before.
    """
    _check(options)
    configure(options.log_level, as_json=options.log_json, stream=sys.stderr)
    with bind(options.host, options.port) as listening:
        tls = _credentials(options)
        if tls is not None:
            tls()
        url = url_of(listening, tls=tls is not None)
        with noted_in(options.home, "proxy", url, options.asked(), ready) as tell:
            processes = options.processes or default_processes()
            if processes <= _ONE_FRONT:
                _serve(options, listening, tell, processes, metrics_folder=None)
            else:
                _serve_by_many(options, listening, tell, processes)


def _check(options: ProxyOptions) -> None:
    if options.insecure_http and not is_loopback(options.host):
        raise FieldInvalid("plain HTTP is only served on a loopback address", place="--insecure-http")
    if options.insecure_http and (options.tls_cert or options.tls_key or options.client_ca):
        raise FieldInvalid("goes with no certificate", place="--insecure-http")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise FieldInvalid("a certificate and its key come together", place="--tls-cert")


def _credentials(options: ProxyOptions) -> Callable[[], ssl.SSLContext] | None:
    """Return what reads the certificates, ours or those that were brought; None without TLS."""
    if options.insecure_http:
        return None
    if options.tls_cert is not None and options.tls_key is not None:
        return CertificateFiles(options.tls_cert, options.tls_key, options.client_ca).context

    def ours() -> ssl.SSLContext:
        names = dict.fromkeys((*_LOCAL_NAMES, *_named(options)))
        with open_home(Path(options.home)) as home:
            identity = server_identity(home, tuple(names), datetime.now(UTC))
        return CertificateFiles(identity.cert, identity.key, options.client_ca).context()

    return ours


def _named(options: ProxyOptions) -> list[str]:
    """Return what a certificate of ours must name beside this machine."""
    bound = [] if is_wildcard(options.host) else [options.host]
    return [*bound, *(host_name(value) for value in options.allowed_hosts)]


def _serve_by_many(options: ProxyOptions, listening: socket.socket, ready: Callable[[], None], processes: int) -> None:
    """Run several fronts on one ledger process, which keep their counts where each can add up all."""
    # What is wrong with the home or the policies is said once, and in full; and the ledger process stays while fronts
    # are replaced.
    with (
        closing(_service(options, processes, name="proxy-supervisor")),
        tempfile.TemporaryDirectory(prefix="remit-metrics-") as folder,
    ):
        share_metrics(folder)
        distrust_current_folder()
        lost = partial(_note_lost, folder)
        arguments = (options, listening, folder, processes)
        workers = Workers(processes - 1, proxy_worker, arguments, lost=lost)
        workers.run(ready, listening.close)


def _note_lost(folder: str, pid: int) -> None:
    logger().error("worker_lost", worker=pid)
    mark_dead(folder, pid)


def proxy_worker(
    options: ProxyOptions, listening: socket.socket, folder: str, processes: int, said: Connection
) -> None:
    """Live as one front of several. Others say what is wrong by the same words, so it is said once, by the log."""
    configure(options.log_level, as_json=options.log_json, stream=sys.stderr)
    parent = parent_process()
    try:
        _serve(
            options,
            listening,
            lambda: said.send("ready"),
            processes,
            metrics_folder=folder,
            leash=parent.sentinel if parent else None,
        )
    except RemitError as error:
        logger().error("worker_failed", code=error.code, why=str(error))
        raise SystemExit(1) from None
    end_now()


def _serve(
    options: ProxyOptions,
    listening: socket.socket,
    ready: Callable[[], None],
    processes: int,
    *,
    metrics_folder: str | None,
    leash: int | None = None,
) -> None:
    """Run one server with its own governor until it is stopped."""
    exporter = start_exporter(options.otlp_endpoint, "remit-proxy", __version__)
    metrics = Metrics(metrics_folder)
    service = _service(options, processes, metrics.ledger)
    service.finish_closing()
    telemetry = Telemetry(metrics, exporter)
    verification = Verification(service.governor, options.home, telemetry)
    verification.start()
    try:
        watch_ledger(metrics, service.reader, verification.state)
        limits = Limits(connections_per_peer=options.connections_per_peer, stop_s=FINISHING_S)
        authenticator = ReloadingAuthenticator(
            partial(_load_tokens, options, service.home),
            partial(service.home.version_of, CONFIG_FILE),
            clock=time.monotonic,
            failed=partial(telemetry.log_event, "settings_kept"),
        )
        application = Application(
            with_pages(partial(proxy_routes, Handlers(service.governor)), metrics, describe_proxy),
            hosts=allowed_hosts(options.host, listening.getsockname()[1], options.allowed_hosts),
            authenticator=authenticator,
            body_bytes=limits.body_bytes,
            telemetry=telemetry,
        )
        run_server(
            lambda: Server(
                application,
                listening,
                limits=limits,
                tls=_credentials(options),
                refused=telemetry.refused,
                told=telemetry.log_event,
                renew=authenticator.reload,
            ),
            ready,
            leash=leash,
        )
    finally:
        close_all(verification, service, telemetry)


def _service(
    options: ProxyOptions, processes: int, observer: Observer | None = None, *, name: str = "proxy"
) -> Service:
    return build_service(
        Path(options.home),
        user_home=options.user_home,
        policies=options.policies,
        observer=observer,
        service=name,
        processes=processes,
    )


def _load_tokens(options: ProxyOptions, home: Home) -> TokenAuthenticator:
    """Return what the tokens in the settings give access to. The administrator's token gives both."""
    settings = load_settings(home)
    admin = settings.admin_token or ensure_token(home, "admin")
    hide(admin)
    tokens: dict[Access, tuple[str, ...]] = {"admin": (admin,)}
    if options.require_token:
        common = settings.proxy_token or ensure_token(home, "proxy")
        hide(common)
        tokens["token"] = common, admin
    return TokenAuthenticator(tokens, clock=time.monotonic)
