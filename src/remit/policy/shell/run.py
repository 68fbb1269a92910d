"""Following a script: every command it could run, in every way things may stand, and what that would touch.

Nothing is executed. Both sides of a choice are followed, loops until nothing new is learned. The work is bounded: a
script that asks for more is a doubt.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from remit.claims.shapes import SideEffectClass
from remit.errors import ShellUnparsed
from remit.policy.call import Effect
from remit.policy.files import Look
from remit.policy.paths import join
from remit.policy.shell.builtins import BUILTINS
from remit.policy.shell.carriers import HANDLERS
from remit.policy.shell.environment import is_steering, judge_variable
from remit.policy.shell.expand import Expander
from remit.policy.shell.grammar import parse_script
from remit.policy.shell.invoke import Invocation
from remit.policy.shell.languages import LANGUAGES
from remit.policy.shell.programs import Program, known_program
from remit.policy.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    Case,
    Command,
    Condition,
    For,
    Function,
    If,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Subshell,
    While,
    Word,
)
from remit.policy.shell.world import NUMBER, Field, Mystery, Output, Value, World, as_value, merged, without_knowledge
from remit.policy.trace import Trace

__all__ = ["Outcome", "Run", "judge_program", "judge_script"]

_MAX_STEPS: Final = 1500
_MAX_NESTED: Final = 8
_MAX_ROUNDS: Final = 4
_SYSTEM_FOLDERS: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
_READS: Final = frozenset(("<", "<>"))
_KEEP_CONTENT: Final = frozenset(("chmod", "chown", "chgrp", "touch"))
# What they write is as well known as what they read.
_COMPILERS: Final = frozenset("gcc g++ cc c++ clang clang++ rustc javac tsc go ghc ld kotlinc swiftc".split())


class Outcome(NamedTuple):
    """The worlds after success and after failure, and what was printed where that is known."""

    succeeded: tuple[World, ...]
    failed: tuple[World, ...]
    output: Output = Output()

    @property
    def all(self) -> tuple[World, ...]:
        """Return the worlds of both ends."""
        return self.succeeded if self.succeeded is self.failed else merged(self.succeeded, self.failed)


class _Exhausted(Exception):
    """The script asks for more work than we do."""


def judge_script(trace: Trace, text: str, cwd: str | None, *, posix: bool = False) -> None:
    """Note everything that the command line `text` would do when it is started in `cwd`."""
    run = Run(trace)
    run.enter(cwd)
    try:
        run.follow(parse_script(text, posix=posix), (World(cwd, {}, {}),))
        run.finish()
    except ShellUnparsed as error:
        trace.unparsed(error.word, error.reason)
    except (_Exhausted, RecursionError):
        trace.doubt(text[:40], "it is longer than we follow", unbounded=True)


def judge_program(trace: Trace, language: str, text: str, cwd: str | None) -> None:
    """Note everything that a program in a little language would do."""
    run = Run(trace)
    invocation = Invocation(run, World(cwd, {}, {}), Program(language))
    try:
        LANGUAGES[language](invocation, text, language)
    except ShellUnparsed as error:
        trace.unparsed(error.word, error.reason)


class Run:
    """One walk through a script."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._steps = 0
        self._depth = 0
        self._guarded = 0
        self._written: set[str] = set()
        self._read: set[str] = set()
        self._code: set[tuple[str, str]] = set()
        self._controls: set[tuple[str, str]] = set()
        self._keeping = False
        self._aliases: dict[str, str] = {}
        self._traps: list[str] = []
        self._places: set[str | None] = set()

    # Structure

    def follow(self, script: Script, worlds: tuple[World, ...]) -> Outcome:
        """Follow the lists of a script, one after the other."""
        outcome = Outcome(worlds, worlds)
        for item in script.items:
            outcome = self._and_or(item, outcome.all)
            plain = not item.rest and not item.first.negated and not item.background
            if plain and not self._guarded and outcome.failed and all(world.strict for world in outcome.failed):
                outcome = outcome._replace(failed=())
        return outcome if len(script.items) == 1 else outcome._replace(output=Output())

    def _and_or(self, item: AndOr, worlds: tuple[World, ...]) -> Outcome:
        if item.background:
            isolated = tuple(world._replace(strict=False) for world in worlds)
            self._and_or(item._replace(background=False), isolated)
            return Outcome(worlds, worlds)
        self._guarded += bool(item.rest)
        outcome = self._pipeline(item.first, worlds)
        for joint, pipeline in item.rest:
            if joint == "&&":
                after = self._pipeline(pipeline, outcome.succeeded)
                outcome = Outcome(after.succeeded, merged(outcome.failed, after.failed))
            else:
                after = self._pipeline(pipeline, outcome.failed)
                outcome = Outcome(merged(outcome.succeeded, after.succeeded), after.failed)
        self._guarded -= bool(item.rest)
        return outcome

    def _pipeline(self, pipeline: Pipeline, worlds: tuple[World, ...]) -> Outcome:
        if len(pipeline.commands) == 1:
            outcome = self._command(pipeline.commands[0], worlds)
            return Outcome(outcome.failed, outcome.succeeded, outcome.output) if pipeline.negated else outcome
        printed: Output | None = None
        for index, command in enumerate(pipeline.commands):
            staged = tuple(
                world._replace(strict=False, stdin=printed if index else world.stdin) for world in worlds
            )
            printed = self._command(command, staged).output
        return Outcome(worlds, worlds, printed or Output())

    def _command(self, command: Command, worlds: tuple[World, ...]) -> Outcome:
        self.step()
        if not worlds:
            return Outcome((), ())
        if type(command) is Simple:
            return self._each(worlds, lambda world: self._simple(command, world))
        follower = _FOLLOWERS[type(command)]
        return follower(self, command, worlds)

    @staticmethod
    def outcome(succeeded: tuple[World, ...], failed: tuple[World, ...], output: Output) -> Outcome:
        """Return an outcome, for builtins."""
        return Outcome(succeeded, failed, output)

    def step(self) -> None:
        """Count one step of work."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _Exhausted

    def _each(self, worlds: tuple[World, ...], follow: Callable[[World], Outcome]) -> Outcome:
        if len(worlds) == 1:
            return follow(worlds[0])
        outcomes = [follow(world) for world in worlds]
        same = all(outcome.output == outcomes[0].output for outcome in outcomes)
        return Outcome(
            merged(*(outcome.succeeded for outcome in outcomes)),
            merged(*(outcome.failed for outcome in outcomes)),
            outcomes[0].output if same else Output(),
        )

    def _redirected(self, redirects: Sequence[Redirect], worlds: tuple[World, ...]) -> tuple[World, ...]:
        """Note the redirections of a compound command; return the worlds with what it reads from."""
        if not redirects:
            return worlds
        return tuple(self._redirect(redirects, world) for world in worlds)

    def _subshell(self, command: Subshell, worlds: tuple[World, ...]) -> Outcome:
        inner = self.follow(command.body, self._redirected(command.redirects, worlds))
        if command.isolated:
            return Outcome(worlds, worlds, inner.output)
        return Outcome(_restored(inner.succeeded, worlds), _restored(inner.failed, worlds), inner.output)

    def _if(self, command: If, worlds: tuple[World, ...]) -> Outcome:
        waiting = self._redirected(command.redirects, worlds)
        ends: list[Outcome] = []
        for condition, body in command.arms:
            self._guarded += 1
            decided = self.follow(condition, waiting)
            self._guarded -= 1
            ends.append(self.follow(body, decided.succeeded))
            waiting = decided.failed
        ends.append(self.follow(command.otherwise, waiting) if command.otherwise else Outcome(waiting, ()))
        return Outcome(
            _restored(merged(*(end.succeeded for end in ends)), worlds),
            _restored(merged(*(end.failed for end in ends)), worlds),
        )

    def _while(self, command: While, worlds: tuple[World, ...]) -> Outcome:
        current = self._redirected(command.redirects, worlds)
        for attempt in range(_MAX_ROUNDS + 1):
            if attempt == _MAX_ROUNDS:
                current = (_shaken(current),)
            self._guarded += 1
            decided = self.follow(command.condition, current)
            self._guarded -= 1
            after = merged(current, decided.all, self.follow(command.body, decided.all).all)
            if after == current:
                break
            current = after
        else:
            current = (_shaken(current),)
        ended = _restored(current, worlds)
        return Outcome(ended, ended)

    def _for(self, command: For, worlds: tuple[World, ...]) -> Outcome:
        current = self._redirected(command.redirects, worlds)
        values: list[Value] = []
        for world in current:
            for value in self._loop_values(command, world):
                if value not in values:
                    values.append(value)
        # The order of values is kept for the first round; a second one meets what the first has changed.
        for value in [*values, *(values if len(values) > 1 else [])]:
            entered = tuple(world.with_variable(command.name, value) for world in current)
            current = merged(current, self.follow(command.body, entered).all)
        ended = _restored(current, worlds)
        return Outcome(ended, ended)

    def _loop_values(self, command: For, world: World) -> list[Value]:
        if command.words is None:
            return list(world.arguments) if world.arguments is not None else [Mystery("any", "", "$@")]
        values: list[Value] = []
        for field in self._expander(world).fields(command.words):
            if field.kind == "exact":
                values.append(field.text)
            elif field.kind == "pattern":
                values.extend(self._names(field, world))
            elif field.kind == "below":
                values.append(Mystery("below", field.text, field.source))
            else:
                values.append(Mystery("any", "", field.source))
        return values if len(values) <= _MAX_LOOPED else [Mystery("any", "", command.name)]

    def _names(self, field: Field, world: World) -> list[Value]:
        """Return the names that a glob stands for, or that they lie below its fixed part."""
        directory, slash, name = field.text.rpartition("/")
        if world.cwd is not None and not any(mark in directory for mark in "*?["):
            start = self.trace.files.look(f"{world.cwd}/{directory}" if not directory.startswith("/") else directory)
            matches = None if start.refusal else self.trace.files.expand(start.path, name.replace("**", "*"))
            if matches and len(matches) <= _MAX_LOOPED // 2:
                return [f"{directory}{slash}{match}" for match in matches]
        fixed = field.text[: min(field.text.find(mark) for mark in "*?[" if mark in field.text)].rpartition("/")[0]
        look = self.trace.files.look(fixed if field.text.startswith("/") else f"{world.cwd}/{fixed}")
        if world.cwd is None or look.refusal or ".." in field.text:
            return [Mystery("any", "", field.source)]
        self.file("read", field, world.cwd)
        return [Mystery("below", look.path, field.source)]

    def _case(self, command: Case, worlds: tuple[World, ...]) -> Outcome:
        entered = self._redirected(command.redirects, worlds)
        for world in entered:
            expander = self._expander(world)
            for word in [command.word, *(pattern for patterns, _ in command.arms for pattern in patterns)]:
                expander.single(word)
        ends = [self.follow(body, entered) for _, body in command.arms]
        ended = _restored(merged(entered, *(end.all for end in ends)), worlds)
        return Outcome(ended, ended)

    def _function(self, command: Function, worlds: tuple[World, ...]) -> Outcome:
        defined = tuple(
            world._replace(functions={**world.functions, command.name: command.body}) for world in worlds
        )
        return Outcome(defined, defined)

    def _condition(self, command: Condition, worlds: tuple[World, ...]) -> Outcome:
        for world in self._redirected(command.redirects, worlds):
            expander = self._expander(world)
            fields = [expander.single(word) for word in command.words]
            BUILTINS["[["](self, world, fields)
        return Outcome(worlds, worlds)

    def _arithmetic(self, command: ArithmeticCommand, worlds: tuple[World, ...]) -> Outcome:
        changed: list[World] = []
        for world in self._redirected(command.redirects, worlds):
            for name in self._expander(world).check_arithmetic(command.word):
                world = world.with_variable(name, NUMBER)  # noqa: PLW2901 - the world moves on
            changed.append(world)
        ended = _restored(tuple(changed), worlds)
        return Outcome(ended, ended)

    # Simple commands

    def _expander(self, world: World) -> Expander:
        return Expander(world, self.trace.files.home, self._substituted, self.trace.doubt)

    def _substituted(self, script: Script, world: World) -> Output:
        """Follow the commands of a substitution and return what they print."""
        return self.follow(script, (world._replace(strict=False),)).output

    def _simple(self, command: Simple, world: World) -> Outcome:
        expander = self._expander(world)
        fields = expander.fields(command.words)
        assigned = [(item, self._assigned(item, expander)) for item in command.assignments]
        world = expander.world
        inner = self._redirect(command.redirects, world) if command.redirects else world
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
            restored = _restored(outcome.succeeded, (world,)), _restored(outcome.failed, (world,))
            writes = any(redirect.operator not in ("<", "<<", "<<<", "<&") for redirect in command.redirects)
            return Outcome(*restored, Output() if writes else outcome.output)
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

    def _redirect(self, redirects: Sequence[Redirect], world: World) -> World:
        """Note what redirections touch; return the world with what standard input is."""
        for redirect in redirects:
            if redirect.name:
                world = world.with_variable(redirect.name, NUMBER)
            expander = self._expander(world)
            if redirect.operator in ("<<", "<<<"):
                text = expander.single(redirect.word)
                given = Output(text.text + ("\n" if redirect.operator == "<<<" else "")) if text.kind == "exact" else Output()
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
            raise _Exhausted
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
        called = self._command(world.functions[name], (world._replace(arguments=arguments),))
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
            self.trace.doubt(name.source, "this program is not known here, so what it touches is not either", unbounded=True)
            return same
        self.trace.add(Effect("run", base, name.source))
        invocation = Invocation(self, world, known)
        self._keeping = base in _KEEP_CONTENT
        before, self._read = set(self._written), set()
        if known.handler:
            HANDLERS[known.handler](invocation, rest)
        else:
            invocation.judge(known, rest)
        self._keeping = False
        if base in _COMPILERS and world.stdin is None and not self._read & before:
            self._written = before
        return same._replace(output=invocation.output)

    def _project_program(self, name: Field, rest: Sequence[Field], world: World) -> None:
        """Note that a file of the project is run, and every argument that reads like a path."""
        look = self.file("read", name, world.cwd)
        if look is not None:
            self.check_not_written(look.path, name.source)
        self.note_code()
        self.arguments_of_code(rest, world.cwd)

    def arguments_of_code(self, fields: Sequence[Field], cwd: str | None) -> None:
        """Note the arguments of project code that read like paths or URLs elsewhere."""
        for field in fields:
            text = field.text.partition("=")[2] if field.text.startswith("-") and "=" in field.text else field.text
            if "://" in text:
                self.trace.contact(text, field.source)
            elif text.startswith(("/", "~", "../")) or "/../" in text or text == "..":
                self.file("edit", field._replace(text=text), cwd)

    # What programs do

    def file(self, role: str, field: Field, cwd: str | None) -> Look | None:
        """Note what a role does to the file that a word names."""
        look = None
        if field.kind == "unknown":
            self.trace.doubt(field.source, "the file it names is not known before it runs")
        elif field.kind == "below":
            if field.text != "/dev/fd":
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

    def nested(self, text: str, world: World, *, posix: bool = False) -> Outcome:
        """Follow a script inside a command; `posix` where another shell than bash may read it."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise _Exhausted
        outcome = self.follow(parse_script(text, posix=posix), (world,))
        self._depth -= 1
        return outcome

    def side(self, side_effect: Any) -> None:
        """Note a side effect beyond those of the effects."""
        effect: SideEffectClass = side_effect
        self.trace.side_effects.add(effect)

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

    def trap(self, text: str) -> None:
        """Remember a command that runs at the end, wherever the script is then."""
        self._traps.append(text)

    def enter(self, cwd: str | None) -> None:
        """Remember a working directory that the script may be in."""
        self._places.add(cwd)

    def finish(self) -> None:
        """Follow what runs at the end, and doubt code that the script itself has written."""
        for text in self._traps:
            for place in self._places:
                self.nested(text, World(place, {}, {}))
        for path, source in self._code:
            if path in self._written:
                self.trace.doubt(source, "it runs a file that the same command writes", unbounded=True)
        for control, source in self._controls:
            if any(f"/{control}/" in f"{path}/" for path in self._written):
                self.trace.doubt(source, f"it is steered by {control}, which the same command writes", unbounded=True)


