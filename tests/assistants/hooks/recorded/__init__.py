"""What real assistants have said to their hooks, recorded once; folders and nothing else were renamed."""

import json
from pathlib import Path
from typing import Any

__all__ = ["recorded"]


def recorded(assistant: str) -> dict[str, dict[str, Any]]:
    """Return the payloads of an assistant, by what they are about."""
    return dict(json.loads(Path(__file__).with_name(f"{assistant}.json").read_bytes()))
