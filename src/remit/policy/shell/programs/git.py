"""Roles of words of git: settings, revisions, and pathspecs, which are globs over the whole repository.

A pathspec with wildcards counts as everything that it may match, at any depth. What each subcommand does is in the
tables.
"""

import re
from typing import Final

from remit.policy.call import Effect
from remit.policy.field import Field
from remit.policy.files import ResolvedPath, join
from remit.policy.shell.evaluate.context import ProgramCall
from remit.policy.trace import VERBS

# Settings of git that cannot make it run anything.
_KEYS: Final = re.compile(
    r"(?:user\.(?:name|email|signingkey)|init\.defaultbranch|pull\.(?:rebase|ff)|push\.(?:default|autosetupremote)|fetch\.prune"
    r"|core\.(?:autocrlf|eol|filemode|ignorecase|quotepath|safecrlf|longpaths|abbrev|bare|precomposeunicode|symlinks)"
    r"|merge\.(?:conflictstyle|ff|stat)|rebase\.(?:autostash|autosquash)|color\.[a-z.]+|commit\.(?:gpgsign|verbose)"
    r"|tag\.gpgsign|diff\.(?:renames|colormoved|algorithm|mnemonicprefix)|branch\.[^\s=]+\.(?:merge|rebase|remote|description)"
    r"|rerere\.enabled|advice\.[a-z]+|log\.[a-z]+|status\.[a-z]+|column\.ui|help\.autocorrect|gc\.(?:auto|autodetach|pruneexpire|reflogexpire)|format\.pretty"
    r"|remote\.[^\s=]+\.(?:fetch|prune|push)|safe\.directory|worktree\.[a-z]+)\Z",
    re.IGNORECASE,
)
_WRITES: Final = ("--add", "--replace-all", "--unset", "--unset-all")
# Options for settings outside of the repository, with the file.
_ELSEWHERE: Final = {"--global": "~/.gitconfig", "--system": "/etc/gitconfig"}
_STRATEGIES: Final = ("ort", "recursive", "resolve", "octopus", "ours", "subtree")
_REF: Final = re.compile(r"(?:refs/.+|(?:[A-Z]+_)*HEAD|AUTO_MERGE|MERGE_AUTOSTASH|BISECT_EXPECTED_REV)\Z", re.DOTALL)
# Certainly a commit whose directories are those of the work tree.
_AT_HEAD: Final = re.compile(r"(?:HEAD|@)(?:[~^][0-9]*)*\Z")
_CHANGES: Final = ("write", "edit", "delete")
_PATHS: Final = ("path", "index")
_ALL: Final = ("", "**", "**/*")
# Subcommands of newer versions that only read settings.
_ASKS: Final = ("get", "list")
_MAGIC: Final = ":"
_WILDCARD: Final = re.compile(r"[*?\[\]\\]")


