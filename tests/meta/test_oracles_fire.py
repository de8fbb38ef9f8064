"""Every oracle fires on a planted difference, at the right place, and on no other."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from aotcheck.backends import EVERY_PROMISE, Backend, Promise
from aotcheck.oracle import OracleKind, Outcome, Pair, Severity, check, compare
from aotcheck.oracle.execute import observe
from aotcheck.oracle.raised import Raised
from aotcheck.program import (
    Backward,
    Call,
    DictExpr,
    Hook,
    HookKind,
    Inputs,
    ListExpr,
    Literal,
    Program,
    Ref,
    Site,
    Storage,
    Strided,
    TupleExpr,
)
from tests.meta import planted
from tests.meta.small import DOUBLE, INPUT, MUTATES, OUTPUT, REFUSED, TRAINED, VIEW, X, op, pair, program
from tools.faulty.forms import printing

K = OracleKind


@dataclass(frozen=True)
class Plant:
    """A fault, the program that it is planted in, and the coarse key that it must lead to."""

    name: str
    fault: Callable[[Callable[..., Any]], Callable[..., Any]]
    program: Program
    kind: OracleKind
    place: str
    severity: Severity = Severity.HARD
    error: str | None = None


tensors, result = planted.on_tensors, planted.on_result
SLICED = program(op("v0", "torch.mul", X, 2), op("v1", "Tensor.narrow", Ref("v0"), 0, 1, 2), outputs=Ref("v1"))
TRANSPOSED = program(op("v0", "torch.mul", X, 2), op("v1", "Tensor.t", Ref("v0")), outputs=Ref("v1"), size=(2, 3))
WITH_NONE = program(op("v0", "torch.mul", X, 2), outputs=TupleExpr((Ref("v0"), Literal(None), Literal(3))))
TWICE = program(op("v0", "torch.mul", X, 2), outputs=pair("v0", "v0"))
VIEWS = program(op("v0", "torch.mul", X, 2), op("v1", "Tensor.narrow", Ref("v0"), 0, 0, 2), outputs=pair("v0", "v1"))
RETURNED = program(op(None, "Tensor.add_", X, 1), outputs=X)
COMPLEX = program(op("v0", "torch.mul", X, 2), dtype="complex64")
ROW = program(op("v0", "torch.mul", X, 2), size=(1, 3))
FREED = program(op("v0", "torch.mul", X, 2), op(None, "Tensor.resize_", X, TupleExpr((Literal(8),))))
RANDOM = program(op("v0", "torch.rand_like", X))
PRINTS = program(*(op(None, "Control.prints", X, Literal(text), 2) for text in "ab"), op("v0", "torch.neg", X), calls=2)
UNUSED = program(op("v0", "torch.mul", X, 0), requires_grad=True, backward=True)
ZEROS = program(op("v0", "torch.mul", X, 0))
SPOILT = program(
    op("v0", "torch.exp", X),
    op("v1", "torch.mul", Ref("v0"), Ref("v0")),
    op(None, "Tensor.add_", Ref("v0"), 1),
    outputs=Ref("v1"),
    requires_grad=True,
    backward=True,
)


def unspoilt(fn: Any) -> Any:
    return lambda x: torch.exp(x) * torch.exp(x)


def second_call_wrong(fn: Any) -> Any:
    calls: list[int] = []

    def compiled(*args: Any) -> Any:
        calls.append(1)
        return fn(*args) + (1 if len(calls) > 1 else 0)

    return compiled


def prints_once(fn: Any) -> Any:
    texts = iter([str])
    return printing(lambda text: next(texts, lambda _: "")(text))(fn)


def returns_a_leaf(fn: Any) -> Any:
    return lambda x: fn(x.detach()).requires_grad_()


LISTED = Call(
    Inputs(
        (Storage("s0", "float32", (1, 2)),),
        (Strided("a0", "s0", "float32", (2,), (1,)),),
        (),
        (ListExpr((Ref("a0"),)), Ref("a0")),
    )
)
NEGATED = op("v0", "torch.neg", Ref("x1"))
STORED = Program(("x0", "x1"), (NEGATED, op(None, "setitem", X, 0, Ref("v0"))), Literal(None), (LISTED,))
LIST_RETURNED = Program(("x0", "x1"), (NEGATED,), X, (LISTED,))
OBJECT = Call(
    replace(LISTED.inputs, args=(DictExpr((("hidden", Ref("a0")), ("scale", Literal(2))), "State"), Ref("a0")))
)
ASSIGNED = Program(("x0", "x1"), (NEGATED, op(None, "object.hidden=", X, Ref("v0"))), Literal(None), (OBJECT,))
COUNTED = Program(("x0", "x1"), (op(None, "object.scale=", X, 3),), Literal(None), (OBJECT,))
ONE_STEP = TupleExpr((Literal(1),))
EMPTIED = program(op("v0", "torch.neg", X), op(None, "Tensor.untyped_storage().resize_", X, 0))

TAGGED = program(op("v0", "wrapped.tagged", X), op("v1", "torch.mul", Ref("v0"), 2), outputs=Ref("v1"))
WRAPPED = program(op("v0", "wrapped.two", X, X), op("v1", "Tensor.view", Ref("v0"), -1), outputs=pair("v0", "v1"))
VIEWED = program(op("v0", "wrapped.two", X, X), op("v1", "Tensor.view", Ref("v0"), -1), outputs=Ref("v1"))
PLANTS = (
    Plant("a plain tensor for a wrapper", tensors(lambda t: t.elem), TAGGED, K.TYPE, "output"),
    Plant("other metadata of a wrapper", tensors(planted.retagged), TAGGED, K.METADATA, "output"),
    Plant("another value in a wrapper", tensors(planted.elem_written), TAGGED, K.VALUES, "output"),
    Plant("a wrapper that holds a copy", tensors(planted.unshared), WRAPPED, K.IDENTITY, "output-input vs none"),
    Plant("a wrapper that shares no memory", tensors(planted.unshared), VIEWED, K.ALIASING, "output-input vs none"),
    Plant(
        "raises where eager does not",
        planted.raises(ValueError("bad 12")),
        DOUBLE,
        K.EXCEPTION,
        "forward",
        error="ValueError: bad N",
    ),
    Plant("does not raise where eager does", planted.swallows, REFUSED, K.EXCEPTION, "forward"),
    Plant("raises another type", planted.mistypes, REFUSED, K.EXCEPTION, "forward"),
    Plant(
        "raises in the backward",
        planted.on_gradient(planted.fails),
        TRAINED,
        K.EXCEPTION,
        "backward",
        error="RuntimeError: planted",
    ),
    Plant("does not raise in the backward", unspoilt, SPOILT, K.EXCEPTION, "backward"),
    Plant("fails to compile", lambda fn: planted.fails(torch.ones(1)), DOUBLE, K.EXCEPTION, "forward"),
    Plant("leaks grad mode", planted.leaks_grad_mode, DOUBLE, K.GLOBAL_STATE, "process", error="grad_mode"),
    Plant("leaks a dispatch mode", planted.leaks_mode, DOUBLE, K.GLOBAL_STATE, "process", error="mode_depths"),
    Plant("leaks a dispatch key", planted.leaks_dispatch_key, DOUBLE, K.GLOBAL_STATE, "process", error="dispatch_keys"),
    Plant("leaks hooks", planted.leaks_hooks, DOUBLE, K.GLOBAL_STATE, "process", error="saved_tensor_hooks"),
    Plant("poisons the process", planted.poisons, DOUBLE, K.POISONING, "process"),
    Plant("returns a list for a tuple", result(lambda r: list(r)), TWICE, K.STRUCTURE, "output"),
    Plant("loses a write to a list", planted.on_new_containers, STORED, K.STRUCTURE, "output"),
    Plant("loses an attribute", planted.on_new_objects, ASSIGNED, K.STRUCTURE, "output"),
    Plant("loses a number of an object", planted.on_new_objects, COUNTED, K.STRUCTURE, "output"),
    Plant("returns a copy of a list", planted.on_new_containers, LIST_RETURNED, K.STRUCTURE, "output"),
    Plant("does not free", lambda fn: lambda x: x.neg(), EMPTIED, K.STORAGE_SIZE, "input"),
    Plant("drops a None", result(lambda r: r[:1]), WITH_NONE, K.STRUCTURE, "output"),
    Plant("changes a constant", result(lambda r: (r[0], None, 4)), WITH_NONE, K.CONSTANT, "output"),
    Plant("returns another type", tensors(lambda t: t.as_subclass(planted.Subclass)), DOUBLE, K.TYPE, "output"),
    Plant("promotes", tensors(lambda t: t.double()), DOUBLE, K.DTYPE, "output"),
    Plant("moves to another device", tensors(lambda t: t.to("meta")), DOUBLE, K.DEVICE, "output"),
    Plant("squeezes", tensors(lambda t: t.squeeze(0)), ROW, K.SHAPE, "output"),
    Plant(
        "gives zero for None",
        planted.after(lambda x: setattr(x, "grad", torch.zeros_like(x))),
        program(op("v0", "Tensor.detach", X), requires_grad=True),
        K.GRADIENT_NONE,
        "gradient",
    ),
    Plant(
        "gives None for zero",
        tensors(lambda t: torch.zeros(4, requires_grad=True) * 1.0),
        UNUSED,
        K.GRADIENT_NONE,
        "gradient after backward",
    ),
    Plant(
        "returns two objects for one",
        result(lambda r: (r[0], r[1].view_as(r[1]))),
        TWICE,
        K.IDENTITY,
        "output-output vs none",
    ),
    Plant("returns one object for two", result(lambda r: (r[0], r[0])), VIEWS, K.SHAPE, "output"),
    Plant("returns a copy of the input", result(lambda r: r.view_as(r)), RETURNED, K.IDENTITY, "output-input vs none"),
    Plant("returns a copy of a view of the input", tensors(torch.clone), VIEW, K.ALIASING, "output-input vs none"),
    Plant(
        "returns copies of views of an intermediate", tensors(torch.clone), VIEWS, K.ALIASING, "output-output vs none"
    ),
    Plant(
        "returns a view where eager copies",
        lambda fn: lambda x: x,
        program(op("v0", "torch.mul", X, 1)),
        K.IDENTITY,
        "none vs output-input",
    ),
    Plant("loses the storage offset", tensors(torch.clone), SLICED, K.STORAGE_OFFSET, "output"),
    Plant(
        "grows the storage too far",
        planted.after(lambda x: x.untyped_storage().resize_(64)),
        FREED,
        K.STORAGE_SIZE,
        "input",
    ),
    Plant("loses the strides", tensors(lambda t: t.contiguous()), TRANSPOSED, K.STRIDE, "output"),
    Plant("requires grad", tensors(lambda t: t.requires_grad_()), DOUBLE, K.REQUIRES_GRAD, "output"),
    Plant("cuts the gradient", tensors(torch.detach), TRAINED, K.REQUIRES_GRAD, "output"),
    Plant("returns a leaf", returns_a_leaf, TRAINED, K.LEAFNESS, "output"),
    Plant("returns something without a grad_fn", returns_a_leaf, TRAINED, K.GRAD_FN, "output"),
    Plant("returns a lazy conjugate", tensors(lambda t: t.conj().resolve_conj().conj()), COMPLEX, K.CONJ, "output"),
    Plant("returns a lazy negative", tensors(planted.with_neg_bit), DOUBLE, K.NEG, "output"),
    Plant("returns an inference tensor", tensors(planted.inference), DOUBLE, K.INFERENCE, "output"),
    Plant("computes something else", tensors(lambda t: t + 1), DOUBLE, K.VALUES, "output"),
    Plant("gives NaN", tensors(lambda t: t.clone().fill_(float("nan"))), DOUBLE, K.VALUES, "output"),
    Plant("drops the mutation of an input", planted.on_copies, MUTATES, K.VALUES, "input"),
    Plant("mutates an input", planted.after(lambda x: x.add_(1)), DOUBLE, K.VALUES, "input"),
    Plant("halves the gradient", planted.on_gradient(lambda g: g * 0.5), TRAINED, K.VALUES, "gradient after backward"),
    Plant("prints twice", printing(lambda text: text * 2), PRINTS, K.EFFECTS, "process"),
    Plant(
        "prints in another order",
        printing(lambda text: "".join(reversed(text.splitlines(True)))),
        PRINTS,
        K.EFFECTS,
        "process",
    ),
    Plant("prints when it compiles", prints_once, PRINTS, K.EFFECTS, "process, later call"),
    Plant(
        "is wrong in the second call",
        second_call_wrong,
        program(op("v0", "torch.mul", X, 2), calls=2),
        K.VALUES,
        "output, later call",
    ),
    Plant("draws another random number", planted.after(lambda x: torch.rand(1)), RANDOM, K.RNG, "process"),
    Plant(
        "has other strides of size one",
        tensors(lambda t: t.as_strided((1, 3), (7, 1))),
        ROW,
        K.SIZE_ONE_STRIDE,
        "output",
        Severity.SOFT,
    ),
    Plant(
        "has gradients with other strides",
        planted.turns_the_gradient,
        program(op("v0", "torch.mul", X, 2), size=(2, 3), requires_grad=True, backward=True),
        K.GRADIENT_STRIDE,
        "gradient after backward",
        Severity.SOFT,
    ),
    Plant("returns negative zeros", tensors(lambda t: -t), ZEROS, K.SIGNED_ZERO, "output", Severity.SOFT),
    Plant("bumps a version", planted.after(lambda x: x.add_(0)), DOUBLE, K.VERSION, "input", Severity.SOFT),
    Plant("returns a view of nothing", tensors(lambda t: t.view_as(t)), DOUBLE, K.IS_VIEW, "output", Severity.SOFT),
)


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    yield
    while planted.LEAKED:
        planted.LEAKED.pop().__exit__(None, None, None)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "-"))
def test_a_planted_fault_is_seen(plant: Plant) -> None:
    verdict = check(plant.program, Backend("planted", plant.fault), torch.device("cpu"))
    if plant.severity is Severity.HARD:
        assert verdict.outcome is Outcome.DIFFERS
        seen = verdict.hard
    else:
        assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]
        seen = verdict.soft
    keys = {(d.oracle, d.place.klass) for d in seen}
    assert (plant.kind, plant.place) in keys, [d.text for d in seen]
    if plant.error is not None:
        assert plant.error in {d.error for d in seen if d.oracle is plant.kind}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "-"))
def test_the_identity_is_silent_on_what_faults_are_planted_in(plant: Plant) -> None:
    verdict = check(plant.program, Backend("identity", planted.identity), torch.device("cpu"))
    assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]
    assert not verdict.soft


def test_a_write_that_eager_refuses_and_the_compiled_path_accepts_is_soft() -> None:
    probed = program(op("v0", "torch.mul", X, 2), steps=(OUTPUT,))
    accepted = list(observe(probed, planted.identity, torch.device("cpu")))[-1]
    refused = dataclasses.replace(accepted, raised=Raised("RuntimeError", "more than one element"))
    (difference,) = compare(Pair(refused, accepted))
    assert (difference.oracle, difference.severity) == (K.PERMISSIVE, Severity.SOFT)
    (difference,) = compare(Pair(accepted, refused))
    assert (difference.oracle, difference.severity) == (K.EXCEPTION, Severity.HARD)


@pytest.mark.parametrize("inputs, severity", [(None, Severity.HARD), ((0,), Severity.SOFT)])
def test_a_second_backward_that_is_accepted_is_soft_after_one_for_some_inputs(
    inputs: tuple[int, ...] | None, severity: Severity
) -> None:
    first, second = Backward(roots=(0,), inputs=inputs), Backward(roots=(0,))
    square = program(op("v0", "torch.mul", X, X), requires_grad=True, steps=(first, second))
    refused = list(observe(square, planted.identity, torch.device("cpu")))[-1]
    assert refused.raised is not None and "second time" in refused.raised.message
    (difference,) = compare(Pair(refused, dataclasses.replace(refused, raised=None)))
    assert (difference.oracle, difference.severity) == (K.EXCEPTION, severity)  # from here on other steps are made


def test_a_probe_shows_an_alias_that_storages_do_not() -> None:
    """A write through the input is seen by an output that copied its value only later."""
    aliased = program(op("v0", "torch.mul", X, 2), steps=(INPUT,))
    first = list(observe(aliased, planted.identity, torch.device("cpu")))
    other = program(op("v0", "torch.mul", X, 2), steps=(dataclasses.replace(INPUT, seed=4),))
    second = list(observe(other, planted.identity, torch.device("cpu")))
    keys = {str(d.key) for d in compare(Pair(first[-1], second[-1]))}
    assert keys == {"(values, input after probe)"}


def test_every_oracle_has_a_plant() -> None:
    made_by_the_supervisor = {K.CRASH, K.TIMEOUT, K.MEMORY}
    shown_elsewhere = {K.PERMISSIVE, K.HOOK}  # above, in test_plans_fire
    assert {plant.kind for plant in PLANTS} == set(K) - made_by_the_supervisor - shown_elsewhere


def test_a_refusal_is_never_success() -> None:
    class UnsupportedError(RuntimeError):
        reason = "planted"

    UnsupportedError.__module__ = "aotcheck.autograd.errors"
    verdict = check(DOUBLE, Backend("refuses", planted.raises(UnsupportedError("no"))), torch.device("cpu"))
    assert (verdict.outcome, verdict.refusals) == (Outcome.REFUSED, ("planted",))


def test_a_refusal_that_ran_eagerly_is_counted() -> None:
    counts = {"before": 3}

    def compile_function(fn: Any) -> Any:
        counts["planted"] = 1
        return fn

    backend = Backend("falls back", compile_function, refusals=lambda: dict(counts))
    verdict = check(DOUBLE, backend, torch.device("cpu"))
    assert (verdict.outcome, verdict.refusals) == (Outcome.REFUSED, ("planted",))


def test_calls_that_a_backend_makes_no_promise_for_are_left_out_and_counted() -> None:
    other = program(op("v0", "torch.mul", X, 2), size=(3,))
    two = dataclasses.replace(DOUBLE, calls=(*DOUBLE.calls, *DOUBLE.calls, *other.calls))
    backend = Backend("no guards", second_shape_wrong, promises=EVERY_PROMISE - {Promise.GUARDS})
    verdict = check(two, backend, torch.device("cpu"))
    assert verdict.outcome is Outcome.AGREES
    assert verdict.left_out == ((Promise.GUARDS, 1),)
    assert check(two, Backend("guards", second_shape_wrong), torch.device("cpu")).outcome is Outcome.DIFFERS


def second_shape_wrong(fn: Any) -> Any:
    return lambda x: fn(x) if len(x) == 4 else fn(x) + 1


def test_eager_that_differs_from_itself_is_unstable_not_a_finding() -> None:
    calls: list[int] = []

    def twice_different(fn: Any) -> Any:
        return lambda x: fn(x) + 1

    unstable = program(op("v0", "torch.mul", X, 2))
    original = torch.mul

    def changing(*args: Any) -> Any:
        calls.append(1)
        return original(*args) + len(calls)

    torch.mul = changing
    try:
        verdict = check(unstable, Backend("planted", twice_different), torch.device("cpu"))
    finally:
        torch.mul = original
    assert verdict.outcome is Outcome.UNSTABLE
    assert not verdict.hard


def test_undefined_memory_is_not_compared_and_what_is_defined_is() -> None:
    grown = program(op(None, "Tensor.resize_", X, TupleExpr((Literal(6),))), op("v0", "torch.mul", X, 2))
    garbage = planted.on_tensors(lambda t: t.index_fill(0, torch.tensor([4, 5]), 123.0))
    assert check(grown, Backend("garbage", garbage), torch.device("cpu")).outcome is Outcome.AGREES
    wrong = planted.on_tensors(lambda t: t.index_fill(0, torch.tensor([3]), 123.0))
    assert check(grown, Backend("wrong", wrong), torch.device("cpu")).outcome is Outcome.DIFFERS


@pytest.mark.parametrize(
    "path", ["Tensor.untyped_storage().resize_", "torch.ops.inductor.resize_storage_bytes_.default"]
)
def test_what_a_storage_grows_by_is_not_compared(path: str) -> None:
    grown = program(op(None, path, X, 32), op("v0", "Tensor.as_strided", X, TupleExpr((Literal(8),)), ONE_STEP))
    cpu, changed = torch.device("cpu"), planted.on_tensors
    garbage = changed(lambda t: t.as_strided((2,), (1,), 5).fill_(77.0).as_strided((8,), (1,), 0))
    assert check(grown, Backend("garbage", garbage), cpu).outcome is Outcome.AGREES
    wrong = changed(lambda t: t.as_strided((2,), (1,), 3).fill_(77.0).as_strided((8,), (1,), 0))
    assert check(grown, Backend("wrong", wrong), cpu).outcome is Outcome.DIFFERS


@pytest.mark.parametrize(("changed", "outcome"), [(0, Outcome.DIFFERS), (1, Outcome.AGREES)])
def test_what_lies_behind_the_result_of_a_loss_is_not_compared(changed: int, outcome: Outcome) -> None:
    """There is room for all of its summands, which nobody has written."""
    loss = op("v0", "torch.nn.functional.mse_loss", X, X)
    window = op("v1", "Tensor.as_strided", Ref("v0"), TupleExpr((Literal(2),)), ONE_STEP)
    other = planted.on_tensors(lambda t: t.index_fill(0, torch.tensor([changed]), float("nan")))
    shown = program(loss, window, outputs=Ref("v1"))
    assert check(shown, Backend("other", other), torch.device("cpu")).outcome is outcome


@pytest.mark.parametrize("retained", ["in eager", "by the backend"])
def test_a_look_at_which_torch_fails_an_assertion_of_its_own_is_not_compared(retained: str) -> None:
    """At the history of a view that keeps its gradient, was reshaped in place, and whose base was then written."""
    base, view = op("a1", "Tensor.clone", Ref("a0")), op("a2", "Tensor.t", Ref("a1"))
    leaf = Strided("a0", "s0", "float32", (), (), 0, requires_grad=True)
    inputs = Inputs((Storage("s0", "float32", (1,)),), (leaf,), (base, view), (Ref("a1"), Ref("a2")))
    body = (op(None, "Tensor.t_", Ref("x1")), op(None, "Tensor.zero_", Ref("x0")))
    hooks = (Hook(HookKind.RETAIN, Site.INPUT, 1),) if retained == "in eager" else ()
    asserting = Program(("x0", "x1"), body, Literal(None), (Call(inputs, before=hooks),))

    def compile_function(fn: Any) -> Any:
        def compiled(x: torch.Tensor, v: torch.Tensor) -> None:
            if retained == "by the backend":
                v.retain_grad()
            fn(x, v)
            if retained == "in eager":
                with contextlib.suppress(RuntimeError):
                    _ = v.is_leaf  # asked again, torch answers

        return compiled

    verdict = check(asserting, Backend("looks first", compile_function), torch.device("cpu"))
    assert [d.key.oracle for d in verdict.hard] == ([] if hooks else [K.LEAFNESS.value, K.GRAD_FN.value])


@pytest.mark.parametrize("size, outcome", [(0, Outcome.AGREES), (1, Outcome.AGREES), (2, Outcome.DIFFERS)])
def test_strides_of_a_ragged_tensor_are_compared_where_they_address_something(size: int, outcome: Outcome) -> None:
    """One element is where it is whatever the stride of the ragged dimension that holds it."""

    def spread(t: torch.Tensor) -> torch.Tensor:
        values = torch.stack([t.values(), t.values()], -1)[..., 0]
        return torch.nested.nested_tensor_from_jagged(values, t.offsets())

    ragged = program(op("v1", "torch.mul", X, 2), op("v0", "wrapped.jagged", Ref("v1")), size=(size,))
    verdict = check(ragged, Backend("spreads", planted.on_tensors(spread)), torch.device("cpu"))
    assert verdict.outcome is outcome
    assert {d.key.oracle for d in verdict.hard} <= {K.STRIDE.value}


def test_a_call_that_raises_and_leaves_nothing_to_look_at_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoils(fn: Any) -> Any:
        def compiled(*args: Any) -> Any:
            monkeypatch.setattr("aotcheck.oracle.execute.snapshot", planted.fails)
            monkeypatch.setattr("aotcheck.oracle.verdict.canary", lambda device: "unfit")
            raise ValueError("planted")

        return compiled

    verdict = check(DOUBLE, Backend("spoils", spoils), torch.device("cpu"))
    assert verdict.poisoned
    keys = [str(d.key) for d in verdict.hard]
    assert keys == ["(exception, forward, ValueError: planted)", "(poisoning, process)"]


def test_a_verdict_tells_whether_eager_refused_what_the_backend_was_made_to_do() -> None:
    cpu, silent = torch.device("cpu"), Backend("silent", planted.identity)
    assert check(REFUSED, silent, cpu).eager_refuses
    assert not check(DOUBLE, silent, cpu).eager_refuses
    verdict = check(REFUSED, Backend("poisons", planted.poisons), cpu)
    assert verdict.poisoned
    assert verdict.eager_refuses


def test_inexact_programs_may_differ_by_rounding_but_no_further() -> None:
    inexact = program(op("v0", "torch.exp", X))
    rounding = planted.on_tensors(lambda t: t * (1 + 2**-22))
    assert check(inexact, Backend("rounds", rounding), torch.device("cpu")).outcome is Outcome.AGREES
    wrong = planted.on_tensors(lambda t: t * 1.001)
    assert check(inexact, Backend("wrong", wrong), torch.device("cpu")).outcome is Outcome.DIFFERS


def test_what_a_failure_leaves_behind_has_a_key_of_its_own() -> None:
    spoilt = program(op(None, "Tensor.add_", X, 1), *REFUSED.body)
    (difference,) = check(spoilt, Backend("planted", planted.on_copies), torch.device("cpu")).hard
    assert str(difference.key) == "(values, input, both raise)"
