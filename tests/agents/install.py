"""The assistants that are tested, each at versions that are named, in a cache outside of the tree.

Each lies in a folder of its own, which counts only once it has its marker: an installation that was cut short is begun
again. Where packages come from is for npm's own settings to say. REMIT_AGENTS names another cache; an assistant that
REMIT_AGENTS_REQUIRED names (by commas, or `all`) must be there, where any other is skipped with the reason.
"""

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

__all__ = ["CLAUDES", "CLAUDE_NEW", "CLAUDE_OLD", "CODEX", "COPILOT", "GEMINI", "OPENCODE", "Assistant", "program_of"]

PATIENCE_S: Final = 300.0
MARKER: Final = ".installed"


class Assistant(NamedTuple):
    """An assistant at one version: what we call it, its package, and the program in it."""

    name: str
    package: str
    version: str
    program: str

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


CLAUDE_NEW: Final = Assistant("claude-code", "@anthropic-ai/claude-code", "2.1.325", "claude")
# The last that does not know how to block when a hook fails, and what npm still gives to an older Node.
CLAUDE_OLD: Final = CLAUDE_NEW._replace(version="2.1.197")
CLAUDES: Final = (CLAUDE_NEW, CLAUDE_OLD)
CODEX: Final = Assistant("codex", "@openai/codex", "0.166.0", "codex")
GEMINI: Final = Assistant("gemini", "@google/gemini-cli", "0.61.0", "gemini")
OPENCODE: Final = Assistant("opencode", "opencode-ai", "1.18.18", "opencode")
COPILOT: Final = Assistant("copilot", "@github/copilot", "1.0.102", "copilot")


class _NotInstalled(Exception):
    """An assistant is not there and cannot be had."""


def program_of(assistant: Assistant) -> Path:
    """Return the program of an assistant, installed if need be; skip the test that asks where that cannot be."""
    found = _installed(assistant)
    if isinstance(found, Path):
        return found
    required = os.environ.get("REMIT_AGENTS_REQUIRED", "").split(",")
    reason = f"{assistant} is not installed: {found}"
    if {assistant.name, "all"} & set(required):
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def _installed(assistant: Assistant) -> Path | str:
    """Return the program, or why there is none; asked for once in a run."""
    folder = _cache() / str(assistant)
    try:
        with _alone(folder.with_name(f"{assistant}.lock")):
            if not (folder / MARKER).exists():
                _install(assistant, folder)
    except (OSError, subprocess.TimeoutExpired, _NotInstalled) as error:
        return str(error)
    return folder / "node_modules" / ".bin" / assistant.program


def _cache() -> Path:
    of_user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("REMIT_AGENTS") or Path(of_user, "remit", "agents"))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one test at a time install an assistant; the others wait and find it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(assistant: Assistant, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise _NotInstalled("there is no npm")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    _run([npm, "install", "--no-audit", "--no-fund", f"{assistant.package}@{assistant.version}"], folder)
    said = _run([f"node_modules/.bin/{assistant.program}", "--version"], folder)
    if assistant.version not in said:
        raise _NotInstalled(f"it says that it is {said.strip()[:80]!r}")
    (folder / MARKER).touch()


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise _NotInstalled(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout
