"""The corpus: canonical files, on which aotcheck agrees with eager and torch differs as their headers say."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch

from aotcheck.backends import NAMES, require_device, resolve
from aotcheck.campaign.corpus import canonical
from aotcheck.oracle import Outcome, check
from aotcheck.program import ParsedFile, emit, parse, parse_file

FILES = sorted((Path(__file__).parents[2] / "corpus").glob("*.py"))
EXPECTATIONS = {"agree": Outcome.AGREES, "differs": Outcome.DIFFERS}


@cache
def read(path: Path) -> ParsedFile:
    return parse_file(path)


def expectations(path: Path) -> dict[str, str]:
    expected = read(path).header["expect"]
    assert isinstance(expected, dict)
    return expected


def known_bugs() -> list[tuple[Path, str]]:
    return [(path, name) for path in FILES for name, said in expectations(path).items() if said == "differs"]


def test_there_is_a_corpus() -> None:
    assert len(FILES) >= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_corpus_file_is_canonical(path: Path) -> None:
    parsed = read(path)
    assert canonical(path) == path.read_text(encoding="utf-8"), "run aotcheck refresh corpus/"
    assert parse(emit(parsed.program, parsed.header)) == parsed
    assert list(parsed.header) == ["format", "found", "torch", "key", "difference", "expect"]
    assert expectations(path)["aotcheck"] == "agree"
    assert set(expectations(path)) <= set(NAMES) and set(expectations(path).values()) <= set(EXPECTATIONS)


def test_no_two_files_show_one_difference() -> None:
    shown = Counter(str(read(path).header["key"]) for path in FILES)
    assert not {key: count for key, count in shown.items() if count > 1}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_aotcheck_agrees_with_eager_on_the_corpus(path: Path, device: str) -> None:
    verdict = check(read(path).program, resolve("aotcheck"), require_device(device))
    assert verdict.outcome is Outcome.AGREES, verdict.refusals or [d.text for d in verdict.hard]


@pytest.mark.parametrize(("path", "name"), known_bugs(), ids=lambda part: getattr(part, "stem", part))
def test_torch_differs_as_the_corpus_says(path: Path, name: str) -> None:
    versions = read(path).header["torch"]
    assert isinstance(versions, list)
    if torch.__version__.split("+")[0] not in versions:
        pytest.skip(f"found in torch {', '.join(versions)}; this is {torch.__version__}")
    verdict = check(read(path).program, resolve(name), torch.device("cpu"))
    assert verdict.outcome is Outcome.DIFFERS
    if name == next(known for at, known in known_bugs() if at == path):  # the others may show it elsewhere first
        assert str(verdict.hard[0].key) == read(path).header["key"]
