"""Who may come in to the Hub, over raw sockets: the token in its places, the cookie in its own, and nothing else."""

import base64
import hmac
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.config import rotate_token
from remit.hub.routes import documented_routes
from remit.ledger.home import open_home
from tests.hub.service import Hub, error_of, running
from tests.proxy.service import Answer, command, read_answer

OPEN = {"/health", "/healthz"}
PAGES = {"/", "/dashboard"}
CLOSED = "401 hub_auth_required"
# Wrong tokens of other tests may have been counted already.
REFUSED = (401, 429)
COOKIE = re.compile(
    r"remit_dashboard=(?P<expiry>[0-9]+)\.(?P<seal>[A-Za-z0-9_-]{43}); Path=/dashboard/; HttpOnly; SameSite=Strict; "
    r"Max-Age=43200"
)
POLICY = (
    r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; img-src data:; "
    r"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ROUTES = documented_routes()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        yield hub


@pytest.fixture(scope="module")
def ids(hub: Hub) -> dict[str, str]:
    hidden = {"hidden_provider_activity": True}
    answer = hub.observe("for every page", **hidden)
    session = answer["ardur_session_id"]
    code = "provider_side_activity"
    return {"session_id": session, "ardur_session_id": session, "receipt_id": answer["receipt_id"], "code": code}


@pytest.fixture(scope="module")
def walk(ids: dict[str, str]) -> list[tuple[str, str, str]]:
    """Give every route with something that is there: method, path, and who it is for."""
    return [(route.method, route.path.format(**ids), route.access) for route in ROUTES]


@pytest.fixture(scope="module")
def views(walk: list[tuple[str, str, str]]) -> list[str]:
    return [path for _, path, access in walk if access == "view"]


@pytest.fixture(scope="module")
def cookie(hub: Hub) -> str:
    return hub.get("/dashboard").headers["set-cookie"].partition(";")[0]


def told(answer: Answer) -> tuple[object, ...]:
    apart = {"date", "x-request-id"}
    return answer.status, answer.body, frozenset(item for item in answer.headers.items() if item[0] not in apart)


# Without a token


def test_the_table_has_routes_of_every_kind(walk: list[tuple[str, str, str]]) -> None:
    assert {path for _, path, access in walk if access == "open"} == OPEN
    assert {path for _, path, access in walk if access == "page"} == PAGES
    assert {access for _, _, access in walk} == {"open", "page", "view", "token"}


def test_nothing_but_health_is_reached_without_a_token(hub: Hub, walk: list[tuple[str, str, str]]) -> None:
    for method, path, access in walk:
        answer = hub.ask(method, path, {} if method == "POST" else None)
        assert answer.status == 200 if access == "open" else error_of(answer) == CLOSED, path


def test_without_a_token_what_is_there_and_what_is_not_look_the_same(
    hub: Hub, walk: list[tuple[str, str, str]]
) -> None:
    asked = [(method, path) for method, path, access in walk if access != "open"]
    asked += [("GET", "/nowhere"), ("GET", "/dashboard/nowhere"), ("GET", "/v1/"), ("PUT", "/v1/status")]
    asked += [("POST", "/health"), ("DELETE", "/"), ("GET", "/dashboard/sessions/unknown"), ("TRACE", "/")]
    assert len({told(hub.ask(method, path)) for method, path in asked}) == 1


def test_a_body_is_not_looked_at_before_the_door_is_open(hub: Hub) -> None:
    path = "/v1/events/observe"
    answers = [hub.ask("POST", path, b"{"), hub.ask("POST", path, content_length="99999999"), hub.ask("POST", path)]
    assert len({told(answer) for answer in answers}) == 1


def test_health_tells_only_that_it_is_there_and_its_version(hub: Hub) -> None:
    for path in OPEN:
        assert list(hub.ask("GET", path).json) == ["ok", "schema_version", "version"]
        assert hub.get(path).body == hub.ask("GET", path).body
        assert hub.ask("HEAD", path).body == b""


# Where the token is looked for


def test_every_header_form_opens_every_route(hub: Hub, walk: list[tuple[str, str, str]]) -> None:
    forms = [
        {"x_service_hub_token": hub.token}, {"X_SERVICE_HUB_TOKEN": hub.token}, {"x_ardur_hub_token": hub.token},
        {"authorization": f"Bearer {hub.token}"},
    ]  # fmt: skip
    for method, path, _ in walk:
        statuses = {
            hub.ask(method, path, b"[" if method == "POST" else None, certificate=None, **form).status for form in forms
        }
        assert statuses == ({400} if method == "POST" else {200}), path


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "bEaReR", "Bearer "])
def test_the_scheme_is_read_in_any_case(hub: Hub, scheme: str) -> None:
    assert hub.ask("GET", "/v1/status", authorization=f"{scheme} {hub.token}").status == 200


