"""Handles a word by its role: one function for each role that a table can use.

A role is a name, sometimes with a form after a colon (`match:…`, `keyed:…`). A role without a function is a doubt: a
table must not be able to make a word disappear.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.shell.evaluate.environment import judge_variable
from remit.policy.shell.evaluate.settings import SHELL_SETTINGS, is_plain_setting, takes_options
from remit.policy.shell.evaluate.state import Output, as_arguments
from remit.policy.shell.programs.git import (
    git_key,
    listed,
    pathspec,
    ref,
    repository,
    restored,
    revision,
    staged,
    strategy,
    tree,
    worktree,
)
from remit.policy.shell.programs.languages import LANGUAGES
from remit.policy.shell.programs.machine import (
    container_path,
    database,
    image,
    inside,
    mount,
    process_name,
    record_installed,
    resource,
)
from remit.policy.trace import VERBS

RoleHandler: TypeAlias = Callable[[ProgramCall, str, Field], None]
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_MAX_MATCHED: Final = 512
# Programs that resolve each given directory relative to the one before.
_GO_ON: Final = frozenset(("git", "make", "gmake"))
_PACKAGE: Final = re.compile(
    r"(?P<name>(?:@[\w.-]+/)?[A-Za-z0-9][\w.+-]*)(?:\[[\w,.-]+\])?(?:[@=<>~!^][\w.,*^~=<>!| -]*)?"
)
_SCP_LIKE: Final = re.compile(r"(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):(?!//)(.*)\Z", re.DOTALL)
# Standard input, other descriptors and process substitutions; and code that is given as a URL.
_INPUT: Final = re.compile(r"/dev/(?:stdin|fd/0)\Z|/proc/(?:self|thread-self)/fd/0\Z")
_STREAM: Final = re.compile(r"/dev/(?:stdin|tty|fd)(?:/|\Z)|/proc/[^/]+/(?:task/[^/]+/)?fd(?:/|\Z)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?!:)")
_MAKE_CONTROLS: Final = re.compile(
    r"\.?SHELL(?:FLAGS)?|MAKE.*|GNUMAKEFLAGS|BASH_ENV|ENV|CC|CXX|CPP|LD|AR|AS|RM|FC|PC|CO|GET|LEX|YACC|INSTALL"
    r"|TEX|TEXI2DVI|WEAVE|CWEAVE|TANGLE|CTANGLE|LINT|M2C|OUTPUT_OPTION|LDLIBS|LOADLIBES|TARGET_ARCH"
    r"|(?:COMPILE|LINK|PREPROCESS|LEX|YACC|LINT)\..*|.*FLAGS|PATH|VPATH"
)
# MSBuild properties that hold commands, name programs or import files; and values that are one plain word.
_PROPERTY_CONTROLS: Final = re.compile(
    r"(?:.*(?:Event|Command|Arguments|Exe|Path|Program|Targets|Props|Imports?|Tool|Assembly|Sdk|Host)"
    r"|(?:.*Import|CustomBefore|CustomAfter|Before|After|Directory).*)",
    re.IGNORECASE,
)
_PROPERTY_VALUE: Final = re.compile(r"[\w./:+-]*")
_PLACE: Final = re.compile(r"[\w./-]*")
_TOOL: Final = re.compile(r"[\w@./:+-]+")
_MORE_WORDS: Final = "it may be a file of further words: write ./ before a name that begins with @"
_MAKE_VALUE: Final = re.compile(r"(?!.*(?:\A| )-)[\w ./:=+,@%^-]*")


def apply_role(invocation: ProgramCall, role: str, field: Field) -> None:
    """Record the effects of one word by its role."""
    name, _, form = role.partition(":")
    player = ROLES.get(name)
    if player is None:
        invocation.trace.doubt(field.source, f"{invocation.program.name} does not expect it", unbounded=True)
    else:
        player(invocation, form or name, field)


def _file(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file. For many programs `@file` is a file with further words; `./@file` is not."""
    if field.text.startswith("@"):
        invocation.trace.doubt(field.source, _MORE_WORDS, unbounded=True)
    invocation.file(form, field)


