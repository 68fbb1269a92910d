"""The checks of `remit doctor`: of the machine, the home, the ledger and the running services.

A check changes nothing. It returns a result or raises; an error is a problem with the advice of `advice_for`. Tokens of
the home are sent to its own services only.
"""

import os
import shutil
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from remit.assistants.doctor.checks import Check, CheckResult
from remit.claims.receipt import verify_receipt
from remit.cli.connect import PROXY_ADVICE, connect_hub, connect_proxy, diagnose_proxy
from remit.cli.errors import advice_for
from remit.client import Proxy
from remit.config import CONFIG_FILE, load_settings
from remit.errors import (
    CertificateUnusable,
    HubTokenRequired,
    HubUnavailable,
    RemitError,
    ServiceError,
    ServiceRefused,
    ServiceUnavailable,
    StateMissing,
)
from remit.governor.clock import format_timestamp
from remit.governor.handshake import SOCKET_NAME
from remit.governor.verification import load_snapshot
from remit.ledger.anchor import Anchor, check_anchor
from remit.ledger.embedded import LEDGER_FILE, anchor_mark, open_rows
from remit.ledger.home import Home, open_home
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import build_keyring
from remit.ledger.rows import LedgerQueries
from remit.ledger.sqlite import check_library, connect_reader
from remit.proxy.authority import check_authorities
from remit.server.run_files import RunFile, ServiceName, all_running

_DAY_S: Final = 24 * 3600
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_TURNS: Final = 4


def certificate_days_left(tls: Home) -> int:
    """Return the days until the proxy's certificate expires. Raises if the authority of the home did not issue it."""
    try:
        end = _served_certificate(tls)["notAfter"]
    except ssl.SSLCertVerificationError as error:
        expired = error.verify_code == _EXPIRED
        raise CertificateUnusable(
            "the certificate has expired"
            if expired
            else "the certificate was not issued by the authority in tls/ca.pem"
        ) from None
    except (OSError, KeyError):  # raised by OpenSSL for files that it cannot use
        raise CertificateUnusable("the certificate, its key or the authority cannot be read") from None
    return int(ssl.cert_time_to_seconds(str(end)) - time.time()) // _DAY_S


