"""Token authenticators: which token gives which access, and the rate limit of wrong ones. Clocks are set by tests."""

from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import StateCorrupt, TokenRequired, TooManyTries
from remit.server.auth import (
    COMPARE_S,
    MAX_TRIES,
    Access,
    Credentials,
    ReloadingAuthenticator,
    TokenAuthenticator,
    TokenSet,
)

COMMON, ADMIN = "common-token", "admin-token"
ACCESS: tuple[Access, ...] = get_args(Access)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def closed(clock: Clock | None = None) -> TokenAuthenticator:
    return TokenAuthenticator({"admin": (ADMIN,), "token": (COMMON, ADMIN)}, clock=clock or Clock())


def refusal(doors: TokenAuthenticator, presented: str, peer: str = "a", access: Access = "token") -> str:
    try:
        doors.check(access, Credentials(presented), peer)
    except (TokenRequired, TooManyTries) as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    ("access", "opens"), [("open", {"", "x", COMMON, ADMIN}), ("token", {COMMON, ADMIN}), ("admin", {ADMIN})]
)
def test_a_token_opens_its_own_doors(access: Access, opens: set[str]) -> None:
    assert {
        presented for presented in ("", "x", COMMON, ADMIN) if not refusal(closed(), presented, access=access)
    } == opens


def test_a_door_without_tokens_is_open() -> None:
    doors = TokenAuthenticator({"admin": (ADMIN,)}, clock=Clock())
    assert [refusal(doors, "", access=access) for access in ACCESS] == ["", "", "auth_required", "", "", ""]


def test_the_words_do_not_tell_which_door_it_was() -> None:
    said = set()
    for access in ("token", "admin"):
        with pytest.raises(TokenRequired) as refused:
            closed().check(access, Credentials(), "a")
        said.add(str(refused.value))
    assert len(said) == 1


@given(st.text(max_size=30))
def test_nothing_but_the_token_opens(presented: str) -> None:
    assert bool(refusal(closed(), presented)) == (presented not in (COMMON, ADMIN))


def test_a_query_and_a_cookie_are_not_looked_at() -> None:
    doors = closed()
    for shown in (Credentials("", COMMON, COMMON), Credentials(query=ADMIN), Credentials(cookie=ADMIN)):
        with pytest.raises(TokenRequired) as refused:
            doors.check("token", shown, "a")
        assert refused.value.code == "auth_required"
    doors.check("token", Credentials(COMMON, "wrong", "wrong"), "a")


def test_nothing_opens_no_lock_not_even_one_for_nothing() -> None:
    assert not TokenSet(("",)).matches("")
    assert not TokenSet(()).matches("x")


@pytest.mark.parametrize(
    "presented", [COMMON.upper(), COMMON[:-1], COMMON + "x", " " + COMMON, COMMON + "\0", "\ud800"]
)
def test_what_comes_close_does_not_open(presented: str) -> None:
    assert refusal(closed(), presented) == "auth_required"


def test_wrong_tokens_are_slowed_down_and_the_right_one_opens_all_the_same() -> None:
    doors = closed()
    refused = [refusal(doors, f"wrong-{number}") for number in range(MAX_TRIES + 5)]
    assert refused == ["auth_required"] * MAX_TRIES + ["too_many_tries"] * 5
    assert refusal(doors, COMMON) == ""


def test_a_wrong_token_at_any_door_counts() -> None:
    doors = closed()
    refused = [refusal(doors, COMMON, access="admin") for _ in range(MAX_TRIES)]
    assert {*refused} == {"auth_required"}
    assert refusal(doors, "wrong") == "too_many_tries"


def test_no_token_at_all_is_no_try() -> None:
    doors = closed()
    assert {refusal(doors, "") for _ in range(100)} == {"auth_required"}
    assert refusal(doors, "wrong") == "auth_required"


def test_another_peer_is_not_slowed_down() -> None:
    doors = closed()
    for _ in range(100):
        refusal(doors, "wrong", "a")
    assert refusal(doors, "wrong", "b") == "auth_required"


def test_after_a_while_it_is_forgotten() -> None:
    clock = Clock()
    doors = closed(clock)
    for _ in range(100):
        refusal(doors, "wrong")
    clock.now += 0.9
    assert refusal(doors, "wrong") == "too_many_tries"
    clock.now += 0.2
    assert refusal(doors, "wrong") == "auth_required"


def test_so_many_peers_are_counted_and_no_more() -> None:
    doors = closed()
    for number in range(3000):
        refusal(doors, "wrong", str(number))
    assert len(doors._limiter._tries) == 1024
    for _ in range(100):
        refusal(doors, "wrong", "2999")
    assert refusal(doors, "wrong", "2999") == "too_many_tries"


def test_tokens_are_not_kept() -> None:
    doors = closed()
    refusal(doors, "wrong")
    kept = repr((doors._tokens["token"]._digests, doors._limiter._tries))
    assert not [word for word in (COMMON, ADMIN, "wrong") if word in kept]


@dataclass
class Settings:
    """A settings file with one token, its version, and how often that was asked for."""

    token: str = "first"
    version: int | None = 1
    asked: int = 0
    is_damaged: bool = False

    def load(self) -> TokenAuthenticator:
        if self.is_damaged:
            raise StateCorrupt("it cannot be read")
        return TokenAuthenticator({"token": (self.token,)}, clock=Clock())

    def current(self) -> int | None:
        self.asked += 1
        return self.version


def opened(authenticator: ReloadingAuthenticator, *tokens: str) -> list[bool]:
    opens = []
    for token in tokens:
        try:
            authenticator.check("token", Credentials(token), "a")
            opens.append(True)
        except TokenRequired:
            opens.append(False)
    return opens


def test_a_token_that_was_replaced_is_refused_within_ten_milliseconds() -> None:
    settings, clock = Settings(), Clock()
    authenticator = ReloadingAuthenticator(settings.load, settings.current, clock=clock)
    settings.token, settings.version = "second", 2
    clock.now += COMPARE_S
    assert COMPARE_S == 0.01
    assert opened(authenticator, "first", "second") == [False, True]


def test_the_version_of_the_settings_is_compared_at_most_every_ten_milliseconds() -> None:
    settings, clock = Settings(), Clock()
    authenticator = ReloadingAuthenticator(settings.load, settings.current, clock=clock)
    for _ in range(100):
        clock.now += COMPARE_S / 10
        opened(authenticator, "first")
    assert settings.asked in (10, 11)


@pytest.mark.parametrize("damage", [{"version": None}, {"version": 2, "is_damaged": True}])
def test_settings_that_cannot_be_read_leave_the_tokens_that_were_read_last(damage: dict[str, Any]) -> None:
    settings, clock, failures = Settings(), Clock(), list[Exception]()
    authenticator = ReloadingAuthenticator(settings.load, settings.current, clock=clock, failed=failures.append)
    for name, value in damage.items():
        setattr(settings, name, value)
    clock.now += COMPARE_S
    assert opened(authenticator, "first", "second") == [True, False]
    assert len(failures) == int("is_damaged" in damage)


def test_a_reload_does_not_wait() -> None:
    settings = Settings()
    authenticator = ReloadingAuthenticator(settings.load, settings.current, clock=Clock())
    settings.token = "second"
    authenticator.reload()
    assert opened(authenticator, "first", "second") == [False, True]
