"""From a tool call to an action: what it would do, by the catalog or by the names and looks of its arguments.

Every string at any depth is looked at, the names of members included, with the role that the catalog gives it. A value
that does not have the form its role needs is a doubt, never skipped. A tool that is not in the catalog is read with
suspicion (`guess.py`): every argument that is named like a resource, or reads like one, is one. What a server says
about its own tool can only make the action graver.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Final, get_args

from remit.claims.receipt import ActionClass
from remit.claims.shapes import SideEffectClass
from remit.claims.strictjson import JSON, parse_json
from remit.errors import InputError
from remit.policy.call import MAX_TARGET, Action, Annotations, Argument, Effect, Launched, ToolCall
from remit.policy.catalog import RUN_ROLES, KnownTool, known_tools
from remit.policy.evidence import redacted
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
from remit.policy.shell.braces import expand_braces
from remit.policy.shell.run import judge_program, judge_script
from remit.policy.shell.zsh import zsh_differences
from remit.policy.sql import judge_sql
from remit.policy.steering import mark_steering
from remit.policy.trace import VERBS, Trace

__all__ = ["is_light", "project"]

_NO_ANNOTATIONS: Final = Annotations()
# Tools that hand their command to bash, whatever their name.
_BASH_TOOLS: Final = frozenset(("exec_command", "run_shell_command", "shell_command", "Shell", "Monitor"))
# What an argument may say of the shell that reads the command; of any other it is not known how it reads one.
_BASH: Final = re.compile(r"(?:/(?:usr/)?bin/)?bash")
_POSIX: Final = re.compile(r"(?:/(?:usr/)?bin/)?(?:da)?sh")
_SAFE_METHODS: Final = frozenset(("", "GET", "HEAD", "OPTIONS"))
# A file that a prompt mentions, as assistants read it: `see @src/app.py, please`. Letters and blanks as in JavaScript.
_BLANKS: Final = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
_MENTIONED: Final = re.compile(rf"(?<![A-Za-z0-9_`])@(\.?[^{_BLANKS}`,.]*(?:\.[^{_BLANKS}`,.]+)*)")
_ROLE: Final = attrgetter("role")
# Roles of arguments that say what a tool works on.
_NAMING_ROLES: Final = RUN_ROLES | VERBS.keys()
_DIRECTORY_ROLES: Final = frozenset(("base", "cwd"))
# Roles of arguments that name a resource.
_RESOURCE_ROLES: Final = frozenset(("seen", "url", "path_or_url", "host", "glob", *VERBS))
# What tools of these families work on is in the working directory, unless an argument names it.
_WORK_IN_CWD: Final = frozenset(("file", "repository", "notebook", "code"))
# Arguments that name a shell which runs already.
_SESSION_NAMES: Final = frozenset(("sessionId", "session_id", "shellId", "shell_id", "terminal_id", "terminalId"))
_KEPT_SHELL: Final = (
    "the shell of this tool is kept for later calls, and {what} would change what they mean: "
    "write `( … )` around it and what needs it, in one call"
)
_ZSH: Final = "commands of this assistant are run by zsh ({what}): write it as bash -c '…', which is judged as bash"
_MAX_TEXT: Final = 4 * MAX_TARGET
# Controls, and characters that are not seen or turn the direction of what is.
_UNSEEN: Final = re.compile(
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
# Forms that tools read in more than one way: escapes, extended globs, dots in brackets.
_ODD_GLOB: Final = re.compile(r"\\|[@+!?*]\(|\[[^\]]*\.[^\]]*\]|\[\[?:")
# The role of a value that does not have the form which its role in the catalog needs.
_MISSHAPEN: Final = "misshapen"
# Names of the words of a command, and of what is started, where its words stand beside it.
_ARGUMENT_NAMES: Final = frozenset("args arguments argv parameters".split())
_STARTED: Final = frozenset("program executable binary".split())
_PLAIN_ROLES: Final = frozenset(("data", "query"))
_LIST_ROLES: Final = frozenset(("command", "words"))
# Names that say nothing without the one above them.
_EMPTY_NAMES: Final = frozenset("name value id key".split())
_MAX_NAME: Final = 80
_ADDRESS: Final = re.compile(r"ur[li]|host|endpoint")
# Roles of arguments that are quick to judge; in a URL, the characters of a pattern stand for themselves.
_LIGHT_ROLES: Final = frozenset(("data", "edit", "read", "seen", "url", "write"))
_URL_ROLES: Final = frozenset(("seen", "url"))
_LIGHT_ARGUMENTS: Final = 16
_LIGHT_TEXT: Final = 512
_WIDE: Final = re.compile(r"[*?\[{]")


def is_light(call: ToolCall) -> bool:
    """Tell whether a call is quick to judge: a known tool with few, short and plain paths, URLs or data.

    Such a call takes well under a millisecond, whatever its arguments hold. What is run, searched or deleted can stand
    for any number of files, and so can a pattern.
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
    """Return what a call comes to; `base` is where relative paths start when the call does not say."""
    tool = known_tools().get(call.tool_name)
    if tool is None:
        action_class, family, side = guess_action(call.tool_name)
    elif tool.method or tool.resource_family == "observation":
        action_class, family, side = _nature(call, tool)
    else:
        action_class, family, side = tool.action_class, tool.resource_family, tool.side_effect_class
    reading = _Reading(call, tool, base, files)
    reading.sends = side == "external_send"
    reading.read()
    trace = reading.trace
    effects, doubts = tuple(trace.effects), trace.doubts
    sides = {side, *trace.side_effects}
    steers = False
    if "internal_write" in sides:
        effects, steers = mark_steering(effects, trace.files)
    if call.annotations != _NO_ANNOTATIONS:
        sides |= _admitted(call.annotations)
    if steers or (doubts and any(doubt.unbounded for doubt in doubts)):
        # What later commands do, or this call, nobody knows.
        sides.add("state_change")
    if family == "shell":
        action_class = _shell_class(sides, action_class)
    if len(sides) > 1:
        sides.discard("none")
    by_text = not files.sees and any(effect.verb in ("read", "write", "delete") for effect in effects)
    is_one = len(effects) == 1 and reading.roles.get(effects[0].source) in _RESOURCE_ROLES
    target = effects[0].resource if is_one and not (tool and tool.target) else reading.target(effects)
    if len(target) > MAX_TARGET:
        # A secret that is cut is no longer known as one.
        target = redacted(target)[:MAX_TARGET]
    return Action(
        call.tool_name, action_class, family, target, frozenset(sides), effects, doubts,
        trace.runs_code or steers, by_text, reading.commands,
    )  # fmt: skip


