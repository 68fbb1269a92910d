"""The authenticator of the Hub: its token in a header, in the query of two pages, and the cookie of the dashboard."""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import HubTokenRequired, TooManyTries
from remit.hub.auth import COOKIE, COOKIE_S, HUB_BROWSER_POLICY, HUB_SECURITY, HubAuthenticator
from remit.server.auth import MAX_TRIES, Access, Credentials
from remit.server.hook_tokens import hook_token, proof_key, shared_hook_token
from remit.server.openapi import describe
from remit.server.routes import BytesResponse, Request, Route
from tests.server.asking import World

TOKEN, OTHER = "the-token-of-the-hub", "another-token"
NOW = 1_800_000_000
CLOSED: tuple[Access, ...] = tuple(access for access in get_args(Access) if access != "open")
# What the Hub's own token opens.
OURS: tuple[Access, ...] = tuple(access for access in CLOSED if access != "hook")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Hub:
    """The authenticator, with clocks that are set."""

    clock: Clock = field(default_factory=Clock)
    wall: Clock = field(default_factory=lambda: Clock(NOW + 0.5))
    authenticator: HubAuthenticator = field(init=False)

    def __post_init__(self) -> None:
        self.authenticator = HubAuthenticator(TOKEN, clock=self.clock, wall=self.wall)

    def refusal(self, access: Access, shown: Credentials, peer: str = "a") -> str:
        try:
            self.authenticator.check(access, shown, peer)
        except (HubTokenRequired, TooManyTries) as error:
            return error.code
        return ""

    def cookie(self) -> str:
        """Return the value of a cookie that is set now."""
        return self.authenticator.set_cookie()[1].decode().partition("=")[2].partition(";")[0]


def sealed(expiry: object, token: str = TOKEN) -> str:
    """Return a cookie as the Hub makes it, made by hand."""
    seal = hmac.new(token.encode(), f"remit dashboard {expiry}".encode(), sha256).digest()
    return f"{expiry}.{urlsafe_b64encode(seal).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("shown", "opens"),
    [
        (Credentials(), set()), (Credentials(TOKEN), {*OURS}), (Credentials(query=TOKEN), {"page"}),
        (Credentials(cookie=TOKEN), set()),
        (Credentials(cookie=sealed(NOW + 1)), {"view"}), (Credentials(query=sealed(NOW + 1)), set()),
        (Credentials(sealed(NOW + 1)), set()),
        (Credentials(OTHER, TOKEN), {"page"}), (Credentials(OTHER, "", sealed(NOW + 1)), {"view"}),
        (Credentials(TOKEN, OTHER, OTHER), {*OURS}), (Credentials(hook_token(TOKEN, "p"), subject="p"), {"hook"}),
        (Credentials(hook_token(OTHER, "p"), subject="p"), set()),
        (Credentials(hook_token(TOKEN, "p"), subject="q"), set()),
        (Credentials(hook_token(TOKEN, "p")), set()), (Credentials(shared_hook_token(TOKEN), subject="p"), set()),
        (Credentials(query=hook_token(TOKEN, "p"), cookie=hook_token(TOKEN, "p"), subject="p"), set()),
    ],
)  # fmt: skip
def test_each_door_looks_at_its_own(shown: Credentials, opens: set[Access]) -> None:
    assert {access for access in CLOSED if not Hub().refusal(access, shown)} == opens
    assert Hub().refusal("open", shown) == ""


def test_the_cookie_is_as_it_was_agreed_on() -> None:
    name, value = Hub().authenticator.set_cookie()
    assert name == b"set-cookie"
    assert value.decode() == (
        f"{COOKIE}={sealed(NOW + COOKIE_S)}; Path=/dashboard/; HttpOnly; SameSite=Strict; Max-Age=43200"
    )
    assert TOKEN not in value.decode()


def test_a_cookie_ends_with_its_time() -> None:
    hub = Hub()
    shown = Credentials(cookie=hub.cookie())
    hub.wall.now = NOW + COOKIE_S - 1
    assert hub.refusal("view", shown) == ""
    hub.wall.now = NOW + COOKIE_S
    assert hub.refusal("view", shown) == "hub_auth_required"


def test_a_cookie_and_a_token_end_with_a_new_token() -> None:
    hub = Hub()
    before = Credentials(cookie=hub.cookie())
    hub.authenticator.renew(OTHER)
    assert [hub.refusal("view", shown) for shown in (before, Credentials(TOKEN))] == ["hub_auth_required"] * 2
    assert [hub.refusal("view", shown) for shown in (Credentials(cookie=hub.cookie()), Credentials(OTHER))] == ["", ""]


