"""What a program sees when a command fails: an exit code by the kind of error, and what to do about it.

Both are tables over the error tree: a class without an entry of its own has that of the class above it. An error that a
service has answered counts as its own kind where that matters here; a note that an error carries is its advice.
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

__all__ = [
    "ADVICE",
    "DONE",
    "EXIT_CODES",
    "NO",
    "OUR_FAULT",
    "STATE",
    "UNAVAILABLE",
    "USAGE",
    "advice_for",
    "exit_code",
    "failure",
    "report_errors",
    "tell",
]

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
    RemitError: "This should not happen: please report it.",
    InputError: "Check what was given to the command; --help shows an example.",
    FieldInvalid: "Check what was given to the command; --help shows an example.",
    KeyMaterialError: "Name a file that holds a P-256 key.",
    TokenError: "Take the token again from where it was issued.",
    PassportError: "Ask for a new passport.",
    EvidenceError: "Keep the evidence as it is, and look at the first place that does not fit.",
    RequestError: "Look at what is there with: remit ledger show",
    AccessError: "Look at what was sent; docs/spec/proxy.md shows every request.",
    TokenRequired: "Take the token from: remit token",
    HubTokenRequired: "The Hub reads its token from config.json: remit doctor says more; or start it anew.",
    ServiceError: "Look whether the service runs: remit doctor",
    HubUnavailable: "Start the Hub with: remit hub; or look at: remit doctor",
    ServiceRefused: "Look at what was sent; docs/api.md shows every request.",
    PortInUse: "Choose another port, or 0 to let the system choose, on an address of this machine.",
    CertificateUnusable: "Name the files of a certificate and its key in PEM form, readable for this user.",
    LedgerError: "Look whether the disk is full or failing, then try again.",
    LedgerUnavailable: "Look whether the disk is full or failing, then try again.",
    StateError: "Nothing was changed. Put it right, then try again.",
    HomeUnsafe: "Make the home, and everything in it, its owner's alone.",
    StateCorrupt: "Put right what is named; a copy of the ledger is put back with: remit ledger restore FILE",
    StateMissing: "Look whether --home or REMIT_HOME names the right folder, or restore a copy of what is gone.",
    LedgerForeign: "Look whether --home and FILE belong together.",
    LedgerRolledBack: "Restore a newer copy, or accept the loss: remit ledger restore FILE --accept-loss",
    LedgerInUse: "Stop the Hub and the proxy, then try again.",
    SqliteUnsafe: "Install a current apsw.",
}


def exit_code(error: RemitError) -> int:
    """Return the exit code for an error."""
    return _nearest(EXIT_CODES, _kind_of(error))


def advice_for(error: RemitError) -> str:
    """Return what to do about an error, as one sentence."""
    own: list[str] = getattr(error, "__notes__", [])
    return own[0] if own else _nearest(ADVICE, _kind_of(error))


_ANSWERED: Final[Mapping[str, type[RemitError]]] = {
    kind.code: kind for kind in (HubTokenRequired, SessionNotFound, TokenRequired)
}


def _kind_of(error: RemitError) -> type[RemitError]:
    return _ANSWERED.get(getattr(error, "error_code", ""), type(error))


def _nearest(table: Mapping[type[RemitError], _T], kind: type[RemitError]) -> _T:
    return next(table[above] for above in kind.__mro__ if above in table)


def _answered(error: RemitError) -> tuple[str, str]:
    """Return what programs are told: the words and the code of the service, where one has refused."""
    return getattr(error, "error", "") or str(error), getattr(error, "error_code", error.code)


@contextmanager
def report_errors(*, as_json: bool) -> Iterator[None]:
    """Turn an error into two lines on stderr, or one document on stdout, and the exit code."""
    try:
        yield
    except RemitError as error:
        said, code = _answered(error) if as_json else (str(error), error.code)
        tell(said, code, advice_for(error), as_json=as_json)
        raise SystemExit(exit_code(error)) from error
    except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError, OutputNotWritten):
        raise  # the program says how this ends; a reader of ours that has gone is no error
    except Exception as error:  # the edge of the program: whatever it is, it is our fault
        kind = type(error).__name__
        tell(f"an unforeseen {kind}", RemitError.code, ADVICE[RemitError], as_json=as_json)
        raise SystemExit(OUR_FAULT) from error


def failure(message: str, code: str) -> dict[str, object]:
    """Return what every JSON document begins with whose command did not come out well; others add their findings."""
    return {"ok": False, "error": message, "error_code": code}


def tell(message: str, code: str, advice: str, *, as_json: bool) -> None:
    """Say what is wrong and what to do, in two lines on stderr, or in one document on stdout."""
    if as_json:
        click.echo(json.dumps(failure(message, code)))
        return
    with suppress(OSError):  # the exit code says it too
        click.echo(f"remit: {message}", err=True)
        click.echo(f"       {advice}", err=True)
