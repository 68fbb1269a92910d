"""Names that come to stand for another place, or for nothing, while a script runs."""

from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from tests.policy.judging import command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an empty folder and two links, beside a folder that is not its own."""
    root = tmp_path / "app"
    for folder in ("src/deep", "docs", ".claude"):
        (root / folder).mkdir(parents=True)
    for name in ("README.md", "src/app.py", "src/deep/a.py", ".claude/settings.local.json"):
        (root / name).touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "key").touch()
    (root / "src" / "up").symlink_to("..")
    (root / "l").symlink_to("d/..")
    return root


def permits(text: str, project: Path) -> bool:
    return command(text, files=LocalFiles(str(project.parent)), scope=(str(project),)).permits


WAYS = ["cat {}/other/key", "echo x > {}/other/new", "rm -rf {}/other", "cp -r {}/other .", "ls {}/other"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "made",
    [
        "ln -s d/.. m; ln -s . d",
        "ln -s $PWD/d/.. m; ln -s . d",
        "mkdir d; ln -s d/.. m; rmdir d; ln -s . d",
        "ln -s docs/.. m; mv docs e; ln -s . docs",
        "ln -s src/sub/../.. m; ln -s . src/sub",
        "ln -s x m; ln -s d/.. x; ln -s . d",
        "ln src/up m",
        "ln -P src/up m",
        "link src/up m",
        "ln -t . src/up; ln up m",
        "find src -type l -exec ln {{}} m \\;",
        "echo src/up m | xargs ln",
        "ln -s .. src/new && ln src/new m",
    ],
)
def test_a_link_leads_where_its_target_leads_when_it_is_used(made: str, way: str, project: Path) -> None:
    assert not permits(f"{made.format()}; {way.format('m')}", project)


@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_was_there_may_lead_through_one_that_is_made(way: str, project: Path) -> None:
    assert not permits(f"ln -s . d; {way.format('l')}", project)


@pytest.mark.parametrize(
    "move",
    [
        "(cd ../..; mv src/deep b)",
        "(cd ..; mv deep ../b)",
        "x=$(cd ../..; mv src/deep b)",
        ": $(cd ../..; mv src/deep b)",
        "(cd ../..; mv src/d* b)",
        "(cd ../..; git mv src/deep b)",
        "f() (cd ../..; mv src/deep b); f",
        "{ cd ../..; mv src/deep b; } | cat",
        "(cd ../..; mv src b)",
    ],
)
def test_nobody_stands_in_a_directory_that_was_moved(move: str, project: Path) -> None:
    assert not permits(f"cd src/deep && {move}; cat ../../other/key", project)
    assert not permits(f"cd src/deep && {move}; cat ../../README.md", project)


def test_a_directory_that_is_made_anew_may_be_entered(project: Path) -> None:
    assert permits("rm -rf build && mkdir build && cd build && cmake .. && make && cat ../README.md", project)


@pytest.mark.parametrize(
    "text",
    [
        'cat "$(ls docs)/etc/passwd"',
        'cat "$(ls docs | head -1)/etc/passwd"',
        'cat "$(find docs -type f)"/etc/passwd',
        'f=$(grep -rl none src); cp "$f/etc/passwd" got',
        'f() { cat "$1/etc/passwd"; }; f "$(ls docs)"',
        'for f in "$(ls docs)"; do cat "$f/etc/passwd"; done',
        "ls docs | xargs sh -c 'cat \"$1/etc/passwd\"' _",
    ],
)
def test_names_that_are_listed_may_be_none(text: str, project: Path) -> None:
    assert not permits(text, project)


@pytest.mark.parametrize(
    "text",
    [
        'for f in src/*; do cat "$f/x"; done',
        "find src -type d -exec sh -c 'ls \"$1/x\"' _ {} \\;",
        'cat "$(ls src)"',
        "ln -s src/app.py app.py && cat app.py",
        "ln src/app.py app.py && cat app.py",
    ],
)
def test_everyday_forms_of_the_same_stay_permitted(text: str, project: Path) -> None:
    assert permits(text, project)


@pytest.mark.parametrize(
    "run",
    [
        "-exec env -C .. cat {} \\;",
        "-exec sh -c 'cd ..; cat \"$1\"' _ {} \\;",
        "-exec bash -c 'cd ..; cat \"$@\"' _ {} +",
        "-exec git -C .. rm -fq {} \\;",
    ],
)
def test_what_find_finds_is_named_from_where_it_looks(run: str, project: Path) -> None:
    assert not permits(f"cd src; find .. -name key {run}", project)
    assert not permits(f"cd src; find . -name README.md {run}", project)


@pytest.mark.parametrize(
    "text",
    [
        "trap 'cat ../other/key' EXIT; (cat() { :; })",
        "trap 'cat ../other/key' EXIT; false && cat() { :; }",
        "trap 'cat ../other/key' EXIT; cat() { :; }; unset -f cat",
        "trap 'cat ../other/key' EXIT; [ -f none ] || exit; cat() { :; }",
        "cat() { :; }; trap 'cat ../other/key' EXIT; unset -f cat",
        "g() { cat ../other/key; }; trap g EXIT; [ -f none ] || exit; g() { :; }",
        "trap 'cd ..; cat other/key' EXIT; cd() { :; }; unset -f cd",
    ],
)
def test_a_trap_may_run_before_a_function_is_there_or_when_it_is_gone(text: str, project: Path) -> None:
    assert not permits(text, project)


def test_a_trap_may_run_a_function(project: Path) -> None:
    assert permits("cleanup() { rm -f out.tmp; }; trap cleanup EXIT; touch out.tmp", project)


@pytest.mark.parametrize(
    "text",
    [
        "set --; cat ${1-../other/key}",
        "set --; ${1-cat ../other/key}",
        "set -- a; shift; rm -rf ${1-../other}",
        "set --; echo y > ${1-../other/new}",
        'f() { local x=${1-../other/key}; cat "$x"; }; f',
        "bash -c 'cat ${1-../other/key}' x",
        "set -- a; cat ${1+../other/key}",
        "find src -name a.py -exec sh -c 'cat \"${2-../other/key}\"' _ {} \\;",
        "GROUPS=src; cd $GROUPS; cat ../other/key",
        "f() { cd src; }\nf $((v))\ncat ../other/key",
        "w='a[$(cat ../other/key)]' let w",
        "w='a[$(cat ../other/key)]'; let w",
    ],
)
def test_what_a_parameter_stands_for_is_not_lost(text: str, project: Path) -> None:
    assert not permits(text, project)


def test_a_parameter_that_is_set_keeps_its_value(project: Path) -> None:
    assert permits("set -- README.md; cat ${1-../other/key} ${1:-../other/key}", project)
    assert permits("set -- ''; cat README.md ${1-../other/key}", project)


@pytest.mark.parametrize("text", ["cat $!", "sed $! 'w ../other/new' README.md", "trap 'cat $! README.md' EXIT"])
def test_the_last_job_may_be_none(text: str, project: Path) -> None:
    assert not permits(text, project)
