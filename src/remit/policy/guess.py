"""Projects the arguments of tools that are not in the catalog, by their names and form.

An argument that is named like a resource, or looks like one, is taken for one. That is strict on purpose: a passport
that allows an unknown tool still limits what it may touch.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

from remit.claims.receipt import ActionClass
from remit.claims.types import SideEffectClass
from remit.policy.call import SIDE_EFFECT_ORDER, Argument
from remit.policy.files import join
from remit.policy.patches import patched_files
from remit.policy.sql import judge_sql
from remit.policy.trace import Trace

# Records the effects of a command line, given the directory that it starts in.
_Run: TypeAlias = Callable[[str, str | None], None]

_MAX_NAME: Final = 256
_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_DIRECTORY_NAMES: Final = frozenset("dir dirs directory directories folder folders cwd workdir workspace".split())
_PATH_NAMES: Final = _DIRECTORY_NAMES | frozenset(
    "path paths file files filename filenames filepath filepaths outfile infile".split()
)
# Names that often hold a path and often something else: only a single line is taken for a path.
_LOOSE_NAMES: Final = frozenset(
    "source sources src destination destinations dest dst output location root image images document documents "
    "attachment attachments".split()
)
_URL_NAMES: Final = frozenset("url urls uri uris href endpoint webhook".split())
_HOST_NAMES: Final = frozenset("host hostname".split())
# Names that every tool uses for text.
_DATA_NAMES: Final = frozenset("content contents old_string new_string prompt regex".split())
_NEVER_RUN: Final = _DATA_NAMES - {"content", "contents"}
# Names of arguments that hold a command, and such names in lower case without separators.
_COMMAND_NAMES: Final = frozenset("command cmd commands argv bash shell shell_command bash_command commandLine".split())
_COMMAND_WORDS: Final = frozenset("command cmd commands argv commandline shellcommand bashcommand".split())
_CODE_NAMES: Final = frozenset("code script".split())
_SHELL_TOOLS: Final = frozenset(
    "bash shell sh exec execute run command cmd terminal console powershell process subprocess ssh eval repl "
    "interpreter python pyodide node javascript js ruby perl code sandbox".split()
)
# Names of tools that run any text, and of those that run text that looks like a command.
_SHELLS: Final = frozenset(
    "bash shell sh zsh exec ssh terminal console cmd command powershell pwsh subprocess eval tmux pty".split()
)
_RUNNERS: Final = frozenset("run runs runner execute".split())
_LOOKS: Final = frozenset("get list read show view describe status info search find".split())
# Names of arguments that hold prose, and of those that hold one word that is not a command.
_PROSE: Final = frozenset(
    "description explanation justification reason summary title label purpose goal comment note notes".split()
)
_LABELS: Final = frozenset(
    "id ids name names session timeout mode type format language lang encoding user username server target container "
    "pod namespace branch ref repo owner project environment profile region level risk permissions tag tags".split()
)
_RUN_NAMES: Final = frozenset("exec execute run runs ssh terminal shell bash".split())
_QUERY_TOOLS: Final = frozenset(
    "query queries sql database databases db postgres postgresql pg mysql mariadb sqlite duckdb bigquery snowflake "
    "clickhouse redshift athena mssql oracle statement statements".split()
)
_QUERY_NAMES: Final = frozenset("query queries statement statements".split())
_SQL: Final = re.compile(
    r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select|insert|update|delete|drop|create|alter|truncate|replace|merge|upsert|grant|revoke"
    r"|call|exec|execute|do|copy|load|attach|detach|pragma|vacuum|analyze|reindex|set|reset|begin|start|commit|rollback|with"
    r"|explain|show|describe|desc|use|declare|lock|rename|optimize|kill|shutdown|import|export|install|refresh|cluster)\b",
    re.IGNORECASE | re.DOTALL,
)
# Text that is almost certainly SQL.
_PLAIN_SQL: Final = re.compile(
    r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select\b.*\bfrom|insert\s+into|update\b.*\bset|delete\s+from|merge\s+into|replace\s+into"
    r"|(?:drop|create|alter|truncate)\s+(?:or\s+replace\s+|temp\w*\s+|unlogged\s+|unique\s+)*(?:table|database|schema|view|index"
    r"|user|role|function|procedure|trigger|extension|materialized|sequence|type|policy)|grant\b.*\bto|revoke\b.*\bfrom"
    r"|copy\b.*\b(?:from|to)|pragma\s|attach\s+(?:database\s)?|vacuum\b)\b",
    re.IGNORECASE | re.DOTALL,
)
_COMMAND_MARKS: Final = re.compile(r"[\s;|&<>$`]")
_JOINTS: Final = re.compile(r"[;|`\n]|&&|\$\(")
# Names of tools that use one shell for many calls.
_KEPT_SHELLS: Final = frozenset("terminal console session sessions tmux screen pty tty repl iterm".split())
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:https?|wss?|ftp|file):", re.IGNORECASE)
_READS_LIKE: Final = re.compile(r"/|~(?:[\w.-]*/|\Z)|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\\\\|\.\.\Z|\$(?:HOME|\{\w+\})/")
_UPWARD: Final = re.compile(r"(?:\A|[/\\])\.\.(?:[/\\]|\Z)|(?:%2e|\.){2}(?:%2f|%5c)", re.IGNORECASE)
# A name with a dot or a slash, like a file name.
_FILE_LIKE: Final = re.compile(r"(?=[^/.]{0,200}[/.])[\w@.+-][\w@.+/ -]{0,255}\Z")
_QUOTED: Final = re.compile(r"\"([^\"\n]{1,4096})\"|'([^'\n]{1,4096})'")
# Some assistants write their arguments as tags.
_TAGGED: Final = re.compile(r"<(?:path|file_path|file)>([^<>\n]{1,4096})</")

# The first of these words in a tool's name gives the action class, the most severe one the side effect.
_CHANGES: Final = (
    "write create update edit append save put patch insert rename move copy replace modify make touch export"
)
_SENDS: Final = (
    "send post publish email mail notify message reply comment upload share submit push pay transfer tweet invite call"
)
_DESTROYS: Final = (
    "delete remove drop wipe destroy kill terminate cancel revoke reset purge erase truncate clear deploy restart stop "
    "start install uninstall merge approve execute run exec eval set apply enable disable grant shutdown reboot"
)
_READS: Final = "read get list show view fetch load open download describe inspect status info stat"
_VERBS: Final[dict[str, tuple[ActionClass, str, SideEffectClass]]] = {
    **dict.fromkeys(_READS.split(), ("read", "tool", "none")),
    **dict.fromkeys("search find grep lookup glob browse".split(), ("search", "tool", "none")),
    **dict.fromkeys("query select count".split(), ("query", "database", "none")),
    **dict.fromkeys("summarize summarise translate explain analyze analyse".split(), ("summarize", "tool", "none")),
    **dict.fromkeys("observe watch monitor record".split(), ("observe", "observation", "none")),
    **dict.fromkeys("delegate handoff spawn assign agent".split(), ("delegate", "agent", "state_change")),
    **dict.fromkeys(_SENDS.split(), ("send", "message", "external_send")),
    **dict.fromkeys(_CHANGES.split(), ("write", "tool", "internal_write")),
    **dict.fromkeys(_DESTROYS.split(), ("write", "tool", "state_change")),
}
_UNKNOWN: Final[tuple[ActionClass, str, SideEffectClass]] = ("write", "tool", "state_change")


@lru_cache(maxsize=1024)
def guess_action(tool_name: str) -> tuple[ActionClass, str, SideEffectClass]:
    """Guess the action class, family and side effect of a tool by its name; a name that says nothing changes state."""
    own = tool_name[:_MAX_NAME].rpartition("__")[2]
    found = [_VERBS[part] for part in (part.lower() for part in _PARTS.findall(own)) if part in _VERBS]
    if not found:
        return _UNKNOWN
    first = _first_word(tool_name)
    if first not in _VERBS or _VERBS[first][2] != "none":
        # Only a name that starts with a reading verb means that nothing is changed.
        found.append(_VERBS.get(first, _UNKNOWN))
    action_class, family, _ = found[0]
    gravest = max((side for _, _, side in found), key=SIDE_EFFECT_ORDER.index)
    return ("write" if gravest == "state_change" and action_class == "read" else action_class), family, gravest


@lru_cache(maxsize=4096)
def _words(name: str) -> frozenset[str]:
    return frozenset(part.lower() for part in _PARTS.findall(name[:_MAX_NAME]))


def keeps_shell(tool_name: str) -> bool:
    """Return whether the name of a tool suggests that it uses one shell for many calls."""
    return bool(_words(tool_name) & _KEPT_SHELLS)


@lru_cache(maxsize=4096)
def is_command_name(name: str) -> bool:
    """Return whether an argument is named like a command."""
    return name in _COMMAND_NAMES or re.sub(r"[_-]", "", name.lower()) in _COMMAND_WORDS


def is_directory_name(name: str) -> bool:
    """Return whether an argument is named like a directory that other arguments may be relative to."""
    return bool(_words(name) & _DIRECTORY_NAMES)


def quoted_resources(text: str) -> Iterator[str]:
    """Yield texts in quotes, or in tags that name files, from text that looks like JSON or XML but is not valid."""
    if text.startswith("<"):
        yield from _TAGGED.findall(text)
    else:
        for found in _QUOTED.finditer(text):
            yield found[1] or found[2]


def may_run_beside(argument: Argument) -> bool:
    """Return whether an argument of a shell tool that the catalog does not list could be a command."""
    text = str(argument.value).strip()
    is_text = not argument.name or bool(_words(argument.name) & _PROSE)
    return not is_text and not _is_resource(argument) and _COMMAND_MARKS.search(text) is not None


def judge_unmarked(
    trace: Trace, tool_name: str, argument: Argument, *, base: str | None, run: _Run, known: bool = False
) -> None:
    """Record the resource that an argument names, if it does; `run` records the effects of a command line.

    For a `known` tool the catalog lists what it runs, so its name alone does not make a text a command.
    """
    text, place = str(argument.value), argument.place
    # Browsers and servers ignore these characters in a URL.
    stripped = re.sub(r"[\x00-\x09\x0b-\x1f]", "", text.strip())
    if not stripped:
        return
    may_run = not known and _may_run(tool_name, argument)
    if _judge_text(trace, tool_name, argument, base, run, may_run=may_run) or argument.name in _DATA_NAMES:
        return
    role = "read" if guess_action(tool_name)[2] == "none" else "edit"
    words, lines = _words(argument.name), "\n" in stripped
    if _SCHEME.match(stripped) and not re.search(r"\s", stripped.replace("\n", "")):
        _judge_url(trace, text, place, role)
    elif words & _URL_NAMES:
        trace.contact(text, place, sends=role != "read", bare=True)
    elif words & _HOST_NAMES and " " not in stripped:
        trace.contact_host(stripped.rstrip("/"), place, sends=role != "read")
    elif words & _PATH_NAMES or (words & _LOOSE_NAMES and not lines):
        _judge_path(trace, role, text, base, place)
    elif not lines and (_READS_LIKE.match(stripped) or _UPWARD.search(stripped) or _is_there(trace, stripped, base)):
        trace.touch(role, text, base, place)


def _judge_text(
    trace: Trace, tool_name: str, argument: Argument, base: str | None, run: _Run, *, may_run: bool
) -> bool:
    """Record the effects of an argument that is run, queried or applied as a patch; return whether it is one."""
    text, words, tool = str(argument.value), _words(argument.name), _words(tool_name)
    if _is_command(tool_name, argument):
        run(text, base)
    elif words & _CODE_NAMES and (tool & _SHELL_TOOLS):
        trace.doubt(argument.place, "it is code that is not analysed", unbounded=True)
    elif _is_query(tool, words, text):
        judge_sql(trace, text, argument.place)
    elif may_run:
        run(text, base)
    elif words & {"patch", "diff"} and "\n" in text:
        names, doubtful = patched_files(text)
        for name in names:
            trace.touch("edit", name, base, argument.place)
        if doubtful:
            trace.doubt(argument.place, "a patch that names no file, or names one in a way that is not known here")
    else:
        return False
    return True


def _is_command(tool_name: str, argument: Argument) -> bool:
    """Return whether an argument holds a shell command, judged by its name and text."""
    text = str(argument.value).strip()
    if argument.name in _DATA_NAMES:
        return False
    if is_command_name(argument.name):
        return bool(_words(tool_name) & _SHELL_TOOLS or _COMMAND_MARKS.search(text))
    return bool(_words(argument.name) & _RUN_NAMES) and _COMMAND_MARKS.search(text) is not None


def _is_query(tool: frozenset[str], words: frozenset[str], text: str) -> bool:
    """Return whether an argument is SQL: by its name, or by its text if the tool or the name suggests a query."""
    if "sql" in words:
        return True
    if tool & _QUERY_TOOLS and not words & (_PROSE | _PATH_NAMES):
        return _SQL.match(text) is not None
    return bool(words & _QUERY_NAMES) and _PLAIN_SQL.match(text) is not None


def _may_run(tool_name: str, argument: Argument) -> bool:
    """Return whether a tool that is named like a shell may run an argument of any name."""
    text, words, tool = str(argument.value).strip(), _words(argument.name), _words(tool_name)
    if not argument.name or words & _PROSE or _first_word(tool_name) in _LOOKS:
        return False
    if _is_resource(argument):
        return bool(tool & _SHELLS) and _SCHEME.match(text) is None and _JOINTS.search(text) is not None
    if tool & _SHELLS:
        return not words & _LABELS or _COMMAND_MARKS.search(text) is not None
    runs = bool(tool & _RUNNERS) and not tool & _QUERY_TOOLS and argument.name not in _NEVER_RUN
    return runs and _COMMAND_MARKS.search(text) is not None


def _is_resource(argument: Argument) -> bool:
    return bool(_words(argument.name) & (_PATH_NAMES | _URL_NAMES | _HOST_NAMES))


def _first_word(tool_name: str) -> str:
    """Return the first word of a tool's name, without the name of its MCP server."""
    own = tool_name[:_MAX_NAME].rpartition("__")[2]
    return next(iter(_PARTS.findall(own)), "").lower()


def _judge_path(trace: Trace, role: str, text: str, base: str | None, place: str) -> None:
    trace.touch(role, text, base, place)
    pieces = text.split(",")
    if len(pieces) > 1:
        # Some tools take several paths in one text.
        for piece in pieces[:64]:
            if _READS_LIKE.match(piece.strip()) or _UPWARD.search(piece):
                trace.touch(role, piece.strip(), base, place)


def _is_there(trace: Trace, text: str, base: str | None) -> bool:
    """Return whether a text with an unspecific name is an existing file."""
    if base is None or not trace.files.reads_disk or not _FILE_LIKE.match(text):
        return False
    return trace.files.resolve(join(base, text)).exists


def _judge_url(trace: Trace, text: str, place: str, role: str) -> None:
    if text.lower().startswith("file:"):
        trace.doubt(place, "it is a URL of a file, which is read in more than one way")
    else:
        trace.contact(text, place, sends=role != "read")
