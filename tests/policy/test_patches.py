"""Patches: every file that a parser would find is found, or the patch is a doubt; content is content."""

import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.policy.patches import patched_files
from tests.policy.judging import action, doubted, judged, touched

KINDS: Final = ("Add File", "Update File", "Delete File", "Move to")
OUTSIDE: Final = "../other/x"


# How parsers find headers. Each takes the lines of a patch and returns the names; what is an error for it ends it.


def strict(text: str) -> Iterator[str]:
    """A header is looked for where one may stand, with white space around it and a blank behind the colon."""
    for line in text.strip().split("\n"):
        found = re.match(r"\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.*)", line.strip(), re.DOTALL)
        if found:
            yield found[1]


def loose(text: str) -> Iterator[str]:
    """A header starts its line, needs no blank behind the colon, and its name is trimmed."""
    for line in text.split("\n"):
        found = re.match(r"\*\*\* (?:(?:Add|Update|Delete) File|Move to):(.*)", line, re.DOTALL)
        if found and found[1].strip():
            yield found[1].strip()


def verbatim(text: str) -> Iterator[str]:
    """A header starts its line, and its name is all that follows."""
    for line in text.replace("\r\n", "\n").split("\n"):
        found = re.match(r"\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)", line, re.DOTALL)
        if found:
            yield found[1]


def any_end(text: str) -> Iterator[str]:
    """Every character that ends a line somewhere ends one."""
    for line in text.splitlines():
        yield from loose(line)


PARSERS: Final[tuple[Callable[[str], Iterator[str]], ...]] = (strict, loose, verbatim, any_end)


def escapes(text: str) -> list[str]:
    """Return the names that a parser finds and we do not, where we have no doubt."""
    names, doubtful = patched_files(text, codex_only=True)
    if doubtful:
        return []
    # White space around a name is refused where the name is judged.
    refused = {name.strip() for name in names if name != name.strip()}
    return [name for parser in PARSERS for name in parser(text) if name not in names and name.strip() not in refused]


HEADERS: Final = st.builds(
    "{}{}{}{}{}{}{}".format,
    st.sampled_from(["", "", "", " ", "\t", "  ", "\ufeff", "\u00a0", "\u3000", "+", "-", "> "]),
    st.sampled_from(["***", "***", "***", "**", "****", "* **"]),
    st.sampled_from([" ", " ", " ", "", "  ", "\t", "\u00a0"]),
    st.sampled_from(
        [*KINDS, *KINDS, "add file", "Create File", "Move File To", "Add  File", "Rename File", "Add\tFile"]
    ),
    st.sampled_from([":", ":", ":", " :", "", "\uff1a"]),
    st.sampled_from([" ", " ", "", "  ", "\t", "\u00a0", "\u2003"]),
    st.sampled_from(["../other/x", "/etc/passwd", "a.py", "a.py ***", "", "a b.py", '"a.py"']),
)
CONTENT: Final = st.sampled_from(
    [
        "@@",
        "@@ def f():",
        "@@ -1,2 +1,2 @@",
        " same",
        "+new",
        "-old",
        "",
        "*** End of File",
        "*** End Patch",
        "EOF",
        "text",
    ]
)
ENDS: Final = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r", " \n", "\t\r\n", "\x0b", "\x0c", "\x85", "\u2028"])
FRAMES: Final = st.sampled_from(
    [
        ("*** Begin Patch\n", "\n*** End Patch"),
        ("<<'EOF'\n*** Begin Patch\n", "\n*** End Patch\nEOF\n"),
        ('cat <<"EOF"\n*** Begin Patch\n', "\n*** End Patch\nEOF"),
        ("  *** Begin Patch  \r\n", "\r\n*** End Patch"),
        ("", ""),
    ]
)


@pytest.mark.slow
@settings(max_examples=800, deadline=None)
@given(FRAMES, st.lists(st.tuples(HEADERS | CONTENT, ENDS), min_size=1, max_size=8))
def test_whatever_a_parser_takes_for_a_header_is_found_or_doubted(
    frame: tuple[str, str], lines: list[tuple[str, str]]
) -> None:
    text = f"{frame[0]}*** Update File: in.py\n@@\n+x\n{''.join(line + end for line, end in lines)}{frame[1]}"
    assert escapes(text) == []


