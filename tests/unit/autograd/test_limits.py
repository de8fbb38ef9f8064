"""docs/limits.md has a row for each reason to refuse a program, and one for each kind of difference from eager."""

import ast
from collections.abc import Iterator
from pathlib import Path

import aotcheck

PACKAGE = Path(aotcheck.__file__).parent
LIMITS = PACKAGE.parent / "docs" / "limits.md"
BUGS = "error only when compiled"  # counted as a refusal, and none
REFUSALS = ("UnsupportedError", "RunsAsItIs", "RunsThisOnce")
FOUND_BEFORE = ("found.refusal.reason",)  # one of the others, raised again in a later call


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of docs/limits.md, without its head."""
    _, _, below = LIMITS.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    lines = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def rows() -> dict[str, tuple[str, ...]]:
    """What the table says of each reason: what is refused, and why."""
    return {reason.strip(): tuple(said) for names, *said in table("Refused") for reason in names.split(",")}


def reasons() -> Iterator[str]:
    """Those in the source."""
    for path in sorted((PACKAGE / "autograd").rglob("*.py")):
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


def test_each_kind_of_difference_has_a_count_what_is_seen_and_an_example():
    kinds = table("Differs")
    assert [row for row in kinds if len(row) != 4 or not all(row) or not row[1].isdigit()] == []
    assert len({row[0] for row in kinds}) == len(kinds)


def test_each_kind_says_whether_it_is_silent():
    loud = ("one raises", "both raise", "eager raises", "ours raises", "eager's results")
    assert [row[0] for row in table("Differs") if not row[2].startswith(("**silent**: ", *loud))] == []


def test_the_page_stays_a_page():
    assert len(LIMITS.read_text(encoding="utf-8").splitlines()) < 130
