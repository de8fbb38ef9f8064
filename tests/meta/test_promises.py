"""A fault against each promise: found where it is promised, silent and counted where it is not."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.utils import _pytree as pytree

from aotcheck.backends import EVERY_PROMISE, Backend, Expectations, ExpectationsError, Promise, promises_named, resolve
from aotcheck.campaign.corpus.files import canonical, resolved
from aotcheck.campaign.record.events import FindingSigned, RunStarted, ScriptRun, Shown
from aotcheck.cli import main
from aotcheck.oracle import OracleKind, Outcome, Verdict, check
from aotcheck.program import (
    Backward,
    Hook,
    HookKind,
    ListExpr,
    Literal,
    Of,
    Program,
    Ref,
    Site,
    TupleExpr,
    emit,
    parse,
    parse_file,
)
from aotcheck.report.jsonl import load_events
from tests.meta import planted
from tests.meta.small import DOUBLE, INPUT, MUTATES, OUTPUT, REFUSED, TRAINED, VIEW, X, op, pair, program
from tests.meta.test_oracles_fire import (
    ASSIGNED,
    COMPLEX,
    LIST_RETURNED,
    PRINTS,
    RANDOM,
    SLICED,
    TAGGED,
    TRANSPOSED,
    TWICE,
    WITH_NONE,
)
from tools.faulty.forms import printing
from tools.faulty.ops import foreach_writes_each_tensor_once

CPU = torch.device("cpu")
Function = Callable[..., Any]


def detached(fn: Function) -> Function:
    """Knows nothing of gradients."""
    return planted.on_tensors(torch.detach)(fn)


def copied(fn: Function) -> Function:
    """Returns copies."""
    return planted.on_tensors(torch.clone)(fn)


def refusing(condition: Callable[[torch.Tensor], bool]) -> Callable[[Function], Function]:
    """Raises where a tensor among the arguments or results is such a one."""

    def compile_function(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            result = fn(*args)
            for leaf in pytree.tree_leaves((args, result)):
                if isinstance(leaf, torch.Tensor) and condition(leaf):
                    raise NotImplementedError("such a tensor")
            return result

        return compiled

    return compile_function


def refuses_containers(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        if not all(isinstance(arg, torch.Tensor) for arg in args):
            raise TypeError("tensors only")
        return fn(*args)

    return compiled


def draws_again(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        torch.rand(1)
        return fn(*args)

    return compiled


EMPTY = program(op("v0", "torch.neg", X), size=(0,))
HALVES = program(op("v0", "torch.mul", X, 2), dtype="bfloat16")
WIDE = program(op("v0", "torch.mul", X, 2), dtype="float64")
HOOKED = program(
    op("v0", "torch.mul", X, 2), requires_grad=True, steps=(Hook(HookKind.WATCH, Site.INPUT, 0), Backward((0,)))
)
PROBED = program(op("v0", "Tensor.view", X, TupleExpr((Literal(2), Literal(2)))), steps=(OUTPUT, INPUT))
SAME_VALUES = program(op(None, "Tensor.mul_", X, 1), op("v0", "torch.neg", X))
LEAF_WRITTEN = program(op(None, "Tensor.mul_", X, 2), op("v0", "torch.neg", X), requires_grad=True)
LISTED = program(op(None, "torch._foreach_add_", ListExpr((X, X)), 1), op("v0", "torch.neg", X))
WRAPPERS_LISTED = program(
    op("v0", "wrapped.tagged", X), op(None, "torch._foreach_add_", ListExpr((Ref("v0"), Ref("v0"))), 1)
)
IMPROBABLE = program(op("v0", "torch.bernoulli", X))
CAST = program(op("v0", "Tensor.double", X), op("v1", "Tensor.float", Ref("v0")), outputs=Ref("v1"))


@dataclass(frozen=True)
class Broken:
    """A fault against a promise, the program that shows it, and what becomes of the program without the promise."""

    promise: Promise
    fault: Callable[[Function], Function]
    program: Program
    outcome: Outcome = Outcome.LEFT_OUT


BROKEN = {
    "cuts the history": Broken(Promise.GRADIENTS, detached, TRAINED, Outcome.AGREES),
    "calls no hook": Broken(Promise.GRADIENTS, detached, HOOKED, Outcome.AGREES),
    "writes a leaf that eager does not": Broken(Promise.GRADIENTS, planted.swallows, LEAF_WRITTEN),
    "loses a mutation": Broken(Promise.MUTATION, planted.on_copies, MUTATES),
    "refuses a write of what is there": Broken(Promise.MUTATION, planted.raises(TypeError("no")), SAME_VALUES),
    "copies a view": Broken(Promise.ALIASING, copied, VIEW, Outcome.AGREES),
    "copies what is probed": Broken(Promise.ALIASING, copied, PROBED, Outcome.AGREES),
    "copies a slice": Broken(Promise.ALIASING, copied, SLICED, Outcome.AGREES),
    "returns two objects for one": Broken(
        Promise.ALIASING, planted.on_result(lambda r: (r[0], r[1].clone())), TWICE, Outcome.AGREES
    ),
    "loses the strides": Broken(
        Promise.STRIDES, planted.on_tensors(lambda t: t.contiguous()), TRANSPOSED, Outcome.AGREES
    ),
    "no bfloat16": Broken(Promise.HALF, refusing(lambda t: t.dtype == torch.bfloat16), HALVES),
    "rounds float64": Broken(Promise.FLOAT64, planted.on_tensors(lambda t: t.float()), WIDE),
    "no float64 inside": Broken(Promise.FLOAT64, planted.raises(TypeError("no float64")), CAST),
    "no complex": Broken(Promise.COMPLEX, refusing(torch.is_complex), COMPLEX),
    "draws other numbers": Broken(Promise.RANDOM, draws_again, RANDOM),
    "no empty tensors": Broken(Promise.EMPTY, refusing(lambda t: not t.numel()), EMPTY),
    "no wrappers": Broken(Promise.SUBCLASSES, planted.on_tensors(lambda t: t.elem), TAGGED),
    "drops a None": Broken(Promise.CONSTANTS, planted.on_result(lambda r: r[:1]), WITH_NONE),
    "returns a list for a tuple": Broken(Promise.CONTAINERS, planted.on_result(list), TWICE, Outcome.AGREES),
    "no lists": Broken(Promise.PYTREES, refuses_containers, LIST_RETURNED),
    "no objects": Broken(Promise.OBJECTS, planted.raises(TypeError("no")), ASSIGNED),
    "raises another type": Broken(Promise.ERRORS, planted.mistypes, REFUSED),
    "raises another type for a probability": Broken(Promise.VALUE_ERRORS, planted.mistypes, IMPROBABLE),
    "prints nothing": Broken(Promise.EFFECTS, printing(lambda text: ""), PRINTS, Outcome.AGREES),
    "writes a list at once": Broken(Promise.ORDER_IN_LISTS, foreach_writes_each_tensor_once, LISTED),
    "writes a list of wrappers at once": Broken(
        Promise.ORDER_IN_LISTS, planted.raises(TypeError("no")), WRAPPERS_LISTED
    ),
}


def judged(program: Program, fault: Callable[[Function], Function], *without: Promise) -> Verdict:
    return check(program, Backend("planted", fault, EVERY_PROMISE - set(without)), CPU)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_what_is_promised_is_found_and_what_is_not_is_silent(broken: Broken) -> None:
    assert judged(broken.program, broken.fault).outcome is Outcome.DIFFERS
    verdict = judged(broken.program, broken.fault, broken.promise)
    assert (verdict.outcome, verdict.hard) == (broken.outcome, ())
    if broken.outcome is Outcome.LEFT_OUT:
        assert dict(verdict.left_out).get(broken.promise) == 1
    else:
        assert verdict.soft or dict(verdict.left_out).get(broken.promise), "counted one way or the other"


def test_every_promise_is_broken_by_some_fault() -> None:
    elsewhere = {Promise.GUARDS, Promise.DOUBLE_BACKWARD, Promise.MODULES}  # test_oracles_fire, test_plans_fire, check
    assert {broken.promise for broken in BROKEN.values()} == set(Promise) - elsewhere


@pytest.mark.parametrize("promise", sorted(EVERY_PROMISE, key=lambda p: p.value), ids=lambda p: p.value)
def test_a_missing_promise_hides_no_wrong_value(promise: Promise) -> None:
    verdict = judged(DOUBLE, planted.on_tensors(lambda t: t + 1), promise)
    assert verdict.outcome is Outcome.DIFFERS, "a plain product of one float32 argument needs none of them"
    assert verdict.left_out == ()


def test_a_write_to_an_intermediate_needs_no_mutation_of_inputs() -> None:
    local = program(op("v0", "torch.mul", X, 2), op(None, "Tensor.add_", Ref("v0"), 1))
    assert judged(local, planted.on_copies, Promise.MUTATION).outcome is Outcome.AGREES


def test_gradients_that_are_not_promised_are_not_asked_for_but_the_forward_is_run() -> None:
    verdict = judged(TRAINED, detached, Promise.GRADIENTS)
    assert dict(verdict.left_out) == {Promise.GRADIENTS: 1}
    assert {d.oracle for d in verdict.soft} >= {OracleKind.REQUIRES_GRAD, OracleKind.GRAD_FN}
    wrong = planted.on_tensors(lambda t: t.detach() + 1)
    (difference, *_) = judged(TRAINED, wrong, Promise.GRADIENTS).hard
    assert difference.oracle is OracleKind.VALUES


@pytest.mark.parametrize("fault", [planted.identity, copied, planted.on_result(lambda r: (r[0], r[0]))])
def test_backwards_begin_at_eagers_outputs_whichever_are_the_same_object(fault: Callable[[Function], Function]) -> None:
    """``(v, v)`` is one root, and ``(v, a view of it)`` two, also where a backend returns two objects or one."""
    once = program(op("v0", "torch.mul", X, 2), outputs=pair("v0", "v0"), requires_grad=True, backward=True)
    twice = program(
        op("v0", "torch.mul", X, 2),
        op("v1", "Tensor.view", Ref("v0"), TupleExpr((Literal(4),))),
        outputs=pair("v0", "v1"),
        requires_grad=True,
        backward=True,
    )
    for made in (once, twice):
        verdict = judged(made, fault, Promise.ALIASING)
        assert (verdict.outcome, verdict.hard) == (Outcome.AGREES, ())
    wrong = planted.on_result(lambda r: (r[0], r[1] * 1.5))
    assert judged(twice, wrong, Promise.ALIASING).outcome is Outcome.DIFFERS


def test_a_program_that_differentiates_inside_needs_gradients() -> None:
    inside = program(
        op("v0", "torch.mul", X, 2),
        op("v1", "Tensor.sum", Ref("v0")),
        op("v2", "torch.autograd.grad", Ref("v1"), X),
        requires_grad=True,
    )
    verdict = judged(inside, detached, Promise.GRADIENTS)
    assert (verdict.outcome, dict(verdict.left_out)) == (Outcome.LEFT_OUT, {Promise.GRADIENTS: 1})


def test_an_ignored_kind_is_soft_and_an_unknown_one_is_named() -> None:
    strided = Backend("planted", planted.on_tensors(lambda t: t.contiguous()))
    ignoring = dataclasses.replace(strided, ignored=frozenset({"stride"}))
    assert check(TRANSPOSED, strided, CPU).outcome is Outcome.DIFFERS
    verdict = check(TRANSPOSED, ignoring, CPU)
    assert verdict.outcome is Outcome.AGREES
    assert [d.oracle for d in verdict.soft if d.oracle is OracleKind.STRIDE] == [OracleKind.STRIDE]
    with pytest.raises(ExpectationsError, match=r"unknown kind of difference 'strides': choose of exception, .*stride"):
        check(TRANSPOSED, dataclasses.replace(strided, ignored=frozenset({"strides"})), CPU)


def test_an_ignored_exception_ends_what_is_compared_of_a_program() -> None:
    raising = Backend("planted", planted.raises(ValueError("no")), ignored=frozenset({"exception"}))
    two = dataclasses.replace(TRAINED, calls=TRAINED.calls * 2)
    assert check(two, raising, CPU).outcome is Outcome.AGREES


def test_values_within_the_relative_tolerance_are_equal() -> None:
    near = Backend("near", planted.on_tensors(lambda t: t * (1 + 1e-3)))
    assert check(DOUBLE, near, CPU).outcome is Outcome.DIFFERS
    assert check(DOUBLE, dataclasses.replace(near, rtol=1e-2), CPU).outcome is Outcome.AGREES
    assert check(DOUBLE, dataclasses.replace(near, rtol=1e-4), CPU).outcome is Outcome.DIFFERS
    integers = program(op("v0", "torch.mul", X, 2), dtype="int64")
    off = Backend("off by one", planted.on_tensors(lambda t: t + 1), rtol=1.0)
    assert check(integers, off, CPU).outcome is Outcome.DIFFERS, "integers are exact"


def test_an_exception_of_a_class_that_refuses_is_a_refusal_with_its_message() -> None:
    raising = Backend("planted", planted.raises(NotImplementedError("no 3-D convolution. Try 2-D.")))
    assert check(DOUBLE, raising, CPU).outcome is Outcome.DIFFERS
    for name in ("NotImplementedError", "RuntimeError", "builtins.NotImplementedError"):
        verdict = check(DOUBLE, dataclasses.replace(raising, refuses=(name,)), CPU)
        assert (verdict.outcome, len(verdict.refusals)) == (Outcome.REFUSED, 1)
        assert verdict.refusals[0].startswith("NotImplementedError: no N-D convolution")
    assert check(DOUBLE, dataclasses.replace(raising, refuses=("ValueError",)), CPU).outcome is Outcome.DIFFERS
    wrapped = Backend("planted", raises_from, refuses=("NotImplementedError",))
    assert check(DOUBLE, wrapped, CPU).outcome is Outcome.REFUSED
    both = Backend("identity", planted.identity, refuses=("RuntimeError",))
    assert check(REFUSED, both, CPU).outcome is Outcome.AGREES, "eager raises the same"


def raises_from(fn: Function) -> Function:
    def compiled(*args: Any) -> Any:
        try:
            raise NotImplementedError("no 3-D convolution")
        except NotImplementedError as error:
            raise ValueError("cannot compile") from error

    return compiled


def test_expectations_are_read_back_from_a_header_and_added_to_the_backend() -> None:
    told = Expectations((Promise.GRADIENTS, Promise.MUTATION), ("stride",), 1e-3, ("NotImplementedError",))
    source = emit(DOUBLE, told.header())
    assert Expectations.of_header(parse(source).header) == told
    assert Expectations().header() == {}
    backend = resolve("tests.meta.test_promises:LESS", told)
    assert backend.promises == EVERY_PROMISE - {Promise.GRADIENTS, Promise.MUTATION, Promise.STRIDES, Promise.ALIASING}
    assert (backend.ignored, backend.rtol, backend.refuses) == ({"stride"}, 1e-3, ("NotImplementedError",))
    for wrong in ({"without": ["gradient"]}, {"wihtout": []}, {"rtol": "x"}, {"ignored": 3}):
        with pytest.raises(ExpectationsError):
            Expectations.of_header({"expectations": wrong})


def test_promises_are_named_as_people_write_them() -> None:
    assert promises_named(("Input-Mutation", "input_mutation", "gradients")) == (Promise.MUTATION, Promise.GRADIENTS)
    with pytest.raises(
        ExpectationsError, match="unknown promise 'guard': choose of guards, gradients, double-backward"
    ):
        promises_named(("guard",))


def wrong_copies(fn: Function) -> Function:
    """Returns copies with strides of their own, and values that are a little off."""
    return planted.on_tensors(lambda t: (t * 1.0001).contiguous())(fn)


LESS = Backend("less", wrong_copies, EVERY_PROMISE - {Promise.ALIASING, Promise.STRIDES})


def script(path: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.returncode, done.stdout + done.stderr


def test_the_script_of_a_backend_object_shows_its_difference_and_nothing_that_is_not_promised(tmp_path: Path) -> None:
    name = "tests.meta.test_promises:LESS"
    both = program(op("v0", "Tensor.t", X), outputs=Ref("v0"), size=(2, 3))
    backend = resolve(name)
    (difference,) = check(both, backend, CPU).hard
    assert difference.oracle is OracleKind.VALUES
    header = {"backend": name, **Expectations.of(backend).header()}
    path = tmp_path / "finding.py"
    path.write_text(emit(both, header))
    status, text = script(path)
    assert status == 1, text
    shown = [line for line in text.splitlines() if line.startswith("DIFFERENT")]
    assert shown == [f"DIFFERENT values of {difference.place}"]
    header |= dataclasses.replace(Expectations.of(backend), rtol=1e-3).header()
    path.write_text(emit(both, header))
    assert script(path)[0] == 0, "within the tolerance"
    assert canonical(path) == path.read_text()
    assert check(both, resolved(parse_file(path)), CPU).outcome is Outcome.AGREES
    assert resolved(parse_file(path), "eager").rtol == 0.0, "said of its own backend"
    assert resolve(name).name == name, "workers find it by the name that findings have"


def test_scripts_of_containers_tell_what_they_hold(tmp_path: Path) -> None:
    told = Expectations((Promise.CONTAINERS,))
    path = tmp_path / "finding.py"
    path.write_text(
        emit(program(op("v0", "torch.mul", X, 2), outputs=pair("v0", "v0")), {"backend": LISTS, **told.header()})
    )
    assert script(path)[0] == 0
    path.write_text(emit(TWICE, {"backend": LISTS}))
    assert script(path)[0] == 1


LISTS = "tests.meta.test_promises:lists"


def lists(fn: Function) -> Function:
    return planted.on_result(list)(fn)


def test_double_backward_is_left_out_with_gradients() -> None:
    twice = program(
        op("v0", "torch.mul", X, X), requires_grad=True, steps=(Backward((0,)), Backward((0,), of=Of.GRADIENTS))
    )
    assert dict(judged(twice, detached, Promise.GRADIENTS).left_out) == {Promise.GRADIENTS: 2}


def test_what_a_run_does_not_expect_travels_to_workers_scripts_and_back(tmp_path: Path) -> None:
    name = "tests.meta.test_promises:copies_a_little_wrong"
    told = Expectations((Promise.ALIASING,), ("stride",), 1e-6)
    folder = tmp_path / "run"
    options = ["--without", "aliasing", "--ignore", "stride", "--rtol", "1e-6"]
    places = ["--strategy", "tests.meta.small:drawn", "--out", str(folder), "--jobs", "1", "--minimize-time", "30"]
    done = CliRunner().invoke(main, ["fuzz", "--backend", name, "--examples", "5", *options, *places])
    assert done.exit_code == 1, done.output
    events = list(load_events(folder / "run.jsonl"))
    (started,) = (event for event in events if isinstance(event, RunStarted))
    assert started.expectations == told
    (run,) = (event for event in events if isinstance(event, ScriptRun))
    assert run.shown is Shown.YES
    (signed, *_) = (event for event in events if isinstance(event, FindingSigned))
    for path in (run.path, signed.minimized):
        assert Expectations.of_header(parse_file(Path(path)).header) == told
    smaller = tmp_path / "smaller.py"
    assert CliRunner().invoke(main, ["minimize", run.path, "--out", str(smaller), "--jobs", "1"]).exit_code == 0
    assert Expectations.of_header(parse_file(smaller).header) == told
    assert "expected to" not in CliRunner().invoke(main, ["replay", run.path, "--jobs", "1"]).output
    again = CliRunner().invoke(main, ["fuzz", "--resume", str(folder), "--without", "gradients"])
    assert (again.exit_code, "without --without gradients" in again.stderr) == (2, True)


def copies_a_little_wrong(fn: Function) -> Function:
    """Copies, and values that are wrong from three elements on."""
    return planted.on_tensors(lambda t: t.clone() * (1.001 if t.numel() > 2 else 1))(fn)


def test_a_night_expects_what_its_configuration_says(tmp_path: Path) -> None:
    config = tmp_path / "nightly.toml"
    entry = "[[backend]]\nname = 'tests.meta.test_promises:copies_a_little_wrong'\nexamples = 5\nseed = 1\n"
    entry += "strategy = 'tests.meta.small:drawn'\nminimize_time = '1s'\n"
    config.write_text(entry + "rtol = 0.01\nwithout = ['aliasing']\n")
    done = CliRunner().invoke(main, ["nightly", "--config", str(config)])
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.rglob("run.jsonl")
    (started,) = (event for event in load_events(path) if isinstance(event, RunStarted))
    assert started.expectations.rtol == 0.01
