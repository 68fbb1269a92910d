"""A tool call as sent, and the action it is projected to.

These are plain values. `projection.py` makes an `Action` from a `ToolCall`; what it could not determine is in the
action as a `Doubt`, so that a judge never has to guess.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.claims.receipt import ActionClass
from remit.claims.shapes import SideEffectClass
from remit.claims.strictjson import JSON

__all__ = [
    "GRAVEST",
    "MAX_TARGET",
    "SIDE_EFFECT_ORDER",
    "STOPPERS",
    "Action",
    "Annotations",
    "Argument",
    "Doubt",
    "Effect",
    "Launched",
    "ToolCall",
    "Verb",
]

MAX_TARGET: Final = 2048
# From harmless to grave: a receipt names the gravest, a judge looks at all.
SIDE_EFFECT_ORDER: Final[tuple[SideEffectClass, ...]] = ("none", "internal_write", "state_change", "external_send")
# The gravest of several side effects, by the set of them.
GRAVEST: Final[dict[frozenset[SideEffectClass], SideEffectClass]] = {
    frozenset(others) | {side}: side
    for rank, side in enumerate(SIDE_EFFECT_ORDER)
    for size in range(rank + 1)
    for others in combinations(SIDE_EFFECT_ORDER[:rank], size)
}
# Programs that stop others, or run those that do under names of their own.
STOPPERS: Final = frozenset(
    "kill pkill killall killall5 skill snice slay fuser systemctl service launchctl busybox toybox".split()
)

Verb: TypeAlias = Literal["read", "write", "delete", "contact", "send", "run", "setenv", "escalate", "export", "manage"]


class Annotations(NamedTuple):
    """What an MCP server says about its tool. Only believed where it makes a judgement stricter."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None


class ToolCall(NamedTuple):
    """What a client asks to do, as it was sent."""

    tool_name: str
    arguments: Mapping[str, JSON]
    cwd: str | None = None
    annotations: Annotations = Annotations()
    # The client is known to start a new shell for each command, whatever the tool's name says.
    fresh_shell: bool = False
    # The shell that reads commands, where the client is known and the tool is not made for another.
    shell: Literal["bash", "zsh"] = "bash"


class Argument(NamedTuple):
    """One value of a call: where it stands, what it is called, its role (nothing where it has none)."""

    place: str
    name: str
    role: str
    value: JSON


class Effect(NamedTuple):
    """One thing that a call would do to one resource.

    Paths are absolute and without links, URLs normalised. `manage` has a resource of the machine that is no file, such
    as `db://app_dev`. `beneath` stands for anything below a directory whose
    names nobody listed. `shared` marks a file that has other names, which may lie elsewhere. `picks` says what is
    meant beneath a directory: children that a glob names, `**/` and a glob for names at any depth, `**` for whatever
    is there; nothing where a program works on the directory as it sees fit. Where a file steers programs, `steers` is
    the path that an entry of the scope has to name, or to lie below, in order to cover it.
    """

    verb: Verb
    resource: str
    source: str
    beneath: bool = False
    shared: bool = False
    picks: str = ""
    steers: str = ""


class Doubt(NamedTuple):
    """Something that could not be determined: the word that caused it, why, and what would help."""

    code: Literal["target_unknown", "shell_unparsed"]
    word: str
    reason: str
    # What is done is unknown too, not only to which resource it is done.
    unbounded: bool = False


class Launched(NamedTuple):
    """A program that a command line would start.

    `words` are its name and what follows, as far as they are certain; where PATH does not find it, the name is its
    absolute path. Without words nobody knows what is started.
    """

    words: tuple[str, ...] = ()
    # More words follow, which are not certain or not kept.
    more: bool = False
    # The name and the sub command without the options between them; nothing where an option is not known.
    plain: tuple[str, ...] = ()
    # The words of each program that starts it, the outermost first, up to its own name.
    carriers: tuple[tuple[str, ...], ...] = ()
    # It only starts another program, which is judged by itself.
    carrier: bool = False
    # What its words name to be run, as far as its table tells: files, modules, packages.
    runs: tuple[str, ...] = ()
    # Of a program that stops others: all words after its name, with None for each that is not certain. A job of the
    # same script is `%`.
    targets: tuple[str | None, ...] = ()


class Action(NamedTuple):
    """What a call comes to: the members of a receipt, and everything a judge needs."""

    tool: str
    action_class: ActionClass
    resource_family: str
    target: str
    side_effects: frozenset[SideEffectClass]
    effects: tuple[Effect, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    # Runs code of the project, which only a sandbox bounds.
    runs_code: bool = False
    # Paths were judged by their text: links were not looked at.
    by_text: bool = False
    # What the command line of a shell tool would start; None where there is no command line.
    commands: Iterable[Launched] | None = None

    @property
    def side_effect_class(self) -> SideEffectClass:
        """Return the gravest side effect, which is the one a receipt names."""
        return GRAVEST[self.side_effects]
