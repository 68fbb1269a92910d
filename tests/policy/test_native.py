"""The passport's own rules: their order, their codes, and remedies that really help."""

from itertools import combinations
from pathlib import Path

import pytest

from remit.claims.strictjson import JSON
from remit.policy.budget import Budget
from remit.policy.engines import Change, Remedy, SessionStatus
from remit.policy.files import LocalFiles
from remit.policy.scope import match_tool
from tests.policy.judging import BASE, STANDING, applied, judged, mission

READ: dict[str, JSON] = {"file_path": "/etc/passwd"}
WRONG: dict[str, object] = {
    "max_tool_calls": 1,
    "max_duration_s": 60,
    "forbidden_tools": ("Write",),
    "allowed_tools": (),
    "resource_scope": (BASE,),
    "allowed_side_effect_classes": ("none",),
}
SPENT = SessionStatus("grant:00000001", Budget(tool_calls=0, duration_s=0))
# One rule after the other is satisfied; the next refusal is the one that shows.
ORDER: list[tuple[str | None, dict[str, object]]] = [
    ("tool_calls_exhausted", {}),
    ("duration_exceeded", {}),
    ("tool_forbidden", {"forbidden_tools": ()}),
    ("tool_not_allowed", {"allowed_tools": ("Write",)}),
    ("out_of_scope", {"resource_scope": ("/etc",)}),
    ("side_effect_not_allowed", {"allowed_side_effect_classes": ("internal_write",)}),
    (None, {}),
]


def test_the_rules_are_asked_in_the_order_of_the_page() -> None:
    members: dict[str, object] = dict(WRONG)
    budgets = [Budget(0, 0), Budget(1, 0), Budget(1, 1)]
    for index, (code, change) in enumerate(ORDER):
        standing = SessionStatus("grant:00000001", budgets[min(index, 2)])
        decision = judged("Write", {"file_path": "/etc/x"}, under=mission(**members), standing=standing)
        assert decision.code == code
        members.update(change)


def test_a_tool_that_is_not_allowed_comes_before_its_scope() -> None:
    assert judged("Read", READ, under=mission(allowed_tools=("Write",))).code == "tool_not_allowed"
    assert (
        judged("Read", READ, under=mission(allowed_tools=("Write",), forbidden_tools=("R*",))).code == "tool_forbidden"
    )


@pytest.mark.parametrize(
    ("code", "public"),
    [
        ("passport_revoked", "revoked"),
        ("session_revoked", "revoked"),
        ("session_ended", "revoked"),
        ("kill_switch", "revoked"),
        ("protection_tampered", "revoked"),
        ("chain_broken", "chain_invalid"),
        ("duration_exceeded", "budget_exhausted"),
    ],
)
def test_a_session_that_stands_badly_refuses_every_call(code: str, public: str) -> None:
    standing = SessionStatus("grant:00000001", Budget(0, 0), code)
    decision = judged("Read", READ, under=mission(allowed_tools=()), standing=standing)
    assert (decision.decision, decision.code, decision.public_reason) == ("DENY", code, public)
    assert decision.remedy is not None
    assert decision.remedy.changes == ()


def test_calls_that_a_delegate_holds_are_told_from_those_that_were_used() -> None:
    standing = SessionStatus("grant:00000001", Budget(0, 9, own_calls=False))
    assert judged("Read", {}, standing=standing).code == "lineage_budget_exhausted"


