"""The Markdown pages: their links lead somewhere, pages that sources name exist, and ARCHITECTURE.md is one page."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
NAMED = re.compile(r"\bdocs/\w+\.md\b|\b[A-Z]{4,}\.md\b")  # as comments and pages name them


def files(*patterns: str) -> list[Path]:
    """The repository's own files (tracked, or new and not ignored) that match."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    try:
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def anchors(page: Path) -> set[str]:
    """The names by which GitHub links to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> Iterator[str]:
    """The links of a page's text that lead nowhere."""
    for link in LINK.findall(CODE.sub("", text)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def test_every_link_leads_somewhere():
    pages = files("*.md")
    assert ROOT / "README.md" in pages
    assert {str(page): found for page in pages if (found := list(broken(page, page.read_text(encoding="utf-8"))))} == {}


def test_a_link_that_leads_nowhere_is_found():
    text = "[a](none.md) [b](docs/limits.md#none) `[c](none)` [d](docs/limits.md#refused) [e](https://none)"
    assert list(broken(ROOT / "README.md", text)) == ["none.md", "docs/limits.md#none"]


def test_every_page_that_a_source_or_a_page_names_is_there():
    sources = files("*.py", "*.md", "*.toml", "Makefile")
    named = {name: source for source in sources for name in NAMED.findall(source.read_text(encoding="utf-8"))}
    assert {name: str(source) for name, source in named.items() if not (ROOT / name).is_file()} == {}


def test_architecture_fits_on_one_page():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 85
