"""The root command: loads the commands, and turns every ending into an exit code.

Invariant: a caller gets an exit code and never a traceback. A usage error is reported like any other error.
Output that is closed or cannot be written is an error, except when a reader closed the pipe.
"""

import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any, Final, TextIO

import click

from remit.cli.errors import DONE, USAGE, advice_for, exit_code, print_error
from remit.cli.render import OutputNotWritten, detect_lost_output, escape_text
from remit.errors import LedgerUnavailable

# The exit codes that a shell gives to a program that was ended by a signal.
INTERRUPTED: Final = 128 + signal.SIGINT
READER_GONE: Final = 128 + signal.SIGPIPE
USAGE_CODE: Final = "usage"
_SHOWN_LENGTH: Final = 500


class LazyGroup(click.Group):
    """A group of commands, each imported when it is called."""

    def __init__(self, *args: Any, **attributes: Any) -> None:  # noqa: ANN401 - required by click
        super().__init__(*args, **attributes)
        self.places: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *self.places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Its entry in `places` is `module:name`."""
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.places[cmd_name].partition(":")
        with fast_imports():
            command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def make_context(self, *args: Any, **attributes: Any) -> click.Context:  # noqa: ANN401 - required by click
        """Parse the arguments. This also prints help."""
        with detect_lost_output():
            return super().make_context(*args, **attributes)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with detect_lost_output():
            answer: object = super().invoke(ctx)
            return answer

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - required by click
        **extra: Any,  # noqa: ANN401 - required by click
    ) -> Any:  # noqa: ANN401 - required by click
        """Run the program and exit."""
        given = sys.argv[1:] if args is None else list(args)
        if not standalone_mode:
            return super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        _replace_closed_output()
        try:
            sys.exit(self._run(given, prog_name, complete_var, extra))
        finally:
            _flush(sys.stdout)
            _flush(sys.stderr)

    def _run(self, given: list[str], prog_name: str | None, complete_var: str | None, extra: Mapping[str, Any]) -> int:
        as_json = "--json" in takewhile(lambda word: word != "--", given)
        try:
            with suppress(AttributeError):  # no stdout, or one without `reconfigure`
                sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
            answer = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            return INTERRUPTED
        except click.ClickException as error:
            with suppress(OSError):
                _report_usage_error(error, as_json=as_json)
            return USAGE
        except OutputNotWritten as lost:
            return _report_lost_output(lost)
        return answer if isinstance(answer, int) else DONE


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import modules with garbage collection off: that saves an eighth of the start-up time of a service."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _replace_closed_output() -> None:
    """Replace a closed stdout by a file that fails on write, so that lost output is reported.

    It takes file descriptor 1, which the next file that is opened would get otherwise.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8", closefd=False)


def _report_usage_error(error: click.ClickException, *, as_json: bool) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        return error.show()
    message = escape_text(" ".join(error.format_message().split())).removesuffix(".")
    message = message[:1].lower() + message[1:_SHOWN_LENGTH]
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "remit"
    return print_error(message, USAGE_CODE, f"Try: {path} --help", as_json=as_json)


def _report_lost_output(lost: OutputNotWritten) -> int:
    if lost.reason == errno.EPIPE:
        return READER_GONE
    failed = LedgerUnavailable(f"the output cannot be written ({errno.errorcode.get(lost.reason or 0, 'unknown')})")
    print_error(str(failed), failed.code, advice_for(failed), as_json=False)
    return exit_code(failed)


def _flush(stream: TextIO | None) -> None:
    """Flush a stream, or redirect it to /dev/null: the interpreter would flush again at exit, and print an error."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
