"""State of the machine that is not in files: databases, containers, installed packages, processes and services.

Each has a resource: `db://app_dev`, `container://volume/data`, `package://pip/six`, `process://4242`,
`service://nginx`. `db://*` is any resource of the kind, for a selection that is not known before the command runs.
"""

from typing import Final

from remit.claims.mission import MACHINE_KINDS, MachineKind

ANY: Final = "*"
_MAX_NAME: Final = 1024


def machine_resource(kind: MachineKind, name: str | None) -> str:
    """Return the resource for a kind and name; a name that a scope entry cannot express becomes `*`."""
    plain = name and len(name) <= _MAX_NAME and name.isprintable() and name.strip() == name
    return f"{kind}://{name if plain else ANY}"


def split_machine(text: str) -> tuple[MachineKind, str] | None:
    """Return the kind and name of a resource or scope entry, or None for a path or URL."""
    scheme, mark, name = text.partition("://")
    return next(((kind, name) for kind in MACHINE_KINDS if kind == scheme), None) if mark else None
