"""The API description: it is the one that is served, it is valid, and it says what is checked."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from jsonschema import Draft202012Validator

from remit.claims.types import convert
from remit.errors import RemitError
from remit.proxy.routes import describe_proxy, documented_routes
from remit.schemas.proxy import DelegateRequest, ResultRequest, RevokeRequest
from remit.schemas.shared import RequestBody
from remit.server.statuses import STATUSES
from tests.proxy.service import HTTP
from tests.proxy.visitor import Visitor, visiting

ROUTES = documented_routes()
DOCUMENT = describe_proxy(ROUTES)
OPERATIONS = {f"{method.upper()} {path}": it for path, at in DOCUMENT["paths"].items() for method, it in at.items()}

THUMBPRINT, OTHER = "A" * 43, "B" * 43
MISSION = {"agent_id": "agent:a", "mission": "m"}
DELEGATION: dict[str, Any] = {"session_id": "s", "request_id": "r", "mission": MISSION}
RESULT = {"session_id": "s", "receipt_id": "r"}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(tmp_path_factory.mktemp("proxy") / "home", HTTP, "--require-token") as visitor:
        yield visitor


def _accepts(name: str, value: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return bool(Draft202012Validator(schema).is_valid(value))


def _is_taken(kind: type[RequestBody], value: object) -> bool:
    try:
        convert(kind, value)
    except RemitError:
        return False
    return True


def test_what_is_served_is_what_is_described(visitor: Visitor) -> None:
    answer = visitor.get("/openapi.json", authorization=f"Bearer {visitor.admin}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == DOCUMENT


def test_with_a_required_token_all_is_closed_but_what_is_described_as_open(visitor: Visitor) -> None:
    for name, operation in OPERATIONS.items():
        method, path = name.split()
        answer = visitor.proxy.ask(method, path, b"{}" if method == "POST" else None)
        assert (answer.status != 401) == ("security" not in operation), name
        assert str(answer.status) in operation["responses"], name


def test_the_common_token_opens_all_but_what_is_the_administrators(visitor: Visitor) -> None:
    bearer = f"Bearer {visitor.proxy.token('proxy')}"
    for name, operation in OPERATIONS.items():
        method, path = name.split()
        answer = visitor.proxy.ask(method, path, b"{}" if method == "POST" else None, authorization=bearer)
        assert (answer.status == 401) == (operation.get("security") == [{"admin": []}]), name


def test_the_document_is_valid() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_route_is_described_once_and_under_a_name_of_its_own() -> None:
    assert sorted(OPERATIONS) == sorted(f"{route.method} {route.path}" for route in ROUTES)
    assert len({operation["operationId"] for operation in OPERATIONS.values()}) == len(ROUTES)


def test_every_error_code_is_described_under_its_status() -> None:
    described = {
        (int(status), code)
        for status, response in DOCUMENT["components"]["responses"].items()
        for code in response["content"]["application/json"]["schema"]["properties"]["error_code"]["enum"]
    }
    assert described == {tuple(status) for status in STATUSES.values()}


def test_every_reference_leads_somewhere_and_nothing_is_described_for_nobody() -> None:
    named = set(_references(DOCUMENT))
    there = {
        f"#/components/{part}/{name}" for part in ("schemas", "responses") for name in DOCUMENT["components"][part]
    }
    assert named == there - {"#/components/responses/405"}  # no operation that is described answers so


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _references(one)


def test_an_answer_always_has_what_it_does_not_leave_out() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["HealthAnswer"]["required"] == ["ok", "schema_version", "version"]
    left_out = set(schemas["EvaluateAnswer"]["properties"]) - set(schemas["EvaluateAnswer"]["required"])
    assert left_out == {"public_denial_reason", "remedy"}


@pytest.mark.parametrize(
    ("kind", "value", "right"),
    [
        (RevokeRequest, {"passport_id": "pass:one"}, True),
        (RevokeRequest, {"passport_id": "pass:one", "reason": "lost", "lineage": False}, True),
        (RevokeRequest, {"session_id": "pass:one"}, True),
        (RevokeRequest, {"session_id": "pass:one", "lineage": True, "reason": ""}, True),
        (RevokeRequest, {}, False),
        (RevokeRequest, {"lineage": True}, False),
        (RevokeRequest, {"passport_id": "pass:one", "session_id": "pass:one"}, False),
        (RevokeRequest, {"passport_id": "pass:one", "session_id": "pass:one", "lineage": True}, False),
        (RevokeRequest, {"passport_id": "pass:one", "lineage": True}, False),
        (RevokeRequest, {"session_id": "pass:one", "reason": "lost"}, False),
        (DelegateRequest, DELEGATION, True),
        (DelegateRequest, DELEGATION | {"cnf": {"jkt": THUMBPRINT}}, True),
        (DelegateRequest, DELEGATION | {"cnf": {"x5t#S256": THUMBPRINT}}, True),
        (DelegateRequest, DELEGATION | {"cnf": {}}, False),
        (DelegateRequest, DELEGATION | {"cnf": {"jkt": THUMBPRINT, "x5t#S256": OTHER}}, False),
        (DelegateRequest, DELEGATION | {"cnf": {"jkt": "short"}}, False),
        (ResultRequest, RESULT | {"result_hash": {"alg": "sha-256", "value": "A" * 43}}, True),
        (ResultRequest, RESULT | {"result_hash": {"alg": "sha-512", "value": "A" * 86}}, True),
        (ResultRequest, RESULT | {"result_hash": {"alg": "sha-512", "value": "A" * 43}}, False),
        (ResultRequest, RESULT | {"result_hash": {"alg": "sha-256", "value": "A" * 44}}, False),
    ],
)
def test_what_is_described_is_what_is_checked(kind: type[RequestBody], value: object, right: bool) -> None:
    assert _is_taken(kind, value) is right
    assert _accepts(kind.__name__, value) is right
