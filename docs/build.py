"""Write the generated pages, and check all pages: `python docs/build.py [--check]`.

Generated: docs/errors.md, from the error tree. Checked: generated pages are up to date, relative links lead
somewhere, code blocks name their language.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remit.errors import RemitError

ROOT: Final = Path(__file__).parent.parent
ERRORS_PAGE: Final = ROOT / "docs" / "errors.md"
SKIPPED: Final = {".venv", ".git", "node_modules", ".pytest_cache", ".hypothesis"}

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^\s*```(.*)$", re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def errors_page() -> str:
    """Return the page of all error codes, family by family."""
    lines = [
        "# Error codes",
        "",
        "Every error has a `code`. Codes are contract: they do not change. Messages are for people, and may.",
        "This page is made from `src/remit/errors.py` by `make docs`.",
    ]
    for family in RemitError.__subclasses__():
        lines += ["", f"## {family.__name__}", "", f"{_summary(family)}", ""]
        lines += ["| code | error | means |", "|---|---|---|"]
        lines += [
            f"| `{leaf.code}` | `{leaf.__name__}` | {_summary(leaf)} |" for leaf in [family, *family.__subclasses__()]
        ]
    return "\n".join(lines) + "\n"


def _summary(error: type[RemitError]) -> str:
    return (error.__doc__ or "").partition("\n")[0].strip().replace("|", "\\|")


def pages() -> list[Path]:
    """Return every Markdown page of the project."""
    return sorted(page for page in ROOT.rglob("*.md") if not SKIPPED & set(page.relative_to(ROOT).parts))


def problems() -> Iterator[str]:
    """Yield what is wrong with the pages, one line each."""
    if not ERRORS_PAGE.exists() or ERRORS_PAGE.read_text(encoding="utf-8") != errors_page():
        yield "docs/errors.md is not up to date: run make docs"
    for page in pages():
        name, text = page.relative_to(ROOT), page.read_text(encoding="utf-8")
        for target, anchor in _LINK.findall(text):
            yield from (f"{name}: {fault}" for fault in _link_problems(page, target, anchor))
        fences = _FENCE.findall(text)
        if len(fences) % 2 or not all(fences[::2]):
            yield f"{name}: a code block is open, or names no language"


def _link_problems(page: Path, target: str, anchor: str) -> Iterator[str]:
    place = (page.parent / target).resolve() if target else page
    if not place.exists():
        yield f"no such file: {target}"
    elif anchor and anchor[1:] not in _anchors(place):
        yield f"no such heading: {target}{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main() -> int:
    """Write or check, and say how it went."""
    if "--check" not in sys.argv:
        ERRORS_PAGE.write_text(errors_page(), encoding="utf-8")
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"docs: {len(pages())} pages, {len(found)} problems, {errors_page().count(chr(10) + '| `')} error codes")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