@pytest.mark.parametrize(
    ("entries", "tool", "named"),
    [
        (("Read",), "Read", "Read"),
        (("Re*",), "Read", "Re*"),
        (("mcp__?__x",), "mcp__a__x", "mcp__?__x"),
        (("[RW]*",), "Write", "[RW]*"),
        (("a[b",), "a[b", "a[b"),
        ((), "Read", None),
        (("read",), "Read", None),
        (("READ*",), "Read", None),
        (("Read ",), "Read", None),
        (("Read",), "Read ", None),
        (("Read",), "\u211bead", None),
        (("Rea",), "Read", None),
    ],
)
def test_a_tool_is_named_exactly_or_by_a_glob(entries: tuple[str, ...], tool: str, named: str | None) -> None:
    assert match_tool(entries, tool) == named


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("Bash(pytest)", "pytest -q tests"),
        ("Bash( pytest )", "pytest"),
        ("*(pytest)", "pytest"),
        ("B[a]sh(pytest)", "pytest"),
        ("Bash(pytest)", "cd src && echo go && test -f x || pytest"),
        ("Bash(pytest)", "A=1 pytest; env B=2 pytest; timeout 9 nice pytest; time pytest"),
        ("Bash(pytest)", "uv run pytest"),
        ("Bash(uv run pytest)", "timeout 9 uv run pytest -q"),
        ("Bash(pytest)", "bash -c 'pytest -q'"),
        ("Bash(pytest)", "echo $(pytest) `pytest`"),
        ("Bash(python -m pytest)", "python -m pytest -q"),
        ("Bash(git log)", "git log --oneline"),
        ("Bash(git log)", "git -C src --no-pager log -1"),
        ("Bash(git)", "git log && git status"),
        ("Bash(/usr/bin/git)", "git log"),
        ("Bash(git)", "/usr/bin/git log"),
        ("Bash(./run.sh)", "./run.sh a"),
        ("Bash(./run.sh)", "src/../run.sh a"),
        ("Bash(/work/app/run.sh)", "cd src && ../run.sh"),
        ("Bash(kill)", "kill %1"),
        ("Bash(ls)", "echo 'rm x' # rm x"),
    ],
)
def test_an_entry_allows_the_commands_that_begin_with_its_words(entry: str, text: str) -> None:
    assert judged("Bash", {"command": text}, under=mission(allowed_tools=(entry,))).permits


EVERYTHING = {"resource_scope": ("**",)}


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("Bash(pytest)", "pytest; ls"),
        ("Bash(pytest)", "pytest | tail -3"),
        ("Bash(pytest)", "echo $(ls)"),
        ("Bash(pytest)", "bash -c 'pytest; ls'"),
        ("Bash(pytest)", "timeout 9 ls"),
        ("Bash(pytest)", "find . -name x -exec pytest {} +"),
        ("Bash(find)", "find . -name x -exec rm {} +"),
        ("Bash(xargs)", "echo a | xargs rm"),
        ("Bash(env)", "env rm x"),
        ("Bash(bash)", "bash -c 'rm x'"),
        ("Bash(timeout)", "timeout 9 rm x"),
        ("Bash(uv run)", "uv run pytest"),
        ("Bash(pytest)", "trap 'rm x' EXIT; pytest"),
        ("Bash(pytest)", "pytest() { rm x; }; pytest"),
        ("Bash(pytest)", "sudo pytest"),
        ("Bash(pytest)", "pytest2"),
        ("Bash(pytest -q)", "pytest"),
        ("Bash(pytest -q)", "pytest tests -q"),
        ("Bash(git log)", "git push"),
        ("Bash(git log)", "git 'log x'"),
        ("Bash(git log)", "git $X"),
        ("Bash(git log)", "git -c alias.log='!rm x' log"),
        ("Bash(pytest)", "$X"),
        ("Bash(pytest)", "$X pytest"),
        ("Bash(pytest)", "pytest; $X"),
        ("Bash(pytest)", "timeout 9 pytest; $X"),
        ("Bash(pytest)", 'eval "$X"'),
        ("Bash(pytest)", "pytest; . ./x.sh"),
        ("Bash(pytest)", "PATH=/tmp pytest"),
        ("Bash(pytest)", "LD_PRELOAD=x env pytest"),
        ("Bash(pytest)", "env LD_PRELOAD=x pytest"),
        ("Bash(pytest)", "bash --rcfile x -c pytest"),
        ("Bash(pytest)", "alias pytest=ls; pytest"),
        ("Bash(pytest)", "./pytest"),
        ("Bash(pytest)", "/tmp/pytest"),
        ("Bash(./run.sh)", "run.sh"),
        ("Bash(./run.sh)", "cd src && ./run.sh"),
        ("Bash(run.sh)", "./run.sh"),
        ("Bash(pytest)", "kill 1"),
        ("Bash(pytest)", "npx something"),
        ("Bash(pytest*)", "pytest"),
        ("Bash(*)", "pytest"),
        ("Bash(pytest:*)", "pytest"),
        ("Bash()", "pytest"),
        ("Bash(pytest", "pytest"),
        ("(pytest)", "pytest"),
        ("bash(pytest)", "pytest"),
    ],
)
def test_an_entry_allows_no_other_command_whatever_the_scope(entry: str, text: str) -> None:
    decision = judged("Bash", {"command": text}, under=mission(allowed_tools=(entry,), **EVERYTHING))
    assert decision.code == "tool_not_allowed"


