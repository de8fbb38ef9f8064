"""Every kind of step of a call plan shows a fault that only it can show."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
import torch

from aotcheck.backends import EVERY_PROMISE, Backend, Promise
from aotcheck.oracle import OracleKind, Outcome, Phase, as_promised, check, execute
from aotcheck.oracle.execute import observe
from aotcheck.program import (
    Around,
    Backward,
    Call,
    Cotangent,
    DType,
    Fill,
    GradMode,
    Graph,
    Hook,
    HookKind,
    Literal,
    Of,
    Probe,
    Program,
    Ref,
    Site,
    Step,
    Way,
    Write,
)
from tests.meta import planted
from tests.meta.planted_plans import (
    Deeper,
    FailsLater,
    Later,
    Needless,
    Square,
    Wrong,
    differentiates_ahead,
    gives_all,
    hooks_its_output,
    ignores_inference,
    keeps_a_copy,
    keeps_memory,
    keeps_the_last,
    sees_saved_tensors,
    uses_all,
    views_under_no_grad,
    wrong_if,
)
from tests.meta.small import OUTPUT, X, op, pair, program

K = OracleKind
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


def autocasting(*_: object) -> bool:
    return torch.is_autocast_enabled("cpu")


def with_steps(base: Program, *steps: Step, calls: int = 1, **kwargs: Any) -> Program:
    call = dataclasses.replace(base.calls[0], steps=steps, **kwargs)
    return dataclasses.replace(base, calls=(*base.calls[:1] * (calls - 1), call))


LINEAR = program(op("v0", "torch.mul", X, 2), requires_grad=True)
UNTRAINED = program(op("v0", "torch.mul", X, 2))
NEGATIVE = program(op("v0", "torch.neg", X), requires_grad=True)
SQUARE = program(op("v0", "torch.mul", X, X), requires_grad=True)
SCALAR = program(op("v0", "torch.mul", X, 2), size=(), requires_grad=True)
BOTH = program(op("v0", "torch.mul", X, X), op("v1", "torch.mul", X, 3), outputs=pair("v0", "v1"), requires_grad=True)
_y = dataclasses.replace(LINEAR.calls[0].inputs.tensors[0], name="a1")  # type: ignore[union-attr]
TWO = dataclasses.replace(
    LINEAR,
    params=("x0", "x1"),
    calls=(
        Call(
            dataclasses.replace(
                LINEAR.calls[0].inputs,  # type: ignore[type-var]
                tensors=(LINEAR.calls[0].inputs.tensors[0], _y),  # type: ignore[union-attr]
                args=(Ref("a0"), Ref("a1")),
            )
        ),
    ),
)
ALL = Backward((0,))
KEPT = dataclasses.replace(ALL, graph=Graph.RETAINED)
GRAD = dataclasses.replace(ALL, way=Way.RETURN)
TRAINED = dataclasses.replace(GRAD, cotangents=(Cotangent(Fill.TRAINED),), graph=Graph.CREATED)
AGAIN = Backward((0, 1), of=Of.RESULTS)


def seeded(fill: Fill, seed: int = 1) -> Backward:
    return Backward((0,), (Cotangent(fill, seed),))


def hook(kind: HookKind, site: Site = Site.INPUT) -> Hook:
    return Hook(kind, site, 0)


@dataclass(frozen=True)
class Plan:
    """A fault, the program and plan that show it, and what they show."""

    name: str
    fault: Callable[[Callable[..., Any]], Callable[..., Any]]
    program: Program
    kind: OracleKind
    place: str


def third(fn: Any) -> Any:
    return lambda x: fn(Deeper.apply(x))


second = planted.on_tensors(Later.apply)
half = planted.on_gradient(lambda g: g * 0.5)
trained_again = dataclasses.replace(AGAIN, way=Way.RETURN, cotangents=TRAINED.cotangents, graph=Graph.CREATED)

PLANS = (
    Plan(
        "second backward raises",
        planted.on_tensors(Needless.apply),
        with_steps(NEGATIVE, ALL, ALL),
        K.EXCEPTION,
        "backward",
    ),
    Plan("second backward does not raise", keeps_a_copy, with_steps(SQUARE, ALL, ALL), K.EXCEPTION, "backward"),
    Plan(
        "a write is not noticed",
        keeps_memory,
        with_steps(SQUARE, Probe(Site.INPUT, 0, 3), ALL),
        K.EXCEPTION,
        "backward",
    ),
    Plan(
        "a write under grad is lost",
        planted.on_tensors(lambda t: t.detach().requires_grad_()),
        with_steps(LINEAR, Probe(Site.OUTPUT, 0, 3, Write.GRAD)),
        K.LEAFNESS,
        "output",
    ),
    Plan(
        "a result can have no history",
        views_under_no_grad,
        with_steps(program(op("v0", "torch.neg", X)), Probe(Site.OUTPUT, 0, 3, Write.TRAINED), ALL),
        K.EXCEPTION,
        "probe",
    ),
    Plan(
        "a write to a gradient is seen",
        wrong_if(lambda g: bool((g == 1).all())),
        with_steps(LINEAR, KEPT, Probe(Site.GRADIENT, 0, 2), seeded(Fill.PATTERN, 0)),
        K.VALUES,
        "gradient after backward",
    ),
    Plan(
        "what is saved belongs to the last call",
        keeps_the_last,
        dataclasses.replace(
            SQUARE,
            calls=(
                SQUARE.calls[0],
                dataclasses.replace(
                    program(size=(3,), requires_grad=True).calls[0], steps=(dataclasses.replace(ALL, calls_ago=1),)
                ),
            ),
        ),
        K.EXCEPTION,
        "backward, later call",
    ),
    Plan("a returned gradient is wrong", half, with_steps(LINEAR, GRAD), K.VALUES, "result after grad"),
    Plan(
        "a gradient is returned where eager has none",
        uses_all,
        with_steps(TWO, GRAD),
        K.GRADIENT_NONE,
        "result after grad",
    ),
    Plan(
        "an unused input is not refused",
        uses_all,
        with_steps(TWO, dataclasses.replace(GRAD, way=Way.RETURN_USED)),
        K.EXCEPTION,
        "grad",
    ),
    Plan(
        "an input not asked for gets a gradient",
        gives_all,
        with_steps(TWO, dataclasses.replace(ALL, inputs=(0,))),
        K.GRADIENT_NONE,
        "gradient after backward",
    ),
    Plan(
        "a gradient has no history",
        planted.on_gradient(torch.detach),
        with_steps(LINEAR, TRAINED),
        K.REQUIRES_GRAD,
        "result after grad",
    ),
    Plan(
        "an accumulated gradient has no history",
        planted.on_gradient(torch.detach),
        with_steps(LINEAR, dataclasses.replace(TRAINED, way=Way.ACCUMULATE)),
        K.REQUIRES_GRAD,
        "gradient after backward",
    ),
    Plan(
        "a second derivative is wrong",
        second,
        with_steps(LINEAR, TRAINED, AGAIN),
        K.VALUES,
        "gradient after double backward",
    ),
    Plan(
        "a second derivative is wrong in a gradient penalty",
        second,
        with_steps(SQUARE, TRAINED, dataclasses.replace(AGAIN, of=Of.PENALTY)),
        K.VALUES,
        "gradient after double backward",
    ),
    Plan(
        "a second derivative through .grad is wrong",
        planted.on_tensors(FailsLater.apply),
        with_steps(
            LINEAR, dataclasses.replace(TRAINED, way=Way.ACCUMULATE), dataclasses.replace(AGAIN, of=Of.GRADIENTS)
        ),
        K.EXCEPTION,
        "double backward",
    ),
    Plan(
        "a third derivative is wrong",
        third,
        with_steps(SQUARE, TRAINED, trained_again, AGAIN),
        K.VALUES,
        "gradient after double backward",
    ),
    Plan(
        "a hook is called while the function runs",
        differentiates_ahead,
        with_steps(LINEAR, before=(hook(HookKind.WATCH),)),
        K.HOOK,
        "hook",
    ),
    Plan(
        "a hook on an output sees something else",
        hooks_its_output,
        with_steps(LINEAR, hook(HookKind.WATCH, Site.OUTPUT), ALL),
        K.VALUES,
        "hook after backward",
    ),
    Plan(
        "a post-accumulate hook sees something else",
        half,
        with_steps(LINEAR, ALL, before=(hook(HookKind.CLEAR),)),
        K.VALUES,
        "hook after backward",
    ),
    Plan(
        "a changed gradient is used",
        wrong_if(lambda g: bool((g == 2).all())),
        with_steps(LINEAR, hook(HookKind.DOUBLE, Site.OUTPUT), ALL),
        K.VALUES,
        "gradient after backward",
    ),
    *(
        Plan(
            f"wrong for a cotangent that is {fill.value}",
            wrong_if(condition),
            base,
            K.VALUES,
            "gradient after backward",
        )
        for fill, base, condition in (
            (Fill.EXPANDED, with_steps(LINEAR, seeded(Fill.EXPANDED)), lambda g: g.stride() == (0,)),
            (Fill.STRIDED, with_steps(LINEAR, seeded(Fill.STRIDED)), lambda g: g.stride() == (2,)),
            (Fill.INFINITE, with_steps(LINEAR, seeded(Fill.INFINITE)), lambda g: bool(g.isinf().any())),
            (Fill.TRAINED, with_steps(LINEAR, seeded(Fill.TRAINED)), lambda g: g.requires_grad),
            (Fill.IMPLICIT, with_steps(SCALAR, seeded(Fill.IMPLICIT)), lambda g: True),
        )
    ),
    Plan(
        "wrong for a cotangent of zeros",
        planted.on_gradient(lambda g: g if g.any() else g + 1),
        with_steps(LINEAR, seeded(Fill.ZEROS)),
        K.VALUES,
        "gradient after backward",
    ),
    *(
        Plan(
            f"wrong in a backward under {around.value}", wrong_if(condition), base, K.VALUES, "gradient after backward"
        )
        for around, condition in (
            (Around.AUTOCAST, autocasting),
            (Around.ANOMALY, lambda g: torch.is_anomaly_enabled()),
        )
        for base in (with_steps(LINEAR, dataclasses.replace(ALL, around=(around,))),)
    ),
    Plan(
        "wrong in a call under autocast",
        lambda fn: lambda x: fn(x) + 9 * autocasting(),
        with_steps(LINEAR, around=(Around.AUTOCAST,)),
        K.VALUES,
        "output",
    ),
    *(
        Plan(
            f"wrong in a call under {around.value}", wrong, with_steps(UNTRAINED, around=(around,)), K.VALUES, "output"
        )
        for around, wrong in (
            (Around.VMAP, lambda fn: lambda x: fn(x) + 9 * (x.dim() == 0)),
            (Around.JACREV, lambda fn: lambda x: fn(x.detach()) + 0 * x),
            (
                Around.JVP,
                lambda fn: lambda x: fn(x) * (1 if torch.autograd.forward_ad.unpack_dual(x)[1] is None else 2),
            ),
        )
    ),
    Plan(
        "wrong under saved-tensor hooks",
        sees_saved_tensors,
        with_steps(SQUARE, ALL, around=(Around.SAVED_TENSORS,)),
        K.VALUES,
        "gradient after backward",
    ),
    Plan(
        "no inference tensor",
        ignores_inference,
        with_steps(LINEAR, grad_mode=GradMode.INFERENCE),
        K.REQUIRES_GRAD,
        "output",
    ),
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name.replace(" ", "-"))
def test_a_plan_shows_a_fault_that_one_backward_would_not(plan: Plan) -> None:
    backend = Backend("planted", plan.fault)
    verdict = check(plan.program, backend, CPU)
    assert verdict.outcome is Outcome.DIFFERS
    assert (plan.kind, plan.place) in {(d.oracle, d.place.klass) for d in verdict.hard}, [d.text for d in verdict.hard]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name.replace(" ", "-"))
def test_the_identity_is_silent_on_plans(plan: Plan) -> None:
    verdict = check(plan.program, Backend("identity", planted.identity), CPU)
    assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]
    assert not verdict.soft


SPOILT = dataclasses.replace(
    SQUARE, body=(*SQUARE.body, op("v1", "torch.exp", Ref("v0")), op(None, "Tensor.add_", Ref("v1"), Literal(1)))
)
RAISES = with_steps(dataclasses.replace(SPOILT, outputs=Ref("v1")), ALL, OUTPUT)


def gets_further(fn: Any) -> Any:
    """Has accumulated something by the time its backward raises."""

    def compiled(x: torch.Tensor) -> Any:
        def change(gradient: torch.Tensor) -> torch.Tensor:
            x.grad = torch.ones_like(x)
            raise RuntimeError("planted")

        return planted.Identity.apply(fn(x), change)

    return compiled


def test_a_write_that_a_backward_does_not_see_need_not_be_its_error() -> None:
    written = with_steps(SQUARE, Probe(Site.INPUT, 0, 3), ALL)
    verdict = check(written, Backend("planted", keeps_a_copy), CPU)
    assert verdict.outcome is Outcome.AGREES
    assert [str(d.oracle.value) for d in verdict.soft] == ["exception"]


def test_undefined_memory_is_not_compared_after_such_a_write_either() -> None:
    undefined = dataclasses.replace(
        SQUARE, body=(*SQUARE.body, op("v1", "torch.empty_like", X)), outputs=pair("v0", "v1")
    )
    written = with_steps(undefined, Probe(Site.INPUT, 0, 3), ALL)
    other = Backend("planted", lambda fn: lambda x: (keeps_a_copy(fn)(x), torch.full_like(x, 77.0).detach()))
    verdict = check(written, other, CPU)
    assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]


def test_a_wrong_gradient_after_such_a_write_differs_after_a_backward_for_a_part_too() -> None:
    part = dataclasses.replace(KEPT, inputs=(0,))
    written = with_steps(SQUARE, part, Probe(Site.INPUT, 0, 3), ALL)
    assert check(written, Backend("planted", keeps_memory), CPU).outcome is Outcome.DIFFERS
    assert check(written, Backend("planted", keeps_a_copy), CPU).outcome is Outcome.AGREES


def raises_once(get: Callable[[Any], torch.Tensor]) -> Callable[[Any], Any]:
    """At the second backward, as autograd does where a saved tensor was written; the third reads what ``get`` gives."""

    def again(ctx: Any) -> torch.Tensor:
        ctx.times += 1
        if ctx.times == 2:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace op"
            )
        return get(ctx)

    def keep(ctx: Any, x: torch.Tensor) -> None:
        ctx.x, ctx.copy, ctx.times = x.data, x.detach().clone(), 0

    return lambda fn: lambda x: Square.apply(x, keep, again)


def test_what_a_backward_that_both_refuse_has_accumulated_is_not_compared_with_after_such_a_write() -> None:
    written = with_steps(SQUARE, KEPT, Probe(Site.INPUT, 0, 3), KEPT, KEPT)
    verdict = check(written, Backend("planted", raises_once(lambda ctx: ctx.copy)), CPU)
    assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]
    assert [str(d.oracle.value) for d in verdict.soft] == ["exception"]
    assert check(written, Backend("planted", raises_once(lambda ctx: ctx.x)), CPU).outcome is Outcome.DIFFERS


def test_what_follows_such_a_write_is_compared_too() -> None:
    def doubles_later(fn: Any) -> Any:
        copied, calls = keeps_a_copy(fn), []

        def compiled(x: torch.Tensor) -> Any:
            calls.append(1)
            return copied(x) * len(calls)

        return compiled

    twice = with_steps(SQUARE, Probe(Site.INPUT, 0, 3), ALL)
    twice = dataclasses.replace(twice, calls=(*twice.calls, *SQUARE.calls))
    verdict = check(twice, Backend("planted", doubles_later), CPU)
    assert verdict.outcome is Outcome.DIFFERS
    assert {d.place.call for d in verdict.hard} == {1}


class Zeros(torch.autograd.Function):
    """The sign; the zeros of its backward have memory, as torch's own do not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sgn()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return torch.zeros_like(gradient)


