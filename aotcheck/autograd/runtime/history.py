"""Histories, hooks and gradients that generated code gives to tensors, and what stands for them in the graph."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.sparse_geometry import is_sparse, measure
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.runtime.backward import DEAD_END, check_own, frees
from aotcheck.autograd.runtime.undefined import told
from aotcheck.autograd.state.global_state import BackwardMode
from aotcheck.autograd.tensors.memory import as_inference, hidden_write, stand_in
from aotcheck.autograd.tensors.subclasses import is_jagged, is_wrapper, wrapping_of


def defined(ctx: Any, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """The ``gradients`` of a Function's tensors; compiled autograd counts on every one of them, so it gets zeros."""
    if isinstance(ctx, torch.autograd.function.BackwardCFunction):
        return gradients
    return tuple(
        [
            _torch.zeros_for(node, place) if g is None and node is not None else g
            for g, (node, place) in zip(gradients, ctx.next_functions, strict=True)
        ]
    )


_alias = _torch.raw_op(torch.ops.aten.alias.default)
_END = 1 << 62  # what only hands on gradients has this number, what accumulates them a greater one


class _TakeHistory(torch.autograd.Function):
    """Gives its first argument, in place, the history of its second, of the same shape; the data is left alone."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, source: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(t)
        ctx.origin, ctx.place = source.grad_fn, source.output_nr
        is_view = _torch.base_of(t) is not None
        if not is_view:
            _save_place(ctx, t, source)
        ctx.is_ragged_view = is_view and is_jagged(t)
        return t

    @staticmethod
    @_torch.hide_from_dynamo
    def backward(ctx: Any, *grads: Any) -> Any:
        # A backward that ends at ``t`` frees what the op that computed it keeps, which is behind this node, not in it.
        freed = frees(ctx.origin).get(ctx.place)
        if freed is not None and not _torch.will_run(ctx.origin):
            check_own(ctx.origin, ctx.place, freed)
        # Of a ragged view's gradient torch would make all of its base's zero that it does not show.
        own = torch.zeros_like(grads[0]) if ctx.is_ragged_view and grads[0] is not None else None
        return defined(ctx, (own, grads[0]))


def _hands_on(t: Tensor) -> None:
    """The node of ``t``, which eager has not, does its work as soon as it can, as if it were not there.

    See Note [The order of nodes].
    """
    node: Any = t.grad_fn
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        _torch.set_sequence_number(node, _END)


def by_way(leaf: Tensor) -> Tensor:
    """``leaf`` behind a node that hands on gradients, of which the engine always says whether it comes there.

    See Note [Gradients asked for].
    """
    t: Tensor = _alias(leaf)
    _torch.set_sequence_number(t.grad_fn, _END)
    return t


def order_nodes(since: int, made: Sequence[Tensor], behind: Sequence[int]) -> None:
    """See Note [The order of nodes]: the nodes of ``made`` that are numbered from ``since`` on, in that order.

    Of each those from the one on that is so many ``behind`` the last.
    """
    nodes: dict[Any, None] = {}
    for t, steps in zip(made, behind, strict=True):
        found, node = [], _torch.grad_fn_of(t)
        for _ in range(steps):
            nexts = () if node is None else node.next_functions
            node = nexts[0][0] if nexts else None
        while node is not None and node not in nodes and since <= _torch.sequence_number(node) < _END:
            found.append(node)
            nexts = [] if isinstance(node, torch.autograd.function.BackwardCFunction) else node.next_functions
            node = nexts[0][0] if len(nexts) == 1 else None
        nodes.update(dict.fromkeys(found[::-1]))
    for node, number in zip(nodes, sorted(map(_torch.sequence_number, nodes)), strict=True):
        _torch.set_sequence_number(node, number)


def accumulator_of(leaf: Tensor, recorded: Geometry, anew: bool) -> Any:
    """The node of autograd at which gradients of ``leaf`` arrive; one that is made now takes such as ``recorded``.

    It is made now if there is none, and if it is to be made ``anew``; at a view made under no_grad no gradient arrives.
    """
    if not _torch.requires_grad_by_itself(leaf):
        return None
    if anew:
        _torch.drop_accumulator(leaf, _torch.other_dtype_than(leaf, leaf.device))
    with torch.inference_mode(False), torch.enable_grad(), _like(leaf, recorded):
        return torch.autograd.graph.get_gradient_edge(leaf).node


def lend(t: Tensor, g: Geometry) -> Tensor:
    """The data of ``t``, which for the moment has data of the geometry ``g`` that nobody looks at.

    See Note [What a history records].
    """
    data = t.data
    t.data = stand_in(g.shape, g.dtype, t.device)
    return data


@contextlib.contextmanager
def _like(t: Tensor, source: Tensor | Geometry) -> Iterator[None]:
    """Inside, ``t`` has data of the shape and dtype of ``source``."""
    if is_wrapper(t) or (t.shape, t.dtype) == (source.shape, source.dtype):
        yield
        return
    data = lend(t, geometry_of(source) if isinstance(source, Tensor) else source)
    try:
        yield
    finally:
        t.data = data


def set_gradient(t: Tensor, gradient: Tensor | None) -> None:
    """``t`` has this gradient from now on, which fitted it once, whatever its shape and dtype are now."""
    if gradient is None or (gradient.shape, gradient.dtype) == (t.shape, t.dtype):
        t.grad = gradient
        return
    data = lend(gradient, geometry_of(t))
    t.grad = gradient
    gradient.data = data


def take_history(t: Tensor, source: Tensor) -> None:
    """Give ``t`` the history of ``source``; a gradient that it has stays, where marking it as written drops that."""
    gradient = _torch.held_gradient(t)
    if _torch.leafness(t) and _torch.use_count(t) > 1:
        # What gradients of a leaf arrived at would forget it, and a backward that comes there end the process.
        _torch.drop_accumulator(t, _torch.other_dtype_than(t, t.device))
    if t.requires_grad and _torch.leafness(t) is True and _torch.base_of(t) is not None:
        t.requires_grad_(False)  # a view that was a leaf until its base was written: autograd would refuse to write it
    with torch.enable_grad(), _like(t, source):
        # Autograd fails to move a gradient that is retained of what has no history any more, but not by way of a view.
        lost = t.retains_grad and _torch.leafness(t) is True
        _TakeHistory.apply(t.view_as(t) if lost else t, source)
        _hands_on(t)
    _take_place(t, source)
    _told_beside(t, source)
    if gradient is not None:
        set_gradient(t, gradient)


def take_history_of_set(
    t: Tensor, sources: Sequence[Tensor], counted: bool, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Give ``t`` the history of ``set_`` to ``sources``; it stays where it lies. If not ``counted``, no write is.

    The history is that of a tensor of this ``shape`` and ``dtype``, which ``t`` may not have any more, or not yet.
    """
    if (t.shape, t.dtype) != (shape, dtype):
        there = t.detach()
        t.data = torch.empty(shape, dtype=dtype, device=t.device)
        take_history_of_set(t, sources, counted, shape, dtype)
        t.data = there
        return
    version = _torch.version_of(t)
    with torch.enable_grad():
        for source in sources:
            torch.ops.aten.set_.source_Tensor(t, give_history(t.detach(), source))
        if not sources:
            t.set_(_torch.storage_of(t), t.storage_offset(), t.shape, t.stride())
    if not counted:
        _torch.set_version(t, version)


