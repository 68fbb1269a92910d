"""Judges database queries by their words: whether they change the database, and whether they can leave it.

Functions must be on a list, because databases have many that read files, run programs or contact hosts. Quotes or
comments that databases read differently are a doubt, because something could hide in them.
"""

import re
from typing import Final

from remit.policy.trace import Trace

_MAX_QUERY: Final = 16_384
_STRING: Final = re.compile(r"'[^']*'")
_NAME: Final = re.compile(r'"[^"]*"|`[^`]*`')
_ODD: Final = re.compile(r"/\*|--|#|\\|\$\w*\$")
_WORDS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALLED: Final = re.compile(r"(?<![A-Za-z0-9_.])([A-Za-z_][A-Za-z0-9_.]*+|\x00)\s*+\(")
# A string in the place of a table, which some databases read as a file.
_PLACED: Final = re.compile(
    r"\b(?:from|into|to|join|attach|database|infile|outfile|dumpfile|table|describe|summarize|pivot|unpivot|load|use)\s*'"
    r"|\bfrom\b(?:(?!\bwhere\b)[^'()])*,\s*'",
    re.IGNORECASE,
)
# A copy of the whole database under a computed name, and settings for the location of files.
_COPIES: Final = re.compile(r"\bvacuum\b[^;]*\binto\b", re.IGNORECASE)
_LOCATES: Final = re.compile(
    r"(?:\A|;)\s*(?:set|pragma)\b[^;]*?\b(?!search_path\b)\w*(?:directory|path|file)\b", re.IGNORECASE
)
# Commands of sqlite3 that only show something or change the output format.
_SHOWN: Final = re.compile(
    r"^[ \t]*\.(?:tables|schema|fullschema|indexes|indices|databases|dbinfo|headers?|mode|width|nullvalue|separator"
    r"|timer|timeout|stats|show|changes|echo|bail|eqp|explain|print|help|version|quit|exit)(?:[ \t][\w%*|,. -]*)?$",
    re.MULTILINE,
)
_READING: Final = frozenset("select with explain show describe desc values table pragma".split())
_CHANGING: Final = frozenset(
    "insert update delete drop alter create replace truncate merge grant revoke vacuum reindex call do "
    "execute exec set into rename comment lock begin commit rollback savepoint analyze refresh cluster".split()
)
# Statements about databases and users of the whole server.
_OF_SERVER: Final = frozenset("database databases user role grant revoke use schema shutdown kill flush reset".split())
# A table of another database, in the syntax of some servers.
_QUALIFIED: Final = re.compile(
    r"\b(?:from|join|into|update|table|view|truncate|exists|on|to|index|trigger|references)\s+"
    r"(?!(?:information|performance)_schema\s*\.)(?:[A-Za-z_]\w*|\x00)\s*\.",
    re.IGNORECASE,
)
# Statements with which a database reads or writes files, loads code or runs programs.
_LEAVING: Final = frozenset(
    "attach copy outfile dumpfile infile openrowset bulk import export execute immediate prepare do system global "
    "subscription extension server tablespace backup restore function procedure language install".split()
)
# Keywords before a bracket, and functions that only compute.
_HARMLESS: Final = frozenset(
    "in and or not on as by over filter exists any all some values using into table references index key "
    "unique check primary foreign when then else case where having from join select union except "
    "intersect set returning partition count sum avg min max total coalesce nullif ifnull lower upper "
    "length len substr substring trim ltrim rtrim round abs ceil ceiling floor cast convert concat "
    "concat_ws group_concat string_agg array_agg json_agg jsonb_agg now date time datetime timestamp "
    "strftime date_trunc date_part extract to_char to_date to_timestamp year month day hour minute second "
    "interval current_date current_timestamp row_number rank dense_rank lag lead first_value last_value "
    "ntile greatest least replace instr position left right lpad rpad reverse split_part regexp_replace "
    "regexp_matches json_extract json_object json_array json_each json_array_length jsonb_build_object "
    "json_build_object to_json to_jsonb random printf format mod power sqrt sign hex quote typeof iif if "
    "distinct varchar char numeric decimal int integer text bigint boolean real float double "
    "generate_series unnest array_length string_to_array array_to_string datediff dateadd julianday "
    "unixepoch md5 sha256 uuid gen_random_uuid last_insert_rowid changes table_info index_list "
    "foreign_key_list table_xinfo index_info database_list".split()
)


def judge_sql(trace: Trace, text: str, source: str) -> None:
    """Record whether a query changes the database, and a doubt if it can leave the database."""
    odd = (
        "\\" in text
        or text.count('"') % 2
        or text.count("`") % 2
        or _ODD.search(_STRING.sub("''", text))
        or text.count("'") % 2
        or ("'" in text and set("`[") & set(text))
    )
    if len(text) > _MAX_QUERY or odd:
        trace.doubt(source, "a query with comments or quotes that databases read differently")
        trace.side_effects.add("state_change")
        return
    bare = _NAME.sub("\0", _STRING.sub("''", text))
    words = [word.lower() for word in _WORDS.findall(bare)]
    tables = {words[index + 1] for index, word in enumerate(words[:-1]) if word in ("into", "table", "references")}
    called = {name.lower().rpartition(".")[2] for name in _CALLED.findall(bare)}
    stored = any(word.startswith(("xp_", "sp_")) for word in words)
    moves = _PLACED.search(text) or _COPIES.search(bare) or _LOCATES.search(bare)
    if stored or moves or _LEAVING.intersection(words) or called - _HARMLESS - tables:
        trace.doubt(source, "a query that may read or write files, or run programs")
    if any("/" in name for name in _NAME.findall(text)):
        trace.doubt(source, "a name that reads like a file")
    if any(line.lstrip()[:1] in (".", "\\") for line in text.split("\n")):
        trace.doubt(source, "a command of the database client")
    if not words or words[0] not in _READING or _CHANGING.intersection(words) or (words[0] == "pragma" and "=" in text):
        trace.side_effects.add("state_change")


def without_shown(text: str) -> str:
    """Return a query for sqlite3 without client commands that only show something."""
    return _SHOWN.sub("", text)


def leaves_database(text: str) -> bool:
    """Return whether a query may use or change another database on the same server."""
    bare = _NAME.sub("\0", _STRING.sub("''", text))
    words = {word.lower() for word in _WORDS.findall(bare)}
    return not words.isdisjoint(_OF_SERVER) or _QUALIFIED.search(bare) is not None
