"""Who writes the ledger of a home: the process that holds its lock and serves its socket.

Keeps this invariant: whoever writes holds the lock, and serves the socket while it does, so that all others are its
clients. That is a process of its own where a service runs on more than one core, and the service or the command itself
where not. Such a process ends when no service is left.
"""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import uvloop

from remit.config import METRICS_VARIABLE, service_environment
from remit.errors import LedgerInUse, LedgerUnavailable, RemitError, StateMissing
from remit.governor.governor import Governor
from remit.governor.handshake import SOCKET, Judging, make_secret
from remit.governor.means import Means
from remit.governor.pools import QUICK_BUNDLE
from remit.governor.server import Forwarding, LedgerServer, Lifetime
from remit.governor.wire import Frames, decode_failure, decode_messages, encode_failure, frame_of
from remit.ledger.commit import BUNDLE, Observer
from remit.ledger.embedded import FILE, Embedded, open_embedded
from remit.ledger.home import Home, open_home
from remit.server.log import configure, flush, logger
from remit.wiring.judging import means_for, own_process

__all__ = ["FOLDER", "LedgerHolder", "end_now", "hold_ledger", "ledger_command", "main", "start_ledger_process"]

FOLDER: Final = "run"
_LOCK: Final = "ledger.lock"
# Held by whoever starts the ledger process, until that serves.
_STARTING: Final = "ledger.starting"
_MODULE: Final = "remit.wiring.run_ledger_process"
_LOG: Final = "ledger.log"
_MODE: Final = 0o600
_BACKLOG: Final = 128
_START_S: Final = 60.0
_CLOSING_S: Final = 4.0
_MAX_LINE: Final = 64 * 1024
_CREATE: Final = "--create"
_READY: Final = b"ready\n"
_TAKEN: Final = b"taken\n"


class LedgerHolder:
    """The ledger of a home, written by this process, and the server by which others write it too."""

    def __init__(self, embedded: Embedded, home: Home, folder: Home, judging: Judging) -> None:
        """Take what `hold_ledger` has opened; the governor of this process judges as it says."""
        self.embedded = embedded
        self.over = threading.Event()
        self._home = home
        self._folder = folder
        self.governor = Governor(embedded.ledger, self._means(judging))
        self.governor.means.key_files = embedded.key_files
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: LedgerServer | None = None
        self._closed = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._held = ExitStack()

    def _means(self, judging: Judging) -> Means:
        own = own_process()
        return means_for(judging, self._home, self.embedded.keys, self.embedded.reader, beside=lambda: (own,))

    def _governor_for(self, judging: Judging) -> Governor:
        """Return a governor that judges as a front does."""
        return self.governor.judging_as(self._means(judging))

    def serve(self, forwarding: Forwarding, lifetime: Lifetime | None) -> None:
        """Serve the socket, on a thread of its own."""
        listening = _listen(self._folder)
        secret = make_secret(self._folder)
        self._thread = threading.Thread(
            target=self._serve, args=(listening, secret, forwarding, lifetime), name="ledger-server", daemon=True
        )
        self._thread.start()
        self._ready.wait(_START_S)

    def _serve(
        self, listening: socket.socket, secret: bytes, forwarding: Forwarding, lifetime: Lifetime | None
    ) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._server = server = LedgerServer(
                listening, secret, self._governor_for, forwarding=forwarding, lifetime=lifetime, told=_told
            )
            self._ready.set()
            await server.serve()
            self.over.set()
            # The last service waits for the end of its connection, which tells that the ledger is closed.
            await asyncio.to_thread(self._closed.wait, _CLOSING_S)
            server.hang_up()
            await asyncio.sleep(0)

        try:
            uvloop.run(serve())
        finally:  # whatever happens: who does not serve must not keep the lock
            self.over.set()

    def keep(self, held: ExitStack) -> None:
        """Hold the home and the lock until the end."""
        self._held = held

    def stop_when_alone(self) -> None:
        """Stop serving as soon as no service is connected."""
        loop, server = self._loop, self._server
        if loop is not None and server is not None:
            loop.call_soon_threadsafe(server.stop_when_alone)

    def close(self) -> None:
        """Finish what was asked for, close the ledger, and let the lock go."""
        loop, server, thread = self._loop, self._server, self._thread
        if loop is not None and server is not None and not self.over.is_set():
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(server.stop)
            self.over.wait(_CLOSING_S)
        with suppress(RemitError):
            self._folder.remove(SOCKET)
        self.governor.close()
        self.embedded.close()
        self._closed.set()
        if thread is not None:
            thread.join(_CLOSING_S)
        self._held.close()


