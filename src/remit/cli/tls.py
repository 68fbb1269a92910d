"""`remit tls`: issues client certificates for mutual TLS."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from remit.cli.homes import open_command_home
from remit.cli.options import common_options
from remit.cli.render import show_data, show_facts
from remit.config import expand_user_path
from remit.errors import FieldInvalid, HomeUnsafe
from remit.ledger.home import open_home
from remit.proxy.authority import issue_client


@click.group()
def tls() -> None:
    """Issue certificates for clients of the proxy.

    Example: remit tls client agent-1 --out ./agent-1
    """


@tls.command("client")
@click.argument("name")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="A new folder for the certificate and its key."
)
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long it is valid.")
@common_options
def _client_command(*, name: str, out: Path, days: int, home: str | None, as_json: bool) -> None:
    """Issue a certificate for the client NAME, with its key, into a new folder.

    Its authority is created on first use. Start the proxy with --client-ca and the path that is shown.

    Example: remit tls client agent-1 --out ./agent-1
    """
    with open_command_home(home, as_json=as_json, create=True) as opened:
        made = issue_client(opened, name, datetime.now(UTC), lifetime=timedelta(days=days))
        with open_home(Path(expand_user_path(str(out)))) as folder:
            if folder.names():
                raise FieldInvalid(f"the folder {out} is not empty: name a new one", place="--out")
            try:
                folder.create("client-key.pem", made.key)
                folder.create("client.pem", made.cert)
            except FileExistsError:
                raise HomeUnsafe(f"another process has written to {out} at the same time") from None
            facts = {
                "certificate": folder.path_of("client.pem"),
                "key": folder.path_of("client-key.pem"),
                "authority": made.client_ca,
            }
    if as_json:
        return show_data({"ok": True} | facts)
    return show_facts({**facts, "next": f"remit proxy --client-ca {made.client_ca}"})
