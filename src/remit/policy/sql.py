"""What a database query would change, judged by its words."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from remit.policy.trace import Trace

__all__ = ["judge_sql"]

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_WORDS: Final = re.compile(r"[A-Za-z_]+")
_READING: Final = frozenset(("select", "with", "explain", "show", "describe", "desc", "values", "table", "pragma"))
_CHANGING: Final = frozenset(
    "insert update delete drop alter create replace truncate merge grant revoke vacuum reindex call do "
    "execute exec set into rename comment lock begin commit rollback savepoint analyze refresh cluster".split()
)
# Words by which a database reads or writes files, loads code or runs programs.
_LEAVING: Final = re.compile(
    r"\b(?:attach|copy|load_extension|outfile|dumpfile|infile|load_file|pg_read_\w+|pg_ls_\w+|lo_import|lo_export|readfile|writefile"
    r"|dblink\w*|xp_\w+|sp_execute\w*|openrowset|bulk|program|load|edit|fts3_tokenizer|sys_exec|sys_eval|url|s3|file|read_csv\w*|read_text|read_parquet)\b"
    r"|^\s*[.\\][a-z!]",
    re.IGNORECASE | re.MULTILINE,
)


def judge_sql(trace: "Trace", text: str, source: str) -> None:
    """Note whether a query changes the database, and doubt one that can leave it."""
    bare = _QUOTED.sub(" ", text)
    if _LEAVING.search(bare):
        trace.doubt(source, "a query that may read or write files, or run programs")
    words = [word.lower() for word in _WORDS.findall(bare)]
    if not words or words[0] not in _READING or _CHANGING.intersection(words):
        trace.side_effects.add("state_change")
