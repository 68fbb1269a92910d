"""The checks of `remit doctor`, and their results."""

from typing import Literal, NamedTuple, TypeAlias

CheckState: TypeAlias = Literal["ok", "warning", "problem"]


class CheckResult(NamedTuple):
    """The result of a check, and what to do if it is not ok."""

    state: CheckState
    said: str
    advice: str = ""


class Check(NamedTuple):
    """A named check and its result. The field names are those of the JSON output."""

    name: str
    state: CheckState
    said: str
    advice: str