@pytest.mark.parametrize(
    "cookie",
    [
        sealed(NOW + 9, OTHER), sealed(NOW - 1), sealed(0), sealed(NOW + 9)[:-1], sealed(NOW + 9) + "=",
        sealed(NOW + 9) + ".",
        sealed(NOW + 9).replace(str(NOW + 9), str(NOW + 10)), sealed(NOW + 9).replace(str(NOW + 9), f"0{NOW + 9}"),
        f" {sealed(NOW + 9)}", ".", "..", str(NOW + 9), f"{NOW + 9}.", sealed(NOW + 9).partition(".")[2],
        "\ud800.\ud800",
        "9" * 5000 + ".x",
    ],
)  # fmt: skip
def test_a_cookie_that_we_have_not_made_or_that_is_over_does_not_open(cookie: str) -> None:
    assert Hub().refusal("view", Credentials(cookie=cookie)) == "hub_auth_required"


@given(st.text(max_size=60))
def test_nothing_that_is_made_up_opens(text: str) -> None:
    assert {Hub().refusal(access, Credentials(text, text, text)) for access in CLOSED} == {"hub_auth_required"}


@pytest.mark.parametrize(
    ("access", "wrong"),
    [("token", Credentials("x")), ("page", Credentials(query="x")), ("view", Credentials(cookie="x"))],
)
def test_what_is_wrong_is_slowed_down_and_the_right_token_opens_all_the_same(
    access: Access, wrong: Credentials
) -> None:
    hub = Hub()
    refused = [hub.refusal(access, wrong) for _ in range(MAX_TRIES + 2)]
    assert refused == ["hub_auth_required"] * MAX_TRIES + ["too_many_tries"] * 2
    assert hub.refusal(access, Credentials(TOKEN)) == ""
    assert hub.refusal("view", Credentials(cookie=hub.cookie())) == ""
    hub.clock.now += 1.1
    assert hub.refusal(access, wrong) == "hub_auth_required"


def test_what_a_door_does_not_look_at_is_no_try() -> None:
    hub = Hub()
    others: dict[Access, Credentials] = {
        "token": Credentials("", "x", "x"),
        "page": Credentials(cookie="x"),
        "view": Credentials(query="x"),
    }
    for access, shown in others.items():
        assert {hub.refusal(access, shown) for _ in range(100)} == {"hub_auth_required"}
    assert hub.refusal("token", Credentials("x")) == "hub_auth_required"


def test_the_words_do_not_tell_which_door_it_was_and_what_was_shown() -> None:
    said = set()
    for access in OURS:
        with pytest.raises(HubTokenRequired) as refused:
            Hub().authenticator.check(access, Credentials("wrong", "wrong", "wrong"), "a")
        said.add(str(refused.value))
    assert len(said) == 1
    assert "wrong" not in said.pop()


def test_the_token_is_not_kept() -> None:
    authenticator = Hub().authenticator
    assert TOKEN not in repr((authenticator._state, authenticator._state.tokens._digests))


def asked(method: str, path: str, access: Access = "page", **headers: Any) -> World:
    """Send a request to a service that has the authenticator and the browser policy of the Hub."""
    hub = Hub()
    world = World(browser_policy=HUB_BROWSER_POLICY, authenticator=hub.authenticator, access=access)
    world.ask(method, path, headers={name.replace("_", "-").encode(): value for name, value in headers.items()})
    return world


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x_service_hub_token": TOKEN.encode()}, 200), ({"x_ardur_hub_token": TOKEN.encode()}, 200),
        ({"authorization": f"Bearer {TOKEN}".encode()}, 200), ({}, 401), ({"x_hub_token": TOKEN.encode()}, 401),
        ({"x_service_hub_token": b"x", "x_ardur_hub_token": TOKEN.encode()}, 401),
        ({"x_ardur_hub_token": b"x", "authorization": f"Bearer {TOKEN}".encode()}, 401),
    ],
)  # fmt: skip
def test_the_token_is_taken_from_three_headers_of_which_the_first_counts(headers: dict[str, Any], status: int) -> None:
    world = asked("POST", "/say", **headers)
    assert world.status == status
    assert status == 200 or world.body["error_code"] == "hub_auth_required"


