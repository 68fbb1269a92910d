"""From a path as it was sent to a route: whole, or part by part; and what is not there is not guessed."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import MethodRefused, RouteNotFound
from remit.server.routes import BytesResponse, Request, Route, Router


async def nothing(ask: Request) -> BytesResponse:
    return BytesResponse(b"", "text/plain")


ROUTER = Router(
    [
        Route(method, path, nothing, "text/plain", path)
        for method, path in (
            ("GET", "/health"), ("POST", "/evaluate"), ("GET", "/things"), ("POST", "/things"),
            ("POST", "/sessions/{session_id}/attest"), ("GET", "/sessions/{session_id}/receipts/{number}"),
        )
    ]
)  # fmt: skip


def found(method: str, path: str) -> tuple[str, dict[str, str]]:
    match = ROUTER.find(method, path)
    return match.route.path, dict(match.parameters)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_is_there_for_get_is_there_for_head(method: str) -> None:
    assert found(method, "/health") == ("/health", {})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("session:1", "session:1"), ("a%2Fb", "a/b"), ("%2e%2e", ".."), ("a+b", "a+b"), ("%C3%A4", "\u00e4"),
        ("%FF", "\ufffd"), ("%", "%"), ("%2", "%2"), ("%zz", "%zz"), ("%00", "\0"), ("", ""),
    ],
)  # fmt: skip
def test_parameters_are_decoded_after_the_path_was_parted(part: str, value: str) -> None:
    assert found("POST", f"/sessions/{part}/attest") == ("/sessions/{session_id}/attest", {"session_id": value})


def test_there_may_be_several_parameters() -> None:
    assert found("GET", "/sessions/a/receipts/7")[1] == {"session_id": "a", "number": "7"}


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "*", "health", "//health", "/health/", "/Health", "/%68ealth", "/health%00", "/health;x", "/./health",
        "/x/../health", "/health\\", "/sessions//a/attest", "/sessions/a/b/attest", "/sessions/a/attest/",
        "/sessions/a/%61ttest", "/sessions/a", "/sessions",
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_guessed(path: str) -> None:
    with pytest.raises(RouteNotFound) as missing:
        ROUTER.find("GET", path)
    assert missing.value.code == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/health", "GET, HEAD"), ("GET", "/evaluate", "POST"), ("HEAD", "/evaluate", "POST"),
        ("DELETE", "/things", "GET, POST, HEAD"), ("GET", "/sessions/a/attest", "POST"),
        ("get", "/health", "GET, HEAD"),
    ],
)  # fmt: skip
def test_another_method_is_told_which_there_are(method: str, path: str, allowed: str) -> None:
    with pytest.raises(MethodRefused) as refused:
        ROUTER.find(method, path)
    assert (refused.value.code, refused.value.allowed) == ("method_not_allowed", allowed)


@given(st.text(st.characters(max_codepoint=255), max_size=30))
def test_whatever_is_sent_is_found_or_not_found(path: str) -> None:
    with suppress(RouteNotFound, MethodRefused):
        assert ROUTER.find("GET", "/" + path).route in ROUTER.routes
