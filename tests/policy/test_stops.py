"""Command lines that would stop the process that judges, in every order of their words; none of them is ever run."""

import itertools
import random
import re
import shlex
import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

from remit.policy.agents import AGENTS
from remit.policy.stops import ProcessMatch, find_match
from tests.policy.judging import command

pytestmark = pytest.mark.slow

LINE: Final = "/opt/x/bin/python3.11 /opt/x/bin/remit hub --port 8765"
PID: Final = 4711
SIGNALS: Final[Mapping[str, tuple[list[str], ...]]] = {
    "pkill": ([], ["-9"], ["-KILL"], ["-sigterm"], ["--signal", "HUP"], ["--signal=9"]),
    "killall": ([], ["-9"], ["-KILL"], ["-s", "HUP"], ["--signal", "HUP"], ["--signal=9"]),
}
FLAGS: Final[Mapping[str, tuple[list[str], ...]]] = {
    "pkill": ([], ["-f"], ["-x"], ["-fi"], ["--full", "--exact"], ["-n"], ["-o"], ["-e"]),
    "killall": ([], ["-q"], ["-w"], ["-vI"], ["-e", "-r"], ["--wait", "--quiet"]),
}
SELECTORS: Final = {
    "pkill": (
        ["-v"], ["--inverse"], ["-vf"], ["-fv"], ["--inv"], ["-u", "root"], ["-uroot"], ["--euid", "0"], ["--euid=0"],
        ["-U", "0"], ["--uid=0"], ["-G", "0"], ["-g", "0"], ["-g4711"], ["--pgroup", "4711"], ["-s", "0"],
        ["--session=0"], ["-P", "1"], ["--parent", "1"], ["-t", "pts/0"], ["-F", "pid"], ["--pidfile=pid"], ["-O", "1"],
        ["--older", "1"], ["-r", "S"], ["--runstates=S"], ["--ns", "1"], ["--cgroup", "/"], ["--env", "A"], ["-fu0"],
        ["--unheard-of"], ["-q", "-v"], ["--signal", "-v"], ["-9", "-v"], ["-TERM", "-HUP"],
    ),
    "killall": (
        ["-u", "root"], ["-uroot"], ["--user", "root"], ["--user=root"], ["-g"], ["--process-group"], ["-o", "1s"],
        ["--older-than", "1s"], ["-y", "1d"], ["--younger-than=1d"], ["-n", "1"], ["--ns", "1"], ["-Z", "."],
        ["--context=."], ["-c", "x"], ["-t", "tty"], ["-z"], ["-qg"], ["-gq"], ["--unheard-of"], ["-s", "-u", "root"],
    ),
}  # fmt: skip


def stopped(text: str) -> ProcessMatch | None:
    """Return what a command line would stop Remit by."""
    commands = command(text, scope=("**",), cwd="/work/app").action.commands or ()
    return find_match(commands, frozenset({PID, 4700}), LINE)


def orders(*parts: list[str]) -> set[str]:
    """Return the words of the parts, in every order of the parts."""
    return {shlex.join(itertools.chain(*some)) for some in itertools.permutations(parts)}


@pytest.mark.parametrize("program", ["pkill", "killall"])
def test_a_name_that_no_process_of_remit_has_may_be_stopped(program: str) -> None:
    for signal, flags in itertools.product(SIGNALS[program], FLAGS[program]):
        for text in orders(signal, flags, ["vite"]):
            assert stopped(f"{program} {text}") is None, text


@pytest.mark.parametrize("program", ["pkill", "killall"])
@pytest.mark.parametrize(
    "name", ["remit", "python", "python3.11", "8765", ".", "", "^py", "hub$", "re[mn]it", "(", "a|hub"]
)
def test_a_name_of_remit_is_not_stopped_whatever_else_is_said(program: str, name: str) -> None:
    for signal, flags in itertools.product(SIGNALS[program], FLAGS[program]):
        for text in orders(signal, flags, [name], ["vite"]):
            assert stopped(f"{program} {text}") is not None, text


@pytest.mark.parametrize("program", ["pkill", "killall"])
def test_processes_are_selected_by_names_alone(program: str) -> None:
    for selector, signal, flags in itertools.product(SELECTORS[program], SIGNALS[program], FLAGS[program][:2]):
        for text in (*orders(selector, signal, flags, ["vite"]), *orders(selector, signal, flags)):
            assert stopped(f"{program} {text}") is not None, text


@pytest.mark.parametrize("lead", [[], ["-9"], ["-1"], ["-KILL"], ["-s", "15"], ["-n", "1"], ["--signal", "1"]])
def test_kill_stops_neither_remit_nor_everyone_in_any_order(lead: list[str]) -> None:
    signals = lead or ["--"]
    for dashes, others in itertools.product(([], ["--"]), (["4712"], ["-4713"], ["%1"], ["4712", "4713"])):
        harmless = shlex.join(("kill", *lead, *dashes, *others))
        if lead or dashes or not others[0].startswith("-"):
            assert stopped(harmless) is None, harmless
        for bad in ("-1", "0", "4711", "-4711", "04711", "+4711", " -1", "4294967295", "4294972007", "0x1267", "-4700"):
            for at in range(len(others) + 1):
                words = ("kill", *signals, *dashes, *others[:at], bad, *others[at:])
                assert stopped(shlex.join(words)) is not None, words


def test_kill_is_judged_by_all_of_its_words_also_after_one_that_is_not_certain() -> None:
    many = " ".join(str(number) for number in range(10_000, 10_040))
    for text in ("kill $X {}", "kill -9 $X {}", "kill -s $X {}", f"kill {many} {{}}", 'kill -9 "$(cat x)" {} 4712'):
        for bad in ("4711", "-1"):
            found = stopped(text.format(bad))
            assert found is not None, text
            assert found.by == bad, text
    assert stopped(f"kill {many} 4712") is None


