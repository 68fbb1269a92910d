"""The description against the service: schemathesis makes requests of it, right and wrong, and checks the answers."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis

from remit.proxy.routes import describe_proxy, documented_routes
from tests.proxy.service import HTTP
from tests.proxy.visitor import Visitor, visiting
from tests.server.described import failures

# Of the library that makes the requests up: large examples, and random numbers that other threads draw.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
DOCUMENT: Final = describe_proxy(documented_routes())
OPERATIONS: Final = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
# JSON Schema takes 1.0 for an integer, and has no words for how large or deep the JSON of others may be.
UNSAID: Final = ("/evaluate", "/delegate")


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(tmp_path_factory.mktemp("proxy") / "home", HTTP, "--connections-per-peer", "1000") as visitor:

        def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
            if case.method == "POST" and case.meta.generation.mode.is_positive and isinstance(case.body, dict):
                _made_real(case, visitor)

        schemathesis.hook(before_call)
        yield visitor
        schemathesis.hooks.unregister(before_call)


def _config(visitor: Visitor, path: str) -> schemathesis.Config:
    checks = {
        # It knows nothing of those who try wrong tokens being slowed down.
        "ignored_auth": {"enabled": False},
        "positive_data_acceptance": {"enabled": path not in UNSAID},
    }
    return schemathesis.Config.from_dict(
        {
            "base-url": visitor.proxy.url,
            "headers": {"Authorization": f"Bearer {visitor.admin}"},
            "seed": 1,
            "continue-on-failure": True,
            "generation": {"max-examples": 20, "deterministic": True, "database": "none"},
            "phases": {"examples": {"enabled": False}, "stateful": {"enabled": False}},
            "checks": checks,
        }
    )


def _made_real(case: Any, visitor: Visitor) -> None:
    """Let a request that is right in form be about something that is there, and leave the switch as it is."""
    session = visitor.start(max_tool_calls=1000)
    if case.path_parameters:
        case.path_parameters["session_id"] = session
    real = {"session_id": session, "token": visitor.passport(), "on": False, "passport_id": session}
    if "receipt_id" in case.body:
        real["receipt_id"] = visitor.read(session)["receipt_id"]
    case.body.update({name: value for name, value in real.items() if name in case.body})


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_service_does_what_its_page_says(visitor: Visitor, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=_config(visitor, path)).include(method=method, path=path)
    assert list(failures(schema)) == []
