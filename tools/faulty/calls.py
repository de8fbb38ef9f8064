"""Faults that a later call shows: a key that leaves something out, state that calls share."""

from typing import Any

import torch

from aotcheck._torch import version_of
from aotcheck.oracle import OracleKind as K
from aotcheck.program.running.memory import fits
from tools.faulty.fault import Function, fault, history, replaced, same_storage, shares, tensors

AREA = "calls"


def sharing(args: Any) -> tuple[int, ...]:
    """For each tensor among the arguments the first that has its storage."""
    given = list(tensors(args))
    return tuple(next(i for i, u in enumerate(given) if same_storage(t, u)) for t in given)


@fault(AREA, K.VALUES, K.IDENTITY, K.ALIASING)
def aliasing_is_not_in_the_key(fn: Function) -> Function:
    """If arguments alias otherwise than in the first call, the call runs on copies and writes them back at the end."""
    first: list[tuple[int, ...]] = []

    def compiled(*args: Any) -> Any:
        first.append(sharing(args))
        given = list(tensors(args))
        if first[-1] == first[0] or any(t.requires_grad or t.is_inference() or not fits(t) for t in given):
            return fn(*args)
        copies = {id(t): t.clone() for t in given}
        result = fn(*replaced(args, lambda leaf: copies.get(id(leaf), leaf)))
        for t in given:
            if copies[id(t)].shape == t.shape and copies[id(t)].dtype == t.dtype and fits(copies[id(t)]):
                t.copy_(copies[id(t)])
        return result

    return compiled


@fault(AREA, K.REQUIRES_GRAD, K.LEAFNESS, K.GRAD_FN)
def requires_grad_is_not_in_the_key(fn: Function) -> Function:
    """If no argument of the first call requires grad, later calls build no graph."""
    first: list[bool] = []

    def compiled(*args: Any) -> Any:
        first.append(any(t.requires_grad for t in tensors(args)))
        if first[0] or torch.is_inference_mode_enabled():
            return fn(*args)
        with torch.no_grad():
            return fn(*args)

    return compiled


@fault(AREA, K.REQUIRES_GRAD, K.LEAFNESS, K.GRAD_FN, K.EXCEPTION)
def grad_mode_is_not_in_the_key(fn: Function) -> Function:
    """Every call runs in the grad mode of the first call."""
    first: list[bool] = []

    def compiled(*args: Any) -> Any:
        first.append(torch.is_grad_enabled())
        if torch.is_inference_mode_enabled():
            return fn(*args)
        with torch.set_grad_enabled(first[0]):
            return fn(*args)

    return compiled


@fault(AREA, K.SHAPE)
def shape_is_not_in_the_key(fn: Function) -> Function:
    """Fresh outputs of a later call are cut to the sizes that they had in the first call."""
    first: list[list[torch.Size]] = []

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        found, given = list(tensors(result)), list(tensors(args))
        first.append([t.shape for t in found])
        sizes = dict(zip(map(id, found), first[0], strict=False))

        def cut(leaf: Any) -> Any:
            size = sizes.get(id(leaf))
            if size is None or leaf.shape == size or leaf.dim() != len(size) or shares(leaf, given):
                return leaf
            for d, n in enumerate(size):
                leaf = leaf.narrow(d, 0, min(n, leaf.shape[d]))
            return leaf.clone()

        return replaced(result, cut)

    return compiled


@fault(AREA, K.STRIDE)
def strides_are_not_in_the_key(fn: Function) -> Function:
    """A fresh output of a later call has the strides that it had in the first call."""
    first: list[list[tuple[torch.Size, tuple[int, ...]]]] = []

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        found, given = list(tensors(result)), list(tensors(args))
        first.append([(t.shape, t.stride()) for t in found])
        known = dict(zip(map(id, found), first[0], strict=False))

        def laid_out(leaf: Any) -> Any:
            shape, stride = known.get(id(leaf), (None, ()))
            if shape is None or leaf.shape != shape or leaf.stride() == stride or shares(leaf, given) or not fits(leaf):
                return leaf
            return torch.empty_strided(shape, stride, dtype=leaf.dtype).copy_(leaf)

        return replaced(result, laid_out)

    return compiled


@fault(AREA, K.VALUES)
def values_are_not_read_again(fn: Function) -> Function:
    """If shapes, strides and dtypes are the first call's, outputs that require no grad have its values too."""
    first: list[tuple[Any, list[torch.Tensor]]] = []

    def compiled(*args: Any) -> Any:
        given = list(tensors(args))
        key = [(t.shape, t.stride(), t.dtype, t.requires_grad) for t in given], sharing(args)
        result = fn(*args)
        found = list(tensors(result))
        first.append((key, [t.detach().clone() for t in found if fits(t)]))
        if len(first) > 1 and key == first[0][0] and len(first[0][1]) == len(found):
            for t, old in zip(found, first[0][1], strict=True):
                if not t.requires_grad and not t.is_inference() and fits(t) and not shares(t, given):
                    t.copy_(old)
        return result

    return compiled


@fault(AREA, K.VALUES)
def calls_share_what_they_save(fn: Function) -> Function:
    """A call overwrites the tensors that an earlier call saved for its backward."""
    slots: dict[int, torch.Tensor] = {}

    def compiled(*args: Any) -> Any:
        count: list[int] = []

        def pack(t: torch.Tensor) -> Any:
            count.append(1)
            slots[len(count)] = t
            return len(count), t, version_of(t)

        def unpack(packed: Any) -> torch.Tensor:
            place, own, version = packed
            if version != version_of(own):
                raise RuntimeError("modified by an inplace operation")
            other = slots[place]
            return other if (other.shape, other.dtype) == (own.shape, own.dtype) else own

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return fn(*args)

    return compiled


@fault(AREA, K.REQUIRES_GRAD)
def second_call_detaches(fn: Function) -> Function:
    """Fresh outputs of all calls but the first have no history."""
    count: list[int] = []

    def compiled(*args: Any) -> Any:
        count.append(1)
        result = fn(*args)
        given = list(tensors(args))
        if len(count) < 2:
            return result

        def cut(leaf: Any) -> Any:
            has = isinstance(leaf, torch.Tensor) and history(leaf) is not None and not shares(leaf, given)
            return leaf.detach() if has else leaf

        return replaced(result, cut)

    return compiled