def _served_certificate(tls: Home) -> Mapping[str, object]:
    """Return the certificate that a client sees, by a TLS handshake in memory."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tls.path_of("proxy.pem"), tls.path_of("proxy-key.pem"))
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False  # the names are checked against a running proxy
    asking.load_verify_locations(tls.path_of("ca.pem"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(back, there)
    server = serving.wrap_bio(there, back, server_side=True)
    for _ in range(_TURNS):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.getpeercert() or {}


_PYTHON: Final = (3, 11)
_OWNER: Final = 0o700
_MIB: Final = 1024 * 1024
_SCARCE: Final = 1024 * _MIB
_FULL: Final = 64 * _MIB
_SKEW_S: Final = 60
_SOON_DAYS: Final = 14
_NAMED: Final = 3
_CHECK: Final = "Verify the whole ledger now: remit ledger check"
_CREATE: Final = "Create it: remit setup"


def check_installation(path: Path) -> Iterator[Check]:
    """Run the checks of the machine and the home; those of the ledger only if there is a home."""
    yield _run_check("python", _check_python)
    yield _run_check("sqlite", _check_sqlite)
    yield _run_check("umask", _check_umask)
    yield _run_check("disk", lambda: _check_disk(path))
    with ExitStack() as held:
        try:
            home = held.enter_context(open_home(path, create=False))
        except StateMissing:
            yield Check("home", "warning", "there is none yet", _CREATE)
            return
        except RemitError as error:
            yield Check("home", "problem", str(error), advice_for(error))
            return
        yield _run_check("home", lambda: _check_home(home, path))
        yield _run_check("settings", lambda: _check_settings(home))
        yield _run_check("certificate", lambda: _check_certificate(home))
        yield from _check_ledger(home)


def _run_check(name: str, look: Callable[[], CheckResult]) -> Check:
    try:
        return Check(name, *look())
    except RemitError as error:
        return Check(name, "problem", str(error), advice_for(error))


def _check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _PYTHON:
        return CheckResult("problem", version, "Install Python 3.11 or newer.")
    return CheckResult("ok", version)


def _check_sqlite() -> CheckResult:
    connection = connect_reader(":memory:")
    try:
        ((version,),) = connection.execute("SELECT sqlite_version()")
    finally:
        connection.close()
    check_library(version)
    return CheckResult("ok", version)


def _check_umask() -> CheckResult:
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & _OWNER:
        return CheckResult("problem", f"{mask:03o} takes permissions from the owner", "Set the umask to 077.")
    return CheckResult("ok", f"{mask:03o}")


def _check_disk(path: Path) -> CheckResult:
    place = path if os.path.lexists(path) else path.absolute().parent
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        raise StateMissing(f"the parent folder of the home cannot be found: {place}") from None
    said = f"{free // _MIB:,} MiB free"
    if free < _FULL:
        return CheckResult("problem", said, "Free disk space: on a full disk every call is denied.")
    if free < _SCARCE:
        return CheckResult("warning", said, "Free disk space soon: on a full disk every call is denied.")
    return CheckResult("ok", said)


def _check_home(home: Home, path: Path) -> CheckResult:
    return CheckResult("ok", f"accessible to its owner only, {_check_files(home, path):,} files")


def _check_files(folder: Home, path: Path) -> int:
    """Check a folder recursively. Raises for a link or a file that others can access; returns the number of files."""
    count = 0
    for name in folder.names():
        if _is_folder(path / name):
            with folder.folder(name, create=False) as inner:
                count += _check_files(inner, path / name)
        elif name == SOCKET_NAME:
            count += folder.check_socket(name)
        else:
            count += folder.check_file(name)
    return count


def _is_folder(path: Path) -> bool:
    """Return whether to open this as a folder. Opening it checks again, and follows no link."""
    return path.is_dir() and not path.is_symlink()


def _check_settings(home: Home) -> CheckResult:
    load_settings(home)
    return CheckResult("ok", "config.json can be read" if home.exists(CONFIG_FILE) else "there is no config.json")


def _check_certificate(home: Home) -> CheckResult:
    if not home.exists("tls"):
        return CheckResult("ok", "there is none yet: the first start of the proxy creates it")
    check_authorities(home, datetime.now(UTC))
    with home.folder("tls", create=False) as tls:
        if not tls.exists("proxy.pem"):
            return CheckResult("ok", "there is none yet: the next start of the proxy creates it")
        left = certificate_days_left(tls)
    if left < _SOON_DAYS:
        return CheckResult("warning", f"{left} days left", "Restart the proxy: it creates a new certificate.")
    return CheckResult("ok", f"{left} days left")


def _check_ledger(home: Home) -> Iterator[Check]:
    """Check the ledger, its keys and the clock, while other processes may write."""
    with ExitStack() as held:
        try:
            mark = Anchor(home).read()  # before the ledger, which is always at or ahead of it
            if mark is None and not home.exists(LEDGER_FILE):
                yield Check("ledger", "warning", "there is none yet", _CREATE)
                return
            _, rows = held.enter_context(open_rows(home))
            overview = rows.overview()
            check_anchor(mark, anchor_mark(overview), rows.hash_at)
        except RemitError as error:
            yield Check("ledger", "problem", str(error), advice_for(error))
            return
        yield Check("ledger", "ok", f"{overview.receipts:,} receipts in {overview.sessions:,} sessions", "")
        yield _run_check("verification", lambda: _check_verification(home, rows))
        yield _run_check("keys", lambda: _check_keys(home, rows))
        yield _run_check("kill switch", lambda: _check_kill_switch(rows))
        yield _run_check("clock", lambda: _check_clock(rows))


def _check_verification(home: Home, rows: LedgerQueries) -> CheckResult:
    """Report up to when the evidence was verified, and the broken chains that are recorded or were found since."""
    broken, sessions = [session.id for session in rows.broken_sessions(limit=_NAMED)], rows.overview().sessions
    snapshot = load_snapshot(home)
    if snapshot is not None and snapshot.is_stale(time.time()):
        snapshot = None
    broken += [found.session_id for found in (snapshot.broken if snapshot else []) if found.session_id not in broken]
    if broken:
        said = f"the chain of {', '.join(broken[:_NAMED])} is broken"
        return CheckResult(
            "problem", said, "Do not trust receipts after the break. List all of them: remit ledger check"
        )
    if snapshot is None:
        said = "not verified continuously: neither the Hub nor the proxy is running"
        return CheckResult("warning" if sessions else "ok", said, _CHECK if sessions else "")
    summary = snapshot.summary
    if snapshot.problem or summary is None:
        return CheckResult("warning", snapshot.problem or "the verifier has not reported yet", _CHECK)
    of = f"{min(summary.sessions_verified, sessions):,} of {sessions:,} sessions"
    if summary.verified_at is None:
        return CheckResult("warning", f"the first pass is running: {of}", _CHECK)
    return CheckResult("ok", f"verified up to {format_timestamp(summary.verified_at * 1000)}, {of}")


def _check_keys(home: Home, rows: LedgerQueries) -> CheckResult:
    signing = rows.ledger_state().kid
    trusted = list(build_keyring(rows.keys()))
    with home.folder("keys", create=False) as folder:
        KeyFiles(folder).load(signing)
    return CheckResult("ok", f"{len(trusted)}, signing {signing}")


def _check_kill_switch(rows: LedgerQueries) -> CheckResult:
    if rows.ledger_state().kill_switch:
        return CheckResult("warning", "on: every call is denied", "Turn it off: remit kill-switch off")
    return CheckResult("ok", "off")


def _check_clock(rows: LedgerQueries) -> CheckResult:
    """Compare the clock with the newest receipt: if it was set back, timestamps do not advance until it catches up."""
    newest = rows.overview().last_receipt_id
    kept = rows.receipt(newest) if newest else None
    if kept is None:
        return CheckResult("ok", "no receipt to compare it with yet")
    behind = verify_receipt(kept.token, build_keyring(rows.keys())).claims.iat - int(time.time())
    if behind > _SKEW_S:
        return CheckResult("problem", f"{behind:,} s behind the newest receipt", "Set the clock of this machine.")
    return CheckResult("ok", "not behind the newest receipt")


_SERVICES: Final[tuple[ServiceName, ...]] = ("hub", "proxy")
_PROXY: Final = "proxy"
_HUB: Final = "hub"
_AUTHORITY: Final = "authority"
_TIMEOUT_S: Final = 5.0
_NOT_RUNNING: Final = "not running"
_START: Final = "Start it: remit proxy; or check --url and --ca."
_NAME_FILE: Final = "Name a file with the certificate of an authority in PEM form."
_SEE_LOG: Final = "See log/{0}.log in the home, or stop it: remit {0} --stop"
_RESTART: Final = "Its token differs from config.json. Restart it: remit hub --stop, then remit hub --background"


def check_running_services(path: Path) -> list[Check]:
    """Check the running services of a home; no checks if the home cannot be opened."""
    with ExitStack() as held:
        try:
            home = held.enter_context(open_home(path, create=False))
        except RemitError:
            return []
        return [check for service in _SERVICES for check in _check_service(home, service)]


def _check_service(home: Home, service: ServiceName) -> list[Check]:
    try:
        running = all_running(home, service)
        return [_SERVICE_CHECKS[service](home, one) for one in running] or [Check(service, "ok", _NOT_RUNNING, "")]
    except RemitError as error:
        return [Check(service, "problem", str(error), advice_for(error))]


def _check_hub(home: Home, running: RunFile) -> Check:
    try:
        with connect_hub(home, running, timeout_s=_TIMEOUT_S, retries=0) as hub:
            answer = hub.status()
    except ServiceRefused as error:
        if error.error_code != HubTokenRequired.code:
            raise
        return Check(_HUB, "problem", f"the Hub at {running.listening} refuses the token", _RESTART)
    except HubUnavailable as error:
        return Check(_HUB, "problem", f"{running.listening} is running: {error}", _SEE_LOG.format(_HUB))
    return Check(_HUB, "ok", f"remit {answer.version} answers at {running.listening}", "")


def _check_proxy(home: Home, running: RunFile) -> Check:
    try:
        with connect_proxy(home, running, timeout_s=_TIMEOUT_S, retries=0) as proxy:
            answer = proxy.health()
    except ServiceUnavailable as error:
        if why := diagnose_proxy(home, running):
            return Check(_PROXY, "warning", f"{running.listening} is running, but {why}", PROXY_ADVICE[why])
        return Check(_PROXY, "problem", f"{running.listening} is running: {error}", _SEE_LOG.format(_PROXY))
    return Check(_PROXY, "ok", f"remit {answer.version} answers at {running.listening}", "")


_SERVICE_CHECKS: Final[Mapping[ServiceName, Callable[[Home, RunFile], Check]]] = {
    "hub": _check_hub,
    "proxy": _check_proxy,
}


def check_proxy_at(path: Path, url: str, ca: Path | None) -> Check:
    """Check the proxy at a URL. Its authority is `ca`, else that of the home if there is one."""
    own = path / "tls" / "ca.pem"
    trusted = ca or (own if url.startswith("https:") and own.is_file() else None)
    try:
        with Proxy(url, ca=trusted, timeout_s=_TIMEOUT_S, retries=0) as proxy:
            answer = proxy.health()
    except CertificateUnusable as error:  # --ca is wrong, not the proxy
        return Check(_AUTHORITY, "problem", str(error), _NAME_FILE)
    except ServiceError as error:
        advice = _START if isinstance(error, ServiceUnavailable) else advice_for(error)
        return Check(_PROXY, "problem", str(error), advice)
    return Check(_PROXY, "ok", f"remit {answer.version} answers", "")