def test_that_torch_cannot_add_to_a_zero_without_memory_is_nobodys_promise() -> None:
    """It keeps the first one as the gradient, and raises an error of its own at the second."""
    signs = with_steps(program(op("v0", "torch.sgn", X), requires_grad=True), KEPT, KEPT)
    verdict = check(signs, Backend("zeros", lambda fn: Zeros.apply), CPU)
    assert verdict.outcome is Outcome.AGREES
    assert [str(d.oracle.value) for d in verdict.soft] == ["exception"]


def test_a_hook_that_eager_calls_with_none_need_not_be_called() -> None:
    """Torch calls the hooks of all results of an op, with None where there is no gradient; the other way differs."""
    seen: list[Any] = []
    least, most = torch.aminmax(torch.arange(4.0, requires_grad=True))
    most.register_hook(seen.append)
    least.backward()
    assert seen == [None]
    ends = program(op(("v0", "v1"), "torch.aminmax", X), outputs=pair("v0", "v1"), requires_grad=True)
    apart = Backend("apart", lambda fn: lambda x: (x.amin(), x.amax()))
    for root in (0, 1):
        hooked = with_steps(ends, Hook(HookKind.DOUBLE, Site.OUTPUT, 1), Backward((root,)))
        assert check(hooked, apart, CPU).outcome is Outcome.AGREES
    alone = program(op("v0", "torch.amin", X), op("v1", "torch.amax", X), outputs=pair("v0", "v1"), requires_grad=True)
    together = Backend("together", lambda fn: lambda x: tuple(torch.aminmax(x)))
    hooked = with_steps(alone, Hook(HookKind.WATCH, Site.OUTPUT, 1), Backward((0,)))
    assert [d.oracle for d in check(hooked, together, CPU).hard] == [K.HOOK]


