"""The templates: each can be read, and does in a real folder what its name promises."""

from pathlib import Path

import pytest

from remit import Mission
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid
from remit.policy.decide import Decision
from remit.policy.files import LocalFiles
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.profile import parse_profile
from remit.profiles.templates import DEFAULT_TEMPLATE, TEMPLATES, template
from tests.policy.judging import judged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path.resolve() / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.py").write_text("x = 1\n", encoding="utf-8")
    return project


def mission(name: str, folder: Path) -> Mission:
    return compile_profile(parse_profile(template(name)), str(folder), "agent:one")


def decided(name: str, folder: Path, tool: str, **arguments: JSON) -> Decision:
    return judged(tool, arguments, under=mission(name, folder), files=LocalFiles())


def commands(name: str, folder: Path, *lines: str) -> dict[str, bool]:
    return {line: decided(name, folder, "Bash", command=line).permits for line in lines}


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_compiles_without_a_remark(name: str, folder: Path) -> None:
    assert remarks_on(parse_profile(template(name))) == []
    assert mission(name, folder).resource_scope == (str(folder),)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_reads_in_the_folder_and_lets_the_assistant_plan(name: str, folder: Path) -> None:
    assert decided(name, folder, "Read", file_path=f"{folder}/src/a.py").permits
    assert decided(name, folder, "Read", file_path="/etc/passwd").code == "out_of_scope"
    for tool in ("TodoWrite", "TaskCreate", "ExitPlanMode", "AskUserQuestion", "ToolSearch"):
        assert decided(name, folder, tool).permits


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_reaches_the_network(name: str, folder: Path) -> None:
    assert not decided(name, folder, "WebFetch", url="https://example.org", prompt="x").permits
    assert not decided(name, folder, "WebSearch", query="x").permits
    lines = (
        "curl https://example.org",
        "git push",
        "git push https://example.org/x",
        "npm install x",
        "ssh example.org",
    )
    assert not any(commands(name, folder, *lines).values())


def test_safe_coding_changes_tests_and_commits_inside_the_folder(folder: Path) -> None:
    assert DEFAULT_TEMPLATE == "safe-coding"
    assert decided(
        "safe-coding", folder, "Edit", file_path=f"{folder}/src/a.py", old_string="1", new_string="2"
    ).permits
    assert decided("safe-coding", folder, "Agent", prompt="x", description="y").permits
    assert decided("safe-coding", folder, "Skill", skill="x").code == "tool_not_allowed"
    lines = ("pytest -q", "git commit -m x", "npm test", "make", "rm src/a.py", "ls | sort > names", "ruff check .")
    assert all(commands("safe-coding", folder, *lines).values())


def test_safe_coding_stays_in_the_folder(folder: Path) -> None:
    assert decided("safe-coding", folder, "Write", file_path="/etc/x", content="").code == "out_of_scope"
    (folder / "out").symlink_to("/etc")
    assert decided("safe-coding", folder, "Write", file_path=f"{folder}/out/x", content="").code == "out_of_scope"
    lines = ("cat /etc/passwd", "echo x > ../y", "sudo ls", "rm -rf /", "cp src/a.py /tmp/x")
    assert not any(commands("safe-coding", folder, *lines).values())


def test_safe_coding_leaves_the_state_of_the_machine_alone(folder: Path) -> None:
    changing = (
        "dropdb x", "psql -c 'drop table x'", "docker system prune -af", "docker compose down", "pip uninstall -y x",
        "npm uninstall -g x", "apt-get remove -y x", "systemctl stop x", "crontab -r", "kill 4242", "pkill node",
        "kill $(pgrep -f x)",
    )  # fmt: skip
    assert not any(commands("safe-coding", folder, *changing).values())
    everyday = (
        "docker ps", "docker logs x", "psql --version", "npm uninstall x", "kill %1", "npm test & kill $!",
        "make & pid=$!; sleep 1; kill $pid",
    )  # fmt: skip
    assert all(commands("safe-coding", folder, *everyday).values())


def test_read_only_looks_and_changes_nothing(folder: Path) -> None:
    looking = ("ls -la", "git log --oneline | head", "grep -rn x .", "cat src/a.py", "git diff", "find . -name '*.py'")
    assert all(commands("read-only", folder, *looking).values())
    changing = (
        "rm src/a.py",
        "echo x > y",
        "git commit -m x",
        "find . -delete",
        "pytest",
        "kill 1",
        "sed -i s/a/b/ src/a.py",
    )
    assert not any(commands("read-only", folder, *changing).values())
    assert decided("read-only", folder, "Write", file_path=f"{folder}/b", content="").code == "tool_forbidden"


def test_locked_down_reads_files_and_does_nothing_else(folder: Path) -> None:
    assert not any(commands("locked-down", folder, "ls", "cat src/a.py", "true").values())
    for tool in ("Bash", "bash", "run_shell_command", "Agent", "task", "Edit", "Write", "Skill", "mcp__x__y"):
        assert not decided("locked-down", folder, tool).permits
    assert mission("locked-down", folder).max_tool_calls == 50


def test_lines_that_a_template_offers_can_be_taken(folder: Path) -> None:
    text = template("safe-coding")
    offered = [line[2:].partition("   ")[0] for line in text.splitlines() if line.startswith("- ") and "   " in line]
    assert len(offered) == 11
    added = text.replace("- Read files\n", "- Read files\n" + "".join(f"- {line}\n" for line in offered))
    scope = compile_profile(parse_profile(added), str(folder), "agent:one").resource_scope
    assert scope[-5:] == (
        "https://api.example.org", "db://app_dev", "container://*", "package://*", "process://*",
    )  # fmt: skip


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(FieldInvalid) as caught:
        template("../profile")
    assert caught.value.code == "field_invalid"
