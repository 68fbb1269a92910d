"""Projects a tool call to an action: the effects it would have, by the catalog or by its arguments.

Every string at any depth is read, including the names of object members, with the role that the catalog gives it. A
value of the wrong type for its role is a doubt and is never skipped. For a tool that is not in the catalog
(`guess.py`), every argument that is named like a resource, or looks like one, is taken for one. The annotations of a
server about its own tool can only make the action more severe.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Final, get_args

from remit.claims.receipt import ActionClass
from remit.claims.strictjson import JSON, parse_json
from remit.claims.types import SideEffectClass
from remit.errors import InputError
from remit.policy.call import MAX_TARGET, Action, Annotations, Argument, Effect, SpawnedProgram, ToolCall
from remit.policy.catalog import RUN_ROLES, KnownTool, known_tools
from remit.policy.evidence import redact
from remit.policy.files import Files, join, locate, refuse_text
from remit.policy.guess import (
    guess_action,
    is_command_name,
    is_directory_name,
    judge_unmarked,
    keeps_shell,
    may_run_beside,
    quoted_resources,
)
from remit.policy.lasting import ENTERS_AT_ONCE, lasting_changes, leaves_at_once
from remit.policy.patches import patched_files
from remit.policy.shell.parse.braces import expand_braces
from remit.policy.shell.parse.zsh import zsh_differences
from remit.policy.shell.run import judge_program, judge_script
from remit.policy.sql import judge_sql
from remit.policy.steering import mark_steering
from remit.policy.trace import VERBS, Trace

__all__ = ["is_cheap", "project"]

_NO_ANNOTATIONS: Final = Annotations()
# Tools that pass their command to bash, although their name does not say so.
_BASH_TOOLS: Final = frozenset(("exec_command", "run_shell_command", "shell_command", "Shell", "Monitor"))
# Values of a `shell` argument. How any other shell reads a command is not known.
_BASH: Final = re.compile(r"(?:/(?:usr/)?bin/)?bash")
_POSIX: Final = re.compile(r"(?:/(?:usr/)?bin/)?(?:da)?sh")
_SAFE_METHODS: Final = frozenset(("", "GET", "HEAD", "OPTIONS"))
# A file that a prompt mentions, as assistants read it: `see @src/app.py, please`. Letters and blanks as in JavaScript.
_BLANKS: Final = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
_MENTION: Final = re.compile(rf"(?<![A-Za-z0-9_`])@(\.?[^{_BLANKS}`,.]*(?:\.[^{_BLANKS}`,.]+)*)")
_ROLE: Final = attrgetter("role")
# Roles of arguments that name what a tool works on.
_NAMING_ROLES: Final = RUN_ROLES | VERBS.keys()
_DIRECTORY_ROLES: Final = frozenset(("base", "cwd"))
# Roles of arguments that name a resource.
_RESOURCE_ROLES: Final = frozenset(("seen", "url", "path_or_url", "host", "glob", *VERBS))
# Tools of these families work in the working directory, unless an argument names a file.
_WORK_IN_CWD: Final = frozenset(("file", "repository", "notebook", "code"))
# Arguments that name a running shell.
_SESSION_NAMES: Final = frozenset(("sessionId", "session_id", "shellId", "shell_id", "terminal_id", "terminalId"))
_KEPT_SHELL: Final = (
    "later calls use the same shell, and {what} would change what they do: "
    "put it, with the commands that need it, in `( … )` in one call"
)
_ZSH: Final = "commands of this assistant are run by zsh ({what}): write it as bash -c '…', which is judged as bash"
_MAX_TEXT: Final = 4 * MAX_TARGET
# Control characters, and characters that are invisible or change the text direction.
_INVISIBLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_MAX_INNER_JSON: Final = 65_536
_MAX_INNER_DEPTH: Final = 4
_MAX_ARGUMENTS: Final = 1000
_MAX_BASES: Final = 4
_MAX_PATTERN: Final = 4096
_OPTION: Final = re.compile(r"--?[A-Za-z]\S*\Z")
_ACTION_CLASSES: Final[tuple[ActionClass, ...]] = get_args(ActionClass)
_OBSERVED_SIDES: Final[dict[str, SideEffectClass]] = {"send": "external_send", "write": "internal_write"}
_BODIES: Final = frozenset("body data json form payload files".split())
# Globs that tools read in different ways: escapes, extended globs, dots in brackets.
_ODD_GLOB: Final = re.compile(r"\\|[@+!?*]\(|\[[^\]]*\.[^\]]*\]|\[\[?:")
# The role of a value of the wrong type for its role in the catalog.
_MISSHAPEN: Final = "misshapen"
# Names of arguments that hold the words of a command, and of arguments that hold its program.
_ARGUMENT_NAMES: Final = frozenset("args arguments argv parameters".split())
_PROGRAM_NAMES: Final = frozenset("program executable binary".split())
_PLAIN_ROLES: Final = frozenset(("data", "query"))
_LIST_ROLES: Final = frozenset(("command", "words"))
# Names that say nothing without the name of the parent object.
_EMPTY_NAMES: Final = frozenset("name value id key".split())
_MAX_NAME: Final = 80
_ADDRESS: Final = re.compile(r"ur[li]|host|endpoint")
# Roles that are cheap to judge. In a URL, wildcard characters are ordinary characters.
_LIGHT_ROLES: Final = frozenset(("data", "edit", "read", "seen", "url", "write"))
_URL_ROLES: Final = frozenset(("seen", "url"))
_LIGHT_ARGUMENTS: Final = 16
_LIGHT_TEXT: Final = 512
_WIDE: Final = re.compile(r"[*?\[{]")


def is_cheap(call: ToolCall) -> bool:
    """Return whether a call is cheap to judge: a known tool with few, short paths, URLs or data without wildcards.

    Such a call takes well under a millisecond. Commands, searches, deletions and globs can involve any number of files.
    """
    tool = known_tools().get(call.tool_name)
    if tool is None or len(call.arguments) > _LIGHT_ARGUMENTS or len(call.cwd or "") > _LIGHT_TEXT:
        return False
    for name, value in call.arguments.items():
        role = tool.args.get(name)
        if role not in _LIGHT_ROLES:
            return False
        if isinstance(value, str):
            if len(value) > _LIGHT_TEXT or (_WIDE.search(value) and not (role in _URL_ROLES and "://" in value)):
                return False
        elif not isinstance(value, bool | int | None):
            return False
    return True


def project(call: ToolCall, base: str | None, files: Files) -> Action:
    """Return the action of a call; `base` is the directory for relative paths if the call has none."""
    tool = known_tools().get(call.tool_name)
    if tool is None:
        action_class, family, side = guess_action(call.tool_name)
    elif tool.method or tool.resource_family == "observation":
        action_class, family, side = _classify(call, tool)
    else:
        action_class, family, side = tool.action_class, tool.resource_family, tool.side_effect_class
    projection = _Projection(call, tool, base, files)
    projection.sends = side == "external_send"
    projection.read()
    trace = projection.trace
    effects, doubts = tuple(trace.effects), trace.doubts
    sides = {side, *trace.side_effects}
    steers = False
    if "internal_write" in sides:
        effects, steers = mark_steering(effects, trace.files)
    if call.annotations != _NO_ANNOTATIONS:
        sides |= _declared_side_effects(call.annotations)
    if steers or (doubts and any(doubt.unbounded for doubt in doubts)):
        # The effect of later commands, or of this call, is not known.
        sides.add("state_change")
    if family == "shell":
        action_class = _shell_class(sides, action_class)
    if len(sides) > 1:
        sides.discard("none")
    by_text = not files.reads_disk and any(effect.verb in ("read", "write", "delete") for effect in effects)
    is_one = len(effects) == 1 and projection.roles.get(effects[0].source) in _RESOURCE_ROLES
    target = effects[0].resource if is_one and not (tool and tool.target) else projection.target(effects)
    if len(target) > MAX_TARGET:
        # Redact before cutting: a partial secret is not recognized.
        target = redact(target)[:MAX_TARGET]
    return Action(
        call.tool_name, action_class, family, target, frozenset(sides), effects, doubts,
        trace.runs_code or steers, by_text, projection.commands,
    )  # fmt: skip


def _classify(call: ToolCall, tool: KnownTool) -> tuple[ActionClass, str, SideEffectClass]:
    """Classify a tool by its arguments: an observation, or a request with an HTTP method."""
    if tool.resource_family == "observation":
        return _classify_observation(call.arguments.get("action_class"), tool)
    bodies = any(call.arguments.get(name) for name in _BODIES)
    if not bodies and all(method.upper() in _SAFE_METHODS for method in _methods(call.arguments, tool.method)):
        return "read", tool.resource_family, "none"
    return "send", tool.resource_family, "external_send"


def _classify_observation(reported: JSON, tool: KnownTool) -> tuple[ActionClass, str, SideEffectClass]:
    """Classify a reported observation by its `action_class`; any unknown value is an observation."""
    for known in _ACTION_CLASSES:
        if reported == known:
            return known, tool.resource_family, _OBSERVED_SIDES.get(known, tool.side_effect_class)
    return tool.action_class, tool.resource_family, tool.side_effect_class


def _methods(value: object, name: str) -> Iterable[str]:
    """Yield every HTTP method in the arguments, at any depth; "?" (which is not safe) for one that is not a string."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name or key.lower().replace("_", "").endswith(("method", "verb", "method-override")):
                yield inner if isinstance(inner, str) else "?"
            else:
                yield from _methods(inner, name)