# Words that are not certain: each may come to the number of Remit, to a signal, or to several words.
UNCERTAIN: Final = (
    "$X", '"$X"', "$(cat x)", "`cat x`", "$(pgrep -f remit)", "$(lsof -ti:8765)", '"$(pidof python3)"', "$PPID", "$$",
    "$((4710 + 1))", "{4000..4300}", "471*", "${X:-4712}", "-$X", "471$X", "$X%1", "$!1", "1$!", "$!$!",
)  # fmt: skip
CARRIED: Final = (
    "{}",
    "command {}",
    "builtin {}",
    "env {}",
    "nohup {}",
    "timeout 9 {}",
    "( {} )",
    "if true; then {}; fi",
    "f() {{ {}; }}; f",
    "for i in 1 2; do {}; done",
    "sleep 1 & {}",
    "true && {}",
    "{} || true",
    "trap '{}' EXIT",
)


@pytest.mark.parametrize("word", UNCERTAIN)
def test_a_process_that_is_not_known_before_it_runs_is_not_stopped(word: str) -> None:
    for signal, carried in itertools.product(("", "-9 ", "-s KILL ", "-- "), CARRIED):
        if "trap" not in carried or "'" not in word:
            text = carried.format(f"kill {signal}{word}")
            assert stopped(text) is not None, text
    for others in (
        f"kill 4712 {word}",
        f"kill %1 {word}",
        f"kill {word} %1",
        f"kill -9 {word} 4712",
        f"kill $! {word}",
    ):
        assert stopped(others) is not None, others
    assert stopped(f"echo {word} | xargs kill") is not None
    assert stopped(f"cat x | xargs -I {{}} kill {{}} {word}") is not None


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_an_assistant_is_not_stopped_in_any_spelling(name: str) -> None:
    spelled = (
        name,
        name.upper(),
        f"{name[0]}[{name[1]}]{name[2:]}",
        f"{name[:-1]}.",
        f"^{name}$",
        f"x|{name}",
        name[:4],
    )
    for program, word in itertools.product(("pkill", "pkill -f", "pkill -9 -fi", "killall -r", "killall -I"), spelled):
        text = f"{program} {shlex.quote(word)}"
        assert stopped(text) is not None, text


@pytest.mark.parametrize(
    "text",
    [
        "skill -KILL root", "snice root", "killall5 -9", "fuser -k 8765/tcp", "fuser -vk x", "fuser --kill x",
        "pkill $X", "pkill -f $X", "killall $X vite", "pgrep x | xargs pkill", "pkill -o", "pkill -9", "killall",
        "kill $(pgrep -f remit)", "kill $(lsof -ti:8765)", "lsof -ti:8765 | xargs kill -9", "kill {4000..4300}",
        "kill {4700..4712}", "pkill -f 'r[e]mit'", "pgrep x | xargs kill", "xargs kill < x", "xargs -a x kill -9",
        "systemctl --user stop 'remit*'", "kill $PPID", "kill -9 $(cat x)",
        "busybox pkill -v x", "busybox kill 4711", "toybox killall remit", "systemctl --user stop '*'",
        "systemctl stop remit-hub", "/usr/bin/pkill -v x", "env pkill -v x", "echo 4712 -1 | xargs kill",
        "echo x -v | xargs pkill", "bash -c 'pkill -u root'", "kill -9 remit", "kill 4711:99",
        "pkill '[[:alpha:]]emit'", r"pkill '\<remit'", "pkill '.*+remit'", "pkill '(.*)*x'", "pkill 'r{1}emit'",
    ],
)  # fmt: skip
def test_what_may_select_remit_is_not_stopped(text: str) -> None:
    assert stopped(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "kill -l", "kill 4712", "kill %1", "kill -0 4712", "kill -0 4711", "sleep 9 & kill $!", "kill $(jobs -p)",
        "sleep 9 & pid=$!; kill -9 $pid", 'sleep 9 & pid=$!; kill -- "-$pid"', 'kill -0 "$X"', "kill -0 $(pgrep -f x)",
        "pkill -f 'node .*server'", "pkill -f 'vite|webpack'", "killall -9 node", "pkill --help", "killall -V",
        "fuser -v 3000/tcp", "systemctl status nginx", "busybox ls", "pkill -f 'python app.py'",
        "pkill -f '/w/[ab].js'",
    ],
)  # fmt: skip
def test_everyday_ways_to_stop_processes_stay_as_they_were(text: str) -> None:
    assert stopped(text) is None


def test_a_pattern_that_an_extended_regular_expression_matches_is_never_missed() -> None:
    chosen = random.Random(4711)
    parts = (
        "r",
        "e",
        "m",
        "i",
        "t",
        "remit",
        ".",
        "*",
        "+",
        "?",
        "|",
        "(",
        ")",
        "[a-z]",
        "[^x]",
        "^",
        "$",
        "\\",
        "{1}",
        "x",
    )
    patterns = {"".join(chosen.choices(parts, k=chosen.randint(1, 6))) for _ in range(250)}
    missed = [
        pattern
        for pattern in sorted(patterns)
        if stopped(f"pkill -f -- {shlex.quote(pattern)}") is None
        and subprocess.run(["grep", "-Eiq", "-e", pattern], input=LINE, text=True, check=False).returncode == 0
    ]
    assert missed == []
    assert any(
        stopped(f"pkill -f -- {shlex.quote(pattern)}") is None for pattern in patterns if re.search("x", pattern)
    )
