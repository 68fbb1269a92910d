"""`remit keys`: which keys have signed here, changing the one that signs, and the public keys for others.

No private key is ever printed.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Final, Literal

import click

from remit.cli.opening import opened_ledger, opened_rows
from remit.cli.options import everywhere
from remit.cli.render import date, show_data, show_facts
from remit.errors import FieldInvalid
from remit.ledger.keys import keyring_of, rotate
from remit.ledger.records import KeyRecord

__all__ = ["keys"]

_MODE: Final = 0o644


@click.group()
def keys() -> None:
    """List the keys, change the one that signs, export the public ones."""


@keys.command("list")
@everywhere
def _list_command(*, home: str | None, as_json: bool) -> None:
    """List the keys that have signed here, oldest first.

    Example: remit keys list
    """
    with opened_rows(home, as_json=as_json) as rows:
        signing, records = rows.switches().kid, rows.keys()
    listed = [_key_data(record, signing) for record in records]
    if as_json:
        return show_data({"ok": True, "keys": listed})
    for key in listed:
        click.echo(f"{key['kid']}  {key['state']:<8} since {date(key['since'])}")
    return None


def _key_data(record: KeyRecord, signing: str) -> dict[str, Any]:
    state = "signing" if record.kid == signing else "retired"
    return {"kid": record.kid, "since": record.created_ms // 1000, "state": state}


@keys.command("rotate")
@everywhere
def _rotate_command(*, home: str | None, as_json: bool) -> None:
    """Let the key that signs hand over to a new one; what it has signed stays believed.

    The Hub and the proxy go on with the new key by themselves.

    Example: remit keys rotate
    """
    with opened_ledger(home, as_json=as_json) as ledger:
        record = rotate(ledger.ledger, ledger.keys, ledger.key_files, time.time_ns() // 1_000_000)
        kids = [kept.kid for kept in ledger.reader.keys()]  # noqa: SIM118 - not a dictionary
    retired = kids[kids.index(record.kid) - 1]
    if as_json:
        return show_data({"ok": True, "signing": record.kid, "retired": retired})
    return show_facts({"signing": record.kid, "retired": retired, "next": "remit keys export"})


@keys.command("export")
@click.option(
    "--format", "form", type=click.Choice(["jwks", "pem"]), default="jwks", show_default=True, help="As what."
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file, which must not exist, instead."
)
@everywhere
def _export_command(*, form: Literal["jwks", "pem"], out: Path | None, home: str | None, as_json: bool) -> None:
    """Print the public keys that verify what was signed here, oldest first.

    Example: remit keys export --out remit.jwks
    """
    with opened_rows(home, as_json=as_json) as rows:
        believed = [trusted.key for trusted in keyring_of(rows.keys())]
        jwks = {"keys": [key.to_jwk() for key in believed]}
        pem = "".join(key.to_pem().decode("ascii") for key in believed)
        text = pem if form == "pem" else json.dumps(jwks, indent=2) + "\n"
        if out is not None:
            _write(out, text)
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
