"""Git: what a sub command does is the same whatever stands between it and the name of the program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from remit.policy.shell.tables import Program, known_program
from tests.policy.judging import BASE, command, touched

# Options of git itself that change neither the repository nor what is done.
HARMLESS = ["--no-pager", "-P -C .", "--literal-pathspecs", "--namespace x", "--namespace=x -C src -C .."]
REFUSED = [
    "-c core.pager=x", "-calias.x=!id", "--git-dir=x", "--git-dir x", "--exec-path=x", "--config-env=a=b", "-p",
    "--paginate", "--work-tree=..", "--work-tree ..", "-C ..", "-C /", "-C $X", "--unheard-of", "--git-di=x",
]  # fmt: skip
WORDS = ["", "-- ../x", "-s x -m y", "https://example.org/x"]


def subcommands() -> list[Program]:
    git = known_program("git")
    assert git is not None
    return list(git.sub.values())


def leaves(program: Program) -> Iterator[Program]:
    if not program.sub:
        yield program
    for sub in program.sub.values():
        yield from leaves(sub)


@pytest.mark.parametrize("options", HARMLESS)
def test_an_option_of_git_itself_hides_nothing_of_a_sub_command(options: str) -> None:
    for sub in {leaf.name for program in subcommands() for leaf in leaves(program)}:
        name = sub.removeprefix("git ")
        for words in WORDS:
            plain, given = command(f"git {name} {words}"), command(f"git {options} {name} {words}")
            assert touched(plain) <= touched(given), (options, name, words)
            assert {doubt.reason for doubt in plain.action.doubts} <= {doubt.reason for doubt in given.action.doubts}
            assert plain.action.side_effects <= given.action.side_effects | {"none"}
            assert plain.action.runs_code <= given.action.runs_code


@pytest.mark.parametrize(
    "script", ["{}; bash src/x/run.sh", "echo x > src/a.sh; {}; bash src/a.sh", "{}; cd src && rm x"]
)
def test_a_directory_that_an_option_names_is_judged_like_one_that_was_entered(script: str) -> None:
    for program in subcommands():
        name = program.name.removeprefix("git ")
        for words in ("x", "https://example.org/x"):
            entered = command(script.format(f"(cd src && git {name} {words})"))
            named = command(script.format(f"git -C src {name} {words}"))
            assert named.permits == entered.permits, (name, words)
            assert {doubt.reason for doubt in entered.action.doubts} <= {doubt.reason for doubt in named.action.doubts}
            assert touched(entered) <= touched(named), (name, words)


@pytest.mark.parametrize("options", REFUSED)
def test_an_option_that_takes_another_repository_or_runs_something_refuses_every_sub_command(options: str) -> None:
    for program in subcommands():
        name = program.name.removeprefix("git ")
        assert not command(f"git {options} {name}").permits, (options, name)


@pytest.mark.parametrize("options", ["", *HARMLESS])
@pytest.mark.parametrize(
    "text",
    [
        "tag -s v1 -m x", "tag --sign v1 -m x", "tag -u me -m x v1", "commit -S -m x", "commit -Sme -m x",
        "commit --gpg-sign=me -m x", "merge -S x", "rebase --gpg-sign x", "cherry-pick -S x", "tag -v v1",
        "verify-commit HEAD", "verify-tag v1", "log --show-signature", "am -S x.patch",
    ],
)  # fmt: skip
def test_signing_reaches_the_keys_at_home(tmp_path: Path, options: str, text: str) -> None:
    files = LocalFiles(home=str(tmp_path))
    decision = command(f"git {options} {text}", files=files)
    assert f"write {tmp_path}/.gnupg" in touched(decision)
    assert decision.code == "out_of_scope"


@pytest.mark.parametrize("text", ["tag v1", "tag -m x v1", "commit -m x", "commit -s -m x", "merge x", "log -S x"])
def test_what_is_not_signed_stays_in_the_repository(tmp_path: Path, text: str) -> None:
    assert command(f"git {text}", files=LocalFiles(home=str(tmp_path))).permits


@pytest.mark.parametrize("name", ["../x", "../../x", "/etc/x", "a/b", "$X", "..", "x/"])
def test_a_file_of_patterns_in_every_directory_is_a_name(name: str) -> None:
    for text in (f"--exclude-per-directory={name}", f"--exclude-per-directory {name}", f"--exclude-per-dir={name}"):
        assert not command(f"git ls-files -o {text}").permits, text


def test_a_usual_file_of_patterns_in_every_directory_is_fine() -> None:
    assert command("git ls-files -o --exclude-per-directory=.gitignore").permits


@pytest.mark.parametrize(
    "text",
    [
        "hash-object -w --stdin", "hash-object -w a", "mktree", "mktree --missing", "mktag", "commit-tree HEAD -m x",
        "read-tree HEAD", "read-tree -u --reset x", "replace a b", "fast-import", "unpack-objects",
        "update-index --cacheinfo 120000,b223,l", "update-index --index-info", "bundle unbundle a.bundle",
    ],
)  # fmt: skip
def test_what_composes_objects_or_the_index_out_of_data_is_refused(text: str) -> None:
    decision = command(f"printf x | git {text}")
    assert not decision.permits
    assert any(doubt.unbounded for doubt in decision.action.doubts)


@pytest.mark.parametrize("text", ["hash-object a", "ls-tree HEAD", "cat-file -p HEAD", "write-tree", "rev-parse HEAD"])
def test_looking_at_objects_goes_on(text: str) -> None:
    assert command(f"git {text}").permits


@pytest.mark.parametrize("text", ["clone {} b", "fetch {}", "pull {} main", "remote add x {}"])
def test_a_bundle_can_hold_links_and_a_repository_is_one_that_is_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "file").write_text("x")
    files, scope = LocalFiles(), (str(tmp_path.resolve()),)
    assert command(f"git {text.format('./repository')}", files=files, scope=scope).permits
    assert not command(f"git {text.format('./file')}", files=files, scope=scope).permits


REF_COMMANDS = [
    "update-ref {} HEAD", "update-ref -d {}", "symbolic-ref {} refs/heads/x", "symbolic-ref -d {}",
    "symbolic-ref refs/heads/x {}",
]  # fmt: skip


@pytest.mark.parametrize("text", REF_COMMANDS)
@pytest.mark.parametrize(
    "name", ["hooks/pre-commit", "config", "commondir", "info/attributes", "main-worktree/hooks/x"]
)
def test_a_ref_beside_the_others_is_a_file_of_the_repository(text: str, name: str) -> None:
    decision = command(f"git {text.format(name)}")
    assert f"write {BASE}/.git/{name}" in touched(decision)
    assert decision.code == "out_of_scope"
    assert not command(f"git {text.format('$NAME')}").permits


@pytest.mark.parametrize("text", REF_COMMANDS)
@pytest.mark.parametrize("name", ["refs/heads/a", "refs/remotes/origin/HEAD", "HEAD", "ORIG_HEAD", "FETCH_HEAD"])
def test_an_ordinary_ref_is_gits_own_work(text: str, name: str) -> None:
    assert command(f"git {text.format(name)}").permits


def test_refs_from_standard_input_are_not_known() -> None:
    assert not command("git update-ref --stdin <<< 'create hooks/x HEAD'").permits


@pytest.mark.parametrize(
    "text",
    [
        "merge -s {} x", "merge --strategy={} x", "rebase -s {} x", "rebase --strategy {} x", "pull -s {} ./a x",
        "cherry-pick --strategy={} x", "revert --strategy={} x", "pull --strategy={} ./a x",
    ],
)  # fmt: skip
def test_a_strategy_that_git_does_not_bring_is_a_program(text: str) -> None:
    for name in ("/x", "x", "../x", "/../../x", "$X", "git-merge-ort"):
        assert not command(f"git {text.format(name)}").permits, name
    for name in ("ort", "recursive", "resolve", "octopus", "ours", "subtree"):
        assert command(f"git {text.format(name)}").permits, name


@pytest.mark.parametrize("source", ["-f -", "-f /dev/stdin", "--file=c", "--blob=x", ""])
@pytest.mark.parametrize("reading", ["-l", "--get-regexp .", "--get a.b"])
def test_settings_that_include_other_files_are_not_known(source: str, reading: str) -> None:
    assert not command(f"git config --includes {source} {reading}").permits
    assert not command(f"git config {source} {reading} --include").permits


@pytest.mark.parametrize(
    ("text", "permits"),
    [
        ("user.name", True), ("--get user.name", True), ("-l", True), ("core.hooksPath", True), ("user.name x", False),
        ("--unset user.name", False), ("--add user.name x", False), ("--replace-all user.name x", False),
        ("--unset-all user.name", False), ("get user.name", True), ("list", True), ("set user.name x", False),
        ("user.name ''", False), ("-e", False), ("--remove-section user", False),
    ],
)  # fmt: skip
def test_settings_at_home_are_read_and_not_written(tmp_path: Path, text: str, permits: bool) -> None:
    for option in ("--global", "--system"):
        decision = command(f"git config {option} {text}", files=LocalFiles(home=str(tmp_path)))
        assert decision.permits is permits, decision.reason


@pytest.mark.parametrize(
    "text", ["core.fsmonitor x", "--unset core.hooksPath", "core.pager x", "$KEY", "--add alias.x !id"]
)
def test_a_setting_that_runs_something_is_not_written(text: str) -> None:
    assert not command(f"git config {text}").permits


@pytest.mark.parametrize("option", ["--work-tree=src", "--work-tree src", "--work-tree=.", "--work-tree=$X"])
def test_another_work_tree_is_refused(option: str) -> None:
    assert not command(f"git {option} checkout HEAD -- a").permits


@pytest.mark.parametrize(
    "text",
    [
        "git checkout x", "git switch x", "git merge x", "git rebase x", "git revert --no-edit HEAD",
        "git cherry-pick x", "git reset --hard x", "git stash", "git stash pop", "git bisect start HEAD x",
        "git restore .", "git am x", "git apply x", "git read-tree -u x", "git sparse-checkout set tests",
        "git checkout-index -a", "git rm -r 's*'", "git clean -fd src",
        "git pull . x", "cd src; git revert x; cd ..", "git submodule deinit --all",
    ],
)  # fmt: skip
def test_a_folder_may_be_gone_after_git_has_changed_the_work_tree(tmp_path: Path, text: str) -> None:
    root = tmp_path.resolve() / "app"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (tmp_path / "other").write_text("x")
    outside = f"read {tmp_path.resolve()}/other"
    for before, reads in ((text, True), ("git status", False)):
        decision = command(f"{before}; cd src; cat ../other", files=LocalFiles(), scope=(str(root),))
        assert (outside in touched(decision)) is reads, before


@pytest.mark.parametrize("name", ["/../../x", "a/b", "/etc/passwd", "$X"])
def test_the_subject_of_a_manual_is_no_path(name: str) -> None:
    assert not command(f"git help {name}").permits
    assert command("git help commit").permits


@pytest.mark.parametrize(
    "text", ["checkout -- a", "checkout x -- a", "checkout HEAD~1 a", "restore a", "restore -s x a"]
)
def test_what_is_restored_by_name_may_be_a_link(text: str) -> None:
    for reading in ("cat a", "echo x > a", "cp a b", "cat a/b", "cat *"):
        assert not command(f"git {text} && {reading}").permits, reading
    for going_on in ("cat b", "npm test", "git status", "git commit -am x", "git checkout HEAD -- a", "git add -A"):
        assert command(f"git {text} && {going_on}").permits, going_on


@pytest.mark.parametrize("text", ["checkout .", "restore .", "rm --cached a", "restore --staged a", "reset HEAD a"])
def test_what_is_put_back_as_a_whole_or_only_in_the_index_is_as_it_was(text: str) -> None:
    assert command(f"git {text} && cat a && git add a").permits
