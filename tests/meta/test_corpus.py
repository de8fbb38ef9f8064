"""The corpus: canonical files, on which aotcheck agrees with eager, or is said not to, and torch differs as said."""

from functools import cache
from pathlib import Path

import pytest
import torch

from aotcheck.backends import NAMES, BackendUnavailableError, require_device, resolve
from aotcheck.campaign.corpus.files import Entry, Expected, complaints, duplicates, entry_of
from aotcheck.campaign.corpus.replay import Replay, Status
from aotcheck.oracle import Outcome, check
from aotcheck.program import emit, parse, parse_file

FOLDER = Path(__file__).parents[2] / "corpus"
FILES = sorted(FOLDER.glob("*.py"))


@cache
def entry(path: Path) -> Entry:
    return entry_of(path, parse_file(path))


@cache
def known_bugs() -> list[tuple[Path, str]]:
    """Files and backends that are expected to differ under the torch that is installed."""
    return [
        (path, backend)
        for path in FILES
        for backend in entry(path).expect
        if entry(path).expected(backend, torch.__version__) is Expected.DIFFERS
    ]


def test_there_is_a_corpus() -> None:
    assert len(FILES) >= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_corpus_file_has_the_form(path: Path) -> None:
    assert list(complaints(path)) == []
    parsed = parse_file(path)
    assert parse(emit(parsed.program, parsed.header)) == parsed
    assert set(entry(path).expect) <= set(NAMES)


def test_few_files_show_what_is_wrong_with_aotcheck() -> None:
    assert sum(name == "aotcheck" for _, name in known_bugs()) <= 20


def test_no_two_files_show_one_difference() -> None:
    assert [(new.path.stem, old.path.stem) for new, old in duplicates(map(entry, FILES))] == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if (path, "aotcheck") not in known_bugs()], ids=lambda p: p.stem
)
def test_aotcheck_agrees_with_eager_on_the_corpus_or_refuses_as_said(path: Path, device: str) -> None:
    verdict = check(entry(path).program, resolve("aotcheck"), require_device(device))
    expected = Outcome.REFUSED if entry(path).expected("aotcheck", torch.__version__) is None else Outcome.AGREES
    assert verdict.outcome is expected, verdict.refusals or [d.text for d in verdict.hard]


@pytest.mark.by_day(240)  # of 900: these are torch's bugs, and torch is pinned
@pytest.mark.parametrize(("path", "name"), known_bugs(), ids=lambda part: getattr(part, "stem", part))
def test_backends_differ_as_the_corpus_says(path: Path, name: str) -> None:
    try:
        backend = resolve(name)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    if name in entry(path).alone:
        (replayed,) = Replay((path,), (name,)).results()
        assert replayed.status is Status.KNOWN, replayed.text
        assert replayed.judged.key == entry(path).keys[name]
        return
    verdict = check(entry(path).program, backend, torch.device("cpu"))
    assert not verdict.poisoned
    assert verdict.outcome is Outcome.DIFFERS
    assert str(verdict.hard[0].key) == entry(path).keys[name]
