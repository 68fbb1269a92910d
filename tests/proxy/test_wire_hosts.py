"""Which `Host` is served, over raw sockets: a page of another name that points at our address gets nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.service import HTTP, Answer, Running, error_code, running

PATHS = ("/health", "/evaluate", "/.well-known/jwks.json", "/nowhere")

# The lines that name a host; $PORT is ours.
REFUSED = {
    "none": "",
    "empty": "Host:\r\n",
    "only a port": "Host: :$PORT\r\n",
    "two of ours": "Host: 127.0.0.1:$PORT\r\nHost: 127.0.0.1:$PORT\r\n",
    "ours and another": "Host: 127.0.0.1:$PORT\r\nHost: evil.example\r\n",
    "another and ours": "Host: evil.example\r\nhost: 127.0.0.1:$PORT\r\n",
    "two in one": "Host: 127.0.0.1:$PORT, evil.example\r\n",
    "another": "Host: evil.example\r\n",
    "another with our port": "Host: evil.example:$PORT\r\n",
    "our address in front": "Host: 127.0.0.1.evil.example:$PORT\r\n",
    "our name in front": "Host: localhost.evil.example:$PORT\r\n",
    "our name behind": "Host: evil-localhost:$PORT\r\n",
    "a name below ours": "Host: evil.localhost:$PORT\r\n",
    "a dot behind": "Host: LOCALHOST.:$PORT\r\n",
    "a dot behind, no port": "Host: LOCALHOST.\r\n",
    "every address": "Host: 0.0.0.0:$PORT\r\n",
    "our address as a number": "Host: 2130706433:$PORT\r\n",
    "our address in hexadecimal": "Host: 0x7f.0.0.1:$PORT\r\n",
    "our address in short": "Host: 127.1:$PORT\r\n",
    "our address inside of version 6": "Host: [::ffff:127.0.0.1]:$PORT\r\n",
    "version 6 in long": "Host: [0:0:0:0:0:0:0:1]:$PORT\r\n",
    "version 6 with a zone": "Host: [::1%25lo]:$PORT\r\n",
    "our port with a zero": "Host: 127.0.0.1:0$PORT\r\n",
    "as a user": "Host: 127.0.0.1:$PORT@evil.example\r\n",
    "with a user": "Host: evil@127.0.0.1:$PORT\r\n",
    "with a path": "Host: 127.0.0.1:$PORT/\r\n",
    "as a URL": "Host: http://127.0.0.1:$PORT\r\n",
    "with a space": "Host: 127.0.0.1 :$PORT\r\n",
    "not in ASCII": "Host: l\xf6calhost:$PORT\r\n",
}
SERVED = (
    "127.0.0.1:$PORT",
    "localhost:$PORT",
    "LOCALHOST:$PORT",
    "LocalHost:$PORT",
    "[::1]:$PORT",
    "  127.0.0.1:$PORT",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.1.2.3:$PORT",
    "localhost",
    "localhost:65535",
    "[::1]",
    "[::1]:80",
)

# A target with an authority of its own; `Host` is ours.
TARGETS_REFUSED = (
    "http://evil.example$PATH",
    "http://evil.example:$PORT$PATH",
    "http://127.0.0.1.evil.example:$PORT$PATH",
    "http://localhost:$PORT$PATH",
    "http://127.0.0.1:1$PATH",
    "http://127.0.0.1$PATH",
    "http://127.0.0.1:$PORT@evil.example$PATH",
    "http://evil.example@127.0.0.1:$PORT$PATH",
    "ftp://127.0.0.1:$PORT$PATH",
    "*",
)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("proxy") / "home", HTTP, "--allowed-host", "remit.example") as proxy:
        yield proxy


def get(proxy: Running, target: str, hosts: str) -> Answer:
    request = f"GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".replace("$PORT", str(proxy.port))
    (answer,) = proxy.send(request.encode("latin-1"))
    return answer


@pytest.mark.parametrize("hosts", REFUSED.values(), ids=REFUSED)
def test_a_host_that_is_not_ours_gets_nothing_whatever_it_asks_for(proxy: Running, hosts: str) -> None:
    answers = [get(proxy, path, hosts) for path in PATHS]
    assert {(answer.status, error_code(answer)) for answer in answers} == {(403, "host_not_allowed")}
    assert len({answer.body for answer in answers}) == 1


@pytest.mark.parametrize("host", SERVED)
def test_a_host_of_ours_is_served(proxy: Running, host: str) -> None:
    assert get(proxy, "/health", f"Host: {host}\r\n").json["ok"] is True


@pytest.mark.parametrize("target", TARGETS_REFUSED)
def test_a_target_that_names_another_host_gets_nothing(proxy: Running, target: str) -> None:
    for path in PATHS:
        answer = get(proxy, target.replace("$PATH", path), "Host: 127.0.0.1:$PORT\r\n")
        assert (answer.status, error_code(answer)) == (403, "host_not_allowed")


@pytest.mark.parametrize("target", ["http://127.0.0.1:$PORT/health", "HTTP://127.0.0.1:$PORT/health?x=1"])
def test_a_target_that_names_the_same_host_is_served(proxy: Running, target: str) -> None:
    assert get(proxy, target, "Host: 127.0.0.1:$PORT\r\n").status == 200


def test_a_target_that_names_a_host_does_not_stand_in_for_the_header(proxy: Running) -> None:
    answer = get(proxy, "http://127.0.0.1:$PORT/health", "")
    assert (answer.status, error_code(answer)) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["remit.example", "REMIT.example:$PORT", "remit.example:443"])
def test_a_host_that_was_added_is_served(proxy: Running, host: str) -> None:
    assert get(proxy, "/health", f"Host: {host}\r\n").status == 200


@pytest.mark.parametrize("host", ["remit.example:1", "www.remit.example", "remit.example.", "xremit.example"])
def test_nothing_but_the_host_that_was_added_is_served(proxy: Running, host: str) -> None:
    assert get(proxy, "/health", f"Host: {host}\r\n").status == 403


def test_the_host_is_checked_over_tls_too(tmp_path: Path) -> None:
    with running(tmp_path / "home") as proxy:
        assert get(proxy, "/health", "Host: evil.example\r\n").status == 403
        assert get(proxy, "/health", "Host: 127.0.0.1:$PORT\r\n").status == 200
