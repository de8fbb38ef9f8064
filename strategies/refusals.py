"""Statements that eager refuses, drawn on purpose: the compiled path must refuse them too."""

from collections.abc import Callable

import torch

from aotcheck.program import DType, Expr, Literal, OpCall, Ref, TupleExpr

from .chooser import Chooser
from .state import Outcome, State

__all__ = ["draw_refusal"]


def _size(*sizes: int) -> Expr:
    return TupleExpr(tuple(Literal(n) for n in sizes))


def _cast(t: torch.Tensor) -> str:
    """A dtype that ``t`` does not have, and that no product with it is promoted to."""
    return "float64" if t.dtype != torch.float64 else "float32"


def _floating(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.numel() > 0


def _no_probability(t: torch.Tensor) -> bool:
    return _floating(t) and bool((t.detach() < 0).any())


_RECIPES: tuple[tuple[str, tuple[Expr, ...], Callable[[torch.Tensor], bool]], ...] = (
    ("Tensor.mul_", (Literal(2),), lambda t: t.is_leaf and t.requires_grad),
    ("Tensor.zero_", (), lambda t: t.is_leaf and t.requires_grad),
    ("Tensor.add_", (Literal(1.5),), lambda t: not (t.is_floating_point() or t.is_complex())),
    ("Tensor.copy_", (Ref("v_odd"),), lambda t: True),
    ("torch.mm", (Ref("v_odd"),), lambda t: t.dim() == 2),
    ("Tensor.add_", (Ref("v_odd"),), lambda t: t.dtype != torch.bool),
    ("torch.add", (Ref("v_odd"),), lambda t: t.dim() > 0 and t.shape[-1] not in (1, 7)),
    ("Tensor.view", (_size(7, 5),), lambda t: True),
    ("Tensor.view", (_size(-1),), lambda t: t.dim() > 1 and not t.is_contiguous()),
    ("Tensor.add_", (Literal(1),), lambda t: 0 in t.stride() and t.numel() > 1),
    ("Tensor.detach_", (), lambda t: t.requires_grad),
    ("Tensor.t_", (), lambda t: t.dim() > 2),
    ("Tensor.narrow", (Literal(0), Literal(0), Literal(9)), lambda t: True),
    ("Tensor.transpose", (Literal(0), Literal(7)), lambda t: True),
    ("Tensor.as_strided", (_size(99), _size(5)), lambda t: True),
    ("Tensor.resize_", (_size(2),), lambda t: t.requires_grad and t.numel() > 2),
    ("Tensor.squeeze_", (Literal(5),), lambda t: True),
    ("Tensor.view", (DType("complex128"),), lambda t: t.dtype == torch.uint8),
    ("Tensor.expand", (_size(5, 5, 5),), lambda t: t.dim() > 0),
    ("Tensor.requires_grad_", (), lambda t: not (t.is_floating_point() or t.is_complex())),
    ("torch.nn.functional.linear", (Ref("v_cast"),), lambda t: t.dim() == 2 and t.numel() > 0),
    ("torch.lerp", (Ref("v_cast"), Literal(0.5)), _floating),
    ("torch.dot", (Ref("v_cast"),), lambda t: t.dim() == 1),
    ("torch.bernoulli", (), _no_probability),
    ("torch.multinomial", (Literal(1),), lambda t: t.dim() == 1 and _no_probability(t)),
    ("torch.nn.functional.dropout", (Literal(1.5),), lambda t: t.is_floating_point()),
    ("torch.nn.functional.binary_cross_entropy", (Ref("v_cast"),), _no_probability),
    ("torch.linalg.cholesky", (), lambda t: t.dim() == 2 and _no_probability(t)),
)


def _safely(fits: Callable[[torch.Tensor], bool], t: torch.Tensor) -> bool:
    try:
        return fits(t)
    except Exception:  # a view made in no_grad mode whose base was written with grad enabled refuses to say
        return False


def draw_refusal(choose: Chooser, state: State) -> None:
    """Add one statement that eager refuses, and now and then one behind it, which is never reached."""
    for _ in range(6):
        path, args, fits = choose.one(_RECIPES)
        names = [name for name, t in state.tensors() if _safely(fits, t)]
        if not names:
            continue
        last = Ref(choose.one(names))
        if Ref("v_cast") in args:
            cast = state.fresh()
            if state.attempt(OpCall(cast, "Tensor.to", (last, DType(_cast(state.env[last.name]))))) is not Outcome.DONE:
                continue
            args = tuple(Ref(cast) if a == Ref("v_cast") else a for a in args)
        if Ref("v_odd") in args:
            odd = state.fresh()
            size = (Literal(7),) if path != "torch.mm" else (Literal(7), Literal(7))
            made = OpCall(odd, "torch.ones", (TupleExpr(size),), (("device", state.device()),))
            if state.attempt(made) is not Outcome.DONE:
                continue
            args = tuple(Ref(odd) if a == Ref("v_odd") else a for a in args)
        if state.attempt(OpCall(None, path, (last, *args)), keep_refused=True) is Outcome.REFUSED and state.refused:
            if choose.chance(25) and state.selection.allows("torch.neg"):
                state.body.append(OpCall(None, "torch.neg", (last,)))
            return
