"""The autograd Function of a component: it attaches a history to results that are computed already."""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.config import compiling, prune
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import dense_strides, is_static
from aotcheck.autograd2.joint.joint import Request
from aotcheck.autograd2.partition import BackwardGraph
from aotcheck.autograd2.runtime.source import restrided
from aotcheck.autograd2.trace.gate import Event, refuse


@dataclass(eq=False)
class Ready:
    """A backward that can run.

    Args:
        graph: what it computes.
        function: computes it.
        expanded: of each tangent whether it may be one value that was expanded, as a sum's is.
        fits: whether it is right for these values of symbols, to which it adds floats that this backward computes of
            them; None if it is right for all that the forward graph takes, and computes none.
        alike: whether tangents are like the last ones that it took as they were.
    """

    graph: BackwardGraph
    function: Callable[..., Any]
    expanded: Sequence[bool]
    fits: Callable[[dict[str, Any]], bool] | None = None
    alike: Callable[..., bool] = lambda *_: False


@dataclass
class Runner:
    """Runs the backwards of a component.

    Attributes:
        saved: which of the forward graph's saved tensors it keeps, by position.
        make: compiles a backward that the joint graph has, and traces it first if it has not.
        frees: for each of eager's nodes that save tensors, from which results it is reached and to which inputs it
            leads: numbers of which bit ``k`` is set for the ``k``-th of these.
        readers: of each tensor that the caller must not write, which of these nodes need it; None if any backward does.
        grad_differs: whether ``torch.autograd.grad`` for all inputs does not do what ``.backward()`` does: that also
            feeds leaves that the function made and dropped, or raises.
        depends_on_inputs: whether a backward must learn to which inputs gradients are asked for.
        has_empty: whether some tensors have no elements: errors and gradients' strides hang on the tangents'.
        own_nodes: of several results, those that have nodes of their own in eager.
        ready: the backwards that were asked for.
    """

    saved: tuple[int, ...]
    make: Callable[[Request], Ready]
    frees: tuple[tuple[int, int], ...]
    readers: tuple[frozenset[int] | None, ...] = ()
    grad_differs: bool = False
    depends_on_inputs: bool = True
    has_empty: bool = False
    own_nodes: tuple[int, ...] = ()
    ready: dict[Request, Ready] = field(default_factory=dict, init=False)

    def backward(self, request: Request, sizes: dict[str, Any]) -> Ready:
        """A backward for these values of symbols, made now if it is the first of its kind."""
        if (found := self.ready.get(request)) is None:
            with compiling:
                found = self.ready[request] = self.ready.get(request) or self.make(request)
                if len(self.ready) > len(request.defined):  # each result may be differentiated alone
                    prune(self.ready)
        if found.fits is not None and not found.fits(sizes):
            refuse(Event.OTHER_SIZES)
        return found

    def run(
        self, ready: Ready, saved: Sequence[Tensor], tangents: Sequence[Tensor | None], sizes: Mapping[str, Any]
    ) -> Sequence[Tensor | None]:
        """The gradients for these tangents, and what the graph has saved; ``sizes`` are the values of symbols."""
        graph, function = ready.graph, ready.function
        given = [t for t in tangents if t is not None]
        lies = graph.backward.geometries, ready.expanded, [sizes] * len(given)
        lying = given if ready.alike(*given) else [*map(laid_out, given, *lies)]
        if lying is not given and not sizes and all(map(operator.is_, given, lying)):
            ready.alike = _torch.TensorGuards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        numbers = [sizes[name] for name in graph.symbols] if sizes else ()
        if _torch.is_cast():
            with _torch.autocast_off():
                found: Sequence[Tensor | None] = function(*saved, *numbers, *lying)
        else:
            found = function(*saved, *numbers, *lying)
        if graph.identities:
            found = [*found]
            for k, place in graph.identities:
                found[k] = given[place]
        return found

    @functools.cached_property
    def first_asked(self) -> frozenset[int]:
        """The last input, and such that eager comes by all these nodes to them: so it does if all inputs are wanted."""
        return frozenset({-1, *((leads & -leads).bit_length() - 1 for _, leads in self.frees)})

    def reached(self, request: Request) -> frozenset[int]:
        """The nodes that eager's backward brings a gradient, of those that it frees."""
        begins = sum(1 << k for k, there in enumerate(request.defined) if there)
        leads, every = sum(1 << k for k, there in enumerate(request.inputs or ()) if there), request.inputs is None
        return frozenset(k for k, (b, e) in enumerate(self.frees) if b & begins and (every or e & leads))


