"""Judges one program by its table: what it would do with its words.

The words are sorted into options and operands, each one is handled by its role (`roles.py`), and the fixed effects of
the table are added. Commands inside words are evaluated by `evaluate/script.py`.
"""

import re
import sys
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from remit.claims.mission import MachineKind
from remit.policy.field import Field
from remit.policy.files import ResolvedPath, join
from remit.policy.machine import split_machine
from remit.policy.shell.evaluate.context import Evaluator
from remit.policy.shell.evaluate.recorder import is_packaged
from remit.policy.shell.evaluate.state import Output, ShellState
from remit.policy.shell.programs.landing import backup_name, land
from remit.policy.shell.programs.prints import PRINTS
from remit.policy.shell.programs.roles import CODE_ROLES, apply_role, run_text
from remit.policy.shell.tables import Arguments, Program, known_program, parse_arguments, roles
from remit.policy.trace import VERBS

_UNKNOWN_CONTACT: Final = "?"
_MAX_FORM: Final = 512
_UNREAD_INPUT: Final = "it runs its input, which is not known"
# Options with code as their value, and values that are not code.
_INLINE: Final = frozenset(("-c", "-e", "-m", "--code", "--command", "--eval", "--exec", "--execute"))
# Words after which a tool takes a command.
_STARTS: Final = frozenset(("run", "exec", "--", "-c", "-x", "--exec", "--command"))
_PLAIN_VALUE: Final = re.compile(r"[\w./:@%+,=-]*")
# Roles of words that start another program, and prefixes of words that are paths.
_CARRYING: Final = frozenset(("command", "tool", "words"))
_PATH_MARKS: Final = (".", "/", "~")
# Common names of scripts that are also names of programs.
_SCRIPTS: Final = frozenset(("start", "watch"))
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)


def _is_tool(path: str) -> bool:
    """Return whether a file of code is a tool: part of an installed package, or named like a known program."""
    return is_packaged(path) or known_program(path.rpartition("/")[2]) is not None


