"""Which processes of an assistant matter."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.assistants.doctor.processes import (
    Process,
    ancestors,
    find_assistant_processes,
    find_process,
    find_suspects,
    running_processes,
)

FOLDER = "/work/project"


def found(*words: str, folder: str = FOLDER) -> list[tuple[str, str]]:
    listed = find_suspects("claude-code", "claude", [Process(7, words, folder)], [FOLDER])
    assert {one.pid for one in listed} <= {7}
    return [(one.option, one.effect) for one in listed]


@pytest.mark.parametrize(
    "words",
    [
        ("claude", "--bare"),
        ("/usr/local/bin/claude", "-p", "x", "--bare"),
        ("node", "/opt/claude", "--bare"),
        ("node", "--no-warnings", "/opt/bin/claude.js", "--bare"),
        ("claude.exe", "--bare"),
    ],
)
def test_an_assistant_without_hooks_is_found_however_it_was_started(words: tuple[str, ...]) -> None:
    assert found(*words) == [("--bare", "bypassing")]


@pytest.mark.parametrize(
    ("option", "effect"),
    [
        ("--safe-mode", "bypassing"),
        ("--setting-sources=user", "bypassing"),
        ("--setting-sources", "bypassing"),
        ("--dangerously-skip-permissions", "unasking"),
        ("--settings=mine.json", "steering"),
        ("--settings", "steering"),
        ("disableAllHooks", "bypassing"),
    ],
)
def test_options_are_told_apart_by_what_they_leave_out(option: str, effect: str) -> None:
    assert found("claude", option) == [(option.partition("=")[0], effect)]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("claude",),
        ("claude", "-p", "what does --bare do"),
        ("vim", "--bare"),
        ("less", "a", "b", "claude", "--bare"),
    ],
)
def test_others_are_not_found(words: tuple[str, ...]) -> None:
    assert found(*words) == []


@pytest.mark.parametrize(("folder", "count"), [("/work/project/src", 1), ("/work/other", 0), ("", 1)])
def test_only_those_in_a_protected_folder_count_and_those_of_which_nothing_is_known(folder: str, count: int) -> None:
    assert len(found("claude", "--bare", folder=folder)) == count


def test_a_protection_of_any_folder_counts_all() -> None:
    listed = find_suspects("claude-code", "claude", [Process(7, ("claude", "--bare"), "/anywhere")], [None])
    assert len(listed) == 1


@contextmanager
def waiting(*words: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program that waits. While one is being started, the system tells neither its words nor its variables."""
    code = "print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        yield child
        child.kill()


def test_processes_of_this_machine_are_seen_with_their_words() -> None:
    with waiting("--a word") as child:
        words = next(one.words for one in running_processes() if one.pid == child.pid)
    assert "--a word" in " ".join(words)


@pytest.mark.parametrize(
    ("over_http", "names"), [(False, ["CLAUDE_CODE_SIMPLE"]), (True, ["CLAUDE_CODE_SIMPLE", "http_proxy"])]
)
def test_variables_count_as_options_do_and_proxies_where_hooks_are_asked_over_http(
    over_http: bool, names: list[str]
) -> None:
    process = Process(7, ("claude",), FOLDER, ("CLAUDE_CODE_SIMPLE", "http_proxy"))
    listed = find_suspects("claude-code", "claude", [process], [FOLDER], over_http=over_http)
    assert [one.option for one in listed] == names
    assert {one.effect for one in listed} <= {"bypassing", "misleading"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells variables")
def test_of_the_variables_of_a_process_only_names_that_matter_are_kept() -> None:
    variables = {"CLAUDE_CODE_SAFE_MODE": "1", "SECRET": "s3cret", "https_proxy": "http://u:s3cret@proxy"}
    with waiting(env=variables) as child:
        process = next(one for one in running_processes() if one.pid == child.pid)
    assert sorted(process.variables) == ["CLAUDE_CODE_SAFE_MODE", "https_proxy"]
    assert "s3cret" not in repr(process)


def among(*words: str, folder: str = FOLDER, uid: int | None = os.geteuid(), within: str | None = FOLDER) -> bool:
    return bool(find_assistant_processes("claude", [Process(7, words, folder, uid=uid)], within))


@pytest.mark.parametrize(
    "words",
    [
        ("claude",),
        ("/usr/local/bin/claude", "-p", "x"),
        ("claude.exe",),
        ("node", "--no-warnings", "/opt/bin/claude.js"),
        ("/usr/bin/node", "/opt/node_modules/@anthropic-ai/claude-code/cli.js"),
        ("/bin/sh", "/opt/bin/claude"),
        ("python3.12", "/opt/bin/claude"),
    ],
)
def test_a_process_that_runs_the_program_is_one_of_the_assistant(words: tuple[str, ...]) -> None:
    assert among(*words)


@pytest.mark.parametrize("words", [(), ("vim", "claude"), ("less", "/opt/bin/claude"), ("node", "x.js", "claude")])
def test_a_process_that_only_names_the_program_is_not_one_of_the_assistant(words: tuple[str, ...]) -> None:
    assert not among(*words)


@pytest.mark.parametrize(
    ("folder", "within", "found"),
    [
        (f"{FOLDER}/sub", FOLDER, True),
        (f"{FOLDER} (deleted)", FOLDER, True),
        ("/work/project2", FOLDER, False),
        ("", FOLDER, False),
        ("", None, True),
        ("/elsewhere", None, True),
    ],
)
def test_a_process_counts_only_where_its_folder_is_known_to_be_covered(
    folder: str, within: str | None, found: bool
) -> None:
    assert among("claude", folder=folder, within=within) == found


@pytest.mark.parametrize("uid", [None, os.geteuid() + 1])
def test_a_process_of_another_user_is_not_one_of_the_assistant(uid: int | None) -> None:
    assert not among("claude", uid=uid, within=None)


def test_a_process_descends_from_those_that_started_it() -> None:
    assert {os.getpid(), os.getppid()} <= ancestors(os.getpid())


def test_a_process_that_has_ended_is_none_any_more(tmp_path: Path) -> None:
    with waiting(cwd=tmp_path) as child:
        found = find_process(child.pid)
        assert found is not None
        assert (found.folder, found.uid) == (str(tmp_path), os.geteuid())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert find_process(child.pid) is None
