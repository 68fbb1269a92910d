"""Evaluates a script without running it: every command it could run, in every possible state of the shell.

Both branches of a condition are evaluated, and loops until nothing changes. The work is limited: a script over the
limit is a doubt. `commands.py` evaluates simple commands.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.field import Field
from remit.policy.files import TextFiles
from remit.policy.shell.evaluate.builtins import BUILTINS
from remit.policy.shell.evaluate.commands import CommandEvaluator, can_fail
from remit.policy.shell.evaluate.context import WordsJudge
from remit.policy.shell.evaluate.downloads import RUNS_DOWNLOAD, UNKNOWN_PLACE
from remit.policy.shell.evaluate.environment import judge_calculation
from remit.policy.shell.evaluate.expand import arithmetic_settings, calculation
from remit.policy.shell.evaluate.recorder import TOO_MUCH, matches_parent
from remit.policy.shell.evaluate.settings import is_steering
from remit.policy.shell.evaluate.state import (
    LAST_JOB,
    NUMBER,
    Outcome,
    Output,
    ShellState,
    Unknown,
    Value,
    as_value,
    common_state,
    merge_states,
    restore_stdin,
)
from remit.policy.shell.parse.grammar import parse_script
from remit.policy.shell.parse.syntax import (
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
from remit.policy.trace import Trace

# Names in a text that it may set: all but those that it only expands.
_SET: Final = re.compile(r"(?<![$\w])(?<!\$\{)[A-Za-z_]\w*|(?<=\$\{)[A-Za-z_]\w*(?=:?=)", re.ASCII)
# A possible brace expansion, but not a group or a parameter.
_BRACES: Final = re.compile(r"(?<!(?<![\\$])\$)\{(?![\s}])")
_MAX_NESTED: Final = 8
_MAX_ROUNDS: Final = 4
_MAX_LOOPED: Final = 64


class ScriptEvaluator(CommandEvaluator):
    """Evaluates one script."""

    def __init__(self, trace: Trace, judge_words: WordsJudge, *, symbolic: bool = False) -> None:
        super().__init__(trace, judge_words, symbolic=symbolic)
        self._error_exempt = 0
        # Ids of the scripts that were evaluated. Substitutions that were not reached are evaluated at the end.
        self._evaluated: set[int] = set()
        self._texts: list[tuple[str, Script]] = []
        # Trap commands: text, functions at that point, whether the shell may be any, and whether it can run at any
        # time.
        self._traps: list[tuple[str, Mapping[str, Command], bool, bool]] = []

    def judge(self, text: str, cwd: str | None, *, posix: bool = False) -> None:
        """Evaluate a whole script. A script that cannot be parsed, or exceeds a limit, is a doubt."""
        self.enter(cwd)
        self.trace.spawned.restart()
        try:
            start = ShellState(cwd, {}, {}, posix=posix)
            outcome = self._evaluate_text(text, start)
            self.passed_variables.update(*(state.variables for state in outcome.all if self._traps))
            if self._evaluate_traps():
                self._evaluate_text(text, start)
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
        """Evaluate the script again to find downloads that it runs, with placeholder names for unknown directories.

        A text that shells read differently is read as bash does. Only doubts about downloads are kept.
        """
        if self.symbolic:
            return
        files = TextFiles()
        files.home = self.trace.files.home
        trace = Trace(files)
        ScriptEvaluator(trace, self._judge_words, symbolic=True).judge(text, cwd or UNKNOWN_PLACE, posix=posix)
        for doubt in trace.doubts:
            if doubt.reason.startswith(RUNS_DOWNLOAD):
                self.trace.doubt(doubt.word, doubt.reason, unbounded=True)

    def _evaluate_text(self, text: str, state: ShellState) -> Outcome:
        """Evaluate the script of a whole text. An error in an expansion ends the current line of the text."""
        script = parse_script(text, posix=state.posix)
        self._texts.append((text, script))
        outer, self._error_states = self._error_states, []
        states: tuple[ShellState, ...] = (state,)
        if state.posix and state.braces and _BRACES.search(text):
            # Not every shell expands braces.
            states = (state, state._replace(braces=False))
        outcome = Outcome(states, states)
        for item in script.items:
            outcome = self._lists((item,), outcome.all)
            if self._error_states:
                # The end of the line is not tracked, so the script may continue after each later list.
                self._error_states = [each._replace(stdin=state.stdin) for each in merge_states(self._error_states)]
                outcome = Outcome(outcome.succeeded, merge_states(outcome.failed, self._error_states))
        self._error_states = outer
        # A substitution that no expansion has reached may still run, in any state.
        for inner in reversed(script.substitutions):
            if id(inner) not in self._evaluated:
                for place in tuple(self._places):
                    self.evaluate(inner, (self._anytime(place, {}, posix=state.posix),))
        return outcome if len(script.items) == 1 else outcome._replace(output=Output())

    def _anytime(self, place: str | None, functions: Mapping[str, Command], *, posix: bool) -> ShellState:
        """Return a state for commands that may run at any time: variables that the script sets may have any value."""
        names = self.passed_variables.union(*(_SET.findall(text) for text, _ in self._texts))
        variables: dict[str, Value] = {name: Unknown("any", "", f"${name}") for name in names}
        braces = None if posix else True
        known = {**functions, **self.defined}
        return ShellState(place, variables, known, stdin=Output(), posix=posix, braces=braces, rewired=True)

    def evaluate(self, script: Script, states: tuple[ShellState, ...]) -> Outcome:
        """Evaluate the lists of a script in order."""
        self._evaluated.add(id(script))
        return self._lists(script.items, states)

    def _lists(self, items: Sequence[AndOr], states: tuple[ShellState, ...]) -> Outcome:
        outcome = Outcome(states, states)
        for item in items:
            outcome = self._and_or(item, outcome.all)
            plain = not item.rest and not item.first.negated and not item.background
            if plain and not self._error_exempt and outcome.failed and all(state.strict for state in outcome.failed):
                outcome = outcome._replace(failed=())
        return outcome if len(items) == 1 else outcome._replace(output=Output())

    def _and_or(self, item: AndOr, states: tuple[ShellState, ...]) -> Outcome:
        if item.background:
            isolated = tuple(state._replace(strict=False) for state in states)
            self._and_or(item._replace(background=False), isolated)
            self.run_concurrently(lambda: self._and_or(item._replace(background=False), isolated))
            # Before the first background command, `$!` is empty or belongs to another call.
            started = tuple(state.with_variable("!", LAST_JOB) for state in states)
            return Outcome(started, started)
        self._error_exempt += bool(item.rest)
        outcome = self._or_background(item.first, self._pipeline(item.first, states), states)
        for joint, pipeline in item.rest:
            if joint == "&&":
                after = self._pipeline(pipeline, outcome.succeeded)
                outcome = Outcome(after.succeeded, merge_states(outcome.failed, after.failed))
            else:
                after = self._pipeline(pipeline, outcome.failed)
                outcome = Outcome(merge_states(outcome.succeeded, after.succeeded), after.failed)
            outcome = self._or_background(pipeline, outcome, states)
        self._error_exempt -= bool(item.rest)
        return outcome

    def _or_background(self, pipeline: Pipeline, outcome: Outcome, states: tuple[ShellState, ...]) -> Outcome:
        """Add the possibility that a list that ends in `&>` runs in the background.

        Shells without `&>` read it so: they run the list in the background and then open the file.
        """
        last = pipeline.commands[-1]
        redirects = getattr(last.body if isinstance(last, Function) else last, "redirects", ())
        if not any(state.posix for state in states) or not any(each.operator.startswith("&") for each in redirects):
            return outcome
        return Outcome(merge_states(outcome.succeeded, states), merge_states(outcome.failed, states))

    def _pipeline(self, pipeline: Pipeline, states: tuple[ShellState, ...]) -> Outcome:
        if len(pipeline.commands) == 1:
            self._error_exempt += pipeline.negated
            outcome = self.evaluate_command(pipeline.commands[0], states)
            self._error_exempt -= pipeline.negated
            # A negated command may succeed or fail; more precision about `!` is not worth the code.
            return Outcome(outcome.all, outcome.all, outcome.output) if pipeline.negated else outcome
        printed: Output | None = None
        removed = len(self.changes.removed)
        stages: list[tuple[tuple[int, ...], Command, tuple[ShellState, ...]]] = []
        for index, command in enumerate(pipeline.commands):
            staged = tuple(state._replace(strict=False, stdin=printed if index else state.stdin) for state in states)
            if not isinstance(command, Simple):
                staged = tuple(_shared_input(state, command) for state in staged)
            count = self.changes.downloads.count
            source = printed.downloaded if printed is not None else ""
            printed = self.evaluate_command(command, staged).output
            stages.append((self.changes.version, command, staged))
            source = self.changes.downloads.since(count) or source
            if source:
                printed = printed._replace(downloaded=source)
        for version, command, staged in stages:
            if version != self.changes.version:
                # It runs concurrently with the later commands of the pipeline, and may see their changes.
                self.evaluate_command(command, staged)
        after = self.forget_removed_cwd(states, removed)
        return Outcome(after, after, printed or Output())

    def evaluate_command(self, command: Command, states: tuple[ShellState, ...]) -> Outcome:
        """Evaluate one command in every state."""
        self.step()
        if not states:
            return Outcome((), ())
        removed = len(self.changes.removed)
        outcome = self._evaluate_compound(command, states)
        if len(self.changes.removed) == removed:
            return outcome
        # A subshell may have moved the working directory of the script.
        succeeded, failed = (
            self.forget_removed_cwd(outcome.succeeded, removed),
            self.forget_removed_cwd(outcome.failed, removed),
        )
        return Outcome(succeeded, failed, outcome.output)

    def _evaluate_compound(self, command: Command, states: tuple[ShellState, ...]) -> Outcome:
        if type(command) is Simple:
            return self._each(states, lambda state: self.simple(command, state))
        redirects: Sequence[Redirect] = getattr(command, "redirects", ())
        if not redirects:
            return self._evaluators[type(command)](self, command, states)
        with self._record_redirects(states[0]):
            outcome = self._evaluators[type(command)](self, command, states)
        if any(can_fail(redirects, state) for state in states):
            # If a redirection fails, the command does not run.
            outcome = Outcome(outcome.succeeded, merge_states(outcome.failed, states))
        return outcome

    def _each(self, states: tuple[ShellState, ...], evaluate: Callable[[ShellState], Outcome]) -> Outcome:
        if len(states) == 1:
            return evaluate(states[0])
        outcomes = [evaluate(state) for state in states]
        same = all(outcome.output == outcomes[0].output for outcome in outcomes)
        return Outcome(
            merge_states(*(outcome.succeeded for outcome in outcomes)),
            merge_states(*(outcome.failed for outcome in outcomes)),
            outcomes[0].output if same else Output(),
        )

    def _open_redirects(self, redirects: Sequence[Redirect], states: tuple[ShellState, ...]) -> tuple[ShellState, ...]:
        """Record the redirections of a compound command; return the states with its standard input."""
        if not redirects:
            return states
        return tuple(_shared_input(self.redirect(redirects, state)) for state in states)

    def _subshell(self, command: Subshell, states: tuple[ShellState, ...]) -> Outcome:
        discarded = len(self._error_states)
        inner = self.evaluate(command.body, self._open_redirects(command.redirects, states))
        printed = inner.output if not command.redirects else Output()
        if command.isolated:
            # An error in a subshell ends only the subshell.
            del self._error_states[discarded:]
            return Outcome(states, states, printed)
        return Outcome(restore_stdin(inner.succeeded, states), restore_stdin(inner.failed, states), printed)

    def _if(self, command: If, states: tuple[ShellState, ...]) -> Outcome:
        waiting = self._open_redirects(command.redirects, states)
        ends: list[Outcome] = []
        for condition, body in command.arms:
            self._error_exempt += 1
            decided = self.evaluate(condition, waiting)
            self._error_exempt -= 1
            ends.append(self.evaluate(body, decided.succeeded))
            waiting = decided.failed
        ends.append(self.evaluate(command.otherwise, waiting) if command.otherwise else Outcome(waiting, ()))
        return Outcome(
            restore_stdin(merge_states(*(end.succeeded for end in ends)), states),
            restore_stdin(merge_states(*(end.failed for end in ends)), states),
        )

    def _while(self, command: While, states: tuple[ShellState, ...]) -> Outcome:
        def once(current: tuple[ShellState, ...]) -> tuple[ShellState, ...]:
            self._error_exempt += 1
            decided = self.evaluate(command.condition, current)
            self._error_exempt -= 1
            return merge_states(decided.all, self.evaluate(command.body, decided.all).all)

        return self._evaluate_loop(once, command.redirects, states)

    def _evaluate_loop(
        self,
        once: Callable[[tuple[ShellState, ...]], tuple[ShellState, ...]],
        redirects: Sequence[Redirect],
        states: tuple[ShellState, ...],
    ) -> Outcome:
        """Evaluate a loop until nothing changes; after the limit, forget variables and the working directory."""
        current = self._open_redirects(redirects, states)
        left, self._early_exits = self._early_exits, []
        for attempt in range(_MAX_ROUNDS + 2):
            if attempt == _MAX_ROUNDS:
                current = (_forget_variables(common_state(current)),)
            version = self.changes.version
            after = merge_states(current, once(current), self._early_exits)
            if after == current and version == self.changes.version:
                break
            current = after
        # A `return`, or a `break` of an outer loop, leaves more than this loop.
        self._early_exits = left + self._early_exits
        ended = restore_stdin(current, states)
        return Outcome(ended, ended)

    def _for(self, command: For, states: tuple[ShellState, ...]) -> Outcome:
        last = Unknown("any", "", f"${command.name}")
        if is_steering(command.name):
            self.trace.doubt(command.name, "it changes what programs run, load or contact", unbounded=True)

        def once(current: tuple[ShellState, ...]) -> tuple[ShellState, ...]:
            ends: tuple[ShellState, ...] = ()
            for state in current:
                for value in self._loop_values(command, state):
                    entered = merge_states((state,), ends)
                    inside = tuple(each.with_variable(command.name, value) for each in entered)
                    # The last value is not tracked, so states that differ in nothing else are merged.
                    done = self.evaluate(command.body, inside).all
                    ends = merge_states(ends, (each.with_variable(command.name, last) for each in done))
            return ends

        return self._evaluate_loop(once, command.redirects, states)

    def _loop_values(self, command: For, state: ShellState) -> list[Value]:
        if command.words is None:
            return list(state.arguments) if state.arguments is not None else [Unknown("any", "", "$@")]
        values: list[Value] = []
        expander = self.expander(state)
        fields = expander.fields(command.words)
        self.check_failure(expander, state)
        for field in fields:
            if field.numbered:
                values.append(NUMBER if field.text == "*" else Unknown("any", "", field.source))
            elif field.kind == "pattern":
                values.extend(self._names(field, state))
            else:
                values.append(as_value(field))
        return values if len(values) <= _MAX_LOOPED else [Unknown("any", "", command.name)]

    def _names(self, field: Field, state: ShellState) -> list[Value]:
        """Return the file names that a glob matches, or one unknown path below its fixed part."""
        # bash also negates with `^`; character classes are not matched here.
        directory, slash, name = field.text.replace("[^", "[!").replace("**", "*").rpartition("/")
        if (
            "[[" in name
            or "[:" in name
            or matches_parent(field.text)
            or ("[" in field.source and "[" not in field.text)
        ):
            # Unclosed brackets are ordinary characters.
            return [Unknown("any", "", field.source)]
        if state.cwd is not None and not any(mark in directory for mark in "*?["):
            start = self.trace.files.resolve(f"{state.cwd}/{directory}" if not directory.startswith("/") else directory)
            matches = None if start.refusal else self.trace.files.expand(start.path, name)
            if matches and len(matches) <= _MAX_LOOPED // 2:
                return [f"{directory}{slash}{match}" for match in matches]
        fixed = field.text[: min(field.text.find(mark) for mark in "*?[" if mark in field.text)].rpartition("/")[0]
        resolved = self.trace.files.resolve(fixed if field.text.startswith("/") else f"{state.cwd}/{fixed}")
        if state.cwd is None or resolved.refusal or ".." in field.text:
            return [Unknown("any", "", field.source)]
        self.file("read", field, state.cwd)
        return [Unknown("below", resolved.path, field.source, state.cwd, bare=not directory, filled=True)]

    def _case(self, command: Case, states: tuple[ShellState, ...]) -> Outcome:
        entered = self._open_redirects(command.redirects, states)
        for state in entered:
            expander = self.expander(state)
            for word in [command.word, *(pattern for patterns, _ in command.arms for pattern in patterns)]:
                expander.single(word)
            self.check_failure(expander, state)
        ends = [self.evaluate(body, entered) for _, body in command.arms]
        ended = restore_stdin(merge_states(entered, *(end.all for end in ends)), states)
        return Outcome(ended, ended)

    def _function(self, command: Function, states: tuple[ShellState, ...]) -> Outcome:
        special = command.name in BUILTINS and any(state.posix for state in states)
        if special or self.defined.setdefault(command.name, command.body) != command.body:
            self.trace.doubt(command.name, "a function that is defined twice", unbounded=True)
        defined = tuple(state._replace(functions={**state.functions, command.name: command.body}) for state in states)
        return Outcome(defined, defined)

    def _condition(self, command: Condition, states: tuple[ShellState, ...]) -> Outcome:
        for state in self._open_redirects(command.redirects, states):
            expander = self.expander(state)
            fields = [expander.single(word) for word in command.words]
            self.check_failure(expander, state)
            BUILTINS["[["](self, state, fields)
        return Outcome(states, states)

    def _arithmetic(self, command: ArithmeticCommand, states: tuple[ShellState, ...]) -> Outcome:
        changed: list[ShellState] = []
        for state in self._open_redirects(command.redirects, states):
            expander = self.expander(state)
            expander.check_arithmetic(command.word)
            if expander.may_fail:
                # An expansion in it may end the line. An arithmetic error leaves the variables unchanged.
                self.discard(state)
                changed.append(state)
            for name in arithmetic_settings(calculation(command.word)):
                judge_calculation(self, name, state.cwd)
                state = state.with_variable(name, NUMBER)  # noqa: PLW2901 - the state after the assignment
            changed.append(state)
        ended = restore_stdin(tuple(changed), states)
        return Outcome(ended, ended)

    def evaluate_nested(self, text: str, state: ShellState, *, posix: bool = False) -> Outcome:
        """Evaluate a script inside a command; `posix` if the shell may be another one than bash."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise ShellUnparsed(TOO_MUCH, "")
        launcher = self.trace.spawned.enter()
        outcome = self._evaluate_text(text, state._replace(posix=posix or state.posix))
        self.trace.spawned.leave(launcher)
        self._depth -= 1
        return outcome

    def trap(self, text: str, state: ShellState, *, anytime: bool) -> None:
        """Record a command that runs at the end of the script, or at any time."""
        trap = (text, state.functions, state.posix, anytime)
        if trap not in self._traps:
            self._traps.append(trap)

    def _changes_shell(self, text: str, state: ShellState) -> bool:
        """Return whether commands may change the state of the shell, or leave a function or loop."""
        # A marker value in every variable shows each assignment, whatever its value is.
        mark = Unknown("any", "", "", cwd="marked")
        marked = state._replace(variables=dict.fromkeys(state.variables, mark), arguments=(mark,), rewired=False)
        left, self._early_exits, errors = self._early_exits, [], self._errors
        changed = False
        for strict in (False, True):
            before = marked._replace(strict=strict)
            changed = changed or any(after != before for after in self.evaluate_nested(text, before).all)
        changed, self._early_exits = changed or bool(self._early_exits) or errors != self._errors, left
        return changed

    def _evaluate_traps(self) -> bool:
        """Evaluate the commands of all traps; return whether a signal trap changes files that other commands use."""
        changed = False
        for text, functions, posix, anytime in self._traps:
            version = self.changes.version
            for place in tuple(self._places):
                state = self._anytime(place, functions, posix=posix)
                self.evaluate_nested(text, state)
                for known in self._other_functions(functions):
                    self.evaluate_nested(text, state._replace(functions=known))
                if anytime and self._changes_shell(text, state):
                    reason = "a signal may run it at any time, and it changes what later commands do"
                    self.trace.doubt(text, reason, unbounded=True)
            changed = changed or (anytime and version != self.changes.version)
        return changed

    def _other_functions(self, functions: Mapping[str, Command]) -> list[Mapping[str, Command]]:
        """Return other sets of functions that may exist when a trap runs, besides all functions of the script.

        A function that is defined after the trap may not exist yet, and one that the script unsets may be gone.
        """
        certain = {name: body for name, body in functions.items() if name not in self.undefined}
        everything = {**functions, **self.defined}
        return [certain] if certain != everything else []

    def _finish(self) -> None:
        """Evaluate concurrent commands again if needed, and record doubts about code that the script has written."""
        for version, evaluate in tuple(self._concurrent):
            if version != self.changes.version:
                evaluate()
        self.changes.check(self.trace)
        for name in self.readers if self.stdin_changed else ():
            self.trace.doubt(name, "it runs its input, which is not known", unbounded=True)

    # The method for each type of command.
    _evaluators: Final[dict[type, Callable[..., Outcome]]] = {
        ArithmeticCommand: _arithmetic,
        Case: _case,
        Condition: _condition,
        For: _for,
        Function: _function,
        If: _if,
        Subshell: _subshell,
        While: _while,
    }


def _forget_variables(state: ShellState) -> ShellState:
    """Return the state with all variables and the working directory unknown."""
    variables: dict[str, Value] = {name: Unknown("any", "", f"${name}") for name in state.variables}
    return state._replace(variables=variables, cwd=None)


def _shared_input(state: ShellState, command: Command | None = None) -> ShellState:
    """Return the state for commands that share one standard input.

    How much each command reads is not known. A list of file names stays known if only one command reads it.
    """
    if state.stdin is None:
        return state
    several = isinstance(command, Subshell) and (
        len(command.body.items) > 1 or any(item.rest for item in command.body.items)
    )
    return state._replace(stdin=Output()) if state.stdin.text is not None or several else state
