"""What is taken for HTTP, over raw sockets: what could be read in two ways is refused, and the connection ends.

Every row is followed by a second request in the same packet; it must never get an answer of its own.
"""

from collections.abc import Iterator

import pytest

from tests.proxy.service import HTTP, Running, error_code, read_answer, running

GET = "GET /health HTTP/1.1\r\nHost: $HOST\r\n"
POST = "POST /evaluate HTTP/1.1\r\nHost: $HOST\r\nContent-Type: application/json\r\n"
CHUNKED = POST + "Transfer-Encoding: chunked\r\n\r\n"
NEXT = GET + "Connection: close\r\n\r\n"

REFUSED = {
    # Where a body ends.
    "length and chunks": POST + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "the same length twice": POST + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": POST + "Content-Length: 2, 2\r\n\r\n{}",
    "a length with a plus": POST + "Content-Length: +5\r\n\r\n{}",
    "a length with a minus": POST + "Content-Length: -2\r\n\r\n{}",
    "a length with an underscore": POST + "Content-Length: 1_0\r\n\r\n{}",
    "a hexadecimal length": POST + "Content-Length: 0x5\r\n\r\n{}",
    "an empty length": POST + "Content-Length:\r\n\r\n{}",
    "a length beyond all": POST + "Content-Length: 99999999999999999999999\r\n\r\n{}",
    "a length behind zeros": POST + f"Content-Length: {'0' * 20}2\r\n\r\n{{}}",
    "a length behind thousands of zeros": POST + f"Content-Length: {'0' * 9000}2\r\n\r\n{{}}",
    "an unknown coding": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding that is none": POST + "Transfer-Encoding: identity\r\n\r\n",
    "an empty coding": POST + "Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "compressed, and no end": POST + "Transfer-Encoding: gzip\r\n\r\n{}",
    "compressed, in chunks": POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks, compressed": POST + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunks in chunks": POST + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a coding behind a control character": POST + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP 1.0": GET.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a space before another colon": POST + "Content-Length : 2\r\n\r\n{}",
    # What chunks are made of.
    "a bad end of a chunk": CHUNKED + "2\r\n{}XX0\r\n\r\n",
    "half an end of a chunk": CHUNKED + "2\r\n{}\n0\r\n\r\n",
    "chunks by line feeds": CHUNKED + "2\n{}\n0\n\n",
    "a bad size of a chunk": CHUNKED + "zz\r\n{}\r\n0\r\n\r\n",
    "a chunk with a minus": CHUNKED + "-2\r\n{}\r\n0\r\n\r\n",
    "a chunk size with a prefix": CHUNKED + "0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk size with an underscore": CHUNKED + "0_2\r\n{}\r\n0\r\n\r\n",
    "a chunk size beyond all": CHUNKED + "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "a space after a chunk size": CHUNKED + "2 \r\n{}\r\n0\r\n\r\n",
    "a line feed in a chunk extension": CHUNKED + "2;a\nb\r\n{}\r\n0\r\n\r\n",
    "a huge chunk extension": CHUNKED + f"2;{'a' * 2**20}\r\n{{}}\r\n0\r\n\r\n",
    "a huge number of tiny chunks": CHUNKED + "1;aaa\r\n \r\n" * 2**17 + "0\r\n\r\n",
    "a field after the body": CHUNKED + "2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\n\r\n",
    # Lines.
    "a bare line feed": GET.replace("\r\n", "\n") + "\n",
    "a line feed after the request line": GET.replace("\r\n", "\n", 1) + "\r\n",
    "a line feed after a field": GET + "X: a\n\r\n",
    "a line feed at the end": GET + "\n",
    "a carriage return in a field": GET + "X: a\rb\r\n\r\n",
    "a folded line": GET + "X: a\r\n b\r\n\r\n",
    "a line folded by a tab": GET + "X: a\r\n\tb\r\n\r\n",
    "a folded first line": "GET /health HTTP/1.1\r\n Host: $HOST\r\n\r\n",
    "a null in a value": GET + "X: a\0b\r\n\r\n",
    "a null in a name": GET + "X\0: b\r\n\r\n",
    "a control character": GET + "X: a\x01b\r\n\r\n",
    "a name that is not ASCII": GET + "X\xe4: b\r\n\r\n",
    "a field without a name": GET + ": b\r\n\r\n",
    "a field without a colon": GET + "abc\r\n\r\n",
    # Other protocols.
    "HTTP 0.9": "GET /health\r\n",
    "HTTP 0.9, by name": GET.replace("1.1", "0.9") + "\r\n",
    "HTTP 1.2": GET.replace("1.1", "1.2") + "\r\n",
    "HTTP 2.0": GET.replace("1.1", "2.0") + "\r\n",
    "HTTP 3.0": GET.replace("1.1", "3.0") + "\r\n",
    "the preface of HTTP 2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "a protocol in lower case": GET.replace("HTTP", "http") + "\r\n",
    "the beginning of TLS": "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03",
    "an upgrade to WebSocket": GET + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "an upgrade to HTTP 2": GET + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
    "CONNECT": "CONNECT evil.example:443 HTTP/1.1\r\nHost: $HOST\r\n\r\n",
    "CONNECT to ourselves": "CONNECT $HOST HTTP/1.1\r\nHost: $HOST\r\n\r\n",
    "nonsense": "\xff" * 500,
    # Targets and methods.
    "a target that is not ASCII": GET.replace("health", "h\xe4lth") + "\r\n",
    "a null in a target": GET.replace("health", "h\0lth") + "\r\n",
    "a space in a target": GET.replace("health", "health x") + "\r\n",
    "a fragment": GET.replace("health", "health#x") + "\r\n",
    "tabs for spaces": GET.replace(" ", "\t") + "\r\n",
    "a relative target": GET.replace("/health", "health") + "\r\n",
    "only a query": GET.replace("/health", "?x") + "\r\n",
    "a method that there is not": GET.replace("GET", "FETCH") + "\r\n",
    "a method in lower case": GET.replace("GET", "get") + "\r\n",
}
TOO_LARGE = {
    "a long field": GET + f"X: {'a' * 16384}\r\n\r\n",
    "a field that does not end": GET + f"X: {'a' * 2**20}",
    "a name that does not end": GET + "a" * 2**20,
    "long fields together": GET + f"X: {'a' * 1000}\r\n" * 17 + "\r\n",
    "101 fields": GET + "X: a\r\n" * 100 + "\r\n",
    "a long target": GET.replace("health", "a" * 8192) + "\r\n",
    "a long query": GET.replace("health", "health?" + "a" * 8192) + "\r\n",
    "a target that does not end": "GET /" + "a" * 2**20,
}
SERVED = {
    "100 fields": GET + "X: a\r\n" * 99 + "\r\n",
    "empty lines before": "\r\n\r\n" + GET + "\r\n",
    "a body that nobody asked for": GET + "Content-Length: 2\r\n\r\n{}",
    "chunks that nobody asked for": GET + "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n",
    "a value that is not ASCII": GET + "X: \xff\r\n\r\n",
    "an upgrade that is not for us": GET + "Upgrade: h2c\r\n\r\n",
    "a query": GET.replace("health", "health?token=x") + "\r\n",
    "spaces around a length": GET + "Content-Length:  2  \r\n\r\n{}",
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("proxy") / "home", HTTP) as proxy:
        yield proxy


