"""Following simple commands: assignments, redirections, and what the words name: a function, a builtin or a program."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.call import Effect
from remit.policy.shell.builtins import BUILTINS
from remit.policy.shell.carriers import HANDLERS
from remit.policy.shell.credentials import exports_credentials
from remit.policy.shell.downloads import ProgramRun, may_download, place_of
from remit.policy.shell.environment import judge_setting, judge_variable
from remit.policy.shell.expand import Expander
from remit.policy.shell.invoke import Invocation
from remit.policy.shell.launches import SYSTEM_FOLDERS
from remit.policy.shell.notes import TOO_MUCH, Notes, is_packaged
from remit.policy.shell.programs import Program, known_program
from remit.policy.shell.syntax import Assignment, Command, Redirect, Script, Simple, Word
from remit.policy.shell.world import (
    ARRAY,
    BESIDE,
    NUMBER,
    Field,
    Mystery,
    Outcome,
    Output,
    Value,
    World,
    as_arguments,
    as_value,
    merged,
    restored,
)
from remit.policy.trace import Trace

__all__ = ["Commands", "can_fail"]

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_DECLARES: Final = frozenset("export declare local readonly typeset".split())
# Builtins that run other commands in the same shell.
_RUN_HERE: Final = frozenset("eval source . command builtin exec".split())
# Variables that say where `cd` leads.
_READ_BY_CD: Final = frozenset(("PWD", "OLDPWD"))
_BASH_ONLY: Final = frozenset(
    "pushd popd dirs declare typeset builtin let mapfile readarray source shopt enable".split()
)
_MAX_NESTED: Final = 8
_MAX_JOINED: Final = 4096
_READS: Final = frozenset(("<", "<>", "<&"))
# Redirections to another descriptor, and those that every command starts with.
_COPIES: Final = frozenset(("<&", ">&"))
_STANDARD: Final = ("0", "1", "2")
# What a file says stays the same.
_KEEP_CONTENT: Final = frozenset(
    "chmod chown chgrp touch black ruff isort autopep8 prettier eslint gofmt goimports rustfmt shfmt".split()
)
_UNPACKERS: Final = frozenset("unzip 7z patch cpio gunzip gzip bunzip2 xz unxz zstd split csplit".split())
# Commands of git that leave the directories of the work tree alone.
_GIT_KEEPS: Final = frozenset(
    "add annotate archive blame branch bundle cat-file check-attr check-ignore cherry commit commit-tree config "
    "count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch fsck gc grep "
    "hash-object help init log ls-files ls-remote ls-tree maintenance merge-base mktree name-rev notes push range-diff "
    "reflog remote rev-list rev-parse shortlog show show-branch show-ref status symbolic-ref tag update-index "
    "update-ref var verify-commit verify-tag version whatchanged write-tree".split()
)
# Programs that neither remove directories nor change who may enter them.
_KEEP_FOLDERS: Final = frozenset(
    "mkdir touch tee black ruff isort autopep8 prettier eslint gofmt goimports rustfmt shfmt".split()
)
_GIT_PATCHES: Final = frozenset(("apply", "am"))
_GIT_CONTROLS: Final = (".git", ".gitattributes", ".gitmodules", ".gitconfig")
_TREE_COPIERS: Final = frozenset(("rsync", "cpio", "pax"))
# What they write is as well known as what they read.
_COPIERS: Final = frozenset(
    "gcc g++ cc c++ clang clang++ rustc javac tsc go ghc ld kotlinc swiftc cp mv install ln tar unzip gunzip gzip "
    "bunzip2 xz unxz zstd 7z rsync split csplit patch ar cpio".split()
)
# What these leave depends on what the script has written before.
_CARRY_CONTENT: Final = _COPIERS | _TREE_COPIERS | {"git"}
# Builtins that also exist as programs, so that `env` or `xargs` can run them.
_ALSO_PROGRAMS: Final = frozenset(("echo", "printf", "test", "[", "true", "false", "pwd", "kill"))


class Commands(Notes):
    """Follows commands that are not compound."""

    def __init__(self, trace: Trace, *, symbolic: bool = False) -> None:
        super().__init__(trace, symbolic=symbolic)
        self._depth = 0
        # Files that the redirections of the command that is being followed write.
        self._opened: list[str] = []
        # The program with which a substitution in the words of the command downloads something.
        self.substituted = ""
        # Worlds in which the function or loop that is being followed may be left early.
        self._left: list[World] = []
        # Variables that were set for a program, and those of them whose text may hold commands.
        self.passed: set[str] = set()
        self.unplain: set[str] = set()
        # Functions that were defined anywhere, for what runs at the end.
        self.defined: dict[str, Command] = {}
        # Those that were removed again.
        self.undefined: set[str] = set()
        # Worlds in which an error has ended the line that is being followed.
        self._discarded: list[World] = []
        self._errors = 0
        # Commands that go on while others run, and how things were changed when they were followed.
        self._beside: list[tuple[tuple[int, ...], Callable[[], Outcome]]] = []

    @abstractmethod
    def follow(self, script: Script, worlds: tuple[World, ...]) -> Outcome:
        """Follow the lists of a script, one after the other."""

    @abstractmethod
    def follow_command(self, command: Command, worlds: tuple[World, ...]) -> Outcome:
        """Follow one command in every world."""

    @abstractmethod
    def nested(self, text: str, world: World, *, posix: bool = False) -> Outcome:
        """Follow a script inside a command; `posix` where another shell than bash may read it."""

    def child(self, text: str, world: World, *, posix: bool) -> Outcome:
        """Follow a script that another shell runs: it has neither our functions nor our variables for certain."""
        names = (*world.variables, *self.passed)
        variables: dict[str, Value] = {name: Mystery("any", "", f"${name}") for name in names}
        inner = world._replace(functions={}, strict=False, variables=variables, in_function=False, local=frozenset())
        return self.nested(text, inner, posix=posix)

    @abstractmethod
    def trap(self, text: str, world: World, *, anytime: bool) -> None:
        """Remember a command that runs at the end, wherever the script is then, or at any time before that."""

    def expander(self, world: World, *, assigns: bool = False) -> Expander:
        """Return what expands words in a world; `assigns` where variables that an expansion sets are kept."""
        follow, doubt = self._substituted, self._doubt_words
        home = self.trace.files.home
        return Expander(world, home, follow, doubt, list_names=self.list_names, assigns=assigns)

    def _doubt_words(self, word: str, reason: str) -> None:
        # What an expansion would run is not known either.
        self.trace.doubt(word, reason, unbounded=True)

    def _substituted(self, script: Script, world: World) -> Output:
        """Follow the commands of a substitution and return what they print."""
        discarded = len(self._discarded)
        output = self.follow(script, (world._replace(strict=False),)).output
        if world.stdin is BESIDE:
            self.run_beside(lambda: self.follow(script, (world._replace(strict=False),)))
        # An error there ends the substitution only.
        del self._discarded[discarded:]
        return output

    def run_beside(self, follow: Callable[[], Outcome]) -> None:
        """Remember commands that go on while those after them run, and may see what these change."""
        self._beside.append((self.changes.state, follow))

    def discard(self, world: World) -> None:
        """Remember a world in which an error ends the line: what follows on it does not run, the next line does."""
        self._discarded.append(world)
        self._errors += 1

    def check_failure(self, expander: Expander, world: World) -> None:
        """Remember that an expansion may have ended in an error."""
        if expander.may_fail:
            self.discard(world)

    def simple(self, command: Simple, world: World) -> Outcome:
        """Follow one simple command in one world."""
        if not command.redirects:
            return self._simple(command, world)
        with self._redirecting(world):
            return self._simple(command, world)

    @contextmanager
    def _redirecting(self, world: World) -> Iterator[None]:
        """Note the files to which a command redirects something that it downloads, or reads that was downloaded."""
        outer, self._opened, downloads = self._opened, [], self.changes.downloads
        count = downloads.count
        yield
        program = downloads.since(count) or (world.stdin.downloaded if world.stdin is not None else "")
        for path in self._opened if program else ():
            downloads.add(path, program)
        self._opened = outer

    def _simple(self, command: Simple, world: World) -> Outcome:
        if command.redirects and not command.words:
            world = world._replace(stdin=Output())
        downloads = self.changes.downloads
        count, removed = downloads.count, len(self.changes.removed)
        expander = self.expander(world, assigns=True)
        fields = self._fields(command.words, expander)
        self.substituted = downloads.since(count) if downloads.count != count else ""
        self.check_failure(expander, world)
        if not fields:
            return self._without_program(command, expander.world)
        (world,) = self.without_lost((expander.world,), removed)
        assigned = self._assigned_for(command.assignments, world) if command.assignments else ()
        inner = self.redirect(command.redirects, world) if command.redirects else world
        unplain = set(self.unplain)
        self._judge_prefix(fields[0], assigned, world)
        outcome = self.command(fields, inner)
        if assigned:
            self.unplain = unplain
        if can_fail(command.redirects, world):
            # A redirection that fails keeps the command from running.
            outcome = outcome._replace(failed=merged(outcome.failed, (inner,)))
        if command.redirects and fields[0].text in _RUN_HERE:
            # What is read from now on, here and in what follows, may be anything.
            self.stdin_changed = True
        if not command.redirects or fields[0].text == "exec":
            return outcome
        plain = all(each.operator in ("<<", "<<<") and not each.descriptor for each in command.redirects)
        counts = outcome.output.number and all(_keeps_output(each) for each in command.redirects)
        succeeded, failed = restored(outcome.succeeded, (world,)), restored(outcome.failed, (world,))
        return Outcome(succeeded, failed, outcome.output if plain else Output(number=counts))

    def _without_program(self, command: Simple, world: World) -> Outcome:
        """Follow a command whose words came to nothing: each assignment sees those before it."""
        before = world
        for item in command.assignments:
            expander = self.expander(world, assigns=True)
            value = self._assigned(item, expander)
            self.check_failure(expander, world)
            if world.is_fixed(item.name):
                self.discard(world)
            world = self._assign(item, value, expander.world)
        if not command.redirects:
            return Outcome((world,), (world,))
        # Files are opened after the assignments; shells do not agree on that where there were words.
        for each in merged((before,), (world,)):
            self.redirect(command.redirects, each)
        unchanged = (before,) if can_fail(command.redirects, world) else ()
        return Outcome((world,), merged((world,), unchanged))

    def _assigned_for(self, items: Sequence[Assignment], world: World) -> list[tuple[Assignment, Value]]:
        """Return the values that are set for one command; each assignment sees those before it."""
        assigned: list[tuple[Assignment, Value]] = []
        for item in items:
            if any(item.name == before.name for before, _ in assigned):
                # What it is while it is assigned once more, shells do not agree on.
                world = world.with_variable(item.name, Mystery("any", "", f"${item.name}"))
            expander = self.expander(world)
            value = self._assigned(item, expander)
            self.check_failure(expander, world)
            assigned.append((item, value))
            # Before a command, bash takes a list for its text.
            known = item.replaces and isinstance(item.value, Word)
            world = world.with_variable(item.name, value if known else Mystery("any", "", f"${item.name}"))
        return assigned

    def _fields(self, words: Sequence[Word], expander: Expander) -> list[Field]:
        """Return the fields of a command; the values of a declaration are not split."""
        if not words or words[0].source not in _DECLARES:
            return expander.fields(words)
        fields = expander.fields(words[:1])
        for word in words[1:]:
            assigns = _ASSIGNMENT.match(word.source) is not None
            found = expander.declared(word) if assigns else expander.fields((word,))
            if assigns and expander.world.posix:
                split = expander.fields((word,))
                if any(each.splits for each in split):
                    # Other shells may split the value, and set what it says.
                    expander.forget()
                elif [each.text for each in split] != [each.text for each in found]:
                    self._doubt_words(word.source, "not every shell splits the value of a declaration")
            fields.extend(found)
        return fields

    def _judge_prefix(self, name: Field, assigned: Sequence[tuple[Assignment, Value]], world: World) -> None:
        """Note the variables that are set for one command only."""
        for item, value in assigned:
            self.passed.add(item.name)
            if item.name == "IFS" and name.text == "read" and "read" not in world.functions:
                continue
            fixed = f"{item.name}!" in world.variables
            kept = name.text in BUILTINS and (world.posix or item.name in _READ_BY_CD)
            reads = name.text in _RUN_HERE or name.text in _DECLARES or name.text == "let"
            if fixed or kept or reads or name.text in world.functions:
                self.trace.doubt(item.name, "it is set for commands that run later in the same line", unbounded=True)
            known = value if isinstance(value, str) else None
            if isinstance(value, Mystery) and value.cause.startswith("~"):
                # A home directory, which counts as a path wherever it is.
                known = value.cause
            judge_variable(self, item.name, known, world.cwd, item.name)

    def _assigned(self, item: Assignment, expander: Expander) -> Value:
        if isinstance(item.value, Word):
            return expander.value(item.value)
        fields = expander.fields(item.value)
        if all(field.kind == "exact" and not field.text.startswith("[") for field in fields):
            return tuple(as_value(field) for field in fields)
        return Mystery("any", "", item.name)

    def _assign(self, item: Assignment, value: Value, world: World) -> World:
        known = world.variables.get(item.subscript, "0")
        if item.subscript and not (isinstance(known, str) and known.isdigit()) and known != NUMBER:
            self.trace.doubt(item.name, "arithmetic on a value that may hold commands", unbounded=True)
        if item.name != "IFS":
            judge_setting(self, item.name, value if isinstance(value, str) else None, world.cwd, item.name)
        if item.subscript or (not item.replaces and not isinstance(item.value, Word)):
            value = ARRAY
        elif not item.replaces:
            old = world.variables.get(item.name)
            joined = isinstance(old, str) and isinstance(value, str) and len(old) + len(value) <= _MAX_JOINED
            value = f"{old}{value}" if joined else Mystery("any", "", f"${item.name}")
        return world.with_variable(item.name, value)

    def redirect(self, redirects: Sequence[Redirect], world: World) -> World:
        """Note what redirections touch; return the world with what standard input is."""
        for redirect in redirects:
            if redirect.descriptor.startswith("{"):
                name = redirect.descriptor.strip("{}")
                judge_setting(self, name, None, world.cwd, redirect.descriptor)
                world = world.with_variable(name, NUMBER)
            given = self._redirected_input(redirect, world)
            world = world._replace(rewired=world.rewired or _rewires(redirect))
            number = redirect.descriptor.lstrip("0") if redirect.descriptor.isdigit() else redirect.descriptor
            if not number and (given is not None or redirect.descriptor):
                world = world._replace(stdin=given if given is not None else Output())
        return world

    def _redirected_input(self, redirect: Redirect, world: World) -> Output | None:
        """Note what one redirection touches; return what it lets a program read, or None where it is for writing."""
        downloads = self.changes.downloads
        count = downloads.count
        expander = self.expander(world)
        field = expander.single(redirect.word)
        self.check_failure(expander, world)
        if redirect.operator in ("<<", "<<<"):
            ending = "\n" if redirect.operator == "<<<" else ""
            given = Output(field.text + ending) if field.kind == "exact" else Output()
            return given._replace(downloaded=downloads.since(count))
        if redirect.operator in ("<&", ">&") and _is_descriptor(field):
            return Output() if redirect.operator == "<&" else None
        roles = {"<": ("read",), "<>": ("read", "write")}.get(redirect.operator, ("write",))
        fields = expander.fields((redirect.word,))
        for each in fields if len(fields) == 1 else [field]:
            for role in roles:
                self.file(role, each, world.cwd)
        if redirect.operator not in _READS:
            self._opened.append(place_of(field, world.cwd))
            return None
        if field.kind == "exact" and field.text == "/dev/null" and redirect.operator == "<":
            return Output("")
        program = downloads.program_for_word(field, world.cwd)
        return Output(downloaded=program, local=field.kind == "exact" and not program)

    def command(self, fields: Sequence[Field], world: World, prefix: str = "", *, functions: bool = True) -> Outcome:
        """Judge one command: a function of the script, a builtin, or a program."""
        self.step()
        if not fields:
            return Outcome((world,), (world,))
        name, rest = fields[0], fields[1:]
        if prefix:
            return self._carried(name, rest, world)
        if name.kind != "exact" or not name.text:
            self.unknown_program(name, world)
        elif _ASSIGNMENT.match(name.text):
            self.trace.doubt(
                name.source, "quoted like this it is no assignment but the name of a program", unbounded=True
            )
        elif functions and name.text in world.functions:
            if "/" in name.text:
                # Not every shell takes a path for the name of a function.
                self._program(name, rest, world)
            return self._call(name.text, rest, world)
        elif name.text in BUILTINS:
            if world.posix and name.text in _BASH_ONLY:
                self.trace.doubt(name.source, "it is not certain that bash reads it", unbounded=True)
            return BUILTINS[name.text](self, world, rest)
        else:
            return self._program(name, rest, world)
        return Outcome((world,), (world,))

    def _carried(self, name: Field, rest: Sequence[Field], world: World) -> Outcome:
        """Judge a command that another program runs: no function, and only builtins that are programs too."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise ShellUnparsed(TOO_MUCH, "")
        launcher = self.trace.launches.enter(name)
        if name.kind != "exact" or not name.text or " " in name.text:
            # With a space it may be a whole command.
            self.unknown_program(name, world)
        elif name.text in _ALSO_PROGRAMS:
            BUILTINS[name.text](self, world, rest)
        else:
            self._program(name, rest, world)
        self.trace.launches.leave(launcher)
        self._depth -= 1
        return Outcome((world,), (world,))

    def unknown_program(self, name: Field, world: World) -> None:
        """Doubt a program whose name is not known; the file may still be one that was downloaded."""
        program = self.changes.downloads.program_for_word(name, world.cwd) or self.substituted
        if program:
            self.changes.run_download(name.source, program, starts=False)
        self.trace.doubt(name.source, "the program to run is not known before it runs", unbounded=True)

    def _call(self, name: str, rest: Sequence[Field], world: World) -> Outcome:
        """Follow the body of a function with its arguments."""
        self._depth += 1
        if self._depth > _MAX_NESTED or f"{name}()" in world.variables:
            self._depth -= 1
            self.trace.doubt(name, "a function that calls itself, or is not always the same", unbounded=True)
            return Outcome((world,), (world,))
        left, self._left = self._left, []
        discarded = len(self._discarded)
        inside = world._replace(arguments=as_arguments(rest), local=frozenset(), in_function=True)
        called = self.follow_command(world.functions[name], (inside,))
        returned, self._left = tuple(self._left), left
        self._discarded[discarded:] = [_back(after, world) for after in self._discarded[discarded:]]
        self._depth -= 1
        return Outcome(
            tuple(_back(after, world) for after in merged(called.succeeded, returned)),
            tuple(_back(after, world) for after in merged(called.failed, returned)),
        )

    def leave(self, world: World) -> None:
        """Remember a world in which a function or a loop may be left early."""
        self._left.append(world)

    def _program(self, name: Field, rest: Sequence[Field], world: World) -> Outcome:
        launches = self.trace.launches
        launches.start(name.text, rest, world.cwd, self.trace.files)
        if exported := exports_credentials(name.text.rpartition("/")[2], rest):
            self.trace.add(Effect("export", exported, name.source))
        outcome = self._judged(name, rest, world)
        launches.end()
        return outcome

    def _judged(self, name: Field, rest: Sequence[Field], world: World) -> Outcome:
        same = Outcome((world,), (world,))
        folder, slash, base = name.text.rpartition("/")
        known = known_program(base)
        if slash and f"{folder}/" not in SYSTEM_FOLDERS:
            self._project_program(name, rest, world)
            if known is None:
                if is_packaged(name.text):
                    self.files_of_tool(rest, world.cwd)
                return same
        if known is None:
            self.trace.doubt(
                name.source, "this program is not known here, so what it touches is not either", unbounded=True
            )
            self._follow_downloads(base, rest, world, cwd=world.cwd, is_known=False)
            return same
        self.trace.add(Effect("run", base, name.source))
        invocation = Invocation(self, world, known)
        self._keeping, self.trace.spreads = base in _KEEP_CONTENT, known.spreads
        before = self.changes.snapshot() if base in _CARRY_CONTENT else None
        removed = len(self.changes.removed)
        outer, self._read = self._read, set()
        outer_wrote, self._wrote = self._wrote, set()
        outer_changed, self.trace.changed = self.trace.changed, []
        if base == "git":
            self.changes.steer(_GIT_CONTROLS, base)
        self._judge_words(invocation, known, rest)
        self._keeping = self.trace.spreads = False
        if before is not None:
            self._note_changes(base, rest, before, (world, world._replace(cwd=invocation.cwd)))
        if self.changes.downloads.count or may_download(base, rest):
            self._follow_downloads(base, rest, world, cwd=invocation.cwd, is_known=not known.refusal)
        if not self._keeps_folders(base, rest):
            self.changes.reshape(self.trace.changed)
        self._read |= outer
        self._wrote |= outer_wrote
        self.trace.changed = outer_changed
        after = self.without_lost((world,), removed)
        return Outcome(after, after, invocation.output)

    def without_lost(self, worlds: tuple[World, ...], removed: int) -> tuple[World, ...]:
        """Return the worlds; where a directory was removed or moved since so many were, nobody stands in it."""
        if len(self.changes.removed) == removed:
            return worlds
        gone = self.changes.may_be_gone
        return tuple(
            world._replace(cwd=None) if world.cwd is not None and gone(world.cwd, removed) else world
            for world in worlds
        )

    def _judge_words(self, invocation: Invocation, known: Program, rest: Sequence[Field]) -> None:
        if len(rest) == 1 and rest[0].kind == "exact" and rest[0].text == "--version":
            # It shows its version, and does nothing else; some are kept in the project.
            if known.runs:
                self.note_code()
        elif known.handler:
            invocation.check_wildcards(known, rest)
            HANDLERS[known.handler](invocation, rest)
        else:
            invocation.judge(known, rest)

    def _keeps_folders(self, program: str, fields: Sequence[Field]) -> bool:
        """Tell whether a program neither removes directories nor changes who may enter them."""
        if program == "git":
            return _GIT_KEEPS.issuperset(self.trace.launches.subcommands()[:1])
        # Without options files land in a directory; what is moved away is noted as removed.
        plain = program in ("cp", "mv") and not any(field.kind != "exact" or field.text[:1] == "-" for field in fields)
        return plain or program in _KEEP_FOLDERS

    def _note_changes(
        self,
        program: str,
        fields: Sequence[Field],
        before: tuple[set[str], set[str], set[str]],
        worlds: tuple[World, World],
    ) -> None:
        """Note what a program has done to what the script has written, made and removed before.

        The worlds are those of the script and of the program, which may work in another directory.
        """
        # Options may stand before the command of git.
        words = {field.text for field in fields} if program == "git" else set[str]()
        if program in _COPIERS or words & _GIT_PATCHES:
            self._copied(before, worlds, unpacks=program in _UNPACKERS or program == "git")
        if program in _TREE_COPIERS and self.changes.aliases:
            # It may bring along links that the script has made.
            for path in tuple(self._wrote):
                self.changes.alias(path, None)
        if program == "git" and not self._keeps_folders(program, fields):
            self.changes.unsettled = True

    def _follow_downloads(
        self, name: str, fields: Sequence[Field], world: World, *, cwd: str | None, is_known: bool
    ) -> None:
        """Note what a program downloads, and what it makes of what was downloaded."""
        command = ProgramRun(
            name,
            fields,
            cwd or world.cwd,
            stdin=world.stdin.downloaded if world.stdin is not None else "",
            read=self._read if is_known else (),
            written=self._wrote if is_known else (),
            is_known=is_known,
        )
        program = self.changes.downloads.follow(command)
        if program:
            self.changes.run_download(name, program)

    def _copied(
        self, before: tuple[set[str], set[str], set[str]], worlds: tuple[World, World], *, unpacks: bool
    ) -> None:
        """Forget what a copier or compiler has written, unless it was made from what the script has written."""
        after = self.changes.snapshot()
        self.changes.restore(before)
        if worlds[0].stdin is not None or self.reads_own():
            self.changes.restore(after)
            for place in {world.cwd for world in worlds if world.cwd is not None} if unpacks else ():
                self.changes.unpack(place)

    def _project_program(self, name: Field, rest: Sequence[Field], world: World) -> None:
        """Note that a file of the project is run, and every argument that reads like a path."""
        look = self.file("read", name, world.cwd)
        if look is not None:
            self.trace.launches.runs(look.path)
            self.changes.run(look.path, name.source)
        self.note_code()
        self.arguments_of_code(rest, world.cwd)