def take_history_uncounted(t: Tensor, source: Tensor) -> None:
    """The same without a write that views of ``t`` or of its base would notice."""
    version = _torch.version_of(t)
    if version > 0:  # it may be a view, which remembers the version with which it gets its history
        _torch.set_version(t, version - 1)
    take_history(t, source)
    _torch.set_version(t, version)


def keep_place(result: Tensor) -> None:
    """What a Function saved of itself, for its place in autograd's graph, lets go of its memory.

    See Note [Results of their own gradients]. Under hooks of the caller's on all that is saved it is they that keep it.
    """
    node: Any = result.grad_fn
    place = _torch.saved_of(node)[node.own[result.output_nr]]
    if _torch.is_packed(place):
        return
    if is_wrapper(result) and is_jagged(result):  # its shape says how ragged it is, which only a ragged one has
        place.register_hooks(_without_memory, lambda like: like.detach())
    else:
        place.register_hooks(lambda t: (t.shape, t.dtype, t.device), lambda like: stand_in(*like))


def place_of(ctx: Any, output: int) -> Tensor:
    """A tensor without memory whose history is that of an output of the Function of ``ctx``, or what took it over."""
    taker = getattr(ctx, "takers", {}).get(output, lambda: None)()
    for node, place in ((taker, 0), (ctx, ctx.own[output])):
        if node is not None:
            try:
                found: Tensor = node.saved_tensors[place]
            except RuntimeError:  # freed by this very backward, which came by the one that took over before; or written
                continue
            return found
    return DEAD_END


