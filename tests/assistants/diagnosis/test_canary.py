"""A call that nobody makes, through hooks that behave and hooks that do not."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from remit.assistants.doctor.canary import BEFORE_CALL_EVENTS, CANARY_TOOL, classify_answer, new_canary, send_canary
from remit.assistants.doctor.settings import Hook
from remit.assistants.registry import HOOK_ADAPTERS

ADAPTER = HOOK_ADAPTERS["claude-code"]
CANARY = new_canary("claude-code", "/work/project", "/home/me/.remit/protections")
RECEIPT = f"rcpt:{'0' * 32}"
REFUSAL = f"Remit refused this call: no. Receipt {RECEIPT}."


class Answers(BaseHTTPRequestHandler):
    """Answers as a test says, and remembers what it was sent."""

    status, body = 200, b""
    sent: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        type(self).sent = {
            "token": self.headers["Authorization"],
            "body": self.rfile.read(int(self.headers["Content-Length"])),
        }
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Answers) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def hook(says: Mapping[str, Any]) -> Hook:
    return Hook("PreToolUse", "settings.json", says)


def through(says: Mapping[str, Any], tmp_path: Path, **variables: str) -> tuple[str, str]:
    sent = send_canary(hook(says), CANARY, ADAPTER, lambda name: variables.get(name, ""), str(tmp_path))
    return sent.answer, sent.receipt_id


@pytest.mark.parametrize("assistant", HOOK_ADAPTERS)
def test_every_assistant_reads_its_canary_as_a_call(assistant: str) -> None:
    canary = new_canary(assistant, "/work/project", "/home/me/.remit")
    notice = HOOK_ADAPTERS[assistant].parse_event(json.loads(canary.payload))
    assert (notice.kind, notice.event, notice.tool) == ("call", BEFORE_CALL_EVENTS[assistant], CANARY_TOOL)
    assert notice.arguments == {"path": "/home/me/.remit"}
    assert notice.session == canary.name


@pytest.mark.parametrize("assistant", HOOK_ADAPTERS)
def test_a_refusal_in_the_words_of_each_assistant_is_one(assistant: str) -> None:
    canary = new_canary(assistant, "/work/project", "/home/me/.remit")
    body = json.dumps(HOOK_ADAPTERS[assistant].deny_response(canary.event, REFUSAL)).encode()
    assert classify_answer(body, canary, HOOK_ADAPTERS[assistant])[:2] == ("refused", RECEIPT)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"{}", "let through"),
        (b"[]", "let through"),
        (b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}', "let through"),
        (json.dumps({"reason": REFUSAL}).encode(), "let through"),
        (json.dumps({"systemMessage": REFUSAL}).encode(), "let through"),
        (json.dumps(ADAPTER.deny_response("PreToolUse", "no")).encode(), "blocked"),
        (b"", "unanswered"),
        (b"<html>", "unanswered"),
        (b"[" * 100_000, "unanswered"),
    ],
)
def test_what_is_not_just_a_refusal_is_none(body: bytes, answer: str) -> None:
    assert classify_answer(body, CANARY, ADAPTER).answer == answer


def test_a_hook_over_http_is_asked_as_the_assistant_asks(server: HTTPServer, tmp_path: Path) -> None:
    Answers.status, Answers.body = 200, json.dumps(ADAPTER.deny_response("PreToolUse", REFUSAL)).encode()
    says = {
        "url": f"http://127.0.0.1:{server.server_port}/v1/hooks",
        "headers": {"Authorization": "Bearer $LISTED$UNLISTED"},
        "allowedEnvVars": ["LISTED"],
    }
    assert through(says, tmp_path, LISTED="token", UNLISTED="secret") == ("refused", RECEIPT)
    assert Answers.sent == {"token": "Bearer token", "body": CANARY.payload}


@pytest.mark.parametrize("status", [403, 500, 302])
def test_a_refusal_with_another_status_is_no_answer(server: HTTPServer, tmp_path: Path, status: int) -> None:
    Answers.status, Answers.body = status, json.dumps(ADAPTER.deny_response("PreToolUse", REFUSAL)).encode()
    assert through({"url": f"http://127.0.0.1:{server.server_port}/"}, tmp_path) == ("unanswered", "")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://example.org/x", "https://127.0.0.1:1/", "nowhere"])
def test_an_address_where_nobody_answers_or_that_is_elsewhere_is_no_answer(tmp_path: Path, url: str) -> None:
    assert through({"url": url, "headers": {"Authorization": "Bearer x"}}, tmp_path) == ("unanswered", "")


def command_that(tmp_path: Path, code: str) -> dict[str, str]:
    script = tmp_path / "hook.py"
    script.write_text(code, encoding="utf-8")
    return {"command": shlex.join([sys.executable, "-I", str(script)])}


def test_a_command_gets_the_payload_and_its_answer_counts(tmp_path: Path) -> None:
    answer = json.dumps(ADAPTER.deny_response("PreToolUse", REFUSAL))
    code = f"import json, sys; json.load(sys.stdin)['tool_use_id']; print({answer!r})"
    assert through(command_that(tmp_path, code), tmp_path) == ("refused", RECEIPT)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("raise SystemExit(2)", "blocked"),
        ("raise SystemExit(1)", "unanswered"),
        ("print('{}')", "let through"),
        ("print('no json')", "unanswered"),
    ],
)
def test_how_a_command_ends_is_what_counts(tmp_path: Path, code: str, answer: str) -> None:
    assert through(command_that(tmp_path, code), tmp_path) == (answer, "")


def test_a_hook_that_says_nothing_is_no_answer(tmp_path: Path) -> None:
    assert through({"type": "prompt"}, tmp_path) == ("unanswered", "")
