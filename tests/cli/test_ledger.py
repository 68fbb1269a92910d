"""`remit ledger`: transcripts of what people see, what programs get, and how it ends."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from remit.claims.receipt import verify_receipt
from remit.cli import main
from remit.cli.errors import (
    ADVICE,
    DONE,
    EXIT_CODES,
    NO,
    OUR_FAULT,
    STATE,
    UNAVAILABLE,
    USAGE,
    advice_for,
    exit_code,
)
from remit.errors import HomeUnsafe, LedgerForeign, RemitError, ServiceRefused, TokenRequired
from remit.ledger.embedded import open_rows
from remit.ledger.home import open_home
from remit.ledger.keys import build_keyring
from tests.ledger.service import Service
from tests.world import error_classes

COMMANDS = ["show", "backup", "restore", "check", "fsck"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    service = Service(tmp_path / "home")
    session_id = service.start()
    for path in ("/srv/project/a", "/etc/passwd"):
        service.call(session_id, path)
    service.close()
    return tmp_path / "home"


def run(place: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["ledger", *arguments, "--home", str(place)])


def lines(text: str) -> list[str]:
    """What a person reads, with everything that is drawn at random named by its kind."""
    text = re.sub(r"(ledger|rcpt|pass):[0-9a-f]{32}", r"<\1>", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<hash>", text)
    return re.sub(r"(?<=[ ])[A-Za-z0-9_-]{43}(?=[,\n])", "<kid>", text).splitlines()


def test_show_is_short_and_aligned(place: Path) -> None:
    shown = run(place, "show")
    assert shown.exit_code == DONE
    assert lines(shown.stdout) == [
        "ledger       <ledger>",
        "receipts     2",
        "sessions     1",
        "last         <rcpt>",
        "hash         <hash>",
        "keys         1, first <kid>, signing <kid>",
        "switch       the kill switch is off",
    ]


def test_a_backup_and_its_restore(place: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert run(place, "backup", str(copy)).stdout.splitlines() == [
        f"file         {copy}",
        "receipts     2",
        "sessions     1",
    ]
    (place / "ledger.db").unlink()
    assert lines(run(place, "restore", str(copy)).stdout) == [
        "receipts     2",
        "lost         0 receipts are known to be lost",
        "closed       1 active sessions",
        "kept         there was no ledger before",
        "signed       <rcpt>",
        "next         remit ledger check",
    ]


def test_a_check_that_finds_nothing(place: Path) -> None:
    checked = run(place, "check")
    assert (checked.exit_code, checked.stderr) == (DONE, "")
    assert checked.stdout.splitlines() == [
        "VERIFIED",
        "receipts     2",
        "sessions     1",
        "attestations 0",
        "keys         1",
    ]


def test_a_check_that_finds_something_says_where_and_answers_no(place: Path) -> None:
    tamper(place)
    for command in ("check", "fsck"):
        checked = run(place, command)
        assert checked.exit_code == NO
        assert lines(checked.stdout)[0] == "BROKEN 1 findings"
        assert lines(checked.stdout)[-1].startswith("<pass> receipt 1: receipt 0: ")
        assert lines(checked.stdout)[-1].endswith(" (token_malformed)")


def tamper(place: Path) -> None:
    connection = apsw.Connection(str(place / "ledger.db"))
    connection.execute("UPDATE receipts SET token = 'a.b.c' WHERE number = 1")
    connection.close()


def test_programs_get_one_document(place: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    documents = [
        json.loads(run(place, *command, "--json").stdout)
        for command in (["show"], ["backup", copy], ["check"], ["restore", copy])
    ]
    assert [document["ok"] for document in documents] == [True] * 4
    assert [document["receipts"] for document in documents] == [2] * 4
    assert documents[2]["findings"] == []
    assert documents[3]["replaced"] == "ledger.replaced-1.db"


def test_findings_for_programs_have_a_code_and_a_place(place: Path) -> None:
    tamper(place)
    checked = run(place, "check", "--json")
    document = json.loads(checked.stdout)
    assert (checked.exit_code, document["ok"], document["found"]) == (NO, False, 1)
    (finding,) = document["findings"]
    assert (finding["receipt"], finding["fault"]) == (1, "token_malformed")


def failures(tmp_path: Path, place: Path) -> dict[str, tuple[list[str], int]]:
    """Commands that fail, with the code of the error and the exit code."""
    text = tmp_path / "text"
    text.write_text("not a ledger " * 1000)
    nowhere = ["--home", str(tmp_path / "nowhere")]
    return {
        "state_missing": (["show", *nowhere], 78),
        "field_invalid": (["backup", str(text)], USAGE),
        "ledger_foreign": (["restore", str(text)], 78),
    }


@pytest.mark.parametrize("code", ["state_missing", "field_invalid", "ledger_foreign"])
def test_an_error_is_one_line_what_is_wrong_and_one_what_to_do(place: Path, tmp_path: Path, code: str) -> None:
    arguments, expected = failures(tmp_path, place)[code]
    arguments = arguments if "--home" in arguments else [*arguments, "--home", str(place)]
    told = CliRunner().invoke(main, ["ledger", *arguments])
    assert (told.exit_code, told.stdout) == (expected, "")
    wrong, advice = told.stderr.splitlines()
    assert wrong.startswith("remit: ")
    assert advice.startswith("       ")
    coded = CliRunner().invoke(main, ["ledger", *arguments, "--json"])
    assert (coded.exit_code, coded.stderr) == (expected, "")
    assert json.loads(coded.stdout) == {"ok": False, "error": wrong.removeprefix("remit: "), "error_code": code}


def test_a_restore_while_the_ledger_is_open_says_what_to_stop(tmp_path: Path) -> None:
    service = Service(tmp_path / "home")
    run(tmp_path / "home", "backup", str(tmp_path / "copy.db"))
    refused = run(tmp_path / "home", "restore", str(tmp_path / "copy.db"))
    service.close()
    assert refused.exit_code == 78
    assert refused.stderr.splitlines() == [
        "remit: the ledger is in use: stop the Hub and the proxy first",
        "       Stop the Hub and the proxy, then try again.",
    ]


def test_an_older_copy_is_restored_only_with_an_accepted_loss(place: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    run(place, "backup", copy)
    service = Service(place)
    service.call(service.start())
    service.close()
    assert run(place, "restore", copy).exit_code == 78
    restored = run(place, "restore", copy, "--accept-loss")
    assert (restored.exit_code, restored.stdout.splitlines()[1]) == (
        DONE,
        "lost         1 receipts are known to be lost",
    )


def test_a_restore_is_signed_with_what_was_lost(place: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    run(place, "backup", copy)
    (place / "ledger.anchor").unlink()
    refused = run(place, "restore", copy)
    assert (refused.exit_code, "ledger.anchor is gone" in refused.stderr) == (78, True)
    told = json.loads(run(place, "restore", copy, "--accept-loss", "--json").stdout)
    assert (told["anchored"], told["lost_receipts"], told["closed_sessions"]) == (False, 0, 1)
    with open_home(place) as home, open_rows(home) as (_, rows):
        kept = rows.receipt(told["signed"])
        assert kept is not None
        signed = verify_receipt(kept.token, build_keyring(rows.keys()))
    assert (signed.claims.tool, signed.claims.internal_denial_code) == ("remit.restore", "coverage_gap")
    assert run(place, "check").exit_code == DONE


def test_a_home_that_others_can_read_is_a_matter_of_permission(place: Path) -> None:
    place.chmod(0o755)
    assert run(place, "show").exit_code == 77


def test_an_unforeseen_error_is_our_fault_and_shows_nothing_of_itself(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(importlib.import_module("remit.cli.ledger"), "check_ledger", fail)
    told = run(place, "check")
    assert told.exit_code == OUR_FAULT
    assert "secret" not in told.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    told = CliRunner().invoke(main, ["ledger", command, "--help"])
    assert told.exit_code == DONE
    assert f"Example: remit ledger {'check' if command == 'fsck' else command}" in told.stdout
    assert "--home" in told.stdout
    assert "--json" in told.stdout


def test_a_missing_argument_is_a_usage_error(place: Path) -> None:
    assert run(place, "backup").exit_code == USAGE


def test_a_pipe_sees_no_colour_and_no_bar(place: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "TTY_COMPATIBLE"}}
    command = [sys.executable, "-m", "remit", "ledger", "check"]
    env = plain | {"REMIT_HOME": str(place)}
    piped = subprocess.run(command, capture_output=True, check=True, timeout=60, env=env)
    assert piped.stderr == b""
    assert b"\x1b" not in piped.stdout


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_every_error_has_an_exit_code_and_advice(error: type[RemitError]) -> None:
    made = error.__new__(error)
    assert exit_code(made) in {NO, USAGE, UNAVAILABLE, OUR_FAULT, 77, STATE}
    assert advice_for(made).endswith((".", "FILE", "show", "loss", "doctor", "token"))
    if error is not RemitError and error in RemitError.__subclasses__():
        assert error in EXIT_CODES
        assert error in ADVICE


def test_the_exit_code_of_a_class_is_that_of_the_nearest_class_in_the_table() -> None:
    assert exit_code(HomeUnsafe("")) == 77
    assert exit_code(LedgerForeign("")) == 78


def test_a_token_that_a_service_asks_for_is_a_matter_of_permission() -> None:
    refused = {code: ServiceRefused("", status=401, error_code=code) for code in ("auth_required", "bad_request")}
    assert {code: exit_code(error) for code, error in refused.items()} == {"auth_required": 77, "bad_request": NO}
    assert advice_for(refused["auth_required"]) == ADVICE[TokenRequired]
