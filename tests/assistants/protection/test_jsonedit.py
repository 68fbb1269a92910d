"""Entries and members in JSON files: put in, taken back, and everything else byte for byte as it was."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.assistants.install.jsonedit import add_entries, remove_entries, restore_members, set_member, still_set
from remit.assistants.install.plan import Entry, Member
from remit.assistants.records import SetMember
from remit.errors import (
    FieldInvalid,
    InputError,
    JsonDuplicateMember,
    JsonNotUtf8,
    JsonSyntax,
    JsonTooDeep,
    JsonTooLarge,
)

MARK = "prot-0123456789ab"
OURS = Entry(("hooks", "PreToolUse"), {"matcher": "*", "hooks": [{"url": f"/{MARK}"}]})
OFF = "disableSkillShellExecution"
SET = Member((OFF,), value=True)
DEEP = Member(("deep", "off"), {"a": [True]})
BOM = b"\xef\xbb\xbf"

SHAPES = {
    "an empty object": b"{}",
    "an empty object and a line end": b"{}\n",
    "other members": b'{\n  "model": "x",\n  "unknown": [1, 2.50, null]\n}\n',
    "other hooks": b'{\n  "hooks": {\n    "Stop": [\n      {"hooks": []}\n    ]\n  }\n}\n',
    "the same event": b'{\n  "hooks": {\n    "PreToolUse": [\n      {\n        "hooks": []\n      }\n    ]\n  }\n}\n',
    "the same event in one line": (
        b'{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}, "z": 1}'
    ),
    "an empty array": b'{\n    "hooks": {"PreToolUse": []}\n}',
    "minified": b'{"a":1,"hooks":{"PreToolUse":[{"hooks":[]}]},"b":"x"}',
    "tabs": b'{\n\t"a": {\n\t\t"b": 1\n\t}\n}\n',
    "other line ends": b'{\r\n  "a": 1,\r\n  "hooks": {}\r\n}\r\n',
    "a byte order mark": BOM + b'{\n  "a": 1\n}',
    "no final line end": b'{\n  "a": 1\n}',
    "odd spaces": b' {  "a" :1 ,\n\n"hooks":{ "Stop" :[ ] } }  \n',
    "escapes": (
        b'{\n  "\\u0068ooks": {"PreToolUse": [{"a": "}],{\\"//\\\\", "hooks": []}]},\n  "\xc3\xa4": "\\ud83d\\ude00"\n}'
    ),
    "the member off": b'{\n  "disableSkillShellExecution" :  false,\n  "a": 1\n}\n',
    "the member of another type": b'{"disableSkillShellExecution": {"a":\t[1]}}',
    "the member almost right": b'{"disableSkillShellExecution":1}',
    "the member right": b'{"disableSkillShellExecution": true, "a": 1}',
    "deep": b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}",
}

REFUSED: dict[str, tuple[bytes, type[InputError]]] = {
    "a comment": (b'{\n  // why\n  "a": 1\n}', JsonSyntax),
    "a trailing comma": (b'{"a": 1,}', JsonSyntax),
    "no JSON": (b"hooks: {}", JsonSyntax),
    "half of it": (b'{"a": [1, 2', JsonSyntax),
    "a member twice": (b'{"hooks": {}, "hooks": {}}', JsonDuplicateMember),
    "another coding": (b'{"a": "\xe4"}', JsonNotUtf8),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), JsonNotUtf8),
    "an array at the top": (b"[]", FieldInvalid),
    "a text at the top": (b'"hooks"', FieldInvalid),
    "hooks of another type": (b'{"hooks": []}', FieldInvalid),
    "an event of another type": (b'{"hooks": {"PreToolUse": {}}}', FieldInvalid),
    "too deep": (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", JsonTooDeep),
    "too large": (b'{"a": "' + b"x" * (1 << 20) + b'"}', JsonTooLarge),
}


def with_ours(value: dict[str, Any]) -> dict[str, Any]:
    hooks = value.get("hooks", {})
    return {**value, "hooks": {**hooks, "PreToolUse": [*hooks.get("PreToolUse", []), OURS.value]}}


@pytest.mark.parametrize("data", SHAPES.values(), ids=SHAPES.keys())
def test_an_entry_is_added_and_its_removal_gives_back_every_byte(data: bytes) -> None:
    after = add_entries(data, [OURS])
    plain = data.removeprefix(BOM)
    assert json.loads(after.removeprefix(BOM)) == with_ours(json.loads(plain))
    assert after.startswith(BOM) == data.startswith(BOM)
    assert remove_entries(after, MARK, data) == data


@pytest.mark.parametrize(("data", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_read_or_does_not_fit_is_refused(data: bytes, error: type[InputError]) -> None:
    with pytest.raises(error) as refused:
        add_entries(data, [OURS])
    assert refused.value.code == error.code


def test_a_comment_is_named_by_its_line_and_slashes_in_a_text_are_none() -> None:
    with pytest.raises(JsonSyntax) as refused:
        add_entries(b'{\n  "url": "http://x",\n  /* why */ "a": 1\n}', [OURS])
    assert "comments (line 3)" in refused.value.problem
    with pytest.raises(JsonSyntax) as refused:
        add_entries(b'{"url": "http://x",}', [OURS])
    assert "comments" not in refused.value.problem


@pytest.mark.parametrize("data", [None, b"", b" \n"])
def test_a_file_that_says_nothing_begins_with_the_entries(data: bytes | None) -> None:
    after = add_entries(data, [OURS])
    assert json.loads(after) == with_ours({})
    assert after.endswith(b"}\n")


def test_the_manner_of_the_file_is_followed() -> None:
    assert add_entries(SHAPES["minified"], [OURS]).count(b" ") == 0
    assert b"\n" not in add_entries(SHAPES["other line ends"], [OURS]).replace(b"\r\n", b"")
    tabbed = add_entries(SHAPES["tabs"], [OURS]).decode().splitlines()
    assert all(not line.startswith(" ") for line in tabbed)
    assert '\t"hooks": {' in tabbed


def test_several_entries_find_each_other() -> None:
    entries = [OURS, Entry(("hooks", "Stop"), MARK), Entry(("hooks", "Stop"), [MARK])]
    after = add_entries(b"{}", entries)
    assert json.loads(after)["hooks"] == {"PreToolUse": [OURS.value], "Stop": [MARK, [MARK]]}
    assert remove_entries(after, MARK, b"{}") == b"{}"


def test_an_entry_of_others_in_a_group_of_ours_stays() -> None:
    theirs = {"url": "/other", "args": ["prot-ffffffffffff"]}
    settings = {"hooks": {"PreToolUse": [{"hooks": [{"args": ["-x", f"/{MARK}"]}, theirs]}]}}
    left = json.loads(remove_entries(json.dumps(settings).encode(), MARK))
    assert left == {"hooks": {"PreToolUse": [{"hooks": [theirs]}]}}


def test_what_is_empty_then_stays_only_if_it_was_so_before() -> None:
    after = add_entries(b'{"hooks": {"PreToolUse": []}}', [OURS])
    assert json.loads(remove_entries(after, MARK, b'{"hooks": {}}')) == {"hooks": {}}
    assert json.loads(remove_entries(after, MARK, b'{"hooks": {"PreToolUse": []}}')) == {"hooks": {"PreToolUse": []}}
    assert remove_entries(after, MARK) == b"{}"


def test_the_name_of_a_protection_elsewhere_is_not_an_entry_of_it() -> None:
    data = json.dumps({"note": f"see {MARK}", MARK: {"why": MARK}}).encode()
    assert remove_entries(data, MARK) == data


def with_members(data: bytes | None, *members: Member) -> tuple[bytes, list[SetMember]]:
    """Return the file with members set, and what that has changed."""
    changes = list[SetMember]()
    for member in members:
        data, changed = set_member(data, member)
        changes += [changed] if changed else []
    return data or b"", changes


@pytest.mark.parametrize("data", SHAPES.values(), ids=SHAPES.keys())
def test_members_are_set_and_putting_them_back_gives_back_every_byte(data: bytes) -> None:
    after, changes = with_members(data, SET, DEEP)
    said = json.loads(after.removeprefix(BOM))
    assert said == {**json.loads(data.removeprefix(BOM)), OFF: True, "deep": {"off": {"a": [True]}}}
    assert said[OFF] is True
    assert with_members(after, SET, DEEP) == (after, [])
    assert restore_members(after, changes, data) == data


def test_setting_a_member_follows_the_manner_of_the_file() -> None:
    assert set_member(b'{"a":1}', SET)[0] == b'{"a":1,"disableSkillShellExecution":true}'
    tabbed, _ = set_member(b'{\r\n\t"deep": {\r\n\t\t"off": 1\r\n\t}\r\n}', DEEP)
    assert b'\t\t"off": {\r\n\t\t\t"a": [\r\n\t\t\t\ttrue\r\n' in tabbed


@pytest.mark.parametrize("data", [b"[]", b'"deep"', b'{"deep": []}', b'{"deep": "off"}', b'{"deep": null}'])
def test_a_member_of_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(FieldInvalid) as refused:
        set_member(data, DEEP)
    assert refused.value.code == "field_invalid"


@pytest.mark.parametrize(
    "now", [b"{}", b'{"disableSkillShellExecution": 1}', b'{"disableSkillShellExecution": null}', b""]
)
def test_a_member_that_others_have_changed_since_is_not_put_back(now: bytes) -> None:
    ours = [SetMember(where=(OFF,), value=True, former="false")]
    assert (restore_members(now, ours), still_set(now, ours)) == (now, ())


def test_members_stay_as_long_as_a_protection_has_entries_beside_them() -> None:
    after, changes = with_members(b'{"note": "prot-ffffffffffff"}', SET)
    shared = add_entries(after, [OURS])
    assert restore_members(shared, changes) == shared
    assert restore_members(after, changes) == b'{"note": "prot-ffffffffffff"}'
    assert still_set(shared, changes) == tuple(changes)


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=12,
)
_HOOKS = st.fixed_dictionaries({}, optional={"PreToolUse": st.lists(_VALUES, max_size=3), "Stop": _VALUES})
_OBJECTS = st.fixed_dictionaries({}, optional={"off": _VALUES, "on": _VALUES})
_SETTINGS = st.fixed_dictionaries(
    {}, optional={"hooks": _HOOKS, "a": _VALUES, "\u00e4": _VALUES, OFF: _VALUES, "deep": _OBJECTS}
)


@given(
    _SETTINGS,
    st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\n"]),
)
def test_whatever_the_settings_and_their_manner_removal_is_the_inverse(
    value: dict[str, Any], indent: int | str | None, ascii_only: bool, line_end: str, final: str
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).replace("\n", line_end)
    data = (text + final).encode()
    after, changes = with_members(data, SET, DEEP)
    after = add_entries(after, [OURS])
    deep = {**value.get("deep", {}), "off": DEEP.value}
    assert json.loads(after) == {**with_ours(value), OFF: True, "deep": deep}
    assert restore_members(remove_entries(after, MARK, data), changes, data) == data
