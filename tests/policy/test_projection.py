"""From a call to an action: every argument in its role, wherever it hides, and nothing laxer than the catalog says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.claims.strictjson import JSON
from remit.policy.call import MAX_TARGET, SIDE_EFFECT_ORDER, Annotations
from remit.policy.files import LocalFiles
from tests.policy.judging import action, doubted, judged, touched

PATCH = """*** Begin Patch
*** Update File: a.py
*** Move to: /etc/b.py
*** Add File: c.py
*** Delete File: d.py
*** End Patch"""


@pytest.mark.parametrize(
    ("tool", "arguments", "effects"),
    [
        ("Read", {"file_path": "a"}, {"read /work/app/a"}),
        ("Write", {"file_path": "a", "content": "/etc/passwd"}, {"write /work/app/a"}),
        ("Edit", {"file_path": "a", "old_string": "/x", "new_string": "/y"}, {"read /work/app/a", "write /work/app/a"}),
        ("delete_file", {"path": "a"}, {"delete /work/app/a"}),
        (
            "move_file",
            {"source": "a", "destination": "b"},
            {"read /work/app/a", "delete /work/app/a", "write /work/app/b"},
        ),
        ("copy_file", {"source": "/etc/a", "destination": "b"}, {"read /etc/a", "write /work/app/b"}),
        ("Bash", {"command": "cat a"}, {"run cat", "read /work/app/a"}),
        ("WebFetch", {"url": "https://a.example/x?y", "prompt": "/p"}, {"contact https://a.example/x"}),
        ("TodoWrite", {"todos": [{"content": "/etc/passwd"}]}, set()),
        ("python", {"code": "open('/etc/passwd')"}, {"read /etc/passwd"}),
    ],
)
def test_an_argument_is_read_in_the_role_of_the_catalog(
    tool: str, arguments: dict[str, object], effects: set[str]
) -> None:
    assert touched(action(tool, arguments)) == effects  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": ["a", "/etc/passwd"]},
        {"file_path": {"x": "/etc/passwd"}},
        {"file_path": [{"x": ["/etc/passwd"]}]},
        {"file_path": "a", "path": "/etc/passwd"},
        {"file_path": "a", "other": {"deep": [{"file": "/etc/passwd"}]}},
        {"file_path": "a", "other": '{"file": "/etc/passwd"}'},
        {"file_path": "a", "other": {"/etc/passwd": 1}},
        {"file_path": '["a", "/etc/passwd"]'},
    ],
    ids=str,
)
def test_a_path_is_found_wherever_it_hides(arguments: dict[str, object]) -> None:
    assert "read /etc/passwd" in touched(action("Read", arguments))  # type: ignore[arg-type]


def test_lists_of_paths_are_read_one_by_one() -> None:
    assert touched(action("read_multiple_files", {"paths": ["a", "/b"]})) == {"read /work/app/a", "read /b"}


def test_an_argument_inside_a_list_has_its_own_role() -> None:
    edits = [{"oldText": "/x", "newText": "/y"}, {"oldText": "/x", "file": "/etc/z"}]
    effects = touched(action("edit_file", {"path": "a", "edits": edits}))  # type: ignore[dict-item]
    assert "write /etc/z" in effects
    assert not {"read /x", "read /y"} & effects


@pytest.mark.parametrize("value", [None, True, 5, 1.5, [], {}])
def test_what_is_no_text_names_no_resource(value: object) -> None:
    assert action("Read", {"file_path": value}).effects == ()  # type: ignore[dict-item]


def test_relative_paths_start_at_the_directory_of_the_call() -> None:
    assert touched(action("Read", {"file_path": "a"}, cwd="/x")) == {"read /x", "read /x/a"}
    assert touched(action("Read", {"file_path": "a"}, cwd="sub")) == {"read /work/app/sub", "read /work/app/sub/a"}
    assert touched(action("Read", {"file_path": "/y"}, cwd="/x")) == {"read /y"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("TodoWrite", {"todos": [{"content": "x"}]}), ("WebSearch", {"query": "x"}), ("Agent", {"prompt": "x"}),
        ("AskUserQuestion", {"question": "x"}), ("BashOutput", {"bash_id": "1"}),
        ("Read", {"file_path": "/work/app/a"}),
        ("Write", {"file_path": "/work/app/a", "content": "x"}), ("Grep", {"pattern": "x", "path": "/work/app"}),
        ("Glob", {"pattern": "*.py", "path": "/work/app/src"}), ("Bash", {"command": "cat a", "workdir": "/work/app"}),
        ("mcp__x__get_issue", {"id": "7"}), ("mcp__x__read", {"path": "/work/app/a"}),
        ("Edit", {"file_path": "/work/app/a", "old_string": "b", "new_string": "c"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cwd", ["/work", "/elsewhere", "/work/app/../other"])
def test_a_call_that_does_not_use_its_working_directory_is_not_judged_by_it(
    tool: str, arguments: dict[str, JSON], cwd: str
) -> None:
    decision = judged(tool, arguments, cwd=cwd)
    assert decision.permits, decision.reason


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "app/a"}), ("Read", {"file_path": "../work/app/a"}), ("Grep", {"pattern": "x"}),
        ("LS", {}), ("EnterWorktree", {}), ("get_changed_files", {}),
        ("Glob", {"pattern": "app/*.py"}), ("Bash", {"command": "ls"}), ("Bash", {"command": "make"}),
        ("Bash", {"command": "cat a", "workdir": "app"}), ("python", {"code": "open('/work/app/a')"}),
        ("apply_patch", {"input": PATCH.replace("/etc/b.py", "/work/app/b.py")}), ("mcp__x__read", {"path": "app/a"}),
        ("mcp__x__read", {"name": "./app"}),
    ],
)  # fmt: skip
def test_a_call_that_uses_its_working_directory_is_judged_by_it(tool: str, arguments: dict[str, JSON]) -> None:
    assert "read /work" in touched(action(tool, arguments, cwd="/work"))
    assert not judged(tool, arguments, cwd="/work").permits


def test_a_directory_that_is_not_certain_leaves_relative_paths_uncertain() -> None:
    assert doubted(action("Read", {"file_path": "a"}, cwd="$X")) == {"cwd", "file_path"}
    assert doubted(action("Read", {"file_path": "a"}, base=None)) == {"file_path"}


def test_a_base_among_the_arguments_counts_in_any_order() -> None:
    wanted = {"read /etc", "read /etc/…"}
    assert touched(action("Glob", {"pattern": "*.py", "path": "/etc"})) == wanted
    assert touched(action("Glob", {"path": "/etc", "pattern": "*.py"})) == wanted


def test_a_working_directory_among_the_arguments_is_where_a_command_starts() -> None:
    effects = touched(action("shell", {"command": ["cat", "a b"], "workdir": "sub"}))
    assert effects == {"read /work/app/sub", "read /work/app/sub/a b", "run cat"}


def test_a_command_as_a_list_is_words_and_not_a_script() -> None:
    assert touched(action("shell", {"command": ["echo", "$(cat /etc/passwd)", ">", "/etc/x"]})) == set()
    assert "read /etc/passwd" in touched(action("shell", {"command": ["bash", "-lc", "cat /etc/passwd"]}))
    assert "read /etc/passwd" in touched(action("shell", {"command": ["cd src && true", "cat /etc/passwd"]}))


@pytest.mark.parametrize(("tool", "name", "read"), [("Bash", "command", True), ("execute_command", "command", False)])
def test_what_only_bash_reads_so_is_refused_where_another_shell_may_run(tool: str, name: str, read: bool) -> None:
    assert (doubted(action(tool, {name: "cat $'a'"})) == set()) == read


@pytest.mark.parametrize(
    ("pattern", "effects"),
    [
        ("**/*.py", {"read /work/app/…"}),
        ("src/*.py", {"read /work/app/src/…"}),
        ("{src,/etc}/*.py", {"read /work/app/src/…", "read /etc/…"}),
        ("{a,../b}", {"read /work/app/a", "read /work/b"}),
        ("x{1..2}", {"read /work/app/x1", "read /work/app/x2"}),
        ("/etc/passwd", {"read /etc/passwd"}),
        ("../*", {"read /work/…"}),
        ("{a,b,c,d,e,f,g,h,i,j,k,l}{a,b,c,d,e,f,g,h,i,j,k,l}", {"read //…"}),
    ],
)
def test_a_glob_means_what_lies_below_its_fixed_part(pattern: str, effects: set[str]) -> None:
    assert touched(action("Glob", {"pattern": pattern})) - {"read /work/app"} == effects


def test_a_glob_that_goes_upwards_after_a_wildcard_is_a_doubt() -> None:
    assert doubted(action("Glob", {"pattern": "*/../../x"})) == {"pattern"}


def test_a_patch_touches_every_file_it_names() -> None:
    effects = touched(action("apply_patch", {"input": PATCH}))
    assert {"write /work/app/a.py", "write /etc/b.py", "write /work/app/c.py", "write /work/app/d.py"} <= effects


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("--- a/x\n+++ b/y\n", "write /work/app/y"),
        ("--- /dev/null\n+++ b/../z\n", "write /work/z"),
        ("--- x\t2020-01-01\n+++ /etc/y\t2020-01-01\n", "write /etc/y"),
        ("rename from a\nrename to /etc/b\n", "write /etc/b"),
        ("diff --git a/x b/x\ncopy from x\ncopy to ../y", "write /work/y"),
    ],
)
def test_a_diff_touches_every_file_it_names(text: str, effect: str) -> None:
    assert effect in touched(action("apply_patch", {"patch": text}))


@pytest.mark.parametrize(
    ("tool", "arguments", "missing"),
    [
        ("Read", {}, "file_path"), ("Read", {"file_path": None}, "file_path"), ("Read", {"limit": 3}, "file_path"),
        ("Bash", {}, "command"), ("Bash", {"description": "x"}, "command"), ("Edit", {"old_string": "a"}, "file_path"),
    ],
)  # fmt: skip
def test_a_known_tool_that_is_told_nothing_to_work_on_is_a_doubt(
    tool: str, arguments: dict[str, JSON], missing: str
) -> None:
    decision = judged(tool, arguments)
    assert (decision.code, doubted(decision)) == ("target_unknown", {missing})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Glob", {}), ("Grep", {"pattern": "x"}), ("LS", {}), ("Bash", {"command": ""}), ("Read", {"filename": "a"}),
        ("MultiEdit", {"edits": [{"file_path": "a"}]}),
    ],
)  # fmt: skip
def test_what_may_be_left_out_is_not_missing(tool: str, arguments: dict[str, JSON]) -> None:
    assert judged(tool, arguments).permits


def test_a_patch_without_a_file_is_a_doubt() -> None:
    assert doubted(action("apply_patch", {"input": "hello"})) == {"input"}


@pytest.mark.parametrize(
    ("query", "sides"),
    [("SELECT 1", {"none"}), ("DROP TABLE x", {"state_change"}), ("SELECT 1; DELETE FROM x", {"state_change"})],
)
def test_a_query_has_the_side_effects_of_its_words(query: str, sides: set[str]) -> None:
    assert action("read_query", {"query": query}).side_effects == sides


@pytest.mark.parametrize(
    ("method", "effect", "side"),
    [
        ("GET", "contact", "none"),
        ("head", "contact", "none"),
        ("POST", "send", "external_send"),
        ("delete", "send", "external_send"),
        ("", "contact", "none"),
        (["GET"], "send", "external_send"),
        (None, "send", "external_send"),
    ],
)
def test_a_request_sends_unless_its_method_is_known_not_to(method: object, effect: str, side: str) -> None:
    given = action("http_request", {"url": "https://a.example/x", "method": method})  # type: ignore[dict-item]
    assert f"{effect} https://a.example/x" in touched(given)
    assert given.side_effect_class == side


TOOLS = ["Read", "Write", "Bash", "WebFetch", "get_it", "frobnicate", "send_it"]
SAID = st.sampled_from([None, True, False])


@given(st.sampled_from(TOOLS), st.builds(Annotations, SAID, SAID, SAID))
def test_what_a_server_says_never_makes_an_action_laxer(tool: str, annotations: Annotations) -> None:
    arguments = {"file_path": "a", "command": "rm a", "url": "https://a.example/x"}
    plain, said = action(tool, arguments), action(tool, arguments, annotations=annotations)
    assert plain.side_effects - {"none"} <= said.side_effects
    assert SIDE_EFFECT_ORDER.index(plain.side_effect_class) <= SIDE_EFFECT_ORDER.index(said.side_effect_class)
    assert (plain.effects, plain.doubts) == (said.effects, said.doubts)


@pytest.mark.parametrize(
    ("annotations", "side"),
    [
        (Annotations(read_only=False), "internal_write"),
        (Annotations(destructive=True), "state_change"),
        (Annotations(read_only=False, open_world=True), "external_send"),
        (Annotations(read_only=True, destructive=True), "none"),
        (Annotations(read_only=True), "none"),
    ],
)
def test_what_a_server_admits_is_believed(annotations: Annotations, side: str) -> None:
    assert action("get_it", {}, annotations=annotations).side_effect_class == side


def test_a_long_target_is_clipped_and_judged_whole() -> None:
    given = action("Read", {"file_path": "/" + "x" * 3000})
    assert len(given.target) == MAX_TARGET == 2048
    assert len(given.effects[0].resource) == 3001
    assert judged("Read", {"file_path": "/work/app/" + "x" * 3000}).permits


@pytest.mark.parametrize(
    ("tool", "arguments", "target"),
    [
        ("Read", {"file_path": "a"}, "/work/app/a"),
        ("Bash", {"command": "cat a; rm b; curl https://a.example/c"}, "/work/app/b"),
        ("Bash", {"command": "cat a; curl -d x https://a.example/c"}, "https://a.example/c"),
        ("Bash", {"command": "true"}, "Bash"),
        ("frobnicate", {}, "frobnicate"),
    ],
)
def test_a_receipt_names_the_gravest_resource(tool: str, arguments: dict[str, str], target: str) -> None:
    assert action(tool, dict(arguments)).target == target


@pytest.mark.parametrize(
    ("tool", "arguments", "target"),
    [
        ("desktop_observe", {"target": "Inbox (3) - Mail"}, "Inbox (3) - Mail"),
        ("desktop_observe", {"target": "  Inbox\t(3)\n -\u3000Mail "}, "Inbox (3) - Mail"),
        ("browser_observe", {"target": "#prompt", "action_class": "send"}, "#prompt"),
        ("browser_observe", {"target": "   "}, "browser_observe"),
        ("browser_observe", {"target": "https://u:x@h.example/a"}, "https://u:x@h.example/a"),
        ("cli_observe", {"target": "\u202egnp.exe\x1b[31m"}, "\\u202egnp.exe\\u001b[31m"),
        ("cli_observe", {"target": "a\ud800b"}, "a\\ud800b"),
        ("cli_observe", {"target": "Build 7", "cwd": "/work/app/sub"}, "Build 7"),
        ("WebSearch", {"query": "how to  fold white space"}, "how to fold white space"),
        ("Read", {"file_path": "~/notes.md"}, "~/notes.md"),
        ("frobnicate", {"path": "~/notes.md"}, "~/notes.md"),
        ("frobnicate", {"title": "hello"}, "frobnicate"),
    ],
)
def test_a_target_that_is_neither_path_nor_url_is_kept_as_text(
    tool: str, arguments: dict[str, str], target: str
) -> None:
    assert action(tool, dict(arguments)).target == target


@pytest.mark.parametrize(
    ("tool", "name"),
    [("Read", "file_path"), ("desktop_observe", "target"), ("frobnicate", "path"), ("Write", "file_path")],
)
@pytest.mark.parametrize("text", ["/work/app/" + "x" * 5000, "word " * 1000, "/work/\x01" + "\x01" * 5000])
def test_a_target_that_is_too_long_is_clipped_and_not_replaced(tool: str, name: str, text: str) -> None:
    given = action(tool, {name: text})
    assert len(given.target) == MAX_TARGET
    assert given.target[:5] == text[:5]


@pytest.mark.parametrize("text", ["sub", "/work/app/sub"])
def test_a_receipt_names_the_file_and_not_the_directory_it_is_seen_from(text: str) -> None:
    assert action("Read", {"file_path": "a"}, cwd=text).target == "/work/app/sub/a"


@pytest.mark.parametrize(
    ("text", "action_class"),
    [("cat a", "read"), ("rm a", "write"), ("kill 1", "write"), ("curl -d x https://a.example", "send")],
)
def test_a_command_is_classed_by_what_it_does(text: str, action_class: str) -> None:
    given = action("Bash", {"command": text})
    assert (given.action_class, given.resource_family) == (action_class, "shell")


def test_an_action_names_every_side_effect_and_the_gravest_alone_for_a_receipt() -> None:
    given = action("Bash", {"command": "rm a; kill 1; curl -d x https://a.example"})
    assert given.side_effects == {"internal_write", "state_change", "external_send"}
    assert given.side_effect_class == "external_send"


def test_a_prompt_of_opencode_reads_the_files_that_it_mentions(tmp_path: Path) -> None:
    top = tmp_path.resolve() / "app"
    inner = top / "sub"
    (top / ".git").mkdir(parents=True)
    inner.mkdir()
    files = (top / "a.py", inner / "b.py", top / "key.txt")
    for place in files:
        place.write_text("x", encoding="utf-8")
    prompt = "compare @a.py with `@key.txt`, @b.py, me@key.txt and @../key.txt . Ask @nobody."
    given = action("task", {"prompt": prompt}, base=str(inner), files=LocalFiles(str(tmp_path)))
    assert touched(given) == {f"read {file}" for file in files}
    assert doubted(action("task", {"prompt": "see @~/.netrc."}, base=str(inner), files=LocalFiles(str(tmp_path))))


@pytest.mark.parametrize("before", ["\u00e9", "\u4e2d", "\u0661", " ", "(", ""])
@pytest.mark.parametrize("behind", ["", " ", "\u00a0", "\ufeff", "\u3000", ",", ". "])
def test_a_mention_is_read_with_the_letters_and_blanks_of_javascript(before: str, behind: str) -> None:
    assert "read /work/x.txt" in touched(action("task", {"prompt": f"{before}@../x.txt{behind}"}))
    assert touched(action("task", {"prompt": f"a@../x.txt{behind}"})) == set()


def test_where_files_are_not_seen_whatever_a_prompt_mentions_is_read() -> None:
    given = action("task", {"prompt": "ask @nobody"})
    assert touched(given) == {"read /work/app/nobody"}


@pytest.mark.parametrize("shell", ["bash", "/usr/bin/bash", "sh", ""])
def test_a_command_is_judged_for_the_shell_that_reads_it(shell: str) -> None:
    assert judged("exec_command", {"cmd": "cat a", "shell": shell}).permits
    assert judged("exec_command", {"cmd": "[[ -f a ]]", "shell": shell}).permits == ("bash" in shell or not shell)


@pytest.mark.parametrize("shell", ["pwsh", "/bin/zsh", "fish", "./bash", "bin/sh", "/tmp/bash", "nu"])
def test_commands_for_other_shells_are_doubted(shell: str) -> None:
    assert doubted(action("exec_command", {"cmd": "cat a", "shell": shell})) == {"shell"}
