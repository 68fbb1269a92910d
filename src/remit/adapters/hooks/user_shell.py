"""Which assistants hand their commands to zsh, on this machine."""

import os
import pwd
import shutil
from collections.abc import Mapping
from typing import Final

__all__ = ["zsh_users"]

# These use the user's own shell if they know it; the others use bash.
_USE_OWN_SHELL: Final = frozenset(("claude-code", "codex", "opencode"))


def zsh_users(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return the assistants that may use zsh: none where the user's shell is bash, or zsh is not installed."""
    shell = environment.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell
    is_bash = os.path.basename(shell) == "bash"  # noqa: PTH119 - text in, text out
    return frozenset() if is_bash or shutil.which("zsh", path=environment.get("PATH")) is None else _USE_OWN_SHELL
