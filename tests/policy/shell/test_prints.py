"""What programs print: used only where it is certain."""

from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from remit.policy.shell.programs.prints import PRINTS
from remit.policy.shell.tables import known_program
from tests.policy.judging import command, touched


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("cat $(basename /etc/passwd)", "read /work/app/passwd"),
        ("cat $(basename a/b.txt .txt)", "read /work/app/b"),
        ("cat $(basename .txt .txt)", "read /work/app/.txt"),
        ("cat $(basename a/..)/x", "read /work/x"),
        ("cat $(dirname /etc/passwd)/x", "read /etc/x"),
        ("cat $(dirname a)/x", "read /work/app/x"),
        ("cat $(dirname a/b/)/x", "read /work/app/a/x"),
        ("cat $(dirname /a)/x", "read /x"),
        ("cat $(dirname /)/x", "read /x"),
        ("cat $(dirname //)/x", "read /x"),
        ("cat log-$(date +%F).txt", "read /work/app/…"),
        ("cat x$(wc -l < a).txt", "read /work/app/…"),
        ("cat part-$(nproc)", "read /work/app/…"),
        ('cat "$(rg -l x src)"', "read /work/app/src/…"),
        ('cat "$(grep -rl x /etc)"', "read /etc/…"),
        ('cat "$(echo /etc/x | cat)"', "read /etc/x"),
    ],
)
def test_what_is_printed_for_certain_is_used(text: str, effect: str) -> None:
    assert effect in touched(command(text))


@pytest.mark.parametrize(
    "text",
    [
        "cat $(cat list)",
        "cat $(date)",
        "cat $(date +%c)",
        "cat $(date +/etc/%F)",
        "cat $(date '+%F %T' -d x)",
        "cat $(git rev-parse --show-toplevel)/x",
        "cat $(git rev-parse --git-dir)/x",
        "cat $(git rev-parse --show-prefix)x",
        "cat $(basename $x)",
        "cat $(basename -a a b)",
        "cat $(dirname $x)",
        "cat $(dirname a b)",
        "cat $(wc -l a)",
        "cat $(head -c 5 a)",
        "cat $(echo a | sort)",
        "cat $(echo /etc/x | cut -c 1)",
        "cat $(ls /etc)",
        "cat $(ls ..)",
        "cat $(ls -l)",
        "cat $(grep x a)",
        "cat $(grep -o x a)",
        'cat "$(grep -h x -r .)"',
        'cat "$(rg x)"',
        'cat "$(rg -l --follow x)"',
        'cat "$(git ls-files -s)"',
        "cat $(seq $x)",
        "cat $(seq -f /etc/%g 3)",
        "cat $(expr $x)",
        "cat $(id -un)",
        "cat $(readlink a)",
        "cat $(realpath a)",
        "cat $(which x)",
        "cat $(curl https://a.example)",
    ],
)
def test_what_is_printed_by_chance_is_a_doubt(text: str) -> None:
    assert command(text, scope=("/work/app", "https://a.example")).code == "target_unknown"


@pytest.mark.parametrize(
    "text",
    [
        "cat $(expr substr /etc/passwd 1 11)",
        "cat $(expr /etc/passwd)",
        "cat $(seq -s / 3)",
        "cat $(expr /etc/x : '\\(.*\\)')",
    ],
)
def test_text_is_not_taken_for_a_number(text: str) -> None:
    assert not command(text).permits


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A project with ordinary files."""
    real = tmp_path.resolve() / "app"
    (real / "src").mkdir(parents=True)
    (real / "src/a.py").touch()
    (real / "b.py").touch()
    return real


@pytest.mark.parametrize(
    "text",
    [
        "ls | xargs cat",
        "git ls-files | xargs cat",
        "find . -name '*.py' | xargs cat",
        "find . -name '*.py' | grep -v x | sort | head -3 | xargs cat",
        "rg -l x | xargs sed -i s/a/b/",
        "grep -rl x . | xargs cat",
        'find . -name "*.py" | while read -r f; do cat "$f"; done',
    ],
)
def test_plain_names_of_the_project_may_be_handed_on(app: Path, text: str) -> None:
    assert command(text, files=LocalFiles(), scope=(str(app),)).permits


@pytest.mark.parametrize("name", ["a b", "-rf", "quo'te"])
def test_a_name_that_can_be_taken_for_two_spoils_that(app: Path, name: str) -> None:
    (app / name).touch()
    assert not command("ls | xargs cat", files=LocalFiles(), scope=(str(app),)).permits
    assert command("find . -type f -print0 | xargs -0 cat", files=LocalFiles(), scope=(str(app),)).permits


@pytest.mark.parametrize(
    "text",
    [
        "find . | sed s,.,/etc/x, | xargs cat",
        "ls | tr a / | xargs cat",
        "ls | awk '{print $2}' | xargs cat",
        "ls | cut -c2- | xargs cat",
        "ls | head -c 3 | xargs cat",
        "grep -rl x . | nl | xargs cat",
    ],
)
def test_names_that_were_changed_on_the_way_are_not_known(app: Path, text: str) -> None:
    assert not command(text, files=LocalFiles(), scope=(str(app),)).permits


def test_every_program_whose_output_is_known_has_a_table() -> None:
    for name in PRINTS:
        first, _, sub = name.partition(" ")
        program = known_program(first)
        assert program is not None, name
        assert not sub or sub in program.sub, name
