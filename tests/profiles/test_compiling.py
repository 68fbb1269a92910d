"""Compiling: every phrase does what it says when the passport's own rules judge by it, and blocked wins."""

import pytest
from msgspec import to_builtins

from remit import Mission
from remit.claims.mission import parse_mission
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid
from remit.policy.call import Effect
from remit.policy.scope import build_scope, covers
from remit.profiles.compiling import compile_profile, remarks_on
from remit.profiles.phrases import load_phrases
from remit.profiles.profile import parse_profile
from tests.profiles.writing import FOLDER, called, compiled, ran, written

NAMED: dict[str, JSON] = {"file_path": f"{FOLDER}/a.py"}
# For each phrase: calls that it permits and that are refused without it.
CALLS: dict[str, list[tuple[str, dict[str, JSON]]]] = {
    "Read files": [
        ("Read", NAMED), ("Grep", {"pattern": "x"}), ("Glob", {"pattern": "*.py"}), ("read_file", {"path": "a"}),
        ("list_directory", {"path": "."}), ("view", {"path": f"{FOLDER}/a"}), ("read", {"filePath": "a"}),
    ],
    "Edit files": [
        ("Edit", {**NAMED, "old_string": "a", "new_string": "b"}), ("Write", {**NAMED, "content": ""}),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": ""}), ("write_file", {"path": "a", "content": ""}),
        ("edit", {"filePath": "a"}), ("create", {"path": "a"}),
        ("apply_patch", {"command": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}),
    ],
    "Delete files": [("Delete", NAMED), ("Bash", {"command": "rm a"}), ("bash", {"command": "git rm a"})],
    "Run developer commands": [
        ("Bash", {"command": "make && git commit -m x"}), ("run_shell_command", {"command": "cargo build"}),
        ("bash", {"command": "ls | sort > a"}), ("BashOutput", {"bash_id": "1"}), ("TaskStop", {"task_id": "1"}),
    ],
    "Run tests": [("Bash", {"command": "cd src && pytest -q 2>&1 | tail -5"}), ("bash", {"command": "npm test"})],
    "Run commands that only read": [("Bash", {"command": "git log | head && grep -rn x . | wc -l"})],
    "Run npm run lint": [("Bash", {"command": "npm run lint"}), ("run_shell_command", {"command": "npm run lint"})],
    "Run git": [("Bash", {"command": "git add a && git commit -m x"})],
    "Run ./run.sh": [("Bash", {"command": "./run.sh"})],
    "Start subagents": [("Agent", {"prompt": "x", "subagent_type": "Explore"}), ("task", {"prompt": "x"})],
    "Plan and take notes": [("TodoWrite", {"todos": []}), ("ExitPlanMode", {}), ("ToolSearch", {"query": "x"})],
    "Ask me questions": [("AskUserQuestion", {"questions": []}), ("ask_user", {"question": "x"})],
    "Use skills": [("Skill", {"skill": "x"})],
    "Remember things": [("save_memory", {"fact": "x"})],
    "Schedule work": [("CronCreate", {"cron": "* * * * *", "prompt": "x"})],
    "Search the web": [("WebSearch", {"query": "x"}), ("google_web_search", {"query": "x"})],
    "Reach example.org": [("WebFetch", {"url": "https://example.org/a", "prompt": "x"})],
    "Reach the web": [("webfetch", {"url": "https://anything.example.net/", "format": "text"})],
    "Use the tools of github": [("mcp__github__create_issue", {"title": "x"}), ("github_list_issues", {})],
    "Use the tool Foo": [("Foo", {"x": 1})],
}  # fmt: skip


# For each phrase about state of the machine: what it adds to the scope, a command that needs it, one that needs more.
STATE = {
    "Use the database app_dev": ("db://app_dev", "psql -d app_dev -c 'drop table x'", "dropdb other"),
    "Use databases": ("db://*", "dropdb other", "docker rm app"),
    "Manage the container app": ("container://app", "docker rm -f app", "docker rm -f other"),
    "Manage the container volume/data": ("container://volume/data", "docker volume rm data", "docker volume prune"),
    "Manage containers": ("container://*", "docker system prune -af", "dropdb x"),
    "Install the package pip/six": ("package://pip/six", "pip uninstall -y six", "pip uninstall -y five"),
    "Install the package brew": ("package://brew", "brew upgrade && brew install jq", "pip uninstall -y six"),
    "Install packages": ("package://*", "pip uninstall -y six", "dropdb x"),
    "Stop the process vite": ("process://vite", "pkill -f vite", "pkill -f node"),
    "Stop the process `node .*x`": ("process://node .[*]x", "pkill -f 'node .*x'", "pkill -f 'node .x'"),
    "Stop processes": ("process://*", "kill $(cat x)", "systemctl stop x"),
    "Manage the service nginx": ("service://nginx", "systemctl restart nginx", "systemctl restart ssh"),
    "Manage services": ("service://*", "crontab -r", "kill 4242"),
}


