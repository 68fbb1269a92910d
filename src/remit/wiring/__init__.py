"""Composition: the only package that constructs concrete ledgers, policy engines and clocks.

A service is warmed up before it is returned: the tables of tools and programs are loaded, so that the first call is as
fast as later ones.
"""

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from remit.assistants.records import Protections
from remit.claims.keys import SEED_BYTES, Keyring, SigningKey
from remit.errors import LedgerInUse, RemitError
from remit.governor.clock import Clock, SystemClock
from remit.governor.closing import CloseOpenDelegates
from remit.governor.context import Keys, UseCaseRunner
from remit.governor.governor import Governor
from remit.governor.handshake import Introduction, PolicySettings
from remit.governor.remote import LedgerProcessNotRunning, LedgerProcessSupervisor, PublicKeys, RemoteGovernor, connect
from remit.ledger.commit import CommitObserver, GroupCommit
from remit.ledger.embedded import open_ledger_reader
from remit.ledger.home import Home, open_home
from remit.ledger.keys import build_keyring
from remit.ledger.records import KeyRecord
from remit.ledger.rows import SqliteReader
from remit.ledger.sqlite import SqliteStore, connect_in_memory, prepare
from remit.policy.files import TextFiles
from remit.policy.guard import OwnProcess
from remit.server.log import logger
from remit.wiring.judging import context_for, context_with, load_policy_settings
from remit.wiring.ledger_process import LedgerHolder, hold_ledger, ledger_command, start_ledger_process

# How long to wait for another process that has the ledger's lock and does not serve its socket.
_LOCK_WAIT_S: Final = 20.0
_POLL_S: Final = 0.02
_PID: Final = struct.Struct("i")


def default_processes() -> int:
    """Return the default number of processes of a service: a front and a ledger process if there are several cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 if cores > 1 else 1


class Service(NamedTuple):
    """The open ledger of a home with its governor, and the protections of the home."""

    governor: UseCaseRunner
    reader: SqliteReader
    keys: Keys
    protections: Protections
    home: Home
    # Called by `close`, in this order.
    closers: tuple[Callable[[], None], ...]

    def finish_closing(self) -> None:
        """Continue, in a thread, to close the sessions of lineages that a stopped service had begun to close.

        Calls in such a lineage are refused already. If this fails, the next use of such a session continues it.
        """

        def finish() -> None:
            with suppress(RemitError):
                self.governor.run(CloseOpenDelegates())

        threading.Thread(target=finish, name="closing", daemon=True).start()

    def close(self) -> None:
        """Finish pending work, and close the ledger."""
        for closer in self.closers:
            closer()
        self.home.close()


def build_service(
    home: Path,
    *,
    user_home: str | None = None,
    policies: str | None = None,
    observer: CommitObserver | None = None,
    service: str = "",
    processes: int = 1,
) -> Service:
    """Return the service of a home. The home is created if it does not exist.

    `user_home` is what `~` stands for in calls, `policies` a file or folder of Cedar policies. If a process serves the
    ledger of the home, the service is its client. If not, this process holds the ledger itself, or starts a ledger
    process if `processes` is more than one. A service with a name (`service`) restarts the ledger process if it ends.
    """
    judging = load_policy_settings(user_home, policies) if service or user_home or policies else PolicySettings()
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        with open_home(home) as opened, suppress(LedgerProcessNotRunning):
            connect(opened, Introduction("", judging)).close()
            return _connect_service(home, judging, observer or CommitObserver(), service)
        if time.monotonic() > deadline:
            raise LedgerInUse("another process holds the lock of the ledger (run/ledger.lock) and does not answer")
        if processes > 1:
            start_ledger_process(home, create=True)
        elif holder := hold_ledger(home, judging, observer=observer):
            return _holder_service(home, holder)
        else:
            time.sleep(_POLL_S)


def _holder_service(home: Path, holder: LedgerHolder) -> Service:
    """Return the service of a process that holds the ledger itself."""
    embedded, opened = holder.embedded, open_home(home)
    return Service(holder.governor, embedded.reader, embedded.keys, Protections(opened), opened, (holder.close,))


def _connect_service(home: Path, judging: PolicySettings, observer: CommitObserver, service: str) -> Service:
    """Return the service of a process that is a client of the one that holds the ledger."""
    opened, reading = open_home(home), open_ledger_reader(home)
    keys = PublicKeys(reading.reader)
    writer = OwnProcess(frozenset(), " ".join(ledger_command(opened.path)))

    def connect_as(name: str) -> socket.socket:
        nonlocal writer
        connection = connect(opened, Introduction(name, judging))
        writer = writer._replace(numbers=_peer_pid(connection))
        return connection

    context = context_for(judging, opened, keys, reading.reader, beside=lambda: (writer,))
    governor = RemoteGovernor(context, partial(connect_as, ""))
    closers: tuple[Callable[[], None], ...] = (governor.close, reading.close)
    if service:
        keeper = LedgerProcessSupervisor(
            partial(connect_as, service), partial(start_ledger_process, home), observer, told=_log_warning
        )
        closers = (*closers, keeper.close)
    return Service(governor, reading.reader, keys, Protections(opened), opened, closers)


def _peer_pid(connection: socket.socket) -> frozenset[int]:
    """Return the process id of the other end of a Unix socket, which no call may kill."""
    if not hasattr(socket, "SO_PEERCRED"):
        return frozenset()
    return frozenset(_PID.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PID.size)))


def _log_warning(event: str, why: str) -> None:
    logger().warning(event, why=why)


@contextmanager
def build_in_memory(clock: Clock | None = None) -> Iterator[tuple[Governor, SigningKey]]:
    """Yield a governor with a ledger in memory, and the key that it signs with. Nothing is written to disk."""
    key = SigningKey.derive(secrets.token_bytes(SEED_BYTES))
    record = KeyRecord(key.kid, key.public.to_pem().decode("ascii"), None, 0)
    open_database = partial(connect_in_memory, secrets.token_hex(16))
    with closing(open_database()) as first:  # keeps the database until the end
        prepare(first, "ledger:in-memory", lambda: record)
        reader = SqliteReader(open_database)
        ledger = GroupCommit(lambda: SqliteStore(open_database()), reader)
        keys = _OneKey(key, build_keyring([record]))
        context = context_with(reader, keys, TextFiles(), clock or SystemClock(), judging=(), observing=())
        governor = Governor(ledger, context)
        try:
            yield governor, key
        finally:
            governor.close()
            reader.close()
            ledger.close()


class _OneKey(NamedTuple):
    """A `Keys` with a single key."""

    key: SigningKey
    ring: Keyring

    def signing(self, kid: str) -> SigningKey:  # noqa: ARG002 - there is only one
        """Return the only key."""
        return self.key

    def keyring(self) -> Keyring:
        """Return the keyring of the only key."""
        return self.ring

    def refresh(self) -> Keyring:
        """Return the keyring, which never changes."""
        return self.ring
