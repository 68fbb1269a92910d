"""Output that cannot be written: told apart from every other error, wherever in a command it happens.

What goes to stdout is written under `watched_output`; `Program` says how a command ends whose output is lost.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OutputLost", "watched_output"]


class OutputLost(Exception):
    """What was printed could not be written; `reason` says why."""

    def __init__(self, reason: int | None) -> None:
        """Take the number of the error."""
        super().__init__()
        self.reason = reason


@contextmanager
def watched_output() -> Iterator[None]:
    """Raise `OutputLost` if what is printed meanwhile cannot be written."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        raise OutputLost(error.errno) from None
