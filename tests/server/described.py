"""Asking a service for everything that its API page says."""

from collections.abc import Iterator
from typing import Any

from schemathesis.engine import events, from_schema

__all__ = ["failures"]


def failures(schema: Any) -> Iterator[str]:
    """Run all that schemathesis has for this, and yield what it found."""
    asked = 0
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            yield str(event)
        if isinstance(event, events.ScenarioFinished):
            asked += len(event.recorder.cases)
            for nodes in event.recorder.checks.values():
                yield from (str(node.failure_info) for node in nodes if node.failure_info)
    if not asked:
        yield "nothing was asked"
