"""What kind of op each overload is, and the functional twin of each one that writes.

Note [Transparent ops]
A custom op that was given a kernel in Python but none for autograd is no black box to eager: autograd records what the
kernel calls. So where gradients are recorded, or the op gives a view, its kernel is run in its place.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Container, Mapping
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.ir.trace import Value, getitem
from aotcheck.autograd.ops.autocast_forms import LOOKED_INTO
from aotcheck.autograd.replicas.windows import COPIES_STORAGE, UNSAFE_VIEWS

aten = torch.ops.aten


class Kind(enum.Enum):
    """How the tracer treats an op."""

    PURE = "pure"  # reads its arguments, gives new tensors
    VIEW = "view"  # gives a window on its first argument
    IN_PLACE = "in-place"  # writes arguments and returns them; has a twin of the same arguments
    OUT = "out"  # writes keyword arguments; has a twin without them
    RESHAPING = "reshaping"  # changes the geometry of its argument, not its data
    STORAGE = "storage"  # changes which storage its argument refers to, or that storage's size
    STORAGE_SIZE = "storage size"  # gives its argument's storage another size, whatever its schema says
    BATCH_NORM = "batch norm"  # writes running statistics; what its schema says is not to be trusted
    VALUE_DEPENDENT = "value dependent"  # what it returns depends on data: shapes or Python values
    WRITES = "writes"  # writes arguments; see functional_forms
    UNKNOWN = "unknown"  # a higher-order op


@dataclasses.dataclass(frozen=True, eq=False)
class OpInfo:
    """What the tracer needs to know of an op, computed once; one object per op, so that it can stand for it in keys.

    ``written`` are the written arguments: positions, or names where keyword-only. ``twin`` computes functionally what
    the op writes, and takes the op's arguments in ``order`` if not in their own.
    ``transparent`` are the dispatch keys of kernels that autograd looks into: see Note [Transparent ops].
    """

    kind: Kind
    written: tuple[int | str, ...] = ()
    twin: Any = None
    random: bool = False
    takes_device: bool = False
    effectful: bool = False
    cacheable: bool = False
    order: tuple[int, ...] | None = None
    transparent: frozenset[str] = frozenset()
    looked_into: bool = False  # see Note [Kernels that autocast looks into]
    copies_storage: bool = False  # whether its result may show the rest of its first argument's storage
    leaves_room: bool = False  # see Note [Room]
    usual: bool = False  # whether a tracer is to do but what its kind says, for strided tensors of no inference mode

    def for_twin(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The op's positional arguments as the twin takes them."""
        return args if self.order is None else tuple([args[k] for k in self.order])


_STORAGE_OPS = {"set_", "resize_", "resize_as_"}
_VALUE_DEPENDENT = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.item.default,
    aten.is_nonzero.default,
    aten.allclose.default,
}
_STATIC = {"index", "repeat_interleave", aten._ctc_loss.default}  # ops that are told by arguments that are no tensors
_BATCH_NORMS = {
    "native_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
}
_IRREGULAR_TWINS: dict[Any, Any] = {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.normal_.default: aten.normal_functional.default,
    aten.pow_.Tensor: aten.pow.Tensor_Tensor,
    aten.pow_.Scalar: aten.pow.Tensor_Scalar,
    aten.float_power_.Scalar: aten.float_power.Tensor_Scalar,
    aten.floor_divide_.Tensor: aten.floor_divide.default,
    aten.float_power_.Tensor: aten.float_power.Tensor_Tensor,
    aten.ldexp_.default: aten.ldexp.Tensor,
    aten.polygamma_.default: aten.polygamma.default,
    aten.zero_.default: aten.zero.default,
    aten.copy_.default: aten.copy.default,
    **{
        getattr(getattr(aten, f"__i{n}__"), o): getattr(getattr(aten, f"__{n}__"), o)
        for n in ("and", "or", "xor", "lshift", "rshift")
        for o in ("Scalar", "Tensor")
    },
}
_ORDERS = {aten.polygamma_.default: (1, 0)}
# Views whose result may be a copy, and results that alias without the schema saying so: never answered from the cache.
UNANNOTATED_ALIASES = frozenset(
    {aten._unsafe_view.default, aten.reshape.default, aten.lift.default, aten._reshape_alias.default}
)

_HIDDEN_VIEWS = UNSAFE_VIEWS | {aten._unsafe_view.default}
_LEAVE_ROOM = frozenset(
    {
        aten.binary_cross_entropy.default,
        aten.mse_loss.default,
        aten.smooth_l1_loss.default,
        aten.soft_margin_loss.default,
    }
)

DEPENDS_ON_GRAD_MODE = (aten.mkldnn_rnn_layer.default,)
"""Ops whose kernels give what a backward needs only where grad mode is on, whatever their arguments say."""

_infos: dict[int, tuple[OpInfo, Any]] = {}  # by id, as ops hash slowly; each is kept, so that its id stays its own


def info_of(op: Any) -> OpInfo:
    """The op's info, from the cache or worked out from its schema."""
    known = _infos.get(id(op))
    if known is None:
        known = _infos[id(op)] = _work_out(op), op
    return known[0]


