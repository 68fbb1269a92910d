"""Profiles written the short way, and calls judged under them."""

from collections.abc import Mapping, Sequence

from remit import Mission
from remit.claims.strictjson import JSON
from remit.policy.decide import Decision
from remit.profiles.compiling import compile_profile
from remit.profiles.profile import parse_profile
from tests.policy.judging import judged

__all__ = ["FOLDER", "called", "compiled", "ran", "written"]

FOLDER = "/srv/project"


def written(allowed: Sequence[str] = (), blocked: Sequence[str] = (), *, limits: Sequence[str] = ()) -> str:
    """Return the text of a profile with these lines."""
    sections = {"Limits": limits, "Allowed": allowed, "Blocked": blocked}
    lists = [f"## {name}\n\n" + "".join(f"- {line}\n" for line in lines) for name, lines in sections.items()]
    return "# Rules\n\nMission: Fix the tests\n\n" + "\n".join(lists)


def compiled(allowed: Sequence[str] = (), blocked: Sequence[str] = (), *, folder: str | None = FOLDER) -> Mission:
    """Return the mission of a profile with these lines."""
    return compile_profile(parse_profile(written(allowed, blocked)), folder, "agent:one")


def called(mission: Mission, tool: str, arguments: Mapping[str, JSON] | None = None) -> Decision:
    """Return the decision on one call."""
    return judged(tool, arguments or {}, under=mission)


def ran(mission: Mission, command: str, tool: str = "Bash") -> Decision:
    """Return the decision on a command line."""
    return judged(tool, {"command": command}, under=mission)
