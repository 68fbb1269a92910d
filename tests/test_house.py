"""The house rules that no linter knows: names, errors, and where unverified bytes may be touched."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import remit
from remit import errors
from tests.world import error_classes

SOURCE = Path(remit.__file__).parent
ROOT = SOURCE.parent.parent
MODULES = [name for _, name, _ in pkgutil.walk_packages(remit.__path__, "remit.") if not name.endswith("__main__")]


def tree_of(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def defined_in(tree: ast.Module) -> set[str]:
    """The public names that a module defines itself."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_") or name == "__version__"}


INTERFACES = [module for module in ["remit", *MODULES] if "__all__" in vars(importlib.import_module(module))]


@pytest.mark.parametrize("module", INTERFACES)
def test_all_is_sorted_and_complete(module: str) -> None:
    listed = importlib.import_module(module).__all__
    constants = sorted(name for name in listed if name.isupper())
    classes = sorted(name for name in listed if not name.isupper() and name[:1].isupper())
    assert listed == [*constants, *classes, *sorted(set(listed) - set(constants) - set(classes))]
    if module != "remit":
        assert set(listed) == defined_in(tree_of(module))


def test_the_front_door_offers_only_what_is_inside() -> None:
    assert all(hasattr(remit, name) for name in remit.__all__)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree_of("remit"))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(remit.__all__)


def test_every_error_has_a_code_of_its_own_and_is_documented() -> None:
    classes = error_classes()
    codes = [error.code for error in classes]
    assert len(set(codes)) == len(codes)
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert all("code" in vars(error) and re.fullmatch(r"[a-z0-9_]+", error.code) for error in classes)
    assert [error for error in classes[1:] if f"`{error.code}` | `{error.__name__}`" not in page] == []


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"── (\w+)", errors.__doc__ or "")
    assert drawn == [error.__name__ for error in error_classes()[1:]]
    assert {error.__name__ for error in error_classes()} | {"quote"} == set(errors.__all__)


def test_families_end_in_error_and_leaves_state_a_fact() -> None:
    for error in error_classes():
        assert error.__name__.endswith("Error") == bool(error.__subclasses__())


INPUT_OUTPUT = {
    "asyncio", "datetime", "glob", "http", "io", "logging", "os", "pathlib", "random", "secrets", "select", "shutil",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
    "warnings",
}  # fmt: skip


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith(("remit.claims", "remit.errors"))])
def test_the_core_does_no_input_or_output(module: str) -> None:
    imported: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__"}
    assert not imported & INPUT_OUTPUT


# Where the policy reads its own tables, and where it watches engines.
POLICY_DOORS = {
    "remit.policy.files": {"os", "urllib"},
    "remit.policy.engines": {"threading"},
    "remit.policy.urls": {"urllib"},
    "remit.policy.shell.programs.invoke": {"sys"},
}


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("remit.policy")])
def test_the_policy_asks_the_system_in_one_place(module: str) -> None:
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert imported & INPUT_OUTPUT <= POLICY_DOORS.get(module, set())


def test_tokens_are_taken_apart_in_one_place() -> None:
    """Base64url of others is decoded for tokens in jws.py and for keys in keys.py, and nowhere else."""
    decoding = re.compile(r"decode_base64url\(|b64decode\(|a2b_base64|get_unverified|unsafe_decode")
    places = {path.name for path in SOURCE.rglob("*.py") if decoding.search(path.read_text(encoding="utf-8"))}
    assert places == {"canonical.py", "jws.py", "keys.py"}


def test_unverified_claims_are_looked_at_to_show_them_and_by_the_client() -> None:
    """The ledger looks at the headers of passports that it keeps, to find those of one key."""
    looking = {path for path in SOURCE.rglob("*.py") if "unsafe_peek" in path.read_text(encoding="utf-8")}
    places = {path.relative_to(SOURCE).as_posix() for path in looking if path.parent.name != "client"}
    assert places == {"claims/jws.py", "cli/inspection.py", "ledger/records.py"}


@pytest.mark.parametrize(("name", "home"), [("Passport", "passport.py"), ("SignedReceipt", "receipt.py")])
def test_verified_things_are_made_where_they_are_verified(name: str, home: str) -> None:
    calls = re.compile(rf"(?<![\w\"]){name}\(")
    assert {path.name for path in SOURCE.rglob("*.py") if calls.search(path.read_text(encoding="utf-8"))} == {home}
