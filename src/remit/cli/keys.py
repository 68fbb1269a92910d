"""`remit keys`: which keys have signed here, changing the one that signs, distrusting one, and public keys for others.

No private key is ever printed.
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
from remit.ledger.keys import distrusted_from, keyring_of, limit_ids, limits_of
from remit.ledger.records import KeyRecord
from remit.ledger.rows import Rows
from remit.wiring import Service

__all__ = ["keys"]

_MODE: Final = 0o644


@click.group()
def keys() -> None:
    """List the keys, change the one that signs, distrust a stolen one, export the public ones."""


@keys.command("list")
@common_options
def _list_command(*, home: str | None, as_json: bool) -> None:
    """List the keys that have signed here, oldest first.

    Example: remit keys list
    """
    with open_ledger_reader(home, as_json=as_json) as rows:
        signing, records, distrusted = rows.switches().kid, rows.keys(), _distrusted(rows)
    listed = [_key_data(record, signing, distrusted) for record in records]
    if as_json:
        return show_data({"ok": True, "keys": listed})
    for key in listed:
        until = f", distrusted from {date(key['distrusted_from'])}" if "distrusted_from" in key else ""
        click.echo(f"{key['kid']}  {key['state']:<8} since {date(key['since'])}{until}")
    return None


def _distrusted(rows: Rows) -> dict[str, int]:
    return distrusted_from(limits_of(rows.limits(), keyring_of(rows.keys())))


def _key_data(record: KeyRecord, signing: str, distrusted: Mapping[str, int]) -> dict[str, Any]:
    data = {"kid": record.kid, "since": record.created_ms // 1000}
    if record.kid in distrusted:
        return data | {"state": "distrusted", "distrusted_from": distrusted[record.kid]}
    return data | {"state": "signing" if record.kid == signing else "retired"}


@keys.command("rotate")
@common_options
def _rotate_command(*, home: str | None, as_json: bool) -> None:
    """Let the key that signs hand over to a new one; what it has signed stays believed.

    The Hub and the proxy go on with the new key by themselves.

    Example: remit keys rotate
    """
    with open_service(home, as_json=as_json) as service:
        with _stated(service):
            record = service.governor.run(RotateKey())
        kids = [kept.kid for kept in service.reader.keys()]  # noqa: SIM118 - not a dictionary
    retired = kids[kids.index(record.kid) - 1]
    if as_json:
        return show_data({"ok": True, "signing": record.kid, "retired": retired})
    return show_facts({"signing": record.kid, "retired": retired, "next": "remit keys export"})


@contextmanager
def _stated(service: Service) -> Iterator[None]:
    """Sign a statement about each end of a key's period that is recorded meanwhile."""
    reader = service.reader
    before = limit_ids(reader.limits(), keyring_of(reader.keys()))
    yield
    for limit in limits_of(reader.limits(), keyring_of(reader.keys())):
        if limit.jti not in before:
            try:
                service.governor.run(limit_statement(limit))
            except RemitError as error:
                # It has happened all the same.
                note(f"careful: no statement about the end of the period of {limit.kid} was signed: {error}")


@keys.command("distrust", cls=KeyCommand)
@click.argument("kid", metavar="KID")
@click.option("--from", "since", required=True, metavar="TIME", help="ISO 8601 with its zone, or now.")
@click.option("--yes", is_flag=True, help="Do not ask back.")
@common_options
def _distrust_command(*, kid: str, since: str, yes: bool, home: str | None, as_json: bool) -> None:
    """Refuse what the key KID has signed later than TIME, as when it was stolen then.

    TIME is translated at once into a place in the ledger; no date in a token moves it. Passports that the key has
    signed after it start no session, and sessions under them are revoked. Receipts after it are named by `remit ledger
    check`. If KID is the key that signs, it hands over to a new one first. What it signed before stays believed.

    Example: remit keys distrust KID --from 2026-03-01T12:00:00Z
    """
    with report_errors(as_json=as_json):
        now_ms = time.time_ns() // 1_000_000
        from_ms = _moment(since, now_ms)
    _confirm(kid, from_ms, yes=yes, as_json=as_json)
    with open_service(home, as_json=as_json) as service:
        with _stated(service):
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
            "signing": f"{done.signing}{', because the key that signed has handed over first' if done.rotated else ''}",
            "revoked": f"{len(done.passports):,} passports; {closed:,} sessions were active",
            "next": "remit ledger check names what the key has signed later",
        }
    )


def _moment(text: str, now_ms: int) -> int:
    """Return a time in milliseconds, which is not in the future."""
    if text == "now":
        return now_ms
    try:
        moment = datetime.fromisoformat(text)
        milliseconds = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise FieldInvalid("must be a time as in 2026-03-01T12:00:00Z, or now", place="--from") from None
    if moment.tzinfo is None:
        raise FieldInvalid("must say its zone, as in 2026-03-01T12:00:00Z", place="--from")
    if milliseconds > now_ms:
        raise FieldInvalid("must not be in the future", place="--from")
    return max(0, milliseconds)


def _confirm(kid: str, from_ms: int, *, yes: bool, as_json: bool) -> None:
    """Let a person say that it is meant; a program has to say so at once."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: add --yes.")
    question = f"Refuse all that {kid} has signed later than {date(from_ms // 1000)}? This cannot be taken back."
    click.confirm(question, abort=True, err=True)


@keys.command("export")
@click.option(
    "--format", "form", type=click.Choice(["jwks", "pem"]), default="jwks", show_default=True, help="As what."
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file, which must not exist, instead."
)
@common_options
def _export_command(*, form: Literal["jwks", "pem"], out: Path | None, home: str | None, as_json: bool) -> None:
    """Print the public keys that verify what was signed here, oldest first.

    A key that is distrusted is among them, because of what it signed before; a note says so.

    Example: remit keys export --out remit.jwks
    """
    with open_ledger_reader(home, as_json=as_json) as rows:
        believed, distrusted = [trusted.key for trusted in keyring_of(rows.keys())], _distrusted(rows)
        jwks = {"keys": [key.to_jwk() for key in believed]}
        pem = "".join(key.to_pem().decode("ascii") for key in believed)
        text = pem if form == "pem" else json.dumps(jwks, indent=2) + "\n"
        if out is not None:
            _write(out, text)
    for kid, since in distrusted.items():
        note(f"{kid} is distrusted from {date(since)}: it counts for what this ledger holds from before, and no more")
    if as_json:
        return show_data({"ok": True} | (jwks if form == "jwks" else {"pem": pem}))
    return show_facts({"file": str(out), "keys": str(len(believed))}) if out else click.echo(text, nl=False)


def _write(file: Path, text: str) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with os.fdopen(fd, "w", encoding="ascii") as opened:
            opened.write(text)
    except FileExistsError:
        raise FieldInvalid("the file exists already", place="$.out") from None
    except (OSError, ValueError):
        raise FieldInvalid("the file cannot be written", place="$.out") from None
