"""Where a tensor lies in its storage, and what else there is to know of it but its data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.size import Size, at_least, by_size, contiguous_strides, is_contiguous, is_static, same, term


class Geometry(NamedTuple):
    """Where a tensor lies in its storage; offset and stride count elements of ``dtype``.

    ``conj`` and ``neg`` are the lazy bits: what is read is the conjugate or the negative of what lies there.
    """

    offset: Size
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    conj: bool
    neg: bool

    @property
    def is_empty(self) -> bool:
        """Whether it has no elements."""
        return 0 in self.shape

    @property
    def numel(self) -> Size:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether it is row-major without gaps."""
        return is_contiguous(self.shape, self.stride)

    @property
    def may_overlap_itself(self) -> bool:
        """Whether two elements may lie at one address. True where the strides alone do not exclude it."""
        if self.is_empty or self.dense_order is not None:
            return False
        reach: Any = 0
        pairs = [(s, n) for n, s in zip(self.shape, self.stride, strict=True) if n != 1]
        for stride, size in sorted(pairs, key=lambda pair: by_size(pair[0])):
            if not at_least(stride, reach + 1):
                return True
            reach = reach + stride * (size - 1)
        return False

    @property
    def dense_order(self) -> list[int] | None:
        """The dimensions from outermost to innermost if the tensor fills its memory without gaps, else None."""
        if self.is_contiguous:
            return list(range(len(self.shape)))
        left = [d for d in range(len(self.shape)) if self.shape[d] != 1]
        order: list[int] = []
        expected: Any = 1
        while left:
            inner = next((d for d in left if same(self.stride[d], expected)), None)
            if inner is None:
                return None
            left.remove(inner)
            order.insert(0, inner)
            expected = expected * self.shape[inner]
        return [d for d in range(len(self.shape)) if self.shape[d] == 1] + order

    @property
    def end(self) -> Size:
        """How many elements the storage must have to hold it, its offset included."""
        if self.is_empty:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    def mapped(self, f: Callable[[Size], Size]) -> Geometry:
        """One like it, whose terms are what ``f`` gives for its terms."""
        return self._replace(offset=f(self.offset), shape=tuple(map(f, self.shape)), stride=tuple(map(f, self.stride)))

    def is_beyond(self, nbytes: Size) -> bool:
        """Whether it ends after so many bytes. False where nothing tells."""
        return not self.is_empty and at_least(self.end * self.dtype.itemsize, nbytes + 1)

    def __str__(self) -> str:
        shape, stride = ", ".join(map(str, self.shape)), ", ".join(map(str, self.stride))
        said = f"{str(self.dtype).removeprefix('torch.')}[{shape}]"
        said += "" if self.is_contiguous else f" stride ({stride})"
        said += "" if same(self.offset, 0) else f" offset {self.offset}"
        return said + (" conj" if self.conj else "") + (" neg" if self.neg else "")


class TensorMeta(NamedTuple):
    """What is known of a tensor but its data."""

    geometry: Geometry
    device: torch.device
    requires_grad: bool
    is_leaf: bool
    is_inference: bool

    def __str__(self) -> str:
        autograd = ["requires grad"] if self.requires_grad else []
        autograd += [] if self.is_leaf else ["with a grad_fn"]
        return ", ".join([f"{self.geometry} on {self.device}", *autograd])


def is_leaf(t: Tensor) -> bool | None:
    """Whether ``t`` is a leaf; None where autograd cannot say: of a no_grad view whose base was written since."""
    try:
        return t.is_leaf
    except (RuntimeError, IndexError):
        return None


def geometry_of(t: Tensor) -> Geometry:
    """The geometry of a strided tensor, real or replica, in terms."""
    dtype = t.dtype
    shape, stride, offset = tuple(t.shape), t.stride(), t.storage_offset()
    if _torch.has_symbols(t):
        shape, stride, offset = tuple(map(term, shape)), tuple(map(term, stride)), term(offset)
    return Geometry(offset, shape, stride, dtype, dtype.is_complex and t.is_conj(), t.is_neg())


def row_major(shape: tuple[Size, ...], dtype: torch.dtype) -> Geometry:
    """A tensor at the beginning of its storage, row by row."""
    return Geometry(0, tuple(shape), contiguous_strides(shape), dtype, False, False)


def same_strides(a: Geometry, b: Geometry) -> bool:
    """Whether two geometries of one shape have the same strides where these say anything."""
    return all(n == 1 or same(s, t) for n, s, t in zip(b.shape, a.stride, b.stride, strict=True)) or 0 in b.shape


def disjoint(a: Geometry, b: Geometry) -> bool:
    """Whether two geometries on one storage are known to share no address."""
    if a.is_empty or b.is_empty:
        return True
    if any(at_least(y.offset * y.dtype.itemsize, x.end * x.dtype.itemsize) for x, y in ((a, b), (b, a))):
        return True
    pairs = [(s, n) for g in (a, b) for n, s in zip(g.shape, g.stride, strict=True) if n != 1]
    if a.dtype.itemsize != b.dtype.itemsize or not is_static([a.offset, b.offset, *(s for s, _ in pairs)]):
        return False
    # As in the columns of a matrix: each address as digits, one for each stride; some digit of theirs never agrees.
    strides = sorted({s for s, _ in pairs}, reverse=True)
    if not strides or 0 in strides or any(s % t for s, t in itertools.pairwise(strides)):
        return False
    digits = [_digits(g, strides) for g in (a, b)]
    if digits[0] is None or digits[1] is None:
        return False
    both = reversed(list(zip(*digits, strict=True)))
    return any(at_least(y[0], x[1]) or at_least(x[0], y[1]) for x, y in both)


def _digits(g: Geometry, strides: Sequence[int]) -> list[tuple[Size, Size]] | None:
    """For each stride where its digit in the addresses of ``g`` begins and ends; None if it runs over into the next."""
    sizes = dict.fromkeys(strides, 1)
    for n, s in zip(g.shape, g.stride, strict=True):
        if n != 1:
            if sizes[s] != 1:
                return None
            sizes[s] = n
    left, spans = g.offset, []
    for k, s in enumerate(strides):
        first, left = divmod(left, s)
        if k and not at_least(strides[k - 1] // s, first + sizes[s]):
            return None
        spans.append((first, first + sizes[s]))
    spans.append((left, left + 1))
    return spans
