"""The summary of the overview: alerts, counts, and denial reasons."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from remit.hub.dashboard.chart import get_tone
from remit.hub.dashboard.formatting import format_number, pluralize
from remit.hub.dashboard.labels import PUBLIC_REASONS, Meaning, find_meaning
from remit.ledger.records import CodeCount
from remit.policy.engines import DENIALS


class Alert(NamedTuple):
    """One sentence about something that needs attention. `to` is the path of a page with details, if there is one."""

    tone: str
    text: str
    to: tuple[str, ...] = ()
    link: str = ""


class Summary(NamedTuple):
    """The headline of the overview with its tone, further text, and the alerts."""

    tone: str
    headline: str
    text: str
    alerts: tuple[Alert, ...]


class Tile(NamedTuple):
    """One number at the top of the overview."""

    name: str
    value: str
    more: str
    tone: str
    to: tuple[str, ...]


class Counts(NamedTuple):
    """Numbers of receipts by verdict."""

    permit: int
    deny: int
    unknown: int


class BrokenChains(NamedTuple):
    """Sessions with a broken chain: their number, and the id and title of some of them."""

    total: int
    listed: tuple[tuple[str, str], ...]


class VerificationProgress(NamedTuple):
    """The progress of the verifier. `up_to` is the time up to which everything was verified, None if that is not known.

    `sessions` `of` all were verified. `behind_s` is how long ago `up_to` is, `problem` why the verifier does not work.
    """

    up_to: str | None
    sessions: int
    of: int
    behind_s: int
    problem: str


class DenialReason(NamedTuple):
    """A denial code with its number of denials."""

    code: str
    meaning: Meaning
    public: str
    tone: str
    refusals: int
    share: float


_BAD: Final = "broken"


def count_verdicts(codes: Iterable[CodeCount]) -> Counts:
    """Return the numbers of compliant receipts, of denials, and of denials for missing evidence."""
    sums = {"permit": 0, "deny": 0, "unknown": 0}
    for code, count in codes:
        sums[get_tone(code)] += count
    return Counts(**sums)


def denial_reasons(codes: Iterable[CodeCount]) -> tuple[DenialReason, ...]:
    """Return the denial codes, most frequent first, each with its percentage of the most frequent one."""
    denials = sorted(((count, code) for code, count in codes if code and count), reverse=True)
    most = denials[0][0] if denials else 1
    return tuple(
        DenialReason(code, find_meaning(code), _public(code), get_tone(code), count, round(100 * count / most, 2))
        for count, code in denials
    )


def _public(code: str) -> str:
    return PUBLIC_REASONS[DENIALS[code][0]] if code in DENIALS else ""


def summarize(
    *,
    failure: str,
    kill_switch: bool,
    broken: BrokenChains,
    done: Mapping[str, int],
    last_hour: Counts,
    active: int,
    last: str,
    verified: VerificationProgress,
) -> Summary:
    """Return the summary of the overview.

    `failure` is since when and why commits fail, if they do. `done` has the counts of the last week for each code of
    `NOT_PREVENTED`. `last_hour` has the counts of the last hour.
    """
    alerts = [
        *_commit_alerts(failure),
        *_kill_switch_alerts(on=kill_switch),
        *_broken_alerts(broken),
        *_not_prevented_alerts(done),
    ]
    serious = len(alerts)
    if broken.total > len(broken.listed):
        # One alert for all chains that are not listed; each of them counts.
        serious += broken.total - len(broken.listed) - 1
    refused = last_hour.deny + last_hour.unknown
    if refused:
        alerts.append(Alert("deny", _describe_refusals(refused, last_hour.unknown), ("denials",), "Why"))
    headline, tone = _headline(serious, refused, verified)
    working = f"{pluralize(active, 'session')} active" if active else "No session is active"
    return Summary(tone, headline, f"{_describe_progress(verified)} {working}. {last}", tuple(alerts))


def page_alerts(*, failure: str, broken: int) -> tuple[Alert, ...]:
    """Return the alerts that every page shows."""
    text = f"{pluralize(broken, 'chain is', 'chains are')} broken: receipts were changed, removed, added or moved."
    return (*_commit_alerts(failure), *([Alert(_BAD, text, ("overview",), "Which")] if broken else ()))


def _commit_alerts(failure: str) -> list[Alert]:
    if not failure:
        return []
    text = (
        f"Nothing can be recorded since {failure}, so events are refused. "
        "Run “remit doctor” for advice; this stays here until something is recorded again."
    )
    return [Alert(_BAD, text)]


def _kill_switch_alerts(*, on: bool) -> list[Alert]:
    text = "The kill switch is on: every call is refused, and no session starts, until it is released."
    return [Alert(_BAD, text, ("denials", "kill_switch"), "What it refused")] if on else []


def _broken_alerts(broken: BrokenChains) -> list[Alert]:
    alerts = [
        Alert(_BAD, f"The chain of “{title}” is broken.", ("sessions", session_id), "Where it breaks")
        for session_id, title in broken.listed
    ]
    more = broken.total - len(broken.listed)
    if more > 0:
        text = f"{pluralize(more, 'more chain is', 'more chains are')} broken. “remit ledger check” names them all."
        alerts.append(Alert(_BAD, text, ("sessions",), "All sessions"))
    return alerts


# Denials of actions that were done all the same, or were reported after they had been done.
NOT_PREVENTED: Final[Mapping[str, tuple[str, str, str]]] = {
    "denied_but_run": ("call", "calls", "refused and made all the same"),
    "run_unasked": ("call", "calls", "made without asking"),
    "coverage_gap": ("check", "checks", "unable to find a receipt for every call"),
    "enforcement_gap": ("check", "checks", "unable to find the protection of an assistant in force"),
    "dangerous_effect": ("dangerous command", "dangerous commands", "observed, and not stopped"),
    "secret_target": ("action on what names a secret", "actions on what names a secret", "observed, and not stopped"),
}


def _not_prevented_alerts(done: Mapping[str, int]) -> list[Alert]:
    alerts = []
    for code, (one, many, what) in NOT_PREVENTED.items():
        count = done.get(code, 0)
        if count:
            text = f"{pluralize(count, one, many)} in the last 7 days {'was' if count == 1 else 'were'} {what}."
            alerts.append(Alert(_BAD, text, ("denials", code), "Which ones"))
    return alerts


def _describe_refusals(refused: int, unknown: int) -> str:
    text = f"{pluralize(refused, 'refusal')} in the last hour"
    if not unknown:
        return f"{text}."
    return f"{text}, {'all' if unknown == refused else format_number(unknown)} of them for want of evidence."


# If the verifier is further behind than this, the headline shows it.
_BEHIND_S: Final = 300


def _headline(serious: int, refused: int, verified: VerificationProgress) -> tuple[str, str]:
    """Return the headline and its tone. It reports no problems only up to the time that was verified."""
    if serious:
        return f"{pluralize(serious, 'thing needs', 'things need')} your attention.", _BAD
    if verified.problem:
        return "The evidence is not being verified.", "unknown"
    if verified.up_to is None:
        return "The evidence is being verified.", "unknown"
    if verified.behind_s > _BEHIND_S:
        return f"Nothing was verified after {verified.up_to}.", "unknown"
    well = f"All is well up to {verified.up_to}."
    return (f"{well} What was refused is below." if refused else well), "permit"


def _describe_progress(verified: VerificationProgress) -> str:
    of = f"{format_number(verified.sessions)} of {pluralize(verified.of, 'session')}"
    if verified.problem:
        return f"Not verified: {verified.problem}."
    if verified.up_to is None:
        return f"Verified so far: {of}."
    return f"Verified up to {verified.up_to}, {of}."


def build_tiles(*, active: int, sessions: int, receipts: int, counts: Counts) -> tuple[Tile, ...]:
    """Return the numbers at the top of the overview."""
    decided = counts.permit + counts.deny + counts.unknown
    return (
        Tile("Sessions active", format_number(active), f"{format_number(sessions)} in all", "plain", ("sessions",)),
        Tile("Receipts", format_number(receipts), "signed and chained", "plain", ("sessions",)),
        Tile("Compliant", format_number(counts.permit), _share(counts.permit, decided), "permit", ("sessions",)),
        Tile(
            "Refused",
            format_number(counts.deny),
            _share(counts.deny, decided),
            _tone(counts.deny, "deny"),
            ("denials",),
        ),
        Tile(
            "Evidence missing",
            format_number(counts.unknown),
            _share(counts.unknown, decided),
            _tone(counts.unknown, "unknown"),
            ("denials",),
        ),
    )


def _tone(count: int, tone: str) -> str:
    """Return the tone of a count; `plain` for 0."""
    return tone if count else "plain"


def _share(part: int, whole: int) -> str:
    if not whole:
        return "of none yet"
    percent = 100 * part / whole
    return "less than 1 % of receipts" if 0 < percent < 1 else f"{percent:.0f} % of receipts"
