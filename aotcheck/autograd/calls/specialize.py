"""The key of a call: everything that decides which compiled code is right for it.

Note [Guards]
``call_key`` is complete and slow (tens of microseconds); ``fast_guard`` is a generated check of one known key for the
common case, plain tensors that share no storage. A call that fails the fast guard is looked up by its key; a key not
met before is traced.

Note [Counting together]
Arguments that count versions together lie in one storage, or one is a view; but an alias (``x.detach()``) that was
given other data lies elsewhere and still does. No call needs to know that but one of a function that writes an argument
and keeps another for its backward. So a trace takes such arguments to count apart; if it turns out to be of such a
function, calls ask, and those where some count together have a key and a trace of their own, and no fast guard.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.serials import serial_of
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.graph import compiled
from aotcheck.autograd.ir.sparse_geometry import is_sparse, parts_of, sparse_geometry_of
from aotcheck.autograd.ir.trace import geometry_of, kept_geometry_of
from aotcheck.autograd.state.autocast import autocast_state
from aotcheck.autograd.tensors.plain_values import plain_key
from aotcheck.autograd.tensors.subclasses import PLAIN_TYPES, ContextKey, held_by, is_wrapper, outer_key
from aotcheck.autograd.tracing.reshaped_views import reshaped_since

PLAIN_LEAVES = frozenset(
    {
        Tensor,
        torch.nn.Parameter,
        int,
        float,
        bool,
        str,
        complex,
        type(None),
        torch.dtype,
        torch.device,
        torch.memory_format,
        torch.layout,
        torch.Size,
        torch.Generator,
    }
)


def check_supported(flat: Sequence[Any], bound: Container[int] = ()) -> None:
    """Raise UnsupportedError for arguments that cannot be traced; those ``bound``, by id, are what they are."""
    for i, a in enumerate(flat):
        is_plain = type(a) in PLAIN_TYPES
        if not is_plain and is_wrapper(a):
            continue  # what it holds are arguments too
        if is_plain or isinstance(a, Tensor):
            if not is_plain:
                raise UnsupportedError("subclass input", f"argument {i} is a {type(a).__name__}")
            if (a.layout is not torch.strided and not is_sparse(a)) or a.is_quantized:
                raise UnsupportedError("layout", f"argument {i} is {a.layout}")
            if a.requires_grad and not (a.is_floating_point() or a.is_complex()):
                raise UnsupportedError("integer tensor that requires grad", f"argument {i} is {a.dtype}")
            if a.device.type not in ("cpu", "cuda"):
                raise UnsupportedError("device", f"argument {i} is on {a.device}")
        elif isinstance(a, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise UnsupportedError(
                "symbolic sizes",
                f"argument {i} is a {type(a).__name__}; use static shapes (torch.compile(dynamic=False))",
            )
        elif type(a) not in PLAIN_LEAVES and not callable(a) and plain_key(a) is None and id(a) not in bound:
            raise UnsupportedError(
                "unregistered container", f"argument {i} is a {type(a).__name__}; register it with torch.utils._pytree"
            )


def _scalar_key(a: Any) -> Any:
    if isinstance(a, torch.Generator):
        return (torch.Generator, a.device)
    key = plain_key(a)
    if key is not None:
        return key
    return callable_key(a)


def callable_key(f: Any) -> Any:
    """Equal for one object, for a method of one object, and for functions of the same code, closure and defaults."""
    kind = type(f)
    if kind is types.MethodType:
        return kind, callable_key(f.__self__), callable_key(f.__func__)
    if kind is types.FunctionType and not vars(f):
        try:
            held = [c.cell_contents for c in f.__closure__ or ()]
        except ValueError:  # a variable that was not assigned yet
            return kind, serial_of(f)
        held += [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
        parts = [plain_key(x) or serial_of(x) for x in held]
        return kind, f.__code__, serial_of(f.__globals__), *parts
    return kind, serial_of(f)


def context_key() -> tuple[Any, ...]:
    """The ambient state that a trace bakes in."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        _torch.has_saved_tensor_hooks(),
        autocast_state(),
        torch.get_default_dtype(),
        _torch.default_device(),
        torch.is_autocast_cache_enabled(),
        _torch.determinism(),
    )


def _wrapper_key(a: Tensor, places: dict[int, int]) -> tuple[Any, ...]:
    """The part of a call's key that is for a wrapper; ``places`` says where each tensor is among the arguments."""
    held, context = held_by(a)
    base = _torch.base_of(a)
    return (
        type(a),
        ContextKey(context),
        tuple([(name, places[id(t)]) for name, t in held]),
        outer_key(a),
        a.requires_grad,
        _torch.leafness(a),
        isinstance(a, torch.nn.Parameter),
        a.is_inference(),
        None if base is None else (places[id(base)], str(_torch.creation_meta(a)), reshaped_since(a, base)),
    )


