"""The service over a home that is there already, for commands that change what it permits."""

from collections.abc import Iterator
from contextlib import contextmanager

from remit.cli.errors import reported
from remit.cli.opening import check_there
from remit.config import home_path
from remit.wiring import Service, build_service

__all__ = ["opened_service"]


@contextmanager
def opened_service(option: str | None, *, as_json: bool) -> Iterator[Service]:
    """Give the service, beside others that may have the ledger open."""
    with reported(as_json=as_json):
        path = home_path(option)
        check_there(path)
        service = build_service(path)
        try:
            yield service
        finally:
            service.close()
