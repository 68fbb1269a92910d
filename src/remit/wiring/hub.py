"""Builds the Hub from its options, and runs it."""

import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from remit.assistants.handlers import HookHandlers, zsh_users
from remit.assistants.monitor.monitor import SettingsMonitor
from remit.assistants.monitor.obstacles import files_to_watch, find_obstacle
from remit.assistants.records import Protections
from remit.assistants.routes import hook_routes
from remit.config import CONFIG_FILE, assistant_config_folder, ensure_token, load_settings, user_shell
from remit.errors import FieldInvalid, RemitError
from remit.governor.verification import VerificationState, VerifierSupervisor
from remit.hub.auth import HUB_BROWSER_POLICY, HubAuthenticator
from remit.hub.commit_failures import CommitFailureTracker
from remit.hub.dashboard.handlers import DashboardHandlers
from remit.hub.handlers import HubHandlers
from remit.hub.options import HubOptions
from remit.hub.redirect_page import remove_redirect_page
from remit.hub.routes import PageHandler, describe_hub, hub_routes
from remit.hub.status import HubInfo
from remit.ledger.home import Home, open_home
from remit.schemas.hub import MAX_BODY_BYTES
from remit.server.application import Application
from remit.server.auth import ReloadingAuthenticator
from remit.server.hook_tokens import shared_hook_token
from remit.server.hosts import allowed_hosts, is_loopback
from remit.server.limits import Limits
from remit.server.log import configure, hide
from remit.server.routes import Route
from remit.server.server import Server, bind, listening_url, run_server
from remit.server.telemetry import Metrics, Telemetry, start_exporter
from remit.version import __version__
from remit.wiring import Service, build_service, default_processes
from remit.wiring.serving import DRAIN_S, announce, build_routes, close_all, set_ledger_gauges


def run_hub(options: HubOptions, ready: Callable[[str], None]) -> None:
    """Run a Hub until it is stopped.

    Errors in the options, the home or the port are raised before `ready` is called with the URL of the Hub.
    """
    if not is_loopback(options.host):
        raise FieldInvalid("the Hub serves this machine only: give a loopback address", place="--host")
    configure(options.log_level, as_json=options.log_json, stream=sys.stderr)
    with bind(options.host, options.port) as listening:
        url = listening_url(listening, tls=False)
        with announce(options.home, "hub", url, options.asked(), ready) as announce_ready:
            _serve(options, listening, url, announce_ready)


def _serve(options: HubOptions, listening: socket.socket, url: str, ready: Callable[[], None]) -> None:
    """Run the server until it is stopped."""
    exporter = start_exporter(options.otlp_endpoint, "remit-hub", __version__)
    metrics = Metrics(None)
    failures = CommitFailureTracker(metrics.ledger)
    service = build_service(
        Path(options.home),
        user_home=options.user_home,
        policies=options.policies,
        observer=failures,
        service="hub",
        processes=options.processes or default_processes(),
    )
    hub_authenticator = HubAuthenticator(
        _token(options),
        clock=time.monotonic,
        wall=time.time,
        accepts_shared=partial(_is_of_first_release, service.protections),
    )
    telemetry = Telemetry(metrics, exporter)
    verification = VerifierSupervisor(service.governor, options.home, telemetry)
    verification.start()
    pages = DashboardHandlers(service.governor, verification.state, failures)
    monitor = _settings_monitor(service, options)
    service.finish_closing()
    try:
        authenticator = ReloadingAuthenticator(
            partial(_reload_token, hub_authenticator, service.home),
            partial(service.home.version_of, CONFIG_FILE),
            clock=time.monotonic,
            failed=partial(telemetry.log_event, "settings_kept"),
        )
        info = HubInfo(options.home, url, partial(_check_settings, options), verification.state)
        handlers = HubHandlers(service.governor, info)
        hooks = HookHandlers(
            service.governor,
            service.protections,
            options.user_home,
            hub_authenticator.prove,
            is_tampered=monitor.is_tampered,
            zsh_users=zsh_users(user_shell()),
        )
        application = Application(
            _routes(
                service,
                metrics,
                verification.state,
                lambda *shared: [
                    *hub_routes(handlers, pages, hub_authenticator.set_cookie, *shared),
                    *hook_routes(hooks),
                ],
            ),
            hosts=allowed_hosts(options.host, listening.getsockname()[1]),
            authenticator=authenticator,
            body_bytes=MAX_BODY_BYTES,
            telemetry=telemetry,
            browser_policy=HUB_BROWSER_POLICY,
        )
        # All clients have the address of this machine, so a limit per peer would be one for all of them together.
        most = Limits().connections
        limits = Limits(body_bytes=MAX_BODY_BYTES, stop_s=DRAIN_S, connections=most, connections_per_peer=most)
        run_server(
            lambda: Server(
                application,
                listening,
                limits=limits,
                on_refused=telemetry.refused,
                on_event=telemetry.log_event,
                on_reload=authenticator.reload,
            ),
            ready,
        )
    finally:
        with suppress(RemitError), open_home(Path(options.home), create=False) as home:
            remove_redirect_page(home)
        close_all(monitor, pages, verification, service, telemetry)


def _settings_monitor(service: Service, options: HubOptions) -> SettingsMonitor:
    """Return the monitor of protections. It gets a `Protections` of its own, because it runs in another thread."""
    obstacle = partial(find_obstacle, user_home=options.user_home, config=assistant_config_folder)
    reads = partial(files_to_watch, user_home=options.user_home, config=assistant_config_folder)
    return SettingsMonitor(Protections(service.home), obstacle, reads, service.governor)


def _routes(
    service: Service,
    metrics: Metrics,
    verification: VerificationState,
    make_routes: Callable[[PageHandler, PageHandler], list[Route]],
) -> list[Route]:
    set_ledger_gauges(metrics, service.reader, verification)
    return build_routes(make_routes, metrics, describe_hub)


def _token(options: HubOptions) -> str:
    """Return the token of the Hub, and hide it in logs."""
    with open_home(Path(options.home)) as home:
        token = ensure_token(home, "hub")
    _hide(token)
    return token


def _hide(token: str) -> None:
    hide(token)
    hide(shared_hook_token(token))


def _reload_token(authenticator: HubAuthenticator, home: Home) -> HubAuthenticator:
    """Set the token that is in the settings now, and return the authenticator. Without one, the old token stays."""
    token = load_settings(home).hub_token
    if token is not None:
        _hide(token)
        authenticator.renew(token)
    return authenticator


def _is_of_first_release(protections: Protections, name: str) -> bool:
    """Return whether a protection was written by the first release, whose hooks share one token."""
    protection = protections.get(name)
    return protection is not None and protection.generation == 0


def _check_settings(options: HubOptions) -> None:
    """Raise if the settings of the home cannot be read."""
    with open_home(Path(options.home)) as home:
        load_settings(home)
