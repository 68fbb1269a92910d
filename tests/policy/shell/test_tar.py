"""tar: which way files go, where `-C` leads, and options that run or write anything."""

from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from tests.policy.judging import command, doubted, touched


def effects(text: str) -> set[str]:
    return {effect for effect in touched(command(text)) if not effect.startswith("run ")}


MAKES = {"read /work/app/a.tar", "write /work/app/a.tar"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tar cf a.tar src", MAKES | {"read /work/app/src"}),
        ("tar -cf a.tar src", MAKES | {"read /work/app/src"}),
        ("tar --create --file=a.tar src", MAKES | {"read /work/app/src"}),
        ("tar --create --file a.tar src", MAKES | {"read /work/app/src"}),
        ("tar czvf a.tar src b", MAKES | {"read /work/app/src", "read /work/app/b"}),
        ("tar cfz a.tar src", MAKES | {"read /work/app/src"}),
        ("tar rf a.tar b", MAKES | {"read /work/app/b"}),
        ("tar uf a.tar b", MAKES | {"read /work/app/b"}),
        ("tar cf a.tar /etc", MAKES | {"read /etc"}),
        ("tar cf a.tar -C /etc passwd", MAKES | {"read /etc", "read /etc/passwd"}),
        ("tar -C /etc -cf a.tar passwd", MAKES | {"read /etc", "read /etc/passwd"}),
        ("tar cf a.tar --exclude /etc src", MAKES | {"read /work/app/src"}),
        ("tar cf a.tar -X /etc/x src", MAKES | {"read /etc/x", "read /work/app/src"}),
        ("tar cf a.tar --remove-files b", MAKES | {"read /work/app/b", "delete /work/app/b"}),
        ("tar cf - src", {"read /work/app/src"}),
        ("tar tf a.tar", {"read /work/app/a.tar"}),
        ("tar xf a.tar", {"read /work/app/a.tar", "write /work/app"}),
        ("tar xzf a.tar -C sub", {"read /work/app/a.tar", "read /work/app/sub", "write /work/app/sub"}),
        ("tar xf a.tar --directory=/etc", {"read /work/app/a.tar", "read /etc", "write /etc"}),
        ("tar xf a.tar --one-top-level=/etc", {"read /work/app/a.tar", "write /etc", "write /work/app"}),
        ("tar xOf a.tar", {"read /work/app/a.tar"}),
        ("tar xf /etc/a.tar", {"read /etc/a.tar", "write /work/app"}),
        ("tar df a.tar /etc", {"read /work/app/a.tar", "read /etc"}),
        ("tar cf a.tar --add-file=/etc/x src", MAKES | {"read /etc/x", "read /work/app/src"}),
        ("tar cf a.tar -g /etc/x src", MAKES | {"read /etc/x", "write /etc/x", "read /work/app/src"}),
    ],
)
def test_files_go_where_the_words_say(text: str, wanted: set[str]) -> None:
    assert effects(text) == wanted
    assert doubted(command(text)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "tar xfC a.tar /etc",
        "tar cf a.tar src -C /etc passwd",
        "tar cf a.tar -C/etc passwd",
        "tar xf a.tar -C sub -C /etc",
    ],
)
def test_no_directory_of_several_is_missed(text: str) -> None:
    assert "read /etc" in effects(text)
    assert command(text).code == "out_of_scope"


@pytest.mark.parametrize(
    "text",
    [
        "tar xf a.tar --to-command=sh",
        "tar cf a.tar --checkpoint=1 --checkpoint-action=exec=sh src",
        "tar cf a.tar -I sh src",
        "tar cIf sh a.tar src",
        "tar cf a.tar --use-compress-program sh src",
        "tar cf a.tar -T list",
        "tar cf a.tar --files-from=list",
        "tar xf a.tar -P",
        "tar xPf a.tar",
        "tar xf a.tar --absolute-names",
        "tar xf a.tar --transform s,x,/etc/y,",
        "tar cf host:a.tar src",
        "tar cf user@host:/a.tar src",
        "tar cf a.tar --rsh-command=sh src",
        "tar cf a.tar -F sh src",
        "tar --extr --file=a.tar",
        "tar --to-c=sh -xf a.tar",
        "tar xf $x",
        "tar cf a.tar $x",
        'tar xf a.tar -C "$x"',
        "tar $x a.tar",
    ],
)
def test_what_can_run_or_reach_more_is_a_doubt(text: str) -> None:
    assert command(text).code == "target_unknown"


def test_what_is_unpacked_can_be_code() -> None:
    assert command("tar xf a.tar && ./x.sh").action.runs_code


def test_following_links_is_seen(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "app/src").mkdir(parents=True)
    (root / "app/src/way").symlink_to(root)
    scope = (f"{root}/app",)
    assert command("tar cf a.tar src", files=LocalFiles(), scope=scope).permits
    assert command("tar chf a.tar src", files=LocalFiles(), scope=scope).code == "out_of_scope"