@pytest.mark.parametrize("written", ["$", "Basic $", "Bearer$", "Bearer $x", "Bearer x$", "Bearer $ $", "Token $"])
def test_a_token_that_is_written_otherwise_opens_nothing(hub: Hub, written: str) -> None:
    assert hub.ask("GET", "/v1/status", authorization=written.replace("$", hub.token)).status in REFUSED


def test_a_query_token_opens_the_two_pages_and_nothing_else(hub: Hub, walk: list[tuple[str, str, str]]) -> None:
    for method, path, access in walk:
        answer = hub.ask(method, f"{path}?token={hub.token}", {} if method == "POST" else None)
        assert answer.status == 200 if access in ("page", "open") else error_of(answer) == CLOSED, path


@pytest.mark.parametrize(
    "query", ["TOKEN=$", "token=$x", "token=x$", "access_token=$", "token=", "Token=$", "x=$", "token=$%20"]
)
def test_a_query_that_says_it_otherwise_opens_nothing(hub: Hub, query: str) -> None:
    assert hub.ask("GET", f"/dashboard?{query.replace('$', hub.token)}").status in REFUSED


def test_a_query_that_says_it_twice_is_refused(hub: Hub) -> None:
    answer = hub.ask("GET", f"/dashboard?token={hub.token}&token={hub.token}")
    assert error_of(answer) == CLOSED
    assert hub.token.encode() not in answer.body


def test_a_token_opens_nothing_in_other_places(hub: Hub) -> None:
    token = hub.token
    elsewhere: list[dict[str, str]] = [
        {"cookie": f"token={token}"}, {"cookie": f"remit_dashboard={token}"}, {"x_hub_token": token},
        {"proxy_authorization": f"Bearer {token}"}, {"referer": f"{hub.url}/?token={token}"}, {"x_api_key": token},
    ]  # fmt: skip
    for path in ("/v1/status", "/", "/dashboard/sessions"):
        assert {hub.ask("GET", path, None, certificate=None, **place).status in REFUSED for place in elsewhere} == {
            True
        }


def test_of_the_places_of_a_token_the_first_present_decides(hub: Hub) -> None:
    right, wrong = hub.token, "wrong"
    places: list[dict[str, str]] = [
        {"x_service_hub_token": "$"}, {"x_ardur_hub_token": "$"}, {"authorization": "Bearer $"}, {"query": "$"}
    ]  # fmt: skip

    def asked(tokens: list[str | None]) -> int:
        given = [(place, token) for place, token in zip(places, tokens, strict=True) if token is not None]
        headers = {name: form.replace("$", token) for place, token in given for name, form in place.items()}
        query = headers.pop("query", None)
        path = "/dashboard" if query is None else f"/dashboard?token={query}"
        return hub.ask("GET", path, None, certificate=None, **headers).status

    for first in range(4):
        for later in range(first + 1, 4):
            deciding = [wrong if place == first else right if place == later else None for place in range(4)]
            assert asked(deciding) in REFUSED, deciding
            assert asked([{right: wrong, wrong: right}.get(token or "") for token in deciding]) == 200


def test_a_header_that_is_present_but_empty_decides_too(hub: Hub, cookie: str) -> None:
    for empty in ({"x_service_hub_token": ""}, {"x_ardur_hub_token": ""}, {"authorization": ""}):
        assert hub.ask("GET", f"/dashboard?token={hub.token}", None, certificate=None, **empty).status in REFUSED
        given: dict[str, str] = {**empty, "cookie": cookie}
        assert hub.ask("GET", "/dashboard/overview", None, certificate=None, **given).status in REFUSED


def test_two_tokens_in_one_header_open_nothing_even_if_both_are_right(hub: Hub) -> None:
    twice = f"{hub.token}\r\nx-service-hub-token: {hub.token}"
    assert hub.ask("GET", "/v1/status", x_service_hub_token=twice).status in REFUSED


# Wrong tokens


def eleven_wrong_tokens(hub: Hub, connection: socket.socket) -> tuple[list[Answer], float]:
    """Return the answers to eleven wrong tokens, and how long they took to send."""
    answers, begun = [], time.monotonic()
    for number in range(11):
        connection.sendall(hub.request("GET", "/v1/status", x_service_hub_token=f"wrong-{number}"))
        answers.append(read_answer(connection))
    return answers, time.monotonic() - begun