IDENTITY = Runner((), lambda _: refuse(Event.LATE), ())
"""Gives the tangent to its only input: for what stands for an input before it was written."""


@dataclass
class Leftover:
    """What a backward left that did not come by all nodes of a component, or that was the last.

    Attributes:
        freed: the nodes whose saved tensors eager has freed.
        saved: what is left, by position among what the component saved, with its version; None once all is freed.
    """

    freed: frozenset[int]
    saved: list[tuple[Tensor, int] | RuntimeError] | None

    def get(self, k: int) -> Tensor:
        """A saved tensor.

        Raises:
            RuntimeError: it was written since.
        """
        if self.saved is None:
            raise _torch.freed_error()
        found = self.saved[k]
        if isinstance(found, RuntimeError):
            raise found
        if _torch.version_of(found[0]) != found[1]:
            raise RuntimeError(_WRITTEN)
        return found[0]


def _taken_over(ctx: Any, count: int) -> list[tuple[Tensor, int] | RuntimeError]:
    """What ``ctx`` saved, for backwards after this one: autograd frees all of it now."""
    found: list[tuple[Tensor, int] | RuntimeError] = []
    for k in range(count):
        try:
            t = _torch.unpack(ctx, k).detach()
            found.append((t, _torch.version_of(t)))
        except RuntimeError as error:
            found.append(error)
    return found


def laid_out(t: Tensor, g: Geometry, expanded: bool, sizes: Mapping[str, int]) -> Tensor:
    """``t`` with the strides that a graph was made for, whose symbols have values if there are any, or expanded."""
    if type(t) is not Tensor and type(t) is not torch.nn.Parameter:
        refuse(Event.WRAPPER, f"a gradient is a {type(t).__name__}")
    if t.layout is not torch.strided:
        refuse(Event.SPARSE, "a gradient of a result")
    stride = g.stride if not sizes or is_static(g.stride) else dense_strides(t.shape, g.dense_order or range(t.dim()))
    t = t.resolve_conj().resolve_neg()
    return t if (expanded and not any(t.stride())) or t.stride() == stride else restrided(t.contiguous(), stride)


_WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "a tensor that the backward needs was written after the call."
)
_FREED = "the backward needs the memory of a tensor that the compiled function freed: allocate and fill it first"


