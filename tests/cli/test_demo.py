"""`remit demo`: a tour that reads well, ends by itself, and shows the truth."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from remit import __version__
from remit.cli import main
from tests.cli.running import issued, piped
from tests.cli.running import run as run_in
from tests.proxy.service import HTTP, running


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_tour_shows_a_permit_a_denial_and_where_tampering_was_found() -> None:
    shown = run("demo")
    assert shown.count("PERMIT") == shown.count("DENY") == 2
    assert "VERIFIED 4 receipts" in shown
    assert "BROKEN at receipt 1: the signature does not verify (signature_invalid)" in shown
    assert "BROKEN at receipt 3: the chain does not end where it must (head_mismatch)" in shown


def test_the_tour_is_plain_in_a_pipe_and_fits_the_page() -> None:
    plain = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "TTY_COMPATIBLE"}}
    command = [sys.executable, "-m", "remit", "demo"]
    piped = subprocess.run(command, capture_output=True, check=True, timeout=60, env=plain)
    assert piped.stderr == b""
    assert b"\x1b" not in piped.stdout
    assert max(map(len, piped.stdout.decode().splitlines())) <= 100


def test_the_tour_for_programs_is_one_document() -> None:
    tour = json.loads(run("demo", "--json"))
    assert [receipt["claims"]["verdict"] for receipt in tour["receipts"]] == ["compliant", "violation"] * 2
    assert [tampering["fault"] for tampering in tour["tampering"]] == [
        "signature_invalid",
        "parent_id_mismatch",
        "parent_id_mismatch",
        "head_mismatch",
    ]
    assert tour["attestation"]["receipts"] == 4


def test_no_two_tours_share_a_key() -> None:
    assert json.loads(run("demo", "--json"))["head"] != json.loads(run("demo", "--json"))["head"]


def test_the_version_is_the_packages() -> None:
    assert run("--version").strip() == f"remit {__version__}"


def test_a_wrong_word_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["demmo"]).exit_code == 2


@pytest.mark.parametrize("options", [["--require-token"], [HTTP], [HTTP, "--require-token"]], ids=" ".join)
def test_the_live_tour_is_taken_with_a_proxy_however_it_was_started(tmp_path: Path, options: list[str]) -> None:
    with running(tmp_path / "home", *options) as proxy:
        tour = piped(proxy.home, "demo", "--live")
    assert (tour.returncode, tour.stderr) == (0, b"")
    assert proxy.url.encode() in tour.stdout


def test_the_live_tour_has_no_certificate_to_show_and_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    issued(home)
    run_in(home, "tls", "client", "agent", "--out", str(tmp_path / "agent"))
    with running(home, "--client-ca", str(home / "tls" / "client-ca.pem")):
        tour = piped(home, "demo", "--live")
    assert (tour.returncode, tour.stdout) == (69, b"")
    assert b"client certificate" in tour.stderr


def test_a_live_tour_shows_the_token_that_was_rotated_a_moment_ago(tmp_path: Path) -> None:
    with running(tmp_path / "home", HTTP, "--require-token") as proxy:
        run_in(proxy.home, "token", "proxy", "--rotate")
        tour = piped(proxy.home, "demo", "--live", "--json")
    assert (tour.returncode, "error_code" in json.loads(tour.stdout)) == (0, False)
