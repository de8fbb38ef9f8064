"""What of the caller's a backward inside the function comes to at an argument: hooks, and the graph behind it.

Note [The caller's hooks]
What such a hook makes of a gradient no trace can know: it is Python, and another one perhaps in the next call. So the
graph calls it, by an op of ours, on the real argument, and goes on with what it gave. To differentiate a tensor by
itself is to call the hooks on it, in order, and to keep its gradient if the caller wants that, and nothing else. In one
call each is called once, however often the graph or a part of it is run again to find out how results lie.

What a hook gives may have a history of its own, which the graph has not: then the call is refused.

So it is with the caller's graph behind an argument, where a gradient is asked for of another that it leads to: another
op of ours runs it, from all arguments at which something arrived, and what it gives is summed up with what came to the
other by the trace's own ways. The caller's graph is retained, as a part of the graph may be run again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.failing import StrideCorrection

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

_library = torch.library.Library("aotcheck", "FRAGMENT")
_library.define("through_hooks(Tensor gradient, int argument, int number, bool create_graph, bool keeps) -> Tensor")
_library.define(
    "through_graph(Tensor[] gradients, int[] starts, int[] ends, int which, Tensor like, int number, bool create_graph)"
    " -> Tensor"
)


class _Calls(threading.local):
    """The call that this thread is in: its arguments, and what hooks gave by the number of their op.

    ``again`` is that of a call that begins anew, with the ids of its arguments.
    """

    arguments: Sequence[Any] | None = None
    given: dict[int, Any] | None = None
    again: tuple[tuple[int, ...], dict[int, Any]] | None = None


_now = _Calls()


def _through_hooks(gradient: Tensor, argument: int, number: int, create_graph: bool, keeps: bool) -> Tensor:
    arguments, given = _now.arguments, _now.given
    if arguments is None or given is None:
        raise RuntimeError("hooks are called in a call alone")
    if number not in given:
        t = arguments[argument]
        before = _torch.held_gradient(t)
        # A hook may keep what it is given.
        (given[number],) = torch.autograd.grad([t], [t], [gradient.clone()], create_graph=create_graph)
        if t.retains_grad and not keeps:
            t.grad = before
        if given[number].requires_grad:
            raise UnsupportedError("hook", "what one gives that a backward inside calls requires grad")
    return torch.empty_like(gradient).copy_(given[number].detach())


def _through_graph(
    gradients: list[Tensor],
    starts: list[int],
    ends: list[int],
    which: int,
    like: Tensor,
    number: int,
    create_graph: bool,
) -> Tensor:
    arguments, given = _now.arguments, _now.given
    if arguments is None or given is None:
        raise RuntimeError("the caller's graph is run in a call alone")
    if number not in given:
        first, last = [arguments[k] for k in starts], [arguments[k] for k in ends]
        cotangents = [g.clone() for g in gradients]
        given[number] = torch.autograd.grad(
            first, last, cotangents, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
        if any(g is None or g.requires_grad for g in given[number]):
            raise UnsupportedError("backward inside", "what the caller's graph gives is none, or requires grad")
    return torch.empty_like(like).copy_(given[number][which].detach())


def _like_another(
    gradients: list[Tensor],
    starts: list[int],
    ends: list[int],
    which: int,
    like: Tensor,
    number: int,
    create_graph: bool,
) -> Tensor:
    return torch.empty_like(like)


def _like(gradient: Tensor, argument: int, number: int, create_graph: bool, keeps: bool) -> Tensor:
    return torch.empty_like(gradient)


_library.impl("through_hooks", _through_hooks, "CompositeExplicitAutograd")
_library.impl("through_hooks", _like, "Meta")
_library.impl("through_graph", _through_graph, "CompositeExplicitAutograd")
_library.impl("through_graph", _like_another, "Meta")


def with_hooks(arguments: Sequence[Any], forward: Callable[..., Any], *inputs: Any) -> Any:
    """``forward`` of ``inputs``, in a call with these ``arguments``."""
    before = _now.arguments, _now.given
    again, _now.again = _now.again, None
    ids = tuple(map(id, arguments))
    _now.arguments, _now.given = arguments, again[1] if again is not None and again[0] == ids else {}
    kept = [(t, t.grad) for t in arguments if isinstance(t, Tensor) and t.retains_grad]
    try:
        return forward(*inputs)
    except StrideCorrection:
        _now.again = ids, _now.given
        raise
    except Exception:
        for t, gradient in kept:
            t.grad = gradient
        raise
    finally:
        _now.arguments, _now.given = before


def call_hooks(tracer: Tracer, gradient: Tensor, argument: int, number: int, keeps: bool) -> Tensor:
    """What the hooks on an argument make of ``gradient``, a replica; ``number`` is for this op alone.

    If the caller wants the argument to keep its gradient, this is one of those that it ``keeps``.
    """
    create_graph = torch.is_grad_enabled()
    found: Tensor = torch.ops.aotcheck.through_hooks.default(gradient, argument, number, create_graph, keeps)
    tracer.trace.effects.append(tracer.table.read(found))
    return found


def run_caller_graph(
    tracer: Tracer, gradients: Mapping[int, Tensor], ends: Mapping[int, Tensor], number: int
) -> list[Tensor]:
    """What comes to the arguments ``ends`` in the caller's graph of ``gradients`` at others, each by its place."""
    found = []
    for which, like in enumerate(ends.values()):
        g: Tensor = torch.ops.aotcheck.through_graph.default(
            list(gradients.values()), list(gradients), list(ends), which, like.detach(), number, torch.is_grad_enabled()
        )
        tracer.trace.effects.append(tracer.table.read(g))
        found.append(g)
    return found
