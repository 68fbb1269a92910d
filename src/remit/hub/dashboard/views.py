"""What each page shows, as values: filled in by `reading.py`, and drawn by the template of the same page."""

from typing import NamedTuple

from remit.hub.dashboard.chart import Chart
from remit.hub.dashboard.entries import Entry
from remit.hub.dashboard.paging import Pager
from remit.hub.dashboard.particulars import Group
from remit.hub.dashboard.sessions import Card, Deed, Limits
from remit.hub.dashboard.summary import Reason, Summary, Tile
from remit.hub.dashboard.words import Meaning

__all__ = ["Denial", "DenialPage", "DenialsPage", "Overview", "ReceiptPage", "SessionPage", "SessionsPage"]


class Denial(NamedTuple):
    """A refusal with the session it belongs to."""

    entry: Entry
    title: str
    meaning: Meaning


class Overview(NamedTuple):
    """The first page."""

    summary: Summary
    tiles: tuple[Tile, ...]
    chart: Chart
    cards: tuple[Card, ...]
    denials: tuple[Denial, ...]
    reasons: tuple[Reason, ...]


class SessionsPage(NamedTuple):
    """A page of sessions, newest first."""

    cards: tuple[Card, ...]
    pager: Pager
    sessions: int


class SessionPage(NamedTuple):
    """One session with a page of its chain, newest first."""

    card: Card
    limits: Limits | None
    parent: str | None
    labels: tuple[str, ...]
    observed: int
    deeds: tuple[Deed, ...]
    # How far its last attestation with a whole chain goes.
    attested: int
    entries: tuple[Entry, ...]
    pager: Pager


class ReceiptPage(NamedTuple):
    """One receipt with its neighbours; without groups it does not verify."""

    entry: Entry
    title: str
    length: int
    groups: tuple[Group, ...]
    token: str
    parent: str | None
    child: str | None
    result: str | None
    decision: str | None


class DenialsPage(NamedTuple):
    """Every reason for which calls were refused."""

    reasons: tuple[Reason, ...]
    others: tuple[Reason, ...]
    total: int


class DenialPage(NamedTuple):
    """One reason, with a page of the calls that were refused for it, newest first."""

    reason: Reason
    denials: tuple[Denial, ...]
    pager: Pager