class _Noted(weakref.ref[Tensor]):
    """A weak reference that is known for ours."""

    note: weakref.ref[NotedView]


class NotedView:
    """A view as it is by the end of a call, noted but not held: see Note [Results of their own gradients]."""

    def __init__(self, t: Tensor) -> None:
        self._version = _torch.version_of(t)
        self.noted: _Noted | None = _Noted(t)
        self.noted.note = weakref.ref(self)

    def lasts(self) -> bool:
        """Whether it has the history that it had."""
        t = None if self.noted is None else self.noted()
        return t is not None and _torch.version_of(t) == self._version

    def place(self) -> Tensor:
        """A tensor without memory whose history is that of the view."""
        t = None if self.noted is None else self.noted()
        return DEAD_END if t is None else bridge(t)


class NotedLeaf:
    """A leaf that eager saved before it required grad: see Note [Results of their own gradients]."""

    def __init__(self, t: Tensor) -> None:
        self._leaf = t

    def lasts(self) -> bool:
        """Whether it requires grad still."""
        return self._leaf.requires_grad

    def place(self) -> Tensor:
        """The leaf."""
        return self._leaf


def note(t: Tensor) -> NotedView | NotedLeaf:
    """Note ``t``, a leaf or a view, as it is by the end of a call."""
    return NotedLeaf(t) if t.is_leaf else NotedView(t)


def forget_notes(t: Tensor) -> None:
    """Nobody notes ``t`` any more; ``swap_tensors`` refuses what there are weak references to."""
    for reference in weakref.getweakrefs(t):
        view = reference.note() if isinstance(reference, _Noted) else None
        if view is not None:
            view.noted = None


def _save_place(ctx: Any, t: Tensor, source: Tensor) -> None:
    """``t`` takes over the history of ``source``: where that keeps its place, it does too."""
    if source.output_nr in getattr(source.grad_fn, "own", ()):
        ctx.own = {0: 0}
        ctx.save_for_backward(t)


def _take_place(t: Tensor, source: Tensor) -> None:
    """Gradients that come to ``source``, whose history ``t`` took over, come to ``t``."""
    if getattr(t.grad_fn, "own", None):
        keep_place(t)
        node: Any = source.grad_fn
        node.takers = {**getattr(node, "takers", {}), source.output_nr: weakref.ref(t.grad_fn)}


