"""Names and values of variables and shell settings: which of them can change what programs do.

These are tests of texts. `environment.py` records the effects of setting a variable.
"""

import re
from typing import Final

# The name of a variable.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# The known settings of `set -o`.
SHELL_SETTINGS: Final = frozenset("errexit nounset pipefail xtrace verbose noclobber noglob".split())
# Lists of directories to load code from: allowed if each of them is in scope.
SEARCH_PATHS: Final = frozenset(("PYTHONPATH", "NODE_PATH"))
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


def is_steering(name: str) -> bool:
    """Return whether a variable can choose what a program runs, loads or contacts."""
    return name in SEARCH_PATHS or _STEERING.match(name) is not None


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
