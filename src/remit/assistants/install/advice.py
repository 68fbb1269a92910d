"""What people are told of every assistant that is protected, in the same words."""

from typing import Final

from remit.assistants.install.plan import Place

__all__ = ["in_folder", "not_held", "protected"]

_OUTSIDE: Final = "What programs do that it may run: a test that it writes runs unseen, with your rights"
_RUNNING: Final = "Sessions that run already: start {title} anew"
_OTHERS: Final = "Hooks and plugins of others that change a call after Remit has decided on it"


def in_folder(place: Place) -> bool:
    """Tell whether hooks are written for one folder alone."""
    return place.level in ("local", "project")


def protected(title: str, place: Place) -> tuple[str, ...]:
    """Return what holds from now on."""
    where = f"{title} started in {place.folder}" if in_folder(place) else f"{title}, wherever it is started"
    if place.level == "managed":
        where = f"{title} of every user of this machine"
    return (
        f"{where}: every tool call that it asks hooks about is decided on first",
        "If Remit does not answer, nothing runs",
        "Its settings, its hooks and your profile: it may not change them",
    )


def not_held(title: str, *others: str) -> tuple[str, ...]:
    """Return what stays open: what is said of this assistant, and what is so with all of them."""
    return (*others, _OTHERS, _OUTSIDE, _RUNNING.format(title=title))
