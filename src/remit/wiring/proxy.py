"""Builds the governance proxy from its options, and runs it in one process or in several."""

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

from remit.config import (
    CONFIG_FILE,
    disable_imports_from_current_folder,
    ensure_token,
    load_settings,
    set_metrics_folder,
)
from remit.errors import FieldInvalid, RemitError
from remit.governor.verification import VerifierSupervisor
from remit.ledger.commit import CommitObserver
from remit.ledger.home import Home, open_home
from remit.proxy.authority import server_identity
from remit.proxy.handlers import ProxyHandlers
from remit.proxy.options import ProxyOptions
from remit.proxy.routes import describe_proxy, proxy_routes
from remit.proxy.tls import CertificateFiles
from remit.server.application import Application
from remit.server.auth import Access, ReloadingAuthenticator, TokenAuthenticator
from remit.server.hosts import allowed_hosts, host_name, is_loopback, is_wildcard
from remit.server.limits import Limits
from remit.server.log import configure, hide, logger
from remit.server.server import Server, bind, listening_url, run_server
from remit.server.telemetry import Metrics, Telemetry, mark_dead, start_exporter
from remit.server.workers import Workers
from remit.version import __version__
from remit.wiring import Service, build_service, default_processes
from remit.wiring.ledger_process import exit_now
from remit.wiring.serving import DRAIN_S, announce, build_routes, close_all, set_ledger_gauges

# One front process, and the ledger process.
_ONE_FRONT: Final = 2
_LOCAL_NAMES: Final = ("127.0.0.1", "::1", "localhost")


def run_proxy(options: ProxyOptions, ready: Callable[[str], None]) -> None:
    """Run a proxy until it is stopped.

    Errors in the options, the home, the certificates or the port are raised before `ready` is called with its URL.
    """
    _check_options(options)
    configure(options.log_level, as_json=options.log_json, stream=sys.stderr)
    with bind(options.host, options.port) as listening:
        tls = _tls_context(options)
        if tls is not None:
            tls()  # so that errors in the certificates are raised here
        url = listening_url(listening, tls=tls is not None)
        with announce(options.home, "proxy", url, options.asked(), ready) as announce_ready:
            processes = options.processes or default_processes()
            if processes <= _ONE_FRONT:
                _serve(options, listening, announce_ready, processes, metrics_folder=None)
            else:
                _serve_with_workers(options, listening, announce_ready, processes)


def _check_options(options: ProxyOptions) -> None:
    if options.insecure_http and not is_loopback(options.host):
        raise FieldInvalid("plain HTTP is only served on a loopback address", place="--insecure-http")
    if options.insecure_http and (options.tls_cert or options.tls_key or options.client_ca):
        raise FieldInvalid("cannot be combined with certificates", place="--insecure-http")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise FieldInvalid("a certificate and its key must be given together", place="--tls-cert")


def _tls_context(options: ProxyOptions) -> Callable[[], ssl.SSLContext] | None:
    """Return a function that loads the certificates, given or issued by Remit, into a TLS context; None without TLS."""
    if options.insecure_http:
        return None
    if options.tls_cert is not None and options.tls_key is not None:
        return CertificateFiles(options.tls_cert, options.tls_key, options.client_ca).context

    def load_own() -> ssl.SSLContext:
        names = dict.fromkeys((*_LOCAL_NAMES, *_certificate_names(options)))
        with open_home(Path(options.home)) as home:
            identity = server_identity(home, tuple(names), datetime.now(UTC))
        return CertificateFiles(identity.cert, identity.key, options.client_ca).context()

    return load_own


def _certificate_names(options: ProxyOptions) -> list[str]:
    """Return the names that a certificate of Remit must have besides those of this machine."""
    bound = [] if is_wildcard(options.host) else [options.host]
    return [*bound, *(host_name(value) for value in options.allowed_hosts)]


def _serve_with_workers(
    options: ProxyOptions, listening: socket.socket, ready: Callable[[], None], processes: int
) -> None:
    """Run several front processes that share one ledger process, and a folder for their metrics."""
    # This service stays open for two reasons: errors in the home or the policies are raised once, in this process; and
    # the ledger process keeps running while workers are replaced.
    with (
        closing(_service(options, processes, name="proxy-supervisor")),
        tempfile.TemporaryDirectory(prefix="remit-metrics-") as folder,
    ):
        set_metrics_folder(folder)
        disable_imports_from_current_folder()
        on_lost = partial(_log_lost, folder)
        arguments = (options, listening, folder, processes)
        workers = Workers(processes - 1, proxy_worker, arguments, on_lost=on_lost)
        workers.run(ready, listening.close)


def _log_lost(folder: str, pid: int) -> None:
    logger().error("worker_lost", worker=pid)
    mark_dead(folder, pid)


def proxy_worker(
    options: ProxyOptions, listening: socket.socket, folder: str, processes: int, to_supervisor: Connection
) -> None:
    """Run one front process of several. An error is logged without a traceback."""
    configure(options.log_level, as_json=options.log_json, stream=sys.stderr)
    parent = parent_process()
    try:
        _serve(
            options,
            listening,
            lambda: to_supervisor.send("ready"),
            processes,
            metrics_folder=folder,
            leash=parent.sentinel if parent else None,
        )
    except RemitError as error:
        logger().error("worker_failed", code=error.code, why=str(error))
        raise SystemExit(1) from None
    exit_now()


def _serve(
    options: ProxyOptions,
    listening: socket.socket,
    ready: Callable[[], None],
    processes: int,
    *,
    metrics_folder: str | None,
    leash: int | None = None,
) -> None:
    """Run one server with its own governor until it is stopped, or until the descriptor `leash` becomes readable."""
    exporter = start_exporter(options.otlp_endpoint, "remit-proxy", __version__)
    metrics = Metrics(metrics_folder)
    service = _service(options, processes, metrics.ledger)
    service.finish_closing()
    telemetry = Telemetry(metrics, exporter)
    verification = VerifierSupervisor(service.governor, options.home, telemetry)
    verification.start()
    try:
        set_ledger_gauges(metrics, service.reader, verification.state)
        limits = Limits(connections_per_peer=options.connections_per_peer, stop_s=DRAIN_S)
        authenticator = ReloadingAuthenticator(
            partial(_load_tokens, options, service.home),
            partial(service.home.version_of, CONFIG_FILE),
            clock=time.monotonic,
            failed=partial(telemetry.log_event, "settings_kept"),
        )
        application = Application(
            build_routes(partial(proxy_routes, ProxyHandlers(service.governor)), metrics, describe_proxy),
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
                tls=_tls_context(options),
                on_refused=telemetry.refused,
                on_event=telemetry.log_event,
                on_reload=authenticator.reload,
            ),
            ready,
            leash=leash,
        )
    finally:
        close_all(verification, service, telemetry)


def _service(
    options: ProxyOptions, processes: int, observer: CommitObserver | None = None, *, name: str = "proxy"
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
    """Return an authenticator with the tokens in the settings. The administrator's token is accepted everywhere."""
    settings = load_settings(home)
    admin = settings.admin_token or ensure_token(home, "admin")
    hide(admin)
    tokens: dict[Access, tuple[str, ...]] = {"admin": (admin,)}
    if options.require_token:
        common = settings.proxy_token or ensure_token(home, "proxy")
        hide(common)
        tokens["token"] = common, admin
    return TokenAuthenticator(tokens, clock=time.monotonic)
