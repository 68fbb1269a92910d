"""Values that come out otherwise than they look, and the directories that wildcards list: held against a real tree.

Each script that is denied would read or list what lies beside the project when it runs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from remit.policy.decide import Decision
from remit.policy.files import LocalFiles
from tests.policy.judging import command

SECRET: Final = "../other/secret.txt"
Judge = Callable[[str], Decision]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return what judges a command line in a project with files beside it."""
    project = tmp_path / "project"
    for name in ("project/src/app.py", "project/docs/a.md", "project/README.md", "other/secret.txt", "home/.ssh/id"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (project / "link").symlink_to("../other")
    return lambda text: command(text, files=LocalFiles(str(tmp_path / "home")), scope=(str(project),), cwd=str(project))


@pytest.mark.parametrize(
    "text",
    [
        "set -- README.md {out}; v=$@; cat $v",
        'set -- README.md {out}; v="$@"; cat $v',
        'f() {{ c="$@"; $c; }}; f cat {out}',
        "a=(README.md {out}); d=${{a[@]}}; cat $d",
        'a=(cat {out}); bash <<< "${{a[@]}}"',
        "set -- cat {out}; bash <<E\n$@\nE",
        "set -- README.md {out}; xargs cat <<< $@",
        'set -- README.md {out}; cat ${{1+"$@"}}',
        'set -- README.md {out}; cat "${{nope:-$@}}"',
        "set -- README.md {out}; export v=$@; cat $v",
        "set -- README.md {out}; IFS=-; v=$@; IFS=' '; cat $v",
        "bash -c 'v=\"$@\"; $v' _ cat {out}",
    ],
)
def test_lists_are_joined_by_blanks_where_words_are_not_split(text: str, judge: Judge) -> None:
    assert not judge(text.format(out=SECRET)).permits
    # What separates them, or whether they are separate, is not known everywhere.
    is_known = not any(mark in text for mark in ("1+", "nope", "IFS"))
    assert judge(text.format(out="docs/a.md")).permits == is_known


@pytest.mark.parametrize(
    "text",
    [
        "x=$(cat <<'E'\nE) && cat {out}\nE\n)",
        "echo $(cat <<'E'\nE cat {out})\nE\n)",
        'git commit -m "$(cat <<EOF\nmsg\nEOF cat {out})"\nEOF\n)"',
        "cat <(cat <<-E\n\tE)\ncat {out}\nE\n)",
        "echo ${{x:-$(cat <<'E'\nE)}}\ncat {out}\nE\n)}}",
        "echo $( (cat <<A\nA) )\ncat {out}\nA\n) )",
    ],
)
def test_a_line_in_a_substitution_that_begins_like_the_end_mark_is_refused(text: str, judge: Judge) -> None:
    doubt = judge(text.format(out=SECRET)).action.doubts[0]
    assert "begins like the end of a here-document" in doubt.reason


@pytest.mark.parametrize(
    "text",
    [
        "git commit -m \"$(cat <<'EOF'\nFix (some) things\n\nOF EOF)\nEOF\n)\"",
        'git commit -m "$(cat <<-EOF\n\tFix\n\tEOF\n)" && git status',
        "cat <<'E'\nE) is text outside of substitutions\nE\n",
    ],
)
def test_a_here_document_that_ends_with_its_mark_alone_is_read(text: str, judge: Judge) -> None:
    assert judge(text).permits


@pytest.mark.parametrize(
    "text",
    [
        "cd src &>/dev/null; cat {out}",
        "cd src && ls &>/dev/null; cat {out}",
        "cd src &>>log && cat {out}",
        "exit &>/dev/null; cat {out}",
        "set -- {out}; set -- README.md &>/dev/null; cat $1",
        "cat() {{ :; }} &>/dev/null; cat {out}",
        "if f=README.md &>/dev/null; then cat ${{f-{out}}}; fi",
        "cat README.md &>/dev/null {out}",
        "cd {{src,}}; cat {out}",
        "cd {{s..s}}rc; cat {out}",
        "cd $(echo {{src,}}); cat {out}",
        "set -- {{a,b}} {out}; cat $2",
        'eval "set -- {{a,b}} {out}"; cat $2',
        'cd $"src"; cat {out}',
        "cd src 12>/dev/null; cat {out}",
        'f={out}; x="a f=README.md"; export v=$x; cat $f',
        'f=README.md; x="a f={out}"; export v=$x; cat $f',
        "for f in {{src,docs}} {out}; do cat $f; done",
    ],
)
def test_what_shells_read_differently_is_followed_both_ways_or_refused(text: str, judge: Judge) -> None:
    assert not judge(f"sh -c '{text.format(out=SECRET)}'").permits


@pytest.mark.parametrize(
    "text",
    [
        "command -v git &>/dev/null && ls",
        "if ls src &>/dev/null; then cat README.md; fi",
        "mkdir -p src/{a,b} && ls {src,docs}",
        "x=abc; echo ${x:0:1} >&2 2>/dev/null",
        "export A=$(git rev-parse HEAD); ls src",
        "f() { local a=$1; ls $a; }; f src",
    ],
)
def test_what_shells_read_differently_is_permitted_where_all_readings_are(text: str, judge: Judge) -> None:
    assert judge(f"sh -c '{text}'").permits


@pytest.mark.parametrize(
    "text",
    [
        "declare -p f=src/; cat ${f}{out}",
        "declare -F f=src/; cat ${f}{out}",
        "typeset +p f=src/; cat ${f}{out}",
        "g() {{ local -p f=src/; cat ${f}{out}; }}; g",
        "f=src/; f= export f; cat ${f}{out}",
        "f=src/; f= readonly g; cat ${f}{out}",
        "((POSIXLY_CORRECT=1)); f=src/; f= :; cat ${f}{out}",
        "let POSIXLY_CORRECT=1; f=src/; f= :; cat ${f}{out}",
        "v=README.md0{out}; : ${{v:IFS=0}}; cat $v",
        "v=README.md0{out}; : ${{v:1?IFS=0:0}}; cat $v",
        "v=README.md0{out}; : ${{@:IFS=0}}; cat $v",
        "v=README.md0{out}; a=(1); : ${{a[@]:IFS=0}}; cat $v",
        'v=README.md0{out}; : ${{v:"IF"S=0}}; cat $v',
        "v=README.md0{out}; w=v; : ${{!w:IFS=0}}; cat $v",
        "FUNCNEST=1\nf() {{ cd src; }}; g() {{ f; }}\ng\ncat {out}",
        "((FUNCNEST=1))\nf() {{ cd src; }}; g() {{ f; }}\ng\ncat {out}",
        "export FUNCNEST=1; bash -c 'f() {{ cd src; }}; g() {{ f; }}; g\ncat {out}'",
        'unset PATH; cd "$(dirname src/x)"; read x < {out}',
        'f() {{ local PATH; cd "$(dirname src/x)"; read x < {out}; }}; f',
        '((PATH=0)); cd "$(dirname src/x)"; read x < {out}',
        "ulimit -Sn 3; cd $(echo src); ulimit -Sn 99; cat {out}",
        'ulimit -t 0; cd "$(basename src)"; cat {out}',
        "ulimit -Sn $((1+2)); cd $(echo src); ulimit -Sn 99; cat {out}",
        "ulimit -Snc 3; cd $(echo src); cat {out}",
        "ulimit 0; cd $(echo src); cat {out}",
        "v=é{out}; cat ${{v#??}}",
        "readonly PWD; cd src || cat ../{out}",
        "declare -r OLDPWD; cd src || cat ../{out}",
        "cd src; cd ..; OLDPWD=.. cd -; cat secret.txt",
    ],
)
def test_a_command_that_does_not_set_what_it_seems_to_is_a_doubt(text: str, judge: Judge) -> None:
    assert not judge(text.replace("${f}", "${{f}}").format(out=SECRET)).permits


@pytest.mark.parametrize(
    "text",
    [
        "declare -p f; declare f=src; ls $f",
        "n=1; ((n++)); let n=n+1; v=abc; echo ${v:n} ${v:n=1}",
        "((RANDOM=3)); ls",
        "unset GIT_DIR f; ls",
        "ulimit -n 4096; ulimit -c 0; ulimit -s unlimited; ls src",
        "ulimit -a",
        "readonly f=src; ls $f",
    ],
)
def test_ordinary_declarations_and_limits_are_permitted(text: str, judge: Judge) -> None:
    assert judge(text).permits


@pytest.mark.parametrize(
    "text",
    [
        "echo ../other/*",
        "for f in ../other/*; do :; done",
        "a=(../other/*)",
        "set -- ../other/s*",
        "printf '%s\\n' ~/.ssh/*",
        "echo link/*",
        "echo */*",
        "d=..; echo $d/other/*",
        "echo $(cat names)/*",
        "[ -n ../other/s* ]",
        "ln -s ../other o; echo o/*",
        "cd src; echo ../../other/*",
        "echo -n/../../other/*",
    ],
)
def test_a_wildcard_reads_the_directories_that_it_lists(text: str, judge: Judge) -> None:
    assert not judge(text).permits


@pytest.mark.parametrize(
    "text",
    [
        "echo src/* docs/*",
        "for f in src/*; do wc -l $f; done",
        "cd src; for f in ../docs/*; do cat $f; done",
        "echo src/*/*",
        "for d in src docs; do for f in $d/*; do cat $f; done; done",
        "find . -name '../other/*' -o -name *.x",
        "grep -r --include=*.py --exclude-dir=src/* x src",
        "echo '../other/*' \"../other/*\" https://example.org/x?y=1",
        "[[ x == ../other/* ]]",
        "case x in ../other/*) ls;; esac",
        "v=../other/*",
    ],
)
def test_a_wildcard_in_the_project_and_one_that_is_not_expanded_are_permitted(text: str, judge: Judge) -> None:
    assert judge(text).permits
