"""On a GPU a kernel that does not take a value fails an assertion: such programs are known before they are run there.

Nothing here runs on a GPU; that is the point of it.
"""

from pathlib import Path

import pytest
import torch

from aotcheck.backends import EVERY_PROMISE, Backend, Promise
from aotcheck.campaign.running import worker
from aotcheck.campaign.running.worker import Task, run_task
from aotcheck.oracle import Outcome, check
from aotcheck.oracle.needs import fails_assertions
from aotcheck.oracle.state import canary
from aotcheck.program import Literal, Program, Ref, TupleExpr
from aotcheck.workers import POISONED
from tests.meta.small import REFUSED, X, op, program

CPU, CUDA = torch.device("cpu"), torch.device("cuda")

INDEX = op("v0", "Tensor.long", X)  # 1, 2, 3, 4

FAILS = {
    "a probability above one": program(op("v0", "torch.bernoulli", X)),
    "a loss of what is no probability": program(op("v0", "torch.nn.functional.binary_cross_entropy", X, X)),
    "an index out of bounds": program(INDEX, op("v1", "torch.gather", X, 0, Ref("v0")), outputs=Ref("v1")),
    "a class that there is not": program(
        INDEX, op("v1", "torch.nn.functional.one_hot", Ref("v0"), 3), outputs=Ref("v1")
    ),
}

FINE = {
    "a probability": program(op("v0", "torch.sigmoid", X), op("v1", "torch.bernoulli", Ref("v0")), outputs=Ref("v1")),
    "classes that there are": program(INDEX, op("v1", "torch.nn.functional.one_hot", Ref("v0"), 5), outputs=Ref("v1")),
    "shapes that do not fit": REFUSED,
    "shapes of an index": program(
        INDEX,
        op("v1", "Tensor.view", Ref("v0"), TupleExpr((Literal(2), Literal(2)))),
        op("v2", "torch.gather", X, 0, Ref("v1")),
        outputs=Ref("v2"),
    ),
}


@pytest.mark.parametrize("subject", FAILS.values(), ids=FAILS)
def test_a_program_in_which_an_op_refuses_values_is_left_out_and_never_runs_on_a_gpu(subject: Program) -> None:
    verdict = check(subject, Backend("eager", lambda fn: fn, EVERY_PROMISE), CUDA)
    assert (verdict.outcome, verdict.left_out) == (Outcome.LEFT_OUT, ((Promise.VALUE_ERRORS, 1),))


@pytest.mark.parametrize("subject", FINE.values(), ids=FINE)
def test_a_program_that_runs_or_that_shapes_end_is_judged(subject: Program) -> None:
    assert not fails_assertions(subject, CUDA)


@pytest.mark.parametrize("subject", FAILS.values(), ids=FAILS)
def test_on_the_cpu_an_error_by_values_is_judged(subject: Program) -> None:
    assert not fails_assertions(subject, CPU)
    assert check(subject, Backend("eager", lambda fn: fn, EVERY_PROMISE), CPU).outcome is Outcome.AGREES


def test_the_canary_is_heard_on_the_device_too() -> None:
    assert canary(CPU) == ""
    assert canary(torch.device("meta")) != "", "where no value can be read"


@pytest.mark.parametrize("unfit", ["", "CUDA error: device-side assert triggered"])
def test_a_worker_whose_oracle_failed_ends_if_no_op_works_there_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unfit: str
) -> None:
    class Ended(BaseException):
        pass

    def fails(*args: object) -> None:
        raise RuntimeError("planted")

    def ends(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr(worker, "check", fails)
    monkeypatch.setattr(worker, "canary", lambda device: unfit)
    monkeypatch.setattr(worker.os, "_exit", ends)
    task = Task("tests.meta.small:drawn", "eager", "cpu", 0, 0, frozenset(), 3, tmp_path / "journal", tmp_path)
    if unfit:
        with pytest.raises(Ended, match=str(POISONED)):
            run_task(task)
    else:
        run_task(task)
    failed = (tmp_path / "journal").read_text().count('"failed"')
    assert failed == (1 if unfit else 3)
