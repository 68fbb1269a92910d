"""The catalog of known tools: what each does, and the role of each of its arguments.

The knowledge is in the tables under `catalog/`; this reads them once, under every name that clients give to a tool.
"""

import tomllib
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files as package_files
from typing import Final

from msgspec import Struct, convert

from remit.claims.receipt import ActionClass
from remit.claims.shapes import SideEffectClass

__all__ = ["RUN_ROLES", "KnownTool", "known_tools"]


# Roles of arguments that are run.
RUN_ROLES: Final = frozenset(("command", "words", "code", "python", "patch", "sql"))


class KnownTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One entry of the catalog."""

    also: tuple[str, ...] = ()
    # MCP servers that offer it.
    servers: tuple[str, ...] = ()
    action_class: ActionClass
    resource_family: str
    side_effect_class: SideEffectClass
    # The role of each argument, by its place: `file_path`, `edits[].path`, `options.output`.
    args: dict[str, str] = {}
    # Without an argument that names what it works on, nobody knows what that is.
    required: bool = False
    # The argument that a receipt names as the target.
    target: str = ""
    # The argument that holds an HTTP method.
    method: str = ""
    # Of its names, those of tools that keep one shell for many calls.
    keeps_shell: tuple[str, ...] = ()

    @cached_property
    def runs_text(self) -> bool:
        """Return whether an argument is run."""
        return not RUN_ROLES.isdisjoint(self.args.values())


@lru_cache(maxsize=1)
def known_tools() -> Mapping[str, KnownTool]:
    """Return all tools by name, with the names that MCP clients make of server and tool."""
    tools: dict[str, KnownTool] = {}
    for file in package_files("remit.policy").joinpath("catalog").iterdir():
        if not file.name.endswith(".toml"):
            continue
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            tool = convert(table, KnownTool)
            for own in (name, *tool.also):
                tools[own] = tool
                for server in tool.servers:
                    for form in ("mcp__{}__{}", "mcp_{}_{}", "{}_{}", "{}.{}"):
                        tools.setdefault(form.format(server, own), tool)
    return tools
