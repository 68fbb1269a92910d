"""The version of an assistant: believed only in the words of its own program."""

from pathlib import Path

import pytest

from remit.assistants.install.program import get_program_version


def version(tmp_path: Path, name: str, said: str) -> str:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n", encoding="utf-8")
    program.chmod(0o755)
    return get_program_version(name, str(program))


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("claude", "2.1.325 (Claude Code)", "2.1.325"),
        ("claude", "using node 22.1.0\n2.1.325 (Claude Code)", "2.1.325"),
        ("codex", "codex-cli 0.166.0", "0.166.0"),
        ("codex", "codex-cli 0.166.0-alpha.1", "0.166.0"),
        ("copilot", "GitHub Copilot CLI 1.0.102.\nRun 'copilot update' to check for updates.", "1.0.102"),
        ("gemini", "0.61.0", "0.61.0"),
        ("opencode", "1.18.18", "1.18.18"),
    ],
)
def test_each_program_tells_its_version_in_its_own_words(tmp_path: Path, name: str, said: str, expected: str) -> None:
    assert version(tmp_path, name, said) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("claude", "9.9.9"),
        ("claude", "wrapper 9.9.9, of 2.1.197 (Claude Code)"),
        ("claude", "9.9.9 (Claude Code) wrapped"),
        ("codex", "0.166.0"),
        ("gemini", "wrapper 9.9.9"),
        ("opencode", ""),
    ],
)
def test_what_says_it_otherwise_has_no_version_that_is_known(tmp_path: Path, name: str, said: str) -> None:
    assert version(tmp_path, name, said) == ""