@pytest.mark.parametrize("again", [False, True], ids=["another call", "a call with the same inputs"])
def test_what_eager_freed_in_a_backward_for_a_part_is_nobodys_promise(again: bool) -> None:
    part = dataclasses.replace(ALL, inputs=(0,))
    first = with_steps(SQUARE, part, *(() if again else (ALL,)))
    ago = dataclasses.replace(ALL, calls_ago=1)
    later = (dataclasses.replace(first.calls[0], inputs=None, steps=(ago,)),) if again else ()
    twice = dataclasses.replace(first, calls=(*first.calls, *later))
    assert check(twice, Backend("planted", keeps_a_copy), CPU).outcome is Outcome.AGREES
    whole = dataclasses.replace(twice, calls=(dataclasses.replace(first.calls[0], steps=(ALL, ALL)),))
    assert check(whole, Backend("planted", keeps_a_copy), CPU).outcome is Outcome.DIFFERS


def test_what_a_backward_had_accumulated_when_it_raised_is_nobodys_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend("planted", gets_further)
    assert check(RAISES, backend, CPU).outcome is Outcome.AGREES
    monkeypatch.setattr(execute, "forget", lambda scenes: None)
    (difference,) = check(RAISES, backend, CPU).hard
    assert str(difference.key) == "(gradient-none, gradient after probe)"


