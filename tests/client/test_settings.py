"""What a client is told: what it takes, and that it keeps secrets to itself."""

from pathlib import Path
from typing import Any

import pytest

from remit.client import AsyncProxy, Proxy
from remit.errors import CertificateUnusable, FieldInvalid, ServiceUnavailable
from tests.client.certs import Authority
from tests.client.conftest import Connect
from tests.client.service import SESSION, Desk, serve

TAKEN = [
    "http://127.0.0.1:8443",
    "http://127.8.8.8",
    "http://localhost:1/",
    "http://LOCALHOST:1",
    "http://[::1]:8443",
    "https://proxy.example",
    "https://192.0.2.1:8443/",
    "https://müller.example",
]
REFUSED = [
    "http://proxy.example",
    "http://192.0.2.1:80",
    "http://0.0.0.0:80",
    "http://127.0.0.1.example:80",
    "http://localhost.example",
    "http://[2001:db8::1]",
    "http://[::ffff:192.0.2.1]",
    "http://127.0.0.1@proxy.example",
    "http://127.0.0.1\\@proxy.example",
    "https://user:s3cret@proxy.example",
    "https://proxy.example/path",
    "https://proxy.example/?query",
    "https://proxy.example/#part",
    "ftp://127.0.0.1",
    "file:///etc/passwd",
    "127.0.0.1:8443",
    "//127.0.0.1",
    "https://",
    "https://a b",
    "https://proxy.example:99999",
    "https://proxy.example:0",
    "https://proxy.example%00.org",
    "https://*.example",
    "http://127.1",
    "https://xn--a",
    "https://xn--zz--",
    "https://XN--A",
    "",
    b"https://proxy.example",
    443,
    None,
]


@pytest.mark.parametrize("url", TAKEN)
def test_an_address_is_taken(url: str) -> None:
    Proxy(url).close()


@pytest.mark.parametrize("url", REFUSED)
@pytest.mark.parametrize("kind", [Proxy, AsyncProxy])
def test_an_address_is_refused(kind: Any, url: Any) -> None:
    with pytest.raises(FieldInvalid) as caught:
        kind(url)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.url")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", ""),
        ("token", "s3cret\r\nX-Other: 1"),
        ("token", "s3crét"),
        ("admin_token", "s3cret s3cret"),
        ("timeout_s", 0),
        ("timeout_s", -1),
        ("timeout_s", float("nan")),
        ("timeout_s", float("inf")),
        ("retries", -1),
        ("retries", 1000),
        ("timeout_s", "5"),
        ("timeout_s", True),
        ("timeout_s", None),
        ("retries", 1.5),
        ("retries", True),
        ("retries", "1"),
        ("token", 5),
        ("admin_token", b"s3cret"),
        ("ca", 5),
        ("client_cert", "x"),
        ("client_cert", "s3"),
        ("client_cert", ("cert.pem",)),
        ("client_cert", ("cert.pem", 5)),
        ("keyring", {}),
    ],
)
def test_a_setting_is_refused_by_name_and_not_shown(name: str, value: Any) -> None:
    with pytest.raises(FieldInvalid) as caught:
        Proxy("https://proxy.example", **{name: value})
    assert caught.value.place == f"$.{name}"
    assert "s3cr" not in str(caught.value)


def test_certificates_do_not_go_with_plain_http(tmp_path: Path) -> None:
    with pytest.raises(FieldInvalid):
        Proxy("http://127.0.0.1", ca=Authority(tmp_path, "ours").ca)


def test_files_that_tls_cannot_use_are_refused_at_once(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    one, other = ours.issue("one"), ours.issue("other")
    closed = ours.issue("closed", password=b"s3cret")
    (tmp_path / "empty").touch()
    cases: list[dict[str, Any]] = [
        {"ca": tmp_path / "missing"},
        {"ca": tmp_path / "empty"},
        {"ca": one.key},
        {"client_cert": (one.cert, other.key)},
        {"client_cert": (one.cert, tmp_path / "missing")},
        {"client_cert": closed},
    ]
    for case in cases:
        with pytest.raises(CertificateUnusable) as caught:
            Proxy("https://127.0.0.1", **case)
        assert str(tmp_path) not in str(caught.value)


def test_a_client_shows_where_it_leads_and_no_token() -> None:
    proxy = Proxy("https://proxy.example", token="s3cret-1", admin_token="s3cret-2")
    assert repr(proxy) == "Proxy('https://proxy.example:443')"
    assert "s3cret" not in repr(vars(proxy))


def test_a_service_of_our_authority_is_believed(connect: Connect, desk: Desk, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    with serve(desk, pair=ours.issue("service")) as port:
        assert connect(port, scheme="https", ca=ours.ca).health().ok


def test_a_client_shows_its_certificate(connect: Connect, desk: Desk, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    with serve(desk, pair=ours.issue("service"), client_ca=str(ours.ca)) as port:
        assert connect(port, scheme="https", ca=ours.ca, client_cert=ours.issue("client")).health().ok
        with pytest.raises(ServiceUnavailable):
            connect(port, scheme="https", ca=ours.ca).evaluate(SESSION, "read_file", {})
    assert not desk.decided


@pytest.mark.parametrize("case", ["another authority", "no authority", "another address", "no TLS"])
def test_a_service_that_cannot_prove_itself_gets_no_request(
    case: str, connect: Connect, desk: Desk, tmp_path: Path
) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    pair = ours.issue("service", "192.0.2.1" if case == "another address" else "127.0.0.1")
    ca = {"another authority": others.ca, "no authority": None}.get(case, ours.ca)
    with serve(desk, pair=None if case == "no TLS" else pair) as port:
        with pytest.raises(ServiceUnavailable) as caught:
            connect(port, scheme="https", ca=ca, token="s3cret").evaluate(SESSION, "read_file", {})
        assert f"127.0.0.1:{port}" in str(caught.value)
    assert not desk.seen