def git_key(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a setting that is written; reading one has no effect."""
    writes = len(invocation.arguments.operands) > 1 or invocation.arguments.has(_WRITES)
    if field.kind == "exact" and (not writes or field.text in _ASKS):
        return
    if field.kind != "exact" or not _KEYS.match(field.text):
        invocation.trace.doubt(field.source, "this setting can make git run commands", unbounded=True)
        # Harmless settings are everyday work; one that can run commands counts as writing the file.
        invocation.trace.touch("write", ".git/config", invocation.cwd, field.source)
    for option, path in _ELSEWHERE.items():
        if invocation.arguments.has((option,)):
            home = invocation.trace.files.home or "~"
            invocation.trace.touch("edit", path.replace("~", home), invocation.cwd, option)


def strategy(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a merge strategy: any other than those of git is a program that git runs."""
    if field.kind != "exact" or field.text not in _STRATEGIES:
        reason = f"git runs a program of that name; its own are {', '.join(_STRATEGIES)}"
        invocation.trace.doubt(field.source, reason, unbounded=True)


def ref(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record the name of a ref: outside of `refs/` it is the path of a file in `.git`."""
    if field.kind != "exact":
        invocation.trace.doubt(field.source, "it may name any file in .git")
    elif not _REF.match(field.text) and invocation.cwd is not None:
        place = f"{_top(invocation, invocation.cwd)}/.git/{field.text}"
        invocation.trace.touch("write", place, None, field.source)


def repository(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a folder that becomes a repository, under any name: writing `HEAD` marks it as one."""
    resolved = invocation.file("write", field)
    if resolved is not None:
        invocation.trace.add(Effect("write", f"{resolved.path}/HEAD", invocation.program.name))


def worktree(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record that git changes the whole work tree; with a form, any file in it may be written or deleted."""
    invocation.trace.touch("edit", field.text, invocation.cwd, field.source)
    if invocation.cwd is not None:
        top = _top(invocation, invocation.cwd)
        # Directories appear and disappear with their files.
        invocation.evaluator.changes.unsure.add(top)
        if form in VERBS:
            invocation.trace.touch_beneath(form, top, field.source)


def revision(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a revision. It is data, but a word that looks like a path, or exists as one, is read."""
    if field.kind == "unknown":
        invocation.trace.doubt(field.source, "it may be a path")
        return
    text = field.text
    upward = text.startswith(("/", "~", "../", "./")) or "/../" in text or text == ".."
    if field.kind != "exact" or upward or invocation.exists(text):
        invocation.file("read", field)


def tree(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a tree that files are taken from; the first of several words may also be a path."""
    revision(invocation, form, field)
    before, several = invocation.arguments.before, len(invocation.arguments.operands) > 1
    if form != "first" or (before == 1 if before is not None else several):
        invocation.tree = field.kind != "exact" or not _AT_HEAD.match(field.text)


def restored(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a revision, or a pathspec whose files are overwritten; in the forms `path` and `index` the latter.

    A restored file can be a symbolic link. In the form `index` only git's own entry for the file is changed.
    """
    certain = form in _PATHS or invocation.arguments.before == 0
    if not certain:
        tree(invocation, "first", field)
        if invocation.arguments.before == 1:
            return
    elif field.kind == "unknown":
        invocation.trace.doubt(field.source, "it may be any path")
    if _is_wide(field):
        pathspec(invocation, "write", field)
    elif field.kind == "below":
        # Everything that another program lists counts as the whole directory.
        picks = field.picks if invocation.tree or field.picks not in _ALL else ""
        _beneath(invocation, "write", field.text, picks)
    elif field.kind == "exact" and (certain or field.text.startswith(".") or invocation.exists(field.text)):
        # The content comes from the repository, not from the script.
        resolved = invocation.trace.touch("write", field.text, invocation.cwd, field.source)
        _spread(invocation, "write", resolved)
        whole = resolved is None or resolved.is_directory or _is_here(invocation, resolved)
        if resolved is not None and form != "index" and (invocation.tree or not whole):
            invocation.evaluator.changes.alias(resolved.path, None)


def staged(invocation: ProgramCall, _form: str, field: Field) -> None:
    """Record a pathspec of the index: content from a given tree is written to files by a later restore."""
    pathspec(invocation, "read", field)
    if invocation.tree:
        restored(invocation, "index", field)


def pathspec(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record the files that a pathspec may match: git expands wildcards itself, and they match slashes."""
    if not _is_wide(field):
        _spread(invocation, form, invocation.file(form, field))
    elif invocation.cwd is None:
        invocation.trace.doubt(field.source, "it is relative, and no working directory is known")
    elif field.text.startswith(_MAGIC):
        _beneath(invocation, form, _top(invocation, invocation.cwd), "**")
    elif field.kind == "pattern" and invocation.trace.files.expand(invocation.cwd, field.text):
        # The shell has already expanded it.
        invocation.file(form, field)
    else:
        fixed = _WILDCARD.split(field.text, maxsplit=1)[0].rpartition("/")[0]
        resolved = invocation.trace.files.resolve(join(invocation.cwd, fixed))
        _beneath(invocation, form, resolved.path, _picks(field.text))


def listed(invocation: ProgramCall, form: str, field: Field) -> None:
    """Record a file that lists pathspecs: they may name anything."""
    invocation.file("read", field)
    _beneath(invocation, form, invocation.cwd or "/", "**")


def _beneath(invocation: ProgramCall, form: str, folder: str, picks: str) -> None:
    """Record the effects of git on files below a folder. It never changes `.git` there, so git is the source."""
    invocation.trace.touch_beneath(form, folder, invocation.program.name, picks)
    if form in _CHANGES:
        invocation.evaluator.changes.unsure.add(folder)


def _spread(invocation: ProgramCall, form: str, resolved: ResolvedPath | None) -> None:
    """Record an effect on everything in a folder, unless it is the whole directory at its last commit."""
    if form not in ("write", "edit") or resolved is None or not resolved.is_directory:
        return
    if invocation.tree or not _is_here(invocation, resolved):
        _beneath(invocation, form, resolved.path, "**")


def _is_here(invocation: ProgramCall, resolved: ResolvedPath) -> bool:
    return resolved.path == invocation.trace.files.resolve(invocation.cwd or "/").path


def _is_wide(field: Field) -> bool:
    """Return whether a word may match more than one path."""
    magic = field.text.startswith(_MAGIC)
    return field.kind in ("exact", "pattern") and (magic or _WILDCARD.search(field.text) is not None)


def _picks(text: str) -> str:
    """Return `Effect.picks` for the last component of a pathspec."""
    _, slash, name = _WILDCARD.split(text)[-1].rstrip("/").rpartition("/")
    if not name:
        return "**"
    return f"**/{name}" if slash else f"**/*{name}"


def _top(invocation: ProgramCall, cwd: str) -> str:
    """Return the root of the repository that contains a directory, or the directory itself."""
    place = cwd
    while place not in ("", "/"):
        if invocation.trace.files.resolve(f"{place}/.git").exists:
            return place
        place = place.rpartition("/")[0]
    return cwd
