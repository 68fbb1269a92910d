"""Variables that change what programs do.

Most variables only inform the program that reads them. Some choose what is run or loaded, or where it reads and sends:
setting one of those is refused, unless the value is a list of directories that can be held against the scope.
"""

import re
from typing import TYPE_CHECKING, Final

from remit.policy.call import Effect

if TYPE_CHECKING:
    from remit.policy.shell.commands import Commands

__all__ = ["is_steering", "judge_calculation", "judge_setting", "judge_variable"]

_STEERING: Final = re.compile(
    r"(?:PATH|CDPATH|HOME|SHELL|ENV|IFS|PS4|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|BASH_.*|GLOBIGNORE|EXECIGNORE|FIGNORE|INPUTRC"
    r"|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_.*|GLIBC_TUNABLES|HOSTALIASES|RES_OPTIONS|RESOLV_.*"
    r"|GIT_.*|SSH_.*|GNUPGHOME|PAGER|MANPAGER|LESS.*|LESSOPEN|LESSCLOSE|EDITOR|VISUAL|[A-Z]+_EDITOR|BROWSER|TERMINAL|DISPLAY"
    r"|PYTHON(?!UNBUFFERED|DONTWRITEBYTECODE|IOENCODING|UTF8|HASHSEED|WARNINGS|FAULTHANDLER|DEVMODE|OPTIMIZE|VERBOSE|PATH).*"
    r"|NODE_OPTIONS|NODE_EXTRA_CA_CERTS|NODE_REPL_.*|NPM_CONFIG_.*|YARN_.*|BUN_.*|DENO_DIR|PERL5.*|PERLLIB|RUBY.*|BUNDLE_.*|GEM_.*"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|MAVEN_OPTS|MAVEN_ARGS|GRADLE_OPTS|GRADLE_USER_HOME|SBT_OPTS"
    r"|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS|MAKE|CARGO_.*|RUSTC.*|RUSTUP_.*|RUST_SRC_PATH|GO(?:FLAGS|ENV|PATH|ROOT|PROXY|BIN|TOOLCHAIN|TMPDIR)"
    r"|CPATH|.*_INCLUDE_PATH|LIBRARY_PATH|RUSTFLAGS|RUSTDOCFLAGS|LUA_.*|.*FLAGS|LEX|YACC|TAPE|NODE_(?!ENV\Z|PATH\Z).*|CC|CXX|CPP|LD|AR|AS|NM|COMPILER_PATH|GCC_EXEC_PREFIX|.*_LAUNCHER"
    r"|PIP_.*|UV_.*|POETRY_.*|CONDA_.*|VIRTUALENV_.*|TOX_.*|PYTEST_.*|DOCKER_.*|BUILDKIT_.*|KUBECONFIG|HELM_.*|AWS_.*|GOOGLE_.*|AZURE_.*|CLOUDSDK_.*"
    r"|(?:HTTPS?|ALL|FTP|NO|RSYNC|SOCKS)_PROXY|CURL_.*|WGETRC|SSL_.*|REQUESTS_CA_BUNDLE|SSLKEYLOGFILE|NETRC"
    r"|TAR_OPTIONS|GZIP|BZIP2?|XZ_(?:OPT|DEFAULTS)|ZIP|ZIPOPT|ZIPINFO.*|UNZIP|UNZIPOPT|PIGZ|ACK.*|MANOPT|MANPATH|MORE|MAGIC|BC_ENV_ARGS"
    r"|ZDOTDIR|FPATH|PATCH_.*|GREP_OPTIONS|RIPGREP_CONFIG_PATH|FZF_.*|BAT_.*|RSYNC_.*|CVS_RSH|AWKPATH|AWKLIBPATH"
    r"|POSIXLY_CORRECT|FUNCNEST|TMPDIR|TEMP|TMP|TMP_DIR|XDG_.*|SUDO_.*|PSQLRC|PG.*|MYSQL_.*|SQLITE_HISTORY|TERMINFO.*|TERMCAP|TZDIR|MAIL.*|HISTFILE|FCEDIT"
    r"|RANDOM|SECONDS|OPTIND|LINENO|HISTCMD|SRANDOM|EPOCHSECONDS|EPOCHREALTIME|BASHPID"
    r"|ANSIBLE_.*|TF_.*|VAGRANT_.*|ELECTRON_.*|OPENSSL_.*|KRB5.*|DBUS_.*|SYSTEMD_.*)\Z",
    re.IGNORECASE,
)
# What these are set to is evaluated as arithmetic, which can run commands. A number is harmless.
_EVALUATED: Final = frozenset("RANDOM SECONDS OPTIND LINENO HISTCMD SRANDOM EPOCHSECONDS EPOCHREALTIME BASHPID".split())
_NUMBER: Final = re.compile(r"[0-9]+\Z")
# Lists of directories to load code from: fine when each of them is in scope.
_SEARCHED: Final = frozenset(("PYTHONPATH", "NODE_PATH"))


def is_steering(name: str) -> bool:
    """Tell whether a variable can choose what a program runs, loads or contacts."""
    return name in _SEARCHED or _STEERING.match(name) is not None


def _counts(name: str, value: str | None) -> bool:
    """Tell whether a variable that bash evaluates is set to a number."""
    return name in _EVALUATED and value is not None and _NUMBER.match(value) is not None


def judge_setting(run: "Commands", name: str, value: str | None, cwd: str | None, source: str) -> None:
    """Note that a variable is set for the shell itself, and perhaps for every program that follows."""
    if is_steering(name) and not _counts(name, value):
        judge_variable(run, name, value, cwd, source)
    else:
        run.trace.add(Effect("setenv", name, source))


def judge_calculation(run: "Commands", name: str, cwd: str | None) -> None:
    """Note that arithmetic sets a variable to a number, where that can change what programs or the shell do."""
    if is_steering(name):
        judge_setting(run, name, "0", cwd, name)


def judge_variable(run: "Commands", name: str, value: str | None, cwd: str | None, source: str) -> None:
    """Note that a variable is set for a program; None stands for a value that is not known."""
    run.passed.add(name)
    # Setting it lets wildcards pick hidden names.
    run.trace.hidden |= name == "GLOBIGNORE"
    if name in _SEARCHED and value is not None:
        for directory in filter(None, value.split(":")):
            run.trace.touch("read", directory, cwd, source)
        run.note_code()
    elif is_steering(name) and not _counts(name, value):
        run.trace.doubt(source, f"{name} changes what programs run, load or contact", unbounded=True)
    elif value is not None and "\n" not in value and " " not in value:
        # A program may well read or write there.
        for piece in value.split(":"):
            if (piece.startswith(("/", "~", "../")) or "/../" in piece) and "://" not in value:
                run.trace.touch("edit", piece, cwd, source)
    run.trace.add(Effect("setenv", name, source))
