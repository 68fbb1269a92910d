"""What single headers say. What follows from it is tested with the application."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.server.headers import accepts_gzip, bearer, cookie, join_repeated


def test_of_headers_that_stand_twice_both_are_there() -> None:
    sent = join_repeated([(b"a", b"1"), (b"host", b"x"), (b"a", b"2"), (b"host", b"x"), (b"a", b"3")])
    assert sent == {b"a": b"1, 2, 3", b"host": b"x, x"}
    assert join_repeated([(b"a", b"1"), (b"b", b"2")]) == {b"a": b"1", b"b": b"2"}


@pytest.mark.parametrize(
    ("listed", "accepted"),
    [
        (b"", False), (b"gzip", True), (b"GZip", True), (b"x-gzip", True), (b"deflate, gzip, br, zstd", True),
        (b"*", True), (b"*;q=0.1", True), (b"*;q=0", False), (b"identity", False), (b"br", False), (b"gzipped", False),
        (b"gzip;q=0", False), (b"gzip;q=0.0", False), (b"gzip; q=0.000", False), (b"gzip;Q=0", False),
        (b"gzip;q=0.001", True), (b"gzip ; q=1.000", True), (b"gzip;q=0, *", False), (b"*;q=0, gzip", True),
        (b"x-gzip;q=0", False), (b"identity, gzip;q=0.5", False), (b"identity;q=0.5, gzip;q=0.5", True),
        (b"identity;q=0, *", True), (b"gzip;q=2", False), (b"gzip;q=-1", False), (b"gzip;q=", False),
        (b"gzip;q=0.0001", False), (b"gzip;q=nan", False), (b"gzip;level=1", False), (b"gzip;", False),
        (b";q=1", False), (b",,gzip,", True), (b"br;q=1, gzip;q=0.2", True),
    ],
)  # fmt: skip
def test_gzip_is_accepted_where_it_is_asked_for(listed: bytes, accepted: bool) -> None:
    assert accepts_gzip({b"accept-encoding": listed}) is accepted


def test_without_a_word_nothing_is_encoded() -> None:
    assert not accepts_gzip({})


@given(st.binary(max_size=30))
def test_whatever_is_listed_it_is_accepted_or_not(listed: bytes) -> None:
    assert accepts_gzip({b"accept-encoding": listed}) in (True, False)


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        (b"c=1", "1"), (b"a=b; c=1; d=2", "1"), (b"c=1; c=2", "1"), (b"a=b;c=1", "1"), (b"c=1=2", "1=2"), (b"c=", ""),
        (b"c", ""), (b"C=1", ""), (b"cc=1", ""), (b"a=c=1", ""), (b"", ""), (b"; ;c=1", "1"), (b"c =1", ""),
        (b"a=b, c=1", ""), (b"c=\xff", "\u00ff"),
    ],
)  # fmt: skip
def test_of_cookies_the_first_of_the_name_counts(sent: bytes, value: str) -> None:
    assert cookie({b"cookie": sent}, b"c") == value


def test_nothing_is_read_from_headers_that_are_not_there() -> None:
    assert (cookie({}, b"c"), bearer({})) == ("", "")
