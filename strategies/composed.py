"""Arguments that an op of linear algebra, of a network or of indexing needs: made by statements before it."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from aotcheck.program import DType, Expr, ListExpr, Literal, Ref, SliceExpr, TupleExpr, evaluate
from aotcheck.program.running.memory import size_of

from .exprs import dtype_expr, ints, literal
from .kinds import Arguments, Impossible

__all__ = [
    "causal",
    "chain",
    "columns",
    "image",
    "in_order",
    "part",
    "places",
    "positive",
    "sequence",
    "spectrum",
    "target",
    "tokens",
    "transposed_weight",
]


def _becomes_first(a: Arguments, made: Expr) -> Expr:
    a.self_ = evaluate(made, a.state.env)
    return made


def positive(a: Arguments) -> Expr:
    """A matrix times its conjugate transpose, plus ones on the diagonal."""
    matrix = a.first()
    if not a.shape()[-2]:
        raise Impossible
    product = a.made("torch.matmul", matrix, a.made("Tensor.mH", matrix))
    ones = a.made("torch.eye", Literal(a.shape()[-2]), device=a.state.device())
    return _becomes_first(a, a.made("torch.add", product, ones))


def image(a: Arguments) -> Expr:
    """A tensor of four dimensions, the last two of which hold more than one pixel each."""
    name, t = a.pick(lambda t: 2 <= t.dim() <= 4 and min(t.shape[-2:]) >= 2 and a.op.dtypes.accepts(t.dtype))
    missing = (Literal(None),) * (4 - t.dim())
    if not missing:
        return _becomes_first(a, Ref(name))
    return _becomes_first(a, a.made("getitem", Ref(name), missing[0] if len(missing) == 1 else TupleExpr(missing)))


def columns(a: Arguments) -> Expr:
    """The windows of an image, two pixels tall and wide, as columns."""
    made = image(a)
    a.size = a.shape()[-2:]
    return _becomes_first(a, a.made("torch.nn.functional.unfold", made, Literal(2)))


def sequence(a: Arguments) -> Expr:
    """A tensor with several positions, so that a mask hides some of them from others."""
    low, high = a.op.ndim

    def fits(t: torch.Tensor) -> bool:
        return low <= t.dim() <= high and t.shape[-2] > 1 and a.op.dtypes.accepts(t.dtype)

    return _becomes_first(a, Ref(a.pick(fits, chained=a.state.selection.usual)[0]))


def spectrum(a: Arguments) -> Expr:
    """The spectra of a tensor's windows, which are two numbers long."""
    options = {"hop_length": Literal(1), "return_complex": Literal(True)}
    return _becomes_first(a, a.made("torch.stft", a.first(), Literal(2), **options))


def chain(a: Arguments) -> Expr:
    """Two or three matrices, each as tall as the one before is wide."""
    matrices, last = [a.first()], a.shape()[-1]
    for _ in range(a.choose.between(1, 2)):
        width = a.choose.between(1, 3)
        matrices.append(a.tensor_of((last, width)))
        last = width
    return ListExpr(tuple(matrices))


def target(a: Arguments) -> Expr:
    """A class for each row, or for the only one."""
    shape = a.shape()
    rows, classes = ((shape[0], *shape[2:]), shape[1]) if len(shape) > 1 else ((), shape[0])
    if not classes or not prod(rows):
        raise Impossible
    step, shift = a.choose.between(0, 1), a.choose.below(classes)
    return a.index(((torch.arange(prod(rows)) * step + shift) % classes).view(rows).tolist())


def tokens(a: Arguments) -> Expr:
    """Two rows of two."""
    return a.index([[a.choose.below(2), a.choose.below(2)], [1, 0]])


def in_order(a: Arguments) -> Expr:
    """Two or three numbers."""
    numbers = literal(a.choose.one(([0, 1], [-1, 0, 2], [1, 1])))
    return a.made("torch.tensor", numbers, dtype=dtype_expr(a.self_.dtype), device=a.state.device())


def causal(a: Arguments) -> Expr:
    """Which positions each position may attend to."""
    n = a.shape()[-2]
    return a.made("torch.tril", a.made("torch.ones", ints((n, n)), dtype=DType("bool"), device=a.state.device()))


_VIEWS: Mapping[str, Callable[..., torch.Tensor]] = {
    "torch.select_scatter": torch.select,
    "torch.slice_scatter": torch.ops.aten.slice,
    "torch.diagonal_scatter": torch.diagonal,
    "torch.as_strided_scatter": torch.as_strided,
}
"""The view that a scatter writes."""


def part(a: Arguments) -> Expr:
    """A tensor of the size of the view."""
    named: dict[str, Any] = {keyword: evaluate(expr, a.state.env) for keyword, expr in a.named}
    with torch.no_grad():
        return a.tensor_of(size_of(_VIEWS[a.op.path](a.self_.detach(), **named)))


def places(a: Arguments) -> Expr:
    """An index tensor; one for the second dimension; or a pair, of one place each."""
    if len(a.shape()) > 1 and a.choose.chance(50):
        a.dim = a.choose.between(0, 1)
        if a.dim:
            return TupleExpr((SliceExpr(), a.one_index()))
        rows, columns = a.one_index(), a.shape()[1]
        if not columns:
            raise Impossible
        return TupleExpr((rows, a.index([i % columns for i in range(a.length)])))
    return a.one_index()


def transposed_weight(a: Arguments) -> Expr:
    """A weight of a transposed convolution."""
    return a.tensor_of((a.shape()[1], a.choose.between(1, 2), *(a.choose.between(1, 2),) * 2))
