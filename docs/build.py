"""Write the generated pages, and check all pages: `python docs/build.py [--check]`.

Generated: docs/reference/errors.md from the error tree, docs/integrate/api.md from the descriptions that the proxy and
the Hub serve. Checked: generated pages are up to date, relative links lead somewhere, code blocks name their language.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from remit.assistants.routes import documented_routes as hook_routes
from remit.errors import RemitError
from remit.hub.routes import describe_hub
from remit.hub.routes import documented_routes as hub_routes
from remit.proxy.routes import describe_proxy
from remit.proxy.routes import documented_routes as proxy_routes

ROOT: Final = Path(__file__).parent.parent
ERRORS_PAGE: Final = ROOT / "docs" / "reference" / "errors.md"
API_PAGE: Final = ROOT / "docs" / "integrate" / "api.md"
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
        lines += [f"| `{one.code}` | `{one.__name__}` | {_summary(one)} |" for one in _with_all_below(family)]
    return "\n".join(lines) + "\n"


def _with_all_below(error: type[RemitError]) -> Iterator[type[RemitError]]:
    yield error
    for below in error.__subclasses__():
        yield from _with_all_below(below)


def _summary(error: type[RemitError]) -> str:
    return (error.__doc__ or "").partition("\n")[0].strip().replace("|", "\\|")


def api_page() -> str:
    """Return the page of every route of both services, with what goes in and what comes out."""
    told = _Told(set(), {})
    lines = [
        "# API",
        "",
        "Every route of [the governance proxy](#the-governance-proxy) and of [the Personal Hub](#the-personal-hub),",
        "with every member. Each serves its part as OpenAPI 3.1 (`/openapi.json`, `/v1/openapi.json`). How to work",
        "with them, with examples, is in [proxy.md](proxy.md) and [hub.md](hub.md). This page is made from",
        "those descriptions by `make docs`.",
        "",
        "An answer may grow members.",
    ]
    for title, rule, document in _SERVICES:
        lines += ["", f"## {title}", "", rule, *_routes(document, told)]
    lines += ["", "## Types"]
    for name in sorted(told.schemas.keys() - told.inline - {"ErrorAnswer"} | {"SessionAnswer"}):
        schema = told.schemas[name]
        lines += ["", f"### {name}", "", _told_in(name, schema["description"]), "", *_members(schema)]
    lines += ["", "## Errors", "", "Every error has `ok` (false), `error` (for people) and `error_code`.", ""]
    return "\n".join([*lines, *_errors(_SERVICES[0].document["components"]["responses"])]) + "\n"


class _Service(NamedTuple):
    """One part of the page."""

    title: str
    rule: str
    document: Mapping[str, Any]


_SERVICES: Final = (
    _Service(
        "The governance proxy",
        "A request with a member that is not listed is refused.",
        describe_proxy(proxy_routes()),
    ),
    _Service(
        "The Personal Hub",
        "Of a request, a member that is not listed is left out, but for a mission, where it is refused; `null` is as\n"
        "good as absent. What the pages show is told in [dashboard.md](../start/dashboard.md).",
        describe_hub([*hub_routes(), *hook_routes()]),
    ),
)


_PAGE: Final = "text/html"


class _Told(NamedTuple):
    """What the page has told by now: the types that stand with their route, and all types by name."""

    inline: set[str]
    schemas: dict[str, dict[str, Any]]


def _routes(document: Mapping[str, Any], told: _Told) -> list[str]:
    """Return the routes of one service: all in a table, then each by itself, but for pages."""
    schemas: Schemas = document["components"]["schemas"]
    lines = ["", "| route | what for | for whom |", "|---|---|---|"]
    details: list[str] = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            heading = _heading(document, f"{method.upper()} {path}", path)
            shown = heading
            if _PAGE not in operation["responses"]["200"]["content"]:
                shown = f"[{heading}](#{_anchor(heading)})"
                details += ["", f"### {heading}", "", *_operation(operation, schemas, told.inline)]
            lines.append(f"| {shown} | {operation['summary']} | {_who(operation)} |")
    told.schemas.update(schemas)
    return [*lines, *details]


def _heading(document: Mapping[str, Any], heading: str, path: str) -> str:
    """Return the heading of a route; one that an earlier service has too says whose it is."""
    first = _SERVICES[0].document
    return f"{heading} of the Hub" if document is not first and path in first["paths"] else heading


def _who(operation: Mapping[str, Any]) -> str:
    """Return whom a route is for, by the ways in which it is opened."""
    return _WHO[" ".join(name for way in operation.get("security", ()) for name in way or ("-",))]


# Where the types are told that stand in tokens too.
_PAGES: Final = {"Attestation": "attestation", "Confirmation": "passport", "Digest": "receipt", "Mission": "passport"}


def _told_in(name: str, words: str) -> str:
    page = _PAGES.get(name)
    return f"{words} More in [{page}.md](../audit/{page}.md)." if page else words


Schemas = Mapping[str, dict[str, Any]]
_WHO: Final = {
    "": "anyone",
    "admin": "the administrator",
    "- token admin": "holders of the token, where one is asked for",
    "token bearer": "holders of the token",
    "token bearer query": "holders of the token, also by `?token=`",
    "token bearer cookie": "holders of the token, or of the dashboard's cookie",
    "hook": "holders of the token of hooks",
}


def _operation(operation: Mapping[str, Any], schemas: Schemas, shown: set[str]) -> list[str]:
    """Return what there is to say of one route; the types that are told here are added to `shown`."""
    lines = [f"{operation['summary']}."]
    if "description" in operation:
        lines += ["", operation["description"]]
    choices = [parameter for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    for choice in choices:
        values = " or ".join(f"`{value}`" for value in choice["schema"]["enum"])
        lines += ["", f"**Query.** `{choice['name']}`: {values}; {choice['description']}"]
    body = operation.get("requestBody")
    if body is not None:
        lines += ["", *_request(body, schemas, shown)]
    answer = operation["responses"]["200"]
    media_type, content = next(iter(answer["content"].items()))
    schema = content.get("schema", {})
    forms = [form for form in schema.get("anyOf", [schema]) if "$ref" in form]
    for form in forms:
        name = _name_of(form)
        shown.add(name)
        words = answer["description"] if form is forms[0] else schemas[name]["description"]
        lines += ["", f"**Answer.** {words}", "", *_members(schemas[name])]
    if not forms:
        lines += ["", f"**Answer.** `{media_type}`"]
    statuses = [status for status in operation["responses"] if status != "200"]
    return [*lines, "", f"**[Errors](#errors).** {', '.join(statuses)}"]


def _request(body: Mapping[str, Any], schemas: Schemas, shown: set[str]) -> list[str]:
    schema = body["content"]["application/json"]["schema"]
    if "$ref" not in schema:
        return ["**Request.** Any object: what an assistant tells its hooks, in its own words."]
    name = _name_of(schema)
    shown.add(name)
    optional = "" if body["required"] else " The body may be left out."
    return [f"**Request.** {schemas[name]['description']}{optional}", "", *_members(schemas[name])]


def _members(schema: Mapping[str, Any]) -> list[str]:
    """Return the table of an object's members."""
    lines = ["| member | type | required | meaning |", "|---|---|---|---|"]
    for name, member in schema["properties"].items():
        needed = "yes" if name in schema["required"] else _otherwise(member)
        lines.append(f"| `{name}` | {_type(member)} | {needed} | {_meaning(member)} |")
    return lines


