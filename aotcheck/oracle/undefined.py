"""Memory that eager leaves uninitialized. The runs fill the memory with known values, so a result that depends on it
shows.

Note [Undefined memory]: ``torch.empty`` and a growing ``resize_`` return memory with arbitrary contents, and some
losses have such memory behind their result. If a program reads this memory, the elements of a result that depend on it
mean nothing, in eager and compiled. To find them, eager runs twice more, with every such byte filled in two ways. An
element is defined iff both runs and the first run, with the contents by chance, agree on it. The fills are byte
patterns, so they differ in whatever dtype the memory is read, in value, sign and arithmetic (one is NaN in every
floating dtype): ``empty() * 0`` and the like differ too. A bool holds 0 or 1. Memory that was freed and returned may
hold small numbers of the program's, and a comparison with those gives one result for both patterns. So before a
difference of values counts, small numbers are tried too (``small``).
``torch.use_deterministic_algorithms`` can fill too, but with one pattern only, and it changes what ops do.
In inference mode a mode gets composite ops whole, and ops that it calls in turn are not under the caller's autocast. So
it decomposes them as torch would without the mode, in the state before the mode.
"""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aotcheck._torch import (
    TorchDispatchMode,
    is_composite,
    is_without_memory,
    run_composite_in,
    storage_key,
    zeros_without_memory,
)
from aotcheck.program.ops.subclasses import held

_aten = torch.ops.aten
_FRESH = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_strided.default,
        _aten.empty_permuted.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)
_GROWING = frozenset(
    op
    for packet in (_aten.resize_, _aten.resize_as_, _aten.set_, torch.ops.inductor.resize_storage_bytes_)
    for op in (getattr(packet, overload) for overload in packet.overloads())
)
_ROOMY = frozenset({_aten.mse_loss.default, _aten.smooth_l1_loss.default})
"""Ops that return a single number, in memory that is large enough for all summands and otherwise uninitialized."""
_CRASHING = frozenset({_aten.add.Scalar, _aten.mul.Scalar})


@dataclass(frozen=True)
class Pattern:
    """A fill of undefined memory: these bytes, repeated from the start of the storage; for bools ``truth``."""

    data: bytes
    truth: bool

    def of(self, storage: torch.UntypedStorage, first_byte: int, dtype: torch.dtype) -> torch.Tensor:
        """What the storage holds from ``first_byte`` on, read as ``dtype``: bool or uint8."""
        length = storage.nbytes() - first_byte
        if dtype is torch.bool:
            return torch.full((length,), self.truth, device=storage.device)
        size = len(self.data)
        one = torch.frombuffer(bytearray(self.data), dtype=torch.uint8).to(storage.device)
        return one.repeat(storage.nbytes() // size + 1)[first_byte : storage.nbytes()]


PLAIN = Pattern(b"\x3f", True)
ODD = Pattern(b"\xff", False)


def small(dtypes: Iterable[torch.dtype], beside: Iterable[int] = ()) -> Iterator[Pattern]:
    """Fills with small numbers, and with numbers ``beside`` them, in each of these dtypes."""
    values = dict.fromkeys((0, 1, 2, -1, *beside))
    for dtype in dtypes:
        if dtype is not torch.bool:
            for value in [v for v in values if v >= 0] if dtype is torch.uint8 else values:
                number = torch.tensor([value], dtype=dtype)
                yield Pattern(bytes(number.view(torch.uint8).tolist()), bool(value))


LARGE = Pattern(b"\x7b", True)  # as a float of any width, and as an integer
NEGATIVE = Pattern(b"\xfb", True)  # the same below zero
UNEVEN = Pattern(b"\x01\x7b\x3c\xfb\x22\x40\x91", False)  # no two neighbours alike
# A sort of an uneven run of numbers leaves some where they are; of a falling one, only what is in the middle. What is
# made of numbers of one sign may be one for all of them; which is the largest of the others depends on their order.
MONOTONE = tuple(
    Pattern(bytes(byte for byte in run for _ in range(2)), False)
    for run in (range(0x7B, 0, -1), range(1, 0x7C), range(0x81, 0xFC), range(0xFB, 0x80, -1))
)
STEEP = Pattern(bytes(range(0x7B, 0, -1)), False)  # a fall where the numbers are bytes
# No two the same way up and down: of short rows too, no place keeps its rank in all of these.
RANDOM = tuple(Pattern(random.Random(seed).randbytes(241), False) for seed in range(6))


class FillUndefined(TorchDispatchMode):
    """A mode that fills memory that factories and growing storages leave uninitialized; see Note [Undefined memory].

    Args:
        pattern: the fill.

    ``filled`` counts how often the mode filled memory. An op of higher order (``cond``, ``scan``, ``map``) runs as one
    op: memory that its body leaves uninitialized is not filled.
    """

    supports_higher_order_operators = True  # else torch raises where such an op meets the mode

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        self.pattern = pattern
        self.filled = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_inference_mode_enabled() and is_composite(func):
            return run_composite_in(self, func, types, args, kwargs or {})
        if func in _FRESH:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.numel():
                self.fill(result, 0)
            return result
        if func in _ROOMY:
            result = func(*args, **(kwargs or {}))
            if not result.dim():
                self.fill(result, result.itemsize)
            return result
        if func in _GROWING and args and isinstance(args[0], torch.Tensor):
            storage = storage_key(args[0])
            before = args[0].untyped_storage().nbytes()
            result = func(*args, **(kwargs or {}))
            if storage_key(args[0]) == storage:
                self.fill(args[0], before)
            return result
        if func in _CRASHING and is_without_memory(args[0]):
            # Autograd's zeros, of which these kernels know only above a mode; below one torch ends the process.
            if func is _aten.mul.Scalar:  # whatever the factor is
                return zeros_without_memory(args[0].shape, torch.result_type(*args), args[0].device)
            args = (torch.zeros(args[0].shape, dtype=args[0].dtype, device=args[0].device), *args[1:])
        return func(*args, **(kwargs or {}))

    def fill(self, tensor: torch.Tensor, first_byte: int) -> None:
        """Fill the storage of ``tensor`` from ``first_byte`` on, without bumping its version."""
        if held(tensor):
            for _, inner in held(tensor):
                self.fill(inner, first_byte)
            return
        storage = tensor.untyped_storage()
        dtype = torch.bool if tensor.dtype is torch.bool else torch.uint8
        length = storage.nbytes() - first_byte
        if length > 0:
            self.filled += 1
            with torch.no_grad():
                tail = torch.empty(0, dtype=dtype, device=tensor.device)
                tail.set_(storage, first_byte, (length,), (1,))
                tail.copy_(self.pattern.of(storage, first_byte, dtype))


@contextmanager
def undefined_memory(pattern: Pattern) -> Iterator[FillUndefined]:
    """A context that fills undefined memory with ``pattern``, also of ``UntypedStorage.resize_``, which modes miss."""
    mode = FillUndefined(pattern)
    original = torch.UntypedStorage.resize_

    def resize_and_fill(storage: torch.UntypedStorage, size: int) -> Any:
        before = storage.nbytes()
        result = original(storage, size)
        if storage.nbytes() > before:
            flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
            flat.set_(storage, 0, (storage.nbytes(),), (1,))
            mode.fill(flat, before)
        return result

    torch.UntypedStorage.resize_ = resize_and_fill  # type: ignore[method-assign,assignment]
    try:
        with mode:
            yield mode
    finally:
        torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]
