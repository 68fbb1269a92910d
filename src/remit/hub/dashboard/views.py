"""The values of each page. `page_reader.py` reads them, and the template of the page renders them."""

from typing import NamedTuple

from remit.hub.dashboard.chart import Chart
from remit.hub.dashboard.entries import ReceiptEntry
from remit.hub.dashboard.labels import Meaning
from remit.hub.dashboard.paging import Pager
from remit.hub.dashboard.receipt_fields import FieldGroup
from remit.hub.dashboard.sessions import PassportLimits, ReviewAction, SessionCard
from remit.hub.dashboard.summary import DenialReason, Summary, Tile


class Denial(NamedTuple):
    """A denial with the title of its session."""

    entry: ReceiptEntry
    title: str
    meaning: Meaning


class OverviewPage(NamedTuple):
    """The overview."""

    summary: Summary
    tiles: tuple[Tile, ...]
    chart: Chart
    cards: tuple[SessionCard, ...]
    denials: tuple[Denial, ...]
    reasons: tuple[DenialReason, ...]


class SessionsPage(NamedTuple):
    """A page of sessions, newest first."""

    cards: tuple[SessionCard, ...]
    pager: Pager
    sessions: int


class SessionPage(NamedTuple):
    """One session with a page of its chain, newest first."""

    card: SessionCard
    limits: PassportLimits | None
    parent: str | None
    labels: tuple[str, ...]
    observed: int
    actions: tuple[ReviewAction, ...]
    # The last receipt that an attestation of a whole chain covers.
    attested: int
    entries: tuple[ReceiptEntry, ...]
    pager: Pager


class ReceiptPage(NamedTuple):
    """One receipt with its neighbours. Without groups, it does not verify."""

    entry: ReceiptEntry
    title: str
    length: int
    groups: tuple[FieldGroup, ...]
    token: str
    parent: str | None
    child: str | None
    result: str | None
    decision: str | None


class DenialsPage(NamedTuple):
    """All denial codes."""

    reasons: tuple[DenialReason, ...]
    others: tuple[DenialReason, ...]
    total: int


class DenialPage(NamedTuple):
    """One denial code, with a page of its denials, newest first."""

    reason: DenialReason
    denials: tuple[Denial, ...]
    pager: Pager
