"""The guard: what governs an agent stays out of its reach, and everyday work goes on."""

from pathlib import Path
from typing import Final

import pytest

from remit.claims.strictjson import JSON
from remit.policy.call import Effect
from remit.policy.decide import Decision
from remit.policy.files import LocalFiles, TextFiles
from remit.policy.guard import GuardEngine, OwnProcess
from remit.policy.native import NativeEngine
from tests.policy.judging import action, case, judged, mission

FILES: Final = (
    "app/REMIT.md", "app/.claude/settings.local.json", "app/src/a.py", "app/x.json", "app/x.tar", "app/a.pyc",
    "app/e/.claude/settings.json", "home/.remit/token", "home/notes.txt", "app/package.json",
)  # fmt: skip
# One of them is not there yet.
GUARDED: Final = ("app/.claude/settings.json", "app/.claude/settings.local.json", "app/REMIT.md", "home/.other")


class Place:
    """A protected project, and a home with Remit's own folder in it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        for name in FILES:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        self.guarded = tuple(str(self.root / name) for name in GUARDED)
        self.own = OwnProcess()
        self.secret: tuple[str, ...] = ()

    def judge(self, tool: str, arguments: dict[str, JSON], *, everything: bool = False) -> Decision:
        """Return the decision on a call within the project."""
        app = str(self.root / "app")
        guard = GuardEngine(lambda: self.guarded, (str(self.root / "home/.remit"),), self.own, lambda: self.secret)
        return judged(
            tool,
            arguments,
            under=mission(resource_scope=("**",) if everything else (app,), cwd=app),
            engines=(NativeEngine(), guard),
            files=LocalFiles(home=str(self.root / "home")),
        )

    def run(self, text: str, *, everything: bool = False) -> Decision:
        """Return the decision on a command line."""
        return self.judge("Bash", {"command": text}, everything=everything)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make a protected project."""
    return Place(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "echo x > .claude/settings.local.json", "echo x >> .claude/settings.json", "cat x.json | tee REMIT.md",
        "cp x.json .claude/settings.json", "cd e && cp x REMIT.md ..", "mv x.json REMIT.md", "install x.json REMIT.md",
        "sed -i s/a/b/ .claude/settings.local.json", "truncate -s 0 REMIT.md", "dd if=x.json of=REMIT.md",
        "ln -sf ../x.json .claude/settings.json", "ln REMIT.md copy",
        "ln -s .claude link && echo x > link/settings.json",
        "chmod 000 .claude/settings.local.json", "chmod -R 000 .claude", "touch .claude/settings.json",
        "mkdir -p .claude/settings.json", "python -c \"open('.claude/settings.json', 'w')\"",
        "git checkout -- .claude/settings.json", "git checkout main REMIT.md", "git restore .claude/settings.json",
        "git rm -r .claude", "git mv .claude z", "git apply x.diff", "patch -p1 < x.diff",
        "rm REMIT.md", "rm -rf .claude", "rm -rf .", "rm -rf *", "rm -rf ../app", "rmdir .claude", "mv .claude x",
        "git clean -fdx", "git -C . clean -fd", "find . -delete", "find . -name 'settings*' -delete",
        "find .claude -type f | xargs rm", "find . -name '*.json' -exec sed -i s/a/b/ {} +", "cd .claude && rm *",
        "rm .claude/*.json", "rm */settings.json", "sed -i s/a/b/ .claude/*.json", "grep -rl a . | xargs sed -i s/a/b/",
        "find . -name x -o -delete", "find . ! -name x -delete", "find . -delete -name x",
        "tar xf x.tar", "unzip x.zip", "rsync -a e/ .", "cp -r e/.claude .", "cp -r e/. .", "cp -r e/* .",
        "mkdir n && cp -r n/.claude .", "bash -c 'rm -rf .claude'", "eval rm -rf .claude",
    ],
)  # fmt: skip
def test_no_command_changes_what_governs_the_agent(place: Place, text: str) -> None:
    decision = place.run(text)
    assert (decision.code, decision.findings[-1].backend) == ("governance_guarded", "guard")
    assert (decision.public_reason, decision.verdict) == ("policy_denied", "violation")


