"""The API description of the Hub against the Hub: schemathesis asks for everything it says, and for what it forbids."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from jsonschema import Draft202012Validator

from remit.assistants.routes import HOOK_PATH
from remit.assistants.routes import documented_routes as hook_routes
from remit.claims.types import convert
from remit.errors import RemitError
from remit.hub.routes import describe_hub, documented_routes
from remit.schemas.hub import HubStartRequest, ObserveRequest
from remit.schemas.shared import RequestBody
from tests.hub.service import DIGEST, Hub, running
from tests.server.described import failures

# Of the library that makes the requests up: large examples, and random numbers that other threads draw.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
ROUTES: Final = [*documented_routes(), *hook_routes()]
DOCUMENT: Final = describe_hub(ROUTES)
OPERATIONS: Final = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
CONSENT: Final = {"consent": {"visible_text": True}}
SAID: Final = [{"role": "user", "text_excerpt": "x"}]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(tmp_path_factory.mktemp("hub") / "home") as hub:
        real = _real(hub)

        def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
            if case.meta.generation.mode.is_positive:
                if case.path_parameters:
                    case.path_parameters.update({name: real[name] for name in case.path_parameters})
                if isinstance(case.body, dict):
                    case.body = _held(case.body)

        schemathesis.hook(before_call)
        yield hub
        schemathesis.hooks.unregister(before_call)


def _real(hub: Hub) -> dict[str, str]:
    """Return the names of things that are there."""
    answer = hub.observe("described", hidden_provider_activity=True)
    session, code = answer["ardur_session_id"], "provider_side_activity"
    # No protection is there: a hook is denied, and answered all the same.
    names = {"assistant": "claude-code", "protection": "prot-000000000000"}
    return names | {
        "ardur_session_id": session,
        "session_id": session,
        "receipt_id": answer["receipt_id"],
        "code": code,
    }


def _held(value: Any) -> Any:
    """Return JSON with the numbers that are right here: for JSON Schema 1.0 is an integer, and any size will do."""
    if isinstance(value, dict):
        held = {name: _held(member) for name, member in value.items()}
        # JSON Schema cannot say that a time is not before 2020, and not ahead of the Hub's clock.
        return held | ({"observed_at": "2026-01-02T03:04:05Z"} if isinstance(held.get("observed_at"), str) else {})
    if isinstance(value, list):
        return [_held(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= 2**53:
        return 0
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _config(hub: Hub, path: str) -> schemathesis.Config:
    return schemathesis.Config.from_dict(
        {
            "base-url": hub.url,
            "headers": {"X-Service-Hub-Token": hub.token},
            "seed": 1,
            "continue-on-failure": True,
            "generation": {"max-examples": 10, "deterministic": True, "database": "none"},
            "phases": {
                "examples": {"enabled": False},
                "stateful": {"enabled": False},
                # What is checked has the shape of what is observed, and is read by the same code.
                "coverage": {"enabled": path != "/v1/policy/check"},
            },
            # It knows nothing of those who try wrong tokens being slowed down.
            # A hook is answered with 200 whatever it says, as its description tells.
            "checks": {
                "ignored_auth": {"enabled": False},
                "negative_data_rejection": {"enabled": path != HOOK_PATH},
                "missing_required_header": {"enabled": path != HOOK_PATH},
            },
        }
    )


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_hub_does_what_its_page_says(hub: Hub, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=_config(hub, path)).include(method=method, path=path)
    assert list(failures(schema)) == []


def _body(path: str) -> str:
    schema: dict[str, str] = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema["$ref"]


def test_a_check_takes_what_observe_takes() -> None:
    assert _body("/v1/policy/check") == _body("/v1/events/observe")


def test_what_is_served_is_what_is_described(hub: Hub) -> None:
    assert hub.get("/v1/openapi.json").json == DOCUMENT


def test_the_document_is_valid() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_route_is_described_once_and_under_a_name_of_its_own() -> None:
    assert sorted(OPERATIONS) == sorted((route.method, route.path) for route in ROUTES)
    operations = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(ROUTES)


def test_the_hooks_of_assistants_are_described_with_their_one_status() -> None:
    operation = DOCUMENT["paths"][HOOK_PATH]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"] == {"type": "object"}
    assert operation["responses"]["200"]["content"]["application/json"]["schema"] == {"type": "object"}
    assert "answered with 200" in operation["description"]
    assert not {"401", "404", "413", "415", "429"} & set(operation["responses"])


def test_every_route_that_the_running_hub_serves_is_described(hub: Hub) -> None:
    described = hub.get("/v1/openapi.json").json["paths"]
    assert {(route.method.lower(), route.path) for route in ROUTES} == {
        (method, path) for path, methods in described.items() for method in methods
    }
    assert HOOK_PATH in described


def test_the_views_of_a_receipt_are_described() -> None:
    operation = DOCUMENT["paths"]["/v1/receipts/{receipt_id}"]["get"]
    (view,) = [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]
    assert (view["name"], view["schema"]["enum"], view["schema"]["default"]) == ("view", ["full", "public"], "full")


def test_what_opens_each_route_is_described() -> None:
    opened: dict[str, list[dict[str, list[str]]]] = {
        "token": [{"token": []}, {"bearer": []}],
        "page": [{"token": []}, {"bearer": []}, {"query": []}],
        "view": [{"token": []}, {"bearer": []}, {"cookie": []}],
        "hook": [{"hook": []}],
    }
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert operation.get("security") == opened.get(route.access)


def _accepts(name: str, value: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return bool(Draft202012Validator(schema).is_valid(value))


def _is_taken(kind: type[RequestBody], value: object) -> bool:
    try:
        convert(kind, value)
    except RemitError:
        return False
    return True


@pytest.mark.parametrize(
    ("event", "right"),
    [
        ({}, True),
        ({"unknown": {"text": "x"}}, True),
        ({"text_snapshot": ""}, True),
        ({"text_snapshot": "x"}, False),
        ({"text_snapshot": "x"} | CONSENT, True),
        ({"text_excerpt": "x"}, False),
        ({"text_excerpt": "x", "consent": None}, False),
        ({"text_excerpt": "x", "consent": {}}, False),
        ({"text_excerpt": "x", "consent": {"visible_text": False}}, False),
        ({"text_excerpt": "x"} | CONSENT, True),
        ({"text_snapshot_included": True}, False),
        ({"text_snapshot_included": False}, True),
        ({"messages": SAID}, False),
        ({"messages": SAID} | CONSENT, True),
        ({"messages": [{"role": "user", "text_digest": DIGEST}]}, True),
        ({"messages": None}, True),
        ({"raw_content_included": True} | CONSENT, False),
        ({"raw_content_included": False}, True),
        ({"content_digest": "sha-256:x"}, False),
        ({"content_digest": DIGEST}, True),
        ({"command": ["ls", "-l"]}, True),
        ({"command": [1]}, False),
        ({"exit_code": 2**33}, False),
    ],
)
def test_what_is_described_of_an_event_is_what_is_checked(event: dict[str, Any], right: bool) -> None:
    told = {"source": {"type": "cli"}, "event": event}
    assert (_is_taken(ObserveRequest, told), _accepts("ObserveRequest", told)) == (right, right)


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, True),
        ({"mission": {}, "session": {}}, True),
        ({"mission": {"max_tool_calls": 1}}, True),
        ({"mission": {"max_tool_call": 1}}, False),
        ({"mission": {"max_duration_s": 0}}, False),
        ({"session": {"unknown": 1}, "unknown": 1}, True),
        ({"session": {"id": "x" * 257}}, False),
        ({"source": {"type": "phone"}}, False),
        ({"source": {}}, False),
        ({"source": None}, False),
    ],
)
def test_what_is_described_of_a_start_is_what_is_checked(changes: dict[str, Any], right: bool) -> None:
    told = {"source": {"type": "cli"}} | changes
    assert (_is_taken(HubStartRequest, told), _accepts("HubStartRequest", told)) == (right, right)
