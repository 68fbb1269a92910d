"""URLs: the host that is compared is the host that would be contacted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.urls import is_public_host, parse_host, parse_url, read_url


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("https://a.example", "https://a.example/"),
        ("HTTPS://A.Example/B", "https://a.example/B"),
        ("http://a.example:80/", "http://a.example/"),
        ("http://a.example:8080/x", "http://a.example:8080/x"),
        ("https://a.example/b/../c", "https://a.example/c"),
        ("https://a.example/b/%2e%2e/c", "https://a.example/c"),
        ("https://a.example/?q=secret#part", "https://a.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("https://b\u00fccher.example/", "https://xn--bcher-kva.example/"),
        ("wss://a.example/s", "wss://a.example/s"),
        ("ftp://a.example/f", "ftp://a.example/f"),
    ],
)
def test_a_url_comes_to_one_spelling(text: str, normal: str) -> None:
    url = parse_url(text)
    assert (url.text, url.refusal) == (normal, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.example",
        "/a",
        "https:///a.example",
        "https:a.example",
        "file:///etc/passwd",
        "javascript://a.example/%0aalert(1)",
        "data://a",
        "gopher://a.example/",
        "https://user@a.example/",
        "https://user:pass@a.example/",
        "https://good.example@evil.example/",
        "https://a.example\\@evil.example/",
        "https://a.example/ b",
        " https://a.example/",
        "https://a.example/\n",
        "https://a\u200b.example/",
        "https://a.example/%252e%252e/b",
        "https://a.example/..%2fb",
        "https://a.example:99999/",
        "https://a b.example/",
        "https://[::1/",
        "https://a.example/" + "x" * 8192,
    ],
    ids=ascii,
)
def test_a_url_that_others_read_differently_is_refused(text: str) -> None:
    assert parse_url(text).refusal


def test_a_refused_url_keeps_no_host() -> None:
    url = parse_url("https://user@a.example/" + "x" * 500)
    assert (url.scheme, url.host, url.port, url.path) == ("", "", 0, "")
    assert len(url.text) == 256


@pytest.mark.parametrize(
    ("text", "scheme", "port"), [("http://a.example", "http", 80), ("wss://a.example", "wss", 443)]
)
def test_a_port_that_is_not_written_is_that_of_the_scheme(text: str, scheme: str, port: int) -> None:
    assert (parse_url(text).scheme, parse_url(text).port) == (scheme, port)


def test_on_a_command_line_a_url_without_a_scheme_is_http() -> None:
    assert read_url("a.example/b").text == "http://a.example/b"
    assert read_url("https://a.example/b").text == "https://a.example/b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a.example", "host://a.example:0"),
        ("me@a.example", "host://a.example:0"),
        ("a.example:22", "host://a.example:22"),
        ("A.Example:22", "host://a.example:22"),
        ("[::1]:22", "host://[::1]:22"),
    ],
)
def test_a_bare_host_is_shown_with_its_port(text: str, shown: str) -> None:
    assert parse_host(text).text == shown


@pytest.mark.parametrize("text", ["a.example/b", "", "a b", "a.example:x"])
def test_what_is_no_host_is_refused(text: str) -> None:
    assert parse_host(text).refusal


@pytest.mark.parametrize("host", ["a.example.com", "8.8.8.8", "[2606:4700::1111]", "local.example.com"])
def test_public_hosts_are_public(host: str) -> None:
    assert is_public_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "printer",
        "nas.local",
        "a.internal",
        "router.lan",
        "127.0.0.1",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::10.0.0.1]",
        "[2002:7f00:1::]",
        "metadata.google.internal",
        "db.svc",
        "hidden.onion",
    ],
)
def test_hosts_of_this_machine_and_its_neighbours_are_not_public(host: str) -> None:
    assert not is_public_host(host)


@given(st.from_regex(r"https?://[a-z0-9.\[\]:@%/\\?#-]{0,30}", fullmatch=True))
def test_a_normal_url_is_its_own_normal_form(text: str) -> None:
    url = parse_url(text)
    if not url.refusal:
        assert parse_url(url.text) == url
