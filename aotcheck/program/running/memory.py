"""Which memory a program may use: not freed, not uninitialized, and not taken away from autograd.

Note [Freed memory]
    A program may resize a storage below what a tensor on it addresses (FSDP frees parameters so). Eager reads such a
    tensor without a check, so it crashes or returns whatever is there. So programs use a tensor that does not fit its
    storage only to give it memory again or another storage. And they shrink no storage that autograd may have saved,
    since a backward would read the storage. If an op has no kernel for lazily conjugated or negated tensors, torch runs
    the op on a copy of them: so it reads its operand, even if it only resizes it.

Note [Definite memory]
    Which statements are drawn depends on values, which must be the same on every machine. So while a program is drawn,
    memory that eager leaves uninitialized holds ones. So does the memory of a loss's result behind its one element,
    which a view can expose. Which memory counts in a comparison, the oracle decides (``oracle/undefined.py``).
"""

from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from typing import Any

import torch

from aotcheck._torch import base_of
from aotcheck.program.called.objects import attributes
from aotcheck.program.data.model import OpCall
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.ops.subclasses import held, leaves
from aotcheck.program.running.interpret import evaluate, execute

__all__ = [
    "Saved",
    "address",
    "execute_definite",
    "extent_in_bytes",
    "fits",
    "holds_wrapper",
    "hook_may_be_misplaced",
    "operands",
    "reads_nothing_missing",
    "size_of",
    "tensors_of",
]

_SAVES_NOTHING = frozenset(
    {
        Group.VIEW,
        Group.STRIDED_VIEW,
        Group.DTYPE_VIEW,
        Group.MULTI_VIEW,
        Group.METADATA,
        Group.SET,
        Group.STORAGE,
        Group.DETACH,
        Group.CONTAINER,
    }
)
_READS_NO_DATA = frozenset({"Tensor.data=", "Tensor.set_", "Tensor.untyped_storage", "torch.utils.swap_tensors"})
_LEAVES_ROOM = "torch.nn.functional.mse_loss"
"""The loss that allocates memory for all its summands, and writes only one number there."""
_RESIZES_BY_OP = "torch.ops.inductor.resize_storage_bytes_.default"


def extent_in_bytes(t: torch.Tensor) -> int:
    """The bytes that a storage must have to hold all elements of ``t``; of a wrapper, the most of an inner tensor."""
    if held(t):
        return max(map(extent_in_bytes, leaves(t)))
    if not t.numel():
        return 0
    last = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return int(last + 1) * t.itemsize


def fits(t: torch.Tensor) -> bool:
    """True if all elements of ``t`` are within its storage."""
    if held(t):
        return all(map(fits, leaves(t)))
    return extent_in_bytes(t) <= t.untyped_storage().nbytes()


def size_of(t: torch.Tensor) -> tuple[int, ...]:
    """The shape of ``t``; for a ragged dimension the largest length."""
    longest = 0
    if t.layout is torch.jagged:
        offsets = dict(held(t))["_offsets"]
        longest = int(offsets.diff().max()) if offsets.numel() > 1 else 0
    return tuple(n if type(n) is int else longest for n in t.shape)


