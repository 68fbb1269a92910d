"""Phrases: each is known by its words, and what is not known is an error that names the nearest."""

from pathlib import Path

import pytest

from remit.claims.mission import SIDE_EFFECT_CLASSES
from remit.errors import FieldInvalid
from remit.policy.catalog import known_tools
from remit.policy.scope import build_scope
from remit.profiles.phrases import load_phrases, parse_phrase

VALUES = {
    "program": "npm run lint", "path": "../shared", "site": "example.org", "address": "example.org:22",
    "server": "github", "tool": "Foo", "database": "app_dev", "container": "volume/data", "package": "pip/six",
    "process": "vite", "service": "nginx",
}  # fmt: skip
SPOKEN = [(name, text) for name, known in load_phrases().items() for text in known.says]


def refusal(text: str) -> FieldInvalid:
    with pytest.raises(FieldInvalid) as caught:
        parse_phrase(text, 7)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "line 7")
    return caught.value


@pytest.mark.parametrize(("name", "text"), SPOKEN)
def test_every_way_to_say_a_phrase_is_taken_whatever_its_case(name: str, text: str) -> None:
    kind = load_phrases()[name].kind
    said = text.replace(f"{{{kind}}}", VALUES.get(kind, ""))
    for form in (said, said[0].lower() + said[1:], f"  {said}. "):
        assert parse_phrase(form, 1).name == name


def test_the_page_names_every_phrase() -> None:
    page = (Path(__file__).parents[2] / "docs" / "start" / "profile.md").read_text(encoding="utf-8")
    said = [known.says[0].replace("{", "<").replace("}", ">") for known in load_phrases().values()]
    assert [text for text in said if f"| `{text}` |" not in page] == []


def test_no_two_phrases_are_said_alike() -> None:
    assert len({text.casefold() for _, text in SPOKEN}) == len(SPOKEN)


@pytest.mark.parametrize("name", load_phrases())
def test_the_table_names_tools_phrases_and_side_effects_that_exist(name: str) -> None:
    known = load_phrases()[name]
    tools = {*known.tools, *known.with_tools, *known.blocks}
    assert sorted(tools - known_tools().keys()) == []
    assert set(known.covers) <= load_phrases().keys()
    assert {*known.effects, *known.bars} <= set(SIDE_EFFECT_CLASSES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Run pytest", "pytest"),
        ("Run ctest", "ctest"),
        ("Run `test`", "test"),
        ('Run  "npm   run lint".', "npm run lint"),
        ("Run ./gradlew build", "./gradlew build"),
        ("Run ./Build.sh", "./Build.sh"),
        ("Run `R`", "R"),
        ('Run "make, cmake"', "make, cmake"),
        ("Run npm run test:unit", "npm run test:unit"),
        ("Run go test ./...", "go test ./..."),
        ("Run mvn -DskipTests test", "mvn -DskipTests test"),
        ("Run git checkout -- .", "git checkout -- ."),
        ("Use `../a and b`", "../a and b"),
        ("Use ..", ".."),
        ("Use ../..", "../.."),
        ("Use `My Files`", "My Files"),
        ("Use ~/notes.", "~/notes"),
        ("Read /srv/My Files", "/srv/My Files"),
        ("Reach Example.ORG", "https://example.org"),
        ("Reach https://example.org/docs/", "https://example.org/docs"),
        ("Reach http://localhost:3000", "http://localhost:3000"),
        ("Reach *.example.org", "https://*.example.org"),
        ("Reach 127.0.0.1:8080", "https://127.0.0.1:8080"),
        ("Connect to github.com:22", "github.com:22"),
        ("Use the tools of my-server", "my-server"),
        ("Use the tool mcp__x__y", "mcp__x__y"),
    ],
)
def test_a_value_is_kept_as_it_is_meant(text: str, value: str) -> None:
    assert parse_phrase(text, 1).value == value


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("Read file", "Read files"),
        ("Edit filez", "Edit files"),
        ("Run developper commands", "Run developer commands"),
        ("Run test", "Run tests"),
        ("Use the netwrk", "Use the network"),
        ("Reach the wbe", "Reach the web"),
        ("Start sub agents", "Start subagents"),
        ("Reech example.org", "Reach <site>"),
    ],
)
def test_a_slip_is_an_error_with_the_nearest_phrase(text: str, nearest: str) -> None:
    assert f"“{nearest}”" in refusal(text).problem


HOSTILE = [
    "", "Run", "Reach", "Run -rf", "Run rm; ls", "Run $(x)", "Run a|b", "Run a > b", "Run a*", "Run (x)",
    "Run X=1 ls", "Run a\\b", "Run anything", "Run the thing", "Run all of it", "Run größer", "Use notes",
    "Use the notebook", "Use C:\\x", "Use /a\\b", "Use $HOME/x", "Use //x", "Use https://x.example", "Use ``",
    "Reach example.org; rm", "Reach user@example.org", "Reach ftp://example.org", "Reach **", "Reach *",
    "Reach *example.org", "Reach a.*.org", "Reach https://", "Reach example.org/../x", "Reach example.org/a?b",
    "Reach example.org/%2e", "Reach münchen.example", "Reach 1.2.3", "Reach 0x7f.1", "Reach 999.1.1.1",
    "Reach example.org:0", "Reach example.org:99999", "Reach [::1]", "Connect to *.x.org", "Connect to a:b",
    "Use the tools of *", "Use the tools of a b", "Use the tools of _x", "Use the tool *", "Use the tool B[a]sh",
    "Use the tool Bash(ls)", "Use the tool a b", "Use the tool Foo,Bar", "Use the tool Foo:", "Use ../a, ../b",
    "Use ../a and ../b", "Run make, cmake", "Run make,cmake", "Run make / cmake", "Run git push or git fetch",
    "Run git push AND git fetch", "Run git push because it is dangerous", "Run git push - dangerous", "Run git push:",
    "Run git push...", "Run Git Push", "Run git Push", "Run R", "Run make and",
    "Run " + "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_means_nothing_or_more_than_it_says_is_refused(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    "text", ["example.org", "http://localhost:3000", "*.example.org", "https://a.example/x/y", "10.0.0.1"]
)
def test_a_site_that_is_taken_means_something_in_a_scope(text: str) -> None:
    assert len(build_scope((parse_phrase(f"Reach {text}", 1).value,), None).urls) == 1


def test_the_tools_of_a_server_never_mean_a_tool_of_an_assistant() -> None:
    assert parse_phrase("Use the tools of github", 1).tools == (
        "mcp__github__*",
        "mcp_github_*",
        "github_*",
        "github-*",
    )
    assert parse_phrase("Use the tools of web", 1).tools == ("mcp__web__*", "mcp_web_*", "web-*")
    assert parse_phrase("Use the tools of read", 1).tools == ("mcp__read__*", "mcp_read_*", "read-*")
