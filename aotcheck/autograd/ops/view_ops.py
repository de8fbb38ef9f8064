"""Ops that give windows on the memory of their first argument, and ops that move it or change its geometry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.storage_state import View
from aotcheck.autograd.ir.trace import NO_KWARGS, Geometry, geometry_of, kept_geometry_of, row_major
from aotcheck.autograd.ops import writes
from aotcheck.autograd.ops.twins import info_of
from aotcheck.autograd.replicas.replicas import Replica, make_replica
from aotcheck.autograd.replicas.windows import Derivation, Reshaping, check_bounds, out_of_bounds
from aotcheck.autograd.tensors.subclasses import is_wrapper

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
_AS_STRIDED = aten.as_strided.default
# Real views by these may reach beyond their storage as what they are views of does; meta ones by any op may.
_UNCHECKED = frozenset(
    {
        aten.view.default,
        aten.view.dtype,
        aten._unsafe_view.default,
        aten._reshape_alias.default,
        aten.alias.default,
        aten.detach.default,
        aten.lift_fresh.default,
        aten.view_as_real.default,
        aten.view_as_complex.default,
        aten._conj.default,
        aten._neg_view.default,
    }
)
_OF_NUMBERS = {complex: torch.complex128, float: torch.float64}


def fill_diagonal(tracer: Tracer, t: Replica, value: Any) -> Replica:
    """A write to the diagonal, which is a window as well."""
    g = geometry_of(t)
    if 0 not in g.shape:
        diagonal = view(tracer, _AS_STRIDED, (t, [min(g.shape)], [sum(g.stride)], g.offset), {})
        writes.in_place(tracer, aten.fill_.Scalar, info_of(aten.fill_.Scalar), (diagonal, value), {})
    return t


def view(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that gives one window or several on the memory of its first argument."""
    source = args[0]
    if type(source) in (complex, float, int, bool):  # a number that was multiplied by: its derivative conjugates it
        source = tracer.lift(torch.tensor(source, dtype=_OF_NUMBERS.get(type(source))))
        args = (source, *args[1:])
    if type(source) in (list, tuple) or not isinstance(source, Tensor):
        raise UnsupportedError("view of several tensors", str(func))
    out = tracer.run(func, args, kwargs)
    if type(out) is Tensor and type(source) is Replica and func is not _AS_STRIDED:
        return _bind_one(tracer, func, args, kwargs, out)
    first = out if isinstance(out, Tensor) else next((o for o in out if isinstance(o, Tensor)), None)
    if first is None:
        return out
    _check_aliases(func, first, source)
    return bind(tracer, tracer.views, func, args, kwargs, out)


def _check_aliases(func: Any, out: Tensor, source: Tensor) -> None:
    if _torch.storage_address(_torch.storage_of(out)) != _torch.storage_address(_torch.storage_of(source)):
        raise UnsupportedError("conditional view", f"{func} copied where its schema says that it may alias")


def _check_beyond(tracer: Tracer, func: Any, source: Tensor, out: Any) -> None:
    """Raise where ``func`` gives windows ``out`` on the memory of ``source``, which reaches beyond its storage, that
    eager refuses.
    """
    if func not in _UNCHECKED and tracer.kernels.function_runs and not _is_for_autograd(tracer, source):
        for o in (out,) if isinstance(out, Tensor) else out:
            check_bounds(o)


def _is_for_autograd(tracer: Tracer, source: Tensor) -> bool:
    """Whether it may not be the function that makes a view of ``source``, but autograd.

    A backward inside does, and so does the search for the history of another view whose base was written: of real
    tensors there are no views made for that, so none that would be refused.
    """
    if _torch.node_running() is not None:
        return True
    if not source.requires_grad or _torch.version_of(source) <= 0:
        return False
    base = _torch.base_of(source)
    base = source if base is None else base
    views = [t for t in tracer.kernels.alive if t is not source and _torch.base_of(t) is base]
    made = [tracer.views.get(id(t)) for t in views]
    return any(m is None or m.base_version != _torch.version_of(base) for m in made)


