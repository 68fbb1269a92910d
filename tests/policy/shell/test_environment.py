"""Variables that choose what programs run, load or contact."""

from pathlib import Path

import pytest

from remit.policy.files import LocalFiles
from remit.policy.shell.evaluate.settings import is_steering
from tests.policy.judging import command, doubted, touched

STEERING = """
    PATH CDPATH HOME SHELL ENV IFS BASH_ENV PROMPT_COMMAND LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES GIT_DIR
    GIT_SSH_COMMAND SSH_ASKPASS PAGER EDITOR VISUAL GIT_EDITOR LESSOPEN PYTHONSTARTUP PYTHONHOME NODE_OPTIONS
    NPM_CONFIG_REGISTRY npm_config_registry PERL5OPT PERL5LIB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS CLASSPATH
    MAKEFLAGS CARGO_HOME RUSTC_WRAPPER GOFLAGS GOPROXY CC CXX PIP_INDEX_URL UV_INDEX PYTEST_ADDOPTS DOCKER_HOST
    KUBECONFIG AWS_PROFILE http_proxy HTTPS_PROXY ALL_PROXY CURL_HOME WGETRC SSL_CERT_FILE TAR_OPTIONS GZIP
    RIPGREP_CONFIG_PATH RSYNC_RSH TMPDIR XDG_CONFIG_HOME PGHOST MYSQL_HOST AWKPATH BROWSER GNUPGHOME
    GCC_COMPARE_DEBUG COLLECT_GCC JDK_JAVAC_OPTIONS GOCACHEPROG GOAUTH GOPACKAGESDRIVER PSQL_PAGER ANT_ARGS
    CCACHE_PREFIX CCACHE_REMOTE_STORAGE OTEL_EXPORTER_OTLP_ENDPOINT NIX_PATH CRYSTAL_OPTS ELIXIR_ERL_OPTIONS RAKEOPT
    CCC_OVERRIDE_OPTIONS XDEBUG_CONFIG TURBO_API TURBO_REMOTE_CACHE_URL NYC_CONFIG PYRIGHT_PYTHON_FORCE_VERSION
    PS0 PS1 PS2 PS4 CARGO PKG_CONFIG FC RSH FUNCNEST npm_execpath https_proxy no_proxy
""".split()
HARMLESS = """
    FOO CI DEBUG NODE_ENV TZ LANG LC_ALL COLUMNS NO_COLOR FORCE_COLOR PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PORT
    XDEBUG_MODE TURBO_TELEMETRY_DISABLED PS5 X path env home tmp temp shell editor zip cc pager
    MYAPP_OPTIONS TEST_ARGS APP_PREFIX
""".split()


@pytest.mark.parametrize("name", STEERING)
def test_a_variable_that_steers_programs_is_refused_wherever_it_is_set(name: str) -> None:
    assert is_steering(name)
    for text in (f"{name}=x ls", f"env {name}=x ls", f"export {name}=x", f"declare -x {name}=x"):
        assert command(text).code == "target_unknown", text


@pytest.mark.parametrize("name", HARMLESS)
def test_other_variables_only_inform(name: str) -> None:
    assert not is_steering(name)
    for text in (f"{name}=x ls", f"env {name}=x ls", f"export {name}=x", f"{name}=x"):
        decision = command(text)
        assert decision.permits, text
        assert f"setenv {name}" in touched(decision)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("PYTHONPATH=src python a.py", None),
        ("PYTHONPATH=src:lib python a.py", None),
        ("PYTHONPATH=/etc python a.py", "out_of_scope"),
        ("PYTHONPATH=src:/etc python a.py", "out_of_scope"),
        ("PYTHONPATH=.. python a.py", "out_of_scope"),
        ("PYTHONPATH=$x python a.py", "target_unknown"),
        ("NODE_PATH=/etc node a.js", "out_of_scope"),
        ("NODE_PATH=lib node a.js", None),
    ],
)
def test_where_code_is_looked_for_is_held_against_the_scope(text: str, code: str | None) -> None:
    decision = command(text)
    assert decision.code == code
    assert decision.action.runs_code


