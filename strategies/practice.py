"""Programs as people train: a batch and parameters as arguments, and calls in a training loop.

Which of it a program has is drawn by the shares of a :class:`strategies.profile.Usage`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import torch

from aotcheck.program import (
    Backward,
    Block,
    Call,
    Context,
    Cotangent,
    DictExpr,
    Expr,
    Feature,
    Fill,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Probe,
    Program,
    Ref,
    Site,
    SliceExpr,
    Statement,
    Step,
    Storage,
    Strided,
    TupleExpr,
    references,
)
from aotcheck.program.called.objects import State as Stateful
from aotcheck.program.ops.registry import find
from aotcheck.program.ops.subclasses import held, subclasses
from aotcheck.program.running.memory import size_of

from .arguments import Impossible
from .calls import Unsafe, inspect
from .chooser import Chooser
from .exprs import broadcasts
from .idioms import Idiom
from .inputs import contiguous, data
from .profile import Usage
from .selection import mutates
from .state import EXPECTED, Outcome, State

__all__ = ["PATHS", "Practice", "needed"]

_BATCH, _ROWS = -1, -2
"""Sizes that differ from call to call: of a batch, of a cache."""
_FIRST = 4
_RESULTS = ("cached", "measured", "recomputed", "masked", "halved")
_CACHED, _MEASURED, _RECOMPUTED, _MASKED, _HALVED = _RESULTS
"""What idioms make, which is returned."""
_LOSSES = 10
"""Of programs, how many reduce what they made to a loss; most leave that to the caller."""
_PART_OF = {"optimizer": "backward", "accumulation": "backward", "smaller batch": "other size"}
"""Idioms that no program has without another one."""
_REFUSED = frozenset({Feature.EAGER_REFUSES, Feature.BACKWARD_REFUSED})


@dataclass(frozen=True)
class _Leaf:
    """An argument; the sizes of a batch and of a cache are filled in for each call."""

    dtype: str
    size: tuple[int, ...]
    layout: str = "contiguous"
    grad: bool = False
    below: int = 0  # an index is below it


def _laid_out(size: tuple[int, ...], layout: str) -> tuple[tuple[int, ...], int]:
    """Strides of a layout, and how many elements they reach; contiguous where the layout does not fit."""
    stride, reach = contiguous(size), prod(size)
    match layout:
        case "transposed" if len(size) > 1:
            stride = tuple(reversed(contiguous(tuple(reversed(size)))))
        case "channels-last" if len(size) == 4:
            c, h, w = size[1:]
            stride = (c * h * w, 1, c * w, c)
        case "sliced":
            stride, reach = tuple(2 * step for step in stride), 2 * reach
    return stride, reach


class Practice:
    """What one program does as real ones do.

    Args:
        choose: what draws.
        usage: how often.
    """

    def __init__(self, choose: Chooser, usage: Usage) -> None:
        self.choose = choose
        drawn = {_PART_OF.get(name, name): choose.below(10_000) for name, _ in usage.idioms}
        self.wanted = {name for name, share in usage.idioms if drawn[_PART_OF.get(name, name)] >= 10_000 - share}
        self.inside = not self.wanted.isdisjoint({"optimizer inside", "backward inside"})
        self.cache = choose.one(("tensor", "dict", "list", "object")) if "cache" in self.wanted else ""
        self.kind = choose.one([kind for kind in subclasses() if not kind.ragged])
        self.leaves = self._leaves(usage)
        self.flag = choose.chance(30)
        self.inputs = self._inputs(_FIRST, 2, choose.below(4))

    # -- arguments

    def _leaves(self, usage: Usage) -> list[_Leaf]:
        choose = self.choose
        dtype = choose.weighted([one for one in usage.dtypes if one[0].startswith(("float", "bfloat", "complex"))])
        rank = choose.weighted([one for one in usage.ranks if one[0] in ("2", "3", "4")])
        self.rank = int(rank)
        n, m = choose.one(((3, 3), (2, 2), (3, 2), (2, 2), (3, 3), (3, 3)))
        size = {"2": (_BATCH, n), "3": (_BATCH, 2, n), "4": (_BATCH, n, 2, 2)}[rank]

        def leaf(size: tuple[int, ...], grad: bool = True) -> _Leaf:
            return _Leaf(dtype, size, choose.weighted(usage.layouts), grad)

        made = [leaf(size, choose.chance(5)), leaf((m, n, 1, 1) if rank == "4" else (m, n)), leaf((m,))]
        made += [leaf((n,))] if n != m or choose.chance(50) else []
        made += [leaf((n, m))] if rank != "4" and choose.chance(50) else []
        if choose.chance(30) or "write to an input or a buffer" in self.wanted:
            made += [leaf((n,), False), leaf((n,), False)]
        if choose.chance(20):
            made += [_Leaf("int64", (_BATCH,), below=2), leaf((2, n))]
        if "mask" in self.wanted:
            made.append(_Leaf("bool", size if choose.chance(50) else (*size[:-1], 1)))
        if self.cache:
            made.append(leaf((_ROWS, *(size[1:])), False))
        return made

    def _inputs(self, batch: int, rows: int, seed: int) -> Inputs:
        """Arguments of a call."""
        storages, tensors, derived, args = list[Storage](), list[Strided](), list[Statement](), list[Expr]()
        for i, leaf in enumerate(self.leaves):
            size = tuple({_BATCH: batch, _ROWS: rows}.get(n, n) for n in leaf.size)
            stride, reach = _laid_out(size, leaf.layout)
            numbers = tuple((k + seed) % leaf.below for k in range(reach)) if leaf.below else ()
            storages.append(Storage(f"s{i}", leaf.dtype, numbers or data(leaf.dtype, reach, (seed + i) % 8)))
            wrapped = "wrapper" in self.wanted and i == 1 and leaf.dtype == "float32"
            tensors.append(Strided(f"a{i}", f"s{i}", leaf.dtype, size, stride, 0, leaf.grad and not wrapped))
            if wrapped:
                derived.append(OpCall("w", self.kind.path, (Ref(f"a{i}"),) * self.kind.tensors))
                derived.append(OpCall(None, "Tensor.requires_grad_", (Ref("w"),)))
            args.append(Ref("w" if wrapped else f"a{i}"))
        if self.cache == "dict":
            args[-1] = DictExpr((("k0", args[-1]),))
        elif self.cache == "list":
            args[-1] = ListExpr((args[-1],))
        elif self.cache == "object":
            args[-1] = DictExpr((("hidden", args[-1]), ("scale", Literal(1))), "State")
        args += [Literal((0.5, 0.25, 2.0, 1.5)[seed % 4])] if "schedule" in self.wanted else []
        args += [Literal(True)] if self.flag else []
        return Inputs(tuple(storages), tuple(tensors), tuple(derived), tuple(args))

    # -- the body

    def idioms(self) -> list[Callable[[Idiom], None]]:
        """What the body does beside computing, in the order of the table."""
        return [idiom for name, idiom in _BODY.items() if name in self.wanted]

    def outputs(self, state: State) -> Expr:
        """A loss of what was made last, perhaps that too, and a cache that the caller keeps."""
        if self.inside:
            with suppress(Impossible, *EXPECTED):
                _train_inside(Idiom(self.choose, state), "optimizer inside" in self.wanted)
        made = [(name, t) for name, t in reversed(state.tensors()) if name not in state.params]
        trained = [name for name, t in made if t.requires_grad and not t.is_complex() and t.is_floating_point()]
        chosen: list[Expr] = []
        if trained and self.choose.chance(_LOSSES):
            call = OpCall(state.fresh(), self.choose.one(("torch.mean", "Tensor.sum")), (Ref(trained[0]),))
            done = state.attempt(call, find(call.path)[0]) is Outcome.DONE
            chosen.append(Ref(call.targets[0] if done else trained[0]))
        if made and (not chosen or self.choose.chance(50)):
            chosen.append(Ref((trained or [made[0][0]])[0]))
        chosen += [Ref(name) for name in _RESULTS if name in state.env and (name != _CACHED or self.cache == "tensor")]
        if "view of an input returned" in self.wanted:
            chosen.append(Ref(state.params[0]))
        if not chosen:
            return Literal(None)
        return chosen[0] if len(chosen) == 1 else TupleExpr(tuple(chosen))

    # -- calls

    def steps(self, last: bool = True) -> tuple[Step, ...]:
        """A backward of the loss, and what an optimizer writes to the parameters."""
        if self.inside or "backward" not in self.wanted:
            return ()
        steps: list[Step] = [Backward((0, 1, 2), (Cotangent(Fill.PATTERN),))]
        if "optimizer" in self.wanted and (last or "accumulation" not in self.wanted):
            trained = [k for k, leaf in enumerate(self.leaves) if leaf.grad]
            steps += [Probe(Site.INPUT, k, 1 + k % 4) for k in trained]
        return tuple(steps)

    def loop(self, program: Program) -> Program:
        """The program with its caller's loop: calls with a backward and an optimizer's step each.

        Raises:
            Unsafe: an outcome is not well defined, or eager refuses what is done.
        """
        count = 1 + self.choose.chance(40)
        for sized in (True, True, False):  # what a function does may fit one size alone
            later = tuple(Call(self.later(index + 1, sized), steps=self.steps()) for index in range(count))
            longer = replace(program, calls=(replace(program.calls[0], steps=self.steps(last=False)), *later))
            with suppress(Unsafe, *EXPECTED):
                if _REFUSED.isdisjoint(inspect(longer)):
                    return longer
        program = replace(program, calls=(replace(program.calls[0], steps=self.steps()),))
        if not _REFUSED.isdisjoint(inspect(program)):
            raise Unsafe
        return program

    def later(self, index: int, sized: bool) -> Inputs | None:
        """Arguments of a later call: the same objects, or others, of another batch size if ``sized``."""
        wanted, choose = self.wanted, self.choose
        sizes = {"other size", "smaller batch"} & wanted
        anew = sizes or "schedule" in wanted or self.cache == "tensor"
        if "accumulation" in wanted or self.cache in ("dict", "list", "object") or (not anew and choose.chance(60)):
            return None
        batch = choose.one((3, 2) if "smaller batch" in wanted else (5, 3, 2))
        return self._inputs(batch if sizes and sized else _FIRST, 2 + index, index + choose.below(4))


def needed(body: tuple[Statement, ...], used: set[str]) -> tuple[Statement, ...]:
    """The statements that write or print, or make what is used later: people write no others. ``used`` grows."""
    kept: list[Statement] = []
    for statement in reversed(body):
        if isinstance(statement, Block):
            if inner := needed(statement.body, used):
                kept.append(replace(statement, body=inner))
        elif not used.isdisjoint(statement.targets) or any(mutates(op) or op.prints for op in find(statement.path)):
            kept.append(statement)
            used.update(name for arg in (*statement.args, *dict(statement.kwargs).values()) for name in references(arg))
    return tuple(reversed(kept))


# -- idioms


def _real(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.dim() > 0 and not held(t)


def _chained(i: Idiom, fits: Callable[[torch.Tensor], bool]) -> tuple[str, torch.Tensor]:
    """What was made last and fits, or an argument that does."""
    made = [one for one in i.state.tensors() if one[0] not in i.state.params and fits(one[1])]
    return made[-1] if made else i.pick(fits)


def _mask(i: Idiom) -> None:
    """Positions that do not count, by an argument or a comparison."""
    masks = [(name, t) for name, t in i.state.tensors() if t.dtype == torch.bool]
    mask, m = i.choose.one(masks)
    name, _ = _chained(i, lambda t: _real(t) and broadcasts(size_of(m), size_of(t)))
    fill = ("torch.masked_fill", (Ref(name), Ref(mask), Literal(i.choose.one((0, -1)))))
    path, args = i.choose.one((fill, ("torch.where", (Ref(mask), Ref(name), Literal(0)))))
    i.state.attempt(OpCall(_MASKED, path, args))


def _schedule(i: Idiom) -> None:
    """A number that differs from call to call is a factor."""
    numbers = [name for name, value in i.state.env.items() if isinstance(value, float)]
    name, _ = _chained(i, _real)
    number = Ref(i.choose.one(numbers))
    i.make(i.choose.one(("torch.mul", "torch.add")), Ref(name), number)
    if i.choose.chance(20):
        i.do("Control.prints", Ref(name), Literal("a"), number)


def _cache(i: Idiom) -> None:
    """What was kept, longer by a row of this call: a returned tensor, or what a dict, a list or an object holds."""
    state = i.state
    name = [p for p in state.params if isinstance(state.env[p], torch.Tensor | dict | list | Stateful)][-1]
    holder, past = state.env[name], state.env[name]
    if isinstance(holder, dict | list):
        past = holder["k0"] if isinstance(holder, dict) else holder[-1]
    if isinstance(holder, Stateful):
        past = holder.hidden
    old = next(known for known, value in reversed(state.env.items()) if value is past)
    row, _ = i.pick(lambda t: t.dtype == past.dtype and t.shape[1:] == past.shape[1:] and t.dim() == past.dim())
    new = i.make("Tensor.detach", i.make("getitem", Ref(row), SliceExpr(0, 1)))
    if isinstance(holder, list):
        i.do("list.append", Ref(name), new)
        i.make("torch.cat", Ref(name))
        return
    if state.attempt(OpCall(_CACHED, "torch.cat", (ListExpr((Ref(old), new)),))) is not Outcome.DONE:
        raise Impossible
    if isinstance(holder, dict):
        i.do("setitem", Ref(name), Literal("k0"), Ref(_CACHED))
    if isinstance(holder, Stateful):
        i.do("object.hidden=", Ref(name), Ref(_CACHED))


def _checkpoint(i: Idiom) -> None:
    """A part that is computed once more in the backward."""
    name, t = _chained(i, lambda t: _real(t) and t.requires_grad and t.numel() <= 36)
    alike = [other for other, u in i.state.tensors() if u.shape == t.shape and u.dtype == t.dtype and _real(u)]
    i.state.attempt(OpCall(_RECOMPUTED, "Inside.checkpointed", (Ref(name), Ref(i.choose.one(alike)))))


def _under(i: Idiom, context: Context, action: Callable[[], object]) -> None:
    if i.state.context is not None:
        raise Impossible
    i.state.open(context)
    try:
        action()
    finally:
        i.state.close()


def _autocast(i: Idiom) -> None:
    """A product in lower precision."""
    name, t = _chained(i, lambda t: _real(t) and t.dim() > 1 and t.requires_grad)
    fitting = [u for u, s in i.state.tensors() if s.dim() == 2 and s.shape[-1] == t.shape[-1] and s.dtype == t.dtype]
    product = OpCall(_HALVED, "torch.nn.functional.linear", (Ref(name), Ref(i.choose.one(fitting))))
    _under(i, Context.AUTOCAST, lambda: i.state.attempt(product))


def _no_grad(i: Idiom) -> None:
    """Something measured, for which nothing is trained."""
    name, _ = i.pick(_real)
    measure = OpCall(_MEASURED, i.choose.one(("torch.mean", "torch.relu")), (Ref(name),))
    _under(i, Context.NO_GRAD, lambda: i.state.attempt(measure))


def _buffer(i: Idiom) -> None:
    """A running mean of the caller's."""
    name, t = i.pick(lambda t: _real(t) and not t.requires_grad and t.dim() == 1)
    alike = [u for u, s in i.state.tensors() if s is not t and s.shape == t.shape and s.dtype == t.dtype]
    if alike and i.choose.chance(40):
        other = Ref(i.choose.one(alike))
        _under(i, Context.NO_GRAD, lambda: i.do("Tensor.lerp_", Ref(name), other, Literal(0.5)))
    else:
        i.do("Tensor.add_", Ref(name), Literal(1))