def _nature(call: ToolCall, tool: KnownTool) -> tuple[ActionClass, str, SideEffectClass]:
    """Return what a tool does by what it is told: an observation, or a request with an HTTP method."""
    if tool.resource_family == "observation":
        return _observed(call.arguments.get("action_class"), tool)
    bodies = any(call.arguments.get(name) for name in _BODIES)
    if not bodies and all(method.upper() in _SAFE_METHODS for method in _methods(call.arguments, tool.method)):
        return "read", tool.resource_family, "none"
    return "send", tool.resource_family, "external_send"


def _observed(said: JSON, tool: KnownTool) -> tuple[ActionClass, str, SideEffectClass]:
    """Return what an observer says that was done; what it does not say is an observation."""
    for known in _ACTION_CLASSES:
        if said == known:
            return known, tool.resource_family, _OBSERVED_SIDES.get(known, tool.side_effect_class)
    return tool.action_class, tool.resource_family, tool.side_effect_class


def _methods(value: object, name: str) -> Iterable[str]:
    """Yield every HTTP method that the arguments name, at any depth; one that is no text is none that is safe."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name or key.lower().replace("_", "").endswith(("method", "verb", "method-override")):
                yield inner if isinstance(inner, str) else "?"
            else:
                yield from _methods(inner, name)


def _admitted(annotations: Annotations) -> set[SideEffectClass]:
    """Return the side effects that a server admits of its tool."""
    admitted: set[SideEffectClass] = set()
    if annotations.read_only is False:
        admitted.add("internal_write")
    if annotations.destructive and not annotations.read_only:
        admitted.add("state_change")
    if annotations.open_world and annotations.read_only is False:
        admitted.add("external_send")
    return admitted


def _shell_class(sides: set[SideEffectClass], otherwise: ActionClass) -> ActionClass:
    if "external_send" in sides:
        return "send"
    return "write" if sides & {"internal_write", "state_change"} else otherwise


class _Reading:
    """One call on its way to an action. `bases` are the directories that relative paths may start at."""

    def __init__(self, call: ToolCall, tool: KnownTool | None, base: str | None, files: Files) -> None:
        self.call = call
        self.tool = tool
        self.roles = tool.args if tool else {}
        self.trace = Trace(files)
        self.files = files
        self.bases: list[str | None] = [base]
        # Where the call's own working directory is seen from, and whether anything is seen from there.
        self._base = self._start = base
        self._used_cwd = False
        self._keeps_shell = (tool is None or tool.resource_family == "shell") and self._shell_is_kept()
        self.sends = False
        self.posix = "bash" not in call.tool_name.lower() and call.tool_name not in _BASH_TOOLS
        if "shell" in call.arguments:
            self.posix |= _POSIX.fullmatch(str(call.arguments["shell"])) is not None
        # Tools of this family hand their arguments to git.
        self._takes_options = tool is not None and tool.resource_family == "repository"
        self._depth = 0
        self.arguments: list[Argument] = []
        # What the command line of a known tool would start.
        self.commands: Iterable[Launched] | None = None

    def read(self) -> None:
        """Note the effects of every argument."""
        tool, trace, arguments = self.tool, self.trace, self.arguments
        _walk(self.call.arguments, self.roles, arguments, most=_MAX_ARGUMENTS)
        if len(arguments) > _MAX_ARGUMENTS:
            del arguments[_MAX_ARGUMENTS + 1 :]
            trace.doubt(arguments[-1].place, "there are more arguments than we look at", unbounded=True)
        given = frozenset(map(_ROLE, arguments))
        if "shell" in given:
            arguments[:] = map(_as_command, arguments)
            given = frozenset(map(_ROLE, arguments))
        self._enter(arguments, given)
        if tool is not None and tool.runs_text:
            self._check_text(arguments)
        if tool is not None and tool.required and given.isdisjoint(_NAMING_ROLES):
            self._check_named(arguments)
        for argument in arguments:
            if argument.role not in _DIRECTORY_ROLES:
                before = trace.named
                for base in self.bases:
                    self._play(argument, base)
                if self.call.cwd is not None and trace.named != before and self._is_relative(argument):
                    self._use_cwd()
        if tool is not None and tool.resource_family in _WORK_IN_CWD and not trace.named:
            self._use_cwd()

    def _use_cwd(self) -> None:
        """Note that the call's working directory is used: a call that names only absolute paths does without it."""
        if self.call.cwd is not None and not self._used_cwd:
            self._used_cwd = True
            self._directory(self.call.cwd, self._base, "cwd")

    def _enter(self, arguments: list[Argument], roles: frozenset[str]) -> None:
        """Note the directories that the call works in; `roles` are those of its arguments."""
        cwd = self.call.cwd
        if cwd is not None:
            if refuse_text(cwd) or not cwd.startswith("/"):
                self._use_cwd()  # a directory that is told in a strange way is judged, used or not
            look = locate(cwd, self._base, self.files)
            self.bases = [None if look.refusal else look.path]
        start = self._start = self.bases[0]
        given = [] if roles.isdisjoint(_DIRECTORY_ROLES) else self._given(arguments)
        if given:
            heeded = self.tool is None or self.tool.resource_family != "file" or "glob" in self.roles.values()
            # Not every file tool of that name heeds it: from where it starts, the call must be harmless too.
            self.bases = given if heeded else [*given, start]
        elif roles.isdisjoint(VERBS) and "base" in self.roles.values():
            # Nothing is named: it works on the directory that it starts in.
            self._directory(".", start, "cwd")
        for argument in arguments if "" in roles else ():
            if not argument.role and isinstance(argument.value, str) and is_directory_name(argument.name):
                look = locate(argument.value, start, self.files)
                self.bases.append(None if look.refusal else look.path)
        self.bases = list(dict.fromkeys(self.bases))
        if cwd is not None and not roles.isdisjoint(RUN_ROLES) and start in self.bases and self._runs_in_cwd(arguments):
            self._use_cwd()
        if len(self.bases) > _MAX_BASES:
            self.trace.doubt("cwd", "it names more directories than we look from", unbounded=True)
            del self.bases[_MAX_BASES:]

    def _runs_in_cwd(self, arguments: list[Argument]) -> bool:
        """Tell whether an argument is run in the working directory, and does not leave it before anything else."""
        for argument in arguments:
            if argument.role in RUN_ROLES and argument.value:
                text = _as_script(argument.value) if argument.role in ("command", "words") else ""
                if not (ENTERS_AT_ONCE.match(text) and leaves_at_once(text, posix=self.posix)):
                    return True
        return False

    def _is_relative(self, argument: Argument) -> bool:
        """Tell whether what an argument names is seen from the working directory; of what is run, others tell that."""
        absolute = isinstance(argument.value, str) and argument.value.startswith("/")
        return self._start in self.bases and argument.role not in RUN_ROLES and not absolute

    def _given(self, arguments: list[Argument]) -> list[str | None]:
        """Note the directories that arguments name to work in; return where they are."""
        entered: list[str | None] = []
        for argument in arguments:
            if argument.role in _DIRECTORY_ROLES and isinstance(argument.value, str) and argument.value:
                if not argument.value.startswith("/"):
                    self._use_cwd()
                entered.append(self._directory(argument.value, self._start, argument.place))
        return entered

    def _directory(self, text: str, base: str | None, place: str) -> str | None:
        """Note that a directory is entered; return where it is, or None where that is not known."""
        look = self.trace.touch("read", text, base, place)
        if look is None and locate(text, base, self.files).refusal:
            return None
        return look.path if look is not None else join(base or "/", text)

    def _check_text(self, arguments: list[Argument]) -> None:
        """Doubt a tool that runs text when the text is not where the catalog knows it."""
        given = odd = False
        for argument in arguments:
            given = given or (argument.role in RUN_ROLES and bool(argument.value))
            odd = odd or argument.name.startswith("__arg")
        for argument in arguments if odd or not given else ():
            text = argument.value if not argument.role and not is_command_name(argument.name) else None
            if argument.name and isinstance(text, str) and text.strip():
                self.trace.doubt(argument.place, "it may be what the tool runs", unbounded=True)

    def _check_named(self, arguments: list[Argument]) -> None:
        """Doubt a call that names nothing to work on, under any name."""
        for argument in arguments:
            if argument.name and not argument.role:
                return
        named = next((place for place, role in self.roles.items() if role in _NAMING_ROLES), "")
        self.trace.doubt(named, "it is missing")

    def target(self, effects: tuple[Effect, ...]) -> str:
        """Return what a receipt names: the marked argument, the gravest effect, a program, or the tool itself.

        An argument that names a resource, and is neither a path nor a URL, is named by its text.
        """
        wanted = self.tool.target if self.tool else ""
        if wanted:
            marked = next((effect.resource for effect in effects if effect.source == wanted), "")
            if marked or (marked := self._text_at({wanted})):
                return marked
        # Without those of a directory to work in, which an argument names, or which is the call's own.
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
        """Return where arguments stand that name a resource: by their role, or because it cannot be told which."""
        doubted = {doubt.word for doubt in self.trace.doubts}
        return {
            argument.place
            for argument in self.arguments
            if argument.role in _RESOURCE_ROLES or (not argument.role and argument.name and argument.place in doubted)
        }

    def _text_at(self, places: set[str]) -> str:
        """Return the first text at one of these places, in one line and without characters that are not seen."""
        for argument in self.arguments if places else ():
            if argument.name and argument.place in places and isinstance(argument.value, str):
                text = " ".join(argument.value[:_MAX_TEXT].split())
                if text:
                    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        return ""

    def _play(self, argument: Argument, base: str | None) -> None:
        place, role, value = argument.place, argument.role, argument.value
        if role in ("command", "words"):
            self.commands = self.trace.launches
            self._script(_as_script(value), base, posix=self.posix and isinstance(value, str))
        elif role == _MISSHAPEN:
            self.trace.doubt(place, "it does not have the form that this tool takes", unbounded=True)
        elif role and self._takes_options and _may_be_option(value):
            self.trace.doubt(place, "it may be read as an option", unbounded=True)
        elif not isinstance(value, str):
            return
        elif not role:
            self._unmarked(argument, base)
            self._inner(argument, base)
        elif role in VERBS or (role == "path_or_url" and "://" not in value):
            self.trace.touch(role if role in VERBS else "read", value, base, place)
            if value[:1] == "[":
                # A list that somebody wrote as a string.
                self._inner(Argument(place, "path", "", value), base)
        else:
            self._marked(place, role, value, base)

    def _unmarked(self, argument: Argument, base: str | None) -> None:
        """Note what an argument names that no catalog marks; a known shell may run it beside its command."""
        tool = self.tool
        if tool is not None and tool.resource_family == "shell" and tool.runs_text and may_run_beside(argument):
            self._script(str(argument.value), base)
        else:
            judge_unmarked(
                self.trace, self.call.tool_name, argument, base=base, run=self._script, known=self.tool is not None
            )

    def _script(self, text: str, base: str | None, *, posix: bool = True) -> None:
        """Note what a command line would do, and leave behind in a shell that is kept."""
        judge_script(self.trace, text, base, posix=posix)
        if self.call.shell == "zsh":
            for word, what in zsh_differences(text).items():
                self.trace.doubt(word, _ZSH.format(what=what), unbounded=True)
        if self._keeps_shell:
            for word, what in lasting_changes(text, base, self.files, posix=posix).items():
                self.trace.doubt(word, _KEPT_SHELL.format(what=what), unbounded=True)

    def _shell_is_kept(self) -> bool:
        """Tell whether commands run in a shell that earlier calls have used."""
        if self.tool is None:
            return keeps_shell(self.call.tool_name)
        given = self.call.arguments
        names_one = not _SESSION_NAMES.isdisjoint(given) and any(given.get(name) for name in _SESSION_NAMES)
        return names_one or (self.call.tool_name in self.tool.keeps_shell and not self.call.fresh_shell)

    def _inner(self, argument: Argument, base: str | None) -> None:
        """Read JSON inside a string as if it were written out; what only looks like it is searched for resources."""
        text = str(argument.value).strip()
        if text[:1] not in ("{", "[", "<") or text[-1:] not in ("}", "]", ">"):
            return
        try:
            data = text.encode("utf-8", "surrogatepass")
            value: JSON = parse_json(data, max_bytes=_MAX_INNER_JSON, exact_integers=True)
        except InputError:
            for quoted in quoted_resources(text):
                self._unmarked(argument._replace(name="", value=quoted), base)
            return
        if self._depth == _MAX_INNER_DEPTH:
            self.trace.doubt(argument.place, "it is JSON within JSON, more often than we look")
            return
        self._depth += 1
        found: list[Argument] = []
        _walk({argument.name or "value": value}, {}, found, most=_MAX_INNER_JSON)
        for inner in found:
            self._play(inner, base)
        self._depth -= 1

    def _marked(self, place: str, role: str, text: str, base: str | None) -> None:
        """Note what an argument names that the catalog marks, other than a path."""
        trace = self.trace
        if role in ("url", "path_or_url"):
            trace.contact(text, place, sends=self.sends)
        elif role == "host":
            trace.contact_host(text, place)
        elif role == "seen":
            # An observer says what was done; a page that was only looked at is not sent anything.
            done = str(self.call.arguments.get("action_class"))
            doing = done if done in _OBSERVED_SIDES else "observe"
            judge_unmarked(trace, doing, Argument(place, "target", "", text), base=base, run=self._script)
        else:
            readers = {"glob": self._glob, "mentions": self._mentions, "shell": self._shell, "patch": self._patch}
            readers.get(role, partial(self._run_text, role))(place, text, base)

    def _run_text(self, role: str, place: str, text: str, base: str | None) -> None:
        if role == "sql":
            judge_sql(self.trace, text, place)
        elif role == "python":
            judge_program(self.trace, "python", text, base)
        elif role == "code" and text.strip():
            self.trace.doubt(place, "it is code that is not analysed", unbounded=True)

    def _shell(self, place: str, text: str, _base: str | None) -> None:
        if text and not _BASH.fullmatch(text) and not _POSIX.fullmatch(text):
            reason = "it names a shell that is not known to read commands as bash does"
            self.trace.doubt(place, reason, unbounded=True)

    def _glob(self, place: str, text: str, base: str | None) -> None:
        if len(text) > _MAX_PATTERN or _ODD_GLOB.search(text):
            self.trace.doubt(place, "a pattern that is read in more than one way")
            return
        for pattern in expand_braces(text):
            if re.search(r"[*?\[]", pattern):
                self.trace.touch_pattern("read", pattern, base, place)
            else:
                self.trace.touch("read", pattern, base, place)

    def _mentions(self, place: str, text: str, base: str | None) -> None:
        """Note the files that a prompt mentions as `@name`, from here or from the top of the work tree."""
        for name in filter(None, dict.fromkeys(_MENTIONED.findall(text))):
            for start in dict.fromkeys((base, self._top(base))):
                look = locate(name, start, self.files)
                # A name that nothing has is a word of the prompt.
                if look.exists or look.refusal or not self.files.sees:
                    self.trace.touch("read", name, start, place)

    def _top(self, base: str | None) -> str | None:
        """Return the folder of the repository that a directory lies in, or the directory itself."""
        folder = base or ""
        while folder:
            if self.files.look(f"{folder}/.git").exists:
                return folder
            folder = folder.rpartition("/")[0]
        return base

    def _patch(self, place: str, text: str, base: str | None) -> None:
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
    most: int,
) -> None:
    """Add every argument to `found`, one after the other, until there are more than `most`.

    `place` and `above` say where an inner object stands.
    """
    if not _ARGUMENT_NAMES.isdisjoint(map(str.lower, value)):
        joined = _joined(place, value, roles)
        if joined is not None:
            found.append(joined)
    for key, inner in value.items():
        if len(found) > most:
            return
        name = key[:_MAX_NAME]
        where = f"{place}.{name}" if place else name
        if place or where not in roles:
            # The name may be a resource itself, as in an object of files by their paths.
            found.append(Argument(where, "", "", key))
        if name.lower() in _EMPTY_NAMES:
            name = f"{above}_{name}"
        if isinstance(inner, str):
            found.append(Argument(where, name, roles.get(where) or "", inner))
        else:
            _walk_value(inner, roles, found, where, name, most=most)