@pytest.mark.parametrize(
    ("path", "access", "status"),
    [
        (f"/page?token={TOKEN}", "page", 200), (f"/page?live=off&token={TOKEN}", "page", 200),
        ("/page?token=x", "page", 401),
        (f"/page?token={TOKEN}", "view", 401), (f"/page?token={TOKEN}", "token", 401),
        (f"/say?token={TOKEN}", "page", 401),
        (f"/nowhere?token={TOKEN}", "page", 401), (f"/page?token={TOKEN}&token={TOKEN}", "page", 401),
    ],
)  # fmt: skip
def test_a_token_in_the_query_opens_pages_and_nothing_else(path: str, access: Access, status: int) -> None:
    assert asked("GET", path, access).status == status


@pytest.mark.parametrize(
    ("method", "path", "access", "site", "status"),
    [
        ("GET", "/page", "view", b"same-origin", 200), ("HEAD", "/page", "view", b"none", 200),
        ("GET", "/page", "view", b"same-site", 401), ("GET", "/page", "view", b"cross-site", 401),
        ("GET", "/page", "page", b"none", 401), ("GET", "/page", "token", b"none", 401),
        ("POST", "/say", "view", b"none", 401),
        ("GET", "/nowhere", "view", b"none", 401),
    ],
)  # fmt: skip
def test_a_cookie_opens_views_for_our_own_pages_and_nothing_else(
    method: str, path: str, access: Access, site: bytes, status: int
) -> None:
    cookie = f"theme=dark; {COOKIE}={sealed(NOW + 60)}".encode()
    assert asked(method, path, access, cookie=cookie, sec_fetch_site=site).status == status


def test_every_way_in_is_described_and_no_other() -> None:
    async def nothing(ask: Request) -> BytesResponse:
        return BytesResponse(b"", "text/html")

    routes = [
        Route("GET", f"/{access}/{{x}}", nothing, "text/html", "Open", access=access)
        for access in ("open", *CLOSED[:1])
    ]
    routes += [
        Route("GET", f"/{access}", nothing, "text/html", "Look", access=access) for access in ("page", "view", "hook")
    ]
    document = describe(routes, title="t", summary="s", version="1", security=HUB_SECURITY)
    ways = {path: [*map(list, at["get"].get("security", []))] for path, at in document["paths"].items()}
    assert ways == {
        "/open/{x}": [],
        "/token/{x}": [["token"], ["bearer"]],
        "/page": [["token"], ["bearer"], ["query"]],
        "/view": [["token"], ["bearer"], ["cookie"]],
        "/hook": [["hook"]],
    }
    assert {name for way in ways.values() for (name,) in way} == document["components"]["securitySchemes"].keys()
    assert "404" in document["paths"]["/open/{x}"]["get"]["responses"]


def test_a_token_of_hooks_ends_with_the_token_that_it_was_made_by() -> None:
    hub = Hub()
    old, new = (Credentials(hook_token(token, "p"), subject="p") for token in (TOKEN, OTHER))
    assert hub.refusal("hook", old) == ""
    hub.authenticator.renew(OTHER)
    assert hub.refusal("hook", old) == "hub_auth_required"
    assert hub.refusal("hook", new) == ""


def test_the_token_that_the_first_release_gave_to_all_hooks_opens_only_what_it_wrote() -> None:
    authenticator = HubAuthenticator(TOKEN, clock=Clock(), wall=Clock(), accepts_shared=lambda name: name == "old")
    authenticator.check("hook", Credentials(shared_hook_token(TOKEN), subject="old"), "a")
    authenticator.check("hook", Credentials(hook_token(TOKEN, "old"), subject="old"), "a")
    for shown in (
        Credentials(shared_hook_token(TOKEN), subject="new"),
        Credentials(shared_hook_token(OTHER), subject="old"),
    ):
        with pytest.raises(HubTokenRequired):
            authenticator.check("hook", shown, "a")


def test_the_proof_of_the_hub_is_for_one_protection_one_request_and_one_answer() -> None:
    prove = Hub().authenticator.prove
    asked = sha256(b"asked").hexdigest().encode()
    right = hmac.digest(proof_key(TOKEN, "p").encode(), b"nonce\n%b\n{}" % asked, "sha256").hex()
    assert prove("p", b"nonce", b"asked", b"{}") == right
    others = [("q", b"nonce", b"asked", b"{}"), ("p", b"other", b"asked", b"{}")]
    others += [("p", b"nonce", b"another", b"{}"), ("p", b"nonce", b"asked", b"{1}")]
    assert len({right, *(prove(*other) for other in others)}) == 5
    assert proof_key(TOKEN, "p") != hook_token(TOKEN, "p")
