"""A tool call as sent by a client, and the action it is projected to.

`projection.py` makes an `Action` from a `ToolCall`. Whatever it could not determine is in the action as a `Doubt`, so
that an engine never has to guess.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.claims.receipt import ActionClass
from remit.claims.strictjson import JSON
from remit.claims.types import SideEffectClass

__all__ = [
    "MAX_TARGET",
    "MOST_SEVERE",
    "SIDE_EFFECT_ORDER",
    "STOPPERS",
    "Action",
    "Annotations",
    "Argument",
    "Doubt",
    "Effect",
    "SpawnedProgram",
    "ToolCall",
    "Verb",
]

MAX_TARGET: Final = 2048
# From harmless to severe. A receipt records the most severe one; engines check all of them.
SIDE_EFFECT_ORDER: Final[tuple[SideEffectClass, ...]] = ("none", "internal_write", "state_change", "external_send")
# Maps a set of side effects to the most severe one.
MOST_SEVERE: Final[dict[frozenset[SideEffectClass], SideEffectClass]] = {
    frozenset(others) | {side}: side
    for rank, side in enumerate(SIDE_EFFECT_ORDER)
    for size in range(rank + 1)
    for others in combinations(SIDE_EFFECT_ORDER[:rank], size)
}
# Programs that stop processes, and programs that contain such programs under other names (busybox).
STOPPERS: Final = frozenset(
    "kill pkill killall killall5 skill snice slay fuser systemctl service launchctl busybox toybox".split()
)

Verb: TypeAlias = Literal["read", "write", "delete", "contact", "send", "run", "setenv", "escalate", "export", "manage"]


class Annotations(NamedTuple):
    """The MCP annotations of a tool. They are used only where they make a decision stricter."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None


class ToolCall(NamedTuple):
    """A tool call as the client sent it."""

    tool_name: str
    arguments: Mapping[str, JSON]
    cwd: str | None = None
    annotations: Annotations = Annotations()
    # The client is known to start a new shell for each command, whatever the name of the tool suggests.
    fresh_shell: bool = False
    # The shell that runs the commands, where the client is known to use another one than bash.
    shell: Literal["bash", "zsh"] = "bash"


class Argument(NamedTuple):
    """One value among the arguments of a call: its place, its name, its role (empty if it has none) and the value."""

    place: str
    name: str
    role: str
    value: JSON


class Effect(NamedTuple):
    """One operation of a call on one resource.

    Paths are absolute, with symbolic links resolved; URLs are normalized. The resource of `manage` is state of the
    machine that is not a file, such as `db://app_dev`. With `beneath`, the effect is on unlisted files below the
    directory. `shared` marks a file with several hard links, whose other names may be anywhere. `picks` limits an
    effect `beneath` a directory: a glob means its direct children, `**/` and a glob means names at any depth, `**`
    means everything; it is empty if the program itself chooses the files. `steers` is set if the file makes programs
    run code: a scope entry must then name this path, or a path below it, to cover the effect.
    """

    verb: Verb
    resource: str
    source: str
    beneath: bool = False
    shared: bool = False
    picks: str = ""
    steers: str = ""


class Doubt(NamedTuple):
    """Something that could not be determined: the word that caused it, and why."""

    code: Literal["target_unknown", "shell_unparsed"]
    word: str
    reason: str
    # The operation is unknown too, not only the resource.
    unbounded: bool = False


class SpawnedProgram(NamedTuple):
    """A program that a command line would start.

    `words` are its name and arguments, up to the first one that is not known before it runs. The name is an absolute
    path unless PATH finds the program. Without words the program is not known.
    """

    words: tuple[str, ...] = ()
    # More words follow, which are unknown or were left out.
    more: bool = False
    # The name and subcommand without the options between them; empty if an option is not known.
    plain: tuple[str, ...] = ()
    # The words of each program that starts this one, up to the name of the next, outermost first.
    carriers: tuple[tuple[str, ...], ...] = ()
    # It only starts another program, which is judged separately.
    carrier: bool = False
    # The files, modules and packages that its words tell it to run, as far as its table describes them.
    runs: tuple[str, ...] = ()
    # For a program that stops processes: all words after its name, with None for each that is not known. A background
    # job of the same script is `%`.
    targets: tuple[str | None, ...] = ()


class Action(NamedTuple):
    """What a call would do: the fields of its receipt, and the data that engines check."""

    tool: str
    action_class: ActionClass
    resource_family: str
    target: str
    side_effects: frozenset[SideEffectClass]
    effects: tuple[Effect, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    # It runs code of the project, which only a sandbox can restrict.
    runs_code: bool = False
    # Paths were compared by their text; symbolic links were not resolved.
    by_text: bool = False
    # The programs that the command line of a shell tool would start; None for other tools.
    commands: Iterable[SpawnedProgram] | None = None

    @property
    def side_effect_class(self) -> SideEffectClass:
        """Return the most severe side effect, which is the one that a receipt records."""
        return MOST_SEVERE[self.side_effects]
