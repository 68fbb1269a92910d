"""Variables that choose what programs run, load or contact."""

import pytest

from remit.policy.shell.environment import is_steering
from tests.policy.judging import command, doubted, touched

STEERING = """
    PATH CDPATH HOME SHELL ENV IFS BASH_ENV PROMPT_COMMAND LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES GIT_DIR
    GIT_SSH_COMMAND SSH_ASKPASS PAGER EDITOR VISUAL GIT_EDITOR LESSOPEN PYTHONSTARTUP PYTHONHOME NODE_OPTIONS
    NPM_CONFIG_REGISTRY npm_config_registry PERL5OPT PERL5LIB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS CLASSPATH
    MAKEFLAGS CARGO_HOME RUSTC_WRAPPER GOFLAGS GOPROXY CC CXX PIP_INDEX_URL UV_INDEX PYTEST_ADDOPTS DOCKER_HOST
    KUBECONFIG AWS_PROFILE http_proxy HTTPS_PROXY ALL_PROXY CURL_HOME WGETRC SSL_CERT_FILE TAR_OPTIONS GZIP
    RIPGREP_CONFIG_PATH RSYNC_RSH TMPDIR XDG_CONFIG_HOME PGHOST MYSQL_HOST AWKPATH BROWSER GNUPGHOME
""".split()
HARMLESS = """
    FOO CI DEBUG NODE_ENV TZ LANG LC_ALL COLUMNS NO_COLOR FORCE_COLOR PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PORT
    PS1 X
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


@pytest.mark.parametrize("value", ["/etc/x", "../../x"])
def test_a_value_that_reads_like_a_path_elsewhere_may_be_written(value: str) -> None:
    assert command(f"OUT={value} ls").code == "out_of_scope"
    assert command(f"env OUT={value} ls").code == "out_of_scope"


@pytest.mark.parametrize("value", ["a", "src/x", "'a /etc/x'", "1", "''"])
def test_other_values_name_no_file(value: str) -> None:
    assert command(f"OUT={value} ls").permits


def test_a_variable_of_the_script_alone_names_no_file() -> None:
    assert command("OUT=/etc/x").permits
    assert command("OUT=/etc/x; cat $OUT").code == "out_of_scope"


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
