"""Which hooks Codex trusts, as a program tells it that speaks as Codex does."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from remit.assistants.install.trust import list_hooks, trust_settings
from remit.errors import FieldInvalid
from tests.assistants.protection.places import ID

SPEAKS = """#!{python} -I
import json, sys
said = {said}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") == 1:
        print(json.dumps({{"id": 1, "result": {{}}}}), flush=True)
        print(json.dumps({{"method": "configWarning", "params": {{}}}}), flush=True)
    if message.get("id") == 2:
        print(said, flush=True)
"""


def speaking(tmp_path: Path, said: str) -> str:
    """Return a program that answers with a line once it is asked for hooks."""
    program = tmp_path / "codex"
    program.write_text(SPEAKS.format(python=sys.executable, said=repr(said)), encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def hook(number: int, status: str = "untrusted", command: str = f"python hook.py {ID}.wire.json") -> dict[str, Any]:
    return {
        "key": f'/a "b"/hooks.json:pre_tool_use:{number}:0',
        "command": command,
        "currentHash": f"sha256:{number}",
        "trustStatus": status,
    }


def test_codex_is_asked_for_the_hooks_of_a_folder(tmp_path: Path) -> None:
    hooks = [hook(0), hook(1)]
    program = speaking(tmp_path, json.dumps({"id": 2, "result": {"data": [{"hooks": hooks}]}}))
    assert list_hooks(program, str(tmp_path)) == hooks


@pytest.mark.parametrize(
    "said", ["", "no", "[]", '{"id": 2}', '{"id": 2, "error": {}}', '{"id": 2, "result": {"data": []}}']
)
def test_an_answer_that_tells_no_hooks_is_refused(tmp_path: Path, said: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        list_hooks(speaking(tmp_path, said), str(tmp_path))
    assert refused.value.place == "--program"


@pytest.mark.parametrize("program", ["", "/nowhere/codex", "/bin/true"])
def test_a_program_that_is_none_is_refused(program: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        list_hooks(program, "/")
    assert refused.value.place == "--program"


def test_hooks_of_the_protection_are_trusted_by_their_names_and_digests_and_no_others() -> None:
    hooks = [hook(0), hook(1, command="curl evil"), hook(2)]
    state = tomllib.loads(trust_settings(hooks, ID, 2))["hooks"]["state"]
    assert state == {hooks[n]["key"]: {"trusted_hash": hooks[n]["currentHash"]} for n in (0, 2)}


def test_hooks_that_are_trusted_already_are_not_named_again() -> None:
    assert trust_settings([hook(0, "trusted"), hook(1, "trusted")], ID, 2) == ""


@pytest.mark.parametrize("hooks", [[], [hook(0)], [hook(0), hook(1), hook(2)]])
def test_hooks_that_codex_does_not_see_as_they_were_written_are_not_called_protected(hooks: list[Any]) -> None:
    with pytest.raises(FieldInvalid) as refused:
        trust_settings(hooks, ID, 2)
    assert refused.value.place == "--settings"
