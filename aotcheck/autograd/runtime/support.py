"""Helpers that generated code calls; each does one thing that is not worth a line of generated Python."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.sparse_geometry import is_sparse, measure
from aotcheck.autograd.subclasses import Outer, is_jagged, is_wrapper, wrapping_of
from aotcheck.autograd.trace import Geometry, geometry_of


def flat_view(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole storage of ``t`` as one dimension of ``dtype``, unknown to autograd."""
    storage = t.untyped_storage()
    whole = torch.empty(0, dtype=dtype, device=t.device)
    return _torch.set_geometry(whole, storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def flat_write(t: Tensor, dtype: torch.dtype, value: Tensor) -> None:
    """Overwrite the whole storage of ``t``; no version counter moves."""
    if value.numel():
        flat_view(t, dtype)[: value.numel()].copy_(value)


def hidden_write(t: Tensor, value: Tensor) -> None:
    """Overwrite ``t`` without autograd or its version counter noticing."""
    with torch.no_grad():
        t.data.copy_(value)


def version_write(t: Tensor, value: Tensor) -> None:
    """Overwrite ``t`` as a write under no_grad does."""
    if not torch.is_grad_enabled():
        t.copy_(value)
        return
    with torch.no_grad():
        t.copy_(value)


def stand_in(shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of this shape that takes no memory to speak of and whose data nobody looks at."""
    with torch.no_grad():
        return torch.empty((), dtype=dtype, device=device).expand(shape).detach()


class _TakeHistory(torch.autograd.Function):
    """Gives its first argument, in place, the history of its second, of the same shape; the data is left alone."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, source: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(t)
        ctx.origin, ctx.place = source.grad_fn, source.output_nr
        if _torch.base_of(t) is None:
            _save_place(ctx, t, source)
        return t

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        # A backward that ends at ``t`` frees what the op that computed it keeps, which is behind this node, not in it.
        if ctx.place in frees(ctx.origin) and not _torch.will_run(ctx.origin):
            objection = frees(ctx.origin)[ctx.place]
            if objection is not None:
                raise RuntimeError(objection)
            use_context(ctx.origin)
        return None, grads[0]


def under_grad_mode(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with grad mode on, on tensors that have no history."""

    def call(*args: Any) -> Any:
        with torch.enable_grad():
            return run(*[a.detach() if isinstance(a, Tensor) else a for a in args])

    return call


def accumulator_of(leaf: Tensor, recorded: Geometry, anew: bool) -> Any:
    """The node of autograd at which gradients of ``leaf`` arrive; one that is made now takes such as ``recorded``.

    It is made now if there is none, and if it is to be made ``anew``.
    """
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
    if not is_wrapper(t) and _torch.leafness(t) and _torch.use_count(t) > 1:
        # What gradients of a leaf arrived at would forget it, and a backward that comes there end the process.
        _torch.drop_accumulator(t, _torch.other_dtype_than(t, t.device))
    with torch.enable_grad(), _like(t, source):
        _TakeHistory.apply(t, source)
    _take_place(t, source)
    if gradient is not None:
        set_gradient(t, gradient)


def take_history_uncounted(t: Tensor, source: Tensor) -> None:
    """The same without a write that views of ``t`` would notice."""
    version = _torch.version_of(t)
    take_history(t, source)
    _torch.set_version(t, version)


# -- results of their own gradients


def keep_place(result: Tensor) -> None:
    """What a Function saved of itself, for its place in autograd's graph, lets go of its memory.

    See Note [Results of their own gradients]. Under hooks of the caller's on all that is saved it is they that keep it.
    """
    node: Any = result.grad_fn
    place = _torch.saved_of(node)[node.own[result.output_nr]]
    if not _torch.is_packed(place):
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


# -- histories


class _GiveHistory(torch.autograd.Function):
    """Gives a new tensor, in a tuple so that autograd does not take it for an input, the history of its second."""

    @staticmethod
    def forward(ctx: Any, held: tuple[Tensor], source: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        _save_place(ctx, held[0], source)
        return held[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, grads[0]


def give_history(t: Tensor, source: Tensor) -> Tensor:
    """``t``, which has no history, with that of ``source``."""
    with torch.enable_grad(), _like(t, source):
        result: Tensor = _GiveHistory.apply((t,), source)
    _take_place(result, source)
    return result


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


def restride_wrapper(t: Tensor, outer: Outer) -> None:
    """Change the geometry that the wrapper ``t`` claims to have; its class is not asked."""
    with torch.no_grad(), _torch.meta_kernels():
        t.as_strided_(*outer)


def register_hook(t: Tensor, hook: Callable[[Tensor], Any]) -> None:
    """Register ``hook`` for the gradient of ``t``; it is not called when there is none.

    Autograd calls hooks with None where gradients reach only other results of the same Function. The history of a view
    whose base was written is brought up to date first: torch crashes where a hook is put on a stale one.
    """
    _torch.grad_fn_of(t)
    t.register_hook(lambda g: None if g is None else hook(g))


class _HooksOfItsOwn(OrderedDict[int, Callable[[Tensor], Any]]):
    """The hooks on a tensor, not called where there is no gradient."""

    def __setitem__(self, key: int, hook: Callable[[Tensor], Any]) -> None:
        super().__setitem__(key, lambda g: None if g is None else hook(g))


def hooks_of_its_own(t: Tensor) -> None:
    """Hooks that the caller will register on ``t``, one of several results of a Function, are not told of backwards
    that reach only others of them: in eager each has a node of its own."""
    if type(t) is Tensor:
        _torch.set_hooks(t, _HooksOfItsOwn())


def restride(t: Tensor, shape: Any, stride: Any, offset: int) -> None:
    """Change the geometry of ``t`` in place; its history does not show it."""
    with torch.inference_mode() if t.is_inference() else torch.no_grad():
        t.as_strided_(shape, stride, offset)


def reshape_in_backward(t: Tensor, before: Geometry, after: Geometry) -> None:
    """Change the geometry of ``t`` from ``before`` as the traced backward does, as a change that counts as a write.

    Raises:
        UnsupportedError: it has another geometry by now, for which another backward would have to be traced.
    """
    if geometry_of(t) != before:
        raise UnsupportedError("mutation in the backward", "of the metadata of a tensor, for the second time")
    restride(t, after.shape, after.stride, after.offset)


def point_at(t: Tensor, holder: Tensor, g: Geometry, relative: bool) -> None:
    """``t`` moves to the storage of ``holder``; its history does not show it."""
    offset = g.offset + (int(holder.storage_offset()) if relative else 0)
    _torch.set_geometry(t, holder.untyped_storage(), offset, g.shape, g.stride)


def point_at_untold(t: Tensor, holder: Tensor, g: Geometry, relative: bool) -> None:
    """The same in inference mode: a leaf goes on taking gradients of the shape that it had."""
    with torch.inference_mode():
        point_at(t, holder, g, relative)


def point_data_at(t: Tensor, holder: Tensor, g: Geometry, relative: bool, inference: bool) -> None:
    """The same by ``.data =``, after which ``t`` is an inference tensor, or is none."""
    offset = g.offset + (int(holder.storage_offset()) if relative else 0)
    t.data = window_of_kind(holder, g._replace(offset=offset), None, True, inference)


def window_on(holder: Tensor, g: Geometry, anchor: int | None, own_version: bool) -> Tensor:
    """A tensor on the storage of ``holder`` that autograd does not relate to it; it shares the version counter unless
    ``own_version``.

    ``anchor`` is the offset ``holder`` had when traced; None where the storage is the caller's own and offsets are
    absolute.
    """
    offset = g.offset if anchor is None else g.offset - anchor + int(holder.storage_offset())
    d = holder.data if own_version else holder.detach()
    if d.is_conj():
        d = _torch.conj_view(d)
    if d.is_neg():
        d = _torch.neg_view(d)
    with torch.no_grad():
        if d.dtype != g.dtype:
            nbytes = d.untyped_storage().nbytes()
            if nbytes % d.itemsize or nbytes % g.dtype.itemsize:
                d = _torch.set_geometry(
                    torch.empty(0, dtype=g.dtype, device=d.device), d.untyped_storage(), offset, g.shape, g.stride
                )
            else:
                d = d.as_strided((nbytes // d.itemsize,), (1,), 0).view(g.dtype)
        d = d.as_strided(g.shape, g.stride, offset).detach()
        d = _torch.conj_view(d) if g.conj else d
        return _torch.neg_view(d) if g.neg else d


def window_of_kind(holder: Tensor, g: Geometry, anchor: int | None, own_version: bool, inference: bool) -> Tensor:
    """The same, and an inference tensor, or (not ``inference``) one that is none; versions are shared within a kind."""
    with torch.inference_mode(inference):
        if holder.is_inference() == inference:
            return window_on(holder, g, anchor, own_version)
        offset = g.offset if anchor is None else g.offset - anchor + int(holder.storage_offset())
        return _plain_window(holder.untyped_storage(), g._replace(offset=offset), holder.device)


def _plain_window(storage: torch.UntypedStorage, g: Geometry, device: torch.device) -> Tensor:
    t = torch.empty(0, dtype=g.dtype, device=device)
    _torch.set_geometry(t, storage, g.offset, g.shape, g.stride)
    t = _torch.conj_view(t) if g.conj else t
    return _torch.neg_view(t) if g.neg else t


def replay_without_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made under no_grad, whatever the caller's grad mode."""
    with torch.no_grad():
        result: Tensor = view_func(base)
    return result


def replay_with_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made under grad, whatever the caller's grad mode."""
    with torch.enable_grad():
        result: Tensor = view_func(base)
    return result


def replay_outdated(view_func: Callable[[Tensor], Tensor], base: Tensor) -> Tensor:
    """A view of ``base`` that autograd takes for one made before a write."""
    with _torch.at_another_version(base):
        return view_func(base)


def replay_at(view_func: Callable[[Tensor], Tensor], version: int, base: Tensor) -> Tensor:
    """A view of ``base`` that autograd takes for made when its counter stood at ``version``."""
    with _torch.as_if_written(base, version - _torch.version_of(base)):
        return view_func(base)


def replay_under_inference_mode(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made under inference mode."""
    with torch.inference_mode():
        result: Tensor = view_func(base)
    return result


def replay_outside_with_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made outside the inference mode of the call, under grad."""
    with torch.inference_mode(False):
        return replay_with_grad(view_func, base)


def replay_outside_without_grad(view_func: Any, base: Tensor) -> Tensor:
    """A view of ``base`` as one made outside the inference mode of the call, under no_grad."""
    with torch.inference_mode(False):
        return replay_without_grad(view_func, base)


def as_inference(t: Tensor, wanted: bool) -> Tensor:
    """``t``, which nobody else has, as an inference tensor on the same memory; or as one that is none."""
    with torch.inference_mode(wanted):
        return _plain_window(t.untyped_storage(), geometry_of(t), t.device)


def as_saved(t: Tensor) -> Tensor:
    """``t``, which the forward computed for the backward, as a tensor that autograd lets be saved."""
    return as_inference(t, False) if t.is_inference() and not is_sparse(t) else t


def watch(t: Tensor, place: int) -> tuple[Tensor, str, int, int]:
    """What ``check_watched`` needs to see whether ``t`` was written before the backward from output ``place``.

    That is a tensor without memory that counts versions with ``t``.
    """
    counter = t.detach()
    if not is_wrapper(t):
        counter.data = (
            measure(t).with_elements(0, t.device) if is_sparse(t) else torch.empty(0, dtype=t.dtype, device=t.device)
        )
    kind = t.layout if is_sparse(t) else t.type()
    return counter, f"{kind} {list(t.shape)}", _torch.version_of(t), place


def check_watched(watched: Sequence[tuple[Tensor, str, int, int]], defined: Sequence[bool]) -> None:
    """Raise as eager does where memory that it saved for this backward was written since."""
    for counter, what, version, place in watched:
        now = _torch.version_of(counter)
        if defined[place] and now != version:
            if is_jagged(counter):
                torch.ops.aten._nested_tensor_size.default(counter)  # eager's message asks for it, which raises
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{what}] is at version {now}; expected version {version} instead"
            )


def kind_of(t: Tensor) -> Any:
    """What tells tangents apart that are taken in other ways: the type, or the layout of a sparse tensor."""
    return t.layout if is_sparse(t) else type(t)


def with_strides(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """``t`` copied to other strides."""
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def with_strides_lazily(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """The same; what is lazy about ``t`` stays so."""
    conj, neg = t.is_conj(), t.is_neg()
    t = _torch.conj_view(t) if conj else t
    t = with_strides(_torch.neg_view(t) if neg else t, stride)
    t = _torch.conj_view(t) if conj else t
    return _torch.neg_view(t) if neg else t


def with_layout(t: Tensor, g: Geometry) -> Tensor:
    """``t`` copied to the geometry ``g``, storage offset included."""
    room = torch.empty(g.elements_reached, dtype=g.dtype, device=t.device)
    laid_out = torch.empty(0, dtype=g.dtype, device=t.device)
    with torch.no_grad():
        _torch.set_geometry(laid_out, room.untyped_storage(), g.offset, g.shape, g.stride)
        laid_out = _torch.conj_view(laid_out) if g.conj else laid_out
        return (_torch.neg_view(laid_out) if g.neg else laid_out).copy_(t).detach()


def frees(node: Any) -> dict[int, str | None]:
    """The results of a Function of ours whose own op in eager keeps what a backward frees.

    With each comes what that op's backward raises because it was written inside already, if it was.
    """
    function = getattr(node, "_forward_cls", None)
    return getattr(function, "frees", {})


def use_context(ctx: Any) -> None:
    """Raise if what the Function of ``ctx`` saved is freed; free it after the backward that is running, if that frees.

    Not at once: the Function may have its own turn in the same backward.
    """
    check_not_spent(ctx)
    _torch.unpack_some(ctx, ())
    if not _torch.backward_keeps_graph():
        _torch.after_backward(functools.partial(setattr, ctx, "spent", True))


def check_not_spent(ctx: Any) -> None:
    """Raise as eager does where a derivative of this backward has freed what it needs."""
    if getattr(ctx, "spent", False):
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Specify retain_graph=True if you need to backward through the graph a second time"
        )


DEAD_END = torch.zeros((), requires_grad=True)


@functools.cache
def beyond() -> Tensor:
    """A tensor with a history that a backward comes by only if it comes by everything."""
    with torch.inference_mode(False), torch.enable_grad():
        return DEAD_END.unsqueeze(0)


def raise_if_all_runs(error: str) -> None:
    """Raise what a node does that leads to nobody who could ask for gradients, if the backward leaves nothing out."""
    if _torch.will_run(beyond().grad_fn):
        raise RuntimeError(error)


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
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def bridge(t: Tensor, recorded: Geometry | None = None) -> Tensor:
    """What gradients with respect to ``t`` can be asked of when its memory need not be held: see Note [Handles].

    ``recorded`` is the geometry in its history, if that is another one: see Note [What a history records].
    """
    result: Tensor = _Bridge.apply(t, recorded)
    return result


def early_bridge(t: Tensor) -> Tensor:
    """The same, made before ``t`` gets another history; gradients go by it."""
    with torch.enable_grad():
        return bridge(t)


class GraphFailed(Exception):
    """A compiled forward raised; nothing of the caller's has been touched, random state included."""


def check_swap(t: Tensor) -> None:
    """Do what swap_tensors does before it swaps: refuse a tensor that others hold, poison a leaf that was used."""
    try:
        torch.utils.swap_tensors(t, t)
    except RuntimeError as error:
        raise GraphFailed from error


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


class StrideCorrection(Exception):
    """The first run showed other strides than the trace foretold."""


def generator_states(*own: torch.Generator) -> Any:
    """The state of every generator a graph may draw from: the default ones, and the call's ``own``."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda, [(g, g.get_state()) for g in own]


def restore_generators(states: Any) -> None:
    """Undo all drawing since ``generator_states`` was called."""
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state_all(states[1])
    for generator, state in states[2]:
        generator.set_state(state)
