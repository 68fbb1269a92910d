"""Files that steer programs: nothing harmless-looking runs what a call before it has written."""

import os
from pathlib import Path
from typing import Final

import pytest

from remit.policy.call import Action, Effect
from remit.policy.decide import Decision
from remit.policy.files import LocalFiles, TextFiles
from remit.policy.steering import mark_steering, steering_at
from tests.policy.judging import BASE, STANDING, action, applied, judged, mission

BY_NAME: Final = (
    ".git/config", ".git/config.worktree", ".git/info/attributes", ".git/hooks/pre-commit", ".git/hooks/a/b", ".git",
    "sub/.git/config", "sub/dir/.git/hooks/post-checkout", ".git/modules/lib/config", ".git/modules/a/b/hooks/x",
    ".git/worktrees/w/config.worktree", ".git/worktrees/w/gitdir", ".git/commondir", ".git/objects/info/alternates",
    ".git/rebase-merge/git-rebase-todo", ".GIT/Config", ".venv/lib/python3.12/site-packages/x.pth", ".venv/pyvenv.cfg",
    ".venv/bin/git", "new/HEAD", "x.git/config", "x.git/hooks/pre-push", ".git/objects/b2/23abc", ".git/index",
    ".git/refs/heads/x", ".git/packed-refs", ".git/worktrees/w/index",
)  # fmt: skip
MARKED: Final = (
    ".gitattributes", "sub/.gitattributes", ".gitmodules", ".npmrc", ".yarnrc.yml", "pip.conf", ".cargo/config.toml",
    ".envrc", ".vscode/tasks.json", ".vscode/settings.json", ".idea/workspace.xml", "sitecustomize.py", "x.pth",
    ".husky/x", ".pre-commit-config.yaml", ".bashrc",
)  # fmt: skip
ORDINARY: Final = (
    "a.py", ".gitignore", ".editorconfig", "Makefile", "package.json", "config", "src/config", "hooks/useThing.ts",
    "git/config", "my.git.txt", ".github/workflows/ci.yml", ".git/info/exclude", ".git/COMMIT_EDITMSG",
    ".git/notes.txt", "docs/.gitignore", "bin/run", "src/HEADER", ".npmrc.example", "src/info/attributes",
    ".vscode/snippets.json",
)  # fmt: skip
# Ways to write a file, each with the name to be filled in.
WRITERS: Final = (
    ("Write", {"file_path": "{}", "content": "x"}),
    ("Edit", {"file_path": "{}", "old_string": "a", "new_string": "b"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"}),
    ("mcp__files__put", {"path": "{}"}),
    ("Bash", {"command": "echo x > {}"}),
    ("Bash", {"command": "cp x {}"}),
    ("Bash", {"command": "cd src && sed -i s/a/b/ ../{}"}),
    ("Bash", {"command": "python3 -c \"open('{}', 'w').write('x')\""}),
    ("Bash", {"command": "mv x {}"}),
    ("Bash", {"command": "tee {} < x"}),
)


def written(tool: str, arguments: dict[str, str], name: str, *scope: str) -> Decision:
    given = {key: value.replace("{}", name) for key, value in arguments.items()}
    return judged(tool, dict(given), under=mission(resource_scope=(BASE, *scope)))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_file_that_makes_programs_run_code_is_written_only_where_the_scope_names_it(name: str) -> None:
    for tool, arguments in WRITERS:
        decision = written(tool, arguments, name)
        assert decision.code == "out_of_scope", (tool, arguments, decision.reason)
        assert "which makes programs run code, and is not named in the passport's resource scope" in decision.reason
        assert written(tool, arguments, name, f"{BASE}/{name}").permits, (tool, arguments)
        assert written(tool, arguments, name, name).permits


@pytest.mark.parametrize("name", BY_NAME)
def test_the_remedy_is_the_entry_that_names_the_file(name: str) -> None:
    under = mission()
    refused = judged("Write", {"file_path": name, "content": "x"}, under=under)
    assert refused.remedy is not None
    changed, standing = applied(under, refused.remedy.changes, STANDING)
    assert judged("Write", {"file_path": name, "content": "x"}, under=changed, standing=standing).permits
    assert f"{BASE}/{name}" in changed.resource_scope


@pytest.mark.parametrize("entry", [f"{BASE}/**", "/", "/work", f"{BASE}/.git", f"{BASE}/.git/**", f"{BASE}/*/config"])
def test_an_entry_for_a_folder_above_does_not_name_the_file(entry: str) -> None:
    assert not written(*WRITERS[0], ".git/config", entry).permits


@pytest.mark.parametrize("entry", [".git/hooks", ".git/hooks/pre-commit"])
def test_a_folder_of_the_table_may_be_named_as_a_whole(entry: str) -> None:
    assert written(*WRITERS[0], ".git/hooks/pre-commit", entry).permits


def test_a_scope_of_everything_has_it_too() -> None:
    assert judged("Write", {"file_path": ".git/config"}, under=mission(resource_scope=("**",))).permits


@pytest.mark.parametrize("name", MARKED)
def test_a_file_of_the_project_that_steers_counts_as_running_code(name: str) -> None:
    for tool, arguments in WRITERS:
        decision = written(tool, arguments, name)
        assert decision.permits, (tool, arguments, decision.reason)
        assert decision.action.runs_code
        assert "state_change" in decision.action.side_effects
    denied = judged("Write", {"file_path": name}, under=mission(allowed_side_effect_classes=("none", "internal_write")))
    assert denied.code == "side_effect_not_allowed"


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_file_steers_nothing(name: str) -> None:
    for tool, arguments in WRITERS[:3]:
        decision = written(tool, arguments, name)
        assert decision.permits, decision.reason
        assert (decision.action.runs_code, "state_change" in decision.action.side_effects) == (False, False)


@pytest.mark.parametrize("name", [*BY_NAME, *MARKED])
def test_reading_and_deleting_it_is_as_before(name: str) -> None:
    assert judged("Read", {"file_path": name}).permits
    assert judged("Bash", {"command": f"rm -f {name}"}).permits


@pytest.mark.parametrize(
    "text",
    [
        "git status", "git commit -m x", "git init", "git init sub", "git add -A", "git config user.name x",
        "git stash",
        "git checkout -b x", "git worktree add wt", "git rebase main", "git branch -D x", "git tag v1", "git gc",
        "git config --local user.email a@example.com", "git submodule init", "git remote add o ./x", "git reset --hard",
        "rm -rf .git", "rm -f .git/index.lock", "mkdir -p src/hooks", "npm init -y", "cat .git/config", "cp -r src lib",
        "python3 -m venv .venv", "ruff format .", "find . -name '*.py' | xargs sed -i s/a/b/", "git clone ./a b",
    ],
)  # fmt: skip
def test_what_programs_do_by_themselves_goes_on(text: str) -> None:
    before = judged("Bash", {"command": text})
    assert "is not named in" not in before.reason
    assert not any(effect.steers for effect in before.action.effects)


@pytest.mark.parametrize(
    "text",
    [
        "cp -r x .git", "mv x .git", "ln -s x .git", "cp -r x/. .git/", "mkdir -p sub/.git", "cp x .git/hooks/",
        "cp x .git/",
        "chmod +x .git/hooks/pre-commit", "tee .git/config < x", "find . -name config | xargs sed -i s/a/b/",
        "sed -i s/a/b/ .git/*", "git config core.fsmonitor ./x", "tar xf x.tar -C .git",
        "install x .git/hooks/pre-push",
    ],
)  # fmt: skip
def test_no_command_writes_what_git_follows(text: str) -> None:
    assert not judged("Bash", {"command": text}).permits


@pytest.mark.parametrize("home", ["/home/ada", "/Users/ada", "/root"])
@pytest.mark.parametrize(
    "name", [".bashrc", ".profile", ".zshenv", ".gitconfig", ".config/git/config", ".curlrc", ".ssh/config"]
)
def test_what_programs_read_at_every_start_needs_its_name_in_a_home_directory(home: str, name: str) -> None:
    under = mission(resource_scope=(home,), cwd=home)
    assert judged("Write", {"file_path": f"{home}/{name}"}, under=under).code == "out_of_scope"
    named = mission(resource_scope=(home, f"{home}/{name}"), cwd=home)
    assert judged("Write", {"file_path": f"{home}/{name}"}, under=named).permits
    assert judged("Write", {"file_path": f"{home}/dotfiles/{name}"}, under=under).permits


def test_the_home_directory_is_where_the_view_says() -> None:
    assert steering_at("/srv/people/ada/.bashrc", LocalFiles("/srv/people/ada")) == (True, "/srv/people/ada/.bashrc")
    found = steering_at("/srv/people/ada/.bashrc", TextFiles())
    assert found == (False, "/srv/people/ada/.bashrc")


@pytest.mark.parametrize(
    "text",
    [
        "git init --separate-git-dir=g b", "git init --separate-git-dir g", "git init --bare g",
        "git init -q --bare ./g", "git clone --bare . g", "git clone --mirror . g",
        "git clone --separate-git-dir=g . b", "mkdir g && cd g && git init --bare && cd ..",
    ],
)  # fmt: skip
def test_a_repository_that_a_call_makes_is_one_under_any_name(tmp_path: Path, text: str) -> None:
    root = os.path.realpath(tmp_path)
    under = mission(resource_scope=(root,), cwd=root)

    def decided(command: str) -> Decision:
        return judged("Bash", {"command": command}, under=under, files=LocalFiles())

    assert decided(text).permits
    for written in (
        "echo x >> g/config", "echo x > g/hooks/pre-commit", "cp x g/hooks/", "cd g && echo x > commondir",
        "sed -i s/a/b/ g/*", "cp -r x/. g", "tee g/objects/b2/x", "echo x > g/refs/heads/x",
    ):  # fmt: skip
        decision = decided(f"{text}; {written}")
        assert decision.code == "out_of_scope", (written, decision.reason)
        assert "makes programs run code" in decision.reason
        assert "makes programs run code" not in decided(written).reason
    assert decided(f"{text}; echo x > h/config; echo x > g/description").permits


@pytest.mark.parametrize(
    "text",
    [
        "pre-commit install", "pre-commit install -f", "pre-commit uninstall", "python -m pre_commit install",
        "lefthook install", "lefthook uninstall", "simple-git-hooks", "git lfs install --local",
        "git-lfs install --local",
        "npx --no-install lefthook install", "husky", "husky install", "npx --no-install husky init",
    ],
)  # fmt: skip
def test_hooks_are_installed_only_where_the_scope_names_them(text: str) -> None:
    assert not judged("Bash", {"command": text}).permits
    named = mission(resource_scope=(BASE, ".git/hooks", ".git/config"))
    decision = judged("Bash", {"command": text}, under=named)
    assert not any(
        effect.steers and not effect.steers.startswith(f"{BASE}/.git/") for effect in decision.action.effects
    )
    assert decision.permits or "lfs" in text, decision.reason


def test_a_repository_under_another_name_is_one(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "copy" / "objects").mkdir(parents=True)
    under = mission(resource_scope=(str(root),), cwd=str(root))

    def refused() -> list[str]:
        names = ("copy/config", "copy/hooks/x", "copy/commondir", "copy/HEAD", "copy/description")
        calls = ((name, {"file_path": str(root / name)}) for name in names)
        return [name for name, call in calls if not judged("Write", call, under=under, files=LocalFiles()).permits]

    assert refused() == ["copy/HEAD"]
    (root / "copy" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    assert refused() == ["copy/config", "copy/hooks/x", "copy/commondir", "copy/HEAD"]


@pytest.mark.parametrize(
    ("text", "reaches"),
    [
        ("tar xf x.tar", True), ("unzip x.zip", True), ("patch -p1 < x.diff", True), ("cp -r src/. .", True),
        ("grep -rl a . | xargs sed -i s/a/b/", True), ("find . -type f -exec sed -i s/a/b/ {} +", True),
        ("tar xf x.tar -C src", False), ("cd src && unzip ../x.zip", False), ("git apply x.diff", False),
        ("ruff format .", False),
        ("find . -name '*.py' -exec sed -i s/a/b/ {} +", False), ("git checkout .", False), ("sed -i s/a/b/ *", False),
        ("make", False), ("prettier --write .", False),
    ],
)  # fmt: skip
def test_whatever_is_unpacked_or_picked_beside_a_repository_may_be_in_it(
    tmp_path: Path, text: str, reaches: bool
) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "src").mkdir()
    under = mission(resource_scope=(str(root),), cwd=str(root))
    assert judged("Bash", {"command": text}, under=under, files=LocalFiles()).permits
    (root / ".git").mkdir()
    refused = judged("Bash", {"command": text}, under=under, files=LocalFiles())
    assert refused.permits != reaches
    if refused.remedy is not None:
        assert f"which holds {root}/.git: that makes programs run code" in refused.reason
        changed, _ = applied(under, refused.remedy.changes, STANDING)
        assert judged("Bash", {"command": text}, under=changed, files=LocalFiles()).permits


def test_a_link_to_what_git_follows_is_it(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / ".git").mkdir()
    (root / "link").symlink_to(".git")
    under = mission(resource_scope=(str(root),), cwd=str(root))
    assert not judged("Write", {"file_path": "link/config"}, under=under, files=LocalFiles()).permits


@pytest.mark.parametrize(
    ("picks", "steers"),
    [
        ("**/config", "/w/.git/config"),
        ("**/hooks", "/w/.git/hooks"),
        ("**/*.py", ""),
        ("config", ""),
        ("", ""),
        ("**", ""),
    ],
)
def test_a_file_that_is_picked_by_its_name_at_any_depth_may_be_one_of_git(picks: str, steers: str) -> None:
    [effect], writes = mark_steering([Effect("write", "/w", "x", beneath=True, picks=picks)], TextFiles())
    assert (effect.steers, writes) == (steers, bool(steers))


def test_an_effect_says_which_path_the_scope_has_to_name() -> None:
    given: Action = action("Write", {"file_path": ".git/hooks/a/b"})
    assert given.effects == (Effect("write", f"{BASE}/.git/hooks/a/b", "file_path", steers=f"{BASE}/.git/hooks"),)
