"""The process that writes the ledger of a home.

Invariant: a process writes the ledger only while it holds the lock of the ledger, and serves its socket meanwhile, so
that all other processes are its clients. If a service runs on more than one core, this is a separate ledger process,
which ends when no service is connected any more. If not, it is the process of the service or of the command.
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
from remit.governor.context import Context
from remit.governor.governor import Governor
from remit.governor.handshake import SOCKET_NAME, PolicySettings, make_secret
from remit.governor.pools import QUICK_BATCH_SIZE
from remit.governor.server import CommitEventForwarder, IdleTimeouts, LedgerServer
from remit.governor.wire import FrameDecoder, decode_failure, decode_messages, encode_failure, encode_frame
from remit.ledger.commit import BATCH_SIZE, CommitObserver
from remit.ledger.embedded import LEDGER_FILE, EmbeddedLedger, open_embedded_ledger
from remit.ledger.home import Home, open_home
from remit.server.log import configure, flush, logger
from remit.wiring.judging import context_for, own_process

FOLDER: Final = "run"
_LOCK: Final = "ledger.lock"
# The lock of the process that starts the ledger process, until that serves its socket.
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
    """The ledger of a home that this process writes, and the server for other processes."""

    def __init__(self, embedded: EmbeddedLedger, home: Home, folder: Home, judging: PolicySettings) -> None:
        """Use what `hold_ledger` has opened; `judging` is for the governor of this process."""
        self.embedded = embedded
        self.over = threading.Event()
        self._home = home
        self._folder = folder
        self.governor = Governor(embedded.ledger, self._means(judging))
        self.governor.context.key_files = embedded.key_files
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: LedgerServer | None = None
        self._closed = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._held = ExitStack()

    def _means(self, judging: PolicySettings) -> Context:
        own = own_process()
        return context_for(judging, self._home, self.embedded.keys, self.embedded.reader, beside=lambda: (own,))

    def _governor_for(self, judging: PolicySettings) -> Governor:
        """Return a governor with the settings of a client."""
        return self.governor.with_policy_of(self._means(judging))

    def serve(self, forwarding: CommitEventForwarder, lifetime: IdleTimeouts | None) -> None:
        """Serve the socket in a thread; return when it is served."""
        listening = _listen(self._folder)
        secret = make_secret(self._folder)
        self._thread = threading.Thread(
            target=self._serve, args=(listening, secret, forwarding, lifetime), name="ledger-server", daemon=True
        )
        self._thread.start()
        self._ready.wait(_START_S)

    def _serve(
        self, listening: socket.socket, secret: bytes, forwarding: CommitEventForwarder, lifetime: IdleTimeouts | None
    ) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._server = server = LedgerServer(
                listening, secret, self._governor_for, forwarding=forwarding, lifetime=lifetime, told=_log_warning
            )
            self._ready.set()
            await server.serve()
            self.over.set()
            # The last client waits for the end of its connection, which means that the ledger is closed.
            await asyncio.to_thread(self._closed.wait, _CLOSING_S)
            server.hang_up()
            await asyncio.sleep(0)

        try:
            uvloop.run(serve())
        finally:  # a process that does not serve the socket must release the lock
            self.over.set()

    def keep(self, held: ExitStack) -> None:
        """Take over the home and the lock, and close them in `close`."""
        self._held = held

    def stop_when_idle(self) -> None:
        """Stop serving when no service is connected any more."""
        loop, server = self._loop, self._server
        if loop is not None and server is not None:
            loop.call_soon_threadsafe(server.stop_when_idle)

    def close(self) -> None:
        """Finish pending work, close the ledger, and release the lock."""
        loop, server, thread = self._loop, self._server, self._thread
        if loop is not None and server is not None and not self.over.is_set():
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(server.stop)
            self.over.wait(_CLOSING_S)
        with suppress(RemitError):
            self._folder.remove(SOCKET_NAME)
        self.governor.close()
        self.embedded.close()
        self._closed.set()
        if thread is not None:
            thread.join(_CLOSING_S)
        self._held.close()


def hold_ledger(
    path: Path,
    judging: PolicySettings,
    *,
    observer: CommitObserver | None = None,
    lifetime: IdleTimeouts | None = None,
    create: bool = True,
) -> LedgerHolder | None:
    """Take the lock of the ledger of the home at `path`, open it and serve it; None if another process has the lock.

    With a `lifetime`, it is served until no service is connected. Without `create`, a missing ledger raises
    `StateMissing`.
    """
    with ExitStack() as held:
        home = held.enter_context(open_home(path, create=create))
        folder = held.enter_context(home.folder(FOLDER))
        if not create and not home.exists(LEDGER_FILE):
            raise StateMissing(f"{LEDGER_FILE} is gone")
        try:
            held.enter_context(folder.locked(_LOCK, wait=False))
        except LedgerInUse:
            return None
        forwarding = CommitEventForwarder(observer)
        with ExitStack() as opened:
            # A ledger process commits in small bundles, so that it and its clients work at the same time.
            embedded = open_embedded_ledger(
                path, observer=forwarding, bundle=BATCH_SIZE if lifetime is None else QUICK_BATCH_SIZE
            )
            opened.callback(embedded.close)
            holder = LedgerHolder(embedded, home, folder, judging)
            holder.serve(forwarding, lifetime)
            opened.pop_all()
        holder.keep(held.pop_all())
        return holder


def _listen(folder: Home) -> socket.socket:
    """Return the listening socket of the ledger, with access for its owner only."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder.remove(SOCKET_NAME)  # left by a process that was killed: this one has the lock
        address = folder.socket_address(SOCKET_NAME)
        listening.bind(address)
        os.chmod(address, _MODE)  # noqa: PTH101 - before anyone can connect: it does not listen yet
        listening.listen(_BACKLOG)
        listening.setblocking(False)  # noqa: FBT003 - the signature of the library
    except OSError as error:
        listening.close()
        raise LedgerUnavailable(f"the socket of the ledger cannot be created ({error.strerror})") from None
    return listening


