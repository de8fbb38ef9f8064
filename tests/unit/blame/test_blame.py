"""The ladder: it names the stage in which a fault was planted, and is silent where there is none."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aotcheck.autograd.record.steps import Restride
from aotcheck.backends import resolve
from aotcheck.blame import Rung, Standing, blame, describe
from aotcheck.blame.ladder import Unseen, judges_of
from aotcheck.blame.runs import Anew, Question, first_difference
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.cli import main
from aotcheck.oracle import Outcome, check
from aotcheck.oracle.reference import Reference
from aotcheck.program import Program, emit, parse_file
from tests.unit.blame.faults import (
    ADDS,
    FAULTS,
    RETURNS_VIEWS,
    TRANSPOSES,
    Fault,
    dropped,
    forward_results_swapped,
    returns_reversed,
    writes_to_views_lost,
    wrong_twin,
)
from tests.unit.minimize.scripts import program

CPU = torch.device("cpu")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_in_its_stage(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blame(fault.shown_by, CPU).rung is None
    fault.plant(monkeypatch)
    found = blame(fault.shown_by, CPU)
    assert found.rung is fault.rung, found.text
    assert fault.wrong in found.text
    assert [judged.standing for judged in found.rungs].count(Standing.DIFFERS) == 1


def test_faults_are_planted_in_every_stage() -> None:
    counts = Counter(fault.rung for fault in FAULTS)
    assert all(counts[rung] >= 3 for rung in Rung if rung is not Rung.EAGER)


# -- silence


def said(program: Program) -> list[str]:
    """What the rungs below the second call say of a program."""
    reference = Reference(program, CPU, len(program.calls))
    reference.fill()
    run = Anew(program, CPU)
    seen = first_difference(run, reference)
    found = [seen.text] if seen is not None else []
    for call, specimen in enumerate(run.specimens):
        question = Question(specimen, reference, call, refused=False)
        found += [text for _, judge in judges_of(specimen) if (text := judge(question))]
    return found


def agreeing_files() -> list[Path]:
    """Those on which aotcheck agrees, but for one: the ladder refuses to run by itself a backward that writes."""
    files = sorted((Path(__file__).parents[3] / "corpus").glob("*.py"))
    beyond = "checkpoint-updates-running-statistics-once"
    return [path for path in files if "expect.aotcheck" not in path.read_text() and path.stem != beyond]


@pytest.mark.parametrize("path", agreeing_files(), ids=lambda path: path.stem)
def test_no_rung_differs_on_a_program_of_the_corpus(path: Path) -> None:
    # What refers to a tensor, weakly too, which `swap_tensors` counts, is not what it is in the run itself.
    counted = ("use_count", "Expected no weakrefs")
    assert [text for text in said(parse_file(path).program) if not any(word in text for word in counted)] == []


@pytest.mark.filterwarnings("ignore")
def test_hardly_a_rung_differs_on_programs_that_agree() -> None:
    """Hardly one: what the trace holds wrongly need not show in what the program does."""
    drawn = programs_of_block(load_strategy("strategies:settled"), 5, 0)
    agreeing = [p for p in drawn if check(p, resolve("aotcheck"), CPU).outcome is Outcome.AGREES]
    assert len(agreeing) > len(drawn) / 2
    assert sum(bool(said(p)) for p in agreeing) <= 2  # whether a leaf is one, where eager refuses to say


# -- the record in words


def test_a_record_is_described_line_by_line() -> None:
    seen: list[tuple[str, ...]] = []

    def run(program: Program) -> tuple[str, ...]:
        anew = Anew(program, CPU, lambda specimen: seen.append(describe(specimen.opened.record)))
        list(anew.observations())
        return seen[-1]

    assert run(ADDS) == (
        "graph: argument 0, argument 1 -> r0 float32[4], mutated_input, r1 float32[4], user_output",
        "1. write r0 to argument 0",
        "return r1",
    )
    assert run(TRANSPOSES)[1:] == (
        "1. argument 0 becomes float32[3, 2] stride [1, 3] in place, unseen by autograd",
        "return r0",
    )
    first, *steps, last = run(RETURNS_VIEWS)
    assert first == "graph: argument 0 -> nothing"
    assert steps[0].startswith("1. t0: a view of argument 0 by aten.slice.Tensor")
    assert steps[1] == "2. t1: float32[4] on the storage of argument 0, no view of it"
    assert steps[2].startswith("3. t2: a view of argument 0 by aten.view.default")
    assert last == "return t0, t1, t2"


# -- the command


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(emit(TRANSPOSES))
    return path


def test_the_command_says_that_nothing_differs(script: Path) -> None:
    result = CliRunner().invoke(main, ["blame", str(script)])
    assert (result.exit_code, result.output) == (
        1,
        f"{script}: aotcheck: does not differ (agrees); there is nothing to blame\n",
    )


def test_the_command_shows_the_ladder_and_the_record(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped(Restride)(monkeypatch)
    result = CliRunner().invoke(main, ["blame", str(script)])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith(
        f"{script}: aotcheck: shape of a0 after forward of call 1: eager (3, 2), compiled (2, 3)"
    )
    words = [line.split()[:2] for line in lines[1:5]]
    assert words == [["eager", "agrees"], ["trace", "agrees"], ["joint", "graph"], ["partition", "agrees"]]
    assert lines[5].split()[:2] == ["runtime", "differs"]
    assert lines[6].split()[-2:] == ["not", "reached"]
    assert lines[-1] == "blame: runtime: no step changes the shape of a0: it has (2, 3), eager has (3, 2)"
    assert len(lines) < 24


def test_the_command_names_a_file_that_is_no_program(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import os\n")
    result = CliRunner().invoke(main, ["blame", str(bad)])
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)
    assert str(bad) in result.stderr
    assert CliRunner().invoke(main, ["blame", str(tmp_path / "none.py")]).exit_code == 2


# -- wrappers

WRAPPED = program(
    "def f(x0, x1):\n    v0 = x0[1:]\n    v0.add_(1)\n    v1 = torch.mul(x0, 2)\n    v2 = torch.add(x1, 1)\n"
    "    return (v1, v2)",
    "def make_inputs_0(device):\n"
    "    s0 = storage([1, 2, 3, 4], torch.float32, device)\n"
    "    s1 = storage([5, 6, 7, 8], torch.float32, device)\n"
    "    a0 = strided(s0, torch.float32, (4,), (1,), 0)\n"
    "    a1 = strided(s1, torch.float32, (4,), (1,), 0)\n"
    "    a2 = wrapped.two(a0, a1)\n"
    "    return (a2, a1), named(locals())",
)


@pytest.mark.parametrize(
    ("plant", "rung"),
    [
        (wrong_twin, Rung.TRACE),
        (writes_to_views_lost, Rung.TRACE),
        (forward_results_swapped, Rung.PARTITION),
        (returns_reversed, Rung.RUNTIME),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_what_wrappers_hold_is_looked_at(
    plant: Callable[[pytest.MonkeyPatch], None], rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert blame(WRAPPED, CPU).rung is None
    plant(monkeypatch)
    found = blame(WRAPPED, CPU)
    assert found.rung is rung, found.text
    reached = [
        one for one in found.rungs if one.standing is Standing.AGREES and one.rung in (Rung.JOINT, Rung.PARTITION)
    ]
    assert {one.text for one in reached} <= {Unseen.WRAPPERS.value}


# -- hooks of the caller's

HOOKED = program(
    "def f(x0):\n    v0 = x0.detach()\n    torch.autograd.grad([x0], [x0], [v0])\n"
    "    v1 = torch.mul(x0, 2)\n    v2 = torch.add(x0, 1)\n    return (v1, v2)",
    "def make_inputs_0(device):\n"
    "    s0 = storage([1, 2], torch.float32, device)\n"
    "    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)\n"
    "    return (a0,), named(locals())",
    'CALLS = [{"inputs": make_inputs_0, "before": ({"do": "hook", "kind": "watch", "site": "input", "index": 0},)}]',
)


def test_a_trace_that_calls_hooks_of_the_callers_is_not_interpreted_without_him(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert blame(HOOKED, CPU).rung is None
    returns_reversed(monkeypatch)
    found = blame(HOOKED, CPU)
    assert found.rung is Rung.RUNTIME, found.text
    told = {one.rung for one in found.rungs if one.text == Unseen.CALLER.value}
    assert told == {Rung.TRACE, Rung.JOINT, Rung.PARTITION}
