"""What a call would do, collected while it is read.

Paths and URLs go through their normalisers here, once, on their way into an effect. What cannot be determined becomes a
doubt. Whether an effect is allowed is for `scope.py`.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from remit.claims.mission import MachineKind
from remit.claims.shapes import SideEffectClass
from remit.policy.call import Doubt, Effect, Verb
from remit.policy.files import Files, Look, Rationed, Survey, join, locate, refuse_text, without_dots
from remit.policy.machine import machine_resource
from remit.policy.shell.launches import Launches
from remit.policy.urls import Url, parse_host, parse_url, read_url

__all__ = ["VERBS", "Trace"]

# The effects of a role that an argument or word has.
VERBS: Final[dict[str, tuple[Verb, ...]]] = {
    "read": ("read",),
    "write": ("write",),
    "edit": ("read", "write"),
    "delete": ("delete",),
    "move": ("read", "delete"),
    "clear": ("delete", "write"),
}
_GLOB: Final = re.compile(r"[*?\[]")
# Devices that hold nothing and lead nowhere.
_NO_RESOURCE: Final = re.compile(r"/dev/(?:null|zero|full|u?random|stdin|stdout|stderr|tty|fd/[0-9]+)\Z")
_SOCKET: Final = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/([^/]+)\Z")
# Stores in which several names for one file are normal.
_STORES: Final = frozenset(("node_modules", "site-packages", ".git", "__pycache__", ".pnpm", ".cache"))
_MAX_EFFECTS: Final = 1024


class Trace:
    """Effects, doubts and side effects, in the order they were met."""

    def __init__(self, files: Files) -> None:
        self.files = Rationed(files)
        self.side_effects: set[SideEffectClass] = set()
        self.runs_code = False
        # The program that is being judged touches whatever is beneath a directory that it is given.
        self.spreads = False
        # Wildcards pick hidden names too.
        self.hidden = False
        # What is written and deleted by the program that is being judged.
        self.changed: list[Effect] = []
        # How often a file was named, or something that cannot be told.
        self.named = 0
        # Each effect once.
        self.effects: dict[Effect, None] = {}
        self._doubts: dict[Doubt, None] = {}
        self._surveys: dict[str, Survey | None] = {}

    @cached_property
    def launches(self) -> Launches:
        """Return the programs that would be started; most calls start none."""
        return Launches()

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Return each doubt once."""
        return tuple(self._doubts)

    def add(self, effect: Effect) -> None:
        """Note an effect."""
        if len(self.effects) < _MAX_EFFECTS:
            self.effects[effect] = None
        else:
            self.doubt(effect.source, "it touches more than we follow")
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
        """Note that something cannot be determined; `starts` where that may be a program."""
        self.named += 1
        self._doubts[Doubt("target_unknown", word[:120], reason, unbounded)] = None
        if unbounded and starts:
            self.launches.doubt()

    def unparsed(self, word: str, reason: str) -> None:
        """Note that a command cannot be read."""
        self.named += 1
        self._doubts[Doubt("shell_unparsed", word[:120], reason, unbounded=True)] = None

    # Files

    def touch(self, role: str, text: str, base: str | None, source: str) -> Look | None:
        """Note what a role does to the file `text`; return where that is, or None where it is no file or a doubt."""
        if text == "/dev/null":
            return None
        look = locate(text, base, self.files)
        if look.refusal:
            self.doubt(source, look.refusal)
            return None
        self._note(role, look, source)
        if ".." in text:
            # Some tools cut `..` from the text before they look for links: both places must do.
            plain = self.files.look(without_dots(join(base or "/", text)))
            if plain.path != look.path and not plain.refusal:
                self._note(role, plain, source)
        return look

    def _note(self, role: str, look: Look, source: str) -> None:
        shared = look.shared and not (role == "read" and _STORES.intersection(look.path.split("/")))
        for verb in VERBS[role]:
            self.add(Effect(verb, look.path, source, shared=shared))
            if look.is_directory:
                self.add(Effect(verb, look.path, source, beneath=True, picks="**" if self.spreads else ""))

    def touch_beneath(self, role: str, directory: str, source: str, picks: str = "**") -> None:
        """Note what a role does to files below a directory that nobody has listed, or to those that are picked."""
        for verb in VERBS[role]:
            self.add(Effect(verb, directory, source, beneath=True, picks=picks))

    def touch_listed(self, role: str, directory: str, source: str, picks: str) -> None:
        """Note what a role does to files below a directory that a program has listed."""
        self.touch_beneath(role, directory, source, picks)
        self._through_links(role, directory, [], source)

    def touch_pattern(self, role: str, pattern: str, base: str | None, source: str) -> None:
        """Note what a role does to the files that a glob means: those beneath its fixed part, and where links lead."""
        names, fixed, look = self._fixed_part(pattern, base, source)
        if look is not None and fixed == len(names):
            self.touch(role, pattern, base, source)
        elif look is not None:
            self._touch_matches(role, look.path, names, fixed, source)

    def _fixed_part(self, pattern: str, base: str | None, source: str) -> tuple[list[str], int, Look | None]:
        """Return the names in a glob, how many are fixed, and where these lead, or None where that is a doubt."""
        refusal = refuse_text(_GLOB.sub("", pattern))
        if not refusal and not pattern.startswith("/") and base is None:
            refusal = "it is relative, and no working directory is known"
        names = join(base or "/", pattern).replace("[^", "[!").split("/")
        fixed = next((index for index, name in enumerate(names) if _GLOB.search(name)), len(names))
        if ".." in names[fixed:]:
            refusal = refusal or "it goes upwards after a wildcard"
        look = locate("/".join(names[:fixed]) or "/", None, self.files)
        if refusal or look.refusal:
            self.doubt(source, refusal or look.refusal)
            return names, fixed, None
        return names, fixed, look

    def _touch_fixed(
        self, role: str, folder: str, names: list[str], fixed: int, source: str, *, through: list[str]
    ) -> None:
        picks = _picks(names[fixed:], hidden=self.hidden)
        self.touch_beneath(role, folder, source, picks)
        self._through_links(role, folder, through, source)
        if ".." in names[:fixed]:
            # Some tools cut `..` from the text before they look for links: both places must do.
            self.touch_beneath(role, without_dots("/".join(names[:fixed])), source, picks)

    def _touch_matches(self, role: str, folder: str, names: list[str], fixed: int, source: str) -> None:
        self._touch_fixed(role, folder, names, fixed, source, through=names[fixed:])
        # Tools that walk directories (`**`) do not follow the links they meet.
        for path in self._expanded(folder, names[fixed:], source) if "**" not in names[fixed:] else ():
            real = self.files.look(path)
            if real.refusal:
                self.doubt(source, real.refusal)
            elif real.path != path or real.shared:
                self._note(role, real, source)

    def _expanded(self, directory: str, names: list[str], source: str) -> Iterator[str]:
        found = [directory]
        for name in names:
            if not _GLOB.search(name):
                found = [f"{path}/{name}" for path in found]
                continue
            listed: list[str] = []
            for path in found:
                matches = self.files.expand(path, name)
                if matches is None and self.files.sees:
                    self.doubt(source, "it matches more files than we look at")
                listed.extend(f"{path.removesuffix('/')}/{match}" for match in matches or ())
            found = listed
        yield from found

    def touch_listing(self, pattern: str, base: str | None, source: str) -> None:
        """Note the directories that are listed for a glob, also those that links among its matches lead to."""
        names, fixed, look = self._fixed_part(pattern, base, source)
        if look is None or fixed == len(names):
            return
        self._touch_fixed("read", look.path, names, fixed, source, through=names[fixed:-1])
        wild = [index for index, name in enumerate(names) if _GLOB.search(name)]
        for index in wild[1:] if self.files.sees else ():
            for path in self._expanded(look.path, names[fixed:index], source):
                real = self.files.look(path)
                if real.path != path and real.is_directory:
                    self._note("read", real, source)

    def survey(self, directory: str) -> Survey | None:
        """Return what lies below a directory, which is looked at once per call, and what the call makes there."""
        if directory not in self._surveys:
            self._surveys[directory] = self.files.survey(directory)
        survey = self._surveys[directory]
        return survey if survey is None else self.files.with_made(directory, survey)

    def _links_below(self, role: str, directory: str, source: str) -> None:
        survey = self.survey(directory)
        for link in survey.links if survey else ():
            if link in self.files.links:
                self._through_link(role, link, "", source)
                continue
            real = self.files.look(link)
            if real.refusal:
                self.doubt(source, real.refusal)
            else:
                self._note(role, real, source)

    def _through_link(self, role: str, link: str, rest: str, source: str) -> None:
        """Note what a role does beneath a name that the call makes, by what the name stands for."""
        target = self.files.links[link]
        look = self.files.look(target + rest) if target else None
        if look is None or look.refusal:
            self.doubt(source, "it leads through a name that the same command makes")
        else:
            self._note(role, look, source)
            self.touch_beneath(role, look.path, source)

    def _through_links(self, role: str, folder: str, names: list[str], source: str) -> None:
        """Note what a glob touches through names that the call makes, above its fixed part or among its matches."""
        inside = folder.removesuffix("/") + "/"
        for link in self.files.links:
            if folder == link or folder.startswith(link + "/"):
                self._through_link(role, link, folder[len(link) :], source)
            elif link.startswith(inside):
                parts = link[len(inside) :].split("/")
                matched = all(fnmatchcase(part, name) for part, name in zip(parts, names, strict=False))
                if "**" in names or (matched and len(parts) <= len(names)):
                    self._through_link(role, link, "", source)

    def follow_links(self, directory: str, source: str, role: str = "read") -> None:
        """Note what a program that follows links below a directory would touch."""
        survey = self.survey(directory)
        if survey is None and (not self.files.sees or self.files.look(directory).is_directory):
            self.doubt(source, "it follows links, and there is too much below the directory to look for them")
        else:
            self._links_below(role, directory, source)

    def device(self, role: str, text: str, source: str) -> bool:
        """Tell whether a path in a command is no file: a standard stream, or a connection, which is noted."""
        if socket := _SOCKET.match(text):
            self._note_url(parse_host(f"{socket[1]}:{socket[2]}"), source, sends=True)
            return True
        return _NO_RESOURCE.match(text) is not None and (role == "read" or not text.endswith("random"))

    # The machine

    def manage(self, kind: MachineKind, name: str | None, source: str) -> None:
        """Note that state of the machine is used or changed; without a name it may be any of its kind."""
        self.add(Effect("manage", machine_resource(kind, name), source))

    # Network

    def contact(self, text: str, source: str, *, sends: bool = False, bare: bool = False) -> None:
        """Note that a URL is fetched, or that something is sent there; `bare` ones may leave out their scheme."""
        self._note_url(read_url(text) if bare else parse_url(text), source, sends=sends)

    def contact_host(self, text: str, source: str, *, sends: bool = True) -> None:
        """Note a connection to a host."""
        self._note_url(parse_host(text), source, sends=sends)

    def _note_url(self, url: Url, source: str, *, sends: bool) -> None:
        if url.refusal:
            self.doubt(source, url.refusal)
        else:
            self.add(Effect("send" if sends else "contact", url.text, source))


def _picks(names: list[str], *, hidden: bool) -> str:
    """Return what a glob picks beneath its fixed part, as `Effect` says; brackets are not read alike everywhere."""
    last = names[-1]
    if last in ("", "**") or "[" in last:
        return "**"
    return last if len(names) == 1 and not hidden else f"**/{last}"
