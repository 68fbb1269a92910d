"""What keeps hooks from running although they are written: as each assistant's planner sees it before it writes any."""

from collections.abc import Callable

from remit.assistants.install.plan import Place, Wire
from remit.assistants.records import Protection
from remit.assistants.registry import PLANNERS
from remit.errors import InputError

__all__ = ["obstacle_of", "read_for"]


def obstacle_of(protection: Protection, user_home: str | None, config: Callable[[str], str]) -> str:
    """Return what keeps the hooks of a protection from running now, in words; nothing where they run or there are none.

    `config` gives the folder that a variable of the environment names for an assistant's settings.
    """
    planner = PLANNERS.get(protection.assistant)
    if planner is None or user_home is None or not protection.files:
        return ""
    place = _place(protection, user_home, config(planner.variable))
    try:
        planner.plan(place, _nowhere(protection))
    except InputError as error:
        return f"{error.place}: {error.problem}"
    return ""


def read_for(protection: Protection, user_home: str | None, config: Callable[[str], str]) -> tuple[str, ...]:
    """Return the files and folders that `obstacle_of` looks at."""
    planner = PLANNERS.get(protection.assistant)
    if planner is None or user_home is None or not protection.files:
        return ()
    return planner.reads(_place(protection, user_home, config(planner.variable)))


def _place(protection: Protection, user_home: str, config: str) -> Place:
    return Place(protection.level, protection.folder, user_home, config=config, version=protection.version)


def _nowhere(protection: Protection) -> Wire:
    """Return a wire that leads nowhere: what is planned with it is not carried out."""
    return Wire(
        protection=protection.id,
        assistant=protection.assistant,
        url=f"{protection.hub_url}/v1/hooks/{protection.assistant}/{protection.id}",
        token="",
        proof="",
        path="/nowhere",
        python="/nowhere",
        script="/nowhere",
    )
