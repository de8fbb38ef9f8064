"""The table, and docs/versions.md."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tools.versions.checks import Check, Piece, Result

T = TypeVar("T")
_NOUNS = {Check.PROGRAMS: "programs", Check.MIXED: "programs", Check.CORPUS: "files", Check.BEHAVIOUR: "tests"}

_HEAD = """# Every torch from 2.11 on

The latest table of `make versions`, which compares aotcheck's own AOT autograd (`--backend aotcheck`) with eager on
each version of torch. A cell says how much was judged, and how often aotcheck was wrong. `programs` and `mixed` are
random programs of these strategies, `corpus` the files of `corpus/`, `behaviour` the tests of `tests/behaviour` without
a GPU. "not whole" means that a part did not run, or did not end.

"""


def rows(found: Mapping[Piece, Result | None]) -> list[list[str]]:
    """The table: a head, then a row for each torch."""
    versions, checks = _in_order(p.version for p in found), _in_order(p.check for p in found)
    table = [["torch", *(check.value for check in checks)]]
    for version in versions:
        row = [version]
        for check in checks:
            results = [result for p, result in found.items() if (p.version, p.check) == (version, check)]
            row.append(_cell(results, _NOUNS[check]))
        table.append(row)
    return table


def _in_order(things: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(things))


def _cell(results: list[Result | None], noun: str) -> str:
    done = [result for result in results if result is not None]
    if not done:
        return "—" if not results else "not run"
    judged, wrong = sum(r.judged for r in done), sum(len(r.wrong) for r in done)
    whole = len(done) == len(results) and not any(r.broken for r in done)
    return f"{judged} {noun}, {wrong} wrong{'' if whole else ' (not whole)'}"


def lists(found: Mapping[Piece, Result | None]) -> dict[str, list[str]]:
    """What is wrong, what did not run to its end, and what differs for another reason: lines, by title."""
    done = [(p, result) for p, result in found.items() if result is not None]
    return {
        "Wrong in aotcheck": [f"{p.version}: {line}" for p, result in done for line in result.wrong],
        "Not run to the end": [f"{p.version}: {p.check.value}: {r.broken}" for p, r in done if r.broken],
        "Different, but not wrong in aotcheck": [f"{p.version}: {line}" for p, r in done for line in r.others],
    }


def document(found: Mapping[Piece, Result | None]) -> str:
    """docs/versions.md."""
    head, *body = rows(found)
    lines = [head, ["---"] * len(head), *body]
    text = _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in lines)
    for title, found_lines in lists(found).items():
        text += f"\n## {title}\n\n" + ("".join(f"- {line}\n" for line in found_lines) or "Nothing.\n")
    return text