def _declared_side_effects(annotations: Annotations) -> set[SideEffectClass]:
    """Return the side effects that the annotations of a tool declare."""
    declared: set[SideEffectClass] = set()
    if annotations.read_only is False:
        declared.add("internal_write")
    if annotations.destructive and not annotations.read_only:
        declared.add("state_change")
    if annotations.open_world and annotations.read_only is False:
        declared.add("external_send")
    return declared


def _shell_class(sides: set[SideEffectClass], otherwise: ActionClass) -> ActionClass:
    if "external_send" in sides:
        return "send"
    return "write" if sides & {"internal_write", "state_change"} else otherwise


class _Projection:
    """The projection of one call. `bases` are the directories that relative paths may start at."""

    def __init__(self, call: ToolCall, tool: KnownTool | None, base: str | None, files: Files) -> None:
        self.call = call
        self.tool = tool
        self.roles = tool.args if tool else {}
        self.trace = Trace(files)
        self.files = files
        self.bases: list[str | None] = [base]
        # The directory for the call's own working directory, and the one that relative arguments start at.
        self._base = self._start = base
        self._used_cwd = False
        self._keeps_shell = (tool is None or tool.resource_family == "shell") and self._shell_is_kept()
        self.sends = False
        self.posix = "bash" not in call.tool_name.lower() and call.tool_name not in _BASH_TOOLS
        if "shell" in call.arguments:
            self.posix |= _POSIX.fullmatch(str(call.arguments["shell"])) is not None
        # Tools of this family pass their arguments to git.
        self._takes_options = tool is not None and tool.resource_family == "repository"
        self._depth = 0
        self.arguments: list[Argument] = []
        # The programs that the command line of a known tool would start.
        self.commands: Iterable[SpawnedProgram] | None = None

    def read(self) -> None:
        """Record the effects of every argument."""
        tool, trace, arguments = self.tool, self.trace, self.arguments
        _walk(self.call.arguments, self.roles, arguments, limit=_MAX_ARGUMENTS)
        if len(arguments) > _MAX_ARGUMENTS:
            del arguments[_MAX_ARGUMENTS + 1 :]
            trace.doubt(arguments[-1].place, "there are more arguments than are checked", unbounded=True)
        given = frozenset(map(_ROLE, arguments))
        if "shell" in given:
            arguments[:] = map(_as_command, arguments)
            given = frozenset(map(_ROLE, arguments))
        self._resolve_bases(arguments, given)
        if tool is not None and tool.runs_text:
            self._check_text(arguments)
        if tool is not None and tool.required and given.isdisjoint(_NAMING_ROLES):
            self._check_target(arguments)
        for argument in arguments:
            if argument.role not in _DIRECTORY_ROLES:
                before = trace.named
                for base in self.bases:
                    self._project_argument(argument, base)
                if self.call.cwd is not None and trace.named != before and self._is_relative(argument):
                    self._use_cwd()
        if tool is not None and tool.resource_family in _WORK_IN_CWD and not trace.named:
            self._use_cwd()

    def _use_cwd(self) -> None:
        """Record that the call uses its working directory; with absolute paths only, it does not."""
        if self.call.cwd is not None and not self._used_cwd:
            self._used_cwd = True
            self._enter_directory(self.call.cwd, self._base, "cwd")

    def _resolve_bases(self, arguments: list[Argument], roles: frozenset[str]) -> None:
        """Determine the directories that the call works in; `roles` are those of its arguments."""
        cwd = self.call.cwd
        if cwd is not None:
            if refuse_text(cwd) or not cwd.startswith("/"):
                self._use_cwd()  # an unusual working directory is judged even if the call does not use it
            resolved = locate(cwd, self._base, self.files)
            self.bases = [None if resolved.refusal else resolved.path]
        start = self._start = self.bases[0]
        given = [] if roles.isdisjoint(_DIRECTORY_ROLES) else self._argument_directories(arguments)
        if given:
            respected = self.tool is None or self.tool.resource_family != "file" or "glob" in self.roles.values()
            # Not every tool of that name respects the argument, so the call must be allowed from the start directory
            # too.
            self.bases = given if respected else [*given, start]
        elif roles.isdisjoint(VERBS) and "base" in self.roles.values():
            # No file is named: it works on the start directory.
            self._enter_directory(".", start, "cwd")
        for argument in arguments if "" in roles else ():
            if not argument.role and isinstance(argument.value, str) and is_directory_name(argument.name):
                resolved = locate(argument.value, start, self.files)
                self.bases.append(None if resolved.refusal else resolved.path)
        self.bases = list(dict.fromkeys(self.bases))
        if cwd is not None and not roles.isdisjoint(RUN_ROLES) and start in self.bases and self._runs_in_cwd(arguments):
            self._use_cwd()
        if len(self.bases) > _MAX_BASES:
            self.trace.doubt("cwd", "it names more directories than are checked", unbounded=True)
            del self.bases[_MAX_BASES:]

    def _runs_in_cwd(self, arguments: list[Argument]) -> bool:
        """Return whether a command runs in the working directory, and does not start with a `cd` to another one."""
        for argument in arguments:
            if argument.role in RUN_ROLES and argument.value:
                text = _as_script(argument.value) if argument.role in ("command", "words") else ""
                if not (ENTERS_AT_ONCE.match(text) and leaves_at_once(text, posix=self.posix)):
                    return True
        return False

    def _is_relative(self, argument: Argument) -> bool:
        """Return whether an argument is a path relative to the working directory; commands are judged elsewhere."""
        absolute = isinstance(argument.value, str) and argument.value.startswith("/")
        return self._start in self.bases and argument.role not in RUN_ROLES and not absolute

    def _argument_directories(self, arguments: list[Argument]) -> list[str | None]:
        """Record the working directories that arguments name, and return their paths."""
        entered: list[str | None] = []
        for argument in arguments:
            if argument.role in _DIRECTORY_ROLES and isinstance(argument.value, str) and argument.value:
                if not argument.value.startswith("/"):
                    self._use_cwd()
                entered.append(self._enter_directory(argument.value, self._start, argument.place))
        return entered

    def _enter_directory(self, text: str, base: str | None, place: str) -> str | None:
        """Record that a directory is entered; return its path, or None if it is not known."""
        resolved = self.trace.touch("read", text, base, place)
        if resolved is None and locate(text, base, self.files).refusal:
            return None
        return resolved.path if resolved is not None else join(base or "/", text)

    def _check_text(self, arguments: list[Argument]) -> None:
        """Record a doubt if a tool that runs text gets its text in an argument that the catalog does not list."""
        given = odd = False
        for argument in arguments:
            given = given or (argument.role in RUN_ROLES and bool(argument.value))
            odd = odd or argument.name.startswith("__arg")
        for argument in arguments if odd or not given else ():
            text = argument.value if not argument.role and not is_command_name(argument.name) else None
            if argument.name and isinstance(text, str) and text.strip():
                self.trace.doubt(argument.place, "it may be what the tool runs", unbounded=True)

    def _check_target(self, arguments: list[Argument]) -> None:
        """Record a doubt if no argument names what the tool works on."""
        for argument in arguments:
            if argument.name and not argument.role:
                return
        named = next((place for place, role in self.roles.items() if role in _NAMING_ROLES), "")
        self.trace.doubt(named, "it is missing")

    def target(self, effects: tuple[Effect, ...]) -> str:
        """Return the target for a receipt: the argument marked as target, the most severe effect, or the tool name.

        If no effect is recorded for a resource that an argument names, the text of the argument is returned.
        """
        wanted = self.tool.target if self.tool else ""
        if wanted:
            marked = next((effect.resource for effect in effects if effect.source == wanted), "")
            if marked or (marked := self._text_at({wanted})):
                return marked
        # Without working directories, which are rarely the target.
        named = [
            effect
            for effect in effects
            if effect.source != "cwd" and self.roles.get(effect.source) not in _DIRECTORY_ROLES
        ]
        if not named and (text := self._text_at(self._resource_places())):
            return text
        if len(effects) == 1:
            return effects[0].resource
        for verb in ("send", "manage", "delete", "write", "contact", "export", "read", "run"):
            for effect in (*named, *effects):
                if effect.verb == verb:
                    return effect.resource
        return self.call.tool_name

    def _resource_places(self) -> set[str]:
        """Return the places of arguments that name a resource, by their role or because they caused a doubt."""
        doubted = {doubt.word for doubt in self.trace.doubts}
        return {
            argument.place
            for argument in self.arguments
            if argument.role in _RESOURCE_ROLES or (not argument.role and argument.name and argument.place in doubted)
        }

    def _text_at(self, places: set[str]) -> str:
        """Return the first text at one of these places, on one line and with invisible characters escaped."""
        for argument in self.arguments if places else ():
            if argument.name and argument.place in places and isinstance(argument.value, str):
                text = " ".join(argument.value[:_MAX_TEXT].split())
                if text:
                    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        return ""

    def _project_argument(self, argument: Argument, base: str | None) -> None:
        place, role, value = argument.place, argument.role, argument.value
        if role in ("command", "words"):
            self.commands = self.trace.spawned
            self._project_script(_as_script(value), base, posix=self.posix and isinstance(value, str))
        elif role == _MISSHAPEN:
            self.trace.doubt(place, "it has the wrong type for this tool", unbounded=True)
        elif role and self._takes_options and _may_be_option(value):
            self.trace.doubt(place, "it may be read as an option", unbounded=True)
        elif not isinstance(value, str):
            return
        elif not role:
            self._project_unmarked(argument, base)
            self._project_json(argument, base)
        elif role in VERBS or (role == "path_or_url" and "://" not in value):
            self.trace.touch(role if role in VERBS else "read", value, base, place)
            if value[:1] == "[":
                # A JSON list that was passed as a string.
                self._project_json(Argument(place, "path", "", value), base)
        else:
            self._project_marked(place, role, value, base)

    def _project_unmarked(self, argument: Argument, base: str | None) -> None:
        """Record the effects of an argument that the catalog does not list; a shell tool may run it as a command."""
        tool = self.tool
        if tool is not None and tool.resource_family == "shell" and tool.runs_text and may_run_beside(argument):
            self._project_script(str(argument.value), base)
        else:
            judge_unmarked(
                self.trace,
                self.call.tool_name,
                argument,
                base=base,
                run=self._project_script,
                known=self.tool is not None,
            )

    def _project_script(self, text: str, base: str | None, *, posix: bool = True) -> None:
        """Record the effects of a command line, and what it leaves behind in a persistent shell."""
        judge_script(self.trace, text, base, posix=posix)
        if self.call.shell == "zsh":
            for word, what in zsh_differences(text).items():
                self.trace.doubt(word, _ZSH.format(what=what), unbounded=True)
        if self._keeps_shell:
            for word, what in lasting_changes(text, base, self.files, posix=posix).items():
                self.trace.doubt(word, _KEPT_SHELL.format(what=what), unbounded=True)

    def _shell_is_kept(self) -> bool:
        """Return whether commands run in a shell that earlier calls have used."""
        if self.tool is None:
            return keeps_shell(self.call.tool_name)
        given = self.call.arguments
        names_one = not _SESSION_NAMES.isdisjoint(given) and any(given.get(name) for name in _SESSION_NAMES)
        return names_one or (self.call.tool_name in self.tool.keeps_shell and not self.call.fresh_shell)

    def _project_json(self, argument: Argument, base: str | None) -> None:
        """Read JSON inside a string like any other argument; search text that is not valid JSON for resources."""
        text = str(argument.value).strip()
        if text[:1] not in ("{", "[", "<") or text[-1:] not in ("}", "]", ">"):
            return
        try:
            data = text.encode("utf-8", "surrogatepass")
            value: JSON = parse_json(data, max_bytes=_MAX_INNER_JSON, exact_integers=True)
        except InputError:
            for quoted in quoted_resources(text):
                self._project_unmarked(argument._replace(name="", value=quoted), base)
            return
        if self._depth == _MAX_INNER_DEPTH:
            self.trace.doubt(argument.place, "it is JSON nested in JSON more deeply than is checked")
            return
        self._depth += 1
        found: list[Argument] = []
        _walk({argument.name or "value": value}, {}, found, limit=_MAX_INNER_JSON)
        for inner in found:
            self._project_argument(inner, base)
        self._depth -= 1

    def _project_marked(self, place: str, role: str, text: str, base: str | None) -> None:
        """Record the effects of an argument with a role in the catalog other than a path."""
        trace = self.trace
        if role in ("url", "path_or_url"):
            trace.contact(text, place, sends=self.sends)
        elif role == "host":
            trace.contact_host(text, place)
        elif role == "seen":
            # An observer reports what was done; nothing is sent to a page that was only viewed.
            done = str(self.call.arguments.get("action_class"))
            doing = done if done in _OBSERVED_SIDES else "observe"
            judge_unmarked(trace, doing, Argument(place, "target", "", text), base=base, run=self._project_script)
        else:
            readers = {
                "glob": self._project_glob,
                "mentions": self._project_mentions,
                "shell": self._check_shell,
                "patch": self._project_patch,
            }
            readers.get(role, partial(self._project_code, role))(place, text, base)

    def _project_code(self, role: str, place: str, text: str, base: str | None) -> None:
        if role == "sql":
            judge_sql(self.trace, text, place)
        elif role == "python":
            judge_program(self.trace, "python", text, base)
        elif role == "code" and text.strip():
            self.trace.doubt(place, "it is code that is not analysed", unbounded=True)

    def _check_shell(self, place: str, text: str, _base: str | None) -> None:
        if text and not _BASH.fullmatch(text) and not _POSIX.fullmatch(text):
            reason = "it names a shell that is not known to read commands as bash does"
            self.trace.doubt(place, reason, unbounded=True)

    def _project_glob(self, place: str, text: str, base: str | None) -> None:
        if len(text) > _MAX_PATTERN or _ODD_GLOB.search(text):
            self.trace.doubt(place, "a glob that tools read in different ways")
            return
        for pattern in expand_braces(text):
            if re.search(r"[*?\[]", pattern):
                self.trace.touch_pattern("read", pattern, base, place)
            else:
                self.trace.touch("read", pattern, base, place)

    def _project_mentions(self, place: str, text: str, base: str | None) -> None:
        """Record the files that a prompt mentions as `@name`, relative to `base` or to the root of the repository."""
        for name in filter(None, dict.fromkeys(_MENTION.findall(text))):
            for start in dict.fromkeys((base, self._repository_root(base))):
                resolved = locate(name, start, self.files)
                # A name without a file is an ordinary word of the prompt.
                if resolved.exists or resolved.refusal or not self.files.reads_disk:
                    self.trace.touch("read", name, start, place)

    def _repository_root(self, base: str | None) -> str | None:
        """Return the root of the repository that contains a directory, or the directory itself."""
        folder = base or ""
        while folder:
            if self.files.resolve(f"{folder}/.git").exists:
                return folder
            folder = folder.rpartition("/")[0]
        return base

    def _project_patch(self, place: str, text: str, base: str | None) -> None:
        names, doubtful = patched_files(text, codex_only=True)
        for name in names:
            self.trace.touch("edit", name, base, place)
        if doubtful:
            self.trace.doubt(place, "a patch that names no file, or names one in a way that is not known here")