def bind(
    tracer: Tracer, notes: dict[int, Derivation], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """What ``func`` gave, as replicas that are windows on the memory of its first argument; and in ``notes``.

    Raises what eager does where it refuses such windows.
    """
    source: Replica = args[0]
    lies, rest = kept_geometry_of(source), tuple(args[1:])
    parent = tracer.table.view(source, lies)
    fits = parent.fits
    if not fits:
        _check_beyond(tracer, func, source, out)
    elif func is _AS_STRIDED:
        check_bounds(out)
    tracer.keep.append(source)
    state, device, kernels = parent.state, source.real_device, tracer.kernels
    replicas, geometries = [], []
    many = not isinstance(out, Tensor)
    for k, o in enumerate(out if many else (out,)):
        r = o if type(o) is Replica else make_replica(o, device, kernels)
        geometry = kept_geometry_of(r)
        replicas.append(r)
        geometries.append(geometry)
        if geometry not in state.views:
            made = View(state, geometry)
            # What is lost is made of what is; what the storage still holds, of that.
            if func is _AS_STRIDED or not (fits or (state.lost is not None and not made.fits)):
                tracer.table.view(r, geometry)
            else:
                state.views[geometry] = made
                made.derive_from(parent, func, rest, dict(kwargs) if kwargs else None, k if many else None)
                made.results = geometries if many else None
    bound = type(out)(replicas) if many else replicas[0]
    note(tracer, notes, func, args, kwargs, bound, geometries=(lies, *geometries))
    return bound


def _bind_one(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Replica:
    """The same as ``bind`` for most views: one window, by an op that is told no strides."""
    source: Replica = args[0]
    _check_aliases(func, out, source)
    lies, geometry = kept_geometry_of(source), kept_geometry_of(out)
    parent = tracer.table.view(source, lies)
    fits = parent.fits
    if not fits:
        _check_beyond(tracer, func, source, out)
    tracer.keep.append(source)
    r = make_replica(out, source.real_device, tracer.kernels)
    state, rest, given = parent.state, args[1:], dict(kwargs) if kwargs else NO_KWARGS
    if geometry not in state.views:
        made = View(state, geometry)
        if fits or (state.lost is not None and not made.fits):
            state.views[geometry] = made
            made.derive_from(parent, func, rest, given)
        else:
            tracer.table.view(r, geometry)
    version, base = _torch.version_of(source), _torch.base_of(source)
    shared = version if base is None else _torch.version_of(base)
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    tracer.views[id(r)] = Derivation(
        *(r, geometry, shared, source, version, lies, shared, func, rest, given, None, *modes, tracer.kernels.now())
    )
    return r


def told_by_size(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The same view without the tensor whose size it takes; a wrapper's class is given such ops in inference mode."""
    by_size = {aten.view_as.default: aten.view.default, aten.expand_as.default: aten.expand.default}.get(func)
    return (func, args) if by_size is None else (by_size, (args[0], list(args[1].shape)))


def note(
    tracer: Tracer,
    notes: dict[int, Derivation],
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: Any,
    shares_version: bool = True,
    geometries: Sequence[Geometry] = (),
) -> None:
    """Remember how a window on memory was made; the epilogue makes it again.

    ``geometries`` are those of its source and of what was made, if they are known already.
    """
    source = args[0]
    many, now = not isinstance(bound, Tensor), tracer.kernels.now()
    made = bound if many else (bound,)
    lies, *geometries = geometries or [geometry_of(t) for t in (source, *made)]
    version, grad = _torch.version_of(source), torch.is_grad_enabled()
    base = _torch.base_of(source)  # with which a view of an unsafe view counts, not with what it was made of
    shared = version if base is None else _torch.version_of(base)
    inference = torch.is_inference_mode_enabled()
    rest, kwargs = tuple(args[1:]), dict(kwargs) if kwargs else NO_KWARGS
    for k, (r, geometry) in enumerate(zip(made, geometries, strict=True)):
        if r is source:  # the op had nothing to do, and gave what it was given: in inference mode a wrapper itself
            continue
        notes[id(r)] = Derivation(
            r,
            geometry,
            shared if shares_version else _torch.version_of(r),
            source,
            version,
            lies,
            shared,
            func,
            rest,
            kwargs,
            k if many else None,
            grad,
            inference,
            now,
        )


def reshaping(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that changes the geometry of its argument in place."""
    t: Replica = args[0]
    tracer.on_reshaping(t, False)
    name = _torch.op_name(func)
    if name == "detach_":  # it comes here only in inference mode, where it does nothing
        return t
    parent = tracer.table.view(t)
    note_reshaping(tracer, func, args, kwargs)
    tracer.run(func, args, kwargs)
    if _torch.shows_as_leaf(t):
        tracer.kernels.reshaped_leaves.append(t)
    if name == "as_strided_":
        check_bounds(t)
    geometry, state = geometry_of(t), parent.state
    if geometry not in state.views:
        if name == "as_strided_":
            tracer.table.view(t)
        else:
            names = {"transpose_": "transpose.int", "swapaxes_": "transpose.int", "swapdims_": "transpose.int"}
            packet, _, overload = names.get(name, f"{name[:-1]}.{_torch.overload_name(func)}").partition(".")
            made = state.views[geometry] = View(state, geometry)
            made.derive_from(parent, getattr(getattr(aten, packet), overload), tuple(args[1:]), dict(kwargs))
    return t


def note_reshaping(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Remember that the first argument is about to change its geometry in place, and how."""
    t = args[0]
    if _torch.op_name(func) == "detach_" and torch.is_inference_mode_enabled():
        return  # then it does nothing
    tracer.keep.append(t)
    tracer.regeometried.add(id(t))
    tracer.kernels.note_move(t, None if _torch.op_name(func) == "detach_" else Move.RESHAPED)
    if _torch.op_name(func) == "detach_":
        if is_wrapper(t):  # a replica notes it itself
            tracer.kernels.detached[id(t)] = tracer.kernels.now()
        return
    version, geometry = _torch.version_of(t), geometry_of(t)
    grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and t.requires_grad
    moment, counted = tracer.kernels.moved[id(t)], not tracer.depth
    change = Reshaping(func, tuple(args[1:]), dict(kwargs), version, geometry, grad and counted, moment, counted)
    tracer.reshapings.setdefault(id(t), []).append(change)


def storage(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that puts its argument on another storage, or changes its storage's size."""
    t: Replica = args[0]
    tracer.on_reshaping(t, True)
    tracer.kernels.sizes_matter = True
    tracer.keep.append(t)
    tracer.regeometried.add(id(t))
    told = not torch.is_inference_mode_enabled()
    is_set = _torch.op_name(func) == "set_"
    tracer.kernels.note_move(t, Move.RESHAPED if not is_set else Move.SET if told else Move.SET_UNTOLD)
    old = tracer.table.state(t)
    if not old.roots:
        raise UnsupportedError("unknown storage", str(func))
    if is_set:
        tracer.set_calls[id(t)] = told or tracer.set_calls.get(id(t), False)
        if told and torch.is_grad_enabled() and _torch.base_of(t) is not None:
            tracer.kernels.note_write(func, args, kwargs)
    asked = _asked_of_set(func, args) if is_set else None
    if asked is None or tuple(t.shape) != asked[2] or asked[3] not in ((), tuple(t.stride())):
        tracer.run(func, args, kwargs)
    else:
        _set_as_it_lies(tracer, t, *asked)
    state = tracer.table.state(t)
    if not state.roots:
        count = state.storage.nbytes() // t.dtype.itemsize
        geometry = Geometry(0, (count,), (1,), t.dtype, False, False)
        value = tracer.trace.call(aten.empty.memory_format, ([count],), {"dtype": t.dtype, "device": t.real_device})
        value.geometry, value.device = geometry, t.real_device
        state.device = t.real_device
        root = View(state, geometry)
        root.value, root.version = value, state.version
        state.views[geometry] = root
        state.roots.append(root)
    if state.storage.nbytes() != state.nbytes:
        held = state.nbytes
        tracer.table.flat(state)
        if not is_set and _fills_new_memory():
            _fill_new_elements(tracer, t, held)
    return t


def _asked_of_set(
    func: Any, args: tuple[Any, ...]
) -> tuple[torch.UntypedStorage, int, tuple[int, ...], tuple[int, ...]] | None:
    """The storage, offset, sizes and strides (none if it names none) that ``set_`` asks for; None: an empty storage."""
    t, *given = args
    match _torch.overload_name(func), given:
        case "source_Storage", [source]:
            return source, 0, (source.nbytes() // t.dtype.itemsize,), ()
        case "source_Storage_storage_offset", [source, offset, size, *strides]:
            return source, offset, tuple(size), tuple(strides[0]) if strides else ()
        case "source_Tensor", [source]:
            return _torch.storage_of(source), int(source.storage_offset()), tuple(source.shape), tuple(source.stride())
    return None


def _set_as_it_lies(
    tracer: Tracer,
    t: Replica,
    source: torch.UntypedStorage,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
) -> None:
    """Give ``t`` the storage ``source``, where it asks for the sizes that it has, and for its strides or for none.

    Eager then lets it lie as it does, however far that reaches, and the storage as large as it is. But it refuses one
    that does not hold what was asked for, in a row if no strides were. (Of other sizes, all make the storage grow.)
    """
    nbytes = source.nbytes()
    asked = Geometry(offset, size, stride or row_major(size, t.dtype).stride, t.dtype, False, False)
    if asked.reach > nbytes:
        raise out_of_bounds(asked, source, bool(stride))
    tracer.run(aten.set_.source_Storage_storage_offset, (t, source, offset, [*size], [*t.stride()]), {})
    if source.nbytes() != nbytes:
        source.resize_(nbytes)
        state = tracer.table.state(t)
        state.reached_beyond = state.sized = True


def _fills_new_memory() -> bool:
    asked, _, fills = _torch.determinism()
    return asked and fills


def _fill_new_elements(tracer: Tracer, t: Replica, held: int) -> None:
    """Where ``resize_`` is to be deterministic it fills what comes after the ``held`` bytes."""
    dtype = t.dtype
    first, count = held // dtype.itemsize, _torch.storage_of(t).nbytes() // dtype.itemsize
    if count > first:
        inexact = dtype.is_floating_point or dtype.is_complex
        number = float("nan") if inexact else True if dtype is torch.bool else torch.iinfo(dtype).max
        filled = tracer.trace.call(
            aten.full.default, ([count - first], number), {"dtype": dtype, "device": t.real_device}
        )
        geometry = Geometry(first, (count - first,), (1,), dtype, False, False)
        filled.geometry, filled.device = geometry._replace(offset=0), t.real_device
        tracer.table.write(tracer.table.view(t, geometry), filled)
