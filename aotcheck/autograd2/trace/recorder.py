"""Records ops on replicas: runs their meta kernels, makes nodes, and makes replicas of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from operator import getitem
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import CONSTANT, NO_KWARGS, Graph, Node, Where, ancestors, nodes_in
from aotcheck.autograd2.ir.meta import Geometry, geometry_of, row_major
from aotcheck.autograd2.ir.signature import Step
from aotcheck.autograd2.ir.size import SYMBOLIC, asking, same, symbols_in, term
from aotcheck.autograd2.trace.gate import Event, refuse, user_line
from aotcheck.autograd2.trace.generators import Draws
from aotcheck.autograd2.trace.info import OpInfo, info_of
from aotcheck.autograd2.trace.layouts import SIZED, SUMMED, as_eager, view_as_eager, without_meta_kernel
from aotcheck.autograd2.trace.replica import Needs, Replica, ViewStep, make_replica, place_of, replicas_in, state_of
from aotcheck.autograd2.trace.storage import StorageTable
from aotcheck.autograd2.trace.symbols import Symbols
from aotcheck.autograd2.trace.view import UNSAFE, UNSAFE_SPLITS, View, part_of

aten = torch.ops.aten
_PLAIN = {int, float, bool, str, complex, type(None), torch.dtype, torch.layout, torch.device, torch.memory_format}
_AS_STRIDED, _DETACH, _VIEW_DTYPE = aten.as_strided.default, aten.detach.default, aten.view.dtype
_SCATTERS = {aten.select_scatter.default: aten.select.int, aten.diagonal_scatter.default: aten.diagonal.default}
_OF_STORAGES = {*_SCATTERS, aten.slice_scatter.default, aten.as_strided_scatter.default}  # copies of all of a storage
_FEW = 1 << 20  # elements of operands that are made for real, where a meta kernel refuses them
_ANY_BOUNDS = frozenset({"_conj", "_neg_view", "_reshape_alias", "_unsafe_view", "alias", "detach", "lift", "view"})
"""Views whose kernels do not look whether the storage has the memory; those of all others do."""


class Recorder:
    """Records in ``graph`` what ops on replicas compute; ``table`` knows what each storage holds.

    Attributes:
        inside: whether a kernel runs now; replicas then say that they are on the meta device.
        asks: whether the function asked for attributes that are not torch's.
        needs: what the trace was made for, and what it was found to need.
        alive: all replicas that were made.
        keep: tensors whose addresses must not be used again.
        lines: the user's line that made a node of autograd, by the number of the node after it.
        symbols: those of sizes, if some sizes are no fixed numbers.
        in_backward: whether a backward is recorded.
        backward_inside: 1 if the function ran a backward of its own, more if it asked for gradients of arguments only.
        answered: what data decided, by op and operands: the nodes of results, a size, how results lie.
        numbers: of inputs that are numbers on the CPU, by their values: their names in guards, and the real tensors.
        kept: tensors that live till all backwards are traced.
        sparse: nodes that give sparse gradients.
        ambient: global state at the call.
    """

    def __init__(self, needs: Needs) -> None:
        super().__init__()
        self.needs = needs
        self.symbols = Symbols(needs.dynamic) if needs.dynamic or needs.symbols else None
        self.graph = Graph()
        self.ambient = _torch.global_state()
        self.table = StorageTable(self.graph, self.symbols)
        self.draws = Draws(self.graph)
        self.alive: list[Any] = []
        self.keep: list[Any] = []
        self.lines: dict[int, Where | None] = {}
        self.answered: dict[Any, Any] = {}
        self.numbers: dict[Node, tuple[str, Tensor]] = {}
        self.kept: list[Any] = []
        self.known: dict[Any, Any] = {}
        self.inside = self.asks = self.in_backward = False
        self.backward_inside = 0
        self.sparse: set[Node] = set()

    def asking(self) -> AbstractContextManager[None]:
        """Inside, what algebra does not tell of sizes is asked of the traced call, with a guard."""
        return asking(None if self.symbols is None else self.symbols.holds)

    def lift(self, t: Tensor) -> Tensor:
        """A tensor that the function made of Python values, as a constant of the graph."""
        if type(t) is Replica:
            return t
        if type(t) is not Tensor or t.layout is not torch.strided:
            refuse(Event.LAYOUT, f"a constant is a {type(t).__name__}")
        with _torch.without_modes():
            constant = self.graph.constant(t.clone(), geometry_of(t))
            made = make_replica(_lying(None, t.dtype, t.shape, t.stride()), t.device, self)
        self.table.hold(made, self.call(aten.lift_fresh_copy.default, (constant,)))
        return made

    def of_constants(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, list[Node]]:
        """What computes an op that takes what is computed of constants and ``numbers``, and of which; else None."""
        node = Node(func, self.values(args), self.value_of(dict(kwargs)))
        behind, drawn = ancestors([node], {*self.numbers}), set(self.graph.effects)
        of = [n for n in self.numbers if n in behind]
        nodes = [n for n in (*self.graph.nodes, node) if n in behind and n not in of]
        users = (n for n in nodes if getattr(n.op, "namespace", "aten") != "aten")  # their kernels never run in a trace
        varying = (n for n in nodes if n in drawn or symbols_in([*n.args, *n.kwargs.values()]))
        if len(behind) > len(nodes) + len(of) or any(varying) or any(users):
            return None, of

        def computed(*numbers: Tensor) -> Any:
            values: dict[Node, Any] = dict(zip(of, numbers, strict=True))

            def value(a: Any) -> Any:
                return values[a] if type(a) is Node else [value(x) for x in a] if type(a) in (list, tuple) else a

            with _torch.without_modes(), torch.no_grad(), torch.inference_mode(False):
                for n in nodes:
                    given = {k: value(a) for k, a in n.kwargs.items()}
                    values[n] = n.constant if n.op == CONSTANT else n.op(*value(n.args), **given)
            return values[node]

        return computed, of

    # -- ops that write nothing

    def pure(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An op that gives new tensors, or views of an argument."""
        device = self.device_of(args, kwargs)
        here = kwargs
        if info.takes_device and (kwargs.get("device") is not None or not any(isinstance(a, Tensor) for a in args)):
            here = {**kwargs, "device": _torch.META}
            kwargs = {**kwargs, "device": device}
        if here.get("layout") not in (None, torch.strided, torch.sparse_coo if self.in_backward else None):
            refuse(Event.SPARSE, str(here["layout"]))
        if func is aten.as_strided_scatter.default and geometry_of(args[0]).dense_order is None:
            refuse(Event.LAYOUT, f"{func} of a tensor with gaps, which are read")
        if (of := _SCATTERS.get(func)) and self.run(of, (args[0], *args[2:]), kwargs).shape != args[1].shape:
            raise RuntimeError(f"{func} of what has another shape than the part; its meta kernel does not ask")
        if func is aten._efficientzerotensor.default:
            with _torch.without_modes():  # the replica is one too: autograd then leaves out what eager does
                out = func(*args, **kwargs)
        else:
            out = self.measured(func, info, args, here)
        if func in SUMMED and out.dim() == 0 and 0 not in args[0].shape:
            shape = torch.broadcast_shapes(*[a.shape for a in args if isinstance(a, Tensor)])
            out = _lying(_lying(None, out.dtype, shape, row_major(shape, out.dtype).stride), out.dtype, (), ())
        if func in _OF_STORAGES and not geometry_of(args[0]).may_overlap_itself:
            whole = (_torch.storage_of(args[0]).nbytes() // out.itemsize,)
            out = _lying(_lying(None, out.dtype, whole, (1,)), out.dtype, out.shape, out.stride(), out.storage_offset())
        if info.may_alias and (source := self._aliased(out, args)) is not None:
            return self.views(func, source, args, kwargs, out)
        if func is torch.ops.inductor.resize_storage_bytes_.default:
            self.table.read(args[0])  # notes the size, which the call sets once views of what was are made
            return out
        return self.results(out, self.draw_or_call(func, self.values(args), kwargs, device), device)

    @_torch.hide_from_dynamo
    def measured(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the op's meta kernel gives, laid out as eager does, or what it gave for operands that lie so."""
        symbolic = self._with_symbols(args, kwargs)
        if func.namespace != "aten" or (info.may_alias and (not symbolic or torch.is_inference_mode_enabled())):
            return self.run(func, args, kwargs)
        key: Any = func, torch.get_default_dtype(), _measure(args), _measure([*kwargs.items()])
        known = self.known if symbolic else _known
        try:
            found = known.get(key)
        except TypeError:  # something among the arguments has no hash
            found = key = None
        if found is None:
            pointwise = symbolic and torch.Tag.pointwise in func.tags and not info.may_alias
            out = self._in_rows(func, info, args, kwargs) if pointwise else None
            out = self.run(func, args, kwargs) if out is None else out
            out = out if info.may_alias else as_eager(func, args, kwargs, out)
            given = out if (several := type(out) in (list, tuple)) else (out,)
            alias = info.may_alias and not several and out is not args[0] and self._aliased(out, args[:1]) is not None
            if key is None or info.may_alias is not alias or not all(_is_plain(o, alias) for o in given):
                return out
            if len(known) >= _MOST_KNOWN:
                known.clear()
            lies: list[Any] = [o if o is None else (o.dtype, o.shape, o.stride(), o.storage_offset()) for o in given]
            found = known[key] = several and type(out), alias, lies
        kind, alias, lies = found  # some meta kernels give an operand itself, as that of native_dropout
        if alias:
            return _lying(args[0], *lies[0])
        made = [None if x is None else _lying(None, *x) for x in lies]
        return kind(made) if kind else made[0]

    def _in_rows(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
        """What a pointwise op gives of contiguous tensors of one shape, which is guarded; measured by the sizes here.

        None where the operands are others.
        """
        given = replicas_in(args)
        lies, shapes = [geometry_of(t) for t in given], {tuple(map(_torch.hint_of, t.shape)) for t in given}
        shape = shapes.pop() if shapes else ()
        plain = all(g.is_contiguous and not (g.conj or g.neg) for g in lies)
        if shapes or not plain or not shape or any(n is None or n < 2 for n in shape):
            return None
        with _torch.without_modes():
            here = {t: torch.empty(shape, dtype=t.dtype, device=_torch.META) for t in given}
            fixed = [make_replica(here[a], state_of(a).device, self) if type(a) is Replica else a for a in args]
        out = None if self._with_symbols(fixed, kwargs) else self.measured(func, info, tuple(fixed), kwargs)
        equal = (g.shape == lies[0].shape or t.shape == given[0].shape for t, g in zip(given, lies, strict=True))
        if isinstance(out, Tensor) and geometry_of(out) == row_major(shape, out.dtype) and all(equal):
            like = min(given, key=_torch.has_symbols)
            return _lying(None, out.dtype, like.shape, like.stride())
        return None

    def _aliased(self, out: Any, args: tuple[Any, ...]) -> Tensor | None:
        """The argument on whose memory the first result lies."""
        first = next((o for o in (out if isinstance(out, (list, tuple)) else (out,)) if isinstance(o, Tensor)), None)
        if first is None:
            return None
        if first.layout is not torch.strided:
            refuse(Event.SPARSE, str(first.layout))
        address = _torch.address_of(first)
        return next((a for a in args if isinstance(a, Tensor) and _torch.address_of(a) == address), None)

    def views(self, func: Any, source: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        """Results that lie on the memory of ``source``, the op's first argument."""
        if source is not args[0]:
            refuse(Event.ALIAS, str(func))
        inference = torch.is_inference_mode_enabled()
        if inference and func in UNSAFE_SPLITS and _torch.requires_grad(source):
            refuse(Event.INFERENCE, f"{func} of a tensor that requires grad")
        parent = self.table.view(source)
        root = _torch.base_of(source)
        if (inference or not torch.is_grad_enabled()) and state_of(source if root is None else root).was_a_view:
            self.needs = self.needs.also(bases=_torch.requires_grad(source))
        state, lies, at = parent.state, parent.geometry, _torch.address_of(source)
        many = not isinstance(out, Tensor)
        rest, known = tuple(map(terms, args[1:])), {k: terms(v) for k, v in kwargs.items()}
        modes = torch.is_grad_enabled(), inference
        made = [o if type(o) is Replica else make_replica(o, state.device, self) for o in (out if many else (out,))]
        parts = tuple(geometry_of(r) for r in made)
        for k, (r, geometry) in enumerate(zip(made, parts, strict=True)):
            index = k if many else None
            if geometry not in state.views:
                if not (self.in_backward and state.is_input and same(state.nbytes, 0)):  # the caller fills it again
                    check_bounds(func, r, geometry)
                if func is _AS_STRIDED or not parent.fits:
                    self.table.view(r)
                else:
                    op, given = part_of(func, rest, parts, k) if many else (func, rest)
                    view = state.views[geometry] = View(state, geometry)
                    view.derive(parent, op, given, known or NO_KWARGS)
            if r is not source:
                how = Step(func, rest, known, index, *modes)
                before = state_of(source).step
                is_real = r.is_floating_point() or r.is_complex()
                if func is _DETACH and before is not None and before.op is _VIEW_DTYPE and not is_real:
                    state_of(r).step = before  # autograd's own: what cannot require grad is no view
                else:
                    state_of(r).step = ViewStep(source, how, (at, geometry), (at, lies), _torch.version_of(source))
                unsafe = UNSAFE if state.is_input else UNSAFE_SPLITS
                state_of(r).own_counter = state_of(source).own_counter or func in unsafe
        return type(out)(made) if many else made[0]

    # -- kernels, nodes and results

    def draw_or_call(self, func: Any, values: tuple[Any, ...], kwargs: Mapping[str, Any], device: torch.device) -> Node:
        """The node of an op. If it draws random numbers, the draw may have been recorded already: see Note [Draws]."""
        asked = func, values, self.value_of(dict(kwargs))
        if not info_of(func).random:
            return self.call(*asked)
        sequence = self.draws.of(kwargs.get("generator"), device)
        if (node := sequence.again(asked)) is None:
            sequence.settle()
            node = self.call(*asked)
            self.graph.effects.append(node)
            sequence.drew(asked, node)
        return node

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The op's meta kernel on the replicas."""
        if kwargs and "generator" in kwargs:
            kwargs = {**kwargs, "generator": None}
            if (name := _torch.overload_name(func)).endswith("generator"):  # which knows only ints
                func = getattr(func.overloadpacket, name[: -len("generator")].rstrip("_") or "default")
                del kwargs["generator"]
        if func in (aten._foreach_addcdiv.Tensor, aten._foreach_addcmul.Tensor):
            func, args = func.overloadpacket.Scalar, args[:3]  # they read numbers, which meta tensors do not hold
        self.inside = True
        try:
            with _torch.meta_kernels():
                if not self._with_symbols(args, kwargs):
                    return func(*args, **kwargs)
                if func in SIZED:
                    return torch.empty(args[2], dtype=args[0].dtype, device=_torch.META)
                with _torch.enable_python_dispatcher():
                    out = func(*args, **kwargs)
                info = info_of(func)
                checked = info.may_alias and not info.written and func.namespace == "aten" and func is not _AS_STRIDED
                return view_as_eager(func, args, kwargs, out) if checked else out
        except RuntimeError as error:
            # Torch says in words alone that an op of a user has no fake kernel; what others refuse, eager may take.
            lacks = isinstance(error, NotImplementedError) or "There was no fake impl" in str(error)
            asks = type(error) is RuntimeError and not (info_of(func).may_alias or info_of(func).random)
            asks = asks and not self._with_symbols(args, kwargs) and all(t.numel() < _FEW for t in replicas_in(args))
            self.inside = False
            if (lacks or asks) and (made := without_meta_kernel(func, args, kwargs)) is not None:
                return made
            if not lacks:
                raise  # the op refuses its operands
            refuse(Event.NO_FAKE, f"{func}: {error}")
        finally:
            self.inside = False

    def _with_symbols(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        return self.symbols is not None and any(map(_is_symbolic, (*args, *kwargs.values())))

    def device_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
        """The device of the op's results."""
        if kwargs.get("device") is not None:
            wanted = torch.device(kwargs["device"])
            return torch.device("cuda", torch.cuda.current_device()) if wanted == torch.device("cuda") else wanted
        found = replicas_in([*args, *kwargs.values()])
        decide = (x for x in found if x.dim() > 0 or state_of(x).device.type != "cpu")
        return state_of(next(decide, found[0])).device if found else torch.get_default_device()

    def value_of(self, a: Any) -> Any:
        """An argument as the graph names it."""
        if type(a) in _PLAIN:
            return a
        if type(a) is Replica:
            view = self.table.view(a)
            if self.in_backward:
                view.state.needed = True
            elif state_of(a).own_counter and torch.is_grad_enabled():
                view.state.own_counter = True
            return self.table.read_view(view)
        if type(a) in (list, tuple):
            return [self.value_of(x) for x in a]
        if type(a) is dict:
            return {k: self.value_of(x) for k, x in a.items()}
        if type(a) is torch.Generator:
            return self.draws.of(a, _torch.META).constant
        return terms(a)

    def values(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Positional arguments as the graph names them."""
        return tuple([self.value_of(a) for a in args])

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NO_KWARGS) -> Node:
        """A node with the user's line; in a backward the line of what is differentiated."""
        sparse = [n in self.sparse for n in nodes_in((*args, *kwargs.values()))] if self.sparse else []
        if any(sparse) and (func is not aten.add.Tensor or kwargs or len(args) != 2):
            refuse(Event.SPARSE, f"{func} takes a sparse gradient")
        node = self.graph.call(func, (args[1], args[0]) if sparse == [True, False] else args, kwargs)  # dense one first
        if sparse and all(sparse):
            self.sparse.add(node)
        if func is aten.index_put.default and not self.in_backward and symbols_in(args[0].geometry or ()):
            self.graph.effects.append(node)  # it raises for values of a wrong shape, which its meta kernel does not ask
        node.sequence = _torch.sequence_number()
        ran = _torch.running_sequence_number()
        self.backward_inside |= ran is not None and not self.in_backward
        if ran is not None and torch.is_inference_mode_enabled():
            refuse(Event.INFERENCE, "a backward inside of it")
        if ran is None:
            node.where = user_line()
            self.lines.setdefault(node.sequence, node.where)
        else:
            node.where = self.lines.get(ran + 1)
        return node

    def results(self, out: Any, node: Node, device: torch.device) -> Any:
        """What an op gave, as replicas that hold ``node`` or its items."""
        if isinstance(out, Tensor):
            return self.fresh(out, node, device)
        if not isinstance(out, (list, tuple)):
            if out is None:
                self.graph.effects.append(node)
            return out
        made: list[Any] = []
        for k, o in enumerate(out):
            if not isinstance(o, Tensor):
                made.append(o)
            elif twins := [m for m in made if isinstance(m, Tensor) and place_of(m) == place_of(o)]:
                made.append(twins[0] if type(o) is not Replica else o)  # some ops give one tensor twice
            else:
                made.append(self.fresh(o, self.graph.call(getitem, (node, k)), device))
        node.device = device
        return type(out)(made) if type(out) in (list, tuple) else tuple(made)

    def fresh(self, out: Tensor, node: Node, device: torch.device) -> Replica:
        """A result on memory of its own."""
        if self.in_backward and out.layout is torch.sparse_coo:
            self.sparse.add(node)  # of an embedding: to the trace it is dense, and only such ones can be added to it
            return self.fresh_at(row_major(tuple(map(term, out.shape)), out.dtype), node, device)
        if out.layout is not torch.strided:
            refuse(Event.SPARSE, str(out.layout))
        made = out if type(out) is Replica else make_replica(out, device, self)
        if _torch.address_of(made) in self.table.states:
            refuse(Event.ALIAS, str(node.op))
        self.table.hold(made, node)
        return made

    def fresh_at(self, geometry: Geometry, node: Node, device: torch.device) -> Replica:
        """A new replica of that geometry that holds ``node``."""
        with _torch.without_modes():
            g = geometry if self.symbols is None else geometry.mapped(self.symbols.number)
            made = make_replica(_lying(None, g.dtype, g.shape, g.stride), device, self)
        self.table.hold(made, node)
        return made


def _lying(beside: Tensor | None, dtype: torch.dtype, shape: Any, stride: Any, offset: Any = 0) -> Tensor:
    """A meta tensor that lies so, on the memory of another or on its own."""
    if beside is None:
        with _torch.without_modes():
            return torch.empty_strided(shape, stride, dtype=dtype, device=_torch.META)
    with torch.inference_mode(beside.is_inference()):
        return _torch.lying_on(_torch.storage_of(beside), dtype, shape, stride, offset)


_MOST_KNOWN = 20_000
_known: dict[Any, Any] = {}


def _is_plain(o: Any, alias: bool) -> bool:
    """Whether a result is none, or a tensor of which its geometry, and that it is an ``alias``, says everything."""
    known = isinstance(o, Tensor) and o.layout is torch.strided
    return o is None or (known and not (o.is_conj() or o.is_neg() or (not alias and o.storage_offset())))


def _is_symbolic(a: Any) -> bool:
    if type(a) in (list, tuple):
        return any(map(_is_symbolic, a))
    return _torch.has_symbols(a) if isinstance(a, Tensor) else type(a) in SYMBOLIC


def _measure(a: Any) -> Any:
    """An argument as far as what the op gives may depend on it."""
    if isinstance(a, Tensor):
        return (geometry_of(a), state_of(a).device, a.is_inference())
    return tuple(map(_measure, a)) if type(a) in (list, tuple) else (type(a), term(a))


def check_bounds(func: Any, t: Tensor, g: Geometry) -> None:
    """Raise as the kernels of views do, which meta kernels do not, where the storage of ``t`` ends before ``g``."""
    size = term(_torch.storage_of(t).nbytes())
    asks = _torch.op_name(func) not in _ANY_BOUNDS and (type(size) is int or func is _AS_STRIDED)
    if asks and g.is_beyond(size):
        raise RuntimeError(f"{func}: sizes {g.shape}, strides {g.stride} are out of bounds of a storage of size {size}")


def terms(a: Any) -> Any:
    """SymInts as terms, in lists too; anything else as it is."""
    if type(a) in (list, tuple):
        return type(a)([terms(x) for x in a])
    return term(a) if type(a) in SYMBOLIC else a