@pytest.mark.parametrize("phrase", STATE)
def test_a_phrase_about_the_machine_permits_what_it_names(phrase: str) -> None:
    entry, needs_it, needs_more = STATE[phrase]
    commands = ["Run developer commands"]
    assert compiled([*commands, phrase]).resource_scope[-1] == entry
    assert called(compiled([*commands, phrase]), "Bash", {"command": needs_it}).permits
    assert called(compiled(commands), "Bash", {"command": needs_it}).code == "out_of_scope"
    assert called(compiled([*commands, phrase]), "Bash", {"command": needs_more}).code == "out_of_scope"


def test_a_phrase_about_the_machine_cannot_be_blocked_and_says_what_to_do() -> None:
    for name, known in load_phrases().items():
        if known.machine or any("://*" in entry for entry in known.scope if not entry.startswith("https")):
            assert "under Allowed" in known.unblockable, name


@pytest.mark.parametrize("phrase", CALLS)
def test_a_phrase_permits_what_it_says_and_nothing_else_does(phrase: str) -> None:
    for tool, arguments in CALLS[phrase]:
        assert called(compiled([phrase]), tool, arguments).permits
        assert called(compiled(), tool, arguments).code == "tool_not_allowed"


@pytest.mark.parametrize("phrase", [phrase for phrase in CALLS if not phrase.startswith("Reach")])
def test_blocked_wins_over_the_same_phrase_and_over_wider_ones(phrase: str) -> None:
    wide = ["Read files", "Edit files", "Run developer commands", "Use the tools of github", phrase]
    for tool, arguments in CALLS[phrase]:
        if tool in ("BashOutput", "TaskStop"):  # which only follow what a command does
            continue
        assert not called(compiled(wide, [phrase]), tool, arguments).permits


@pytest.mark.parametrize(
    "command",
    [
        "rm a",
        "python x.py",
        "npm install",
        "pytest; rm a",
        "bash -c 'rm a'",
        "pytest $(rm a)",
        "find . -exec rm {} +",
        "make",
    ],
)
def test_run_tests_permits_test_runners_and_nothing_else(command: str) -> None:
    assert ran(compiled(["Read files", "Run tests"]), command).code == "tool_not_allowed"


def test_programs_allow_no_tool_that_runs_no_command() -> None:
    mission = compiled(["Run tests", "Run git"])
    assert called(mission, "Write", {**NAMED, "content": ""}).code == "tool_not_allowed"
    assert called(mission, "mcp__x__run", {"command": "pytest"}).code == "tool_not_allowed"


@pytest.mark.parametrize(
    "command", ["echo x > a", "find . -delete", "sort -o a b", "sed -i s/a/b/ a", "git log --output=a"]
)
def test_commands_that_only_read_change_nothing(command: str) -> None:
    assert not ran(compiled(["Run commands that only read", "Plan and take notes"]), command).permits


def test_a_blocked_program_is_refused_wherever_it_stands_in_a_command() -> None:
    mission = compiled(["Run developer commands", "Reach example.org"], ["Run git push"])
    assert ran(mission, "git commit -m x").permits
    assert ran(mission, "git commit -m x && git push https://example.org/x").code == "tool_forbidden"


def test_a_blocked_network_takes_back_every_host() -> None:
    hosts = ["Reach example.org", "Send to example.net", "Connect to example.com:22", "Reach the web", "Search the web"]
    mission = compiled(["Read files", *hosts], ["Use the network"])
    assert mission.resource_scope == (FOLDER,)
    assert not {"WebFetch", "WebSearch"} & set(mission.allowed_tools)


def test_sending_needs_a_phrase_of_its_own() -> None:
    command = "curl -d x https://example.org/a"
    assert not ran(compiled(["Run developer commands", "Reach example.org"]), command).permits
    assert ran(compiled(["Run developer commands", "Send to example.org"]), command).permits
    assert not ran(compiled(["Run developer commands", "Send to example.org"], ["Send data"]), command).permits


def test_a_bare_connection_needs_its_host() -> None:
    scope = build_scope(compiled(["Connect to build.example.org:22"]).resource_scope, FOLDER)
    assert covers(scope, Effect("contact", "host://build.example.org:22", ""))
    assert not covers(scope, Effect("contact", "host://build.example.org:23", ""))


def test_blocked_edits_leave_no_command_that_changes_files() -> None:
    mission = compiled(["Run developer commands"], ["Edit files"])
    assert ran(mission, "ls").permits
    assert ran(mission, "echo x > a").code == "side_effect_not_allowed"


def test_blocked_edits_do_not_bound_a_script_and_the_remark_says_so() -> None:
    profile = parse_profile(written(["Run developer commands"], ["Edit files"]))
    assert ran(compile_profile(profile, FOLDER, "agent:one"), "python3 x.py").permits
    assert ["script" in remark for remark in remarks_on(profile)] == [True]