def _walk(
    value: Mapping[str, JSON],
    roles: Mapping[str, str],
    found: list[Argument],
    place: str = "",
    above: str = "",
    *,
    limit: int,
) -> None:
    """Append every argument in an object to `found`, until there are more than `limit`.

    `place` and `above` are the place and the name of the object itself.
    """
    if not _ARGUMENT_NAMES.isdisjoint(map(str.lower, value)):
        joined = _join_command(place, value, roles)
        if joined is not None:
            found.append(joined)
    for key, inner in value.items():
        if len(found) > limit:
            return
        name = key[:_MAX_NAME]
        where = f"{place}.{name}" if place else name
        if place or where not in roles:
            # The name may be a resource itself, as in an object that maps paths to contents.
            found.append(Argument(where, "", "", key))
        if name.lower() in _EMPTY_NAMES:
            name = f"{above}_{name}"
        if isinstance(inner, str):
            found.append(Argument(where, name, roles.get(where) or "", inner))
        else:
            _walk_value(inner, roles, found, where, name, limit=limit)


def _join_command(place: str, value: Mapping[str, JSON], roles: Mapping[str, str]) -> Argument | None:
    """Return a command built from separate arguments for program and words, if the catalog does not list them."""
    words: list[JSON] = []
    for name in sorted(value):
        where = f"{place}.{name}" if place else name
        if where not in roles and (
            is_command_name(name) or name.lower() in _PROGRAM_NAMES or name.lower() in _ARGUMENT_NAMES
        ):
            inner = value[name]
            texts = (
                [str(word) for word in inner if not isinstance(word, dict | list)]
                if isinstance(inner, list)
                else [inner]
            )
            is_program = name.lower() not in _ARGUMENT_NAMES
            words = [*map(str, texts), *words] if is_program else [*words, *map(str, texts)]
    named = any(is_command_name(name) or name.lower() in _PROGRAM_NAMES for name in value)
    return Argument(place or "command", "command", "words", words) if named and words else None


