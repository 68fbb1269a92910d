"""Judges programs in embedded languages: sed, awk, jq, Python, JavaScript and SQL.

Each function looks for everything that leaves the program: files, commands, modules. What it does not understand is a
doubt; text that is only data has no effect.
"""

import re
from collections.abc import Callable
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.programs.awk import judge_awk
from remit.policy.shell.programs.python import judge_python
from remit.policy.shell.programs.sed import judge_sed
from remit.policy.sql import judge_sql, leaves_database, without_shown

# A version of node, or a member of a JSON file, as a value or printed.
_SHOWN: Final = re.compile(
    r"(?P<call>console\.log\()?\s*(?:process\.(?:version|versions|platform|arch)|require\((?P<quote>['\"])(?P<file>\./[\w./-]+\.json)"
    r"(?P=quote)\))(?:\.[A-Za-z_]\w*|\[['\"][\w@./-]+['\"]\])*\s*(?(call)\))\s*;?\s*"
)


def judge_jq(invocation: ProgramCall, text: str, source: str) -> None:
    """Record the modules that a jq program loads; apart from that it can only print."""
    if re.search(r"\b(?:import|include|input_filename|get_search_list|modulemeta)\b", text):
        invocation.trace.doubt(source, "a jq program that loads modules")


def _judge_javascript(invocation: ProgramCall, text: str, source: str) -> None:
    """Accept one expression that shows a version or a member of a JSON file; other code is a doubt."""
    shown = _SHOWN.fullmatch(text)
    if shown is None or ".." in (shown["file"] or ""):
        invocation.trace.doubt(source, f"code that {invocation.program.name} runs is not analysed", unbounded=True)
    elif shown["file"]:
        invocation.file("read", Field(shown["file"], "exact", source))


def _judge_yq(invocation: ProgramCall, text: str, source: str) -> None:
    if re.search(r"\b(?:load\w*|eval|env\w*|strenv|split_doc|system|import|include)\b|@", text):
        invocation.trace.doubt(source, "a yq expression that loads files")


def _judge_sql(invocation: ProgramCall, text: str, source: str) -> None:
    if invocation.program.name in ("sqlite3", "sqlite"):
        text = without_shown(text)
        if not text.strip():
            return
    judge_sql(invocation.trace, text, source)
    if any(resource.startswith("db://") for resource in invocation.program.manages) and leaves_database(text):
        invocation.manage("db", None, source)


LANGUAGES: Final[dict[str, Callable[[ProgramCall, str, str], None]]] = {
    "awk": judge_awk,
    "javascript": _judge_javascript,
    "jq": judge_jq,
    "python": judge_python,
    "sed": judge_sed,
    "sql": _judge_sql,
    "yq": _judge_yq,
}
