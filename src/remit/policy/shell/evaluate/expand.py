"""Expands words: braces, tildes, parameters, substitutions, splitting and globs, in the order of bash.

A field of kind `exact` is exactly what bash would pass to the program in this state. Anything else is a pattern, a path
below a directory, or unknown. Commands in words are evaluated by `script.py`, through a callback.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.pieces import Piece, field_of, is_glob, piece_of
from remit.policy.shell.evaluate.settings import is_steering
from remit.policy.shell.evaluate.state import CONCURRENT, NUMBER, PLAIN, Output, ShellState, Unknown, Value, as_value
from remit.policy.shell.parse.braces import MAX_ALTERNATIVES, brace_alternatives, unknown_word
from remit.policy.shell.parse.syntax import (
    Arithmetic,
    Parameter,
    Part,
    ProcessSubstitution,
    Script,
    Substitution,
    Text,
    Word,
)

_MAX_VALUE: Final = 4096
_MAX_TRIMMED: Final = 256
_GLOB: Final = re.compile(r"[*?\[]")
_SPLITS_OR_GLOBS: Final = re.compile(r"[*?\[ \t\n]")
_NUMBERS: Final = frozenset("? # $".split())
# These are numbers unless the script assigns to them.
_SOFT_NUMBERS: Final = frozenset("RANDOM SECONDS LINENO EPOCHSECONDS UID EUID PPID BASHPID SRANDOM".split())
# Variables that bash itself changes.
_MOVING: Final = frozenset("_ GROUPS REPLY BASH_COMMAND PIPESTATUS FUNCNAME BASH_SOURCE BASH_LINENO DIRSTACK".split())
# An expansion next to a name forms another name.
_JOINS_NAMES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\x00|\x00[A-Za-z_\[]")
_SETS: Final = re.compile(
    r"([A-Za-z_]\w*)(?:\[\w*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)", re.ASCII
)
# Arithmetic with only numbers, names, operators and plain subscripts. Other text may contain commands.
_ARITHMETIC: Final = re.compile(r"(?:[A-Za-z0-9_\s+*/%<>=!&|^~()?:;,#\x00-]|\[[A-Za-z0-9_\x00]+\])*\Z")
# Arithmetic that cannot fail: no division, no power, no number with a base.
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
    """Return the text of an arithmetic expression as bash evaluates it, with NUL for each expansion in it."""
    return "".join(part.value if isinstance(part, Text) else "\0" for part in word.parts)


def arithmetic_names(text: str) -> frozenset[str]:
    """Return the variables that an arithmetic expression reads or sets."""
    return frozenset(_NAMES.findall(text))


def arithmetic_settings(text: str) -> frozenset[str]:
    """Return the variables that an arithmetic expression may set."""
    return frozenset(before or after for before, after in _SETS.findall(text))


class Expander:
    """Expands words in one state.

    Callbacks: `evaluate` for commands in words, `doubt` for doubts, `list_names` for wildcards that the shell expands.
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
        # An expansion may fail, which ends the current line.
        self.may_fail = False

    def _set(self, name: str, value: Value) -> None:
        """Set a variable, as some expansions do."""
        self.may_fail = self.may_fail or self.state.is_fixed(name)
        if not self._assigns or is_steering(name):
            self._doubt(name, "an expansion that changes a variable")
        self.state = self.state.with_variable(name, value)

    def forget(self) -> None:
        """Forget the values of all variables."""
        variables: dict[str, Value] = {name: Unknown("any", "", f"${name}") for name in self.state.variables}
        self.state = self.state._replace(variables=variables)

    def fields(self, words: Sequence[Word]) -> list[Field]:
        """Expand words to fields."""
        fields: list[Field] = []
        for word in words:
            if (
                len(word.parts) == 1
                and type(part := word.parts[0]) is Text
                and (part.quoted or _PLAIN.match(part.value))
            ):
                fields.append(Field(part.value, "exact", word.source, part.quoted))
            else:
                fields.extend(self._expand_word(word))
            if len(fields) > MAX_ALTERNATIVES * 8:
                self._doubt(word.source[:40], "it expands to too many words")
                break
        return fields

    def _expand_word(self, word: Word) -> Iterator[Field]:
        alternatives = self._alternatives(word.parts)
        if len(alternatives) > MAX_ALTERNATIVES:
            yield Field("", "unknown", word.source)
            alternatives = alternatives[:1]
        for parts in alternatives:
            groups = list(self._split(parts))
            # A word made by braces is not an assignment, in which the tilde would be expanded.
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
        """Return the parts of each word that braces make of one word, if the shell expands braces."""
        alternatives = list(brace_alternatives(parts))
        if self.state.braces or alternatives == [list(parts)]:
            return alternatives
        return [unknown_word(parts) if self.state.braces is None else list(parts)]

    def expand_declaration(self, word: Word) -> list[Field]:
        """Expand an assignment that is an argument of a declaration: its value is not split."""
        alternatives = self._alternatives(word.parts)
        return [self.single(Word(parts, word.source)) for parts in alternatives]

    def single(self, word: Word) -> Field:
        """Expand a word where bash neither splits nor globs: assignments, here-documents, case words."""
        parts = [_as_quoted(part) for part in word.parts]
        return field_of([piece for group in self._split(parts, joins=True) for piece in group], word.source)

    def _pattern(self, word: Word) -> str | None:
        """Return a word as a glob, or None if it is not known or shells read it differently."""
        if not all(isinstance(part, Text) for part in word.parts):
            return None
        pieces = [piece for group in self._split(word.parts) for piece in group]
        field = field_of([*pieces, Piece("")], word.source)
        brackets = any(piece.active and "[" in piece.text for piece in pieces)
        if field.kind not in ("exact", "pattern") or brackets:
            return None
        return field.text if field.kind == "pattern" else _GLOB.sub(lambda mark: f"[{mark[0]}]", field.text)

    def value(self, word: Word) -> Value:
        """Return the value that an assignment of the word stores."""
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
            # In assignments a tilde after a colon is expanded too. A tilde that is left at the start stands for an
            # unknown directory.
            tilde = ":~" in field.text or (field.text.startswith("~") and _starts_with_tilde(word))
            return Unknown("any", "", word.source) if tilde else field.text
        return Unknown("any", "", word.source)

    # Splitting

    def _split(self, parts: Sequence[Part], *, joins: bool = False) -> Iterator[list[Piece]]:
        """Yield the pieces of each field of a word; with `joins`, lists are joined to one field."""
        pieces: list[Piece] = []
        started = False
        for index, part in enumerate(parts):
            if isinstance(part, Text):
                started = True
                if index == 0 and not part.quoted and "~" in part.value:
                    # Not every shell expands a tilde in a word that only looks like an assignment.
                    home = self._home if not self.state.posix or part.value.startswith("~") else None
                    pieces.extend(_tilde_pieces(part.value, home, alone=len(parts) == 1))
                elif not part.quoted and ":~" in part.value and _looks_like_assignment(parts):
                    pieces.append(Piece("", active=False, unknown_value=Unknown("any", "", part.value)))
                else:
                    pieces.append(Piece(part.value, not part.quoted))
                continue
            value = self._part_value(part)
            quoted = getattr(part, "quoted", True)
            groups = [self._join_elements(value)] if joins and isinstance(value, tuple) and _is_list(part) else None
            for position, group in enumerate(groups or self._groups(part, value, quoted=quoted)):
                if position and started:
                    yield pieces
                if position:
                    pieces, started = [], False
                pieces.extend(group)
                started = started or bool(group) or quoted
        if started:
            yield pieces

    def _join_elements(self, elements: Sequence[Value]) -> list[Piece]:
        """Return the pieces of all parameters, or of an array, joined with blanks."""
        if "IFS" in self.state.variables:
            return [piece_of(Unknown("any", "", "IFS"), active=False)]
        pieces: list[Piece] = []
        for element in elements:
            known = element if not isinstance(element, tuple) else Unknown("any", "", "$@")
            pieces += [*([Piece(" ")] if pieces else []), piece_of(known, active=False)]
        return pieces

    def _groups(self, part: Part, value: Value, *, quoted: bool) -> Iterator[list[Piece]]:
        """Yield the pieces that a value adds; each group after the first starts a new field."""
        if isinstance(value, tuple):
            if quoted and not _is_list(part):
                yield [piece_of(Unknown("any", "", "$*"), active=False)]
                return
            for element in value:
                # An empty element still separates the words next to it.
                empty = element == "" and not quoted
                yield from ([],) if empty else self._groups(Text("", quoted=True), element, quoted=quoted)
            return
        if isinstance(value, Unknown) or quoted:
            # `$@` and arrays are any number of words, also in double quotes.
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
            return _output_value(self._evaluate(part.script, self.state), self.state.cwd)
        if isinstance(part, ProcessSubstitution):
            self._evaluate(part.script, self.state._replace(stdin=CONCURRENT))
            return Unknown("below", "/dev/fd", "")
        if isinstance(part, Arithmetic):
            self._calculate(part.word)
            return NUMBER
        return part.value

    def _calculate(self, word: Word) -> None:
        """Check an arithmetic expression and apply its assignments."""
        self.check_arithmetic(word)
        for name in arithmetic_settings(calculation(word)):
            self._set(name, NUMBER)

    def check_arithmetic(self, word: Word) -> None:
        """Record a doubt about an arithmetic expression, unless each of its variables is a number.

        bash evaluates the text of a variable there, including commands.
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
            self._doubt(word.source, "arithmetic on a name that is built from several parts")
        elif not _ARITHMETIC.match(text):
            self._doubt(word.source, "arithmetic that may hold commands")
        # A variable that the script does not set may be in the environment, with any value.
        known = all(_is_certain(self.state.variables.get(name, _ANYTHING)) for name in names)
        fixed = any(self.state.is_fixed(name) for name in names)
        self.may_fail = self.may_fail or not known or fixed or not _CERTAIN.match(text)

    def _parameter(self, part: Parameter) -> Value:
        value = self._variable_value(part.name)
        operator = part.operator
        # Only the most common operators are known not to fail.
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
            return self._apply_operator(part, value, operator, operand)
        if operator == "#":
            return NUMBER
        if not part.operator and isinstance(value, tuple) and part.name not in ("@", "*"):
            # The name of an array alone means its first element.
            return value[0] if value else ""
        return value if not operator else Unknown("any", "", f"${part.name}")

    def _is_absent(self, name: str) -> bool:
        """Return whether a positional parameter is unset; its value is empty, as that of a set one can be."""
        known = self.state.arguments
        return name.isdigit() and known is not None and int(name[:4]) > len(known)

    def _operand_field(self, part: Parameter, word: Word) -> Field:
        """Return the field of an operand. If it is partly quoted, it may expand to several words."""
        field = self.single(word)
        if any(_is_list(each) for each in word.parts):
            return Field("", "unknown", word.source, splits=True)
        mixed = not part.quoted and any(getattr(each, "quoted", True) for each in word.parts)
        if mixed and field.kind == "exact" and (not field.text or _SPLITS_OR_GLOBS.search(field.text)):
            return Field("", "unknown", word.source, splits=True)
        return field

    def _check_indirect(self, name: str, value: Value) -> None:
        """Record a doubt about `${!name}` unless the value is a plain variable name: bash evaluates subscripts."""
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

    def _variable_value(self, name: str) -> Value:  # noqa: PLR0911 - one line for each kind of name
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

    def _apply_operator(  # noqa: PLR0911 - one for each operator
        self, part: Parameter, value: Value, operator: str, operand: Field
    ) -> Value:
        """Return the value of `${name<operator>operand}`, if it can be computed."""
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
        # In text that is not ASCII, the length of a character depends on the locale.
        if operator in _TRIMS and len(value) <= _MAX_TRIMMED and value.isascii() and part.operand is not None:
            pattern = self._pattern(part.operand)
            return unknown if pattern is None else _trim(value, operator, pattern)
        return unknown


def _output_value(output: Output, cwd: str | None) -> Value:
    """Return the value of a substitution: the output without trailing newlines, or what is known about it."""
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
    """Return whether a part is `$@` or an array, which are several words also in double quotes."""
    if not isinstance(part, Parameter):
        return False
    inner = part.operand.parts if part.operand is not None else ()
    return part.name == "@" or "[@]" in part.operator or any(_is_list(each) for each in inner)


def _is_unknown(parts: Sequence[Part]) -> bool:
    """Return whether the braces of a word cannot be expanded here."""
    return parts[:1] == unknown_word(())


def _may_not_split(parts: Sequence[Part]) -> bool:
    """Return whether bash may leave an expansion unsplit, next to a bare dollar sign or an unset `$!`."""
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
    """Return whether a value is a number that arithmetic reads without an error: no leading zeros."""
    return value == NUMBER or (isinstance(value, str) and _DECIMAL.match(value) is not None)


def _is_number(value: Value) -> bool:
    if isinstance(value, str):
        return _INTEGER.match(value) is not None
    return isinstance(value, Unknown) and value.kind == "number"


# Operators that test whether a parameter is set; after a colon, whether it is set and not empty.
_IF_UNSET: Final = frozenset(("-", "+", "=", "?"))
_ANYTHING: Final = Unknown("any", "", "")
_TRIMS: Final = frozenset(("#", "##", "%", "%%"))


def _trim(value: str, operator: str, pattern: str) -> str:
    """Return the value without the shortest or longest matching prefix or suffix."""
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
        # A leading tilde is still expanded in an assignment.
        return part if part.value.startswith("~") and not part.quoted else part._replace(quoted=True)
    return part._replace(quoted=True) if isinstance(part, Parameter | Substitution) else part


_PLAIN: Final = re.compile(r"[^*?\[{~]+\Z")


_ASSIGNS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
_TILDE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=(?:.*?:)??)?(~[^/:]*)", re.DOTALL)


def _tilde_pieces(text: str, home: str | None, *, alone: bool) -> list[Piece]:
    """Return the pieces of unquoted text, with a tilde at its start or in what looks like an assignment expanded.

    A tilde is expanded only if this text alone precedes the next slash or colon.
    """
    tilde = _TILDE.match(text)
    rest = text[tilde.end() :] if tilde is not None else ""
    if tilde is None or not (alone or rest):
        return [Piece(text, active=True)]
    before = tilde[1] or ""
    if tilde[2] != "~" or rest.startswith(":") or ":~" in rest or (before and home is None):
        return [Piece(before, active=True), Piece("", active=False, unknown_value=Unknown("any", "", text))]
    # If the home is not known, the tilde stays in the path, which then is a doubt.
    return [Piece(f"{before}{home if home is not None else '~'}{rest}", active=True)]
