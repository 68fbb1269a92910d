"""What words mean to git: settings, revisions, and pathspecs, which are globs over the whole repository.

A pathspec that is not plain counts for everything that it may name, at any depth. What git does is in the tables.
"""

import re
from typing import TYPE_CHECKING, Final

from remit.policy.paths import join
from remit.policy.shell.world import Field

if TYPE_CHECKING:
    from remit.policy.shell.invoke import Invocation

__all__ = ["git_key", "listed", "pathspec", "restored", "revision"]

# Configuration of git that cannot make it run anything.
_KEYS: Final = re.compile(
    r"(?:user\.(?:name|email|signingkey)|init\.defaultbranch|pull\.(?:rebase|ff)|push\.(?:default|autosetupremote)|fetch\.prune"
    r"|core\.(?:autocrlf|eol|filemode|ignorecase|quotepath|safecrlf|longpaths|abbrev|bare|precomposeunicode|symlinks)"
    r"|merge\.(?:conflictstyle|ff|stat)|rebase\.(?:autostash|autosquash)|color\.[a-z.]+|commit\.(?:gpgsign|verbose)"
    r"|tag\.gpgsign|diff\.(?:renames|colormoved|algorithm|mnemonicprefix)|branch\.[^\s=]+\.(?:merge|rebase|remote|description)"
    r"|rerere\.enabled|advice\.[a-z]+|log\.[a-z]+|status\.[a-z]+|column\.ui|help\.autocorrect|gc\.(?:auto|autodetach|pruneexpire|reflogexpire)|format\.pretty"
    r"|remote\.[^\s=]+\.(?:fetch|prune|push)|safe\.directory|worktree\.[a-z]+)\Z",
    re.IGNORECASE,
)
_MAGIC: Final = ":"
_WILDCARD: Final = re.compile(r"[*?\[\]\\]")


def git_key(invocation: "Invocation", _form: str, field: Field) -> None:
    """Note a setting."""
    if field.kind != "exact" or not _KEYS.match(field.text):
        invocation.trace.doubt(field.source, "this setting can make git run commands", unbounded=True)
        if invocation.positional != ():
            # Settings that only inform are everyday work; one that can run commands is held against the file.
            invocation.trace.touch("write", ".git/config", invocation.cwd, field.source)


def revision(invocation: "Invocation", _form: str, field: Field) -> None:
    """A revision is data; a word that reads like a path, or exists as one, is read."""
    if field.kind == "unknown":
        invocation.trace.doubt(field.source, "it may be a path")
        return
    text = field.text
    upward = text.startswith(("/", "~", "../", "./")) or "/../" in text or text == ".."
    if field.kind != "exact" or upward or invocation.exists(text):
        invocation.file("read", field)


def restored(invocation: "Invocation", form: str, field: Field) -> None:
    """A revision, or a pathspec whose files are overwritten with what they were in one; in one form certainly that."""
    revision(invocation, form, field)
    if _is_wide(field):
        pathspec(invocation, "write", field)
    elif field.kind == "exact" and (
        form == "path" or invocation.dashed or field.text.startswith(".") or invocation.exists(field.text)
    ):
        # Its content comes out of the repository, not from the script.
        invocation.trace.touch("write", field.text, invocation.cwd, field.source)


def pathspec(invocation: "Invocation", form: str, field: Field) -> None:
    """Note the files that a pathspec may name: git reads wildcards itself, and lets them match slashes."""
    if not _is_wide(field):
        invocation.file(form, field)
    elif invocation.cwd is None:
        invocation.trace.doubt(field.source, "it is relative, and no working directory is known")
    elif field.text.startswith(_MAGIC):
        invocation.trace.touch_beneath(form, _top(invocation, invocation.cwd), field.source)
    elif field.kind == "pattern" and invocation.trace.files.expand(invocation.cwd, field.text):
        # The shell has read it before git does.
        invocation.file(form, field)
    else:
        fixed = _WILDCARD.split(field.text, maxsplit=1)[0].rpartition("/")[0]
        look = invocation.trace.files.look(join(invocation.cwd, fixed))
        invocation.trace.touch_beneath(form, look.path, field.source, _picks(field.text))


def listed(invocation: "Invocation", form: str, field: Field) -> None:
    """Note a file that lists pathspecs: they may name anything."""
    invocation.file("read", field)
    invocation.trace.touch_beneath(form, invocation.cwd or "/", field.source)


def _is_wide(field: Field) -> bool:
    """Tell whether a word may name more than one path."""
    magic = field.text.startswith(_MAGIC)
    return field.kind in ("exact", "pattern") and (magic or _WILDCARD.search(field.text) is not None)


def _picks(text: str) -> str:
    """Return what the end of a pathspec says about the names at any depth that it matches."""
    _, slash, name = _WILDCARD.split(text)[-1].rpartition("/")
    if not name:
        return "**"
    return f"**/{name}" if slash else f"**/*{name}"


def _top(invocation: "Invocation", cwd: str) -> str:
    """Return the folder of the repository that a directory lies in, or the directory itself."""
    place = cwd
    while place not in ("", "/"):
        if invocation.trace.files.look(f"{place}/.git").exists:
            return place
        place = place.rpartition("/")[0]
    return cwd
