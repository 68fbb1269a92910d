"""Reads the values of each page from the ledger.

Invariant: the cost of a page does not grow with the history. All reads are by key, lists are read one page at a time,
and receipts are verified when they are shown.
"""

from collections.abc import Iterable
from datetime import tzinfo
from typing import Final

from remit.claims.bookmark import verify_bookmark
from remit.claims.mission import Mission
from remit.errors import BrokenChain, ReceiptNotFound, RemitError, RouteNotFound, SessionNotFound, StateCorrupt
from remit.governor.clock import Moment
from remit.governor.context import Context
from remit.governor.verification import VerificationState
from remit.hub.commit_failures import CommitFailureTracker
from remit.hub.dashboard.chart import RANGES, build_chart, first_minute
from remit.hub.dashboard.entries import CheckedReceipt, ReceiptEntry, build_entry, check_receipt
from remit.hub.dashboard.formatting import TimeFormatter
from remit.hub.dashboard.labels import find_meaning
from remit.hub.dashboard.paging import PAGE_SIZE, Pager, chain_pager
from remit.hub.dashboard.receipt_fields import field_groups
from remit.hub.dashboard.sessions import SessionCard, build_card, passport_limits, review_actions, session_title
from remit.hub.dashboard.summary import (
    NOT_PREVENTED,
    Alert,
    BrokenChains,
    Counts,
    DenialReason,
    VerificationProgress,
    build_tiles,
    count_verdicts,
    denial_reasons,
    page_alerts,
    summarize,
)
from remit.hub.dashboard.views import (
    Denial,
    DenialPage,
    DenialsPage,
    OverviewPage,
    ReceiptPage,
    SessionPage,
    SessionsPage,
)
from remit.ledger.records import CodeCount, IndexedReceipt, MinuteCount, Session, StoredReceipt
from remit.policy.engines import DENIALS

_SHOWN: Final = 6
_BROKEN: Final = 5
_HOUR: Final = 60
_WEEK_S: Final = 7 * 86_400


