"""The console of commands that print more than facts."""

import errno

from rich.console import Console


class TerminalConsole(Console):
    """A console that raises `BrokenPipeError` if the reader has closed the pipe."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich has caught."""
        raise BrokenPipeError(errno.EPIPE, "the reader has closed the pipe")
