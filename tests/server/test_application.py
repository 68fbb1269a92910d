"""The application by itself: requests that were read come in as values, and answers go out as values."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import FieldInvalid, RemitError, SessionNotFound, TokenRequired
from remit.server.auth import Access, Credentials
from tests.server.asking import HOST, JSON, Asked, Handlers, World
from tests.server.serving import Said


def test_a_request_is_read_asked_and_answered() -> None:
    world = World()
    world.ask(parts=(b'{"wo', b'rd":"hel', b'lo"}'))
    assert (world.status, world.body) == (200, {"word": "hello"})
    assert world.witness.told == [("/say", 200, world.desk.asked[0].request_id)]
    assert world.witness.stages == ["decode", "decide", "answer"]


def test_what_is_asked_says_who_asks_and_where() -> None:
    world = World()
    world.ask(path="/maybe/a%2Fb", parts=(b"",))
    (ask,) = world.desk.asked
    assert (ask.body.word, dict(ask.parameters), ask.holder) == ("default", {"name": "a/b"}, "thumbprint")


def test_an_answer_that_is_bytes_goes_out_as_it_is() -> None:
    world = World()
    world.ask("GET", "/page")
    assert (world.content, world.headers[b"content-type"]) == (b"<page>", b"text/html")
    assert world.read == 0


def test_headers_of_an_answer_that_is_bytes_go_along() -> None:
    world = World()
    world.ask("GET", "/page")
    assert world.headers[b"x-page"] == b"1"
    assert not {b"vary", b"access-control-allow-origin"} & world.headers.keys()


def test_what_is_asked_says_what_stands_in_the_query() -> None:
    world = World()
    for path, query in (("/page?range=hour&live=", {"range": "hour", "live": ""}), ("/page", {})):
        world.ask("GET", path)
        assert dict(world.desk.asked[-1].query) == query


@pytest.mark.parametrize("path", ["/say", "/nowhere"])
def test_a_query_that_cannot_be_read_is_told_to_those_who_may_come_in(path: str) -> None:
    world = World(is_closed=True)
    world.ask("GET", f"{path}?x=%FF")
    assert (world.status, world.body["error_code"], world.desk.asked) == (401, "auth_required", [])


def test_a_query_that_cannot_be_read_is_refused() -> None:
    world = World()
    world.ask("GET", "/page?x=%FF")
    assert (world.status, world.body["error_code"], world.desk.asked) == (400, "bad_request", [])


def test_another_host_is_refused_before_the_query_is_read() -> None:
    world = World()
    world.ask("GET", "/page?x=%FF", headers={b"host": b"evil"})
    assert world.status == 403


def test_every_answer_has_an_id_and_is_not_kept() -> None:
    for path, status in (("/say", 200), ("/nowhere", 404)):
        world = World()
        world.ask("GET", path)
        assert world.status == status
        assert world.headers[b"x-request-id"].decode() == world.witness.told[0][2]
        assert world.headers[b"content-length"] == str(len(world.content)).encode()
        assert (world.headers[b"cache-control"], world.headers[b"x-content-type-options"]) == (b"no-store", b"nosniff")


@pytest.mark.parametrize("host", [b"", b"ours", b"ours:2", b"xours:1", b"ours:1.", b"OURS:1, ours:1", b"\xff"])
def test_another_host_is_told_nothing_and_asks_nothing(host: bytes) -> None:
    world = World()
    world.ask(headers={b"host": host})
    assert (world.status, world.body["error_code"], world.read) == (403, "host_not_allowed", 0)
    assert world.witness.told[0][0] == "other"


def test_the_host_comes_before_the_door_and_the_door_before_the_route() -> None:
    world = World(is_closed=True)
    world.ask(path="/nowhere", headers={b"host": b"evil"})
    assert world.status == 403
    world = World(is_closed=True)
    world.ask(path="/nowhere")
    assert world.status == 401


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (b"", 401), (b"Bearer", 401), (b"Bearer ", 401), (b"Bearer x", 401), (b"Basic a-token", 401), (b"a-token", 401),
        (b"Bearer a-token", 200), (b"bEARER   a-token  ", 200), (b"Bearer a-token, Bearer a-token", 401),
        (b"Bearer \xff\xfe", 401), (b"Bearer a-token\0", 401),
    ],
)  # fmt: skip
def test_a_token_is_a_bearer_token_and_nothing_else(authorization: bytes, status: int) -> None:
    world = World(is_closed=True)
    world.ask(headers={b"authorization": authorization})
    assert world.status == status
    assert bool(world.desk.asked) == (status == 200)


def test_nothing_of_a_body_is_read_before_the_door_is_open() -> None:
    world = World(is_closed=True)
    world.ask()
    assert (world.status, world.read) == (401, 0)


def test_an_open_route_needs_no_token() -> None:
    world = World(is_closed=True)
    world.ask("GET", "/page")
    assert world.status == 200


def test_a_client_without_an_address_is_served() -> None:
    world = World(is_closed=True)
    world.ask(peer="", headers={b"authorization": b"Bearer a-token"})
    assert world.status == 200


@pytest.mark.parametrize("parts", [(b" " * 101,), (b" " * 100, b" "), (b" " * 60, b" " * 60, b"never read")])
def test_a_body_is_read_as_far_as_the_limit(parts: tuple[bytes, ...]) -> None:
    world = World()
    world.ask(parts=parts)
    assert (world.status, world.body["error_code"]) == (413, "body_too_large")
    assert world.read <= 2


def test_a_length_beyond_the_limit_is_refused_unread() -> None:
    world = World()
    world.ask(headers={b"content-length": b"101"})
    assert (world.status, world.read) == (413, 0)


@pytest.mark.parametrize(("size", "is_beside"), [(64 * 1024, False), (64 * 1024 + 1, True)])
def test_a_large_body_is_read_beside_the_loop(size: int, is_beside: bool) -> None:
    threads = []

    class Noted(Said, frozen=True):
        def __post_init__(self) -> None:
            threads.append(threading.current_thread())

    world = World(body_bytes=2**20, request=Noted)
    world.ask(parts=(b'{"word":"x"}'.ljust(size),))
    assert world.status == 200
    assert [thread is not threading.main_thread() for thread in threads] == [is_beside]


def test_what_is_wrong_in_a_large_body_is_told_too() -> None:
    world = World(body_bytes=2**20)
    world.ask(parts=(b'{"surplus":"x"}'.ljust(2**17),))
    assert (world.status, world.body["error_code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200), ({b"content-type": b"application/json"}, 200), ({b"sec-fetch-site": b"none"}, 200),
        ({b"sec-fetch-site": b"same-origin"}, 200), ({b"content-type": b"application/json", b"origin": b"null"}, 200),
        ({b"content-type": b"text/plain"}, 415), ({b"content-type": b"application/x-www-form-urlencoded"}, 415),
        ({b"origin": b"null"}, 415), ({b"origin": b"https://evil.example"}, 415),
        ({b"sec-fetch-site": b"cross-site"}, 415), ({b"sec-fetch-site": b"same-site"}, 415),
    ],
)  # fmt: skip
def test_a_body_is_not_left_out_by_pages_of_others(headers: dict[bytes, bytes], status: int) -> None:
    world = World()
    world.ask(path="/maybe/x", parts=(b"",), headers={b"content-type": b"", **headers})
    assert world.status == status
    assert bool(world.desk.asked) == (status == 200)


def test_a_client_that_goes_away_gets_nothing_and_is_not_asked_for() -> None:
    world = World()
    world.ask(parts=())
    assert (world.written, world.desk.asked, world.witness.told) == (b"", [], [])


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (SessionNotFound("no such session"), 404, "session_not_found"),
        (FieldInvalid("is wrong", place="$.x"), 400, "bad_request"),
        (RemitError("secret"), 500, "internal_error"),
        (ValueError("secret"), 500, "internal_error"),
        (RecursionError("secret"), 500, "internal_error"),
        (MemoryError("secret"), 500, "internal_error"),
    ],
)
def test_whatever_goes_wrong_has_an_answer_and_is_told(failure: Exception, status: int, code: str) -> None:
    world = World(Handlers(failure))
    world.ask()
    assert (world.status, world.body["error_code"], world.body["ok"]) == (status, code, False)
    assert "secret" not in world.body["error"]
    assert world.witness.errors == [failure]


class Doors:
    """Opens for one token, which may be replaced."""

    token = "first"

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:  # noqa: ARG002 - as the application calls it
        if credentials.token != self.token:
            raise TokenRequired("no")


def test_a_token_is_checked_with_every_request_of_a_connection_however_alike_they_are() -> None:
    doors = Doors()
    world = World(authenticator=doors)

    async def act() -> list[int]:
        application, asked, statuses = world.application(), None, []
        headers = {b"host": HOST, **JSON, b"authorization": b"Bearer first"}
        for token, target in (("first", "/say"), ("first", "/say"), ("other", "/say"), ("first", "/say?x=%FF")):
            doors.token = token
            asked = Asked(application, "GET", target, headers, (), after=asked)
            asked.wire.written = b""
            await application(asked)
            statuses.append(int(asked.wire.written.split()[1]))
        return statuses

    assert asyncio.run(act()) == [200, 200, 401, 400]


@pytest.mark.parametrize(
    ("method", "target", "changes", "status"),
    [
        ("GET", "/say", {}, 200), ("GET", "/page", {}, 200), ("GET", "/say?x=1", {}, 200), ("PUT", "/say", {}, 405),
        ("GET", "/nowhere", {}, 404), ("GET", "/say", {b"host": b"evil"}, 403), ("GET", "/say", {b"x": b"1"}, 200),
        ("GET", "/say", {b"authorization": b"Bearer x"}, 401),
    ],
)  # fmt: skip
def test_a_request_is_judged_by_its_own_target_and_headers_whatever_came_before(
    method: str, target: str, changes: dict[bytes, bytes], status: int
) -> None:
    world = World(authenticator=Doors())

    async def act() -> None:
        application = world.application()
        headers = {b"host": HOST, **JSON, b"authorization": b"Bearer first"}
        first = Asked(application, "GET", "/say", headers, ())
        await application(first)
        second = Asked(application, method, target, headers | changes, (), after=first)
        second.wire.written = b""
        await application(second)
        assert int(second.wire.written.split()[1]) == status
        if status == 200:
            asked = world.desk.asked[-1]
            assert (dict(asked.query), asked.headers) == ({"x": "1"} if "?" in target else {}, headers | changes)

    asyncio.run(act())


def test_a_request_that_is_called_off_is_called_off() -> None:
    world = World(Handlers(asyncio.CancelledError()))
    with pytest.raises(asyncio.CancelledError):
        world.ask()
    assert world.written == b""


def test_ids_of_requests_differ() -> None:
    world = World()
    for _ in range(3):
        world.read = 0
        world.ask()
    assert len({request_id for _, _, request_id in world.witness.told}) == 3


@given(st.binary(max_size=100))
def test_whatever_bytes_come_there_is_an_answer(data: bytes) -> None:
    world = World()
    world.ask(parts=(data,))
    assert world.status in (200, 400)


def test_a_route_can_take_any_object() -> None:
    world = World()
    world.ask(path="/always/x", parts=(b'{"a":[1]}',))
    assert (world.status, world.body) == (200, {"a": [1]})


@pytest.mark.parametrize(
    ("changes", "read", "error"),
    [
        ({"parts": (b"{",)}, None, "JsonSyntax"),
        ({"parts": (b"[]",)}, None, "JsonSyntax"),
        ({"parts": (b'"' + b"x" * 200,)}, None, "BodyTooLarge"),
        ({"headers": {b"content-type": b"text/plain"}}, None, "MediaTypeRefused"),
        ({"parts": (b'{"a":1}',)}, {"a": 1}, "ValueError"),
    ],
)
def test_a_route_for_clients_that_know_one_status_tells_failures_itself(
    changes: dict[str, Any], read: Any, error: str
) -> None:
    world = World(desk=Handlers(failure=ValueError("a secret")))
    world.ask(path="/always/x", **changes)
    assert (world.status, world.body) == (200, ["x", read, error])
    assert [type(told).__name__ for told in world.witness.errors] == [error]


def test_a_route_for_clients_that_know_one_status_tells_them_of_a_closed_door_too() -> None:
    world = World(is_closed=True)
    world.ask(path="/always/x")
    assert (world.status, world.body, world.read) == (200, ["x", None, "TokenRequired"], 0)


def test_other_hosts_are_told_nothing_by_any_route() -> None:
    world = World()
    world.ask(path="/always/x", headers={b"host": b"theirs"})
    assert (world.status, world.body["error_code"]) == (403, "host_not_allowed")