def hold_ledger(
    path: Path,
    judging: Judging,
    *,
    observer: Observer | None = None,
    lifetime: Lifetime | None = None,
    create: bool = True,
) -> LedgerHolder | None:
    """Return the ledger of the home at `path`, made first where there is none, once this process holds its lock.

    None if another process holds it. With a `lifetime` it serves until no service is left. With `create` off, a ledger
    that is not there is `StateMissing`: it was there a moment ago.
    """
    with ExitStack() as held:
        home = held.enter_context(open_home(path, create=create))
        folder = held.enter_context(home.folder(FOLDER))
        if not create and not home.exists(FILE):
            raise StateMissing(f"{FILE} is gone")
        try:
            held.enter_context(folder.locked(_LOCK, wait=False))
        except LedgerInUse:
            return None
        forwarding = Forwarding(observer)
        with ExitStack() as opened:
            # Small bundles from fronts, so that these and this process work at the same time.
            embedded = open_embedded(path, observer=forwarding, bundle=BUNDLE if lifetime is None else QUICK_BUNDLE)
            opened.callback(embedded.close)
            holder = LedgerHolder(embedded, home, folder, judging)
            holder.serve(forwarding, lifetime)
            opened.pop_all()
        holder.keep(held.pop_all())
        return holder


def _listen(folder: Home) -> socket.socket:
    """Return the socket of the ledger, which only its owner can open."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder.remove(SOCKET)  # of a process that was killed: whoever holds the lock is alone
        address = folder.socket_address(SOCKET)
        listening.bind(address)
        os.chmod(address, _MODE)  # noqa: PTH101 - before anyone can connect: it does not listen yet
        listening.listen(_BACKLOG)
        listening.setblocking(False)  # noqa: FBT003 - as sockets have it
    except OSError as error:
        listening.close()
        raise LedgerUnavailable(f"the socket of the ledger cannot be made ({error.strerror})") from None
    return listening


def _told(event: str, why: str) -> None:
    logger().warning(event, why=why)


def ledger_command(home: str, *, create: bool = False) -> list[str]:
    """Return the command line of the ledger process of a home; with `create`, it makes the ledger if there is none."""
    # -P: what lies in the current folder, which an agent may write to, is none of our modules.
    return [sys.executable, "-P", "-m", _MODULE, home, *([_CREATE] if create else [])]


def start_ledger_process(path: Path, *, create: bool = False) -> None:
    """Start the ledger process of a home, which goes on when this one ends, and return when it serves.

    If another process has the lock by then, this is no error: there is one. What is wrong with the home is raised. Of
    several services that start it at the same moment one does, and the others wait for it.
    """
    with open_home(path, create=create) as home, home.folder(FOLDER) as folder, folder.locked(_STARTING):
        try:
            with folder.locked(_LOCK, wait=False):
                pass
        except LedgerInUse:
            return
        child = _started(home, create=create)
        output = child.stdout
        assert output is not None  # noqa: S101 - a pipe, by the call that made it
        with output:
            waiting = select.poll()  # `select` takes no descriptor above 1023, and a service may have more
            waiting.register(output, select.POLLIN)
            said = output.read(_MAX_LINE) if waiting.poll(_START_S * 1000) else b""
    if said in (_READY, _TAKEN):
        return
    for body in Frames().feed(said):
        for _, _, content in decode_messages(body):
            raise decode_failure(content)
    raise LedgerUnavailable("the ledger process did not start: log/ledger.log in the home says why")


def _started(home: Home, *, create: bool) -> "subprocess.Popen[bytes]":
    with home.folder("log") as folder:
        if not folder.check_file(_LOG):
            folder.create(_LOG, b"")
        log_path = folder.path_of(_LOG)
    with open(log_path, "ab") as log:  # noqa: PTH123 - a path that the home has checked
        child = subprocess.Popen(  # noqa: S603 - ourselves
            ledger_command(home.path, create=create),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={name: value for name, value in service_environment().items() if name != METRICS_VARIABLE},
        )
    # Its end is seen, so that nothing is left of it in the table of processes.
    threading.Thread(target=child.wait, name="ledger-process", daemon=True).start()
    return child


def end_now() -> None:
    """End the process: threads that wait for a disk or a file system that hangs would keep it from its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main(path: str, *options: str) -> None:
    """Live as the ledger process of a home, until no service is left."""
    configure("info", as_json=True, stream=sys.stderr)
    try:
        holder = hold_ledger(Path(path), Judging(), lifetime=Lifetime(), create=_CREATE in options)
    except RemitError as error:
        logger().error("ledger_process_failed", code=error.code, why=str(error))
        return _say(frame_of([encode_failure(0, error)]))
    if holder is None:
        return _say(_TAKEN)

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals have it
        holder.stop_when_alone()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logger().info("ledger_process_started", pid=os.getpid())
    _say(_READY)
    while not holder.over.wait(1.0):
        pass  # a wait without an end would not be interrupted by a signal
    holder.close()
    logger().info("ledger_process_ended", pid=os.getpid())
    flush()
    return end_now()


def _say(what: bytes) -> None:
    """Tell who has started this, and close the pipe: nothing more is said there."""
    with suppress(OSError):
        os.write(1, what)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