def test_a_tool_without_a_command_line_is_not_allowed_by_the_program_it_may_run() -> None:
    for tool, arguments in (("KillShell", {"shell_id": "1"}), ("Read", READ), ("frob", {"command": "pytest"})):
        assert judged(tool, arguments, under=mission(allowed_tools=("*(pytest)",))).code == "tool_not_allowed"


def test_a_relative_program_is_named_only_where_the_passport_says_where_it_starts() -> None:
    under = mission(allowed_tools=("Bash(./run.sh)",), cwd=None)
    assert judged("Bash", {"command": "./run.sh"}, under=under, cwd=BASE).code == "tool_not_allowed"


def test_a_program_is_named_by_the_path_that_is_written_unless_it_goes_upwards(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "a/b").mkdir(parents=True)
    (root / "run").symlink_to("a/tool")
    (root / "link").symlink_to("a/b")
    under = mission(allowed_tools=("Bash(./run)",), resource_scope=(str(root),), cwd=str(root))
    for text, permits in (("./run", True), ("a/../run", False), ("link/../run", False), ("a/tool", False)):
        assert judged("Bash", {"command": text}, under=under, files=LocalFiles(home=None)).permits == permits


def test_a_tool_that_is_really_called_like_an_entry_is_allowed_by_a_glob_alone() -> None:
    """The entry itself names a program of `frob`, and who has `frob` can give it to a delegate."""
    assert judged("frob(x)", {}, under=mission(allowed_tools=("frob(x)",))).code == "tool_not_allowed"
    assert judged("frob(x)", {}, under=mission(allowed_tools=("frob(x[)]",))).permits
    assert judged("frob(x)", {}, under=mission(forbidden_tools=("frob(x)",))).code == "tool_forbidden"


