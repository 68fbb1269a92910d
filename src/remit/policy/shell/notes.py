"""What is remembered while a script is followed: files it writes, code it runs, names it makes, places it enters.

Some effects only show when a script is seen as a whole: a file that is written and then run, a link that is made and
then read through. `Notes` keeps what is needed for that; `run.py` does the following.
"""

from collections.abc import Sequence
from typing import Final

from remit.claims.shapes import SideEffectClass
from remit.policy.call import Effect
from remit.policy.files import Look
from remit.policy.paths import join
from remit.policy.shell.programs import Program
from remit.policy.shell.world import Field, Output
from remit.policy.trace import Trace

__all__ = ["Notes"]

_MAX_STEPS: Final = 1500


class Exhausted(Exception):
    """The script asks for more work than we do."""


class Notes:
    """Effects of a script beyond those of its single commands."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._steps = 0
        self._written: set[str] = set()
        self._read: set[str] = set()
        self._code: set[tuple[str, str]] = set()
        self._controls: set[tuple[str, str]] = set()
        self._keeping = False
        self._aliases: dict[str, str] = {}
        self._places: set[str | None] = set()

    def step(self) -> None:
        """Count one step of work."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise Exhausted

    def file(self, role: str, field: Field, cwd: str | None) -> Look | None:
        """Note what a role does to the file that a word names."""
        look = None
        if field.kind == "unknown":
            self.trace.doubt(field.source, "the file it names is not known before it runs")
        elif field.kind == "below":
            if field.cwd is not None and field.cwd != cwd:
                self.trace.doubt(field.source, "it was listed in another directory")
            elif field.text != "/dev/fd":
                self.trace.touch_beneath(role, field.text, field.source)
        elif field.kind == "pattern":
            self.trace.touch_pattern(role, field.text.replace("**", "*"), cwd, field.source)
        elif field.text not in ("-", "") and not self.trace.device(role, field.text, field.source):
            if self._aliases and self.crosses(join(cwd or "/", field.text)):
                self.trace.doubt(field.source, "it goes upwards through a name that the same command makes")
            look = self.trace.touch(role, field.text, cwd, field.source)
            if look is not None:
                self._note_file(role, look.path, field.source)
        return look

    def _note_file(self, role: str, path: str, source: str) -> None:
        if role != "write":
            self._read.add(path)
        if role in ("write", "edit", "move") and not self._keeping:
            self._written.add(path)
        for name, target in self._aliases.items():
            if path == name or path.startswith(name + "/"):
                # The name is made by this very script: what it stands for is what is touched.
                self.trace.touch(role, target + path[len(name) :], None, source)

    def alias(self, name: str, target: str) -> None:
        """Remember that the script makes `name` stand for `target`: a link, a copy or a new name."""
        self._aliases[name] = target

    def crosses(self, path: str, *, upwards: bool = True) -> bool:
        """Tell whether a path leads through a name that the script makes, and upwards from there."""
        kept: list[str] = []
        inside = False
        for name in path.split("/"):
            if name == "..":
                if inside:
                    return True
                del kept[-1:]
            elif name not in ("", "."):
                kept.append(name)
            here = "/" + "/".join(kept)
            inside = any(here == made or here.startswith(made + "/") for made in self._aliases)
        return inside and not upwards

    def is_plain(self, output: Output) -> bool:
        """Tell whether no file name below the directories can be taken for two, or for an option."""
        surveys = [self.trace.survey(directory) for directory in output.below]
        return all(survey is not None and not survey.odd_names for survey in surveys)

    def check_links(self, directories: Sequence[str], source: str) -> None:
        """Note where the links below directories lead, for a program that opens whatever is found there."""
        for directory in directories:
            self.trace.follow_links(directory, source)

    def arguments_of_code(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Note the arguments of project code that read like paths or URLs elsewhere."""
        for field in fields:
            text = field.text.partition("=")[2] if field.text.startswith("-") and "=" in field.text else field.text
            if "://" in text:
                self.trace.contact(text, field.source)
            elif text.startswith(("/", "~", "../")) or "/../" in text or text == "..":
                self.file("edit", field._replace(text=text), cwd)

    def side(self, side_effect: SideEffectClass) -> None:
        """Note a side effect beyond those of the effects."""
        self.trace.side_effects.add(side_effect)

    def escalate(self, name: str) -> None:
        """Note that privileges are raised."""
        self.trace.add(Effect("escalate", "superuser", name))

    def note_code(self) -> None:
        """Note that code of the project runs, which nothing here can bound."""
        self.trace.runs_code = True
        self.trace.side_effects.add("state_change")

    def project_code(self, program: Program, cwd: str | None) -> None:
        """Note that a program runs the code it finds in the working directory."""
        self.note_code()
        self.trace.touch("edit", ".", cwd, program.name)
        self._controls.update((control, program.name) for control in program.control)

    def check_not_written(self, path: str, source: str) -> None:
        """Remember a file that is run: what the same script writes is not known to be harmless."""
        self._code.add((path, source))

    def enter(self, cwd: str | None) -> None:
        """Remember a working directory that the script may be in."""
        self._places.add(cwd)

    def check_code(self) -> None:
        """Doubt code that the script itself has written."""
        for path, source in self._code:
            if path in self._written:
                self.trace.doubt(source, "it runs a file that the same command writes", unbounded=True)
        for control, source in self._controls:
            if any(f"/{control}/" in f"{path}/" for path in self._written):
                self.trace.doubt(source, f"it is steered by {control}, which the same command writes", unbounded=True)
