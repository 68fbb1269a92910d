"""Judges variables that change what programs do.

Most variables only inform the program that reads them. Some choose what it runs, loads or contacts: setting one of
those is a doubt, unless the value is harmless or a list of directories that can be compared with the scope.
"""

import re
from typing import Final

from remit.policy.call import Effect
from remit.policy.shell.context import Evaluator
from remit.policy.shell.state import Field

__all__ = [
    "is_plain_setting",
    "is_steering",
    "judge_calculation",
    "judge_export",
    "judge_setting",
    "judge_variable",
    "takes_options",
]

_STEERING: Final = re.compile(
    r"(?:PATH|CDPATH|HOME|SHELL|ENV|IFS|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|BASH_.*|GLOBIGNORE|EXECIGNORE|FIGNORE|INPUTRC"
    r"|FUNCNEST|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_.*|GLIBC_TUNABLES|HOSTALIASES|RES_OPTIONS|RESOLV_.*"
    r"|GIT_.*|SSH_.*|GNUPGHOME|PAGER|MANPAGER|LESS.*|LESSOPEN|LESSCLOSE|EDITOR|VISUAL|[A-Z]+_EDITOR|BROWSER|TERMINAL|DISPLAY"
    r"|PYTHON(?!UNBUFFERED|DONTWRITEBYTECODE|IOENCODING|UTF8|HASHSEED|WARNINGS|FAULTHANDLER|DEVMODE|OPTIMIZE|VERBOSE|PATH).*"
    r"|NODE_OPTIONS|NODE_EXTRA_CA_CERTS|NODE_REPL_.*|NPM_CONFIG_.*|npm_.*|YARN_.*|BUN_.*|DENO_DIR|PERL5.*|PERLLIB|RUBY.*|BUNDLE_.*|GEM_.*"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVAC?_OPTIONS|CLASSPATH|MAVEN_OPTS|MAVEN_ARGS|GRADLE_OPTS|GRADLE_USER_HOME|SBT_OPTS|ANT_.*"
    r"|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS|MAKE|CARGO|CARGO_.*|RUSTC.*|RUSTUP_.*|RUST_SRC_PATH|GCCGO"
    r"|GO(?:FLAGS|ENV|PATH|ROOT|PROXY|BIN|TOOLCHAIN|TMPDIR|CACHE|CACHEPROG|MODCACHE|AUTH|VCS|PACKAGESDRIVER|INSECURE|SUMDB|COVERDIR)"
    r"|CPATH|.*_INCLUDE_PATH|LIBRARY_PATH|RUSTFLAGS|RUSTDOCFLAGS|LUA_.*|.*FLAGS|LEX|YACC|TAPE|NODE_(?!ENV\Z|PATH\Z).*|CC|CXX|CPP|LD|AR|AS|NM|FC"
    r"|(?:CC|CXX|AR|LD)_.*|(?:TARGET|HOST)_(?:CC|CXX|AR|LD)|RUSTDOC|SWIFT_EXEC|TAR_RSH|PREPROCESSOR|GO[A-Z]*DIR|PHPRC|PHP_INI_SCAN_DIR"
    r"|DOTNET_(?:STARTUP_HOOKS|ADDITIONAL_DEPS|SHARED_STORE)|CORECLR_.*|TCL_?LIB.*|DEPENDENCIES_OUTPUT|SUNPRO_DEPENDENCIES"
    r"|COMPILER_PATH|GCC_.*|COLLECT_.*|PKG_CONFIG.*|.*_LAUNCHER|S?CCACHE_.*|NIX_.*|OTEL_EXPORTER_.*|CRYSTAL_.*|ELIXIR_.*|ERL_.*|RAKEOPT"
    r"|PIP_.*|UV_.*|POETRY_.*|CONDA_.*|VIRTUALENV_.*|TOX_.*|PYTEST_.*|DOCKER_.*|BUILDKIT_.*|KUBECONFIG|HELM_.*|AWS_.*|GOOGLE_.*|AZURE_.*|CLOUDSDK_.*"
    r"|(?:HTTPS?|ALL|FTP|NO|RSYNC|SOCKS)_PROXY|(?:https?|all|ftp|no|rsync|socks)_proxy|CURL_.*|WGETRC|SSL_.*|REQUESTS_CA_BUNDLE|SSLKEYLOGFILE|NETRC"
    r"|TAR_OPTIONS|RSH|GZIP|BZIP2?|XZ_(?:OPT|DEFAULTS)|ZIP|ZIPOPT|ZIPINFO.*|UNZIP|UNZIPOPT|PIGZ|ACK.*|MAN.*|MORE|MAGIC|BC_ENV_ARGS|POPT_.*"
    r"|ZDOTDIR|FPATH|TEXTDOMAIN(?:DIR)?|LANGUAGE|SIMPLE_BACKUP_SUFFIX|PATCH_.*|GREP_OPTIONS|RIPGREP_CONFIG_PATH|FZF_.*|BAT_.*|RSYNC_.*|CVS_RSH|AWKPATH|AWKLIBPATH|GETCONF_DIR"
    r"|POSIXLY_CORRECT|TMPDIR|TEMP|TMP|TMP_DIR|XDG_.*|SUDO_.*|PSQL.*|PG.*|MYSQL_.*|SQLITE_HISTORY|TERMINFO.*|TERMCAP|TZDIR|MAIL.*|HISTFILE|FCEDIT"
    r"|RANDOM|SECONDS|OPTIND|LINENO|HISTCMD|SRANDOM|EPOCHSECONDS|EPOCHREALTIME|BASHPID"
    r"|CCC_.*|XDEBUG_CONFIG|TURBO_(?:API|LOGIN|TOKEN|TEAM|TEAMID|REMOTE_.*)|NYC_CONFIG.*|PYRIGHT_PYTHON_.*"
    r"|ANSIBLE_.*|TF_.*|VAGRANT_.*|ELECTRON_.*|OPENSSL_.*|KRB5.*|DBUS_.*|SYSTEMD_.*)\Z"
)
# Names whose values are commands or options: harmless if the value has neither a path nor a command.
_COMMANDS: Final = re.compile(
    r"(?:.*(?:OPTIONS|OPTS?|ARGS|PAGER|WRAPPER|LAUNCHER|PREFIX|COMMAND|CMD|PROG|SHELL|BROWSER|EDITOR|RUNNER))\Z"
)
# Variables whose values are never files, even if they look like one.
_INFORMING: Final = re.compile(
    r"LANG|LC_[A-Z]+|TZ|TERM|CI|NODE_ENV|DEBUG|RUST_LOG|PYTHONWARNINGS|.*(?:VERSION|MODULE|HOST|URL|LEVEL|LOCALE)"
)
# A name with an extension or below a directory, not a number; and the separators between names.
_RELATIVE: Final = re.compile(r"(?!v?\d+(?:\.\w+)*\Z)[\w@+%-]*[/.][\w@+%./-]*")
_PARTS: Final = re.compile(r"[:=,;]")
# Characters that cannot end a word or start a command.
_UNPLAIN: Final = re.compile(r"[^\w ./:=+,@%^\[\]-]")
# Harmless values of variables that steer programs.
_COMPILERS: Final = re.compile(r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d+)?")
_INTERPRETERS: Final = re.compile(r"python[23]?(?:\.\d+)?")
_OPTION: Final = re.compile(
    r"(?:-O[0-3sgz]?|-g[0-3]?|-std=[\w+]+|-W(?!l,|a,|p,)[\w=+-]+|-w|-D[A-Za-z_]\w*(?:=\w*)?|-f(?:PIC|pic|lto|sanitize=[a-z,]+"
    r"|no-omit-frame-pointer)|-m(?:arch|tune|cpu)=[\w.+-]+|-pthread|-pedantic|-l[a-z]+|-s|-j\d*|-v|-D\w+::\w+"
    r"|-C(?:target-cpu|opt-level|debuginfo|codegen-units|instrument-coverage)(?:=[\w-]+)?|-mod=(?:mod|vendor|readonly)"
    r"|-tags=[\w,]+|-count=\d+|-trimpath|--max[-_]old[-_]space[-_]size=\d+|--no-warnings|--no-deprecation|--trace-\w+"
    r"|--enable-source-maps|--experimental-vm-modules|--experimental-strip-types|--openssl-legacy-provider"
    r"|--unhandled-rejections=\w+|-Xm[xs]\d+[kmgKMG]|-XX:\+Use\w+GC|-Xss\d+[kmgKMG])"
)
_SEPARATE: Final = re.compile(r"(-[DCj])\s+(?=[\w])")
_FLAGGED: Final = re.compile(
    r"(?:C|CXX|CPP|LD|F|RUST|RUSTDOC|GO|MAKE|CGO_C|CGO_LD)FLAGS|NODE_OPTIONS|_?JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVAC?_OPTIONS"
    r"|(?:MAVEN|GRADLE|SBT|JAVA)_OPTS"
)
_PAGED: Final = re.compile(r"(?:GIT_|MAN|PSQL_|AWS_)?PAGER")
# bash evaluates their values as arithmetic, which can run commands. A number is harmless.
_EVALUATED: Final = frozenset("RANDOM SECONDS OPTIND LINENO HISTCMD SRANDOM EPOCHSECONDS EPOCHREALTIME BASHPID".split())
_NUMBER: Final = re.compile(r"[0-9]+\Z")
# Lists of directories to load code from: allowed if each of them is in scope.
_SEARCHED: Final = frozenset(("PYTHONPATH", "NODE_PATH"))


