"""What a client is told of an error: a status and a code for every class, and nothing that was not meant for it."""

import json
from pathlib import Path

import pytest

from remit.errors import (
    AccessError,
    BrokenChain,
    FieldInvalid,
    KeyMaterialError,
    LedgerError,
    LedgerUnavailable,
    MethodRefused,
    RateLimited,
    RemitError,
    ServiceBusy,
    SessionNotFound,
    SignatureInvalid,
    StateMissing,
    TokenRequired,
    TooManyTries,
)
from remit.server.statuses import INTERNAL, STATUSES, error_body, get_status, headers_for
from tests.world import error_classes

CLASSES = error_classes()
ROOT = Path(__file__).parents[2]


def made(error: type[RemitError], text: str = "why") -> RemitError:
    """An error of a class, however it is made."""
    instance = error.__new__(error)
    Exception.__init__(instance, text)
    return instance


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_of_ours_has_a_status(error: type[RemitError]) -> None:
    status = get_status(made(error))
    assert status.status in {400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 431, 500, 503}
    assert status in STATUSES.values()


def test_every_family_has_an_entry_of_its_own() -> None:
    assert [error for error in RemitError.__subclasses__() if error not in STATUSES] == []


def test_everything_at_the_door_has_an_entry_of_its_own() -> None:
    assert [error for error in error_classes(AccessError) if error not in STATUSES] == []


def test_a_code_has_one_status() -> None:
    codes = {(status.error_code, status.status) for status in STATUSES.values()}
    assert len({code for code, _ in codes}) == len(codes)


def test_every_code_is_documented_with_its_status() -> None:
    rows = [
        line.split("|") for line in (ROOT / "docs" / "integrate" / "api.md").read_text(encoding="utf-8").splitlines()
    ]
    documented = {
        (int(row[1]), code.strip(" `"))
        for row in rows
        if len(row) > 3 and row[1].strip().isdigit()
        for code in row[2].split(",")
    }
    assert {(status.status, status.error_code) for status in STATUSES.values()} <= documented


@pytest.mark.parametrize(
    ("error", "status"),
    [(FieldInvalid, 400), (SignatureInvalid, 401), (LedgerUnavailable, 503), (StateMissing, 503), (BrokenChain, 500)],
)
def test_a_class_without_an_entry_has_that_of_the_class_above(error: type[RemitError], status: int) -> None:
    assert error not in STATUSES
    assert get_status(made(error)).status == status


@pytest.mark.parametrize(
    "error", [ValueError("secret"), KeyError("secret"), made(KeyMaterialError, "secret"), made(RemitError, "secret")]
)
def test_an_error_that_was_not_foreseen_tells_nothing(error: Exception) -> None:
    assert get_status(error) == INTERNAL
    assert b"secret" not in error_body(error)


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_has_the_same_shape(error: type[RemitError]) -> None:
    body = json.loads(error_body(made(error)))
    assert list(body) == ["ok", "error", "error_code"]
    assert (body["ok"], body["error_code"]) == (False, get_status(made(error)).error_code)


def test_an_error_on_purpose_is_told_in_its_own_words() -> None:
    assert b"$.x: is wrong" in error_body(FieldInvalid("is wrong", place="$.x"))


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (MethodRefused("GET, HEAD"), [(b"allow", b"GET, HEAD")]),
        (TokenRequired("why"), [(b"www-authenticate", b"Bearer")]),
        (TooManyTries("why"), [(b"retry-after", b"1")]),
        (RateLimited("why"), [(b"retry-after", b"1")]),
        (ServiceBusy("why"), [(b"retry-after", b"1")]),
        (made(LedgerError), [(b"retry-after", b"1")]),
        (SessionNotFound("why"), []),
        (ValueError("why"), []),
    ],
)
def test_some_errors_bring_headers_along(error: Exception, headers: list[tuple[bytes, bytes]]) -> None:
    assert headers_for(error) == headers
