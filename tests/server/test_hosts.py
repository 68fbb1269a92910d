"""Which values of `Host` are ours: loopback names with any port, configured names, and no others."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remit.errors import FieldInvalid
from remit.server.hosts import allowed_hosts, host_name, is_loopback, is_loopback_host, is_wildcard, url_host

LOOPBACK = ("localhost", "127.0.0.1", "127.1.2.3", "127.255.255.255", "127.0.0.0", "[::1]")


@pytest.mark.parametrize("name", LOOPBACK)
@given(port=st.integers(1, 65535))
def test_loopback_names_are_ours_with_any_port_or_none(name: str, port: int) -> None:
    assert is_loopback_host(name.encode())
    assert is_loopback_host(f"{name}:{port}".encode())


@pytest.mark.parametrize("name", LOOPBACK)
@given(port=st.one_of(st.integers(65536), st.integers(max_value=0), st.from_regex(r"\A0[0-9]*\Z"), st.text(max_size=3)))
def test_what_is_not_a_port_makes_a_loopback_name_another_one(name: str, port: int | str) -> None:
    text = str(port)
    assume(not (text.isascii() and text.isdigit() and text[:1] != "0" and int(text) < 65536))
    assert not is_loopback_host(f"{name}:{text}".encode("utf-8", "surrogatepass"))


@given(st.sampled_from(LOOPBACK), st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_a_name_that_merely_contains_a_loopback_name_is_not_ours(name: str, before: str, after: str) -> None:
    """A page that rebinds its own name to this machine sends that name, whatever is in it."""
    assume(not after.startswith(":") and not (name.startswith("127") and after.isascii() and after.isdigit()))
    for value in (before + name, name + after, before + name + after, f"{name}.{after}", f"{before}.{name}"):
        assert not is_loopback_host(value.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "value",
    [
        "", ":1", "localhost.", "localhost.evil.example", "evil-localhost", "evil.localhost", "localhost:", "127.1",
        "127.0.0", "127.0.0.1.", "127.0.0.1.evil.example", "127.0.0.01", "127.0.0.256", "128.0.0.1", "27.0.0.1",
        "1127.0.0.1", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "0.0.0.0", "::1", "[::]", "[::2]", "[::01]",
        "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::1%25lo]", "user@localhost", "localhost@evil.example",
        "localhost/", "localhost#", "http://localhost", "localhost, evil.example", " localhost", "localhost\n",
        "local\u017fhost", "\uff11\uff12\uff17.0.0.1", "localhost:\u0661",
    ],
)  # fmt: skip
def test_other_spellings_of_loopback_are_not_ours(value: str) -> None:
    assert not is_loopback_host(value.encode())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::"])
def test_a_local_or_wildcard_address_adds_no_other_name(host: str) -> None:
    assert allowed_hosts(host, 8443) == set()


def test_another_address_is_served_under_itself_only() -> None:
    assert allowed_hosts("192.0.2.7", 8443) == {b"192.0.2.7:8443"}
    assert allowed_hosts("2001:db8::7", 8443) == {b"[2001:db8::7]:8443"}


@pytest.mark.parametrize("port", [80, 443])
def test_the_port_of_a_scheme_may_be_left_out(port: int) -> None:
    assert b"192.0.2.7" in allowed_hosts("192.0.2.7", port)
    assert b"192.0.2.7" not in allowed_hosts("192.0.2.7", 8443)


def test_a_name_that_is_added_without_a_port_has_ours_or_that_of_its_scheme() -> None:
    added = allowed_hosts("127.0.0.1", 8443, ["Remit.Example"])
    assert added == {b"remit.example", b"remit.example:8443", b"remit.example:80", b"remit.example:443"}


def test_a_name_that_is_added_with_a_port_has_that_one() -> None:
    assert allowed_hosts("127.0.0.1", 8443, ["remit.example:9000", "[::2]:1"]) == {
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
