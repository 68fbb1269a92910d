"""Our reading of a script against real shells: every command that a shell runs is one that we saw, word for word.

Scripts are generated. A word that is not known before it runs is a wildcard in the comparison, so no script is left
out because of one. `make fuzz` tries many more scripts, and mutations of them.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.policy.shell.confinement import is_available
from tests.policy.shell.oracle import Failure, Oracle, Shell, find_shell, make_tree
from tests.policy.shell.scripts import Script, build_script, is_safe, mutate
from tests.policy.shell.touching import Escape, FileOracle, FileScript, build_file_script, is_contained

BASH: Final = find_shell("bash")
DASH: Final = find_shell("dash")
SIZE: Final = 500
# Batches of that size with every run of the tests.
BATCHES: Final = {"bash_batch": 36, "dash_batch": 4, "file_batch": 4}
SHOWN: Final = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make as many batches as are asked for."""
    asked = metafunc.config.getoption("--fuzz", default=0)
    for name, count in BATCHES.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, range(-(-asked // SIZE) if asked else count))


@pytest.fixture
def mutates(request: pytest.FixtureRequest) -> bool:
    """Tell whether every other script is a mutation."""
    return bool(request.config.getoption("--fuzz", default=0))


def scripts(batch: int, *, mutates: bool) -> list[Script]:
    """Return the scripts of a batch: a seed names each."""
    made = [build_script(seed) for seed in range(batch * SIZE, (batch + 1) * SIZE)]
    if mutates:
        made[::2] = [mutate(script, random.Random(script.seed)) for script in made[::2]]
    return made


def report(oracle: Oracle, failures: list[Failure]) -> str:
    """Return the first failures with as little of their scripts as still fails."""
    shown = [str(oracle.minimise(failure)) for failure in failures[:SHOWN]]
    return "\n\n".join(["", *shown, f"{len(failures)} of {oracle.figures['scripts']} scripts"])


def check(shell: Shell, made: list[Script], folder: Path, note: Callable[[str, object], None], name: str) -> Oracle:
    oracle = Oracle(shell, make_tree(folder))
    failures = oracle.check(made)
    note(name, {**oracle.figures, "failures": len(failures)})
    assert not failures, report(oracle, failures)
    return oracle


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_every_command_that_bash_runs_is_one_that_we_saw(
    bash_batch: int, mutates: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert BASH is not None
    figures = check(BASH, scripts(bash_batch, mutates=mutates), tmp_path, record_property, "bash").figures
    # Not because most scripts are refused.
    assert figures["refused"] < figures["scripts"] / 2
    assert figures["commands"] > figures["scripts"] / 2


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_every_command_that_dash_runs_is_one_that_we_saw(
    dash_batch: int, mutates: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert DASH is not None
    check(DASH, scripts(dash_batch, mutates=mutates), tmp_path, record_property, "dash")


def test_generated_scripts_and_their_mutations_write_no_files() -> None:
    made = scripts(0, mutates=False)
    changed = [mutate(script, random.Random(script.seed)) for script in made]
    assert [script.text for script in (*made, *changed) if not is_safe(script.text)] == []


# Real programs, in a tree of their own.

NEEDS_CONFINEMENT: Final = pytest.mark.skipif(
    BASH is None or not is_available(), reason="needs bash, and Landlock to keep scripts from changing other files"
)


def report_escapes(oracle: FileOracle, escapes: list[Escape]) -> str:
    """Return the first escapes with as little of their scripts as still escapes."""
    shown = [str(oracle.minimise(escape)) for escape in escapes[:SHOWN]]
    return "\n\n".join(["", *shown, f"{len(escapes)} of {oracle.figures['scripts']} scripts"])


@NEEDS_CONFINEMENT
def test_a_permitted_script_touches_nothing_outside_its_project(
    file_batch: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert BASH is not None
    oracle = FileOracle(BASH.path, tmp_path)
    escapes = oracle.check([build_file_script(seed) for seed in range(file_batch * SIZE, (file_batch + 1) * SIZE)])
    figures = oracle.figures
    record_property("files", {**figures, "escapes": len(escapes)})
    assert not escapes, report_escapes(oracle, escapes)
    assert figures["permitted"] > figures["scripts"] / 10


@NEEDS_CONFINEMENT
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cat ../outside/key.txt", "outside/key.txt"),
        ("ls ../outside", "outside"),
        ("rm ../outside/keyb.txt", "outside/keyb.txt"),
        ("touch ../outside/key.txt", "outside/key.txt"),
        ("mkdir ../new", "new"),
        ("ln ../outside/key.txt here", "outside/key.txt"),
    ],
)
def test_what_a_script_touches_outside_is_noticed(text: str, place: str, tmp_path: Path) -> None:
    assert BASH is not None
    assert place in FileOracle(BASH.path, tmp_path).run(FileScript(text, {}))


def test_scripts_of_real_programs_name_no_absolute_path() -> None:
    assert is_contained("cat note.txt > /dev/null")
    refused = ["rm -rf /", "rm -rf $x/*", 'cat "$d"/..', "ls ${x%/*}/*", "cat </etc/passwd", "x=/etc", "cat ../" * 7]
    assert [text for text in refused if is_contained(text)] == []
