"""Templates to pages: the Jinja environment, and the headers that every page goes out with.

Keeps this invariant: a page runs no script and loads nothing. Its one style sheet is inlined and named by its hash in
the policy, text is escaped and made visible wherever it comes from, and a name that a template gets wrong is an error.
"""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from remit.hub.dashboard.chart import HEIGHT, RANGES, WIDTH
from remit.hub.dashboard.figures import number, plural
from remit.hub.dashboard.text import visible
from remit.hub.dashboard.words import VERDICTS
from remit.version import __version__

__all__ = ["HEADERS", "MEDIA_TYPE", "POLICY", "REFRESH_S", "STYLE", "render"]

MEDIA_TYPE: Final = "text/html; charset=utf-8"
# How often a live page is read again.
REFRESH_S: Final = 5
STYLE: Final = (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = b64encode(sha256(STYLE.encode()).digest()).decode()
# The picture in the tab is part of the page; no other picture is shown.
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
    """Return a page."""
    return _ENVIRONMENT.get_template(template).render(values).encode("utf-8")


def _seen(value: object) -> object:
    """Make text visible at the one place that everything passes which a template puts out."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("remit.hub.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"number": number}
    environment.globals |= {
        "style": STYLE,
        "version": __version__,
        "plural": plural,
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
        "ranges": RANGES,
        "verdicts": VERDICTS,
    }
    return environment


_ENVIRONMENT: Final = _environment()