def _joined(place: str, value: Mapping[str, JSON], roles: Mapping[str, str]) -> Argument | None:
    """Return a command and its arguments where an object without a role in the catalog holds both."""
    words: list[JSON] = []
    for name in sorted(value):
        where = f"{place}.{name}" if place else name
        if where not in roles and (
            is_command_name(name) or name.lower() in _STARTED or name.lower() in _ARGUMENT_NAMES
        ):
            inner = value[name]
            texts = (
                [str(word) for word in inner if not isinstance(word, dict | list)]
                if isinstance(inner, list)
                else [inner]
            )
            commanded = name.lower() not in _ARGUMENT_NAMES
            words = [*map(str, texts), *words] if commanded else [*words, *map(str, texts)]
    named = any(is_command_name(name) or name.lower() in _STARTED for name in value)
    return Argument(place or "command", "command", "words", words) if named and words else None


def _walk_value(
    value: JSON, roles: Mapping[str, str], found: list[Argument], place: str, name: str, *, most: int
) -> None:
    """Add the arguments in a value that is no text."""
    role = roles.get(place)
    if role in _PLAIN_ROLES:
        found.append(Argument(place, name, role, value))
    elif isinstance(value, int | float) and not isinstance(value, bool) and _ADDRESS.search(name.lower()):
        # An address may be written as a number.
        found.append(Argument(place, name, role or "", str(value)))
    elif isinstance(value, list):
        _walk_list(value, roles, found, place, name, most=most)
    elif isinstance(value, dict):
        if role is not None and value:
            found.append(Argument(place, name, _MISSHAPEN, value))
        _walk(value, roles, found, place, name, most=most)


