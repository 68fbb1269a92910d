"""`remit token`: made once, printed alone, and renewed on demand."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from remit.cli import main
from remit.cli.errors import DONE, STATE
from remit.config import TOKEN_NAMES
from remit.server.hook_tokens import hook_token
from tests.cli.running import run
from tests.proxy.service import HTTP, running

PROTECTION = "prot-0123456789ab"


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_token_is_made_on_first_use_and_stays(tmp_path: Path, name: str) -> None:
    first = run(tmp_path / "home", "token", name)
    again = run(tmp_path / "home", "token", name, "--json")
    assert (first.exit_code, first.stderr) == (DONE, f"remit: creating a new home: {tmp_path / 'home'}\n")
    assert json.loads(again.stdout) == {"ok": True, "name": name, "token": first.stdout.strip()}
    assert len(first.stdout.strip()) == 43


def test_the_two_tokens_differ_and_one_is_renewed_alone(tmp_path: Path) -> None:
    place = tmp_path / "home"
    admin, proxy = (run(place, "token", name).stdout for name in ("admin", "proxy"))
    renewed = run(place, "token", "admin", "--rotate")
    assert len({admin, proxy, renewed.stdout}) == 3
    assert "no proxy of this home is running" in renewed.stderr
    assert [run(place, "token", name).stdout for name in ("admin", "proxy")] == [renewed.stdout, proxy]


@pytest.mark.parametrize("processes", ["1", "2", "3"])
def test_a_rotated_token_is_refused_at_once_by_every_worker_of_a_proxy(tmp_path: Path, processes: str) -> None:
    place = tmp_path / "home"
    with running(place, HTTP, "--processes", processes, "--require-token") as proxy:
        for name in ("admin", "proxy"):
            before = run(place, "token", name).stdout.strip()
            after = run(place, "token", name, "--rotate").stdout.strip()
            old, new = (
                # Each over a connection of its own, which any of the workers takes.
                [proxy.ask("GET", "/metrics", None, authorization=f"Bearer {token}").status for _ in range(8)]
                for token in (before, after)
            )
            assert (set(old), set(new)) == ({401}, {200})


def test_a_token_of_another_form_is_told_in_words(tmp_path: Path) -> None:
    place = tmp_path / "home"
    run(place, "token", "admin")
    (place / "config.json").write_text('{"admin_token": "short"}', encoding="utf-8")
    told = run(place, "token", "admin").stderr
    assert "$.admin_token" in told
    assert not set("\\[](){}") & set(told)


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "home"
    run(place, "token", "admin")
    (place / "config.json").write_text("{", encoding="utf-8")
    for arguments in (["token", "admin"], ["token", "proxy", "--rotate"]):
        refused = run(place, *arguments)
        assert (refused.exit_code, refused.stdout) == (STATE, "")
        assert "move config.json away" in refused.stderr
        assert "ledger" not in refused.stderr
    assert (place / "config.json").read_text(encoding="utf-8") == "{"


def test_the_help_says_what_each_token_opens() -> None:
    told = " ".join(CliRunner().invoke(main, ["token", "--help"]).stdout.split())
    assert "`admin`: for /revoke and /kill-switch" in told
    assert all(f"`{name}`" in told for name in TOKEN_NAMES)
    assert "delegate" not in told


def test_the_token_of_hooks_follows_from_that_of_the_hub(tmp_path: Path) -> None:
    hub, hook = (run(tmp_path, "token", *name).stdout.strip() for name in (["hub"], ["hook", PROTECTION]))
    assert hook == hook_token(hub, PROTECTION) != hub
    run(tmp_path, "token", "hub", "--rotate")
    assert run(tmp_path, "token", "hook", PROTECTION).stdout.strip() != hook


@pytest.mark.parametrize("words", [["hook"], ["hook", "x"], ["hub", "prot-0123456789ab"]], ids=str)
def test_a_token_of_hooks_is_for_one_protection_and_no_other_token_is(words: list[str], tmp_path: Path) -> None:
    assert run(tmp_path, "token", *words).exit_code == 2


def test_the_token_of_hooks_is_not_rotated_by_itself(tmp_path: Path) -> None:
    assert run(tmp_path, "token", "hook", "--rotate").exit_code == 2
