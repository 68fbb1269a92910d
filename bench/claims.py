"""What signed claims cost: `python -m bench.claims`, or `make bench`.

Each row is in microseconds and as a multiple of one raw ES256 signature or verification of the same run. Rows with a
limit are held to it: the exit code is 1 if one is over.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bench.units import Timing, Work, measure, raw_signature
from remit import (
    Head,
    Keyring,
    Lineage,
    PolicyDecision,
    SigningKey,
    Step,
    TrustedKey,
    canonicalize,
    extend,
    parse_json,
    parse_receipt,
    receipt_id,
    verifier_id,
    verify_chain,
    verify_receipt,
)
from remit.claims.types import encode

KEY = SigningKey.derive(bytes(range(40)))
ISSUER = verifier_id(KEY.public)
KEYRING = Keyring([TrustedKey(KEY.public, ISSUER)])
LINEAGE = Lineage("pass:benchmark:0001", "agent:benchmark", ISSUER, "trace:benchmark:0001", "n" * 24)
ARGUMENTS = {"path": "/work/project/src/main.py", "offset": 100, "limit": 200, "encoding": "utf-8"}
NOW = 1_790_000_000
ENTROPY = bytes(range(16))
CHAIN_LENGTH = 4096


def decide() -> Step:
    """Return a step as the governor makes it from a decision."""
    return Step(
        tool="read_file",
        action_class="read",
        target="/work/project/src/main.py",
        resource_family="file",
        side_effect_class="none",
        verdict="compliant",
        reason="read_file is allowed and /work/project/src/main.py is within /work/project",
        policy_decisions=(PolicyDecision(backend="native", decision="permit", eval_ms=0.021),),
        budget_remaining={"tool_calls": 99, "duration_s": 3500},
        timestamp="2026-09-21T14:13:20Z",
    )


def make_receipt(head: Head) -> object:
    """Make a signed receipt from a decision, everything included."""
    return extend(head, decide(), KEY, arguments=ARGUMENTS, new_id=receipt_id(ENTROPY), now=NOW)


def make_chain(length: int) -> tuple[list[str], Head]:
    """Return a chain of `length` receipts and its head."""
    head, tokens = Head(LINEAGE), []
    for number in range(length):
        new_id = receipt_id(number.to_bytes(16, "big"))
        signed = extend(head, decide(), KEY, arguments=ARGUMENTS, new_id=new_id, now=NOW + number)
        head = head.after(signed)
        tokens.append(signed.token)
    return tokens, head


class Row(NamedTuple):
    """A line of the table: what, in which unit it counts, and how many of them it may take."""

    name: str
    unit: str
    limit: float | None = None


ROWS = (
    Row("raw ES256 signature", "signature"),
    Row("raw ES256 verification", "verification"),
    Row("canonicalise the arguments", "signature"),
    Row("read a receipt's JSON strictly", "signature"),
    Row("read it closely (spread out)", "signature"),
    Row("validate a receipt", "signature", 1.0),
    Row("make a receipt from a decision", "signature", 2.0),
    Row("verify a receipt", "verification", 1.5),
)


def table() -> bool:
    """Print the table of single costs; tell whether all are within their limits."""
    tokens, head = make_chain(3)
    receipt = verify_receipt(tokens[-1], KEYRING)
    payload = encode(receipt.claims)
    wide = payload.replace(b",", b", ").replace(b":{", b": {")
    value = parse_json(payload)
    sign, verify = raw_signature(tokens[-1].rpartition(".")[0].encode())
    works: tuple[Work, ...] = (
        sign,
        verify,
        lambda: canonicalize(ARGUMENTS),
        lambda: parse_json(payload),
        lambda: parse_json(wide),
        lambda: parse_receipt(value),
        lambda: make_receipt(head),
        lambda: verify_receipt(tokens[-1], KEYRING),
    )
    timings = measure({row.name: work for row, work in zip(ROWS, works, strict=True)})
    print(f"receipt: {len(tokens[-1])} characters, payload {len(payload)} bytes\n")
    print(f"{'':<34}{'us, median (middle half)':<30}{'ratio':>6}  limit")
    within = [_print_row(row, timings) for row in ROWS]
    return all(within)


def _print_row(row: Row, timings: dict[str, Timing]) -> bool:
    unit = timings[f"raw ES256 {row.unit}"].median
    ratio = timings[row.name].median / unit
    within = row.limit is None or ratio <= row.limit
    limit = "" if row.limit is None else f"{row.limit:.1f}{'' if within else '  OVER'}"
    print(f"{row.name:<34}{timings[row.name]!s:<30}{ratio:6.2f}  {limit}")
    return within


def chain_table() -> None:
    """Print what a whole chain takes to verify, on one core and on all."""
    tokens, head = make_chain(CHAIN_LENGTH)
    _, verify = raw_signature(tokens[-1].rpartition(".")[0].encode())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        one, every, raw = [], [], []
        for _ in range(3):
            raw.append(_seconds(lambda: [verify() for _ in range(CHAIN_LENGTH)]))
            one.append(_seconds(lambda: verify_chain(tokens, KEYRING, last_hash=head.receipt_hash)))
            every.append(_seconds(lambda: verify_chain(tokens, KEYRING, last_hash=head.receipt_hash, each=pool.map)))
    print(f"\nchain of {CHAIN_LENGTH} receipts{'':<14}receipts/s   ratio to raw verification on one core")
    for name, seconds in (("raw verifications, one core", raw), ("one core", one), (f"{cores} cores", every)):
        best = min(seconds)
        print(f"  {name:<32}{CHAIN_LENGTH / best:10.0f}   {best / min(raw):.2f}")


def _seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Run the benchmark."""
    within = table()
    chain_table()
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
