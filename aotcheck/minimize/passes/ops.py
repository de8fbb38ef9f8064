"""A pass over op calls: simpler ops, fewer arguments, simpler constants."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from aotcheck.minimize.edit import (
    Body,
    edited,
    inputs_of,
    leaves,
    renamed,
    renamed_call,
    renamed_statements,
    with_inputs,
)
from aotcheck.minimize.size import rank_of
from aotcheck.program import (
    DictExpr,
    Expr,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    SliceExpr,
    TupleExpr,
    flat_calls,
    references,
)
from aotcheck.program.ops.registry import Form, Group, find

__all__ = [
    "KINDS",
    "calls_with_places",
    "in_its_place",
    "operands_of",
    "results_for_out",
    "simplify_literals",
    "simplify_ops",
    "simplify_signatures",
    "unpack_results",
    "with_call",
    "writes",
]

_TWO, _MINUS_ONE = Literal(2), TupleExpr((Literal(-1),))

_WRITES: tuple[tuple[str, int, tuple[Expr, ...]], ...] = (
    ("Tensor.zero_", 1, ()),
    ("Tensor.neg_", 1, ()),
    ("Tensor.t_", 1, ()),
    ("Tensor.copy_", 2, ()),
    ("Tensor.add_", 1, (Literal(1),)),
    ("Tensor.mul_", 1, (_TWO,)),
    ("Tensor.add_", 2, ()),
    ("Tensor.mul_", 2, ()),
    ("Tensor.sin_", 1, ()),
)
"""What a write is replaced by: path, operands, constants behind them."""

_READS: tuple[tuple[str, int, tuple[Expr, ...]], ...] = (
    ("Tensor.clone", 1, ()),
    ("Tensor.detach", 1, ()),
    ("Tensor.sum", 1, ()),
    ("Tensor.t", 1, ()),
    ("torch.neg", 1, ()),
    ("torch.add", 2, ()),
    ("Tensor.view", 1, (_MINUS_ONE,)),
    ("getitem", 1, (Literal(0),)),
    ("torch.mul", 1, (_TWO,)),
    ("torch.mul", 2, ()),
    ("torch.sin", 1, ()),
)
"""What any other op is replaced by."""

KINDS: tuple[tuple[str, ...], ...] = (
    ("Tensor.zero_", "Tensor.neg_", "Tensor.copy_", "Tensor.add_", "Tensor.mul_", "Tensor.sin_"),
    ("Tensor.detach", "Tensor.t", "Tensor.view", "getitem"),
    ("Tensor.clone", "Tensor.sum", "torch.neg", "torch.add", "torch.mul", "torch.sin"),
)
"""Which of these are alike: writes, views, and ops that compute."""


def _in_body(body: Body, index: int, changed: OpCall) -> Body:
    return edited(body, lambda i, call: changed if i == index else call)


def with_call(program: Program, index: int, changed: OpCall, at: int | None) -> Program:
    """``program`` with one op call replaced, in the body or among what builds the inputs of call ``at``."""
    if at is None:
        return replace(program, body=_in_body(program.body, index, changed))
    inputs = next(i for place, i in inputs_of(program) if place == at)
    return with_inputs(program, {at: replace(inputs, derived=_in_body(inputs.derived, index, changed))})


def calls_with_places(program: Program) -> Iterator[tuple[int | None, int, OpCall]]:
    """Every op call, with where it is."""
    for index, call in enumerate(flat_calls(program.body)):
        yield None, index, call
    for at, inputs in inputs_of(program):
        for index, call in enumerate(flat_calls(inputs.derived)):
            yield at, index, call


def operands_of(call: OpCall) -> list[Expr]:
    """The tensors that a call reads or writes, what it writes first."""
    out = [value for key, value in call.kwargs if key == "out"]
    rest = [value for key, value in call.kwargs if key != "out"]
    found = [leaf for expr in (*out, *call.args, *rest) for leaf in leaves(expr)]
    return [leaf for leaf in found if isinstance(leaf, Ref)]


def writes(call: OpCall) -> bool:
    """Whether the overload that is called writes to a tensor: one with ``out=`` does only where that is given."""
    out = any(key == "out" for key, _ in call.kwargs)
    called = [op for op in find(call.path) if out or op.group is not Group.OUT]
    return any(op.writes or op.group in (Group.METADATA, Group.SET) for op in called)


def in_its_place(call: OpCall, path: str) -> OpCall | None:
    """The simple op ``path`` on the first operands of ``call``; None where those are too few."""
    operands = operands_of(call)
    for simple, wanted, constants in (*_WRITES, *_READS):
        if simple == path and wanted <= len(operands):
            return OpCall(call.target, path, (*operands[:wanted], *constants))
    return None


def simplify_ops(program: Program) -> Iterator[Program]:
    """Each op replaced by a simpler one of the same kind, on its first operands."""
    for at, index, call in calls_with_places(program):
        operands, rank = operands_of(call), rank_of(call.path)
        for target in call.target if isinstance(call.target, tuple) else (call.target,):
            for path, wanted, constants in _WRITES if writes(call) else _READS:
                if rank_of(path) < rank and operands and wanted <= len(operands):
                    new = OpCall(target, path, (*operands[:wanted], *constants))
                    yield with_call(program, index, new, at)


def results_for_out(program: Program) -> Iterator[Program]:
    """A result returned in place of one written to ``out=``, where that is a tensor made for it."""
    calls = list(flat_calls(program.body))
    made = {call.target: index for index, call in enumerate(calls) if isinstance(call.target, str)}
    for index, call in enumerate(calls):
        out = dict(call.kwargs).get("out")
        if not isinstance(out, Ref) or out.name not in made or isinstance(call.target, tuple):
            continue
        kwargs = tuple((key, value) for key, value in call.kwargs if key != "out")
        new, maker = replace(call, target=out.name, kwargs=kwargs), made[out.name]
        body = edited(program.body, partial(_without_maker, maker=maker, at=index, new=new))
        names = {call.target: out.name} if call.target is not None else {}
        body = renamed_statements(body, names)
        yield replace(program, body=body, outputs=renamed(program.outputs, names))


def _without_maker(index: int, call: OpCall, *, maker: int, at: int, new: OpCall) -> OpCall | None:
    return None if index == maker else new if index == at else call


MOST_RESULTS = 6
"""As many names as the strategies ever unpack a result into."""


def unpack_results(program: Program) -> Iterator[Program]:
    """A result with several tensors unpacked, where it is kept whole and indexed; in as many names as it may have."""
    calls = list(flat_calls(program.body))
    for index, call in enumerate(calls):
        if not isinstance(call.target, str) or not any(op.results is None for op in find(call.path)):
            continue
        indexing = {i: c for i, c in enumerate(calls) if c.path == "getitem" and c.args[0] == Ref(call.target)}
        positions = {i: _position(c) for i, c in indexing.items()}
        if not positions or None in positions.values():
            continue
        taken = {*program.params, *(name for c in calls for name in c.targets)}
        fresh = [f"v{n}" for n in range(len(taken) + MOST_RESULTS) if f"v{n}" not in taken]
        for count in range(1, MOST_RESULTS + 1):
            yield _unpacked(program, index, positions, tuple(fresh[:count]))


def _position(call: OpCall) -> int | None:
    match call.args[1], call.target:
        case Literal(int() as position), str():
            return position
        case _:
            return None


def _unpacked(program: Program, index: int, positions: dict[int, int | None], targets: tuple[str, ...]) -> Program:
    names: dict[str, str] = {}

    def change(i: int, call: OpCall) -> OpCall | None:
        if i == index:
            return replace(call, target=targets)
        position = positions.get(i)
        if position is not None and -len(targets) <= position < len(targets):
            names.update(dict.fromkeys(call.targets, targets[position]))
            return None
        return renamed_call(call, names)

    body = edited(program.body, change)
    return replace(program, body=body, outputs=renamed(program.outputs, names))


def simplify_signatures(program: Program) -> Iterator[Program]:
    """Results that nobody reads unnamed; keyword arguments and trailing arguments left out."""
    read = {name for _, _, call in calls_with_places(program) for expr in call.args for name in references(expr)}
    read |= {name for _, _, call in calls_with_places(program) for _, expr in call.kwargs for name in references(expr)}
    read |= set(references(program.outputs))
    for _, inputs in inputs_of(program):
        read |= {name for arg in inputs.args for name in references(arg)}
    for at, index, call in calls_with_places(program):
        if call.targets and not read & set(call.targets):
            yield with_call(program, index, replace(call, target=None), at)
        if call.kwargs:
            yield with_call(program, index, replace(call, kwargs=()), at)
        for i in range(len(call.kwargs)):
            yield with_call(program, index, replace(call, kwargs=call.kwargs[:i] + call.kwargs[i + 1 :]), at)
        for kept in range(1, len(call.args) if find(call.path)[0].form in (Form.FUNCTION, Form.METHOD) else 0):
            if not any(True for arg in call.args[kept:] for _ in references(arg)):
                yield with_call(program, index, replace(call, args=call.args[:kept]), at)
        for i, arg in enumerate(call.args):
            if isinstance(arg, ListExpr | TupleExpr) and any(isinstance(item, Ref) for item in arg.items):
                for j in range(len(arg.items) if len(arg.items) > 1 else 0):
                    shorter = type(arg)(arg.items[:j] + arg.items[j + 1 :])
                    yield with_call(program, index, _with_argument(call, i, shorter), at)


def _with_argument(call: OpCall, index: int, arg: Expr) -> OpCall:
    return replace(call, args=(*call.args[:index], arg, *call.args[index + 1 :]))


# -- constants


def simplify_literals(program: Program) -> Iterator[Program]:
    """Numbers towards 0, indices towards 0 and whole slices, sizes shorter."""
    for at, index, call in calls_with_places(program):
        for i, arg in enumerate(call.args):
            in_index = call.path in ("getitem", "setitem") and i == 1
            for simpler in _simpler(arg, in_index):
                yield with_call(program, index, _with_argument(call, i, simpler), at)
        for i, (key, value) in enumerate(call.kwargs):
            for simpler in _simpler(value, False):
                kwargs = (*call.kwargs[:i], (key, simpler), *call.kwargs[i + 1 :])
                yield with_call(program, index, replace(call, kwargs=kwargs), at)


def _simpler(expr: Expr, in_index: bool) -> Iterator[Expr]:
    match expr:
        case Literal(value):
            yield from map(Literal, _numbers(value))
        case SliceExpr(start, stop, step):
            yield Literal(0)
            yield SliceExpr()
            for part, values in ((0, _numbers(start)), (1, _numbers(stop)), (2, _numbers(step))):
                parts = [start, stop, step]
                for value in (None, *values):
                    if parts[part] is not None and (value is None or isinstance(value, int)):
                        parts[part] = value
                        yield SliceExpr(*parts)
        case TupleExpr(items) | ListExpr(items):
            yield from _simpler_items(expr, items, in_index)
        case DictExpr(pairs):
            for i, (key, item) in enumerate(pairs):
                for simpler in _simpler(item, in_index):
                    yield replace(expr, items=(*pairs[:i], (key, simpler), *pairs[i + 1 :]))
        case _:
            return


def _simpler_items(expr: TupleExpr | ListExpr, items: tuple[Expr, ...], in_index: bool) -> Iterator[Expr]:
    if in_index:
        yield Literal(0)
        yield from items
    for i in range(len(items)):
        yield type(expr)(items[:i] + items[i + 1 :])
    for i, item in enumerate(items):
        for simpler in _simpler(item, in_index):
            yield type(expr)((*items[:i], simpler, *items[i + 1 :]))


def _numbers(value: object) -> tuple[bool | int | float | complex | str | None, ...]:
    """Simpler constants than ``value``, of its own type, or real where it is complex."""
    match value:
        case bool():
            return (False,) if value else ()
        case int():
            return tuple(dict.fromkeys(n for n in (0, 1, -value, value // 2, value - 1) if abs(n) <= abs(value)))
        case float():
            return (0.0, 1.0, 2.0)
        case complex():
            return (1, 2, 1j, 1.0 + 0j, 2j, complex(value.real, 0), complex(0, value.imag))
        case str():
            return ()
        case _:
            return ()
