"""Following a script: every command it could run, in every way things may stand, and what that would touch.

Nothing is executed. Both sides of a choice are followed, loops until nothing new is learned. The work is bounded: a
script that asks for more is a doubt. Simple commands are followed by `commands.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.files import TextFiles
from remit.policy.shell.builtins import BUILTINS
from remit.policy.shell.commands import Commands, can_fail
from remit.policy.shell.downloads import RUNS_DOWNLOAD, UNKNOWN_PLACE
from remit.policy.shell.environment import is_steering, judge_calculation
from remit.policy.shell.expand import arithmetic_settings, calculation
from remit.policy.shell.grammar import parse_script
from remit.policy.shell.invoke import Invocation
from remit.policy.shell.languages import LANGUAGES
from remit.policy.shell.notes import TOO_MUCH, matches_parent
from remit.policy.shell.programs import Program
from remit.policy.shell.syntax import (
    AndOr,
    ArithmeticCommand,
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
)
from remit.policy.shell.world import (
    LAST_JOB,
    NUMBER,
    Field,
    Mystery,
    Outcome,
    Output,
    Value,
    World,
    as_value,
    merged,
    restored,
    without_knowledge,
)
from remit.policy.trace import Trace

__all__ = ["Run", "judge_program", "judge_script"]

# Names in a text that it may set: all but those that it only expands.
_SET: Final = re.compile(r"(?<![$\w])(?<!\$\{)[A-Za-z_]\w*|(?<=\$\{)[A-Za-z_]\w*(?=:?=)", re.ASCII)
# What may be a brace expansion: no group, no parameter.
_BRACES: Final = re.compile(r"(?<!(?<![\\$])\$)\{(?![\s}])")
_MAX_NESTED: Final = 8
_MAX_ROUNDS: Final = 4
_MAX_LOOPED: Final = 64


def judge_script(trace: Trace, text: str, cwd: str | None, *, posix: bool = False) -> None:
    """Note everything that the command line `text` would do when it is started in `cwd`."""
    Run(trace).judge(text, cwd, posix=posix)


def judge_program(trace: Trace, language: str, text: str, cwd: str | None) -> None:
    """Note everything that a program in a little language would do."""
    run = Run(trace)
    invocation = Invocation(run, World(cwd, {}, {}), Program(name=language))
    try:
        LANGUAGES[language](invocation, text, language)
    except ShellUnparsed as error:
        trace.unparsed(error.word, error.reason)


class Run(Commands):
    """One walk through a script."""

    def __init__(self, trace: Trace, *, symbolic: bool = False) -> None:
        super().__init__(trace, symbolic=symbolic)
        self._guarded = 0
        # The scripts that were followed, by identity; those of substitutions that were not are followed at the end.
        self._followed: set[int] = set()
        self._texts: list[tuple[str, Script]] = []
        # Texts that run at the end, or at any time, with the functions of their place and whether any shell reads them.
        self._traps: list[tuple[str, Mapping[str, Command], bool, bool]] = []

    def judge(self, text: str, cwd: str | None, *, posix: bool = False) -> None:
        """Follow a whole script; what cannot be read or is too much becomes a doubt."""
        self.enter(cwd)
        self.trace.launches.restart()
        try:
            start = World(cwd, {}, {}, posix=posix)
            outcome = self._follow_text(text, start)
            self.passed.update(*(world.variables for world in outcome.all if self._traps))
            if self._follow_traps():
                self._follow_text(text, start)
            self._finish()
            if self.changes.downloads.count and None in self._places:
                self._find_downloads(text, cwd, posix=posix)
        except ShellUnparsed as error:
            self.trace.unparsed(error.word, error.reason)
            if posix:
                self._find_downloads(text, cwd, posix=False)
        except RecursionError:
            self.trace.unparsed("", TOO_MUCH)

    def _find_downloads(self, text: str, cwd: str | None, *, posix: bool) -> None:
        """Follow the script once more to find downloads that it runs, with names for directories that are not known.

        A text that not every shell reads alike is read as bash reads it. Nothing else is taken over.
        """
        if self.symbolic:
            return
        files = TextFiles()
        files.home = self.trace.files.home
        trace = Trace(files)
        Run(trace, symbolic=True).judge(text, cwd or UNKNOWN_PLACE, posix=posix)
        for doubt in trace.doubts:
            if doubt.reason.startswith(RUNS_DOWNLOAD):
                self.trace.doubt(doubt.word, doubt.reason, unbounded=True)

    def _follow_text(self, text: str, world: World) -> Outcome:
        """Follow the script of a whole text. An error in an expansion ends the line of the text that it stands in."""
        script = parse_script(text, posix=world.posix)
        self._texts.append((text, script))
        outer, self._discarded = self._discarded, []
        worlds: tuple[World, ...] = (world,)
        if world.posix and world.braces and _BRACES.search(text):
            # Not every shell expands braces.
            worlds = (world, world._replace(braces=False))
        outcome = Outcome(worlds, worlds)
        for item in script.items:
            outcome = self._lists((item,), outcome.all)
            if self._discarded:
                # Where its line ends is not kept: it may go on after every list that follows.
                self._discarded = [each._replace(stdin=world.stdin) for each in merged(self._discarded)]
                outcome = Outcome(outcome.succeeded, merged(outcome.failed, self._discarded))
        self._discarded = outer
        # No command is lost: a substitution that no expansion has come to may still run, whatever is known by then.
        for inner in reversed(script.substitutions):
            if id(inner) not in self._followed:
                for place in tuple(self._places):
                    self.follow(inner, (self._anytime(place, {}, posix=world.posix),))
        return outcome if len(script.items) == 1 else outcome._replace(output=Output())

    def _anytime(self, place: str | None, functions: Mapping[str, Command], *, posix: bool) -> World:
        """Return the world of commands that may run at any time: variables that the script sets may hold anything."""
        names = self.passed.union(*(_SET.findall(text) for text, _ in self._texts))
        variables: dict[str, Value] = {name: Mystery("any", "", f"${name}") for name in names}
        braces = None if posix else True
        known = {**functions, **self.defined}
        return World(place, variables, known, stdin=Output(), posix=posix, braces=braces, rewired=True)

    def follow(self, script: Script, worlds: tuple[World, ...]) -> Outcome:
        """Follow the lists of a script, one after the other."""
        self._followed.add(id(script))
        return self._lists(script.items, worlds)

    def _lists(self, items: Sequence[AndOr], worlds: tuple[World, ...]) -> Outcome:
        outcome = Outcome(worlds, worlds)
        for item in items:
            outcome = self._and_or(item, outcome.all)
            plain = not item.rest and not item.first.negated and not item.background
            if plain and not self._guarded and outcome.failed and all(world.strict for world in outcome.failed):
                outcome = outcome._replace(failed=())
        return outcome if len(items) == 1 else outcome._replace(output=Output())

    def _and_or(self, item: AndOr, worlds: tuple[World, ...]) -> Outcome:
        if item.background:
            isolated = tuple(world._replace(strict=False) for world in worlds)
            self._and_or(item._replace(background=False), isolated)
            self.run_beside(lambda: self._and_or(item._replace(background=False), isolated))
            # Before the first of them `$!` is empty, or that of another call.
            started = tuple(world.with_variable("!", LAST_JOB) for world in worlds)
            return Outcome(started, started)
        self._guarded += bool(item.rest)
        outcome = self._either(item.first, self._pipeline(item.first, worlds), worlds)
        for joint, pipeline in item.rest:
            if joint == "&&":
                after = self._pipeline(pipeline, outcome.succeeded)
                outcome = Outcome(after.succeeded, merged(outcome.failed, after.failed))
            else:
                after = self._pipeline(pipeline, outcome.failed)
                outcome = Outcome(merged(outcome.succeeded, after.succeeded), after.failed)
            outcome = self._either(pipeline, outcome, worlds)
        self._guarded -= bool(item.rest)
        return outcome

    def _either(self, pipeline: Pipeline, outcome: Outcome, worlds: tuple[World, ...]) -> Outcome:
        """Return the outcome of a list up to a pipeline that ends in `&>`.

        Shells that do not know it run the list in the background, and then open the file.
        """
        last = pipeline.commands[-1]
        redirects = getattr(last.body if isinstance(last, Function) else last, "redirects", ())
        if not any(world.posix for world in worlds) or not any(each.operator.startswith("&") for each in redirects):
            return outcome
        return Outcome(merged(outcome.succeeded, worlds), merged(outcome.failed, worlds))

    def _pipeline(self, pipeline: Pipeline, worlds: tuple[World, ...]) -> Outcome:
        if len(pipeline.commands) == 1:
            self._guarded += pipeline.negated
            outcome = self.follow_command(pipeline.commands[0], worlds)
            self._guarded -= pipeline.negated
            # A negated command counts as either: nobody gains from being precise about what `!` skips.
            return Outcome(outcome.all, outcome.all, outcome.output) if pipeline.negated else outcome
        printed: Output | None = None
        removed = len(self.changes.removed)
        stages: list[tuple[tuple[int, ...], Command, tuple[World, ...]]] = []
        for index, command in enumerate(pipeline.commands):
            staged = tuple(world._replace(strict=False, stdin=printed if index else world.stdin) for world in worlds)
            if not isinstance(command, Simple):
                staged = tuple(_shared_input(world, command) for world in staged)
            count = self.changes.downloads.count
            source = printed.downloaded if printed is not None else ""
            printed = self.follow_command(command, staged).output
            stages.append((self.changes.state, command, staged))
            source = self.changes.downloads.since(count) or source
            if source:
                printed = printed._replace(downloaded=source)
        for state, command, staged in stages:
            if state != self.changes.state:
                # It runs beside those that follow it, and may see what they change.
                self.follow_command(command, staged)
        after = self.without_lost(worlds, removed)
        return Outcome(after, after, printed or Output())

    def follow_command(self, command: Command, worlds: tuple[World, ...]) -> Outcome:
        """Follow one command in every world."""
        self.step()
        if not worlds:
            return Outcome((), ())
        removed = len(self.changes.removed)
        outcome = self._follow_command(command, worlds)
        if len(self.changes.removed) == removed:
            return outcome
        # A subshell may have moved the directory that the script stands in.
        succeeded, failed = self.without_lost(outcome.succeeded, removed), self.without_lost(outcome.failed, removed)
        return Outcome(succeeded, failed, outcome.output)

    def _follow_command(self, command: Command, worlds: tuple[World, ...]) -> Outcome:
        if type(command) is Simple:
            return self._each(worlds, lambda world: self.simple(command, world))
        redirects: Sequence[Redirect] = getattr(command, "redirects", ())
        if not redirects:
            return self._followers[type(command)](self, command, worlds)
        with self._redirecting(worlds[0]):
            outcome = self._followers[type(command)](self, command, worlds)
        if any(can_fail(redirects, world) for world in worlds):
            # A redirection that fails keeps the command from running.
            outcome = Outcome(outcome.succeeded, merged(outcome.failed, worlds))
        return outcome

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
        return tuple(_shared_input(self.redirect(redirects, world)) for world in worlds)

    def _subshell(self, command: Subshell, worlds: tuple[World, ...]) -> Outcome:
        discarded = len(self._discarded)
        inner = self.follow(command.body, self._redirected(command.redirects, worlds))
        printed = inner.output if not command.redirects else Output()
        if command.isolated:
            # An error there ends the subshell only.
            del self._discarded[discarded:]
            return Outcome(worlds, worlds, printed)
        return Outcome(restored(inner.succeeded, worlds), restored(inner.failed, worlds), printed)

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
            restored(merged(*(end.succeeded for end in ends)), worlds),
            restored(merged(*(end.failed for end in ends)), worlds),
        )

    def _while(self, command: While, worlds: tuple[World, ...]) -> Outcome:
        def once(current: tuple[World, ...]) -> tuple[World, ...]:
            self._guarded += 1
            decided = self.follow(command.condition, current)
            self._guarded -= 1
            return merged(decided.all, self.follow(command.body, decided.all).all)

        return self._looped(once, command.redirects, worlds)

    def _looped(
        self,
        once: Callable[[tuple[World, ...]], tuple[World, ...]],
        redirects: Sequence[Redirect],
        worlds: tuple[World, ...],
    ) -> Outcome:
        """Follow a loop until nothing new is learned; then what the last rounds still changed is not known."""
        current = self._redirected(redirects, worlds)
        left, self._left = self._left, []
        for attempt in range(_MAX_ROUNDS + 2):
            if attempt == _MAX_ROUNDS:
                current = (_forgetful(without_knowledge(current)),)
            state = self.changes.state
            after = merged(current, once(current), self._left)
            if after == current and state == self.changes.state:
                break
            current = after
        # A `return`, or a `break` of an outer loop, leaves more than this one.
        self._left = left + self._left
        ended = restored(current, worlds)
        return Outcome(ended, ended)

    def _for(self, command: For, worlds: tuple[World, ...]) -> Outcome:
        last = Mystery("any", "", f"${command.name}")
        if is_steering(command.name):
            self.trace.doubt(command.name, "it changes what programs run, load or contact", unbounded=True)

        def once(current: tuple[World, ...]) -> tuple[World, ...]:
            ends: tuple[World, ...] = ()
            for world in current:
                for value in self._loop_values(command, world):
                    entered = merged((world,), ends)
                    inside = tuple(each.with_variable(command.name, value) for each in entered)
                    # Which value was the last is not kept: worlds that differ in nothing else are one.
                    done = self.follow(command.body, inside).all
                    ends = merged(ends, (each.with_variable(command.name, last) for each in done))
            return ends

        return self._looped(once, command.redirects, worlds)

    def _loop_values(self, command: For, world: World) -> list[Value]:
        if command.words is None:
            return list(world.arguments) if world.arguments is not None else [Mystery("any", "", "$@")]
        values: list[Value] = []
        expander = self.expander(world)
        fields = expander.fields(command.words)
        self.check_failure(expander, world)
        for field in fields:
            if field.numbered:
                values.append(NUMBER if field.text == "*" else Mystery("any", "", field.source))
            elif field.kind == "pattern":
                values.extend(self._names(field, world))
            else:
                values.append(as_value(field))
        return values if len(values) <= _MAX_LOOPED else [Mystery("any", "", command.name)]

    def _names(self, field: Field, world: World) -> list[Value]:
        """Return the names that a glob stands for, or that they lie below its fixed part."""
        # bash negates by `^` too; classes of characters are not for us to match.
        directory, slash, name = field.text.replace("[^", "[!").replace("**", "*").rpartition("/")
        if (
            "[[" in name
            or "[:" in name
            or matches_parent(field.text)
            or ("[" in field.source and "[" not in field.text)
        ):
            # Brackets that are none stand for themselves.
            return [Mystery("any", "", field.source)]
        if world.cwd is not None and not any(mark in directory for mark in "*?["):
            start = self.trace.files.look(f"{world.cwd}/{directory}" if not directory.startswith("/") else directory)
            matches = None if start.refusal else self.trace.files.expand(start.path, name)
            if matches and len(matches) <= _MAX_LOOPED // 2:
                return [f"{directory}{slash}{match}" for match in matches]
        fixed = field.text[: min(field.text.find(mark) for mark in "*?[" if mark in field.text)].rpartition("/")[0]
        look = self.trace.files.look(fixed if field.text.startswith("/") else f"{world.cwd}/{fixed}")
        if world.cwd is None or look.refusal or ".." in field.text:
            return [Mystery("any", "", field.source)]
        self.file("read", field, world.cwd)
        return [Mystery("below", look.path, field.source, world.cwd, bare=not directory, filled=True)]

    def _case(self, command: Case, worlds: tuple[World, ...]) -> Outcome:
        entered = self._redirected(command.redirects, worlds)
        for world in entered:
            expander = self.expander(world)
            for word in [command.word, *(pattern for patterns, _ in command.arms for pattern in patterns)]:
                expander.single(word)
            self.check_failure(expander, world)
        ends = [self.follow(body, entered) for _, body in command.arms]
        ended = restored(merged(entered, *(end.all for end in ends)), worlds)
        return Outcome(ended, ended)

    def _function(self, command: Function, worlds: tuple[World, ...]) -> Outcome:
        special = command.name in BUILTINS and any(world.posix for world in worlds)
        if special or self.defined.setdefault(command.name, command.body) != command.body:
            self.trace.doubt(command.name, "a function that is defined twice", unbounded=True)
        defined = tuple(world._replace(functions={**world.functions, command.name: command.body}) for world in worlds)
        return Outcome(defined, defined)

    def _condition(self, command: Condition, worlds: tuple[World, ...]) -> Outcome:
        for world in self._redirected(command.redirects, worlds):
            expander = self.expander(world)
            fields = [expander.single(word) for word in command.words]
            self.check_failure(expander, world)
            BUILTINS["[["](self, world, fields)
        return Outcome(worlds, worlds)

    def _arithmetic(self, command: ArithmeticCommand, worlds: tuple[World, ...]) -> Outcome:
        changed: list[World] = []
        for world in self._redirected(command.redirects, worlds):
            expander = self.expander(world)
            expander.check_arithmetic(command.word)
            if expander.may_fail:
                # An expansion in it may end the line; an error of its own leaves variables as they were.
                self.discard(world)
                changed.append(world)
            for name in arithmetic_settings(calculation(command.word)):
                judge_calculation(self, name, world.cwd)
                world = world.with_variable(name, NUMBER)  # noqa: PLW2901 - the world moves on
            changed.append(world)
        ended = restored(tuple(changed), worlds)
        return Outcome(ended, ended)

    def nested(self, text: str, world: World, *, posix: bool = False) -> Outcome:
        """Follow a script inside a command; `posix` where another shell than bash may read it."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise ShellUnparsed(TOO_MUCH, "")
        launcher = self.trace.launches.enter()
        outcome = self._follow_text(text, world._replace(posix=posix or world.posix))
        self.trace.launches.leave(launcher)
        self._depth -= 1
        return outcome

    def trap(self, text: str, world: World, *, anytime: bool) -> None:
        """Remember a command that runs at the end, wherever the script is then, or at any time before that."""
        trap = (text, world.functions, world.posix, anytime)
        if trap not in self._traps:
            self._traps.append(trap)

    def _changes_shell(self, text: str, world: World) -> bool:
        """Tell whether commands may change the shell that they run in, or leave what it is doing."""
        # Marked, so that a value that is set shows, whatever it is.
        mark = Mystery("any", "", "", cwd="marked")
        marked = world._replace(variables=dict.fromkeys(world.variables, mark), arguments=(mark,), rewired=False)
        left, self._left, errors = self._left, [], self._errors
        changed = False
        for strict in (False, True):
            before = marked._replace(strict=strict)
            changed = changed or any(after != before for after in self.nested(text, before).all)
        changed, self._left = changed or bool(self._left) or errors != self._errors, left
        return changed

    def _follow_traps(self) -> bool:
        """Follow the commands of all traps; return whether a signal trap changes files that other commands use."""
        changed = False
        for text, functions, posix, anytime in self._traps:
            state = self.changes.state
            for place in tuple(self._places):
                world = self._anytime(place, functions, posix=posix)
                self.nested(text, world)
                for known in self._other_functions(functions):
                    self.nested(text, world._replace(functions=known))
                if anytime and self._changes_shell(text, world):
                    reason = "a signal may run it at any time, and it changes what later commands do"
                    self.trace.doubt(text, reason, unbounded=True)
            changed = changed or (anytime and state != self.changes.state)
        return changed

    def _other_functions(self, functions: Mapping[str, Command]) -> list[Mapping[str, Command]]:
        """Return the functions that there may be when a trap runs, beside all of them as they are in the end.

        Those that are not there yet when it is set may never be, and those that the script removes may be gone.
        """
        certain = {name: body for name, body in functions.items() if name not in self.undefined}
        everything = {**functions, **self.defined}
        return [certain] if certain != everything else []

    def _finish(self) -> None:
        """Follow what goes on until the end, and doubt code that the script itself has written."""
        for state, follow in tuple(self._beside):
            if state != self.changes.state:
                follow()
        self.changes.check(self.trace)
        for name in self.readers if self.stdin_changed else ():
            self.trace.doubt(name, "it runs what it is given, and that is not known", unbounded=True)

    # Which method follows which kind of command.
    _followers: Final[dict[type, Callable[..., Outcome]]] = {
        ArithmeticCommand: _arithmetic,
        Case: _case,
        Condition: _condition,
        For: _for,
        Function: _function,
        If: _if,
        Subshell: _subshell,
        While: _while,
    }


def _forgetful(world: World) -> World:
    """Return a world in which no variable is known, nor where the script stands."""
    variables: dict[str, Value] = {name: Mystery("any", "", f"${name}") for name in world.variables}
    return world._replace(variables=variables, cwd=None)


def _shared_input(world: World, command: Command | None = None) -> World:
    """Return the world for commands that share one standard input.

    How much of a text each command reads is not known. A list of file names stays known if one command reads it.
    """
    if world.stdin is None:
        return world
    several = isinstance(command, Subshell) and (
        len(command.body.items) > 1 or any(item.rest for item in command.body.items)
    )
    return world._replace(stdin=Output()) if world.stdin.text is not None or several else world
