"""Which values of `Host` are ours: those of a fixed list, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import FieldInvalid
from remit.http.hosts import allowed_hosts, host_name, is_loopback, is_wildcard, url_host

LOCAL = {b"127.0.0.1:8443", b"localhost:8443", b"[::1]:8443"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::"])
def test_a_local_or_wildcard_address_is_served_under_the_local_names(host: str) -> None:
    assert allowed_hosts(host, 8443) == LOCAL


def test_another_address_is_served_under_itself_only() -> None:
    assert allowed_hosts("192.0.2.7", 8443) == {b"192.0.2.7:8443"}
    assert allowed_hosts("2001:db8::7", 8443) == {b"[2001:db8::7]:8443"}


@pytest.mark.parametrize("port", [80, 443])
def test_the_port_of_a_scheme_may_be_left_out(port: int) -> None:
    assert b"localhost" in allowed_hosts("127.0.0.1", port)
    assert b"localhost" not in allowed_hosts("127.0.0.1", 8443)


def test_a_name_that_is_added_without_a_port_has_ours_or_that_of_its_scheme() -> None:
    added = allowed_hosts("127.0.0.1", 8443, ["Remit.Example"]) - LOCAL
    assert added == {b"remit.example", b"remit.example:8443", b"remit.example:80", b"remit.example:443"}


def test_a_name_that_is_added_with_a_port_has_that_one() -> None:
    assert allowed_hosts("127.0.0.1", 8443, ["remit.example:9000", "[::2]:1"]) - LOCAL == {
        b"remit.example:9000", b"[::2]:1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "", "*", "*.example", "a..b", ".a", "a.", "-a", "a-", "a_b", "a b", "a/b", "a@b", "http://a", "a:", "a:0",
        "a:x", "a:65536", "a:-1", "a:\u0661", "a:1:2", "::1", "[::1", "[x]", "[127.0.0.1]", "\u00e4.example",
        "a\n", "a\0b", "a" * 64, "a." * 128,
    ],
)  # fmt: skip
def test_what_is_not_a_host_cannot_be_added(value: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        allowed_hosts("127.0.0.1", 8443, [value])
    assert refused.value.code == "field_invalid"


@given(st.text(max_size=20), st.integers(1, 65535))
def test_only_what_is_listed_is_ours(name: str, port: int) -> None:
    listed = {"127.0.0.1", "localhost", "[::1]", "remit.example:9000"}
    ours = allowed_hosts("127.0.0.1", 8443, ["remit.example:9000"])
    sent = f"{name}:{port}".encode("utf-8", "surrogatepass")
    assert (sent in ours) == (f"{name}:{port}" in listed or (name in listed and port == 8443))
    assert name.encode("utf-8", "surrogatepass") not in ours


@pytest.mark.parametrize(
    ("host", "loopback", "wildcard"),
    [
        ("127.0.0.1", True, False), ("127.8.8.8", True, False), ("::1", True, False), ("localhost", True, False),
        ("0.0.0.0", False, True), ("::", False, True), ("192.0.2.1", False, False), ("localhost.", False, False),
        ("localhost.evil.example", False, False), ("", False, False), ("2130706433", False, False),
    ],
)  # fmt: skip
def test_local_and_wildcard_addresses_are_told_from_others(host: str, loopback: bool, wildcard: bool) -> None:
    assert (is_loopback(host), is_wildcard(host)) == (loopback, wildcard)


def test_a_name_is_taken_out_of_a_host() -> None:
    values = ["a.example", "a.example:1", "127.0.0.1:1", "[::1]", "[::1]:1"]
    assert [host_name(value) for value in values] == ["a.example", "a.example", "127.0.0.1", "::1", "::1"]
    assert [url_host(host) for host in ("::1", "a.example")] == ["[::1]", "a.example"]
