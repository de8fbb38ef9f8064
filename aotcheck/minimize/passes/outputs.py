"""A pass over what the function returns."""

from collections.abc import Iterator
from dataclasses import replace

from aotcheck.minimize.edit import leaves
from aotcheck.program import (
    Backward,
    DictExpr,
    Expr,
    Hook,
    ListExpr,
    Literal,
    Of,
    Probe,
    Program,
    Ref,
    Site,
    Step,
    TupleExpr,
)

__all__ = ["delete_outputs", "returning"]


def delete_outputs(program: Program) -> Iterator[Program]:
    """Nothing returned; one thing alone; one thing less; a plainer container."""
    for outputs, kept in _fewer(program.outputs):
        yield returning(program, outputs, kept)
        if program.calls != (same := replace(program, outputs=outputs)).calls or _has_plan(program):
            yield same


def _has_plan(program: Program) -> bool:
    return any(call.steps or call.before for call in program.calls)


def _fewer(outputs: Expr) -> Iterator[tuple[Expr, list[int]]]:
    """Simpler pytrees, each with the numbers of the leaves of ``outputs`` that it keeps."""
    if outputs != Literal(None):
        yield Literal(None), []
    found = list(leaves(outputs))
    if found != [outputs]:
        for index, leaf in enumerate(found):
            yield leaf, [index]
        yield TupleExpr(tuple(found)), list(range(len(found)))
    for index in range(len(found)):
        if len(found) > 1:
            left = _without_leaf(outputs, index)
            if left is not None:
                yield left, [i for i in range(len(found)) if i != index]
    for index, leaf in enumerate(found):
        if isinstance(leaf, Literal) and leaf != Literal(None):
            yield _with_leaf(outputs, index, Literal(None)), list(range(len(found)))
    plainer = _plainer(outputs)
    if plainer != outputs:
        yield plainer, list(range(len(found)))


def _without_leaf(expr: Expr, index: int) -> Expr | None:
    """``expr`` without its leaf number ``index``, and without containers that it leaves empty."""
    match expr:
        case TupleExpr(items) | ListExpr(items):
            kept = []
            for item in items:
                count = sum(1 for _ in leaves(item))
                left = _without_leaf(item, index) if 0 <= index < count else item
                index -= count
                if left is not None:
                    kept.append(left)
            return type(expr)(tuple(kept)) if kept else None
        case DictExpr(pairs):
            inner = _without_leaf(TupleExpr(tuple(item for _, item in pairs)), index)
            if not isinstance(inner, TupleExpr) or len(inner.items) < len(pairs):
                return inner
            return DictExpr(tuple((key, item) for (key, _), item in zip(pairs, inner.items, strict=True)))
        case _:
            return None


def _with_leaf(expr: Expr, index: int, new: Expr) -> Expr:
    match expr:
        case TupleExpr(items) | ListExpr(items):
            made = []
            for item in items:
                count = sum(1 for _ in leaves(item))
                made.append(_with_leaf(item, index, new) if 0 <= index < count else item)
                index -= count
            return type(expr)(tuple(made))
        case DictExpr(pairs):
            inner = _with_leaf(TupleExpr(tuple(item for _, item in pairs)), index, new)
            assert isinstance(inner, TupleExpr)
            return DictExpr(tuple((key, item) for (key, _), item in zip(pairs, inner.items, strict=True)))
        case _:
            return new


def _plainer(expr: Expr) -> Expr:
    match expr:
        case TupleExpr(items) | ListExpr(items):
            return TupleExpr(tuple(map(_plainer, items)))
        case DictExpr(pairs):
            return TupleExpr(tuple(_plainer(item) for _, item in pairs))
        case _:
            return expr


def returning(program: Program, outputs: Expr, kept: list[int]) -> Program:
    """``program`` with other outputs, of which the leaves ``kept`` are old ones, and its plan adjusted to them."""
    tensors = [i for i, leaf in enumerate(leaves(program.outputs)) if isinstance(leaf, Ref)]
    left = [i for i in kept if i in tensors]
    place = {tensors.index(old): new for new, old in enumerate(left)}

    def adjusted(steps: tuple[Step, ...]) -> Iterator[Step]:
        for step in steps:
            match step:
                case Backward(of=Of.OUTPUTS):
                    if left:
                        yield replace(step, roots=tuple(range(min(len(left), len(step.roots)))))
                case Probe(site=Site.OUTPUT) | Hook(site=Site.OUTPUT):
                    if step.index in place:
                        yield replace(step, index=place[step.index])
                case _:
                    yield step

    calls = (replace(c, steps=tuple(adjusted(c.steps)), before=tuple(adjusted(c.before))) for c in program.calls)
    return replace(program, outputs=outputs, calls=tuple(calls))
