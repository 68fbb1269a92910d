"""A process under load, to be killed: clients that ask, and say what they were answered once they were.

Each line goes out by itself, so that what was said is known even of a process that is killed:
`ready` before the home is opened, `open` after; `submit KEY`; `fail KEY CODE`; `ack KEY RECEIPT HASH PERMIT|DENY`;
`state ACKS RSS_KIB DESCRIPTORS LOG_BYTES`.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from remit.errors import LedgerUnavailable, StateError
from remit.governor.evaluate import Evaluate, Evaluation
from remit.governor.governor import Governor
from tests.faults.service import call_of, open_service, session_of

ROOT = Path(__file__).parent.parent.parent
_GIVE_UP = 200


def say(*words: object) -> None:
    """Write one line, at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Load:
    """Clients of one session, each with one call on its way at any time."""

    def __init__(self, governor: Governor, session: str, options: argparse.Namespace) -> None:
        self._governor = governor
        self._session = session
        self._options = options
        self._numbers: Iterator[int] = iter(range(options.calls)) if options.calls else count()
        self._acks = 0

    async def run(self) -> None:
        """Let all clients run to their end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._options.clients):
                group.create_task(self._client())

    async def _client(self) -> None:
        permitted = self._options.until_denied
        for number in self._numbers:
            # Of the calls that end in 7 some policy says no; where a denial is the end, there are none of them.
            key = f"{self._options.prefix}-{number}" + ("-0" if permitted else "")
            say("submit", key)
            answer = await self._answer(key)
            decision = "PERMIT" if answer.permits else "DENY"
            say("ack", key, answer.receipt.claims.receipt_id, answer.receipt.hash, decision)
            self._count()
            if permitted and not answer.permits:
                return

    async def _answer(self, key: str) -> Evaluation:
        """Ask until there is an answer: by the same key, it is the same call."""
        for _ in range(_GIVE_UP):
            try:
                return await self._governor.arun(Evaluate(self._session, call_of(key), idempotency_key=key))
            except (LedgerUnavailable, StateError) as error:
                say("fail", key, error.code)
        raise SystemExit(f"no answer to {key}")

    def _count(self) -> None:
        self._acks += 1
        every = self._options.report_every
        if every and self._acks % every == 0:
            say("state", self._acks, *_resources(Path(self._options.home)))


def _resources(home: Path) -> tuple[int, int, int]:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return rss, len(list(Path("/proc/self/fd").iterdir())), (home / "ledger.db-wal").stat().st_size


def main() -> None:
    """Open the home and run the load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home")
    parser.add_argument("token", help="a passport, or - for one that is made here")
    parser.add_argument("prefix")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--until-denied", action="store_true")
    parser.add_argument("--gate", action="store_true", help="begin when told to on the standard input")
    parser.add_argument("--report-every", type=int, default=0)
    options = parser.parse_args()
    say("ready")
    with open_service(Path(options.home)) as service:
        token = service.passport() if options.token == "-" else options.token
        session = session_of(service.governor, token)
        say("open")
        if options.gate:
            os.read(0, 1)
        asyncio.run(Load(service.governor, session, options).run())


if __name__ == "__main__":
    main()
