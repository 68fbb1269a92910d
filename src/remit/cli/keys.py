"""`remit keys`: lists, rotates, distrusts and exports the signing keys of a home.

Private keys are never printed.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import click

from remit.cli.errors import report_errors
from remit.cli.homes import open_ledger_reader, open_service
from remit.cli.options import KeyCommand, common_options
from remit.cli.render import date, note, show_data, show_facts
from remit.errors import FieldInvalid, RemitError
from remit.governor.keys import DistrustKey, RotateKey
from remit.governor.revoke import CloseRevoked
from remit.governor.statements import limit_statement
from remit.ledger.keys import build_keyring, find_distrusted, key_limit_ids, load_key_limits
from remit.ledger.records import KeyRecord
from remit.ledger.rows import LedgerQueries
from remit.wiring import Service

_MODE: Final = 0o644


@click.group()
def keys() -> None:
    """List, rotate and distrust the signing keys, and export the public ones."""


@keys.command("list")
@common_options
def _list_command(*, home: str | None, as_json: bool) -> None:
    """List the signing keys of this home, oldest first.

    Example: remit keys list
    """
    with open_ledger_reader(home, as_json=as_json) as rows:
        signing, records, distrusted = rows.ledger_state().kid, rows.keys(), _load_distrusted(rows)
    listed = [_key_data(record, signing, distrusted) for record in records]
    if as_json:
        return show_data({"ok": True, "keys": listed})
    for key in listed:
        until = f", distrusted from {date(key['distrusted_from'])}" if "distrusted_from" in key else ""
        click.echo(f"{key['kid']}  {key['state']:<8} since {date(key['since'])}{until}")
    return None


def _load_distrusted(rows: LedgerQueries) -> dict[str, int]:
    return find_distrusted(load_key_limits(rows.limits(), build_keyring(rows.keys())))


def _key_data(record: KeyRecord, signing: str, distrusted: Mapping[str, int]) -> dict[str, Any]:
    data = {"kid": record.kid, "since": record.created_ms // 1000}
    if record.kid in distrusted:
        return data | {"state": "distrusted", "distrusted_from": distrusted[record.kid]}
    return data | {"state": "signing" if record.kid == signing else "retired"}


@keys.command("rotate")
@common_options
def _rotate_command(*, home: str | None, as_json: bool) -> None:
    """Replace the signing key by a new one. What the old one has signed stays valid.

    A running Hub or proxy switches to the new key without a restart.

    Example: remit keys rotate
    """
    with open_service(home, as_json=as_json) as service:
        with _sign_limit_statements(service):
            record = service.governor.run(RotateKey())
        kids = [stored.kid for stored in service.reader.keys()]  # noqa: SIM118 - not a dictionary
    retired = kids[kids.index(record.kid) - 1]
    if as_json:
        return show_data({"ok": True, "signing": record.kid, "retired": retired})
    return show_facts({"signing": record.kid, "retired": retired, "next": "remit keys export"})


@contextmanager
def _sign_limit_statements(service: Service) -> Iterator[None]:
    """Sign a statement about each key period that ends in the block."""
    reader = service.reader
    before = key_limit_ids(reader.limits(), build_keyring(reader.keys()))
    yield
    for limit in load_key_limits(reader.limits(), build_keyring(reader.keys())):
        if limit.jti not in before:
            try:
                service.governor.run(limit_statement(limit))
            except RemitError as error:
                # The period has ended, with or without the statement.
                note(f"careful: no statement about the end of the period of {limit.kid} was signed: {error}")


@keys.command("distrust", cls=KeyCommand)
@click.argument("kid", metavar="KID")
@click.option("--from", "since", required=True, metavar="TIME", help="ISO 8601 with a time zone, or now.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common_options
def _distrust_command(*, kid: str, since: str, yes: bool, home: str | None, as_json: bool) -> None:
    """Distrust what the key KID has signed after TIME, for example because it was stolen then.

    TIME is turned into a position in the ledger; dates in tokens have no influence. Passports that the key signed after
    it can start no session, and their sessions are revoked. `remit ledger check` lists receipts after it. If KID is the
    current signing key, it is rotated first. What it signed before stays valid.

    Example: remit keys distrust KID --from 2026-03-01T12:00:00Z
    """
    with report_errors(as_json=as_json):
        now_ms = time.time_ns() // 1_000_000
        from_ms = _parse_time(since, now_ms)
    _confirm(kid, from_ms, yes=yes, as_json=as_json)
    with open_service(home, as_json=as_json) as service:
        with _sign_limit_statements(service):
            done = service.governor.run(DistrustKey(kid, from_ms))
        closed = service.governor.run(CloseRevoked(done.passports))
    if as_json:
        return show_data(
            {
                "ok": True,
                "distrusted": kid,
                "from": from_ms // 1000,
                "rotated": done.rotated,
                "signing": done.signing,
                "position": done.position._asdict(),
                "revoked_passports": done.passports,
                "closed_sessions": closed,
            }
        )
    return show_facts(
        {
            "distrusted": f"{kid} from {date(from_ms // 1000)}, after receipt {done.position.receipts:,} of the ledger",
            "signing": f"{done.signing}{' (the signing key was rotated first)' if done.rotated else ''}",
            "revoked": f"{len(done.passports):,} passports; {closed:,} sessions were active",
            "next": "remit ledger check lists what the key has signed later",
        }
    )


def _parse_time(text: str, now_ms: int) -> int:
    """Parse a time that is not in the future, in milliseconds."""
    if text == "now":
        return now_ms
    try:
        moment = datetime.fromisoformat(text)
        milliseconds = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise FieldInvalid("must be a time as in 2026-03-01T12:00:00Z, or now", place="--from") from None
    if moment.tzinfo is None:
        raise FieldInvalid("must have a time zone, as in 2026-03-01T12:00:00Z", place="--from")
    if milliseconds > now_ms:
        raise FieldInvalid("must not be in the future", place="--from")
    return max(0, milliseconds)


def _confirm(kid: str, from_ms: int, *, yes: bool, as_json: bool) -> None:
    """Ask for confirmation. Without a terminal, `--yes` is required."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("Confirmation needs a terminal: add --yes.")
    question = f"Distrust everything that {kid} has signed after {date(from_ms // 1000)}? This cannot be undone."
    click.confirm(question, abort=True, err=True)


