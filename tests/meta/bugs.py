"""Planted bugs such as compilers have: one op wrong, or one way to use it; the rest of every program is right.

Each is a backend by ``tests.meta.bugs:name``. :data:`BUGS` names those that random programs run into.
"""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[..., Any]
Fault = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

BUGS: dict[str, Function] = {}


class _Planted(TorchDispatchMode):
    def __init__(self, op: str, fault: Fault) -> None:
        super().__init__()
        self.op, self.fault = op, fault

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ == self.op:
            return self.fault(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def bug(name: str, op: str) -> Callable[[Fault], Fault]:
    """Plant a fault in every call of an ATen op that a forward makes."""

    def register(fault: Fault) -> Fault:
        def compile_function(fn: Function) -> Function:
            def compiled(*args: Any) -> Any:
                with _Planted(op, fault):
                    return fn(*args)

            return compiled

        BUGS[name] = compile_function
        return fault

    return register


def spoilt(result: Any) -> Any:
    """The same tensors with other values in them."""
    for t in pytree.tree_leaves(result):
        if isinstance(t, torch.Tensor):
            t.logical_not_() if t.dtype == torch.bool else t.add_(1)
    return result


def wrong(name: str, op: str, when: Callable[..., bool] = lambda *args, **kwargs: True) -> None:
    """An op whose result is wrong, on some arguments."""
    bug(name, op)(
        lambda func, args, kwargs: spoilt(func(*args, **kwargs)) if when(*args, **kwargs) else func(*args, **kwargs)
    )


def lost(name: str, op: str, when: Callable[..., bool] = lambda *args, **kwargs: True) -> None:
    """A write that does not happen, on some arguments."""
    bug(name, op)(lambda func, args, kwargs: args[0] if when(*args, **kwargs) else func(*args, **kwargs))


def refused(name: str, op: str, error: Exception) -> None:
    """An op that is refused."""

    def fault(func: Any, args: Any, kwargs: Any) -> Any:
        raise error

    bug(name, op)(fault)


def _strided(t: torch.Tensor, *rest: Any, **kwargs: Any) -> bool:
    return not t.is_contiguous()


def _part(t: torch.Tensor, *rest: Any, **kwargs: Any) -> bool:
    return t.numel() * t.itemsize < t.untyped_storage().nbytes()


wrong("neg_wrong", "neg")
wrong("sum_wrong", "sum")
wrong("cat_wrong", "cat")
wrong("sub_wrong", "sub")
wrong("where_wrong", "where")
wrong("clone_of_strided_wrong", "clone", _strided)
wrong("cumsum_wrong", "cumsum")
wrong("gather_wrong", "gather")
wrong("amax_wrong", "amax")
lost("add_in_place_lost", "add_")
lost("copy_to_a_part_lost", "copy_", _part)
lost("mul_in_place_lost", "mul_")
lost("zero_lost", "zero_")
lost("transpose_in_place_lost", "t_")
lost("squeeze_in_place_lost", "squeeze_")
lost("masked_fill_lost", "masked_fill_")
refused("flip_refused", "flip", RuntimeError("no flips today"))
refused("unfold_refused", "unfold", RuntimeError("planted: no windows"))
refused("sort_refused", "sort", NotImplementedError("planted: no sorting"))
refused("index_refused", "index", IndexError("planted: no indices"))


@bug("slice_copies", "slice")
def _copies(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs).clone()


@bug("detach_forgets", "detach")
def _forgets(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs).clone()


@bug("max_kills", "maximum")
def _kills(func: Any, args: Any, kwargs: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


@bug("tril_hangs", "tril")
def _hangs(func: Any, args: Any, kwargs: Any) -> Any:
    while True:
        time.sleep(1)


def harmless(fn: Function) -> Function:
    """Planting itself: a dispatch mode that changes nothing, which is not quite nothing (in inference mode)."""

    def compiled(*args: Any) -> Any:
        with _Planted("", lambda func, args, kwargs: func(*args, **kwargs)):
            return fn(*args)

    return compiled


DEADLY = frozenset({"max_kills", "tril_hangs"})
"""Those that take their process with them."""


def __getattr__(name: str) -> Function:
    try:
        return BUGS[name]
    except KeyError:
        raise AttributeError(name) from None