@pytest.mark.parametrize("value", ["/etc/x", "../../x", "'cat ../../x'", "'a b/../../../x'"])
def test_a_value_that_reads_like_a_path_elsewhere_may_be_written(value: str) -> None:
    assert command(f"OUT={value} ls").code == "out_of_scope"
    assert command(f"env OUT={value} ls").code == "out_of_scope"


@pytest.mark.parametrize("value", ["a", "src/x", "'a /etc/x'", "1", "''"])
def test_other_values_name_no_file(value: str) -> None:
    assert command(f"OUT={value} ls").permits


def test_a_variable_of_the_script_alone_names_no_file() -> None:
    assert command("OUT=/etc/x").permits
    assert command("OUT=/etc/x; cat $OUT").code == "out_of_scope"


WAYS = ["{}={} make", "env {}={} make", "export {}={}; make", "{0}={1}; export {0}; make", "declare -x {}={}; make"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["COVERAGE_FILE", "OUT", "MYPY_CACHE_DIR", "GCOV_PREFIX", "DESTDIR", "JUNIT_NAME"])
def test_a_value_that_reads_like_a_file_may_be_written(way: str, name: str) -> None:
    for value in ("NOTES.md", ".git/hooks", "./a/b.c"):
        assert f"write /work/app/{value.removeprefix('./')}" in touched(command(way.format(name, value))), value
    assert not command(way.format(name, "/etc/x")).permits


@pytest.mark.parametrize("name", ["SPEC_OPTS", "RUBOCOP_OPTS", "TEST_ARGS", "MYAPP_OPTIONS"])
def test_files_among_options_in_a_variable_may_be_written(name: str) -> None:
    for value in ("-o NOTES.md", "--out=NOTES.md", "-oNOTES.md", "--a b NOTES.md"):
        assert "write /work/app/NOTES.md" in touched(command(f"{name}='{value}' rspec")), value


def test_parts_of_a_value_may_be_written_too() -> None:
    for value in ("xml:NOTES.md", "a=NOTES.md", "x,NOTES.md"):
        assert "write /work/app/NOTES.md" in touched(command(f"GTEST_OUTPUT={value} make")), value


def test_a_value_that_is_the_name_of_a_file_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "NOTES").touch()
    (tmp_path / "docs").mkdir()
    files, scope = LocalFiles(str(tmp_path)), (str(tmp_path),)
    assert f"write {tmp_path}/NOTES" in touched(command("OUT=NOTES ls", files=files, scope=scope))
    assert f"write {tmp_path}/docs" not in touched(command("OUT=docs ls", files=files, scope=scope))


@pytest.mark.parametrize(
    "text", ["LANG=en_US.UTF-8 ls", "TZ=Europe/Berlin date", "X=1.2.3 ls", "X=v1.2 ls", "APP_MODULE=a.b ls", "f=a.b"]
)
def test_other_values_are_no_files(text: str) -> None:
    assert not any(effect.startswith("write") for effect in touched(command(text)))


def test_a_home_is_a_doubt() -> None:
    assert command("OUT=~ ls").code == "target_unknown"


def test_the_value_of_a_variable_is_followed_too() -> None:
    assert "read /etc/x" in touched(command("OUT=$(cat /etc/x) ls"))


def test_an_assignment_that_is_not_known_is_a_doubt() -> None:
    assert '"$x=y"' in doubted(command('env "$x=y" ls'))


def test_the_separator_may_be_set_for_reading() -> None:
    assert command("IFS=: read -r a b").permits
    assert command("IFS=: ls").code == "target_unknown"
    assert command("IFS=:; x=a:b; cat $x").code == "target_unknown"


