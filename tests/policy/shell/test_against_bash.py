"""Our reading of a script against real shells: every command that a shell runs is one that we saw, word for word.

Scripts are generated. A word that is not known before it runs is a wildcard in the comparison, so no script is left
out because of one. `make fuzz` tries many more scripts, and mutations of them.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.policy.shell.confinement import is_available
from tests.policy.shell.oracle import Failure, Oracle, Shell, find_shell, make_tree
from tests.policy.shell.scripts import ENVIRONMENTS, Script, build_script, is_safe, mutate
from tests.policy.shell.touching import Escape, FileOracle, FileScript, build_file_script

pytestmark = pytest.mark.slow

BASH: Final = find_shell("bash")
DASH: Final = find_shell("dash")
SIZE: Final = 500
# Batches of that size with every run of the tests; `make fuzz` tries these and as many more as it is asked for.
BATCHES: Final = {"bash_batch": 32, "dash_batch": 5, "file_batch": 3}
SHOWN: Final = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make as many batches as are asked for, of each kind in the same proportion."""
    asked = metafunc.config.getoption("--fuzz", default=0)
    times = asked / SIZE / sum(BATCHES.values()) if asked else 1
    for name, count in BATCHES.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, range(math.ceil(count * times)))


@pytest.fixture
def mutates(request: pytest.FixtureRequest) -> bool:
    """Tell whether every other script is a mutation."""
    return bool(request.config.getoption("--fuzz", default=0))


def scripts(batch: int, *, mutates: bool, posix: bool = False) -> list[Script]:
    """Return the scripts of a batch: a seed names each."""
    made = [build_script(seed, posix=posix) for seed in range(batch * SIZE, (batch + 1) * SIZE)]
    if mutates:
        made[::2] = [mutate(script, random.Random(script.seed)) for script in made[::2]]
    return made


def report(oracle: Oracle, failures: list[Failure]) -> str:
    """Return the first failures with as little of their scripts as still fails."""
    shown = [str(oracle.minimise(failure)) for failure in failures[:SHOWN]]
    return "\n\n".join(["", *shown, f"{len(failures)} of {oracle.figures['scripts']} scripts"])


def check(shell: Shell, made: list[Script], folder: Path, note: Callable[[str, object], None]) -> Counter[str]:
    """Hold scripts against a shell; return what was counted."""
    oracle = Oracle(shell, make_tree(folder))
    failures = oracle.check(made)
    note(Path(shell.path).name, {**oracle.figures, "failures": len(failures)})
    if failures:
        pytest.fail(report(oracle, failures), pytrace=False)
    return oracle.figures


def assert_most_are_compared(figures: Counter[str], *, mutates: bool) -> None:
    """Most scripts are not refused, or little would be compared; mutations often make what no shell reads."""
    assert figures["refused"] < figures["scripts"] / 2 or mutates
    assert figures["commands"] > figures["scripts"] / 2 or mutates


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_every_command_that_bash_runs_is_one_that_we_saw(
    bash_batch: int, mutates: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert BASH is not None
    figures = check(BASH, scripts(bash_batch, mutates=mutates), tmp_path, record_property)
    assert_most_are_compared(figures, mutates=mutates)


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_every_program_that_dash_runs_is_one_that_we_saw(
    dash_batch: int, mutates: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert DASH is not None
    figures = check(DASH, scripts(dash_batch, mutates=mutates, posix=True), tmp_path, record_property)
    assert_most_are_compared(figures, mutates=mutates)


# Forms in which bash does another thing than it seems; chance finds them once in many thousand scripts.
FORMS: Final = (
    'v= cmd $PWD{01..03}""', "v+=(a b) v=3\ncmd${v[@]} ../y``", "for v in [''\"\"[; do c2 \"$v\"; done",
    'for v in [[; do c2 "$v"; done', 'c3 {1..3""{,}}', "c2 a\\\n='':~ \"\"", "v=b v=$(=;c2 $v) c3", "eval -- z--'cmd'",
    "set -- '' a; c2 ab$*\"\"", "!\\\n '{'", 'v= v[1]= v=; c2 "${v[@]}"', "a\\\nb[ y\"$v b\"}${_} = .. ]",
    "[ -v$_ 'v[$(hit)]' ]", "set -- a '' b; c2 $* x$*y \"$*\" $@", "v=(a '' b); c2 ${v[@]} x${v[@]}",
    "w='a[$(hit)]' let w", "./f() { cd d && c2; }\n./f $((v))\nc3 $(zz)", "v=(a) w=$(c2 $v) c3", "c2 v=$:~",
    "trap c2 EXIT; unset -f c2", "c2 $(echo p q)$!", "n[]=() v=5\nv= ${v}b", "w[1]=(); f() { zz; }\nf",
    "IFS=t; c3 $(pwd)''",
)  # fmt: skip


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("text", FORMS)
def test_rare_forms_are_read_as_bash_reads_them(text: str, tmp_path: Path) -> None:
    assert BASH is not None
    oracle = Oracle(BASH, make_tree(tmp_path))
    assert [str(failure) for failure in oracle.check([Script(text, each) for each in ENVIRONMENTS])] == []


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
    count = oracle.figures["scripts"]
    shown = [str(oracle.minimise(escape)) for escape in escapes[:SHOWN]]
    return "\n\n".join(["", *shown, f"{len(escapes)} of {count} scripts"])


@NEEDS_CONFINEMENT
def test_a_permitted_script_touches_nothing_outside_its_project(
    file_batch: int, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    assert BASH is not None
    oracle = FileOracle(BASH.path, folder)
    escapes = oracle.check([build_file_script(seed) for seed in range(file_batch * SIZE, (file_batch + 1) * SIZE)])
    figures = oracle.figures
    record_property("files", {**figures, "escapes": len(escapes)})
    if escapes:
        pytest.fail(report_escapes(oracle, escapes), pytrace=False)
    assert figures["permitted"] > figures["scripts"] / 10


@NEEDS_CONFINEMENT
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cat ../outside/key.txt", "outside/key.txt"),
        ("ls ../outside", "outside"),
        ("rm ../outside/keyb.txt", "outside/keyb.txt"),
        ("touch ../outside/key.txt", "outside/key.txt"),
        ("mkdir ../new", "."),
        ("ln ../outside/key.txt here", "outside/key.txt"),
    ],
)
def test_what_a_script_touches_outside_is_noticed(text: str, place: str, folder: Path) -> None:
    assert BASH is not None
    assert place in FileOracle(BASH.path, folder).run(FileScript(text, {}))
