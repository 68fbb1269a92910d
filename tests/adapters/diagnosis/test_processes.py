"""Which processes of an assistant matter."""

import subprocess
import sys

import pytest

from remit.adapters.diagnosis.processes import Process, running_processes, suspects

FOLDER = "/work/project"


def found(*words: str, folder: str = FOLDER) -> list[tuple[str, bool]]:
    listed = suspects("claude-code", "claude", [Process(7, words, folder)], [FOLDER])
    assert {one.pid for one in listed} <= {7}
    return [(one.option, one.bypasses) for one in listed]


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
    assert found(*words) == [("--bare", True)]


@pytest.mark.parametrize(
    ("option", "bypasses"),
    [
        ("--safe-mode", True),
        ("--setting-sources=user", True),
        ("--setting-sources", True),
        ("--dangerously-skip-permissions", False),
        ("disableAllHooks", True),
    ],
)
def test_options_are_told_apart_by_what_they_leave_out(option: str, bypasses: bool) -> None:
    assert found("claude", option) == [(option.partition("=")[0], bypasses)]


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
    listed = suspects("claude-code", "claude", [Process(7, ("claude", "--bare"), "/anywhere")], [None])
    assert len(listed) == 1


def test_processes_of_this_machine_are_seen_with_their_words() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", "--a word"], stdin=subprocess.PIPE) as child:
        words = next(one.words for one in running_processes() if one.pid == child.pid)
        child.communicate(b"\n")
    assert "--a word" in " ".join(words)
