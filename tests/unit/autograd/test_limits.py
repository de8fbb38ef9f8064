"""docs/limits.md has a row for each reason for which the AOT autograd refuses a program, and says why it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import aotcheck

PACKAGE = Path(aotcheck.__file__).parent
LIMITS = PACKAGE.parent / "docs" / "limits.md"
BUGS = "error only when compiled"  # counted as a refusal, and none
REFUSALS = ("UnsupportedError", "RunsAsItIs", "RunsThisOnce")
FOUND_BEFORE = ("found.refusal.reason",)  # one of the others, raised again in a later call


def rows() -> dict[str, tuple[str, ...]]:
    """What the table says of each reason: what is refused, and why."""
    lines = [line for line in LIMITS.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    return {reason.strip(): tuple(said) for names, *said in cells for reason in names.split(",")}


def reasons() -> Iterator[str]:
    """Those in the source."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSALS:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    yield str(first.value)
                else:
                    assert ast.unparse(first) in FOUND_BEFORE, f"{path}: a reason that the test can't read"


def test_each_reason_has_a_row_and_each_row_a_reason():
    assert set(rows()) == {*reasons(), BUGS}


def test_each_row_says_what_is_refused_and_why():
    assert [reason for reason, said in rows().items() if len(said) != 2 or not all(said)] == []
