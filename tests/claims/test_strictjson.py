"""The strict reader: what every reader understands alike comes through, the rest raises and says where."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims import strictjson
from remit.claims.strictjson import parse_json, parse_object
from remit.errors import InputError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-strictjson.MAX_INTEGER, strictjson.MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)

REFUSED = [
    (b"", "json_syntax", "$"),
    (b"{", "json_syntax", "$"),
    (b"[1,]", "json_syntax", "$"),
    (b"{'a':1}", "json_syntax", "$"),
    (b"01", "json_syntax", "$"),
    (b"1 2", "json_syntax", "$"),
    (b'"a\nb"', "json_syntax", "$"),
    (b"\xef\xbb\xbf{}", "json_not_utf8", "$"),
    ("{}".encode("utf-16"), "json_not_utf8", "$"),
    (b'"\xff"', "json_not_utf8", "$"),
    (b'"\xed\xa0\x80"', "json_not_utf8", "$"),
    (b'{"a":1,"a":2}', "json_duplicate_member", "$"),
    (b'{"a":1,"\\u0061":2}', "json_duplicate_member", "$"),
    (b'{"x":[{"y":{"a":1,"a":1}}]}', "json_duplicate_member", "$.x[0].y"),
    (b'{"odd name":{"a":1,"a":1}}', "json_duplicate_member", "$['odd name']"),
    (b"NaN", "json_number_refused", "$"),
    (b'{"a":[0,Infinity]}', "json_number_refused", "$.a[1]"),
    (b"[-Infinity]", "json_number_refused", "$[0]"),
    (b'{"a":1e400}', "json_number_refused", "$.a"),
    (b"9007199254740992", "json_number_refused", "$"),
    (b"-9007199254740992", "json_number_refused", "$"),
    (b'{"a":12345678901234567890123456789}', "json_number_refused", "$.a"),
    (b"1" * 65, "json_too_large", "$"),
    (b"[0." + b"1" * 63 + b"]", "json_too_large", "$[0]"),
    (b"[-" + b"1" * 64 + b"]", "json_too_large", "$[0]"),
    (b"[1" + b"0" * 63 + b"]", "json_number_refused", "$[0]"),
    (b'{"a":"\\ud800"}', "json_lone_surrogate", "$.a"),
    (b'{"\\udc00":1}', "json_lone_surrogate", "$"),
    (b'["\\udc00\\ud800"]', "json_lone_surrogate", "$[0]"),
    (b"[" * 65 + b"]" * 65, "json_too_deep", "$" + "[0]" * 16),
    (b"[" * 100_000 + b"]" * 100_000, "json_too_deep", "$"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "json_too_deep", "$" + ".a" * 16),
    (b"[" + b"0," * 10_000 + b"0]", "json_too_large", "$"),
    (b'{"a":["' + b"x" * (256 * 1024 + 1) + b'"]}', "json_too_large", "$.a[0]"),
    (b'{"' + b"x" * (256 * 1024 + 1) + b'":1}', "json_too_large", "$"),
    (b" " * (1024 * 1024 + 1), "json_too_large", "$"),
]


@pytest.mark.parametrize(("data", "code", "place"), REFUSED, ids=range(len(REFUSED)))
def test_what_readers_could_take_differently_is_refused_with_its_place(data: bytes, code: str, place: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(data)
    assert (caught.value.code, caught.value.place) == (code, place)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 64 + b"]" * 64,
        b'{"a":' * 64 + b"1" + b"}" * 64,
        b"[" + b"0," * 9_999 + b"0]",
        b'"' + b"x" * (256 * 1024) + b'"',
        b"1" * 16,
        b"[0." + b"1" * 62 + b"]",
        b"9007199254740991",
        b' {"a" : [ 1 , 2 ] } \r\n',
        b'"\\ud83d\\ude00"',
        b"-0",
    ],
    ids=range(10),
)
def test_what_just_keeps_the_limits_is_read_as_the_standard_reader_does(data: bytes) -> None:
    assert parse_json(data) == json.loads(data)


@given(VALUES)
def test_every_value_survives_being_written_compactly_or_widely(value: strictjson.JSON) -> None:
    compact = orjson.dumps(value)
    wide = json.dumps(value, indent=2).encode()
    for data in (compact, wide):
        if not _has_long_integral_float(value):
            assert parse_json(data) == value


def _has_long_integral_float(value: strictjson.JSON) -> bool:
    """Tell whether a float in `value` may be written with digits only, beyond what integers may be."""
    return any(abs(number) > strictjson.MAX_INTEGER for number in _floats(value))


def _floats(value: strictjson.JSON) -> list[float]:
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [number for item in value for number in _floats(item)] if isinstance(value, list) else []


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_an_input_error(data: bytes) -> None:
    try:
        value = parse_json(data)
    except InputError:
        return
    assert value == json.loads(data)


@given(VALUES, st.data())
def test_no_bytes_are_read_differently_by_the_quick_and_the_close_reading(
    value: strictjson.JSON, data: st.DataObject
) -> None:
    raw = bytearray(orjson.dumps(value))
    where = data.draw(st.integers(0, len(raw) - 1))
    raw[where] = data.draw(st.sampled_from(b'0aA"\\{}[],:. e-'))
    try:
        closely = strictjson._read_closely(bytes(raw), strictjson._DECODER)
    except InputError:
        assert strictjson._reread(bytes(raw)) is strictjson._UNSURE
    else:
        assert parse_json(bytes(raw)) == closely


@given(st.integers(-(10**64) + 1, 10**64 - 1))
def test_integers_of_up_to_64_digits_are_read_exactly_where_that_is_asked_for(number: int) -> None:
    assert parse_json(b'{"a":[%d]}' % number, exact_integers=True) == {"a": [number]}


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_more_than_64_digits_is_refused_by_its_place(sign: str) -> None:
    data = f'{{"a":{{"n":[{sign}{10**64}]}}}}'.encode()
    with pytest.raises(InputError) as caught:
        parse_json(data, exact_integers=True)
    assert (caught.value.code, caught.value.place) == ("json_too_large", "$.a.n[0]")


def test_messages_quote_and_clip_names_from_outside() -> None:
    name = "evil\\u001b[31m" + "x" * 500
    with pytest.raises(InputError) as caught:
        parse_json(f'{{"{name}":1,"{name}":2}}'.encode())
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_object_is_an_object() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    with pytest.raises(InputError) as caught:
        parse_object(b"[]")
    assert caught.value.code == "json_syntax"


def test_the_reader_stops_at_the_length_it_is_given() -> None:
    assert parse_json(b"[1,2]", max_bytes=5) == [1, 2]
    assert parse_json(b" " * (strictjson.MAX_BYTES - 1) + b"1") == 1
    with pytest.raises(InputError) as caught:
        parse_json(b"[1,2]", max_bytes=4)
    assert caught.value.code == "json_too_large"


@pytest.mark.parametrize(
    "data", [b'{"password":"hunter2" x', b'{"password":"hunter2\xff"}', b'["hunter2",NaN]', b'["hunter2\\ud800"]']
)
def test_an_error_does_not_carry_the_text(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(data)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


def test_places_are_short_and_plain_whatever_the_names_are() -> None:
    for name in ("a" * 200_000, "a\u3164\ufe0f", "a b"):
        with pytest.raises(InputError) as caught:
            parse_json(f'{{"{name}":{{"{name}":NaN}}}}'.encode())
        assert caught.value.place.isprintable()
        assert len(str(caught.value)) < 300
