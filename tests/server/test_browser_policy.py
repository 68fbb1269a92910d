"""The browser policy: token headers, origins, CORS, and bodies of any type."""

from typing import Any

import pytest

from remit.server.auth import BrowserPolicy, Credentials, is_local_origin
from tests.server.asking import TOKEN, World

EXTENSION = b"chrome-extension://" + b"a" * 32
EVIL = b"https://evil.example"
VISITED = BrowserPolicy((b"x-first", b"x-second"), b"crumb", is_local_origin, accepts_any_type=True)
PREFLIGHT = {b"origin": EXTENSION, b"access-control-request-method": b"POST"}
GRANTS = (b"access-control-allow-origin", b"access-control-allow-methods", b"access-control-allow-headers")


def visited(*, takes_any_type: bool = True) -> World:
    return World(is_closed=True, browser_policy=VISITED._replace(accepts_any_type=takes_any_type))


def asked(world: World, method: str = "POST", path: str = "/say", **headers: Any) -> World:
    """Ask with the token; a header is named as a word of Python, and left out if None."""
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    world.ask(method, path, headers={b"x-first": TOKEN.encode(), **given})
    return world


@pytest.mark.parametrize(
    ("first", "second", "bearer", "shown"),
    [
        (b"1", b"2", b"Bearer 3", "1"), (b"", b"2", b"Bearer 3", ""), (None, b"2", b"Bearer 3", "2"),
        (None, None, b"Bearer 3", "3"), (b" ", None, b"Bearer 3", ""), (None, None, b"3", ""),
        (b" 1 ", None, None, "1"), (b"Bearer 1", None, None, "Bearer 1"),
    ],
)  # fmt: skip
def test_of_several_places_the_first_that_is_present_decides(
    first: bytes | None, second: bytes | None, bearer: bytes | None, shown: str
) -> None:
    headers = {b"x-first": first, b"x-second": second, b"authorization": bearer}
    assert VISITED.credentials({name: value for name, value in headers.items() if value is not None}, {}).token == shown


@pytest.mark.parametrize("header", [b"x-first", b"x-second", b"authorization"])
@pytest.mark.parametrize("value", [b"", b"Basic x", b"Bearer x"])
def test_where_a_header_is_present_neither_the_query_nor_a_cookie_counts(header: bytes, value: bytes) -> None:
    shown = VISITED.credentials({header: value, b"cookie": b"crumb=2"}, {"token": "3"})
    assert (shown.query, shown.cookie) == ("", "")


def test_a_header_of_another_service_brings_no_token() -> None:
    sent = {b"x-first": b"1", b"cookie": b"crumb=2"}
    assert BrowserPolicy().credentials(sent, {"token": "3"}) == Credentials(query="3")


@pytest.mark.parametrize(
    ("site", "shown"),
    [(None, "1"), (b"none", "1"), (b"same-origin", "1"), (b"same-site", ""), (b"cross-site", ""), (b"x", "")],
)
def test_a_cookie_is_shown_where_no_page_of_another_site_had_it_sent(site: bytes | None, shown: str) -> None:
    sent = {b"cookie": b"crumb=1", **({} if site is None else {b"sec-fetch-site": site})}
    assert VISITED.credentials(sent, {}).cookie == shown


@pytest.mark.parametrize("name", ["x_first", "x_second", "authorization"])
def test_a_token_opens_by_each_header(name: str) -> None:
    right = b"Bearer " * (name == "authorization") + TOKEN.encode()
    for value, status in ((right, 200), (right + b"x", 401)):
        headers: dict[str, Any] = {"x_first": None, name: value}
        assert asked(visited(), **headers).status == status


@pytest.mark.parametrize("origin", [EXTENSION, b"http://localhost:3000"])
@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("POST", "/say", TOKEN, 200), ("GET", "/page", TOKEN, 200), ("POST", "/say", "x", 401),
        ("GET", "/nowhere", "x", 401), ("GET", "/nowhere", TOKEN, 404), ("DELETE", "/say", TOKEN, 405),
        ("GET", "/page?%", TOKEN, 400),
    ],
)  # fmt: skip
def test_an_allowed_origin_reads_every_answer(origin: bytes, method: str, path: str, token: str, status: int) -> None:
    world = asked(visited(), method, path, origin=origin, x_first=token.encode())
    assert world.status == status
    assert (world.headers[b"access-control-allow-origin"], world.headers[b"vary"]) == (origin, b"Origin")
    assert b"access-control-allow-credentials" not in world.headers


def test_an_allowed_origin_reads_that_a_body_is_too_large_or_compressed() -> None:
    refused: list[tuple[dict[str, Any], int]] = [
        ({"content_length": b"101"}, 413),
        ({"content_encoding": b"gzip"}, 415),
    ]
    for headers, status in refused:
        world = asked(visited(), origin=EXTENSION, **headers)
        assert (world.status, world.headers[b"access-control-allow-origin"]) == (status, EXTENSION)


