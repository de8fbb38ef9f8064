"""What kind of op each overload is, and the functional variant of each that writes."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any

import torch

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.trace.view import UNSAFE_SPLITS

aten = torch.ops.aten


class Kind(enum.Enum):
    """How the trace treats an op."""

    PURE = "pure"  # reads its arguments; gives new tensors, or views of them
    IN_PLACE = "in-place"  # writes its first argument; the functional variant takes the same arguments
    OUT = "out"  # writes keyword arguments; the functional variant goes without them
    RESHAPING = "reshaping"  # changes the geometry of its argument and no data
    STORAGE = "storage"  # changes on which storage its argument lies, or that storage's size
    BATCH_NORM = "batch norm"  # writes running statistics though its schema does not say so
    DATA = "data"  # what it returns depends on data: sizes or Python values
    WRITES = "writes"  # writes arguments in another way


@dataclass(frozen=True, eq=False)
class OpInfo:
    """What is known of an op.

    Args:
        kind: how the trace treats it.
        functional: its variant that writes nothing, if it writes.
        written: of an op that writes, the arguments: positions, or names of keyword-only ones.
        random: whether it draws random numbers.
        takes_device: whether it has an argument ``device``.
        may_alias: whether its schema lets a result share memory with an argument.
        is_users: whether it is no op of torch's. Such an op may be given other kernels later.
        is_composite: whether it is an op of torch's that has no kernel of its own, but calls others.
    """

    kind: Kind
    functional: Any
    written: tuple[int | str, ...]
    random: bool
    takes_device: bool
    may_alias: bool
    is_users: bool
    is_composite: bool


_STORAGE = frozenset({"set_", "resize_", "resize_as_", "resize", "set", "resize_as_sparse_"})
_DATA = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default, aten.bincount.default}
_DATA |= {aten.nonzero.default, aten.masked_select.default, aten.repeat_interleave.Tensor}
_DATA |= {aten.unique_dim.default, aten._unique2.default, aten.unique_consecutive.default}
_ALIASING = frozenset({"reshape", "_reshape_alias", "_unsafe_view", "lift", "contiguous", "to", "_to_copy"})
_BATCH_NORM = frozenset({aten.native_batch_norm.default, aten._native_batch_norm_legit.default})


@functools.cache
def info_of(op: Any) -> OpInfo:
    """The facts about an overload."""
    schema = _torch.schema_of(op)
    written = tuple(a.name if a.kwarg_only else k for k, a in enumerate(schema.arguments) if a.is_write)
    name = _torch.op_name(op)
    kind, functional = _kind(op, name, written)
    aliases = any(r.alias_info is not None for r in schema.returns) or op.namespace != "aten" or op in UNSAFE_SPLITS
    random = torch.Tag.nondeterministic_seeded in op.tags
    may_alias = aliases or name in _ALIASING
    takes_device = any(a.name == "device" for a in schema.arguments)
    is_users = op.namespace not in ("aten", "prims")
    is_composite = not is_users and kind is not Kind.BATCH_NORM and _torch.is_composite(op)
    return OpInfo(kind, functional, written, random, takes_device, may_alias, is_users, is_composite)


def _kind(op: Any, name: str, written: tuple[int | str, ...]) -> tuple[Kind, Any]:
    if op in _BATCH_NORM:
        return Kind.BATCH_NORM, None
    if op in _DATA or torch.Tag.data_dependent_output in op.tags:
        return Kind.DATA, None
    if name in _STORAGE:
        return Kind.STORAGE, None
    if torch.Tag.inplace_view in op.tags or name == "detach_":
        return Kind.RESHAPING, None
    if not written:
        return Kind.PURE, None
    if op is aten.normal_.default:
        return Kind.IN_PLACE, aten.normal_functional.default
    in_place = op.namespace == "aten" and name.endswith("_") and not name.startswith("__") and written == (0,)
    if in_place and (found := _variant(op, getattr(aten, name[:-1], None), written)) is not None:
        return Kind.IN_PLACE, found
    to_out = op.namespace == "aten" and all(isinstance(w, str) for w in written)
    found = _variant(op, op.overloadpacket, written) if to_out else None
    return (Kind.WRITES if found is None else Kind.OUT), found


def _variant(op: Any, packet: Any, written: tuple[int | str, ...]) -> Any:
    """The overload of a name which writes nothing and gives what the op writes; one named as the op's is preferred.

    It takes the arguments of the op, but for those that are named among ``written``.
    """
    want = [(a.name, str(a.type)) for a in _torch.schema_of(op).arguments if a.name not in written]
    overloads = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    for found in sorted(overloads, key=lambda x: _torch.overload_name(x) != _torch.overload_name(op)):
        schema = _torch.schema_of(found)
        has = [(a.name, str(a.type)) for a in schema.arguments][: len(want)]
        if not schema.is_mutable and len(schema.returns) == len(written) and has == want:
            return found
    return None
