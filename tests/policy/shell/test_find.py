"""find: where it looks, what it runs on what it finds, and what it prints."""

from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from tests.policy.judging import command, doubted, touched


def effects(text: str) -> set[str]:
    return {effect for effect in touched(command(text)) if not effect.startswith("run ")}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("find", {"read /work/app"}),
        ("find .", {"read /work/app"}),
        ("find src test -name x", {"read /work/app/src", "read /work/app/test"}),
        ("find /etc -name x", {"read /etc"}),
        ("find . -maxdepth 2 -type f -name '*.py' -not -path './x/*'", {"read /work/app"}),
        ("find . \\( -name a -o -name b \\) -prune -o -print", {"read /work/app"}),
        ("find -P . -size +1k -mtime -1 -empty", {"read /work/app"}),
        ("find . -delete", {"read /work/app", "delete /work/app", "delete /work/app/…"}),
        ("find . -name x -o -delete", {"read /work/app", "delete /work/app", "delete /work/app/…"}),
        ("find . -name 'a*' -delete", {"read /work/app", "delete /work/app", "delete /work/app/…"}),
        ("find . -name x -delete", {"read /work/app", "delete /work/app/…"}),
        ("find . -fprint out", {"read /work/app", "write /work/app/out"}),
        ("find . -fprintf /etc/x %p", {"read /work/app", "write /etc/x"}),
        ("find . -newer /etc/x", {"read /work/app", "read /etc/x"}),
        ("find . -newermm /etc/x", {"read /work/app", "read /etc/x"}),
        ("find . -samefile /etc/x", {"read /work/app", "read /etc/x"}),
        ("find . -type f -exec cat {} \\;", {"read /work/app", "read /work/app/…"}),
        ("find . -type f -exec cat {} +", {"read /work/app", "read /work/app/…"}),
        ("find . -type f -exec rm {} ';'", {"read /work/app", "delete /work/app/…"}),
        ("find . -type f -exec cp {} /etc \\;", {"read /work/app", "read /work/app/…", "write /etc"}),
        ("find . -type f -exec sh -c 'cat \"$1\"' _ {} \\;", {"read /work/app", "read /work/app/…"}),
        ("find . -type f -exec cat /etc/x \\; -exec ls \\;", {"read /work/app", "read /etc/x"}),
    ],
)
def test_what_find_touches_is_known(text: str, wanted: set[str]) -> None:
    assert effects(text) >= wanted
    assert {effect for effect in effects(text) if not effect.startswith("read /work/app")} <= wanted
    assert doubted(command(text)) == set()


@pytest.mark.parametrize(
    "text", ["find . -newermt 2026-01-01", "find . -newermt yesterday -type f", "find . -newerct '1 day ago'"]
)
def test_comparing_with_a_date_touches_nothing(text: str) -> None:
    assert command(text).permits


@pytest.mark.parametrize(
    "text",
    [
        "find $x",
        "find . $x",
        'find . "$x"',
        "find . -name $x",
        "find . -weird",
        "find . -files0-from x",
        "find . -type f -exec $x {} \\;",
        "find . -type f -exec sh -c 'cat {}' \\;",
        "find . -type f -exec cat {}/../../x \\;",
        "find . -type f -exec cat x{} \\;",
        "find . -type f -execdir ./x {} \\;",
        "find . -type f -exec unknown-program {} \\;",
        "find . -exec cat {} \\;",
        "find . -type f -o -exec cat {} \\;",
        "find . -type f ! -name x -exec cat {} \\;",
        "find . -exec cat {} \\; -type f",
        "find -L . -name x",
        "find . -follow",
        "find -L . -type f -exec cat {} +",
    ],
)
def test_what_find_may_do_beyond_that_is_a_doubt(text: str) -> None:
    assert command(text).code == "target_unknown"


@pytest.mark.parametrize(
    ("text", "permitted"),
    [
        ("find plain -exec cat {} +", True),
        ("find . -exec cat {} +", False),
        ("find -L plain -name x", True),
        ("find -L . -name x", False),
        ("find . -type f -exec cat {} +", True),
        ("find . -type d -exec ls {} +", False),
        ("find . -type f -name '*.py'", True),
    ],
)
def test_links_below_matter_where_they_would_be_opened(tmp_path: Path, text: str, permitted: bool) -> None:
    root = tmp_path.resolve()
    (root / "app/plain").mkdir(parents=True)
    (root / "app/plain/a").touch()
    (root / "app/way").symlink_to(root)
    assert command(text, files=LocalFiles(), scope=(f"{root}/app",)).permits == permitted


@pytest.mark.parametrize(
    ("text", "permitted"),
    [
        ("find . -type f -print0 | xargs -0 cat", True),
        ("find . -type f | xargs cat", False),
        ("find . -print0 | xargs -0 cat", False),
        ("find . -type f -printf '%p\\0' | xargs -0 cat", False),
        ("find . -type f -fprint x | xargs cat", False),
        ("find /etc -type f -print0 | xargs -0 cat", False),
    ],
)
def test_what_find_prints_is_known_where_no_name_can_be_taken_for_two(text: str, permitted: bool) -> None:
    assert command(text).permits == permitted