class PageReader:
    """Reads pages as of one moment. Each request has its own reader."""

    def __init__(
        self,
        context: Context,
        verification: VerificationState,
        failures: CommitFailureTracker,
        now: Moment,
        zone: tzinfo | None,
    ) -> None:
        self._means = context
        self._reader = context.reader
        self._verification = verification
        self._failures = failures
        self._now = now
        self._times = TimeFormatter(now.wall_s, zone)
        self._ledger_state = context.reader.ledger_state()

    def overview(self, chosen: str) -> OverviewPage:
        """Read the overview, with the chart of a range."""
        reader, span = self._reader, RANGES[chosen]
        newest = reader.latest_receipts(limit=PAGE_SIZE)
        cards = self._recent_cards(newest, reader.latest_sessions(limit=PAGE_SIZE))
        denials, last = self._denials(reader.denials(limit=_SHOWN)), self._describe_last(newest)
        codes, whole, active = reader.denials_per_code(), reader.overview(), reader.active_session_count()
        hour = self._now.wall_s // 60 - _HOUR + 1
        first = first_minute(span, self._now.wall_s)
        summary = summarize(
            failure=self._failure(),
            kill_switch=self._ledger_state.kill_switch,
            broken=self._broken(),
            done={code: self._count_week(code) for code in NOT_PREVENTED},
            last_hour=_count_minutes(reader.denials_per_minute(hour)),
            active=active,
            last=last,
            verified=self._verified(whole.sessions),
        )
        return OverviewPage(
            summary,
            build_tiles(active=active, sessions=whole.sessions, receipts=whole.receipts, counts=count_verdicts(codes)),
            build_chart(reader.denials_per_minute(first, step=span.minutes), span, self._times),
            cards,
            denials,
            denial_reasons(codes)[:_SHOWN],
        )

    def alerts(self) -> tuple[Alert, ...]:
        """Read the alerts of every page. Call it after the page was read: receipts found broken meanwhile count."""
        return page_alerts(failure=self._failure(), broken=self._broken().total)

    def _verified(self, sessions: int) -> VerificationProgress:
        """Return the progress of the verifier."""
        summary = self._verification.summary
        if summary is None:
            return VerificationProgress(None, 0, sessions, 0, self._verification.problem)
        at = summary.verified_at
        behind = 0 if at is None else max(0, self._now.wall_s - at)
        clock = None if at is None else self._times.when(at).clock
        return VerificationProgress(
            clock, min(summary.sessions_verified, sessions), sessions, behind, self._verification.problem
        )

    def _failure(self) -> str:
        """Return since when and why commits fail; empty if they do not."""
        failure = self._failures.failure
        return f"{self._times.when(failure.since).clock} ({failure.reason})" if failure else ""

    def _recent_cards(self, newest: Iterable[IndexedReceipt], started: Iterable[Session]) -> tuple[SessionCard, ...]:
        """Return the sessions with the newest receipts, and after them those that were started last."""
        last: dict[str, StoredReceipt] = {}
        for one in newest:
            last.setdefault(one.kept.session_id, one.kept)
        known = {session.id: session for session in started}
        names = list(dict.fromkeys((*last, *known)))[:_SHOWN]
        sessions = [known.get(name) or self._reader.session(name) for name in names]
        return tuple(self._card(session, last.get(session.id)) for session in sessions if session is not None)

    def _broken(self) -> BrokenChains:
        """Return the sessions with a broken chain: those found since, and those that are marked in the ledger."""
        sessions = (self._reader.session(name) for name in reversed(self._verification.faults()))
        fresh = [session for session in sessions if session is not None and not session.broken]
        listed = [*fresh, *self._reader.broken_sessions(limit=_BROKEN)][:_BROKEN]
        total = len(fresh) + self._reader.broken_count()
        return BrokenChains(total, tuple((session.id, self._title(session)) for session in listed))

    def _count_week(self, code: str) -> int:
        """Return the number of denials with a code in the last week, up to one page."""
        since, count = self._now.wall_s - _WEEK_S, 0
        for one in self._reader.denials(code, limit=PAGE_SIZE):
            receipt = self._check(one.kept).receipt
            if receipt is not None and receipt.claims.iat < since:
                break
            count += 1
        return count

    def _describe_last(self, newest: list[IndexedReceipt]) -> str:
        if not newest:
            return "No call was decided on yet."
        when = self._entry(newest[0].kept).when
        return f"The last receipt was signed {when.ago}." if when else "The last receipt does not verify."

    def sessions(self, before: int | None) -> SessionsPage:
        """Read a page of sessions."""
        found = self._reader.latest_sessions(before=before, limit=PAGE_SIZE + 1)
        cards = tuple(self._card(session) for session in found[:PAGE_SIZE])
        return SessionsPage(
            cards, _pager(len(found), before, cards[-1].number if cards else None), self._reader.overview().sessions
        )

    def session(self, session_id: str, before: int | None, *, denials: bool) -> SessionPage:
        """Read a session, with a page of its chain or of its denials."""
        session = self._get_session(session_id)
        if denials:
            numbered = self._reader.denials_of(session_id, before=before, limit=PAGE_SIZE + 1)
            kept = [one.kept for one in numbered[:PAGE_SIZE]]
            pager = _pager(len(numbered), before, kept[-1].seq if kept else None)
        else:
            after, limit, pager = chain_pager(session.length, before)
            kept = self._reader.receipts(session_id, after=after, limit=limit)[::-1]
        entries = tuple(self._entry(one) for one in kept)
        mission = self._mission(session)
        return SessionPage(
            self._card(session),
            passport_limits(mission) if mission else None,
            session.parent,
            tuple(session.marks.split()),
            session.observed,
            review_actions(self._reader.notes(session_id)),
            self._attested(session_id),
            entries,
            pager,
        )

    def _attested(self, session_id: str) -> int:
        """Return up to which receipt the chain was attested; 0 if the stored bookmark does not verify."""
        token = self._reader.bookmark(session_id)
        try:
            return verify_bookmark(token, self._means.keys.keyring())[0].length if token else 0
        except RemitError:
            return 0

    def receipt(self, receipt_id: str) -> ReceiptPage:
        """Read a receipt, its neighbours, and the receipt of its outcome."""
        kept = self._reader.receipt(receipt_id)
        if kept is None:
            raise ReceiptNotFound("no receipt has this id")
        session = self._get_session(kept.session_id)
        checked = self._check(kept)
        result = self._reader.result_of(receipt_id)
        return ReceiptPage(
            build_entry(checked, self._times),
            self._title(session),
            session.length,
            field_groups(checked.receipt, self._times) if checked.receipt else (),
            kept.token,
            self._neighbour(kept, -1),
            self._neighbour(kept, 1),
            result.receipt_id if result else None,
            _decision_id(checked),
        )

    def _neighbour(self, kept: StoredReceipt, step: int) -> str | None:
        wanted = kept.seq + step
        found = self._reader.receipts(kept.session_id, after=wanted - 1, limit=1) if wanted > 0 else []
        return found[0].receipt_id if found and found[0].seq == wanted else None

    def denials(self) -> DenialsPage:
        """Read the denial codes with their counts, and the codes that have not occurred."""
        reasons = denial_reasons(self._reader.denials_per_code())
        there = {reason.code for reason in reasons}
        others = [_reason(code) for code in DENIALS if code not in there]
        return DenialsPage(reasons, tuple(others), sum(reason.refusals for reason in reasons))

    def denials_of(self, code: str, before: int | None) -> DenialPage:
        """Read a page of denials with one code."""
        known = {reason.code: reason for reason in denial_reasons(self._reader.denials_per_code())}
        reason = known.get(code) or (_reason(code) if code in DENIALS else None)
        if reason is None:
            raise RouteNotFound("there is nothing at this path")
        found = self._reader.denials(code, before=before, limit=PAGE_SIZE + 1)
        page = found[:PAGE_SIZE]
        return DenialPage(reason, self._denials(page), _pager(len(found), before, page[-1].number if page else None))

    def _denials(self, found: Iterable[IndexedReceipt]) -> tuple[Denial, ...]:
        titles: dict[str, str] = {}
        denials: list[Denial] = []
        for one in found:
            name = one.kept.session_id
            if name not in titles:
                session = self._reader.session(name)
                titles[name] = self._title(session) if session else name
            denials.append(Denial(self._entry(one.kept), titles[name], find_meaning(one.code)))
        return tuple(denials)

    def _get_session(self, session_id: str) -> Session:
        session = self._reader.session(session_id)
        if session is None:
            raise SessionNotFound("no session has this id")
        return session

    def _check(self, kept: StoredReceipt) -> CheckedReceipt:
        """Verify a receipt; report a fault to the verifier, so that every page shows it."""
        checked = check_receipt(self._means, kept)
        if checked.receipt is None:
            self._verification.report(kept.session_id, BrokenChain(kept.seq - 1, checked.fault, "it is not genuine"))
        return checked

    def _entry(self, kept: StoredReceipt) -> ReceiptEntry:
        return build_entry(self._check(kept), self._times)

    def _card(self, session: Session, last: StoredReceipt | None = None) -> SessionCard:
        entry = self._entry(last) if last else None
        return build_card(
            session,
            mission=self._mission(session),
            source=self._reader.source_of(session.id),
            ledger_state=self._ledger_state,
            now=self._now,
            times=self._times,
            progress=self._verification.progress(session),
            last=entry,
        )

    def _title(self, session: Session) -> str:
        return session_title(session, self._mission(session), self._reader.source_of(session.id))

    def _mission(self, session: Session) -> Mission | None:
        """Return the mission of a session; None if its passport does not verify."""
        try:
            return self._means.passport_of(session).mission
        except StateCorrupt:
            return None


def _count_minutes(counts: Iterable[MinuteCount]) -> Counts:
    """Sum up counts of minutes."""
    return count_verdicts(CodeCount(one.code, one.receipts) for one in counts)


def _pager(found: int, before: int | None, last: int | None) -> Pager:
    """Return the pager of a list. `found` is one more than a page if there are older entries."""
    older = last if found > PAGE_SIZE else None
    return Pager(before is None, older=older)


def _decision_id(checked: CheckedReceipt) -> str | None:
    """Return the id of the decision receipt, if this is the receipt of an outcome."""
    ref = checked.receipt.claims.evidence_proof_ref if checked.receipt else None
    named = ref.get("receipt_id") if isinstance(ref, dict) and ref.get("type") == "remit.decision" else None
    return named if isinstance(named, str) else None


def _reason(code: str) -> DenialReason:
    """Return a denial reason with a count of 0."""
    known = denial_reasons([CodeCount(code, 1)])[0]
    return known._replace(refusals=0, share=0.0)
