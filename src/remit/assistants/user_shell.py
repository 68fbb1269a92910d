"""Which assistants hand their commands to zsh, on this machine."""

import os
import pwd
import shutil
from typing import Final

__all__ = ["zsh_users"]

# These use the user's own shell if they know it; the others use bash.
_USE_OWN_SHELL: Final = frozenset(("claude-code", "codex", "opencode"))


def zsh_users(shell: str) -> frozenset[str]:
    """Return the assistants that may use zsh: none where `shell` is bash, or zsh is not installed.

    `shell` is what the environment names; where it names none, the user's entry in the system's list does.
    """
    own = shell or pwd.getpwuid(os.getuid()).pw_shell
    is_bash = os.path.basename(own) == "bash"  # noqa: PTH119 - text in, text out
    return frozenset() if is_bash or shutil.which("zsh") is None else _USE_OWN_SHELL