def test_gradients_of_every_call_are_forgotten() -> None:
    """A backward of another call's outputs accumulates into that call's inputs."""
    ago = dataclasses.replace(ALL, calls_ago=1)
    first, last = (
        dataclasses.replace(RAISES.calls[0], steps=()),
        dataclasses.replace(RAISES.calls[0], steps=(ago, OUTPUT)),
    )
    two = dataclasses.replace(RAISES, calls=(first, last))
    steps = list(observe(two, gets_further, CPU))
    assert [step.phase for step in steps] == [Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.PROBE]
    assert steps[2].raised is not None
    assert check(two, Backend("planted", gets_further), CPU).outcome is Outcome.AGREES


@pytest.mark.parametrize(("graph", "made"), [(Graph.FREED, 1), (Graph.RETAINED, 2)])
def test_after_a_backward_that_raised_while_freeing_there_is_no_other(graph: Graph, made: int) -> None:
    """What it has freed by then is an order that nobody promises."""
    twice = with_steps(RAISES, dataclasses.replace(ALL, graph=graph), ALL)
    phases = [step.phase for step in observe(twice, planted.identity, CPU)]
    assert phases.count(Phase.BACKWARD) == made


def test_after_a_call_that_raises_only_backwards_of_earlier_calls_are_made() -> None:
    other = program(op("v0", "torch.mul", X, 2), size=(3,), requires_grad=True).calls[0]
    steps = (OUTPUT, ALL, dataclasses.replace(ALL, calls_ago=1))
    refused = program(op("v0", "Tensor.view", X, Literal(4)), requires_grad=True)
    two = dataclasses.replace(refused, calls=(*refused.calls, dataclasses.replace(other, steps=steps)))
    seen = list(observe(two, planted.identity, CPU))
    assert [(step.call, step.phase, step.raised is None) for step in seen] == [
        (0, Phase.FORWARD, True),
        (1, Phase.FORWARD, False),
        (1, Phase.BACKWARD, True),
    ]
    assert check(two, Backend("half", half), CPU).outcome is Outcome.DIFFERS