def stand_in(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of that shape with the memory of one element."""
    return torch.empty_strided(shape, (0,) * len(shape), dtype=dtype, device=device)


def watch(tensors: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
    """For each a tensor without memory that counts its versions, and the version now."""
    counters = []
    for t in tensors:
        counter = t.detach()
        counter.data = counter.new_empty(0)
        counters.append((counter, _torch.version_of(counter)))
    return counters


def alone(result: Tensor) -> Callable[[Any], None]:
    """For the node that writes ``result``, a hook that raises what the backward of ``result`` raises.

    Where gradients are asked for what was written only, torch runs the last node of its history and no more.
    """
    node: Any = result.grad_fn
    request = Request(tuple(k == result.output_nr for k in range(_torch.takes(node))), ())

    def run(_: Any) -> None:
        if not _torch.wants([node])[0]:
            node.runner.backward(request, node.sizes)

    return run


def _called(hook: Callable[[Tensor], Any], gradient: Tensor | None) -> Any:
    """What a hook gives; without a gradient it is not called."""
    return None if gradient is None else hook(gradient)


class _Hooks(collections.OrderedDict[int, Any]):
    """Hooks of a tensor that eager's backward may not come to."""

    def __setitem__(self, number: int, hook: Callable[[Tensor], Any]) -> None:
        known = getattr(hook, "func", None) is _called
        super().__setitem__(number, hook if known else functools.partial(_called, hook))


class _Attached(torch.autograd.Function):
    """Results and saved tensors come in containers, so autograd sees only the inputs to which gradients flow."""

    @staticmethod
    def forward(ctx: Any, runner: Runner, results: Any, saved: Any, sizes: Any, dirty: int, *inputs: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.sizes = sizes
        ctx.runner = runner
        ctx.left = None
        ctx.dirty = dirty
        if dirty:
            ctx.mark_dirty(*inputs[:dirty])
        if saved:
            ctx.save_for_backward(*saved)
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> Any:
        if torch.is_grad_enabled():
            refuse(Event.SECOND)
        runner: Runner = ctx.runner
        if runner is IDENTITY:
            return (*(None,) * (5 + ctx.dirty), *tangents)
        request = _request(ctx, tangents)
        whole = request.inputs is None and all(request.defined)
        left: Leftover | None = ctx.left
        reached = runner.reached(request) if left is not None or not whole else frozenset()
        if left is not None and reached & left.freed:
            raise _torch.freed_error()
        ready = runner.backward(request, ctx.sizes)
        graph = ready.graph
        for (counter, version), nodes in zip(getattr(ctx, "watched", ()), runner.readers, strict=False):
            if (whole or nodes is None or nodes & reached) and _torch.version_of(counter) != version:
                raise RuntimeError(_WRITTEN)
        for t in getattr(ctx, "refilled", ()):
            if t.untyped_storage().nbytes() < t.numel() * t.itemsize:
                raise RuntimeError(_FREED)
        position = {} if graph.saved == runner.saved else {k: n for n, k in enumerate(runner.saved)}
        try:
            if left is None and whole:
                saved = ctx.saved_tensors if graph.saved else ()
                saved = [saved[position[k]] for k in graph.saved] if position else saved
            else:
                places = [position[k] for k in graph.saved] if position else range(len(graph.saved))
                saved = [_torch.unpack(ctx, k) if left is None else left.get(k) for k in places]
        except RuntimeError as error:  # of a view that the graph made, as it runs under no_grad
            written = str(error).startswith("A view was created in no_grad")
            raise (RuntimeError(_WRITTEN) if written else error) from None
        found = runner.run(ready, saved, tangents, ctx.sizes)
        for (node, _), gradient in () if whole else zip(ctx.next_functions[ctx.dirty :], found, strict=False):
            if gradient is None and _torch.accumulates(node) and (hooks := _torch.hooks_of(node.variable)):
                hooks.update(_Hooks(hooks))  # of a leaf to which eager's backward does not come
        if not _torch.keeps_graph():
            _free(ctx, runner, None if whole and left is None else reached)
        return (*(None,) * (5 + ctx.dirty), *found)


def _request(ctx: Any, tangents: Sequence[Tensor | None]) -> Request:
    """What the backward that runs now is asked for."""
    inputs, runner = None, ctx.runner
    if runner.depends_on_inputs and not _torch.wants_all():
        nodes = [node for node, _ in ctx.next_functions[ctx.dirty :]]
        if runner.grad_differs or not all(_torch.wants([nodes[k] for k in runner.first_asked])):
            inputs = _torch.wants(nodes)
    casts = _torch.casts() if _torch.is_cast() else ()
    seen = tangents if runner.has_empty else ()
    strides = tuple([t.resolve_conj().resolve_neg().stride() for t in seen if t is not None]) or None
    return Request(tuple([t is not None for t in tangents]), inputs, casts, strides)


def _free(ctx: Any, runner: Runner, reached: frozenset[int] | None) -> None:
    """The nodes that were ``reached``, or all, are freed as by eager's backward; what others need is taken over."""
    every = frozenset(range(len(runner.frees)))
    left: Leftover | None = ctx.left
    freed = every if reached is None else reached if left is None else reached | left.freed
    if freed == every and every:
        ctx.left = Leftover(freed, None)
    elif left is None:
        ctx.left = Leftover(freed, _taken_over(ctx, len(runner.saved)))
    else:
        left.freed = freed


_apply = _torch.bound_apply(_Attached, lambda node, k: _Hooks() if k in node.runner.own_nodes else None)


def attach(
    runner: Runner,
    results: Sequence[Tensor],
    saved: Sequence[Tensor],
    inputs: Sequence[Tensor],
    sizes: Any,
    dirty: Sequence[Tensor] = (),
) -> Any:
    """``results`` with the history of a component whose backward ``runner`` runs, with these values of symbols.

    Of those that are ``dirty`` there are views already. Autograd gives these a history, as to views of what is written.
    """
    left = tuple([saved[k] for k in runner.saved])
    if {*map(_torch.base_of, results)} != {None}:
        kept = {r: r.detach() for r in results if _torch.base_of(r) is not None}
        results, left = (tuple([kept.get(t, t) for t in ts]) for ts in (results, left))
    return _apply(runner, results, left, sizes, len(dirty), *dirty, *inputs)
