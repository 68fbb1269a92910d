"""awk: commands, pipes, files and nothing that hides in text or expressions."""

import pytest

from tests.policy.judging import command, touched


def awk(program: str) -> set[str]:
    """Return what a program touches beside the file it reads."""
    effects = touched(command(f"awk '{program}' a"))
    return {effect for effect in effects if not effect.startswith("run ")} - {"read /work/app/a"}


@pytest.mark.parametrize(
    "program",
    [
        "{print $1}",
        "{print $1, $2}",
        "$1 > 2",
        "{ if ($1 > 2) print }",
        "{print ($1 > 2)}",
        '{print "a | b > c"}',
        "/a|b>c/ {print}",
        "!/x/",
        "NR==1, /x/",
        "{ s += $1 / 2 } END { print s / NR }",
        '{ printf "%s\\n", $1 }',
        'BEGIN { FS = ":"; OFS = "/" }',
        "{ a[$1]++ } END { for (k in a) print k }",
        '{ gsub(/["|>]/, "x"); print }',
        '{print > "/dev/stderr"}',
        '# print > "/etc/x"\n{print}',
        "a || b",
        '{ x = $1 >= 2; y = "a" "b" }',
        "{ print $1 } # | x",
        "function f(x) { return x } { print f($1) }",
    ],
)
def test_a_program_that_only_prints_touches_nothing_else(program: str) -> None:
    assert awk(program) == set()
    assert command(f"awk '{program}' a").permits


@pytest.mark.parametrize(
    ("program", "effect"),
    [
        ('{print > "/etc/x"}', "write /etc/x"),
        ('{print >> "/etc/x"}', "write /etc/x"),
        ('{print $1, $2 > "/etc/x"}', "write /etc/x"),
        ('{printf "%s", $1 > "/etc/x"}', "write /etc/x"),
        ('{printf("%s", $1) > "/etc/x"}', "write /etc/x"),
        ('{print(1)(2) > "/etc/x"}', "write /etc/x"),
        ('/a/ {print > "/etc/x"}', "write /etc/x"),
        ('{gsub(/"/, "x"); print > "/etc/x"}', "write /etc/x"),
        ('BEGIN{system("cat /etc/x")}', "read /etc/x"),
        ('BEGIN{"cat /etc/x" | getline}', "read /etc/x"),
        ('BEGIN{while ("cat /etc/x" | getline) print}', "read /etc/x"),
        ('BEGIN{getline < "/etc/x"}', "read /etc/x"),
        ('{print | "cat > /etc/x"}', "write /etc/x"),
        ('{print |& "cat > /etc/x"}', "write /etc/x"),
    ],
)
def test_a_file_or_command_of_a_program_is_found(program: str, effect: str) -> None:
    assert effect in awk(program)


@pytest.mark.parametrize(
    "program",
    [
        "{print > $1}",
        '{print > "out" $1}',
        '{print > ("out" $1)}',
        '{print > "a\\057b"}',
        "{print > f}",
        "{system($1)}",
        '{system("cat " $1)}',
        "{print | $1}",
        '{print | "sort " $1}',
        "BEGIN{c | getline}",
        'BEGIN{c " x" | getline}',
        "BEGIN{getline x < f}",
        'BEGIN{getline x < ("/etc/" "x")}',
        "BEGIN{while ((getline l < ARGV[1]) > 0) print l}",
        '@load "x"',
        '@include "x"',
        'BEGIN{f = "system"; @f("x")}',
        'BEGIN{ARGV[1] = "/etc/x"}',
        "function f(x) {system(x)}",
        "x;" * 4001,
    ],
)
def test_what_a_program_chooses_itself_is_a_doubt(program: str) -> None:
    assert command(f"awk '{program}' a").code == "target_unknown"


@pytest.mark.parametrize(
    "program",
    [
        '{n++ / 2; print "a" > "/etc/x"; y = "/"}',
        '{n-- / 2; print | "cat > /etc/x"; y = "/"}',
        '{x = n++ / 2; system("cat /etc/x"); y = "/"}',
    ],
)
def test_a_division_is_never_taken_for_an_expression(program: str) -> None:
    assert not command(f"awk '{program}' a").permits


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("awk -F: '{print $1}' /etc/x", {"read /etc/x"}),
        ("awk -v x=/etc/x '{print x}' a", {"read /work/app/a"}),
        ("awk -f prog a", {"read /work/app/prog", "read /work/app/a"}),
        ("cat a | awk '{print}'", {"read /work/app/a"}),
        ("gawk '{print > \"/etc/x\"}' a", {"read /work/app/a", "write /etc/x"}),
    ],
)
def test_the_words_of_awk_are_told_apart(text: str, wanted: set[str]) -> None:
    assert {effect for effect in touched(command(text)) if not effect.startswith("run ")} == wanted


@pytest.mark.parametrize(
    "text", ['awk "{print $x}" a', "awk $x a", "awk -i inplace '{print}' a", "awk --weird '{print}' a"]
)
def test_words_of_awk_that_are_not_known_are_a_doubt(text: str) -> None:
    assert not command(text).permits
