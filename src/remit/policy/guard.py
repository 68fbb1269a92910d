"""What governs an agent stays out of its reach: the engine `guard`.

An agent that can change the settings which put its calls to Remit can free itself of every other rule, so no passport
permits that. Guarded files are not written or deleted, nor is a folder that holds one; Remit's own folder is not even
read; and Remit and other assistants are not started. Only what a call shows is judged: code of the project that runs
can do anything, and what a build does beneath a folder is not held against what lies there.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple, TypeAlias

from remit.policy.agents import started_agent
from remit.policy.call import Action, Effect
from remit.policy.engines import Case, Clock, Finding, Remedy
from remit.policy.stops import Selected, selected

__all__ = ["GuardEngine", "Own"]

_NAME: Final = "guard"
_CODE: Final = "governance_guarded"
_PERMITTED: Final = Finding(_NAME, "", "nothing that governs the agent is touched")
_SHOWN: Final = 300
# How long what is guarded is taken for what there is: every call needs it, and few things change as seldom.
_MOMENT_S: Final = 0.05
_CHANGES: Final = {"read": "read", "write": "change", "delete": "delete"}
# What steers an agent in a folder that is guarded as a whole, where a glob picks names at any depth.
_STEERING: Final = ("settings.json", "settings.local.json", "hooks", "hooks.json", "config", "config.toml")
_HANDS_OFF: Final = Remedy((), "No passport helps here: a person changes these files outside the assistant.")
_NAME_OTHERS: Final = Remedy(
    (),
    "No passport helps here: name files or folders among which none of these lies, or let a person do it outside the "
    "assistant.",
)
_PRIVATE: Final = Remedy((), "No passport helps here: a person looks at Remit's own files outside the assistant.")
_START_OUTSIDE: Final = Remedy(
    (), "No passport helps here: a person starts or stops this program outside the assistant."
)
_STOP_BY_NUMBER: Final = Remedy(
    (),
    "Stop a process by its number (`kill 12345`), or by a name that no process of Remit has, without other options "
    "(`pkill -f NAME`). No passport permits more.",
)

# From a folder to what is guarded below it, name by name.
_Below: TypeAlias = tuple[tuple[str, ...], ...]


class _Guards(NamedTuple):
    """Guarded paths, so that one look tells what a path has to do with them."""

    paths: frozenset[str]
    # What the paths of all that lies below them begin with.
    roots: tuple[str, ...]
    above: Mapping[str, _Below]
    # Ends of paths that are guarded in every folder.
    anywhere: tuple[str, ...] = ()


class _Known(NamedTuple):
    """What is guarded, the files that hold a token, and until when that is taken for what there is."""

    guards: _Guards
    secret: frozenset[str]
    until: float


class Own(NamedTuple):
    """The process that judges: its numbers and that of its group, and the line that it was started by."""

    numbers: frozenset[int] = frozenset()
    line: str = ""


_NOBODY: Final = Own()


class GuardEngine:
    """Refuses what would change what governs the agent.

    `guarded` returns absolute paths without links of files, or of folders with everything beneath; `**/` before a
    relative one stands for any folder. `private` are folders of Remit itself, `own` is its process, or returns its
    processes. `secret` returns the files outside of these that hold a token: they are not read by name. While nothing
    is guarded, other agents may be started, and this one stopped. `guarded` and `secret` are asked again a moment
    later by `clock`, in seconds; without one, for every call.
    """

    name = _NAME
    # So a decision stays right when other calls have used some of it up.
    sees_budgets = False

    def __init__(
        self,
        guarded: Callable[[], Sequence[str]],
        private: Sequence[str] = (),
        own: Own | Callable[[], Sequence[Own]] = _NOBODY,
        secret: Callable[[], Sequence[str]] = tuple,
        clock: Clock = lambda: inf,
    ) -> None:
        self._guarded = guarded
        self._secret = secret
        self._clock = clock
        self._known = _Known(_guards(()), frozenset(), 0.0)
        self._own = own if callable(own) else lambda: (own,)
        self._private = _guards(tuple(private))

    def judge(self, case: Case) -> Finding:
        """Return the first effect or program that is refused, or that nothing is."""
        action, known, now = case.action, self._known, self._clock()
        if now >= known.until:
            secret = _guards(tuple(self._secret())).paths
            known = self._known = _Known(_guards(tuple(self._guarded())), secret, now + _MOMENT_S)
        guards, private = known.guards, self._private
        for given in action.effects:
            if given.verb not in _CHANGES:
                continue
            # Not every file system tells capital letters from small ones.
            resource, picks = given.resource.casefold(), given.picks.casefold()
            same = resource == given.resource and picks == given.picks
            effect = given if same else given._replace(resource=resource, picks=picks)
            if f"{resource}/".startswith(private.roots) or (
                resource in private.above and _picks_private(private, effect)
            ):
                return _refused(given, "belongs to Remit itself", _PRIVATE)
            if effect.verb == "read":
                if effect.resource in known.secret:
                    return _refused(given, "holds a token of Remit", _PRIVATE)
            elif _reaches(guards, effect, action):
                remedy = _NAME_OTHERS if given.beneath else _HANDS_OFF
                return _refused(given, "puts this agent under Remit, or holds what does", remedy)
        if guards.paths or guards.anywhere:
            return self._programs(action)
        return _PERMITTED

    def _programs(self, action: Action) -> Finding:
        """Judge the programs that a call would start, and what they would stop."""
        for own in self._own():
            stop = selected(action.commands or (), *own)
            if stop is not None:
                return _stopped(stop)
        agent = started_agent(action.commands or ())
        if agent:
            reason = f"it would start or stop {agent[:_SHOWN]!r}, which governs agents or is one that nobody governs"
            return Finding(_NAME, _CODE, reason, _START_OUTSIDE)
        return _PERMITTED


def _stopped(stop: Selected) -> Finding:
    how = f"{stop.program!r} selects processes by {stop.by[:_SHOWN]!r}"
    if stop.surely:
        return Finding(
            _NAME, _CODE, f"it would stop Remit, which governs this agent, or another assistant: {how}", _START_OUTSIDE
        )
    return Finding(
        _NAME,
        _CODE,
        f"{how}, and Remit, which governs this agent, or another assistant may be one of them",
        _STOP_BY_NUMBER,
    )


def _refused(effect: Effect, why: str, remedy: Remedy) -> Finding:
    resource = effect.resource[:_SHOWN] + ("/…" if effect.beneath else "")
    return Finding(_NAME, _CODE, f"it would {_CHANGES[effect.verb]} {resource}, which {why}", remedy)


@lru_cache(maxsize=8)
def _guards(paths: tuple[str, ...]) -> _Guards:
    above: dict[str, list[tuple[str, ...]]] = {}
    folded = tuple(path.casefold() for path in paths)
    absolute = tuple(path for path in folded if path.startswith("/"))
    for path in absolute:
        names = path.strip("/").split("/")
        for depth in range(len(names)):
            above.setdefault("/" + "/".join(names[:depth]), []).append(tuple(names[depth:]))
    anywhere = tuple(path[2:] for path in folded if path.startswith("**/"))
    roots = tuple(f"{path}/" for path in absolute)
    return _Guards(frozenset(absolute), roots, {folder: tuple(below) for folder, below in above.items()}, anywhere)


def _is_anywhere(ends: tuple[str, ...], effect: Effect) -> bool:
    """Tell whether a path is, or lies in, what is guarded in every folder; or is a folder of it that is deleted."""
    path = f"{effect.resource}/"
    if any(f"{end}/" in path for end in ends) or (effect.verb == "delete" and any(_holds(path, end) for end in ends)):
        return True
    # Files of a kind, or all of them, are picked in the course of everyday work; a name is picked on purpose.
    if effect.picks.removeprefix("**/")[:1] in ("", "*"):
        return False
    return any(_picked(effect.picks, tuple(end[1:].split("/"))) for end in ends)


def _holds(path: str, end: str) -> bool:
    """Tell whether a path ends in the first folder of an end: `/x/.claude/` holds `/.claude/settings.json`."""
    first = end.split("/")[1]
    return end.count("/") > 1 and path.endswith(f"/{first}/")


def _reaches(guards: _Guards, effect: Effect, action: Action) -> bool:
    """Tell whether a write or a deletion changes what is guarded, or what holds it."""
    if f"{effect.resource}/".startswith(guards.roots) or _is_anywhere(guards.anywhere, effect):
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
        other.beneath and (other.verb, other.source) == (effect.verb, effect.source)
        and other.resource.casefold() == effect.resource
        for other in action.effects
    )  # fmt: skip


def _picked(picks: str, names: tuple[str, ...]) -> bool:
    """Tell whether a glob picks something on the way from a folder to what is guarded: a child, or at any depth."""
    if picks == "**":
        return True
    deep, slash, name = picks.rpartition("/")
    if slash and deep:
        return any(fnmatchcase(each, name) for each in (*names, *(_STEERING if _is_folder(names[-1]) else ())))
    # A wildcard of the shell leaves out hidden names.
    hidden = name[:1] in ("*", "?") and names[0].startswith(".")
    return not hidden and fnmatchcase(names[0], name)


def _is_folder(name: str) -> bool:
    """Tell whether a name reads like that of a folder, and not of a file with an ending."""
    return "." not in name[1:]


def _picks_private(guards: _Guards, effect: Effect) -> bool:
    """Tell whether an effect on a folder that holds one of Remit deletes that, or may pick something out of it."""
    if effect.verb == "delete" and not (effect.beneath and effect.picks):
        return True
    # At any depth there may be a file of that name in it.
    below = guards.above[effect.resource]
    return bool(effect.picks) and ("/" in effect.picks or any(_picked(effect.picks, names) for names in below))
