"""Answers that are none: errors, garbage, floods, redirects. None of them reads as a PERMIT."""

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from remit.errors import ServiceRefused, ServiceUnavailable
from tests.client.conftest import Connect
from tests.client.service import SESSION, Canned, Desk, canned_error

PERMIT = json.dumps({"ok": True, "decision": "PERMIT", "session_id": SESSION}).encode()
MEGABYTE = 2**20


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "bad_request"), (401, "passport_expired"), (404, "session_not_found"), (409, "request_conflict"),
     (413, "body_too_large"), (500, "internal_error"), (502, "bad_gateway")],
)  # fmt: skip
def test_an_error_is_passed_on_and_not_repeated(
    status: int, code: str, connect: Connect, desk: Desk, port: int
) -> None:
    desk.script = [canned_error(status, code)]
    with pytest.raises(ServiceRefused) as caught:
        connect(port).evaluate(SESSION, "read_file", {})
    assert (caught.value.status, caught.value.error_code, caught.value.code) == (status, code, "service_refused")
    assert (len(desk.seen), desk.decided) == (1, {})


@pytest.mark.parametrize(
    ("status", "code"), [(429, "too_many_tries"), (429, "rate_limited"), (503, "busy"), (503, "ledger_unavailable")]
)
def test_a_busy_service_is_asked_again(status: int, code: str, connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [canned_error(status, code)] * 3
    assert connect(port).evaluate(SESSION, "read_file", {}).decision == "PERMIT"
    keys = {seen.body["idempotency_key"] for seen in desk.seen}
    assert (len(desk.seen), len(keys), len(desk.decided)) == (4, 1, 1)


def test_a_service_that_stays_busy_has_the_last_word(connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [canned_error(503, "ledger_unavailable")] * 9
    with pytest.raises(ServiceRefused) as caught:
        connect(port, retries=2).evaluate(SESSION, "read_file", {})
    assert (caught.value.error_code, len(desk.seen)) == ("ledger_unavailable", 3)


def test_a_service_that_wants_more_time_than_there_is_is_not_waited_for(
    connect: Connect, desk: Desk, port: int
) -> None:
    desk.script = [canned_error(503, "busy", Retry_After="3600")]
    with pytest.raises(ServiceRefused):
        connect(port, timeout_s=60).evaluate(SESSION, "read_file", {})
    assert len(desk.seen) == 1


def test_a_release_of_the_kill_switch_is_asked_for_once(connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [canned_error(503, "busy")]
    with pytest.raises(ServiceRefused):
        connect(port).kill_switch(on=False)
    assert len(desk.seen) == 1


GARBAGE = {
    "nothing": Canned(body=b""),
    "not JSON": Canned(body=b"<html>PERMIT</html>"),
    "a list": Canned(body=b"[]"),
    "null": Canned(body=b"null"),
    "a string": Canned(body=b'"PERMIT"'),
    "half an answer": Canned(body=b'{"ok":true,"decision":"PERMIT"'),
    "too little": Canned(body=PERMIT),
    "a member twice": Canned(body=b'{"ok":true,"decision":"DENY","decision":"PERMIT"}'),
    "not UTF-8": Canned(body=b'{"ok":"\xff"}'),
    "NaN": Canned(body=b'{"ok":NaN}'),
    "depth": Canned(body=b"[" * 100_000),
    "created": Canned(201, PERMIT),
    "no content": Canned(204, b""),
    "moved": Canned(302, PERMIT, {"Location": "http://127.0.0.1:1/"}),
    "moved for good": Canned(308, PERMIT, {"Location": "/evaluate"}),
    "an error that is not ours": Canned(404, b"<html>not found</html>"),
    "an error with a code that is none": canned_error(400, "s3cret\nline"),
    "an error that moves": canned_error(300, "moved"),
    "compressed": Canned(200, gzip.compress(PERMIT), {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_no_answer(case: str, connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [GARBAGE[case]]
    with pytest.raises(ServiceUnavailable) as caught:
        connect(port).evaluate(SESSION, "read_file", {})
    assert caught.value.code == "service_unavailable"
    assert (len(desk.seen), str(caught.value).count("\n")) == (1, 0)


@pytest.mark.parametrize("status", [201, 203, 206, 302])
def test_the_right_words_under_another_status_are_no_answer(
    status: int, connect: Connect, desk: Desk, port: int
) -> None:
    healthy = b'{"ok":true,"schema_version":"remit.proxy.v0.1","version":"0"}'
    desk.script = [Canned(200, healthy), Canned(status, healthy)]
    proxy = connect(port)
    assert proxy.health().ok
    with pytest.raises(ServiceUnavailable):
        proxy.health()


@pytest.mark.parametrize("stated", [True, False])
def test_a_flood_is_not_read(stated: bool, connect: Connect, desk: Desk, port: int) -> None:
    flood: Iterator[bytes] = itertools.repeat(b" " * MEGABYTE, 100)
    headers = {"Content-Length": str(100 * MEGABYTE)} if stated else {}
    desk.script = [Canned(200, b" " if stated else flood, headers)]
    proxy = connect(port)
    tracemalloc.start()
    try:
        with pytest.raises(ServiceUnavailable):
            proxy.evaluate(SESSION, "read_file", {})
        assert tracemalloc.get_traced_memory()[1] < 40 * MEGABYTE
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in flood) > 50 or stated


def test_endless_headers_are_not_read(connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [Canned(headers={f"X-{number}": "x" * 60_000 for number in range(50)})] * 4
    with pytest.raises(ServiceUnavailable):
        connect(port).evaluate(SESSION, "read_file", {})


def test_a_redirect_leads_nowhere(connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [Canned(307, b"", {"Location": f"http://127.0.0.1:{port}/health"})]
    with pytest.raises(ServiceUnavailable):
        connect(port, token="s3cret").health()
    assert [seen.path for seen in desk.seen] == ["/health"]


def test_cookies_are_not_kept(connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [canned_error(503, "busy", Set_Cookie="name=value")]
    connect(port).health()
    assert "Cookie" not in desk.seen[-1].headers


@pytest.mark.parametrize("secret", ["s3cret-token", "s3cret-admin", "s3cret-passport"])
def test_a_secret_that_the_service_repeats_is_not_shown(secret: str, connect: Connect, desk: Desk, port: int) -> None:
    desk.script = [canned_error(401, "passport_invalid", f"you said {secret}")]
    proxy = connect(port, token="s3cret-token", admin_token="s3cret-admin")
    with pytest.raises(ServiceRefused) as caught:
        proxy.start("s3cret-passport")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None
