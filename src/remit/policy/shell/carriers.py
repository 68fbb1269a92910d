"""Programs whose words form a language of their own; a table names them as their `handler`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from remit.policy.shell.find import judge_find
from remit.policy.shell.ln import judge_ln
from remit.policy.shell.state import Field
from remit.policy.shell.tar import judge_tar
from remit.policy.shell.xargs import judge_xargs

if TYPE_CHECKING:
    from remit.policy.shell.invoke import Invocation

__all__ = ["HANDLERS"]

HANDLERS: Final[dict[str, Callable[["Invocation", Sequence[Field]], None]]] = {
    "find": judge_find,
    "ln": judge_ln,
    "tar": judge_tar,
    "xargs": judge_xargs,
}
