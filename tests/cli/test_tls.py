"""`remit tls`: a certificate for a client, and nobody else's business."""

import json
import ssl
import stat
from pathlib import Path

from click.testing import CliRunner, Result

from remit.cli import main
from remit.cli.errors import DONE, USAGE


def made(tmp_path: Path, *arguments: str, name: str = "agent-1") -> Result:
    out, home = str(tmp_path / "out"), str(tmp_path / "home")
    return CliRunner().invoke(main, ["tls", "client", name, "--out", out, "--home", home, *arguments])


def test_the_certificate_is_one_of_the_authority_that_is_named(tmp_path: Path) -> None:
    said = json.loads(made(tmp_path, "--json").stdout)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(said["certificate"], said["key"])
    context.load_verify_locations(said["authority"])
    assert said["ok"]
    assert said["authority"].endswith("/tls/client-ca.pem")


def test_certificate_and_key_are_their_owners_alone(tmp_path: Path) -> None:
    assert made(tmp_path).exit_code == DONE
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "out", *(tmp_path / "out").iterdir()]}
    assert modes == {"out": 0o700, "client.pem": 0o600, "client-key.pem": 0o600}


def test_the_next_command_is_told(tmp_path: Path) -> None:
    assert "remit proxy --client-ca " in made(tmp_path).stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    made(tmp_path)
    before = (tmp_path / "out" / "client-key.pem").read_bytes()
    again = made(tmp_path, "--json")
    assert (again.exit_code, json.loads(again.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert (tmp_path / "out" / "client-key.pem").read_bytes() == before


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    refused = made(tmp_path, "--json", name="a\nb")
    assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert not (tmp_path / "out").exists()
