"""Which command lines would start an agent that nobody governs, or Remit itself.

What a program is told to run is known from the tables of programs (`Launched.runs`). Where nothing is known of what a
program does with its words, every word may name one. Names are compared as they are written: an agent under another
name is not found, unless the name is a link to it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from remit.policy.call import Launched

__all__ = ["AGENTS", "started_agent"]

# Programs that govern agents, or are agents that would not be governed by this session.
AGENTS: Final = frozenset("remit claude codex gemini opencode copilot cursor-agent aider qwen".split())
_PACKAGES: Final = AGENTS | frozenset((
    "@anthropic-ai/claude-code", "@openai/codex", "@google/gemini-cli", "opencode-ai", "@github/copilot",
    "@qwen-code/qwen-code", "aider-chat",
))  # fmt: skip
# Most command lines name none of them, which one look tells.
_ANY_AGENT: Final = re.compile("|".join(sorted(AGENTS)))
_COPIERS: Final = frozenset("cp mv ln install link rsync".split())
_INSTALLED: Final = re.compile(r"(?:\A|/)(?=(?:bin|\.bin|node_modules|site-packages)/((?:@[^/]+/)?[^/]+))")
_SCRIPT: Final = re.compile(r"\.(?:[cm]?[jt]s|py|pyz|sh|exe|cmd)\Z")
_REGISTRY: Final = re.compile(r"\A(?:npm|jsr):/?")
_WORD: Final = re.compile(r"[^\s;|&()'\"`]+")
_MAIN: Final = "/__main__.py"


def started_agent(commands: Iterable[Launched]) -> str:
    """Return the agent that a command line would start, or the program of Remit."""
    for launched in commands:
        if not _ANY_AGENT.search(" ".join((*launched.words, *launched.runs))):
            continue
        found = next((word for word in _suspects(launched) if not _PACKAGES.isdisjoint(_names(word))), "")
        if found:
            return found
    return ""


def _suspects(launched: Launched) -> Iterator[str]:
    """Yield the words that may name what is started: the program's own name, and what it is told to run."""
    words = launched.words
    yield from words[:1]
    yield from launched.runs
    if not launched.plain:
        # What it does with its words is not known.
        yield from (found[0] for word in words[1:] if (found := _WORD.search(word)))
    elif words[0] in _COPIERS:
        # Under another name nobody would know it again.
        yield from (name for word in words[1:] for name in _INSTALLED.findall(word))


def _names(word: str) -> Iterator[str]:
    """Yield what a word may name: a package, the package that a file lies in, and the file without its ending."""
    text = _REGISTRY.sub("", word).removesuffix(_MAIN)
    yield _package(text)
    yield from (_package(name) for name in _INSTALLED.findall(text))
    yield _SCRIPT.sub("", text.rpartition("/")[2])


def _package(word: str) -> str:
    """Return a package's name without what may follow: `@scope/name@1.2`, `name==1.2`, `name[extra]`, `name.module`."""
    before, at, _ = word.rpartition("@")
    name = before if at and before else word
    return name if name.startswith("@") else name.partition("==")[0].partition("[")[0].partition(".")[0]
