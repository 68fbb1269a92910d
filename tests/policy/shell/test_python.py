"""Short Python programs: only what is known to be harmless passes."""

import shlex

import pytest

from remit.policy.decide import Decision
from tests.policy.judging import command, touched

pytestmark = pytest.mark.slow


def python(program: str) -> Decision:
    return command(f"python3 -c {shlex.quote(program)}")


@pytest.mark.parametrize(
    "program",
    [
        "print(1 + 2)",
        "x = [n * 2 for n in range(3)]; print(sorted(x))",
        "import json, sys; print(json.dumps(json.load(sys.stdin)))",
        "import re; print(re.sub('a', 'b', 'c'))",
        "from collections import Counter; print(Counter('abc').most_common(1))",
        "from datetime import datetime; print(datetime.now().isoformat())",
        "import os; print(os.getcwd(), os.environ.get('X'))",
        "import os.path; print(os.path.join('a', 'b'))",
        "import math as m; print(m.sqrt(2))",
        "def f(x):\n    return x + 1\nprint(f(1))",
        "try:\n    pass\nexcept ValueError as e:\n    raise",
        "import hashlib; print(hashlib.sha256(b'x').hexdigest())",
        "print(f'{1:>3}')",
        "with open('a') as f:\n    print(f.read())",
        "import urllib.parse; print(urllib.parse.quote('a'))",
        "while True:\n    break",
        "print(*map(str, [1]), sep=',')",
        "import sys; sys.exit(1)",
        "",
    ],
)
def test_a_harmless_program_is_permitted(program: str) -> None:
    assert python(program).permits


@pytest.mark.parametrize(
    ("program", "effects"),
    [
        ("open('a')", {"read /work/app/a"}),
        ("open('/etc/x').read()", {"read /etc/x"}),
        ("open('/etc/x', 'rb')", {"read /etc/x"}),
        ("open('/etc/x', 'w')", {"write /etc/x"}),
        ("open('/etc/x', mode='a')", {"write /etc/x"}),
        ("open('/etc/x', 'r+')", {"read /etc/x", "write /etc/x"}),
        ("f = lambda: open('/etc/x')", {"read /etc/x"}),
        ("def f(x=open('/etc/x')): pass", {"read /etc/x"}),
        ("print(f'{open(\"/etc/x\").read()}')", {"read /etc/x"}),
        ("import json; json.dump({}, open('/etc/x', 'w'))", {"write /etc/x"}),
        ("import os; os.listdir('/etc')", {"read /etc"}),
        ("import os as o; o.remove('/etc/x')", {"delete /etc/x"}),
        ("from os import unlink; unlink('/etc/x')", {"delete /etc/x"}),
        ("import os; os.makedirs('/etc/x')", {"write /etc/x"}),
        ("import os; os.path.exists('/etc/x')", {"read /etc/x"}),
        ("import glob; glob.glob('/etc/*')", {"read /etc/…"}),
        ("from pathlib import Path; Path('/etc/x').read_text()", {"read /etc/x"}),
        ("import pathlib; pathlib.Path('/etc/x').write_text('y')", {"write /etc/x"}),
    ],
)
def test_the_files_of_a_program_are_found(program: str, effects: set[str]) -> None:
    decision = python(program)
    assert {effect for effect in touched(decision) if not effect.startswith("run ")} == effects
    assert not decision.action.doubts


@pytest.mark.parametrize(
    "program",
    [
        "import subprocess",
        "import os; os.system('x')",
        "import os; os.rename('a', 'b')",
        "import os; f = os.system",
        "import os; o = os",
        "from os import *",
        "from os import system",
        "from . import x",
        "import my_module",
        "import importlib",
        "import sys; sys.modules",
        "import sys; sys.path",
        "__import__('os')",
        "eval('1')",
        "exec('1')",
        "compile('1', '', 'exec')",
        "getattr(1, 'x')",
        "vars()",
        "globals()",
        "().__class__",
        "print.__self__",
        "x.__dict__",
        "__builtins__",
        "open(x)",
        "open('a' + 'b')",
        "open(f'{1}')",
        "open('a', x)",
        "open('a', **x)",
        "open(*x)",
        "open(file='a')",
        "open(0)",
        "f = open",
        "map(open, ['a'])",
        "open = print",
        "open('a', opener=print)",
        "class A: pass",
        "@print\ndef f(): pass",
        "async def f(): pass",
        "import os; os.environ = {}",
        "import json; json.loads = print",
        "import json; json.tool",
        "import math; math.__loader__",
        "import statistics; statistics.sys.modules",
        "from pathlib import Path; p = Path('a')",
        "from pathlib import Path; Path(x).read_text()",
        "from pathlib import Path; Path('a').rename('/etc/b')",
        "from pathlib import Path; Path('a').parent",
        "import glob; glob.glob(x)",
        "import json; [json for json in [1]]",
        "import pickle",
        "import ctypes",
        "import urllib.request",
        "import socket",
        "breakpoint()",
        "help()",
        "not python(",
        "x = 1\n" * 2001,
        "#" * 9000,
    ],
)
def test_anything_that_is_not_on_a_list_is_a_doubt(program: str) -> None:
    decision = python(program)
    assert decision.code == "target_unknown"
    assert any(doubt.unbounded for doubt in decision.action.doubts)


@pytest.mark.parametrize(
    "program",
    [
        "import statistics\ns = statistics.sys\ns.path.insert(0, '/etc')\nimport json",
        "from statistics import sys\nsys.path.insert(0, '/etc')\nimport json",
    ],
)
def test_a_module_is_not_reached_through_another(program: str) -> None:
    assert not python(program).permits


def test_a_module_may_be_a_file_of_the_project() -> None:
    assert python("import json; print(1)").action.runs_code
    assert not python("print(1)").action.runs_code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("python3 a.py", None),
        ("python3 a.py /etc/x", "out_of_scope"),
        ("python3 a.py --out=/etc/x", "out_of_scope"),
        ("python3 a.py https://a.example", "out_of_scope"),
        ("python3 /etc/a.py", "out_of_scope"),
        ("python3 -m pytest", None),
        ("python3 -m pytest /etc", "out_of_scope"),
        ("python3 -m json.tool a", None),
        ("python3 -m json.tool /etc/x", "out_of_scope"),
        ("python3 -m http.server", "target_unknown"),
        ("python3 -m smtplib", "target_unknown"),
        ("python3 -m $x", "target_unknown"),
        ('python3 -c "$x"', "target_unknown"),
        ("python3 < a.py", "target_unknown"),
        ("cat a.py | python3 -", "target_unknown"),
        ("python3 <<'E'\nopen('/etc/x')\nE", "out_of_scope"),
        ("python3 - <<'E'\nimport os; os.system('x')\nE", "target_unknown"),
        ("echo 'open(\"/etc/x\")' | python3", "out_of_scope"),
        ("python3 -W ignore -c \"open('/etc/x')\"", "out_of_scope"),
        ("python3 -cimport\\ subprocess", "target_unknown"),
        ("python3 -Ic \"open('/etc/x')\"", "out_of_scope"),
        ("python3 --version", None),
    ],
)
def test_the_words_of_python_are_told_apart(text: str, code: str | None) -> None:
    assert command(text).code == code