@pytest.mark.parametrize(
    "text",
    [
        "ruff format .", "npm test", "pytest -q", "make build", "prettier --write .", "cargo build", "black src",
        "rm src/a.py", "rm -rf src", "rm *.pyc", "rm -rf node_modules dist", "rm -rf e", "rm src/*", "rm settings.*",
        "find . -name '*.pyc' -delete", "find . -name __pycache__ -type d -exec rm -rf {} +",
        "find . -name '*.py' | xargs sed -i s/a/b/", "find src -type f -exec sed -i s/a/b/ {} +",
        "grep -rl a src | xargs sed -i s/a/b/", "sed -i s/a/b/ src/*.py",
        "cp x.json .", "cp x.json src/", "cp -r src dst", "mv src lib", "mv x.json y.json", "tar xf x.tar -C src",
        "tar czf out.tgz src", "chmod +x src/a.py", "mkdir -p .claude/commands", "echo x > .claude/commands/a.md",
        "cat REMIT.md", "ls -la .claude", "grep -r x .", "cat .claude/settings.local.json", "git diff REMIT.md",
        "git add -A", "git commit -m x", "git checkout main", "git checkout -- src/a.py", "git stash", "touch a",
    ],
)  # fmt: skip
def test_everyday_work_goes_on(place: Place, text: str) -> None:
    decision = place.run(text)
    assert decision.permits, decision.reason


@pytest.mark.parametrize(
    "text",
    [
        "git checkout HEAD:src -- .", "git checkout x .", "git checkout x -- ./", "git checkout x -- \"$PWD\"",
        "git checkout x -- .claude", "git checkout -- .claude", "git restore .claude", "git restore -s x .",
        "git restore --source=HEAD:src .", "cd src && git checkout x -- ..", "git checkout HEAD^{tree}:src -- '*'",
        "git reset HEAD:src -- .", "git reset HEAD:src .", "git restore --staged -s HEAD:src .",
        "git restore -SW -s HEAD:src REMIT.md", "git read-tree -u --reset HEAD:src", "git checkout-index -f -a",
        "cd src && git checkout-index -fa", "git checkout-index -f REMIT.md", "git sparse-checkout set src",
        "git sparse-checkout add '!/REMIT.md'", "git sparse-checkout reapply", "cd src && git sparse-checkout init",
        "git switch --orphan x", "git stash -u", "git stash push --include-untracked", "git stash --all",
        "git checkout -- :/REMIT.md", "git checkout -- ':(top)REMIT.md'", "git checkout --pathspec-from-file=x",
        "git restore --pathspec-from-file=x", "git reset x --pathspec-from-file=x", "git restore 'R*.md'",
        "git rm REMIT.md", "git rm --cached REMIT.md", "git rm --cached 'R*.md'", "git mv REMIT.md x",
        "git mv x.json REMIT.md", "git stash push -- REMIT.md", "git update-index --skip-worktree REMIT.md",
        "git update-index --assume-unchanged .claude/settings.json", "git rm -r --cached '**/.claude/'",
        "ar x src/x.a", "ar xv x.a", "gcc-ar x x.a", "jar xf x.jar", "jar -xf x.jar", "jar --extract --file=x.jar",
        "jar xvf x.jar REMIT.md", "unzip x.zip", "unzip x.zip -d .", "unzip -o x.zip -d .claude", "tar xf x.tar -C .",
        "python -m zipfile -e x.zip .", "busybox unzip x.zip", "tar xf x.tar --one-top-level=.claude",
        "zstd -d settings.json.zst --output-dir-flat .claude", "git ls-files | xargs git checkout HEAD:src --",
        "git ls-files -z | xargs -0 git checkout x --",
    ],
)  # fmt: skip
def test_nothing_that_git_or_an_archive_brings_takes_the_place_of_what_governs_the_agent(
    place: Place, text: str
) -> None:
    (place.root / "app/.git").mkdir()
    decision = place.run(text, everything=True)
    assert decision.code == "governance_guarded", decision.reason


