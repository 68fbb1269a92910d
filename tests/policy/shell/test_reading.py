"""No command in a script is lost, and no value is taken for known that bash would make something else of."""

import itertools
from pathlib import Path
from typing import Final

import pytest

from remit.policy.files import LocalFiles
from tests.policy.judging import command

OUTSIDE: Final = "cat ../other/secret.txt"
# Places in a command where a substitution may stand. Each is tried inside each other.
PLACES: Final = (
    ": {}", ": a{}b", ': "a{}b"', ": $x{{{},}}", ": $x{{{}}}", ": {{a,{}}}", ": {{{},b}}$x", ": ${{x:-{}}}",
    ': "${{x:-{}}}"', ": ${{x:+{}}}", ": ${{x#{}}}", ': "${{x%{}}}"', ": ${{x/{}/b}}", ": ${{x:{}}}", ": $(({}))",
    "x={}", "x=a{}b", "x=({} b)", "x+={}", "export x={}", "export x={{a,{}}}", "readonly y=1{}", "x={} true",
    ": >/dev/null {}", ": <<<{}", ": <<E\n{}\nE\n", "for i in {}; do :; done", "case {} in a) :;; esac",
    "case a in {}) :;; esac", "[[ a == {} ]]", "[[ -n {} ]]", "if [ -n {} ]; then :; fi", "f() {{ : {}; }}; f",
    "f() {{ :; }}; f {}", "( : {} )", "{{ : {}; }}", ": | : {}", ": {} &", "! : {}", "true && : {}", "false || : {}",
    ": <(: {})", "while [ -z {} ]; do break; done", "eval ': {}'", "trap ': {}' EXIT", "set -- {}", "cd . {}",
    "time : {}", "exec 3<<<{}", "(({}))", ": {{1..{}}}", ": ~{}", ": {}{{a,b}}{{c,d}}", ": ${{!x{}}}",
)  # fmt: skip
# Braces that are too many, too nested or stand before a name: what they come to is not known.
BRACES: Final = ("{a,b}", "{1..300}", "{a..c..2}", "$x{a,b}", "$x{", "{a,$x{b,c}}", "{a,b}" * 13, "{01..3}", "{{a}}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a project folder beside one that is not in scope."""
    project = tmp_path / "base" / "project"
    (project / "src").mkdir(parents=True)
    (project / "README.md").write_text("")
    for name in ("other", "project-secrets"):
        (tmp_path / "base" / name).mkdir()
        (tmp_path / "base" / name / "secret.txt").write_text("")
    return project


def permits(text: str, folder: Path) -> bool:
    return not command(text, files=LocalFiles("/home/somebody"), scope=(str(folder),)).code


@pytest.mark.parametrize("outer", PLACES)
def test_a_substitution_is_followed_wherever_it_stands(outer: str, folder: Path) -> None:
    for index, inner in enumerate(PLACES):
        payload = f"`{OUTSIDE}`" if index % 2 and "\n" not in outer else f"$({OUTSIDE})"
        text = outer.format("$(" + inner.format(payload) + "\n)")
        assert not permits(text, folder), text


@pytest.mark.parametrize("braces", BRACES)
def test_a_substitution_is_followed_whatever_braces_stand_around_it(braces: str, folder: Path) -> None:
    for before, after in itertools.product(("", braces, f"{braces}a"), ("", braces, f"{{{braces}}}", f"b{braces}")):
        for form in (": {}", "export v={}", "x=({})", "for i in {}; do :; done"):
            text = form.format(f"{before}$({OUTSIDE}){after}")
            assert not permits(text, folder), text


ESCAPES: Final = {
    "a pattern in double quotes": (
        'rm -rf "${PWD%/*}/other"', 'cat "${PWD%%/project*}/other/secret.txt"', 'cat "${PWD%\\/*}/other/secret.txt"',
        'v=xx; cat "${v#?x}../other/secret.txt"', 'p=a/../other/secret.txt; cat "${p#*/}"',
    ),
    "braces in a declaration": (
        "export d={src,..}; rm -rf $d/other", "readonly d={src,..}; cat $d/other/secret.txt",
        "f() { local d={src,..}; cat $d/other/secret.txt; }; f", "declare d={src,../other}/secret.txt; cat $d",
    ),
    "text behind a path": (
        'd=$(find $PWD -maxdepth 0); cat "$d-secrets/secret.txt"', 'd=$(find $PWD -maxdepth 0); cat "$d"-secrets/*',
        "find $PWD -maxdepth 0 -exec cat {}-secrets/secret.txt \\;",
        "find $PWD -maxdepth 0 | xargs -I{} cat {}-secrets/secret.txt",
        'd=$(find $PWD -maxdepth 0); e="$d-secrets"; cat "$e/secret.txt"',
        'n=$((1)); d=$(find $PWD -maxdepth 0); cat "$d$n/secret.txt"',
        'd=$(find src -name none); cat "$d/etc/passwd"', 'cat "$(ls src)/etc/passwd"',
    ),
    "a function named like a program": (
        "/bin/ls() { cat ../other/secret.txt; }; /bin/ls", "ls() { cat ../other/secret.txt; }; ls",
        "function ./run { cat ../other/secret.txt; }; ./run", "cd() { cat ../other/secret.txt; }; cd src",
        "echo() { cat ../other/secret.txt; }; x=$(echo)", "exit() { :; }; exit; cat ../other/secret.txt",
    ),
    "text that is evaluated as arithmetic": tuple(
        form.replace("CMD", "a[$(cat ../other/secret.txt)]")
        for form in (
            "OPTIND='CMD'", "RANDOM='CMD'", "HISTCMD='CMD'", "export OPTIND='CMD'", "f() { local SRANDOM='CMD'; }; f",
            "read OPTIND <<< 'CMD'", "for RANDOM in 'CMD'; do :; done", "printf -v RANDOM %s 'CMD'",
            ": ${OPTIND:='CMD'}", "x='CMD'; ((x))", "x='CMD'; : $((x))", "x='CMD'; let x", "x='CMD'; [[ x -eq 1 ]]",
            "x='CMD'; : ${PWD:x}", "x='CMD'; a=(1 2); : ${a[x]}", "x='CMD'; a[x]=1", "x='CMD'; : ${!x}",
            "env x='CMD' bash -c '((x))'", "x='CMD' bash -c '((x))'", "export x='CMD'; bash -c ': $((x))'",
            "x='CMD'; : $(( $(date +x) ))", "x='CMD'; [[ $(date +x) -eq 1 ]]", "unset 'CMD'", "test -v 'CMD'",
        )
    ),
    "an error that ends the line": tuple(
        form.format(error)
        for form in (
            "x=../other/secret.txt\n{}; x=README.md\ncat $x",
            "x=../other/secret.txt\nif true; then {}; x=README.md; fi\ncat $x",
            "x=../other/secret.txt\nf() {{ local x=README.md; {}; }}; f; x=README.md\ncat $x",
            "x=../other/secret.txt\n{}; cd src\ncat $x",
        )
        for error in (
            ": $((1/0))", ": $((x=1/0))", ": $((1%0))", ": $((2**-1))", ": $((08))", "r=08; : $((r))", ": ${PWD:0:-99}",
            "UID=1", "readonly q; q=1", ": ${r[-9]}", "y=$((1/0))", "for i in $((1/0)); do :; done",
            "case $((1/0)) in a) :;; esac", ": >/dev/null$((1/0))", "z=$((1/0)) true",
        )
        if not (error.startswith("readonly") and "if" in form)
    ),
    "assignments in their order": (
        "x=README.md; x=../other/secret.txt y=$x; cat $y", "x=a; x=../other/new >$x",
        "e=; x=../other/secret.txt $e; cat $x",
    ),
    "a tilde that is not the home": (
        'x=~+; cat "$x/../other/secret.txt"', 'for x in ~+; do cat "$x/../other/secret.txt"; done',
        'set -- ~+; cat "$1/../other/secret.txt"', 'x=(~+); cat "${x[0]}/../other/secret.txt"',
        'f() { cat "$1/../other/secret.txt"; }; f ~+', 'cd src; cd ..; x=~-; cat "$x/../../other/secret.txt"',
    ),
    "a default that is quoted in parts": (
        "mkdir 'a b'; cat ${v:-'../other/'secret.txt}", "rm ${v:-\"\"} -rf ../other",
    ),
    "names that are made on the way": (
        "touch -- '--checkpoint-action=exec=sh x'; tar cf a.tar *", "mkdir -- '--to-command=sh'; tar xf a.tar */x",
        "cp README.md ./--checkpoint-action=exec=sh; tar cf a.tar *", "mv README.md -- -exec; find * -name x",
        "> '-exec'; find [-]*",
        "mkdir -p 'sp ..'/other; touch 'sp ../other/secret.txt'; find . -name secret.txt | xargs cat",
        "touch \"it's\"; find . -type f | xargs cat", "mkdir d; ln -s ../other d/o; mv d/o o; cat o/*",
        "mkdir d; ln -s ../other d/o; mv d/o o; cat */secret.txt",
        "mkdir d; ln -s ../other d/o; mv d/o o; cat o/secret.txt",
        "mkdir d; ln -s ../other d/o; mv d/o o; grep -R x .",
        "mkdir d; ln -s ../other d/o; mv d/o o; cd o; cat secret.txt",
        "mkdir d; ln -s ../other d/o; mv d/o o; for f in o/*; do cat \"$f\"; done",
        "mkdir d; ln -s ../other d/o; mv d e; mv e/o .; tar chf a.tar .",
    ),
    "a trap for every command": (
        "trap 'cat ../other/secret.txt' debug; :", "trap ': $x' SIGDEBUG",
        "s=ERR; trap ': $x' $s", "trap 'cat ../other/secret.txt' 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in ESCAPES.items() for text in texts])
def test_what_leaves_the_folder_is_denied(kind: str, text: str, folder: Path) -> None:
    assert not permits(text, folder), kind


@pytest.mark.parametrize(
    "text",
    [
        "x=${PWD##*/}; echo $x", 'cat "${PWD%/}/README.md"', "n=$((3+4)); echo $n; head -n $n README.md",
        "for i in 1 2 3; do echo $i; done", "SECONDS=0; make_it=1; echo $SECONDS", "OPTIND=1; echo hi",
        'export A=1 B="x y"; echo $A', "i=0; while ((i<3)); do echo $i; ((i++)); done",
        'for d in src/*; do cat "$d/x"; done', "find . -name '*.md' -exec cat {} \\;",
        "find . -name '*.md' | xargs cat",
        "f() { cat README.md; }; f", "v=a; case $v in a) echo b;; esac", "touch x-$(date +%Y-%m-%d).log",
        "x=$((5/2)); cat README.md", "mkdir -p out; echo a > out/b; cat out/*", "name=${f:-'a b'}; echo \"$name\"",
        "rm -f ./*.log; ls *", "a=1 b=$a; echo $b", "trap 'rm -f x' EXIT; touch x",
        'for f in *.md; do cat "$f"; done', "cp README.md out.md; cat *.md", "ln -s README.md link; cat link",
        "echo ${x^^}",
        'p=src/a.b.c; echo "${p%.*}" "${p##*/}"', "read -r a b <<< 'x y'; echo $a",
        "x=$(wc -l < README.md 2>/dev/null); echo $((x+1))",
    ],
)  # fmt: skip
def test_what_stays_inside_is_permitted(text: str, folder: Path) -> None:
    assert permits(text, folder)
