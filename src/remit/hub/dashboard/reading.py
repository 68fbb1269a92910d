"""Reading for the pages: from the ledger to the values that templates show.

Keeps this invariant: a page costs the same, however long the history is. Everything is found by key, a list has at most
one page, and a receipt is verified when it is shown, not before.
"""

from collections.abc import Iterable
from datetime import tzinfo
from typing import Final

from remit.claims.bookmark import verify_bookmark
from remit.claims.mission import Mission
from remit.errors import BrokenChain, ReceiptNotFound, RemitError, RouteNotFound, SessionNotFound, StateCorrupt
from remit.governor.clock import Moment
from remit.governor.means import Means
from remit.governor.verification import VerificationState
from remit.hub.commit_failures import CommitFailureTracker
from remit.hub.dashboard.chart import RANGES, build_chart, first_minute
from remit.hub.dashboard.entries import Checked, Entry, check, entry_of
from remit.hub.dashboard.figures import Times
from remit.hub.dashboard.paging import PAGE, Pager, seq_pager
from remit.hub.dashboard.particulars import groups_of
from remit.hub.dashboard.sessions import Card, card_of, deeds_of, limits_of, title_of
from remit.hub.dashboard.summary import (
    DONE,
    Broken,
    Counts,
    Notice,
    Reason,
    Verified,
    alarms_of,
    counts_of,
    reasons_of,
    summarize,
    tiles_of,
)
from remit.hub.dashboard.views import (
    Denial,
    DenialPage,
    DenialsPage,
    Overview,
    ReceiptPage,
    SessionPage,
    SessionsPage,
)
from remit.hub.dashboard.words import meaning_of
from remit.ledger.records import CodeCount, Kept, MinuteCount, Numbered, Session
from remit.policy.engines import DENIALS

__all__ = ["Reading"]

_SHOWN: Final = 6
_BROKEN: Final = 5
_HOUR: Final = 60
_WEEK_S: Final = 7 * 86_400


