"""What governs an agent stays out of its reach: the engine `guard`.

An agent that can change the settings which put its calls to Remit can free itself of every other rule, so no passport
permits that. Guarded files are not written or deleted, nor is a folder that holds one; Remit's own folder is not even
read; and Remit and other assistants are not started. Only what a call shows is judged: code of the project that runs
can do anything, and what a build does beneath a folder is not held against what lies there.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from remit.policy.call import Action, Effect, Launched
from remit.policy.engines import Case, Finding, Remedy

__all__ = ["GuardEngine", "Own"]

_NAME: Final = "guard"
_CODE: Final = "governance_guarded"
_PERMITTED: Final = Finding(_NAME, "", "nothing that governs the agent is touched")
_SHOWN: Final = 300
_CHANGES: Final = {"read": "read", "write": "change", "delete": "delete"}
# Programs that govern agents, or are agents that would not be governed by this session.
_AGENTS: Final = frozenset("remit claude codex gemini opencode copilot cursor-agent aider qwen".split())
_PACKAGES: Final = _AGENTS | frozenset((
    "@anthropic-ai/claude-code", "@openai/codex", "@google/gemini-cli", "opencode-ai", "@github/copilot",
    "@qwen-code/qwen-code", "aider-chat",
))  # fmt: skip
# Programs that run a package, and the words by which others do.
_RUNNERS: Final = frozenset("npx bunx pnpx uvx".split())
_RUN_WORDS: Final = frozenset("exec x dlx run tool --".split())
_RUN_BY_WORD: Final = frozenset("npm pnpm yarn bun uv pipx poetry pdm hatch mise".split())
# Most command lines name none of them, which one look tells.
_ANY_AGENT: Final = re.compile("|".join(sorted(_AGENTS)))
_STOPPERS: Final = frozenset("pkill killall systemctl service launchctl".split())
_BY_PATTERN: Final = frozenset("pkill killall".split())
_EVERYONE: Final = "-1"
_GOVERNOR: Final = "remit"
_HANDS_OFF: Final = Remedy((), "No passport helps here: a person changes these files outside the assistant.")
_PRIVATE: Final = Remedy((), "No passport helps here: a person looks at Remit's own files outside the assistant.")
_START_OUTSIDE: Final = Remedy(
    (), "No passport helps here: a person starts or stops this program outside the assistant."
)

# From a folder to what is guarded below it, name by name.
_Below: TypeAlias = tuple[tuple[str, ...], ...]


class _Guards(NamedTuple):
    """Guarded paths, so that one look tells what a path has to do with them."""

    paths: frozenset[str]
    above: Mapping[str, _Below]
    # Ends of paths that are guarded in every folder.
    anywhere: tuple[str, ...] = ()


class Own(NamedTuple):
    """The process that judges: its numbers, and the line that it was started by."""

    numbers: frozenset[int] = frozenset()
    line: str = ""


_NOBODY: Final = Own()


class GuardEngine:
    """Refuses what would change what governs the agent.

    `guarded` returns absolute paths without links of files, or of folders with everything beneath; `**/` before a
    relative one stands for any folder. `private` are folders of Remit itself, `own` is its process. While nothing is
    guarded, other agents may be started, and this one stopped.
    """

    name = _NAME
    # So a decision stays right when other calls have used some of it up.
    sees_budgets = False

    def __init__(self, guarded: Callable[[], Sequence[str]], private: Sequence[str] = (), own: Own = _NOBODY) -> None:
        self._guarded = guarded
        self._own = own
        self._private = _guards(tuple(private))

    def judge(self, case: Case) -> Finding:
        """Return the first effect or program that is refused, or that nothing is."""
        action = case.action
        guards = _guards(tuple(self._guarded()))
        for effect in action.effects:
            if effect.verb in _CHANGES:
                if _reaches_private(self._private, effect):
                    return _refused(effect, "belongs to Remit itself", _PRIVATE)
                if effect.verb != "read" and _reaches(guards, effect, action):
                    return _refused(effect, "puts this agent under Remit, or holds what does", _HANDS_OFF)
        agent = _started(action.commands or (), self._own) if guards.paths or guards.anywhere else ""
        if agent:
            reason = f"it would start or stop {agent[:_SHOWN]!r}, which governs agents or is one that nobody governs"
            return Finding(_NAME, _CODE, reason, _START_OUTSIDE)
        return _PERMITTED


def _refused(effect: Effect, why: str, remedy: Remedy) -> Finding:
    resource = effect.resource[:_SHOWN] + ("/…" if effect.beneath else "")
    return Finding(_NAME, _CODE, f"it would {_CHANGES[effect.verb]} {resource}, which {why}", remedy)


@lru_cache(maxsize=8)
def _guards(paths: tuple[str, ...]) -> _Guards:
    above: dict[str, list[tuple[str, ...]]] = {}
    anywhere = tuple(path[2:] for path in paths if path.startswith("**/"))
    paths = tuple(path for path in paths if path.startswith("/"))
    for path in paths:
        names = path.strip("/").split("/")
        for depth in range(len(names)):
            above.setdefault("/" + "/".join(names[:depth]), []).append(tuple(names[depth:]))
    return _Guards(frozenset(paths), {folder: tuple(below) for folder, below in above.items()}, anywhere)


def _lies_within(path: str, paths: frozenset[str]) -> bool:
    """Tell whether a path, or a folder that it lies in, is one of these."""
    while path:
        if path in paths:
            return True
        path = path.rpartition("/")[0]
    return False


def _is_anywhere(ends: tuple[str, ...], effect: Effect) -> bool:
    """Tell whether a path is, or lies in, what is guarded in every folder; or is a folder of it that is deleted."""
    path = f"{effect.resource}/"
    within = any(f"{end}/" in path for end in ends)
    return within or (effect.verb == "delete" and any(_holds(path, end) for end in ends))


def _holds(path: str, end: str) -> bool:
    """Tell whether a path ends in the first folder of an end: `/x/.claude/` holds `/.claude/settings.json`."""
    first = end.split("/")[1]
    return end.count("/") > 1 and path.endswith(f"/{first}/")


def _reaches(guards: _Guards, effect: Effect, action: Action) -> bool:
    """Tell whether a write or a deletion changes what is guarded, or what holds it."""
    if _lies_within(effect.resource, guards.paths) or _is_anywhere(guards.anywhere, effect):
        return True
    below = guards.above.get(effect.resource)
    if below is None:
        return False
    if not effect.beneath:
        return effect.verb == "delete" or _replaces(effect, action)
    if not effect.picks:
        # Builds and formatters work on the whole project; a program that deletes as it sees fit may delete all.
        return effect.verb == "delete"
    return any(_picked(effect.picks, names) for names in below)


def _replaces(effect: Effect, action: Action) -> bool:
    """Tell whether a write puts something in the place of a folder, instead of working in the one that is there."""
    return not action.by_text and not any(
        other.beneath and (other.verb, other.resource, other.source) == (effect.verb, effect.resource, effect.source)
        for other in action.effects
    )


def _picked(picks: str, names: tuple[str, ...]) -> bool:
    """Tell whether a glob picks something on the way from a folder to what is guarded: a child, or at any depth."""
    if picks == "**":
        return True
    deep, slash, name = picks.rpartition("/")
    return any(fnmatchcase(each, name) for each in (names if slash and deep else names[:1]))


def _reaches_private(guards: _Guards, effect: Effect) -> bool:
    """Tell whether an effect touches a folder of Remit, or may pick something out of it."""
    if _lies_within(effect.resource, guards.paths):
        return True
    below = guards.above.get(effect.resource)
    if below is None:
        return False
    if effect.verb == "delete" and not (effect.beneath and effect.picks):
        return True
    if not effect.picks:
        return False
    # At any depth there may be a file of that name in it. A wildcard of the shell leaves out hidden names.
    hidden = effect.verb == "read" and effect.picks[:1] in "*?"
    return "/" in effect.picks or any(
        _picked(effect.picks, names) and not (hidden and effect.picks != "**" and names[0].startswith("."))
        for names in below
    )


def _started(commands: Iterable[Launched], own: Own) -> str:
    """Return the agent that a command line would start, or the program of Remit that it would start or stop."""
    for launched in commands:
        if _stops(launched.words, own):
            return _GOVERNOR
        if not _ANY_AGENT.search(" ".join(launched.words)):
            continue
        found = next((word for word in _suspects(launched) if _package(word) in _PACKAGES), "")
        if found:
            return found
    return ""


def _stops(words: tuple[str, ...], own: Own) -> bool:
    """Tell whether a program would stop Remit, as far as its words say: by name, by number, or by a pattern."""
    name, given = words[0] if words else "", words[1:]
    if name == "kill":
        numbers = {abs(int(word)) for word in given if word.removeprefix("-").isdecimal()}
        return bool(numbers & own.numbers) or given[1:][-1:] == (_EVERYONE,)
    if name not in _STOPPERS:
        return False
    by_pattern = name in _BY_PATTERN and any(_matches(word, own.line) for word in given)
    return by_pattern or any(_GOVERNOR in word for word in given)


def _matches(word: str, line: str) -> bool:
    """Tell whether a word of `pkill` picks the line of a process; one that cannot be read may pick anything."""
    if word.startswith("-") or not line:
        return False
    try:
        return re.search(word, line) is not None
    except re.error:
        return True


def _suspects(launched: Launched) -> Iterator[str]:
    """Yield the words of a program that may name what is started: its own name, a package, a module."""
    words = launched.words
    if not words:
        return
    name = words[0].rpartition("/")[2]
    yield name
    if not launched.plain:
        # What it does with its words is not known.
        yield from (word.rpartition("/")[2] for word in words[1:])
    if words[1:2] == ("-m",):
        yield from words[2:3]
    elif name in _RUNNERS or (name in _RUN_BY_WORD and words[1:2] and words[1] in _RUN_WORDS):
        yield from _packages(words[1:])


def _packages(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the words that may name the package to run: the first that is no option, and values of those before."""
    after_option = False
    for word in words:
        yield word.partition("=")[2] if word.startswith("-") else word
        if not (word.startswith("-") or after_option or word in _RUN_WORDS):
            return
        after_option = word.startswith("-") and "=" not in word


def _package(word: str) -> str:
    """Return a package's name without what may follow: `@scope/name@1.2`, `name==1.2`, `name[extra]`, `name.module`."""
    before, at, _ = word.rpartition("@")
    name = before if at and before else word
    return name if name.startswith("@") else name.partition("==")[0].partition("[")[0].partition(".")[0]