def address(t: torch.Tensor) -> int:
    """A number that identifies the storage of ``t`` while the storage lives; 0 without memory."""
    storage = t.untyped_storage()
    return -id(storage) if held(t) else storage.data_ptr()


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors in nested tuples, lists, dicts, objects and wrapper subclasses."""
    value = attributes(value)
    if isinstance(value, torch.Tensor):
        yield from leaves(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)


def holds_wrapper(value: Any) -> bool:
    """True if nested tuples, lists, dicts and objects hold a tensor of a wrapper subclass."""
    value = attributes(value)
    if isinstance(value, tuple | list):
        return any(map(holds_wrapper, value))
    if isinstance(value, dict):
        return any(map(holds_wrapper, value.values()))
    return isinstance(value, torch.Tensor) and bool(held(value))


def operands(call: OpCall, env: MutableMapping[str, Any]) -> list[torch.Tensor]:
    """The tensors among the arguments of an op call."""
    given = (*call.args, *(expr for _, expr in call.kwargs))
    return [t for expr in given for t in tensors_of(evaluate(expr, env))]


@lru_cache(maxsize=4096)
def _group(path: str) -> Group:
    return find(path)[0].group


def reads_nothing_missing(call: OpCall, env: MutableMapping[str, Any]) -> bool:
    """True if an op call reads no tensor that does not fit its storage, see Note [Freed memory]."""
    if (_group(call.path) is Group.STORAGE or call.path in _READS_NO_DATA) and not _reads_a_copy(call, env):
        return True
    return all(map(fits, operands(call, env)))


def _reads_a_copy(call: OpCall, env: MutableMapping[str, Any]) -> bool:
    """True if torch runs an op call that reads no data on a copy of its first operand."""
    given = [evaluate(expr, env) for expr in call.args]
    if call.path != _RESIZES_BY_OP and not (call.path == "Tensor.set_" and torch.is_storage(given[-1])):
        return False
    return any(t.is_conj() or t.is_neg() for t in tensors_of(given[0]))


def hook_may_be_misplaced(t: torch.Tensor) -> bool:
    """True if a write to ``t`` that autograd records may crash torch in a backward.

    ``retain_grad`` registers a hook on one output of a node. A write in place gives the tensor a new node with one
    output. torch moves the hook there, but under the number that the tensor's output had at the old node.
    """
    base = base_of(t)
    whole = t if base is None else base
    return whole.retains_grad and whole.output_nr > 0


class Saved:
    """The storages that autograd may have saved."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}  # alive, so that ids stay unique

    def note(self, call: OpCall, env: MutableMapping[str, Any]) -> None:
        """Record what an op call that has just run in the current grad mode may have saved."""
        group = _group(call.path)
        if group in _SAVES_NOTHING:
            if group is Group.SET and self._storages:  # what was saved may be a tensor that is elsewhere now
                self._add(operands(call, env))
            return
        if torch.is_grad_enabled():
            touched = operands(call, env)
            touched += [t for name in call.targets for t in tensors_of(env[name])]
            if any(t.requires_grad for t in touched):
                self._add(touched)

    def _add(self, tensors: list[torch.Tensor]) -> None:
        for t in tensors:
            storage = t.untyped_storage()
            self._storages[id(storage)] = storage

    def lost(self, call: OpCall, env: MutableMapping[str, Any]) -> bool:
        """True if an op call that is about to run may shrink a storage that autograd has saved."""
        if _group(call.path) is not Group.STORAGE or len(call.args) < 2:
            return False
        t, size = evaluate(call.args[0], env), evaluate(call.args[1], env)
        if held(t):
            return True
        storage = t.untyped_storage()
        return size < storage.nbytes() and id(storage) in self._storages


@lru_cache(maxsize=4096)
def _leaves_undefined(path: str) -> bool:
    return path == _LEAVES_ROOM or any(op.undefined for op in find(path))


def execute_definite(call: OpCall, env: MutableMapping[str, Any]) -> None:
    """The same as :func:`execute`, with ones in memory that eager leaves uninitialized; see Note [Definite memory]."""
    if not _leaves_undefined(call.path):
        execute(call, env)
        return
    first = evaluate(call.args[0], env) if call.args else None
    before, size = None, 0
    if isinstance(first, torch.Tensor):
        before, size = first.untyped_storage(), first.untyped_storage().nbytes()
    execute(call, env)
    if isinstance(first, torch.Tensor) and first.untyped_storage() is before:
        _fill(first, size)
    for name in call.targets:
        made = env[name]
        if isinstance(made, torch.Tensor) and made is not first:
            if "empty" in call.path:
                _fill(made, 0)
            elif call.path == _LEAVES_ROOM and not made.dim():
                _fill(made, made.itemsize)


def _fill(t: torch.Tensor, first_byte: int) -> None:
    if held(t):
        for leaf in leaves(t):
            _fill(leaf, first_byte)
        return
    storage, item = t.untyped_storage(), t.itemsize
    start, end = -(-first_byte // item), storage.nbytes() // item
    rest = min(start * item, storage.nbytes()) - first_byte  # of an element of which the first bytes were there
    with torch.inference_mode(t.is_inference()), torch.no_grad():
        if start < end:
            torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, start, (end - start,), (1,)).fill_(1)
        if rest > 0:
            torch.empty(0, dtype=torch.uint8, device=t.device).set_(storage, first_byte, (rest,), (1,)).fill_(0)
