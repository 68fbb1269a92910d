"""What a decision costs: `python -m bench.policy`, or `make bench`.

Each row is in microseconds and as a multiple of one raw ES256 signature of the same run. Rows with a limit are held to
it: the exit code is 1 if one is over. The second table is for hostile commands of 64 KiB, next to the same at 16 KiB:
the ratio says whether the work grows faster than the text.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from bench.units import Work, measure, raw_signature
from remit.claims.mission import Mission
from remit.claims.strictjson import JSON
from remit.policy.budget import Budget
from remit.policy.call import ToolCall
from remit.policy.cedar import CedarEngine
from remit.policy.decide import Decision, judge
from remit.policy.engines import Engine, SessionStatus
from remit.policy.files import Files, LocalFiles
from remit.policy.native import NativeEngine

STANDING = SessionStatus("pass:benchmark:0001", Budget(tool_calls=100, duration_s=3600))
LIMITS = {"path tool": 1.0, "simple command": 3.0}
CEDAR = """permit(principal, action, resource);
@id("no-secrets") forbid(principal, action, resource) when { context.paths.contains("/etc/shadow") };"""
SCRIPT = """set -euo pipefail
cd src
ls -la
count=$(grep -c def app.py)
echo "there are $count functions"
for file in app.py util.py; do
  wc -l "$file"
  head -n 5 "$file" > "../out/$file.head"
done
cd ..
mkdir -p out/report
cat src/app.py | sort | uniq -c | sort -rn | head -20 > out/report/lines.txt
if [ -f README.md ]; then sed -n '1,20p' README.md; else echo "no README"; fi
find . -name '*.py' -type f -print0 | xargs -0 grep -n TODO || true
git add -A
git commit -m "Report: $count functions"
git log --oneline -5
python3 -m pytest -q tests
tar -czf out/report.tgz out/report
rm -rf out/report
"""
# Pieces that made readers of shell scripts slow, repeated.
HOSTILE = (
    "ls;", "(", "$(", "((", "`", "{", "if true; then ", "<<a ", "$((", "${x:-", "a|", "<", "'", "a=(", "f() ", "x[",
    "{a,b}", "a=$a$a;", "*/", "\\", " a", "cd a;", "find . -exec ", "nice ", "$x", "awk '{", "sed 's/a/b/;", "[",
)  # fmt: skip
SIZE = 65_536


def project(root: Path) -> str:
    """Make a small project folder and return its path."""
    for name in ("src/app.py", "src/util.py", "tests/test_app.py", "README.md", "out/keep"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def main():\n    return 1\n", encoding="utf-8")
    (root / ".git").mkdir()
    return os.path.realpath(root)


class Bench:
    """A mission for one folder, and calls judged under it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.mission = Mission(
            agent_id="agent:benchmark",
            mission="Work on the project",
            allowed_tools=("*",),
            resource_scope=(folder, "https://api.example.com/v1/**"),
            cwd=folder,
        )
        self.files: Files = LocalFiles()

    def call(self, tool: str, arguments: dict[str, JSON], *engines: Engine) -> Work:
        """Return the work of one decision."""
        asked = ToolCall(tool, arguments)
        given = engines or (NativeEngine(),)

        def work() -> Decision:
            return judge(asked, self.mission, STANDING, engines=given, files=self.files, clock=time.perf_counter)

        return work

    def cases(self) -> dict[str, Work]:
        """Return the kinds of calls, by name."""
        read: dict[str, JSON] = {"file_path": f"{self.folder}/src/app.py"}
        return {
            "unknown tool": self.call("frobnicate", {"title": "hello", "count": 3}),
            "path tool": self.call("Read", read),
            "URL tool": self.call("WebFetch", {"url": "https://api.example.com/v1/items", "prompt": "list"}),
            "simple command": self.call("Bash", {"command": "cat README.md"}),
            "git commit": self.call("Bash", {"command": 'git commit -m "fix the thing"'}),
            "pipe of two": self.call("Bash", {"command": "cat README.md | wc -l"}),
            "20-command script": self.call("Bash", {"command": SCRIPT}),
            "path tool with Cedar": self.call("Read", read, NativeEngine(), CedarEngine(CEDAR)),
        }


def decisions(bench: Bench) -> bool:
    """Print what each kind of decision costs; tell whether all limits are kept."""
    sign, _ = raw_signature(bytes(1024))
    cases = bench.cases()
    denied = [name for name, work in cases.items() if not getattr(work(), "permits", False)]
    timings = measure({"one raw ES256 signature": sign, **cases})
    unit = timings["one raw ES256 signature"].median
    print(f"{'decision':<28}{'microseconds':<32}{'x signature':>12}  limit")
    kept = not denied
    for name, timing in timings.items():
        limit = LIMITS.get(name)
        ratio = timing.median / unit
        kept = kept and (limit is None or ratio <= limit)
        print(f"{name:<28}{timing!s:<32}{ratio:>12.2f}  {limit or ''}")
    if denied:
        print(f"denied, and should not be: {', '.join(denied)}")
    return kept


def hostile(bench: Bench) -> None:
    """Print the slowest hostile commands."""
    rows: list[tuple[float, float, str]] = []
    for piece in HOSTILE:
        times = [seconds(bench.call("Bash", {"command": (piece * SIZE)[:size]})) for size in (SIZE // 4, SIZE)]
        rows.append((times[1], times[1] / max(times[0], 1e-6), piece))
    print(f"\n{'64 KiB of':<28}{'milliseconds':>14}{'x 16 KiB':>12}")
    for took, ratio, piece in sorted(rows, reverse=True)[:6]:
        print(f"{piece!r:<28}{took * 1000:>14.1f}{ratio:>12.1f}")


def seconds(work: Work) -> float:
    """Return the processor time of one run, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best


def main() -> int:
    """Run both tables."""
    with tempfile.TemporaryDirectory() as root:
        bench = Bench(project(Path(root)))
        kept = decisions(bench)
        hostile(bench)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
