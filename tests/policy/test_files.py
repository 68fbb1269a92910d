"""The port to the file system: links are followed before `..` is applied, and doubt is said."""

import os
from pathlib import Path

import pytest

from remit.policy.files import Files, LocalFiles, ResolvedPath, Survey, TextFiles, UnseenFiles

SEEN = LocalFiles()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory without links on the way to it, with a project and something outside of it."""
    real = tmp_path.resolve()
    for folder in ("app/src", "outside/inner"):
        (real / folder).mkdir(parents=True)
    (real / "app/file").write_text("x")
    (real / "outside/secret").write_text("x")
    return real


def test_a_plain_file_is_where_its_name_says(root: Path) -> None:
    path = str(root / "app/file")
    assert SEEN.resolve(path) == ResolvedPath(path, exists=True)
    assert SEEN.resolve(str(root / "app")) == ResolvedPath(str(root / "app"), exists=True, is_directory=True)


def test_the_root_is_a_directory() -> None:
    assert SEEN.resolve("/") == SEEN.resolve("/..") == ResolvedPath("/", exists=True, is_directory=True)


def test_a_file_that_is_not_there_yet_has_a_place(root: Path) -> None:
    path = str(root / "app/new/deep/file")
    assert SEEN.resolve(path) == ResolvedPath(path)
    assert SEEN.resolve(f"{root}/app/new/../x").path == f"{root}/app/x"
    assert SEEN.resolve(f"{root}/app/file/below").path == f"{root}/app/file/below"


def test_a_chain_of_links_is_followed_to_its_end(root: Path) -> None:
    (root / "app/one").symlink_to("two")
    (root / "app/two").symlink_to(root / "app/three")
    (root / "app/three").symlink_to("../outside/secret")
    assert SEEN.resolve(f"{root}/app/one") == ResolvedPath(f"{root}/outside/secret", exists=True)


def test_a_link_in_the_middle_is_followed(root: Path) -> None:
    (root / "app/way").symlink_to("../outside")
    assert SEEN.resolve(f"{root}/app/way/secret").path == f"{root}/outside/secret"
    assert SEEN.resolve(f"{root}/app/way/new").path == f"{root}/outside/new"


def test_upwards_after_a_link_starts_where_the_link_leads(root: Path) -> None:
    (root / "app/way").symlink_to("../outside/inner")
    assert SEEN.resolve(f"{root}/app/way/../secret").path == f"{root}/outside/secret"
    assert TextFiles().resolve(f"{root}/app/way/../secret").path == f"{root}/app/secret"


def test_a_link_to_nothing_leads_to_where_a_file_would_be_made(root: Path) -> None:
    (root / "app/way").symlink_to("../outside/new")
    assert SEEN.resolve(f"{root}/app/way") == ResolvedPath(f"{root}/outside/new")


def test_a_link_to_the_root_is_followed(root: Path) -> None:
    (root / "app/top").symlink_to("/")
    assert SEEN.resolve(f"{root}/app/top").path == "/"
    assert SEEN.resolve(f"{root}/app/top/etc").path == os.path.realpath("/etc")


def test_links_in_a_circle_are_refused(root: Path) -> None:
    (root / "app/one").symlink_to("two")
    (root / "app/two").symlink_to("one")
    assert SEEN.resolve(f"{root}/app/one/x").refusal
    (root / "app/self").symlink_to("self/self")
    assert SEEN.resolve(f"{root}/app/self").refusal


def test_links_of_processes_are_refused() -> None:
    assert SEEN.resolve("/proc/self/cwd/x").refusal
    assert SEEN.resolve("/proc/self/root").refusal


def test_a_file_with_two_names_is_said_to_be_shared(root: Path) -> None:
    os.link(root / "outside/secret", root / "app/twin")
    assert SEEN.resolve(f"{root}/app/twin") == ResolvedPath(f"{root}/app/twin", exists=True, shared=True)
    assert SEEN.resolve(f"{root}/app/twin/../file") == ResolvedPath(f"{root}/app/file", exists=True)
    assert not SEEN.resolve(f"{root}/app/src").shared


def test_what_comes_after_a_shared_name_is_not_shared_itself(root: Path) -> None:
    os.link(root / "outside/secret", root / "app/twin")
    assert not SEEN.resolve(f"{root}/app/twin/..").shared


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"], ids=["too long", "with NUL"])
def test_what_the_file_system_cannot_be_asked_is_refused(root: Path, name: str) -> None:
    assert SEEN.resolve(f"{root}/{name}").refusal


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is hidden from the superuser")
def test_what_may_not_be_looked_at_is_refused(root: Path) -> None:
    (root / "outside").chmod(0)
    try:
        assert SEEN.resolve(f"{root}/outside/secret").refusal
        assert SEEN.expand(f"{root}/outside", "*") is None
        assert SEEN.survey(str(root)) is None
    finally:
        (root / "outside").chmod(0o700)


def test_a_glob_gives_the_names_that_match_in_order(root: Path) -> None:
    for name in ("b.py", "a.py", "c.txt", ".hidden.py"):
        (root / "app/src" / name).touch()
    where = f"{root}/app/src"
    assert SEEN.expand(where, "*.py") == (".hidden.py", "a.py", "b.py")
    assert SEEN.expand(where, ".*.py") == (".hidden.py",)
    assert SEEN.expand(where, "[ab].*") == ("a.py", "b.py")
    assert SEEN.expand(where, "?.txt") == ("c.txt",)


def test_a_glob_where_nothing_is_gives_nothing(root: Path) -> None:
    assert SEEN.expand(f"{root}/nowhere", "*") == ()
    assert SEEN.expand(str(root), "x" * 256) == ()
    assert SEEN.expand(f"{root}/app/file", "*") == ()


def test_more_matches_than_we_look_at_are_not_known(root: Path) -> None:
    for number in range(2001):
        (root / f"app/src/{number}").touch()
    assert SEEN.expand(f"{root}/app/src", "*") is None
    assert SEEN.expand(f"{root}/app/src", "1") == ("1",)


def test_a_survey_names_every_link_below_and_follows_none(root: Path) -> None:
    (root / "app/src/way").symlink_to(root / "outside")
    (root / "outside/inner/more").symlink_to("/etc")
    assert SEEN.survey(f"{root}/app") == Survey((f"{root}/app/src/way",), odd_names=False)


@pytest.mark.parametrize("name", ["with space", "new\nline", "-option", "quo'te", 'dou"ble', "back\\slash", "\x1b"])
def test_a_survey_tells_of_names_that_can_be_taken_for_two(root: Path, name: str) -> None:
    (root / "app/src" / name).touch()
    assert SEEN.survey(f"{root}/app") == Survey((), odd_names=True)


def test_a_survey_of_what_is_no_directory_is_not_known(root: Path) -> None:
    assert SEEN.survey(f"{root}/nowhere") is None
    assert SEEN.survey(f"{root}/app/file") is None


@pytest.mark.parametrize("files", [TextFiles(), UnseenFiles()], ids=["text", "unseen"])
def test_without_eyes_names_and_links_are_not_known(files: Files) -> None:
    assert (files.reads_disk, files.home) == (False, None)
    assert files.expand("/", "*") is None
    assert files.survey("/") is None


def test_by_text_a_path_is_what_it_says() -> None:
    assert TextFiles().resolve("/a/./b//../c/") == ResolvedPath("/a/c")
    assert TextFiles().resolve("/../..") == ResolvedPath("/")


def test_unseen_no_path_is_certain() -> None:
    look = UnseenFiles().resolve("/a/../b")
    assert look.path == "/b"
    assert look.refusal


def test_only_a_port_that_was_told_knows_the_home() -> None:
    assert LocalFiles("/home/one").home == "/home/one"
    assert SEEN.home is None
    assert SEEN.reads_disk
