"""The flow of scripts against real bash: commands that do not run, run late, or fail after they have done their work.

A generated script has something that interferes (a closed descriptor, a signal, a directory that is removed), a command
that keeps the rest in the project as long as nothing interferes with it, and a command that leaves the project
otherwise. None that is permitted may touch what lies outside.
"""

import random
import shlex
from pathlib import Path
from typing import Final

import pytest

from remit.policy.files import LocalFiles
from tests.policy.judging import command
from tests.policy.shell.confinement import is_available
from tests.policy.shell.oracle import find_shell
from tests.policy.shell.touching import FileOracle, FileScript, is_contained

pytestmark = pytest.mark.slow

BASH: Final = find_shell("bash")
NEEDS_CONFINEMENT: Final = pytest.mark.skipif(
    BASH is None or not is_available(), reason="needs bash, and Landlock to keep scripts from changing other files"
)
COUNT: Final = 1000
# Of the scripts, so many really leave the project when they run: what interferes does so.
LEAVING: Final = 200

# Where a redirection goes there is `{r}`. Each keeps the command after it in the project.
_KEEPS: Final = (
    ("cd inner{r}", "touch ../outside/key.txt"),
    ("pushd inner{r}", "touch ../outside/key.txt"),
    ("exit{r}", "touch ../outside/key.txt"),
    ("export f=inner/{r}", "touch ${{f}}../outside/key.txt"),
    ("f=inner/{r}", "touch ${{f}}../outside/key.txt"),
    ("f=../outside/key.txt; export f=note.txt{r}", "touch $f"),
    ("set -- ../outside/key.txt; set -- note.txt{r}", "touch $1"),
    ("set -- inner/{r}", "touch ${{1}}../outside/key.txt"),
    ("eval 'cd inner'{r}", "touch ../outside/key.txt"),
    ("{{ cd inner; }}{r}", "touch ../outside/key.txt"),
    ("if :; then cd inner; fi{r}", "touch ../outside/key.txt"),
    ("g() {{ cd inner; }}; g{r}", "touch ../outside/key.txt"),
    ("g() {{ ls; cd inner; }}; g{r}", "touch ../outside/key.txt"),
    ("g() {{ cd inner; }}{r}; g", "touch ../outside/key.txt"),
    ("touch() {{ :; }}; :{r}", "touch ../outside/key.txt"),
    ("cd inner; cd -{r}", "touch inner/../outside/key.txt"),
    ("cd inner{r} && exit", "touch ../../outside/key.txt"),
    ("cd inner/deep; cd -{r} && exit", "touch ../outside/key.txt"),
    ("cd inner{r}", "touch $PWD/../outside/key.txt"),
    ("g() {{ local PWD; cd inner; }}; g{r}", "touch $PWD/../outside/key.txt"),
    ("set -e; cd none{r}", "touch ../outside/key.txt"),
    ("cat note.txt{r}", "cat l"),
)
_REDIRECTS: Final = (
    "", "", "", "", " 2>/dev/null", " >/dev/null 2>&1", " 2>&1", " >&2", " <&0", " 3<&0", " 99999>&1", " <&3",
    " > inner", " < none", " >&-", " >&- 2>&1", " <<< x", " 99999<<< x", " 2> made", " {{v}}<note.txt",
)  # fmt: skip
_INTERFERES: Final = (
    "", "", "ls", "exec 0<&-", "exec <&-", "exec 1>&-", "exec >&-", "exec 2>&-", "command exec 1>&-",
    "{{ exec 0<&-; }} 2>/dev/null", "readonly PWD", "readonly OLDPWD", "declare -r PWD", "rm -rf inner",
    "rm -r inner/*",
    "find inner -delete", "find inner -name deep -delete", "find inner -exec rm -rf {{}} +", "mv inner in2",
    "find inner -prune -exec mv {{}} in2 \\;", "find inner | xargs rm -rf", "x=$(find inner -delete)",
    "rm -rf inner & wait", "env rm -rf inner", "sh -c 'rm -rf inner'", "cp note.txt inner", "touch inner",
    "trap 'f=' CHLD; ls", "trap 'f+=none/../' CHLD; ls", "trap 'unset f' CHLD; ls", "trap 'exit() {{ :; }}' CHLD; ls",
    "trap 'cd() {{ :; }}' CHLD; ls", "trap 'unset -f touch' CHLD; touch() {{ :; }}; ls", "trap 'set --' CHLD; ls",
    "trap return CHLD", "trap 'set +e' CHLD", "trap 'exec <&-' CHLD; ls", "trap 'ls' CHLD; ls", "trap '' CHLD; ls",
    "trap 'rm -rf inner' CHLD; ls", "ln -s ../outside/key.txt l", "trap 'f=' USR1", "unset HOME",
)  # fmt: skip
# `{k}` keeps, `{u}` leaves, `{i}` interferes, `{j}` joins the two.
_ORDERS: Final = (
    "{i}; {k}{j}{u}", "{i}; {k}{j}{u}", "{i}; {k}{j}{u}", "{i}\n{k}{j}{u}", "{k}; {i}; {u}", "{k}; {i}\n{u}",
    "for n in 1 2; do ( {k}{j}{u} ); {i}; done", "while read; do ( {k}{j}{u} ); {i}; done < names",
    "{{ {k}{j}{u}; }} < <({i})", "{{ {i}; }} | ( {k}{j}{u} )", "( {k}{j}{u} ) < <({i}; echo)",
)  # fmt: skip
_WRAPS: Final = (
    "{}", "{}", "{}", "{{ {}; }} >&-", "{{ {}; }} <&-", "{{ {}; }} 2>&-", "( {} )", "w() {{ {}; }}; w",
    "w() {{ {}; }}; w <&-", "w() {{ {}; }}; w >&-", "bash -c {q}", "bash -c {q} <&-", "bash -c {q} >&-", "eval {q}",
    "if :; then {}; fi >&-",
)  # fmt: skip
_JOINTS: Final = ("; ", "; ", "\n", " && ", " || ")