def _sparse_key(a: Tensor, storages: dict[int, int], i: int) -> tuple[Any, ...]:
    """The part of a call's key that is for argument ``i``, a sparse tensor."""
    memory = [_torch.storage_address(t.untyped_storage()) for t in parts_of(a)]
    return (
        type(a),
        sparse_geometry_of(a),
        a.device,
        a.requires_grad,
        _torch.leafness(a),
        a.is_inference(),
        *[storages.setdefault(address, i) for address in memory],
    )


def foreign_overlaps(flat: Sequence[Any]) -> tuple[int, ...]:
    """Which arguments lie in memory that another one's storage has, too, without being that storage.

    It takes memory that is not torch's own, as of a numpy array; such storages cannot be resized.
    """
    plain = [(k, a) for k, a in enumerate(flat) if type(a) in (Tensor, torch.nn.Parameter)]
    storages = [(k, a.untyped_storage()) for k, a in plain if a.layout is torch.strided]
    foreign = [(k, s) for k, s in storages if not s.resizable()]
    return tuple([k for k, s in foreign if any(_overlap(s, other) for _, other in storages)])


def _overlap(a: torch.UntypedStorage, b: torch.UntypedStorage) -> bool:
    if _torch.storage_address(a) == _torch.storage_address(b) or not (a.nbytes() and b.nbytes()):
        return False
    return a.data_ptr() < b.data_ptr() + b.nbytes() and b.data_ptr() < a.data_ptr() + a.nbytes()


def call_key(flat: Sequence[Any]) -> tuple[Any, ...]:
    """Hashable; equal for two calls iff one specialization is right for both.

    ``flat`` are the arguments with those that wrappers stand for.
    """
    parts: list[Any] = []
    objects: dict[int, int] = {}
    storages: dict[int, int] = {}
    bases: dict[int, int] = {}
    foreign = False
    plain: list[Tensor] = []
    related = False  # whether some may count versions together
    waiting: list[Tensor] = []
    wrappers = [a for a in flat if type(a) not in PLAIN_TYPES and is_wrapper(a)]
    places: dict[int, int] = {}
    for i, a in enumerate(flat if wrappers else ()):
        places.setdefault(id(a), i)
    for i, a in enumerate(flat):
        if not isinstance(a, (Tensor, torch.Generator)):
            parts.append(_scalar_key(a))
            continue
        same = objects.setdefault(id(a), i)
        if same != i:
            parts.append(same)
            continue
        if isinstance(a, torch.Generator):
            parts.append(_scalar_key(a))
            continue
        if wrappers and is_wrapper(a):
            parts.append(_wrapper_key(a, places))
            continue
        if is_sparse(a):
            parts.append(_sparse_key(a, storages, i))
            continue
        storage = a.untyped_storage()
        foreign |= not storage.resizable()
        base = _torch.base_of(a)
        base_part: Any = None
        plain.append(a)
        related = related or base is not None
        if wrappers and base is not None and is_wrapper(base):
            base_part = (places[id(base)], str(_torch.creation_meta(a)))
        elif base is not None:
            waits = _torch.waits_for_history(a)  # asked first: who looks at its history has it found
            base_part = (
                bases.setdefault(id(base), i),
                objects.get(id(base), -1),
                geometry_of(base),
                _torch.storage_address(base.untyped_storage()) == _torch.storage_address(storage),
                base.requires_grad,
                _torch.leafness(base),
                str(_torch.creation_meta(a)),
                _torch.requires_grad_by_itself(a),
                waits,
                reshaped_since(a, base) if base.is_complex() or a.dtype != base.dtype else None,
            )
            if waits:
                waiting.append(a)
        parts.append(
            (
                type(a),
                kept_geometry_of(a),
                a.device,
                a.requires_grad,
                _torch.leafness(a),
                a.is_inference(),
                _torch.version_of(a) < 0,  # as of what was an inference tensor, and was given other data
                storages.setdefault(_torch.storage_address(storage), i),
                storage.nbytes(),
                base_part,
            )
        )
        if base is None:
            bases.setdefault(id(a), i)
    for a in waiting:  # the key has asked for it since
        _torch.outdate_history(a)
    # Tensors that count versions together are told from those that do not, wherever they lie by now.
    related = related or len(storages) < len(plain)
    versions = tuple(_torch.counted_by(plain, plain)) if related else ()
    versions_of_wrappers = tuple(_torch.version_groups(list({id(w): w for w in wrappers}.values())) if wrappers else ())
    # A base that is itself an argument further on is told apart from one that is not passed.
    late = tuple([objects.get(b, -1) for b in bases])
    overlaps = foreign_overlaps(flat) if foreign else ()
    return (*parts, late, versions, versions_of_wrappers, overlaps, *context_key())


