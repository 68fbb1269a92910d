"""The catalog: closed lists, no name twice, and no role that projection would pass over."""

import tomllib
from collections import Counter
from importlib.resources import files
from typing import Any, get_args

import pytest

from remit.claims.receipt import ActionClass
from remit.claims.types import SideEffectClass
from remit.policy.catalog import known_tools
from tests.policy.judging import action

CATALOG = files("remit.policy").joinpath("catalog")
TABLES = {file.name: tomllib.loads(file.read_text(encoding="utf-8")) for file in CATALOG.iterdir()}
ENTRIES: list[tuple[str, dict[str, Any]]] = [entry for table in TABLES.values() for entry in table.items()]
MEMBERS = {
    "also", "servers", "action_class", "resource_family", "side_effect_class", "args", "required", "target", "method",
    "keeps_shell",
}  # fmt: skip
TEXT_ROLES = {"data", "query"}
# Every other role, with a value that must leave a mark.
TELLING = {
    "read": "/x/y",
    "write": "/x/y",
    "edit": "/x/y",
    "delete": "/x/y",
    "move": "/x/y",
    "cwd": "/x/y",
    "base": "/x/y",
    "glob": "/x/*",
    "url": "https://a.example/x",
    "path_or_url": "/x/y",
    "seen": "/x/y",
    "shell": "cat /x/y",
    "mentions": "see @/x/y",
    "host": "a.example",
    "command": "cat /x/y",
    "words": "cat /x/y",
    "patch": "nothing",
    "sql": "attach 'x' as y",
    "python": "import os; os.system('x')",
    "code": "x",
}


def value_at(place: str, text: str) -> dict[str, Any]:
    """Return arguments with a text at a place such as `a[].b`."""
    first, *rest = place.split(".")
    inner: Any = value_at(".".join(rest), text) if rest else text
    return {first.removesuffix("[]"): [inner] if first.endswith("[]") else inner}


def test_every_file_of_the_catalog_is_a_table() -> None:
    assert len(TABLES) >= 9
    assert all(name.endswith(".toml") for name in TABLES)


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_an_entry_uses_only_known_members_classes_and_roles(name: str, entry: dict[str, Any]) -> None:
    assert entry.keys() <= MEMBERS
    assert entry["action_class"] in get_args(ActionClass)
    assert entry["side_effect_class"] in get_args(SideEffectClass)
    assert set(entry.get("keeps_shell", ())) <= {name, *entry.get("also", ())}
    assert set(entry.get("args", {}).values()) <= TELLING.keys() | TEXT_ROLES
    assert known_tools()[name].resource_family == entry["resource_family"]


def test_no_name_stands_for_two_entries() -> None:
    own = Counter(each for name, entry in ENTRIES for each in (name, *entry.get("also", ())))
    assert [name for name, count in own.items() if count > 1] == []


def test_what_a_receipt_names_is_a_marked_argument() -> None:
    for name, entry in ENTRIES:
        if "target" in entry:
            assert entry["target"] in entry["args"], name


@pytest.mark.parametrize("role", sorted(TELLING))
def test_every_role_leaves_a_mark(role: str) -> None:
    places = [(name, place) for name, entry in ENTRIES for place, own in entry.get("args", {}).items() if own == role]
    for name, place in places:
        given = action(name, value_at(place, TELLING[role]))
        assert given.effects or given.doubts or given.side_effects > {"none"}, f"{name}.{place}"


@pytest.mark.parametrize("role", sorted(TEXT_ROLES))
def test_text_leaves_no_mark(role: str) -> None:
    places = [(name, place) for name, entry in ENTRIES for place, own in entry.get("args", {}).items() if own == role]
    assert places
    for name, place in places:
        noted = {effect.source for effect in action(name, value_at(place, "/x/y")).effects}
        assert noted <= {"cwd"}, f"{name}.{place}"


@pytest.mark.parametrize(
    "name",
    [
        "read_file",
        "mcp__filesystem__read_file",
        "mcp_filesystem_read_file",
        "filesystem_read_file",
        "filesystem.read_file",
    ],
)
def test_a_tool_of_a_server_is_known_under_the_names_that_clients_make(name: str) -> None:
    assert known_tools()[name].args["path"] == "read"


def test_the_tools_of_common_agents_are_known() -> None:
    common = "Bash Read Write Edit Glob Grep WebFetch WebSearch Task TodoWrite NotebookEdit MultiEdit apply_patch shell"
    assert [name for name in common.split() if name not in known_tools()] == []
