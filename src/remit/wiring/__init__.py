"""Putting the parts together: the only place that names concrete ledgers, engines and clocks.

A service is warmed up before it is handed out: the tables of tools and programs are read, so that the first call costs
what the others do.
"""

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.records import Protections
from remit.claims.keys import SEED_BYTES, Keyring, SigningKey
from remit.errors import LedgerInUse, RemitError
from remit.governor.clock import Clock, SystemClock
from remit.governor.closing import FinishClosing
from remit.governor.governor import Governor
from remit.governor.handshake import Introduction, Judging
from remit.governor.means import Keys, UseCaseRunner
from remit.governor.remote import Keeper, LedgerNotServed, PublicKeys, RemoteGovernor, connect
from remit.ledger.commit import GroupCommit, Observer
from remit.ledger.embedded import open_reading
from remit.ledger.home import Home, open_home
from remit.ledger.keys import keyring_of
from remit.ledger.memory import MemoryStore, Shelf
from remit.ledger.records import KeyRecord, Switches
from remit.ledger.rows import SqliteReader
from remit.policy.files import TextFiles
from remit.policy.guard import Own
from remit.server.log import logger
from remit.wiring.judging import judging_of, means_for, means_with
from remit.wiring.ledger_process import LedgerHolder, hold_ledger, ledger_command, start_ledger_process

__all__ = ["Service", "build_rehearsal", "build_service", "default_processes"]

# How long to wait for another process that has the ledger's lock and does not serve yet, or not any more.
_PATIENCE_S: Final = 20.0
_LOOK_S: Final = 0.02
_NUMBER: Final = struct.Struct("i")


def default_processes() -> int:
    """Return how many processes a service has if nobody says: a front and the ledger process, where there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 if cores > 1 else 1


class Service(NamedTuple):
    """A governor over the ledger of a home, and the protections that the home keeps."""

    governor: UseCaseRunner
    reader: SqliteReader
    keys: Keys
    protections: Protections
    home: Home
    # What is called at the end, in this order.
    ending: tuple[Callable[[], None], ...]

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
        for end in self.ending:
            end()
        self.home.close()


def build_service(
    home: Path,
    *,
    user_home: str | None = None,
    policies: str | None = None,
    observer: Observer | None = None,
    service: str = "",
    processes: int = 1,
) -> Service:
    """Return the service of a home, made first where there is none.

    `user_home` is what `~` stands for in calls, `policies` a file or folder of Cedar policies. If a process serves the
    ledger of the home, the service is its client. If not, it holds the ledger itself, or starts a process for that
    where `processes` are more than one. `service` is the name of one that keeps such a process running.
    """
    judging = judging_of(user_home, policies) if service or user_home or policies else Judging()
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        with open_home(home) as opened, suppress(LedgerNotServed):
            connect(opened, Introduction("", judging)).close()
            return _client(home, judging, observer or Observer(), service)
        if time.monotonic() > deadline:
            raise LedgerInUse("another process has the lock of the ledger (run/ledger.lock) and does not answer")
        if processes > 1:
            start_ledger_process(home, create=True)
        elif holder := hold_ledger(home, judging, observer=observer):
            return _holding(home, holder)
        else:
            time.sleep(_LOOK_S)


def _holding(home: Path, holder: LedgerHolder) -> Service:
    """Return the service of a process that holds the ledger itself."""
    embedded, opened = holder.embedded, open_home(home)
    return Service(holder.governor, embedded.reader, embedded.keys, Protections(opened), opened, (holder.close,))


def _client(home: Path, judging: Judging, observer: Observer, service: str) -> Service:
    """Return the service of a process that is a client of the one that holds the ledger."""
    opened, reading = open_home(home), open_reading(home)
    keys = PublicKeys(reading.reader)
    writer = Own(frozenset(), " ".join(ledger_command(opened.path)))

    def connected(name: str) -> socket.socket:
        nonlocal writer
        connection = connect(opened, Introduction(name, judging))
        writer = writer._replace(numbers=_peer_of(connection))
        return connection

    means = means_for(judging, opened, keys, reading.reader, beside=lambda: (writer,))
    governor = RemoteGovernor(means, partial(connected, ""))
    ending: tuple[Callable[[], None], ...] = (governor.close, reading.close)
    if service:
        keeper = Keeper(partial(connected, service), partial(start_ledger_process, home), observer, told=_told)
        ending = (*ending, keeper.close)
    return Service(governor, reading.reader, keys, Protections(opened), opened, ending)


def _peer_of(connection: socket.socket) -> frozenset[int]:
    """Return the number of the process at the other end, which no call may stop."""
    if not hasattr(socket, "SO_PEERCRED"):
        return frozenset()
    return frozenset(_NUMBER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _NUMBER.size)))


def _told(event: str, why: str) -> None:
    logger().warning(event, why=why)


@contextmanager
def build_rehearsal(clock: Clock | None = None) -> Iterator[tuple[Governor, SigningKey]]:
    """Give a governor that keeps everything in memory, and the key it signs with: nothing of it is left behind."""
    key = SigningKey.derive(secrets.token_bytes(SEED_BYTES))
    record = KeyRecord(key.kid, key.public.to_pem().decode("ascii"), None, 0)
    shelf = Shelf("ledger:rehearsal", Switches(key.kid), keys=[record])
    ledger = GroupCommit(lambda: MemoryStore(shelf), MemoryStore(shelf))
    keys = _OneKey(key, keyring_of([record]))
    means = means_with(ledger.read(), keys, TextFiles(), clock or SystemClock(), judging=(), observing=())
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