def _train_inside(i: Idiom, optimizer: bool) -> None:
    """A backward inside, and the step of SGD or Adam that it is for."""
    state = i.state
    made_of = [name for name, t in state.tensors() if t.requires_grad and _real(t) and not t.is_leaf]
    parameters = [p for p, t in state.tensors() if p in state.params and t.requires_grad and _real(t)]
    loss = i.make("Tensor.sum", Ref(made_of[-1]))
    if not optimizer:
        i.do("Tensor.backward", loss)
        return
    if i.choose.chance(40):
        parameter = i.choose.one(parameters)
        path, more = i.choose.one((("Optimizer.adam", ()), ("Optimizer.sgd", (Literal(False),))))
        i.do(path, Ref(parameter), i.make("torch.relu", Ref(parameter)), *more)
        return
    made = tuple(state.fresh() for _ in parameters)
    lists = (ListExpr((loss,)), ListExpr(tuple(map(Ref, parameters))))
    call = OpCall(made, "torch.autograd.grad", lists, (("allow_unused", Literal(True)),))
    if state.attempt(call, find(call.path)[0]) is not Outcome.DONE:
        raise Impossible
    adam = i.choose.chance(50)

    def step() -> None:
        for parameter, gradient in zip(parameters, made, strict=True):
            if not isinstance(state.env[gradient], torch.Tensor):
                continue
            move = Ref(gradient)
            if adam:
                mean, square = i.make("torch.zeros_like", move), i.make("torch.zeros_like", move)
                i.do("Tensor.lerp_", mean, move, Literal(0.5))
                i.do("Tensor.addcmul_", square, move, move)
                move = i.make("torch.div", mean, i.make("torch.add", square, Literal(1)))
            i.do("Tensor.sub_", Ref(parameter), move, alpha=Literal(2))

    _under(i, Context.NO_GRAD, step)


_BODY: dict[str, Callable[[Idiom], None]] = {
    "mask": _mask,
    "schedule": _schedule,
    "cache": _cache,
    "checkpoint": _checkpoint,
    "autocast": _autocast,
    "no_grad": _no_grad,
    "write to an input or a buffer": _buffer,
}
_PATHS = """
Control.prints object.hidden object.hidden= object.scale
Inside.checkpointed Tensor.add_ Tensor.addcmul_ Tensor.backward Tensor.detach Tensor.lerp_ Tensor.sub_ Tensor.sum
getitem list.append setitem torch.add torch.autograd.grad torch.cat torch.div torch.masked_fill torch.mean torch.mul
torch.nn.functional.linear torch.relu torch.where torch.zeros_like Optimizer.adam Optimizer.sgd
"""
PATHS = frozenset(_PATHS.split())
"""The ops of idioms."""