@pytest.mark.parametrize(
    "text",
    [
        "git checkout x", "git switch x", "git switch -c x", "git merge x", "git rebase x", "git reset --hard",
        "git reset --hard x", "git reset HEAD~1", "git stash", "git stash pop", "git stash push .", "git cherry-pick x",
        "git revert x", "git checkout .", "git checkout -- .", "git checkout HEAD .", "git checkout HEAD~1 -- .",
        "git restore .", "git restore -s HEAD .", "git restore --staged .", "git restore --staged REMIT.md",
        "git reset -- REMIT.md", "git reset HEAD REMIT.md", "git checkout x -- src", "git restore -s x src",
        "git rm -r --cached .", "git rm -r --cached '**/__pycache__/'", "git ls-files -m | xargs git checkout --",
        "git ls-files -i -c --exclude-standard | xargs git rm --cached",
        "git sparse-checkout list",
        "git sparse-checkout disable", "git update-index --refresh", "git stash push src", "git reset HEAD:src -- e",
        "unzip -o x.zip -d build", "unzip -o x.zip -d src", "mkdir build && unzip x.zip -d build", "unzip -l x.zip",
        "tar xzf x.tar -C build", "tar xf x.tar -C src", "ar rcs x.a a.o", "ar t x.a", "jar cf x.jar src",
        "jar tf x.jar", "ranlib x.a", "cd src && ar x ../x.a", "python -m zipfile -e x.zip build",
    ],
)  # fmt: skip
def test_whole_branches_and_folders_of_their_own_stay_permitted(place: Place, text: str) -> None:
    (place.root / "app/.git").mkdir()
    decision = place.run(text)
    assert decision.permits, decision.reason


def test_the_remedy_for_a_whole_folder_says_to_name_others(place: Place) -> None:
    whole, one = place.run("git stash -u").remedy, place.run("rm REMIT.md").remedy
    assert whole is not None
    assert one is not None
    assert "name files or folders" in whole.sentence
    assert "name files or folders" not in one.sentence


@pytest.mark.parametrize("text", ["ar p x.a", "ar pv x.a", "ar $X x.a"])
def test_an_archive_that_names_files_elsewhere_is_not_printed(place: Place, text: str) -> None:
    assert not place.run(text).permits


@pytest.mark.parametrize("text", ["jar cf x.jar src", "jar -cf x.jar src", "python -m zipfile -c x.zip src"])
def test_what_is_packed_is_followed_through_links(place: Place, text: str) -> None:
    assert place.run(text).permits
    (place.root / "app/src/link").symlink_to(place.root / "home")
    assert not place.run(text).permits


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Write", {"file_path": ".claude/settings.json", "content": "{}"}),
        ("Edit", {"file_path": ".claude/settings.local.json", "old_string": "a", "new_string": "b"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Delete File: REMIT.md\n*** End Patch"}),
        ("write_file", {"path": "src/../REMIT.md", "content": ""}),
        ("move_file", {"source": ".claude", "destination": "x"}),
    ],
)
def test_no_tool_changes_what_governs_the_agent(place: Place, tool: str, arguments: dict[str, JSON]) -> None:
    for everything in (False, True):
        assert place.judge(tool, arguments, everything=everything).code == "governance_guarded"


def test_a_link_to_a_guarded_file_is_the_file(place: Place) -> None:
    (place.root / "app/link").symlink_to(".claude")
    assert place.judge("Write", {"file_path": "link/settings.json", "content": ""}).code == "governance_guarded"


@pytest.mark.parametrize(
    "text", ["cat .claude/settings.local.json", "cat link", "head -c 9 .CLAUDE/settings.local.json"]
)
def test_a_file_that_holds_a_token_is_not_read(place: Place, text: str) -> None:
    (place.root / "app" / "link").symlink_to(".claude/settings.local.json")
    assert place.run(text).permits
    place.secret = (str(place.root / "app/.claude/settings.local.json"),)
    refused = place.run(text)
    assert (refused.permits, refused.code) == (False, "governance_guarded")
    assert place.run("cat src/a.py").permits


def test_a_guarded_folder_stands_for_everything_beneath(place: Place) -> None:
    place.guarded = (str(place.root / "app/src"),)
    for text in ("touch src/b.py", "ruff format src", "rm src/*.log", "touch src"):
        assert place.run(text).code == "governance_guarded"
    assert place.run("touch srcs && cat src/a.py").permits


