"""Evaluates simple commands: assignments, redirections, and a function, builtin or program."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from remit.errors import ShellUnparsed
from remit.policy.call import Effect
from remit.policy.field import Field
from remit.policy.shell.evaluate.builtins import BUILTINS
from remit.policy.shell.evaluate.context import WordsJudge
from remit.policy.shell.evaluate.credentials import exports_credentials
from remit.policy.shell.evaluate.downloads import ProgramRun, may_download, place_of
from remit.policy.shell.evaluate.environment import judge_setting, judge_variable
from remit.policy.shell.evaluate.expand import Expander
from remit.policy.shell.evaluate.recorder import TOO_MUCH, EffectRecorder, is_packaged
from remit.policy.shell.evaluate.state import (
    ARRAY,
    CONCURRENT,
    NUMBER,
    Outcome,
    Output,
    ShellState,
    Unknown,
    Value,
    as_arguments,
    as_value,
    merge_states,
    restore_stdin,
)
from remit.policy.shell.parse.syntax import Assignment, Command, Redirect, Script, Simple, Word
from remit.policy.shell.tables import known_program
from remit.policy.spawned import SYSTEM_FOLDERS
from remit.policy.trace import Trace

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_DECLARES: Final = frozenset("export declare local readonly typeset".split())
# Builtins that run other commands in the same shell.
_RUN_HERE: Final = frozenset("eval source . command builtin exec".split())
# Variables that `cd` reads.
_READ_BY_CD: Final = frozenset(("PWD", "OLDPWD"))
_BASH_ONLY: Final = frozenset(
    "pushd popd dirs declare typeset builtin let mapfile readarray source shopt enable".split()
)
_MAX_NESTED: Final = 8
_MAX_JOINED: Final = 4096
_READS: Final = frozenset(("<", "<>", "<&"))
# Operators that copy a descriptor, and the standard descriptors.
_COPIES: Final = frozenset(("<&", ">&"))
_STANDARD: Final = ("0", "1", "2")
# Programs that do not change what the content of a file does.
_KEEP_CONTENT: Final = frozenset(
    "chmod chown chgrp touch black ruff isort autopep8 prettier eslint gofmt goimports rustfmt shfmt".split()
)
_UNPACKERS: Final = frozenset("unzip 7z patch cpio gunzip gzip bunzip2 xz unxz zstd split csplit".split())
# Subcommands of git that do not change the directories of the work tree.
_GIT_KEEPS: Final = frozenset(
    "add annotate archive blame branch bundle cat-file check-attr check-ignore cherry commit commit-tree config "
    "count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch fsck gc grep "
    "hash-object help init log ls-files ls-remote ls-tree maintenance merge-base mktree name-rev notes push range-diff "
    "reflog remote rev-list rev-parse shortlog show show-branch show-ref status symbolic-ref tag update-index "
    "update-ref var verify-commit verify-tag version whatchanged write-tree".split()
)
# Programs that neither remove directories nor change their permissions.
_KEEP_FOLDERS: Final = frozenset(
    "mkdir touch tee black ruff isort autopep8 prettier eslint gofmt goimports rustfmt shfmt".split()
)
_GIT_PATCHES: Final = frozenset(("apply", "am"))
_GIT_CONTROLS: Final = (".git", ".gitattributes", ".gitmodules", ".gitconfig")
_TREE_COPIERS: Final = frozenset(("rsync", "cpio", "pax"))
# Their output is as trustworthy as their input.
_COPIERS: Final = frozenset(
    "gcc g++ cc c++ clang clang++ rustc javac tsc go ghc ld kotlinc swiftc cp mv install ln tar unzip gunzip gzip "
    "bunzip2 xz unxz zstd 7z rsync split csplit patch ar cpio".split()
)
# Their output depends on files that the script has written before.
_CARRY_CONTENT: Final = _COPIERS | _TREE_COPIERS | {"git"}
# Builtins that also exist as programs, so that `env` or `xargs` can run them.
_ALSO_PROGRAMS: Final = frozenset(("echo", "printf", "test", "[", "true", "false", "pwd", "kill"))


class CommandEvaluator(EffectRecorder):
    """Evaluates commands that are not compound."""

    def __init__(self, trace: Trace, judge_words: WordsJudge, *, symbolic: bool = False) -> None:
        super().__init__(trace, symbolic=symbolic)
        self._judge_words = judge_words
        self._depth = 0
        # Files that the redirections of the current command write.
        self._redirect_targets: list[str] = []
        # The program that downloads something in a substitution of the current command.
        self.substituted = ""
        # States in which the current function or loop may be left early.
        self._early_exits: list[ShellState] = []
        # Variables that are set for programs, and those whose text may contain commands.
        self.passed_variables: set[str] = set()
        self.unsafe_variables: set[str] = set()
        # All functions that the script defines, for traps.
        self.defined: dict[str, Command] = {}
        # Functions that the script unsets.
        self.undefined: set[str] = set()
        # States in which an error has ended the current line.
        self._error_states: list[ShellState] = []
        self._errors = 0
        # Commands that run concurrently, with the version of the changes when they were evaluated.
        self._concurrent: list[tuple[tuple[int, ...], Callable[[], Outcome]]] = []

    @abstractmethod
    def evaluate(self, script: Script, states: tuple[ShellState, ...]) -> Outcome:
        """Evaluate the lists of a script in order."""

    @abstractmethod
    def evaluate_command(self, command: Command, states: tuple[ShellState, ...]) -> Outcome:
        """Evaluate one command in every state."""

    @abstractmethod
    def evaluate_nested(self, text: str, state: ShellState, *, posix: bool = False) -> Outcome:
        """Evaluate a script inside a command; `posix` if the shell may be another one than bash."""

    def child(self, text: str, state: ShellState, *, posix: bool) -> Outcome:
        """Evaluate a script that another shell runs: without functions, and with unknown variables."""
        names = (*state.variables, *self.passed_variables)
        variables: dict[str, Value] = {name: Unknown("any", "", f"${name}") for name in names}
        inner = state._replace(functions={}, strict=False, variables=variables, in_function=False, local=frozenset())
        return self.evaluate_nested(text, inner, posix=posix)

    @abstractmethod
    def trap(self, text: str, state: ShellState, *, anytime: bool) -> None:
        """Record a command that runs at the end of the script, or at any time."""

    def expander(self, state: ShellState, *, assigns: bool = False) -> Expander:
        """Return an expander for a state; `assigns` if assignments in expansions change the state."""
        evaluate, doubt = self._evaluate_substitution, self._doubt_words
        home = self.trace.files.home
        return Expander(state, home, evaluate, doubt, list_names=self.list_names, assigns=assigns)

    def _doubt_words(self, word: str, reason: str) -> None:
        # The commands in an expansion are not known either.
        self.trace.doubt(word, reason, unbounded=True)

    def _evaluate_substitution(self, script: Script, state: ShellState) -> Output:
        """Evaluate the commands of a substitution and return their output."""
        discarded = len(self._error_states)
        output = self.evaluate(script, (state._replace(strict=False),)).output
        if state.stdin is CONCURRENT:
            self.run_concurrently(lambda: self.evaluate(script, (state._replace(strict=False),)))
        # An error in a substitution ends only the substitution.
        del self._error_states[discarded:]
        return output

    def run_concurrently(self, evaluate: Callable[[], Outcome]) -> None:
        """Record commands that run concurrently with later ones, and may see their changes."""
        self._concurrent.append((self.changes.version, evaluate))

    def discard(self, state: ShellState) -> None:
        """Record a state in which an error ends the line: the rest of it does not run, the next line does."""
        self._error_states.append(state)
        self._errors += 1

    def check_failure(self, expander: Expander, state: ShellState) -> None:
        """Record the state if an expansion may have ended in an error."""
        if expander.may_fail:
            self.discard(state)

    def simple(self, command: Simple, state: ShellState) -> Outcome:
        """Evaluate one simple command in one state."""
        if not command.redirects:
            return self._simple(command, state)
        with self._record_redirects(state):
            return self._simple(command, state)

    @contextmanager
    def _record_redirects(self, state: ShellState) -> Iterator[None]:
        """Record the redirection targets of a command that downloads, or reads something that was downloaded."""
        outer, self._redirect_targets, downloads = self._redirect_targets, [], self.changes.downloads
        count = downloads.count
        yield
        program = downloads.since(count) or (state.stdin.downloaded if state.stdin is not None else "")
        for path in self._redirect_targets if program else ():
            downloads.add(path, program)
        self._redirect_targets = outer

    def _simple(self, command: Simple, state: ShellState) -> Outcome:
        if command.redirects and not command.words:
            state = state._replace(stdin=Output())
        downloads = self.changes.downloads
        count, removed = downloads.count, len(self.changes.removed)
        expander = self.expander(state, assigns=True)
        fields = self._fields(command.words, expander)
        self.substituted = downloads.since(count) if downloads.count != count else ""
        self.check_failure(expander, state)
        if not fields:
            return self._assignments_only(command, expander.state)
        (state,) = self.forget_removed_cwd((expander.state,), removed)
        assigned = self._prefix_values(command.assignments, state) if command.assignments else ()
        inner = self.redirect(command.redirects, state) if command.redirects else state
        unsafe_variables = set(self.unsafe_variables)
        self._judge_prefix(fields[0], assigned, state)
        outcome = self.command(fields, inner)
        if assigned:
            self.unsafe_variables = unsafe_variables
        if can_fail(command.redirects, state):
            # If a redirection fails, the command does not run.
            outcome = outcome._replace(failed=merge_states(outcome.failed, (inner,)))
        if command.redirects and fields[0].text in _RUN_HERE:
            # The redirection stays in effect: later input is not known.
            self.stdin_changed = True
        if not command.redirects or fields[0].text == "exec":
            return outcome
        plain = all(each.operator in ("<<", "<<<") and not each.descriptor for each in command.redirects)
        counts = outcome.output.number and all(_keeps_output(each) for each in command.redirects)
        succeeded, failed = restore_stdin(outcome.succeeded, (state,)), restore_stdin(outcome.failed, (state,))
        return Outcome(succeeded, failed, outcome.output if plain else Output(number=counts))

    def _assignments_only(self, command: Simple, state: ShellState) -> Outcome:
        """Evaluate a command without words; each assignment sees those before it."""
        before = state
        for item in command.assignments:
            expander = self.expander(state, assigns=True)
            value = self._assigned_value(item, expander)
            self.check_failure(expander, state)
            if state.is_fixed(item.name):
                self.discard(state)
            state = self._assign(item, value, expander.state)
        if not command.redirects:
            return Outcome((state,), (state,))
        # Files are opened after the assignments. With words in the command, shells differ on that.
        for each in merge_states((before,), (state,)):
            self.redirect(command.redirects, each)
        unchanged = (before,) if can_fail(command.redirects, state) else ()
        return Outcome((state,), merge_states((state,), unchanged))

    def _prefix_values(self, items: Sequence[Assignment], state: ShellState) -> list[tuple[Assignment, Value]]:
        """Return the values of assignments before a command; each one sees those before it."""
        assigned: list[tuple[Assignment, Value]] = []
        for item in items:
            if any(item.name == before.name for before, _ in assigned):
                # Shells differ on the value while it is assigned again.
                state = state.with_variable(item.name, Unknown("any", "", f"${item.name}"))
            expander = self.expander(state)
            value = self._assigned_value(item, expander)
            self.check_failure(expander, state)
            assigned.append((item, value))
            # Before a command, bash takes a list as text.
            known = item.replaces and isinstance(item.value, Word)
            state = state.with_variable(item.name, value if known else Unknown("any", "", f"${item.name}"))
        return assigned

    def _fields(self, words: Sequence[Word], expander: Expander) -> list[Field]:
        """Return the fields of a command; values in a declaration are not split."""
        if not words or words[0].source not in _DECLARES:
            return expander.fields(words)
        fields = expander.fields(words[:1])
        for word in words[1:]:
            assigns = _ASSIGNMENT.match(word.source) is not None
            found = expander.expand_declaration(word) if assigns else expander.fields((word,))
            if assigns and expander.state.posix:
                split = expander.fields((word,))
                if any(each.splits for each in split):
                    # Other shells may split the value, and set other variables.
                    expander.forget()
                elif [each.text for each in split] != [each.text for each in found]:
                    self._doubt_words(word.source, "not every shell splits the value of a declaration")
            fields.extend(found)
        return fields

    def _judge_prefix(self, name: Field, assigned: Sequence[tuple[Assignment, Value]], state: ShellState) -> None:
        """Record the variables that are set for one command only."""
        for item, value in assigned:
            self.passed_variables.add(item.name)
            if item.name == "IFS" and name.text == "read" and "read" not in state.functions:
                continue
            fixed = f"{item.name}!" in state.variables
            kept = name.text in BUILTINS and (state.posix or item.name in _READ_BY_CD)
            reads = name.text in _RUN_HERE or name.text in _DECLARES or name.text == "let"
            if fixed or kept or reads or name.text in state.functions:
                self.trace.doubt(item.name, "it is set for commands that run later in the same line", unbounded=True)
            known = value if isinstance(value, str) else None
            if isinstance(value, Unknown) and value.cause.startswith("~"):
                # A home directory is a path even if it is not known.
                known = value.cause
            judge_variable(self, item.name, known, state.cwd, item.name)

    def _assigned_value(self, item: Assignment, expander: Expander) -> Value:
        if isinstance(item.value, Word):
            return expander.value(item.value)
        fields = expander.fields(item.value)
        if all(field.kind == "exact" and not field.text.startswith("[") for field in fields):
            return tuple(as_value(field) for field in fields)
        return Unknown("any", "", item.name)

    def _assign(self, item: Assignment, value: Value, state: ShellState) -> ShellState:
        known = state.variables.get(item.subscript, "0")
        if item.subscript and not (isinstance(known, str) and known.isdigit()) and known != NUMBER:
            self.trace.doubt(item.name, "arithmetic on a value that may hold commands", unbounded=True)
        if item.name != "IFS":
            judge_setting(self, item.name, value if isinstance(value, str) else None, state.cwd, item.name)
        if item.subscript or (not item.replaces and not isinstance(item.value, Word)):
            value = ARRAY
        elif not item.replaces:
            old = state.variables.get(item.name)
            joined = isinstance(old, str) and isinstance(value, str) and len(old) + len(value) <= _MAX_JOINED
            value = f"{old}{value}" if joined else Unknown("any", "", f"${item.name}")
        return state.with_variable(item.name, value)

    def redirect(self, redirects: Sequence[Redirect], state: ShellState) -> ShellState:
        """Record the effects of redirections; return the state with the new standard input."""
        for redirect in redirects:
            if redirect.descriptor.startswith("{"):
                name = redirect.descriptor.strip("{}")
                judge_setting(self, name, None, state.cwd, redirect.descriptor)
                state = state.with_variable(name, NUMBER)
            given = self._open_redirect(redirect, state)
            state = state._replace(rewired=state.rewired or _may_close(redirect))
            number = redirect.descriptor.lstrip("0") if redirect.descriptor.isdigit() else redirect.descriptor
            if not number and (given is not None or redirect.descriptor):
                state = state._replace(stdin=given if given is not None else Output())
        return state

    def _open_redirect(self, redirect: Redirect, state: ShellState) -> Output | None:
        """Record the effects of one redirection; return the input that it provides, or None if it is for writing."""
        downloads = self.changes.downloads
        count = downloads.count
        expander = self.expander(state)
        field = expander.single(redirect.word)
        self.check_failure(expander, state)
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
                self.file(role, each, state.cwd)
        if redirect.operator not in _READS:
            self._redirect_targets.append(place_of(field, state.cwd))
            return None
        if field.kind == "exact" and field.text == "/dev/null" and redirect.operator == "<":
            return Output("")
        program = downloads.program_for_word(field, state.cwd)
        return Output(downloaded=program, local=field.kind == "exact" and not program)

    def command(
        self, fields: Sequence[Field], state: ShellState, prefix: str = "", *, functions: bool = True
    ) -> Outcome:
        """Judge one command: a function, a builtin or a program."""
        self.step()
        if not fields:
            return Outcome((state,), (state,))
        name, rest = fields[0], fields[1:]
        if prefix:
            return self._judge_spawned(name, rest, state)
        if name.kind != "exact" or not name.text:
            self.unknown_program(name, state)
        elif _ASSIGNMENT.match(name.text):
            self.trace.doubt(
                name.source, "with these quotes it is the name of a program, not an assignment", unbounded=True
            )
        elif functions and name.text in state.functions:
            if "/" in name.text:
                # Not every shell allows a slash in a function name.
                self._run_program(name, rest, state)
            return self._call_function(name.text, rest, state)
        elif name.text in BUILTINS:
            if state.posix and name.text in _BASH_ONLY:
                self.trace.doubt(name.source, "the shell that reads it may not be bash", unbounded=True)
            return BUILTINS[name.text](self, state, rest)
        else:
            return self._run_program(name, rest, state)
        return Outcome((state,), (state,))

    def _judge_spawned(self, name: Field, rest: Sequence[Field], state: ShellState) -> Outcome:
        """Judge a command that a program starts: not a function, and only builtins that are programs too."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise ShellUnparsed(TOO_MUCH, "")
        launcher = self.trace.spawned.enter(name)
        if name.kind != "exact" or not name.text or " " in name.text:
            # With a blank it may be a whole command line.
            self.unknown_program(name, state)
        elif name.text in _ALSO_PROGRAMS:
            BUILTINS[name.text](self, state, rest)
        else:
            self._run_program(name, rest, state)
        self.trace.spawned.leave(launcher)
        self._depth -= 1
        return Outcome((state,), (state,))

    def unknown_program(self, name: Field, state: ShellState) -> None:
        """Record a doubt about a program that is not known; it may also be a downloaded file."""
        program = self.changes.downloads.program_for_word(name, state.cwd) or self.substituted
        if program:
            self.changes.run_download(name.source, program, starts=False)
        self.trace.doubt(name.source, "the program to run is not known before it runs", unbounded=True)

    def _call_function(self, name: str, rest: Sequence[Field], state: ShellState) -> Outcome:
        """Evaluate the body of a function with its arguments."""
        self._depth += 1
        if self._depth > _MAX_NESTED or f"{name}()" in state.variables:
            self._depth -= 1
            self.trace.doubt(name, "a function that is recursive, or has several definitions", unbounded=True)
            return Outcome((state,), (state,))
        left, self._early_exits = self._early_exits, []
        discarded = len(self._error_states)
        inside = state._replace(arguments=as_arguments(rest), local=frozenset(), in_function=True)
        called = self.evaluate_command(state.functions[name], (inside,))
        returned, self._early_exits = tuple(self._early_exits), left
        self._error_states[discarded:] = [_after_call(after, state) for after in self._error_states[discarded:]]
        self._depth -= 1
        return Outcome(
            tuple(_after_call(after, state) for after in merge_states(called.succeeded, returned)),
            tuple(_after_call(after, state) for after in merge_states(called.failed, returned)),
        )

    def leave(self, state: ShellState) -> None:
        """Record a state in which a function or loop may be left early."""
        self._early_exits.append(state)

    def _run_program(self, name: Field, rest: Sequence[Field], state: ShellState) -> Outcome:
        spawned = self.trace.spawned
        spawned.start(name.text, rest, state.cwd, self.trace.files)
        if exported := exports_credentials(name.text.rpartition("/")[2], rest):
            self.trace.add(Effect("export", exported, name.source))
        outcome = self._judge_program(name, rest, state)
        spawned.end()
        return outcome

    def _judge_program(self, name: Field, rest: Sequence[Field], state: ShellState) -> Outcome:
        same = Outcome((state,), (state,))
        folder, slash, base = name.text.rpartition("/")
        known = known_program(base)
        if slash and f"{folder}/" not in SYSTEM_FOLDERS:
            self._run_project_file(name, rest, state)
            if known is None:
                if is_packaged(name.text):
                    self.files_of_tool(rest, state.cwd)
                return same
        if known is None:
            self.trace.doubt(
                name.source, "this program is not known here, and neither is what it touches", unbounded=True
            )
            self._track_downloads(base, rest, state, cwd=state.cwd, is_known=False)
            return same
        self.trace.add(Effect("run", base, name.source))
        self._keeping, self.trace.spreads = base in _KEEP_CONTENT, known.spreads
        before = self.changes.snapshot() if base in _CARRY_CONTENT else None
        removed = len(self.changes.removed)
        outer, self._read = self._read, set()
        outer_wrote, self._wrote = self._wrote, set()
        outer_changed, self.trace.changed = self.trace.changed, []
        if base == "git":
            self.changes.steer(_GIT_CONTROLS, base)
        call = self._judge_words(self, state, known, rest)
        self._keeping = self.trace.spreads = False
        if before is not None:
            self._record_changes(base, rest, before, (state, state._replace(cwd=call.cwd)))
        if self.changes.downloads.count or may_download(base, rest):
            self._track_downloads(base, rest, state, cwd=call.cwd, is_known=not known.refusal)
        if not self._keeps_folders(base, rest):
            self.changes.reshape(self.trace.changed)
        self._read |= outer
        self._wrote |= outer_wrote
        self.trace.changed = outer_changed
        after = self.forget_removed_cwd((state,), removed)
        return Outcome(after, after, call.output)

    def forget_removed_cwd(self, states: tuple[ShellState, ...], removed: int) -> tuple[ShellState, ...]:
        """Return the states, without the working directory if it was removed after the first `removed` removals."""
        if len(self.changes.removed) == removed:
            return states
        gone = self.changes.may_be_gone
        return tuple(
            state._replace(cwd=None) if state.cwd is not None and gone(state.cwd, removed) else state
            for state in states
        )

    def _keeps_folders(self, program: str, fields: Sequence[Field]) -> bool:
        """Return whether a program neither removes directories nor changes their permissions."""
        if program == "git":
            return _GIT_KEEPS.issuperset(self.trace.spawned.subcommands()[:1])
        # Without options, files are placed in a directory; moved files are recorded as removed.
        plain = program in ("cp", "mv") and not any(field.kind != "exact" or field.text[:1] == "-" for field in fields)
        return plain or program in _KEEP_FOLDERS

    def _record_changes(
        self,
        program: str,
        fields: Sequence[Field],
        before: tuple[set[str], set[str], set[str]],
        states: tuple[ShellState, ShellState],
    ) -> None:
        """Record how a program has changed the files that the script has written, created and removed before.

        The two states are those of the script and of the program, which may have another working directory.
        """
        # Options may stand before the subcommand of git.
        words = {field.text for field in fields} if program == "git" else set[str]()
        if program in _COPIERS or words & _GIT_PATCHES:
            self._record_copies(before, states, unpacks=program in _UNPACKERS or program == "git")
        if program in _TREE_COPIERS and self.changes.aliases:
            # It may copy links that the script has created.
            for path in tuple(self._wrote):
                self.changes.alias(path, None)
        if program == "git" and not self._keeps_folders(program, fields):
            self.changes.unsettled = True

    def _track_downloads(
        self, name: str, fields: Sequence[Field], state: ShellState, *, cwd: str | None, is_known: bool
    ) -> None:
        """Record what a program downloads, and what it derives from downloads."""
        command = ProgramRun(
            name,
            fields,
            cwd or state.cwd,
            stdin=state.stdin.downloaded if state.stdin is not None else "",
            read=self._read if is_known else (),
            written=self._wrote if is_known else (),
            is_known=is_known,
        )
        program = self.changes.downloads.track(command)
        if program:
            self.changes.run_download(name, program)

    def _record_copies(
        self, before: tuple[set[str], set[str], set[str]], states: tuple[ShellState, ShellState], *, unpacks: bool
    ) -> None:
        """Forget files that a copier or compiler has written, unless its input was written by the script."""
        after = self.changes.snapshot()
        self.changes.restore(before)
        if states[0].stdin is not None or self.reads_own():
            self.changes.restore(after)
            for place in {state.cwd for state in states if state.cwd is not None} if unpacks else ():
                self.changes.unpack(place)

    def _run_project_file(self, name: Field, rest: Sequence[Field], state: ShellState) -> None:
        """Record that a file of the project runs, with every argument that looks like a path."""
        resolved = self.file("read", name, state.cwd)
        if resolved is not None:
            self.trace.spawned.runs(resolved.path)
            self.changes.run(resolved.path, name.source)
        self.record_code()
        self.arguments_of_code(rest, state.cwd)