def is_steering(name: str) -> bool:
    """Return whether a variable can choose what a program runs, loads or contacts."""
    return name in _SEARCHED or _STEERING.match(name) is not None


def _counts(name: str, value: str | None) -> bool:
    """Return whether a variable that bash evaluates is set to a number."""
    return name in _EVALUATED and value is not None and _NUMBER.match(value) is not None


def judge_setting(evaluator: Evaluator, name: str, value: str | None, cwd: str | None, source: str) -> None:
    """Record that a variable is set for the shell itself, and possibly for later programs."""
    if is_steering(name) and not _counts(name, value):
        judge_variable(evaluator, name, value, cwd, source)
    else:
        _record_unsafe_value(evaluator, name, value)
        evaluator.trace.add(Effect("setenv", name, source))


def judge_export(evaluator: Evaluator, name: str, value: str, cwd: str | None, source: str) -> None:
    """Record the files that an exported variable names."""
    if "://" not in value and not is_steering(name):
        _touch_paths(evaluator, name, value, cwd, source)


def judge_calculation(evaluator: Evaluator, name: str, cwd: str | None) -> None:
    """Record that arithmetic sets a variable, if that can change what programs or the shell do."""
    if is_steering(name):
        judge_setting(evaluator, name, "0", cwd, name)