def test_a_folder_that_would_hold_a_guarded_file_is_not_made_to_be_something_else(place: Place) -> None:
    for text in ("ln -s app/e ~/.other", "echo x > ~/.other", "mv e ~/.other"):
        assert place.run(text, everything=True).code == "governance_guarded"
    place.guarded = (str(place.root / "app/.codex/hooks.json"),)
    for text in ("ln -s e .codex", "mv e .codex", "cp -r e .codex", "echo x > .codex"):
        assert place.run(text).code == "governance_guarded"


def test_a_deletion_of_whatever_lies_beneath_a_folder_reaches_what_is_guarded_there() -> None:
    guard = GuardEngine(lambda: ("/work/app/a/REMIT.md",))
    for folder, permits in (("/work/app", False), ("/work/app/a", False), ("/work/app/b", True)):
        beneath = Effect("delete", folder, "x", beneath=True)
        assert guard.judge(case(action("Bash", {})._replace(effects=(beneath,)))).permits == permits


def test_where_links_are_not_looked_at_builds_go_on_all_the_same(place: Place) -> None:
    guard = GuardEngine(lambda: ("/work/app/REMIT.md",))
    for text, permits in (("npm test", True), ("rm REMIT.md", False), ("rm -r /work/app", False)):
        assert judged("Bash", {"command": text}, engines=(guard,), files=TextFiles()).permits == permits


@pytest.mark.parametrize(
    "text",
    [
        "cat ~/.remit/token", "ls ~/.remit", "cat ~/.remit/*", "cat ~/.r*/token", "find ~/.remit", "rm -rf ~",
        "cp ~/.remit/token x", "echo x > ~/.remit/new", "find ~ -name 't*' | xargs cat", "rm -rf ~/.[a-z]*",
        "rm -rf ~/.[[:alpha:]]emit",
    ],
)  # fmt: skip
def test_remits_own_folder_is_not_even_read(place: Place, text: str) -> None:
    assert place.run(text, everything=True).code == "governance_guarded"


@pytest.mark.parametrize("text", ["ls ~", "ls ~/*", "cat ~/notes.txt", "echo x > ~/notes.txt", "cat /etc/hosts"])
def test_beside_remits_own_folder_everything_stays_as_it_was(place: Place, text: str) -> None:
    assert place.run(text, everything=True).permits


@pytest.mark.parametrize(
    "text",
    [
        "claude -p x", "remit protect claude-code --undo", "codex exec x", "gemini -p x", "opencode run x", "copilot",
        "/usr/local/bin/claude", "./claude", "cat x | claude -p", "echo $(claude -p x)", "bash -c 'gemini'",
        "nohup setsid claude -p x &", "env A=1 opencode run", "echo x | xargs copilot", "timeout 9 uv run remit",
        "npx -y @anthropic-ai/claude-code@latest", "npx codex", "npx -p x codex",
        "npx --package=@google/gemini-cli -- gemini", "npm exec gemini", "uvx remit", "uvx remit==1.0",
        "uv tool run remit", "pipx run aider-chat", "python -m remit", "python3 -m remit.cli", "tmux new -d claude",
        "gh copilot suggest", "unknown-runner claude", "pkill -f remit", "killall remit",
        "systemctl --user stop remit-hub",
    ],
)  # fmt: skip
def test_an_agent_starts_no_other_agent_and_does_not_govern_itself(place: Place, text: str) -> None:
    assert place.run(text, everything=True).code == "governance_guarded"
    assert not place.run(text).permits


@pytest.mark.parametrize(
    "text",
    [
        "echo claude", "grep claude x.json", "git commit -m claude", "python -m pytest remit",
        "uv run ruff check remit", "uv add remit", "npm install codex", "cd claude", "cat remit",
        "pip show remit", "pkill node", "npx eslint claude",
    ],
)  # fmt: skip
def test_the_name_of_an_agent_is_a_word_like_any_other(place: Place, text: str) -> None:
    assert place.run(text, everything=True).permits


def test_while_nothing_is_guarded_other_agents_may_be_started(place: Place) -> None:
    place.guarded = ()
    assert place.run("claude -p x", everything=True).permits
    assert place.run("rm -rf .").permits
    assert place.run("rm -rf ~", everything=True).code == "governance_guarded"


