"""Judges short Python programs that only use names known to be harmless.

The syntax tree is checked against lists of allowed names, methods and module members. Anything else is a doubt, because
Python has too many ways to reach everything. Files must be opened by a constant name.
"""

import ast
import builtins
import itertools
import math
from collections.abc import Callable
from typing import Final

from remit.policy.field import Field
from remit.policy.shell.evaluate.context import ProgramCall

_MAX_NODES: Final = 2000
_MAX_TEXT: Final = 8192
_PATH_KEYWORDS: Final = frozenset("mode encoding errors newline recursive exist_ok parents missing_ok".split())
_BUILTINS: Final = frozenset(
    "abs all any ascii bin bool bytearray bytes chr complex dict divmod enumerate filter float format "
    "frozenset hash hex input int isinstance iter len list map max min next oct ord pow print range repr "
    "reversed round set slice sorted str sum tuple zip Exception ValueError KeyError IndexError TypeError "
    "OSError FileNotFoundError ZeroDivisionError StopIteration RuntimeError AssertionError SystemExit "
    "exit quit".split()
)
_MODULES: Final[dict[str, frozenset[str]]] = {
    "base64": frozenset(
        "b64encode b64decode urlsafe_b64encode urlsafe_b64decode b32encode b32decode b16encode".split()
    ),
    "collections": frozenset("Counter defaultdict OrderedDict deque".split()),
    "csv": frozenset("reader writer DictReader DictWriter".split()),
    "datetime": frozenset("datetime date time timedelta timezone UTC".split()),
    "decimal": frozenset("Decimal".split()),
    "fractions": frozenset("Fraction".split()),
    "functools": frozenset("reduce partial".split()),
    "hashlib": frozenset("md5 sha1 sha224 sha256 sha384 sha512 blake2b blake2s".split()),
    "html": frozenset("escape unescape".split()),
    "itertools": frozenset(dir(itertools)),
    "json": frozenset("load loads dump dumps JSONDecodeError".split()),
    "math": frozenset(dir(math)),
    "os": frozenset("getcwd getpid sep linesep environ getenv cpu_count".split()),
    "os.path": frozenset("join basename dirname splitext split normpath isabs".split()),
    "platform": frozenset("python_version system machine platform release".split()),
    "pprint": frozenset("pprint pformat".split()),
    "random": frozenset("random randint choice shuffle sample uniform seed randrange".split()),
    "re": frozenset(
        "compile search match fullmatch findall finditer sub subn split escape I M S IGNORECASE DOTALL".split()
    ),
    "secrets": frozenset("token_hex token_urlsafe token_bytes randbelow choice".split()),
    "statistics": frozenset("mean median mode stdev variance fmean pstdev".split()),
    "string": frozenset("ascii_letters ascii_lowercase ascii_uppercase digits punctuation".split()),
    "struct": frozenset("pack unpack calcsize".split()),
    "sys": frozenset("stdin stdout stderr argv exit version version_info maxsize platform byteorder".split()),
    "textwrap": frozenset("dedent indent fill wrap shorten".split()),
    "time": frozenset("time sleep strftime gmtime localtime perf_counter monotonic".split()),
    "tomllib": frozenset("load loads".split()),
    "unicodedata": frozenset("name normalize category lookup".split()),
    "urllib.parse": frozenset(
        "quote unquote quote_plus unquote_plus urlencode urlparse urlsplit parse_qs urljoin".split()
    ),
    "uuid": frozenset("uuid1 uuid3 uuid4 uuid5 UUID".split()),
}  # fmt: skip
# Methods of strings, collections, files, matches and dates. None of them leads to frames, code or modules.
_METHODS: Final = frozenset(
    "add append appendleft astimezone buffer capitalize casefold center clear close copy count date day "
    "days decode difference elements encode end endswith expandtabs extend extendleft find findall "
    "finditer flush format fromisoformat fromkeys fromtimestamp fullmatch get group groupdict groups hex "
    "hexdigest digest hour index insert intersection isalnum isalpha isascii isdecimal isdigit isdisjoint "
    "isidentifier islower isnumeric isoformat isprintable isspace issubset issuperset istitle isupper "
    "items join keys ljust lower lstrip major match maketrans microsecond minor minute month most_common "
    "now numerator denominator partition pop popitem popleft read readline readlines remove removeprefix "
    "removesuffix replace reverse rfind rindex rjust rotate rpartition rsplit rstrip search second "
    "seconds setdefault sort span split splitlines start startswith strftime strip strptime sub subtract "
    "swapcase symmetric_difference time timestamp title today total total_seconds translate tzinfo union "
    "update upper utc utcnow values weekday write writelines writerow writerows writeheader year zfill "
    "fieldnames scheme netloc path query fragment hostname port is_integer bit_length to_bytes from_bytes "
    "quantize".split()
)
_FILE_READS: Final = frozenset("read_text read_bytes exists is_file is_dir stat".split())
_FILE_WRITES: Final = frozenset("write_text write_bytes touch mkdir unlink rmdir".split())
_READ_CALLS: Final = "os.listdir os.scandir os.path.exists os.path.isfile os.path.isdir os.path.getsize os.stat"
_PATH_CALLS: Final = {
    **dict.fromkeys(_READ_CALLS.split(), "read"),
    **dict.fromkeys(("os.makedirs", "os.mkdir"), "write"),
    **dict.fromkeys(("os.remove", "os.unlink", "os.rmdir"), "delete"),
    "glob.glob": "glob",
}
_PLAIN_NODES: Final = tuple(
    getattr(ast, name)
    for name in (
        "Module Expr Assign AugAssign For While If Return ListComp SetComp DictComp GeneratorExp comprehension "
        "Subscript Constant JoinedStr FormattedValue BinOp BoolOp Compare UnaryOp IfExp Lambda List Tuple Dict Set "
        "Slice Starred Try ExceptHandler Raise Pass Break Continue Assert Delete With withitem keyword NamedExpr "
        "arguments arg operator "
        "boolop unaryop cmpop expr_context Global FunctionDef"
    ).split()
)


