"""The home: what is used is its owner's alone, no link is followed, and a file is old or new, never half."""

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest

from remit.errors import HomeUnsafe, LedgerUnavailable, RemitError, StateCorrupt, StateMissing
from remit.ledger.anchor import Anchor, AnchorMark
from remit.ledger.home import Home, open_home
from remit.ledger.keyfiles import KeyFiles

pytestmark = pytest.mark.slow

SOMEONE_ELSE = 54_321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the home lies; without links on the way to it."""
    return tmp_path.resolve() / ".remit"


@pytest.fixture
def home(place: Path) -> Iterator[Home]:
    with open_home(place) as opened:
        yield opened


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file outside of the home that is ours and safe by itself, so that only a link makes it wrong."""
    target = tmp_path.resolve() / "foreign"
    target.touch(0o600)
    target.write_bytes(b"foreign")
    return target


@contextmanager
def refused(place: Path, error: type[RemitError] = HomeUnsafe) -> Iterator[None]:
    """Expect an error that does not tell where the home lies, neither in its text nor in what caused it."""
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    assert str(place.parent) not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def hold(home: Home) -> None:
    with home.locked("file"):
        pass


# Every way to use what is called `file`, but for `create`, which refuses whatever is there.
USES: list[Callable[[Home], object]] = [
    lambda home: home.read("file", max_bytes=100),
    lambda home: home.replace("file", b"new"),
    lambda home: home.check_file("file"),
    lambda home: home.path_of("file"),
    hold,
]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def every_mode_below(folder: Path) -> list[int]:
    return [stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))]


def test_all_that_is_made_is_its_owners_alone_even_under_umask_000(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("chmod", "fchmod"):  # the mode is final from the start
        monkeypatch.delattr(os, name)
    with umask(0), open_home(place) as home:
        home.create("created", b"x")
        home.replace("replaced", b"x")
        KeyFiles(home.folder("keys")).create()
        Anchor(home).advance(AnchorMark("ledger", 0, None, None))
    assert set(every_mode_below(place)) == {0o700, 0o600}
    assert len(every_mode_below(place)) == 7


@pytest.mark.parametrize("mask", [0o777, 0o277, 0o477])
def test_a_umask_that_would_lock_us_out_is_refused_and_nothing_is_left(home: Home, place: Path, mask: int) -> None:
    uses: list[Callable[[], object]] = [
        lambda: open_home(place.parent / "other"),
        lambda: home.folder("folder"),
        lambda: home.create("file", b"x"),
        lambda: home.replace("file", b"x"),
    ]
    with umask(mask):
        for use in uses:
            with refused(place):
                use()
    assert names_in(place) == []
    assert not (place.parent / "other").exists()


@pytest.mark.parametrize("mode", [0o701, 0o702, 0o704, 0o710, 0o720, 0o740, 0o750, 0o755, 0o770, 0o777, 0o1777])
def test_a_folder_that_is_open_to_others_is_refused(home: Home, place: Path, mode: int) -> None:
    home.folder("folder").close()
    (place / "folder").chmod(mode)
    with refused(place):
        home.folder("folder")
    place.chmod(mode)
    with refused(place):
        open_home(place)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mode", [0o601, 0o602, 0o604, 0o610, 0o620, 0o640, 0o644, 0o660, 0o666, 0o4755])
def test_a_file_that_is_open_to_others_is_refused(
    home: Home, place: Path, mode: int, use: Callable[[Home], object]
) -> None:
    home.create("file", b"old")
    (place / "file").chmod(mode)
    with refused(place):
        use(home)
    assert (place / "file").read_bytes() == b"old"
    assert stat.S_IMODE((place / "file").stat().st_mode) == mode


@as_root
@pytest.mark.parametrize("use", USES)
def test_a_file_of_someone_else_is_refused(home: Home, place: Path, use: Callable[[Home], object]) -> None:
    home.create("file", b"old")
    os.chown(place / "file", SOMEONE_ELSE, -1)
    with refused(place):
        use(home)


@as_root
def test_a_folder_of_someone_else_is_refused(home: Home, place: Path) -> None:
    home.folder("folder").close()
    os.chown(place / "folder", SOMEONE_ELSE, -1)
    with refused(place):
        home.folder("folder")
    os.chown(place, SOMEONE_ELSE, -1)
    with refused(place):
        open_home(place)


@pytest.mark.parametrize("mode", [0o500, 0o700, 0o2700])
def test_a_folder_that_is_its_owners_alone_is_opened_again(home: Home, place: Path, mode: int) -> None:
    home.create("file", b"x")
    os.chown(place, -1, os.getegid())  # some systems let only a member set the group's bit
    place.chmod(mode)
    with open_home(place) as again:
        assert again.read("file", max_bytes=1) == b"x"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o720, 0o702])
