"""Roles of words that name state of the machine: a database, a container, a package, a service.

A word that is not known may name any resource of its kind. Some words name more: the URL of a database names a host, an
image comes from a registry, a mount is a path.
"""

import re
from typing import Final

from remit.claims.mission import MACHINE_KINDS
from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.evaluate.state import Unknown

_NAME: Final = re.compile(r"[\w$+@:.-]+(?:/[\w$+@:.-]+)*")
_ADDRESS: Final = re.compile(
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?)://(?:[^@/?#]*@)?(?P<host>[\w.-]+(?::\d+)?)?"
    r"(?:/(?P<name>[\w.$-]*))?(?P<options>\?.*)?"
)
_OTHER_HOST: Final = re.compile(r"host|service|ssl|file|socket", re.IGNORECASE)
_IMAGE: Final = re.compile(
    r"(?:(?P<host>localhost(?=[:/])|[\w-]+(?:\.[\w-]+)+(?=[:/])|[\w-]+(?=:\d+/))(?P<port>:\d+)?/)?[\w./-]+"
    r"(?::[\w.-]+)?(?:@[\w:]+)?"
)
_PUBLIC_REGISTRY: Final = "registry-1.docker.io"
_KEYS: Final = "keys"
_SOURCES: Final = ("source", "src")
_MOUNT_KEYS: Final = frozenset(
    "type source src target destination dst readonly ro bind-propagation consistency tmpfs-size tmpfs-mode".split()
)
_PATH: Final = re.compile(r"\A[.~]|[/\\]")
_REDIS: Final = "redis"
_ACTIVATE: Final = "bin/activate"


def resource(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record the resource that a word names; the form is its kind and a prefix: `container/volume`."""
    kind, _, prefix = form.partition("/")
    start = f"{prefix}/" if prefix else ""
    known = next(each for each in MACHINE_KINDS if each == kind)
    if field.kind != "exact":
        invocation.manage(known, prefix or None, field.source)
    elif _NAME.fullmatch(field.text):
        invocation.manage(known, f"{start}{field.text}", field.source)
    else:
        invocation.manage(known, prefix or None, field.source)
        reason = f"it names a {kind} in a way that is not known here"
        invocation.trace.doubt(field.source, reason, unbounded=True)


def process_name(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record the processes that a name or pattern selects."""
    invocation.manage("process", field.text if field.kind == "exact" else None, field.source)


def database(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a database, by its name or by a URL that also names a host."""
    address = _ADDRESS.fullmatch(field.text) if field.kind == "exact" else None
    if address is not None and not _OTHER_HOST.search(address["options"] or ""):
        invocation.manage("db", _REDIS if field.text.startswith(_REDIS) else address["name"], field.source)
        if address["host"]:
            invocation.trace.contact_host(address["host"], field.source)
    elif field.kind == "exact" and re.fullmatch(r"[\w$.-]+", field.text):
        invocation.manage("db", field.text, field.source)
    else:
        invocation.manage("db", None, field.source)
        invocation.trace.doubt(field.source, "the database and its host are not known")


def record_installed(invocation: ProgramCall, manager: str, name: str, source: str) -> None:
    """Record an installed or removed package; in a virtual environment of the project it is a file."""
    place = invocation.trace.spawned.environment() if manager == "pip" else None
    if place:
        invocation.trace.touch("write", place, None, source)
    elif place is None and not (manager == "pip" and _is_activated(invocation)):
        invocation.manage("package", f"{manager}/{name.lower()}", source)


def _is_activated(invocation: ProgramCall) -> bool:
    """Return whether the script has sourced the activation script of a virtual environment."""
    # A sourced script may have set any variable.
    sourced = isinstance(invocation.state.variables.get("CDPATH"), Unknown)
    return sourced and invocation.trace.spawned.sources(_ACTIVATE)


def image(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record an image, and the registry that it comes from."""
    found = _IMAGE.fullmatch(field.text) if field.kind == "exact" else None
    if found is None:
        invocation.manage("container", "image", field.source)
        invocation.trace.doubt(field.source, "the image and its registry are not known")
    else:
        invocation.manage("container", f"image/{field.text}", field.source)
        host = f"{found['host']}{found['port'] or ''}" if found["host"] else _PUBLIC_REGISTRY
        invocation.trace.contact(f"https://{host}/", field.source, sends=invocation.sends)


def inside(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a word of a command that runs in a container: it may name any program there."""
    for word in field.text.split() if field.kind == "exact" else ():
        invocation.trace.spawned.runs(word)
    invocation.evaluator.record_code()


def container_path(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record `container:path`, or a file of this machine."""
    name, colon, _ = field.text.partition(":")
    if field.kind == "exact" and field.text == "-":
        return
    if field.kind == "exact" and colon and "/" not in name:
        resource(invocation, "container", field._replace(text=name))
    else:
        invocation.file("edit", field)


def mount(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a mount of a container: a path of this machine is edited, a name is a volume.

    The usual form is `source:target`; the form `keys` is `type=bind,source=…`.
    """
    if field.kind != "exact":
        _doubt_mount(invocation, field)
    elif form == _KEYS:
        _mount_keys(invocation, field)
    else:
        source, colon, _ = field.text.partition(":")
        if colon and _PATH.search(source):
            invocation.file("edit", field._replace(text=source))
        elif colon:
            resource(invocation, "container/volume", field._replace(text=source))


def _mount_keys(invocation: ProgramCall, field: Field) -> None:
    """Record a mount with keys; an unknown key is a doubt."""
    pairs = [pair.partition("=") for pair in field.text.split(",")]
    keys = {key: value for key, _, value in pairs}
    kind, sources = keys.get("type", "volume"), [keys[key] for key in _SOURCES if key in keys]
    if len(keys) != len(pairs) or len(sources) > 1 or not keys.keys() <= _MOUNT_KEYS:
        _doubt_mount(invocation, field)
    elif kind == "bind" and sources:
        invocation.file("edit", field._replace(text=sources[0]))
    elif kind == "volume" and not any(map(_PATH.search, sources)):
        for source in sources:
            resource(invocation, "container/volume", field._replace(text=source))
    elif kind != "tmpfs" or sources:
        _doubt_mount(invocation, field)


def _doubt_mount(invocation: ProgramCall, field: Field) -> None:
    invocation.trace.doubt(field.source, "what it mounts in the container is not known", unbounded=True)