def _walk_list(
    value: list[JSON], roles: Mapping[str, str], found: list[Argument], place: str, name: str, *, most: int
) -> None:
    """Add the arguments in a list: each element, or the whole where it is the words of a command."""
    role = roles.get(place)
    is_command = role in _LIST_ROLES and all(isinstance(word, str) for word in value)
    if is_command or (role is None and is_command_name(name)):
        found.append(Argument(place, name, role or "words", value))
        return
    for inner in value:
        if len(found) > most:
            return
        if isinstance(inner, str):
            found.append(Argument(place, name, role or roles.get(f"{place}[]", ""), inner))
        elif role is not None and isinstance(inner, list):
            found.append(Argument(place, name, _MISSHAPEN, inner))
        elif isinstance(inner, dict | list):
            _walk_value(inner, roles, found, f"{place}[]", name, most=most)


def _may_be_option(value: JSON) -> bool:
    """Tell whether a text, or one in a list, reads like an option."""
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and _OPTION.match(text) for text in texts)


def _as_command(argument: Argument) -> Argument:
    """Return an argument; one that names a shell is the command itself in some tools."""
    if argument.role != "shell":
        return argument
    runs = not isinstance(argument.value, str) or re.search(r"\s", argument.value.strip()) is not None
    return argument._replace(role="command") if runs else argument


def _as_script(value: JSON) -> str:
    """Return a command as text: a list is the words of one command, or of several where the first has spaces."""
    if isinstance(value, str):
        return value
    words = [str(word) for word in value] if isinstance(value, list) else []
    if words and re.search(r"\s", words[0]):
        return "\n".join(words)
    return " ".join(shlex.quote(word) for word in words)