def test_no_passport_lifts_the_guard_and_the_remedy_says_who_can(place: Place) -> None:
    for text in ("rm REMIT.md", "cat ~/.remit/token", "claude"):
        remedy = place.run(text, everything=True).remedy
        assert remedy is not None
        assert remedy.changes == ()
        assert "outside of the assistant" in remedy.sentence


def test_what_is_guarded_is_asked_anew_for_every_call(place: Place) -> None:
    assert place.run("echo x > new.json").permits
    place.guarded += (str(place.root / "app/new.json"),)
    assert place.run("echo x > new.json").code == "governance_guarded"


def test_with_a_clock_what_is_guarded_is_asked_again_a_moment_later_and_an_error_is_not_remembered() -> None:
    guarded, secret, now = list[str](), list[str](), [5.0]
    asked: list[float] = []

    def ask() -> list[str]:
        asked.append(now[0])
        if guarded == ["damaged"]:
            raise KeyError
        return guarded

    guard = GuardEngine(ask, secret=lambda: secret, clock=lambda: now[0])
    write = case(action("Write", {"file_path": "/work/app/new.json"}))
    read = case(action("Read", {"file_path": "/work/app/token"}))
    assert guard.judge(write).permits
    guarded.append("/work/app/new.json")
    secret.append("/work/app/token")
    now[0] += 0.04
    assert guard.judge(write).permits
    assert guard.judge(read).permits
    now[0] += 0.02
    assert not guard.judge(write).permits
    assert not guard.judge(read).permits
    assert asked == [5.0, now[0]]
    guarded[:] = ["damaged"]
    now[0] += 0.1
    for _ in range(2):
        with pytest.raises(KeyError):
            guard.judge(write)


def test_the_passport_is_judged_first(place: Place) -> None:
    decision = place.run("rm /etc/hosts REMIT.md")
    assert (decision.code, len(decision.findings)) == ("out_of_scope", 1)


@pytest.mark.parametrize(
    ("text", "permits"),
    [
        ("echo x > .claude/settings.json", False), ("echo x > e/.claude/settings.json", False),
        ("rm -rf .claude", False), ("rm e/.claude/settings.json", False), ("mv e/.claude f", False),
        ("echo x > deep/REMIT.md", False),
        ("claude -p x", False), ("echo x > src/a.py", True), ("echo x > settings.json", True), ("cat REMIT.md", True),
        ("echo x > .claude-notes", True), ("echo x > .claude/notes.md", True),
    ],
)  # fmt: skip
def test_what_is_guarded_everywhere_is_guarded_in_every_folder(place: Place, text: str, permits: bool) -> None:
    place.guarded = ("**/.claude/settings.json", "**/REMIT.md")
    assert place.run(text, everything=text.startswith("claude")).permits is permits


@pytest.mark.parametrize(
    ("text", "permits"),
    [
        ("kill 4711", False), ("kill -9 4711", False), ("kill -s TERM 4711", False), ("kill -- -4711", False),
        ("for p in 1 4711; do kill $p; done", False), ("echo 4711 | xargs kill", False), ("env kill 4711", False),
        ("kill -9 -1", False), ("pkill -f 8765", False), ("pkill python", False), ("killall python3", False),
        ("pkill '('", False), ("pkill remit", False), ("kill 4712", True), ("kill %1", True), ("kill -1 4712", True),
        ("sleep 9 & kill $!", True), ("pkill -f vite", True), ("pkill -9 node", True), ("echo 4711", True),
        ("kill $(pgrep -f remit)", False), ("kill $(lsof -ti:8765)", False), ("lsof -ti:8765 | xargs kill", False),
        ("kill {4000..4300}", False), ("pkill -f 'r[e]mit'", False), ("pkill claude", False), ("kill -0 $X", False),
        ("sleep 9 & pid=$!; kill $pid", True), ("kill -0 4711", True), ('kill -0 "$X"', True),
    ],
)  # fmt: skip
def test_the_process_that_judges_is_not_stopped(place: Place, text: str, permits: bool) -> None:
    place.own = OwnProcess(frozenset({4711}), "/usr/bin/python3 -m remit hub --port 8765")
    assert place.run(text, everything=True).permits is permits