def _walk_value(
    value: JSON, roles: Mapping[str, str], found: list[Argument], place: str, name: str, *, limit: int
) -> None:
    """Append the arguments in a value that is not a string."""
    role = roles.get(place)
    if role in _PLAIN_ROLES:
        found.append(Argument(place, name, role, value))
    elif isinstance(value, int | float) and not isinstance(value, bool) and _ADDRESS.search(name.lower()):
        # An IP address may be written as a number.
        found.append(Argument(place, name, role or "", str(value)))
    elif isinstance(value, list):
        _walk_list(value, roles, found, place, name, limit=limit)
    elif isinstance(value, dict):
        if role is not None and value:
            found.append(Argument(place, name, _MISSHAPEN, value))
        _walk(value, roles, found, place, name, limit=limit)


def _walk_list(
    value: list[JSON], roles: Mapping[str, str], found: list[Argument], place: str, name: str, *, limit: int
) -> None:
    """Append the arguments in a list: each element, or the whole list if it is the words of a command."""
    role = roles.get(place)
    is_command = role in _LIST_ROLES and all(isinstance(word, str) for word in value)
    if is_command or (role is None and is_command_name(name)):
        found.append(Argument(place, name, role or "words", value))
        return
    for inner in value:
        if len(found) > limit:
            return
        if isinstance(inner, str):
            found.append(Argument(place, name, role or roles.get(f"{place}[]", ""), inner))
        elif role is not None and isinstance(inner, list):
            found.append(Argument(place, name, _MISSHAPEN, inner))
        elif isinstance(inner, dict | list):
            _walk_value(inner, roles, found, f"{place}[]", name, limit=limit)


def _may_be_option(value: JSON) -> bool:
    """Return whether a text, or one in a list, looks like an option."""
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and _OPTION.match(text) for text in texts)


def _as_command(argument: Argument) -> Argument:
    """Return an argument; in some tools `shell` is the command itself and not the name of a shell."""
    if argument.role != "shell":
        return argument
    runs = not isinstance(argument.value, str) or re.search(r"\s", argument.value.strip()) is not None
    return argument._replace(role="command") if runs else argument


def _as_script(value: JSON) -> str:
    """Return a command as text: a list is the words of one command, or several commands if the first has a blank."""
    if isinstance(value, str):
        return value
    words = [str(word) for word in value] if isinstance(value, list) else []
    if words and re.search(r"\s", words[0]):
        return "\n".join(words)
    return " ".join(shlex.quote(word) for word in words)
