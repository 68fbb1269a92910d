"""Finds commands that print or export keys, passwords and tokens.

The forms are in `credentials.toml`. They are compared with the words of a command, whether or not the program has a
table: an unknown option does not hide what follows it.
"""

import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Final, NamedTuple

from msgspec import Struct, convert

from remit.policy.field import Field
from remit.policy.shell.evaluate.downloads import starts_with_words

_MAX_SHOWN: Final = 80
_WITHOUT: Final = "no:"


class _Exporter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    forms: tuple[str, ...]
    also: tuple[str, ...] = ()


class _Form(NamedTuple):
    """One way in which a program exports credentials: operands in order, required options and excluded options."""

    text: str
    operands: tuple[str, ...]
    options: tuple[str, ...]
    without: tuple[str, ...]


@lru_cache(maxsize=1)
def credential_forms() -> dict[str, tuple[_Form, ...]]:
    """Return the forms by program name, which may contain `*`."""
    text = package_files("remit.policy.shell.evaluate").joinpath("credentials.toml").read_text(encoding="utf-8")
    tables = convert(tomllib.loads(text), dict[str, _Exporter])
    return {name: tuple(map(_form, row.forms)) for own, row in tables.items() for name in (own, *row.also)}


def _form(text: str) -> _Form:
    words = text.split()
    return _Form(
        text,
        tuple(word for word in words if not word.startswith(("-", _WITHOUT))),
        tuple(word for word in words if word.startswith("-")),
        tuple(word.removeprefix(_WITHOUT) for word in words if word.startswith(_WITHOUT)),
    )


@lru_cache(maxsize=1)
def _patterns() -> tuple[str, ...]:
    return tuple(name for name in credential_forms() if "*" in name)


@lru_cache(maxsize=1024)
def _forms_of(name: str) -> tuple[_Form, ...]:
    pattern = next((pattern for pattern in _patterns() if fnmatchcase(name, pattern)), name)
    return credential_forms().get(pattern, ())


@lru_cache(maxsize=1024)
def _first_words(name: str) -> frozenset[str] | None:
    """Return the first words of all forms of a program, or None if a form has no fixed first word."""
    first = [form.operands[0] if form.operands else "*" for form in _forms_of(name)]
    return None if set("".join(first)) & set("*!") else frozenset(word for each in first for word in each.split("|"))


def exports_credentials(name: str, fields: Sequence[Field]) -> str:
    """Return the command that exports credentials, without further words; "" if it does not."""
    forms = _forms_of(name)
    if not forms:
        return ""
    words = [field.text for field in fields]
    first = _first_words(name)
    if first is not None and first.isdisjoint(words):
        return ""
    for form in forms:
        if _matches(form, words):
            return " ".join([name, *_shown(form, words)])[:_MAX_SHOWN]
    return ""


def _matches(form: _Form, words: Sequence[str]) -> bool:
    return (
        all(_is_given(option, words) for option in form.options)
        and not any(_is_given(option, words) for option in form.without)
        and starts_with_words(words, form.operands)
    )


def _is_given(wanted: str, words: Sequence[str]) -> bool:
    return _given_word(wanted, words) is not None


def _given_word(wanted: str, words: Sequence[str]) -> str | None:
    """Return the word that gives an option with one of the wanted values."""
    option, _, values = wanted.partition("=")
    names = option.split("|")
    for at, word in enumerate(words):
        if any(_is_option(word, name, words[at + 1 : at + 2], values) for name in names):
            return word
    return None


def _is_option(word: str, name: str, following: Sequence[str], values: str) -> bool:
    """Return whether a word is an option with one of these values: alone, in a cluster or with an attached value."""
    given, equals, attached = word.partition("=")
    if fnmatchcase(given, name):
        value = attached if equals else next(iter(following), "")
    elif len(name) == 2 and word.startswith(name) and not word.startswith("--"):  # noqa: PLR2004 - a dash and a letter
        value = word[2:]
    elif len(name) == 2 and not values and re.fullmatch(rf"-[A-Za-z]*{name[1]}[A-Za-z]*", word):  # noqa: PLR2004
        value = ""
    else:
        return False
    return not values or any(fnmatchcase(value, each) for each in values.split("|"))


def _shown(form: _Form, words: Sequence[str]) -> list[str]:
    """Return the operands and options of a form as the command has them; other words may be secrets."""
    named = [wanted for wanted in form.operands if not wanted.startswith("!")]
    operands = [
        word for word in words if any(fnmatchcase(word, each) for wanted in named for each in wanted.split("|"))
    ]
    given = (_given_word(option, words) or "" for option in form.options)
    options = (word.partition("=")[0] if word.startswith("--") else word[:2] for word in given)
    return [*operands[: len(named)], *options]
