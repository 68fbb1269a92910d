"""Path normalization, and access to the file system.

`locate` resolves a path. A text that another program could read as a different path is refused: the path that is
compared with the scope must be the path that is opened.

Only names, file types and links are read, never the content of a file that an agent can write. `LocalFiles` reads the
file system of this machine. `TextFiles` takes paths by their text, for a proxy on another machine whose operator
accepts that links are not resolved. `UnseenFiles` is for an operator who does not: it refuses every path.
"""

import os
import re
import stat
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from unicodedata import normalize
from urllib.parse import unquote

from remit.errors import PolicyInvalid

__all__ = [
    "Files",
    "LimitedFiles",
    "LocalFiles",
    "ResolvedPath",
    "Survey",
    "TextFiles",
    "UnseenFiles",
    "join",
    "load_policies",
    "locate",
    "refuse_text",
    "without_dots",
]

_MAX_LINKS: Final = 40
_MAX_NAME: Final = 255
_MAX_POLICY: Final = 1_048_576
_MAX_MATCHES: Final = 2000
_MAX_LISTED: Final = 10_000
_MAX_PATH: Final = 4096
# Control characters, and characters that are invisible or change the text direction.
_HIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(]|%[A-Za-z_]+%")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|file:", re.IGNORECASE)
_DRIVE: Final = re.compile(r"[A-Za-z]:|\\\\|//")
_DOTS: Final = re.compile(r"(?:\A|[\\/])\.\.(?:[\\/]|\Z)")
# Most paths have this form and need no further checks.
_ORDINARY: Final = re.compile(r"(?!//)[A-Za-z0-9_./+@,=-]{1,1024}\Z")


class ResolvedPath(NamedTuple):
    """The result of resolving a path; `refusal` says why it cannot be resolved."""

    path: str
    refusal: str = ""
    exists: bool = False
    is_directory: bool = False
    # A file with several hard links, whose other names may be anywhere.
    shared: bool = False


class Survey(NamedTuple):
    """The symbolic links below a directory, and whether a name there could be split into words or read as an option."""

    links: tuple[str, ...]
    odd_names: bool


class Files(Protocol):
    """The questions that policy asks about the file system."""

    home: str | None
    # Whether the file system is really read.
    reads_disk: bool

    def resolve(self, path: str) -> ResolvedPath:
        """Resolve the symbolic links of an absolute path."""

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        """Return the names in a directory that match a glob, or None if they are not known."""

    def survey(self, directory: str) -> Survey | None:
        """Return what is below a directory, or None if that is not known."""


def without_dots(path: str) -> str:
    """Return an absolute path without empty, `.` and `..` components; links are not resolved."""
    kept: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del kept[-1:]
        elif name not in ("", "."):
            kept.append(name)
    return "/" + "/".join(kept)


@lru_cache(maxsize=4096)
def refuse_text(text: str) -> str:
    """Return why the text of a path is refused, or an empty string."""
    if text.isascii() and _ORDINARY.match(text):
        return ""
    for reason, refused in _REFUSALS:
        if refused(text):
            return reason
    return ""


def _hides_dots(decoded: str, text: str) -> bool:
    return _DOTS.search(decoded) is not None and _DOTS.search(text) is None


def _is_ambiguous(text: str) -> bool:
    if text.isascii():
        return False
    for name in text.split("/"):
        plain = normalize("NFKC", name)
        if plain != name and ("/" in plain or ("\\" in plain and "\\" not in name) or plain in (".", "..")):
            return True
    return False


_REFUSALS: Final = (
    ("it is longer than a path can be", lambda text: len(text) > _MAX_PATH),
    ("it holds invisible characters", lambda text: _HIDDEN.search(text) is not None),
    ("it starts or ends with white space", lambda text: text != text.strip()),
    ("it starts at a home directory, which is not known here", lambda text: text.startswith("~")),
    ("it holds a variable that another program would expand", lambda text: _VARIABLE.search(text) is not None),
    ("it is a URL, not a path", lambda text: _SCHEME.match(text) is not None),
    ("it starts at a drive or a network share", lambda text: _DRIVE.match(text) is not None),
    ("it goes upwards with backslashes", lambda text: "\\" in text and _DOTS.search(text) is not None),
    ("it goes upwards in encoded form", lambda text: "%" in text and _hides_dots(unquote(unquote(text)), text)),
    ("it holds characters that can be read as separators or dots", _is_ambiguous),
)  # fmt: skip


def join(base: str, text: str) -> str:
    """Join `text` to the directory `base`."""
    if text.startswith("/"):
        return text
    return f"{base}/{text}" if text else base