def _log_warning(event: str, why: str) -> None:
    logger().warning(event, why=why)


def ledger_command(home: str, *, create: bool = False) -> list[str]:
    """Return the command line of the ledger process of a home; with `create`, it creates a missing ledger."""
    # -P: no modules are imported from the current folder, which an agent may be able to write to.
    return [sys.executable, "-P", "-m", _MODULE, home, *([_CREATE] if create else [])]


def start_ledger_process(path: Path, *, create: bool = False) -> None:
    """Start the ledger process of a home, and return when it serves the socket. It outlives this process.

    It is no error if another process has the lock already. Errors of the ledger process are raised here. If several
    services call this at the same moment, one starts the process and the others wait for it.
    """
    with open_home(path, create=create) as home, home.folder(FOLDER) as folder, folder.locked(_STARTING):
        try:
            with folder.locked(_LOCK, wait=False):
                pass
        except LedgerInUse:
            return
        child = _spawn(home, create=create)
        output = child.stdout
        assert output is not None  # noqa: S101 - a pipe, by the call that made it
        with output:
            poll = select.poll()  # `select` takes no descriptor above 1023, and a service may have more
            poll.register(output, select.POLLIN)
            reply = output.read(_MAX_LINE) if poll.poll(_START_S * 1000) else b""
    if reply in (_READY, _TAKEN):
        return
    for body in FrameDecoder().feed(reply):
        for _, _, content in decode_messages(body):
            raise decode_failure(content)
    raise LedgerUnavailable("the ledger process did not start; the reason is in log/ledger.log in the home")


def _spawn(home: Home, *, create: bool) -> "subprocess.Popen[bytes]":
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
    # Reap it when it ends: it would stay a zombie otherwise.
    threading.Thread(target=child.wait, name="ledger-process", daemon=True).start()
    return child


def exit_now() -> None:
    """Exit without waiting for threads, which may hang on a disk or a file system."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main(path: str, *options: str) -> None:
    """Run the ledger process of a home until no service is connected any more."""
    configure("info", as_json=True, stream=sys.stderr)
    try:
        holder = hold_ledger(Path(path), PolicySettings(), lifetime=IdleTimeouts(), create=_CREATE in options)
    except RemitError as error:
        logger().error("ledger_process_failed", code=error.code, why=str(error))
        return _reply(encode_frame([encode_failure(0, error)]))
    if holder is None:
        return _reply(_TAKEN)

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        holder.stop_when_idle()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logger().info("ledger_process_started", pid=os.getpid())
    _reply(_READY)
    while not holder.over.wait(1.0):
        pass  # a wait without a timeout would not run signal handlers
    holder.close()
    logger().info("ledger_process_ended", pid=os.getpid())
    flush()
    return exit_now()


def _reply(message: bytes) -> None:
    """Send a message to the process that has started this one, and close the pipe (stdout)."""
    with suppress(OSError):
        os.write(1, message)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
