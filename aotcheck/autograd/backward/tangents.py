"""What a backward is given: the gradients it expects, and those that it is given instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck.autograd.ir.sparse_geometry import SparseGeometry, is_sparse, sparse_geometry_of
from aotcheck.autograd.ir.trace import PLACEHOLDER, Geometry, Value, geometry_of
from aotcheck.autograd.replicas.sparse import SparseReplica
from aotcheck.autograd.tensors.subclasses import Bundle, Wrapping, is_jagged, is_wrapper, leaves_of, wrapping_of
from aotcheck.autograd.tracing.arriving_zeros import WithoutMemory

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture
    from aotcheck.autograd.record.record import Attached


def tangent_geometry(g: Geometry) -> Geometry:
    """The layout in which a backward expects the gradient of an output: the output's own if dense, else row-major."""
    if 0 in g.shape or g.dense_order is None:
        stride: list[int] = []
        step = 1
        for n in reversed(g.shape):
            stride.insert(0, step)
            step *= max(n, 1)
        return Geometry(0, g.shape, tuple(stride), g.dtype, False, False)
    return Geometry(0, g.shape, g.stride, g.dtype, False, False)


Key = tuple[Any, ...]  # which tensors have tangents, each by its place; with what the tangent is like where that is odd
# For each tensor of a stage whether its tangent requires grad; None of a backward that has no graph of its own.
Trained = tuple[bool, ...] | None
Tangent = Value | Bundle | WithoutMemory
Gradient = Value | Bundle | None


@dataclasses.dataclass(frozen=True)
class InTangent:
    """What a gradient holds of a tangent: leaf ``leaf`` of the one with place ``place``."""

    place: int
    leaf: int


def placeholder(g: Geometry | SparseGeometry, device: torch.device) -> Value:
    """An input of a backward for a result that lies so."""
    t = Value(PLACEHOLDER, (), {})
    t.device = device
    if isinstance(g, SparseGeometry):
        t.sparse = g
    else:
        t.geometry = tangent_geometry(g)
    return t


def tangents_of(capture: Capture, attached: Sequence[Attached]) -> list[Tangent]:
    """Inputs of a backward for each of ``attached``."""
    tangents: list[Tangent] = []
    for a in attached:
        if isinstance(a.tensor, SparseReplica):
            tangents.append(placeholder(a.tensor.geometry, a.device))
            continue
        if not is_wrapper(a.tensor):
            tangents.append(placeholder(a.recorded or geometry_of(a.tensor), a.device))
            continue
        with capture.tracer.recording(), torch.no_grad():
            like: Any = a.tensor.detach()
            hook = getattr(like, "__coerce_tangent_metadata__", None)
            like = hook() if hook is not None else like
        wrapping = wrapping_of(like)
        if wrapping is None:
            tangents.append(placeholder(geometry_of(like), a.device))
        else:
            tangents.append(bundle(wrapping, leaves_of(like), is_jagged(like)))
    for number, t in enumerate(inputs_of(tangents)):
        t.name = f"tangents_{number + 1}"
    return tangents


def laziness(t: Any) -> tuple[bool, bool]:
    """Whether the conjugation and the negation of ``t``, a tensor or a value, are still to be done."""
    g = t.geometry if type(t) is Value else geometry_of(t)
    return g is not None and g.conj, g is not None and g.neg


def _as_it_lies(t: Tensor) -> Value:
    """An input of a backward for what a wrapper holds; the wrapper's class may care whether it is lazy."""
    found, (conj, neg) = placeholder(geometry_of(t), t.device), laziness(t)
    found.geometry = tangent_geometry(geometry_of(t))._replace(conj=conj, neg=neg)
    return found


def bundle(wrapping: Wrapping, leaves: Sequence[Tensor], jagged: bool) -> Bundle:
    """A tangent that is a wrapper like this; what says how ragged it is, it has in common with its result."""
    found = [x if jagged and k else _as_it_lies(x) for k, x in enumerate(leaves)]
    sizes, strides, _ = wrapping.outer
    if all(type(n) is int for n in (*sizes, *strides)):
        dense = tangent_geometry(Geometry(0, sizes, strides, torch.float32, False, False))
        wrapping = dataclasses.replace(wrapping, outer=(sizes, dense.stride, 0))
    return Bundle(dataclasses.replace(wrapping, is_parameter=False), tuple(found))


def inputs_of(tangents: Iterable[Tangent]) -> list[Value]:
    """The inputs of a backward's graph that these tangents are."""
    return [x for t in tangents for x in (t.leaves if isinstance(t, Bundle) else (t,)) if type(x) is Value]


def values_of(gradients: Iterable[Gradient]) -> list[Value | None]:
    """The values of the trace that these gradients are made of."""
    return [
        x for g in gradients for x in (g.leaves if isinstance(g, Bundle) else (g,)) if x is None or type(x) is Value
    ]


def wrapping_without_grad(t: Tensor) -> Wrapping | None:
    """How the tangent ``t`` is made; that it requires grad, which some contexts say, does not matter."""
    return wrapping_of(t.detach() if is_wrapper(t) and t.requires_grad else t)


def place_of(part: Any) -> int:
    """The place of the tensor for which a part of a key stands."""
    place: int = part if type(part) is int else part[0]
    return place


def fits(found: Wrapping | None, wanted: Wrapping | None) -> bool:
    """Whether a tangent like ``found`` can be taken apart as one like ``wanted``."""
    if found is None or wanted is None:
        return found is wanted
    return found.key == wanted.key


def described(t: Tensor) -> str:
    """What kind of tensor ``t`` is, for messages."""
    wrapping = wrapping_of(t)
    if wrapping is None and is_sparse(t):
        return f"sparse Tensor({sparse_geometry_of(t)})"
    return "Tensor" if wrapping is None else f"{wrapping.kind.__name__}({wrapping.context!r})"