@pytest.mark.parametrize("origin", [EVIL, b"null", b"", EXTENSION + b"/", EXTENSION + b", " + EXTENSION])
@pytest.mark.parametrize("path", ["/page", "/say", "/nowhere"])
def test_another_origin_reads_nothing(origin: bytes, path: str) -> None:
    world = asked(visited(), "GET", path, origin=origin)
    assert (world.status, world.headers[b"vary"]) == (404 if path == "/nowhere" else 200, b"Origin")
    assert not any(name.startswith(b"access-control") for name in world.headers)


def test_every_answer_varies_by_origin_even_without_one() -> None:
    assert asked(visited()).headers[b"vary"] == b"Origin"
    assert asked(visited(), host=b"evil").headers[b"vary"] == b"Origin"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200), ({"origin": EXTENSION}, 200), ({"origin": EXTENSION, "sec_fetch_site": b"cross-site"}, 200),
        ({"sec_fetch_site": b"none"}, 200), ({"sec_fetch_site": b"same-origin"}, 200),
        ({"origin": EVIL}, 403), ({"origin": b"null"}, 403), ({"origin": b""}, 403),
        ({"origin": EVIL, "sec_fetch_site": b"same-origin"}, 403), ({"sec_fetch_site": b"cross-site"}, 403),
        ({"sec_fetch_site": b"same-site"}, 403),
    ],
)  # fmt: skip
def test_a_page_of_another_origin_changes_nothing(headers: dict[str, Any], status: int) -> None:
    world = asked(visited(), **headers)
    assert (world.status, bool(world.desk.asked)) == (status, status == 200)
    assert status == 200 or world.body["error_code"] == "origin_not_allowed"


def test_the_token_comes_before_the_origin_and_the_origin_before_the_route_and_the_body() -> None:
    assert asked(visited(), origin=EVIL, x_first=b"wrong").status == 401
    for path in ("/say", "/nowhere"):
        world = asked(visited(), path=path, origin=EVIL)
        assert (world.status, world.read) == (403, 0)


@pytest.mark.parametrize("path", ["/say", "/page", "/nowhere", "/maybe/x"])
def test_a_browser_is_told_what_an_allowed_origin_may_do_the_same_at_every_path(path: str) -> None:
    world = visited()
    world.ask("OPTIONS", path, headers=PREFLIGHT)
    assert (world.status, world.content, world.witness.told[0][:2]) == (204, b"", ("other", 204))
    assert [world.headers[name] for name in GRANTS] == [
        EXTENSION, b"GET, POST", b"content-type, authorization, x-first, x-second",
    ]  # fmt: skip
    assert (world.headers[b"access-control-max-age"], world.headers[b"vary"]) == (b"600", b"Origin")
    assert not {b"content-length", b"content-type", b"access-control-allow-credentials"} & world.headers.keys()
    assert b"access-control-allow-private-network" not in world.headers


@pytest.mark.parametrize(
    "changes",
    [{b"origin": EVIL}, {b"origin": b"null"}, {b"origin": None}, {b"access-control-request-method": None}],
)
def test_what_is_no_question_of_an_allowed_origin_needs_a_token_like_all(changes: dict[bytes, bytes | None]) -> None:
    for path in ("/say", "/page", "/nowhere"):
        world = visited()
        world.ask("OPTIONS", path, headers={**PREFLIGHT, **changes})
        assert world.status == 401
        assert b"access-control-allow-methods" not in world.headers


def test_a_browser_is_told_nothing_under_another_host() -> None:
    world = visited()
    world.ask("OPTIONS", headers={**PREFLIGHT, b"host": b"evil"})
    assert (world.status, b"access-control-allow-methods" in world.headers) == (403, False)


def test_a_service_that_browsers_do_not_visit_says_nothing_of_origins() -> None:
    for method, status in (("OPTIONS", 405), ("POST", 200)):
        world = World()
        world.ask(method, headers=PREFLIGHT)
        assert world.status == status
        assert not [name for name in world.headers if name == b"vary" or name.startswith(b"access-control")]


@pytest.mark.parametrize("media_type", [None, b"text/plain", b"application/x-www-form-urlencoded", b"x, y"])
@pytest.mark.parametrize(("takes_any_type", "status"), [(True, 200), (False, 415)])
def test_a_body_of_another_type_is_taken_where_it_may_be(
    media_type: bytes | None, takes_any_type: bool, status: int
) -> None:
    assert asked(visited(takes_any_type=takes_any_type), content_type=media_type).status == status


def test_a_compressed_body_is_not_read_even_without_a_type() -> None:
    assert asked(visited(), content_type=None, content_encoding=b"gzip").status == 415