def test_a_way_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    inner = tmp_path / "way" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        folder.chmod(mode)
        with refused(tmp_path):
            open_home(inner / "home")
        folder.chmod(0o755)
    assert not (inner / "home").exists()


@as_root
def test_a_way_that_leads_through_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "way").mkdir(0o755)
    os.chown(tmp_path / "way", SOMEONE_ELSE, -1)
    with refused(tmp_path):
        open_home(tmp_path / "way" / "home")


def test_a_way_through_a_sticky_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "way").mkdir()
    (tmp_path / "way").chmod(0o1777)
    with open_home(tmp_path / "way" / "home") as home:
        home.create("file", b"x")


def test_only_the_last_folder_is_made(tmp_path: Path) -> None:
    with refused(tmp_path, StateMissing):
        open_home(tmp_path / "missing" / "home")
    with refused(tmp_path, StateMissing):
        open_home(tmp_path / "home", create=False)
    with open_home(tmp_path / "home") as home, refused(tmp_path, StateMissing):
        home.folder("keys", create=False)
    assert names_in(tmp_path) == ["home"]


@pytest.mark.parametrize("path", ["/", ".", "..", "home/..", "no\0home", "no\0way/home"])
def test_a_path_that_names_no_folder_is_refused(path: str) -> None:
    with pytest.raises(HomeUnsafe):
        open_home(Path(path))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b", "a\n", "é", "x" * 201])
def test_a_name_that_could_lead_out_of_the_home_is_refused(home: Home, place: Path, name: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: home.folder(name),
        lambda: home.read(name, max_bytes=1),
        lambda: home.create(name, b""),
        lambda: home.replace(name, b""),
        lambda: home.remove(name),
        lambda: home.exists(name),
        lambda: home.path_of(name),
        home.locked(name).__enter__,
    ]
    for use in uses:
        with refused(place):
            use()


def test_files_are_written_read_listed_and_removed(home: Home) -> None:
    home.create("b", b"1")
    home.replace("a", b"22")
    home.replace("b", b"333")
    assert home.names() == ["a", "b"]
    assert [home.read(name, max_bytes=3) for name in ("a", "b", "c")] == [b"22", b"333", None]
    home.remove("a")
    home.remove("a")
    assert [home.exists(name) for name in ("a", "b")] == [False, True]
    with pytest.raises(FileExistsError):
        home.create("b", b"4")
    assert home.read("b", max_bytes=3) == b"333"


def test_a_file_that_is_larger_than_expected_is_corrupt(home: Home, place: Path) -> None:
    home.create("file", b"four")
    assert home.read("file", max_bytes=4) == b"four"
    with refused(place, StateCorrupt):
        home.read("file", max_bytes=3)


def test_a_folder_of_the_home_is_a_home(home: Home, place: Path) -> None:
    with home.folder("keys") as keys:
        keys.create("file", b"x")
        assert keys.path_of("file") == str(place / "keys" / "file")
    assert home.names() == ["keys"]


