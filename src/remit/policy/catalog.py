"""The catalog of known tools: what each tool does, and the role of each argument.

The tables are in `catalog/`. They are read once, and indexed by every name that clients use for a tool.
"""

import tomllib
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files as package_files
from typing import Final

from msgspec import Struct, convert

from remit.claims.receipt import ActionClass
from remit.claims.types import SideEffectClass

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
    # A call must have an argument that names what the tool works on.
    required: bool = False
    # The argument that a receipt records as the target.
    target: str = ""
    # The argument with the HTTP method.
    method: str = ""
    # The names of this tool in clients that use one shell for many calls.
    keeps_shell: tuple[str, ...] = ()

    @cached_property
    def runs_text(self) -> bool:
        """Return whether an argument is run."""
        return not RUN_ROLES.isdisjoint(self.args.values())


@lru_cache(maxsize=1)
def known_tools() -> Mapping[str, KnownTool]:
    """Return all tools by name, including the names that MCP clients form from server and tool."""
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