def takes_options(name: str) -> bool:
    """Return whether a variable holds options of a compiler or an interpreter."""
    return _FLAGGED.fullmatch(name) is not None


def is_plain_setting(name: str, value: str | None) -> bool:
    """Return whether a variable that could steer programs is set to a harmless value."""
    if value is None:
        return False
    if takes_options(name):
        return all(_OPTION.fullmatch(option) for option in _SEPARATE.sub(r"\1", value).split())
    if _PAGED.fullmatch(name):
        return value in ("", "cat")
    return (name in ("CC", "CXX") and _COMPILERS.fullmatch(value) is not None) or (
        name == "PYTHON" and _INTERPRETERS.fullmatch(value) is not None
    )


def judge_variable(evaluator: Evaluator, name: str, value: str | None, cwd: str | None, source: str) -> None:
    """Record that a variable is set for a program; None is an unknown value."""
    evaluator.passed_variables.add(name)
    _record_unsafe_value(evaluator, name, value)
    # It makes wildcards match hidden names.
    evaluator.trace.hidden |= name == "GLOBIGNORE"
    plain = _counts(name, value) or is_plain_setting(name, value)
    if name in _SEARCHED and value is not None:
        for directory in filter(None, value.split(":")):
            evaluator.trace.touch("read", directory, cwd, source)
        evaluator.record_code(starts=False)
    elif is_steering(name) and not plain:
        evaluator.trace.doubt(source, f"{name} changes what programs run, load or contact", unbounded=True)
    elif _COMMANDS.match(name) and not plain and (value is None or _UNPLAIN.search(value) or "://" in value):
        evaluator.trace.doubt(source, f"{name} may be a command, or options for one", unbounded=True)
    elif _COMMANDS.match(name) and value is not None and not plain:
        words = [Field(word, "exact", source) for word in value.split()]
        evaluator.arguments_of_code(words, cwd)
        evaluator.files_of_tool(words, cwd)
    elif value is not None and "://" not in value:
        _touch_paths(evaluator, name, value, cwd, source)
    evaluator.trace.add(Effect("setenv", name, source))


def _touch_paths(evaluator: Evaluator, name: str, value: str, cwd: str | None, source: str) -> None:
    """Record the files that a value names: a program may read or write them.

    In a value of several words, only words that lead upwards count as paths.
    """
    whole = len(value.split()) <= 1
    for piece in _PARTS.split(value) if whole else value.split():
        if piece.startswith(("/", "~", "../") if whole else "../") or "/../" in piece:
            evaluator.trace.touch("edit", piece, cwd, source)
        elif whole and piece and not _INFORMING.fullmatch(name) and _is_file(evaluator, piece, cwd):
            evaluator.trace.touch("write", piece, cwd, source)


def _is_file(evaluator: Evaluator, text: str, cwd: str | None) -> bool:
    """Return whether a text looks like a relative file name, or names an existing file in `cwd`."""
    if cwd is None or "\0" in text:
        return False
    resolved = evaluator.trace.files.resolve(f"{cwd}/{text}") if not _RELATIVE.fullmatch(text) else None
    return resolved is None or (resolved.exists and not resolved.is_directory)


def _record_unsafe_value(evaluator: Evaluator, name: str, value: str | None) -> None:
    """Record a variable whose value could become several words, or a command, if a command is built from it."""
    if value is not None and (_UNPLAIN.search(value) or " " in value) and not is_plain_setting(name, value):
        evaluator.unsafe_variables.add(name)
    else:
        evaluator.unsafe_variables.discard(name)
