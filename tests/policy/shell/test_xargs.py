"""xargs: the words it reads are part of the command it runs."""

import pytest

from tests.policy.judging import command, doubted, touched


def effects(text: str) -> set[str]:
    return {effect for effect in touched(command(text)) if not effect.startswith("run ")}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("echo a b | xargs cat", {"read /work/app/a", "read /work/app/b"}),
        ("echo a | xargs cat b", {"read /work/app/a", "read /work/app/b"}),
        ("echo /etc/x | xargs cat", {"read /etc/x"}),
        ("echo /etc/x | xargs -n 1 -P 4 cat", {"read /etc/x"}),
        ("echo /etc/x | xargs -r -t cat", {"read /etc/x"}),
        ("printf 'a\\0b c\\0' | xargs -0 cat", {"read /work/app/a", "read /work/app/b c"}),
        ("echo a | xargs -I{} cat {}.txt", {"read /work/app/a.txt"}),
        ("echo a | xargs -I % cp % /etc/%", {"read /work/app/a", "write /etc/a"}),
        ("echo a | xargs -I{} sh -c 'cat /etc/{}'", {"read /etc/a"}),
        ("echo a | xargs", set()),
        ("echo a | xargs rm", {"delete /work/app/a"}),
        ("echo -x | xargs echo", set()),
        ("xargs cat < /dev/null", set()),
        ("echo a | xargs env X=1 cat", {"read /work/app/a", "setenv X"}),
        ("echo a | xargs xargs cat", {"read /work/app/a"}),
    ],
)
def test_exact_words_are_handed_on(text: str, wanted: set[str]) -> None:
    assert effects(text) == wanted


def test_with_a_mark_every_line_is_one_word() -> None:
    assert effects("echo 'a b' | xargs -I{} cat {}") == {"read /work/app/a b"}


@pytest.mark.parametrize(
    "text",
    [
        "cat list | xargs cat",
        "xargs cat < list",
        "xargs -a list cat",
        "xargs --arg-file=list cat",
        "ls | xargs cat",
        "git ls-files | xargs cat",
        'echo "a\'b" | xargs cat',
        "echo 'a\\ b' | xargs cat",
        "echo a,b | xargs -d , cat",
        "echo a | xargs --weird cat",
        "echo a | xargs -i cat {}",
        "echo a | xargs $x",
        "echo a | xargs unknown-program",
        "cat list | xargs sh -c",
        "cat list | xargs -I{} sh -c {}",
        "cat list | xargs -I{} {}",
        "cat list | xargs rm",
    ],
)
def test_words_that_are_not_known_are_a_doubt(text: str) -> None:
    decision = command(text)
    assert not decision.permits
    assert doubted(decision)


@pytest.mark.parametrize(
    "text",
    [
        "echo a | xargs --replace cat echo /etc/passwd",
        "echo a | xargs --max-lines cat echo /etc/passwd",
        "echo a | xargs --eof cat echo /etc/passwd",
    ],
)
def test_an_option_takes_a_value_only_where_gnu_xargs_does(text: str) -> None:
    assert not command(text).permits


def test_options_of_the_command_are_not_options_of_xargs() -> None:
    assert effects("echo a | xargs grep -I x") == {"read /work/app/a"}


def test_names_below_a_directory_are_bounded_by_it() -> None:
    assert "read /work/app/src/…" in effects("find src -type f -print0 | xargs -0 cat")
    assert "delete /work/app/src/…" in effects("find src -type f -print0 | xargs -0 -I{} rm {}")
    assert doubted(command("find src -type f -print0 | xargs -0 -I{} cat x/{}")) != set()
