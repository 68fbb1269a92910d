"""The `guard` engine: keeps an agent from changing or stopping what governs it.

An agent that can change the settings that send its calls to Remit could evade every other rule, so no passport permits
that. The engine denies writing or deleting guarded files and the folders that contain them, any access to Remit's own
folder, and starting or stopping Remit or another assistant. It judges what a call shows: project code that runs can
still do anything, and a build that writes below a folder is not denied because of guarded files in it.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple, TypeAlias

from remit.policy.agents import find_agent
from remit.policy.call import Action, Effect
from remit.policy.engines import Case, Clock, Finding, Remedy
from remit.policy.stops import ProcessMatch, find_match

_NAME: Final = "guard"
_CODE: Final = "governance_guarded"
_PERMITTED: Final = Finding(_NAME, "", "nothing that governs the agent is touched")
_SHOWN: Final = 300
# How long the guarded paths are cached: every call needs them, and they rarely change.
_CACHE_S: Final = 0.05
_CHANGES: Final = {"read": "read", "write": "change", "delete": "delete"}
# Names of settings in a folder that is guarded as a whole, for globs that match names at any depth.
_STEERING: Final = ("settings.json", "settings.local.json", "hooks", "hooks.json", "config", "config.toml")
_HANDS_OFF: Final = Remedy(
    (), "No passport permits this: only a person may change these files, outside of the assistant."
)
_NAME_OTHERS: Final = Remedy(
    (),
    "No passport permits this: name files or folders that contain none of the guarded ones, or have a person do it "
    "outside of the assistant.",
)
_PRIVATE: Final = Remedy(
    (), "No passport permits this: only a person may read Remit's own files, outside of the assistant."
)
_START_OUTSIDE: Final = Remedy(
    (), "No passport permits this: only a person may start or stop this program, outside of the assistant."
)
_STOP_BY_NUMBER: Final = Remedy(
    (),
    "Stop a process by its process id (`kill 12345`), or by a name that no process of Remit has, without other options "
    "(`pkill -f NAME`). No passport permits more.",
)

# For a folder: the components of each guarded path below it.
_Below: TypeAlias = tuple[tuple[str, ...], ...]


class _Guards(NamedTuple):
    """An index of guarded paths."""

    paths: frozenset[str]
    # The prefixes of everything below them.
    roots: tuple[str, ...]
    above: Mapping[str, _Below]
    # Suffixes of paths that are guarded in every folder.
    anywhere: tuple[str, ...] = ()


class _Snapshot(NamedTuple):
    """The guarded paths, the files that hold a token, and the time until which both are cached."""

    guards: _Guards
    secret: frozenset[str]
    until: float


class OwnProcess(NamedTuple):
    """The process that judges: its process and group ids, and its command line."""

    numbers: frozenset[int] = frozenset()
    line: str = ""


_NO_PROCESS: Final = OwnProcess()


class GuardEngine:
    """Denies changes to what governs the agent.

    `guarded` returns absolute paths of files, or of folders with everything below them, with links resolved; `**/`
    before a relative path means any folder. `private` are Remit's own folders. `own` is the process of Remit, or a
    function that returns its processes. `secret` returns other files that hold a token, which must not be read. If
    nothing is guarded, agents may be started and stopped. `guarded` and `secret` are cached for a short time by `clock`
    (seconds); without a clock they are called for every call.
    """

    name = _NAME
    # The decision does not depend on budgets, so it stays valid when other calls use them up.
    sees_budgets = False

    def __init__(
        self,
        guarded: Callable[[], Sequence[str]],
        private: Sequence[str] = (),
        own: OwnProcess | Callable[[], Sequence[OwnProcess]] = _NO_PROCESS,
        secret: Callable[[], Sequence[str]] = tuple,
        clock: Clock = lambda: inf,
    ) -> None:
        self._guarded = guarded
        self._secret = secret
        self._clock = clock
        self._snapshot = _Snapshot(_build_guards(()), frozenset(), 0.0)
        self._own = own if callable(own) else lambda: (own,)
        self._private = _build_guards(tuple(private))

    def judge(self, case: Case) -> Finding:
        """Return a denial for the first forbidden effect or program, or a permit."""
        action, snapshot, now = case.action, self._snapshot, self._clock()
        if now >= snapshot.until:
            secret = _build_guards(tuple(self._secret())).paths
            snapshot = self._snapshot = _Snapshot(_build_guards(tuple(self._guarded())), secret, now + _CACHE_S)
        guards, private = snapshot.guards, self._private
        for given in action.effects:
            if given.verb not in _CHANGES:
                continue
            # Some file systems ignore case.
            resource, picks = given.resource.casefold(), given.picks.casefold()
            same = resource == given.resource and picks == given.picks
            effect = given if same else given._replace(resource=resource, picks=picks)
            if f"{resource}/".startswith(private.roots) or (
                resource in private.above and _picks_private(private, effect)
            ):
                return _refuse_effect(given, "belongs to Remit itself", _PRIVATE)
            if effect.verb == "read":
                if effect.resource in snapshot.secret:
                    return _refuse_effect(given, "holds a token of Remit", _PRIVATE)
            elif _reaches(guards, effect, action):
                remedy = _NAME_OTHERS if given.beneath else _HANDS_OFF
                return _refuse_effect(given, "puts this agent under Remit, or contains files that do", remedy)
        if guards.paths or guards.anywhere:
            return self._judge_programs(action)
        return _PERMITTED

    def _judge_programs(self, action: Action) -> Finding:
        """Judge the programs that a call would start, and the processes they would stop."""
        for own in self._own():
            stop = find_match(action.commands or (), *own)
            if stop is not None:
                return _refuse_stop(stop)
        agent = find_agent(action.commands or ())
        if agent:
            reason = (
                f"it would start or stop {agent[:_SHOWN]!r}, which is Remit or an agent that Remit would not govern"
            )
            return Finding(_NAME, _CODE, reason, _START_OUTSIDE)
        return _PERMITTED


def _refuse_stop(stop: ProcessMatch) -> Finding:
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


def _refuse_effect(effect: Effect, why: str, remedy: Remedy) -> Finding:
    resource = effect.resource[:_SHOWN] + ("/…" if effect.beneath else "")
    return Finding(_NAME, _CODE, f"it would {_CHANGES[effect.verb]} {resource}, which {why}", remedy)


@lru_cache(maxsize=8)
def _build_guards(paths: tuple[str, ...]) -> _Guards:
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


def _is_guarded_anywhere(ends: tuple[str, ...], effect: Effect) -> bool:
    """Return whether an effect changes a path that is guarded in every folder, or deletes a folder of such a path."""
    path = f"{effect.resource}/"
    if any(f"{end}/" in path for end in ends) or (effect.verb == "delete" and any(_holds(path, end) for end in ends)):
        return True
    # Wildcards such as `*.py` are everyday work; a pattern that starts with a name is aimed at it.
    if effect.picks.removeprefix("**/")[:1] in ("", "*"):
        return False
    return any(_is_picked(effect.picks, tuple(end[1:].split("/"))) for end in ends)


def _holds(path: str, end: str) -> bool:
    """Return whether a path ends in the first folder of a suffix: `/x/.claude/` for `/.claude/settings.json`."""
    first = end.split("/")[1]
    return end.count("/") > 1 and path.endswith(f"/{first}/")


def _reaches(guards: _Guards, effect: Effect, action: Action) -> bool:
    """Return whether a write or deletion changes a guarded path, or a folder that contains one."""
    if f"{effect.resource}/".startswith(guards.roots) or _is_guarded_anywhere(guards.anywhere, effect):
        return True
    below = guards.above.get(effect.resource)
    if below is None:
        return False
    if not effect.beneath:
        return effect.verb == "delete" or _replaces(effect, action)
    if not effect.picks:
        # Builds and formatters write all over a project; a program that chooses what to delete may delete anything.
        return effect.verb == "delete"
    return any(_is_picked(effect.picks, names) for names in below)


def _replaces(effect: Effect, action: Action) -> bool:
    """Return whether a write replaces a folder, instead of writing into it."""
    return not action.by_text and not any(
        other.beneath and (other.verb, other.source) == (effect.verb, effect.source)
        and other.resource.casefold() == effect.resource
        for other in action.effects
    )  # fmt: skip


def _is_picked(picks: str, names: tuple[str, ...]) -> bool:
    """Return whether a glob matches a component between a folder and a guarded path: a child, or at any depth."""
    if picks == "**":
        return True
    deep, slash, name = picks.rpartition("/")
    if slash and deep:
        return any(fnmatchcase(each, name) for each in (*names, *(_STEERING if _is_folder(names[-1]) else ())))
    # Wildcards of the shell skip hidden names.
    hidden = name[:1] in ("*", "?") and names[0].startswith(".")
    return not hidden and fnmatchcase(names[0], name)


def _is_folder(name: str) -> bool:
    """Return whether a name looks like a folder: it has no extension."""
    return "." not in name[1:]


def _picks_private(guards: _Guards, effect: Effect) -> bool:
    """Return whether an effect on a folder deletes Remit's folder in it, or may match something inside that."""
    if effect.verb == "delete" and not (effect.beneath and effect.picks):
        return True
    # A glob for any depth may match a file in it.
    below = guards.above[effect.resource]
    return bool(effect.picks) and ("/" in effect.picks or any(_is_picked(effect.picks, names) for names in below))