def _counting_seen(plain: Sequence[Tensor]) -> bool:
    """Whether ``call_key`` looks in any case which of these tensors count versions together."""
    storages = {_torch.storage_address(a.untyped_storage()) for a in plain}
    return len(storages) < len(plain) or any(_torch.base_of(a) is not None for a in plain)


def counting_together(flat: Sequence[Any], counting: tuple[Sequence[int], Sequence[int]]) -> tuple[int | None, ...]:
    """Which arguments count versions together though ``call_key`` does not look; nothing if that does not matter.

    It does if two of those written or kept do (``counting``): see Note [Counting together].
    """
    if not counting[0]:
        return ()
    plain = list({id(a): a for a in flat if type(a) in PLAIN_TYPES and not is_sparse(a)}.values())
    written, kept = (tuple([flat[k] for k in which]) for which in counting)
    if _counting_seen(plain) or not _torch.counts_with(written, kept):
        return ()
    return tuple(_torch.counted_by(plain, plain))


def fast_guard(
    flat: Sequence[Any],
    writes: bool,
    sizes: bool,
    shares: bool,
    counting: tuple[Sequence[int], Sequence[int]],
    around: tuple[Callable[[], int], int] | None,
) -> Callable[[Sequence[Any]], bool] | None:
    """A check that a call is like ``flat``; None where only the full key can tell.

    ``writes``: whether views must be told from tensors that are none. ``sizes``: whether the storages' sizes matter.
    ``shares``: whether memory must be told that is not torch's own. ``counting``: the arguments that are written, and
    those that are kept: see Note [Counting together].
    ``around``: what tells what there is around the function, and what it is to tell.
    """
    if not flat or any(type(a) not in (Tensor, torch.nn.Parameter) or is_sparse(a) for a in flat):
        return None
    if len({_torch.storage_address(a.untyped_storage()) for a in flat}) != len(flat) or autocast_state():
        return None
    if any(_torch.base_of(a) is not None and (writes or (a.requires_grad and _torch.leafness(a))) for a in flat):
        return None
    if shares and not all(a.untyped_storage().resizable() for a in flat):
        return None
    n = len(flat)
    namespace: dict[str, Any] = {
        "tensors": _torch.TensorGuards(*flat, dynamic_dims_sizes=None, dynamic_dims_strides=None).check,
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
        "dtype": torch.get_default_dtype,
        "dt": torch.get_default_dtype(),
        "address": _torch.storage_address,
        **_torch.AMBIENT,
        "base_of": _torch.base_of,
        "leafness": _torch.leafness,
    }
    names = [f"a{i}" for i in range(n)]
    conditions = [
        f"tensors({', '.join(names)})",
        f"grad() is {torch.is_grad_enabled()}",
        f"inference() is {torch.is_inference_mode_enabled()}",
        "dtype() is dt",
        *[f"{source} == {now!r}" for source, now in _torch.ambient_state().items()],
    ]
    for name, a in zip(names, flat, strict=True):
        conditions.append(f"{name}.storage_offset() == {a.storage_offset()}")
        if a.requires_grad:
            conditions.append(f"leafness({name}) is {_torch.leafness(a)}")
        if writes or (a.requires_grad and _torch.leafness(a)):
            conditions.append(f"base_of({name}) is None")
        if shares:
            conditions.append(f"{name}.untyped_storage().resizable()")
        if sizes:
            conditions.append(f"{name}.untyped_storage().nbytes() == {a.untyped_storage().nbytes()}")
    if n == 2:
        conditions.append("address(a0.untyped_storage()) != address(a1.untyped_storage())")
    elif n > 2:
        conditions.append(f"len({{{', '.join(f'address({x}.untyped_storage())' for x in names)}}}) == {n}")
    if counting[0]:
        namespace["counts_with"] = _torch.counts_with
        versions = [f"{names[k]}._version" for which in counting for k in which]
        distinct = " != ".join(versions) if len(versions) == 2 else f"len({{{', '.join(versions)}}}) == {len(versions)}"
        written, kept = [f"({', '.join(names[k] for k in which)}{',' * bool(which)})" for which in counting]
        conditions.append(f"({distinct} or not counts_with({written}, {kept}))")
    if _torch.function_mode_depth():
        namespace.update(others=_torch.function_modes_active, device=torch.get_default_device)
        namespace["default_device"] = torch.get_default_device()
        conditions.append("not others() and device() == default_device")
    if around is not None:
        namespace["around"] = around[0]
        conditions.append(f"around() == {around[1]}")
    source = f"def guard(a):\n    {', '.join(names)}, = a\n    return {' and '.join(conditions)}"
    exec(compiled(source, "guard"), namespace)
    guard: Callable[[Sequence[Any]], bool] = namespace["guard"]
    return guard
