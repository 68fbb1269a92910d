"""`remit inspect`: what a token says, and whether anyone vouches for it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from remit.claims.jws import Peeked, unsafe_peek
from remit.claims.keys import Keyring
from remit.claims.public import public_view
from remit.claims.receipt import verify_receipt
from remit.claims.strictjson import JSON
from remit.cli.errors import DONE, NO, failure, reported
from remit.cli.examine import RECEIPT_KIND, Examined, examine
from remit.cli.given import read_given
from remit.cli.keyrings import load_keyring
from remit.cli.options import everywhere
from remit.cli.render import date, show_data, show_facts, shown
from remit.config import home_path
from remit.errors import FieldInvalid, KeyUnknown, StateMissing
from remit.ledger.embedded import open_rows
from remit.ledger.home import open_home
from remit.ledger.keys import keyring_of
from remit.ledger.rows import Rows

__all__ = ["inspect"]


@click.command()
@click.argument("token")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="Verify with the keys in FILE (PEM, JWKS) instead."
)
@click.option("--public", is_flag=True, help="Of a receipt: print its public view, as JSON, and nothing else.")
@everywhere
def inspect(*, token: str, key: Path | None, public: bool, home: str | None, as_json: bool) -> None:
    """Show what TOKEN says, and verify it with the keys of the home. `-` reads it from a pipe, @FILE from a file.

    Exit code 0 if it is verified, 1 if not: then nobody vouches for what it says. A passport that is genuine is
    verified even when it is expired or revoked; that is shown. With --key nobody looks whether it was revoked.

    The public view of a receipt leaves out the internal denial code and all that is for auditors only. It is unsigned,
    and only a receipt that is verified has one.

    Example: remit issue ... | remit inspect -
    """
    with reported(as_json=as_json):
        given = read_given(token)
        peeked = unsafe_peek(given)
        with _means(home, key, peeked) as (keyring, rows):
            examined = examine(given, peeked, keyring, rows, int(time.time()))
            view = _public_view(examined, given, keyring) if public else None
    if public:
        _show_public(examined, view, as_json=as_json)
    elif as_json:
        show_data(_data(examined))
    else:
        _show(examined)
    raise SystemExit(DONE if examined.error is None else NO)


def _public_view(examined: Examined, token: str, keyring: Keyring) -> dict[str, JSON] | None:
    """Return the public view of a receipt; None if it is not verified."""
    if examined.kind and examined.kind != RECEIPT_KIND:
        raise FieldInvalid(f"a public view is of a receipt, and this is a {examined.kind}", place="--public")
    return None if examined.error is not None else public_view(verify_receipt(token, keyring))


def _show_public(examined: Examined, view: dict[str, JSON] | None, *, as_json: bool) -> None:
    """Print the public view; of what is not verified, only that, because nothing in it can be relied on."""
    if view is not None:
        show_data({"ok": True, **view})
    elif as_json:
        show_data({name: value for name, value in _data(examined).items() if name != "unverified"})
    else:
        show_facts({"because": _why(examined)}, mark=f"NOT VERIFIED {examined.kind or 'token'}", style="red")


@contextmanager
def _means(home: str | None, key: Path | None, peeked: Peeked) -> Iterator[tuple[Keyring, Rows | None]]:
    """Give the keys to verify with, and the ledger to look into: none of both where there is no home."""
    if key is not None:
        yield load_keyring(key, (peeked.claims or {}).get("iss")), None
        return
    with ExitStack() as held:
        try:
            opened = held.enter_context(open_home(home_path(home), create=False))
            _, rows = held.enter_context(open_rows(opened))
        except StateMissing:
            yield Keyring([]), None
            return
        yield keyring_of(rows.keys()), rows


def _data(examined: Examined) -> dict[str, Any]:
    kind = {"kind": examined.kind or None, "verified": examined.error is None}
    said = {"header": examined.peeked.header, "claims": examined.peeked.claims}
    if examined.error is not None:
        return failure(str(examined.error), examined.error.code) | kind | {"unverified": said}
    return {"ok": True} | kind | {"kid": examined.kid} | dict(examined.details) | said


def _show(examined: Examined) -> None:
    if examined.error is not None:
        show_facts({"because": _why(examined)}, mark=f"NOT VERIFIED {examined.kind or 'token'}", style="red")
        click.echo("it says, and nobody vouches for it:")
    else:
        details = {name.replace("_", " "): _SHOWN.get(name, str)(value) for name, value in examined.details.items()}
        show_facts({"signed by": examined.kid, **details}, mark=f"VERIFIED {examined.kind}", style="green")
        click.echo("it says:")
    for part in examined.peeked:
        text = "(cannot be read)" if part is None else json.dumps(part, indent=2, ensure_ascii=False)
        for line in text.split("\n"):
            click.echo(f"  {shown(line)}")


def _why(examined: Examined) -> str:
    if isinstance(examined.error, KeyUnknown):
        return f"{examined.error}: it was signed elsewhere, or the home is another one"
    return str(examined.error)


_SHOWN: Final[Mapping[str, Callable[[Any], str]]] = {
    "expires_at": date,
    "expired": lambda yes: "yes, it is not good any more" if yes else "no",
    "registered": {
        True: "yes",
        False: "no: this home has not issued it, and starts no session with it",
    }.__getitem__,
    "revoked": {
        True: "yes, no call is permitted under it",
        False: "no",
        None: "not looked at: only the ledger of the home knows",
    }.__getitem__,
    "in_ledger": lambda yes: "yes" if yes else "no: this ledger does not have it",
}