class _GiveHistory(torch.autograd.Function):
    """Gives a new tensor, in a tuple so that autograd does not take it for an input, the history of its second."""

    @staticmethod
    def forward(ctx: Any, held: tuple[Tensor], source: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        _save_place(ctx, held[0], source)
        return held[0]

    @staticmethod
    @_torch.hide_from_dynamo
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, grads[0]


def give_history(t: Tensor, source: Tensor) -> Tensor:
    """``t``, which has no history, with that of ``source``."""
    with torch.enable_grad(), _like(t, source):
        result: Tensor = _GiveHistory.apply((t,), source)
    _hands_on(result)
    _take_place(result, source)
    _told_beside(result, source)
    return result


def _told_beside(t: Tensor, source: Tensor) -> None:
    """Hooks on ``t``, which has the history of ``source``, are called where gradients reach others that the same op of
    eager's gave.
    """
    mates, place = _mates(source.grad_fn), source.output_nr
    if mates and len(mates[place]) > 1 and _origin(t.grad_fn) is not None:
        hooks: OrderedDict[int, Callable[[Tensor | None], Any]] = OrderedDict()
        _torch.set_hooks(t, hooks)
        call = functools.partial(_call_all_without_gradient, hooks, place, mates[place])
        _torch.grad_fn_of(source).register_prehook(call)


def _mates(node: Any) -> Sequence[Sequence[int]]:
    """For each result of a Function of ours those that the same op of eager's gave; () if there are no others."""
    found: Sequence[Sequence[int]] = getattr(getattr(node, "_forward_cls", None), "mates", ())
    return found


def _origin(node: Any) -> tuple[Any, int] | None:
    """The node whose history is handed on by ``node``, and by which of its results; None if that does not hand on."""
    hands_on = getattr(node, "_forward_cls", None) in (_TakeHistory, _GiveHistory)
    return node.next_functions[-1] if hands_on else None


def require_grad_of_integer(t: Tensor) -> None:
    """Give an integer or bool tensor a history, as eager does when it is written from a tensor that requires grad."""
    value = t.detach().clone()
    with torch.enable_grad():
        t.ne_(torch.zeros((), device=t.device, requires_grad=True))
    hidden_write(t, value)


def require_grad_of_inference(t: Tensor) -> None:
    """Let the inference tensor ``t`` require grad, which only inference mode allows."""
    with torch.inference_mode():
        t.requires_grad_()


def retain_gradient(t: Tensor) -> None:
    """Let ``t``, no leaf, keep its gradient; of a view whose history nobody has looked for since a write autograd would
    take it for a leaf.
    """
    _torch.grad_fn_of(t)
    t.retain_grad()


def register_hook(t: Tensor, hook: Callable[[Tensor | None], Any]) -> None:
    """Register ``hook`` for the gradient of ``t``; where there is none it is called only if eager does so.

    Autograd calls hooks with None where gradients reach only other results of the same Function, eager where they reach
    others of the same op. The history of a view whose base was written is brought up to date first: torch crashes where
    a hook is put on a stale one.
    """
    node = _torch.grad_fn_of(t)
    function = getattr(node, "_forward_cls", None)
    if node is not None and function is None and _torch.outputs_of(node) > 1:  # it is eager's own
        t.register_hook(hook)
        return
    origin = _origin(node)
    if origin is not None and (mates := _mates(origin[0])):
        place = origin[1]
        t.register_hook(lambda g: None if g is None else hook(g))
        origin[0].register_prehook(functools.partial(_call_without_gradient, None, place, mates[place], hook))
        return
    if not hasattr(function, "frees"):
        t.register_hook(lambda g: None if g is None else hook(g))
        return
    place, mates, ours = t.output_nr, _mates(node), weakref.ref(node)
    if not mates:
        t.register_hook(lambda g: hook(g) if g is not None or comes_by(ours, place) else None)
        return
    t.register_hook(lambda g: None if g is None else hook(g))
    node.register_prehook(functools.partial(_call_without_gradient, ours, place, mates[place], hook))


def register_on_argument(t: Tensor, hook: Callable[[Tensor | None], Any]) -> None:
    """The same of an argument, to which a backward comes without a gradient where eager's does.

    Unless it is a result of a call itself.
    """
    node = _torch.grad_fn_of(t)
    if getattr(node, "_forward_cls", None) is None:
        t.register_hook(hook)
    else:
        register_hook(t, hook)


def _call_without_gradient(
    function: Callable[[], Any] | None,
    place: int,
    mates: Sequence[int],
    hook: Callable[[Tensor | None], Any],
    gradients: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...] | None:
    """Call ``hook`` if there is no gradient for ``place`` among ``gradients``, but for another of ``mates``.

    Or if the backward comes to that result of the ``function`` all the same.
    """
    if gradients[place] is not None:
        return None
    if all(gradients[k] is None for k in mates) and not (function is not None and comes_by(function, place)):
        return None
    given = hook(None)
    return None if given is None else (*gradients[:place], given, *gradients[place + 1 :])


def _call_all_without_gradient(
    hooks: Mapping[int, Callable[[Tensor | None], Any]],
    place: int,
    mates: Sequence[int],
    gradients: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...] | None:
    """The same of all the ``hooks`` that there are by then."""
    for hook in list(hooks.values()):
        gradients = _call_without_gradient(None, place, mates, hook, gradients) or gradients
    return gradients


def comes_by(function: Callable[[], Any], place: int) -> bool:
    """Whether the backward that is running comes to this result of a Function of ours without a gradient."""
    node = function()
    present = None if node is None else told(node, place + 1)
    return present is not None and present[place] is not None


class _HooksOfItsOwn(OrderedDict[int, Callable[[Tensor | None], Any]]):
    """The hooks on a tensor, not called where there is no gradient unless eager comes by all the same.

    See Note [Undefined gradients].
    """

    def __init__(self, node: Any, place: int) -> None:
        super().__init__()
        self.node = weakref.ref(node)
        self.place = place

    def __setitem__(self, key: int, hook: Callable[[Tensor | None], Any]) -> None:
        super().__setitem__(key, lambda g: hook(g) if g is not None or comes_by(self.node, self.place) else None)


def hooks_of_its_own(t: Tensor) -> None:
    """Hooks that the caller will register on ``t``, one of several results of a Function, are not told of backwards
    that reach only others of them: in eager each has a node of its own."""
    _torch.set_hooks(t, _HooksOfItsOwn(_torch.grad_fn_of(t), t.output_nr))


def _without_memory(t: Tensor) -> Tensor:
    """A tensor like ``t`` that takes no memory to speak of; a ragged one keeps what says how ragged it is."""
    if is_sparse(t):
        return measure(t).with_elements(0, t.device)
    if not (is_wrapper(t) and is_jagged(t)):
        return stand_in(t.shape, t.dtype, t.device)
    wrapping = wrapping_of(t)
    assert wrapping is not None
    inner = [getattr(t, name) for name, _ in wrapping.inner]
    return wrapping.build([stand_in(x.shape, x.dtype, x.device) if x.is_floating_point() else x for x in inner])


class _Bridge(torch.autograd.Function):
    """A tensor without memory in the place of another in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, recorded: Geometry | None) -> Tensor:
        ctx.set_materialize_grads(False)
        return _without_memory(t) if recorded is None else stand_in(recorded.shape, recorded.dtype, t.device)

    @staticmethod
    @_torch.hide_from_dynamo
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def bridge(t: Tensor, recorded: Geometry | None = None) -> Tensor:
    """What gradients with respect to ``t`` can be asked of when its memory need not be held: see Note [Handles].

    ``recorded`` is the geometry in its history, if that is another one: see Note [What a history records].
    """
    result: Tensor = _Bridge.apply(t, recorded)
    _hands_on(result)
    return result


def early_bridge(t: Tensor, recorded: Geometry | None = None) -> Tensor:
    """The same, made before ``t`` gets another history; gradients go by it."""
    with torch.enable_grad(), contextlib.nullcontext() if recorded is None else _like(t, recorded):
        return bridge(t, recorded)


def poison(t: Tensor) -> None:
    """What swap_tensors does to a leaf that was used before: its accumulator of gradients raises from now on."""
    if t.requires_grad and t.is_leaf:
        torch.autograd.graph.get_gradient_edge(t).node.register_prehook(_raise_poisoned)


def _raise_poisoned(*_: Any) -> None:
    """Raise what torch raises, by doing the same to a tensor of our own."""
    with torch.enable_grad():
        leaf = torch.zeros((), requires_grad=True)
        used = leaf.clone()
        torch.utils.swap_tensors(leaf, leaf)
        used.backward()


def go_on(
    targets: Sequence[Tensor],
    gradients: Sequence[Tensor],
    retained: bool,
    free: Sequence[bool],
    kinds: Sequence[bool | None],
    mode: BackwardMode,
) -> None:
    """``torch.autograd.backward`` in a mode, but that leaves may take over those of ``gradients`` that are ``free``.

    The engine has others' references to what it is called with. What a node gives on has none. ``kinds`` says which
    gradients are to be inference tensors.
    """
    with torch.inference_mode(False), torch.enable_grad():
        starts = [t.view_as(t) if f else t for t, f in zip(targets, free, strict=True)]
    given = [
        g if kind is None or g.is_inference() is kind else as_inference(g, kind)
        for g, kind in zip(gradients, kinds, strict=True)
    ]
    with mode.in_force():
        torch.autograd.backward(starts, given, retained)
