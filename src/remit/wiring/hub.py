"""A Hub put together: from its options to a server that runs."""

import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from remit.assistants.handlers import HookHandlers, zsh_users
from remit.assistants.monitor.monitor import SettingsMonitor
from remit.assistants.monitor.obstacles import obstacle_of, read_for
from remit.assistants.records import Protections
from remit.assistants.routes import hook_routes
from remit.config import CONFIG_FILE, assistant_config, ensure_token, load_settings, user_shell
from remit.errors import FieldInvalid, RemitError
from remit.governor.verification import Verification, VerificationState
from remit.hub.dashboard.desk import Pages
from remit.hub.desk import Desk
from remit.hub.doors import HUB_BROWSER_POLICY, HubDoors, shared_hook_token
from remit.hub.opening import clear_opening
from remit.hub.options import HubOptions
from remit.hub.recording import Recording
from remit.hub.routes import Page, describe_hub, hub_routes
from remit.hub.standing import Place
from remit.ledger.home import Home, open_home
from remit.schemas.hub import MAX_BODY_BYTES
from remit.server.application import Application
from remit.server.auth import ReloadingAuthenticator
from remit.server.hosts import allowed_hosts, is_loopback
from remit.server.limits import Limits
from remit.server.log import configure, hide
from remit.server.routes import Route
from remit.server.server import Server, bind, run_server, url_of
from remit.server.telemetry import Metrics, Telemetry, start_exporter
from remit.version import __version__
from remit.wiring import Service, build_service, default_processes
from remit.wiring.serving import FINISHING_S, close_all, noted_in, watch_ledger, with_pages

__all__ = ["run_hub"]


def run_hub(options: HubOptions, ready: Callable[[str], None]) -> None:
    """Run a Hub until it is stopped; `ready` is told where it listens.

    What can be wrong with the options, the home or the port is found before.
    """
    if not is_loopback(options.host):
        raise FieldInvalid("the Hub is for this machine alone: name a loopback address", place="--host")
    configure(options.log_level, as_json=options.log_json, stream=sys.stderr)
    with bind(options.host, options.port) as listening:
        url = url_of(listening, tls=False)
        with noted_in(options.home, "hub", url, options.asked(), ready) as tell:
            _serve(options, listening, url, tell)


def _serve(options: HubOptions, listening: socket.socket, url: str, ready: Callable[[], None]) -> None:
    """Run one server with its own governor until it is stopped."""
    exporter = start_exporter(options.otlp_endpoint, "remit-hub", __version__)
    metrics = Metrics(None)
    recording = Recording(metrics.ledger)
    service = build_service(
        Path(options.home),
        user_home=options.user_home,
        policies=options.policies,
        observer=recording,
        service="hub",
        processes=options.processes or default_processes(),
    )
    doors = HubDoors(
        _token(options),
        clock=time.monotonic,
        wall=time.time,
        takes_shared=partial(_is_of_first_release, service.protections),
    )
    telemetry = Telemetry(metrics, exporter)
    verification = Verification(service.governor, options.home, telemetry)
    verification.start()
    pages = Pages(service.governor, verification.state, recording)
    vigil = _vigil(service, options)
    service.finish_closing()
    try:
        authenticator = ReloadingAuthenticator(
            partial(_renewed, doors, service.home),
            partial(service.home.version_of, CONFIG_FILE),
            clock=time.monotonic,
            failed=partial(telemetry.log_event, "settings_kept"),
        )
        place = Place(options.home, url, partial(_check, options), verification.state)
        desk = Desk(service.governor, place)
        hooks = HookHandlers(
            service.governor,
            service.protections,
            options.user_home,
            doors.prove,
            is_tampered=vigil.is_tampered,
            zsh_users=zsh_users(user_shell()),
        )
        application = Application(
            _routes(
                service,
                metrics,
                verification.state,
                lambda *pages_of_all: [
                    *hub_routes(desk, pages, doors.set_cookie, *pages_of_all),
                    *hook_routes(hooks),
                ],
            ),
            hosts=allowed_hosts(options.host, listening.getsockname()[1]),
            authenticator=authenticator,
            body_bytes=MAX_BODY_BYTES,
            telemetry=telemetry,
            browser_policy=HUB_BROWSER_POLICY,
        )
        # All peers are this machine: one that floods it must not use up what is meant for one peer.
        most = Limits().connections
        limits = Limits(body_bytes=MAX_BODY_BYTES, stop_s=FINISHING_S, connections=most, connections_per_peer=most)
        run_server(
            lambda: Server(
                application,
                listening,
                limits=limits,
                refused=telemetry.refused,
                told=telemetry.log_event,
                renew=authenticator.reload,
            ),
            ready,
        )
    finally:
        with suppress(RemitError), open_home(Path(options.home), create=False) as home:
            clear_opening(home)
        close_all(vigil, pages, verification, service, telemetry)


def _vigil(service: Service, options: HubOptions) -> SettingsMonitor:
    """Return what keeps protections in force; it reads them for itself, because it is a thread of its own."""
    obstacle = partial(obstacle_of, user_home=options.user_home, config=assistant_config)
    reads = partial(read_for, user_home=options.user_home, config=assistant_config)
    return SettingsMonitor(Protections(service.home), obstacle, reads, service.governor)


def _routes(
    service: Service,
    metrics: Metrics,
    verification: VerificationState,
    routes_for: Callable[[Page, Page], list[Route]],
) -> list[Route]:
    watch_ledger(metrics, service.reader, verification)
    return with_pages(routes_for, metrics, describe_hub)


def _token(options: HubOptions) -> str:
    """Return the token of the Hub, which no log may show."""
    with open_home(Path(options.home)) as home:
        token = ensure_token(home, "hub")
    _hide(token)
    return token


def _hide(token: str) -> None:
    hide(token)
    hide(shared_hook_token(token))


def _renewed(doors: HubDoors, home: Home) -> HubDoors:
    """Return the doors with the token that the settings have now; one that was taken out of them stays."""
    token = load_settings(home).hub_token
    if token is not None:
        _hide(token)
        doors.renew(token)
    return doors


def _is_of_first_release(protections: Protections, name: str) -> bool:
    """Tell whether a protection was written by the first release, whose hooks show a token that all of them share."""
    protection = protections.get(name)
    return protection is not None and protection.generation == 0


def _check(options: HubOptions) -> None:
    """Raise if the settings of the home cannot be read."""
    with open_home(Path(options.home)) as home:
        load_settings(home)
