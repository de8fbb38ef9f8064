"""What meta kernels foretell of the results of ops; each is asked once for operands that lie alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.metadata import METADATA
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.ops.twins import OpInfo, info_of
from aotcheck.autograd.replicas.replicas import Replica

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


def metadata(
    func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], lies: dict[int, Geometry] | None = None
) -> tuple[Any, Any]:
    """(key, result): container, geometries and device of the op's fresh results; in ``lies`` how its operands lie.

    A geometry is None where the op gives no tensor. The result is None where it is not known, or not a plain list of
    fresh tensors.
    """
    lies = {} if lies is None else lies
    key: Any = None
    if info.cacheable:
        parts: list[Any] = [info_of(func)]
        for a in args:
            if type(a) is Replica:
                g = lies[id(a)] = geometry_of(a)
                parts.append((g, a.real_device))
            else:
                parts.append(_key_of(a, lies))
        if kwargs:
            parts += [(k, _key_of(a, lies)) for k, a in kwargs.items()]
        key = (*parts, torch.get_default_dtype())
        try:
            found = METADATA.find(key)
        except TypeError:
            return None, None
        if found is not None:
            return found
    return key, None


def learn(key: Any, out: Any, device: torch.device) -> None:
    """Note what a kernel gave, if it is one fresh tensor or several on storages of their own, or None for some."""
    if key is None or out is None:
        return
    results = [out] if isinstance(out, Tensor) else out
    if not isinstance(results, (list, tuple)) or not all(o is None or isinstance(o, Tensor) for o in results):
        return  # a sparse one is no tensor here
    tensors = [o for o in results if o is not None]
    geometries = [None if o is None else geometry_of(o) for o in results]
    storages = {_torch.storage_address(_torch.storage_of(o)) for o in tensors}
    plain = all(g is None or (g.offset == 0 and not g.conj and not g.neg) for g in geometries)
    if plain and len(storages) == len(tensors):
        METADATA.put(key, (None if isinstance(out, Tensor) else type(out), tuple(geometries), device))


def first_geometry(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Geometry:
    """What the result of ``func`` measures, or the first of several."""
    key, known = metadata(func, info_of(func), args, kwargs)
    if known is None:
        out = tracer.run(func, args, kwargs)
        learn(key, out, tracer.device_of(args, kwargs))
        return geometry_of(out if isinstance(out, Tensor) else out[0])
    geometry: Geometry = known[1][0]
    return geometry


def _key_of(a: Any, lies: dict[int, Geometry]) -> Any:
    if type(a) is Replica:
        g = lies[id(a)] = geometry_of(a)
        return (g, a.real_device)
    if type(a) in (list, tuple):
        return tuple([_key_of(x, lies) for x in a])
    if type(a) is torch.Generator:
        return torch.Generator
    return (a, type(a))
