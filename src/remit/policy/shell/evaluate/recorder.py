"""Records the effects of commands: files, side effects, and changes that the script itself makes.

Some effects depend on the script as a whole: a file that is written and then run, a link that is created and then
followed. `changes.py` keeps the data for that.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from remit.claims.types import SideEffectClass
from remit.errors import ShellUnparsed
from remit.policy.call import Effect
from remit.policy.field import Field
from remit.policy.files import ResolvedPath, join, without_dots
from remit.policy.shell.evaluate.changes import Changes
from remit.policy.shell.evaluate.state import Output, ShellState
from remit.policy.shell.tables import Program
from remit.policy.trace import Trace

TOO_MUCH: Final = "it is too complex to analyse"
_MAX_STEPS: Final = 1500
# Where a path or URL can be in an argument: after a separator, attached to a short option, or in a text.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*\Z", re.DOTALL)
_SIGNS: Final = re.compile(r"[=:@,]")
_GLUED: Final = re.compile(r"-[A-Za-z]([/~.].*)\Z", re.DOTALL)
_SHORT: Final = re.compile(r"-[A-Za-z](.+)\Z", re.DOTALL)
# A name with an extension, or below a directory.
_NAMED: Final = re.compile(r"[\w@+,.-]*[/.][\w@+,./-]*")
_QUOTES: Final = re.compile(r"[\s'\"`();<>|&=:@,{}\[\]]")


# Programs of installed packages or of a framework, which are not project code.
_PACKAGED: Final = re.compile(r"(?:\A|/)(?:node_modules/|vendor/|\.?v?env/(?:bin|lib)/|(?:artisan|bin/console)\Z)")


def is_packaged(path: str) -> bool:
    """Return whether a program belongs to an installed package, and is not project code."""
    return _PACKAGED.search(path) is not None


def matches_parent(pattern: str) -> bool:
    """Return whether a wildcard such as `.*` may match `..`, as in older shells."""
    names = pattern.replace("**", "*").replace("[^", "[!").split("/")
    return any(name.startswith(".") and name != ".." and fnmatchcase("..", name) for name in names)


class EffectRecorder:
    """Records effects, including those that depend on earlier commands of the script."""

    def __init__(self, trace: Trace, *, symbolic: bool = False) -> None:
        self.trace = trace
        # Give each unknown directory a name of its own, taken from the word that leads to it.
        self.symbolic = symbolic
        self.changes = Changes(trace.files)
        self._steps = 0
        # Files that the program being judged reads and writes, and whether it keeps their content.
        self._read: set[str] = set()
        self._wrote: set[str] = set()
        self._keeping = False
        # Whether standard input was redirected for later commands, and programs that would run what they read from it.
        self.stdin_changed = False
        self.readers: set[str] = set()
        self._places: set[str | None] = set()

    def step(self) -> None:
        """Count one step, and raise `ShellUnparsed` above the limit."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise ShellUnparsed(TOO_MUCH, "")

    def file(self, role: str, field: Field, cwd: str | None) -> ResolvedPath | None:
        """Record the effects of a role on the file that a word names."""
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
        # Several leading slashes are one in a shell; in other programs they can mean a remote host.
        text = "/" + text.lstrip("/") if text.startswith("//") else text
        if text in ("-", "") or self.trace.device(role, text, field.source):
            return None
        if self.changes.aliases and self.changes.crosses(join(cwd or "/", text)):
            self.trace.doubt(field.source, "it goes upwards through a name that the same command makes")
        resolved = self.trace.touch(role, text, cwd, field.source)
        if resolved is not None:
            if self.changes.aliases and resolved.path != without_dots(join(cwd or "/", text)):
                # The link may lead through a name that the script has created.
                self.trace.doubt(field.source, "it goes through a link while the same command makes others")
            self._record_file(role, resolved.path, field.source)
        return resolved

    def _listed(self, role: str, field: Field, cwd: str | None) -> None:
        if field.cwd is not None and field.cwd != cwd:
            self.trace.doubt(field.source, "it was listed in another directory")
        elif field.text == "/dev/fd":
            self._read.add(field.text)
        else:
            self.trace.touch_listed(role, field.text, field.source, field.picks)
            self._record_folder(role, field.text)
            if role != "read":
                # Programs also list the directory that they start at.
                self.changes.reshape((Effect("delete", field.text, field.source),))
            if field.linked:
                self.trace.follow_links(field.text, field.source, role)

    def _matched(self, role: str, field: Field, cwd: str | None) -> None:
        self._check_pattern(field)
        pattern = field.text.replace("**", "*").replace("[^", "[!")
        self.trace.touch_pattern(role, pattern, cwd, field.source)
        fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        self._record_folder(role, self.trace.files.resolve(join(cwd or "/", fixed)).path)

    def _check_pattern(self, field: Field) -> None:
        pattern = field.text.replace("**", "*").replace("[^", "[!")
        if "[[" in pattern or "[:" in pattern:
            self.trace.doubt(field.source, "a wildcard that shells read differently")
        # If the script has created links, even a plain `..` leads to an unknown directory.
        if matches_parent(pattern) or (self.changes.aliases and ".." in pattern.split("/")):
            self.trace.doubt(field.source, "it may match the directory above")

    def list_names(self, field: Field, state: ShellState) -> None:
        """Record the directories that the shell lists to expand a wildcard, whatever uses the names.

        Wildcards in the working directory, and words that are hardly paths, are not recorded.
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

    def _record_folder(self, role: str, folder: str) -> None:
        if role != "write":
            self._read.add(folder)
        if role in ("write", "edit", "move") and not self._keeping:
            self.changes.filled.add(folder)
        if role in ("delete", "move"):
            self.changes.unsure.add(folder)
        if role == "move":
            self.changes.removed.append(f"{folder}/")

    def _record_file(self, role: str, path: str, source: str) -> None:
        if role != "write":
            self._read.add(path)
        if role in ("write", "edit"):
            self._wrote.add(path)
            self.trace.files.make(path)
            if not self._keeping:
                self.changes.write(path, from_scratch=role == "write")
        if role in ("delete", "move"):
            self.changes.removed.append(path)
        for name, target in self.changes.aliases.items():
            if path != name and not path.startswith(name + "/"):
                continue
            if not target:
                self.trace.doubt(source, "it leads through a name that the same command makes")
            else:
                # The script itself has created this name, so the effect is on its target.
                self.trace.touch(role, target + path[len(name) :], None, source)

    def reads_own(self) -> bool:
        """Return whether the program being judged reads files that the script has written, or output of another one."""
        return "/dev/fd" in self._read or any(self.changes.is_tainted(path) for path in self._read)

    def is_plain(self, output: Output) -> bool:
        """Return whether no file name below the directories can be split, or read as an option."""
        surveys = [self.trace.survey(directory) for directory in output.below]
        return all(survey is not None and not survey.odd_names for survey in surveys)

    def check_links(self, directories: Sequence[str], source: str) -> None:
        """Record the targets of links below directories, for a program that opens every file there."""
        for directory in directories:
            self.trace.follow_links(directory, source)

    def arguments_of_code(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Record the arguments of project code that are paths or URLs outside of the project, or contain one."""
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
        """Record the arguments of an undescribed tool that are, or look like, files here: it may change them."""
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
        """Record a side effect that no effect implies."""
        self.trace.side_effects.add(side_effect)

    def escalate(self, name: str) -> None:
        """Record that a program gets superuser privileges."""
        self.trace.add(Effect("escalate", "superuser", name))

    def record_code(self, *, starts: bool = True) -> None:
        """Record that project code runs, which static policy cannot restrict; not `starts` if it only runs later."""
        self.trace.runs_code = True
        self.changes.unsettled |= starts
        self.trace.side_effects.add("state_change")

    def project_code(self, program: Program, cwd: str | None) -> None:
        """Record that a program runs the code in the working directory."""
        self.record_code()
        self.trace.touch("edit", ".", cwd, program.name)
        self.changes.steer(program.control, program.name)
        self.changes.build(cwd, program.name)
        self.changes.build_download(cwd, program.control, program.name)

    def enter(self, cwd: str | None) -> None:
        """Record a possible working directory of the script."""
        self._places.add(cwd)
