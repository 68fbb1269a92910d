"""Canonical form and base64url: one value, one spelling."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.canonical import (
    ExactForm,
    canonicalize,
    canonicalize_arguments,
    decode_base64url,
    encode_base64url,
    sha256_base64url,
    sha256_hex,
)
from remit.claims.strictjson import JSON, parse_json, parse_object
from remit.errors import InputError
from tests.claims.test_strictjson import VALUES, _floats


@given(VALUES)
def test_the_short_way_gives_the_bytes_of_the_reference(value: JSON) -> None:
    assert canonicalize(value) == rfc8785.dumps(value)


@given(VALUES)
def test_canonical_form_reads_back_to_the_same_value(value: JSON) -> None:
    if all(abs(number) < 2**53 for number in _floats(value)):
        assert parse_json(canonicalize(value)) == value


@given(st.dictionaries(st.text("aé\uffff\U0001f600", max_size=3), st.integers(0, 9)))
def test_names_sort_by_utf16_units_whatever_their_order(members: dict[str, int]) -> None:
    backwards = dict(reversed(members.items()))
    assert canonicalize(members) == canonicalize(backwards)
    written = list(parse_object(canonicalize(members)))
    assert written == sorted(members, key=lambda name: name.encode("utf-16-be"))


def cyclic() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [
        2**53,
        10**5000,
        -(2**53),
        float("nan"),
        float("inf"),
        "\ud800",
        {"\ud800": 1},
        {1: 2},
        {"a": object()},
        b"x",
        cyclic(),
        {"x": 1.5, "y": cyclic()},
    ],
    ids=range(12),
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InputError) as caught:
        canonicalize(value)
    assert caught.value.code == "not_canonicalizable"


def test_a_message_about_a_bad_value_does_not_hold_the_value() -> None:
    with pytest.raises(InputError) as caught:
        canonicalize({"password": "hunter2", "n": 2**60})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


@given(st.binary(max_size=80))
def test_base64url_is_read_in_exactly_one_spelling(data: bytes) -> None:
    text = encode_base64url(data)
    assert decode_base64url(text) == data
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= \n.é"
    same = [letter for letter in alphabet if text and _decodes_to(text[:-1] + letter, data)]
    assert same == ([text[-1]] if text else [])
    assert not _decodes_to(text + "=", data)


def _decodes_to(text: str, data: bytes) -> bool:
    try:
        return decode_base64url(text) == data
    except ValueError:
        return False


def test_digests_are_sha256() -> None:
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256_base64url(b"") == "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


# The forms of arguments

LARGE = st.integers(-(10**64) + 1, 10**64 - 1)
ARGUMENTS = st.recursive(
    st.none() | st.booleans() | LARGE | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
# Floats that RFC 8785 writes with digits only, and integers around the digits that it writes.
EDGES = st.floats(2**53, 1e21, exclude_max=True).flatmap(
    lambda number: st.sampled_from([number, int(number), int(rfc8785.dumps(number)), int(number) + 1])
)


@given(VALUES)
def test_arguments_without_large_integers_have_the_form_of_the_reference(value: JSON) -> None:
    if all(abs(number) < 2**53 for number in _floats(value)):
        assert canonicalize_arguments(value) == rfc8785.dumps(value)
        assert not isinstance(canonicalize_arguments(value), ExactForm)


@given(ARGUMENTS)
def test_the_form_of_arguments_reads_back_to_the_same_value(value: JSON) -> None:
    form = canonicalize_arguments(value)
    assert parse_json(form, exact_integers=True) == value
    assert canonicalize_arguments(parse_json(form, exact_integers=True)) == form


@given(EDGES, EDGES)
def test_different_numbers_never_have_the_same_form(one: float, other: float) -> None:
    assert (canonicalize_arguments({"n": one}) == canonicalize_arguments({"n": other})) == (one == other)


@given(st.dictionaries(st.text("aé￿😀", max_size=3), LARGE))
def test_names_of_an_exact_form_sort_as_those_of_the_reference_do(members: dict[str, int]) -> None:
    written = list(parse_object(canonicalize_arguments(members), exact_integers=True))
    assert written == sorted(members, key=lambda name: name.encode("utf-16-be"))


def test_a_form_that_is_not_the_reference_is_marked() -> None:
    assert isinstance(canonicalize_arguments({"n": 2**53}), ExactForm)
    assert isinstance(canonicalize_arguments([{"n": -(2**53)}]), ExactForm)
    assert not isinstance(canonicalize_arguments({"n": [2**53 - 1, 1.5, 1e20]}), ExactForm)


@pytest.mark.parametrize(
    "value",
    [
        10**64,
        {"n": -(10**5000)},
        [2**53, float("nan")],
        [2**53, float("inf")],
        {"n": 2**53, "\ud800": 1},
        {"n": 2**53, 1: 2},
        [2**53, object()],
        [2**53, cyclic()],
        cyclic(),
    ],
    ids=range(9),
)
def test_arguments_that_are_no_json_have_no_form(value: object) -> None:
    with pytest.raises(InputError) as caught:
        canonicalize_arguments(value)
    assert caught.value.code == "not_canonicalizable"
    assert caught.value.__context__ is None
