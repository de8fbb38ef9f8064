"""docs/found.md is what tools/found_page.py writes from the corpus, and counts each of its files."""

import re
from functools import cache

import pytest

from tools import found_page
from tools.found_page import BACKENDS, HEAD, PAGE, VERSIONS, WORST, Found, causes, checks, found, page

TEXT = PAGE.read_text(encoding="utf-8")


@cache
def files() -> list[Found]:
    return found()


def test_the_page_is_what_the_command_writes() -> None:
    assert page(TEXT.partition(HEAD)[0], files(), checks(TEXT)) == TEXT, "run python -m tools.found_page"
    assert len(TEXT.splitlines()) < 150


@pytest.mark.parametrize("table", ["| effect: oracle |", "| group |"])
def test_a_table_counts_every_file(table: str) -> None:
    rows = TEXT.partition(table)[2].partition("\n\n")[0].splitlines()[2:]
    counted = [[int(cell) for cell in row.split(" | ")[1 : 2 + len(BACKENDS)]] for row in rows]
    by_backend = [sum(name in one.entry.keys for one in files()) for name in BACKENDS]
    assert list(map(sum, zip(*counted, strict=True))) == [len(files()), *by_backend]


def test_the_issues_count_every_file() -> None:
    assert sum(map(int, re.findall(r": (\d+)", TEXT.splitlines()[-1]))) == len(files())


def test_the_worst_are_in_the_order_of_rank_and_their_reports_were_made() -> None:
    heads = [one for one, *_ in causes(files())[:WORST]]
    assert [one.rank for one in heads] == sorted(one.rank for one in heads)
    assert set(checks(TEXT)) == {(one.entry.path.name, version) for one in heads for version in VERSIONS}
    assert set(checks(TEXT).values()) <= {"shown", "agrees with eager", "no script"}


def test_a_new_corpus_file_needs_no_hand_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: found_page.Path) -> None:
    source = files()[0].entry.path
    (tmp_path / "new.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(found_page, "CORPUS", tmp_path)
    written = page("", found(), {})
    assert "aotcheck bug corpus/new.py" in written
    assert "All 1 files" in written
