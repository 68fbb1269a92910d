"""Which assistants use zsh: those that use the user's own shell, unless that is bash or there is no zsh."""

from pathlib import Path

import pytest

from remit.adapters.hooks.user_shell import zsh_users


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A folder of programs with a zsh in it."""
    program = tmp_path / "zsh"
    program.touch(0o755)
    return str(tmp_path)


@pytest.mark.parametrize("shell", ["/bin/zsh", "/usr/local/bin/fish", "/bin/sh", "zsh"])
def test_assistants_that_use_the_own_shell_may_use_zsh(path: str, shell: str) -> None:
    assert zsh_users({"SHELL": shell, "PATH": path}) == {"claude-code", "codex", "opencode"}


def test_none_does_where_the_shell_is_bash_or_zsh_is_missing(path: str, tmp_path: Path) -> None:
    assert zsh_users({"SHELL": "/opt/bin/bash", "PATH": path}) == frozenset()
    assert zsh_users({"SHELL": "/bin/zsh", "PATH": str(tmp_path / "none")}) == frozenset()


def test_without_the_variable_the_users_entry_tells_it(path: str) -> None:
    assert zsh_users({"PATH": path}) in (frozenset(), {"claude-code", "codex", "opencode"})
