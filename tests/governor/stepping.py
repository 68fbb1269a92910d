"""Runs a use case step by step, so that something can happen in between, or it never comes to its end."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from remit.governor.context import Context, UseCase
from remit.ledger.store import Prepare, Work

__all__ = ["Aside", "Commit", "steps_of"]


class Commit(NamedTuple):
    """Work that a use case has for the ledger."""

    work: Work[Any]
    alone: bool
    prepare: Prepare | None


class Aside(NamedTuple):
    """Something that a use case wants computed."""

    compute: Callable[[], Any]
    limit_key: str


class _Asked:
    """Gives what is asked to whoever steps, and gets the answer from there."""

    def __init__(self, asked: Commit | Aside) -> None:
        self._asked = asked

    def __await__(self) -> Generator[Commit | Aside, Any, Any]:
        return (yield self._asked)


class _Stepwise:
    """Waiting for whoever steps."""

    async def transact(self, work: Work[Any], *, alone: bool = False, prepare: Prepare | None = None) -> Any:
        return await _Asked(Commit(work, alone, prepare))

    async def to_thread(self, compute: Callable[[], Any], *, limit_key: str = "") -> Any:
        return await _Asked(Aside(compute, limit_key))

    async def to_quick_thread(self, compute: Callable[[], Any]) -> Any:
        return compute()

    async def run(self, case: UseCase[Any], context: Context) -> Any:
        return await case.run(context)


def steps_of(case: UseCase[Any], context: Context) -> Generator[Commit | Aside, Any, Any]:
    """Go through the steps of a use case: each is what it asks for, and is sent the answer."""

    async def run() -> Any:
        return await case.run(context.for_request(_Stepwise()))

    return run().__await__()
