"""The options of `issue` and `delegate` for what an agent may do, and for what a passport is bound to."""

import ssl
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from remit.claims.canonical import encode_base64url
from remit.claims.mission import SIDE_EFFECT_CLASSES
from remit.claims.passport import Confirmation
from remit.cli.options import ListOption
from remit.errors import CertificateUnusable

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_MAX_BYTES: Final = 64 * 1024


def certificate_confirmation(file: Path) -> Confirmation:
    """Return the confirmation that binds a passport to a client certificate (RFC 8705), given as a PEM file."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_BYTES).decode("ascii").strip()
        if text.count(_BEGIN) != 1:
            raise CertificateUnusable("the file must hold exactly one certificate in PEM form")
        der = ssl.PEM_cert_to_DER_cert(text)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except OSError:  # also raised by OpenSSL for bytes that are not a certificate
        raise CertificateUnusable("the certificate cannot be read") from None
    except ValueError:
        raise CertificateUnusable("the file is not a certificate in PEM form") from None
    return Confirmation(certificate=encode_base64url(sha256(der).digest()))


_Command = TypeVar("_Command", bound=Callable[..., Any])


def mission_options(*, tools: str, scope: str, effects: str) -> Callable[[_Command], _Command]:
    """Add the options. The arguments describe the defaults for the help text."""
    options = (
        click.option(
            "--allowed-tools",
            cls=ListOption,
            metavar="TOOL [TOOL...]",
            help=f"Tools the agent may use, by name or glob. Default: {tools}.",
        ),
        click.option(
            "--forbidden-tools", cls=ListOption, metavar="TOOL [TOOL...]", help="Tools it may not use, even if allowed."
        ),
        click.option(
            "--resource-scope",
            cls=ListOption,
            metavar="PATH [PATH...]",
            help=f"Folders, files, globs and URLs the agent may use; ** is everything. Default: {scope}.",
        ),
        click.option(
            "--allowed-side-effects",
            cls=ListOption,
            type=click.Choice(SIDE_EFFECT_CLASSES),
            metavar="CLASS [CLASS...]",
            help=f"Side effects its calls may have: {', '.join(SIDE_EFFECT_CLASSES)}. Default: {effects}.",
        ),
        click.option("--cwd", metavar="DIR", help="The directory that relative paths start from."),
        click.option(
            "--bind-certificate",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Bind the passport to the holder of this client certificate (PEM).",
        ),
    )

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
