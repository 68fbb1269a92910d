"""The first thing that a page says: whether anything is wrong, and how much there is of everything."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from remit.hub.dashboard.chart import tone_of
from remit.hub.dashboard.figures import number, plural
from remit.hub.dashboard.words import PUBLIC_REASONS, Meaning, meaning_of
from remit.ledger.records import CodeCount
from remit.policy.engines import DENIALS

__all__ = [
    "DONE",
    "Broken",
    "Counts",
    "Notice",
    "Reason",
    "Summary",
    "Tile",
    "Verified",
    "alarms_of",
    "counts_of",
    "reasons_of",
    "summarize",
    "tiles_of",
]


class Notice(NamedTuple):
    """One thing that needs attention, or is good to know; `to` are the parts of a page that says more, if one does."""

    tone: str
    told: str
    to: tuple[str, ...] = ()
    link: str = ""


class Summary(NamedTuple):
    """Whether anything is wrong: in a tone and one sentence, with what there is to say about it."""

    tone: str
    headline: str
    told: str
    notices: tuple[Notice, ...]


class Tile(NamedTuple):
    """One number that says a lot."""

    name: str
    value: str
    more: str
    tone: str
    to: tuple[str, ...]


class Counts(NamedTuple):
    """How many receipts of some time, or of the whole ledger, have which verdict."""

    permit: int
    deny: int
    unknown: int


class Broken(NamedTuple):
    """The sessions with a broken chain: how many there are, and some of them by id and title."""

    total: int
    listed: tuple[tuple[str, str], ...]


class Verified(NamedTuple):
    """Up to when everything was verified, as people read it; None while the first pass is not done, or unknown.

    `behind_s` is how long ago that is, `problem` why the verifier does not work.
    """

    up_to: str | None
    sessions: int
    of: int
    behind_s: int
    problem: str


class Reason(NamedTuple):
    """Why calls were refused: one denial code, with how often."""

    code: str
    meaning: Meaning
    public: str
    tone: str
    refusals: int
    share: float


_BAD: Final = "broken"


def counts_of(codes: Iterable[CodeCount]) -> Counts:
    """Return how many receipts are compliant, how many are refusals, and how many are so for want of evidence."""
    sums = {"permit": 0, "deny": 0, "unknown": 0}
    for code, count in codes:
        sums[tone_of(code)] += count
    return Counts(**sums)


def reasons_of(codes: Iterable[CodeCount]) -> tuple[Reason, ...]:
    """Return the denial codes, the most frequent first, each with its share of the most frequent one."""
    denials = sorted(((count, code) for code, count in codes if code and count), reverse=True)
    most = denials[0][0] if denials else 1
    return tuple(
        Reason(code, meaning_of(code), _public(code), tone_of(code), count, round(100 * count / most, 2))
        for count, code in denials
    )


def _public(code: str) -> str:
    return PUBLIC_REASONS[DENIALS[code][0]] if code in DENIALS else ""


def summarize(
    *,
    failing: str,
    kill_switch: bool,
    broken: Broken,
    done: Mapping[str, int],
    lately: Counts,
    active: int,
    last: str,
    verified: Verified,
) -> Summary:
    """Answer whether anything is wrong.

    `failing` says since when and why nothing can be recorded, if that is so; `done` counts, for each code of `DONE`,
    what was done in the last days although it may not be; `lately` counts the receipts of the last hour.
    """
    notices = [*_unrecorded(failing), *_killed(on=kill_switch), *_broken(broken), *_done(done)]
    serious = len(notices)
    if broken.total > len(broken.listed):
        # One notice stands for all that are not listed; each of them counts.
        serious += broken.total - len(broken.listed) - 1
    refused = lately.deny + lately.unknown
    if refused:
        notices.append(Notice("deny", _refused(refused, lately.unknown), ("denials",), "Why"))
    headline, tone = _headline(serious, refused, verified)
    working = f"{plural(active, 'session')} active" if active else "No session is active"
    return Summary(tone, headline, f"{_verified_in_words(verified)} {working}. {last}", tuple(notices))


def alarms_of(*, failing: str, broken: int) -> tuple[Notice, ...]:
    """Return what every page says, whatever else it shows."""
    told = f"{plural(broken, 'chain is', 'chains are')} broken: receipts were changed, removed, added or moved."
    return (*_unrecorded(failing), *([Notice(_BAD, told, ("overview",), "Which")] if broken else ()))


def _unrecorded(failing: str) -> list[Notice]:
    if not failing:
        return []
    told = (
        f"Nothing can be recorded since {failing}, so events are refused. "
        "“remit doctor” says what to do; this stays here until something is recorded again."
    )
    return [Notice(_BAD, told)]


def _killed(*, on: bool) -> list[Notice]:
    told = "The kill switch is on: every call is refused, and no session starts, until it is released."
    return [Notice(_BAD, told, ("denials", "kill_switch"), "What it refused")] if on else []


def _broken(broken: Broken) -> list[Notice]:
    notices = [
        Notice(_BAD, f"The chain of “{title}” is broken.", ("sessions", session_id), "Where it breaks")
        for session_id, title in broken.listed
    ]
    more = broken.total - len(broken.listed)
    if more > 0:
        told = f"{plural(more, 'more chain is', 'more chains are')} broken. “remit ledger check” names them all."
        notices.append(Notice(_BAD, told, ("sessions",), "All sessions"))
    return notices


# Refusals that stopped nothing: of what was done all the same, or was reported when it had been done.
DONE: Final[Mapping[str, tuple[str, str, str]]] = {
    "denied_but_run": ("call", "calls", "refused and made all the same"),
    "run_unasked": ("call", "calls", "made without asking"),
    "coverage_gap": ("check", "checks", "unable to find a receipt for every call"),
    "enforcement_gap": ("check", "checks", "unable to find the protection of an assistant in force"),
    "dangerous_effect": ("dangerous command", "dangerous commands", "observed, and not stopped"),
    "secret_target": ("action on what names a secret", "actions on what names a secret", "observed, and not stopped"),
}


def _done(done: Mapping[str, int]) -> list[Notice]:
    notices = []
    for code, (one, many, what) in DONE.items():
        count = done.get(code, 0)
        if count:
            told = f"{plural(count, one, many)} in the last 7 days {'was' if count == 1 else 'were'} {what}."
            notices.append(Notice(_BAD, told, ("denials", code), "Which ones"))
    return notices


def _refused(refused: int, unknown: int) -> str:
    told = f"{plural(refused, 'refusal')} in the last hour"
    if not unknown:
        return f"{told}."
    return f"{told}, {'all' if unknown == refused else number(unknown)} of them for want of evidence."


# Verification that is further behind than this is not taken for the present.
_BEHIND_S: Final = 300


def _headline(serious: int, refused: int, verified: Verified) -> tuple[str, str]:
    """Return the headline and its tone. It is good only as far as everything was verified."""
    if serious:
        return f"{plural(serious, 'thing needs', 'things need')} your attention.", _BAD
    if verified.problem:
        return "The evidence is not being verified.", "unknown"
    if verified.up_to is None:
        return "The evidence is being verified.", "unknown"
    if verified.behind_s > _BEHIND_S:
        return f"Nothing was verified after {verified.up_to}.", "unknown"
    well = f"All is well up to {verified.up_to}."
    return (f"{well} What was refused is below." if refused else well), "permit"


def _verified_in_words(verified: Verified) -> str:
    of = f"{number(verified.sessions)} of {plural(verified.of, 'session')}"
    if verified.problem:
        return f"Not verified: {verified.problem}."
    if verified.up_to is None:
        return f"Verified so far: {of}."
    return f"Verified up to {verified.up_to}, {of}."


def tiles_of(*, active: int, sessions: int, receipts: int, counts: Counts) -> tuple[Tile, ...]:
    """Return the numbers at the top of the overview."""
    decided = counts.permit + counts.deny + counts.unknown
    return (
        Tile("Sessions active", number(active), f"{number(sessions)} in all", "plain", ("sessions",)),
        Tile("Receipts", number(receipts), "signed and chained", "plain", ("sessions",)),
        Tile("Compliant", number(counts.permit), _share(counts.permit, decided), "permit", ("sessions",)),
        Tile("Refused", number(counts.deny), _share(counts.deny, decided), _tone(counts.deny, "deny"), ("denials",)),
        Tile(
            "Evidence missing",
            number(counts.unknown),
            _share(counts.unknown, decided),
            _tone(counts.unknown, "unknown"),
            ("denials",),
        ),
    )


def _tone(count: int, tone: str) -> str:
    """Return the tone of a count: nothing is no alarm."""
    return tone if count else "plain"


def _share(part: int, whole: int) -> str:
    if not whole:
        return "of none yet"
    percent = 100 * part / whole
    return "less than 1 % of receipts" if 0 < percent < 1 else f"{percent:.0f} % of receipts"
