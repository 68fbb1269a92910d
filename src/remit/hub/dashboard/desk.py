"""The desk of the dashboard: one method for each page, off the event loop from its first read to its last byte."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import tzinfo
from typing import Any, Final, NamedTuple

from remit.governor.means import UseCaseRunner
from remit.governor.verification import VerificationState
from remit.hub.dashboard.chart import RANGES
from remit.hub.dashboard.figures import Times
from remit.hub.dashboard.paging import Links, choice, is_live, place
from remit.hub.dashboard.reading import Reading
from remit.hub.dashboard.render import HEADERS, MEDIA_TYPE, REFRESH_S, render
from remit.hub.recording import Recording
from remit.server.routes import Plain, Request

__all__ = ["Pages"]

_THREADS: Final = 2
_DEFAULT_RANGE: Final = "day"


class _Shown(NamedTuple):
    """What a page shows: its template, its values, and its own address below the dashboard."""

    template: str
    values: Mapping[str, Any]
    parts: tuple[str, ...]
    # The parameters that its address has beside `live`.
    query: Mapping[str, str | int | None]
    # Whether it can change while somebody looks.
    changes: bool = True


class Pages:
    """What the routes of the dashboard lead to. Without a `zone`, times are those of this machine."""

    def __init__(
        self,
        governor: UseCaseRunner,
        verification: VerificationState,
        recording: Recording,
        *,
        zone: tzinfo | None = None,
    ) -> None:
        self._governor = governor
        self._verification = verification
        self._recording = recording
        self._zone = zone
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="pages")

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def overview(self, ask: Request) -> Plain:
        """Show whether anything is wrong, and what goes on."""

        def show(reading: Reading) -> _Shown:
            others = [name for name in RANGES if name != _DEFAULT_RANGE]
            chosen = choice(ask.query, "range", (_DEFAULT_RANGE, *others))
            asked = None if chosen == _DEFAULT_RANGE else chosen
            values = {"page": reading.overview(chosen), "chosen": chosen, "nav": "overview"}
            return _Shown("overview.html", values, ("overview",), {"range": asked})

        return await self._page(ask, show)

    async def sessions(self, ask: Request) -> Plain:
        """Show the sessions, newest first."""

        def show(reading: Reading) -> _Shown:
            before = place(ask.query)
            values = {"page": reading.sessions(before), "nav": "sessions"}
            return _Shown("sessions.html", values, ("sessions",), {"before": before})

        return await self._page(ask, show)

    async def session(self, ask: Request) -> Plain:
        """Show one session and its chain."""

        def show(reading: Reading) -> _Shown:
            before, session_id = place(ask.query), ask.parameters["session_id"]
            only = choice(ask.query, "show", ("all", "denials"))
            page = reading.session(session_id, before, denials=only == "denials")
            values = {"page": page, "only": only, "nav": "sessions"}
            query = {"show": None if only == "all" else only, "before": before}
            return _Shown("session.html", values, ("sessions", session_id), query)

        return await self._page(ask, show)

    async def receipt(self, ask: Request) -> Plain:
        """Show everything that one receipt says."""

        def show(reading: Reading) -> _Shown:
            receipt_id = ask.parameters["receipt_id"]
            values = {"page": reading.receipt(receipt_id), "nav": ""}
            return _Shown("receipt.html", values, ("receipts", receipt_id), {}, changes=False)

        return await self._page(ask, show)

    async def denials(self, ask: Request) -> Plain:
        """Show why calls were refused."""

        def show(reading: Reading) -> _Shown:
            return _Shown("denials.html", {"page": reading.denials(), "nav": "denials"}, ("denials",), {})

        return await self._page(ask, show)

    async def denials_of(self, ask: Request) -> Plain:
        """Show the calls that were refused for one reason."""

        def show(reading: Reading) -> _Shown:
            before, code = place(ask.query), ask.parameters["code"]
            values = {"page": reading.denials_of(code, before), "nav": "denials"}
            return _Shown("denial.html", values, ("denials", code), {"before": before})

        return await self._page(ask, show)

    async def _page(self, ask: Request, show: Callable[[Reading], _Shown]) -> Plain:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._made, ask.query, show)

    def _made(self, query: Mapping[str, str], show: Callable[[Reading], _Shown]) -> Plain:
        live = is_live(query)
        means = self._governor.means
        now = means.clock.now()
        reading = Reading(means, self._verification, self._recording, now, self._zone)
        shown = show(reading)
        # A page of older entries does not change; one that renews itself must not move under its reader.
        renews = shown.changes and not shown.query.get("before")
        content = render(
            shown.template,
            **shown.values,
            # The overview says more than that.
            alarms=() if shown.template == "overview.html" else reading.alarms(),
            link=Links(live),
            live=live,
            renews=renews,
            here=(shown.parts, shown.query),
            now=Times(now.wall_s, self._zone).when(now.wall_s),
        )
        refresh = ((b"refresh", str(REFRESH_S).encode()),) if live and renews else ()
        return Plain(content, MEDIA_TYPE, (*HEADERS, *refresh))