def test_a_script_is_refused_where_other_things_may_not_be_changed_either() -> None:
    profile = parse_profile(written(["Run developer commands"], ["Edit files", "Let tools change other things"]))
    assert ran(compile_profile(profile, FOLDER, "agent:one"), "python3 x.py").code == "side_effect_not_allowed"
    assert ["script" in remark for remark in remarks_on(profile)] == [False]


def test_paths_start_at_the_folder_and_are_taken_by_their_text() -> None:
    mission = compiled(["Use ../shared/./a", "Use /opt/x/", "Use docs/*.md"])
    assert mission.resource_scope == (FOLDER, "/srv/shared/a", "/opt/x", f"{FOLDER}/docs/*.md")
    assert mission.cwd == FOLDER


def test_without_a_folder_paths_inside_stay_relative() -> None:
    mission = compiled(["Read files", "Use ./docs", "Use /opt/x"], folder=None)
    assert (mission.resource_scope, mission.cwd) == ((".", "docs", "/opt/x"), None)


@pytest.mark.parametrize("phrase", ["Use ../shared", "Use ~/notes"])
def test_a_path_that_begins_at_an_unknown_place_is_refused(phrase: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        compiled([phrase], folder=None)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "line 10")


def test_other_paths_are_what_the_resolver_says() -> None:
    profile = parse_profile(written(["Use ~/notes", "Use ../b"]))
    mission = compile_profile(profile, FOLDER, "agent:one", resolve=lambda path: (f"/real{path}", "/more"))
    assert mission.resource_scope == (FOLDER, "/real~/notes", "/more", "/real/srv/b")


def test_a_folder_that_reads_as_a_pattern_means_itself_alone() -> None:
    mission = compiled(["Read files"], folder="/srv/a[b]*")
    assert mission.resource_scope == ("/srv/a[[]b][*]",)
    assert called(mission, "Read", {"file_path": "/srv/a[b]*/x"}).permits
    assert called(mission, "Read", {"file_path": "/srv/abc/x"}).code == "out_of_scope"


@pytest.mark.parametrize("folder", ["srv", "/srv/../x", "/srv/", ""])
def test_a_folder_that_is_not_absolute_and_plain_is_refused(folder: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        compiled(folder=folder)
    assert caught.value.code == "field_invalid"


def test_a_folder_of_its_own_is_no_folder_wherever_it_is_started() -> None:
    with pytest.raises(FieldInvalid) as caught:
        compile_profile(parse_profile("Mission: x\nFolder: ./src"), None, "agent:one")
    assert caught.value.place == "Folder"


def test_a_folder_to_read_only_is_refused_where_files_may_be_changed() -> None:
    assert "/srv/b" in compiled(["Read files", "Read ../b"]).resource_scope
    for other in ("Edit files", "Run tests", "Let tools change files"):
        with pytest.raises(FieldInvalid) as caught:
            compiled(["Read ../b", other])
        assert caught.value.place == "line 10"


def test_what_no_passport_can_hold_is_refused() -> None:
    with pytest.raises(FieldInvalid) as caught:
        compiled([f"Use /srv/{'x' * 150}{number}" for number in range(100)])
    assert (caught.value.code, caught.value.place) == ("field_invalid", "profile")


def test_every_phrase_at_once_fits_into_a_passport() -> None:
    fixed = [known for known in load_phrases().values() if not known.kind]
    allowed = [known.says[0] for known in fixed if not known.unallowable]
    blocked = [known.says[0] for known in fixed if not known.unblockable]
    for mission in (compiled(allowed), compiled(blocked=blocked)):
        assert parse_mission(to_builtins(mission)) == mission


def remarks(allowed: list[str], blocked: list[str]) -> list[str]:
    return remarks_on(parse_profile(written(allowed, blocked)))


def test_contradictions_are_told_with_both_lines() -> None:
    told = remarks(["Read files", "Search the web", "Run tests"], ["Use the network", "Edit files"])
    assert [remark.partition(":")[0] for remark in told] == ["line 11", "line 12"]
    assert "“Search the web”" in told[0]
    assert "“Use the network”" in told[0]


def test_what_other_lines_widen_is_told() -> None:
    assert len(remarks(["Run commands that only read", "Edit files"], [])) == 1
    assert len(remarks(["Reach example.org", "Send to example.net"], [])) == 1
    assert remarks(["Run commands that only read", "Reach example.org"], []) == []


def test_skills_are_allowed_with_a_remark() -> None:
    assert [remark.partition(":")[0] for remark in remarks(["Read files", "Use skills"], [])] == ["line 11"]
    assert len(remarks(["Read files", "Use skills"], ["Use skills"])) == 1


def test_a_profile_that_allows_nothing_says_so() -> None:
    assert len(remarks([], [])) == len(remarks(["Edit files"], ["Edit files"])) - 1 == 1


def test_missions_of_profiles_are_missions() -> None:
    mission = compiled(["Read files"])
    assert isinstance(mission, Mission)
    assert (mission.agent_id, mission.mission) == ("agent:one", "Fix the tests")
    assert (mission.max_tool_calls, mission.max_duration_s) == (500, 28_800)
    assert mission.allowed_side_effect_classes == ("none",)
