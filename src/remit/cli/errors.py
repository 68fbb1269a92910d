"""Exit codes and advice for errors, as tables over the error tree.

A class without an entry has that of its nearest base class. An error from a service is looked up by its error code if
that code is in `_ANSWERED`. A note that is attached to an error replaces the advice of the table.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import click

from remit.cli.render import OutputNotWritten
from remit.errors import (
    AccessError,
    CertificateUnusable,
    EvidenceError,
    FieldInvalid,
    HomeUnsafe,
    HubTokenRequired,
    HubUnavailable,
    InputError,
    KeyMaterialError,
    LedgerError,
    LedgerForeign,
    LedgerInUse,
    LedgerRolledBack,
    LedgerUnavailable,
    PassportError,
    PortInUse,
    RemitError,
    RequestError,
    ServiceError,
    ServiceRefused,
    SessionNotFound,
    SqliteUnsafe,
    StateCorrupt,
    StateError,
    StateMissing,
    TokenError,
    TokenRequired,
)

_T = TypeVar("_T")

DONE: Final = 0
NO: Final = 1
USAGE: Final = 2
UNAVAILABLE: Final = 69
OUR_FAULT: Final = 70
_PERMISSION: Final = 77
STATE: Final = 78

EXIT_CODES: Final[Mapping[type[RemitError], int]] = {
    RemitError: OUR_FAULT,
    InputError: USAGE,
    KeyMaterialError: STATE,
    TokenError: NO,
    PassportError: NO,
    EvidenceError: NO,
    RequestError: NO,
    AccessError: NO,
    HubTokenRequired: _PERMISSION,
    TokenRequired: _PERMISSION,
    ServiceError: UNAVAILABLE,
    ServiceRefused: NO,
    PortInUse: STATE,
    CertificateUnusable: STATE,
    LedgerError: STATE,
    StateError: STATE,
    HomeUnsafe: _PERMISSION,
}
ADVICE: Final[Mapping[type[RemitError], str]] = {
    RemitError: "This is a bug in Remit: please report it.",
    InputError: "Check the arguments of the command; --help shows an example.",
    FieldInvalid: "Check the arguments of the command; --help shows an example.",
    KeyMaterialError: "Name a file with a P-256 key.",
    TokenError: "Copy the whole token again from where it was issued.",
    PassportError: "Issue a new passport; remit issue --help shows an example.",
    EvidenceError: "Keep the evidence unchanged, and examine the first place that is named.",
    RequestError: "See the content of the ledger: remit ledger show",
    AccessError: "Check the request; docs/integrate/proxy.md describes every request.",
    TokenRequired: "Get the token with: remit token",
    HubTokenRequired: "The Hub reads its token from config.json. See: remit doctor; or restart the Hub.",
    ServiceError: "Check whether the service is running: remit doctor",
    HubUnavailable: "Start the Hub: remit hub; or see: remit doctor",
    ServiceRefused: "Check the request; docs/integrate/api.md describes every request.",
    PortInUse: "Choose another port, or 0 to let the system choose, on an address of this machine.",
    CertificateUnusable: "Name the files of a certificate and its key in PEM form, readable for this user.",
    LedgerError: "Check whether the disk is full or failing, then try again.",
    LedgerUnavailable: "Check whether the disk is full or failing, then try again.",
    StateError: "Nothing was changed. Fix what is named, then try again.",
    HomeUnsafe: "Make the home and everything in it accessible to its owner only, as chmod -R go= DIR does.",
    StateCorrupt: "Repair what is named; to restore the ledger from a copy: remit ledger restore FILE",
    StateMissing: "Check --home and REMIT_HOME, or restore a copy of what is missing.",
    LedgerForeign: "Check that --home and FILE belong together.",
    LedgerRolledBack: "Restore a newer copy, or accept the loss: remit ledger restore FILE --accept-loss",
    LedgerInUse: "Stop the Hub and the proxy, then try again.",
    SqliteUnsafe: "Install a current version of apsw.",
}


def exit_code(error: RemitError) -> int:
    """Return the exit code for an error."""
    return _nearest(EXIT_CODES, _error_class(error))


def advice_for(error: RemitError) -> str:
    """Return what the user can do about an error, as one sentence."""
    own: list[str] = getattr(error, "__notes__", [])
    return own[0] if own else _nearest(ADVICE, _error_class(error))


_ANSWERED: Final[Mapping[str, type[RemitError]]] = {
    kind.code: kind for kind in (HubTokenRequired, SessionNotFound, TokenRequired)
}


def _error_class(error: RemitError) -> type[RemitError]:
    return _ANSWERED.get(getattr(error, "error_code", ""), type(error))


def _nearest(table: Mapping[type[RemitError], _T], kind: type[RemitError]) -> _T:
    return next(table[above] for above in kind.__mro__ if above in table)


def _message_and_code(error: RemitError) -> tuple[str, str]:
    """Return the message and the code for programs: those of the service if a service has refused."""
    return getattr(error, "error", "") or str(error), getattr(error, "error_code", error.code)


@contextmanager
def report_errors(*, as_json: bool) -> Iterator[None]:
    """Report an error as two lines on stderr or one JSON document on stdout, and exit with its code."""
    try:
        yield
    except RemitError as error:
        said, code = _message_and_code(error) if as_json else (str(error), error.code)
        print_error(said, code, advice_for(error), as_json=as_json)
        raise SystemExit(exit_code(error)) from error
    except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError, OutputNotWritten):
        raise  # `Program` handles these; a reader that closed the pipe is not an error
    except Exception as error:  # the outermost handler: any other exception is a bug
        kind = type(error).__name__
        print_error(f"unexpected {kind}", RemitError.code, ADVICE[RemitError], as_json=as_json)
        raise SystemExit(OUR_FAULT) from error


def failure(message: str, code: str) -> dict[str, object]:
    """Return the first members of the JSON document of a failed command. Commands add their findings."""
    return {"ok": False, "error": message, "error_code": code}


def print_error(message: str, code: str, advice: str, *, as_json: bool) -> None:
    """Print an error and what to do about it: two lines on stderr, or one JSON document on stdout."""
    if as_json:
        click.echo(json.dumps(failure(message, code)))
        return
    with suppress(OSError):  # the exit code still reports the failure
        click.echo(f"remit: {message}", err=True)
        click.echo(f"       {advice}", err=True)
