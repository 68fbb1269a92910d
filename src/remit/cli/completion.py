"""`remit completion`: prints shell completion scripts."""

import click
from click.shell_completion import get_completion_class

from remit.cli.errors import report_errors
from remit.cli.options import common_options
from remit.cli.render import show_data


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_options
def completion(*, shell: str, home: str | None, as_json: bool) -> None:  # noqa: ARG001 - like every command
    """Print the completion script for SHELL.

    \b
    Install it permanently with one of:
      remit completion bash > ~/.local/share/bash-completion/completions/remit
      remit completion zsh  > ~/.zfunc/_remit     (a folder of fpath)
      remit completion fish > ~/.config/fish/completions/remit.fish

    \b
    Example: for this shell only
      eval "$(remit completion bash)"
    """  # noqa: D301 - click: \\b keeps line breaks
    with report_errors(as_json=as_json):
        kind = get_completion_class(shell)
        program = click.get_current_context().find_root().command
        script = kind(program, {}, "remit", "_REMIT_COMPLETE").source() if kind else ""
    if as_json:
        return show_data({"ok": True, "shell": shell, "script": script})
    return click.echo(script)