def test_the_eleventh_wrong_token_in_a_second_is_slowed_down_and_the_right_one_still_opens(tmp_path: Path) -> None:
    with running(tmp_path / "home") as hub, hub.connect() as connection:
        statuses, took = eleven_wrong_tokens(hub, connection)
        for _ in range(20):
            if took < 1:
                break
            time.sleep(2)  # the machine was too slow to tell; by then, those tries count no more
            statuses, took = eleven_wrong_tokens(hub, connection)
        connection.sendall(hub.request("GET", "/v1/status", x_service_hub_token=hub.token))
        assert read_answer(connection).status == 200
    assert [error_of(answer) for answer in statuses] == [CLOSED] * 10 + ["429 too_many_tries"]
    assert statuses[-1].headers["retry-after"] == "1"


def test_wrong_queries_and_cookies_count_as_tries_and_forged_addresses_do_not_help(hub: Hub) -> None:
    def wrong(number: int) -> bytes:
        forged = {"x_forwarded_for": f"198.51.100.{number}", "forwarded": f"for=198.51.100.{number}"}
        return hub.request("GET", f"/?token=wrong-{number}", None, **forged)

    answers = []
    with hub.connect() as connection:
        for number in range(30):
            connection.sendall(wrong(number))
            answers.append(read_answer(connection))
    assert {error_of(answer) for answer in answers} == {CLOSED, "429 too_many_tries"}


def test_the_token_is_of_256_bits(hub: Hub, tmp_path: Path) -> None:
    told_once = json.loads(command("setup", "--home", str(tmp_path / "home"), "--json").stdout)["token"]
    assert {len(base64.urlsafe_b64decode(token + "=")) for token in (hub.token, told_once)} == {32}
    assert hub.token != told_once


# The cookie


@pytest.mark.parametrize("path", sorted(PAGES))
@pytest.mark.parametrize("by_query", [True, False])
def test_the_two_pages_set_a_cookie_that_is_not_the_token(hub: Hub, path: str, by_query: bool) -> None:
    answer = hub.ask("GET", f"{path}?token={hub.token}") if by_query else hub.get(path)
    written = COOKIE.fullmatch(answer.headers["set-cookie"])
    assert written is not None
    assert abs(int(written["expiry"]) - time.time() - 43200) < 60
    assert hub.token not in answer.headers["set-cookie"]


def test_no_other_answer_sets_a_cookie(hub: Hub, walk: list[tuple[str, str, str]]) -> None:
    for method, path, access in walk:
        if access != "page":
            assert "set-cookie" not in hub.ask(method, path, None, x_service_hub_token=hub.token).headers
    assert "set-cookie" not in hub.ask("GET", "/").headers


def test_the_cookie_opens_every_view_and_nothing_else(hub: Hub, walk: list[tuple[str, str, str]], cookie: str) -> None:
    for method, path, access in walk:
        answer = hub.ask(method, path, {} if method == "POST" else None, cookie=f"a=b; {cookie}; c=d")
        assert answer.status == 200 if access in ("view", "open") else error_of(answer) == CLOSED, path


def test_links_of_every_page_lead_to_views_that_are_there_and_never_carry_the_token(
    hub: Hub, views: list[str], cookie: str
) -> None:
    for path in ("/dashboard", *views):
        page = (hub.get(path) if path == "/dashboard" else hub.ask("GET", path, cookie=cookie)).body.decode()
        links = set(re.findall(r'(?:href|src|action)="([^"#]+)"', page)) - set(re.findall(r'href="(data:[^"]*)"', page))
        assert links
        assert not [link for link in links if not link.startswith("/dashboard/")]
        found = {link.replace("&amp;", "&") for link in links}
        assert {hub.ask("GET", link, cookie=cookie).status for link in found} == {200}
        assert hub.token not in page


FORGED = (
    "", ".", "$EXPIRY", "$EXPIRY.", ".$SEAL", "$SEAL", "$LATER.$SEAL", "$EXPIRY.$SEALx", "$EXPIRY.x$SEAL", "0.$SEAL",
    "+$EXPIRY.$SEAL", "$EXPIRY.0.$SEAL", "$EXPIRY .$SEAL", "\u00b2.$SEAL", "999999999999999999999.$SEAL", "nan.$SEAL",
    "$PAST.$PASTSEAL$", '"$EXPIRY.$SEAL"',
)  # fmt: skip


@pytest.mark.parametrize("written", FORGED)
def test_a_cookie_that_we_have_not_made_opens_nothing(hub: Hub, cookie: str, written: str) -> None:
    expiry, _, seal = cookie.partition("=")[2].partition(".")
    words = {"$EXPIRY": expiry, "$SEAL": seal, "$LATER": str(int(expiry) + 1), "$PASTSEAL$": seal, "$PAST": "1"}
    for word in sorted(words, key=len, reverse=True):
        written = written.replace(word, words[word])
    answer = hub.ask("GET", "/dashboard/sessions", cookie=f"remit_dashboard={written}")
    assert answer.status in REFUSED