def _is_descriptor(field: Field) -> bool:
    return (field.kind == "exact" and (field.text.rstrip("-").isdigit() or field.text == "-")) or (
        field.kind == "pattern" and field.text == "*"
    )


def _keeps_output(redirect: Redirect) -> bool:
    """Tell whether a redirection changes only what is read, or drops what goes to standard error."""
    if redirect.descriptor == "2":
        return redirect.operator in (">", ">>")
    return redirect.operator in ("<", "<<", "<<<") and not redirect.descriptor


def _back(after: World, before: World) -> World:
    """Return the world after a function: its own parameters and variables are gone."""
    variables = {name: value for name, value in after.variables.items() if name not in after.local}
    variables.update({name: before.variables[name] for name in after.local if name in before.variables})
    # The directory is not that of the function's caller, but these variables are.
    variables.update({name: Mystery("any", "", f"${name}") for name in _READ_BY_CD & after.local})
    return after._replace(
        arguments=before.arguments, in_function=before.in_function, local=before.local, variables=variables
    )


def can_fail(redirects: Sequence[Redirect], world: World) -> bool:
    """Tell whether one of several redirections may fail, so that their command does not run."""
    if redirects and (world.rewired or (len(redirects) > 1 and any(map(_rewires, redirects)))):
        return True
    return any(not _is_ordinary(redirect) for redirect in redirects)


def _is_ordinary(redirect: Redirect) -> bool:
    """Tell whether a redirection cannot fail while the descriptors are those that every command starts with."""
    if redirect.descriptor not in ("", *_STANDARD):
        return False
    if redirect.operator in _COPIES:
        return redirect.word.source in ("-", "/dev/null", *_STANDARD)
    return redirect.operator in ("<<", "<<<") or redirect.word.source == "/dev/null"


def _rewires(redirect: Redirect) -> bool:
    """Tell whether a redirection may close a descriptor."""
    return redirect.operator in _COPIES and redirect.word.source not in _STANDARD
