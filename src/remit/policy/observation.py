"""The `observation` engine: denies observed events that are dangerous under any passport.

Events are reported after the fact by a browser extension, a desktop observer or a command-line adapter. What is
dangerous is decided by the effects of a command and not by its text; the tables are in `dangers.toml`. This engine runs
before `native.py`, which handles ended sessions and commands that cannot be parsed.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, NamedTuple
from unicodedata import normalize

from remit.claims.strictjson import JSON
from remit.policy.call import Action, Doubt, Effect
from remit.policy.engines import Case, Finding, Remedy
from remit.policy.evidence import describe, quote_word, redact
from remit.policy.shell.evaluate.downloads import RUNS_DOWNLOAD, fetchers

_NAME: Final = "observation"
_NOTHING: Final = Finding(_NAME, "", "nothing dangerous was observed")
_LOOK: Final = Remedy((), "No passport permits this: have a person look at what was done.")
_HIDDEN: Final = Finding(
    _NAME,
    "provider_side_activity",
    "the provider acted on its own servers, where its actions cannot be observed",
    Remedy((), "No passport permits this: have the provider's tools called where they can be observed."),
)
_SHOWN: Final = 300
_CHANGES: Final = frozenset(("write", "delete"))
_OUTWARD: Final = frozenset(("send", "write"))
_UNKNOWN_PROGRAM: Final = "this program is not known here"
_HOME: Final = re.compile(r"[\"']?(?:~[\w.-]*|\$HOME|\$\{HOME\})[\"']?(?=/)")
_SUBSTITUTED: Final = re.compile(r"\$\(|`")
_PIECES: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])|[^\W\d_a-zA-Z]+")
_ENCODED: Final = re.compile(r"%([0-9A-Fa-f]{2})")


class ObservationEngine:
    """Denies events that no passport permits, and permits all others."""

    name = _NAME

    def __init__(self, home: str | None = None) -> None:
        """Take the home of the user; other homes are recognized by their usual paths."""
        self._home = home.rstrip("/") if home else None

    def judge(self, case: Case) -> Finding:
        """Return a denial for the first danger, or a permit."""
        standing, arguments = case.standing, case.call.arguments
        if standing.refusal or standing.budget.tool_calls <= 0 or standing.budget.duration_s <= 0:
            return _NOTHING
        if arguments.get("hidden_provider_activity") not in (None, False):
            return _HIDDEN
        done, target = str(arguments.get("action_class")).strip().lower(), arguments.get("target")
        if done in _OUTWARD and _names_secret(target):
            reason = f"it {done}s to {quote_word(str(target))}, which names a secret"
            return Finding(_NAME, "secret_target", reason, _LOOK)
        danger = next(_dangers(case.action, self._home), None)
        return Finding(_NAME, "dangerous_effect", danger, _LOOK) if danger is not None else _NOTHING


class _Tables(NamedTuple):
    """The tables of `dangers.toml`, each as one pattern."""

    system: re.Pattern[str]
    free: re.Pattern[str]
    whole: re.Pattern[str]
    stores: re.Pattern[str]
    public: re.Pattern[str]
    raising: re.Pattern[str]
    formatting: re.Pattern[str]
    running: re.Pattern[str]
    secret_words: re.Pattern[str]
    secret_files: re.Pattern[str]


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    given = tomllib.loads(package_files("remit.policy").joinpath("dangers.toml").read_text(encoding="utf-8"))
    system, stores, secrets = given["system"], given["stores"], given["secrets"]
    below, any_directory = "(?:/.*)?", "(?:.*/)?"
    return _Tables(
        system=_compile_patterns("", system["places"], below),
        free=_compile_patterns("", system["free"], below),
        whole=_compile_patterns("", system["whole"], ""),
        stores=re.compile(
            f"{_alternatives(stores['places'])}{below}|.*/{_alternatives(stores['anywhere'])}{below}",
            re.IGNORECASE | re.DOTALL,
        ),
        public=_compile_patterns(".*/", stores["public"], below),
        raising=_compile_patterns(any_directory, given["privileges"]["programs"], ""),
        formatting=_compile_patterns(any_directory, given["devices"]["programs"], ""),
        running=_compile_patterns("", given["downloads"]["runs"], ""),
        secret_words=_compile_patterns("(?:.* )?", secrets["words"], "(?: .*)?"),
        secret_files=_compile_patterns(any_directory, secrets["files"], ""),
    )


def _alternatives(patterns: Sequence[str]) -> str:
    escaped = (re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") for pattern in patterns)
    return f"(?:{'|'.join(escaped)})"


def _compile_patterns(before: str, patterns: Sequence[str], after: str) -> re.Pattern[str]:
    return re.compile(before + _alternatives(patterns) + after, re.IGNORECASE | re.DOTALL)


def _dangers(action: Action, home: str | None) -> Iterator[str]:
    """Yield a text for each danger among the effects of an action."""
    yield from _programs(action)
    for effect in action.effects:
        if why := _danger_of(effect, action, home):
            yield f"it {describe(effect._replace(resource=redact(effect.resource)[:_SHOWN]))}, {why}"
    yield from _downloads(action)
    for doubt in action.doubts:
        # Even if the home directory is not known, the paths below it are.
        path, found = _HOME.subn("/home/somebody", doubt.word, count=1)
        if found and _is_store(path.strip("\"'")):
            yield f"it touches {quote_word(doubt.word)}, which is a credential store"


def _danger_of(effect: Effect, action: Action, home: str | None) -> str:
    """Return why one effect is dangerous, or ""."""
    if effect.verb not in _CHANGES:
        return _secret_access_of(effect)
    path, tables = effect.resource, _tables()
    if path == "/":
        return "which is the root directory"
    if tables.system.fullmatch(path) and not tables.free.fullmatch(path):
        return "which is a device" if path.lower().startswith("/dev/") else "which belongs to the system"
    is_whole = tables.whole.fullmatch(path) is not None or _holds(path, home)
    if is_whole and (effect.verb == "delete" or _is_changed(effect, action)):
        return "which is a home directory or a directory that many depend on"
    return ""


def _secret_access_of(effect: Effect) -> str:
    """Return why an effect that changes nothing accesses a secret, or ""."""
    if effect.verb == "export":
        return "which opens a credential store"
    return "which is a credential store" if effect.verb == "read" and _is_store(effect.resource) else ""


def _holds(path: str, home: str | None) -> bool:
    """Return whether a path is the home of the user, or contains it."""
    return bool(home) and f"{home}/".startswith(f"{path}/")


def _is_changed(effect: Effect, action: Action) -> bool:
    """Return whether a directory itself is changed: a word names it, and it is read and written.

    A file that is placed in it only writes, and a program that works in it is not given it as a word.
    """
    named = effect.source.partition(" ")[0] not in {each.resource for each in action.effects if each.verb == "run"}
    return named and effect._replace(verb="read") in action.effects


def _is_store(path: str) -> bool:
    tables = _tables()
    return tables.stores.fullmatch(path) is not None and tables.public.fullmatch(path) is None


def _names(action: Action) -> list[str]:
    """Return the programs that an action runs, including those without a table."""
    known = [effect.resource for effect in action.effects if effect.verb == "run"]
    return known + [doubt.word for doubt in action.doubts if doubt.reason.startswith(_UNKNOWN_PROGRAM)]


def _programs(action: Action) -> Iterator[str]:
    tables = _tables()
    yield from (f"it runs {each.source}, which raises privileges" for each in action.effects if each.verb == "escalate")
    for name in _names(action):
        if tables.raising.fullmatch(name):
            yield f"it runs {name[:_SHOWN]}, which raises privileges"
        if tables.formatting.fullmatch(name):
            yield f"it runs {name[:_SHOWN]}, which writes over a device"


def _downloads(action: Action) -> Iterator[str]:
    """Yield a text if something is run that was downloaded by the same command."""
    for doubt in action.doubts:
        if doubt.reason.startswith(RUNS_DOWNLOAD):
            yield f"it runs what it has just downloaded with {doubt.reason.removeprefix(RUNS_DOWNLOAD)}"
    fetcher = next((name for name in _names(action) if name.rpartition("/")[2] in fetchers()), None)
    if fetcher is not None and any(_runs_unread(doubt) for doubt in action.doubts):
        yield f"it runs what it has just downloaded with {fetcher[:_SHOWN]}"


def _runs_unread(doubt: Doubt) -> bool:
    """Return whether a doubt is about unread code: from a pipe, a substitution or a new file."""
    if doubt.reason == "the program to run is not known before it runs":
        return _SUBSTITUTED.search(doubt.word) is not None
    return _tables().running.fullmatch(doubt.reason) is not None


def _names_secret(target: JSON) -> bool:
    """Return whether a target names a secret: by its words, as a file with a secret, or as a credential store."""
    tables = _tables()
    text = normalize("NFKC", _ENCODED.sub(lambda code: chr(int(code[1], 16)), str(target)))
    words = " ".join(piece.lower() for piece in _PIECES.findall(text))
    path = text.partition("?")[0].rstrip("/")
    return (
        tables.secret_words.fullmatch(words) is not None
        or tables.secret_files.fullmatch(path) is not None
        or _is_store(path if path.startswith("/") else f"/{path}")
    )
