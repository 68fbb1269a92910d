"""Builtins of bash: what they touch, and what they leave unknown."""

import pytest

from remit.policy.shell.evaluate.builtins import BUILTINS
from tests.policy.judging import command, doubted, touched


@pytest.mark.parametrize(
    "text",
    [
        ":",
        "true",
        "false",
        "echo /etc/passwd",
        "printf '%s\\n' /etc/passwd",
        "pwd",
        "type ls",
        "command -v ls",
        "wait",
        "jobs",
        "umask 077",
        "ulimit -n 4096",
        "dirs",
        "hash -r",
        "history",
        "alias",
        "trap",
        "trap - INT",
        "set -x",
        "set +x",
        "set -euo pipefail",
        "set --",
        "shopt -s dotglob globstar",
        "unset x",
        "unset -f f",
        "export x",
        "export x=1",
        "local x=1",
        "readonly x=1",
        "read -r x",
        "read -p prompt x y",
        "IFS= read -r x",
        "mapfile -t lines",
        "getopts ab x",
        "let x=1+2",
        "shift",
        '[ -n "$x" ]',
        "[ a = b ]",
        "test 1 -eq 2",
        "[[ $x == y* ]]",
        "[[ 1 -lt 2 ]]",
        "eval",
        "eval true",
        "exec",
        "exec 2>&1",
        "builtin echo a",
    ],
)
def test_a_builtin_that_touches_nothing_is_permitted(text: str) -> None:
    decision = command(text)
    assert decision.permits
    assert {effect for effect in touched(decision) if not effect.startswith("setenv")} == set()


@pytest.mark.parametrize(
    "text",
    [
        "[ -f /etc/passwd ]",
        "test -e /etc/passwd",
        "[ a -nt /etc/passwd ]",
        "[ /etc/passwd -ef a ]",
        "[ -n x -a -r /etc/passwd ]",
        "[[ -d /etc || -n x ]]",
        "! [ -s /etc/passwd ]",
        ". /etc/profile",
        "source /etc/profile",
        "pushd /etc",
        "cd /etc",
        "cd -- /etc",
        "cd -L /etc",
        "exec cat /etc/passwd",
        "command -p cat /etc/passwd",
        "builtin cd /etc",
        "eval 'cat' '/etc/passwd'",
        "trap 'rm /etc/x' INT TERM",
        "trap -- 'rm /etc/x' EXIT",
    ],
)
def test_a_builtin_that_looks_outside_is_denied(text: str) -> None:
    assert command(text).code == "out_of_scope"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("cd", "cd"),
        ("cd a b", "a"),
        ("cd -x", "-x"),
        ("cd ~", "~"),
        ("source", "source"),
        (". $x", "$x"),
        ("source x.sh", "x.sh"),
        ("source /dev/stdin", "/dev/stdin"),
        ("eval $x", "eval"),
        ('eval "cat $x"', "eval"),
        ("exec -a name ls", "-a"),
        ("exec $x", "$x"),
        ("alias ls=rm", "ls=rm"),
        ("enable -n cd", "-n"),
        ("bind x", "x"),
        ("complete -C x y", "-C"),
        ("fc -s", "-s"),
        ("history -r x", "-r"),
        ("hash -p /x ls", "-p"),
        ("trap 'ls' DEBUG", "'ls'"),
        ("trap 'ls' ERR", "'ls'"),
        ('trap "$x" EXIT', '"$x"'),
        ("set -k", "-k"),
        ("set -o posix", "posix"),
        ("set $x", "$x"),
        ("set a", "a"),
        ("shopt -s extglob", "extglob"),
        ("shopt -s expand_aliases", "expand_aliases"),
        ("export $x", "$x"),
        ("export PATH=/x", "PATH=/x"),
        ("declare -n r=x", "declare"),
        ("declare -i n=x", "declare"),
        ("unset $x", "$x"),
        ("unset 'a[$(ls)]'", "'a[$(ls)]'"),
        ("read $x", "$x"),
        ("read PATH", "PATH"),
        ("read 'a[x]'", "'a[x]'"),
        ("mapfile -C cb x", "-C"),
        ("printf -v PATH x", "PATH"),
        ("printf -v 'a[x]' y", "'a[x]'"),
        ("let 'x=a[$(ls)]'", "'x=a[$(ls)]'"),
        ("let x=$y", "x=$y"),
        ("[ $x ]", "$x"),
        ("[ -v 'a[$(ls)]' ]", "'a[$(ls)]'"),
        ("[[ $x -eq 1 ]]", "$x"),
        ("[[ -v $x ]]", "$x"),
        ("test -f $x", "$x"),
    ],
)
def test_a_builtin_whose_words_matter_and_are_not_known_is_a_doubt(text: str, word: str) -> None:
    decision = command(text)
    assert decision.code == "target_unknown"
    assert word in doubted(decision)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ('read x; cat "$x"', False),
        ('mapfile x; cat "$x"', False),
        ('getopts a x; cat "$x"', False),
        ('printf -v x a; cat "$x"', False),
        ('unset x; cat "$x"', False),
        ("x=a; source ./y; cat $x", False),
        ("export x=a; cat $x", True),
        ("declare x=a; cat $x", True),
        ("let x=1; cat $x", True),
        ("set -- a; cat $1", True),
        ("set -- b a; shift; cat $1", True),
        ("cat $(pwd)/a", True),
        ("cat $(echo a)", True),
        ("cat $(printf %s a)", True),
        ("cat $(printf '%s\\n' a b)", True),
        ("cat $(printf '%d' 1)", False),
        ("cat $(echo -n a)", False),
    ],
)
def test_what_a_builtin_leaves_behind_is_known_only_where_it_is_certain(text: str, known: bool) -> None:
    assert command(text).permits == known


def test_after_going_back_the_place_is_not_known() -> None:
    assert command("pushd src; popd; cat a").code == "target_unknown"
    assert command("popd; cat a").code == "target_unknown"
    assert command("pushd; cat a").code == "target_unknown"


def test_a_function_that_was_unset_is_gone() -> None:
    assert command("f() { cat a; }; f; unset -f f").permits
    assert command("f() { cat a; }; unset -f f; f").code == "target_unknown"


def test_a_function_hides_a_builtin_unless_it_is_asked_for() -> None:
    assert command("cd() { :; }; cd /etc").permits
    assert command("cd() { :; }; builtin cd /etc").code == "out_of_scope"
    assert command("cat() { :; }; command cat /etc/passwd").code == "out_of_scope"


def test_ending_a_process_changes_state() -> None:
    assert command("kill -9 1").action.side_effects == {"state_change"}


def test_sourced_code_is_code_of_the_project() -> None:
    decision = command(". ./x.sh")
    assert decision.permits
    assert decision.action.runs_code


def test_builtins_that_are_no_programs_are_not_run_by_programs() -> None:
    assert command("env cd /").code == "target_unknown"
    assert command("env echo a").permits
    assert command("echo a | xargs eval").code == "target_unknown"


@pytest.mark.parametrize(
    "name", ["cd", ".", "eval", "exec", "trap", "set", "export", "[", "[[", "read", "exit", "unset"]
)
def test_the_builtins_that_change_things_are_known(name: str) -> None:
    assert name in BUILTINS
