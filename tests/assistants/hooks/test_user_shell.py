"""Which assistants use zsh: those that use the user's own shell, unless that is bash or there is no zsh."""

from pathlib import Path

import pytest

from remit.assistants.handlers import zsh_users
from remit.config import user_shell


@pytest.fixture(autouse=True)
def _zsh_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zsh").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("shell", ["/bin/zsh", "/usr/local/bin/fish", "/bin/sh", "zsh"])
def test_assistants_that_use_the_own_shell_may_use_zsh(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("SHELL", shell)
    assert zsh_users(user_shell()) == {"claude-code", "codex", "opencode"}


def test_none_does_where_the_shell_is_bash_or_zsh_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert zsh_users("/opt/bin/bash") == frozenset()
    monkeypatch.setenv("PATH", "/nowhere")
    assert zsh_users("/bin/zsh") == frozenset()


def test_without_the_variable_the_users_entry_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHELL", raising=False)
    assert zsh_users(user_shell()) in (frozenset(), {"claude-code", "codex", "opencode"})
