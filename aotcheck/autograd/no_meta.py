"""Ops without a meta kernel: eager is asked, on small real tensors, what geometry the results have.

It is asked twice, with other numbers; an answer that depends on them is no answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.stand_ins import StandIns, tensors_in
from aotcheck.autograd.trace import Geometry, geometry_of

aten = torch.ops.aten
_LIMIT = 1 << 26  # bytes of storage worth allocating


def results_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], lacking: Exception) -> Any:
    """What ``func`` gives for these replicas, as meta tensors; an argument that it returns is returned.

    Raises UnsupportedError where eager cannot be asked, because of ``lacking``.
    """
    if func in _RULES:
        return _RULES[func](*args, **kwargs)
    given = tensors_in(args, kwargs)
    if sum(_torch.storage_of(t).nbytes() for t in given) > _LIMIT:
        raise UnsupportedError("no meta kernel", f"{func} takes too much memory to try it out")
    answers = [a for fill in (0, 1) if (a := _ask(func, args, kwargs, given, fill)) is not None]
    if not answers:
        raise UnsupportedError("no meta kernel", f"{func}: {str(lacking)[:120]}") from lacking
    if len(answers) > 1 and _places(answers[0]) != _places(answers[1]):
        raise UnsupportedError("data-dependent", f"the shape of what {func} gives depends on values")
    return answers[0]


def _padded_dense_to_jagged(padded: Tensor, offsets: list[Tensor], total: int | None = None) -> Tensor:
    if len(offsets) != 1 or total is None:
        raise UnsupportedError("data-dependent", "how many rows there are in a padded tensor depends on values")
    return torch.empty((total, *padded.shape[2:]), dtype=padded.dtype, device=_torch.META)


_RULES: dict[Any, Callable[..., Tensor]] = {aten._padded_dense_to_jagged_forward.default: _padded_dense_to_jagged}
"""Ops whose results are known, and that no small numbers suit."""


def _ask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor], fill: int) -> Any:
    recorded = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    stand_ins = StandIns(fill)
    devices = [t.device for t in given if t.device.type == "cuda"]
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            out = func(*[stand_ins.of(a) for a in args], **{k: stand_ins.of(a) for k, a in kwargs.items()})
        except Exception:  # these numbers do not suit it
            return None
    passed = {id(stand_ins.of(t)): t for t in given}
    storages = {_torch.storage_address(_torch.storage_of(stand_ins.of(t))): _torch.storage_of(t) for t in given}

    def meta(o: Any) -> Any:
        if id(o) in passed:
            return passed[id(o)]
        if isinstance(o, Tensor):
            if o.layout is not torch.strided:
                if recorded:
                    _record(func, args, kwargs, given)
                raise UnsupportedError("layout", f"{func} gives a tensor that is {o.layout}")
            return _on_meta(o, storages)
        if isinstance(o, (list, tuple)):
            return type(o)(meta(x) for x in o)
        if o is None:
            return None
        raise UnsupportedError("data-dependent", f"{func} gives a {type(o).__name__}")

    return meta(out)


class _Plain(_torch.TorchDispatchMode):
    """Does nothing but be there: what is dispatched from the top again expects a mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor]) -> None:
    """Let autograd record the op; it may refuse to."""
    stand_ins = StandIns()
    with _torch.without_modes():
        for t in given:
            stand_ins.of(t).requires_grad_(t.requires_grad)
        with _torch.as_before_dispatch(), _Plain(), torch.enable_grad():
            func(*[stand_ins.of(a) for a in args], **{k: stand_ins.of(a) for k, a in kwargs.items()})


def _on_meta(o: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    """A meta tensor of the geometry of ``o``, on the storage that stands for its own."""
    real, g = _torch.storage_of(o), geometry_of(o)
    address = _torch.storage_address(real)
    if address not in storages:
        whole = torch.empty(real.nbytes(), dtype=torch.uint8, device=_torch.META)
        storages[address] = _torch.storage_of(whole)
    made = torch.empty(0, dtype=g.dtype, device=_torch.META)
    _torch.set_geometry(made, storages[address], g.offset, g.shape, g.stride)
    made = _torch.conj_view(made) if g.conj else made
    return _torch.neg_view(made) if g.neg else made


def _places(answer: Any) -> list[Geometry]:
    return [geometry_of(t) for t in tensors_in((answer,), {})]
