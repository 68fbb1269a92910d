"""Cedar policies as an engine: principal = agent, action = action class, resource = target, context = the whole call.

Policies are parsed and validated against the schema when the engine is built. Cedar skips a policy that fails during
evaluation, which could disable a `forbid`; here any error is a denial.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Any, Final

import cedarpy

from remit.errors import PolicyInvalid, quote
from remit.policy.engines import Case, Finding, Remedy

__all__ = ["CedarEngine", "cedar_schema"]

_NAME: Final = "cedar"
_MAX_EFFECTS: Final = 256
_REMEDY: Final = Remedy((), "No passport permits this: ask the maintainer of the Cedar policies.")


@lru_cache(maxsize=1)
def cedar_schema() -> str:
    """Return the schema that policies are validated against."""
    return package_files("remit.policy").joinpath("remit.cedarschema").read_text(encoding="utf-8")


class CedarEngine:
    """Judges by Cedar policies: a call that none of them permits is denied."""

    name = _NAME

    def __init__(self, policies: str) -> None:
        """Parse and validate the policies; raise `PolicyInvalid` if they are not usable."""
        if not policies.strip():
            raise PolicyInvalid("there is no Cedar policy, which would deny everything")
        schema = cedarpy.Schema.from_str(cedar_schema())
        try:
            self._policies = cedarpy.PolicySet.from_str(policies)
        except ValueError as error:
            raise PolicyInvalid(f"not Cedar: {quote(str(error))}") from None
        checked = cedarpy.validate_policies(policies, schema)
        if not checked.validation_passed:
            problems = "; ".join(str(getattr(problem, "error", problem)) for problem in checked.errors)
            raise PolicyInvalid(f"does not fit the schema: {quote(problems)}")
        self._entities = cedarpy.Entities.from_json_str("[]")
        self._names = _policy_names(policies)

    def judge(self, case: Case) -> Finding:
        """Return Cedar's answer; an error in any policy is `engine_failed`."""
        result = cedarpy.is_authorized(_request(case), self._policies, self._entities)
        if result.diagnostics.errors:
            return Finding(_NAME, "engine_failed", "a Cedar policy failed on this call, so it is denied", _REMEDY)
        reasons = ", ".join(self._names.get(reason, reason) for reason in result.diagnostics.reasons)
        if result.allowed:
            return Finding(_NAME, "", f"Cedar permits it ({reasons})"[:512])
        why = f"the Cedar policy {reasons} forbids it" if reasons else "no Cedar policy permits it"
        return Finding(_NAME, "engine_denied", why[:512], _REMEDY)


def _policy_names(policies: str) -> Mapping[str, str]:
    """Return the `@id` annotations of policies, by the name that Cedar uses for each."""
    parsed: dict[str, Any] = json.loads(cedarpy.policies_to_json_str(policies))
    static: dict[str, Any] = parsed.get("staticPolicies", {})
    return {
        name: policy["annotations"]["id"] for name, policy in static.items() if policy.get("annotations", {}).get("id")
    }


def _request(case: Case) -> dict[str, Any]:
    action, mission, standing = case.action, case.mission, case.standing
    if len(action.effects) > _MAX_EFFECTS:
        raise PolicyInvalid("more effects than a policy can be shown")
    effects = action.effects
    return {
        "principal": {"type": "Remit::Agent", "id": mission.agent_id},
        "action": {"type": "Remit::Action", "id": action.action_class},
        "resource": {"type": "Remit::Target", "id": action.target},
        "context": {
            "tool": action.tool,
            "resource_family": action.resource_family,
            "side_effects": sorted(action.side_effects),
            "effects": [
                {"verb": effect.verb, "resource": effect.resource, "beneath": effect.beneath} for effect in effects
            ],
            "paths": [effect.resource for effect in effects if effect.verb in ("read", "write", "delete")],
            "hosts": [effect.resource for effect in effects if effect.verb in ("contact", "send")],
            "runs_code": action.runs_code,
            "mission": {
                "text": mission.mission,
                "allowed_tools": list(mission.allowed_tools),
                "resource_scope": list(mission.resource_scope),
            },
            "session": {
                "id": standing.session_id,
                "tool_calls": max(0, standing.budget.tool_calls),
                "duration_s": max(0, standing.budget.duration_s),
            },
        },
    }
