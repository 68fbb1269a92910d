"""The command of a hook: it prints the Hub's answer, or blocks with one line that holds no secret."""

import hmac
import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from remit.assistants import hook_command as command
from tests.ports import refusing_port

TOKEN = "hook-token-that-nobody-sees"
PROOF = "key-of-the-hub-that-nobody-sees"
SAID = b'{"session_id": "s1", "tool_name": "Bash", "tool_input": {"command": "echo private"}}'
ANSWER = b'{"hookSpecificOutput": {"permissionDecision": "deny"}}'
# What stands for the proof that the Hub gives, which is made for each request.
RIGHT = b"@PROOF@"
MARK = b"x-remit-hook: @PROOF@\r\n"


def answer(body: bytes = ANSWER, *, status: bytes = b"200 OK", mark: bytes = MARK, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, mark, size, body)


def _proved(said: bytes, request: bytes, of: bytes | None) -> bytes:
    """Return an answer with the proof of the Hub in it, for this request or for another body that is named."""
    nonce = re.search(rb"X-Remit-Nonce: ([0-9a-f]{32})\r\n", request)
    assert nonce
    asked, answered = (text.partition(b"\r\n\r\n")[2] for text in (request, said))
    proved = b"\n".join((nonce[1], sha256(asked if of is None else of).hexdigest().encode(), answered))
    proof = hmac.digest(PROOF.encode(), proved, "sha256")
    return said.replace(RIGHT, proof.hex().encode())


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    return bool(end) and len(body) == int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])


