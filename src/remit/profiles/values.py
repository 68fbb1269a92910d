"""Parses the values in phrases: programs, paths, hosts, servers, tools and resources of the machine.

Invariant: an accepted value has one meaning and is not a pattern. It has no wildcards for tools or hosts
(except a leading `*.`), and nothing that a shell, a list of tools or a URL would interpret. Without quotes, it must not
be a list or a sentence.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

# Quotes around a value that is meant literally.
QUOTES: Final = ("`", '"')
_MAX: Final = 200
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = rf"(?:{_LABEL}\.)*{_LABEL}"
_PORT: Final = r"(?::[0-9]{1,5})?"
_SITE: Final = re.compile(
    rf"(?P<scheme>https?://)?(?P<host>(?:\*\.)?{_HOST}{_PORT})(?P<path>(?:/[A-Za-z0-9._~+@=,-]*)*)", re.IGNORECASE
)
_ADDRESS: Final = re.compile(rf"(?:host://)?(?P<address>{_HOST}{_PORT})", re.IGNORECASE)
_SERVER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOOL: Final = re.compile(r"[^\s*?\[\]()`\"]+")
_MACHINE_NAME: Final = re.compile(r"[A-Za-z0-9_@][\w@.:+-]*(?:/[\w@.:+-]+)*")
_QUOTED_NAME: Final = re.compile(r"(?! )[^\x00-\x1f\x7f`]+(?<! )")
_WORD: Final = r"[A-Za-z0-9_@%+=:,./-]+"
_PROGRAM: Final = re.compile(rf"(?!-)[A-Za-z0-9_@%+:,./~-]+(?: {_WORD})*")
_PATH_LIKE: Final = re.compile(r"[/~.]|[^/\s]+/")
_UPWARD: Final = re.compile(r"(?:\A|/)\.\.?(?:/|\Z)")
# What makes an unquoted value a list or a sentence.
_SENTENCE: Final = re.compile(
    r",|[:;!](?:\s|\Z)|\w\.{2,}(?:\s|\Z)|\s[-+/=:](?=\s)"
    r"|\s(?:and|as|because|but|except|for|if|or|since|then|unless|when)(?:\s|\Z)",
    re.IGNORECASE,
)
# Programs and their subcommands are written in lower case; a path or an option may be anything.
_CAPITAL: Final = re.compile(r"(?![^\s]*/)[^\s]*[A-Z]|\S+ [A-Z][A-Za-z]*(?:\s|\Z)")


class Kind(NamedTuple):
    """One kind of value: its parser, and a description for errors."""

    # Returns the parsed value, or None if it is invalid.
    read: Callable[[str], str | None]
    wanted: str


def program_entry(words: str) -> str:
    """Return the entry for commands that begin with these words, with any tool that runs commands."""
    return f"*({words})"


def server_entries(server: str) -> tuple[str, ...]:
    """Return the globs for the tools of an MCP server in the assistants; the first two are unambiguous."""
    return f"mcp__{server}__*", f"mcp_{server}_*", f"{server}_*", f"{server}-*"


def _program(text: str) -> str | None:
    words = " ".join(_unquote(text).split())
    odd = not _is_quoted(text) and (_SENTENCE.search(words) or _CAPITAL.match(words))
    return None if odd or not _PROGRAM.fullmatch(words) else words


def _path(text: str) -> str | None:
    path = _unquote(text)
    plain = path == text and (_PATH_LIKE.match(path) is None or _SENTENCE.search(path) is not None)
    odd = not path or path != path.strip() or plain or "\\" in path or "$" in path or "://" in path
    return None if odd or path.startswith(("//", "-")) else path


def _site(text: str) -> str | None:
    site = _SITE.fullmatch(_unquote(text))
    if site is None or not _is_host(site["host"]) or _UPWARD.search(site["path"]):
        return None
    return f"{(site['scheme'] or 'https://').lower()}{site['host'].lower()}{site['path'].removesuffix('/')}"


def _address(text: str) -> str | None:
    address = _ADDRESS.fullmatch(_unquote(text))
    return address["address"].lower() if address and _is_host(address["address"]) else None


def _is_host(text: str) -> bool:
    """Return whether a host and port are possible: the port is in range, and a numeric host is a valid IPv4 address."""
    host, _, port = text.partition(":")
    last = host.rpartition(".")[2]
    parts = host.split(".")
    numeric = last.isdigit() or last.startswith("0x")
    address = len(parts) == _IPV4_PARTS and all(part.isdigit() and str(int(part)) == part for part in parts)
    return (not port or 0 < int(port) <= _MAX_PORT) and (not numeric or (address and max(map(int, parts)) < _BYTE))


_IPV4_PARTS: Final = 4
_BYTE: Final = 256
_MAX_PORT: Final = 65_535


def _server(text: str) -> str | None:
    server = _unquote(text)
    return server if _SERVER.fullmatch(server) else None


def _tool(text: str) -> str | None:
    tool = _unquote(text)
    sentence = not _is_quoted(text) and _SENTENCE.search(tool)
    return None if sentence or not _TOOL.fullmatch(tool) else tool


def _machine_name(text: str) -> str | None:
    name = _unquote(text)
    known = _MACHINE_NAME if not _is_quoted(text) else _QUOTED_NAME
    return None if name == "*" or not known.fullmatch(name) else name


def _unquote(text: str) -> str:
    """Return a value without the backticks or quotes around it."""
    return text[1:-1] if _is_quoted(text) else text


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] in QUOTES and text[-1] == text[0] and text[0] not in text[1:-1]


def _short(read: Callable[[str], str | None]) -> Callable[[str], str | None]:
    return lambda text: read(text) if len(text) <= _MAX else None


KINDS: Final[Mapping[str, Kind]] = {
    "program": Kind(
        _short(_program),
        "one program and the words its command begins with, in lower case, as in “npm run lint”: "
        "write one line for each, and nothing else in it; put it into backticks to take it literally",
    ),
    "path": Kind(_short(_path), "one path that begins with /, ~/, ./ or ../, or is in backticks"),
    "site": Kind(_short(_site), "a host or the beginning of a URL, as in example.org or https://example.org/docs"),
    "address": Kind(_short(_address), "a host, with a port or without, as in example.org:22"),
    "server": Kind(_short(_server), "the name of an MCP server"),
    "tool": Kind(_short(_tool), "the exact name of one tool"),
    "database": Kind(_short(_machine_name), "the name of one database, as in app_dev"),
    "container": Kind(_short(_machine_name), "the name of one container, or as in volume/data, image/app or compose"),
    "package": Kind(_short(_machine_name), "a package manager, or a package of it, as in pip/requests"),
    "process": Kind(_short(_machine_name), "one name or number of a process, as it is given to pkill or kill"),
    "service": Kind(_short(_machine_name), "the name of one service, as in nginx"),
}
