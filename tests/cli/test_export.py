"""`remit status --export`: evidence in a file that is whole or not there, or in a pipe."""

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.cli.errors import DONE, STATE, UNAVAILABLE, USAGE
from remit.cli.export import write_chunks
from remit.cli.program import READER_GONE
from remit.ledger.home import open_home
from remit.server.run_files import run_file
from tests.cli.running import piped, run
from tests.client.hub_service import EXPORT, HubDesk, packed
from tests.client.service import Canned, serve
from tests.faults.proxy_driver import until
from tests.hub.service import Hub, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("export") / "home") as hub:
        hub.observe("a talk")
        yield hub


@pytest.mark.parametrize("words", [["--export"], ["--export", "-"], ["--export", "--json"]], ids=" ".join)
def test_all_evidence_goes_to_stdout(hub: Hub, words: list[str]) -> None:
    result = piped(hub.home, "status", *words)
    assert (result.returncode, result.stderr) == (DONE, b"")
    assert len(json.loads(result.stdout)["receipts"]) == 1


def test_all_evidence_goes_to_a_file_that_is_its_owners_alone(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    file.write_text("old", encoding="utf-8")
    told = json.loads(run(hub.home, "status", "--export", str(file), "--json").stdout)
    assert told == {"ok": True, "file": str(file), "bytes": file.stat().st_size}
    assert json.loads(file.read_bytes())["ok"] is True
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["evidence.json"]


def test_a_file_that_cannot_be_written_is_named(hub: Hub, tmp_path: Path) -> None:
    result = run(hub.home, "status", "--export", str(tmp_path / "no" / "where.json"), "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["error_code"]) == (USAGE, "field_invalid")
    assert "ENOENT" in told["error"]


@pytest.mark.parametrize("given", ["--export=", "--export=/", "--export=.", "--export=nowhere/"])
def test_what_is_no_file_is_a_usage_error(hub: Hub, given: str) -> None:
    result = run(hub.home, "status", given, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (USAGE, "field_invalid")


def test_a_link_stays_and_what_it_leads_to_is_replaced(hub: Hub, tmp_path: Path) -> None:
    file, link = tmp_path / "evidence.json", tmp_path / "link"
    link.symlink_to("evidence.json")
    for _ in range(2):  # the first time it leads nowhere
        assert run(hub.home, "status", "--export", str(link)).exit_code == DONE
    assert (link.is_symlink(), file.is_symlink()) == (True, False)
    assert json.loads(file.read_bytes())["ok"] is True


def test_a_pipe_is_written_into_and_stays_one(hub: Hub, tmp_path: Path) -> None:
    fifo, read = tmp_path / "fifo", list[bytes]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
    reader.start()
    result = piped(hub.home, "status", "--export", str(fifo), "--json")
    reader.join(60)
    assert json.loads(result.stdout)["bytes"] == len(read[0])
    assert json.loads(read[0])["ok"] is True
    assert fifo.is_fifo()


@pytest.mark.parametrize("words", [[], ["--json"]], ids=str)
def test_the_name_of_stdout_is_stdout(hub: Hub, words: list[str]) -> None:
    result = piped(hub.home, "status", "--export", "/dev/stdout", *words)
    assert result.returncode == DONE
    assert len(json.loads(result.stdout)["receipts"]) == 1


def test_a_device_is_written_into_and_stays_one(hub: Hub) -> None:
    assert run(hub.home, "status", "--export", os.devnull).exit_code == DONE
    assert Path(os.devnull).is_char_device()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_disk_that_is_full_is_told_with_the_reason(hub: Hub) -> None:
    result = run(hub.home, "status", "--export", "/dev/full", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["error_code"]) == (STATE, "ledger_unavailable")
    assert "ENOSPC" in told["error"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_is_full_is_told_with_the_reason(hub: Hub) -> None:
    with Path("/dev/full").open("wb") as full:
        result = piped(hub.home, "status", "--export", stdout=full)
    assert result.returncode == STATE
    assert b"ENOSPC" in result.stderr


def test_a_reader_that_has_gone_ends_the_export_quietly(hub: Hub) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = piped(hub.home, "status", "--export", stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (READER_GONE, b"")


@contextmanager
def answering(place: Path, answer: Canned) -> Iterator[Path]:
    """Give a home whose Hub gives this answer."""
    run(place, "setup")
    with (
        serve(HubDesk(script=[answer])) as port,
        open_home(place) as home,
        run_file(home, "hub", f"http://127.0.0.1:{port}", {}) as note,
    ):
        note()
        yield place


@pytest.fixture
def breaking(tmp_path: Path) -> Iterator[Path]:
    """A home whose Hub breaks off in the middle of an export."""
    with answering(tmp_path / "home", packed(gzip.compress(EXPORT)[:20_000])) as place:
        yield place


def test_a_file_that_would_not_be_whole_is_not_there(breaking: Path, tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    file.write_text("old", encoding="utf-8")
    result = run(breaking, "status", "--export", str(file), "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (UNAVAILABLE, "hub_unavailable")
    assert file.read_text(encoding="utf-8") == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evidence.json", "home"]


def test_a_pipe_that_did_not_get_all_is_told_by_the_exit_code(breaking: Path) -> None:
    result = run(breaking, "status", "--export", "--json")
    assert result.exit_code == UNAVAILABLE
    assert EXPORT.startswith(result.stdout_bytes)
    assert result.stderr.startswith("remit: no answer")


def test_what_is_not_an_export_leaves_no_file(tmp_path: Path) -> None:
    page = Canned(body=b"<p>Log in", headers={"Content-Type": "text/html"})
    with answering(tmp_path / "home", page) as place:
        result = run(place, "status", "--export", str(tmp_path / "evidence.json"), "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["error_code"]) == (UNAVAILABLE, "hub_unavailable")
    assert "not an export" in told["error"]
    assert [one.name for one in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_in_the_middle_leaves_no_file(tmp_path: Path, number: signal.Signals) -> None:
    over, out = threading.Event(), tmp_path / "out"
    out.mkdir()

    def parts() -> Iterator[bytes]:
        yield EXPORT[:1000]
        over.wait(120)

    with answering(tmp_path / "home", Canned(body=parts())) as place:
        words = [sys.executable, "-m", "remit", "status", "--export", str(out / "file"), "--home", str(place)]
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, children ignore it too
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            signal.signal(signal.SIGINT, before)
            until(lambda: bool(list(out.iterdir())))
            process.send_signal(number)
            ended = process.wait(60)
        over.set()
    assert (ended, list(out.iterdir())) == (128 + number, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("given", ["link", "folder/evidence.json", "own/evidence.json", "folder/../evidence.json"])
def test_a_link_of_another_user_is_not_followed(hub: Hub, tmp_path: Path, given: str) -> None:
    """Whether it is the file itself, a folder on the way to it, or where a link of our own leads."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "evidence.json").write_text("mine", encoding="utf-8")
    place = tmp_path / "place"
    place.mkdir()
    (place / "link").symlink_to(victim / "evidence.json")
    (place / "folder").symlink_to(victim)
    (place / "own").symlink_to("folder")
    for name in ("link", "folder"):
        os.chown(place / name, 65534, 65534, follow_symlinks=False)
    result = run(hub.home, "status", "--export", str(place / given), "--json")
    assert (result.exit_code, json.loads(result.stdout)["error_code"]) == (USAGE, "field_invalid")
    assert "a link that another user owns" in json.loads(result.stdout)["error"]
    assert [one.name for one in victim.iterdir()] == ["evidence.json"]
    assert (victim / "evidence.json").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_becomes_a_link_while_evidence_is_written_leads_nowhere_else(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()

    def parts() -> Iterator[bytes]:
        yield b"first"
        folder.rename(tmp_path / "moved")
        folder.symlink_to(elsewhere)
        yield b"second"

    assert write_chunks(str(folder / "evidence.json"), parts()) == 11
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "moved" / "evidence.json").read_bytes() == b"firstsecond"