class Reading:
    """What one page reads, as of one moment."""

    def __init__(
        self,
        means: Means,
        verification: VerificationState,
        failures: CommitFailureTracker,
        now: Moment,
        zone: tzinfo | None,
    ) -> None:
        self._means = means
        self._reader = means.reader
        self._verification = verification
        self._failures = failures
        self._now = now
        self._times = Times(now.wall_s, zone)
        self._switches = means.reader.switches()

    def overview(self, chosen: str) -> Overview:
        """Read the first page; the timeline is that of the chosen range."""
        reader, span = self._reader, RANGES[chosen]
        newest = reader.latest(limit=PAGE)
        cards = self._busiest(newest, reader.latest_sessions(limit=PAGE))
        denials, last = self._denials(reader.denials(limit=_SHOWN)), self._last(newest)
        codes, whole, active = reader.codes(), reader.overview(), reader.open_sessions()
        hour = self._now.wall_s // 60 - _HOUR + 1
        first = first_minute(span, self._now.wall_s)
        summary = summarize(
            failing=self._failing(),
            kill_switch=self._switches.kill_switch,
            broken=self._broken(),
            done={code: self._of_the_week(code) for code in DONE},
            lately=_lately(reader.minutes(hour)),
            active=active,
            last=last,
            verified=self._verified(whole.sessions),
        )
        return Overview(
            summary,
            tiles_of(active=active, sessions=whole.sessions, receipts=whole.receipts, counts=counts_of(codes)),
            build_chart(reader.minutes(first, step=span.minutes), span, self._times),
            cards,
            denials,
            reasons_of(codes)[:_SHOWN],
        )

    def alarms(self) -> tuple[Notice, ...]:
        """Read what every page says. What is found broken while a page is read counts, so this comes after it."""
        return alarms_of(failing=self._failing(), broken=self._broken().total)

    def _verified(self, sessions: int) -> Verified:
        """Return up to when everything was verified, and of how many sessions."""
        summary = self._verification.summary
        if summary is None:
            return Verified(None, 0, sessions, 0, self._verification.problem)
        at = summary.verified_at
        behind = 0 if at is None else max(0, self._now.wall_s - at)
        clock = None if at is None else self._times.when(at).clock
        return Verified(clock, min(summary.sessions_verified, sessions), sessions, behind, self._verification.problem)

    def _failing(self) -> str:
        """Return since when and why nothing can be recorded; nothing while all is well."""
        failing = self._failures.failure
        return f"{self._times.when(failing.since).clock} ({failing.reason})" if failing else ""

    def _busiest(self, newest: Iterable[Numbered], started: Iterable[Session]) -> tuple[Card, ...]:
        """Return the sessions in which something happened last; after them, those that were started last."""
        last: dict[str, Kept] = {}
        for one in newest:
            last.setdefault(one.kept.session_id, one.kept)
        known = {session.id: session for session in started}
        names = list(dict.fromkeys((*last, *known)))[:_SHOWN]
        sessions = [known.get(name) or self._reader.session(name) for name in names]
        return tuple(self._card(session, last.get(session.id)) for session in sessions if session is not None)

    def _broken(self) -> Broken:
        """Return the sessions with a broken chain: those that were found here since, and those in quarantine."""
        sessions = (self._reader.session(name) for name in reversed(self._verification.faults()))
        fresh = [session for session in sessions if session is not None and not session.broken]
        listed = [*fresh, *self._reader.broken_sessions(limit=_BROKEN)][:_BROKEN]
        total = len(fresh) + self._reader.broken_count()
        return Broken(total, tuple((session.id, self._title(session)) for session in listed))

    def _of_the_week(self, code: str) -> int:
        """Return how many denials of a code are of the last days."""
        since, count = self._now.wall_s - _WEEK_S, 0
        for one in self._reader.denials(code, limit=PAGE):
            receipt = self._check(one.kept).receipt
            if receipt is not None and receipt.claims.iat < since:
                break
            count += 1
        return count

    def _last(self, newest: list[Numbered]) -> str:
        if not newest:
            return "No call was decided on yet."
        when = self._entry(newest[0].kept).when
        return f"The last receipt was signed {when.ago}." if when else "The last receipt does not verify."

    def sessions(self, before: int | None) -> SessionsPage:
        """Read a page of sessions."""
        found = self._reader.latest_sessions(before=before, limit=PAGE + 1)
        cards = tuple(self._card(session) for session in found[:PAGE])
        return SessionsPage(
            cards, _pager(len(found), before, cards[-1].number if cards else None), self._reader.overview().sessions
        )

    def session(self, session_id: str, before: int | None, *, denials: bool) -> SessionPage:
        """Read a session, with a page of its chain or of its denials."""
        session = self._found(session_id)
        if denials:
            numbered = self._reader.denials_of(session_id, before=before, limit=PAGE + 1)
            kept = [one.kept for one in numbered[:PAGE]]
            pager = _pager(len(numbered), before, kept[-1].seq if kept else None)
        else:
            after, limit, pager = seq_pager(session.length, before)
            kept = self._reader.receipts(session_id, after=after, limit=limit)[::-1]
        entries = tuple(self._entry(one) for one in kept)
        mission = self._mission(session)
        return SessionPage(
            self._card(session),
            limits_of(mission) if mission else None,
            session.parent,
            tuple(session.marks.split()),
            session.observed,
            deeds_of(self._reader.notes(session_id)),
            self._attested(session_id),
            entries,
            pager,
        )

    def _attested(self, session_id: str) -> int:
        """Return up to which receipt the chain was attested; a bookmark that is not ours says nothing."""
        token = self._reader.bookmark(session_id)
        try:
            return verify_bookmark(token, self._means.keys.keyring())[0].length if token else 0
        except RemitError:
            return 0

    def receipt(self, receipt_id: str) -> ReceiptPage:
        """Read a receipt, and which one holds the outcome of its call."""
        kept = self._reader.receipt(receipt_id)
        if kept is None:
            raise ReceiptNotFound("no receipt has this id")
        session = self._found(kept.session_id)
        checked = self._check(kept)
        result = self._reader.result_of(receipt_id)
        return ReceiptPage(
            entry_of(checked, self._times),
            self._title(session),
            session.length,
            groups_of(checked.receipt, self._times) if checked.receipt else (),
            kept.token,
            self._neighbour(kept, -1),
            self._neighbour(kept, 1),
            result.receipt_id if result else None,
            _decision_of(checked),
        )

    def _neighbour(self, kept: Kept, step: int) -> str | None:
        wanted = kept.seq + step
        found = self._reader.receipts(kept.session_id, after=wanted - 1, limit=1) if wanted > 0 else []
        return found[0].receipt_id if found and found[0].seq == wanted else None

    def denials(self) -> DenialsPage:
        """Read how often calls were refused, and why; and for what else they can be."""
        reasons = reasons_of(self._reader.codes())
        there = {reason.code for reason in reasons}
        others = [_reason(code) for code in DENIALS if code not in there]
        return DenialsPage(reasons, tuple(others), sum(reason.refusals for reason in reasons))

    def denials_of(self, code: str, before: int | None) -> DenialPage:
        """Read the calls that were refused for one reason."""
        known = {reason.code: reason for reason in reasons_of(self._reader.codes())}
        reason = known.get(code) or (_reason(code) if code in DENIALS else None)
        if reason is None:
            raise RouteNotFound("nothing is at this path")
        found = self._reader.denials(code, before=before, limit=PAGE + 1)
        page = found[:PAGE]
        return DenialPage(reason, self._denials(page), _pager(len(found), before, page[-1].number if page else None))

    def _denials(self, found: Iterable[Numbered]) -> tuple[Denial, ...]:
        titles: dict[str, str] = {}
        denials: list[Denial] = []
        for one in found:
            name = one.kept.session_id
            if name not in titles:
                session = self._reader.session(name)
                titles[name] = self._title(session) if session else name
            denials.append(Denial(self._entry(one.kept), titles[name], meaning_of(one.code)))
        return tuple(denials)

    def _found(self, session_id: str) -> Session:
        session = self._reader.session(session_id)
        if session is None:
            raise SessionNotFound("no session has this id")
        return session

    def _check(self, kept: Kept) -> Checked:
        """Verify a receipt; that it is not genuine is for every page to know."""
        checked = check(self._means, kept)
        if checked.receipt is None:
            self._verification.report(kept.session_id, BrokenChain(kept.seq - 1, checked.fault, "it is not genuine"))
        return checked

    def _entry(self, kept: Kept) -> Entry:
        return entry_of(self._check(kept), self._times)

    def _card(self, session: Session, last: Kept | None = None) -> Card:
        entry = self._entry(last) if last else None
        return card_of(
            session,
            mission=self._mission(session),
            source=self._reader.source_of(session.id),
            switches=self._switches,
            now=self._now,
            times=self._times,
            progress=self._verification.progress(session),
            last=entry,
        )

    def _title(self, session: Session) -> str:
        return title_of(session, self._mission(session), self._reader.source_of(session.id))

    def _mission(self, session: Session) -> Mission | None:
        """Return what a session was asked to do; nothing where its passport does not verify."""
        try:
            return self._means.passport_of(session).mission
        except StateCorrupt:
            return None


def _lately(counts: Iterable[MinuteCount]) -> Counts:
    """Return what was decided in some minutes."""
    return counts_of(CodeCount(one.code, one.receipts) for one in counts)


def _pager(found: int, before: int | None, last: int | None) -> Pager:
    """Return where a list stands that was read up to one more than it shows."""
    older = last if found > PAGE else None
    return Pager(before is None, older=older)


def _decision_of(checked: Checked) -> str | None:
    """Return the id of the decision whose outcome a receipt holds."""
    ref = checked.receipt.claims.evidence_proof_ref if checked.receipt else None
    named = ref.get("receipt_id") if isinstance(ref, dict) and ref.get("type") == "remit.decision" else None
    return named if isinstance(named, str) else None


def _reason(code: str) -> Reason:
    """Return a reason for which nothing was refused yet."""
    known = reasons_of([CodeCount(code, 1)])[0]
    return known._replace(refusals=0, share=0.0)
