"""Putting the parts together: the only place that names concrete ledgers, engines and clocks.

A service is warmed up before it is handed out: the tables of tools and programs are read, so that the first call costs
what the others do.
"""

import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from remit.adapters.protection.records import Protections
from remit.claims.keys import SEED_BYTES, Keyring, SigningKey
from remit.claims.mission import EVERYTHING, Mission
from remit.errors import RemitError
from remit.governor.clock import Clock, SystemClock
from remit.governor.closing import FinishClosing
from remit.governor.governor import Governor
from remit.governor.means import Keys, Means
from remit.ledger.commit import GroupCommit, Observer
from remit.ledger.embedded import Embedded, open_embedded
from remit.ledger.home import Home, open_home
from remit.ledger.keys import keyring_of
from remit.ledger.memory import MemoryStore, Shelf
from remit.ledger.port import Ledger
from remit.ledger.records import KeyRecord, Switches
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.cedar import CedarEngine
from remit.policy.decide import DEADLINE_S, judge
from remit.policy.engines import Engine, Standing, Watched
from remit.policy.files import Files, SeenFiles, TextFiles, load_policies
from remit.policy.guard import GuardEngine, Own
from remit.policy.native import NativeEngine
from remit.policy.observation import ObservationEngine

__all__ = ["Service", "build_rehearsal", "build_service"]


class Service(NamedTuple):
    """A governor over the ledger of a home, and the protections that the home keeps."""

    governor: Governor
    embedded: Embedded
    protections: Protections
    home: Home

    def finish_closing(self) -> None:
        """Close in the background what was left open when a service stopped while it closed a lineage.

        Calls in such a lineage are refused already; if this fails, the next look at the session goes on with it.
        """

        def finish() -> None:
            with suppress(RemitError):
                self.governor.run(FinishClosing())

        threading.Thread(target=finish, name="closing", daemon=True).start()

    def close(self) -> None:
        """Finish what was asked for, and let go of the ledger."""
        self.governor.close()
        self.embedded.close()
        self.home.close()


def build_service(
    home: Path, *, user_home: str | None = None, policies: str | None = None, observer: Observer | None = None
) -> Service:
    """Return the service of a home, made first where there is none.

    `user_home` is what `~` stands for in calls, `policies` a file or folder of Cedar policies.
    """
    further = [] if policies is None else [Watched(CedarEngine(load_policies(policies)), DEADLINE_S)]
    embedded = open_embedded(home, observer=observer)
    opened = open_home(home)
    protections = Protections(opened)
    own = Own(frozenset((os.getpid(), os.getppid(), os.getpgrp())) - {0, 1}, " ".join(sys.orig_argv))
    guard = GuardEngine(protections.guarded, (opened.path,), own, protections.with_token)
    files, clock = SeenFiles(user_home), SystemClock()
    means = _means(embedded.ledger, embedded.keys, files, clock, judging=(guard, *further), observing=further)
    return Service(Governor(embedded.ledger, means), embedded, protections, opened)


@contextmanager
def build_rehearsal(clock: Clock | None = None) -> Iterator[tuple[Governor, SigningKey]]:
    """Give a governor that keeps everything in memory, and the key it signs with: nothing of it is left behind."""
    key = SigningKey.derive(secrets.token_bytes(SEED_BYTES))
    record = KeyRecord(key.kid, key.public.to_pem().decode("ascii"), None, 0)
    shelf = Shelf("ledger:rehearsal", Switches(key.kid), keys=[record])
    ledger = GroupCommit(lambda: MemoryStore(shelf), MemoryStore(shelf))
    means = _means(
        ledger, _OneKey(key, keyring_of([record])), TextFiles(), clock or SystemClock(), judging=(), observing=()
    )
    governor = Governor(ledger, means)
    try:
        yield governor, key
    finally:
        governor.close()
        ledger.close()


class _OneKey(NamedTuple):
    """The keys of a rehearsal."""

    key: SigningKey
    ring: Keyring

    def signing(self, kid: str) -> SigningKey:  # noqa: ARG002 - there is but one
        """Return the only key."""
        return self.key

    def keyring(self) -> Keyring:
        """Return the keyring of the only key."""
        return self.ring

    def refresh(self) -> Keyring:
        """Return the same: there is nobody to change it."""
        return self.ring


def _means(
    ledger: Ledger, keys: Keys, files: Files, clock: Clock, *, judging: Sequence[Engine], observing: Sequence[Engine]
) -> Means:
    """Return the means with the engines that judge calls, and those that judge what was seen, beside the passport.

    What people do themselves is seen as well: what governs agents is guarded against calls, not against them.
    """
    native = NativeEngine()
    engines = (native, *judging)
    _warm_up(engines, files)
    return Means(
        keys=keys,
        engines=engines,
        observers=(ObservationEngine(files.home), native, *observing),
        files=files,
        clock=clock,
        stopwatch=time.perf_counter,
        entropy=secrets.token_bytes,
        reader=ledger.read(),
    )


_FIRST_CALLS: Final = (ToolCall("Read", {"file_path": "/a"}), ToolCall("Bash", {"command": "cat a | wc -l"}))


def _warm_up(engines: Sequence[Engine], files: Files) -> None:
    """Judge calls that nobody made."""
    mission = Mission(agent_id="remit", mission="warm up", allowed_tools=("*",), resource_scope=(EVERYTHING,), cwd="/")
    standing = Standing("remit", Budget(1, 1))
    for call in _FIRST_CALLS:
        judge(call, mission, standing, engines=engines, files=files, clock=time.perf_counter)
