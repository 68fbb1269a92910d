"""How far a request travels: `python -m bench.path`.

Counts the files and functions of `remit` that one request enters, in the front and in the ledger process together, and
how often the writer of the ledger is asked. Both run in this process, each with its own event loop, and are connected
by the socket as if they were two; a profile function counts on all threads, only while one request is under way. A
generator or coroutine that goes on counts as entered again. The exit code is 1 if one misses its limit.
"""

import os
import signal
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.client import HTTPSConnection
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

import remit
from bench.homes import Home, new_home
from bench.tables import table
from remit.governor.handshake import PolicySettings
from remit.proxy.options import ProxyOptions
from remit.wiring.ledger_process import hold_ledger
from remit.wiring.proxy import run_proxy

__all__ = ["main"]

SOURCE: Final = str(Path(remit.__file__).parent)
WARM_UP: Final = 50
TURNS: Final = 15
SETTLE_S: Final = 0.05
# Where work is handed to the writer of the ledger.
WRITER: Final = "ledger/commit.py:arun"


class Limits(NamedTuple):
    """How many files and functions a request may enter."""

    files: int
    calls: int


class Travelled(NamedTuple):
    """What one request has entered: by file and function, how often."""

    functions: Counter[str]

    @property
    def files(self) -> set[str]:
        """Return the files."""
        return {name.partition(":")[0] for name in self.functions}

    @property
    def calls(self) -> int:
        """Return how often a function was entered."""
        return self.functions.total()

    @property
    def trips(self) -> int:
        """Return how often the writer was asked."""
        return self.functions[WRITER]


class Counting:
    """Counts the functions of `remit` that are entered, on every thread that is started from now on."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None
        self._client = 0
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        counts = self._counts
        if counts is not None and event == "call" and threading.get_ident() != self._client:
            name = frame.f_code.co_filename
            if name.startswith(SOURCE):
                counts[f"{name[len(SOURCE) + 1 :]}:{frame.f_code.co_name}"] += 1

    def during(self, request: Callable[[], None]) -> Travelled:
        """Return what is entered from a request to its answer, and shortly after; this thread is the client's."""
        self._client = threading.get_ident()
        counts = self._counts = Counter[str]()
        request()
        time.sleep(SETTLE_S)
        self._counts = None
        return Travelled(counts)


def client(url: str, ca: Path, body: str, headers: Mapping[str, str]) -> Callable[[], None]:
    """Return what sends one request over a kept connection; it must be permitted."""
    place = urlsplit(url)
    context = ssl.create_default_context(cafile=str(ca))
    connection = HTTPSConnection(str(place.hostname), place.port, context=context)

    def send() -> None:
        connection.request("POST", "/evaluate", body, {"content-type": "application/json", **headers})
        answer = connection.getresponse().read()
        if b'"decision":"PERMIT"' not in answer:
            raise SystemExit(f"not permitted: {answer[:400]!r}")

    return send


def measured(counting: Counting, send: Callable[[], None]) -> Travelled:
    """Return the shortest of several turns: what comes in between belongs to no request."""
    for _ in range(WARM_UP):
        send()
    return min((counting.during(send) for _ in range(TURNS)), key=lambda travelled: travelled.calls)


def bodies(home: Home) -> dict[str, tuple[str, Limits]]:
    """Return what is asked, by name, with its limits."""
    asked = msgspec.json.decode(home.bodies[0])
    command = {**asked, "tool_name": "Bash", "arguments": {"command": "cat README.md"}}
    return {
        "path tool": (home.bodies[0], Limits(30, 160)),
        "simple command": (msgspec.json.encode(command).decode(), Limits(45, 999)),
    }


def main() -> int:
    """Measure, print, and tell whether the limits are kept."""
    kept = [
        _report(f"{processes} {'process' if processes == 1 else 'processes'}", count(processes)) for processes in (1, 2)
    ]
    return int(not all(kept))


def count(processes: int) -> dict[str, tuple[Travelled, Limits]]:
    """Return what requests to a service in so many processes have entered, by name."""
    with tempfile.TemporaryDirectory() as folder:
        home = new_home(Path(folder))
        counting = Counting()
        found: dict[str, tuple[Travelled, Limits]] = {}
        failures: list[BaseException] = []

        def ask(url: str) -> None:
            try:
                for name, (body, limits) in bodies(home).items():
                    send = client(url, home.folder / "tls" / "ca.pem", body, home.headers)
                    found[name] = measured(counting, send), limits
            except BaseException as error:  # noqa: BLE001 - told below
                failures.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        def ready(url: str) -> None:
            threading.Thread(target=ask, args=(url,), daemon=True).start()

        holder = hold_ledger(home.folder, PolicySettings()) if processes > 1 else None
        run_proxy(ProxyOptions(str(home.folder), log_level="error", processes=processes), ready)
        if holder is not None:
            holder.close()
    if failures:
        raise failures[0]
    return found


def _report(title: str, found: Mapping[str, tuple[Travelled, Limits]]) -> bool:
    """Print what was counted, and tell whether the limits are kept."""
    rows = [
        (name, str(len(it.files)), str(limits.files), str(it.calls), str(limits.calls), str(it.trips))
        for name, (it, limits) in found.items()
    ]
    print(table((f"request, {title}", "files", "limit", "calls", "limit", "trips to the writer"), rows))
    return all(len(it.files) <= limits.files and it.calls <= limits.calls for it, limits in found.values())


if __name__ == "__main__":
    sys.exit(main())
