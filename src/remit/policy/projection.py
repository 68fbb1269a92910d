"""From a tool call to an action: what it would do, by the catalog or by the names and looks of its arguments.

The catalog is the tables under `catalog/`. A tool that is not in it is read with suspicion: every argument that is
named like a resource, or reads like one, is one. What a server says about its own tool can only make the action graver.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, NamedTuple

from remit.claims.receipt import ActionClass
from remit.claims.shapes import SideEffectClass
from remit.claims.strictjson import JSON, parse_json
from remit.errors import InputError
from remit.policy.call import MAX_TARGET, Action, Annotations, ToolCall
from remit.policy.files import Files
from remit.policy.guess import guess_action, judge_unmarked
from remit.policy.paths import join, locate
from remit.policy.shell.braces import expand_braces
from remit.policy.shell.run import judge_program, judge_script
from remit.policy.sql import judge_sql
from remit.policy.trace import VERBS, Trace

__all__ = ["known_tools", "project"]

_FILE_ROLES: Final = frozenset(VERBS)
# Tools that hand their command to bash, whatever their name.
_BASH_TOOLS: Final = frozenset(("exec_command", "run_shell_command", "shell_command", "Shell", "Monitor"))
_SAFE_METHODS: Final = frozenset(("", "GET", "HEAD", "OPTIONS"))
_MAX_INNER_JSON: Final = 65_536
_MAX_INNER_DEPTH: Final = 4


class _Tool(NamedTuple):
    """One entry of the catalog."""

    action_class: ActionClass
    resource_family: str
    side_effect_class: SideEffectClass
    args: Mapping[str, str] = {}
    target: str = ""
    method: str = ""


@lru_cache(maxsize=1)
def known_tools() -> Mapping[str, _Tool]:
    """Return all tools of the catalog by name, with the names that MCP clients make of them."""
    tools: dict[str, _Tool] = {}
    for file in package_files("remit.policy").joinpath("catalog").iterdir():
        if not file.name.endswith(".toml"):
            continue
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            tool = _Tool(**{key: value for key, value in table.items() if key in _Tool._fields})
            for own in (name, *table.get("also", ())):
                tools[own] = tool
                for server in table.get("servers", ()):
                    for form in ("mcp__{}__{}", "mcp_{}_{}", "{}_{}", "{}.{}"):
                        tools.setdefault(form.format(server, own), tool)
    return tools


def project(call: ToolCall, base: str | None, files: Files) -> Action:
    """Return what a call comes to; `base` is where relative paths start when the call does not say."""
    tool = known_tools().get(call.tool_name)
    reading = _Reading(call, tool, base, files)
    reading.read()
    action_class, family, side = _nature(call, tool)
    trace = reading.trace
    sides: set[SideEffectClass] = {side, *trace.side_effects, *_admitted(call.annotations)}
    if family == "shell":
        action_class = _shell_class(sides, action_class)
    return Action(
        tool=call.tool_name,
        action_class=action_class,
        resource_family=family,
        target=reading.target()[:MAX_TARGET],
        side_effects=frozenset(sides - {"none"} or {"none"}),
        effects=trace.effects,
        doubts=trace.doubts,
        runs_code=trace.runs_code,
    )


def _nature(call: ToolCall, tool: _Tool | None) -> tuple[ActionClass, str, SideEffectClass]:
    if tool is None:
        return guess_action(call.tool_name)
    if tool.method:
        method = call.arguments.get(tool.method, "")
        if isinstance(method, str) and method.upper() in _SAFE_METHODS:
            return "read", tool.resource_family, "none"
        return "send", tool.resource_family, "external_send"
    return tool.action_class, tool.resource_family, tool.side_effect_class


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
    """One call on its way to an action."""

    def __init__(self, call: ToolCall, tool: _Tool | None, base: str | None, files: Files) -> None:
        self.call = call
        self.tool = tool
        self.trace = Trace(files)
        self.files = files
        self.base = base
        self.sends = bool(tool and tool.method and _nature(call, tool)[0] == "send") or bool(
            tool and tool.side_effect_class == "external_send"
        )
        self._depth = 0

    def read(self) -> None:
        """Note the effects of every argument."""
        if self.call.cwd is not None:
            self.base = self._directory(self.call.cwd, self.base, "cwd")
        marked = list(self._marked())
        start = self.base
        for place, role, value in marked:
            if role in ("cwd", "base") and isinstance(value, str) and value:
                self.base = self._directory(value, start, place)
        for place, role, value in marked:
            if role not in ("cwd", "base"):
                self._play(place, role, value)

    def _directory(self, text: str, base: str | None, place: str) -> str | None:
        """Note that a directory is entered; return where it is, or None where that is not known."""
        look = self.trace.touch("read", text, base, place)
        if look is None and locate(text, base, self.files).refusal:
            return None
        return look.path if look is not None else join(base or "/", text)

    def target(self) -> str:
        """Return what a receipt names: the marked argument, the gravest effect, a program, or the tool itself."""
        effects = self.trace.effects
        wanted = self.tool.target if self.tool else ""
        for verb in ("", "send", "delete", "write", "contact", "read", "run"):
            for effect in effects:
                if effect.source == wanted if not verb else effect.verb == verb:
                    return effect.resource
        return self.call.tool_name

    def _marked(self) -> Iterator[tuple[str, str, JSON]]:
        """Yield every argument with its role; whatever the catalog does not mark has none."""
        yield from self._walk("", dict(self.call.arguments))

    def _walk(self, place: str, value: JSON) -> Iterator[tuple[str, str, JSON]]:
        role = self.tool.args.get(place) if self.tool and place else None
        if role is not None and (isinstance(value, str) or role == "data" or _is_words(value)):
            yield place, role, value
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from self._walk(f"{place}.{name}" if place else name, inner)
                if place or self.tool is None:
                    yield f"{place}.{name}", "", name
        elif isinstance(value, list):
            for inner in value:
                yield from self._walk_list(place, role, inner)
        elif isinstance(value, str):
            yield place, "", value

    def _walk_list(self, place: str, role: str | None, inner: JSON) -> Iterator[tuple[str, str, JSON]]:
        if role is not None and isinstance(inner, str):
            yield place, role, inner
        elif isinstance(inner, str):
            own = self.tool.args.get(f"{place}[]") if self.tool else None
            yield place, own or "", inner
        else:
            yield from self._walk(f"{place}[]", inner)

    def _play(self, place: str, role: str, value: JSON) -> None:
        if isinstance(value, list):
            for inner in [value] if role in ("command", "words") else value:
                self._text(place, role, inner)
        else:
            self._text(place, role, value)

    def _text(self, place: str, role: str, value: JSON) -> None:
        if role == "":
            if isinstance(value, str):
                judge_unmarked(self.trace, self.call.tool_name, place, value, base=self.base, inner=self._inner)
        elif role in ("command", "words"):
            judge_script(
                self.trace,
                _as_script(value),
                self.base,
                posix="bash" not in self.call.tool_name.lower()
                and isinstance(value, str)
                and self.call.tool_name not in _BASH_TOOLS,
            )
        elif isinstance(value, str):
            self._marked_text(place, role, value)

    def _inner(self, place: str, text: str) -> None:
        """Read JSON inside a string as if it were written out."""
        try:
            value = parse_json(text.encode("utf-8", "surrogatepass"), max_bytes=_MAX_INNER_JSON)
        except InputError:
            return
        self._depth += 1
        for inner_place, _, inner in self._walk(place, value):
            if isinstance(inner, str) and self._depth < _MAX_INNER_DEPTH:
                judge_unmarked(self.trace, self.call.tool_name, inner_place, inner, base=self.base, inner=self._inner)
            elif isinstance(inner, str):
                self.trace.doubt(place, "it is JSON within JSON, more often than we look")
        self._depth -= 1

    def _marked_text(self, place: str, role: str, text: str) -> None:
        trace = self.trace
        if role in _FILE_ROLES or (role == "path_or_url" and "://" not in text):
            trace.touch(role if role in _FILE_ROLES else "read", text, self.base, place)
            if text[:1] == "[":
                # A list that somebody wrote as a string.
                self._inner(place if place.endswith("path") else f"{place}.path", text)
        elif role in ("url", "path_or_url"):
            trace.contact(text, place, sends=self.sends)
        elif role == "host":
            trace.contact_host(text, place)
        elif role == "glob":
            self._glob(place, text)
        elif role == "patch":
            self._patch(place, text)
        elif role == "sql":
            judge_sql(trace, text, place)
        elif role == "python":
            judge_program(trace, "python", text, self.base)
        elif role == "code" and text.strip():
            trace.doubt(place, "it is code that is not analysed", unbounded=True)

    def _glob(self, place: str, text: str) -> None:
        for pattern in expand_braces(text):
            if re.search(r"[*?\[]", pattern):
                self.trace.touch_pattern("read", pattern, self.base, place)
            else:
                self.trace.touch("read", pattern, self.base, place)

    def _patch(self, place: str, text: str) -> None:
        """Note the files that a patch names: those of a diff and those of the form that Codex uses."""
        found = False
        for line in text.splitlines():
            if mark := _PATCHED.match(line):
                found = True
                name = mark[1] or mark[2]
                if name != "/dev/null":
                    bare = name[2:] if mark[2] and name[:2] in ("a/", "b/") else name
                    self.trace.touch("edit", bare, self.base, place)
        if not found:
            self.trace.doubt(place, "a patch that names no file")


_PATCHED: Final = re.compile(
    r"\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*\Z"
    r"|(?:---|\+\+\+|rename from|rename to|copy from|copy to) ([^\t]+?)\s*(?:\t.*)?\Z"
)


def _is_words(value: JSON) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _as_script(value: JSON) -> str:
    """Return a command as text: a list is the words of one command, or of several where the first has spaces."""
    if isinstance(value, str):
        return value
    words = [str(word) for word in value] if isinstance(value, list) else []
    if words and re.search(r"\s", words[0]):
        return "\n".join(words)
    return " ".join(shlex.quote(word) for word in words)
