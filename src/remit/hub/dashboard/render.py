"""Renders pages: the Jinja environment, and the headers of every page.

Invariants: a page runs no scripts and loads nothing. Its only style sheet is inline and allowed by its hash in the
content security policy. All text is escaped and made visible. Undefined names in a template are errors.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from remit.hub.dashboard.chart import HEIGHT, RANGES, WIDTH
from remit.hub.dashboard.formatting import format_number, pluralize
from remit.hub.dashboard.labels import VERDICTS
from remit.hub.dashboard.text import make_visible
from remit.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

MEDIA_TYPE: Final = "text/html; charset=utf-8"
# How often a live page refreshes itself.
REFRESH_S: Final = 5
STYLE: Final = (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = b64encode(sha256(STYLE.encode()).digest()).decode()
# Images only as data URLs: the icon is part of the page.
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", POLICY.encode("ascii")),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def render(template: str, **values: Any) -> bytes:  # noqa: ANN401 - templates are strict about what they get
    """Render a template."""
    return _environment().get_template(template).render(values).encode("utf-8")


def _finalize(value: object) -> object:
    """Make text visible. Jinja calls this with every value that a template outputs."""
    return make_visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


@cache
def _environment() -> "Environment":
    """Return the environment, made for the first page: a Hub starts faster without."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("remit.hub.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"number": format_number}
    environment.globals |= {
        "style": STYLE,
        "version": __version__,
        "plural": pluralize,
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
        "ranges": RANGES,
        "verdicts": VERDICTS,
    }
    return environment