def test_double_backward_that_a_backend_does_not_promise_is_left_out_and_counted() -> None:
    base = with_steps(LINEAR, TRAINED, AGAIN, ALL)
    fails = planted.on_tensors(FailsLater.apply)
    assert check(base, Backend("promises", fails), CPU).outcome is Outcome.DIFFERS
    backend = Backend("does not", fails, promises=EVERY_PROMISE - {Promise.DOUBLE_BACKWARD})
    verdict = check(base, backend, CPU)
    assert verdict.outcome is Outcome.AGREES
    assert verdict.left_out == ((Promise.DOUBLE_BACKWARD, 2),)
    judged, _ = as_promised(base, backend.promises)
    assert [step.graph for step in judged.calls[0].steps] == [Graph.RETAINED, Graph.FREED]  # type: ignore[union-attr]
    assert not as_promised(with_steps(LINEAR, ALL, ALL), backend.promises)[1]


def test_a_refusal_at_double_backward_is_a_refusal() -> None:
    class UnsupportedError(RuntimeError):
        reason = "double backward"

    UnsupportedError.__module__ = "aotcheck.autograd.errors"

    class Refuses(Wrong):
        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            raise UnsupportedError("no")

    class Once(Wrong):
        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return Refuses.apply(gradient)

    verdict = check(with_steps(LINEAR, TRAINED, AGAIN), Backend("refuses", planted.on_tensors(Once.apply)), CPU)
    assert (verdict.outcome, verdict.refusals) == (Outcome.REFUSED, ("double backward",))


