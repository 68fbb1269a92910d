"""The specification of the Hub, sentence by sentence: each test is named after one and asserts what it says.

What the specification leaves open is in `test_contract.py`; how it is defended is in `test_wire_*.py`.
"""

import base64
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

import remit
from remit.errors import FieldInvalid
from remit.hub.auth import HubAuthenticator
from remit.hub.options import HubOptions
from remit.hub.routes import documented_routes
from remit.schemas.hub import MAX_BODY_BYTES
from remit.server.auth import TokenSet
from remit.wiring.hub import run_hub
from tests.hub.service import DIGEST, Hub, claims_of, error_of, event, receipt_claims, running
from tests.proxy.service import HTTP, command
from tests.proxy.service import running as proxy_running

KINDS = ("browser", "desktop", "cli")
DECISIONS = {"compliant", "violation", "insufficient_evidence"}
OBSERVATION_TOOLS = ["browser_observe", "desktop_observe", "cli_command", "cli_observe"]
MISSION = {
    "agent_id": "agent:reader",
    "mission": "Read the docs",
    "allowed_tools": ["browser_*"],
    "forbidden_tools": ["cli_command"],
    "resource_scope": ["https://docs.example/"],
    "max_tool_calls": 7,
    "max_duration_s": 600,
    "allowed_side_effect_classes": ["none"],
}
ENDPOINTS = {
    ("GET", "/health"), ("GET", "/healthz"), ("GET", "/"), ("GET", "/dashboard"), ("GET", "/v1/status"),
    ("GET", "/v1/export"), ("POST", "/v1/sessions/start"), ("POST", "/v1/events/observe"), ("POST", "/v1/policy/check"),
    ("POST", "/v1/sessions/{ardur_session_id}/attest"),
}  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        yield hub


