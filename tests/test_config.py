"""Where the home lies, and that nobody else reads the environment."""

import ast
from pathlib import Path

import pytest

import remit
from remit.config import HOME_VARIABLE, home_path
from remit.errors import StateMissing


def test_the_option_comes_first_then_the_variable_then_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv(HOME_VARIABLE, "/srv/named")
    assert home_path("/srv/asked") == Path("/srv/asked")
    assert home_path(None) == home_path("") == Path("/srv/named")
    monkeypatch.setenv(HOME_VARIABLE, "")
    assert home_path(None) == Path("/home/someone/.remit")
    monkeypatch.delenv(HOME_VARIABLE)
    assert home_path(None) == Path("/home/someone/.remit")


def test_a_tilde_is_the_users_home_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv(HOME_VARIABLE, "~/elsewhere")
    assert home_path(None) == Path("/home/someone/elsewhere")


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateMissing) as refused:
        home_path("~nobody-of-this-name/remit")
    assert refused.value.code == "state_missing"


def test_nobody_else_reads_the_environment() -> None:
    source = Path(remit.__file__).parent
    names = {"environ", "environb", "getenv", "expanduser", "expandvars"}
    readers = {
        path.name
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in names
    }
    assert readers == {"config.py"}
