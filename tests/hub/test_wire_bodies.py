"""What the Hub takes for a body, over raw sockets: at most a MiB, plain JSON, read strictly."""

import json
from collections.abc import Iterator

import pytest

from remit.schemas.hub import MAX_BODY_BYTES
from tests.hub.service import Hub, error_of, event, running
from tests.proxy.service import read_answer

OBSERVE = "/v1/events/observe"
POSTS = ("/v1/sessions/start", OBSERVE, "/v1/policy/check", "/v1/sessions/pass:x/attest")
TOO_LARGE = "413 body_too_large"
SEEN = json.dumps(event("bodies")).encode()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        yield hub


def told(**members: str) -> bytes:
    """Return an event with members as they are written."""
    return SEEN[:-2] + b"".join(f', "{name}": {text}'.encode() for name, text in members.items()) + b"}}"


BAD = {
    "nothing": (b"", "$"),
    "a list": (b"[]", "$"),
    "two values": (b"{}{}", "$"),
    "too deep": (told(hidden_provider_activity="[" * 64 + "]" * 64), "$"),
    "far too deep": (b"[" * 500_000, "$"),
    "too many members": (told(x=json.dumps({f"a{number}": 0 for number in range(10_001)})), "$.event.x"),
    "too long a text": (told(text_snapshot=json.dumps("x" * (256 * 1024 + 1))), "$.event.text_snapshot"),
    "too long a number": (told(x="0." + "1" * 63), "$"),
    "a number that no double holds": (told(exit_code="9007199254740993"), "$"),
    "not a number": (told(exit_code="NaN"), "$"),
    "a member twice": (
        told(consent="null", consent2="1").replace(b"consent2", b"consent"),
        "$.event: member 'consent'",
    ),
    "a member twice that nobody knows": (told(x="1", y="2").replace(b'"y"', b'"\\u0078"'), "$.event: member 'x'"),
    "half a character": (told(target2=r'"\ud800"').replace(b"target2", b"capture_mode"), "$.event.capture_mode"),
    "a byte order mark": (b"\xef\xbb\xbf" + SEEN, "$"),
    "not UTF-8": (told(capture_mode='"?"').replace(b"?", b"\xff"), "$"),
    "a null byte": (SEEN + b"\0", "$"),
    "no event": (b'{"source":{"type":"cli"}}', "$"),
    "no source": (b'{"event":{}}', "$"),
    "a source that is a text": (b'{"source":"cli","event":{}}', "$.source"),
    "a title that is a number": (b'{"source":{"type":"cli"},"session":{"title":7},"event":{}}', "$.session.title"),
    "an exit code that is a text": (told(exit_code='"0"'), "$.event.exit_code"),
    "an exit code that is far out": (told(exit_code="99999999999"), "$.event.exit_code"),
    "a command of numbers": (told(command="[1]"), "$.event.command[0]"),
    "a moment that is none": (told(observed_at='"yesterday"'), "$.event.observed_at"),
    "a message that is a text": (told(messages='["hi"]'), "$.event.messages[0]"),
    "too many messages": (told(messages=json.dumps([{}] * 1001)), "$.event.messages"),
    "too long a kind": (told(capture_mode=json.dumps("x" * 257)), "$.event.capture_mode"),
    "raw content": (told(raw_content_included="true"), "$.event.raw_content_included"),
    "text that nobody has agreed to": (told(text_excerpt='"x"'), "$.event.text_excerpt"),
}


@pytest.mark.parametrize(("body", "place"), BAD.values(), ids=BAD)
def test_a_body_that_is_not_as_it_must_be_is_refused_by_its_place(hub: Hub, body: bytes, place: str) -> None:
    for path in (OBSERVE, "/v1/policy/check"):
        answer = hub.post(path, body)
        assert error_of(answer) == "400 bad_request"
        assert answer.json["error"].startswith(place)


@pytest.mark.parametrize("path", POSTS)
def test_a_length_that_is_too_large_is_refused_before_anything_is_read(hub: Hub, path: str) -> None:
    for length in (MAX_BODY_BYTES + 1, 2**63):
        with hub.connect() as connection:
            headers = {"x_service_hub_token": hub.token, "content_length": str(length), "expect": "100-continue"}
            connection.sendall(hub.request("POST", path, b"", **headers))
            assert error_of(read_answer(connection)) == TOO_LARGE


@pytest.mark.parametrize("path", POSTS)
def test_chunks_that_are_too_many_are_refused_while_they_come(hub: Hub, path: str) -> None:
    headers = {"x_service_hub_token": hub.token, "content_length": None, "transfer_encoding": "chunked"}
    chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
    with hub.connect() as connection:
        connection.sendall(hub.request("POST", path, b"", **headers))
        connection.sendall(chunk * (MAX_BODY_BYTES // 65536 + 1))
        assert error_of(read_answer(connection)) == TOO_LARGE


def test_chunks_of_the_largest_size_are_read(hub: Hub) -> None:
    headers = {"x_service_hub_token": hub.token, "content_length": None, "transfer_encoding": "chunked"}
    body = SEEN.ljust(MAX_BODY_BYTES)
    chunks = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    with hub.connect() as connection:
        connection.sendall(hub.request("POST", OBSERVE, b"", **headers) + chunks)
        assert read_answer(connection).status == 200


@pytest.mark.parametrize(
    "media_type", [None, "", "application/json", "Application/JSON; charset=utf-8", "text/plain", "x/y"]
)
def test_json_is_taken_whatever_adapters_say_its_type_is(hub: Hub, media_type: str | None) -> None:
    assert hub.post(OBSERVE, SEEN, content_type=media_type).status == 200
    assert error_of(hub.post(OBSERVE, b"target=x", content_type=media_type)) == "400 bad_request"


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_another_page_is_not_taken_whatever_its_type_is(hub: Hub, media_type: str) -> None:
    answer = hub.post(OBSERVE, SEEN, content_type=media_type, origin="https://evil.example")
    assert error_of(answer) == "403 origin_not_allowed"


@pytest.mark.parametrize("encoding", ["gzip", "br", "x"])
def test_a_compressed_body_is_refused(hub: Hub, encoding: str) -> None:
    assert error_of(hub.post(OBSERVE, SEEN, content_encoding=encoding)) == "415 unsupported_media_type"


@pytest.mark.parametrize("members", [{"unknown": "{}"}, {"target": "null"}, {"consent": "null"}, {"command": '""'}])
def test_what_adapters_of_other_versions_send_is_taken(hub: Hub, members: dict[str, str]) -> None:
    body = told(**members).replace(b'"target": "https://chat.example/c/1", ', b"")
    assert hub.post(OBSERVE, body).status == 200


@pytest.mark.parametrize("body", [b"[]", b'{"end":1}', b'{"end":"true"}', b'{"ended":true}', b"null", b" "])
def test_a_body_of_attest_that_says_it_otherwise_ends_nothing(hub: Hub, body: bytes) -> None:
    session = hub.start("to be attested")["ardur_session_id"]
    assert error_of(hub.post(f"/v1/sessions/{session}/attest", body)) == "400 bad_request"
    assert hub.start("to be attested")["existing"] is True


def test_a_request_of_http_1_0_gets_no_export_that_could_be_cut_off_unseen(hub: Hub) -> None:
    head = f"GET /v1/export HTTP/1.0\r\nHost: {hub.host}\r\nX-Service-Hub-Token: {hub.token}\r\n\r\n"
    (answer,) = hub.send(head.encode())
    assert error_of(answer) == "400 bad_request"
