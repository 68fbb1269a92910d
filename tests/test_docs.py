"""The pages: they are complete, their links lead somewhere, and their examples run."""

import re
from pathlib import Path

import pytest
from docs import build

ROOT = build.ROOT
EXAMPLES = {
    page: re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for page in build.pages()
}


def test_nothing_is_wrong_with_the_pages() -> None:
    assert list(build.problems()) == []


@pytest.mark.parametrize("page", [page for page, blocks in EXAMPLES.items() if blocks], ids=lambda page: page.name)
def test_the_examples_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {"__name__": page.stem}
    for block in EXAMPLES[page]:
        exec(compile(block, str(page.relative_to(ROOT)), "exec"), namespace)
    assert capsys.readouterr().out == ""


def test_every_page_is_in_the_index_and_every_decision_in_the_architecture() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    folders = ("start", "operate", "integrate", "audit", "reference")
    pages = [f"{folder}/{page.name}" for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")]
    assert [page for page in pages if f"({page})" not in index] == []
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs" / "decisions").glob("*.md") if page.name not in architecture] == []


def test_the_readme_names_commands_that_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {"up", "test"} <= named <= targets


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 80


def test_every_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text(encoding="utf-8")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        re.split(r"[\[>=<]", line)[0] for line in (*project["dependencies"], *project["optional-dependencies"]["dev"])
    ]
    assert [name for name in wanted if f"`{name}`" not in reasons] == []


def test_locks_name_no_registry() -> None:
    for lock in ROOT.glob("*.lock"):
        assert "://" not in lock.read_text(encoding="utf-8")