def build_flow(seed: int) -> FileScript:
    """Return the script of a seed."""
    chance = random.Random(seed)
    keeps, leaves = chance.choice(_KEEPS)
    parts = {
        "k": keeps.format(r=chance.choice(_REDIRECTS).format()),
        "u": leaves.format(),
        "i": chance.choice(_INTERFERES).format(),
        "j": chance.choice(_JOINTS),
    }
    text = chance.choice(_ORDERS).format(**parts).removeprefix("; ")
    text = text.replace("; ;", ";").replace("& wait;", "& wait\n").replace("; \n", "\n").replace("( ;", "( ")
    text = chance.choice(_WRAPS).format(text, q=shlex.quote(text))
    return FileScript(text, {}) if is_contained(text) else FileScript("cat note.txt", {})


@NEEDS_CONFINEMENT
def test_a_permitted_script_stays_in_its_project_whatever_interferes(folder: Path) -> None:
    assert BASH is not None
    oracle = FileOracle(BASH.path, folder)
    escapes = oracle.check([build_flow(seed) for seed in range(COUNT)])
    if escapes:
        pytest.fail("\n\n".join(["", *map(str, escapes[:5]), f"{len(escapes)} of {COUNT} scripts"]), pytrace=False)
    assert oracle.figures["permitted"] > COUNT / 20


@NEEDS_CONFINEMENT
def test_many_of_these_scripts_leave_the_project_when_they_run(folder: Path) -> None:
    assert BASH is not None
    left = FileOracle(BASH.path, folder).run_all([build_flow(seed) for seed in range(COUNT)])
    assert sum(map(bool, left)) > LEAVING


# What bash does is told by the generated scripts; what follows is for programs that they do not run.


