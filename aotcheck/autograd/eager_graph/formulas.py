"""Formulas by which autograd differentiates that depend on data, which a trace has not.

Note [Formulas for data]
Eager differentiates ``prod`` by dividing its result by each factor, unless one of them is zero; then, and where there
are no data to look at, by multiplying the others. The two round otherwise, and only the former comes by the result in a
second derivative, or has one if there is but one factor. So a backward that comes by such an op first asks, of what is
saved, which formula it is to be, and there is a trace for each answer. The first trace, which says what is saved, takes
both, and lets the graph choose; so does that for a partition of the user's.

A backward inside the function is part of its graph. That is made for the formulas of division, and checks that data
ask for these; where they do not, there is a graph for the others, whichever they are: they are part of the call's key.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import has_packed
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.replicas.replicas import Replica

_DEPENDING = ("ProdBackward0", "ProdBackward1")


def depends_on_data(node: Any) -> bool:
    """Whether the formula by which ``node`` differentiates depends on data."""
    if node.name() not in _DEPENDING or has_packed(node):  # to unpack it may run the user's program again
        return False
    try:
        with _torch.meta_kernels():
            x = node._saved_self
    except RuntimeError:  # written since: its backward raises
        return False
    return type(x) in (Replica, Tensor) and not is_sparse(x) and x.dim() > 0


def question(node: Any) -> Tensor:
    """What says which formula ``node`` takes: that of division where it is true."""
    there: Tensor = (node._saved_self.to(node._saved_result.dtype) != 0).all()
    return there


def for_any_data(starts: Iterable[Any], answers: Mapping[Any, bool] | None) -> contextlib.AbstractContextManager[None]:
    """Inside, backwards from the nodes ``starts`` take the formula that the data ask for, known from ``answers``.

    None for ``answers`` says that there is nothing to ask.
    """
    return contextlib.nullcontext() if answers is None else _answering(starts, answers)


@contextlib.contextmanager
def _answering(starts: Iterable[Any], answers: Mapping[Any, bool]) -> Iterator[None]:
    nodes = [n for n in nodes_behind(starts, set()) if answers.get(n) is not False and depends_on_data(n)]
    hooks = [n.register_hook(functools.partial(_of_prod, n, n in answers)) for n in nodes]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def asking(starts: Iterable[Any], divides: Callable[[Tensor], bool]) -> Iterator[None]:
    """Inside, backwards from the nodes ``starts`` take the formulas that ``divides`` says, which is asked of each."""

    def choose(node: Any, found: tuple[Tensor | None, ...], given: tuple[Tensor | None, ...]) -> Any:
        if found[0] is None or not depends_on_data(node) or type(node._saved_self) is not Replica:
            return None
        if node._saved_self.real_device.type != "cpu":  # on other devices a check that fails ruins them
            return None
        with torch.no_grad():
            there = question(node)
        return _of_prod(node, True, found, given) if divides(there) else None

    hooks = [
        n.register_hook(functools.partial(choose, n)) for n in nodes_behind(starts, set()) if n.name() in _DEPENDING
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _of_prod(
    node: Any, divides: bool, found: tuple[Tensor | None, ...], given: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...] | None:
    """The gradient of what ``prod`` was given; ``found`` is the product of the others.

    Unless it is known that it ``divides``, a factor that is zero is taken for a one, for nothing that is not a number
    to come of what is not chosen.
    """
    (others,), (g,) = found, given
    if others is None or g is None:
        return None
    x, result = node._saved_self.to(g.dtype), node._saved_result
    if hasattr(node, "_saved_dim") and not node._saved_keepdim:
        dim = node._saved_dim % 2**64
        dim -= 2**64 if dim >= 2**63 else 0
        g, result = g.unsqueeze(dim), result.unsqueeze(dim)
    if divides:
        return ((g * (result / x).conj()).to(others.dtype),)
    there = x != 0
    divided = (g * (result / torch.where(there, x, 1)).conj()).to(others.dtype)
    return (torch.where(there.all(), divided, others),)
