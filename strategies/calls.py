"""Draw further calls with another key or with the same, and keep what has a well-defined outcome."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import torch

from aotcheck.program import (
    Backward,
    BuiltCall,
    Call,
    DictExpr,
    DryRun,
    Expr,
    Feature,
    GradMode,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Probe,
    Program,
    Ref,
    Scene,
    Statement,
    Step,
    Storage,
    Strided,
    TupleExpr,
    Way,
    Write,
    build_call,
    evaluate,
    flat_calls,
    remember,
)
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.running.memory import hook_may_be_misplaced, size_of

from .chooser import Chooser
from .inputs import contiguous, data
from .plans import Sides, draw_around, draw_before, draw_one_backward, draw_steps, with_trained_cotangents
from .profile import Profile, Training
from .state import EXPECTED, fragile, hazardous, perilous, tidy

__all__ = ["Unsafe", "arity", "draw_further_calls", "draw_other_sizes", "draw_plan", "inspect", "train", "untrained"]


class Unsafe(Exception):
    """A drawn call has an outcome that no backend can be held to; draw another."""


class _Inspection(DryRun):
    """A dry run that gives up on calls whose outcome is not well defined."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        infinite = Literal(float("inf"))
        self.infinite = {name for c in flat_calls(program.body) if infinite in c.args for name in c.targets}

    def before_statement(self, call: OpCall, env: Any) -> None:
        if perilous(call, env, self.saved):
            raise Unsafe

    def on_statement(self, call: OpCall, env: Any) -> None:
        if hazardous(call, env) or (self.index and _may_have_grown(call, env)):
            raise Unsafe
        if not tidy([value for name, value in env.items() if name not in self.infinite]):
            raise Unsafe

    def on_error(self, error: Exception) -> None:
        if fragile(error):
            raise Unsafe

    def step(self, step: Step, scene: Scene, ago: int = 0) -> None:
        if isinstance(step, Probe) and step.how is not Write.NO_GRAD:
            written = scene.side(step.site.value)[step.index :][:1]
            if any(map(hook_may_be_misplaced, written)):
                raise Unsafe
        super().step(step, scene, ago)

    def on_gradients(self, gradients: list[torch.Tensor]) -> None:
        if not all(map(_bounded, gradients)):
            raise Unsafe


def _bounded(gradient: torch.Tensor) -> bool:
    """Whether sums of such numbers are exact in any order; infinities and NaN are."""
    plain = gradient.detach().clone().resolve_conj()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.numel() == 0 or tidy(plain.nan_to_num(0.0, 0.0, 0.0))


def _may_have_grown(call: OpCall, env: Any) -> bool:
    """Whether ``set_`` may have grown a storage that was too small, which leaves memory undefined."""
    if call.path != "Tensor.set_" or len(call.args) < 3:
        return False
    t = evaluate(call.args[0], env)
    last = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return bool((last + 1) * t.itemsize >= t.untyped_storage().nbytes())


def steered(choose: Chooser, profile: Profile, program: Program) -> tuple[Program, frozenset[Feature]]:
    """The program, in some cases with no gradient asked for with respect to an input as the call has left it.

    Most compilers' graphs begin at inputs as they were passed; where each such gradient differs, it hides the rest.

    Raises:
        Unsafe: some call's outcome is not well defined.
    """
    run, features = _inspected(program)
    calls = list(program.calls)
    for (index, at), unwritten in run.unwritten.items():
        call = calls[index]
        step = call.steps[at]
        if not isinstance(step, Backward) or (step.way is Way.ACCUMULATE and step.inputs is None):
            continue
        count = len(run.scenes[index - step.calls_ago].wanted())
        asked = range(count) if step.inputs is None else step.inputs
        kept = tuple(k for k in asked if k in unwritten)
        if len(kept) < len(asked) and not choose.chance(profile.written_inputs):
            steps = (*call.steps[:at], replace(step, inputs=kept), *call.steps[at + 1 :])
            calls[index] = replace(call, steps=steps)
    if tuple(calls) == program.calls:
        return program, features
    program = replace(program, calls=tuple(calls))
    return program, inspect(program)


def inspect(program: Program) -> frozenset[Feature]:
    """The features of a program by an eager dry run.

    Raises:
        Unsafe: some call's outcome is not well defined.
    """
    return _inspected(program)[1]