def raw(proxy: Running, text: str) -> bytes:
    return text.replace("$HOST", proxy.host).encode("latin-1")


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_what_is_not_http_is_refused_and_ends_the_connection(proxy: Running, row: str) -> None:
    (answer,) = proxy.send(raw(proxy, row + NEXT))
    assert (answer.status, error_code(answer), answer.headers["connection"]) == (400, "bad_request", "close")


@pytest.mark.parametrize("row", TOO_LARGE.values(), ids=TOO_LARGE)
def test_headers_that_are_too_large_are_refused_and_end_the_connection(proxy: Running, row: str) -> None:
    (answer,) = proxy.send(raw(proxy, row + NEXT))
    assert (answer.status, error_code(answer), answer.headers["connection"]) == (431, "headers_too_large", "close")


@pytest.mark.parametrize("row", SERVED.values(), ids=SERVED)
def test_what_is_unusual_but_clear_is_served_and_the_next_request_too(proxy: Running, row: str) -> None:
    assert [answer.status for answer in proxy.send(raw(proxy, row + NEXT))] == [200, 200]


@pytest.mark.parametrize("row", [REFUSED["length and chunks"], REFUSED["a bad end of a chunk"]])
def test_a_request_that_comes_later_gets_no_answer_either(proxy: Running, row: str) -> None:
    with proxy.connect() as connection:
        connection.sendall(raw(proxy, row))
        assert read_answer(connection).status == 400
        assert connection.recv(1) == b""


