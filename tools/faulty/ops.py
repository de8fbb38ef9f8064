"""Faults of single ops, seen where the function calls them."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aotcheck.oracle import OracleKind as K
from aotcheck.program.running.memory import fits
from tools.faulty.fault import Compile, Function, fault, same_storage

AREA = "ops"

Call = Callable[..., Any]
Change = Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]


class Calling(TorchFunctionMode):
    """Hands the calls of some functions to others."""

    def __init__(self, changes: dict[Any, Change]) -> None:
        super().__init__()
        self.changes = changes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        change = self.changes.get(func)
        return change(func, args, kwargs or {}) if change is not None else func(*args, **(kwargs or {}))


def instead(*functions: Any) -> Callable[[Change], Compile]:
    """A backend that calls something else instead of these functions."""

    def of(change: Change) -> Compile:
        changes = dict.fromkeys(functions, change)

        def compile_function(fn: Function) -> Function:
            def compiled(*args: Any) -> Any:
                with Calling(changes):
                    return fn(*args)

            return compiled

        return compile_function

    return of


T = torch.Tensor


@fault(AREA, K.REQUIRES_GRAD, K.EXCEPTION)
def detach_in_place_is_ignored(fn: Function) -> Function:
    """``detach_`` does nothing."""
    return instead(T.detach_)(lambda f, args, kwargs: args[0])(fn)


@fault(AREA, K.REQUIRES_GRAD, K.EXCEPTION)
def requires_grad_in_place_is_ignored(fn: Function) -> Function:
    """``requires_grad_`` inside the function does nothing."""
    return instead(T.requires_grad_)(lambda f, args, kwargs: args[0])(fn)


@fault(AREA, K.ALIASING, K.VALUES)
def data_is_copied(fn: Function) -> Function:
    """``x.data = y`` gives x a copy of y."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return f(args[0], args[1].detach().clone() if fits(args[1]) and not args[1].is_inference() else args[1])

    return instead(T.data.__set__)(change)(fn)  # type: ignore[attr-defined]


@fault(AREA, K.STORAGE_OFFSET, K.VALUES)
def window_counts_from_the_view(fn: Function) -> Function:
    """``as_strided`` counts its offset from the start of the view, not from the start of the storage."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made = f(*args, **kwargs)
        start = args[0].storage_offset() if len(args) == 4 else 0
        shifted = (*args[:3], args[3] + start) if start else args
        last = shifted[-1] + sum((n - 1) * s for n, s in zip(args[1], args[2], strict=True)) if start else 0
        room = made.untyped_storage().nbytes() // made.itemsize
        return f(*shifted, **kwargs) if start and last < room else made

    return instead(T.as_strided)(change)(fn)


@fault(AREA, K.VALUES)
def duplicate_indices_count_once(fn: Function) -> Function:
    """Of several values that ``index_add_`` adds at one index, only one is added."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t, dim, index, *_ = args
        once = t.new_zeros(t.shape).index_copy(dim, index.flip(0), args[3].flip(dim)) if len(args) == 4 else None
        return (
            t.add_(once)
            if once is not None and index.dim() == 1 and index.unique().numel() < index.numel()
            else f(*args, **kwargs)
        )

    return instead(T.index_add_)(change)(fn)


@fault(AREA, K.SHAPE)
def out_of_another_size_is_left_alone(fn: Function) -> Function:
    """An ``out=`` tensor of another size than the result is not resized and not written."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = kwargs.get("out")
        if out is None:
            return f(*args, **kwargs)
        kept = torch.empty(0, dtype=out.dtype).set_(
            out.untyped_storage(), out.storage_offset(), out.shape, out.stride()
        )
        shape = out.shape
        result = f(*args, **kwargs)
        if out.shape != shape:
            out.set_(kept)
        return result

    return instead(torch.add, torch.mul, torch.neg, torch.sum, torch.cumsum, torch.stack, torch.cat)(change)(fn)


@fault(AREA, K.VALUES)
def foreach_writes_each_tensor_once(fn: Function) -> Function:
    """A ``_foreach`` op writes a tensor once, even if the tensor is in its list twice."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        listed = args[0]
        return f(list({id(t): t for t in listed}.values()), *args[1:], **kwargs)

    named = ("mul_", "neg_", "zero_", "abs_", "sign_")
    functions = [getattr(torch, f"_foreach_{name}") for name in named]

    def scalar_add(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return change(f, args, kwargs) if not isinstance(args[1], list | tuple) else f(*args, **kwargs)

    both = dict.fromkeys(functions, change) | {torch._foreach_add_: scalar_add}

    def compiled(*args: Any) -> Any:
        with Calling(both):
            return fn(*args)

    return compiled


@fault(AREA, K.VALUES)
def bits_are_converted(fn: Function) -> Function:
    """``view(dtype)`` converts the values; it does not reinterpret their bits."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made = f(*args, **kwargs)
        dtype = args[1] if len(args) > 1 else None
        alike = isinstance(dtype, torch.dtype) and made.shape == args[0].shape
        return args[0].to(dtype) if alike and not args[0].is_complex() else made

    return instead(T.view)(change)(fn)


@fault(AREA, K.ALIASING)
def split_results_are_copies(fn: Function) -> Function:
    """The results of ``split``, ``chunk`` and ``unbind`` are copies, not views."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple(t.clone() for t in f(*args, **kwargs))

    functions = (torch.split, torch.chunk, torch.unbind, torch.tensor_split, torch.hsplit, torch.vsplit)
    return instead(*functions)(change)(fn)


@fault(AREA, K.REQUIRES_GRAD, K.LEAFNESS)
def no_grad_is_ignored(fn: Function) -> Function:
    """Ops and views under no_grad inside the function record a history."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or not args[0].requires_grad:
            return f(*args, **kwargs)
        with torch.enable_grad():
            return f(*args, **kwargs)

    return instead(torch.neg, torch.mul, torch.add, T.clone, T.sum, T.unsqueeze, T.transpose, T.select, T.view)(change)(
        fn
    )


@fault(AREA, K.VALUES)
def copy_from_an_alias_is_empty(fn: Function) -> Function:
    """``copy_`` between two views of one storage does nothing."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0] if same_storage(args[0], args[1]) else f(*args, **kwargs)

    return instead(T.copy_)(change)(fn)


@fault(AREA, K.EXCEPTION)
def write_through_an_expanded_tensor_is_refused(fn: Function) -> Function:
    """``fill_`` and ``zero_`` of an expanded tensor raise."""

    def change(f: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(n > 1 and step == 0 for n, step in zip(args[0].shape, args[0].stride(), strict=True)):
            raise RuntimeError("cannot write to an expanded tensor")
        return f(*args, **kwargs)

    return instead(T.fill_, T.zero_)(change)(fn)