def test_a_home_that_was_closed_is_not_used(home: Home, place: Path) -> None:
    home.close()
    home.close()
    uses: list[Callable[[Home], object]] = [*USES, Home.names, lambda home: home.create("file", b"")]
    for use in uses:
        with refused(place, LedgerUnavailable):
            use(home)


@pytest.mark.parametrize("leads_to", ["foreign", "nowhere"])
@pytest.mark.parametrize("use", USES)
def test_a_link_in_the_place_of_a_file_is_refused(
    home: Home, place: Path, foreign: Path, use: Callable[[Home], object], leads_to: str
) -> None:
    (place / "file").symlink_to(place.parent / leads_to)
    with refused(place):
        use(home)
    with pytest.raises(FileExistsError):
        home.create("file", b"new")
    assert foreign.read_bytes() == b"foreign"
    assert names_in(place.parent) == [".remit", "foreign"]


def test_removing_a_link_leaves_what_it_leads_to(home: Home, place: Path, foreign: Path) -> None:
    (place / "file").symlink_to(foreign)
    home.remove("file")
    assert home.names() == []
    assert foreign.read_bytes() == b"foreign"


@pytest.mark.parametrize("leads_to", ["real", "nowhere"])
def test_a_link_in_the_place_of_a_folder_is_refused(home: Home, place: Path, leads_to: str) -> None:
    (place.parent / "real").mkdir(0o700)
    for link in (place / "keys", place.parent / "link"):
        link.symlink_to(place.parent / leads_to)
    with refused(place):
        home.folder("keys")
    with refused(place):
        open_home(place.parent / "link")
    assert not (place.parent / "nowhere").exists()


def test_a_link_on_the_way_is_followed_once(home: Home, place: Path) -> None:
    home.create("file", b"x")
    (place.parent / "way").symlink_to(place.parent)
    with open_home(place.parent / "way" / place.name) as again:
        assert again.path_of("file") == str(place / "file")
    (place.parent / "circle").symlink_to("circle")
    with refused(place):
        open_home(place.parent / "circle" / "home")


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listening, umask(0o177):
            listening.bind(path.name)
    finally:
        os.chdir(here)


def make_second_name(path: Path) -> None:
    other = path.with_name("other")
    other.touch(0o600)
    other.rename(path.parent.parent / "other")
    path.hardlink_to(path.parent.parent / "other")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "make", [lambda path: path.mkdir(0o700), lambda path: os.mkfifo(path, 0o600), make_socket, make_second_name]
)
def test_what_is_not_a_plain_file_with_one_name_is_refused(
    home: Home, place: Path, make: Callable[[Path], None], use: Callable[[Home], object]
) -> None:
    make(place / "file")
    descriptors = names_in(Path("/dev/fd"))
    with refused(place):
        use(home)
    assert names_in(Path("/dev/fd")) == descriptors


def test_a_file_in_the_place_of_a_folder_is_refused(home: Home, place: Path) -> None:
    home.create("file", b"x")
    with refused(place):
        home.folder("file")
    for path in (place / "file", place / "file" / "below"):
        with refused(place):
            open_home(path)


def test_a_folder_is_not_removed_as_a_file(home: Home, place: Path) -> None:
    home.folder("keys").close()
    with refused(place):
        home.remove("keys")
    assert home.names() == ["keys"]


def test_a_home_that_is_swapped_for_another_is_still_the_one_we_hold(home: Home, place: Path) -> None:
    home.create("file", b"x")
    place.rename(place.with_name("aside"))
    with refused(place, StateMissing):
        home.path_of("file")
    open_home(place.with_name("other")).create("file", b"foreign")
    place.symlink_to("other")
    home.replace("file", b"ours")
    assert (place / "file").read_bytes() == b"foreign"
    assert home.read("file", max_bytes=9) == (place.with_name("aside") / "file").read_bytes() == b"ours"
    with refused(place):
        home.path_of("file")