@pytest.mark.parametrize(
    "name",
    ["ASAN_OPTIONS", "UBSAN_OPTIONS", "MYAPP_OPTS", "TEST_ARGS", "GH_PAGER", "SOME_WRAPPER", "X_COMMAND", "PREFIX"],
)
@pytest.mark.parametrize(
    "value", ["-o ../x", "log_path=../x", "a=b:log_path=/etc/x", "x;id", "$(id)", "`id`", "a|b", "https://b.example/"]
)
def test_options_or_a_command_in_a_variable_do_not_lead_outside(name: str, value: str) -> None:
    assert not command(f"{name}='{value}' ls").permits
    assert not command(f"env {name}='{value}' ls").permits


@pytest.mark.parametrize(
    "text",
    [
        "ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 ./x",
        "MYAPP_OPTS='--verbose --level 3' ./x",
        "CFLAGS=-O2 make",
        "CFLAGS='-O2 -g -Wall -std=c11' LDFLAGS=-pthread ./configure.sh",
        "RUSTFLAGS='-D warnings' cargo test",
        "RUSTFLAGS='-C target-cpu=native' cargo build",
        "GOFLAGS=-mod=mod go build",
        "NODE_OPTIONS=--max-old-space-size=4096 npm test",
        "NODE_OPTIONS='--no-warnings --experimental-vm-modules' npm test",
        "JAVA_TOOL_OPTIONS=-Xmx2g mvn test",
        "CC=clang CXX=clang++-17 make",
        "PYTHON=python3.11 make",
        "PAGER=cat git log",
        "GIT_PAGER=cat git diff",
        "make CFLAGS=-O2",
        "make CFLAGS='-O2 -g' CC=gcc test",
        "path=src; ls $path",
        "env=dev; echo $env",
    ],
)
def test_a_variable_that_could_steer_may_be_set_to_what_is_known_to_be_harmless(text: str) -> None:
    assert command(text).permits


@pytest.mark.parametrize(
    "value",
    [
        "-fplugin=./x.so", "-B./x", "-specs=x", "-Wl,-Map=x", "-Wp,-MD,x", "-include x", "@x", "-I/etc", "-O2;id",
        "-O2 x", "-Clinker=x", "-C linker=x", "--require ./x.js", "-r x", "--import=x", "-javaagent:x", "-toolexec=x",
        "-exec x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["CFLAGS", "RUSTFLAGS", "GOFLAGS", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_other_options_in_a_variable_that_steers_are_a_doubt(name: str, value: str) -> None:
    assert command(f"{name}='{value}' ls").code == "target_unknown"
    assert not command(f"make {name}='{value}'").permits


@pytest.mark.parametrize(
    "name", ["MAKEINFO", "TEX", "OUTPUT_OPTION", "LDLIBS", "FC", "WEAVE", "TARGET_ARCH", "ANY_NAME"]
)
@pytest.mark.parametrize("value", ["cat ../x;", "cat x", "; id", "$(shell id)", "`id`", "x&id", "a\nb"])
def test_a_variable_that_make_takes_for_a_setting_holds_no_command(name: str, value: str) -> None:
    assert not command(f"{name}='{value}' make a").permits
    assert not command(f"env {name}='{value}' make a").permits
    assert not command(f"export {name}='{value}'; make a").permits
    assert not command(f"{name}='{value}'; export {name}; make a").permits


@pytest.mark.parametrize("name", ["MAKEINFO", "TEX", "OUTPUT_OPTION", "LDLIBS", "COMPILE.c", "LINK.o", "WEAVE", "FC"])
def test_a_setting_of_the_rules_that_make_brings_is_a_doubt_as_a_word(name: str) -> None:
    assert command(f"make {name}='cat x' a").code == "target_unknown"


@pytest.mark.parametrize(
    "text", ["VERSION=1.2 make", "MESSAGE='a b' ls; make", "MESSAGE='a; b' ./x; make test", "X= make"]
)
def test_a_plain_variable_or_one_of_another_command_does_not_matter_to_make(text: str) -> None:
    assert command(text).permits
