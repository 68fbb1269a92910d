"""Following simple commands: assignments, redirections, and what the words name: a function, a builtin or a program."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from remit.policy.call import Effect
from remit.policy.shell.builtins import BUILTINS
from remit.policy.shell.carriers import HANDLERS
from remit.policy.shell.environment import is_steering, judge_variable
from remit.policy.shell.expand import Expander
from remit.policy.shell.invoke import Invocation
from remit.policy.shell.notes import Exhausted, Notes
from remit.policy.shell.programs import known_program
from remit.policy.shell.syntax import Assignment, Command, Redirect, Script, Simple, Word
from remit.policy.shell.world import NUMBER, Field, Mystery, Outcome, Output, Value, World, as_value, restored
from remit.policy.trace import Trace

__all__ = ["Commands"]

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_MAX_NESTED: Final = 8
_MAX_JOINED: Final = 4096
_SYSTEM_FOLDERS: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
_READS: Final = frozenset(("<", "<>"))
_KEEP_CONTENT: Final = frozenset(("chmod", "chown", "chgrp", "touch"))
_GIT_CONTROLS: Final = (".git", ".gitattributes", ".gitmodules", ".gitconfig")
# What they write is as well known as what they read.
_COPIERS: Final = frozenset(
    "gcc g++ cc c++ clang clang++ rustc javac tsc go ghc ld kotlinc swiftc cp mv install ln tar unzip gunzip gzip bunzip2 "
    "xz unxz zstd 7z rsync split csplit patch ar cpio git".split()
)
# Builtins that also exist as programs, so that `env` or `xargs` can run them.
_ALSO_PROGRAMS: Final = frozenset(("echo", "printf", "test", "[", "true", "false", "pwd", "kill"))


class Commands(Notes):
    """Follows commands that are not compound."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._depth = 0

    @abstractmethod
    def follow(self, script: Script, worlds: tuple[World, ...]) -> Outcome:
        """Follow the lists of a script, one after the other."""

    @abstractmethod
    def follow_command(self, command: Command, worlds: tuple[World, ...]) -> Outcome:
        """Follow one command in every world."""

    @abstractmethod
    def nested(self, text: str, world: World, *, posix: bool = False) -> Outcome:
        """Follow a script inside a command; `posix` where another shell than bash may read it."""

    @abstractmethod
    def trap(self, text: str) -> None:
        """Remember a command that runs at the end, wherever the script is then."""

    def expander(self, world: World) -> Expander:
        """Return what expands words in a world."""
        return Expander(world, self.trace.files.home, self._substituted, self.trace.doubt)

    def _substituted(self, script: Script, world: World) -> Output:
        """Follow the commands of a substitution and return what they print."""
        return self.follow(script, (world._replace(strict=False),)).output

    def simple(self, command: Simple, world: World) -> Outcome:
        """Follow one simple command in one world."""
        expander = self.expander(world)
        fields = expander.fields(command.words)
        assigned = [(item, self._assigned(item, expander)) for item in command.assignments]
        world = expander.world
        inner = self.redirect(command.redirects, world) if command.redirects else world
        if not fields:
            if command.words:
                # The words came to nothing that can be known.
                return Outcome((world,), (world,))
            for item, value in assigned:
                world = self._assign(item, value, world)
            return Outcome((world,), (world,))
        for item, value in assigned:
            if not (item.name == "IFS" and fields[0].text == "read"):
                judge_variable(self, item.name, value if isinstance(value, str) else None, world.cwd, item.name)
        outcome = self.command(fields, inner)
        if inner is not world:
            writes = any(redirect.operator not in ("<", "<<", "<<<", "<&") for redirect in command.redirects)
            succeeded, failed = restored(outcome.succeeded, (world,)), restored(outcome.failed, (world,))
            return Outcome(succeeded, failed, Output() if writes else outcome.output)
        return outcome

    def _assigned(self, item: Assignment, expander: Expander) -> Value:
        if isinstance(item.value, Word):
            return expander.value(item.value)
        fields = expander.fields(item.value)
        if all(field.kind == "exact" and not field.text.startswith("[") for field in fields):
            return tuple(field.text for field in fields)
        return Mystery("any", "", item.name)

    def _assign(self, item: Assignment, value: Value, world: World) -> World:
        if is_steering(item.name) and item.name != "IFS":
            self.trace.doubt(item.name, "it changes what programs run, load or contact", unbounded=True)
        self.trace.add(Effect("setenv", item.name, item.name))
        if not item.replaces:
            old = world.variables.get(item.name)
            joined = isinstance(old, str) and isinstance(value, str) and len(old) + len(value) <= _MAX_JOINED
            value = f"{old}{value}" if joined else Mystery("any", "", f"${item.name}")
        return world.with_variable(item.name, value)

    def redirect(self, redirects: Sequence[Redirect], world: World) -> World:
        """Note what redirections touch; return the world with what standard input is."""
        for redirect in redirects:
            if redirect.name:
                world = world.with_variable(redirect.name, NUMBER)
            expander = self.expander(world)
            if redirect.operator in ("<<", "<<<"):
                text = expander.single(redirect.word)
                given = (
                    Output(text.text + ("\n" if redirect.operator == "<<<" else ""))
                    if text.kind == "exact"
                    else Output()
                )
                world = world._replace(stdin=given)
                continue
            field = expander.single(redirect.word)
            if redirect.operator in ("<&", ">&") and _is_descriptor(field):
                continue
            role = "read" if redirect.operator == "<" else "edit" if redirect.operator == "<>" else "write"
            fields = expander.fields((redirect.word,))
            for each in fields if len(fields) == 1 else [field]:
                self.file(role, each, world.cwd)
            if redirect.operator in _READS:
                world = world._replace(stdin=Output())
        return world

    def command(self, fields: Sequence[Field], world: World, prefix: str = "", *, functions: bool = True) -> Outcome:
        """Judge one command: a function of the script, a builtin, or a program."""
        self.step()
        if not fields:
            return Outcome((world,), (world,))
        name, rest = fields[0], fields[1:]
        if prefix:
            return self._carried(name, rest, world)
        if name.kind != "exact" or not name.text:
            self.trace.doubt(name.source, "the program to run is not known before it runs", unbounded=True)
        elif _ASSIGNMENT.match(name.text):
            self.trace.doubt(
                name.source, "quoted like this it is no assignment but the name of a program", unbounded=True
            )
        elif functions and name.text in world.functions:
            return self._call(name.text, rest, world)
        elif name.text in BUILTINS:
            return BUILTINS[name.text](self, world, rest)
        else:
            return self._program(name, rest, world)
        return Outcome((world,), (world,))

    def _carried(self, name: Field, rest: Sequence[Field], world: World) -> Outcome:
        """Judge a command that another program runs: no function, and only builtins that are programs too."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise Exhausted
        if name.kind != "exact" or not name.text:
            self.trace.doubt(name.source, "the program to run is not known before it runs", unbounded=True)
        elif name.text in _ALSO_PROGRAMS:
            BUILTINS[name.text](self, world, rest)
        else:
            self._program(name, rest, world)
        self._depth -= 1
        return Outcome((world,), (world,))

    def _call(self, name: str, rest: Sequence[Field], world: World) -> Outcome:
        """Follow the body of a function with its arguments."""
        self._depth += 1
        if self._depth > _MAX_NESTED or f"{name}()" in world.variables:
            self._depth -= 1
            self.trace.doubt(name, "a function that calls itself, or is not always the same", unbounded=True)
            return Outcome((world,), (world,))
        arguments = tuple(as_value(field) for field in rest)
        called = self.follow_command(world.functions[name], (world._replace(arguments=arguments),))
        self._depth -= 1
        given = world.arguments
        return Outcome(
            tuple(after._replace(arguments=given) for after in called.succeeded),
            tuple(after._replace(arguments=given) for after in called.failed),
        )

    def _program(self, name: Field, rest: Sequence[Field], world: World) -> Outcome:
        same = Outcome((world,), (world,))
        folder, slash, base = name.text.rpartition("/")
        known = known_program(base)
        if slash and f"{folder}/" not in _SYSTEM_FOLDERS:
            self._project_program(name, rest, world)
            if known is None:
                return same
        if known is None:
            self.trace.doubt(
                name.source, "this program is not known here, so what it touches is not either", unbounded=True
            )
            return same
        self.trace.add(Effect("run", base, name.source))
        invocation = Invocation(self, world, known)
        self._keeping = base in _KEEP_CONTENT
        before, outer, self._read = self.changes.snapshot(), self._read, set()
        if base == "git":
            self.changes.steer(_GIT_CONTROLS, base)
        if known.handler:
            HANDLERS[known.handler](invocation, rest)
        else:
            invocation.judge(known, rest)
        self._keeping = False
        if base in _COPIERS:
            self._copied(before, world)
        self._read |= outer
        if world.cwd is not None and self.changes.may_be_gone(world.cwd):
            # The directory that the script stands in was moved or removed.
            lost = world._replace(cwd=None)
            return Outcome((lost,), (lost,), invocation.output)
        return same._replace(output=invocation.output)

    def _copied(self, before: tuple[set[str], set[str], set[str]], world: World) -> None:
        """Forget what a copier or compiler has written, unless it was made from what the script has written."""
        after = self.changes.snapshot()
        self.changes.restore(before)
        if world.stdin is not None or any(self.changes.is_tainted(path) for path in self._read):
            self.changes.restore(after)
            if world.cwd is not None:
                self.changes.filled.add(world.cwd)

    def _project_program(self, name: Field, rest: Sequence[Field], world: World) -> None:
        """Note that a file of the project is run, and every argument that reads like a path."""
        look = self.file("read", name, world.cwd)
        if look is not None:
            self.changes.run(look.path, name.source)
        self.note_code()
        self.arguments_of_code(rest, world.cwd)


def _is_descriptor(field: Field) -> bool:
    return (field.kind == "exact" and (field.text.rstrip("-").isdigit() or field.text == "-")) or (
        field.kind == "pattern" and field.text == "*"
    )