_MAX_LOOPED: Final = 64
_MAX_JOINED: Final = 4096
# Builtins that also exist as programs, so that `env` or `xargs` can run them.
_ALSO_PROGRAMS: Final = frozenset(("echo", "printf", "test", "[", "true", "false", "pwd", "kill"))
_FOLLOWERS: Final[dict[type, Callable[[Run, Any, tuple[World, ...]], Outcome]]] = {
    ArithmeticCommand: Run._arithmetic,
    Case: Run._case,
    Condition: Run._condition,
    For: Run._for,
    Function: Run._function,
    If: Run._if,
    Subshell: Run._subshell,
    While: Run._while,
}


def _is_descriptor(field: Field) -> bool:
    return (field.kind == "exact" and (field.text.rstrip("-").isdigit() or field.text == "-")) or (
        field.kind == "pattern" and field.text == "*"
    )


def _restored(worlds: tuple[World, ...], before: tuple[World, ...]) -> tuple[World, ...]:
    """Return the worlds with the standard input that they had before a redirection."""
    stdin = before[0].stdin if before else None
    return tuple(world if world.stdin is stdin else world._replace(stdin=stdin) for world in worlds)


def _shaken(worlds: tuple[World, ...]) -> World:
    """Return one world that knows only what did not change."""
    return without_knowledge(worlds)
