"""Paths: one normalizer for their text, used for the check and for the record, and one port to the file system.

`locate` returns where a path really leads. A text that another program could read as a different place is refused: what
is compared with the scope must be what is opened.

Only names, kinds and links are looked at, never the content of a file that an agent can write. `SeenFiles` looks at
this machine. `TextFiles` judges paths by their text, for a proxy that runs elsewhere and whose user accepts that links
are not seen. `UnseenFiles` is for one whose user does not: no path is certain there.
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
    "Look",
    "Rationed",
    "SeenFiles",
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
# Controls, and characters that are not seen or turn the direction of what is.
_HIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(]|%[A-Za-z_]+%")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|file:", re.IGNORECASE)
_DRIVE: Final = re.compile(r"[A-Za-z]:|\\\\|//")
_DOTS: Final = re.compile(r"(?:\A|[\\/])\.\.(?:[\\/]|\Z)")
# Most paths are of this form, in which there is nothing to refuse.
_ORDINARY: Final = re.compile(r"(?!//)[A-Za-z0-9_./+@,=-]{1,1024}\Z")


class Look(NamedTuple):
    """What a path is: its real place, or why nobody can say."""

    path: str
    refusal: str = ""
    exists: bool = False
    is_directory: bool = False
    # A file with several names, of which the others may lie anywhere.
    shared: bool = False


class Survey(NamedTuple):
    """What lies below a directory: where its links lead, and whether any name could be taken for two."""

    links: tuple[str, ...]
    odd_names: bool


class Files(Protocol):
    """What a judge may ask about the file system."""

    home: str | None
    # Whether names and links are really looked at.
    sees: bool

    def look(self, path: str) -> Look:
        """Return where an absolute path really leads."""

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        """Return the names in a directory that a glob matches, or None where that cannot be told."""

    def survey(self, directory: str) -> Survey | None:
        """Return what lies below a directory, or None where that cannot be told."""


def without_dots(path: str) -> str:
    """Return an absolute path without empty and dot components, judged by its text alone."""
    kept: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del kept[-1:]
        elif name not in ("", "."):
            kept.append(name)
    return "/" + "/".join(kept)


@lru_cache(maxsize=4096)
def refuse_text(text: str) -> str:
    """Return why a path cannot be taken as it is written, or nothing where it can."""
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
    ("it holds characters that cannot be seen", lambda text: _HIDDEN.search(text) is not None),
    ("it starts or ends with white space", lambda text: text != text.strip()),
    ("it starts at a home directory, which is not known here", lambda text: text.startswith("~")),
    ("it holds a variable that somebody else would fill in", lambda text: _VARIABLE.search(text) is not None),
    ("it is a URL, not a path", lambda text: _SCHEME.match(text) is not None),
    ("it starts at a drive or a network share", lambda text: _DRIVE.match(text) is not None),
    ("it goes upwards with backslashes", lambda text: "\\" in text and _DOTS.search(text) is not None),
    ("it goes upwards in encoded form", lambda text: "%" in text and _hides_dots(unquote(unquote(text)), text)),
    ("it holds characters that can be read as separators or dots", _is_ambiguous),
)  # fmt: skip


def join(base: str, text: str) -> str:
    """Return `text` as seen from the directory `base`."""
    if text.startswith("/"):
        return text
    return f"{base}/{text}" if text else base


def locate(text: str, base: str | None, files: Files) -> Look:
    """Return the real place of the path `text`, seen from `base`, or why nobody can say."""
    refusal = refuse_text(text)
    if refusal:
        return Look(text, refusal)
    if text.startswith("/"):
        return files.look(text)
    if base is None:
        return Look(text, "it is relative, and no working directory is known")
    return files.look(join(base or "/", text))


class TextFiles:
    """Paths are what their text says. Links are not seen, and a receipt made with it says so."""

    home: str | None = None
    sees: bool = False

    def look(self, path: str) -> Look:
        """Return the path with its dots resolved."""
        return Look(without_dots(path))

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:  # noqa: ARG002 - nothing is seen
        """Return None: names are not seen."""
        return None

    def survey(self, directory: str) -> Survey | None:  # noqa: ARG002 - nothing is seen
        """Return None: links are not seen."""
        return None


class UnseenFiles(TextFiles):
    """No path is certain."""

    def look(self, path: str) -> Look:
        """Return the refusal that makes every path a doubt."""
        return Look(
            without_dots(path), refusal="the file system cannot be seen from here, so a link may lead elsewhere"
        )


_O_PATH: Final[int | None] = getattr(os, "O_PATH", None)
# Names that do not stand for themselves.
_NOT_PLAIN: Final = re.compile(r"//|/\.\.?(?:/|\Z)|/\Z|\A(?!/)|\A/proc(?:/|\Z)|\0")


class SeenFiles:
    """This machine's file system."""

    sees = True

    def __init__(self, home: str | None = None) -> None:
        self.home = home

    def look(self, path: str) -> Look:
        """Return the real place of a path: links are followed where they exist, then `..` is applied."""
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
        # The path is its own real place: the kernel tells that at once.
        mode = found.st_mode
        return Look(path, "", True, stat.S_ISDIR(mode), stat.S_ISREG(mode) and found.st_nlink > 1)  # noqa: FBT003

    def _look_by_name(self, path: str) -> Look:
        """Look at one name of the path after the other."""
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
                return Look(path, refusal=f"the file system cannot be asked about it ({type(error).__name__})")
            mode = found.st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if links > _MAX_LINKS:
                    return Look(path, refusal="its links lead in a circle")
                if done == "/proc" or done.startswith("/proc/"):
                    return Look(path, refusal="it leads through a link of /proc, which can point anywhere")
                try:
                    onward = os.readlink(here)  # noqa: PTH115 - text in, text out
                except OSError as error:
                    return Look(path, refusal=f"the file system cannot be asked about it ({type(error).__name__})")
                ahead.extend(onward.split("/")[::-1])
                done = "" if onward.startswith("/") else done
                mode = stat.S_IFDIR
            else:
                done, several = here, stat.S_ISREG(mode) and found.st_nlink > 1
        return Look(done or "/", exists=bool(mode), is_directory=stat.S_ISDIR(mode), shared=several)

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        """Return the names that match; too many count as not known."""
        if len(pattern) > _MAX_NAME:
            return ()
        matcher = _compiled(pattern)
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
        """Return the links and odd names below a directory; too many entries count as not known."""
        links: list[str] = []
        odd = False
        try:
            for count, entry in enumerate(_below(directory)):
                if count > _MAX_LISTED:
                    return None
                odd = odd or _is_odd(entry.name)
                if entry.is_symlink():
                    links.append(entry.path)
        except (OSError, ValueError):
            return None
        return Survey(tuple(links), odd)


