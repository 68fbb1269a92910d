"""The OTLP exporter against a real collector: a small HTTP server that parses OTLP as the protocol defines it."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from remit.errors import FieldInvalid, StateMissing
from remit.governor.evaluate import Evaluation
from remit.server.application import Application
from remit.server.auth import TokenAuthenticator
from remit.server.log import configure, flush
from remit.server.otlp import QUEUE, OtlpExporter
from remit.server.routes import Request, Route, SessionDecision, StreamedResponse
from remit.server.streaming import PIECE_BYTES
from remit.server.telemetry import Metrics, Telemetry, start_exporter
from tests.server.asking import HOST, Asked
from tests.world import session_of

pytestmark = pytest.mark.slow

RECEIPTS = session_of(3).receipts
PERMITTED, _, DENIED = (signed.claims for signed in RECEIPTS)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent; `status` is what it answers, and it answers only while `open` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Intake)
        self.spans: list[Any] = []
        self.records: list[Any] = []
        self.resources: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.open = threading.Event()
        self.open.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        if path.endswith("/v1/traces"):
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(traced.resource)
                self.spans += [span for scope in traced.scope_spans for span in scope.spans]
        elif path.endswith("/v1/logs"):
            for logged in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.resources.append(logged.resource)
                self.records += [record for scope in logged.scope_logs for record in scope.log_records]


class Intake(BaseHTTPRequestHandler):
    """One request to the collector."""

    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.open.wait(120)
        self.server.paths.append(self.path)
        self.server.headers.append(dict(self.headers))
        self.server.take(self.path, body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.open.set()
    running.shutdown()
    running.server_close()


def attributes(thing: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in thing.attributes}


def started(url: str) -> OtlpExporter:
    exporter = start_exporter(url, "remit-proxy", "1.2.3")
    assert exporter is not None
    return exporter


def test_a_request_becomes_a_span_with_these_attributes_and_no_others(collector: Collector) -> None:
    telemetry = started(collector.url)
    with telemetry.span("other", "POST", PARENT) as span:
        span.decided("pass:1", "compliant")
        span.answered("/evaluate", 200, "r-1")
    telemetry.close()
    (sent,) = collector.spans
    assert attributes(sent) == {
        "http.route": "/evaluate",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "request_id": "r-1",
        "session_id": "pass:1",
        "verdict": "compliant",
    }
    assert (sent.name, sent.kind, sent.status.code) == ("POST /evaluate", sent.SPAN_KIND_SERVER, 0)
    assert (sent.trace_id.hex(), sent.parent_span_id.hex()) == tuple(PARENT.split("-")[1:3])


def test_the_span_of_a_request_ends_before_its_response_is_sent_and_has_its_route_once_it_is_authorized(
    collector: Collector,
) -> None:
    exporter = started(collector.url)
    telemetry, sending = Telemetry(Metrics(), exporter), list[int]()

    async def parts(request: Request) -> StreamedResponse:
        unused: Any = None
        request.decision = SessionDecision("pass:1", Evaluation(RECEIPTS[2], None, repeated=False, session=unused))
        return StreamedResponse(send_slowly(), "text/plain")

    def send_slowly() -> Iterator[bytes]:
        yield b"a" * PIECE_BYTES
        sending.append(time.time_ns())
        yield b"b"

    async def act() -> None:
        application = Application(
            [Route("GET", "/parts/{name}", parts, "text/plain", "Parts")],
            hosts=frozenset((HOST,)),
            authenticator=TokenAuthenticator({"token": ("a-token",)}, clock=time.monotonic),
            body_bytes=100,
            telemetry=telemetry,
        )
        sent = {b"host": HOST, b"traceparent": PARENT.encode()}
        for headers in ({**sent, b"authorization": b"Bearer a-token"}, sent):
            await application(Asked(application, "GET", "/parts/x", headers, ()))

    asyncio.run(act())
    telemetry.close()
    answered, refused = collector.spans
    told = attributes(answered)
    assert told.pop("request_id") != attributes(refused)["request_id"]
    assert told == {
        "http.route": "/parts/{name}",
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "session_id": "pass:1",
        "verdict": "violation",
    }
    assert answered.end_time_unix_nano < sending[0]
    assert (answered.name, refused.name) == ("GET /parts/{name}", "GET other")
    assert attributes(refused)["http.response.status_code"] == 401
    assert {each.trace_id.hex() for each in (*collector.spans, *collector.records)} == {PARENT.split("-")[1]}
    assert attributes(collector.records[0])["decision"] == "DENY"


def test_all_that_is_sent_names_the_service_and_its_version(collector: Collector) -> None:
    telemetry = started(collector.url + "/otlp/")
    with telemetry.span("/health", "GET"):
        pass
    telemetry.close()
    assert collector.paths == ["/otlp/v1/traces"]
    assert [attributes(each) for each in collector.resources] == [
        {"service.name": "remit-proxy", "service.version": "1.2.3"}
    ]


@pytest.mark.parametrize("header", ["", "00-0-0-0", "ff" + PARENT[2:], "x" * 100_000, "00-" + "0" * 32 + PARENT[35:]])
def test_a_traceparent_that_is_none_begins_a_trace(collector: Collector, header: str) -> None:
    telemetry = started(collector.url)
    with telemetry.span("/health", "GET", header) as span:
        span.answered("/health", 200, "r-1")
    telemetry.close()
    (sent,) = collector.spans
    assert sent.parent_span_id == b""
    assert any(sent.trace_id)


def test_what_is_unknown_of_a_request_is_not_repeated(collector: Collector) -> None:
    telemetry = started(collector.url)
    with telemetry.span("other", "BREW\r\n"):
        pass
    telemetry.close()
    assert attributes(collector.spans[0]) == {"http.route": "other", "http.request.method": "_OTHER"}


def test_an_error_marks_the_span_and_is_not_described(collector: Collector) -> None:
    telemetry = started(collector.url)
    with pytest.raises(RuntimeError), telemetry.span("/evaluate", "POST"):
        raise RuntimeError("a secret")
    with telemetry.span("/evaluate", "POST") as span:
        span.answered("/evaluate", 503, "r-1")
    telemetry.close()
    assert [(sent.status.code, sent.status.message, list(sent.events)) for sent in collector.spans] == [(2, "", [])] * 2


def test_a_receipt_becomes_a_record_with_these_attributes_and_no_others(collector: Collector) -> None:
    telemetry = started(collector.url)
    with telemetry.span("/evaluate", "POST", PARENT):
        telemetry.receipt("pass:1", DENIED, "ab" * 32, "DENY")
    telemetry.receipt("pass:1", PERMITTED, "cd" * 32, "PERMIT")
    telemetry.close()
    denied, permitted = collector.records
    assert attributes(denied) == {
        "receipt_id": DENIED.receipt_id,
        "receipt_hash": "ab" * 32,
        "session_id": "pass:1",
        "tool": "write_file",
        "action_class": "write",
        "side_effect_class": "internal_write",
        "verdict": "violation",
        "decision": "DENY",
        "public_denial_reason": "policy_denied",
        "internal_denial_code": "tool_not_allowed",
    }
    assert set(attributes(denied)) - set(attributes(permitted)) == {"public_denial_reason", "internal_denial_code"}
    assert (denied.event_name, denied.body.WhichOneof("value")) == ("remit.receipt", None)
    assert denied.trace_id.hex() == PARENT.split("-")[1]


def test_nothing_of_a_call_but_its_tool_leaves_the_house(collector: Collector) -> None:
    telemetry = started(collector.url)
    telemetry.receipt("pass:1", DENIED, "ab" * 32, "DENY")
    telemetry.close()
    sent = collector.records[0].SerializeToString()
    assert not [text for text in (DENIED.target, DENIED.reason, DENIED.arguments_hash) if text.encode() in sent]


def test_without_an_endpoint_nothing_is_imported() -> None:
    code = (
        "import sys; from remit.server.telemetry import start_exporter\n"
        "from remit.server.telemetry import Metrics, Telemetry\n"
        "assert start_exporter(None, 'remit', '1') is None\n"
        "Telemetry(Metrics()).close()\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'requests'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def test_a_missing_package_is_named() -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from remit.errors import StateMissing; from remit.server.telemetry import start_exporter\n"
        "try: start_exporter('http://localhost:4318', 'remit', '1')\n"
        "except StateMissing as error: print(error.code)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"state_missing\n"
    assert StateMissing.code == "state_missing"


@pytest.mark.parametrize(
    "endpoint",
    [
        *"localhost:4318 ftp://host http:// https://user:pw@host http://host:99999 http://[ http://h?x=1".split(),
        *("http://h ost", "http://host\n", "file:///etc/passwd", "http://hóst"),
    ],
)
def test_an_endpoint_that_is_no_plain_url_is_refused(endpoint: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        started(endpoint)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.endpoint")


def busy(telemetry: OtlpExporter, requests: int) -> float:
    """Serve some requests, and return how long closing took."""
    for number in range(requests):
        with telemetry.span("/evaluate", "POST") as span:
            telemetry.receipt("pass:1", PERMITTED, "cd" * 32, "PERMIT")
            span.answered("/evaluate", 200, f"r-{number}")
    before = time.monotonic()
    telemetry.close()
    return time.monotonic() - before


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    configure("info", as_json=True, stream=stream)
    yield stream
    configure("error", as_json=True, stream=io.StringIO())
    root.handlers[:], root.level = before


def events(said: io.StringIO) -> list[str]:
    flush(60)
    return [json.loads(line)["event"] for line in said.getvalue().splitlines()]


def test_a_collector_that_is_down_disturbs_nobody_and_is_complained_of_once(said: io.StringIO) -> None:
    assert busy(started("http://127.0.0.1:9"), 10) < 20
    assert events(said) == ["telemetry_not_sent"]


def test_no_thread_goes_on_after_the_end() -> None:
    before = set(threading.enumerate())
    telemetry = started("http://127.0.0.1:9")
    with telemetry.span("/evaluate", "POST") as span:
        span.answered("/evaluate", 200, "id")
    telemetry.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_a_collector_that_refuses_is_complained_of_once(collector: Collector, said: io.StringIO) -> None:
    collector.status = 400
    assert busy(started(collector.url), 600) < 20
    assert events(said) == ["telemetry_not_sent"]


def test_a_collector_that_hangs_is_left_behind(collector: Collector, said: io.StringIO) -> None:
    collector.open.clear()
    telemetry = started(collector.url)
    assert busy(telemetry, 2 * QUEUE) < 20
    assert events(said) == ["telemetry_not_sent"]


HOSTILE = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "0.000001",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    "OTEL_TRACES_SAMPLER": "always_off",
    "OTEL_BSP_MAX_QUEUE_SIZE": "-1",
    "OTEL_BLRP_SCHEDULE_DELAY": "x",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "x",
    "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": "x",
    "OTEL_SPAN_EVENT_COUNT_LIMIT": "x",
    "OTEL_RESOURCE_ATTRIBUTES": "secret=1,service.name=other",
    "OTEL_SERVICE_NAME": "other",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "nobody",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
}


def test_the_environment_changes_nothing_but_headers_and_certificates(collector: Collector) -> None:
    code = (
        "import sys; from remit.server.telemetry import start_exporter\n"
        "telemetry = start_exporter(sys.argv[1], 'remit-proxy', '1.2.3')\n"
        "with telemetry.span('/health', 'GET') as span: span.answered('/health', 200, 'r-1')\n"
        "telemetry.close()"
    )
    given = os.environ | HOSTILE | {"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=k1"}
    done = subprocess.run([sys.executable, "-c", code, collector.url], env=given, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(attributes(collector.spans[0])) == 4
    assert attributes(collector.resources[0])["service.name"] == "remit-proxy"
    assert collector.headers[0]["x-api-key"] == "k1"
