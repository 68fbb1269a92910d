"""Tools that keep one shell for many calls: nothing that a call leaves behind changes what later calls mean."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from remit.policy.files import LocalFiles, TextFiles
from remit.policy.lasting import lasting_changes, leaves_at_once
from tests.policy.judging import BASE, doubted, judged, mission

pytestmark = pytest.mark.slow

BASH: Final = shutil.which("bash")
# What leaves something behind, in one line each.
LASTING: Final = (
    "git() { :; }", "function git { :; }", "alias git=x", "hash -p /bin/true git", "enable -n test", "trap : DEBUG",
    "trap : ERR", "trap 'echo bye' EXIT", "set -u", "set -f", "set -o noclobber", "set -- a b", "shopt -s nullglob",
    "shopt -u sourcepath", "PATH=/x:$PATH", "export PATH=/x:$PATH", "OLDPWD=/x", "declare -n r=y", "readonly q=1",
    "declare -i n=1", "typeset -u u=a", "x=(a b)", "x[1]=b", "cd sub", "cd", "pushd sub",
    "cd -P sub", "command cd sub", "builtin cd sub", "exec 5>/dev/null", "exec 5</dev/null", ": {fd}>/dev/null",
    "printf -v OLDPWD x", "read OLDPWD <<< x", "read -a y <<< 'a b'", ": ${CDPATH:=/}",
    ": $((OPTIND = 3))", "((OPTIND = 3))", "let OPTIND=3", "for OPTIND in 3; do :; done", "unset RANDOM",
    "eval 'git() { :; }'",
    "eval 'cd sub'", "source ./defs.sh", ". ./defs.sh", "mapfile m < defs.sh", "readarray m < defs.sh",
    "getopts a OPTARG -a", "x=alias; $x git=y", "CDPATH=/", "export CDPATH=/", "IFS=:", "unset PATH", "HOME=/x",
)  # fmt: skip
HARMLESS: Final = (
    "ls", "x=1", "export FOO=bar", "export FOO=$(date)", "set -e", "set -eo pipefail", "set -x", "echo a; ls",
    "shopt -q extglob",
    "trap -p", "alias -p", "hash -r", "declare -p x", "unset x", "read line < defs.sh", "printf -v x %s y", "[ -f a ]",
    "[[ -f a ]]", "for i in 1 2; do echo $i; done", "x=1 ls", "echo ${x:=1}", ": $((y = 1))",
    "command ls",
)  # fmt: skip
# Seen only by what is assigned later.
UNSEEN: Final = ("unset RANDOM",)
KEPT: Final = (
    "{}", "{{ {}\n}}", "if true; then {}\nfi", "if false; then :; else {}\nfi", "true && {}", "false || {}", "{}; true",
    "for i in 1; do {}\ndone", "case a in a) {}\n;; esac", "while true; do {}\nbreak; done", "! {}",
    "{{ {}\n}} 2>/dev/null",
)  # fmt: skip
ISOLATED: Final = ("( {}\n)", "{{ {}\n}} | cat", ": | {{ {}\n}}", "echo $( {}\n)", "{{ {}\n}} & wait", "cat <( {}\n)")
# What a shell says of everything that gives later words a meaning.
STATE: Final = """{ declare -f; alias; trap -p; shopt; enable -n; hash -t git; pwd; echo /proc/$$/fd/*; set -o
echo "$#:$*:$PATH:$HOME:$IFS:$CDPATH:$OLDPWD:$OPTIND:$OPTARG:${RANDOM//[0-9]/}"; declare -p; } 2>/dev/null
"""
# Of ordinary variables only the properties count, and of these names nothing: they change with every command.
VARIABLE: Final = re.compile(r"declare (-\S+) (\w+)(?:=.*)?\Z")
MOVING: Final = re.compile(
    r"_|BASH_\w*|PIPESTATUS|FUNCNAME|EPOCH\w*|LINENO|RANDOM|SRANDOM|SECONDS|REPLY|SHELLOPTS|BASHOPTS"
)
SETTINGS: Final = ("errexit", "pipefail", "xtrace", "verbose")


def changes(text: str, base: str | None = BASE) -> dict[str, str]:
    return lasting_changes(text, base, TextFiles(), posix=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder that a shell can be started in."""
    made = tmp_path_factory.mktemp("kept")
    (made / "sub").mkdir()
    (made / "defs.sh").write_text("git() { :; }\n", encoding="utf-8")
    return made.resolve()


def properties(state: str) -> list[str]:
    """Return the lines of a state that count."""
    found: list[str] = []
    for line in state.splitlines():
        variable = VARIABLE.match(line)
        if variable is None:
            found.extend([line] if not line.startswith(SETTINGS) else [])
        elif variable[1] not in ("--", "-x") and not MOVING.fullmatch(variable[2]):
            found.append(f"{variable[1]} {variable[2]}")
    return found


def is_changed(text: str, folder: Path) -> bool:
    """Return whether running a script changes the state of the bash process."""
    mark = "@@STATE@@"
    script = f"{STATE}echo {mark}\n{text}\n{{ set +e +x; echo {mark}; }} 2>/dev/null\n{STATE}echo {mark}\n"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "sub")}
    assert BASH is not None
    call = [BASH, "--noprofile", "--norc"]
    done = subprocess.run(call, input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    parts = done.stdout.split(f"{mark}\n")
    # A shell that has ended, or has something to do at its end, is another.
    return (
        len(parts) != len(("before", "output", "after", ""))
        or parts[3] != ""
        or (properties(parts[0]) != properties(parts[2]))
    )


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
@pytest.mark.parametrize("text", [*LASTING, *HARMLESS])
def test_whatever_bash_keeps_after_a_script_is_found(text: str, folder: Path) -> None:
    wrapped = [form.format(text) for form in (*KEPT[:2], *ISOLATED[:2])]
    kept = [each for each in wrapped if is_changed(each, folder)]
    assert [each for each in kept if not lasting_changes(each, str(folder), LocalFiles(), posix=False)] == []
    # The lists are right about what lasts.
    assert bool(kept) == (text in LASTING) or text in UNSEEN


@pytest.mark.parametrize("text", LASTING)
def test_what_outlives_a_call_is_found_wherever_it_stands(text: str) -> None:
    assert [form for form in KEPT if not changes(form.format(text))] == []


@pytest.mark.parametrize("text", [*LASTING, *HARMLESS])
def test_what_ends_with_a_shell_of_its_own_leaves_nothing_behind(text: str) -> None:
    assert [form for form in ISOLATED if changes(form.format(text))] == []


@pytest.mark.parametrize("text", HARMLESS)
def test_everyday_commands_leave_nothing_behind(text: str) -> None:
    assert [form for form in KEPT if changes(form.format(text))] == []


def test_a_script_that_cannot_be_read_is_for_others_to_refuse() -> None:
    assert changes("coproc cat") == {}
    assert judged("bash", {"command": "coproc cat"}).code == "shell_unparsed"


@pytest.mark.parametrize(("text", "stays"), [
    ("cd /work/app && ls", True), ("cd . && ls", True), ("cd src/.. && ls", True), ("cd -- /work/app", True),
    ("cd src && ls", False), ("cd ..", False), ("cd -", False), ("cd", False), ("cd ~", False), ("cd $PWD", False),
    ("cd /work/app src", False),
])  # fmt: skip
def test_a_kept_shell_may_only_go_to_where_calls_are_judged_from(text: str, stays: bool) -> None:
    assert (changes(text) == {}) == stays
    assert changes(text, None) != {}


def test_a_directory_below_would_make_later_names_mean_guarded_files() -> None:
    assert judged("bash", {"command": "echo x > config"}).permits
    assert doubted(judged("bash", {"command": "cd .git"})) == {"cd"}
    assert judged("bash", {"command": "( cd src && ls )"}).permits


@pytest.mark.parametrize("tool", ["bash", "execute_bash", "run_in_terminal", "execute_command", "mcp__tmux__run"])
def test_a_tool_that_keeps_its_shell_may_not_redefine_a_command(tool: str) -> None:
    decision = judged(tool, {"command": "git() { cat a; }"})
    assert decision.code == "target_unknown"
    assert "in `( … )` in one call" in decision.reason
    assert judged(tool, {"command": "( git() { cat a; }; git )"}).permits


@pytest.mark.parametrize("tool", ["Bash", "exec_command", "run_shell_command", "shell"])
def test_a_tool_that_starts_a_new_shell_may_define_what_it_likes(tool: str) -> None:
    assert judged(tool, {"command": "f() { ls; }; f; cd src"}).permits


@pytest.mark.parametrize("name", ["sessionId", "shellId", "session_id"])
def test_a_call_that_names_a_shell_which_runs_is_one_of_many(name: str) -> None:
    assert judged("Bash", {"command": "cd src", name: ""}).permits
    assert doubted(judged("Bash", {"command": "cd src", name: "1"})) == {"cd"}


def test_everything_in_scope_does_not_let_a_definition_hide_what_is_forbidden() -> None:
    under = mission(resource_scope=("**",), forbidden_tools=("bash(git push)",))
    assert judged("bash", {"command": "git status"}, under=under).permits
    assert judged("bash", {"command": "git() { :; }"}, under=under).code == "tool_forbidden"


@pytest.mark.parametrize(("text", "leaves"), [
    ("cd /work/app && ls", True), ("cd '/work/app' && ls | wc -l && make", True), ("cd -- /work/app && ls", True),
    ("cd /work/app", True), ("cd /work/app; ls", False), ("cd /work/app || ls", False),
    ("cd /work/app && a || b", False),
    ("cd app && ls", False), ("cd /work/$x && ls", False), ("cd /work/app > log && ls", False),
    ("X=1 cd /a && ls", False),
    ("cd /work/app && ls\nmake", False), ("cd /work/* && ls", False), ("cd /a /b && ls", False), ("cd /a && (", False),
    ("cd /work/app | cat && ls", False), ("ls", False),
])  # fmt: skip
def test_a_script_that_enters_a_directory_first_does_nothing_where_it_starts(text: str, leaves: bool) -> None:
    assert leaves_at_once(text, posix=False) == leaves


def test_a_command_that_leaves_at_once_does_not_use_the_directory_it_starts_in() -> None:
    under = mission()
    assert judged("Bash", {"command": "cd /work/app && cat a"}, under=under, cwd="/work").permits
    assert judged("Bash", {"command": "cd /work/app; cat a"}, under=under, cwd="/work").code == "out_of_scope"
    assert judged("Bash", {"command": "cat /work/app/a"}, under=under, cwd="/work").code == "out_of_scope"
    assert judged("Bash", {"command": "cd /work/app && cat a"}, under=under, cwd="$X").code == "target_unknown"