def test_a_link_that_leads_back_to_the_home_is_no_path_of_it(home: Home, place: Path) -> None:
    home.create("file", b"x")
    place.rename(place.with_name("aside"))
    place.symlink_to("aside")
    with refused(place):
        home.path_of("file")


@contextmanager
def repeated(swap: Callable[[], None]) -> Iterator[None]:
    """Run `swap` over and over in another thread."""
    done, swapped = Event(), Event()

    def work() -> None:
        while not done.is_set():
            swap()
            swapped.set()

    thread = Thread(target=work)
    thread.start()
    swapped.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("use", [*USES, lambda home: home.create("file", b"new")])
def test_a_link_swapped_in_meanwhile_is_never_followed(
    home: Home, place: Path, foreign: Path, use: Callable[[Home], object]
) -> None:
    def swap() -> None:
        (place / "link").symlink_to(foreign)
        (place / "link").rename(place / "file")
        (place / "plain").touch(0o600)
        (place / "plain").rename(place / "file")
        (place / "file").unlink(missing_ok=True)

    known = {None, b"", b"new", True, False, str(place / "file")}
    before = foreign.stat()
    with repeated(swap):
        for _ in range(1000):
            with suppress(HomeUnsafe, StateMissing, FileExistsError):
                assert use(home) in known
    assert foreign.read_bytes() == b"foreign"
    assert foreign.stat().st_mtime_ns == before.st_mtime_ns


def test_a_home_swapped_meanwhile_is_the_right_one_or_none(home: Home, place: Path) -> None:
    open_home(place.with_name("other")).create("file", b"foreign")
    home.create("file", b"ours")

    def swap() -> None:
        place.rename(place.with_name("aside"))
        place.symlink_to("other")
        place.unlink()
        place.with_name("aside").rename(place)

    with repeated(swap):
        for _ in range(1000):
            with suppress(HomeUnsafe, StateMissing), open_home(place, create=False) as again:
                assert again.read("file", max_bytes=9) == b"ours"


def failing(number: int, wait: int = 0) -> Callable[..., None]:
    """Return a system call that fails after some that succeed without doing anything."""
    calls = iter(range(wait))

    def call(*_: object, **__: object) -> None:
        if next(calls, None) is None:
            raise OSError(number, os.strerror(number), "/the/path/of/the/home")

    return call


FAULTS = [
    ("write", errno.ENOSPC, 0), ("write", errno.EDQUOT, 0), ("fsync", errno.EIO, 0), ("fsync", errno.EIO, 1),
    ("rename", errno.EROFS, 0), ("open", errno.EMFILE, 0),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_leaves_the_old_or_the_new_and_nothing_else(
    home: Home, place: Path, monkeypatch: pytest.MonkeyPatch, fault: tuple[str, int, int]
) -> None:
    call, number, wait = fault
    home.create("file", b"old" * 1000)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number, wait))
        with pytest.raises(LedgerUnavailable) as caught:
            home.replace("file", b"new" * 1000)
    assert "/the/path" not in str(caught.value)
    assert home.read("file", max_bytes=3000) == (b"new" if (call, wait) == ("fsync", 1) else b"old") * 1000
    assert names_in(place) == ["file"]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault[0] != "rename"])
def test_a_disk_that_fails_leaves_nothing_of_a_new_file(
    home: Home, place: Path, monkeypatch: pytest.MonkeyPatch, fault: tuple[str, int, int]
) -> None:
    call, number, wait = fault
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number, wait))
        with pytest.raises(LedgerUnavailable):
            home.create("file", b"new")
    assert names_in(place) == []


@pytest.mark.parametrize(
    ("number", "error"), [(errno.EACCES, HomeUnsafe), (errno.EPERM, HomeUnsafe), (errno.ENOENT, StateMissing)]
)
def test_what_the_system_does_not_allow_is_told_apart_from_what_it_cannot_do(
    home: Home, monkeypatch: pytest.MonkeyPatch, number: int, error: type[RemitError]
) -> None:
    monkeypatch.setattr(os, "fsync", failing(number))
    with pytest.raises(error) as caught:
        home.create("file", b"new")
    assert "/the/path" not in str(caught.value)


