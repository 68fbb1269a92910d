"""Fronts, and the ledger process that they send to, all in the process of the test.

Every use case crosses the codec and a Unix socket, and is judged in the front first. The server has a thread and an
event loop of its own. Only what a test has to set is not as in the product: clocks, random bytes and files.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import uvloop

from remit.governor.context import Context, UseCase, UseCaseRunner
from remit.governor.governor import Governor
from remit.governor.handshake import SOCKET_NAME, Introduction, PolicySettings, make_secret
from remit.governor.keys import RotateKey
from remit.governor.remote import PublicKeys, RemoteGovernor, connect
from remit.governor.server import LedgerServer
from remit.ledger.embedded import open_ledger_reader
from remit.ledger.home import open_home
from remit.ledger.records import KeyRecord
from remit.ledger.store import LedgerReader
from remit.policy.engines import Engine
from remit.policy.files import TextFiles
from remit.policy.guard import GuardEngine, OwnProcess
from remit.wiring.judging import context_with
from tests.governor.places import DEADLINE_S, SqlitePlace
from tests.governor.world import Service, SetClock

__all__ = ["Front", "Gate", "LedgerProcess", "engines_beside"]

_T = TypeVar("_T")


def engines_beside(place: SqlitePlace) -> Sequence[Engine]:
    """Return what judges calls beside the passport's own rules, in a front and in the ledger process."""
    return (GuardEngine(tuple, (str(place.path),), OwnProcess(frozenset((1,)), "remit")),)


class Gate:
    """Holds use cases in the ledger process until all of a group have arrived, and then lets them go on together.

    So they share a commit, however slow the machine is. `meanwhile` is done by another front after these have arrived,
    which means that they were judged before it, and before they go on.
    """

    def __init__(
        self, expected: int, serving: asyncio.AbstractEventLoop, meanwhile: Callable[[], object] | None = None
    ) -> None:
        self._expected = expected
        self._serving = serving
        self._asking = asyncio.get_running_loop()
        self._meanwhile = meanwhile
        self._arrived = 0
        self._open = asyncio.Event()
        self._arrivals: asyncio.Queue[None] = asyncio.Queue()
        self._opening: asyncio.Task[None] | None = None

    # On the loop that asks.

    async def wait_for_next(self) -> None:
        """Return when one more has arrived, or is known not to arrive."""
        await self._arrivals.get()

    def note_end(self, _task: object) -> None:
        """Do not wait for what has ended before all have arrived: it will not arrive."""
        self._arrivals.put_nowait(None)
        self._serving.call_soon_threadsafe(self._expect_less)

    # On the loop that serves.

    async def enter(self) -> None:
        """Arrive, and wait for the others."""
        if self._opening is not None:
            return
        self._arrived += 1
        self._asking.call_soon_threadsafe(self._arrivals.put_nowait, None)
        self._look()
        await self._open.wait()

    def _expect_less(self) -> None:
        if self._opening is None:
            self._expected -= 1
            self._look()

    def _look(self) -> None:
        if self._arrived >= self._expected:
            self._opening = self._serving.create_task(self._let_pass())

    async def _let_pass(self) -> None:
        try:
            if self._meanwhile is not None:
                await asyncio.to_thread(self._meanwhile)
        finally:
            self._open.set()


class _Gated:
    """The governor of a front in the ledger process. Use cases get their moment when they arrive, then wait."""

    def __init__(self, governor: Governor, process: "LedgerProcess") -> None:
        self.context = governor.context
        self.run = governor.run
        self.close = governor.close
        self._governor = governor
        self._process = process

    async def arun(self, case: UseCase[_T]) -> _T:
        running = self._governor.arun(case)
        if self._process.gate is not None:
            await self._process.gate.enter()
        return await running


class LedgerProcess(Service):
    """The process that writes: a governor over the embedded ledger, and the server of its socket."""

    place: SqlitePlace

    def __init__(self, place: SqlitePlace, *, clock: SetClock) -> None:
        self.gate: Gate | None = None
        super().__init__(place, clock=clock, name="ledger")

    def _boot(self) -> None:
        super()._boot()
        self.governor.context.key_files = self.place.key_files
        with open_home(self.place.path) as home, home.folder("run") as folder:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            folder.remove(SOCKET_NAME)
            listening.bind(folder.socket_address(SOCKET_NAME))
            listening.listen()
            listening.setblocking(False)  # noqa: FBT003 - as sockets have it
            secret = make_secret(folder)
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: uvloop.run(self._serve(listening, secret, started)), name="ledger-server", daemon=True
        )
        self._thread.start()
        assert started.wait(DEADLINE_S)

    async def _serve(self, listening: socket.socket, secret: bytes, started: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        self._server = LedgerServer(listening, secret, self._governor_for)
        started.set()
        await self._server.serve()
        self._server.hang_up()
        await asyncio.sleep(0)

    def _governor_for(self, _judging: PolicySettings) -> UseCaseRunner:
        """Return a governor that judges as a front does, as the ledger process makes one for each way of judging."""
        assert isinstance(self.governor, Governor)
        return _Gated(self.governor.with_policy_of(self._means(self.reader)), self)

    def _means(self, reader: LedgerReader) -> Context:
        judging = engines_beside(self.place)
        context = context_with(reader, self.place.keys(), TextFiles(), self.clock, judging=judging, observing=())
        context.stopwatch = _stopwatch
        context.entropy = self._entropy()
        return context

    def restart(self) -> None:
        """End the process, whoever is connected, and start another one."""
        self.close(with_place=False)
        self.place.restart()
        self._boot()

    def close(self, *, with_place: bool = True) -> None:
        """Stop serving, then close the ledger."""
        self.loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.governor.close()
        super().close(with_place=with_place)


class Front(Service):
    """A process that judges and asks; it reads the ledger itself, and holds no private key."""

    def __init__(self, process: LedgerProcess, *, name: str) -> None:
        self._process = process
        super().__init__(process.place, clock=process.clock, name=name)

    def _boot(self) -> None:
        place = self._process.place
        self.weather = self._process.weather
        self._home, self._reading = open_home(place.path), open_ledger_reader(place.path)
        reader, judging = self._reading.reader, engines_beside(place)
        context = context_with(reader, PublicKeys(reader), TextFiles(), self.clock, judging=judging, observing=())
        context.stopwatch = _stopwatch
        context.entropy = _draw_nothing
        # Each has a name in its introduction, so that each has a governor of its own in the ledger process.
        introduction = Introduction("", PolicySettings(line=self._name))
        connecting = partial(connect, self._home, introduction, timeout_s=DEADLINE_S)
        self.remote = self.governor = RemoteGovernor(context, connecting, deadline_s=DEADLINE_S)

    @property
    def reader(self) -> LedgerReader:
        """The reader of the front."""
        return self._reading.reader

    def rotate(self) -> KeyRecord:
        """Have the ledger process change the key that signs."""
        return self.governor.run(RotateKey())

    def restart(self) -> None:
        """Forget everything; the ledger process goes on."""
        self.close(with_place=False)
        self._boot()

    def close(self, *, with_place: bool = True) -> None:
        """Let go of the connections and of the ledger, which stays open."""
        assert not with_place
        self.governor.close()
        self._reading.close()
        self._home.close()


def _stopwatch() -> float:
    return 0.0


def _draw_nothing(size: int) -> bytes:
    raise AssertionError(f"a front draws no random bytes, and not {size} of them")
