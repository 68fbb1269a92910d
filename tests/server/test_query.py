"""What stands behind the question mark has one reading, or none."""

from contextlib import suppress
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import FieldInvalid
from remit.server.query import MAX_FIELDS, parse_query


@pytest.mark.parametrize(
    ("data", "query"),
    [
        (b"", {}), (b"a=b", {"a": "b"}), (b"a=b&c=d", {"a": "b", "c": "d"}), (b"a", {"a": ""}), (b"a=", {"a": ""}),
        (b"=a", {"": "a"}), (b"a=b=c", {"a": "b=c"}), (b"a=b+c", {"a": "b c"}), (b"a=b%20c%26", {"a": "b c&"}),
        (b"%61=%C3%A4", {"a": "\u00e4"}), (b"&&a=b&", {"a": "b"}), (b"a=b;c=d", {"a": "b;c=d"}),
        (b"A=1&a=2", {"A": "1", "a": "2"}),
    ],
)  # fmt: skip
def test_fields_are_told_apart_and_decoded(data: bytes, query: dict[str, str]) -> None:
    assert parse_query(data) == query


@pytest.mark.parametrize(
    "data",
    [
        b"a=%FF", b"a=%C3", b"%FF=a", b"a=%ED%A0%80", b"a=\xff", b"a=%", b"a=%2", b"a=%zz", b"a=%+1", b"a=1&a=2",
        b"a=1&a=1", b"a&%61", b"token=x&token=x", b"&" * MAX_FIELDS,
        b"&".join(b"a%d=" % n for n in range(MAX_FIELDS + 1)),
    ],
)  # fmt: skip
def test_what_cannot_be_read_in_one_way_is_refused(data: bytes) -> None:
    with pytest.raises(FieldInvalid) as refused:
        parse_query(data)
    assert refused.value.code == "field_invalid"


def test_as_many_fields_as_may_be_are_read() -> None:
    assert len(parse_query(b"&".join(b"a%d=" % n for n in range(MAX_FIELDS)))) == MAX_FIELDS


def test_values_are_never_quoted() -> None:
    for data in (b"token=secret&token=secret", b"token=secret%", b"token=secret%FF", b"token=secret" + b"&" * 99):
        with pytest.raises(FieldInvalid) as refused:
            parse_query(data)
        assert "secret" not in str(refused.value)


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=MAX_FIELDS))
def test_what_a_browser_writes_is_read_again(query: dict[str, str]) -> None:
    with suppress(UnicodeEncodeError):
        assert parse_query(urlencode(query).encode("ascii")) == query


@given(st.binary(max_size=60))
def test_whatever_is_sent_is_read_or_refused(data: bytes) -> None:
    with suppress(FieldInvalid):
        assert len(parse_query(data)) <= MAX_FIELDS