def python(place: Path, text: str) -> "subprocess.Popen[bytes]":
    """Start a process that has opened the home."""
    start = "import os, signal, sys\nfrom pathlib import Path\nfrom remit.ledger.home import open_home\n"
    command = f"{start}home = open_home(Path(sys.argv[1]))\n{text}"
    return subprocess.Popen([sys.executable, "-c", command, str(place)], stdout=subprocess.PIPE)


KILLED = """
calls = iter(range(WAIT))
real = os.CALL
def call(*given, **named):
    if next(calls, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)
os.CALL = call
home.replace("file", b"new" * 1000)
"""


@pytest.mark.parametrize(
    ("call", "wait", "left"),
    [("write", 0, b"old"), ("fsync", 0, b"old"), ("rename", 0, b"old"), ("fsync", 1, b"new")],
)
def test_a_process_that_is_killed_leaves_the_old_or_the_new(
    home: Home, place: Path, call: str, wait: int, left: bytes
) -> None:
    home.create("file", b"old" * 1000)
    with python(place, KILLED.replace("CALL", call).replace("WAIT", str(wait))) as killed:
        assert killed.wait() == -signal.SIGKILL
    assert home.read("file", max_bytes=3000) == left * 1000
    assert home.names() == ["file"]


def test_who_reads_while_others_replace_gets_a_whole_file(home: Home) -> None:
    contents = [b"a" * 10_000, b"b" * 20_000]
    home.create("file", contents[0])
    turns = iter(contents * 10_000)
    with repeated(lambda: home.replace("file", next(turns))):
        assert {home.read("file", max_bytes=20_000) for _ in range(1000)} <= set(contents)


COUNTING = """
for _ in range(100):
    with home.locked("lock"):
        home.replace("count", b"%d" % (int(home.read("count", max_bytes=9)) + 1))
"""


def test_processes_take_turns(home: Home, place: Path) -> None:
    home.create("count", b"0")
    with python(place, COUNTING) as one, python(place, COUNTING) as other:
        assert (one.wait(), other.wait()) == (0, 0)
    assert home.read("count", max_bytes=9) == b"200"


def test_threads_take_turns_even_if_the_lock_file_is_removed(home: Home) -> None:
    home.create("count", b"0")

    def work() -> None:
        for _ in range(100):
            with home.locked("lock"):
                home.replace("count", b"%d" % (int(home.read("count", max_bytes=9) or b"") + 1))
                home.remove("lock")

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert home.read("count", max_bytes=9) == b"400"


def test_a_process_that_dies_lets_go_of_the_lock(home: Home, place: Path) -> None:
    with python(place, "with home.locked('lock'):\n    print(flush=True)\n    signal.pause()") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
        with home.locked("lock"):
            assert holder.wait() == -signal.SIGKILL


def test_a_lock_is_let_go_after_an_error_and_by_forked_children(home: Home) -> None:
    with pytest.raises(ZeroDivisionError), home.locked("lock"):
        raise ZeroDivisionError
    with home.locked("lock"):
        waiting, end = os.pipe()
        child = os.fork()
        if not child:
            os.close(end)
            os.read(waiting, 1)
            os._exit(0)
    with home.locked("lock"):
        os.close(end)
        os.close(waiting)
        assert os.waitpid(child, 0)[1] == 0


def test_every_content_that_replaces_another_has_a_version_of_its_own(home: Home) -> None:
    assert home.version_of("config.json") is None
    versions = list[object]()
    for number in range(20):
        home.replace("config.json", b"%02d" % number)
        versions.append(home.version_of("config.json"))
        assert home.version_of("config.json") == versions[-1]
    assert all(one != other for one, other in pairwise(versions))
