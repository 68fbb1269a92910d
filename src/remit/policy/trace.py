"""Collects the effects of a call while its arguments are read.

Paths and URLs are normalized here, once, before they become an effect. What cannot be determined becomes a doubt.
`scope.py` decides whether an effect is allowed.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from remit.claims.mission import MachineKind
from remit.claims.types import SideEffectClass
from remit.policy.call import Doubt, Effect, Verb
from remit.policy.files import Files, LimitedFiles, ResolvedPath, Survey, join, locate, refuse_text, without_dots
from remit.policy.machine import machine_resource
from remit.policy.spawned import SpawnedPrograms
from remit.policy.urls import Url, parse_host, parse_url, read_url

# The effects of each role that an argument or word can have.
VERBS: Final[dict[str, tuple[Verb, ...]]] = {
    "read": ("read",),
    "write": ("write",),
    "edit": ("read", "write"),
    "delete": ("delete",),
    "move": ("read", "delete"),
    "clear": ("delete", "write"),
}
_GLOB: Final = re.compile(r"[*?\[]")
# Devices that hold no data.
_NO_RESOURCE: Final = re.compile(r"/dev/(?:null|zero|full|u?random|stdin|stdout|stderr|tty|fd/[0-9]+)\Z")
_SOCKET: Final = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/([^/]+)\Z")
# Directories in which files commonly have several hard links.
_STORES: Final = frozenset(("node_modules", "site-packages", ".git", "__pycache__", ".pnpm", ".cache"))
_MAX_EFFECTS: Final = 1024


class Trace:
    """Effects, doubts and side effects of one call, in the order they were recorded."""

    def __init__(self, files: Files) -> None:
        self.files = LimitedFiles(files)
        self.side_effects: set[SideEffectClass] = set()
        self.runs_code = False
        # The program being judged changes everything below a directory it is given.
        self.spreads = False
        # Wildcards match hidden names too.
        self.hidden = False
        # Files that the program being judged writes and deletes.
        self.changed: list[Effect] = []
        # How many files and doubts were recorded.
        self.named = 0
        # A dict keeps the order and removes duplicates.
        self.effects: dict[Effect, None] = {}
        self._doubts: dict[Doubt, None] = {}
        self._surveys: dict[str, Survey | None] = {}

    @cached_property
    def spawned(self) -> SpawnedPrograms:
        """Return the programs that the call would start. Created on first use: most calls start none."""
        return SpawnedPrograms()

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Return the doubts without duplicates."""
        return tuple(self._doubts)

    def add(self, effect: Effect) -> None:
        """Record an effect and the side effect that it implies."""
        if len(self.effects) < _MAX_EFFECTS:
            self.effects[effect] = None
        else:
            self.doubt(effect.source, "it touches more resources than are checked")
        if effect.verb == "read":
            self.named += 1
        elif effect.verb in ("write", "delete"):
            self.named += 1
            self.changed.append(effect)
            self.side_effects.add("internal_write")
        elif effect.verb == "send":
            self.side_effects.add("external_send")
        elif effect.verb in ("setenv", "escalate", "manage"):
            self.side_effects.add("none" if effect.verb == "setenv" else "state_change")

    def doubt(self, word: str, reason: str, *, unbounded: bool = False, starts: bool = True) -> None:
        """Record that something cannot be determined; `starts` if it may start a program."""
        self.named += 1
        self._doubts[Doubt("target_unknown", word[:120], reason, unbounded)] = None
        if unbounded and starts:
            self.spawned.doubt()

    def unparsed(self, word: str, reason: str) -> None:
        """Record that a command cannot be parsed."""
        self.named += 1
        self._doubts[Doubt("shell_unparsed", word[:120], reason, unbounded=True)] = None

    # Files

    def touch(self, role: str, text: str, base: str | None, source: str) -> ResolvedPath | None:
        """Record the effects of a role on the file `text`. Return its path, or None if it is no file or a doubt."""
        if text == "/dev/null":
            return None
        resolved = locate(text, base, self.files)
        if resolved.refusal:
            self.doubt(source, resolved.refusal)
            return None
        self._record(role, resolved, source)
        if ".." in text:
            # Some tools remove `..` from the text before they resolve links, so both paths must be allowed.
            plain = self.files.resolve(without_dots(join(base or "/", text)))
            if plain.path != resolved.path and not plain.refusal:
                self._record(role, plain, source)
        return resolved

    def _record(self, role: str, resolved: ResolvedPath, source: str) -> None:
        shared = resolved.shared and not (role == "read" and _STORES.intersection(resolved.path.split("/")))
        for verb in VERBS[role]:
            self.add(Effect(verb, resolved.path, source, shared=shared))
            if resolved.is_directory:
                self.add(Effect(verb, resolved.path, source, beneath=True, picks="**" if self.spreads else ""))

    def touch_beneath(self, role: str, directory: str, source: str, picks: str = "**") -> None:
        """Record the effects of a role on unlisted files below a directory, or on those that match `picks`."""
        for verb in VERBS[role]:
            self.add(Effect(verb, directory, source, beneath=True, picks=picks))

    def touch_listed(self, role: str, directory: str, source: str, picks: str) -> None:
        """Record the effects of a role on files below a directory that another program has listed."""
        self.touch_beneath(role, directory, source, picks)
        self._touch_through_links(role, directory, [], source)

    def touch_pattern(self, role: str, pattern: str, base: str | None, source: str) -> None:
        """Record the effects of a role on the files that match a glob, including the targets of symbolic links."""
        names, fixed, resolved = self._fixed_part(pattern, base, source)
        if resolved is not None and fixed == len(names):
            self.touch(role, pattern, base, source)
        elif resolved is not None:
            self._touch_matches(role, resolved.path, names, fixed, source)

    def _fixed_part(self, pattern: str, base: str | None, source: str) -> tuple[list[str], int, ResolvedPath | None]:
        """Return the components of a glob, the number before the first wildcard and their path (None if a doubt)."""
        refusal = refuse_text(_GLOB.sub("", pattern))
        if not refusal and not pattern.startswith("/") and base is None:
            refusal = "it is relative, and no working directory is known"
        names = join(base or "/", pattern).replace("[^", "[!").split("/")
        fixed = next((index for index, name in enumerate(names) if _GLOB.search(name)), len(names))
        if ".." in names[fixed:]:
            refusal = refusal or "it goes upwards after a wildcard"
        resolved = locate("/".join(names[:fixed]) or "/", None, self.files)
        if refusal or resolved.refusal:
            self.doubt(source, refusal or resolved.refusal)
            return names, fixed, None
        return names, fixed, resolved

    def _touch_fixed(
        self, role: str, folder: str, names: list[str], fixed: int, source: str, *, through: list[str]
    ) -> None:
        picks = _picks(names[fixed:], hidden=self.hidden)
        self.touch_beneath(role, folder, source, picks)
        self._touch_through_links(role, folder, through, source)
        if ".." in names[:fixed]:
            # Some tools remove `..` from the text before they resolve links, so both paths must be allowed.
            self.touch_beneath(role, without_dots("/".join(names[:fixed])), source, picks)

    def _touch_matches(self, role: str, folder: str, names: list[str], fixed: int, source: str) -> None:
        self._touch_fixed(role, folder, names, fixed, source, through=names[fixed:])
        # Tools that walk directories (`**`) do not follow symbolic links.
        for path in self._expand_glob(folder, names[fixed:], source) if "**" not in names[fixed:] else ():
            real = self.files.resolve(path)
            if real.refusal:
                self.doubt(source, real.refusal)
            elif real.path != path or real.shared:
                self._record(role, real, source)

    def _expand_glob(self, directory: str, names: list[str], source: str) -> Iterator[str]:
        found = [directory]
        for name in names:
            if not _GLOB.search(name):
                found = [f"{path}/{name}" for path in found]
                continue
            listed: list[str] = []
            for path in found:
                matches = self.files.expand(path, name)
                if matches is None and self.files.reads_disk:
                    self.doubt(source, "it matches more files than are checked")
                listed.extend(f"{path.removesuffix('/')}/{match}" for match in matches or ())
            found = listed
        yield from found

    def touch_listing(self, pattern: str, base: str | None, source: str) -> None:
        """Record the directories that the shell lists to expand a glob, including those behind symbolic links."""
        names, fixed, resolved = self._fixed_part(pattern, base, source)
        if resolved is None or fixed == len(names):
            return
        self._touch_fixed("read", resolved.path, names, fixed, source, through=names[fixed:-1])
        wild = [index for index, name in enumerate(names) if _GLOB.search(name)]
        for index in wild[1:] if self.files.reads_disk else ():
            for path in self._expand_glob(resolved.path, names[fixed:index], source):
                real = self.files.resolve(path)
                if real.path != path and real.is_directory:
                    self._record("read", real, source)

    def survey(self, directory: str) -> Survey | None:
        """Return the survey of a directory, read once per call, plus the names that the call creates there."""
        if directory not in self._surveys:
            self._surveys[directory] = self.files.survey(directory)
        survey = self._surveys[directory]
        return survey if survey is None else self.files.with_made(directory, survey)

    def _touch_links_below(self, role: str, directory: str, source: str) -> None:
        survey = self.survey(directory)
        for link in survey.links if survey else ():
            if link in self.files.links:
                self._touch_through_link(role, link, "", source)
                continue
            real = self.files.resolve(link)
            if real.refusal:
                self.doubt(source, real.refusal)
            else:
                self._record(role, real, source)

    def _touch_through_link(self, role: str, link: str, rest: str, source: str) -> None:
        """Record the effects of a role below a name that the call creates, on the path it links to."""
        target = self.files.links[link]
        resolved = self.files.resolve(target + rest) if target else None
        if resolved is None or resolved.refusal:
            self.doubt(source, "it leads through a name that the same command makes")
        else:
            self._record(role, resolved, source)
            self.touch_beneath(role, resolved.path, source)

    def _touch_through_links(self, role: str, folder: str, names: list[str], source: str) -> None:
        """Record what a glob touches through names that the call creates, in its fixed part or among its matches."""
        inside = folder.removesuffix("/") + "/"
        for link in self.files.links:
            if folder == link or folder.startswith(link + "/"):
                self._touch_through_link(role, link, folder[len(link) :], source)
            elif link.startswith(inside):
                parts = link[len(inside) :].split("/")
                matched = all(fnmatchcase(part, name) for part, name in zip(parts, names, strict=False))
                if "**" in names or (matched and len(parts) <= len(names)):
                    self._touch_through_link(role, link, "", source)

    def follow_links(self, directory: str, source: str, role: str = "read") -> None:
        """Record what a program that follows symbolic links below a directory would touch."""
        survey = self.survey(directory)
        if survey is None and (not self.files.reads_disk or self.files.resolve(directory).is_directory):
            self.doubt(source, "it follows links, and there is too much below the directory to look for them")
        else:
            self._touch_links_below(role, directory, source)

    def device(self, role: str, text: str, source: str) -> bool:
        """Return whether a path is a device and not a file. A network device (`/dev/tcp`) is recorded as connection."""
        if socket := _SOCKET.match(text):
            self._record_url(parse_host(f"{socket[1]}:{socket[2]}"), source, sends=True)
            return True
        return _NO_RESOURCE.match(text) is not None and (role == "read" or not text.endswith("random"))

    # The machine

    def manage(self, kind: MachineKind, name: str | None, source: str) -> None:
        """Record that state of the machine is used or changed; without a name, any resource of the kind."""
        self.add(Effect("manage", machine_resource(kind, name), source))

    # Network

    def contact(self, text: str, source: str, *, sends: bool = False, bare: bool = False) -> None:
        """Record a request to a URL, or data sent to it; a `bare` URL may omit its scheme."""
        self._record_url(read_url(text) if bare else parse_url(text), source, sends=sends)

    def contact_host(self, text: str, source: str, *, sends: bool = True) -> None:
        """Record a connection to a host."""
        self._record_url(parse_host(text), source, sends=sends)

    def _record_url(self, url: Url, source: str, *, sends: bool) -> None:
        if url.refusal:
            self.doubt(source, url.refusal)
        else:
            self.add(Effect("send" if sends else "contact", url.text, source))


def _picks(names: list[str], *, hidden: bool) -> str:
    """Return `Effect.picks` for the variable part of a glob; brackets count as `**`, because shells differ on them."""
    last = names[-1]
    if last in ("", "**") or "[" in last:
        return "**"
    return last if len(names) == 1 and not hidden else f"**/{last}"
