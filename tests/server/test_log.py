"""Log lines: what they hold, and above all what they never hold."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.canonical import canonicalize
from remit.errors import FieldInvalid, NotCanonicalizable
from remit.server import log
from remit.server.log import HIDDEN, LEVELS, MAX_VALUE, configure, flush, hide, logger

pytestmark = pytest.mark.slow

JWT = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl"
SECRET = "Zk3tq9-own-token-of-the-service"


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, output, secrets = logging.getLogger(), log._OUTPUT, log._SECRETS
    handlers, level, before = root.handlers[:], root.level, (output.threshold, output._format, output._stream)
    known, longest, pattern = set(secrets._known), secrets.longest, secrets.pattern
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    output.threshold, output._format, output._stream = before
    secrets._known, secrets.longest, secrets.pattern = known, longest, pattern


def told(event: str = "something", *, level: str = "info", **fields: object) -> dict[str, Any]:
    """What the line of one event says."""
    stream = io.StringIO()
    configure("debug", as_json=True, stream=stream)
    getattr(logger(), level)(event, **fields)
    flush(60)
    (line,) = stream.getvalue().splitlines()
    said: dict[str, Any] = json.loads(line)
    return said


def for_people(event: str, **fields: object) -> str:
    stream = io.StringIO()
    configure("debug", as_json=False, stream=stream)
    logger().info(event, **fields)
    flush(60)
    return stream.getvalue()


def test_a_line_says_when_how_bad_what_and_who() -> None:
    line = told("started", port=8443, request_id="r-1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("timestamp"))
    assert line == {"level": "info", "event": "started", "request_id": "r-1", "pid": os.getpid(), "port": 8443}
    assert "request_id" not in told("stopped")


def test_nobody_overwrites_what_every_line_has() -> None:
    line = told(timestamp="1970", level_="x", pid=1)
    assert line["timestamp"] != "1970"
    assert line["pid"] == os.getpid()


def test_a_line_for_people_is_short_and_quotes_what_could_mislead() -> None:
    line = for_people("served", route="/evaluate", why="a=1 b=2", count=3)
    assert re.fullmatch(r'[\d:.]{12} info    served route=/evaluate why="a=1 b=2" count=3\n', line)


@pytest.mark.parametrize(
    "name",
    "token Authorization set-cookie client_secret password key api_key apiKey passport signing_keys X-Api-Key "
    "accessToken clientKey proxy_authorization credential".split(),
)
def test_values_under_telling_names_are_hidden_at_any_depth(name: str) -> None:
    line = told(**{name: "value"}, deep=[{"x": {name: ["value"]}}])
    assert line[name] == HIDDEN
    assert line["deep"] == [{"x": {name: HIDDEN}}]


@pytest.mark.parametrize("name", ["key_id", "keyId", "kid", "monkey", "passport_id", "status", "keyboard"])
def test_values_under_other_names_are_shown(name: str) -> None:
    assert told(**{name: "value"})[name] == "value"


@pytest.mark.parametrize(
    "text",
    [JWT, f"got {JWT} from there", "Bearer abc", "authorization: bearer  x1", "Bearer%20abc", f"x{SECRET}y", SECRET],
)
@pytest.mark.parametrize("place", ["value", "event", "nested", "name", "bytes"])
def test_whatever_looks_like_a_secret_is_hidden_anywhere(text: str, place: str) -> None:
    hide(SECRET)
    fields: dict[str, dict[str, Any]] = {
        "value": {"v": text},
        "event": {"event": text},
        "nested": {"v": [{"v": (text,)}]},
        "name": {"v": {text: 1}},
        "bytes": {"v": text.encode()},
    }
    said = json.dumps(told(**fields[place]))
    assert HIDDEN in said
    assert text not in said


@pytest.mark.parametrize("secret", [JWT, SECRET, "Bearer abcdefghijklmnop"])
def test_a_secret_is_not_shown_in_part_where_a_long_value_is_cut(secret: str) -> None:
    hide(SECRET)
    for padding in range(MAX_VALUE - len(secret), MAX_VALUE + 1):
        shown = told(v=". " * (padding // 2) + "." * (padding % 2) + secret)["v"]
        assert shown == HIDDEN or not shown.strip(". ")


@given(st.text(), st.text(alphabet=st.characters(max_codepoint=0x9F)))
def test_nothing_in_a_value_ends_the_line_or_steers_a_terminal(one: str, other: str) -> None:
    line = for_people("said", v=one + other, w=[one], x={other: one})
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]", line[:-1])


def test_control_characters_are_escaped() -> None:
    assert told(v="a\r\nb\x1b[31m\x9b\u202e")["v"] == r"a\r\nb\x1b[31m\x9b\u202e"


def test_half_characters_and_numbers_that_json_cannot_carry_do_not_spoil_a_line() -> None:
    line = told(half="\ud800", large=10**5_000, nan=float("nan"), flag=True, nothing=None)
    assert [line[name] for name in ("half", "large", "nan", "flag", "nothing")] == [
        r"\ud800", "[large number]", None, True, None,
    ]  # fmt: skip


def test_long_wide_and_deep_values_are_cut() -> None:
    deep: list[object] = []
    for _ in range(2_000):
        deep = [deep]
    line = told(text="x" * 10_000_000, items=list(range(1_000_000)), deep=deep, raw=b"x" * 10_000_000)
    assert len(line["text"]) == MAX_VALUE + 3
    assert len(json.dumps(line)) < 10_000


class Hostile(Mapping[str, object]):
    """A value that fails whenever it is looked at."""

    def __getitem__(self, name: str) -> object:
        raise RuntimeError(SECRET)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError(SECRET)

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        raise RuntimeError(SECRET)


def test_logging_never_raises() -> None:
    stream = io.StringIO()
    configure("info", as_json=True, stream=stream)
    logger().info("hostile", v=Hostile())
    logger().info("plain", v=object)
    flush(60)
    stream.close()
    logger().error("nobody reads this")
    logging.getLogger("asyncio").error("%d", "not a number")


def test_an_object_is_asked_for_nothing_but_its_type() -> None:
    class Passport:
        def __repr__(self) -> str:
            return SECRET

    assert told(v=Passport())["v"] == "<Passport>"


def broken(text: str) -> KeyError:
    """An error of ours inside of another's, whose message holds `text`."""
    try:
        canonicalize({"v": object()})
    except NotCanonicalizable as cause:
        error = KeyError(text)
        error.__context__ = cause
        return error
    raise AssertionError