def locate(text: str, base: str | None, files: Files) -> ResolvedPath:
    """Resolve the path `text` relative to `base`; the result has a refusal if that is not possible."""
    refusal = refuse_text(text)
    if refusal:
        return ResolvedPath(text, refusal)
    if text.startswith("/"):
        return files.resolve(text)
    if base is None:
        return ResolvedPath(text, "it is relative, and no working directory is known")
    return files.resolve(join(base or "/", text))


class TextFiles:
    """Takes paths by their text: links are not resolved, which receipts record."""

    home: str | None = None
    reads_disk: bool = False

    def resolve(self, path: str) -> ResolvedPath:
        """Return the path with `.` and `..` removed."""
        return ResolvedPath(without_dots(path))

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:  # noqa: ARG002 - the file system is not read
        """Return None: names are not known."""
        return None

    def survey(self, directory: str) -> Survey | None:  # noqa: ARG002 - the file system is not read
        """Return None: links are not known."""
        return None


class UnseenFiles(TextFiles):
    """Refuses every path, because links cannot be resolved."""

    def resolve(self, path: str) -> ResolvedPath:
        """Return a refusal, which makes every path a doubt."""
        return ResolvedPath(
            without_dots(path), refusal="the file system cannot be read from here, so a link may lead elsewhere"
        )


_O_PATH: Final[int | None] = getattr(os, "O_PATH", None)
# Paths that need to be resolved component by component.
_NOT_PLAIN: Final = re.compile(r"//|/\.\.?(?:/|\Z)|/\Z|\A(?!/)|\A/proc(?:/|\Z)|\0")


class LocalFiles:
    """The file system of this machine."""

    reads_disk = True

    def __init__(self, home: str | None = None) -> None:
        self.home = home

    def resolve(self, path: str) -> ResolvedPath:
        """Resolve a path: each symbolic link is followed before a `..` after it is applied."""
        if _O_PATH is None or _NOT_PLAIN.search(path):
            return self._look_by_name(path)
        try:
            number = os.open(path, _O_PATH | os.O_CLOEXEC)
            try:
                real = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - text in, text out
                found = os.fstat(number)
            finally:
                os.close(number)
        except (OSError, ValueError):
            return self._look_by_name(path)
        if real != path:
            return self._look_by_name(path)
        # A fast path: the kernel confirms that the path has no links.
        mode = found.st_mode
        return ResolvedPath(path, "", True, stat.S_ISDIR(mode), stat.S_ISREG(mode) and found.st_nlink > 1)  # noqa: FBT003

    def _look_by_name(self, path: str) -> ResolvedPath:
        """Resolve a path component by component."""
        ahead, done, links = path.split("/")[::-1], "", 0
        mode, several = stat.S_IFDIR, False
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                done, mode, several = done[: done.rfind("/")] if done else "", stat.S_IFDIR, False
                continue
            here = f"{done}/{name}"
            try:
                found = os.lstat(here)
            except (FileNotFoundError, NotADirectoryError):
                done, mode, several = here, 0, False
                continue
            except (OSError, ValueError) as error:
                return ResolvedPath(path, refusal=f"the file system gave an error for it ({type(error).__name__})")
            mode = found.st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if links > _MAX_LINKS:
                    return ResolvedPath(path, refusal="its symbolic links form a loop")
                if done == "/proc" or done.startswith("/proc/"):
                    return ResolvedPath(path, refusal="it leads through a link of /proc, which can point anywhere")
                try:
                    onward = os.readlink(here)  # noqa: PTH115 - text in, text out
                except OSError as error:
                    return ResolvedPath(path, refusal=f"the file system gave an error for it ({type(error).__name__})")
                ahead.extend(onward.split("/")[::-1])
                done = "" if onward.startswith("/") else done
                mode = stat.S_IFDIR
            else:
                done, several = here, stat.S_ISREG(mode) and found.st_nlink > 1
        return ResolvedPath(done or "/", exists=bool(mode), is_directory=stat.S_ISDIR(mode), shared=several)

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        """Return the names that match, or None if there are too many."""
        if len(pattern) > _MAX_NAME:
            return ()
        matcher = _compile_glob(pattern)
        names: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if matcher.match(entry.name):
                        names.append(entry.name)
                    if len(names) > _MAX_MATCHES:
                        return None
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except (OSError, ValueError):
            return None
        return tuple(sorted(names))

    def survey(self, directory: str) -> Survey | None:
        """Return the links and odd names below a directory, or None if there are too many entries."""
        links: list[str] = []
        odd = False
        try:
            for count, entry in enumerate(_walk_tree(directory)):
                if count > _MAX_LISTED:
                    return None
                odd = odd or _is_odd(entry.name)
                if entry.is_symlink():
                    links.append(entry.path)
        except (OSError, ValueError):
            return None
        return Survey(tuple(links), odd)


def _is_odd(name: str) -> bool:
    """Return whether a file name could be split into several words, or read as an option."""
    return not name.isprintable() or name.startswith("-") or any(mark in name for mark in " '\"\\")