def _is_descriptor(field: Field) -> bool:
    return (field.kind == "exact" and (field.text.rstrip("-").isdigit() or field.text == "-")) or (
        field.kind == "pattern" and field.text == "*"
    )


def _keeps_output(redirect: Redirect) -> bool:
    """Return whether a redirection changes only the input, or discards standard error."""
    if redirect.descriptor == "2":
        return redirect.operator in (">", ">>")
    return redirect.operator in ("<", "<<", "<<<") and not redirect.descriptor


def _after_call(after: ShellState, before: ShellState) -> ShellState:
    """Return the state after a function call, without its parameters and local variables."""
    variables = {name: value for name, value in after.variables.items() if name not in after.local}
    variables.update({name: before.variables[name] for name in after.local if name in before.variables})
    # The working directory stays changed, but these variables are those of the caller.
    variables.update({name: Unknown("any", "", f"${name}") for name in _READ_BY_CD & after.local})
    return after._replace(
        arguments=before.arguments, in_function=before.in_function, local=before.local, variables=variables
    )


def can_fail(redirects: Sequence[Redirect], state: ShellState) -> bool:
    """Return whether a redirection may fail, so that the command does not run."""
    if redirects and (state.rewired or (len(redirects) > 1 and any(map(_may_close, redirects)))):
        return True
    return any(not _is_ordinary(redirect) for redirect in redirects)


def _is_ordinary(redirect: Redirect) -> bool:
    """Return whether a redirection cannot fail while the standard descriptors are open."""
    if redirect.descriptor not in ("", *_STANDARD):
        return False
    if redirect.operator in _COPIES:
        return redirect.word.source in ("-", "/dev/null", *_STANDARD)
    return redirect.operator in ("<<", "<<<") or redirect.word.source == "/dev/null"


def _may_close(redirect: Redirect) -> bool:
    """Return whether a redirection may close a descriptor."""
    return redirect.operator in _COPIES and redirect.word.source not in _STANDARD