def _work_out(op: Any) -> OpInfo:
    if not isinstance(op, _torch.OpOverload):
        return OpInfo(Kind.UNKNOWN)
    schema = _torch.schema_of(op)
    name = _torch.op_name(op)
    tags = op.tags
    written = tuple(
        a.name if a.kwarg_only else k
        for k, a in enumerate(schema.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    )
    facts: dict[str, Any] = {
        "written": written,
        "random": torch.Tag.nondeterministic_seeded in tags,
        "takes_device": any(a.name == "device" for a in schema.arguments),
        "effectful": not schema.returns and not written,
        "looked_into": op.overloadpacket in LOOKED_INTO,
        "copies_storage": op in COPIES_STORAGE,
        "leaves_room": op in _LEAVE_ROOM,
    }
    if op.namespace not in ("aten", "prims", "prim", "inductor"):
        facts["transparent"] = _torch.transparent_kernels(op)
    if op.namespace == "inductor" and name == "resize_storage_bytes_":
        return OpInfo(Kind.STORAGE_SIZE, **facts)
    if name in _BATCH_NORMS and op.namespace == "aten":
        return OpInfo(Kind.BATCH_NORM, **facts)
    if (
        op in _VALUE_DEPENDENT
        or (torch.Tag.dynamic_output_shape in tags and name not in _STATIC and op not in _STATIC)
        or torch.Tag.data_dependent_output in tags
    ):
        return OpInfo(Kind.VALUE_DEPENDENT, **facts)
    if name in _STORAGE_OPS and op.namespace == "aten":
        return OpInfo(Kind.STORAGE, **facts)
    if written:
        if torch.Tag.inplace_view in tags or name == "detach_":
            return OpInfo(Kind.RESHAPING, **facts)
        twin, kind = _twin(op, schema, name, written)
        return OpInfo(kind, twin=twin, order=_ORDERS.get(op), **facts)
    if any(r.alias_info is not None for r in schema.returns) and op not in UNANNOTATED_ALIASES:
        return OpInfo(Kind.VIEW, usual=_is_usual(op, facts), **facts)
    cacheable = op.namespace in ("aten", "prims") and op not in UNANNOTATED_ALIASES and bool(schema.returns)
    return OpInfo(Kind.PURE, cacheable=cacheable, usual=_is_usual(op, facts), **facts)


def _is_usual(op: Any, facts: Mapping[str, Any]) -> bool:
    unusual = facts["takes_device"] or facts.get("transparent") or op in (aten.lift_fresh.default, aten.to.dtype_layout)
    return not unusual and op is not aten.lift_fresh_copy.default


_OPTIONS = ["dtype", "layout", "device", "pin_memory"]  # of factories, where they are not told into what


def _twin(op: Any, schema: Any, name: str, written: tuple[int | str, ...]) -> tuple[Any, Kind]:
    irregular = _IRREGULAR_TWINS.get(op)
    if irregular is not None:
        return irregular, Kind.IN_PLACE
    if op.namespace != "aten":
        return None, Kind.WRITES
    names = [(a.name, str(a.type)) for a in schema.arguments]
    if name.endswith("_") and not name.endswith("__"):
        twin = getattr(getattr(aten, name[:-1], None), _torch.overload_name(op), None)
        if twin is not None and not _torch.schema_of(twin).is_mutable:
            twin_names = [(a.name, str(a.type)) for a in _torch.schema_of(twin).arguments]
            if twin_names[: len(names)] == names:
                return twin, Kind.IN_PLACE
        return None, Kind.WRITES
    if all(isinstance(w, str) for w in written):
        wanted = [(a.name, str(a.type)) for a in schema.arguments if a.name not in written]
        for overload in op.overloadpacket.overloads():
            twin = getattr(op.overloadpacket, overload)
            other = _torch.schema_of(twin)
            taken = [(a.name, str(a.type)) for a in other.arguments]
            same = taken == wanted or ([n for n, _ in taken[-4:]] == _OPTIONS and taken[:-4] == wanted)
            if same and not other.is_mutable and len(other.returns) == len(written):
                return twin, Kind.OUT
    return None, Kind.WRITES


_FOREACH_OVERLOADS = {
    "List": "Tensor",
    "Scalar": "Scalar",
    "default": "default",
    "ScalarList": "Scalar",
    "Tensor": "Tensor",
}


def foreach_element_op(op: Any) -> Any:
    """The op that a ``_foreach_*_`` applies to each element, or None where there is none."""
    name = _torch.op_name(op)
    overload = _FOREACH_OVERLOADS.get(_torch.overload_name(op))
    if not name.startswith("_foreach_") or overload is None:
        return None
    packet = getattr(aten, name[len("_foreach_") :], None)
    return getattr(packet, overload, None) or getattr(packet, "default", None)


def writes_are_order_free(op: Any) -> bool:
    """Whether eager lets the op write a self-overlapping tensor: each address gets the same value from each element."""
    return op.overloadpacket in (aten.fill_, aten.zero_)


def viewed(v: Value, known: Container[Value], *, hidden: bool = True) -> Value:
    """The first value that ``v`` is a view of, or a view of a view, and that is ``known``; else no such.

    Unless ``hidden``, views that autograd does not call views are none.
    """
    while v not in known and _is_window(v.op, hidden) and type(v.args[0]) is Value:
        v = v.args[0]
    return v


def counts_apart(v: Value) -> bool:
    """Whether ``v``, in a placeholder's memory, counts its versions apart, for an op that hides that it is a view."""
    while v is not v.memory and v.op not in _HIDDEN_VIEWS and v.args and type(v.args[0]) is Value:
        v = v.args[0]
    return v.op in _HIDDEN_VIEWS


def _is_window(op: Any, hidden: bool) -> bool:
    if op in _HIDDEN_VIEWS:
        return hidden
    return op is getitem or info_of(op).kind is Kind.VIEW
