"""Code that arrives where no file is: at standard input, a descriptor, or in a word."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from remit.policy.shell.tables import Program, known_program, program_names
from tests.policy.judging import command, doubted, judged, mission, touched

# Ways to give a text.
GIVEN = ["{} <<< {!r}", "{} <<'END'\n{}\nEND", "echo {1!r} | {0}", "printf '%s\\n' {1!r} | {0}"]
STREAMS = [
    "-",
    "/dev/stdin",
    "/dev/fd/0",
    "/dev/fd/3",
    "/proc/self/fd/0",
    "/proc/self/fd/3",
    "/proc/1/fd/0",
    "<(cat x)",
]
CLIENTS = ["sqlite3 a.db", "sqlite a.db", "duckdb a.db", "python -m sqlite3 a.db"]
SERVERS = ["psql -d app", "mysql app", "mariadb app"]
EVERYWHERE = ("/work/app", "db://*")


def readers() -> Iterator[str]:
    """Yield every program that runs what it reads, and one that needs an operand beside it with that."""
    for name in sorted(program_names()):
        program = known_program(name)
        if program is not None and program.stdin and not program.refusal:
            yield name
    yield from (*CLIENTS, *SERVERS)


def takes(program: Program, role: str) -> bool:
    return bool(program.operands) and program.operands[0].rstrip("*") == role


@pytest.mark.parametrize("name", list(readers()))
def test_what_a_program_runs_from_standard_input_must_be_known(name: str) -> None:
    for text in (f"{name} < x", f"cat x | {name}", f"sort x | {name}", f"{name} < <(cat x)"):
        assert command(text, scope=EVERYWHERE).code == "target_unknown", text
    assert command(f"exec < x; {name}", scope=EVERYWHERE).code == "target_unknown"


@pytest.mark.parametrize("form", GIVEN)
@pytest.mark.parametrize("client", [*CLIENTS, *SERVERS])
@pytest.mark.parametrize(
    "query",
    [
        ".shell cat x",
        ".read ../x",
        ".output ../x",
        ".import ../x t",
        ".once ../x",
        "\\\\! cat x",
        "select readfile(name) from t",
        "select writefile(name, 1) from t",
        "attach x as y",
        "attach char(46, 46, 47) || name as y",
        "vacuum into char(46, 46, 47) || name",
    ],
)
def test_a_query_at_standard_input_is_read_as_one(client: str, query: str, form: str) -> None:
    assert command(form.format(client, query), scope=EVERYWHERE).code == "target_unknown"


@pytest.mark.parametrize("form", GIVEN)
@pytest.mark.parametrize("client", [*CLIENTS, *SERVERS])
def test_a_plain_query_at_standard_input_is_permitted(client: str, form: str) -> None:
    assert command(form.format(client, "select 1;"), scope=EVERYWHERE).permits


def test_standard_input_is_not_read_where_a_word_has_given_the_query() -> None:
    for text in ("sqlite3 a.db 'select 1'", "duckdb a.db -c 'select 1'", "psql -d app -c 'select 1'"):
        assert command(f"cat x | {text}", scope=EVERYWHERE).permits, text
    assert command("cat x | sqlite3 -cmd 'select 1' a.db").code == "target_unknown"


@pytest.mark.parametrize(
    "text", [".tables", ".schema", ".schema users", ".mode csv", ".headers on", ".tables\nselect 1;", "  .indexes t"]
)
def test_a_command_of_sqlite3_that_only_shows_something_is_permitted(text: str) -> None:
    assert command(f"sqlite3 a.db $'{text}'".replace("\n", "\\n")).permits
    assert command(f"sqlite3 a.db <<'END'\n{text}\nEND").permits
    assert not command(f"duckdb a.db <<'END'\n{text}\nEND").permits or "select" in text


@pytest.mark.parametrize(
    "text", [".schemax", ".tables;.shell id", ".schema 'a'", ".mode $x", ".shell", ".system id", ".open x"]
)
def test_any_other_command_of_sqlite3_is_a_doubt(text: str) -> None:
    assert command(f"sqlite3 a.db <<'END'\n{text}\nEND").code == "target_unknown"


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    "name", [name for name in sorted(program_names()) if takes(known_program(name) or Program(), "compiled")]
)
def test_source_that_is_in_no_file_is_a_doubt(name: str, stream: str) -> None:
    decision = command(f"{name} {stream} <<< '#include \"/etc/passwd\"' 3<<< x")
    assert decision.code == "target_unknown"


@pytest.mark.parametrize("stream", STREAMS[1:])
@pytest.mark.parametrize(
    "text",
    [
        "gcc -include {} a.c",
        "gcc -imacros {} a.c",
        "ld -T {}",
        "gcc -E -x c {}",
        "clang++ -x c++ -E {}",
        "node {}",
        "perl {}",
        "ruby {}",
        "tsx {}",
        "bun run {}",
        "deno run {}",
        "make -f {}",
        "cmake -P {}",
        "awk -f {} a",
        "sed -f {} a",
        "jq -f {} a.json",
        "psql -d app -f {}",
        "php {}",
        "go run {}",
        "protoc {}",
        "runghc {}",
        "runhaskell -Wall {}",
        "uv run --script {}",
        "uv run -s {}",
        "uv run --script={}",
        "node --env-file={} a.js",
        "node --env-file-if-exists {} a.js",
        "uv run --env-file {} pytest",
        "deno run --env-file={} a.ts",
    ],
)
def test_code_that_is_in_no_file_is_refused(text: str, stream: str) -> None:
    assert not command(text.format(stream) + " <<< '.shell x' 3<<< x", scope=EVERYWHERE).permits


def test_what_another_descriptor_holds_is_not_what_standard_input_holds() -> None:
    assert command("gcc -E -x c /dev/stdin < /dev/null").permits
    assert command("gcc -E -x c /dev/fd/3 3<<< x < /dev/null").code == "target_unknown"
    assert command("gcc -E -x c <(ls) < /dev/null").code == "target_unknown"


@pytest.mark.parametrize("stream", STREAMS[:3])
def test_a_script_at_standard_input_is_followed_by_any_name(stream: str) -> None:
    assert "read /etc/passwd" in touched(command(f"bash {stream} <<< 'cat /etc/passwd'")) or stream == "-"
    assert "read /etc/x" in touched(command(f"python {stream} <<< 'print(open(\"/etc/x\").read())'"))


@pytest.mark.parametrize("option", ["--import", "--loader", "--experimental-loader", "-r", "--require"])
@pytest.mark.parametrize("name", ["data:text/javascript,x", "https://b.example/x.js", "file:///etc/x.js"])
def test_a_module_that_is_an_address_is_code_in_a_word(option: str, name: str) -> None:
    assert command(f"node {option} '{name}' a.js").code == "target_unknown"
    assert option == "-r" or command(f"node {option}='{name}' a.js").code == "target_unknown"
    assert command(f"node {option} ./x.mjs a.js").permits


@pytest.mark.parametrize(
    "code",
    ["process.version", "process.versions.v8", "require('./package.json').version", "console.log(process.platform)"],
)
def test_node_may_show_a_version(code: str) -> None:
    assert command(f'node -p "{code}"').permits
    assert command(f'node -e "{code}"').permits


@pytest.mark.parametrize(
    "code",
    [
        "require('../package.json').version",
        "require('./a/../../package.json')",
        "require('./package.js')",
        "process.env",
        "process.version;x",
        "require('./package.json').version, x()",
        "require('./a.json')[x]",
        "console.log(process.version",
    ],
)
def test_any_other_code_for_node_is_a_doubt(code: str) -> None:
    assert command(f'node -p "{code}"').code == "target_unknown"


def test_tests_that_node_finds_are_code_of_the_project() -> None:
    assert command("node --test").action.runs_code
    assert command("tsx --test").action.runs_code
    assert command("echo x > a.test.js; node --test").code == "target_unknown"
    assert not command("node --version").action.runs_code


# Modules of Python


@pytest.mark.parametrize(
    "text",
    [
        "python -m pygments ../x",
        "python -m pygments -o ../x a",
        "python -m pygments -o../x a",
        "python -m wheel unpack -d ../x a.whl",
        "python -m autopep8 -i ../x.py",
        "python -m dotenv -f ../x list",
        "python -m some_module --out=../x",
        "python -m some_module https://b.example/",
        "python -m some_module -c 'print(1)'",
        "python -m some_module --eval='print(1)'",
        "python -m some_module -cprint(1)".replace("(1)", "'(1)'"),
        "python -m some_module -c $x",
        "python -m fire os system id",
        "python -m xonsh -c id",
        "python -m IPython -c id",
    ],
)
def test_words_of_a_module_that_nobody_described_are_judged(text: str) -> None:
    assert not command(text).permits


def test_a_module_that_nobody_described_is_code_of_the_project() -> None:
    decision = command("python -m some_module src/a.py -c config.yaml")
    assert decision.permits
    assert decision.action.runs_code


@pytest.mark.parametrize("name", ["json.py", "this.py", "argparse.py", "json/__init__.py"])
def test_a_file_that_stands_in_for_a_module_is_code_of_the_project(name: str, tmp_path: Path) -> None:
    def runs_code() -> bool:
        return command("python -m json.tool a.json", files=LocalFiles(), scope=(str(tmp_path),)).action.runs_code

    assert not runs_code()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x = 1\n")
    assert runs_code()


def test_a_module_may_be_used_where_nothing_may_change(tmp_path: Path) -> None:
    reading = mission(resource_scope=(str(tmp_path),), cwd=str(tmp_path), allowed_side_effect_classes=("none",))
    call = {"command": "cat a.json | python -m json.tool"}
    assert judged("Bash", call, under=reading, files=LocalFiles()).permits
    (tmp_path / "json.py").write_text("x = 1\n")
    assert not judged("Bash", call, under=reading, files=LocalFiles()).permits


@pytest.mark.parametrize(
    "text", ["json.py; python -m json.tool a", "pip.py; python -m pip list", "this.py; python -m this"]
)
def test_a_module_that_the_same_command_writes_is_a_doubt(text: str) -> None:
    decision = command(f"echo x > {text}")
    assert decision.code == "target_unknown"
    assert decision.action.runs_code
    assert doubted(decision)


def test_a_module_may_write_a_folder_of_its_own_name() -> None:
    assert command("python -m venv venv").permits


@pytest.mark.parametrize("text", ["gcc -E a.c", "gcc -c a.s", "rustc a.rs", "javac A.java", "swiftc a.swift", "ld a.o"])
def test_what_is_compiled_can_include_anything_as_code_of_the_project_can(text: str) -> None:
    decision = command(text)
    assert decision.permits
    assert decision.action.runs_code


@pytest.mark.parametrize("text", ["pyright -", "basedpyright -", "python -m py_compile -", "cppcheck --file-list=x"])
def test_a_list_of_files_that_nobody_has_read_is_refused(text: str) -> None:
    assert command(f"{text} <<< ../x").code == "target_unknown"
    assert command(f"echo ../x | {text}").code == "target_unknown"


@pytest.mark.parametrize(
    "text",
    [
        "node --env-file=.env a.js", "node --env-file .env a.js", "node --env-file-if-exists=.env a.js",
        "uv run --env-file .env pytest", "deno run --env-file=.env a.ts", "bun test", "bun run build",
    ],
)  # fmt: skip
def test_variables_from_a_file_that_the_same_command_writes_are_refused(text: str) -> None:
    assert command(text).permits
    assert command(f"echo 'NODE_OPTIONS=--import=x' > .env; {text}").code == "target_unknown"