@settings(max_examples=300, deadline=None)
@given(HEADERS, ENDS, st.sampled_from(["", "@@\n-a\n+b\n", "@@ -1 +1 @@\n-a\n+b\n", "+line\n", "*** End of File\n"]))
def test_no_form_of_a_header_leads_out_of_the_scope_unseen(header: str, end: str, before: str) -> None:
    text = f"*** Begin Patch\n*** Update File: in.py\n{before}{header}{end}+x\n*** End Patch"
    named = [name for parser in PARSERS for name in parser(text)]
    outside = any(name.strip().startswith(("..", "/")) for name in named)
    assert not (outside and judged("apply_patch", {"input": text}).permits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", ["", "@@\n-a\n+b\n", "@@ def f():\n same\n", "*** End of File\n"])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_second_header_counts_wherever_it_stands(kind: str, before: str, blank: str) -> None:
    text = f"*** Begin Patch\n*** Update File: a.py\n{before}*** {kind}:{blank}{OUTSIDE}\n+x\n*** End Patch"
    assert "write /work/other/x" in touched(action("apply_patch", {"patchText": text}))


@pytest.mark.parametrize(
    "line", ["*** Create File: x", "***Add File: x", "*** add file: x", "*** Add File x", "*** x ***"]
)
@pytest.mark.parametrize("before", ["", "@@\n-a\n+b\n"])
def test_what_starts_like_a_header_in_another_form_is_a_doubt(line: str, before: str) -> None:
    text = f"*** Begin Patch\n*** Update File: a.py\n{before}{line}\n*** End Patch"
    assert doubted(action("apply_patch", {"input": text})) == {"input"}


@pytest.mark.parametrize("name", ["  a.py", "\ta.py", "a.py  ", "a.py\t"])
def test_a_name_that_parsers_trim_differently_is_a_doubt(name: str) -> None:
    text = f"*** Begin Patch\n*** Update File: {name}\n@@\n+x\n*** End Patch"
    assert doubted(action("apply_patch", {"input": text})) == {"input"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("wrap", ["{}", "<<'EOF'\n{}\nEOF\n", 'cat <<"EOF"\n{}\nEOF'])
@pytest.mark.parametrize(
    "content",
    [
        "+*** Add File: /etc/passwd", "-*** Delete File: ../other/x", "+--- a/../../other", "--- $HOME and more",
        '--- "quoted"', "+++ /etc/passwd", " *** a rule ***", " ***", "+Index: /etc/x", "+diff -r /etc /usr",
        " rename to /x", " *** Add File: docs/example.md",
    ],
)  # fmt: skip
def test_content_that_reads_like_a_header_is_content(content: str, wrap: str, end: str) -> None:
    text = wrap.format(f"*** Begin Patch\n*** Update File: a.py\n@@\n x\n{content}\n*** End Patch").replace("\n", end)
    decision = judged("apply_patch", {"input": text})
    assert decision.permits, decision.reason


@pytest.mark.parametrize("line", ["--- a/../../other", "+++ /etc/passwd", " *** ../../other/x"])
def test_what_an_unknown_tool_applies_is_read_in_every_form(line: str) -> None:
    text = f"*** Begin Patch\n*** Update File: a.py\n@@\n{line}\n*** End Patch"
    assert not judged("mcp__x__change", {"patch": text}).permits


DIFF: Final = "diff --git a/x.sql b/x.sql\n--- a/x.sql\n+++ b/x.sql\n@@ -1,3 +1,3 @@\n a\n"


@pytest.mark.parametrize("line", ['--- "a comment"', "-diff of two", "-Index: x", " ===", ' *** "x" ***', "-=== x"])
def test_what_a_hunk_counts_as_its_own_is_content(line: str) -> None:
    text = f"{DIFF}{line}\n+b\n c\n"
    decision = judged("apply_patch", {"patch": text})
    assert decision.permits, decision.reason


@pytest.mark.parametrize(
    "line", ['--- "a/../../other"', "Index: ../../other", "*** ../../other", 'diff --git "a/x" "b/x"', 'rename to "x"']
)
def test_behind_the_lines_that_a_hunk_counts_a_name_counts_again(line: str) -> None:
    assert "patch" in doubted(action("apply_patch", {"patch": f"{DIFF}-b\n+b\n c\n{line}\n"}))


def test_what_looks_like_the_start_of_a_diff_counts_within_a_hunk() -> None:
    inner = '--- "a/../../other"\n+++ "b/../../other"\n@@ -1 +1 @@\n'
    assert "patch" in doubted(action("apply_patch", {"patch": DIFF.replace("1,3 +1,3", "1,9 +1,9") + inner}))