def _meaning(member: Mapping[str, Any]) -> str:
    """Return what a member means, as it says itself or as its type does."""
    said = [one["description"] for one in (member, *member.get("anyOf", ())) if "description" in one]
    return said[0] if said else ""


def _otherwise(member: Mapping[str, Any]) -> str:
    """Return what holds for a member that is left out."""
    default = member.get("default")
    return "no" if default in (None, "") or isinstance(default, list) else f"no: `{json.dumps(default)}`"


def _type(member: Mapping[str, Any]) -> str:
    """Return the type of a member in words."""
    if "$ref" in member or "allOf" in member:
        name = _name_of(member["allOf"][0] if "allOf" in member else member)
        return f"[{name}](#{name.lower()})"
    if "enum" in member:
        return ", ".join(f"`{json.dumps(value)}`" for value in member["enum"])
    if "anyOf" in member:
        # That null is as good as absent is said once for all.
        left = [one for one in member["anyOf"] if one != _NULL or member.get("default", ...) is not None]
        return " or ".join(_type(one) for one in left)
    if member.get("type") == "array":
        return f"list of {_type(member['items'])}"
    if isinstance(member.get("additionalProperties"), Mapping):
        return f"object of {_type(member['additionalProperties'])}"
    return member.get("format") or f"{member.get('type', 'anything')}{_bounds(member)}"


_NULL: Final = {"type": "null"}
_LARGE: Final = 2**53 - 1
_MAX_PATTERN: Final = 40


def _bounds(member: Mapping[str, Any]) -> str:
    """Return how long or how large something may be, where that says anything."""
    pattern = member.get("pattern", "").removeprefix("^(?:").removesuffix(")$")
    if pattern:
        return f" like `{pattern}`" if len(pattern) <= _MAX_PATTERN else ""
    least, most = member.get("minLength", member.get("minimum")), member.get("maxLength", member.get("maximum"))
    unit = " characters" if member.get("type") == "string" else ""
    if most is None or most == _LARGE:
        return ""
    return f", {least or 0} to {most}{unit}"


def _name_of(reference: Mapping[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


def _errors(responses: Mapping[str, Any]) -> list[str]:
    lines = ["| status | `error_code` | |", "|---|---|---|"]
    for status, response in responses.items():
        codes = response["content"]["application/json"]["schema"]["properties"]["error_code"]["enum"]
        lines.append(f"| {status} | {', '.join(f'`{code}`' for code in codes)} | {response['description']} |")
    return lines


GENERATED: Final = {ERRORS_PAGE: errors_page, API_PAGE: api_page}


def pages() -> list[Path]:
    """Return every Markdown page of the project."""
    return sorted(page for page in ROOT.rglob("*.md") if not SKIPPED & set(page.relative_to(ROOT).parts))


def problems() -> Iterator[str]:
    """Yield what is wrong with the pages, one line each."""
    for place, written in GENERATED.items():
        if not place.exists() or place.read_text(encoding="utf-8") != written():
            yield f"{place.relative_to(ROOT)} is not up to date: run make docs"
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
    return {_anchor(heading) for heading in headings}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> int:
    """Write or check, and say how it went."""
    if "--check" not in sys.argv:
        for place, written in GENERATED.items():
            place.write_text(written(), encoding="utf-8")
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"docs: {len(pages())} pages, {len(found)} problems, {errors_page().count(chr(10) + '| `')} error codes")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