def _inspected(program: Program) -> tuple[_Inspection, frozenset[Feature]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = _Inspection(program)
        features = run.run()
        remember(run)
        return run, features


_DIFFERENTIABLE = ("float", "complex", "bfloat")


def train(choose: Chooser, inputs: Inputs) -> Inputs:
    """The inputs, of which one requires grad if none did and one can: a leaf, or what is made of one."""
    can = [i for i, t in enumerate(inputs.tensors) if t.dtype.startswith(_DIFFERENTIABLE)]
    if not can or any(t.requires_grad for t in inputs.tensors):
        return inputs
    index = choose.one(can)
    leaf = inputs.tensors[index]
    tensors = tuple(replace(t, requires_grad=t is leaf) for t in inputs.tensors)
    passed = any(leaf.name in _names(a) for a in inputs.args)
    freed = any(find(call.path)[0].group is Group.STORAGE for call in flat_calls(inputs.derived))
    if not passed or freed or choose.chance(40):
        return replace(inputs, tensors=tensors)
    made = OpCall(f"{leaf.name}m", "torch.mul", (Ref(leaf.name), Literal(1)))
    args = tuple(_renamed(a, {leaf.name: f"{leaf.name}m"}) for a in inputs.args)
    return replace(inputs, tensors=tensors, derived=(*inputs.derived, made), args=args)


def untrained(inputs: Inputs) -> Inputs:
    """The inputs with leaves that require no grad."""
    return replace(inputs, tensors=tuple(replace(t, requires_grad=False) for t in inputs.tensors))


def draw_plan(choose: Chooser, profile: Profile, program: Program, sides: Sides) -> tuple[Program, frozenset[Feature]]:
    """A program of one call with what its caller does around the call, and its features.

    Raises:
        Unsafe: even a caller who does nothing has an outcome that is not well defined.
    """
    (call,) = program.calls
    if profile.training is not Training.ANYTHING:
        return _draw_simple_plan(choose, profile, program, sides)
    for _ in range(3):
        planned = replace(
            call,
            steps=draw_steps(choose, profile, sides),
            before=draw_before(choose, sides),
            around=draw_around(choose),
        )
        longer = replace(program, calls=(planned,))
        with suppress(Unsafe):
            longer, features = steered(choose, profile, longer)
            if Feature.BACKWARD in features and Feature.MANY_BACKWARDS not in features:
                # Perhaps gradients do not depend on the inputs; on cotangents they do.
                with suppress(Unsafe):
                    planned = longer.calls[0]
                    trained = replace(planned, steps=with_trained_cotangents(planned.steps))
                    longer = replace(program, calls=(trained,))
                    return longer, inspect(longer)
            return longer, features
    return program, inspect(program)


def _draw_simple_plan(
    choose: Chooser, profile: Profile, program: Program, sides: Sides
) -> tuple[Program, frozenset[Feature]]:
    """A program of one call and one backward, or of the call alone."""
    if profile.training is Training.NOTHING:
        return program, inspect(program)
    (call,) = program.calls
    for _ in range(3):
        planned = replace(program, calls=(replace(call, steps=draw_one_backward(choose, sides)),))
        with suppress(Unsafe):
            features = inspect(planned)
            if Feature.BACKWARD in features and Feature.BACKWARD_REFUSED not in features:
                return planned, features
    raise Unsafe


# -- further calls


def _other_values(choose: Chooser, inputs: Inputs, _: BuiltCall) -> Inputs:
    seed = choose.between(1, 7)
    return replace(
        inputs,
        storages=tuple(replace(s, data=data(s.dtype, s.numel, (seed + i) % 8)) for i, s in enumerate(inputs.storages)),
    )


def _other_grad(choose: Chooser, inputs: Inputs, _: BuiltCall) -> Inputs:
    can = [i for i, t in enumerate(inputs.tensors) if t.dtype.startswith(_DIFFERENTIABLE)]
    if not can:
        raise Unsafe
    flipped = {choose.one(can)} if choose.chance(50) else set(can)
    tensors = tuple(replace(t, requires_grad=t.requires_grad ^ (i in flipped)) for i, t in enumerate(inputs.tensors))
    return replace(inputs, tensors=tensors)


def _names(expr: Expr) -> list[str]:
    match expr:
        case Ref(name):
            return [name]
        case TupleExpr(items) | ListExpr(items):
            return [n for item in items for n in _names(item)]
        case DictExpr(pairs):
            return [n for _, item in pairs for n in _names(item)]
        case _:
            return []


def _renamed(expr: Expr, names: dict[str, str]) -> Expr:
    match expr:
        case Ref(name):
            return Ref(names.get(name, name))
        case TupleExpr(items):
            return TupleExpr(tuple(_renamed(i, names) for i in items))
        case ListExpr(items):
            return ListExpr(tuple(_renamed(i, names) for i in items))
        case DictExpr(pairs):
            return replace(expr, items=tuple((k, _renamed(i, names)) for k, i in pairs))
        case other:
            return other


_AS_BEFORE: Mapping[int, int] = {}


def _rebuilt(
    choose: Chooser,
    inputs: Inputs,
    built: BuiltCall,
    *,
    together: bool = False,
    other_stride: bool = False,
    sizes: Mapping[int, int] = _AS_BEFORE,
) -> Inputs:
    """The arguments as plain tensors: apart or on one storage, of the old strides or others, of other ``sizes``."""
    storages: list[Storage] = []
    tensors: list[Strided] = []
    derived: list[Statement] = []
    names: dict[str, str] = {}
    shared: dict[str, str] = {}
    for i, name in enumerate(dict.fromkeys(n for a in inputs.args for n in _names(a))):
        t = built.named[name]
        dtype = str(t.dtype).removeprefix("torch.")
        size = tuple(sizes.get(n, n) for n in size_of(t))
        stride, offset = contiguous(size), 0
        if other_stride and choose.chance(60):
            stride = (
                tuple(reversed(contiguous(tuple(reversed(size))))) if len(size) > 1 else tuple(2 * s for s in stride)
            )
        room = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if prod(size) else 0
        if together and dtype in shared:
            storage, offset = shared[dtype], choose.below(3)
        else:
            storage = f"s{len(storages)}"
            numel = max(room, 40) if together else room
            storages.append(Storage(storage, dtype, data(dtype, numel, (i + choose.below(4)) % 8)))
            shared[dtype] = storage
        leaf_grad = t.requires_grad and t.is_leaf
        tensors.append(
            Strided(f"a{i}", storage, dtype, size, stride, offset, t.requires_grad and (leaf_grad or not together))
        )
        names[name] = f"a{i}"
        if t.requires_grad and not t.is_leaf and not together:
            names[name] = f"b{i}"
            derived.append(OpCall(f"b{i}", "torch.mul", (Ref(f"a{i}"), Literal(1))))
    return Inputs(tuple(storages), tuple(tensors), tuple(derived), tuple(_renamed(a, names) for a in inputs.args))


def _apart(choose: Chooser, inputs: Inputs, built: BuiltCall) -> Inputs:
    return _rebuilt(choose, inputs, built)


def _together(choose: Chooser, inputs: Inputs, built: BuiltCall) -> Inputs:
    return _rebuilt(choose, inputs, built, together=True)


def _strides(choose: Chooser, inputs: Inputs, built: BuiltCall) -> Inputs:
    return _rebuilt(choose, inputs, built, other_stride=True)


def _sizes(choose: Chooser, inputs: Inputs, built: BuiltCall) -> Inputs:
    return _rebuilt(choose, inputs, built, sizes={2: 3, 3: 2, 1: 2})


def _same_object(choose: Chooser, inputs: Inputs, built: BuiltCall) -> Inputs:
    names = list(dict.fromkeys(n for a in inputs.args for n in _names(a)))
    pairs = [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if built.named[a].shape == built.named[b].shape and built.named[a].dtype == built.named[b].dtype
    ]
    if not pairs:
        return _together(choose, inputs, built)
    kept, dropped = choose.one(pairs)
    return replace(inputs, args=tuple(_renamed(a, {dropped: kept}) for a in inputs.args))


def _other_constant(choose: Chooser, inputs: Inputs, built: BuiltCall) -> Inputs:
    """Another flag, as when a module goes from training to evaluation, or number; where there is none, other values."""
    args = tuple(map(_otherwise, inputs.args))
    return _other_values(choose, inputs, built) if args == inputs.args else replace(inputs, args=args)


def _otherwise(arg: Expr) -> Expr:
    match arg:
        case Literal(bool(value)):
            return Literal(not value)
        case Literal(int(value) | float(value)):
            return Literal(value + 1)
        case DictExpr(pairs, of) if of:
            return replace(arg, items=tuple((name, _otherwise(item)) for name, item in pairs))
    return arg


def _reads_constant(program: Program) -> bool:
    """Whether a statement reads an argument that is a number or a flag."""
    inputs = program.calls[0].inputs
    args = () if inputs is None else inputs.args
    constants = {p for p, a in zip(program.params, args, strict=True) if isinstance(a, Literal)}
    return any(Ref(name) in call.args for call in flat_calls(program.body) for name in constants)


_CHANGES: tuple[tuple[Callable[[Chooser, Inputs, BuiltCall], Inputs], int], ...] = (
    (_other_values, 3),
    (_other_grad, 4),
    (_apart, 3),
    (_together, 4),
    (_same_object, 3),
    (_strides, 3),
    (_sizes, 3),
)
_WEIGHTED = tuple(change for change, weight in _CHANGES for _ in range(weight))
_ALL = (*_WEIGHTED, _other_constant, _other_constant)
_LEADS_TO: dict[Callable[[Chooser, Inputs, BuiltCall], Inputs], tuple[str, ...]] = {
    _other_values: ("call:other-values",),
    _other_constant: ("call:other-constant",),
    _other_grad: ("call:other-grad",),
    _apart: ("call:other-aliasing",),
    _together: ("call:other-aliasing",),
    _same_object: ("call:other-aliasing",),
    _strides: ("call:other-strides",),
    _sizes: ("call:other-shape",),
}
"""The traits that a change is there for."""
_OF_CHANGE = ("step:interleaved", *dict.fromkeys(trait for traits in _LEADS_TO.values() for trait in traits))


def draw_further_calls(choose: Chooser, program: Program, profile: Profile) -> Program:
    """The program with a second call, perhaps a third, that eager gives a well-defined outcome to."""
    later = choose.chance(profile.trained_later) if profile.trained_later and _may_train(program) else False
    further = later or choose.likely(
        profile.second_call, "call:third", "call:same-arguments", "call:other-mode", *_OF_CHANGE
    )
    count = 1 + choose.likely(profile.third_call, "call:third") if further else 0
    for _ in range(count):
        for _ in range(3):
            try:
                longer, _ = steered(choose, profile, _with_call(choose, profile, program))
            except (Unsafe, *EXPECTED):
                continue
            program = longer
            break
    return program


class _Silent(_Inspection):
    """An inspection that gives up where eager raises."""

    def on_error(self, error: Exception) -> None:
        raise Unsafe


def draw_other_sizes(choose: Chooser, program: Program, count: int) -> Program:
    """The program with ``count`` more calls like the first, each with another size for one of its sizes.

    The same program where eager raises for any such sizes, or has no well-defined outcome.
    """
    first = program.calls[0]
    if not count or first.inputs is None:
        return program
    built = build_call(program, 0)
    present = {n for a in first.inputs.args for name in _names(a) for n in size_of(built.named[name]) if n > 1}
    for n in sorted(present, reverse=choose.chance(50)):
        longer = program
        for more in range(1, count + 1):
            inputs = _rebuilt(choose, first.inputs, built, sizes={n: n + more})
            call = Call(inputs, first.grad_mode, first.steps, (), first.around)
            longer = replace(longer, calls=(*longer.calls, call))
        with warnings.catch_warnings(), suppress(Unsafe, *EXPECTED):
            warnings.simplefilter("ignore")
            _Silent(longer).run()
            return longer
    return program


def _may_train(program: Program) -> bool:
    """Whether a later call can train something where the first trains nothing."""
    inputs = program.calls[0].inputs
    tensors = () if inputs is None else inputs.tensors
    trained = any(t.requires_grad for t in tensors) or program.calls[0].grad_mode is not GradMode.ENABLED
    return not trained and any(t.dtype.startswith(_DIFFERENTIABLE) for t in tensors)


_MODES = (GradMode.ENABLED,) * 15 + (GradMode.NO_GRAD,) * 4 + (GradMode.INFERENCE,)


def _with_call(choose: Chooser, profile: Profile, program: Program) -> Program:
    first, last = program.calls[0], program.calls[-1]
    mode = choose.one(_MODES)
    inputs: Inputs | None = None
    assert first.inputs is not None
    if not choose.likely(15, "call:same-arguments"):
        changes = _ALL if profile.inside else _WEIGHTED
        if profile.trained_later and _may_train(program) and choose.chance(profile.trained_later):
            changes = (_other_grad,)
        if profile.inside and _reads_constant(program) and choose.chance(70):
            changes = (_other_constant,)
        inputs = choose.toward(changes, lambda change: _LEADS_TO[change])(choose, first.inputs, build_call(program, 0))
    count = len(program.params)
    sides = Sides(1, choose.between(1, 3), count, 2)
    steps, earlier = draw_steps(choose, profile, sides), last.steps
    if earlier and choose.likely(profile.interleaved, "step:interleaved"):
        if profile.alike and inputs is not None and choose.chance(profile.alike):
            inputs = _other_values(choose, first.inputs, build_call(program, 0))
        # What the caller would have done after the last call, or the end of it, is done after this one.
        kept = choose.below(len(earlier))
        late = tuple(
            replace(step, calls_ago=step.calls_ago + 1) for step in earlier[kept:] if isinstance(step, Backward)
        )
        program = replace(program, calls=(*program.calls[:-1], replace(last, steps=earlier[:kept])))
        steps = (*steps, *late) if choose.chance(50) else (*late, *steps)
    call = Call(inputs, mode, steps, draw_before(choose, sides), draw_around(choose))
    return replace(program, calls=(*program.calls, call))


def arity(outputs: Expr, env: dict[str, Any]) -> tuple[int, int]:
    """How many tensors and how many distinct differentiable tensors an output pytree holds."""
    found: list[torch.Tensor] = []

    def visit(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            for item in value.values():
                visit(item)
        elif isinstance(value, tuple | list):
            for item in value:
                visit(item)

    visit(evaluate(outputs, env))
    return len(found), len({id(t) for t in found if t.requires_grad})
