"""The resource scope: an entry covers what it says, and never more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import FieldInvalid
from remit.policy.call import Effect, Verb
from remit.policy.scope import build_scope, covers, escape_entry, literal_entry
from tests.policy.judging import BASE, mission


def within(resource: str, *entries: str, verb: Verb = "read", cwd: str | None = "/w") -> bool:
    """Tell whether a scope covers an effect; a closing `/…` means anything beneath."""
    beneath = resource.endswith("/…")
    effect = Effect(verb, resource.removesuffix("/…") or "/", "word", beneath=beneath)
    return covers(build_scope(entries, cwd), effect)


@pytest.mark.parametrize(
    ("entry", "resource"),
    [
        ("/a", "/a"),
        ("/a", "/a/b/c"),
        ("/a/", "/a/b"),
        ("/a/./b", "/a/b/c"),
        ("/", "/etc"),
        ("/a", "/a/…"),
        ("/a", "/a/b/…"),
        ("/a/**", "/a/b"),
        ("/a/**", "/a/b/c"),
        ("/a/**", "/a/…"),
        ("/a/*", "/a/b"),
        ("/a/*.py", "/a/x.py"),
        ("/a/**/*.py", "/a/x.py"),
        ("/a/**/*.py", "/a/b/c/x.py"),
        ("/a/?/c", "/a/b/c"),
        ("/a/[bc]", "/a/b"),
        ("/a/[*]", "/a/*"),
        ("/*/b/**", "/a/b/c"),
        ("sub", "/w/sub/x"),
        (".", "/w/x"),
        ("*.py", "/w/x.py"),
        ("**", "/anything"),
    ],
)
def test_an_entry_covers_what_lies_beneath_it(entry: str, resource: str) -> None:
    assert within(resource, entry)


@pytest.mark.parametrize(
    ("entry", "resource"),
    [
        ("/a", "/ab"),
        ("/a", "/"),
        ("/a/b", "/a"),
        ("/a", "/…"),
        ("/a", "/A/b"),
        ("/a/*", "/a/b/c"),
        ("/a/*", "/a"),
        ("/a/*", "/a/…"),
        ("/a/*.py", "/a/x.pyc"),
        ("/a/*.py", "/a/b/x.py"),
        ("/a/**/*.py", "/b/x.py"),
        ("/a/**/*.py", "/a/…"),
        ("/*/b/**", "/a/c"),
        ("/*/b/**", "/a/b"),
        ("~", "/w/~"),
        ("~/a", "/w/~/a"),
        ("../x", "/x"),
        ("/a/../b", "/b"),
        ("/a/%2e%2e/b", "/b"),
        ("//a", "/a"),
        ("C:/a", "/a"),
        ("$HOME", "/w/$HOME"),
        ("https://a.example/", "/https:/a.example"),
    ],
)
def test_an_entry_covers_nothing_else(entry: str, resource: str) -> None:
    assert not within(resource, entry)


def test_an_empty_scope_covers_no_resource() -> None:
    assert not within("/a")
    assert not within("https://a.example/", verb="contact")
    assert within("PATH", verb="setenv")
    assert within("ls", verb="run")


def test_a_relative_entry_without_a_working_directory_covers_nothing() -> None:
    assert not within("/w/sub", "sub", cwd=None)
    assert not within("/w/sub", "sub", cwd="w")
    assert not within("/w/sub", "sub", cwd="~")


@pytest.mark.parametrize("verb", ["write", "delete"])
def test_below_a_directory_does_not_mean_the_directory_itself(verb: Verb) -> None:
    assert within("/a", "/a/**", verb="read")
    assert not within("/a", "/a/**", verb=verb)
    assert within("/a/b", "/a/**", verb=verb)


def test_a_file_with_other_names_is_covered_only_by_its_own_name() -> None:
    effect = Effect("read", "/a/b", "word", shared=True)
    assert not covers(build_scope(("/a",), None), effect)
    assert not covers(build_scope(("/a/*",), None), effect)
    assert covers(build_scope(("/a/b",), None), effect)
    assert covers(build_scope(("**",), None), effect)


def test_raised_privileges_are_covered_by_everything_only() -> None:
    assert not within("superuser", "/", verb="escalate")
    assert within("superuser", "**", verb="escalate")


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("https://a.example", "https://a.example/x"),
        ("https://a.example/", "https://a.example/"),
        ("https://a.example/b", "https://a.example/b"),
        ("https://a.example/b", "https://a.example/b/c"),
        ("https://a.example/b/", "https://a.example/b/c"),
        ("https://a.example/b/**", "https://a.example/b/c"),
        ("https://a.example/*/c", "https://a.example/b/c"),
        ("https://a.example:8443", "https://a.example:8443/x"),
        ("https://*.example.com", "https://a.example.com/"),
        ("https://*.example.com", "https://a.b.example.com/"),
        ("https://**", "https://anywhere.example.com/x"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/x"),
        ("http://localhost", "http://localhost/x"),
        ("host://a.example", "host://a.example:443"),
        ("host://a.example:22", "host://a.example:22"),
        ("**", "http://10.0.0.1/"),
    ],
)
def test_a_url_entry_covers_what_lies_beneath_it(entry: str, url: str) -> None:
    assert within(url, entry, verb="send")


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("https://a.example", "http://a.example/"),
        ("https://a.example", "https://a.example:8443/"),
        ("https://a.example", "https://a.example.evil.example/"),
        ("https://a.example", "https://b.a.example/"),
        ("https://a.example/b", "https://a.example/bc"),
        ("https://a.example/b", "https://a.example/"),
        ("https://a.example/b/**", "https://a.example/b"),
        ("https://a.example/*/c", "https://a.example/b/d"),
        ("https://*.example.com", "https://example.com/"),
        ("https://*.example.com", "https://evilexample.com/"),
        ("https://*.internal", "https://a.internal/"),
        ("https://**", "https://127.0.0.1/"),
        ("https://**", "https://localhost/"),
        ("https://**", "http://a.example.com/"),
        ("https://*", "https://a.example.com/"),
        ("https://a*.example.com", "https://ab.example.com/"),
        ("https://user@a.example", "https://a.example/"),
        ("https://a.example/b", "host://a.example:443"),
        ("https://a.example", "host://a.example:443"),
        ("https://**", "host://a.example:443"),
        ("host://a.example:22", "host://a.example:23"),
        ("host://*", "host://a.example:22"),
        ("/", "https://a.example/"),
    ],
)
def test_a_url_entry_covers_nothing_else(entry: str, url: str) -> None:
    assert not within(url, entry, verb="contact")


def test_relative_paths_start_at_the_working_directory_or_the_first_plain_entry() -> None:
    assert build_scope(("/a", "/b"), "/w").base == "/w"
    assert build_scope(("https://a.example", "/x*", "/a", "/b"), None).base == "/a"
    assert build_scope((), None).base is None
    assert build_scope(mission().resource_scope, mission().cwd).base == BASE


@pytest.mark.parametrize("resource", ["/a/b", "/a/*", "/a/[x]", "/a/?", "/a/[*", "/*", "/a]b"])
def test_an_escaped_entry_means_exactly_its_resource(resource: str) -> None:
    entry = escape_entry(resource)
    assert within(resource, entry)
    assert not within("/a/z", entry)


NAMES = st.lists(st.text("ab*?[]!.-", min_size=1, max_size=4).filter(lambda name: name not in (".", "..")), min_size=1)


@given(NAMES)
def test_every_path_is_covered_by_its_escaped_entry(names: list[str]) -> None:
    path = "/" + "/".join(names[:5])
    assert within(path, escape_entry(path), verb="write")


@given(NAMES, NAMES)
def test_a_literal_entry_covers_a_directory_and_what_lies_in_it_and_nothing_else(
    names: list[str], others: list[str]
) -> None:
    path, other = "/" + "/".join(names[:3]), "/" + "/".join(others[:3])
    entry = literal_entry(path, "$.folder")
    assert within(f"{path}/x", entry, verb="write")
    assert within(f"{path}/…", entry, verb="delete")
    assert within(other, entry) == (other == path or other.startswith(f"{path}/"))


@pytest.mark.parametrize(
    "path", ["a", "/a/..", "/a/", "", "/a\nb", "/a\udcff", "/a\u202eb", "/a/ ", "/$HOME", "/" + "a" * 4096]
)
def test_a_path_that_cannot_be_an_entry_is_refused(path: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        literal_entry(path, "$.folder")
    assert caught.value.place == "$.folder"


def test_wildcards_in_the_working_directory_are_names_to_relative_entries() -> None:
    scope = build_scope((".", "src/*.py"), "/w*")
    assert covers(scope, Effect("write", "/w*/x", ""))
    assert not covers(scope, Effect("read", "/wide/x", ""))
    assert not covers(scope, Effect("read", "/wide/src/a.py", ""))


PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4).map(lambda names: "/" + "/".join(names))
ENTRIES = st.lists(st.sampled_from(["a", "b", "*", "**", "?", "a*"]), max_size=4).map(
    lambda names: "/" + "/".join(names)
)


@given(ENTRIES, ENTRIES, PATHS)
def test_a_second_entry_never_takes_anything_away(first: str, second: str, path: str) -> None:
    assert within(path, first, second) == (within(path, first) or within(path, second))


@given(ENTRIES, PATHS)
def test_beneath_is_covered_only_where_every_name_beneath_is(entry: str, path: str) -> None:
    if within(f"{path}/…", entry):
        assert within(f"{path.removesuffix('/')}/any/name", entry, verb="write")
