"""Which variables of an assistant matter: names alone come out."""

import pytest

from remit.assistants.doctor.processes import relevant_variables

PROXY = "http://someone:s3cret@proxy:3128"


def told(**variables: str) -> tuple[str, ...]:
    return relevant_variables(b"".join(f"{name}={value}\0".encode() for name, value in variables.items()))


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "All_Proxy"])
def test_a_proxy_is_told_by_its_name_however_it_is_spelled(name: str) -> None:
    assert told(PATH="/bin", **{name: PROXY}) == (name,)


@pytest.mark.parametrize("value", ["*", "127.0.0.1", "example.org, 127.0.0.1", "localhost 127.0.0.1"])
def test_a_proxy_that_is_not_for_this_machine_does_not_matter(value: str) -> None:
    assert told(HTTP_PROXY=PROXY, NO_PROXY=value) == ()


@pytest.mark.parametrize("excepted", [{"NO_PROXY": ""}, {"no_proxy": "1127.0.0.1"}, {"NO_PROXY": "*", "no_proxy": "a"}])
def test_a_proxy_matters_unless_all_that_is_excepted_covers_this_machine(excepted: dict[str, str]) -> None:
    assert told(HTTP_PROXY=PROXY, **excepted) == ("HTTP_PROXY",)


@pytest.mark.parametrize(
    ("value", "count"), [("1", 1), ("true", 1), ("anything", 1), ("0", 0), (" False ", 0), ("", 0)]
)
def test_a_switch_counts_unless_it_is_off(value: str, count: int) -> None:
    assert len(told(CLAUDE_CODE_SIMPLE=value)) == count
    assert len(told(CLAUDE_CODE_SAFE_MODE=value)) == count


@pytest.mark.parametrize("environ", [b"", b"\0\0=", b"HTTP_PROXY", b"\xff\xfe=\xff"])
def test_an_environment_that_says_nothing_has_nothing_to_tell(environ: bytes) -> None:
    assert relevant_variables(environ) == ()