def test_a_row_that_comes_byte_by_byte_is_refused_all_the_same(proxy: Running) -> None:
    with proxy.connect() as connection:
        for byte in raw(proxy, REFUSED["a space before the colon"].split(" :")[0] + " "):
            connection.sendall(bytes([byte]))
        assert error_code(read_answer(connection)) == "bad_request"


def test_what_was_asked_before_is_answered_before_the_connection_ends(proxy: Running) -> None:
    good = raw(proxy, GET + "\r\n")
    answers = proxy.send(good + good + raw(proxy, REFUSED["two lengths"] + NEXT))
    assert [answer.status for answer in answers] == [200, 200]


def test_requests_in_one_packet_are_answered_in_their_order(proxy: Running) -> None:
    paths = ["/health", "/nowhere", "/.well-known/jwks.json", "/evaluate", "/healthz"]
    requests = [proxy.request("GET", path) for path in paths]
    answers = proxy.send(b"".join([*requests, raw(proxy, NEXT)]))
    assert [answer.status for answer in answers] == [200, 404, 200, 405, 200, 200]
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(paths) + 1


def test_a_request_after_the_last_one_is_not_answered(proxy: Running) -> None:
    assert len(proxy.send(raw(proxy, NEXT + GET + "\r\n"))) == 1


def test_http_1_0_is_served_once(proxy: Running) -> None:
    old = raw(proxy, GET.replace("1.1", "1.0") + "\r\n")
    assert [answer.status for answer in proxy.send(old + old)] == [200]


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/.well-known/jwks.json", 200), ("/nowhere", 404)])
def test_head_is_get_without_a_body(proxy: Running, path: str, status: int) -> None:
    with proxy.connect() as connection:
        connection.sendall(proxy.request("HEAD", path))
        head = read_answer(connection, "HEAD")
        connection.sendall(proxy.request("GET", path))
        full = read_answer(connection)
    assert (head.status, full.status) == (status, status)
    assert head.headers["content-length"] == full.headers["content-length"] == str(len(full.body))


def test_options_for_the_whole_server_gets_nothing(proxy: Running) -> None:
    (answer,) = proxy.send(raw(proxy, "OPTIONS * HTTP/1.1\r\nHost: $HOST\r\n\r\n" + NEXT))
    assert (answer.status, error_code(answer)) == (403, "host_not_allowed")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_another_method_says_which_there_are_and_shows_nothing_of_the_request(proxy: Running, method: str) -> None:
    answer = proxy.ask(method, "/health", x_secret="mirror-me")
    assert (answer.status, error_code(answer), answer.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")
    assert b"mirror-me" not in answer.body


def test_answers_are_not_kept_sniffed_or_signed_by_a_server(proxy: Running) -> None:
    for path in ("/health", "/nowhere"):
        headers = proxy.ask("GET", path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert "server" not in headers
        assert not [name for name in headers if name.startswith("access-control-")]
