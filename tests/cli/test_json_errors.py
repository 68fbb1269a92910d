"""With `--json`, every command that fails prints one document, and they all begin alike."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from remit.assistants.records import Protections
from remit.cli.errors import DONE, NO, STATE
from remit.ledger.home import open_home
from tests.assistants.hooks.scenes import protection
from tests.assistants.transcripts.written import ClaudeTranscript
from tests.cli.running import run, started
from tests.cli.test_program import COMMANDS
from tests.hub.service import running
from tests.ledger.service import Service

# What to give to each command so that it fails where the home is a file, and for a reason that is not its usage.
FAILING: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("attest",): (),
    ("completion",): ("nonsense",),
    ("delegate",): ("x", "--agent-id", "a", "--mission", "m", "--request", "r"),
    ("demo",): ("--live",),
    ("doctor",): (),
    ("hub",): (),
    ("hub", "start"): (),
    ("inspect",): ("nonsense",),
    ("issue",): ("--agent-id", "a", "--mission", "m"),
    ("keys", "distrust"): ("kid", "--from", "now", "--yes"),
    ("keys", "export"): (),
    ("keys", "list"): (),
    ("keys", "rotate"): (),
    ("kill-switch",): ("on",),
    ("ledger", "backup"): ("copy",),
    ("ledger", "check"): (),
    ("ledger", "fsck"): (),
    ("ledger", "restore"): ("copy",),
    ("ledger", "show"): (),
    ("open",): (),
    ("profile", "check"): ("missing.md",),
    ("profile", "init"): ("--path", "missing/profile.md"),
    ("protect",): ("claude-code", "--no-start"),
    ("proxy",): (),
    ("reconcile",): ("claude-code",),
    ("revoke",): ("pass:00000000",),
    ("setup",): (),
    ("status",): (),
    ("tls", "client"): ("name", "--out", "out"),
    ("token",): ("hub",),
    ("up",): (),
}


def failed(place: Path, *words: str) -> dict[str, Any]:
    """Return the one document that a command prints which fails."""
    result = run(place, *words, "--json")
    assert result.exit_code not in (DONE, 70), (words, result.output)
    document = json.loads(result.stdout)
    assert list(document)[:3] == ["ok", "error", "error_code"], (words, document)
    assert document["ok"] is False
    assert all(isinstance(document[name], str) and document[name] for name in ("error", "error_code"))
    return {"exit": result.exit_code, **document}


def test_every_command_is_in_the_table() -> None:
    assert set(FAILING) == set(COMMANDS)


@pytest.mark.parametrize("path", FAILING, ids=" ".join)
def test_every_command_that_fails_prints_the_same_shape(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "home").touch()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    failed(tmp_path / "home", *path, *FAILING[path])


def broken_ledger(place: Path) -> tuple[str, ...]:
    service = Service(place)
    service.call(service.start())
    service.close()
    import apsw

    connection = apsw.Connection(str(place / "ledger.db"))
    connection.execute("UPDATE sessions SET used = used + 1")
    connection.close()
    return ("ledger", "check")


def uncovered(place: Path) -> tuple[str, ...]:
    started(place)
    transcript = ClaudeTranscript()
    transcript.runs("c1")
    return ("reconcile", "claude-code", str(transcript.write(place.parent / "t.jsonl")))


def unprotected(place: Path) -> tuple[str, ...]:
    started(place)
    return ("doctor", "claude-code")


@pytest.mark.parametrize(
    ("make", "code", "exit_code"),
    [
        (broken_ledger, "evidence_error", NO),
        (uncovered, "coverage_gap", NO),
        (unprotected, "state_error", STATE),
    ],
)
def test_a_command_that_finds_something_bad_says_so_in_the_same_shape(
    make: Callable[[Path], tuple[str, ...]], code: str, exit_code: int, tmp_path: Path
) -> None:
    found = failed(tmp_path / "home", *make(tmp_path / "home"))
    assert (found["error_code"], found["exit"]) == (code, exit_code)


def test_an_attestation_over_a_broken_chain_is_printed_in_the_same_shape(tmp_path: Path) -> None:
    import apsw

    service = Service(tmp_path / "home")
    name = service.start()
    service.call(name)
    service.call(name)
    service.close()
    connection = apsw.Connection(str(tmp_path / "home" / "ledger.db"))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM receipts WHERE seq = 1")
    connection.close()
    with running(tmp_path / "home"):
        found = failed(tmp_path / "home", "attest", name)
    assert (found["error_code"], found["exit"], bool(found["token"])) == ("chain_broken", NO, True)


def test_a_problem_is_named_in_the_document_of_the_doctor(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as home:
        Protections(home).put(protection(tmp_path))
    (tmp_path / "home" / "config.json").write_text("{", encoding="ascii")
    (tmp_path / "home" / "config.json").chmod(0o600)
    found = failed(tmp_path / "home", "doctor")
    assert ("settings: " in found["error"], found["exit"]) == (True, STATE)
    assert [check["name"] for check in found["checks"] if check["state"] == "problem"] == ["settings"]
