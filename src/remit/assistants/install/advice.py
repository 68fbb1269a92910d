"""Sentences for the user about the protection of an assistant, which several planners share."""

from typing import Final

from remit.assistants.install.plan import InstallTarget

_OUTSIDE: Final = "What programs do that it may run: a test that it writes runs unseen, with your rights"
_RUNNING: Final = "Sessions that run already: restart {title}"
_OTHERS: Final = "Hooks and plugins of others that change a call after Remit has decided on it"


def in_folder(target: InstallTarget) -> bool:
    """Return whether the hooks are for one folder only."""
    return target.level in ("local", "project")


def describe_protected(title: str, target: InstallTarget) -> tuple[str, ...]:
    """Return what is protected from now on."""
    where = f"{title} started in {target.folder}" if in_folder(target) else f"{title}, wherever it is started"
    if target.level == "managed":
        where = f"{title} of every user of this machine"
    return (
        f"{where}: every tool call that it asks hooks about is decided on first",
        "If Remit does not answer, nothing runs",
        "Its settings, its hooks and your profile: it may not change them",
    )


def describe_unprotected(title: str, *others: str) -> tuple[str, ...]:
    """Return what is not protected: `others`, and what is not protected with any assistant."""
    return (*others, _OTHERS, _OUTSIDE, _RUNNING.format(title=title))
