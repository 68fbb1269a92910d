"""Commands that zsh runs: whatever it reads in another way than bash is doubted, and everything else is read alike."""

import random
from pathlib import Path

import pytest

from remit.policy.shell.parse.zsh import zsh_differences
from tests.policy.judging import action, doubted
from tests.policy.shell.oracle import Ran, Reading, Shell, find_missed, find_shell, make_tree, read_script
from tests.policy.shell.scripts import Script, build_script, mutate

pytestmark = pytest.mark.slow

ZSH = find_shell("zsh")
BATCHES = 4
SCRIPTS = 400


@pytest.mark.parametrize(
    "text",
    [
        "a=(x y); cat ${a[1]}", "a=(x y); cat $a", "x=ab; cat $x[1]", 'cat "$x[1]"', "cat $x:h", "cat ${x:h}",
        "cat ${x:#a}", "cat ${x::=a}", "cat ${!x}", "cat ${x^^}", "cat $#x", "cat $=x", "cat $~x", "cat ${x#(a|b)}",
        "p=a; cat ${x#$p}", "x='a b'; cat $x", "x='*'; cat $x", "y='a b'; x=$y; cat $x", "export x='a b'; cat $x",
        "for x in 'a b'; do cat $x; done", "read x <<< 'a b'; cat $x", "cat ${x:-a b}", "f() { cat $1; }; f 'a b'",
        "set -- 'a b'; cat $1", "path=(/x)", "for path in a; do :; done", "IFS=:", "NULLCMD=rm", "TRAPEXIT() { :; }",
        "chpwd() { cat a; }; cd b", "echo a | read x; cat $x", "echo a | while read x; do :; done; cat $x", "ls | cd a",
        "ls | { f() { :; }; }", "cd a && make & cat b", "f() { echo } && { cat a; }\n}", "cat a >! b", "cat <1-3>a",
        "cat =ls", "cat **/a", "cat v=~", "cat ~$x", 'cat $"a"', "cat {a,$x}", "cat {1..$n}",
        "cat $((010))", "cd a b", "cd +1", "pushd a", "trap : EXIT", "shopt -s nullglob", "set -f",
        "read -p x", "declare -A x", "eval 'ls *.a; cd b'", "eval $x", "eval 'cat ${a[1]}'", "- cat a", "1= cat a",
        "noglob cat a", "repeat 2 cat a", "cat 2&>b", "echo '\\056' | xargs cat",
    ],
)  # fmt: skip
def test_what_zsh_reads_in_another_way_is_told(text: str) -> None:
    assert zsh_differences(text)


@pytest.mark.parametrize(
    "text",
    [
        "cat a", "cat *.py", "for f in *.py; do cat $f; done", "x=a; cat $x/b ${x}c", 'cat "$x" "${x%/*}"',
        "cat ${x:-a}", 'a=(x "y z"); cat "${a[@]}"', 'while IFS= read -r x; do cat "$x"; done < a', "cd src && ls",
        "export PATH=/x:$PATH", "ls | while read f; do echo $f; done", "find . -name '*.py' | xargs wc -l",
        "cmd 2>&1 | tail -5", "make &> a &", "set -euo pipefail", "grep -v '^--$' a", 'grep "a$" b', "echo 'a\\nb'",
        "echo $((1 + 2)) {1..3} {a,b}c", "cat <<E\n$x\nE",
        "git commit -m \"$(cat <<'E'\na\nE\n)\"", "f() { cat a; }; f",
        "git show HEAD^ HEAD~2", "[ -f a ] && [[ $x == a* ]]", 'x=$(date); echo "$x"', "cat a || exit 1",
        "if [ -d a ]; then ls; fi", "case $x in a|b) ls;; esac", "sleep 1 & wait",
    ],
)  # fmt: skip
def test_what_both_read_alike_is_not_told(text: str) -> None:
    assert zsh_differences(text) == {}


def test_a_command_is_doubted_only_where_zsh_runs_it() -> None:
    text = {"command": "a=(/etc/x README.md); cat ${a[1]}"}
    assert not doubted(action("Bash", text))
    assert doubted(action("Bash", text, shell="zsh")) == {"${a[1]}"}


@pytest.mark.skipif(ZSH is None, reason="zsh is not installed")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_zsh_runs_nothing_else_than_what_is_seen(tmp_path: Path, batch: int) -> None:
    assert ZSH is not None
    folder = make_tree(tmp_path)
    scripts = [build_script(batch * SCRIPTS + number, posix=False) for number in range(SCRIPTS)]
    if batch % 2:
        scripts = [mutate(script, random.Random(script.seed)) for script in scripts]
    alike = [script for script in scripts if not zsh_differences(script.text) and not _reading(script, folder).refused]
    missed = [
        (script.text, found)
        for script, ran in zip(alike, ZSH.run(alike, folder), strict=True)
        if find_missed(_reading(script, folder), ran, by_name=False) is not None
        and (found := _missed_alone(ZSH, script, folder)) is not None
    ]
    assert missed == []
    assert len(alike) > SCRIPTS // 10


def _reading(script: Script, folder: str) -> Reading:
    return read_script(script.text, folder, posix=False)


def _missed_alone(shell: Shell, script: Script, folder: str) -> tuple[str, Ran] | None:
    return find_missed(_reading(script, folder), shell.run_alone(script, folder), by_name=False)
