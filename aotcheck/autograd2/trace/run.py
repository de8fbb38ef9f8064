"""trace: the function runs on replicas of what a call brings; again, if that shows that it needs more."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.frontend.substitute import Change, arguments, changes, substituted
from aotcheck.autograd2.trace.functions import WithoutLooking, lengths
from aotcheck.autograd2.trace.gate import Event, met, refuse
from aotcheck.autograd2.trace.inputs import TracedInput, make_inputs, related
from aotcheck.autograd2.trace.mode import Tracer
from aotcheck.autograd2.trace.replica import Needs


class UserError(Exception):
    """The function itself raised: running the original on the real inputs shows it.

    ``needs`` are what the trace lacked, which may be the reason.
    """

    def __init__(self, needs: Needs) -> None:
        super().__init__()
        self.needs = needs


@dataclass(eq=False)
class Traced:
    """What a trace left behind.

    Attributes:
        inputs: in order; those with a node are inputs of the graph.
        result: what the function returned, with replicas in it.
        changes: what it assigned around it.
        grad_mode: grad mode afterwards, if it is another.
        modes: of the call, whether grad mode, inference mode and autocast were on.
    """

    tracer: Tracer
    bound: Bound
    inputs: list[TracedInput]
    result: Any
    changes: list[Change]
    grad_mode: bool | None
    modes: tuple[bool, bool, bool]

    def __post_init__(self) -> None:
        self.number = _torch.sequence_number()  # what has a history by now has a smaller one
        self.position: dict[Tensor, int] = {i.replica: k for k, i in enumerate(self.inputs)}

    def release(self) -> None:
        """Let go of what the call brought; what is left is for backwards that are traced later."""
        for i in self.inputs:
            i.real = i.replica
        self.bound, self.result, self.changes = Bound(), None, []

    def input_of(self, t: Tensor | None) -> int | None:
        """The position of the input whose replica ``t`` is."""
        return None if t is None else self.position.get(t)


def trace(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Bound, needs: Needs
) -> Traced:
    """Run ``fn`` on replicas.

    Raises:
        UnsupportedError: it does what cannot be traced.
        UserError: it raised an error of its own.
    """
    tracer = Tracer(needs)
    inputs = make_inputs(tracer, bound.tensors, needs.bases)
    replicas: dict[Tensor, Tensor] = {i.real: i.replica for i in inputs}
    if needs.gradients:
        for _, t in bound.tensors:
            if t.requires_grad and t.is_leaf and t.grad is not None:
                replicas[t].grad = replicas[t.grad]
    symbols = {} if tracer.symbols is None else tracer.symbols.plain(tuple(bound.numbers.values()))
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), bool(_torch.autocast_devices())
    grad = after = modes[0]
    drawing, looking = tracer.draws.stretch(bound.generators), WithoutLooking(tracer)
    with substituted(bound, replicas, symbols) as during, _state(), drawing, _torch.single_threaded_backward():
        try:
            symbolic = lengths(tracer.symbols is not None)
            with _torch.compiling(), _torch.without_dynamo(), looking, tracer, tracer.asking(), symbolic:
                given, named = arguments(bound, args, kwargs, replicas, symbols)
                met()
                try:
                    result = fn(*given, **named)
                    if refused := met():
                        raise refused
                except Exception as error:
                    traceback.clear_frames(error.__traceback__)  # modes that they entered end below this one
                    raise
                after = torch.is_grad_enabled()
                if _torch.global_state() != tracer.ambient:
                    refuse(Event.GLOBAL)
        except Exception as error:
            if any(frame.f_code is _SWAP for frame, _ in traceback.walk_tb(error.__traceback__)):
                refuse(Event.SWAP)  # torch raises as the trace has weak references to its replicas
            if tracer.needs == needs and isinstance(error, _torch.GuardOnDataDependentSymNode):
                refuse(Event.DATA, "a branch on a size that data decide")
            if tracer.needs == needs and isinstance(error, UnsupportedError):
                raise
            raise UserError(tracer.needs) from error
        found = changes(bound, during)
    differentiates = looking.differentiates or tracer.backward_inside
    if differentiates and any(_torch.has_hooks(i.real) for i in inputs if not i.input.meta.is_leaf):
        refuse(Event.CALLERS, "an argument has hooks")
    if differentiates and related(inputs):
        if needs.bases or not any(_torch.base_of(i.real) is not None for i in inputs):
            refuse(Event.CALLERS, "an argument is computed from another")
        raise UserError(needs.also(bases=True))
    return Traced(tracer, bound, inputs, result, found, None if after is grad else after, modes)


_SWAP = torch.utils.swap_tensors.__code__


@contextlib.contextmanager
def _state() -> Iterator[None]:
    """Grad mode and global state are afterwards as they were."""
    grad, state = torch.is_grad_enabled(), _torch.global_state()
    try:
        yield
    finally:
        if _torch.global_state() != state:
            _torch.set_global_state(state)
        torch.set_grad_enabled(grad)
