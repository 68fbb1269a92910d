"""Make the vector files beside this script. Run it after a change of format: `python -m vectors.make`.

Keys and times are fixed and signatures deterministic, so the files come out the same on every machine. What each case
must give is written by hand in `making/`; the test holds the library, and this script, to it.
"""

import json
import sys
from pathlib import Path
from typing import Final

from vectors.making.chains import attestation_cases, chain_cases, limit_cases, succession_cases
from vectors.making.ecdsa import ecdsa_cases
from vectors.making.tokens import token_cases
from vectors.making.values import (
    NUMBERS,
    argument_cases,
    canonical_cases,
    json_cases,
    merkle_cases,
    mission_cases,
    receipt_cases,
)
from vectors.making.world import KEYS, NOW

HERE: Final = Path(__file__).parent


def files() -> dict[str, object]:
    """Return every file's content by name."""
    numbers = NUMBERS.split()
    return {
        "json.json": {"cases": list(json_cases())},
        "canonical.json": {
            "cases": list(canonical_cases()),
            "arguments": list(argument_cases()),
            "numbers": [
                {"ieee754": bits, "canonical": text} for bits, text in zip(numbers[::2], numbers[1::2], strict=True)
            ],
        },
        "tokens.json": {"now": NOW, "keys": KEYS, "cases": list(token_cases())},
        "ecdsa.json": {"cases": list(ecdsa_cases())},
        "receipts.json": {"cases": list(receipt_cases())},
        "missions.json": {"cases": list(mission_cases())},
        "chains.json": {"keys": KEYS, "cases": [*chain_cases(), *succession_cases()]},
        "limits.json": {"keys": KEYS, "cases": list(limit_cases())},
        "attestations.json": {"keys": KEYS, "cases": list(attestation_cases())},
        "merkle.json": {"cases": list(merkle_cases())},
    }


def render(content: object) -> str:
    """Return a file's text: one case a line, so that changes read well."""
    lines = json.dumps(content, ensure_ascii=True, indent=None)
    return lines.replace('{"name"', '\n  {"name"').replace('{"size"', '\n  {"size"') + "\n"


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).write_text(render(content), encoding="utf-8")
    sys.stdout.write(f"wrote {len(files())} files\n")