@keys.command("export")
@click.option(
    "--format", "form", type=click.Choice(["jwks", "pem"]), default="jwks", show_default=True, help="The format."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to a new file instead of stdout.")
@common_options
def _export_command(*, form: Literal["jwks", "pem"], out: Path | None, home: str | None, as_json: bool) -> None:
    """Print the public keys that verify what this home has signed, oldest first.

    A distrusted key is included, because of what it signed before; a note names it.

    Example: remit keys export --out remit.jwks
    """
    with open_ledger_reader(home, as_json=as_json) as rows:
        trusted_keys, distrusted = [trusted.key for trusted in build_keyring(rows.keys())], _load_distrusted(rows)
        jwks = {"keys": [key.to_jwk() for key in trusted_keys]}
        pem = "".join(key.to_pem().decode("ascii") for key in trusted_keys)
        text = pem if form == "pem" else json.dumps(jwks, indent=2) + "\n"
        if out is not None:
            _write(out, text)
    for kid, since in distrusted.items():
        note(f"{kid} is distrusted from {date(since)}: it is valid only for what this ledger has from before")
    if as_json:
        return show_data({"ok": True} | (jwks if form == "jwks" else {"pem": pem}))
    return show_facts({"file": str(out), "keys": str(len(trusted_keys))}) if out else click.echo(text, nl=False)


def _write(file: Path, text: str) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with os.fdopen(fd, "w", encoding="ascii") as opened:
            opened.write(text)
    except FileExistsError:
        raise FieldInvalid(f"the file {file} exists already", place="$.out") from None
    except (OSError, ValueError):
        raise FieldInvalid(f"the file {file} cannot be written", place="$.out") from None