def test_an_error_is_told_by_its_type_and_by_what_it_came_from() -> None:
    line = told("failed", level="error", exc_info=broken("/home/me/input"), seen=ValueError("/home/me/input"))
    assert (line["error"], line["cause"]) == ("KeyError", "NotCanonicalizable (not_canonicalizable)")
    assert line["seen"] == "ValueError"
    assert "/home/me" not in json.dumps(line)


def test_an_error_is_told_by_our_own_frames() -> None:
    line = told("failed", level="error", exc_info=broken("").__context__)
    assert line["error"] == "NotCanonicalizable (not_canonicalizable)"
    assert line["frames"]
    assert all(re.fullmatch(r"remit\.claims\.canonical:\d+", frame) for frame in line["frames"])


@pytest.mark.parametrize("name", ["asyncio", "httpx", "some.library"])
def test_libraries_speak_the_same_way(name: str) -> None:
    stream = io.StringIO()
    configure("info", as_json=True, stream=stream)
    error = broken(SECRET)
    logging.getLogger(name).error("task of %s\nfuture: <%r>", "someone", error, exc_info=error)
    flush(60)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"], line["error"]) == ("task of someone", name, "KeyError")
    assert SECRET not in stream.getvalue()


@pytest.mark.parametrize("level", LEVELS)
def test_only_what_is_bad_enough_is_said(level: str) -> None:
    stream = io.StringIO()
    configure(level, as_json=True, stream=stream)
    for each in LEVELS:
        getattr(logger(), each)("from us")
        logging.getLogger("library").log(LEVELS[each], "from a library")
    flush(60)
    said = [json.loads(line)["level"] for line in stream.getvalue().splitlines()]
    assert said == [each for each in LEVELS if LEVELS[each] >= LEVELS[level] for _ in range(2)]


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(FieldInvalid) as caught:
        configure("loud", as_json=True, stream=io.StringIO())
    assert caught.value.code == "field_invalid"


def test_a_secret_that_is_too_short_to_be_one_is_refused() -> None:
    with pytest.raises(FieldInvalid) as caught:
        hide("short")
    assert caught.value.code == "field_invalid"


SAYING = """
import os, sys
from remit.server.log import configure, flush, logger
configure("info", as_json=False, stream=sys.stderr)
logger().info("parent")
"""


def said_by(code: str) -> list[str]:
    """Return the events that a process logs."""
    done = subprocess.run([sys.executable, "-c", SAYING + code], capture_output=True, check=True, text=True)
    return [line.split()[2] for line in done.stderr.splitlines()]


def test_what_was_said_is_written_before_a_process_ends() -> None:
    assert said_by("") == ["parent"]


def test_a_child_speaks_for_itself_and_repeats_nothing() -> None:
    forking = "flush(60)\nif os.fork() == 0:\n    logger().info('child')\n    flush(60)\n    os._exit(0)\nos.wait()"
    assert said_by(forking) == ["parent", "child"]


def test_nothing_is_said_before_anybody_asked_for_it() -> None:
    code = "from remit.server.log import logger; logger().error('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout + done.stderr == b""