@pytest.mark.parametrize(
    ("parts", "differs"), [(complex(nan, nan), False), (complex(nan, inf), False), (complex(1, 2), True)]
)
def test_which_parts_of_a_complex_gradient_are_infinite_is_not_compared(parts: complex, differs: bool) -> None:
    """It says in which order gradients were summed."""
    infinite, one = torch.tensor(complex(inf, nan)), torch.ones((), dtype=torch.complex64)
    assert not bool((infinite + one).real.isnan())
    assert bool((one + infinite).real.isnan())

    class Gives(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.mul(x, inf)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return torch.full_like(gradient, parts)

    base = program(op("v0", "torch.mul", X, Literal(inf)), dtype="complex64", requires_grad=True)
    found = check(with_steps(base, ALL), Backend("gives", lambda fn: Gives.apply), CPU).hard
    assert [str(d.key) for d in found] == ["(values, gradient after backward, infinite or NaN)"] * differs


@pytest.mark.parametrize(("dtype", "differs"), [("complex64", False), ("float32", True)])
def test_nor_is_the_real_part_of_such_a_gradient(dtype: str, differs: bool) -> None:
    """Of a real leaf of a program with complex results."""

    class Gives(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.mul(x, inf).to(getattr(torch, dtype))

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return torch.full(gradient.shape, nan)

    to = op("v1", "Tensor.to", Ref("v0"), DType(dtype))
    base = program(op("v0", "torch.mul", X, Literal(inf)), to, outputs=Ref("v1"), requires_grad=True)
    found = check(with_steps(base, ALL), Backend("gives", lambda fn: Gives.apply), CPU).hard
    assert [str(d.key) for d in found] == ["(values, gradient after backward, infinite or NaN)"] * differs


def test_zero_times_infinity_shows_an_undefined_cotangent_taken_for_zeros() -> None:
    infinite = op("v1", "torch.mul", X, Literal(float("inf")))
    base = dataclasses.replace(BOTH, body=(BOTH.body[0], infinite))
    (first,) = check(with_steps(base, ALL), Backend("zeros", materializes), CPU).hard
    assert str(first.key) == "(values, gradient after backward, infinite or NaN)"
    assert first.compiled == "nan"


def materializes(fn: Any) -> Any:
    """One node for all outputs, which gives zeros for an undefined cotangent."""

    class Together(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *outputs: torch.Tensor) -> Any:
            return tuple(t.clone() for t in outputs)

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return gradients

    return lambda x: Together.apply(*fn(x))
