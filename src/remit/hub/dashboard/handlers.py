"""The handlers of the dashboard: one for each page. Pages are read and rendered in threads, off the event loop."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import tzinfo
from typing import Any, Final, NamedTuple

from remit.governor.context import UseCaseRunner
from remit.governor.verification import VerificationState
from remit.hub.commit_failures import CommitFailureTracker
from remit.hub.dashboard.chart import RANGES
from remit.hub.dashboard.formatting import TimeFormatter
from remit.hub.dashboard.page_reader import PageReader
from remit.hub.dashboard.paging import Links, is_live, parse_choice, parse_position
from remit.hub.dashboard.render import HEADERS, MEDIA_TYPE, REFRESH_S, render
from remit.server.routes import BytesResponse, Request

_THREADS: Final = 2
_DEFAULT_RANGE: Final = "day"


class _Page(NamedTuple):
    """A page before it is rendered: its template, the values for it, and its path below the dashboard."""

    template: str
    values: Mapping[str, Any]
    parts: tuple[str, ...]
    # Its query parameters, without `live`.
    query: Mapping[str, str | int | None]
    # Whether its content can change later, so that it is worth refreshing.
    changes: bool = True


class DashboardHandlers:
    """The handlers of the dashboard's routes. Without a `zone`, times are in the time zone of this machine."""

    def __init__(
        self,
        governor: UseCaseRunner,
        verification: VerificationState,
        failures: CommitFailureTracker,
        *,
        zone: tzinfo | None = None,
    ) -> None:
        self._governor = governor
        self._verification = verification
        self._failures = failures
        self._zone = zone
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="pages")

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def overview(self, request: Request) -> BytesResponse:
        """Show alerts, active sessions, and recent denials."""

        def show(reader: PageReader) -> _Page:
            others = [name for name in RANGES if name != _DEFAULT_RANGE]
            selected = parse_choice(request.query, "range", (_DEFAULT_RANGE, *others))
            parameter = None if selected == _DEFAULT_RANGE else selected
            values = {"page": reader.overview(selected), "chosen": selected, "nav": "overview"}
            return _Page("overview.html", values, ("overview",), {"range": parameter})

        return await self._respond(request, show)

    async def sessions(self, request: Request) -> BytesResponse:
        """Show the sessions, newest first."""

        def show(reader: PageReader) -> _Page:
            before = parse_position(request.query)
            values = {"page": reader.sessions(before), "nav": "sessions"}
            return _Page("sessions.html", values, ("sessions",), {"before": before})

        return await self._respond(request, show)

    async def session(self, request: Request) -> BytesResponse:
        """Show one session and its chain."""

        def show(reader: PageReader) -> _Page:
            before, session_id = parse_position(request.query), request.parameters["session_id"]
            only = parse_choice(request.query, "show", ("all", "denials"))
            page = reader.session(session_id, before, denials=only == "denials")
            values = {"page": page, "only": only, "nav": "sessions"}
            query = {"show": None if only == "all" else only, "before": before}
            return _Page("session.html", values, ("sessions", session_id), query)

        return await self._respond(request, show)

    async def receipt(self, request: Request) -> BytesResponse:
        """Show all claims of one receipt."""

        def show(reader: PageReader) -> _Page:
            receipt_id = request.parameters["receipt_id"]
            values = {"page": reader.receipt(receipt_id), "nav": ""}
            return _Page("receipt.html", values, ("receipts", receipt_id), {}, changes=False)

        return await self._respond(request, show)

    async def denials(self, request: Request) -> BytesResponse:
        """Show the denial codes, each with its number of denials."""

        def show(reader: PageReader) -> _Page:
            return _Page("denials.html", {"page": reader.denials(), "nav": "denials"}, ("denials",), {})

        return await self._respond(request, show)

    async def denials_of(self, request: Request) -> BytesResponse:
        """Show the denials with one code."""

        def show(reader: PageReader) -> _Page:
            before, code = parse_position(request.query), request.parameters["code"]
            values = {"page": reader.denials_of(code, before), "nav": "denials"}
            return _Page("denial.html", values, ("denials", code), {"before": before})

        return await self._respond(request, show)

    async def _respond(self, request: Request, show: Callable[[PageReader], _Page]) -> BytesResponse:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._render, request.query, show)

    def _render(self, query: Mapping[str, str], show: Callable[[PageReader], _Page]) -> BytesResponse:
        live = is_live(query)
        context = self._governor.context
        now = context.clock.now()
        reader = PageReader(context, self._verification, self._failures, now, self._zone)
        page = show(reader)
        # Pages of older entries are not refreshed: their content would not change.
        renews = page.changes and not page.query.get("before")
        content = render(
            page.template,
            **page.values,
            # The overview has these among its own alerts.
            alerts=() if page.template == "overview.html" else reader.alerts(),
            link=Links(live),
            live=live,
            renews=renews,
            here=(page.parts, page.query),
            now=TimeFormatter(now.wall_s, self._zone).when(now.wall_s),
        )
        refresh = ((b"refresh", str(REFRESH_S).encode()),) if live and renews else ()
        return BytesResponse(content, MEDIA_TYPE, (*HEADERS, *refresh))
