"""Which pages may read and change, over raw sockets: origins, what browsers say of a request, and preflights.

Reads of a foreign origin are answered, and its page cannot see them; changes are refused even with the token.
"""

from collections.abc import Iterator

import pytest

from tests.hub.service import Hub, error_of, event, running
from tests.proxy.service import Answer

ALLOWED = (
    "chrome-extension://abcdefghijklmnopabcdefghijklmnop",
    "moz-extension://0b9eb8a4-5a2a-4f1c-9e0f-7d4e6c0f1a2b",
    "http://127.0.0.1",
    "http://127.0.0.1:8765",
    "http://localhost",
    "http://localhost:3000",
    "http://[::1]",
    "http://[::1]:65535",
    "http://127.1.2.3",
    "http://127.255.255.255:3000",
)
FOREIGN = (
    "null",
    "*",
    "https://evil.example",
    "http://evil.example",
    "https://127.0.0.1",
    "https://localhost:3000",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "http://evil.example#http://localhost",
    "http://localhost@evil.example",
    "http://evil.localhost",
    "http://LOCALHOST",
    "http://localhost.",
    "http://localhost/",
    "http://localhost:",
    "http://localhost:0",
    "http://localhost:65536",
    "https://127.1.2.3",
    "http://127.1",
    "http://128.0.0.1",
    "http://2130706433",
    "http://[::ffff:127.0.0.1]",
    "chrome-extension://",
    "chrome-extension://abcdefghijklmnopabcdefghijklmnop.evil.example",
    "moz-extension://*",
    "safari-web-extension://0b9eb8a4-5a2a-4f1c-9e0f-7d4e6c0f1a2b",
    "file://",
    "http://localhost, http://evil.example",
    "http://localhost http://evil.example",
)
READS = ("/health", "/v1/status", "/v1/export", "/dashboard")
CHANGES = ("/v1/sessions/start", "/v1/events/observe", "/v1/policy/check", "/v1/sessions/pass:x/attest")
HEADERS = {"content-type", "authorization", "x-service-hub-token", "x-ardur-hub-token"}
CROSSING = "access-control-"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        hub.observe("origins")
        yield hub


def crossing(answer: Answer) -> dict[str, str]:
    assert "origin" in [name.strip().lower() for name in answer.headers["vary"].split(",")]
    return {name: value for name, value in answer.headers.items() if name.startswith(CROSSING)}


def preflight(hub: Hub, path: str, origin: str | None, **headers: str | None) -> Answer:
    asked = {"origin": origin, "access_control_request_method": "POST", **headers}
    return hub.ask("OPTIONS", path, None, certificate=None, **asked)


@pytest.mark.parametrize("origin", ALLOWED)
def test_an_origin_that_is_allowed_reads_and_changes(hub: Hub, origin: str) -> None:
    echoed = {"access-control-allow-origin": origin}
    for path in READS:
        answer = hub.get(path, origin=origin)
        assert (answer.status, crossing(answer)) == (200, echoed)
    for path in CHANGES:
        answer = hub.post(path, event("origins"), origin=origin, sec_fetch_site="cross-site")
        assert (answer.status == 403, crossing(answer)) == (False, echoed)


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_origin_is_allowed_to_see_nothing(hub: Hub, origin: str) -> None:
    answers = [hub.get(path, origin=origin) for path in READS]
    assert [(answer.status, crossing(answer)) for answer in answers] == [(200, {})] * len(READS)


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_origin_changes_nothing_even_with_the_token(hub: Hub, origin: str) -> None:
    for path in CHANGES:
        answer = hub.post(path, event("from outside"), origin=origin)
        assert (error_of(answer), crossing(answer)) == ("403 origin_not_allowed", {})
    assert "from outside" not in hub.get("/v1/export").body.decode()


@pytest.mark.parametrize("origin", [*ALLOWED[:2], *FOREIGN[:3]])
def test_without_a_token_every_origin_is_told_the_same(hub: Hub, origin: str) -> None:
    for path in CHANGES:
        assert error_of(hub.ask("POST", path, {}, origin=origin)) == "401 hub_auth_required"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", "nonsense"])
def test_a_change_that_a_page_of_another_site_asks_for_without_saying_its_origin_is_refused(
    hub: Hub, site: str
) -> None:
    answer = hub.post("/v1/events/observe", event("x"), sec_fetch_site=site)
    assert error_of(answer) == "403 origin_not_allowed"


@pytest.mark.parametrize("site", [None, "none", "same-origin"])
def test_a_change_that_no_page_asks_for_needs_no_origin(hub: Hub, site: str | None) -> None:
    answer = hub.post("/v1/events/observe", event("x"), sec_fetch_site=site)
    assert (answer.status, crossing(answer)) == (200, {})


def test_two_origins_are_none(hub: Hub) -> None:
    both = "http://localhost\r\norigin: http://localhost"
    assert error_of(hub.post("/v1/events/observe", event("x"), origin=both)) == "403 origin_not_allowed"


@pytest.mark.parametrize("origin", ALLOWED)
def test_a_preflight_of_an_origin_that_is_allowed_is_told_the_same_at_every_path(hub: Hub, origin: str) -> None:
    for path in (*READS, *CHANGES, "/nowhere"):
        answer = preflight(hub, path, origin)
        told = crossing(answer)
        assert (answer.status, answer.body, told.pop("access-control-allow-origin")) == (204, b"", origin)
        assert set(told.pop("access-control-allow-methods").split(", ")) == {"GET", "POST"}
        assert set(told.pop("access-control-allow-headers").split(", ")) == HEADERS
        assert told == {"access-control-max-age": "600"}


@pytest.mark.parametrize("origin", [*FOREIGN, None])
def test_a_preflight_of_a_foreign_origin_is_like_any_request_without_a_token(hub: Hub, origin: str | None) -> None:
    for path in ("/v1/events/observe", "/nowhere"):
        answer = preflight(hub, path, origin)
        assert (error_of(answer), crossing(answer)) == ("401 hub_auth_required", {})


def test_no_page_is_let_into_a_private_network(hub: Hub) -> None:
    answer = preflight(hub, "/v1/status", ALLOWED[0], access_control_request_private_network="true")
    assert answer.status == 204
    assert not [name for name in answer.headers if "private-network" in name or "credentials" in name]


def test_options_without_a_question_is_no_preflight(hub: Hub) -> None:
    answer = hub.ask("OPTIONS", "/v1/status", origin=ALLOWED[0])
    assert error_of(answer) == "401 hub_auth_required"


def test_every_kind_of_answer_says_that_it_varies_by_origin(hub: Hub) -> None:
    answers = [
        hub.ask("GET", "/health"),
        hub.get("/nowhere"),
        hub.ask("GET", "/v1/status"),
        hub.get("/v1/export", accept_encoding="gzip"),
        hub.ask("GET", "/health", host="evil.example"),
        hub.post("/v1/events/observe", b"{"),
    ]
    assert [crossing(answer) for answer in answers] == [{}] * len(answers)
