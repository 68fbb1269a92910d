"""Local origins: browser extensions and loopback hosts, compared as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.server.auth import is_local_origin

CHROME = b"chrome-extension://" + b"abcdefghijklmnop" * 2
FIREFOX = b"moz-extension://0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


@pytest.mark.parametrize(
    "origin",
    [
        CHROME, FIREFOX, b"http://127.0.0.1", b"http://127.0.0.1:8765", b"http://localhost", b"http://localhost:1",
        b"http://[::1]", b"http://[::1]:65535", b"http://127.1.2.3", b"http://127.255.255.255:1",
    ],
)  # fmt: skip
def test_extensions_and_loopback_pages_over_http_are_allowed(origin: bytes) -> None:
    assert is_local_origin(origin)


@pytest.mark.parametrize(
    "origin",
    [
        b"", b"null", b"*", b"http://", b"https://127.0.0.1", b"https://localhost", b"https://localhost:8765",
        b"https://127.1.2.3", b"https://evil.example", b"http://128.0.0.1", b"http://127.0.0.256", b"http://127.0.0.01",
        b"http://evil.example", b"http://127.0.0.1.evil.example", b"http://localhost.evil.example", b"http://127.1",
        b"http://localhost.", b"http://LOCALHOST", b"HTTP://localhost", b"http://0.0.0.0", b"http://2130706433",
        b"http://[::2]", b"http://::1", b"http://[::ffff:127.0.0.1]", b"http://user@localhost", b"http://localhost@evil",
        b"http://localhost/", b"http://localhost:8765/", b"http://localhost?x", b"http://localhost#", b"//localhost",
        b"http://localhost:", b"http://localhost:0", b"http://localhost:00", b"http://localhost:080",
        b"http://localhost:65536", b"http://localhost:99999", b"http://localhost:123456", b"http://localhost:+1",
        b"http://localhost, http://localhost", b" http://localhost", b"http://localhost\n", b"http://localhost\0",
        b"ws://localhost", b"file://", CHROME.upper(), CHROME + b"/", CHROME + b":1", CHROME + b".evil.example",
        b"chrome-extension://", b"chrome-extension://" + b"a" * 65, FIREFOX.upper(), FIREFOX + b"/", FIREFOX + b"_",
        b"moz-extension://*", b"safari-web-extension://x",
        b"http://127.0.0.1:\xb2", b"\xff",
    ],
)  # fmt: skip
def test_all_others_are_not(origin: bytes) -> None:
    assert not is_local_origin(origin)


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=5))
def test_nothing_is_allowed_with_something_before_or_after_it(other: bytes, more: bytes) -> None:
    assert not is_local_origin(other) or other.startswith((b"http://", b"chrome-extension://", b"moz-extension://"))
    assert not is_local_origin(more + CHROME)
    assert not is_local_origin(FIREFOX + b"/" + more)


@given(st.integers(0, 10**6))
def test_a_port_is_a_port(port: int) -> None:
    assert is_local_origin(b"http://localhost:%d" % port) == (0 < port < 65536)