def _data(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record nothing: the word is only text."""


def _directory(invocation: ProgramCall, form: str, field: Field) -> None:
    """Change the working directory of the program; for most programs only the last such option counts."""
    if invocation.moved and invocation.program.name not in _GO_ON:
        invocation.trace.doubt(field.source, "the directory is given more than once")
    invocation.moved = True
    resolved = invocation.file("read", field)
    invocation.cwd = resolved.path if resolved is not None else None


def _is_stream(field: Field) -> bool:
    """Return whether a word names no file but an open stream: standard input, a descriptor, `<(…)`."""
    return field.text == "-" or _STREAM.match(field.text) is not None


def _is_input(field: Field) -> bool:
    """Return whether a word names standard input."""
    return field.kind == "exact" and (field.text == "-" or _INPUT.match(field.text) is not None)


def _code(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file of project code that is run; code from a stream must be text that can be judged."""
    stream = _is_stream(field)
    if _is_input(field):
        invocation.standard_input(invocation.program)
    elif field.kind == "exact" and (_SCHEME.match(field.text) or field.text[:1] in ("{", "[")):
        invocation.trace.doubt(field.source, "code that is in no file", unbounded=True)
    elif field.kind in ("below", "pattern") and not stream:
        _record_download(invocation, field)
        invocation.trace.doubt(field.source, "which file it runs is not known before it runs", unbounded=True)
    elif field.kind != "exact" or stream:
        _record_download(invocation, field)
        invocation.trace.doubt(field.source, "the code it runs is not known before it runs", unbounded=True)
    else:
        invocation.trace.spawned.runs(field.text)
        resolved = invocation.file("read", field)
        if resolved is not None:
            invocation.trace.spawned.runs(resolved.path)
            invocation.evaluator.changes.run(resolved.path, field.source)
    invocation.evaluator.record_code()


def _record_download(invocation: ProgramCall, field: Field, *, starts: bool = False) -> None:
    """Record a doubt if a word names downloaded code; `starts` if no other doubt follows."""
    program = invocation.evaluator.changes.downloads.program_for_word(field, invocation.cwd)
    if field.text.startswith("/dev/fd") or (field.kind == "unknown" and not program):
        program = invocation.evaluator.substituted
    if program:
        invocation.evaluator.changes.run_download(field.source, program, starts=starts)


def run_text(invocation: ProgramCall, language: str, field: Field) -> None:
    """Record the effects of a text in a language."""
    if field.kind != "exact":
        _record_download(invocation, field)
        invocation.trace.doubt(field.source, "it is code, and not known before it runs", unbounded=True)
    elif language == "shell":
        arguments = None if invocation.positional is None else as_arguments(invocation.positional)
        posix = invocation.program.name != "bash"
        invocation.evaluator.child(
            field.text, invocation.state._replace(cwd=invocation.cwd, arguments=arguments), posix=posix
        )
    elif language in LANGUAGES:
        LANGUAGES[language](invocation, field.text, field.source)
    else:
        invocation.trace.doubt(
            field.source, f"code that {invocation.program.name} runs is not analysed", unbounded=True
        )


def _executed(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record shell text to which the program appends the operands."""
    operands = invocation.arguments.operands
    known = all(each.kind == "exact" for each in (field, *operands))
    text = " ".join((field.text, *(each.text for each in operands)))
    run_text(invocation, "shell", field._replace(text=text, kind="exact" if known else "unknown"))


def _opaque(invocation: ProgramCall, form: str, field: Field) -> None:
    invocation.trace.doubt(field.source, f"code that {invocation.program.name} runs is not analysed", unbounded=True)


def _env(invocation: ProgramCall, form: str, field: Field) -> None:
    assignment = _ASSIGNMENT.match(field.text)
    if field.kind == "exact" and assignment:
        judge_variable(invocation.evaluator, assignment[1], assignment[2], invocation.cwd, field.source)
    else:
        invocation.trace.doubt(field.source, "an assignment that is not known before it runs", unbounded=True)


def _at_file(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record the file of `@file`, `name=@file` or `name=<file`."""
    text = field.text
    at = 0 if text.startswith("@") else max(text.find("=@"), text.find("=<"))
    named = text[at:].lstrip("=")[1:] if at >= 0 else ""
    if field.kind == "unknown" and (at >= 0 or not text or text.endswith("=")):
        invocation.trace.doubt(field.source, "it may name a file that is sent")
    elif at >= 0 and re.search(r"[,;\"]", named):
        invocation.trace.doubt(field.source, "it may name several files")
    elif at >= 0:
        invocation.file("read", field._replace(text=named))


def _keyed(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record `key=value`, where some keys name files."""
    wanted = dict(key.split("=", 1) for key in form.split(","))
    name, equals, value = field.text.partition("=")
    if field.kind == "unknown" and not equals:
        invocation.trace.doubt(field.source, "it may name a file")
    elif equals and name in wanted:
        apply_role(invocation, wanted[name], field._replace(text=value))


def _name(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a part of a file name, which must not lead to another directory."""
    if field.kind != "exact" or "/" in field.text or field.text == "..":
        invocation.trace.doubt(field.source, "it is put into file names, and may lead elsewhere")


def _prefix(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a prefix of file names: the files are in its directory."""
    if field.kind != "exact" or field.text.rstrip("/") != field.text or field.text in (".", ".."):
        invocation.trace.doubt(field.source, "it is the start of file names that are not known before it runs")
    else:
        invocation.file("write", field._replace(text=f"{field.text}*", kind="pattern"))


def _report(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record `kind:file`, a report; without a file it has a default name in the directory."""
    kind, _, name = field.text.partition(":")
    if field.kind != "exact" or not re.fullmatch(form, kind):
        invocation.trace.doubt(field.source, "a report that is not known here", unbounded=True)
    elif name and name != "skip-covered":
        invocation.file("write", field._replace(text=name))


def _suffix(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record the suffix of the backup of an overwritten file."""
    if field.kind != "exact" or not field.text or "/" in field.text:
        reason = f"{invocation.program.name} may put the old file elsewhere"
        invocation.trace.doubt(field.source, reason, unbounded=True)
    if field.kind == "exact":
        invocation.suffix = field.text


def _packed(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file that is compressed or decompressed: the result has its name without the suffix.

    A suffix begins with a dot; for gzip, `-gz`, `-z` and `_z` are suffixes too.
    """
    invocation.file(form, field)
    matches = invocation.trace.files.expand(invocation.cwd or "/", field.text) if field.kind == "pattern" else None
    for text in (field.text,) if field.kind == "exact" else matches or ():
        for mark in "._-":
            name, found, _ = text.rpartition(mark)
            if found and name.rpartition("/")[2]:
                invocation.file("write", field._replace(text=name, kind="exact"))


def _unpack(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a directory in which an archive is unpacked: any file there may be written."""
    trace = invocation.trace
    before, trace.spreads = trace.spreads, not invocation.looks
    if field.text == ".":
        trace.touch("read" if invocation.looks else "write", field.text, invocation.cwd, field.source)
    else:
        invocation.file("write", field)
    trace.spreads = before


def _letters(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a word of options without a dash: one letter of the form unpacks, another one is not judged.

    Any other word is a file.
    """
    unpacks, _, refused = form.partition(",")
    is_file = field.kind != "exact" or not field.text.isalnum()
    if is_file or invocation.exists(field.text):
        invocation.file("edit", field)
    if not is_file and refused and refused in field.text:
        reason = f"with {refused}, {invocation.program.name} reads files that the archive names"
        invocation.trace.doubt(field.source, reason, unbounded=True)
    if not is_file and unpacks in field.text:
        _unpack(invocation, form, Field(".", "exact", invocation.program.name))


def _script(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file of code in an embedded language. Text would be judged, but the content of files is not read."""
    invocation.file("read", field)
    _opaque(invocation, form, field)


def _started(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a program of the project's packages that is started by its name."""
    if _is_stream(field):
        _code(invocation, form, field)
        return
    if field.kind == "exact" and not _TOOL.fullmatch(field.text):
        invocation.trace.doubt(field.source, f"{invocation.program.name} may run it as shell text", unbounded=True)
    invocation.trace.spawned.runs(field.text)
    revision(invocation, form, field)


def _argument(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a word that is passed to code, or to a program without a table.

    With the form `edit`, the file that the word names may be changed.
    """
    revision(invocation, form, field)
    invocation.evaluator.arguments_of_code((field,), invocation.cwd)
    if form == "edit":
        invocation.evaluator.files_of_tool((field,), invocation.cwd)


def _located(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file, or a module by its URL, which is fetched."""
    if _SCHEME.match(field.text):
        invocation.trace.doubt(field.source, "it is fetched from a host that the command does not name")
    else:
        invocation.file(form, field)


def _globs(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record files that the program itself finds by a glob, with syntax that no shell has."""
    if re.search(r"[{}!()|*?\[]", field.text) and re.search(r"\.\.|\A[^\w.]*[/~]", field.text):
        invocation.trace.doubt(field.source, "a pattern that may lead elsewhere")
    invocation.file(form, field)


def _configured(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file of settings; a setting in its place could contain anything."""
    if "=" in field.text or field.text[:1] in ("{", "["):
        invocation.trace.doubt(field.source, f"a setting of {invocation.program.name} that is not known here")
    else:
        invocation.file("read", field)


def _source(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file that is read and often run; `@file` would be a file with further options."""
    if field.text[:1] in ("@", "{", "["):
        invocation.trace.doubt(field.source, "a file of further options, or several files", unbounded=True)
        return
    if _is_stream(field):
        given = invocation.state.stdin if _is_input(field) else Output()
        if given is None:
            invocation.evaluator.readers.add(invocation.program.name)
        elif given.text is None or given.text.strip():
            invocation.trace.doubt(field.source, "source that is not in a file can include any other", unbounded=True)
        return
    invocation.file("read", field)


def _compiled(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a source file that a compiler reads: like project code, it can include files and run code."""
    _source(invocation, form, field)
    invocation.evaluator.record_code()


def _test(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file of tests, possibly with names of tests: it is run."""
    named = field._replace(text=field.text.partition("::")[0])
    _source(invocation, form, named)
    resolved = invocation.file("read", named)
    if resolved is not None:
        invocation.evaluator.changes.run(resolved.path, field.source)


def record_package(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a package: a name is data, a path is project code, a URL is contacted.

    With a form, the package is installed on the machine by that package manager.
    """
    text = field.text.partition("@file:")[2] or field.text
    _record_download(invocation, field._replace(text=text.removeprefix("file:").partition("[")[0]), starts=True)
    if field.kind != "exact":
        invocation.trace.doubt(field.source, "the package is not known before it runs", unbounded=True)
    elif text.startswith((".", "/", "~", "file:")):
        invocation.file("read", field._replace(text=text.removeprefix("file:").partition("[")[0]))
        invocation.evaluator.record_code()
    elif "://" in text:
        invocation.trace.contact(
            text.partition("@ ")[2].removeprefix("git+") or text.removeprefix("git+"), field.source
        )
    elif (package := _PACKAGE.fullmatch(text)) is None:
        invocation.trace.doubt(field.source, "it names a package in a way that is not known here", unbounded=True)
    elif form != "package":
        record_installed(invocation, form, package["name"], field.source)


def _go_package(invocation: ProgramCall, form: str, field: Field) -> None:
    if field.kind != "exact" or field.text.startswith((".", "/")):
        invocation.file("read", field._replace(text=field.text.removesuffix("...")))


def _paths(invocation: ProgramCall, form: str, field: Field) -> None:
    for text in filter(None, field.text.split(":")):
        invocation.file("read", field._replace(text=text))


def _setting(invocation: ProgramCall, form: str, field: Field) -> None:
    if field.kind != "exact" or field.text not in SHELL_SETTINGS:
        invocation.trace.doubt(field.source, "a setting of the shell that is not known here", unbounded=True)


def _make_word(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a make target or setting: its text becomes part of commands, so it must be plain."""
    name, equals, value = field.text.partition("=")
    name = name.strip().rstrip(":?+!").strip()
    if field.kind == "unknown":
        invocation.trace.doubt(field.source, "it may be a setting of make")
    elif equals and is_plain_setting(name, value):
        return
    elif equals and (takes_options(name) or _MAKE_CONTROLS.fullmatch(name) or not _MAKE_VALUE.fullmatch(value)):
        invocation.trace.doubt(field.source, "this setting changes what make runs", unbounded=True)
    elif equals:
        words = [field._replace(text=word) for word in value.split()]
        invocation.evaluator.arguments_of_code(words, invocation.cwd)
        invocation.evaluator.files_of_tool(words, invocation.cwd)
    elif form == "make_word":
        invocation.evaluator.arguments_of_code((field,), invocation.cwd)


def _property(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record MSBuild properties: some hold commands or import files, others may name files that are written."""
    for text in re.split("[;,]", re.sub(r"\A(?:roperty)?:", "", field.text)):
        name, equals, value = text.partition("=")
        plain = field.kind == "exact" and _PROPERTY_VALUE.fullmatch(value) and (equals or ":" not in name)
        if not plain or (equals and _PROPERTY_CONTROLS.fullmatch(name)):
            invocation.trace.doubt(field.source, "this property changes what MSBuild runs or writes", unbounded=True)
        else:
            words = (field._replace(text=value if equals else name),)
            invocation.evaluator.arguments_of_code(words, invocation.cwd)
            invocation.evaluator.files_of_tool(words, invocation.cwd)


def _generated(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a directory in which code is generated; settings before it are a doubt."""
    if field.kind == "exact" and not _PLACE.fullmatch(field.text):
        invocation.trace.doubt(field.source, f"{invocation.program.name} takes it in a way that is not known here")
    invocation.file("write", field)


def _match(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a word that is harmless only if it matches the form."""
    if field.kind != "exact" or len(field.text) > _MAX_MATCHED or not re.fullmatch(form, field.text):
        reason = f"{invocation.program.name} takes it in a way that is not known here"
        invocation.trace.doubt(field.source, reason, unbounded=True)


def _host(invocation: ProgramCall, form: str, field: Field) -> None:
    if field.kind != "exact":
        invocation.trace.doubt(field.source, "it names a host that is not known before it runs")
    else:
        invocation.trace.contact_host(field.text, field.source)


def _url(invocation: ProgramCall, form: str, field: Field) -> None:
    text = field.text
    if field.kind != "exact":
        invocation.trace.doubt(field.source, "it names a host that is not known before it runs")
    elif text.startswith("file:") or (text.startswith("/") and "://" not in text):
        invocation.trace.doubt(field.source, "it names a local file as a URL")
    elif re.search(r"[{}\[\]]", text):
        invocation.trace.doubt(field.source, "it stands for several URLs")
    else:
        invocation.trace.contact(text, field.source, sends=invocation.sends, bare=True)


def _hostpath(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record `host:path`, or a local path."""
    _place(invocation, field, local=True)


def _remote(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a remote of git: a URL, `host:path`, a local path, or a name from the configuration of the repository."""
    if field.kind == "exact" and "::" in field.text:
        invocation.trace.doubt(field.source, "a transport that can run commands", unbounded=True)
    else:
        _place(invocation, field, local=field.text.startswith((".", "/", "~")) or "/" in field.text, bundles=True)


def _place(invocation: ProgramCall, field: Field, *, local: bool, bundles: bool = False) -> None:
    trace, text = invocation.trace, field.text
    if field.kind != "exact":
        trace.doubt(field.source, "it names a place that is not known before it runs")
    elif text.startswith(("http://", "https://")):
        trace.contact(text, field.source, sends=invocation.sends)
    elif "://" in text:
        trace.contact_host(text.partition("://")[2].partition("/")[0], field.source)
    elif ":" in text.partition("/")[0]:
        host = _SCP_LIKE.match(text)
        trace.contact_host(f"{host[1] if host else text}:22", field.source)
    elif local:
        resolved = invocation.file("edit", field)
        if bundles and resolved is not None and resolved.exists != resolved.is_directory:
            trace.doubt(field.source, "a bundle, which can hold links that lead anywhere")
    else:
        trace.doubt(field.source, "the host of this remote is in the repository, not in the command")


ROLES: Final[dict[str, RoleHandler]] = {
    **dict.fromkeys(VERBS, _file),
    **dict.fromkeys(("shell", *LANGUAGES), run_text),
    "argument": _argument,
    "code": _code,
    "compiled": _compiled,
    "configured": _configured,
    "container_path": container_path,
    "cwd": _directory,
    "data": _data,
    "data@read": _at_file,
    "database": database,
    "env": _env,
    "executed": _executed,
    "generated": _generated,
    "git_key": git_key,
    "globs": _globs,
    "go_package": _go_package,
    "host": _host,
    "hostpath": _hostpath,
    "image": image,
    "inside": inside,
    "keyed": _keyed,
    "letters": _letters,
    "listed": listed,
    "located": _located,
    "make_word": _make_word,
    "match": _match,
    "module": _data,
    "mount": mount,
    "name": _name,
    "opaque": _opaque,
    "package": record_package,
    "packed": _packed,
    "paths": _paths,
    "pathspec": pathspec,
    "prefix": _prefix,
    "process_name": process_name,
    "property": _property,
    "ref": ref,
    "report": _report,
    "remote": _remote,
    "repository": repository,
    "resource": resource,
    "restored": restored,
    "revision": revision,
    "script": _script,
    "shell_setting": _setting,
    "source": _source,
    "staged": staged,
    "started": _started,
    "strategy": strategy,
    "suffix": _suffix,
    "test": _test,
    "tree": tree,
    "unpack": _unpack,
    "url": _url,
    "worktree": worktree,
}
# Roles of words that are code, or name a file of code.
CODE_ROLES: Final = frozenset(("code", "executed", "module", "opaque", "script", "shell", *LANGUAGES))
