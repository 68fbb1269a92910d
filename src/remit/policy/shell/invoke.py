"""What one program would do with the words it is given, by its table.

Each word has a role, and each role an effect: the dispatch is a table at the end. Commands inside words go back to
`run.py`; text in a little language goes to `languages.py`.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from remit.policy.files import Look
from remit.policy.paths import join
from remit.policy.shell.builtins import SHELL_SETTINGS
from remit.policy.shell.environment import judge_variable
from remit.policy.shell.languages import LANGUAGES
from remit.policy.shell.prints import PRINTS
from remit.policy.shell.programs import Arguments, Program, known_program, parse_arguments, roles
from remit.policy.shell.world import Field, Output, World, as_value

if TYPE_CHECKING:
    from remit.policy.shell.run import Run

__all__ = ["Invocation"]

_UNKNOWN_CONTACT: Final = "?"
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
# Configuration of git that cannot make it run anything.
_GIT_KEYS: Final = re.compile(
    r"(?:user\.(?:name|email|signingkey)|init\.defaultbranch|pull\.(?:rebase|ff)|push\.(?:default|autosetupremote)|fetch\.prune"
    r"|core\.(?:autocrlf|eol|filemode|ignorecase|quotepath|safecrlf|longpaths|abbrev|bare|precomposeunicode|symlinks)"
    r"|merge\.(?:conflictstyle|ff|stat)|rebase\.(?:autostash|autosquash)|color\.[a-z.]+|commit\.(?:gpgsign|verbose)"
    r"|tag\.gpgsign|diff\.(?:renames|colormoved|algorithm|mnemonicprefix)|branch\.[^\s=]+\.(?:merge|rebase|remote|description)"
    r"|rerere\.enabled|advice\.[a-z]+|log\.[a-z]+|status\.[a-z]+|column\.ui|help\.autocorrect|gc\.[a-z]+|format\.pretty"
    r"|remote\.[^\s=]+\.(?:fetch|prune|push)|safe\.directory|worktree\.[a-z]+)\Z",
    re.IGNORECASE,
)
_MAX_MATCHED: Final = 512
_PACKAGE: Final = re.compile(r"(?:@[\w.-]+/)?[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?(?:[@=<>~!^][\w.,*^~=<>!| -]*)?")
_SCP_LIKE: Final = re.compile(r"(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):(?!//)(.*)\Z", re.DOTALL)
_MAKE_CONTROLS: Final = frozenset(("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "MAKEFILES", "MAKE", "GNUMAKEFLAGS", "BASH_ENV", "ENV"))


class Invocation:
    """One program with its words, in one world."""

    def __init__(self, run: "Run", world: World, program: Program) -> None:
        self.run = run
        self.trace = run.trace
        self.world = world
        self.program = program
        self.cwd = world.cwd
        self.output = Output()
        # What a script given as text sees as its parameters.
        self.positional: Sequence[Field] = ()

    def judge(self, program: Program, fields: Sequence[Field]) -> None:
        """Note everything that the words and the facts of the table come to."""
        if program.refusal:
            self.trace.doubt(program.name, program.refusal, unbounded=True)
            return
        other = known_program(program.program) if program.program else None
        if other is not None:
            self.judge(other, fields)
            return
        arguments = parse_arguments(program, fields)
        if program.needs and not arguments.has(program.needs):
            self.trace.doubt(program.name, "without a message it would start an editor", unbounded=True)
        for field in arguments.unknown:
            reason = f"it may be an option of {program.name} that matters" if field.kind == "unknown" else (
                f"this option of {program.name} is not known here"
            )
            self.trace.doubt(field.source, reason, unbounded=True)
        self._check_wildcards(program, fields)
        self.positional = arguments.operands[1:]
        for name, role, value in arguments.options:
            if role == "refused":
                self.trace.doubt(name, f"{program.name} {program.refused_options[name]}", unbounded=True)
            elif role and value is not None:
                self.play(role, value, program, arguments)
        module = next((value for _, role, value in arguments.options if role == "module"), None)
        if module is not None:
            self._module(program, module, arguments.operands)
        elif program.subs or program.default:
            self._subcommand(program, arguments)
        else:
            self._operands(program, arguments)
            self._facts(program, arguments)
            if program.name in PRINTS:
                self.output = PRINTS[program.name](self, arguments)

    def _check_wildcards(self, program: Program, fields: Sequence[Field]) -> None:
        """Refuse a bare wildcard that would hand a file named like an option to a program whose options matter."""
        if program.is_harmless:
            return
        for field in fields:
            if field.kind == "exact" and field.text == "--":
                return
            if field.kind == "pattern" and field.text[:1] in "*?[" and "/" not in field.text and self.cwd is not None:
                matches = self.trace.files.expand(self.cwd, field.text)
                if any(name.startswith("-") for name in matches or ()):
                    self.trace.doubt(field.source, "it matches a file that is named like an option; write ./ before it")

    def _subcommand(self, program: Program, arguments: Arguments) -> None:
        if not arguments.operands:
            if program.default:
                self.judge(program.subs[program.default], ())
            elif not arguments.options:
                self._facts(program, arguments)
            return
        word, *rest = arguments.operands
        sub = program.subs.get(word.text) if word.kind == "exact" else None
        if sub is None:
            if program.default and word.kind == "exact" and word.text.startswith("-"):
                self.judge(program.subs[program.default], arguments.operands)
                return
            self.trace.doubt(word.source, f"this command of {program.name} is not known here", unbounded=True)
            return
        self.judge(sub, rest)

    def _operands(self, program: Program, arguments: Arguments) -> None:
        given = list(roles(program, arguments))
        commanded = next((index for index, (role, _) in enumerate(given) if role in ("command", "tool")), None)
        tool = commanded is not None and given[commanded][0] == "tool"
        if commanded is not None:
            inner = [field for _, field in given[commanded:]]
            given = given[:commanded]
        for index, (role, field) in enumerate(given):
            if role == "env" and not (field.kind == "exact" and _ASSIGNMENT.match(field.text)):
                # The first word that is no assignment starts the command.
                given, inner, commanded = given[:index], [field for _, field in given[index:]], index
                break
        coded = False
        for role, field in given:
            if coded and role == "data":
                self.run.arguments_of_code((field,), self.cwd)
            else:
                self.play(role, field, program, arguments)
            coded = coded or role == "code"
        if program.into and len(given) > 1:
            self._land(given)
        if tool:
            self._tool(program, inner)
        elif commanded is not None:
            self.run.command(inner, self.world._replace(cwd=self.cwd), prefix=program.name)
        wanted = program.operands[1:] if arguments.has(program.supplied_by) else program.operands
        fixed = 0 if wanted and wanted[-1] == "data*" else sum(1 for role in wanted if not role.endswith("*"))
        if commanded is None and len(given) <= fixed:
            self._without_operands(program, arguments)
        if program.stdin and not given and not arguments.has(program.supplied_by):
            self._standard_input(program)

    def _tool(self, program: Program, words: Sequence[Field]) -> None:
        """Note a tool of the project's packages: by its own table where there is one."""
        name = re.sub(r"(?<=.)@[^/]*\Z", "", words[0].text).rpartition("/")[2]
        if words[0].kind == "exact" and known_program(name) is not None:
            self.run.command([words[0]._replace(text=name), *words[1:]], self.world._replace(cwd=self.cwd), prefix=program.name)
        else:
            self._package("package", words[0])
            self.run.arguments_of_code(words[1:], self.cwd)
        self.run.note_code()

    def _without_operands(self, program: Program, arguments: Arguments) -> None:
        for effect in program.without_operands:
            role, _, path = effect.partition(" ")
            self.play(role, Field(path, "exact", program.name), program, arguments)

    def _standard_input(self, program: Program) -> None:
        """Judge what arrives at standard input as the code that the program would run."""
        given = self.world.stdin
        if given is None:
            # Nothing is connected: an agent's terminal gives nothing.
            return
        if given.text is None:
            self.trace.doubt(program.name, "it runs what it is given, and that is not known", unbounded=True)
            return
        self._text(program.stdin, Field(given.text, "exact", program.name))

    def _land(self, given: Sequence[tuple[str, Field]]) -> None:
        """Note the files that land in a directory: a link of that name would lead them elsewhere."""
        *sources, (_, target) = given
        if target.kind != "exact":
            return
        look = self.trace.files.look(join(self.cwd or "/", target.text))
        for _, source in sources:
            if source.kind != "exact":
                continue
            name = source.text.rstrip("/").rpartition("/")[2]
            lands = look.is_directory and name not in ("", ".", "..")
            if lands:
                self.trace.touch("write", f"{look.path}/{name}", None, source.source)
            self.run.alias(f"{look.path}/{name}" if lands else look.path, join(self.cwd or "/", source.text))

    def _facts(self, program: Program, arguments: Arguments) -> None:
        trace = self.trace
        if program.privilege:
            self.run.escalate(program.name)
        also = [effect for name, effects in program.touches_if.items() if arguments.has((name,)) for effect in effects]
        for effect in (*program.touches, *also):
            role, _, path = effect.partition(" ")
            trace.touch(role, self._home(path), self.cwd, program.name)
        local = program.unless_local and arguments.operands and self._exists(f"{program.unless_local}/{arguments.operands[0].text}")
        for host in () if local or arguments.has(program.offline_if) else program.contacts:
            if host == _UNKNOWN_CONTACT:
                trace.doubt(program.name, "it contacts a host that the command does not name")
                trace.side_effects.add("external_send" if program.side == "external_send" else "none")
            else:
                trace.contact(host + "/", program.name, sends=program.sends or arguments.has(program.sends_if))
        if program.side != "none":
            self.run.side(program.side)
        if program.runs:
            self.run.project_code(program, self.cwd)
        follows = program.follows if isinstance(program.follows, bool) else arguments.has(program.follows)
        if follows:
            self._follow(program, arguments)

    def _home(self, path: str) -> str:
        return path if not path.startswith("~") or self.trace.files.home is None else self.trace.files.home + path[1:]

    def _follow(self, program: Program, arguments: Arguments) -> None:
        files = [field for role, field in roles(program, arguments) if role in ("read", "edit", "move") and field.kind == "exact"]
        for field in files or [Field(".", "exact", program.name)]:
            look = self.trace.files.look(join(self.cwd or "/", field.text))
            if look.is_directory:
                self.trace.follow_links(look.path, field.source)

    # Roles

    def play(self, role: str, field: Field, program: Program, arguments: Arguments) -> None:
        """Note what one word comes to in its role."""
        if role.startswith("keyed:"):
            self._keyed(role.removeprefix("keyed:"), field, program, arguments)
            return
        if role.startswith("match:"):
            self._match(role.removeprefix("match:"), field, program)
            return
        player = _PLAYERS.get(role)
        if player is not None:
            player(self, role, field)
        elif role in ("url", "host", "remote", "hostpath"):
            self._network(role, field, sends=program.sends or arguments.has(program.sends_if))
        else:
            self.trace.doubt(field.source, f"{program.name} does not expect it", unbounded=True)

    def _match(self, form: str, field: Field, program: Program) -> None:
        """Note a word that is harmless in one form only."""
        if field.kind != "exact" or len(field.text) > _MAX_MATCHED or not re.fullmatch(form, field.text):
            self.trace.doubt(field.source, f"{program.name} takes it in a way that is not known here", unbounded=True)

    def file(self, role: str, field: Field) -> Look | None:
        """Note that a file is touched."""
        return self.run.file(role, field, self.cwd)

    def _data(self, role: str, field: Field) -> None:
        """Nothing: the word is only text."""

    def _directory(self, role: str, field: Field) -> None:
        look = self.file("read", field)
        self.cwd = look.path if look is not None else None

    def _code(self, role: str, field: Field) -> None:
        look = self.file("read", field)
        if look is not None:
            self.run.check_not_written(look.path, field.source)
        elif field.kind == "exact" and field.text in ("-", "/dev/stdin"):
            self._standard_input(self.program)
        self.run.note_code()

    def _text(self, role: str, field: Field) -> None:
        if field.kind != "exact":
            self.trace.doubt(field.source, "it is code, and not known before it runs", unbounded=True)
        elif role == "shell":
            arguments = tuple(as_value(each) for each in self.positional)
            inner = self.world._replace(cwd=self.cwd, functions={}, strict=False, arguments=arguments)
            self.run.nested(field.text, inner, posix=self.program.name != "bash")
        else:
            LANGUAGES[role](self, field.text, field.source)

    def _opaque(self, role: str, field: Field) -> None:
        self.trace.doubt(field.source, f"code that {self.program.name} runs is not analysed", unbounded=True)

    def _env(self, role: str, field: Field) -> None:
        assignment = _ASSIGNMENT.match(field.text)
        if field.kind == "exact" and assignment:
            judge_variable(self.run, assignment[1], assignment[2], self.cwd, field.source)
        else:
            self.trace.doubt(field.source, "an assignment that is not known before it runs", unbounded=True)

    def _at_file(self, role: str, field: Field) -> None:
        """Note the file of `@file`, `name=@file` or `name=<file`."""
        text = field.text
        if text.startswith("@"):
            self.file("read", field._replace(text=text[1:]))
        elif (cut := re.search(r"=[@<]", text)) is not None:
            self.file("read", field._replace(text=text[cut.end() :].split(";")[0]))
        elif field.kind == "unknown" and (not text or text.endswith("=")):
            self.trace.doubt(field.source, "it may name a file that is sent")

    def _keyed(self, keys: str, field: Field, program: Program, arguments: Arguments) -> None:
        wanted = dict(key.split("=", 1) for key in keys.split(","))
        name, equals, value = field.text.partition("=")
        if field.kind == "unknown" and not equals:
            self.trace.doubt(field.source, "it may name a file")
        elif equals and name in wanted:
            self.play(wanted[name], field._replace(text=value), program, arguments)

    def _revision(self, role: str, field: Field) -> None:
        """A revision is data; a word that reads like a path, or exists as one, is read."""
        if field.kind == "unknown":
            self.trace.doubt(field.source, "it may be a path")
            return
        text = field.text
        upward = text.startswith(("/", "~", "../", "./")) or "/../" in text or text == ".."
        if field.kind != "exact" or upward or self._exists(text):
            self.file("read", field)

    def _exists(self, text: str) -> bool:
        return self.cwd is not None and "\0" not in text and self.trace.files.look(join(self.cwd, text)).exists

    def _git_key(self, role: str, field: Field) -> None:
        if field.kind != "exact" or not _GIT_KEYS.match(field.text):
            self.trace.doubt(field.source, "this setting can make git run commands", unbounded=True)

    def _name(self, role: str, field: Field) -> None:
        """Note a part of a file name, which must not lead to another directory."""
        if field.kind != "exact" or "/" in field.text:
            self.trace.doubt(field.source, "it is put into file names, and may lead elsewhere")

    def _prefix(self, role: str, field: Field) -> None:
        """Note the start of file names: they lie where it leads."""
        if field.kind != "exact" or field.text.rstrip("/") != field.text or field.text in (".", ".."):
            self.trace.doubt(field.source, "it is the start of file names that are not known before it runs")
        else:
            self.file("write", field._replace(text=f"{field.text}-"))

    def _source_file(self, role: str, field: Field) -> None:
        """Note a file that is read, and often run: `@file` would be a file of further options."""
        if field.text[:1] in ("@", "{", "["):
            self.trace.doubt(field.source, "a file of further options, or several files", unbounded=True)
            return
        look = self.file("read", field._replace(text=field.text.partition("::")[0]) if role == "test" else field)
        if role == "test" and look is not None:
            self.run.check_not_written(look.path, field.source)

    def _package(self, role: str, field: Field) -> None:
        """Note a package: a name is plain, a path is code of the project, a URL is contacted."""
        text = field.text.partition("@file:")[2] or field.text
        if field.kind != "exact":
            self.trace.doubt(field.source, "the package is not known before it runs", unbounded=True)
        elif text.startswith((".", "/", "~", "file:")):
            self.file("read", field._replace(text=text.removeprefix("file:").partition("[")[0]))
            self.run.note_code()
        elif "://" in text:
            self.trace.contact(text.partition("@ ")[2].removeprefix("git+") or text.removeprefix("git+"), field.source)
        elif not _PACKAGE.fullmatch(text):
            self.trace.doubt(field.source, "it names a package in a way that is not known here", unbounded=True)

    def _go_package(self, role: str, field: Field) -> None:
        if field.kind != "exact" or field.text.startswith((".", "/")):
            self.file("read", field._replace(text=field.text.removesuffix("...")))

    def _paths(self, role: str, field: Field) -> None:
        for text in filter(None, field.text.split(":")):
            self.file("read", field._replace(text=text))

    def _setting(self, role: str, field: Field) -> None:
        if field.kind != "exact" or field.text not in SHELL_SETTINGS:
            self.trace.doubt(field.source, "a setting of the shell that is not known here", unbounded=True)

    def _mount(self, role: str, field: Field) -> None:
        text = field.text
        if "source=" in text or "src=" in text:
            found = re.search(r"(?:source|src)=([^,]*)", text)
            text = found[1] if found else text
        else:
            text = text.split(":")[0]
        if field.kind != "exact" or text.startswith(("/", ".", "~")) or "/" in text:
            self.file("edit", field._replace(text=text))

    def _make_word(self, role: str, field: Field) -> None:
        name, equals, value = field.text.partition("=")
        if field.kind == "unknown":
            self.trace.doubt(field.source, "it may be a setting of make")
        elif equals and (name.rstrip(":?+!") in _MAKE_CONTROLS or "$" in value or "`" in value):
            self.trace.doubt(field.source, "this setting changes what make runs", unbounded=True)
        elif equals and value.startswith(("/", "~", "..")):
            self.file("edit", field._replace(text=value))

    def _module(self, program: Program, field: Field, rest: Sequence[Field]) -> None:
        """Note `python -m module …`; a module that no table knows is code of the project, unless Python brings it."""
        sub = program.modules.get(field.text) if field.kind == "exact" else None
        if sub is not None:
            self.judge(sub, rest)
        elif field.kind != "exact" or field.text.partition(".")[0] in sys.stdlib_module_names:
            self.trace.doubt(field.source, "this module is not known here", unbounded=True)
        else:
            self.run.project_code(program, self.cwd)

    # Network

    def _network(self, role: str, field: Field, *, sends: bool) -> None:
        if role in ("remote", "hostpath"):
            self._remote(role, field, sends=sends)
        elif field.kind != "exact":
            self.trace.doubt(field.source, "it names a host that is not known before it runs")
        elif role == "host":
            self.trace.contact_host(field.text, field.source)
        elif field.text.startswith("file:") or (field.text.startswith("/") and "://" not in field.text):
            self.trace.doubt(field.source, "it names a local file as a URL")
        elif re.search(r"[{}\[\]]", field.text):
            self.trace.doubt(field.source, "it stands for several URLs")
        else:
            self.trace.contact(field.text, field.source, sends=sends, bare=True)

    def _remote(self, role: str, field: Field, *, sends: bool) -> None:
        text = field.text
        if field.kind != "exact":
            self.trace.doubt(field.source, "it names a place that is not known before it runs")
        elif "::" in text and role == "remote":
            self.trace.doubt(field.source, "a transport that can run commands", unbounded=True)
        elif text.startswith(("http://", "https://")):
            self.trace.contact(text, field.source, sends=sends)
        elif "://" in text:
            self.trace.contact_host(text.partition("://")[2].partition("/")[0], field.source)
        elif ":" in text.partition("/")[0]:
            host = _SCP_LIKE.match(text)
            self.trace.contact_host(f"{host[1] if host else text}:22", field.source)
        elif role == "hostpath" or text.startswith((".", "/", "~")) or "/" in text:
            self.file("edit", field)
        else:
            self.trace.doubt(field.source, "the host of this remote is in the repository, not in the command")


_PLAYERS: Final[dict[str, Callable[[Invocation, str, Field], object]]] = {
    "data": Invocation._data,
    "data@read": Invocation._at_file,
    "cwd": Invocation._directory,
    "code": Invocation._code,
    "env": Invocation._env,
    "git_key": Invocation._git_key,
    "go_package": Invocation._go_package,
    "make_word": Invocation._make_word,
    "module": Invocation._data,
    "mount": Invocation._mount,
    "name": Invocation._name,
    "opaque": Invocation._opaque,
    "package": Invocation._package,
    "paths": Invocation._paths,
    "prefix": Invocation._prefix,
    "revision": Invocation._revision,
    "shell_setting": Invocation._setting,
    **dict.fromkeys(("source", "test"), Invocation._source_file),
    **dict.fromkeys(("read", "write", "edit", "delete", "move"), Invocation.file),
    **dict.fromkeys(("shell", *LANGUAGES), Invocation._text),
}
