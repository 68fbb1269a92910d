"""What is taken for a body, over raw sockets: so many bytes and no more, plain JSON, read strictly."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.service import HTTP, Running, error_code, read_answer, running

MIB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")
CALL = {"session_id": "session:x", "tool_name": "Read", "arguments": {}}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("proxy") / "home", HTTP) as proxy:
        yield proxy


def call(arguments: str) -> bytes:
    return b'{"session_id":"session:x","tool_name":"Read","arguments":' + arguments.encode() + b"}"


BAD_JSON = {
    "nothing": (b"", "$"),
    "a space": (b" ", "$"),
    "a list": (b"[]", "$"),
    "a text": (b'"x"', "$"),
    "two values": (b"{}{}", "$"),
    "a comma too many": (b'{"session_id":"x",}', "$"),
    "too deep": (call('{"a":' + "[" * 64 + "]" * 64 + "}"), "$"),
    "far too deep": (b"[" * 500_000, "$"),
    "too many members": (call(json.dumps({f"a{number}": 0 for number in range(10_001)})), "$.arguments"),
    "too long a text": (call(json.dumps({"a": "x" * (256 * 1024 + 1)})), "$.arguments.a"),
    "too long a number": (call('{"a":0.' + "1" * 63 + "}"), "$"),
    "an integer of more than 64 digits": (call('{"a":' + "9" * 65 + "}"), "$"),
    "not a number": (call('{"a":NaN}'), "$"),
    "a member twice": (b'{"session_id":"x","session_id":"y"}', "$: member 'session_id'"),
    "a member twice, further down": (call('{"a":{"b":1,"\\u0062":2}}'), "$.arguments.a: member 'b'"),
    "half a character": (call('{"a":"\\ud800"}'), "$.arguments.a"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "$"),
    "two bytes for each character": ("{}".encode("utf-16"), "$"),
    "not UTF-8": (call('{"a":"?"}').replace(b"?", b"\xff"), "$"),
    "a null byte": (b"{}\0", "$"),
    "a member that there is not": (json.dumps(CALL | {"surplus": 1}).encode(), "$"),
    "a member that is missing": (b"{}", "$"),
    "a member of another type": (json.dumps(CALL | {"tool_name": 7}).encode(), "$.tool_name"),
    "an empty name": (json.dumps(CALL | {"tool_name": ""}).encode(), "$.tool_name"),
    "an id that is too long": (json.dumps(CALL | {"session_id": "x" * 65}).encode(), "$.session_id"),
}
BAD_TYPES = (
    None,
    "",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/json; charset=latin-1",
    "application/json, text/plain",
    "application/jsonp",
    "application/problem+json",
    "text/plain; application/json",
)
GOOD_TYPES = (
    "application/json",
    "Application/JSON",
    "application/json; charset=utf-8",
    'application/json;charset="UTF-8"',
)


@pytest.mark.parametrize(("body", "place"), BAD_JSON.values(), ids=BAD_JSON)
def test_a_body_that_is_not_as_it_must_be_is_refused_by_its_place(proxy: Running, body: bytes, place: str) -> None:
    answer = proxy.ask("POST", "/evaluate", body)
    assert (answer.status, error_code(answer)) == (400, "bad_request")
    assert answer.json["error"].startswith(place)


@pytest.mark.parametrize("media_type", BAD_TYPES)
def test_another_media_type_is_refused(proxy: Running, media_type: str | None) -> None:
    answer = proxy.ask("POST", "/evaluate", CALL, content_type=media_type)
    assert (answer.status, error_code(answer)) == (415, "unsupported_media_type")


@pytest.mark.parametrize("media_type", GOOD_TYPES)
def test_json_is_taken_however_its_type_is_written(proxy: Running, media_type: str) -> None:
    assert error_code(proxy.ask("POST", "/evaluate", CALL, content_type=media_type)) == "session_not_found"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "x"])
def test_a_compressed_body_is_refused(proxy: Running, encoding: str) -> None:
    answer = proxy.ask("POST", "/evaluate", CALL, content_encoding=encoding)
    assert (answer.status, error_code(answer)) == (415, "unsupported_media_type")


def test_a_request_without_a_body_is_told_what_to_send(proxy: Running) -> None:
    assert proxy.ask("POST", "/evaluate").status == 415
    assert proxy.ask("POST", "/evaluate", content_type="application/json").status == 400


def test_a_body_may_be_left_out_where_nothing_need_be_said(proxy: Running) -> None:
    assert error_code(proxy.ask("POST", "/sessions/session:x/attest")) == "session_not_found"


def test_a_body_of_a_request_that_takes_none_is_left_unread(proxy: Running) -> None:
    assert proxy.ask("GET", "/health", b"not json").status == 200


def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_not(proxy: Running) -> None:
    largest = json.dumps(CALL).encode().ljust(MIB)
    assert error_code(proxy.ask("POST", "/evaluate", largest)) == "session_not_found"
    assert error_code(proxy.ask("POST", "/evaluate", largest + b" ")) == "body_too_large"


@pytest.mark.parametrize("length", [MIB + 1, 100 * MIB, 2**64 - 1])
def test_a_length_that_is_too_large_is_refused_before_anything_is_read(proxy: Running, length: int) -> None:
    with proxy.connect() as connection:
        connection.sendall(proxy.request("POST", "/evaluate", b"", content_length=str(length), expect="100-continue"))
        answer = read_answer(connection)
    assert (answer.status, error_code(answer)) == (413, "body_too_large")


def test_a_client_that_asks_first_is_told_to_go_on(proxy: Running) -> None:
    with proxy.connect() as connection:
        connection.sendall(proxy.request("POST", "/evaluate", b"", content_length="2", expect="100-continue"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert read_answer(connection).status == 400


def test_what_follows_a_body_that_was_too_large_is_answered_after_all_of_it_came(proxy: Running) -> None:
    with proxy.connect() as connection:
        connection.sendall(proxy.request("POST", "/evaluate", b" " * (2 * MIB)))
        assert read_answer(connection).status == 413
        connection.sendall(proxy.request("GET", "/health"))
        assert read_answer(connection).status == 200


def test_nonsense_after_a_refused_body_gets_no_second_answer(proxy: Running) -> None:
    chunks = b"%x\r\n" % (2 * MIB) + b" " * (2 * MIB) + b"\r\n"
    (answer,) = proxy.send(_chunked(proxy) + chunks + b"nonsense\r\n")
    assert answer.status == 413


def test_chunks_that_are_too_many_are_refused(proxy: Running) -> None:
    with proxy.connect() as connection:
        assert _pour(connection, proxy, MIB + 65536) == "body_too_large"


def test_a_flood_of_large_bodies_takes_no_memory(proxy: Running) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{proxy.pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE

    proxy.ask("POST", "/evaluate", b" " * MIB)
    before = resident()
    for _ in range(5):
        connections = [proxy.connect() for _ in range(10)]
        assert {_pour(connection, proxy, 100 * MIB) for connection in connections} == {"body_too_large"}
        for connection in connections:
            connection.close()
    assert resident() - before <= 20 * MIB


def _chunked(proxy: Running) -> bytes:
    return proxy.request("POST", "/evaluate", b"", content_length=None, transfer_encoding="chunked")


def _pour(connection: socket.socket, proxy: Running, size: int) -> str:
    """Return the error that is answered to so many bytes, sent until it comes."""
    connection.sendall(_chunked(proxy))
    connection.settimeout(0)
    left, rest = size, b""
    while left > 0:
        try:
            rest = rest or b"10000\r\n" + b" " * 65536 + b"\r\n"
            sent = connection.send(rest)
            rest, left = rest[sent:], left - sent
        except BlockingIOError:
            pass
        try:
            if connection.recv(1, socket.MSG_PEEK):
                break
        except BlockingIOError:
            continue
    connection.settimeout(20)
    return error_code(read_answer(connection))
