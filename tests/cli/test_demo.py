"""`remit demo`: a tour that reads well, ends by itself, and shows the truth."""

import json
import os
import subprocess
import sys

from click.testing import CliRunner

from remit import __version__
from remit.cli import main


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