class Invocation:
    """One program with its words, in one state."""

    # Whether data is sent to the contacted hosts.
    sends = False
    # An option such as `--dry-run` keeps the program from changing anything.
    looks = False
    # The suffix of the backup of an overwritten file.
    suffix = ""
    # Only paths follow `--`.
    dashed = False
    # git takes files from a given tree, whose directories may differ from those of the work tree.
    tree = False
    # An option has chosen another working directory.
    moved = False
    output = Output()
    arguments = Arguments((), (), ())
    # The positional parameters of a script that is given as text.
    positional: Sequence[Field] | None = ()

    def __init__(self, evaluator: Evaluator, state: ShellState, program: Program) -> None:
        self.evaluator = evaluator
        self.trace = evaluator.trace
        self.state = state
        self.program = program
        self.cwd = state.cwd
        # How many names the script has created before.
        self.made_before = evaluator.trace.files.count_made()
        # The kinds of machine state that words have named.
        self.managed: set[str] = set()

    def judge(self, program: Program, fields: Sequence[Field]) -> None:
        """Record the effects of the words, and the fixed effects of the table."""
        other = known_program(program.program) if program.program else None
        if program.refusal:
            self.trace.doubt(program.name, program.refusal, unbounded=True)
            self._touches(program, parse_arguments(program, fields))
        elif other is not None:
            self.judge(other, fields)
        else:
            fields = self._behind(program, fields) if program.behind else fields
            self.arguments = arguments = parse_arguments(program, fields)
            self.program = program
            # If `--` is among the operands, which one is the first is not known.
            self.dashed = any(field.text == "--" for field in fields)
            self.positional = None if self.dashed else arguments.operands[1:]
            self.looks = self._only_looks(program, arguments, fields)
            self.trace.spreads = program.spreads and not self.looks
            self.sends = program.sends or arguments.has(program.sends_if)
            self._check_settings(program)
            self._check_words(program, arguments, fields)
            self._options(program, arguments)
            if arguments.has(program.clears):
                # Of these variables only the home directory is known.
                self.evaluator.passed_variables.add("HOME")
            self._rest(program, arguments)

    def _behind(self, program: Program, fields: Sequence[Field]) -> Sequence[Field]:
        """Judge the words after `--` by the table of the program that gets them; return the words before."""
        at = next((index for index, field in enumerate(fields) if field.text == "--"), len(fields))
        inner = known_program(program.behind)
        if fields[at + 1 :] and inner is not None:
            Invocation(self.evaluator, self.state, inner).judge(inner, fields[at + 1 :])
        return fields[:at]

    def _check_settings(self, program: Program) -> None:
        """Record a doubt about variables whose text would become part of commands that the program runs."""
        for name in sorted(self.evaluator.unsafe_variables) if program.settings else ():
            self.trace.doubt(name, f"{program.name} takes it as a setting, and it may hold commands", unbounded=True)

    @staticmethod
    def _only_looks(program: Program, arguments: Arguments, fields: Sequence[Field]) -> bool:
        """Return whether an option keeps it from changing anything; it must stand before the first operand."""
        if not arguments.has(program.looks_if) or arguments.unknown:
            return False
        return parse_arguments(structs.replace(program, posix=True), fields).has(program.looks_if)

    def _check_words(self, program: Program, arguments: Arguments, fields: Sequence[Field]) -> None:
        """Record doubts about unknown options and missing ones."""
        for field in arguments.unknown:
            known = f"this option of {program.name} is not known here"
            reason = f"it may be an option of {program.name} that matters" if field.kind == "unknown" else known
            self.trace.doubt(field.source, reason, unbounded=True)
        for field in fields if program.at_files else ():
            if field.text.startswith("@") or (field.kind == "unknown" and not field.text):
                reason = f"{program.name} may take it for a file of further words"
                self.trace.doubt(field.source, reason, unbounded=True)
        if program.needs and not arguments.has(program.needs):
            self.trace.doubt(program.name, "without a message it would start an editor", unbounded=True)
        self.check_wildcards(program, fields)

    def _options(self, program: Program, arguments: Arguments) -> None:
        for name, role, value in arguments.options:
            if role == "refused":
                self.trace.doubt(name, f"{program.name} {program.refused_options[name]}", unbounded=True)
            elif role and value is not None:
                apply_role(self, role, value)

    def _rest(self, program: Program, arguments: Arguments) -> None:
        module = next((value for _, role, value in arguments.options if role == "module"), None)
        if module is not None:
            self._module(program, module, arguments.operands)
            if program.runs:
                self._facts(program, arguments)
        elif program.sub:
            self._subcommand(program, arguments)
        else:
            self._operands(program, arguments)
            self._facts(program, arguments)
            if program.name in PRINTS:
                self.output = PRINTS[program.name](self, arguments)

    def check_wildcards(self, program: Program, fields: Sequence[Field]) -> None:
        """Record a doubt if a wildcard may pass a file named like an option to a program with dangerous options."""
        if program.is_harmless:
            return
        for field in fields:
            if field.kind == "exact" and field.text == "--":
                return
            if self.cwd is not None and (field.bare or (field.kind == "pattern" and field.text[:1] in "*?[")):
                first, files = "-*" if field.bare else field.text.partition("/")[0], self.trace.files
                matches = (*(files.expand(self.cwd, first) or ()), *files.made(self.cwd, first))
                if any(name.startswith("-") and not program.ignores_option(name) for name in matches):
                    self.trace.doubt(field.source, "it matches a file that is named like an option; write ./ before it")

    def _subcommand(self, program: Program, arguments: Arguments) -> None:
        first = arguments.operands[0] if arguments.operands else None
        if program.open and (first is None or first.kind != "exact" or first.text not in program.sub):
            self._operands(program, arguments)
            self._facts(program, arguments)
            return
        if not arguments.operands:
            if program.default:
                self._touches(program, arguments)
                self.judge(program.sub[program.default], ())
            elif not arguments.options:
                self._facts(program, arguments)
            self._input(program, arguments, ())
            return
        word, *rest = arguments.operands
        sub = program.sub.get(word.text) if word.kind == "exact" else None
        if sub is None:
            if program.default and word.kind == "exact" and word.text.startswith("-"):
                self.judge(program.sub[program.default], arguments.operands)
                return
            self.trace.doubt(word.source, f"this command of {program.name} is not known here", unbounded=True)
            return
        self.trace.spawned.subcommand(word.text)
        self.judge(sub, rest)

    def _operands(self, program: Program, arguments: Arguments) -> None:
        given, command, carried = self._divided(list(roles(program, arguments)))
        coded = packaged = False
        for role, field in given:
            if not coded or role not in ("data", "revision"):
                apply_role(self, role, field)
            if coded or (program.runs and role in ("data", "revision")):
                self.evaluator.arguments_of_code((field,), self.cwd)
            if packaged:
                self.evaluator.files_of_tool((field,), self.cwd)
            packaged = packaged or (role == "code" and _is_tool(field.text))
            coded = coded or role == "code"
        if given and program.into and (len(given) > 1 or arguments.has(program.into_by)):
            land(self, program, arguments, given)
        kind, _, form = carried.partition(":")
        if kind == "tool":
            self._tool(program, form, command)
        elif kind == "words":
            self._words(form, command)
        elif command:
            self.evaluator.command(command, self.state._replace(cwd=self.cwd), prefix=program.name)
        else:
            self._missing(program, arguments, len(given))
            self._input(program, arguments, [role for role, _ in given])

    @staticmethod
    def _divided(given: list[tuple[str, Field]]) -> tuple[list[tuple[str, Field]], list[Field], str]:
        """Return the words of the program itself, the words of a command that it runs, and the role of that command."""
        for index, (role, field) in enumerate(given):
            assigns = role == "env" and field.kind == "exact" and _ASSIGNMENT.match(field.text)
            # After assignments, the first other word starts the command.
            if role.partition(":")[0] in _CARRYING or (role == "env" and not assigns):
                return given[:index], [field for _, field in given[index:]], role
        return given, [], ""

    def _missing(self, program: Program, arguments: Arguments, count: int) -> None:
        """Record the effects of a missing operand."""
        supplied = arguments.has(program.supplied_by)
        wanted = program.operands[1:] if supplied else program.operands
        fixed = 0 if wanted and wanted[-1] == "data*" else sum(1 for role in wanted if not role.endswith("*"))
        if count <= fixed and not arguments.has(program.into_by):
            for effect in program.without_operands:
                role, _, path = effect.partition(" ")
                apply_role(self, role, Field(path, "exact", program.name))

    def _input(self, program: Program, arguments: Arguments, given: Sequence[str]) -> None:
        """Judge standard input as code, if the program reads code there and no word gives it code."""
        instead = given if not program.no_stdin_if else CODE_ROLES.intersection(given)
        if program.stdin and not instead and not arguments.has(program.no_stdin_if or program.supplied_by):
            self.standard_input(program)

    def _tool(self, program: Program, form: str, words: Sequence[Field]) -> None:
        """Record a tool of the project's packages, by its own table if it has one.

        With a `form`, the word may also name a script of the project, and has that role.
        """
        first = words[0]
        self.trace.spawned.runs(first.text)
        name = re.sub(r"(?<=.)@[^/]*\Z", "", first.text).rpartition("/")[2]
        script = form and name in _SCRIPTS and not any(known_program(field.text) for field in words[1:])
        if first.kind == "exact" and known_program(name) is not None and not script:
            # A path is not the program that PATH finds by the same name.
            called = first if first.text.startswith(_PATH_MARKS) else first._replace(text=name)
            self.evaluator.command([called, *words[1:]], self.state._replace(cwd=self.cwd), prefix=program.name)
        else:
            apply_role(self, form or "package", first)
            self.evaluator.arguments_of_code(words[1:], self.cwd)
            self._check_local(program, form, first)
            if not form:
                self._foreign(words[1:])
        self.evaluator.record_code()

    def _check_local(self, program: Program, form: str, field: Field) -> None:
        """Record a doubt about a tool that is neither in the project nor downloaded: PATH may find any program."""
        folder = program.unless_local
        beside = field.text.startswith(_PATH_MARKS) or self.exists(f"{folder}/{field.text}")
        if folder and not form and not program.contacts and self.trace.files.reads_disk and not beside:
            self.trace.doubt(field.source, f"it is not in {folder}, so it is a program of the machine", unbounded=True)

    def _words(self, form: str, words: Sequence[Field]) -> None:
        """Judge words as those of another program; a first word that is no subcommand is a script, as after `run`."""
        inner = known_program(form)
        if inner is None:
            return
        script = inner.sub.get("run") if words[0].text not in inner.sub else None
        invocation = Invocation(self.evaluator, self.state._replace(cwd=self.cwd), inner)
        invocation.judge(script or inner, words)

    def standard_input(self, program: Program) -> None:
        """Judge the content of standard input as code that the program runs."""
        given = self.state.stdin
        if given is None:
            # Nothing is redirected, and the terminal of an agent gives no input, unless the script changes that.
            self.evaluator.readers.add(program.name)
            return
        if given.downloaded:
            self.evaluator.changes.run_download(program.name, given.downloaded, starts=False)
        if given.text is None:
            unread = "it runs a file whose content is not read" if given.local else _UNREAD_INPUT
            self.trace.doubt(program.name, unread, unbounded=True)
            return
        run_text(self, program.stdin, Field(given.text, "exact", program.name))

    def _facts(self, program: Program, arguments: Arguments) -> None:
        trace = self.trace
        if program.privilege:
            self.evaluator.escalate(program.name)
        self._touches(program, arguments)
        self._manages(program, arguments)
        local = (
            program.unless_local
            and arguments.operands
            and self.exists(f"{program.unless_local}/{arguments.operands[0].text}")
        )
        self._forms(program, arguments)
        also = [host for name, hosts in program.contacts_if.items() if arguments.has((name,)) for host in hosts]
        for host in () if local or arguments.has(program.offline_if) else (*program.contacts, *also):
            if host == _UNKNOWN_CONTACT:
                trace.doubt(program.name, "it contacts a host that the command does not name")
                trace.side_effects.add("external_send" if program.side == "external_send" else "none")
            else:
                trace.contact(host + "/", program.name, sends=program.sends or arguments.has(program.sends_if))
        if program.side != "none":
            self.evaluator.side(program.side)
        if program.runs or arguments.has(program.runs_if):
            self.evaluator.project_code(program, self.cwd)
        follows = program.follows if isinstance(program.follows, bool) else arguments.has(program.follows)
        if follows:
            self._follow(program, arguments)

    def _forms(self, program: Program, arguments: Arguments) -> None:
        """Record the effects of operands that match a pattern of the table."""
        if not program.forms:
            return
        text = " ".join(field.text for field in arguments.operands)[:_MAX_FORM]
        for form, effect in program.forms.items():
            if re.fullmatch(form, text, re.DOTALL):
                kind, _, rest = effect.partition(" ")
                split = split_machine(rest) if kind == "manage" else None
                if split is not None:
                    self.manage(split[0], split[1], program.name)
                elif kind in ("edit", "delete"):
                    self.file(kind, Field(rest, "exact", program.name))
                else:
                    self.trace.doubt(program.name, rest, unbounded=True)

    def _touches(self, program: Program, arguments: Arguments) -> None:
        given = (
            effects
            for name, effects in program.touches_if.items()
            if arguments.has((name.removeprefix("no:"),)) != name.startswith("no:")
        )
        also = [effect for effects in given for effect in effects]
        for effect in (*program.touches, *also):
            role, _, path = effect.partition(" ")
            if self._role(role) not in VERBS:
                apply_role(self, role, Field(path, "exact", program.name))
                continue
            resolved = self.trace.touch(self._role(role), self._home(path), self.cwd, program.name)
            if resolved is not None and effect in also and role == "write":
                self._download(arguments, resolved.path)

    def _manages(self, program: Program, arguments: Arguments) -> None:
        also = (each for name, given in program.manages_if.items() if arguments.has((name,)) for each in given)
        for resource in (*program.manages, *also):
            split = split_machine(resource)
            if split is not None and split[0] not in self.managed:
                self.manage(split[0], split[1], program.name)

    def manage(self, kind: MachineKind, name: str | None, source: str) -> None:
        """Record that state of the machine is used or changed, unless the program changes nothing."""
        self.managed.add(kind)
        if not self.looks:
            self.trace.manage(kind, name, source)

    def _role(self, role: str) -> str:
        return "read" if self.looks else role

    def _download(self, arguments: Arguments, folder: str) -> None:
        """Record downloaded files that are named after the last component of their URLs."""
        for field in arguments.operands:
            name = field.text.partition("?")[0].rpartition("/")[2]
            if field.kind == "exact" and name:
                self.evaluator.changes.write(f"{folder}/{name}", from_scratch=True)
            else:
                self.evaluator.changes.filled.add(folder)

    def _home(self, path: str) -> str:
        return path if not path.startswith("~") or self.trace.files.home is None else self.trace.files.home + path[1:]

    def _follow(self, program: Program, arguments: Arguments) -> None:
        files = [
            field
            for role, field in roles(program, arguments)
            if role.rpartition(":")[2] in ("read", "edit", "move") and field.kind == "exact"
        ]
        for field in files or [Field(".", "exact", program.name)]:
            resolved = self.trace.files.resolve(join(self.cwd or "/", field.text))
            if resolved.is_directory:
                self.trace.follow_links(resolved.path, field.source)

    def _module(self, program: Program, field: Field, rest: Sequence[Field]) -> None:
        """Record `python -m module …`. A module without a table is project code unless the standard library has it."""
        self.trace.spawned.runs(field.text)
        module = field.text.partition(".")[0]
        own = self._is_own(module)
        sub = self._table_of_module(program, field, own=own)
        if self._is_shadowed(module):
            self.evaluator.record_code()
        for name in (f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py"):
            # A file of that name that the script has written would run instead.
            self.evaluator.changes.run(join(self.cwd or "/", name), field.source)
        dotted = module != field.text
        # A module of the project comes before an installed one. A folder without code may be either.
        instead = own and (dotted or (sub is not None and sub.refusal and self._is_own(f"{module}/__main__")))
        if sub is not None and not instead:
            self.judge(sub, rest)
        elif field.kind != "exact" or module in sys.stdlib_module_names:
            self.trace.doubt(field.source, "this module is not known here", unbounded=True)
        elif not own and dotted and self._table_of_module(program, field._replace(text=module), own=own) is not None:
            self.trace.doubt(field.source, f"this part of {module} is not known here", unbounded=True)
        else:
            self.evaluator.project_code(program, self.cwd)
            self._arguments_of_module(rest, own=own)

    def _is_own(self, module: str) -> bool:
        """Return whether a module is found in the project, where Python looks for it."""
        places = [f"{folder}{module}{end}" for folder in ("", "src/") for end in ("", ".py")]
        return self.trace.files.reads_disk and not self.arguments.has(("-P", "-I")) and any(map(self.exists, places))

    @staticmethod
    def _table_of_module(program: Program, field: Field, *, own: bool) -> Program | None:
        """Return the table of a module, or of the program with its name if it is not a module of the project."""
        name = field.text.removesuffix(".__main__")
        python = program if program.sub_modules else known_program("python") or program
        if field.kind != "exact":
            return None
        known = python.sub_modules.get(field.text) or python.sub_modules.get(name)
        return known if known is not None or own else known_program(name.replace("_", "-"))

    def _is_shadowed(self, module: str) -> bool:
        """Return whether a file in the working directory shadows the module, or one of the standard library."""
        if self.cwd is None:
            return True
        files = self.trace.files
        found = files.expand(self.cwd, "*.py")
        names = {name.removesuffix(".py") for name in (*(found or ()), *files.made(self.cwd, "*"))}
        return (
            (found is None and files.reads_disk)
            or self.exists(module)
            or not names.isdisjoint(sys.stdlib_module_names | {module})
        )

    def _arguments_of_module(self, fields: Sequence[Field], *, own: bool) -> None:
        """Record the words of a module without a table: paths and URLs outside of the project, and code.

        If it is not a module of the project, also record files that it may change, and a command that it may run.
        """
        self.evaluator.arguments_of_code(fields, self.cwd)
        for before, field in zip((None, *fields), fields, strict=False):
            name, equals, value = field.text.partition("=")
            named = (before is not None and before.text in _INLINE) or field.text[:2] in _INLINE
            text = value if equals and name in _INLINE else field.text if named else ""
            if not _PLAIN_VALUE.fullmatch(text) or (named and field.kind == "unknown"):
                self.trace.doubt(field.source, "it may be code, and is not analysed", unbounded=True)
        if not own:
            self._foreign(fields)

    def _foreign(self, fields: Sequence[Field]) -> None:
        """Record the words of a tool that is not project code: files that it may change, and a command."""
        self.evaluator.files_of_tool(fields, self.cwd)
        starts = (self._start_of_command(fields, at) for at, field in enumerate(fields, 1) if field.text in _STARTS)
        for start in sorted({start for start in starts if start is not None}):
            if known_program(fields[start].text.rpartition("/")[2]) is None:
                self.trace.doubt(fields[start].source, "it may be a command, and is not analysed", unbounded=True)
            else:
                self.evaluator.command(fields[start:], self.state._replace(cwd=self.cwd), prefix=self.program.name)

    @staticmethod
    def _start_of_command(fields: Sequence[Field], at: int) -> int | None:
        """Return the index where a command may start after options and values: a program or a word with blanks."""
        for index in range(at, len(fields)):
            text, before = fields[index].text, fields[index - 1].text
            if known_program(text.rpartition("/")[2]) is not None or not _PLAIN_VALUE.fullmatch(text):
                return index
            if not text.startswith("-") and (index == at or not before.startswith("-")):
                return None
        return None

    def file(self, role: str, field: Field) -> ResolvedPath | None:
        """Record the effects of a role on a file."""
        resolved = self.evaluator.file(self._role(role), field, self.cwd)
        if self.suffix and role in ("write", "edit") and (resolved is None or not resolved.is_directory):
            text = backup_name(field.text, self.suffix) if field.kind in ("exact", "pattern") else field.text
            self.evaluator.file("write", field._replace(text=text, picks=f"**/*{self.suffix}"), self.cwd)
        return resolved

    def exists(self, text: str) -> bool:
        """Return whether a file of that name exists."""
        return self.cwd is not None and "\0" not in text and self.trace.files.resolve(join(self.cwd, text)).exists