def _walk_tree(directory: str) -> Iterator["os.DirEntry[str]"]:
    ahead = [directory]
    while ahead:
        with os.scandir(ahead.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)


_MOST_LOOKS: Final = 5000
_MOST_LISTS: Final = 100
_MOST_SURVEYS: Final = 20


class LimitedFiles:
    """Limits how much of the file system one call may read, and tracks the names that the call creates.

    A command can contain many globs, each matching many files; reading them all would delay other calls. Over the
    limit, answers are "not known", which makes them doubts.
    """

    __slots__ = ("_files", "_listed", "_lists", "_looked", "_looks", "_made", "_surveys", "home", "links", "reads_disk")

    def __init__(self, files: Files) -> None:
        self._files = files
        self.home = files.home
        self.reads_disk = files.reads_disk
        # Names that the call creates, and the targets of those that are links; "" is an unknown target.
        self._made: dict[str, int] = {}
        self.links: dict[str, str] = {}
        # Answers from before the call changed anything, so that the same question gets the same answer.
        self._looked: dict[str, ResolvedPath] = {}
        self._listed: dict[tuple[str, str], tuple[str, ...] | None] = {}
        self._looks, self._lists, self._surveys = _MOST_LOOKS, _MOST_LISTS, _MOST_SURVEYS

    def resolve(self, path: str) -> ResolvedPath:
        """Resolve the symbolic links of a path."""
        resolved = self._looked.get(path)
        if resolved is None:
            self._looks -= 1
            if self._looks < 0:
                return ResolvedPath(path, "the call names more paths than are checked")
            resolved = self._looked[path] = self._files.resolve(path)
        return resolved

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        """Return the names in a directory that match a glob, including names that the call creates."""
        if (directory, pattern) not in self._listed:
            self._lists -= 1
            self._listed[directory, pattern] = self._files.expand(directory, pattern) if self._lists >= 0 else None
        names = self._listed[directory, pattern]
        made = self.made(directory, pattern) if names is not None else ()
        return tuple(sorted({*names, *made})) if names is not None and made else names

    def survey(self, directory: str) -> Survey | None:
        """Return what was below a directory before the call."""
        self._surveys -= 1
        return self._files.survey(directory) if self._surveys >= 0 else None

    def make(self, path: str) -> None:
        """Record a name that the call creates."""
        self._made.setdefault(path, len(self._made))

    def link(self, path: str, target: str) -> None:
        """Record a link that the call creates; an empty target means that it may lead anywhere."""
        self.make(path)
        self.links[path] = target

    def count_made(self) -> int:
        """Return how many names the call has created so far."""
        return len(self._made)

    def is_made(self, path: str, before: int) -> bool:
        """Return whether a name, or one below it, is among the first `before` names that the call created."""
        below = path + "/"
        return any(at < before and (each == path or each.startswith(below)) for each, at in self._made.items())

    def made(self, directory: str, pattern: str) -> tuple[str, ...]:
        """Return the names in a directory that the call creates and that match a glob."""
        inside = directory.removesuffix("/") + "/"
        names = {path[len(inside) :].partition("/")[0] for path in self._made if path.startswith(inside)}
        return tuple(name for name in names if _compile_glob(pattern).match(name))

    def with_made(self, directory: str, survey: Survey) -> Survey:
        """Return a survey extended by the names that the call creates below the directory."""
        inside = directory.removesuffix("/") + "/"
        names = [path[len(inside) :] for path in self._made if path.startswith(inside)]
        links = tuple(path for path in self.links if path.startswith(inside))
        odd = survey.odd_names or any(_is_odd(name) for path in names for name in path.split("/"))
        return Survey((*survey.links, *links), odd)


def load_policies(path: str) -> str:
    """Return the content of a policy file, or of all `.cedar` files of a folder, sorted by name."""
    try:
        names = [f"{path}/{name}" for name in sorted(os.listdir(path)) if name.endswith(".cedar")]  # noqa: PTH208
    except NotADirectoryError:
        names = [path]
    except OSError as error:
        raise PolicyInvalid(f"the policies cannot be read ({type(error).__name__})") from None
    texts = [_read_policy(name) for name in names]
    if not texts:
        raise PolicyInvalid("the folder holds no file that ends in .cedar")
    return "\n".join(texts)


def _read_policy(name: str) -> str:
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - text in, text out
            content = file.read(_MAX_POLICY + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyInvalid(f"a policy file cannot be read ({type(error).__name__})") from None
    if len(content) > _MAX_POLICY:
        raise PolicyInvalid(f"a policy file is larger than {_MAX_POLICY} bytes")
    return text


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> "re.Pattern[str]":
    return re.compile(translate(pattern))
