"""What a word comes to: braces, tildes, parameters, substitutions, splitting and globs, in bash's order.

Keeps this invariant: a field that is called `exact` is exactly what bash would pass on in this world. Anything else is
said to be a pattern, below a directory, or unknown. Commands inside words are followed by `run.py`, which is handed in.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Final

from remit.policy.shell.braces import MAX_ALTERNATIVES, brace_alternatives, unknown_word
from remit.policy.shell.environment import is_steering
from remit.policy.shell.pieces import Piece, field_of, is_glob, piece_of
from remit.policy.shell.state import CONCURRENT, NUMBER, PLAIN, Field, Output, ShellState, Unknown, Value, as_value
from remit.policy.shell.syntax import (
    Arithmetic,
    Parameter,
    Part,
    ProcessSubstitution,
    Script,
    Substitution,
    Text,
    Word,
)

__all__ = ["Expander", "arithmetic_names", "arithmetic_settings", "calculation"]

_MAX_VALUE: Final = 4096
_MAX_TRIMMED: Final = 256
_GLOB: Final = re.compile(r"[*?\[]")
_SPLITS_OR_GLOBS: Final = re.compile(r"[*?\[ \t\n]")
_NUMBERS: Final = frozenset("? # $".split())
# Numbers as long as nobody gives them another meaning.
_SOFT_NUMBERS: Final = frozenset("RANDOM SECONDS LINENO EPOCHSECONDS UID EUID PPID BASHPID SRANDOM".split())
# Names that bash changes by itself.
_MOVING: Final = frozenset("_ GROUPS REPLY BASH_COMMAND PIPESTATUS FUNCNAME BASH_SOURCE BASH_LINENO DIRSTACK".split())
# An expansion that touches a name makes another name of it.
_JOINS_NAMES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\x00|\x00[A-Za-z_\[]")
_SETS: Final = re.compile(
    r"([A-Za-z_]\w*)(?:\[\w*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)", re.ASCII
)
# Arithmetic that holds nothing but numbers, names, operators and plain subscripts. In other text there may be commands.
_ARITHMETIC: Final = re.compile(r"(?:[A-Za-z0-9_\s+*/%<>=!&|^~()?:;,#\x00-]|\[[A-Za-z0-9_\x00]+\])*\Z")
# Arithmetic that cannot end in an error: no division, no power, no number with a base.
_TERM: Final = r"\s*(?:(?:\+\+|--)?[A-Za-z_]\w*(?:\+\+|--)?|[-+!~]?(?:0|[1-9][0-9]*)|\x00)\s*"
_CERTAIN: Final = re.compile(
    rf"{_TERM}(?:(?:\+(?!\+)|-(?!-)|\*(?!\*)|<<?|>>?|<=|>=|==|!=|&&?|\|\|?|,|[-+*]?=){_TERM})*\Z", re.ASCII
)
_BLANKS: Final = re.compile(r"[ \t\n]+")
_HARMLESS_FORMS: Final = frozenset("Q U u L".split())
_INTEGER: Final = re.compile(r"\s*-?[0-9]*\s*\Z")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)?\Z")
_NEVER_FAIL: Final = frozenset((
    "", "-", ":-", "+", ":+", "=", ":=", "?", ":?", "#", "##", "%", "%%", "/", "//", "/#", "/%", "^", "^^", ",", ",,",
    "[@]", "[*]", "#[@]", "#[*]", "[0]",
))  # fmt: skip
_ALL_KEYS: Final = frozenset(("[@", "[*"))
_NAMES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def calculation(word: Word) -> str:
    """Return the text of an arithmetic expression as bash evaluates it, with a NUL for each expansion in it."""
    return "".join(part.value if isinstance(part, Text) else "\0" for part in word.parts)


def arithmetic_names(text: str) -> frozenset[str]:
    """Return the variables that an arithmetic expression reads or sets."""
    return frozenset(_NAMES.findall(text))


def arithmetic_settings(text: str) -> frozenset[str]:
    """Return the variables that an arithmetic expression may set."""
    return frozenset(before or after for before, after in _SETS.findall(text))


class Expander:
    """Expands words in one state.

    Commands inside them are given to `evaluate`, doubts to `doubt`, wildcards for which names are listed to `list_names`.
    """

    def __init__(
        self,
        state: ShellState,
        home: str | None,
        evaluate: Callable[[Script, ShellState], Output],
        doubt: Callable[[str, str], None],
        *,
        list_names: Callable[[Field, ShellState], None] = lambda _field, _state: None,
        assigns: bool = True,
    ) -> None:
        self.state = state
        self._home = home
        self._evaluate = evaluate
        self._doubt = doubt
        self._list_names = list_names
        self._assigns = assigns
        # An expansion may end in an error, and with it the line that the word stands in.
        self.may_fail = False

    def _set(self, name: str, value: Value) -> None:
        """Give a variable a value, as some expansions do."""
        self.may_fail = self.may_fail or self.state.is_fixed(name)
        if not self._assigns or is_steering(name):
            self._doubt(name, "an expansion that changes a variable")
        self.state = self.state.with_variable(name, value)

    def forget(self) -> None:
        """Give up what is known about variables."""
        variables: dict[str, Value] = {name: Unknown("any", "", f"${name}") for name in self.state.variables}
        self.state = self.state._replace(variables=variables)

    def fields(self, words: Sequence[Word]) -> list[Field]:
        """Return the fields of all words."""
        fields: list[Field] = []
        for word in words:
            if (
                len(word.parts) == 1
                and type(part := word.parts[0]) is Text
                and (part.quoted or _PLAIN.match(part.value))
            ):
                fields.append(Field(part.value, "exact", word.source, part.quoted))
            else:
                fields.extend(self._expanded(word))
            if len(fields) > MAX_ALTERNATIVES * 8:
                self._doubt(word.source[:40], "it expands to too many words")
                break
        return fields

    def _expanded(self, word: Word) -> Iterator[Field]:
        alternatives = self._alternatives(word.parts)
        if len(alternatives) > MAX_ALTERNATIVES:
            yield Field("", "unknown", word.source)
            alternatives = alternatives[:1]
        for parts in alternatives:
            groups = list(self._split(parts))
            # What braces make is no assignment any more, in which a tilde would count.
            tilde = len(alternatives) > 1 and "=" in word.source and "~" in word.source
            if tilde or _may_not_split(parts) or _is_unknown(parts):
                yield Field("", "unknown", word.source, splits=True)
            else:
                for pieces in groups:
                    field = field_of(pieces, word.source)
                    if is_glob(pieces):
                        self._list_names(field, self.state)
                    yield field

    def _alternatives(self, parts: Sequence[Part]) -> list[list[Part]]:
        """Return the parts of each word that braces make of one, by a reader that may not expand them."""
        alternatives = list(brace_alternatives(parts))
        if self.state.braces or alternatives == [list(parts)]:
            return alternatives
        return [unknown_word(parts) if self.state.braces is None else list(parts)]

    def declared(self, word: Word) -> list[Field]:
        """Return the fields of an assignment that is an argument of a declaration: its value is not split."""
        alternatives = self._alternatives(word.parts)
        return [self.single(Word(parts, word.source)) for parts in alternatives]

    def single(self, word: Word) -> Field:
        """Return the one field of a word where bash neither splits nor globs: assignments, texts, case words."""
        parts = [_as_quoted(part) for part in word.parts]
        return field_of([piece for group in self._split(parts, joins=True) for piece in group], word.source)

    def _pattern(self, word: Word) -> str | None:
        """Return a word as a pattern, or None where it is not known or not read alike everywhere."""
        if not all(isinstance(part, Text) for part in word.parts):
            return None
        pieces = [piece for group in self._split(word.parts) for piece in group]
        field = field_of([*pieces, Piece("")], word.source)
        brackets = any(piece.active and "[" in piece.text for piece in pieces)
        if field.kind not in ("exact", "pattern") or brackets:
            return None
        return field.text if field.kind == "pattern" else _GLOB.sub(lambda mark: f"[{mark[0]}]", field.text)

    def value(self, word: Word) -> Value:
        """Return what an assignment of the word stores."""
        if len(word.parts) == 1 and isinstance(part := word.parts[0], Parameter | Substitution):
            value = self._part_value(part)
            if isinstance(value, Unknown):
                return Unknown("any", "", word.source) if value.kind == "any" else value
        if len(word.parts) == 1 and isinstance(word.parts[0], Arithmetic):
            self._part_value(word.parts[0])
            return NUMBER
        field = self.single(word)
        if field.kind == "below":
            return as_value(field)
        if field.kind == "exact" and len(field.text) <= _MAX_VALUE:
            # A tilde after a colon is expanded in assignments too, and one that is left at the start stands for
            # a directory that is not known.
            tilde = ":~" in field.text or (field.text.startswith("~") and _starts_with_tilde(word))
            return Unknown("any", "", word.source) if tilde else field.text
        return Unknown("any", "", word.source)

    # Splitting

    def _split(self, parts: Sequence[Part], *, joins: bool = False) -> Iterator[list[Piece]]:
        """Yield the pieces of each field that the parts come to; where bash `joins` lists, they come to one."""
        pieces: list[Piece] = []
        started = False
        for index, part in enumerate(parts):
            if isinstance(part, Text):
                started = True
                if index == 0 and not part.quoted and "~" in part.value:
                    # Not every shell looks for a tilde in what only looks like an assignment.
                    home = self._home if not self.state.posix or part.value.startswith("~") else None
                    pieces.extend(_tilde_pieces(part.value, home, alone=len(parts) == 1))
                elif not part.quoted and ":~" in part.value and _looks_like_assignment(parts):
                    pieces.append(Piece("", active=False, mystery=Unknown("any", "", part.value)))
                else:
                    pieces.append(Piece(part.value, not part.quoted))
                continue
            value = self._part_value(part)
            quoted = getattr(part, "quoted", True)
            groups = [self._joined(value)] if joins and isinstance(value, tuple) and _is_list(part) else None
            for position, group in enumerate(groups or self._groups(part, value, quoted=quoted)):
                if position and started:
                    yield pieces
                if position:
                    pieces, started = [], False
                pieces.extend(group)
                started = started or bool(group) or quoted
        if started:
            yield pieces

    def _joined(self, elements: Sequence[Value]) -> list[Piece]:
        """Return the pieces of all parameters, or of an array, where bash puts a blank between them."""
        if "IFS" in self.state.variables:
            return [piece_of(Unknown("any", "", "IFS"), active=False)]
        pieces: list[Piece] = []
        for element in elements:
            known = element if not isinstance(element, tuple) else Unknown("any", "", "$@")
            pieces += [*([Piece(" ")] if pieces else []), piece_of(known, active=False)]
        return pieces

    def _groups(self, part: Part, value: Value, *, quoted: bool) -> Iterator[list[Piece]]:
        """Yield the pieces that a value adds; every group after the first starts a new field."""
        if isinstance(value, tuple):
            if quoted and not _is_list(part):
                yield [piece_of(Unknown("any", "", "$*"), active=False)]
                return
            for element in value:
                # One that is empty still parts the words beside it.
                empty = element == "" and not quoted
                yield from ([],) if empty else self._groups(Text("", quoted=True), element, quoted=quoted)
            return
        if isinstance(value, Unknown) or quoted:
            # All parameters, or all elements of an array, are several words or none, also in double quotes.
            yield [piece_of(value, active=not quoted or _is_list(part))]
            return
        if "IFS" in self.state.variables:
            yield [piece_of(Unknown("any", "", "IFS"), active=True)]
            return
        words = _BLANKS.split(value)
        if words[0]:
            yield [Piece(words[0], active=True)]
        elif value:
            yield []
        for word in words[1:]:
            yield [Piece(word, active=True)] if word else []

    # Values

    def _part_value(self, part: Part) -> Value:
        if isinstance(part, Parameter):
            return self._parameter(part)
        if isinstance(part, Substitution):
            return _printed(self._evaluate(part.script, self.state), self.state.cwd)
        if isinstance(part, ProcessSubstitution):
            self._evaluate(part.script, self.state._replace(stdin=CONCURRENT))
            return Unknown("below", "/dev/fd", "")
        if isinstance(part, Arithmetic):
            self._calculate(part.word)
            return NUMBER
        return part.value

    def _calculate(self, word: Word) -> None:
        """Check an arithmetic expression and set what it sets."""
        self.check_arithmetic(word)
        for name in arithmetic_settings(calculation(word)):
            self._set(name, NUMBER)

    def check_arithmetic(self, word: Word) -> None:
        """Record a doubt about an arithmetic expression unless each of its variables holds a number.

        bash evaluates the text of a variable there, commands in it included.
        """
        for part in word.parts:
            if isinstance(part, Text):
                continue
            if isinstance(value := self._part_value(part), tuple) or not _is_number(value):
                self._doubt(word.source, "arithmetic on a value that may hold commands")
        text = calculation(word)
        names = arithmetic_names(text)
        for name in names:
            if name in self.state.variables and not _is_number(self.state.variables[name]):
                self._doubt(name, "arithmetic on a value that may hold commands")
        if _JOINS_NAMES.search(text):
            self._doubt(word.source, "arithmetic on a name that is put together")
        elif not _ARITHMETIC.match(text):
            self._doubt(word.source, "arithmetic that may hold commands")
        # A name that the script does not set may be in the environment, with any text.
        known = all(_is_certain(self.state.variables.get(name, _ANYTHING)) for name in names)
        fixed = any(self.state.is_fixed(name) for name in names)
        self.may_fail = self.may_fail or not known or fixed or not _CERTAIN.match(text)

    def _parameter(self, part: Parameter) -> Value:
        value = self._named(part.name)
        operator = part.operator
        # What an operator can make of a value without an error is known only for the most usual ones.
        self.may_fail = self.may_fail or operator not in _NEVER_FAIL
        if operator.startswith("!") and operator[1:3] not in _ALL_KEYS:
            self._check_indirect(part.name, value)
        counted = operator.startswith("#[")
        if operator.startswith("[") or counted:
            subscript, _, rest = operator.lstrip("#")[1:].partition("]")
            value = self._element(part.name, value, subscript)
            operator = "#" if counted else rest
        if operator in _IF_UNSET and self._is_absent(part.name):
            operator = f":{operator}"
        if part.operand is not None and operator.endswith(":"):
            self._calculate(part.operand)
        elif part.operand is not None:
            operand = self._operand_field(part, part.operand)
            if operator == "@" and operand.text not in _HARMLESS_FORMS:
                self._doubt(part.name, "an expansion that can run what the value holds")
            return self._operated(part, value, operator, operand)
        if operator == "#":
            return NUMBER
        if not part.operator and isinstance(value, tuple) and part.name not in ("@", "*"):
            # The name of an array alone means its first element.
            return value[0] if value else ""
        return value if not operator else Unknown("any", "", f"${part.name}")

    def _is_absent(self, name: str) -> bool:
        """Return whether a positional parameter is not set: as a value it is empty, and so is one that is."""
        known = self.state.arguments
        return name.isdigit() and known is not None and int(name[:4]) > len(known)

    def _operand_field(self, part: Parameter, word: Word) -> Field:
        """Return the field of an operand. Where it is quoted in parts, it may come to other words than its text."""
        field = self.single(word)
        if any(_is_list(each) for each in word.parts):
            return Field("", "unknown", word.source, splits=True)
        mixed = not part.quoted and any(getattr(each, "quoted", True) for each in word.parts)
        if mixed and field.kind == "exact" and (not field.text or _SPLITS_OR_GLOBS.search(field.text)):
            return Field("", "unknown", word.source, splits=True)
        return field

    def _check_indirect(self, name: str, value: Value) -> None:
        """Record a doubt about `${!name}` unless the value is the name of a variable: subscripts in it are evaluated."""
        if not isinstance(value, str) or not _NAMES.fullmatch(value):
            self._doubt(name, "the name of a variable that is not known before it runs")

    def _element(self, name: str, value: Value, subscript: str) -> Value:
        if subscript in ("@", "*"):
            return (value,) if isinstance(value, str) else value
        if subscript.isdigit() and isinstance(value, tuple) and int(subscript) < len(value):
            return value[int(subscript)]
        if subscript in self.state.variables and not _is_number(self.state.variables[subscript]):
            self._doubt(subscript, "arithmetic on a value that may hold commands")
        return Unknown("any", "", f"${name}[{subscript}]")

    def _named(self, name: str) -> Value:  # noqa: PLR0911 - one line for each kind of name
        state = self.state
        if name in _NUMBERS or (name in _SOFT_NUMBERS and name not in state.variables and not state.posix):
            return NUMBER
        if name in _MOVING:
            return Unknown("any", "", f"${name}")
        if name in ("@", "*"):
            return state.arguments if state.arguments is not None else Unknown("any", "", f"${name}")
        if name.isdigit():
            known = state.arguments if name != "0" else None
            position = int(name[:4]) - 1
            absent = Unknown("any", "", f"${name}")
            return absent if known is None else known[position] if position < len(known) else ""
        if name == "PWD":
            unknown = Unknown("any", "", "$PWD")
            return unknown if "PWD" in state.variables or state.cwd is None else state.cwd
        if name == "HOME" and "HOME" not in state.variables and self._home is not None:
            return self._home
        return state.variables.get(name, Unknown("any", "", f"${name}"))

    def _operated(  # noqa: PLR0911 - one for each operator
        self, part: Parameter, value: Value, operator: str, operand: Field
    ) -> Value:
        """Return the value of `${name<operator>operand}` where that can be computed."""
        unknown = Unknown("any", "", f"${part.name}")
        if not isinstance(value, str):
            if isinstance(value, Unknown) and operator in (":?", "?"):
                return value
            if operator in ("=", ":="):
                self._set(part.name, unknown)
            return unknown
        if operator in ("-", ":-", "=", ":=", "?", ":?"):
            if value or not operator.startswith(":"):
                return value
            chosen: Value = operand.text if operand.kind == "exact" else unknown
            if operator == ":=":
                self._set(part.name, chosen)
            return chosen
        if operator in ("+", ":+"):
            taken = bool(value) or operator == "+"
            return "" if not taken else operand.text if operand.kind == "exact" else unknown
        # What one character is, in a text that is not ASCII, depends on the locale.
        if operator in _TRIMS and len(value) <= _MAX_TRIMMED and value.isascii() and part.operand is not None:
            pattern = self._pattern(part.operand)
            return unknown if pattern is None else _trimmed(value, operator, pattern)
        return unknown


def _printed(output: Output, cwd: str | None) -> Value:
    """Return what a substitution gives: the text without its last line ends, or what is known about it."""
    if output.text is not None:
        return output.text.rstrip("\n")
    if output.number:
        return NUMBER
    if output.plain:
        return PLAIN
    if len(output.below) == 1 and not output.separated and output.cwd == cwd:
        return Unknown("below", output.below[0], "$(…)", cwd, linked=not output.regular, bare=output.bare)
    return Unknown("any", "", "$(…)")


def _is_list(part: Part) -> bool:
    """Return whether a part stands for all parameters or elements, each a word of its own also in double quotes."""
    if not isinstance(part, Parameter):
        return False
    inner = part.operand.parts if part.operand is not None else ()
    return part.name == "@" or "[@]" in part.operator or any(_is_list(each) for each in inner)


def _is_unknown(parts: Sequence[Part]) -> bool:
    """Return whether braces make of a word what nobody knows; the expansions in it are evaluated all the same."""
    return parts[:1] == unknown_word(())


def _may_not_split(parts: Sequence[Part]) -> bool:
    """Return whether bash may not split what is expanded beside a bare dollar sign, or beside a job that is not there."""
    alone = any(isinstance(part, Text) and part.value == "$" for part in parts)
    jobs = [part for part in parts if isinstance(part, Parameter) and part.name == "!"]
    others = [part for part in parts if isinstance(part, Parameter | Substitution) and not part.quoted]
    return bool(others) and (alone or (bool(jobs) and others != jobs))


def _looks_like_assignment(parts: Sequence[Part]) -> bool:
    leading = takewhile(lambda part: isinstance(part, Text) and not part.quoted, parts)
    return _ASSIGNS.match("".join(part.value for part in leading if isinstance(part, Text))) is not None


def _starts_with_tilde(word: Word) -> bool:
    first = word.parts[0] if word.parts else None
    return isinstance(first, Text) and not first.quoted and first.value.startswith("~")


def _is_certain(value: Value) -> bool:
    """Return whether a value is a number that arithmetic reads without an error: one without leading zeros."""
    return value == NUMBER or (isinstance(value, str) and _DECIMAL.match(value) is not None)


def _is_number(value: Value) -> bool:
    if isinstance(value, str):
        return _INTEGER.match(value) is not None
    return isinstance(value, Unknown) and value.kind == "number"


# Operators that ask whether a parameter is set; with a colon before them, whether it is set and not empty.
_IF_UNSET: Final = frozenset(("-", "+", "=", "?"))
_ANYTHING: Final = Unknown("any", "", "")
_TRIMS: Final = frozenset(("#", "##", "%", "%%"))


def _trimmed(value: str, operator: str, pattern: str) -> str:
    """Return the value without the shortest or longest beginning or end that matches."""
    ends = range(len(value) + 1)
    if operator in ("#", "##"):
        for end in ends if operator == "#" else reversed(ends):
            if fnmatchcase(value[:end], pattern):
                return value[end:]
    else:
        for start in reversed(ends) if operator == "%" else ends:
            if fnmatchcase(value[start:], pattern):
                return value[:start]
    return value


def _as_quoted(part: Part) -> Part:
    if isinstance(part, Text):
        # A leading tilde still counts in an assignment.
        return part if part.value.startswith("~") and not part.quoted else part._replace(quoted=True)
    return part._replace(quoted=True) if isinstance(part, Parameter | Substitution) else part


_PLAIN: Final = re.compile(r"[^*?\[{~]+\Z")


_ASSIGNS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
_TILDE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=(?:.*?:)??)?(~[^/:]*)", re.DOTALL)


def _tilde_pieces(text: str, home: str | None, *, alone: bool) -> list[Piece]:
    """Return unquoted text at the start of a word, with a tilde at its start or in what looks like an assignment.

    A tilde stands for a directory only if nothing but this text comes before the next slash or colon.
    """
    tilde = _TILDE.match(text)
    rest = text[tilde.end() :] if tilde is not None else ""
    if tilde is None or not (alone or rest):
        return [Piece(text, active=True)]
    before = tilde[1] or ""
    if tilde[2] != "~" or rest.startswith(":") or ":~" in rest or (before and home is None):
        return [Piece(before, active=True), Piece("", active=False, mystery=Unknown("any", "", text))]
    # Where the home is not known, the tilde stays for whoever reads the path.
    return [Piece(f"{before}{home if home is not None else '~'}{rest}", active=True)]
