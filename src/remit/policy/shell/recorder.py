"""What commands do, noted in one place: files by their words, side effects, and what the script changes on the way.

Some effects only show when a script is seen as a whole: a file that is written and then run, a link that is made and
then read through. `changes.py` remembers what is needed for that.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from remit.claims.shapes import SideEffectClass
from remit.errors import ShellUnparsed
from remit.policy.call import Effect
from remit.policy.files import ResolvedPath, join, without_dots
from remit.policy.shell.changes import Changes
from remit.policy.shell.programs import Program
from remit.policy.shell.state import Field, Output, ShellState
from remit.policy.trace import Trace

__all__ = ["TOO_MUCH", "EffectRecorder", "is_packaged", "matches_parent"]

TOO_MUCH: Final = "it asks for more than we follow"
_MAX_STEPS: Final = 1500
# Where a path or a URL can stand in an argument: behind a sign, glued to a short option, or in a text.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*\Z", re.DOTALL)
_SIGNS: Final = re.compile(r"[=:@,]")
_GLUED: Final = re.compile(r"-[A-Za-z]([/~.].*)\Z", re.DOTALL)
_SHORT: Final = re.compile(r"-[A-Za-z](.+)\Z", re.DOTALL)
# A name with an ending, or below a directory.
_NAMED: Final = re.compile(r"[\w@+,.-]*[/.][\w@+,./-]*")
_QUOTES: Final = re.compile(r"[\s'\"`();<>|&=:@,{}\[\]]")


# Programs that come with packages of the project or with a framework, and are not its own code.
_PACKAGED: Final = re.compile(r"(?:\A|/)(?:node_modules/|vendor/|\.?v?env/(?:bin|lib)/|(?:artisan|bin/console)\Z)")


def is_packaged(path: str) -> bool:
    """Return whether a program comes with a package, and is not code of the project."""
    return _PACKAGED.search(path) is not None


def matches_parent(pattern: str) -> bool:
    """Return whether a wildcard may match `..`, as that of older shells does: `.*`."""
    names = pattern.replace("**", "*").replace("[^", "[!").split("/")
    return any(name.startswith(".") and name != ".." and fnmatchcase("..", name) for name in names)


class EffectRecorder:
    """Effects of a script beyond those of its single commands."""

    def __init__(self, trace: Trace, *, symbolic: bool = False) -> None:
        self.trace = trace
        # A directory that is not known has a name of its own, by the word that leads there.
        self.symbolic = symbolic
        self.changes = Changes(trace.files)
        self._steps = 0
        # What the program being judged reads, and whether it leaves contents alone.
        self._read: set[str] = set()
        self._wrote: set[str] = set()
        self._keeping = False
        # Standard input was changed for all that follows, and programs that would run what they read there.
        self.stdin_changed = False
        self.readers: set[str] = set()
        self._places: set[str | None] = set()

    def step(self) -> None:
        """Count one step of work."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise ShellUnparsed(TOO_MUCH, "")

    def file(self, role: str, field: Field, cwd: str | None) -> ResolvedPath | None:
        """Record what a role does to the file that a word names."""
        if field.kind == "unknown":
            self.trace.doubt(field.source, "the file it names is not known before it runs")
        elif field.kind == "exact":
            return self._named(role, field, cwd)
        elif field.kind == "below":
            self._listed(role, field, cwd)
        else:
            self._matched(role, field, cwd)
        return None

    def _named(self, role: str, field: Field, cwd: str | None) -> ResolvedPath | None:
        text = f"./{field.text}" if field.quoted and field.text.startswith("~") else field.text
        # Several slashes at the start are one here; elsewhere they can mean another host.
        text = "/" + text.lstrip("/") if text.startswith("//") else text
        if text in ("-", "") or self.trace.device(role, text, field.source):
            return None
        if self.changes.aliases and self.changes.crosses(join(cwd or "/", text)):
            self.trace.doubt(field.source, "it goes upwards through a name that the same command makes")
        resolved = self.trace.touch(role, text, cwd, field.source)
        if resolved is not None:
            if self.changes.aliases and resolved.path != without_dots(join(cwd or "/", text)):
                # What stands on the way of that link may be what the script has made.
                self.trace.doubt(field.source, "it goes through a link while the same command makes others")
            self._note_file(role, resolved.path, field.source)
        return resolved

    def _listed(self, role: str, field: Field, cwd: str | None) -> None:
        if field.cwd is not None and field.cwd != cwd:
            self.trace.doubt(field.source, "it was listed in another directory")
        elif field.text == "/dev/fd":
            self._read.add(field.text)
        else:
            self.trace.touch_listed(role, field.text, field.source, field.picks)
            self._note_folder(role, field.text)
            if role != "read":
                # Programs list the directory that they start from too.
                self.changes.reshape((Effect("delete", field.text, field.source),))
            if field.linked:
                self.trace.follow_links(field.text, field.source, role)

    def _matched(self, role: str, field: Field, cwd: str | None) -> None:
        self._check_pattern(field)
        pattern = field.text.replace("**", "*").replace("[^", "[!")
        self.trace.touch_pattern(role, pattern, cwd, field.source)
        fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        self._note_folder(role, self.trace.files.resolve(join(cwd or "/", fixed)).path)

    def _check_pattern(self, field: Field) -> None:
        pattern = field.text.replace("**", "*").replace("[^", "[!")
        if "[[" in pattern or "[:" in pattern:
            self.trace.doubt(field.source, "a kind of wildcard that is not read alike everywhere")
        # Where the script has made links, not even `..` itself leads to a place that is known.
        if matches_parent(pattern) or (self.changes.aliases and ".." in pattern.split("/")):
            self.trace.doubt(field.source, "it may match the directory above")

    def list_names(self, field: Field, state: ShellState) -> None:
        """Record the directories that are listed for a wildcard, whatever gets the names.

        Names in the working directory, and words that are hardly paths, do not count.
        """
        if field.kind == "unknown":
            self.trace.doubt(field.source, "the directory it lists is not known before it runs")
        data = ".." not in field.text and (field.text.startswith("-") or "://" in field.text)
        if field.kind == "pattern" and "/" in field.text and not data:
            self._check_pattern(field)
            self.trace.touch_listing(field.text.replace("**", "*"), state.cwd, field.source)
        elif field.kind == "below":
            # The program that gets the names has not read the files.
            outer, self._read = self._read, set()
            self._listed("read", field, state.cwd)
            self._read = outer

    def _note_folder(self, role: str, folder: str) -> None:
        if role != "write":
            self._read.add(folder)
        if role in ("write", "edit", "move") and not self._keeping:
            self.changes.filled.add(folder)
        if role in ("delete", "move"):
            self.changes.unsure.add(folder)
        if role == "move":
            self.changes.removed.append(f"{folder}/")

    def _note_file(self, role: str, path: str, source: str) -> None:
        if role != "write":
            self._read.add(path)
        if role in ("write", "edit"):
            self._wrote.add(path)
            self.trace.files.make(path)
            if not self._keeping:
                self.changes.write(path, anew=role == "write")
        if role in ("delete", "move"):
            self.changes.removed.append(path)
        for name, target in self.changes.aliases.items():
            if path != name and not path.startswith(name + "/"):
                continue
            if not target:
                self.trace.doubt(source, "it leads through a name that the same command makes")
            else:
                # The name is made by this very script: what it stands for is what is touched.
                self.trace.touch(role, target + path[len(name) :], None, source)

    def reads_own(self) -> bool:
        """Return whether the program being judged reads what the script has written, or what another prints."""
        return "/dev/fd" in self._read or any(self.changes.is_tainted(path) for path in self._read)

    def is_plain(self, output: Output) -> bool:
        """Return whether no file name below the directories can be taken for two, or for an option."""
        surveys = [self.trace.survey(directory) for directory in output.below]
        return all(survey is not None and not survey.odd_names for survey in surveys)

    def check_links(self, directories: Sequence[str], source: str) -> None:
        """Record where the links below directories lead, for a program that opens whatever is found there."""
        for directory in directories:
            self.trace.follow_links(directory, source)

    def arguments_of_code(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Record the arguments of project code that read like paths or URLs elsewhere, or that hold one behind a sign."""
        for field in fields:
            if url := _URL.search(field.text):
                self.trace.contact(url[0], field.source)
                continue
            glued = _GLUED.match(field.text)
            pieces = [*_SIGNS.split(field.text), *(glued.groups() if glued else ())]
            outside = [text for text in pieces if text.startswith(("/", "~", "../")) or "/../" in text or text == ".."]
            outside.extend(text for text in _QUOTES.split(field.text) if text.startswith("../"))
            for text in dict.fromkeys(outside):
                self.file("edit", field._replace(text=text), cwd)

    def files_of_tool(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Record the words of a tool that nobody described which are files here, or read like one: it may change them."""
        for field in fields:
            if field.kind == "pattern":
                self.trace.touch_pattern("edit", field.text.replace("**", "*"), cwd, field.source)
            glued = _SHORT.match(field.text)
            pieces = (field.text, field.text.partition("=")[2], glued[1] if glued else "")
            for text in dict.fromkeys(pieces) if field.kind == "exact" and "://" not in field.text else ():
                named = _NAMED.fullmatch(text) and not text.startswith("-")
                if named or (text and cwd is not None and self.trace.files.resolve(join(cwd, text)).exists):
                    self.trace.touch("edit", text, cwd, field.source)

    def side(self, side_effect: SideEffectClass) -> None:
        """Record a side effect beyond those of the effects."""
        self.trace.side_effects.add(side_effect)

    def escalate(self, name: str) -> None:
        """Record that privileges are raised."""
        self.trace.add(Effect("escalate", "superuser", name))

    def note_code(self, *, starts: bool = True) -> None:
        """Record that code of the project runs, which nothing here can bound; `starts` unless it only will."""
        self.trace.runs_code = True
        self.changes.unsettled |= starts
        self.trace.side_effects.add("state_change")

    def project_code(self, program: Program, cwd: str | None) -> None:
        """Record that a program runs the code it finds in the working directory."""
        self.note_code()
        self.trace.touch("edit", ".", cwd, program.name)
        self.changes.steer(program.control, program.name)
        self.changes.build(cwd, program.name)
        self.changes.build_download(cwd, program.control, program.name)

    def enter(self, cwd: str | None) -> None:
        """Record a working directory that the script may be in."""
        self._places.add(cwd)
