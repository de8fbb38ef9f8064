"""Faults in what is returned: aliases, geometry, flags, containers."""

from typing import Any

import torch

from aotcheck.oracle import OracleKind as K
from tools.faulty.fault import Function, fault, history, on_results, same_storage, shares, tensors

AREA = "outputs"
Tensors = list[torch.Tensor]


@fault(AREA, K.ALIASING)
def alias_of_an_input_is_a_copy(fn: Function) -> Function:
    """An output that is a view of an input in eager is a copy."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        return t.clone() if not any(t is u for u in given) and shares(t, given) and t.numel() else t

    return on_results(change)(fn)


@fault(AREA, K.ALIASING)
def alias_of_an_output_is_a_copy(fn: Function) -> Function:
    """If two outputs share a storage in eager, the second one is a copy."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        fresh = not shares(t, given) and not any(t is u for u in before)
        return t.clone() if fresh and shares(t, before) and t.numel() else t

    return on_results(change)(fn)


@fault(AREA, K.IDENTITY)
def returned_input_is_another_object(fn: Function) -> Function:
    """An input that is returned is another tensor object on the same storage."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        return t.view_as(t) if any(t is u for u in given) else t

    return on_results(change)(fn)


@fault(AREA, K.IDENTITY)
def tensor_returned_twice_is_two(fn: Function) -> Function:
    """A tensor that is returned twice is two tensor objects."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        return t.view_as(t) if any(t is u for u in before) and not any(t is u for u in given) else t

    return on_results(change, each=True)(fn)


@fault(AREA, K.STORAGE_OFFSET)
def offset_is_lost(fn: Function) -> Function:
    """A view that is returned has storage offset 0."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        if t.requires_grad or not t.storage_offset() or any(t is u for u in given) or t.is_conj() or t.is_neg():
            return t
        return t.as_strided(t.shape, t.stride(), 0)

    return on_results(change)(fn)


@fault(AREA, K.STRIDE)
def strides_are_row_major(fn: Function) -> Function:
    """A fresh output is contiguous, whatever its strides are in eager."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        fresh = not shares(t, [*given, *before]) and not t.is_conj() and not t.is_neg()
        return t.contiguous() if fresh else t

    return on_results(change)(fn)


@fault(AREA, K.CONJ, K.ALIASING)
def conjugate_is_resolved(fn: Function) -> Function:
    """A lazily conjugated output is resolved: it has no conj bit."""
    return on_results(lambda t, given, before: t.resolve_conj() if t.is_conj() else t)(fn)


@fault(AREA, K.NEG, K.ALIASING)
def negative_is_resolved(fn: Function) -> Function:
    """A lazily negated output is resolved: it has no neg bit."""
    return on_results(lambda t, given, before: t.resolve_neg() if t.is_neg() else t)(fn)


@fault(AREA, K.REQUIRES_GRAD)
def no_grad_view_of_a_leaf_requires_no_grad(fn: Function) -> Function:
    """A view under no_grad of a leaf that requires grad does not require grad."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        windows = [u for u in given if u is not t and same_storage(t, u)]
        made_inside = not any(t is u for u in given) and windows
        return t.detach() if made_inside and t.requires_grad and history(t) is None else t

    return on_results(change)(fn)


@fault(AREA, K.REQUIRES_GRAD)
def all_outputs_require_grad(fn: Function) -> Function:
    """If one output requires grad, all fresh floating and complex outputs do."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        found, given = list(tensors(result)), list(tensors(args))
        if any(history(t) is not None for t in found):
            for t in found:
                differentiable = t.is_floating_point() or t.is_complex()
                if differentiable and not t.requires_grad and not t.is_inference() and not shares(t, given):
                    t.requires_grad_()
        return result

    return compiled


@fault(AREA, K.REQUIRES_GRAD)
def detached_alias_has_a_history(fn: Function) -> Function:
    """A detached alias of an input is a differentiable view of the input."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        for u in given:
            alike = same_storage(t, u) and (t.shape, t.stride(), t.dtype) == (u.shape, u.stride(), u.dtype)
            if alike and t.storage_offset() == u.storage_offset() and u.requires_grad and not t.requires_grad:
                return u.view_as(u) if torch.is_grad_enabled() and not t.is_inference() else t
        return t

    return on_results(change)(fn)


@fault(AREA, K.DTYPE)
def bool_is_a_byte(fn: Function) -> Function:
    """A fresh bool output has dtype uint8."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        return t.view(torch.uint8) if t.dtype is torch.bool and not shares(t, given) else t

    return on_results(change)(fn)


@fault(AREA, K.SHAPE)
def scalar_has_a_dimension(fn: Function) -> Function:
    """A fresh 0-dim output has one dimension."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        return t.unsqueeze(0) if not t.dim() and not shares(t, [*given, *before]) else t

    return on_results(change)(fn)


@fault(AREA, K.SHAPE)
def empty_output_is_flat(fn: Function) -> Function:
    """An output without elements has shape (0,)."""
    return on_results(lambda t, given, before: t.flatten() if not t.numel() and t.dim() > 1 else t)(fn)


@fault(AREA, K.INFERENCE)
def inference_tensor_is_an_ordinary_one(fn: Function) -> Function:
    """A fresh output made in inference mode is an ordinary tensor."""

    def change(t: torch.Tensor, given: Tensors, before: Tensors) -> torch.Tensor:
        if not t.is_inference() or shares(t, [*given, *before]):
            return t
        with torch.inference_mode(False):
            return t.clone()

    return on_results(change)(fn)


@fault(AREA, K.STRUCTURE)
def list_is_a_tuple(fn: Function) -> Function:
    """A list in the result is a tuple."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        if isinstance(result, tuple):
            return tuple(tuple(item) if isinstance(item, list) else item for item in result)
        return tuple(result) if isinstance(result, list) else result

    return compiled


@fault(AREA, K.STRUCTURE)
def container_of_the_caller_is_copied(fn: Function) -> Function:
    """An argument that is a list or dict and is returned is a copy."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        given = {id(a) for a in args if isinstance(a, list | dict)}

        def copied(value: Any) -> Any:
            return type(value)(value) if id(value) in given else value

        return tuple(map(copied, result)) if isinstance(result, tuple) else copied(result)

    return compiled


@fault(AREA, K.STRUCTURE)
def write_to_a_container_is_lost(fn: Function) -> Function:
    """The function changes copies of the lists and dicts among its arguments."""
    return lambda *args: fn(*(type(a)(a) if isinstance(a, list | dict) else a for a in args))


@fault(AREA, K.STRUCTURE)
def constant_is_lost(fn: Function) -> Function:
    """A number or string in a tuple of results is None."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        plain = (int, float, str)
        return tuple(None if isinstance(r, plain) else r for r in result) if isinstance(result, tuple) else result

    return compiled
