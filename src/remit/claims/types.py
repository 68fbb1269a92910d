"""The types of members of signed claims, and the conversion of parsed JSON to them.

Invariant: a value of a claims type that comes from `convert` obeys every rule of its members. Types
validate nothing when they are constructed directly, so signers parse what they are about to sign.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

from remit.claims.strictjson import MAX_INTEGER
from remit.errors import FieldInvalid, InputError

__all__ = [
    "BASE64URL",
    "COUNTER_NAME",
    "DATE_TIME",
    "ID_STRING",
    "RUN_NONCE",
    "SHA256_HEX",
    "Base64Url",
    "Choose",
    "Claims",
    "Count",
    "CounterName",
    "DateTime",
    "IdString",
    "LowerHex",
    "NonEmpty",
    "NumericDate",
    "Sha256Hex",
    "SideEffectClass",
    "build_decoder",
    "check_leap_second",
    "convert",
    "encode",
    "matches",
]

# The rules of strings, as patterns that must match the whole string.
ID_STRING: Final = r"[A-Za-z0-9._:/-]{8,64}"
BASE64URL: Final = r"[A-Za-z0-9_-]+"
SHA256_HEX: Final = r"[A-Fa-f0-9]{64}"
RUN_NONCE: Final = r"[A-Za-z0-9_-]{16,128}"
COUNTER_NAME: Final = r"[A-Za-z0-9._:-]{1,64}"

_LEAP_YEAR: Final = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY: Final = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
_ZONE: Final = r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
# RFC 3339 to the day, leap years included; the one rule that it cannot express is in `check_leap_second`.
DATE_TIME: Final = rf"{_DAY}[Tt]{_TIME}{_ZONE}"


def matches(pattern: str) -> Meta:
    r"""Return the rule that the whole string matches `pattern`.

    With `\Z` and not `$`, which matches before a trailing newline in Python, and not in other languages.
    """
    return Meta(pattern=rf"\A(?:{pattern})\Z")


IdString: TypeAlias = Annotated[str, matches(ID_STRING)]
NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]
Base64Url: TypeAlias = Annotated[str, matches(BASE64URL)]
Sha256Hex: TypeAlias = Annotated[str, matches(SHA256_HEX)]
LowerHex: TypeAlias = Annotated[str, matches(r"[a-f0-9]{64}")]
CounterName: TypeAlias = Annotated[str, matches(COUNTER_NAME)]
DateTime: TypeAlias = Annotated[str, matches(DATE_TIME)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
NumericDate: TypeAlias = Count

SideEffectClass: TypeAlias = Literal["none", "internal_write", "external_send", "state_change"]


def check_leap_second(moment: str, place: str) -> None:
    """Raise if a well-formed date-time has second 60 at any time but 23:59 UTC."""
    if moment[17:19] == "60" and _utc_minute(moment) != _LAST_MINUTE:
        raise FieldInvalid("a leap second that cannot be", place=place)


def _utc_minute(moment: str) -> int:
    minutes = int(moment[11:13]) * 60 + int(moment[14:16])
    zone = moment[-6:] if moment[-1] not in "Zz" else "+00:00"
    offset = int(zone[1:3]) * 60 + int(zone[4:6])
    utc = minutes - offset if zone[0] == "+" else minutes + offset
    return utc % (_LAST_MINUTE + 1)


_LAST_MINUTE: Final = 24 * 60 - 1


class Claims(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A JSON object with a fixed set of members. Missing members are `UNSET` and are not encoded."""


_Kind = TypeVar("_Kind", bound=Claims)
Choose: TypeAlias = Callable[[type, object], object]


def convert(kind: type[_Kind], value: object, choose: Choose | None = None) -> _Kind:
    """Return `value`, read by `parse_json`, as a `kind`, or raise `FieldInvalid` for the member that is wrong.

    `choose` builds the members whose type is one of several; it gets the declared type and the value.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=choose)
    except msgspec.ValidationError as error:
        raise _field_invalid(error, kind) from None
    except (UnicodeEncodeError, RecursionError):
        raise FieldInvalid("has a lone surrogate, or is nested too deep") from None


def build_decoder(kind: type[_Kind], choose: Choose | None = None) -> Callable[[bytes], _Kind]:
    """Return a decoder for a `kind` that Remit itself has encoded.

    It does not check for duplicates and unusual notations, so it takes half the time of a strict parser and `convert`.
    """
    decoder = msgspec.json.Decoder(kind, dec_hook=choose)

    def read_back(payload: bytes) -> _Kind:
        try:
            return decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise _field_invalid(error, kind) from None
        except msgspec.DecodeError:
            raise FieldInvalid("a value has no JSON form") from None

    return read_back


def encode(value: object) -> bytes:
    """Return the JSON of a value, compact; the members of claims are in the order of their declaration."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise FieldInvalid("a string has a lone surrogate") from None
    except (TypeError, ValueError, RecursionError):
        raise FieldInvalid("a value has no JSON form") from None


_PLACED: Final = re.compile(
    r"(?P<problem>.*) - at (?:`key` in )?`(?P<place>\$[\w.\[\]#]{0,100})`\Z", re.DOTALL | re.ASCII
)
_PATTERN: Final = "Expected `str` matching regex"
_ENUMERATION: Final = "Invalid enum value"
_PATH_PART: Final = re.compile(r"\.(\w+)|\[[\w.]*\]", re.ASCII)
_SHOWN_LENGTH: Final = 120


def _field_invalid(error: msgspec.ValidationError, kind: type) -> FieldInvalid:
    placed = _PLACED.match(str(error))
    problem, place = (placed["problem"], placed["place"]) if placed else (str(error), "$")
    if isinstance(error.__cause__, InputError):  # raised by a rule of a claims type
        return FieldInvalid(error.__cause__.problem, place=place + error.__cause__.place[1:])
    if problem.startswith(_PATTERN):  # which is not readable
        return FieldInvalid("has characters that are not allowed, or is too short or too long", place=place)
    if problem.startswith(_ENUMERATION):
        allowed = _allowed_values(inspect.type_info(kind), place)
        if allowed:
            return FieldInvalid(f"must be one of {', '.join(allowed)}", place=place)
    # The text may quote an untrusted member name: one line of it, escaped, is enough.
    shown = problem.encode("ascii", "backslashreplace").decode("ascii")[:_SHOWN_LENGTH]
    shown = "".join(character if character.isprintable() else "?" for character in shown)
    return FieldInvalid(shown[:1].lower() + shown[1:], place=place)


def _allowed_values(kind: inspect.Type, place: str) -> list[str]:
    """Return the values of the enumeration at a place such as `$.source.type` or `$.classes[...]`."""
    kinds = [kind]
    for part in _PATH_PART.finditer(place):
        kinds = [below for one in kinds for below in _alternatives(one)]
        kinds = [below for one in kinds if (below := _step_into(one, part[1])) is not None]
    literals = (one for each in kinds for one in _alternatives(each) if isinstance(one, inspect.LiteralType))
    return [str(value) for literal in literals for value in literal.values]


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the types that a value of this one can have, without their constraints."""
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return tuple(one for each in kind.types for one in _alternatives(each))
    return (kind,)


def _step_into(kind: inspect.Type, name: str | None) -> inspect.Type | None:
    """Return the type of the member of this name, or of the items where there is none."""
    if isinstance(kind, inspect.StructType) and name is not None:
        return next((member.type for member in kind.fields if member.encode_name == name), None)
    if isinstance(kind, inspect.DictType):
        return kind.value_type
    return kind.item_type if isinstance(kind, inspect.CollectionType) else None
