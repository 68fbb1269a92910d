"""Finds settings that keep installed hooks from running, by making the plan of the protection again."""

from collections.abc import Callable

from remit.assistants.install.plan import HookConnection, InstallTarget
from remit.assistants.records import Protection
from remit.assistants.registry import PLANNERS
from remit.errors import InputError


def find_obstacle(protection: Protection, user_home: str | None, config: Callable[[str], str]) -> str:
    """Describe what keeps the hooks of a protection from running. Empty if they run, or if there are no hooks.

    `config` takes the name of an environment variable and returns the settings folder that it names.
    """
    planner = PLANNERS.get(protection.assistant)
    if planner is None or user_home is None or not protection.files:
        return ""
    target = _target(protection, user_home, config(planner.variable))
    try:
        planner.plan(target, _placeholder_wire(protection))
    except InputError as error:
        return f"{error.place}: {error.problem}"
    return ""


def files_to_watch(protection: Protection, user_home: str | None, config: Callable[[str], str]) -> tuple[str, ...]:
    """Return the files and folders that `find_obstacle` reads."""
    planner = PLANNERS.get(protection.assistant)
    if planner is None or user_home is None or not protection.files:
        return ()
    return planner.reads(_target(protection, user_home, config(planner.variable)))


def _target(protection: Protection, user_home: str, config: str) -> InstallTarget:
    return InstallTarget(protection.level, protection.folder, user_home, config=config, version=protection.version)


def _placeholder_wire(protection: Protection) -> HookConnection:
    """Return a wire without secrets or real paths, for a plan that is not carried out."""
    return HookConnection(
        protection=protection.id,
        assistant=protection.assistant,
        url=f"{protection.hub_url}/v1/hooks/{protection.assistant}/{protection.id}",
        token="",
        proof="",
        path="/nowhere",
        python="/nowhere",
        script="/nowhere",
    )
