"""Git: what a sub command does is the same whatever stands between it and the name of the program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.policy.files import SeenFiles
from remit.policy.shell.programs import Program, known_program
from tests.policy.judging import command, touched

# Options of git itself that change neither the repository nor what is done.
HARMLESS = ["--no-pager", "-P -C .", "--literal-pathspecs", "--namespace x", "--namespace=x -C src -C .."]
REFUSED = [
    "-c core.pager=x", "-calias.x=!id", "--git-dir=x", "--git-dir x", "--exec-path=x", "--config-env=a=b", "-p",
    "--paginate", "--work-tree=..", "--work-tree ..", "-C ..", "-C /", "-C $X", "--unheard-of", "--git-di=x",
]  # fmt: skip
WORDS = ["", "-- ../x", "-s x -m y", "https://example.org/x"]


def subcommands() -> list[Program]:
    git = known_program("git")
    assert git is not None
    return list(git.sub.values())


def leaves(program: Program) -> Iterator[Program]:
    if not program.sub:
        yield program
    for sub in program.sub.values():
        yield from leaves(sub)


@pytest.mark.parametrize("options", HARMLESS)
def test_an_option_of_git_itself_hides_nothing_of_a_sub_command(options: str) -> None:
    for sub in {leaf.name for program in subcommands() for leaf in leaves(program)}:
        name = sub.removeprefix("git ")
        for words in WORDS:
            plain, given = command(f"git {name} {words}"), command(f"git {options} {name} {words}")
            assert touched(plain) <= touched(given), (options, name, words)
            assert {doubt.reason for doubt in plain.action.doubts} <= {doubt.reason for doubt in given.action.doubts}
            assert plain.action.side_effects <= given.action.side_effects | {"none"}
            assert plain.action.runs_code <= given.action.runs_code


@pytest.mark.parametrize("options", REFUSED)
def test_an_option_that_takes_another_repository_or_runs_something_refuses_every_sub_command(options: str) -> None:
    for program in subcommands():
        name = program.name.removeprefix("git ")
        assert not command(f"git {options} {name}").permits, (options, name)


@pytest.mark.parametrize("options", ["", *HARMLESS])
@pytest.mark.parametrize(
    "text",
    [
        "tag -s v1 -m x", "tag --sign v1 -m x", "tag -u me -m x v1", "commit -S -m x", "commit -Sme -m x",
        "commit --gpg-sign=me -m x", "merge -S x", "rebase --gpg-sign x", "cherry-pick -S x", "tag -v v1",
        "verify-commit HEAD", "verify-tag v1", "log --show-signature", "am -S x.patch", "commit-tree -S x -m y",
    ],
)  # fmt: skip
def test_signing_reaches_the_keys_at_home(tmp_path: Path, options: str, text: str) -> None:
    files = SeenFiles(home=str(tmp_path))
    decision = command(f"git {options} {text}", files=files)
    assert f"write {tmp_path}/.gnupg" in touched(decision)
    assert decision.code == "out_of_scope"


@pytest.mark.parametrize("text", ["tag v1", "tag -m x v1", "commit -m x", "commit -s -m x", "merge x", "log -S x"])
def test_what_is_not_signed_stays_in_the_repository(tmp_path: Path, text: str) -> None:
    assert command(f"git {text}", files=SeenFiles(home=str(tmp_path))).permits


@pytest.mark.parametrize("name", ["../x", "../../x", "/etc/x", "a/b", "$X", "..", "x/"])
def test_a_file_of_patterns_in_every_directory_is_a_name(name: str) -> None:
    for text in (f"--exclude-per-directory={name}", f"--exclude-per-directory {name}", f"--exclude-per-dir={name}"):
        assert not command(f"git ls-files -o {text}").permits, text


def test_a_usual_file_of_patterns_in_every_directory_is_fine() -> None:
    assert command("git ls-files -o --exclude-per-directory=.gitignore").permits
