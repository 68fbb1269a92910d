"""Queries: changing the database is a side effect, leaving it is a doubt."""

import pytest

from remit.policy.files import TextFiles
from remit.policy.sql import judge_sql
from remit.policy.trace import Trace


def traced(text: str) -> Trace:
    trace = Trace(TextFiles())
    judge_sql(trace, text, "query")
    return trace


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select * from users where name = 'drop table x'",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "EXPLAIN SELECT 1",
        'SELECT "update" FROM t',
        "SHOW TABLES",
        "SELECT 'it''s; drop table x'",
        "SELECT * FROM t WHERE a IN ('x', 'y') AND b = '/z'",
        "SELECT path, file FROM t",
    ],
)
def test_reading_changes_nothing(text: str) -> None:
    trace = traced(text)
    assert (trace.side_effects, trace.doubts) == (set(), ())


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (1)",
        "update t set a = 1",
        "DELETE FROM t",
        "DROP TABLE t",
        "SELECT 1; DELETE FROM t",
        "SELECT 1 --\n; DROP TABLE t",
        "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
        "SELECT * INTO u FROM t",
        "SELECT '' ; truncate t; --'",
        "VACUUM",
        "CALL f()",
        "",
        "nonsense",
    ],
)
def test_anything_that_may_change_the_database_changes_state(text: str) -> None:
    assert traced(text).side_effects == {"state_change"}


@pytest.mark.parametrize(
    "text",
    [
        "ATTACH '/etc/x' AS y",
        "COPY t TO '/tmp/x'",
        "COPY t FROM PROGRAM 'id'",
        "SELECT load_extension('x')",
        "SELECT * FROM t INTO OUTFILE '/tmp/x'",
        "SELECT load_file('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT readfile('x')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "EXEC xp_cmdshell 'id'",
        ".shell id",
        "\\! id",
        "SELECT 1;\n.output /etc/x",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
        "VACUUM INTO 'x.db'",
        "VACUUM main INTO char(46, 46, 47) || name",
        "ATTACH char(46) || name AS y",
        "PRAGMA temp_store_directory = 'x'",
        "SET temp_directory = 'x'",
        "SELECT 1; SET general_log_file = 'x'",
        "SELECT * FROM t, 'x.csv'",
        "DESCRIBE 'x.csv'",
        "SUMMARIZE 'x.csv'",
        "LOAD 'x'",
    ],
)
def test_a_query_that_can_leave_the_database_is_a_doubt(text: str) -> None:
    assert [doubt.word for doubt in traced(text).doubts] == ["query"]


@pytest.mark.parametrize("text", ["SET search_path TO x", "UPDATE t SET path = 'x', file = 'y'"])
def test_a_column_or_a_path_of_schemas_is_no_file(text: str) -> None:
    assert traced(text).doubts == ()


@pytest.mark.parametrize(
    "text",
    [
        r"SELECT 'a\' , load_file('/etc/passwd'), '",
        "SELECT `'`; DELETE FROM t; -- '",
        "SELECT 1 # '\n; DELETE FROM t; # '",
        "SELECT $$ ' $$; DELETE FROM t; SELECT $$ ' $$",
        "SELECT [']; DELETE FROM t; SELECT [']",
        "SELECT 1 /*! ; DELETE FROM t */",
    ],
)
def test_nothing_hides_behind_the_quotes_of_one_database(text: str) -> None:
    trace = traced(text)
    assert trace.doubts or trace.side_effects
