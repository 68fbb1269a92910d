"""Tools that no catalog knows: in doubt an argument is a resource, and a name that says nothing changes state."""

import pytest

from remit.policy.guess import guess_action
from tests.policy.judging import action, doubted, judged, mission, touched


@pytest.mark.parametrize(
    ("name", "action_class", "side"),
    [
        ("get_weather", "read", "none"),
        ("listIssues", "read", "none"),
        ("search-docs", "search", "none"),
        ("summarize_page", "summarize", "none"),
        ("watch_screen", "observe", "none"),
        ("spawn_worker", "delegate", "state_change"),
        ("send_email", "send", "external_send"),
        ("postMessage", "send", "external_send"),
        ("mcp__x__upload_photo", "send", "external_send"),
        ("create_note", "write", "internal_write"),
        ("writeRow", "write", "internal_write"),
        ("frobnicate", "write", "state_change"),
        ("", "write", "state_change"),
        ("getaway", "write", "state_change"),
    ],
)
def test_the_first_telling_word_of_a_name_decides(name: str, action_class: str, side: str) -> None:
    given, _, effect = guess_action(name)
    assert (given, effect) == (action_class, side)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "x"),
        ("filePath", "x"),
        ("file_name", "x"),
        ("outputDir", "x"),
        ("source", "x"),
        ("anything", "./x"),
        ("anything", "../app/x"),
        ("anything", "/work/app/x"),
        ("anything", "sub/../x"),
    ],
)
def test_an_argument_that_is_named_or_reads_like_a_path_is_one(name: str, value: str) -> None:
    assert "read /work/app/x" in touched(action("get_it", {name: value}))


@pytest.mark.parametrize(
    "value", ["~/x", "C:\\x", "\\\\host\\x", "$HOME/x", "${HOME}/x", "..\\x", "%2e%2e%2fx", "file:///x"]
)
def test_an_argument_that_reads_like_a_path_elsewhere_is_a_doubt(value: str) -> None:
    assert "anything" in doubted(action("get_it", {"anything": value}))


@pytest.mark.parametrize("value", ["hello", "a b c", "1/2", "and/or", "line one\n/etc/passwd", "", "x.y", "v1.2"])
def test_plain_text_is_no_resource(value: str) -> None:
    given = action("get_it", {"anything": value})
    assert (given.effects, given.doubts) == ((), ())


@pytest.mark.parametrize("name", ["content", "old_string", "prompt", "regex"])
def test_names_that_every_tool_uses_for_text_hold_text(name: str) -> None:
    assert action("get_it", {name: "/etc/passwd"}).effects == ()


@pytest.mark.parametrize(
    ("tool", "effect"),
    [
        ("get_page", "contact https://a.example/x"),
        ("send_page", "send https://a.example/x"),
        ("frobnicate", "send https://a.example/x"),
    ],
)
def test_a_url_is_contacted_and_only_a_reading_tool_sends_nothing(tool: str, effect: str) -> None:
    assert effect in touched(action(tool, {"anything": "https://a.example/x"}))


def test_a_name_for_urls_makes_a_bare_host_one() -> None:
    assert "contact http://a.example/" in touched(action("get_page", {"url": "a.example"}))


def test_a_tool_that_does_not_only_read_may_write_what_it_names() -> None:
    assert {"read /work/app/x", "write /work/app/x"} <= touched(action("frobnicate", {"path": "x"}))


@pytest.mark.parametrize(
    ("tool", "name"), [("run_it", "command"), ("my_shell", "cmd"), ("frobnicate", "command"), ("exec", "commands")]
)
def test_a_command_is_read_as_one(tool: str, name: str) -> None:
    assert "read /etc/passwd" in touched(action(tool, {name: "cat /etc/passwd"}))


def test_a_command_of_one_word_is_only_one_for_a_tool_that_runs_commands() -> None:
    assert touched(action("get_help", {"command": "ls"})) == set()
    assert "run ls" in touched(action("run_shell", {"command": "ls"}))


def test_code_that_a_shell_tool_runs_is_a_doubt() -> None:
    assert "code" in doubted(action("execute_thing", {"code": "x = 1"}))
    assert doubted(action("get_thing", {"code": "x = 1"})) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": {"b": {"path": "/etc/passwd"}}},
        {"a": [{"b": ["/etc/passwd"]}]},
        {"paths": ["x", "/etc/passwd"]},
        {"a": '{"path": "/etc/passwd"}'},
        {"a": '[{"b": "/etc/passwd"}]'},
        {"a": '{"b": "{\\"c\\": \\"/etc/passwd\\"}"}'},
        {"/etc/passwd": True},
        {"a": {"/etc/passwd": 1}},
    ],
    ids=str,
)
def test_a_resource_is_found_at_any_depth(arguments: dict[str, object]) -> None:
    assert "read /etc/passwd" in touched(action("get_it", arguments))  # type: ignore[arg-type]


def test_json_within_json_more_often_than_we_look_is_a_doubt() -> None:
    text = '"/etc/passwd"'
    for _ in range(6):
        text = '{"a": ' + ('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"') + "}"
    given = action("get_it", {"a": text})
    assert given.doubts or "read /etc/passwd" in touched(given)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_page", {"url": "https://a.example/x"}),
        ("read_thing", {"path": "/work/app/src/x"}),
        ("my_shell", {"cmd": "ls src"}),
    ],
)
def test_the_name_of_an_argument_is_no_resource_itself(tool: str, arguments: dict[str, str]) -> None:
    under = mission(resource_scope=("/work/app/src", "https://a.example"))
    assert judged(tool, dict(arguments), under=under).permits
