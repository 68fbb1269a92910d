"""The dashboard in a real browser: it opens, it leads everywhere, it runs nothing, and it reads well.

The Hub is the real one, over a home in which a day has gone by. With REMIT_SCREENSHOTS, pictures of five pages are left
in the folder that it names.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from remit.hub.dashboard.text import make_visible
from tests.governor.places import SqlitePlace
from tests.governor.world import Service, SetClock
from tests.hub.scenes import ATTACKS, DAY_S, attacked, furnish
from tests.hub.service import Hub, running

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REQUIRED = os.environ.get("REMIT_BROWSER") == "required"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not REQUIRED, reason="no chromium is installed; REMIT_BROWSER=required makes this a failure"
)

DESKTOP = {"width": 1200, "height": 900}
PHONE = {"width": 360, "height": 780}
PATIENCE_MS = 60_000.0
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class Visit:
    """A browser at the dashboard, and whatever went wrong there."""

    page: Page
    hub: Hub
    troubles: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda said: self.troubles.append(said.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("requestfailed", lambda request: self.troubles.append(request.url))
        self.page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("response", lambda response: self.answered.append(response.url))

    def enter(self, path: str = "/dashboard", query: str = "live=off") -> None:
        """Open the dashboard by its token."""
        answer = self.page.goto(f"{self.hub.url}{path}?token={self.hub.token}&{query}")
        assert answer is not None
        assert answer.status == 200

    def go(self, path: str) -> None:
        """Open a page below the dashboard, which the cookie opens."""
        answer = self.page.goto(f"{self.hub.url}/dashboard/{path}")
        assert answer is not None
        assert (path, answer.status) == (path, 200)

    def links(self) -> list[str]:
        """Return where the page leads, below the dashboard."""
        found: list[str] = self.page.eval_on_selector_all(
            "a[href^='/dashboard/']", "them => them.map(one => one.getAttribute('href').slice('/dashboard/'.length))"
        )
        return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A Hub at which a day has gone by."""
    folder = tmp_path_factory.mktemp("day")
    clock = SetClock(wall_ms=time.time_ns() // 1_000_000 - DAY_S * 1000)
    with Service(SqlitePlace(folder), clock=clock) as service:
        furnish(service)
    with running(folder / "home") as built:
        yield built


@pytest.fixture
def attacked_hub(tmp_path: Path) -> Iterator[Hub]:
    """A Hub to which every attack was reported."""
    with Service(SqlitePlace(tmp_path), clock=SetClock(wall_ms=time.time_ns() // 1_000_000)) as service:
        attacked(service)
    with running(tmp_path / "home") as built:
        yield built


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "REMIT_BROWSER=required, and no chromium is installed"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        built = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield built
        built.close()


@contextmanager
def visiting(browser: Browser, hub: Hub, **options: Any) -> Iterator[Visit]:
    context: BrowserContext = browser.new_context(**{"viewport": DESKTOP, **options})
    try:
        yield Visit(context.new_page(), hub)
    finally:
        context.close()


@pytest.fixture
def visit(browser: Browser, hub: Hub) -> Iterator[Visit]:
    """A browser at the overview; nothing may go wrong there."""
    with visiting(browser, hub) as built:
        built.enter()
        yield built
        assert built.troubles == []


@pytest.fixture(scope="module")
def addresses(browser: Browser, hub: Hub) -> dict[str, str]:
    """One address of every kind of page, as links of the pages name them."""
    with visiting(browser, hub) as visit:
        visit.enter()
        session = visit.page.get_by_role("link", name="Make the date parser").first.get_attribute("href") or ""
        session = session.removeprefix("/dashboard/")
        visit.go(session)
        receipt = visit.page.locator(".entry.deny .what").first.get_attribute("href") or ""
    return {
        "overview": "overview?live=off",
        "sessions": "sessions?live=off",
        "session": session,
        "receipt": receipt.removeprefix("/dashboard/"),
        "denials": "denials?live=off",
        "denial": "denials/out_of_scope?live=off",
    }


def test_the_token_opens_the_dashboard_and_is_in_no_page(visit: Visit, hub: Hub) -> None:
    assert visit.page.get_by_role("heading", level=1).count() == 1
    assert hub.token not in visit.page.content()
    visit.page.get_by_role("link", name="Sessions", exact=True).click()
    assert visit.page.url == f"{hub.url}/dashboard/sessions?live=off"
    assert hub.token not in visit.page.content()


def test_without_the_token_there_is_no_page(browser: Browser, hub: Hub) -> None:
    with visiting(browser, hub) as visit:
        for path in ("/", "/dashboard", "/dashboard/overview", "/dashboard/sessions"):
            answer = visit.page.goto(hub.url + path)
            assert answer is not None
            assert answer.status == 401


def test_every_link_of_every_page_leads_to_a_page(visit: Visit) -> None:
    ahead, known = ["overview?live=off"], {"overview?live=off"}
    kinds: dict[str, int] = {}
    while ahead:
        path = ahead.pop(0)
        kind = path.partition("?")[0].partition("/")[0] + ("/" if "/" in path.partition("?")[0] else "")
        kinds[kind] = kinds.get(kind, 0) + 1
        # A few of each kind, and all of what is there once.
        if kinds[kind] > 8:
            continue
        visit.go(path)
        new = [link for link in visit.links() if link not in known]
        known.update(new)
        ahead += new
    assert kinds.keys() == {"overview", "sessions", "sessions/", "receipts/", "denials", "denials/"}


def test_people_get_everywhere_by_clicking(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("link", name="All sessions").click()
    page.get_by_role("link", name="Make the date parser").first.click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("Make the date parser")
    page.get_by_role("link", name="Denials only").click()
    assert page.get_by_text("✓ PERMIT").count() == 0
    page.locator(".entry .what").first.click()
    assert page.get_by_text("The signature verifies.").is_visible()
    page.get_by_role("link", name="Parent").click()
    page.get_by_role("link", name="Denials", exact=True).click()
    page.get_by_role("link", name="Outside the scope").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Outside the scope"


def test_nothing_is_loaded_but_the_pages_themselves(visit: Visit, hub: Hub, addresses: dict[str, str]) -> None:
    for path in addresses.values():
        visit.go(path)
    assert not [url for url in visit.asked if not url.startswith((hub.url + "/dashboard", "data:image/svg+xml,"))]


def test_pictures_are_taken(browser: Browser, hub: Hub, addresses: dict[str, str], tmp_path: Path) -> None:
    folder = Path(os.environ.get("REMIT_SCREENSHOTS") or tmp_path)
    shots = (
        ("overview", "light", {"width": 1200, "height": 1040}),
        ("sessions", "dark", DESKTOP),
        ("session", "dark", {"width": 1200, "height": 1040}),
        ("receipt", "light", DESKTOP),
        ("denials", "light", DESKTOP),
    )
    for name, scheme, size in shots:
        with visiting(browser, hub, viewport=size, color_scheme=scheme) as visit:
            visit.enter()
            visit.go(addresses[name].replace("live=off", "live=on"))
            path = folder / f"{name}-{scheme}.png"
            visit.page.screenshot(path=path)
            assert 5_000 < path.stat().st_size < 400_000


def test_an_injected_script_does_not_run(browser: Browser, hub: Hub) -> None:
    with visiting(browser, hub) as visit:
        visit.enter()
        outcome = visit.page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = 'window.owned = 1';
                document.body.append(script);
                document.body.insertAdjacentHTML('beforeend',
                    '<p id=styled style="position:fixed">x</p><img src="/dashboard/x.png" onerror="window.owned=2">'
                    + '<iframe src="/dashboard/overview"></iframe><style>#styled{opacity:0}</style>');
                return new Promise(done => setTimeout(() => {
                    const style = getComputedStyle(document.getElementById('styled'));
                    done([window.owned ?? null, style.position, style.opacity]);
                }, 200));
            }"""
        )
        assert outcome == [None, "static", "1"]
        assert any("Content Security Policy" in trouble for trouble in visit.troubles)
        assert not [url for url in visit.answered if not url.startswith(f"{hub.url}/dashboard?token=")]


def test_whatever_agents_write_is_shown_as_text(browser: Browser, attacked_hub: Hub) -> None:
    with visiting(browser, attacked_hub, viewport=PHONE) as visit:
        visit.enter()
        visit.go("sessions?live=off")
        ahead = [link for link in visit.links() if link.startswith("sessions")]
        shown = ""
        for path in (*ahead, "denials/tool_not_allowed?live=off"):
            visit.go(path)
            shown += visit.page.locator("body").inner_text()
            assert visit.page.title().endswith(" · Remit")
            assert visit.page.evaluate("document.scripts.length + document.images.length") == 0
            assert (path, visit.page.evaluate(OVERFLOW)) == (path, 0)
        for attack in ATTACKS:
            assert make_visible(attack) in shown
        assert visit.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_scrolls_sideways_on_a_phone(
    browser: Browser, hub: Hub, addresses: dict[str, str], scheme: Any
) -> None:
    with visiting(browser, hub, viewport=PHONE, color_scheme=scheme) as visit:
        visit.enter()
        for path in addresses.values():
            visit.go(path)
            assert (path, visit.page.evaluate(OVERFLOW)) == (path, 0)


LUMINANCE = """
const channel = value => (value /= 255) <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
const luminance = ([red, green, blue]) => .2126 * channel(red) + .7152 * channel(green) + .0722 * channel(blue);
const parts = colour => colour.match(/[\\d.]+/g).map(Number);
const behind = element => {
    for (let one = element; one; one = one.parentElement) {
        const found = parts(getComputedStyle(one).backgroundColor);
        if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
};
"""
CONTRASTS = (
    "() => {"
    + LUMINANCE
    + """
    const poor = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest('svg')) continue;
        const style = getComputedStyle(element);
        const [one, two] = [luminance(parts(style.color)), luminance(behind(element))];
        const ratio = (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
        if (ratio < 4.5) poor.push([walker.currentNode.data.trim().slice(0, 40), style.color, ratio.toFixed(2)]);
    }
    return poor;
}"""
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_ground(
    browser: Browser, hub: Hub, addresses: dict[str, str], scheme: Any
) -> None:
    with visiting(browser, hub, color_scheme=scheme) as visit:
        visit.enter()
        for path in addresses.values():
            visit.go(path)
            assert (path, visit.page.evaluate(CONTRASTS)) == (path, [])


def test_dark_is_dark_and_light_is_light(browser: Browser, hub: Hub) -> None:
    ask = "() => {" + LUMINANCE + "return luminance(parts(getComputedStyle(document.body).backgroundColor)); }"
    grounds = {}
    for scheme in ("light", "dark"):
        with visiting(browser, hub, color_scheme=scheme) as visit:
            visit.enter()
            grounds[scheme] = visit.page.evaluate(ask)
    assert grounds["dark"] < 0.02
    assert grounds["light"] > 0.9


def test_everything_works_without_scripts(browser: Browser, hub: Hub) -> None:
    with visiting(browser, hub, java_script_enabled=False) as visit:
        visit.enter()
        visit.page.get_by_text("The same as a table").click()
        assert visit.page.get_by_role("columnheader", name="Evidence missing").is_visible()
        visit.page.get_by_role("link", name="Last hour").click()
        visit.page.get_by_role("link", name="All reasons").click()
        assert visit.page.get_by_role("heading", level=1).inner_text() == "Denials"
        assert visit.troubles == []


def test_a_live_page_renews_itself_at_its_own_address(browser: Browser, hub: Hub) -> None:
    with visiting(browser, hub) as visit:
        visit.enter(query="live=on")
        visit.go("overview?range=hour")
        with visit.page.expect_event("load"):
            hub.observe("Seen while somebody looks")
        # It may have been renewed a moment before.
        visit.page.get_by_text("Seen while somebody looks").first.wait_for()
        assert visit.page.url == f"{hub.url}/dashboard/overview?range=hour"


def test_the_keyboard_shows_where_it_is(visit: Visit) -> None:
    for _ in range(6):
        visit.page.keyboard.press("Tab")
        outline = visit.page.evaluate(
            "() => { const style = getComputedStyle(document.activeElement);"
            " return [document.activeElement.tagName, style.outlineStyle, parseFloat(style.outlineWidth)]; }"
        )
        assert outline[0] == "A"
        assert outline[1] == "solid"
        assert outline[2] >= 2


def test_nothing_moves_for_those_who_ask_for_that(browser: Browser, hub: Hub) -> None:
    with visiting(browser, hub, reduced_motion="reduce") as visit:
        visit.enter(query="live=on")
        assert visit.page.evaluate("document.getAnimations().length") == 0