def sealed(token: str, expiry: int) -> str:
    seal = hmac.digest(token.encode(), f"remit dashboard {expiry}".encode(), "sha256")
    return f"remit_dashboard={expiry}.{base64.urlsafe_b64encode(seal).decode().rstrip('=')}"


def test_a_cookie_ends_with_its_time(hub: Hub) -> None:
    now = int(time.time())
    assert hub.ask("GET", "/dashboard/sessions", cookie=sealed(hub.token, now + 60)).status == 200
    assert hub.ask("GET", "/dashboard/sessions", cookie=sealed(hub.token, now - 1)).status in REFUSED


def test_a_cookie_under_another_name_or_of_another_token_opens_nothing(hub: Hub, cookie: str) -> None:
    others = [cookie.replace("remit", "Remit"), cookie.replace("remit_", "x_"), sealed("x" * 43, 2**32)]
    assert {hub.ask("GET", "/dashboard/sessions", cookie=other).status in REFUSED for other in others} == {True}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_cookie_that_another_site_had_sent_opens_nothing(hub: Hub, cookie: str, site: str) -> None:
    answer = hub.ask("GET", "/dashboard/sessions", cookie=cookie, sec_fetch_site=site)
    assert error_of(answer) == CLOSED


@pytest.mark.parametrize("rotation", [("token", "hub", "--rotate"), ("setup", "--rotate-token")], ids=" ".join)
def test_a_rotated_token_is_refused_at_the_first_request_after_the_command(
    tmp_path: Path, rotation: tuple[str, ...]
) -> None:
    with running(tmp_path / "home") as hub, hub.connect() as connection:
        cookie = hub.get("/").headers["set-cookie"].partition(";")[0]
        connection.sendall(hub.request("GET", "/v1/status", x_service_hub_token=hub.token))
        assert read_answer(connection).status == 200
        done = command(*rotation, "--home", str(hub.home), "--json")
        connection.sendall(hub.request("GET", "/v1/status", x_service_hub_token=hub.token))
        assert error_of(read_answer(connection)) == CLOSED
        assert error_of(hub.get("/v1/status")) == CLOSED
        assert error_of(hub.ask("GET", "/dashboard/sessions", cookie=cookie)) == CLOSED
        assert error_of(hub.ask("GET", f"/dashboard?token={hub.token}")) == CLOSED
        new = json.loads(done.stdout)["token"]
        assert hub.ask("GET", "/v1/status", x_service_hub_token=new).status == 200
        assert "accepts the new token, and refuses the old one" in done.stderr


def test_a_token_that_another_process_writes_is_taken_without_a_signal(tmp_path: Path) -> None:
    with running(tmp_path / "home") as hub:
        with open_home(hub.home) as home:
            new = rotate_token(home, "hub")
        assert error_of(hub.get("/v1/status")) == CLOSED
        assert hub.ask("GET", "/v1/status", x_service_hub_token=new).status == 200


def test_settings_that_are_gone_or_damaged_leave_the_token_as_it_is(tmp_path: Path) -> None:
    with running(tmp_path / "home") as hub:
        config = hub.home / "config.json"
        text = config.read_bytes()
        for damage in (config.unlink, lambda: config.write_bytes(b"{")):
            damage()
            assert hub.observe("goes on")["decision"] == "PERMIT"
            config.write_bytes(text)
            config.chmod(0o600)


# What pages come with


def test_every_page_comes_with_headers_that_keep_it_to_itself(hub: Hub, views: list[str]) -> None:
    for path in (*PAGES, *views, "/dashboard/sessions?live=off"):
        answer = hub.get(path)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert re.fullmatch(POLICY, answer.headers["content-security-policy"])
        expected = {
            "referrer-policy": "no-referrer", "x-content-type-options": "nosniff", "x-frame-options": "DENY",
            "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }  # fmt: skip
        assert {name: answer.headers.get(name) for name in expected} == expected
        assert not re.search(rb"<script|\sstyle=|\son[a-z]+=|javascript:", answer.body.lower())


def test_data_is_kept_by_no_cache(hub: Hub, walk: list[tuple[str, str, str]]) -> None:
    for method, path, _ in walk:
        headers = hub.ask(method, path, None, x_service_hub_token=hub.token).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_no_error_tells_of_our_insides(hub: Hub) -> None:
    for path in ("/v1/%00", "/dashboard/receipts/..%2f..", "/dashboard/sessions/%ff", "/dashboard/sessions?before=x"):
        assert error_of(hub.get(path))[:3] in ("400", "404")
    for body in (b"", b"[]", b"{", b'{"source":', b"\xff", b'{"source":{"type":"cli"},"event":[]}'):
        assert error_of(hub.post("/v1/events/observe", body)) == "400 bad_request"