def is_moment(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is not None


def receipts_in(hub: Hub) -> int:
    return len(hub.told("/v1/export")["receipts"])


# What the service does


@pytest.mark.parametrize("kind", KINDS)
def test_the_hub_accepts_evidence_from_a_browser_a_desktop_and_a_command_line(hub: Hub, kind: str) -> None:
    answer = hub.observe("accepts", kind)
    assert answer["receipt_id"] == receipt_claims(hub, answer["receipt"]["jwt"])["receipt_id"]


def test_it_signs_that_evidence_into_a_chain_and_the_proxy_has_no_part_in_it(hub: Hub) -> None:
    """The passport is for observation: whoever has the Hub's token must not get tool calls permitted by it."""
    started = hub.start("one chain")
    first = hub.observe("one chain")["receipt"]
    with proxy_running(hub.home, HTTP) as proxy:
        refused = proxy.ask("POST", "/session/start", {"token": started["token"]})
        assert (refused.status, refused.json["error_code"]) == (403, "audience_mismatch")
        call = {"session_id": started["ardur_session_id"], "tool_name": "browser_observe", "arguments": {}}
        assert proxy.ask("POST", "/evaluate", call).json["error_code"] == "audience_mismatch"
    tokens = [first["jwt"], *(hub.observe("one chain")["receipt"]["jwt"] for _ in range(2))]
    claims = [receipt_claims(hub, token) for token in tokens]
    parents = [None, *(one["receipt_id"] for one in claims[:2])]
    assert [one["parent_receipt_id"] for one in claims] == parents
    hashes = [None, *(hashlib.sha256(token.encode()).hexdigest() for token in tokens[:2])]
    assert [one["parent_receipt_hash"] for one in claims] == hashes


def test_it_also_serves_a_dashboard_and_issues_behavioral_attestations(hub: Hub) -> None:
    session = hub.observe("attested at large")["ardur_session_id"]
    assert hub.get("/dashboard").status == 200
    assert claims_of(hub, hub.attest(session)["token"], "attestation")["session_id"] == session


def test_it_does_not_control_hidden_provider_side_behavior_and_says_so(hub: Hub) -> None:
    answer = hub.observe("hidden", hidden_provider_activity=True)
    assert (answer["decision"], answer["policy"]["decision"]) == ("DENY", "insufficient_evidence")
    claims = receipt_claims(hub, answer["receipt"]["jwt"])
    assert claims["internal_denial_code"] == "provider_side_activity"


def test_the_hub_binds_to_127_0_0_1_on_port_8765_by_default(tmp_path: Path) -> None:
    assert HubOptions("")[1:3] == ("127.0.0.1", 8765)
    told = json.loads(command("setup", "--home", str(tmp_path / "home"), "--json").stdout)
    assert told["hub_url"] == "http://127.0.0.1:8765"


def test_it_is_loopback_only(hub: Hub, tmp_path: Path) -> None:
    sockets = [line.split()[1:4] for line in Path(f"/proc/{hub.pid}/net/tcp").read_text("ascii").splitlines()[1:]]
    listening = [local.split(":") for local, _, state in sockets if state == "0A"]
    assert [address for address, port in listening if int(port, 16) == hub.port] == ["0100007F"]
    for host in ("0.0.0.0", "192.0.2.1", "::"):
        with pytest.raises(FieldInvalid):
            run_hub(HubOptions(str(tmp_path), host=host, port=0), lambda _: None)


# Hub session


def test_ardur_session_id_equals_the_passport_jti(hub: Hub) -> None:
    session = hub.start("a passport")
    assert session["ardur_session_id"] == claims_of(hub, session["token"], "passport")["jti"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_has_the_fields_of_the_table(hub: Hub, kind: str) -> None:
    session = hub.start("all fields", kind, mission=MISSION)
    texts = {"ardur_session_id", "agent_id", "mission", "title", "started_at", "token"}
    assert {name for name in texts if isinstance(session[name], str)} == texts
    assert (session["agent_id"], session["mission"], session["title"]) == (
        "agent:reader", "Read the docs", "all fields"
    )  # fmt: skip
    assert session["source"]["type"] == kind
    assert is_moment(session["started_at"])
    assert session["existing"] is False


def test_a_session_is_keyed_by_the_pair_of_source_and_session(hub: Hub) -> None:
    pairs = [("browser", "one"), ("browser", "two"), ("desktop", "one"), ("desktop", "two")]
    found = {pair: hub.start(pair[1], pair[0])["ardur_session_id"] for pair in pairs}
    assert len(set(found.values())) == 4
    assert found == {pair: hub.start(pair[1], pair[0])["ardur_session_id"] for pair in pairs}


def test_a_second_start_returns_the_existing_session_with_existing_true(hub: Hub) -> None:
    first, second = hub.start("twice"), hub.start("twice")
    assert (first.pop("existing"), second.pop("existing")) == (False, True)
    assert first == second


# Endpoints


def test_every_endpoint_of_the_table_is_there() -> None:
    assert {(route.method, route.path) for route in documented_routes()} >= ENDPOINTS


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_health_returns_ok_schema_version_and_version(hub: Hub, path: str) -> None:
    answer = hub.ask("GET", path)
    assert answer.json == {"ok": True, "schema_version": "remit.hub.v0.1", "version": remit.__version__}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/", "/dashboard"])
def test_the_dashboard_is_html_with_a_strict_content_security_policy_and_no_scripts(hub: Hub, path: str) -> None:
    answer = hub.get(path)
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")
    assert not re.search(rb"<script|javascript:|\son[a-z]+=", answer.body)
    assert "script-src" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/dashboard"])
def test_the_dashboard_summarises_the_latest_session_reviews(hub: Hub, path: str) -> None:
    hub.observe(f"A title of {path.strip('/') or 'root'} to be seen")
    assert f"A title of {path.strip('/') or 'root'} to be seen" in hub.get(path).body.decode()


def test_status_returns_the_members_that_are_listed(hub: Hub) -> None:
    latest = hub.observe("status")["receipt"]
    status = hub.told("/v1/status")
    assert (status["schema_version"], status["version"]) == ("remit.hub.v0.1", remit.__version__)
    assert (status["home"], status["hub_url"]) == (str(hub.home), hub.url)
    assert status["verifier_id"] == receipt_claims(hub, latest["jwt"])["verifier_id"]
    assert (status["sessions"], status["session_reviews"]) >= (1, 1)
    assert status["latest_receipt"] == latest
    assert status["public_key_pem"].startswith("-----BEGIN PUBLIC KEY-----\n")


def test_status_names_the_adapters_with_the_values_of_the_specification(hub: Hub) -> None:
    adapters = {"browser": "available", "desktop": "available_with_macos_permissions", "cli": "available"}
    assert hub.told("/v1/status")["adapters"] == adapters


def test_latest_receipt_is_null_where_there_is_none(tmp_path: Path) -> None:
    with running(tmp_path / "home") as hub:
        status = hub.told("/v1/status")
        assert (status["sessions"], status["session_reviews"], status["latest_receipt"]) == (0, 0, None)


def test_export_returns_sessions_session_reviews_and_latest_receipts(hub: Hub) -> None:
    answer = hub.observe("exported")
    export, session = hub.told("/v1/export"), answer["ardur_session_id"]
    assert session in {one["ardur_session_id"] for one in export["sessions"]}
    assert answer["session_review"] in export["session_reviews"]
    assert answer["receipt"] | {"ardur_session_id": session} in export["latest_receipts"]


def test_start_issues_a_passport_for_the_observation_tools_when_no_mission_is_supplied(hub: Hub) -> None:
    passport = claims_of(hub, hub.start("no mission")["token"], "passport")
    assert passport["allowed_tools"] == OBSERVATION_TOOLS


def test_start_issues_a_passport_for_the_mission_that_is_supplied(hub: Hub) -> None:
    session = hub.start("with a mission", mission=MISSION)
    passport = claims_of(hub, session["token"], "passport")
    asked = {name: value for name, value in MISSION.items() if name != "agent_id"} | {"sub": "agent:reader"}
    assert {name: passport[name] for name in asked} == asked


def test_observe_starts_a_session_implicitly_when_needed(hub: Hub) -> None:
    answer = hub.observe("implicit")
    found = hub.start("implicit")
    assert (found["existing"], found["ardur_session_id"]) == (True, answer["ardur_session_id"])


def test_observe_evaluates_the_policy_and_appends_a_receipt_to_the_chain(hub: Hub) -> None:
    first, second = hub.observe("chained"), hub.observe("chained", "browser", action_class="send", target="/x/.ssh/id")
    assert [one["policy"]["decision"] for one in (first, second)] == ["compliant", "violation"]
    claims = receipt_claims(hub, second["receipt"]["jwt"])
    assert claims["parent_receipt_id"] == first["receipt_id"]
    assert claims["parent_receipt_hash"] == first["receipt"]["receipt_hash"]


@pytest.mark.parametrize("kind", ["Browser", "phone", "", None, 1, ["browser"]])
def test_source_type_must_be_one_of_browser_desktop_cli(hub: Hub, kind: Any) -> None:
    for path in ("/v1/events/observe", "/v1/policy/check", "/v1/sessions/start"):
        assert error_of(hub.post(path, event("x", kind))) == "400 bad_request"


@pytest.mark.parametrize(
    "digest",
    ["ab" * 32, f"sha256:{'ab' * 32}", f"sha-256:{'ab' * 31}", f"sha-256:{'ab' * 33}", f"sha-256:{'xy' * 32}", "", 7,
     f"sha-512:{'ab' * 64}", f"SHA-256:{'ab' * 32}", f"sha-256:{'ab' * 32}\n", f" sha-256:{'ab' * 32}"],
)  # fmt: skip
def test_content_digest_when_present_must_match_the_form_sha_256_hex(hub: Hub, digest: Any) -> None:
    assert error_of(hub.post("/v1/events/observe", event("x", content_digest=digest))) == "400 bad_request"


@pytest.mark.parametrize("digest", [None, DIGEST, DIGEST.upper().replace("SHA", "sha")])
def test_content_digest_may_be_absent_and_in_either_case(hub: Hub, digest: str | None) -> None:
    assert hub.observe("digests", content_digest=digest)["ok"] is True


@pytest.mark.parametrize("place", ["event", "top"])
def test_raw_content_included_true_is_rejected(hub: Hub, place: str) -> None:
    report, raw = event("x"), {"raw_content_included": True}
    told = report | raw if place == "top" else report | {"event": report["event"] | raw}
    assert error_of(hub.post("/v1/events/observe", told)) == "400 bad_request"


@pytest.mark.parametrize("consent", [None, {}, {"visible_text": False}, {"visible_text": None}, {"visible": True}])
def test_a_text_snapshot_requires_that_visible_text_is_consented_to(hub: Hub, consent: Any) -> None:
    report = event("x", text_snapshot="hello", consent=consent)
    assert error_of(hub.post("/v1/events/observe", report)) == "400 bad_request"
    assert hub.observe("texts", text_snapshot="hello", consent={"visible_text": True})["ok"] is True


def test_a_validation_failure_is_400_with_the_parsers_message_and_leaves_nothing(hub: Hub) -> None:
    before = receipts_in(hub)
    answer = hub.post("/v1/events/observe", event("never kept", content_digest="md5:1"))
    assert error_of(answer) == "400 bad_request"
    assert "content_digest" in answer.json["error"]
    assert receipts_in(hub) == before
    assert hub.start("never kept")["existing"] is False


def test_the_response_carries_the_policy_decision_the_receipt_id_and_an_updated_review(hub: Hub) -> None:
    answers = [hub.observe("answers") for _ in range(2)]
    assert {answer["policy"]["decision"] for answer in answers} <= DECISIONS
    assert [answer["session_review"]["observations"] for answer in answers] == [1, 2]
    assert [answer["session_review"]["latest_receipt_id"] for answer in answers] == [
        answer["receipt_id"] for answer in answers
    ]


def test_policy_check_has_the_shape_of_observe_and_records_no_receipt(hub: Hub) -> None:
    def recorded() -> tuple[object, ...]:
        status = hub.told("/v1/status")
        return receipts_in(hub), status["sessions"], status["session_reviews"], status["latest_receipt"]

    before = recorded()
    checked = hub.check("checked", "cli", command="sudo rm -rf /")
    assert recorded() == before
    observed = hub.observe("checked", "cli", command="sudo rm -rf /")
    assert checked["policy"] == observed["policy"]


@pytest.mark.parametrize(
    ("changes", "decision"),
    [({}, "compliant"), ({"command": "sudo id"}, "violation"),
     ({"hidden_provider_activity": True}, "insufficient_evidence")],
)  # fmt: skip
def test_policy_check_returns_decision_reason_tool_name_and_arguments(
    hub: Hub, changes: dict[str, Any], decision: str
) -> None:
    policy = hub.check("policy", "cli", **changes)["policy"]
    assert list(policy) == ["decision", "reason", "tool_name", "arguments"]
    assert policy["decision"] == decision
    assert policy["tool_name"] in OBSERVATION_TOOLS
    assert policy["reason"]
    assert policy["arguments"]["target"] == "https://chat.example/c/1"


def test_attest_summarises_the_receipt_chain_of_an_existing_session(hub: Hub) -> None:
    observed = [hub.observe("attested"), hub.observe("attested", "browser", hidden_provider_activity=True)]
    envelope = hub.attest(observed[0]["ardur_session_id"])
    claims = claims_of(hub, envelope["token"], "attestation")
    assert envelope["claims"] == claims
    assert (claims["receipts"], claims["chain_verified"]) == (2, True)
    assert (claims["first_receipt_id"], claims["last_receipt_id"]) == tuple(one["receipt_id"] for one in observed)


def test_attest_is_used_to_end_a_session_cleanly(hub: Hub) -> None:
    session = hub.observe("to be ended")["ardur_session_id"]
    assert hub.attest(session, end=True)["claims"]["state"] == "ended"


# Authentication


@pytest.mark.parametrize(("method", "path"), sorted(ENDPOINTS))
def test_every_endpoint_except_health_requires_the_hub_token(hub: Hub, method: str, path: str) -> None:
    answer = hub.ask(method, path.replace("{ardur_session_id}", "x"), {} if method == "POST" else None)
    if path.startswith("/health"):
        assert answer.status == 200
    else:
        assert error_of(answer) == "401 hub_auth_required"


def test_setup_writes_the_token_and_stores_it_under_the_home_as_a_local_secret(tmp_path: Path) -> None:
    home = tmp_path / "home"
    token = json.loads(command("setup", "--home", str(home), "--json").stdout)["token"]
    config = home / "config.json"
    assert json.loads(config.read_text(encoding="utf-8"))["hub_token"] == token
    assert (config.stat().st_mode & 0o777, home.stat().st_mode & 0o777) == (0o600, 0o700)
    with running(home) as hub:
        assert hub.ask("GET", "/v1/status", x_service_hub_token=token).status == 200


def test_the_token_is_accepted_in_one_of_three_places(hub: Hub) -> None:
    assert hub.ask("GET", "/v1/status", x_service_hub_token=hub.token).status == 200
    assert hub.ask("GET", "/v1/status", authorization=f"Bearer {hub.token}").status == 200
    assert hub.ask("GET", f"/?token={hub.token}").status == 200
    assert hub.ask("GET", f"/dashboard?token={hub.token}").status == 200


def test_the_query_is_accepted_only_for_the_two_pages(hub: Hub) -> None:
    for path in ("/v1/status", "/v1/export", "/dashboard/overview"):
        assert error_of(hub.ask("GET", f"{path}?token={hub.token}")) == "401 hub_auth_required"


@pytest.mark.parametrize("compares", [TokenSet.matches, HubAuthenticator._is_valid_cookie])
def test_the_token_comparison_is_constant_time(compares: Callable[..., bool]) -> None:
    source = inspect.getsource(compares)
    assert "hmac.compare_digest(" in source
    assert "==" not in source


@pytest.mark.parametrize("token", [None, "", "wrong", "x" * 43])
def test_a_missing_or_incorrect_token_is_401_with_the_standard_error_body(hub: Hub, token: str | None) -> None:
    answer = hub.ask("GET", "/v1/status", x_service_hub_token=token)
    assert error_of(answer) == "401 hub_auth_required"


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [("chrome-extension://" + "abcdefghijklmnop" * 2, True), ("http://127.0.0.1:8765", True),
     ("http://localhost", True), ("moz-extension://0b9eb8a4-5a2a-4f1c-9e0f-7d4e6c0f1a2b", True),
     ("https://example.com", False), ("null", False)],
)  # fmt: skip
def test_only_allowed_origins_receive_access_control_allow_origin(hub: Hub, origin: str, is_allowed: bool) -> None:
    answer = hub.get("/v1/status", origin=origin)
    assert answer.headers.get("access-control-allow-origin") == (origin if is_allowed else None)


def test_the_dashboard_can_be_bookmarked_with_the_query_token(hub: Hub) -> None:
    pages = [hub.ask("GET", f"/dashboard?token={hub.token}") for _ in range(2)]
    assert [page.status for page in pages] == [200, 200]
    assert not [page for page in pages if b"<script" in page.body or hub.token.encode() in page.body]


# Events


def test_observe_produces_a_receipt_per_accepted_event(hub: Hub) -> None:
    before = receipts_in(hub)
    ids = {hub.observe("counted", kind)["receipt_id"] for kind in KINDS for _ in range(2)}
    assert (len(ids), receipts_in(hub) - before) == (6, 6)


def _measured(hub: Hub, answer: dict[str, Any]) -> dict[str, Any]:
    measurements: dict[str, Any] = receipt_claims(hub, answer["receipt"]["jwt"])["measurements"]
    return measurements


def test_receipts_carry_digests_of_text_and_never_the_text(hub: Hub) -> None:
    texts = {name: f"seen in {name}" for name in ("text_snapshot", "text_excerpt", "stdout", "stderr")}
    said = {"role": "user", "text_excerpt": "seen in a message"}
    consent = {"visible_text": True}
    answer = hub.observe("digests of text", "cli", **texts, messages=[said], consent=consent, stdout_digest=DIGEST)
    expected = {f"remit.event.{name}": hashlib.sha256(text.encode()).digest() for name, text in texts.items()}
    expected["remit.event.messages.0.text_excerpt"] = hashlib.sha256(b"seen in a message").digest()
    expected["remit.event.stdout_digest"] = bytes.fromhex(DIGEST.partition(":")[2])
    measured = _measured(hub, answer)
    found = {name: base64.urlsafe_b64decode(measured[name]["digest"]["value"] + "=") for name in expected}
    assert found == expected
    assert "seen in" not in json.dumps(receipt_claims(hub, answer["receipt"]["jwt"]))


def test_timestamp_is_when_the_step_was_observed(hub: Hub) -> None:
    given = "2026-01-02T05:04:05.678+02:00"
    answer = hub.observe("when observed", observed_at=given)
    assert answer["receipt"]["timestamp"] == "2026-01-02T03:04:05.678Z"
    assert _measured(hub, answer)["remit.event.observed_at"]["collected_at"] == given
    earlier = hub.observe("when observed", observed_at="2025-01-01T00:00:00Z")["receipt"]["timestamp"]
    assert earlier == "2026-01-02T03:04:05.678Z"
    ahead = datetime.now(UTC) + timedelta(minutes=4)
    assert hub.observe("when observed", observed_at=ahead.isoformat())["receipt"]["timestamp"] < ahead.isoformat()


@pytest.mark.parametrize("given", ["2019-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "ahead"])
def test_a_time_before_2020_or_more_than_5_minutes_ahead_is_400(hub: Hub, given: str) -> None:
    ahead = (datetime.now(UTC) + timedelta(minutes=6)).isoformat()
    report = event("absurd times", observed_at=ahead if given == "ahead" else given)
    for path in ("/v1/events/observe", "/v1/policy/check"):
        answer = hub.post(path, report)
        assert error_of(answer) == "400 bad_request"
        assert "$.event.observed_at" in answer.json["error"]


def test_a_chain_with_observed_times_verifies(hub: Hub) -> None:
    moments = ("2026-01-02T03:04:05Z", "2025-01-02T03:04:05Z", None, "2026-03-02T03:04:05Z")
    (session,) = {hub.observe("verified times", observed_at=moment)["ardur_session_id"] for moment in moments}
    assert hub.attest(session)["claims"]["chain_verified"] is True
    command("ledger", "check", "--home", str(hub.home))


def test_an_unknown_action_class_is_400_naming_those_allowed(hub: Hub) -> None:
    for path in ("/v1/events/observe", "/v1/policy/check"):
        answer = hub.post(path, event("enumerated", action_class="bogus"))
        assert error_of(answer) == "400 bad_request"
        assert answer.json["error"].startswith("$.event.action_class: must be one of ")
        assert all(value in answer.json["error"] for value in ("search", "read", "write", "send", "observe"))


# Public projections


AUDIT_ONLY = {
    "arguments_hash", "internal_denial_code", "invocation_digest", "measurements", "policy_decisions", "reason",
    "result_hash", "run_nonce",
}  # fmt: skip


def test_a_receipt_is_given_in_full_with_its_token(hub: Hub) -> None:
    observed = hub.observe("one receipt")
    for path in (f"/v1/receipts/{observed['receipt_id']}", f"/v1/receipts/{observed['receipt_id']}?view=full"):
        told = hub.told(path)
        assert told["receipt"] == observed["receipt"]
        assert told["ardur_session_id"] == observed["ardur_session_id"]
        assert told["claims"] == receipt_claims(hub, observed["receipt"]["jwt"])


def test_a_public_projection_omits_the_internal_code_and_audit_only_members(hub: Hub) -> None:
    observed = hub.observe("in public", "cli", command="sudo id", stdout_digest=DIGEST)
    claims = receipt_claims(hub, observed["receipt"]["jwt"])
    answer = hub.get(f"/v1/receipts/{observed['receipt_id']}?view=public")
    told = answer.json
    assert (answer.status, told["ok"], told["signed"], told["view"]) == (200, True, False, "remit-receipt-public")
    assert told["receipt_hash"] == observed["receipt"]["receipt_hash"]
    assert set(told["omitted"]) == AUDIT_ONLY & set(claims) >= {"internal_denial_code", "measurements", "reason"}
    assert told["claims"] == {name: value for name, value in claims.items() if name not in AUDIT_ONLY}
    assert claims["internal_denial_code"].encode() not in answer.body
    assert observed["receipt"]["jwt"].encode() not in answer.body


def test_a_view_that_is_not_known_is_400_and_a_receipt_that_is_not_there_404(hub: Hub) -> None:
    receipt_id = hub.observe("views")["receipt_id"]
    for view in ("audit", "", "PUBLIC"):
        answer = hub.get(f"/v1/receipts/{receipt_id}?view={view}")
        assert error_of(answer) == "400 bad_request"
        assert answer.json["error"] == "query.view: must be one of full, public"
    for view in ("full", "public"):
        assert error_of(hub.get(f"/v1/receipts/rcpt:none?view={view}")) == "404 receipt_not_found"
    assert error_of(hub.ask("GET", f"/v1/receipts/{receipt_id}?view=public")) == "401 hub_auth_required"


# Errors; those of the state are in test_state.py, and what clients say of a Hub that is not there with the client


@pytest.mark.parametrize("path", ["/v1/nowhere", "/nowhere", "/dashboard/nowhere", "/dashboard/sessions/none"])
def test_every_non_success_response_has_the_json_shape(hub: Hub, path: str) -> None:
    assert error_of(hub.get(path)).startswith("404 ")
    assert error_of(hub.ask("GET", path)) == "401 hub_auth_required"


def test_a_body_over_the_cap_is_413_body_too_large(hub: Hub) -> None:
    body = json.dumps(event("large")).encode()
    assert hub.post("/v1/events/observe", body.ljust(MAX_BODY_BYTES)).status == 200
    assert error_of(hub.post("/v1/events/observe", body.ljust(MAX_BODY_BYTES + 1))) == "413 body_too_large"


def test_public_denial_reasons_are_of_the_vocabulary(hub: Hub) -> None:
    known = {"policy_denied", "budget_exhausted", "insufficient_evidence", "revoked", "chain_invalid"}
    tried: list[dict[str, Any]] = [{"hidden_provider_activity": True}, {"command": "sudo id"}]
    denied = [receipt_claims(hub, hub.observe("denied", "cli", **changes)["receipt"]["jwt"]) for changes in tried]
    assert {claims["public_denial_reason"] for claims in denied} <= known
    assert all(re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", claims["internal_denial_code"]) for claims in denied)


# Limits


def test_mission_max_tool_calls_is_a_limit_per_passport(hub: Hub) -> None:
    hub.start("few calls", mission={"allowed_tools": ["browser_observe"], "max_tool_calls": 1})
    answers = [hub.observe("few calls") for _ in range(2)]
    assert [answer["decision"] for answer in answers] == ["PERMIT", "DENY"]
    claims = receipt_claims(hub, answers[1]["receipt"]["jwt"])
    assert (claims["public_denial_reason"], claims["internal_denial_code"]) == (
        "budget_exhausted", "tool_calls_exhausted"
    )  # fmt: skip


def test_mission_max_duration_s_is_the_life_of_the_passport(hub: Hub) -> None:
    session = hub.start("short", mission={"allowed_tools": ["browser_observe"], "max_duration_s": 60})
    passport = jwt.decode(session["token"], options={"verify_signature": False})
    assert (passport["max_duration_s"], passport["exp"] - passport["iat"]) == (60, 60)


@pytest.mark.parametrize("mission", [{"max_tool_calls": "7"}, {"max_tool_calls": 1.5}, {"max_duration_s": -1}])
def test_limits_of_a_mission_are_integers(hub: Hub, mission: dict[str, Any]) -> None:
    told = {"source": {"type": "cli"}, "session": {"title": "x"}, "mission": mission}
    assert error_of(hub.post("/v1/sessions/start", told)) == "400 bad_request"


def test_a_receipts_target_and_reason_keep_within_their_limits(hub: Hub) -> None:
    answer = hub.observe("long", "browser", target="https://chat.example/" + "x" * 8000, action_class="send")
    claims = receipt_claims(hub, answer["receipt"]["jwt"])
    assert 1 <= len(claims["target"]) <= 2048
    assert 1 <= len(claims["reason"]) <= 4096


# Versioning


def test_endpoints_other_than_health_dashboard_and_root_are_under_v1() -> None:
    apart = re.compile(r"/|/healthz?|/dashboard(/.*)?")
    others = {route.path for route in documented_routes() if not apart.fullmatch(route.path)}
    assert others
    assert all(path.startswith("/v1/") for path in others)


def test_health_and_status_report_schema_version_and_version_as_strings(hub: Hub) -> None:
    health, status = hub.ask("GET", "/health").json, hub.told("/v1/status")
    assert (health["schema_version"], health["version"]) == (status["schema_version"], status["version"])
    assert status["version"] == remit.__version__
