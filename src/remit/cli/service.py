"""The service over a home, for commands that change what it permits."""

from collections.abc import Iterator
from contextlib import contextmanager

from remit.cli.errors import reported
from remit.cli.opening import check_there, note_if_new
from remit.config import home_path
from remit.wiring import Service, build_service

__all__ = ["opened_service"]


@contextmanager
def opened_service(option: str | None, *, as_json: bool, create: bool = False) -> Iterator[Service]:
    """Give the service: a client of the process that has the ledger open, if there is one."""
    with reported(as_json=as_json):
        path = home_path(option)
        if create:
            note_if_new(path)
        else:
            check_there(path)
        service = build_service(path)
        try:
            yield service
        finally:
            service.close()
