"""sed: files and commands of a script are found, and letters elsewhere are not taken for them."""

import shlex

import pytest

from tests.policy.judging import command, doubted, touched


def sed(script: str) -> set[str]:
    """Return what a script touches beside the file it reads."""
    effects = touched(command(f"sed {shlex.quote(script)} a"))
    return {effect for effect in effects if not effect.startswith("run ")} - {"read /work/app/a"}


@pytest.mark.parametrize(
    "script",
    [
        "s/a/b/",
        "s/a/b/g",
        "s,a,b,Ip",
        "s/a/b/2",
        "s/[/]w x/b/",
        "s/a/w x/",
        "s/a\\/w x/b/",
        "s|a|/etc/x|",
        "y/abc/xyz/",
        "1d",
        "$d",
        "1,5p",
        "/a/,/b/d",
        "/w x/d",
        "\\,w x,d",
        "1~2d",
        "/a/,+3d",
        "5!p",
        "n;d",
        "$!N;P;D",
        ":a;N;$!ba;s/\\n/ /g",
        "/a/{s/b/c/;p}",
        "a hello w /etc/x",
        "i\\\nw /etc/x",
        "c hello",
        "# w /etc/x",
        "q",
        "q5",
        "l",
        "=",
        "/[[:space:]/]*w x/d",
        "s/a/b/;s/c/d/",
        "w /dev/stdout",
    ],
)
def test_a_script_that_only_edits_text_touches_nothing_else(script: str) -> None:
    assert sed(script) == set()
    assert command(f"sed {shlex.quote(script)} a").permits


@pytest.mark.parametrize(
    ("script", "effect"),
    [
        ("w /etc/x", "write /etc/x"),
        ("W /etc/x", "write /etc/x"),
        ("r /etc/x", "read /etc/x"),
        ("R /etc/x", "read /etc/x"),
        ("1w /etc/x", "write /etc/x"),
        ("$!w /etc/x", "write /etc/x"),
        ("/a/w /etc/x", "write /etc/x"),
        ("\\,a,w /etc/x", "write /etc/x"),
        ("/a/I,/b/w /etc/x", "write /etc/x"),
        ("/[/]/w /etc/x", "write /etc/x"),
        ("s/a/b/w /etc/x", "write /etc/x"),
        ("s/a/b/gw /etc/x", "write /etc/x"),
        ("s,a,b,pw /etc/x", "write /etc/x"),
        ("s/a/\\//w /etc/x", "write /etc/x"),
        ("p;w /etc/x", "write /etc/x"),
        ("{p;w /etc/x\n}", "write /etc/x"),
        ("/a/{w /etc/x\n}", "write /etc/x"),
        ("ba;w /etc/x", "write /etc/x"),
        ("q;w /etc/x", "write /etc/x"),
        ("# a\nw /etc/x", "write /etc/x"),
        ("a text\nw /etc/x", "write /etc/x"),
        ("a\\\ntext\nw /etc/x", "write /etc/x"),
        ("y/a/b/;w /etc/x", "write /etc/x"),
        ("e cat /etc/x", "read /etc/x"),
        ("1e cat /etc/x", "read /etc/x"),
        ("}w /etc/x", "write /etc/x"),
    ],
)
def test_a_file_or_command_of_a_script_is_found(script: str, effect: str) -> None:
    assert effect in sed(script)


@pytest.mark.parametrize(
    "script", ["s/a/b/e", "s/a/b/ge", "e", "1e", "s/a/b", "s/a", "y/a", "/a", "k", "s/a/b/k", "", " ", "\\"]
)
def test_a_script_that_runs_what_it_finds_or_is_not_understood_is_a_doubt(script: str) -> None:
    assert command(f"sed '{script}' a").code == "target_unknown"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sed -n p a", {"read /work/app/a"}),
        ("sed p a /etc/x", {"read /work/app/a", "read /etc/x"}),
        ("sed -e p -e 'w /etc/x' a", {"read /work/app/a", "write /etc/x"}),
        ("sed -ne 'w /etc/x' a", {"read /work/app/a", "write /etc/x"}),
        ("sed --expression='w /etc/x' a", {"read /work/app/a", "write /etc/x"}),
        ("sed -i p a", {"read /work/app/a", "write /work/app/a"}),
        ("sed -i.bak p a", {"read /work/app/a", "write /work/app/a", "write /work/app/a.bak"}),
        ("sed p -i a", {"read /work/app/a", "write /work/app/a"}),
        ("sed --in-place p a", {"read /work/app/a", "write /work/app/a"}),
        ("sed -Ei p /etc/x", {"read /etc/x", "write /etc/x"}),
        ("sed -f script a", {"read /work/app/script", "read /work/app/a"}),
        ("cat a | sed p", {"read /work/app/a"}),
    ],
)
def test_the_words_of_sed_are_told_apart(text: str, wanted: set[str]) -> None:
    assert {effect for effect in touched(command(text)) if not effect.startswith("run ")} == wanted


@pytest.mark.parametrize(
    "text",
    ['sed "s/a/$x/" a', "sed $x a", "sed -i '' p a", "sed --weird p a", "sed -i/../../x p a", "sed -i'/tmp/*' p a"],
)
def test_words_of_sed_that_are_not_known_are_a_doubt(text: str) -> None:
    decision = command(text)
    assert not decision.permits
    assert doubted(decision)