class _Walk:
    """One pass over a syntax tree; `cause` is the first thing that is not on a list."""

    def __init__(self, invocation: ProgramCall, source: str) -> None:
        self.invocation = invocation
        self.source = source
        self.modules: dict[str, str] = {}
        self.members: dict[str, str] = {}
        self.local: set[str] = set()
        self.cause = ""

    def learn(self, tree: ast.AST) -> None:
        """Record the imports and the names that the program defines."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    name, full = alias.asname or alias.name, f"{node.module}.{alias.name}" if not node.level else "."
                    if self.members.setdefault(name, full) != full or name in self.modules:
                        self.cause = name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._own(node.id)
            elif isinstance(node, ast.arg):
                self._own(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ExceptHandler):
                self._own(node.name or "")

    def _own(self, name: str) -> None:
        if _is_reserved(name):
            self.cause = name
        self.local.add(name)

    def _import(self, alias: ast.alias) -> None:
        name, module = (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        if self.modules.setdefault(name, module) != module or name in self.members:
            # One name for two modules: which one it means depends on the order of execution.
            self.cause = name

    def visit(self, node: ast.AST) -> None:
        """Check a node and its children."""
        visitor = _VISITORS.get(type(node))
        if visitor is not None:
            visitor(self, node)
        elif not isinstance(node, _PLAIN_NODES) or getattr(node, "decorator_list", None):
            self.cause = type(node).__name__.lower()
        else:
            self.children(node)

    def children(self, node: ast.AST) -> None:
        """Check the children of a node."""
        for child in ast.iter_child_nodes(node):
            if self.cause:
                return
            self.visit(child)

    def name(self, node: ast.Name) -> None:
        """Check a bare name: a module may only be used through a listed member."""
        known = node.id in self.local or node.id in _BUILTINS
        if isinstance(node.ctx, ast.Load) and not known and not self._allowed(self.members.get(node.id, "")):
            self.cause = node.id
        if isinstance(node.ctx, ast.Store | ast.Del) and _is_reserved(node.id):
            self.cause = node.id
        if node.id in self.modules or (node.id in self.local and (node.id in self.members or node.id == "open")):
            self.cause = node.id

    def attribute(self, node: ast.Attribute) -> None:
        """Check an attribute: a listed member of a module, or a method that any value may have."""
        dotted = self.dotted(node)
        if not isinstance(node.ctx, ast.Load):
            self.cause = node.attr
        elif dotted:
            if not self._allowed(dotted):
                self.cause = dotted
        elif node.attr not in _METHODS:
            self.cause = node.attr
        else:
            self.visit(node.value)

    def dotted(self, node: ast.expr) -> str:
        """Return the full name of a module member, or "" if it is not one."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.modules and node.id not in self.local:
            # What follows the first member that is not a module is a method of that member.
            return ".".join([self.modules[node.id], *reversed(names)])
        if isinstance(node, ast.Name) and not names and node.id in self.members:
            return self.members[node.id]
        return ""

    @staticmethod
    def _allowed(dotted: str) -> bool:
        module, _, member = dotted.rpartition(".")
        allowed = _MODULES.get(module)
        if allowed is not None:
            return member in allowed and not member.startswith("_")
        outer, _, inner = module.rpartition(".")
        return bool(outer) and inner in _MODULES.get(outer, ()) and member in _METHODS

    def call(self, node: ast.Call) -> None:
        """Check a call; calls that touch files are effects."""
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open" and "open" not in self.local:
            self._open(node)
        elif (dotted := self.dotted(function)) in _PATH_CALLS:
            self._path(node, _PATH_CALLS[dotted])
        elif isinstance(function, ast.Attribute) and self._is_path(function.value):
            inner = function.value
            role = "read" if function.attr in _FILE_READS else "write" if function.attr in _FILE_WRITES else ""
            if role and isinstance(inner, ast.Call):
                self._path(inner, role)
                self._arguments(node)
            else:
                self.cause = function.attr
        else:
            self.children(node)

    def _is_path(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.dotted(node.func) == "pathlib.Path"

    def _open(self, node: ast.Call) -> None:
        modes = [argument.value for argument in node.args[1:2] if isinstance(argument, ast.Constant)]
        modes += [
            word.value.value for word in node.keywords if word.arg == "mode" and isinstance(word.value, ast.Constant)
        ]
        given = len(node.args) > 1 or any(word.arg in ("mode", None) for word in node.keywords)
        if given and not (len(modes) == 1 and isinstance(modes[0], str)):
            self.cause = "open"
            return
        mode = str(modes[0]) if modes else "r"
        if any(word.arg == "opener" for word in node.keywords):
            self.cause = "opener"
        self._path(node, "edit" if "+" in mode else "write" if set("wax") & set(mode) else "read", further=1)

    def _path(self, node: ast.Call, role: str, *, further: int = 0) -> None:
        """Record the file that the first argument names; `further` arguments are known not to name one."""
        first = node.args[0] if node.args else None
        odd = len(node.args) > 1 + further or any(word.arg not in _PATH_KEYWORDS for word in node.keywords)
        if odd or not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            self.cause = "a file whose name is computed"
        elif role == "glob":
            self.invocation.evaluator.file("read", Field(first.value, "pattern", self.source), self.invocation.cwd)
        else:
            self.invocation.file(role, Field(first.value, "exact", self.source))
        self._arguments(node)

    def _arguments(self, node: ast.Call) -> None:
        for argument in [*node.args, *(word.value for word in node.keywords)]:
            if not self.cause:
                self.visit(argument)

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        """Check names that are imported from a module; whole modules are checked where they are used."""
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                if node.level or not (self._allowed(dotted) or dotted in _PATH_CALLS or dotted == "pathlib.Path"):
                    self.cause = dotted
        else:
            for alias in node.names:
                if alias.name not in _MODULES and alias.name not in ("glob", "pathlib"):
                    self.cause = alias.name


_VISITORS: Final[dict[type[ast.AST], Callable[[_Walk, "ast.AST"], None]]] = {
    ast.Attribute: _Walk.attribute,  # type: ignore[dict-item]
    ast.Call: _Walk.call,  # type: ignore[dict-item]
    ast.Import: _Walk.imported,  # type: ignore[dict-item]
    ast.ImportFrom: _Walk.imported,  # type: ignore[dict-item]
    ast.Name: _Walk.name,  # type: ignore[dict-item]
}


def _is_reserved(name: str) -> bool:
    """Return whether a name has a meaning of its own, so that a program must not redefine it."""
    return hasattr(builtins, name) or name.startswith("__")


def judge_python(invocation: ProgramCall, text: str, source: str) -> None:
    """Record the files that a program opens, or a doubt for the first thing that is not on a list."""
    if len(text) > _MAX_TEXT:
        invocation.trace.doubt(source, "the program is too long to analyse", unbounded=True)
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        invocation.trace.doubt(source, "it is not Python that can be read", unbounded=True)
        return
    if sum(1 for _ in ast.walk(tree)) > _MAX_NODES:
        invocation.trace.doubt(source, "the program is too long to analyse", unbounded=True)
        return
    walk = _Walk(invocation, source)
    walk.learn(tree)
    if not walk.cause:
        walk.visit(tree)
    if walk.cause:
        invocation.trace.doubt(walk.cause, "Python that is not known to be harmless", unbounded=True)
    elif walk.modules or walk.members:
        # A file of the project can shadow a module.
        invocation.evaluator.record_code()
        invocation.evaluator.changes.build(invocation.cwd, "python")