@contextmanager
def hub(
    said: bytes, *, stays: bool = False, drips: bool = False, of: bytes | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one request with `said`, and then stay silent or never stop; give the port and what was asked."""
    listening = socket.create_server(("127.0.0.1", 0))
    asked = list[bytes]()

    def serve() -> None:
        with suppress(OSError):
            peer, _ = listening.accept()
            with peer:
                while not asked or (asked[-1] and not _is_whole(b"".join(asked))):
                    asked.append(peer.recv(65536))
                peer.sendall(_proved(said, b"".join(asked), of))
                while drips:
                    peer.sendall(b" ")
                    peer.settimeout(0.02)
                    with suppress(TimeoutError):
                        peer.recv(1)
                if stays:
                    peer.recv(1)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1], asked
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def wired(tmp_path: Path, port: int, **members: Any) -> Path:
    path = tmp_path / "prot.wire.json"
    url = f"http://127.0.0.1:{port}/v1/hooks/claude-code/prot-0123456789ab"
    said = {"url": url, "token": TOKEN, "proof": PROOF, "assistant": "claude-code", "deadline_s": 10}
    path.write_text(json.dumps({name: value for name, value in (said | members).items() if value is not ...}))
    (tmp_path / "sessions").mkdir(exist_ok=True)
    path.chmod(0o600)
    return path


def ran(*arguments: str | Path, said: bytes | None = SAID) -> "subprocess.CompletedProcess[bytes]":
    """Run it; without `said`, its input stays open and says nothing."""
    line = [sys.executable, "-I", "-S", "-B", command.__file__, *map(str, arguments)]
    if said is not None:
        return subprocess.run(line, input=said, capture_output=True, check=False, timeout=120)
    reading, writing = os.pipe()
    try:
        return subprocess.run(line, stdin=reading, capture_output=True, check=False, timeout=120)
    finally:
        os.close(reading)
        os.close(writing)


def blocks(result: "subprocess.CompletedProcess[bytes]") -> bool:
    """Tell whether it has blocked, said why in one line, and nothing that is private."""
    line = result.stderr
    private = (TOKEN.encode(), PROOF.encode(), b"private", b"Traceback")
    return (
        (result.returncode, result.stdout, line.count(b"\n")) == (2, b"", 1)
        and line.startswith(b"Remit: ")
        and not any(one in line for one in private)
    )


def test_what_the_hub_answers_is_printed_and_what_it_is_asked_is_what_was_said(tmp_path: Path) -> None:
    with hub(answer()) as (port, asked):
        result = ran(wired(tmp_path, port))
    assert (result.returncode, result.stdout, result.stderr) == (0, ANSWER, b"")
    head, _, body = b"".join(asked).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert (first, body) == ("POST /v1/hooks/claude-code/prot-0123456789ab HTTP/1.1", SAID)
    assert f"Authorization: Bearer {TOKEN}" in lines
    assert f"Content-Length: {len(SAID)}" in lines


ANSWERS = {
    "no Hub": answer(mark=b""),
    "no proof": answer(mark=b"x-remit-hook: 1\r\n"),
    "the proof of another answer": answer().replace(b"deny", b"DENY").replace(RIGHT, b"0" * 64),
    "an error": answer(status=b"500 Internal Server Error"),
    "a refusal": answer(status=b"403 Forbidden"),
    "a redirection": answer(status=b"302 Found"),
    "no JSON": answer(b"ok"),
    "no object": answer(b"[]"),
    "nothing": answer(b""),
    "half of it": answer(length=len(ANSWER) + 1),
    "no length": b"HTTP/1.1 200 OK\r\n" + MARK + b"\r\n" + ANSWER,
    "too much": answer(b"{" + b" " * (1 << 20) + b"}"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "no end of the head": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
    "only the end": b"",
}


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_that_is_not_a_whole_one_of_the_hub_blocks(said: bytes, tmp_path: Path) -> None:
    with hub(said) as (port, _):
        assert blocks(ran(wired(tmp_path, port)))


def test_an_answer_that_the_hub_gave_to_another_event_blocks(tmp_path: Path) -> None:
    harmless = b'{"session_id": "s1", "hook_event_name": "Notification"}'
    with hub(answer(b"{}"), of=harmless) as (port, asked):
        assert blocks(ran(wired(tmp_path, port)))
        assert asked


def test_a_hub_that_is_not_there_blocks(tmp_path: Path) -> None:
    with refusing_port() as port:
        assert blocks(ran(wired(tmp_path, port)))


@pytest.mark.parametrize("said", [b"", answer(length=len(ANSWER) + 1)], ids=["never", "never all of it"])
def test_an_answer_that_does_not_come_in_time_blocks(said: bytes, tmp_path: Path) -> None:
    with hub(said, stays=True) as (port, _):
        assert blocks(ran(wired(tmp_path, port, deadline_s=0.4)))


def test_an_answer_that_never_ends_blocks(tmp_path: Path) -> None:
    with hub(answer(b"{", length=1 << 20), drips=True) as (port, _):
        assert blocks(ran(wired(tmp_path, port, deadline_s=0.4)))


@pytest.mark.parametrize("said", [None, b"", b"x" * (16 * 1024 * 1024 + 1)], ids=["never", "nothing", "too much"])
def test_an_assistant_that_does_not_say_what_it_wants_blocks(said: bytes | None, tmp_path: Path) -> None:
    with hub(answer()) as (port, _):
        assert blocks(ran(wired(tmp_path, port, deadline_s=10 if said else 0.3), said=said))


def moved_away(path: Path) -> Path:
    return path.rename(path.with_name("elsewhere"))


def folder_in_its_place(path: Path) -> None:
    moved_away(path)
    path.mkdir()


WIRES: dict[str, Callable[[Path], object]] = {
    "gone": moved_away,
    "for others to write": lambda path: path.chmod(0o620),
    "a link": lambda path: path.symlink_to(moved_away(path)),
    "a folder": folder_in_its_place,
    "no JSON": lambda path: path.write_text("token"),
    "an array": lambda path: path.write_text("[]"),
}
MEMBERS: dict[str, dict[str, Any]] = {
    "no token": {"token": None},
    "an empty token": {"token": ""},
    "a token of two lines": {"token": "a\r\nb:c"},
    "an empty proof": {"proof": ""},
    "no assistant": {"assistant": None},
    "a time that is none": {"deadline_s": "soon"},
    "no time left": {"deadline_s": 0},
    "another machine": {"url": "http://192.0.2.1:{port}/x"},
    "another name": {"url": "http://localhost.example:{port}/x"},
    "another scheme": {"url": "https://127.0.0.1:{port}/x"},
    "no port": {"url": "http://127.0.0.1:x/x"},
    "a space in the address": {"url": "http://127.0.0.1:{port}/x HTTP/1.1"},
}


@pytest.mark.parametrize("spoil", WIRES.values(), ids=WIRES.keys())
def test_a_wire_that_is_not_what_it_must_be_blocks(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    with hub(answer()) as (port, _):
        path = wired(tmp_path, port)
        spoil(path)
        assert blocks(ran(path))


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS.keys())
def test_a_wire_that_does_not_say_what_it_must_blocks(members: dict[str, Any], tmp_path: Path) -> None:
    with hub(answer()) as (port, asked):
        said = {name: str(value).format(port=port) if name == "url" else value for name, value in members.items()}
        assert blocks(ran(wired(tmp_path, port, **said)))
    assert asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_hub_is_found_under_its_names(host: str, tmp_path: Path) -> None:
    with hub(answer()) as (port, _):
        assert ran(wired(tmp_path, port, url=f"http://{host}:{port}/x")).stdout == ANSWER


def test_no_wire_and_two_wires_block(tmp_path: Path) -> None:
    path = wired(tmp_path, 9)
    assert blocks(ran())
    assert blocks(ran(path, path))


def shown(asked: list[bytes]) -> bytes:
    """Return the secret that a request shows."""
    found = re.search(rb"\r\nX-Remit-Session: ([0-9a-f]{64})\r\n", b"".join(asked))
    assert found
    return found[1]


def test_a_session_has_one_secret_which_its_first_event_makes_and_only_its_owner_reads(tmp_path: Path) -> None:
    secrets = []
    for session in ("s1", "s1", "s2"):
        with hub(answer()) as (port, asked):
            url = f"http://127.0.0.1:{port}/v1/hooks/claude-code/prot-0123456789ab"
            said = json.dumps({"session_id": session, "tool_input": {"session_id": "another"}}).encode()
            assert ran(wired(tmp_path, port, url=url), said=said).returncode == 0
            secrets.append(shown(asked))
    assert secrets[0] == secrets[1] != secrets[2]
    kept = sorted((tmp_path / "sessions").iterdir())
    assert {file.read_bytes() for file in kept} == set(secrets)
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    assert not any("s1" in file.name for file in kept)


def test_hooks_of_one_session_that_run_at_once_show_one_secret(tmp_path: Path) -> None:
    secrets = set()
    with ExitStack() as stack:
        hubs = [stack.enter_context(hub(answer())) for _ in range(8)]
        path = "/v1/hooks/claude-code/prot-0123456789ab"
        for number, (port, _) in enumerate(hubs):
            (tmp_path / str(number)).mkdir()
            wired(tmp_path / str(number), port, url=f"http://127.0.0.1:{port}{path}")
            (tmp_path / str(number) / "sessions").rmdir()
            (tmp_path / str(number) / "sessions").symlink_to(tmp_path)
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda number: ran(tmp_path / str(number) / "prot.wire.json"), range(8)))
        assert [result.returncode for result in results] == [0] * 8
        secrets = {shown(asked) for _, asked in hubs}
    assert len(secrets) == 1


SAYINGS = {
    "no session": b'{"tool_name": "Bash"}',
    "an empty one": b'{"session_id": ""}',
    "a number": b'{"session_id": 7}',
    "one further down": b'{"tool_input": {"session_id": "s1"}}',
    "an array": b'["session_id", "s1"]',
    "no JSON": b"session_id",
    "half of it": b'{"session_id": "s1"',
    "no UTF-8": b'{"session_id": "\xff"}',
    "a depth that nobody means": b'{"a":' * 200_000,
}


@pytest.mark.parametrize("said", SAYINGS.values(), ids=SAYINGS.keys())
def test_an_event_that_does_not_name_its_session_blocks(said: bytes, tmp_path: Path) -> None:
    with hub(answer()) as (port, asked):
        assert blocks(ran(wired(tmp_path, port), said=said))
    assert asked == []


def test_a_secret_that_cannot_be_kept_or_read_blocks(tmp_path: Path) -> None:
    with hub(answer()) as (port, asked):
        path = wired(tmp_path, port)
        (tmp_path / "sessions").rmdir()
        assert blocks(ran(path))
    assert asked == []
    with hub(answer()) as (port, _):
        assert ran(wired(tmp_path, port)).returncode == 0
    (kept,) = (tmp_path / "sessions").iterdir()
    kept.write_text("short")
    with hub(answer()) as (port, asked):
        path = wired(tmp_path, port, url=f"http://127.0.0.1:{port}/v1/hooks/claude-code/prot-0123456789ab")
        assert blocks(ran(path))
    assert asked == []


def test_a_subagent_of_copilot_shows_the_secret_of_its_lead(tmp_path: Path) -> None:
    secrets = []
    for said in ({"sessionId": "lead"}, {"sessionId": "child", "parentAgentId": "lead"}, {"sessionId": "child"}):
        with hub(answer()) as (port, asked):
            path = wired(tmp_path, port, assistant="copilot", url=f"http://127.0.0.1:{port}/x")
            assert ran(path, said=json.dumps(said).encode()).returncode == 0
            secrets.append(shown(asked))
    assert secrets[0] == secrets[1] != secrets[2]


def test_a_wire_of_the_first_release_has_no_key_and_needs_no_proof(tmp_path: Path) -> None:
    with hub(answer(mark=b"x-remit-hook: 1\r\n")) as (port, _):
        assert ran(wired(tmp_path, port, proof=...)).stdout == ANSWER
    with hub(answer(mark=b"")) as (port, _):
        assert blocks(ran(wired(tmp_path, port, proof=...)))


def test_a_protection_can_be_named_by_its_id_beside_the_script(tmp_path: Path) -> None:
    copy = tmp_path / "hook.py"
    copy.write_bytes(Path(command.__file__).read_bytes())
    with hub(answer()) as (port, _):
        wired(tmp_path, port).rename(tmp_path / "prot-0123456789ab.wire.json")
        line = [sys.executable, "-I", "-S", "-B", str(copy)]
        result = subprocess.run([*line, "prot-0123456789ab"], input=SAID, capture_output=True, cwd="/", check=False)
        assert (result.returncode, result.stdout) == (0, ANSWER)
        assert blocks(subprocess.run([*line, "prot-ffffffffffff"], input=SAID, capture_output=True, check=False))


def test_an_output_that_nobody_takes_blocks(tmp_path: Path) -> None:
    line = [sys.executable, "-I", "-S", "-B", command.__file__]
    with hub(answer()) as (port, _), Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*line, wired(tmp_path, port)], input=SAID, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (result.returncode, result.stderr.count(b"\n")) == (2, 1)


def test_it_needs_nothing_of_ours_and_runs_from_anywhere(tmp_path: Path) -> None:
    copy = tmp_path / "hook.py"
    copy.write_bytes(Path(command.__file__).read_bytes())
    with hub(answer()) as (port, _):
        line = [sys.executable, "-I", "-S", "-B", str(copy), str(wired(tmp_path, port))]
        result = subprocess.run(line, input=SAID, capture_output=True, cwd="/", env={}, check=False)
    assert (result.returncode, result.stdout) == (0, ANSWER)
