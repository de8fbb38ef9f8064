"""``aotcheck corpus``: programs taken into the corpus, held to its form, and taken out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import CORPUS, OneLine, Usage, one_line, program_files

if TYPE_CHECKING:
    from aotcheck.campaign.corpus.missing import Group
    from aotcheck.campaign.corpus.replay import Replayed
    from aotcheck.program import ParsedFile


@click.group(cls=OneLine)
def corpus() -> None:
    """Add to the corpus, check it, prune it."""


@corpus.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it: words that say what is wrong. Default: as FILE is called.")
@click.option("--issue", default="not looked up", show_default=True, help="A link to where the bug is reported.")
@click.option("--backend", "backends", multiple=True, help="Judge it on these too.")
@click.option("--corpus", "folder", type=click.Path(path_type=Path), default=CORPUS, show_default=True)
def add(path: Path, name: str | None, issue: str, backends: tuple[str, ...], folder: Path) -> None:
    """Judge FILE, best a minimized finding, on each backend and take it into the corpus with what it showed.

    Exits 1 if the corpus has a file that shows the same.
    """
    import torch

    from aotcheck.backends import Expectations
    from aotcheck.campaign.corpus.files import JUDGED_ON, Expected, complaints, duplicates, entries, entry_of
    from aotcheck.campaign.corpus.replay import Replay
    from aotcheck.campaign.record.journal import write_durably
    from aotcheck.oracle import Outcome
    from aotcheck.program import emit, parse_file

    parsed = _read(path)
    _folder(folder)
    named = parsed.header.get("backend")
    judged_on = tuple(dict.fromkeys((*JUDGED_ON, *([named] if isinstance(named, str) else []), *backends)))
    results = list(Replay((path,), judged_on, jobs=_cores(), runs=2).results())
    version = torch.__version__.partition("+")[0]
    keys: dict[str, str] = {}
    expect: dict[str, dict[str, str]] = {}
    for one in results:
        _require_judged(one)
        differs = one.judged.outcome is Outcome.DIFFERS
        if differs:
            keys[one.backend] = one.judged.key
        if one.judged.outcome is Outcome.REFUSED:  # neither agrees nor differs
            click.echo(f"{path}: {one.backend} refuses it: {', '.join(one.judged.refusals)}")
            if one.backend in JUDGED_ON:
                expect[one.backend] = {}  # else it would be expected to agree
            continue
        said = Expected.DIFFERS if differs else Expected.AGREE
        if differs or one.backend not in JUDGED_ON:
            expect[one.backend] = {version if differs or not one.backend.startswith("aotcheck") else "*": said.value}
    if not keys:
        click.echo(f"{path}: agrees on {', '.join(judged_on)}; add it by hand if it is a fixed bug of ours")
        sys.exit(1)
    first = next(one for one in results if one.backend in keys)
    alone = [one.backend for one in results if one.backend in keys and one.judged.unfit]
    header: dict[str, object] = {
        "found": str(parsed.header.get("found", "by hand")),
        "issue": issue,
        "difference": first.judged.texts[0],
        **({"alone": alone} if alone else {}),
        **Expectations.of_header(parsed.header).header(),
        "keys": keys,
        "expect": expect,
    }
    target = folder / f"{name or path.stem}.py"
    if target.exists():
        raise Usage(f"{target} is there already; choose another --name")
    before = list(entries(folder))
    write_durably(target, emit(parsed.program, header))
    same = next(
        (old for new, old in duplicates([*before, entry_of(target, parse_file(target))]) if new.path == target), None
    )
    if same is not None:
        target.unlink()
        click.echo(f"{path}: {same.path} shows the same")
        sys.exit(1)
    for complaint in complaints(target):
        click.echo(complaint)
    click.echo(f"added: {target}: {', '.join(f'{backend} {key}' for backend, key in keys.items())}")


@corpus.command()
@click.argument("folder", type=click.Path(path_type=Path), default=CORPUS)
def check(folder: Path) -> None:
    """Hold the files of FOLDER to the corpus's form: canonical, complete headers, no two that show the same.

    Nothing of them is executed; ``aotcheck replay`` runs them. Exits 1 if anything is wrong, a line for each thing.
    """
    from aotcheck.campaign.corpus.files import complaints, duplicates, entries
    from aotcheck.campaign.record.words import counted

    files = _folder(folder)
    wrong = [line for path in files for line in complaints(path)]
    wrong += [f"{new.path}: shows the same as {old.path}" for new, old in duplicates(entries(folder))]
    for line in wrong:
        click.echo(line)
    click.echo(f"{counted(len(files), 'file')}, {counted(len(wrong), 'complaint')}")
    sys.exit(1 if wrong else 0)


@corpus.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--backend", "backends", multiple=True, help="Only these. Default: all that a file has a key of.")
def rekey(paths: tuple[Path, ...], backends: tuple[str, ...]) -> None:
    """Judge files (or folders of them) again and bring their keys up to date, where they differ under another key than
    their header says.

    For when what goes into a coarse key has changed. Look at what it says: another key may also be another difference.
    """
    from aotcheck.campaign.corpus.files import entry_of, with_key
    from aotcheck.campaign.corpus.replay import Replay
    from aotcheck.oracle import Outcome
    from aotcheck.program import parse_file

    files = program_files(paths)
    keys = {path: entry_of(path, _read(path)).keys for path in files}
    named = dict.fromkeys(backend for known in keys.values() for backend in known)
    changed = 0
    for backend in (backend for backend in named if not backends or backend in backends):
        judged = Replay([path for path in files if backend in keys[path]], (backend,), jobs=_cores(), runs=2)
        for one in judged.results():
            _require_judged(one)
            if one.judged.outcome is Outcome.DIFFERS and one.judged.key != keys[one.path][backend]:
                one.path.write_text(with_key(parse_file(one.path), backend, one.judged.key), encoding="utf-8")
                click.echo(f"{one.path}: {backend}: {keys[one.path][backend]} is now {one.judged.key}")
                changed += 1
    click.echo(f"{changed} keys changed")


@corpus.command()
@click.argument("folder", type=click.Path(path_type=Path), default=CORPUS)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def prune(folder: Path, dry_run: bool) -> None:
    """Delete the files of FOLDER that add nothing: they show what another file shows.

    What no longer differs stays: it is a regression test. Nothing is executed.
    """
    from aotcheck.campaign.corpus.files import duplicates, entries

    files = _folder(folder)
    gone = list(duplicates(entries(folder)))
    for new, old in gone:
        if not dry_run:
            new.path.unlink()
        click.echo(f"{new.path}: {'would go' if dry_run else 'deleted'}: shows the same as {old.path}")
    click.echo(f"{len(files) - len(gone)} of {len(files)} files stay")


@corpus.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--causes", is_flag=True, help="Look also at findings of known keys that make none of the known calls.")
@click.option("--corpus", "folder", type=click.Path(path_type=Path), default=CORPUS, show_default=True)
def missing(runs: tuple[Path, ...], causes: bool, folder: Path) -> None:
    """Say which coarse keys of RUN... no file of the corpus has, each with the command that comes next.

    First a finding of each is to be minimized, then what that makes to be added. Nothing is executed. Exits 1 if a key
    is missing.
    """
    from aotcheck.campaign import Past
    from aotcheck.campaign.corpus.files import entries
    from aotcheck.campaign.corpus.missing import missing as find
    from aotcheck.campaign.record.words import counted
    from aotcheck.report.jsonl import load_events

    _folder(folder)
    known = list(entries(folder))
    lacking = False
    for run in runs:
        try:
            past = Past.of(load_events(run / "run.jsonl"))
        except OSError as error:
            raise Usage(f"{error.filename or run}: {error.strerror}") from error
        if past.started is None:
            raise Usage(f"{run}: run.jsonl does not say what was run")
        found = find(run, past.started.backend, (*past.events, *past.untold), known, causes)
        for group in found.uncovered:
            _print_group(group, folder)
        if found.unexplained:
            click.echo("of keys that files have, by other calls:")
        for group in found.unexplained:
            _print_group(group, folder)
        lacks = sum(len(group.findings) for group in found.uncovered)
        click.echo(
            f"{run}: {past.started.backend}: {counted(past.programs, 'program')}, "
            f"{counted(found.findings, 'finding')} of {counted(found.keys, 'coarse key')}; "
            f"{counted(len(found.uncovered), 'key')} in no file of {folder}, of {counted(lacks, 'finding')}"
        )
        lacking = lacking or bool(found.uncovered)
    sys.exit(1 if lacking else 0)


def _print_group(group: Group, folder: Path) -> None:
    from aotcheck.campaign.record.words import counted

    click.echo(f"{group.key}: {counted(len(group.findings), 'finding')}")
    if group.minimized is None:
        click.echo(f"    aotcheck minimize {group.findings[0]}")
    else:
        where = "" if folder == CORPUS else f" --corpus {folder}"
        click.echo(f"    aotcheck corpus add {group.minimized} --name what-is-wrong{where}")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _folder(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Usage(f"{folder}: no such folder")
    return sorted(folder.glob("*.py"))


def _read(path: Path) -> ParsedFile:
    from aotcheck.program import ProgramSyntaxError, UnknownOpError, parse_file

    try:
        return parse_file(path)
    except (ProgramSyntaxError, UnknownOpError) as error:
        raise Usage(one_line(error, path)) from error
    except OSError as error:
        raise Usage(f"{path}: cannot be read: {error.strerror}") from error


def _require_judged(one: Replayed) -> None:
    """A program that cannot be judged twice with one result is no corpus file."""
    from aotcheck.campaign.corpus.replay import Status

    if one.status is Status.REJECTED:
        raise Usage(f"{one.path}: {one.text}")
    if one.status is Status.FLAKY:
        raise Usage(f"{one.path}: {one.backend}: flaky: {one.text}")
