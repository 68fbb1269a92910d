"""Finds command lines that would start an ungoverned agent, or Remit itself.

`Launched.runs` has what a program is told to run, as far as its table describes that. If nothing is known about how a
program uses its words, every word is checked. Names are compared as written: an agent under another name is not found,
unless the name is a symbolic link to it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from remit.policy.call import SpawnedProgram

# Remit itself, and agents that would not be governed by this session.
AGENTS: Final = frozenset("remit claude codex gemini opencode copilot cursor-agent aider qwen".split())
_PACKAGES: Final = AGENTS | frozenset((
    "@anthropic-ai/claude-code", "@openai/codex", "@google/gemini-cli", "opencode-ai", "@github/copilot",
    "@qwen-code/qwen-code", "aider-chat",
))  # fmt: skip
# A quick check that most command lines fail.
_ANY_AGENT: Final = re.compile("|".join(sorted(AGENTS)))
_COPIERS: Final = frozenset("cp mv ln install link rsync".split())
_INSTALLED: Final = re.compile(r"(?:\A|/)(?=(?:bin|\.bin|node_modules|site-packages)/((?:@[^/]+/)?[^/]+))")
_SCRIPT: Final = re.compile(r"\.(?:[cm]?[jt]s|py|pyz|sh|exe|cmd)\Z")
_REGISTRY: Final = re.compile(r"\A(?:npm|jsr):/?")
_WORD: Final = re.compile(r"[^\s;|&()'\"`]+")
_MAIN: Final = "/__main__.py"


def find_agent(commands: Iterable[SpawnedProgram]) -> str:
    """Return the agent, or the program of Remit, that a command line would start; empty if none."""
    for launched in commands:
        if not _ANY_AGENT.search(" ".join((*launched.words, *launched.runs))):
            continue
        found = next((word for word in _suspects(launched) if not _PACKAGES.isdisjoint(_names(word))), "")
        if found:
            return found
    return ""


def _suspects(launched: SpawnedProgram) -> Iterator[str]:
    """Yield the words that may name a started program: its own name, and what it is told to run."""
    words = launched.words
    yield from words[:1]
    yield from launched.runs
    if not launched.plain:
        # Nothing is known about how it uses its words.
        yield from (found[0] for word in words[1:] if (found := _WORD.search(word)))
    elif words[0] in _COPIERS:
        # A copy under another name would not be found later.
        yield from (name for word in words[1:] for name in _INSTALLED.findall(word))


def _names(word: str) -> Iterator[str]:
    """Yield the names a word may stand for: a package, the package that contains a file, a file without extension."""
    text = _REGISTRY.sub("", word).removesuffix(_MAIN)
    yield _package(text)
    yield from (_package(name) for name in _INSTALLED.findall(text))
    yield _SCRIPT.sub("", text.rpartition("/")[2])


def _package(word: str) -> str:
    """Return a package name without version, extras or module: `@scope/name@1.2`, `name==1.2`, `name[extra]`."""
    before, at, _ = word.rpartition("@")
    name = before if at and before else word
    return name if name.startswith("@") else name.partition("==")[0].partition("[")[0].partition(".")[0]