@pytest.fixture
def project(tmp_path: Path) -> str:
    """Return a project with a folder, beside a file that it does not cover."""
    for name in ("app/src/lib", "app/docs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "app" / "readme").touch()
    return f"{tmp_path}/app"


def permits(text: str, project: str) -> bool:
    return command(text, files=LocalFiles(f"{project}-home"), scope=(project,), cwd=project).permits


REMOVERS: Final = (
    "rmdir src", "chmod a-x src", "chmod -R 0 .", "chown nobody src", "install -d -m 000 src", "rm -rf s*",
    "mkdir -p src; chmod 0 src", "make clean", "npm test", "python tool.py", "./tool", ". ./tool",
    "git checkout main", "git -C docs checkout main", "git -C docs revert -n HEAD",
    "git sparse-checkout set docs", "git reset --hard HEAD~1",
    "git revert -n HEAD", "git cherry-pick -n HEAD", "git checkout-index -f -a", "git stash", "git rm -r src",
    "find src -exec rm -rf {} +", "find . -name src -exec rm -rf {} +", "find . -depth -exec rmdir {} \\;",
    "find src | xargs rm -rf", "find . -type d -exec chmod 0 {} +", "timeout 5 rm -rf src",
)  # fmt: skip


@pytest.mark.parametrize("text", REMOVERS)
def test_a_directory_that_a_program_may_have_removed_or_closed_may_not_be_entered(text: str, project: str) -> None:
    assert permits(f"{text}; cd src && cat ../other", project)
    assert not permits(f"{text}; cd src; cat ../other", project)
    assert not permits(f"while read; do (cd src; cat ../other); {text}; done < readme", project)
    assert not permits(f"(cd src; cat ../other) & {text}", project)
    assert not permits(f"(cd src; cat ../other) | ({text})", project)
    assert not permits(f"cat <(cd src; cat ../other) <({text})", project)
    assert not permits(f"trap {shlex.quote(text)} CHLD; ls; cd src; cat ../other", project)


@pytest.mark.parametrize(
    "text",
    [
        "git status", "git log --oneline", "git add readme", "touch src", "mkdir -p src/new", "cp readme src/",
        "mv readme src/", "rm -f src/*.o", "rm -f readme", "sed -i s/a/b/ src/x", "chmod +x src/x", "black src",
        "find src -name '*.o' -delete", "echo hi > src/x", "export PYTHONPATH=src", "grep -r x .", "ls | sort > out",
    ],
)  # fmt: skip
def test_a_directory_that_nothing_has_changed_is_entered(text: str, project: str) -> None:
    assert permits(f"{text}; cd src; cat ../other", project)


@pytest.mark.parametrize(
    "text",
    [
        "trap 'echo stopped' INT; ls",
        "trap 'rm -f out' EXIT INT TERM; ls > out",
        "trap '' INT; ls",
        "trap 'exit 1' INT; ls",
        "trap - CHLD; ls",
        "end() { code=$?; rm -f out; exit $code; }; trap end EXIT INT; ls > out",
        "end() { local code=$?; rm -f out; return $code; }; trap end INT; ls > out",
        "trap 'f=1' EXIT; ls",
    ],
)
def test_a_signal_that_changes_nothing_in_the_shell_is_permitted(text: str, project: str) -> None:
    assert permits(text, project)


@pytest.mark.parametrize(
    "text",
    [
        "f=1", "f+=1", "unset f", "read f < readme", ": ${f:=1}", "cd src", "set -- a", "shift",
        "set +e", "set -e", "ls() { :; }", "unset -f g", "return", "break", ": $((1/0))", "exec 0<&-", "export f=1",
        "g", "for f in a; do :; done", "eval f=1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("signal", ["CHLD", "SIGCHLD", "XFSZ", "PIPE", "INT", "17", "EXIT CHLD"])
def test_a_signal_that_changes_the_shell_is_a_doubt(text: str, signal: str, project: str) -> None:
    assert permits(f"g() {{ h=1; }}; trap {shlex.quote(text)} EXIT; ls", project)
    assert not permits(f"g() {{ h=1; }}; trap {shlex.quote(text)} {signal}; ls", project)


def test_a_signal_that_sets_a_trap_is_followed(project: str) -> None:
    assert permits("trap 'trap \"echo x\" CHLD' USR1; ls", project)
    assert not permits("trap 'trap \"f=1\" CHLD' USR1; ls", project)


@pytest.mark.parametrize(
    ("text", "permitted"),
    [
        ("env -C src cat ../readme", True),
        ("env -C src -C .. cat other", False),
        ("env -C src --chdir=.. cat other", False),
        ("ninja -C src -C ..", False),
        ("cargo -C src -C .. build", False),
        ("uv --directory src run --directory .. ls", False),
        ("pnpm -C src --dir .. test", False),
        ("git -C src -C .. status", True),
        ("git -C src -C .. -C .. status", False),
        ("make -C src -C ..", True),
        ("make -C src -C .. -C ..", False),
    ],
)
def test_a_directory_that_is_given_twice_adds_up_only_where_it_does(text: str, permitted: bool, project: str) -> None:
    assert permits(text, project) == permitted


@pytest.mark.parametrize("clear", ["env -i", "env -u HOME", "env -uHOME", "env --unset=HOME", "timeout 1 env -i"])
@pytest.mark.parametrize("text", ["cat ./$HOME/../other", "cd; cat ../other"])
def test_a_home_that_the_environment_lost_is_not_known(clear: str, text: str, project: str) -> None:
    for shell in ("bash", "sh"):
        assert not permits(f"{clear} {shell} -c {shlex.quote(text)}", project)
    assert not permits(f"unset HOME; {text}", project)


@pytest.mark.parametrize("shell", ["bash", "sh", "dash"])
def test_an_interactive_shell_is_a_doubt(shell: str, project: str) -> None:
    for text in (f"{shell} -i <<< ls", f"{shell} -ic ls", f"{shell} -ei -c ls", f"PS1='$(ls)' {shell}"):
        assert not permits(text, project)
    assert permits(f"{shell} -c ls", project)


@pytest.mark.parametrize(
    "text",
    [
        "cd src 2>/dev/null; cat ../other",
        "cd src >/dev/null 2>&1; cat ../other",
        "cd src >&2; cat ../other",
        "export f=src/ 2>/dev/null; cat ${f}../other",
        "exit 1 >&2; cat ../other",
        "{ cd src; } 2>&1; cat ../other",
        "cd src <<< x; cat ../other",
        "ls 2>&-; cat readme",
    ],
)
def test_an_ordinary_redirection_does_not_fail(text: str, project: str) -> None:
    assert permits(text, project)


@pytest.mark.parametrize(
    "text",
    [
        "exec >&-; trap 'cd src 2>&1; cat ../other >&2' EXIT",
        "cd src/lib; cd ..; OLDPWD=. cd -; cat ../../other",
        "g() { local PWD; cd src; }; g; cat $PWD/../other",
    ],
)
def test_what_a_trap_or_a_variable_changes_for_cd_is_seen(text: str, project: str) -> None:
    assert not permits(text, project)


@pytest.mark.parametrize("text", ["ulimit -Sn 3", "ulimit -f 0", "ulimit -t 0", "ulimit -Hc 0 -u 1"])
def test_a_limit_under_which_commands_fail_is_a_doubt(text: str, project: str) -> None:
    assert not permits(text, project)


@pytest.mark.parametrize(
    "text",
    [
        "ln -s ../other l$((2)); cat l2/key", "ln -s ../other d$$; rm d$$/key", "ln -s .. src/$RANDOM; cat src/*/other",
        "find src -name '*.py' | xargs ln -sf ../../other", "find src -type f -execdir ln -sf ../../other {} \\;",
        "find docs -maxdepth 0 | xargs ln -s ../../other",
    ],
)  # fmt: skip
def test_a_link_under_a_name_that_is_not_known_may_lead_anywhere(text: str, project: str) -> None:
    assert not permits(text, project)


@pytest.mark.parametrize("loop", ["for d in {}; do cat $d/other; done", "for d in {}; do (cd $d && cat other); done"])
@pytest.mark.parametrize("pattern", [".*", ".?", ".**", '"."*', ".[.]", "src/.*"])
@pytest.mark.parametrize("shell", ["{}", "sh -c '{}'", "dash -c '{}'"])
def test_a_loop_over_hidden_names_may_come_to_the_directory_above(
    shell: str, loop: str, pattern: str, project: str
) -> None:
    assert not permits(shell.format(loop.format(pattern)), project)


@pytest.mark.parametrize(
    "text",
    [
        "find . -name a | { read -n 1 x; while read y; do cat \"$y\"; done; }", "find src -type f | xargs -d Z cat",
        "find src -type f | xargs -d '\\132' cat", "find src -type f | while read -d Z f; do cat \"$f\"; done",
        "find src -type f | while read -n 9 f; do cat \"$f\"; done", "find src | { head -c 5 > /dev/null; xargs cat; }",
        "find src -type f | while read -N 1 x; do read y; cat \"$y\"; done",
        "find src -type f | while read -t 0 x; do cat \"$x\"; done",
    ],
)  # fmt: skip
def test_names_that_are_cut_in_pieces_are_not_known(text: str, project: str) -> None:
    assert not permits(text, project)


@pytest.mark.parametrize(
    "text",
    [
        "find src -type f | while read f; do cat \"$f\"; done", "find src -type f | xargs -d '\\n' cat",
        "find src -type f -print0 | xargs -0 cat", "sleep 1 & kill $!", "for f in .g*; do echo $f; done",
    ],
)  # fmt: skip
def test_whole_names_and_own_jobs_are_known(text: str, project: str) -> None:
    assert permits(text, project)


@pytest.mark.parametrize(
    "text",
    [
        "sleep 1 & IFS=2; kill $!", "IFS=1; sleep 1 & kill $!", "sleep 1 & p=$!; IFS=2; kill $p",
        "IFS=2; sleep 1 & kill $(jobs -p)", "TEXTDOMAIN=x TEXTDOMAINDIR=$PWD/docs bash -c 'cat $\"readme\"'",
        "TEXTDOMAINDIR=$PWD/docs\nTEXTDOMAIN=x\ncat $\"readme\"",
    ],
)  # fmt: skip
def test_values_that_are_split_or_translated_are_not_known(text: str, project: str) -> None:
    assert not permits(text, project)