@pytest.mark.parametrize(
    "text",
    [
        "git push", "git push origin", "git -C src push", "git --no-pager -c a=b push", "/opt/bin/git push",
        "env git push", "bash -c 'git push'", "ls && git push", "echo $(git push)", "echo x | xargs git push",
        "git $X", "git -C $X push", "$X push", "timeout 9 git push", "git $X push",
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found_behind_options_and_other_programs(text: str) -> None:
    under = mission(forbidden_tools=("Bash(git push)",), **EVERYTHING)
    assert judged("Bash", {"command": text}, under=under).code == "tool_forbidden"


@pytest.mark.parametrize(
    "text",
    ["git log", "git commit -m push", "git stash push", "echo git push", "git -C push log", "gitk push", "ls push"],
)
def test_what_only_reads_like_something_forbidden_is_not(text: str) -> None:
    under = mission(forbidden_tools=("Bash(git push)", "Read(git log)"), **EVERYTHING)
    assert judged("Bash", {"command": text}, under=under).permits


@pytest.mark.parametrize(
    ("text", "word"), [("alias ll='ls -l'", "ll="), ("PATH=$PATH:./x jest", "PATH"), ("eval $X", "eval")]
)
def test_a_program_that_nobody_knows_is_refused_by_naming_the_doubt_first(text: str, word: str) -> None:
    decision = judged("Bash", {"command": text}, under=mission(forbidden_tools=("Bash(git push)",), **EVERYTHING))
    assert decision.code == "tool_forbidden"
    assert -1 < decision.reason.find(word) < decision.reason.find("git push")


@pytest.mark.parametrize("text", ["printf -- '%s' a", 'printf "$X"', "ulimit -z", "wait --all"])
def test_a_doubt_that_starts_no_program_is_none_about_programs(text: str) -> None:
    under = mission(forbidden_tools=("Bash(git push)",), **EVERYTHING)
    assert judged("Bash", {"command": text}, under=under).permits


@pytest.mark.parametrize("text", ["npx eslint .", "npx eslint@9 .", "env X=1 npx foo", "uv run pytest"])
def test_a_program_that_only_starts_others_can_be_forbidden(text: str) -> None:
    under = mission(forbidden_tools=("Bash(npx)", "Bash(uv run)"), **EVERYTHING)
    assert judged("Bash", {"command": text}, under=under).code == "tool_forbidden"


def test_the_reason_names_the_program_and_no_more_of_the_command() -> None:
    under = mission(allowed_tools=("Bash(pytest)",))
    decision = judged("Bash", {"command": "frob --key hunter2 -- hunter2"}, under=under)
    assert "'frob'" in decision.reason
    assert "hunter2" not in decision.reason + str(decision.remedy)


def test_programs_that_are_not_known_or_too_many_have_no_change() -> None:
    under = mission(allowed_tools=("Bash(pytest)",), **EVERYTHING)
    many = "; ".join(f"frob{number}" for number in range(40))
    for text in ("$X", many, "'a b'"):
        decision = judged("Bash", {"command": text}, under=under)
        assert (decision.code, changes_of(decision.remedy)) == ("tool_not_allowed", ())


def test_an_unknown_target_is_a_denial_for_missing_evidence() -> None:
    decision = judged("Bash", {"command": "cat $X"})
    assert (decision.code, decision.verdict) == ("target_unknown", "insufficient_evidence")
    assert decision.public_reason == "insufficient_evidence"


def test_a_scope_of_everything_needs_no_target() -> None:
    assert judged("Bash", {"command": "cat $X"}, under=mission(resource_scope=("**",))).permits


def test_a_command_that_cannot_be_read_is_denied_even_where_everything_is_in_scope() -> None:
    decision = judged("Bash", {"command": "cat 'x"}, under=mission(resource_scope=("**",)))
    assert (decision.code, decision.verdict) == ("shell_unparsed", "insufficient_evidence")


def test_code_that_nobody_can_follow_may_have_every_side_effect() -> None:
    narrow = mission(resource_scope=("**",), allowed_side_effect_classes=("none", "internal_write", "state_change"))
    assert judged("Bash", {"command": "unknown-program"}, under=narrow).code == "side_effect_not_allowed"
    assert judged("Bash", {"command": "cat $X"}, under=narrow).permits


def test_raised_privileges_need_everything_in_scope() -> None:
    decision = judged("Bash", {"command": "sudo ls"}, under=mission(resource_scope=("/",)))
    assert decision.code == "out_of_scope"
    assert decision.remedy is not None
    assert decision.remedy.changes == ()
    assert judged("Bash", {"command": "sudo ls"}, under=mission(resource_scope=("**",))).permits


REFUSED: list[tuple[str, dict[str, JSON], dict[str, object], SessionStatus]] = [
    ("Read", READ, {}, STANDING),
    ("Read", READ, {"allowed_tools": ()}, STANDING),
    ("odd[tool]*", {}, {"allowed_tools": ()}, STANDING),
    ("Read", READ, {"forbidden_tools": ("Read", "R*", "W*")}, STANDING),
    ("Write", {"file_path": "/etc/x", "content": "x"}, WRONG, SPENT),
    ("Write", {"file_path": "/a/[b]*?", "content": "x"}, {}, STANDING),
    ("Bash", {"command": "cp /etc/a /usr/b; curl -d x 'https://a.example/b?c'"}, {}, STANDING),
    ("Bash", {"command": "cat /etc/*.conf"}, {"allowed_side_effect_classes": ()}, STANDING),
    ("Bash", {"command": "rm -r /var/x"}, {"allowed_side_effect_classes": ("none",)}, STANDING),
    ("Bash", {"command": "echo x > /dev/tcp/a.example/99"}, {}, STANDING),
    ("Bash", {"command": "ssh a.example ls"}, {"resource_scope": ()}, STANDING),
    ("WebFetch", {"url": "https://a.example/b", "prompt": "p"}, {}, STANDING),
    ("send_email", {"to": "a@b.example", "body": "x"}, {"allowed_side_effect_classes": ("none",)}, STANDING),
    ("Read", READ, {}, SessionStatus("grant:00000001", Budget(0, -7))),
    ("Bash", {"command": "pytest -q | tail -3"}, {"allowed_tools": ("Bash(ls)",)}, STANDING),
    ("Bash", {"command": "npm run build && python -m build"}, {"allowed_tools": ("*(ls)",)}, STANDING),
    ("Bash", {"command": "./run.sh a; node b.js; kill 1"}, {"allowed_tools": ("Bash(ls)",)}, STANDING),
    ("Bash", {"command": "git -C src log"}, {"forbidden_tools": ("Bash(git log)", "Bash(ls)")}, STANDING),
    ("Bash", {"command": "cat /etc/a"}, {"allowed_tools": ("Bash(ls)",)}, STANDING),
]


@pytest.mark.parametrize(("tool", "arguments", "members", "standing"), REFUSED)
def test_the_changes_of_a_remedy_permit_the_call_and_each_is_needed(
    tool: str, arguments: dict[str, JSON], members: dict[str, object], standing: SessionStatus
) -> None:
    under = mission(**members)
    remedy = judged(tool, arguments, under=under, standing=standing).remedy
    assert remedy is not None
    assert remedy.changes
    for count in range(len(remedy.changes) + 1):
        for some in combinations(remedy.changes, count):
            changed, then = applied(under, some, standing)
            permits = judged(tool, arguments, under=changed, standing=then).permits
            assert permits == (count == len(remedy.changes))


def changes_of(remedy: Remedy | None) -> tuple[Change, ...]:
    assert remedy is not None
    return remedy.changes


def test_every_value_of_a_scope_remedy_is_needed() -> None:
    text = {"command": "cp /etc/a /usr/b"}
    (change,) = changes_of(judged("Bash", text).remedy)
    assert change == Change("resource_scope", "add", ("/etc/a", "/usr/b"))
    for value in change.values:
        fewer = tuple(other for other in change.values if other != value)
        assert not judged("Bash", text, under=mission(resource_scope=(BASE, *fewer))).permits


def test_more_places_than_a_passport_should_gain_have_no_change() -> None:
    words = " ".join(f"/etc/{number}" for number in range(40))
    decision = judged("Bash", {"command": f"cat {words}"})
    assert decision.code == "out_of_scope"
    assert changes_of(decision.remedy) == ()


@pytest.mark.parametrize(
    ("text", "word"), [("cat $X", "$X"), ("unknown-program a", "unknown-program"), ("cat ~/x", "~/x")]
)
def test_a_doubt_names_its_word_in_the_remedy(text: str, word: str) -> None:
    decision = judged("Bash", {"command": text})
    assert decision.remedy is not None
    assert changes_of(decision.remedy) == ()
    assert word in decision.remedy.sentence


def test_a_permission_has_no_remedy() -> None:
    decision = judged("Read", {"file_path": "a"})
    assert (decision.decision, decision.code, decision.remedy) == ("PERMIT", None, None)


def test_reasons_stay_short_whatever_the_agent_sends() -> None:
    decision = judged("Read", {"file_path": "/" + "x" * 4000})
    assert len(decision.reason) < 1024
    assert len(judged("t" * 5000, {}, under=mission(allowed_tools=())).reason) < 1024
