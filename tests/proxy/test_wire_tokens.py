"""Who may come in, over raw sockets: what needs a token, what opens what, and that tokens are seen nowhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.proxy.routes import documented_routes
from tests.proxy.service import HTTP, Answer, Running, error_code, read_answer, running

OPEN = {"/health", "/healthz", "/.well-known/jwks.json"}
ADMIN = {"/revoke", "/kill-switch"}
# Wrong tokens of other tests may have been counted already.
CLOSED = (401, 429)


ROUTES = [(route.method, route.path.replace("{session_id}", "session:x")) for route in documented_routes()]
GUARDED = [(method, path) for method, path in ROUTES if path not in OPEN]


@pytest.fixture(scope="module")
def open_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("open") / "home", HTTP) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("closed") / "home", HTTP, "--require-token", "--log-level", "debug") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def tokens(proxy: Running) -> dict[str, str]:
    return {name: proxy.token(name) for name in ("proxy", "admin")}


def told(answer: Answer) -> tuple[object, ...]:
    """What a client can tell answers apart by."""
    apart = {"date", "x-request-id"}
    return answer.status, answer.body, frozenset(item for item in answer.headers.items() if item[0] not in apart)


def test_there_are_routes_of_every_kind() -> None:
    paths = {path for _, path in ROUTES}
    assert paths >= OPEN | ADMIN
    assert len(GUARDED) >= 10


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_nothing_is_reached_without_a_token(proxy: Running, method: str, path: str) -> None:
    answer = proxy.ask(method, path, {} if method == "POST" else None)
    assert (answer.status, error_code(answer), answer.headers["www-authenticate"]) == (401, "auth_required", "Bearer")


@pytest.mark.parametrize("path", sorted(OPEN))
def test_health_and_keys_are_for_everyone(proxy: Running, path: str) -> None:
    assert proxy.ask("GET", path).status == 200


def test_without_a_token_what_is_there_and_what_is_not_look_the_same(proxy: Running) -> None:
    asked = [*GUARDED, ("GET", "/nowhere"), ("POST", "/nowhere"), ("PUT", "/evaluate"), ("POST", "/health")]
    assert len({told(proxy.ask(method, path)) for method, path in asked}) == 1


def test_a_body_is_not_looked_at_before_the_door_is_open(proxy: Running) -> None:
    plain, broken = proxy.ask("POST", "/evaluate", b"{"), proxy.ask("POST", "/evaluate", content_length="99999999")
    assert told(plain) == told(broken)


@pytest.mark.parametrize("name", ["proxy", "admin"])
def test_a_token_opens_what_it_is_for(proxy: Running, tokens: dict[str, str], name: str) -> None:
    token = f"Bearer {tokens[name]}"
    statuses = {path: proxy.ask(method, path, authorization=token).status for method, path in GUARDED}
    assert {path for path, status in statuses.items() if status == 401} == (ADMIN if name == "proxy" else set())
    assert proxy.ask("GET", "/nowhere", authorization=token).status == 404
    assert proxy.ask("PUT", "/evaluate", authorization=token).status == 405


def test_the_administrators_doors_are_closed_where_all_others_are_open(open_proxy: Running) -> None:
    other, admin = (f"Bearer {open_proxy.token(name)}" for name in ("proxy", "admin"))
    assert open_proxy.ask("GET", "/metrics").status == 200
    for path in ADMIN:
        assert open_proxy.ask("POST", path, {}).status == 401
        assert open_proxy.ask("POST", path, {}, authorization=other).status == 401
        assert open_proxy.ask("POST", path, {}, authorization=admin).status == 400


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "bEaReR", "Bearer "])
def test_the_scheme_is_read_in_any_case(proxy: Running, tokens: dict[str, str], scheme: str) -> None:
    assert proxy.ask("GET", "/metrics", authorization=f"{scheme} {tokens['proxy']}").status == 200


@pytest.mark.parametrize(
    "written", ["$", "Basic $", "Bearer$", "Bearer $x", "Bearer x$", "Bearer $ $", "Bearer, $", "Bearer"]
)
def test_a_token_that_is_written_otherwise_opens_nothing(proxy: Running, tokens: dict[str, str], written: str) -> None:
    authorization = written.replace("$", tokens["proxy"])
    assert proxy.ask("GET", "/metrics", authorization=authorization).status in CLOSED


def test_a_token_opens_nothing_anywhere_but_in_its_header(proxy: Running, tokens: dict[str, str]) -> None:
    token = tokens["admin"]
    elsewhere = [f"/metrics?{name}={token}" for name in ("token", "access_token", "authorization", "key")]
    assert {proxy.ask("GET", target).status for target in elsewhere} == {401}
    assert proxy.ask("GET", "/metrics", cookie=f"token={token}").status == 401
    assert proxy.ask("GET", "/metrics", proxy_authorization=f"Bearer {token}", x_api_key=token).status == 401


def test_two_tokens_open_nothing_even_if_one_is_right(proxy: Running, tokens: dict[str, str]) -> None:
    right = f"Bearer {tokens['proxy']}"
    request = proxy.request("GET", "/metrics", authorization=f"{right}\r\nauthorization: {right}", connection="close")
    assert [answer.status in CLOSED for answer in proxy.send(request)] == [True]


def test_wrong_tokens_are_slowed_down_whoever_they_say_they_are_from_and_the_right_one_still_opens(
    proxy: Running, tokens: dict[str, str]
) -> None:
    def wrong(number: int) -> bytes:
        address = f"198.51.100.{number}"
        spoofed = {"x_forwarded_for": address, "forwarded": f"for={address}", "x_real_ip": address}
        return proxy.request("GET", "/metrics", None, authorization=f"Bearer wrong-{number}", **spoofed)

    right = proxy.request("GET", "/metrics", authorization=f"Bearer {tokens['proxy']}")
    answers = []
    with proxy.connect() as connection:
        for request in (*map(wrong, range(30)), right):
            connection.sendall(request)
            answers.append(read_answer(connection))
    *refused, last = answers
    slowed = [answer for answer in refused if answer.status == 429]
    assert {answer.status for answer in refused} <= set(CLOSED)
    assert {(error_code(answer), answer.headers["retry-after"]) for answer in slowed} == {("too_many_tries", "1")}
    assert last.status == 200


def test_headers_of_proxies_change_nothing(open_proxy: Running) -> None:
    session = open_proxy.session("Read")
    call = {"session_id": session, "tool_name": "Read", "arguments": {"file_path": "/srv/project/a"}}
    forged = {
        "x_forwarded_for": "evil", "x_forwarded_host": "evil.example", "x_forwarded_proto": "https",
        "forwarded": "for=evil;host=evil.example", "x_ssl_client_verify": "SUCCESS", "x_ssl_cert": "evil",
        "x_ssl_client_s_dn": "CN=admin", "x_client_cert": "evil", "x_http_method_override": "GET",
    }  # fmt: skip
    assert open_proxy.ask("POST", "/evaluate", call, certificate=None, **forged).json["decision"] == "PERMIT"
    assert open_proxy.ask("POST", "/revoke", {}, certificate=None, **forged).status == 401
    assert "evil" not in open_proxy.log_to_here()


def test_tokens_are_seen_nowhere(proxy: Running, tokens: dict[str, str]) -> None:
    for token in (*tokens.values(), "a-wrong-token-of-someone"):
        for method, path in [*GUARDED, ("GET", f"/nowhere?token={token}")]:
            assert token.encode() not in proxy.ask(method, path, {"x": token}, authorization=f"Bearer {token}").body
        assert token not in proxy.log_to_here()
        assert token.encode() not in Path(f"/proc/{proxy.pid}/cmdline").read_bytes()
        assert token.encode() not in Path(f"/proc/{proxy.pid}/environ").read_bytes()
    assert '"refused"' in proxy.log