def _is_odd(name: str) -> bool:
    """Tell whether the name of a file could be taken for two, or for an option."""
    return not name.isprintable() or name.startswith("-") or any(mark in name for mark in " '\"\\")


def _below(directory: str) -> Iterator["os.DirEntry[str]"]:
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


class Rationed:
    """The files, for one call, with the names that the call itself makes on the way.

    A call that asks for too much is not told any more, and what is not told is a doubt: a command can name many
    patterns, each of which stands for many files, and looking at all of them would keep everyone else waiting.
    """

    __slots__ = ("_files", "_listed", "_lists", "_looked", "_looks", "_made", "_surveys", "home", "links", "sees")

    def __init__(self, files: Files) -> None:
        self._files = files
        self.home = files.home
        self.sees = files.sees
        # Names that the call makes, and those of them that stand for another path, or for one that is not known ("").
        self._made: dict[str, int] = {}
        self.links: dict[str, str] = {}
        # What was told before the call changed anything: it is told the same way again.
        self._looked: dict[str, Look] = {}
        self._listed: dict[tuple[str, str], tuple[str, ...] | None] = {}
        self._looks, self._lists, self._surveys = _MOST_LOOKS, _MOST_LISTS, _MOST_SURVEYS

    def look(self, path: str) -> Look:
        """Return where a path really leads."""
        look = self._looked.get(path)
        if look is None:
            self._looks -= 1
            if self._looks < 0:
                return Look(path, "the call names too much to look at")
            look = self._looked[path] = self._files.look(path)
        return look

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        """Return the names in a directory that a glob matches."""
        if (directory, pattern) not in self._listed:
            self._lists -= 1
            self._listed[directory, pattern] = self._files.expand(directory, pattern) if self._lists >= 0 else None
        names = self._listed[directory, pattern]
        made = self.made(directory, pattern) if names is not None else ()
        return tuple(sorted({*names, *made})) if names is not None and made else names

    def survey(self, directory: str) -> Survey | None:
        """Return what lay below a directory before the call."""
        self._surveys -= 1
        return self._files.survey(directory) if self._surveys >= 0 else None

    def make(self, path: str) -> None:
        """Remember a name that the call makes."""
        self._made.setdefault(path, len(self._made))

    def link(self, path: str, target: str) -> None:
        """Remember a name that the call makes for another path; without one it may stand for anything."""
        self.make(path)
        self.links[path] = target

    def count_made(self) -> int:
        """Return how many names the call has made so far."""
        return len(self._made)

    def is_made(self, path: str, before: int) -> bool:
        """Tell whether a name, or one below it, is among the first that the call has made."""
        below = path + "/"
        return any(at < before and (each == path or each.startswith(below)) for each, at in self._made.items())

    def made(self, directory: str, pattern: str) -> tuple[str, ...]:
        """Return the names in a directory that the call makes and a glob matches."""
        inside = directory.removesuffix("/") + "/"
        names = {path[len(inside) :].partition("/")[0] for path in self._made if path.startswith(inside)}
        return tuple(name for name in names if _compiled(pattern).match(name))

    def with_made(self, directory: str, survey: Survey) -> Survey:
        """Return a survey together with what the call makes below the directory."""
        inside = directory.removesuffix("/") + "/"
        names = [path[len(inside) :] for path in self._made if path.startswith(inside)]
        links = tuple(path for path in self.links if path.startswith(inside))
        odd = survey.odd_names or any(_is_odd(name) for path in names for name in path.split("/"))
        return Survey((*survey.links, *links), odd)


def load_policies(path: str) -> str:
    """Return the policies of a file, or of all files that end in `.cedar` in a folder, in the order of their names."""
    try:
        names = [f"{path}/{name}" for name in sorted(os.listdir(path)) if name.endswith(".cedar")]  # noqa: PTH208
    except NotADirectoryError:
        names = [path]
    except OSError as error:
        raise PolicyInvalid(f"the policies cannot be read ({type(error).__name__})") from None
    texts = [_policy_text(name) for name in names]
    if not texts:
        raise PolicyInvalid("the folder holds no file that ends in .cedar")
    return "\n".join(texts)


def _policy_text(name: str) -> str:
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
def _compiled(pattern: str) -> "re.Pattern[str]":
    return re.compile(translate(pattern))
