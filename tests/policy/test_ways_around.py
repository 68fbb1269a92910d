"""Ways around the guard: names that a command writes without spelling them out, and folders that it empties."""

from pathlib import Path
from typing import Final

import pytest

from remit.claims.strictjson import JSON
from remit.policy.files import LocalFiles
from remit.policy.guard import GuardEngine
from remit.policy.native import NativeEngine
from tests.policy.judging import judged, mission

FILES: Final = (
    "REMIT.md", ".mcp.json", ".claude/settings.json", ".git/config", "src/a.py", "src/b.json", "x.json", "d/.claude/s",
)  # fmt: skip
GUARDED: Final = ("REMIT.md", ".mcp.json", ".claude", ".git/config", ".git/hooks")


class Place:
    """A project whose folder `.claude` is guarded as a whole, here and in every folder."""

    def __init__(self, root: Path) -> None:
        self.root = str(root.resolve())
        for name in FILES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("x")

    def code(self, text: str, *, everything: bool = False) -> str | None:
        """Return the code with which a command line is refused."""
        guard = GuardEngine(lambda: (*(f"{self.root}/{name}" for name in GUARDED), "**/.claude"))
        under = mission(resource_scope=("**",) if everything else (self.root,), cwd=self.root)
        arguments: dict[str, JSON] = {"command": text}
        return judged("Bash", arguments, under=under, engines=(NativeEngine(), guard), files=LocalFiles()).code


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make a guarded project."""
    return Place(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "cp -t .claude x.json", "cp -rt . d/.claude", "cp -rT d .", "cp -r -T d/.claude .claude", "mv -t . d/.claude",
        "mv -T d .claude", "install -Dt .claude x.json", "cp -t .claude *", "cp --target-dir=.claude x.json",
        "ln -st .claude x.json",
    ],
)  # fmt: skip
def test_a_copy_is_seen_where_an_option_says_that_it_lands(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


@pytest.mark.parametrize(
    "text",
    [
        "split --additional-suffix=.json x.json .mcp", "split x.json REM", "csplit -f .mcp -b '.json%.0d' x.json 1",
        "cp -b -S .json x.json .mcp", "cp --backup=simple --suffix=.md x.json REMIT", "mv -b -S .md x.json REMIT",
        "install -b -S .json x.json .mcp", "ln -b -S .md -s x REMIT", "sed -i.json s/a/b/ .mcp",
        "sed --in-place=.md s/a/b/ REMI?", "sed -i'.claude/*' s/a/b/ x.json", "gunzip REMIT.md.gz",
        "unxz -k .mcp.json.xz", "zstd -d REMIT.md.zst", "python -m zipfile -e a.zip .", "python -m tarfile -e a.tar .",
    ],
)  # fmt: skip
def test_a_name_that_a_program_makes_up_is_seen(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


@pytest.mark.parametrize(
    "text",
    [
        "pytest --basetemp=.", "python -m pytest --basetemp .claude", "python -m venv --clear .",
        "virtualenv --clear .",
        "vite build --outDir . --emptyOutDir", "cargo clean --target-dir .", "rimraf .", "rimraf '**/.claude'",
        "npx --no-install rimraf .claude", "npx --no-install cross-env A=1 rm -rf .claude",
        "npx --no-install shx rm -rf .claude",
    ],
)  # fmt: skip
def test_a_folder_that_is_emptied_is_deleted(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


@pytest.mark.parametrize(
    "text",
    [
        "git stash -a", "git stash --all", "git stash push --all -m x", "git rm ':(glob)**/settings*'",
        "git rm -f '*settings*'", "git rm *settings.json", "git rm --pathspec-from-file=l",
        "git checkout X -- '.claude/*'",
        "git checkout X -- ':/.claude/settings.json'", "git checkout X ':!src'", "git checkout X '*.json'",
        "git checkout X e/.claude/s", "git checkout --pathspec-from-file=l X", "git restore ':/.claude/settings.json'",
        "git restore -s X ':!src'", "git restore -S -W .claude/settings.json", "git stash push .claude",
        "git read-tree -u --prefix=.claude/ X", "git clean -fdx ':/'", "cd src && git checkout X -- ':(top).claude'",
    ],
)  # fmt: skip
def test_git_touches_what_a_pathspec_may_name(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


def test_settings_of_git_that_can_run_commands_are_guarded_with_their_file(place: Place) -> None:
    for text in ("git config core.hooksPath x", "git config set core.hooksPath x", "git config -- core.fsmonitor x"):
        assert place.code(text, everything=True) == "governance_guarded"
    for text in ("git config user.name x", "git config core.hooksPath", "git config --get core.editor"):
        assert place.code(text, everything=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "echo x > .CLAUDE/settings.json", "rm -rf .Claude", "echo x > remit.md", "rm .CLAUDE/*", "rm Remit.*",
        "cp x.json e/.Claude/settings.json",
    ],
)  # fmt: skip
def test_capital_letters_make_no_difference(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


@pytest.mark.parametrize(
    "text",
    [
        "shopt -s dotglob; sed -i s/a/b/ *.json", "GLOBIGNORE=x; rm *.json", "rm .*", "find . -name '*.json' -delete",
        "find . -name settings.json | xargs sed -i s/a/b/", "find src -name 'settings*' -delete",
        "find src -name .claude -exec rm -r {} +",
    ],
)  # fmt: skip
def test_a_glob_that_picks_hidden_names_reaches_a_guarded_folder(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


@pytest.mark.parametrize(
    "text",
    [
        "git clean -n", "git clean -nfdx", "git clean --dry-run -fdx", "git apply --check x.diff",
        "git apply --stat x.diff", "patch --dry-run -p1 < x.diff", "unzip -l x.zip", "unzip -p x.zip a",
        "rsync -an d/ .", "git rm -n .claude/settings.json",
        "git restore --staged .claude/settings.json",
    ],
)  # fmt: skip
def test_what_only_looks_is_permitted(place: Place, text: str) -> None:
    assert place.code(text) is None


@pytest.mark.parametrize(
    "text",
    ["unzip x.zip -l .claude/settings.json", "unzip -l-l x.zip", "git apply --check --apply x.diff", "git clean -fdx"],
)
def test_an_option_that_does_not_keep_it_from_changing_anything_is_no_look(place: Place, text: str) -> None:
    assert place.code(text, everything=True) == "governance_guarded"


@pytest.mark.parametrize(
    "text",
    [
        "sed -i s/a/b/ *.json", "rm *.json", "cp -t src x.json", "cp -rT src lib", "mv -t src x.json", "split x.json",
        "split x.json out/part", "csplit x.json 1", "cp -b x.json y.json", "sed -i.bak s/a/b/ src/*.py", "gunzip x.tgz",
        "gunzip src/*.gz", "python -m zipfile -e a.zip src", "python -m zipfile -c a.zip src", "pytest --basetemp=tmp",
        "python -m venv --clear venv", "vite build --outDir dist --emptyOutDir", "cargo clean --target-dir target2",
        "npx --no-install rimraf dist", "git stash", "git stash push -m x", "git checkout main",
        "git checkout -- src/a.py", "git checkout X -- 'src/*'", "git restore .", "git reset --hard",
        "git rm 'src/*.py'",
        "git rm '*.pyc'", "git add '*.py'", "git diff -- ':!src'", "git log -- '*.md'", "git merge x",
        "find . -name '*.pyc' -delete", "find src -name '*.json' -delete", "tar xf x.tar -C src",
        "find . -name '*.py' | xargs sed -i.bak s/a/b/",
    ],
)  # fmt: skip
def test_everyday_work_beside_a_guarded_folder_goes_on(place: Place, text: str) -> None:
    assert place.code(text) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("awk -f e.awk x.json", "target_unknown"), ("sed -n -f e.sed x.json", "target_unknown"),
        ("docker exec x curl http://evil", "out_of_scope"), ("docker run i curl x", "out_of_scope"),
    ],
)  # fmt: skip
def test_code_that_nobody_reads_is_refused(place: Place, text: str, code: str) -> None:
    assert place.code(text) == code
