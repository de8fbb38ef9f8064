"""Faults in backwards: the first, the second of the same graph, and higher derivatives."""

from contextlib import suppress
from functools import partial
from typing import Any

import torch

from aotcheck.oracle import OracleKind as K
from tools.faulty.fault import Function, fault, history, on_gradients, replaced, shares, tensors

AREA = "gradients"


def expanded(g: torch.Tensor) -> bool:
    """Whether a gradient has elements that share memory."""
    return any(n > 1 and step == 0 for n, step in zip(g.shape, g.stride(), strict=True))


def first_only(g: torch.Tensor) -> torch.Tensor:
    """The gradient with all but its first element zero."""
    mask = torch.zeros(g.numel(), dtype=g.dtype)
    mask[:1] = 1
    return g * mask.view(g.shape)


@fault(AREA, K.VALUES)
def expanded_cotangent_is_read_once(fn: Function) -> Function:
    """All elements of an expanded cotangent but the first are taken for zeros."""
    return on_gradients(lambda g: first_only(g) if expanded(g) else g)(fn)


@fault(AREA, K.VALUES)
def strided_cotangent_is_read_in_order(fn: Function) -> Function:
    """A cotangent that is not contiguous is read in the wrong order, and doubled."""

    def change(g: torch.Tensor) -> torch.Tensor:
        odd = not expanded(g) and not g.is_contiguous() and g.numel() > 1
        return g.reshape(-1).flip(0).reshape(g.shape) * 2 if odd else g

    return on_gradients(change)(fn)


@fault(AREA, K.VALUES)
def infinite_cotangent_is_clipped(fn: Function) -> Function:
    """Infinities in a cotangent are replaced by the largest finite numbers."""
    return on_gradients(lambda g: torch.nan_to_num(g) if bool(g.isinf().any()) else g)(fn)


class Together(torch.autograd.Function):
    """Several tensors unchanged, attached to one node, which sees zeros where no gradient comes."""

    @staticmethod
    def forward(ctx: Any, *outputs: torch.Tensor) -> Any:
        return tuple(t.clone(memory_format=torch.preserve_format) for t in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients


def fresh_outputs(result: Any, args: Any) -> list[torch.Tensor]:
    """The outputs with a history whose memory is no other tensor's."""
    given, found = list(tensors(args)), list(tensors(result))

    def fresh(t: torch.Tensor) -> bool:
        others = [u for u in found if u is not t]
        alone = len(others) == len(found) - 1 and not shares(t, [*given, *others])
        return alone and t.numel() > 0 and t.is_contiguous() and not t.is_conj() and not t.is_neg()

    return [t for t in found if history(t) is not None and fresh(t)]


@fault(AREA, K.GRADIENT_NONE, K.VALUES)
def undefined_tangents_are_zeros(fn: Function) -> Function:
    """An output that gets no gradient passes zeros, not None, to what it was computed from."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        fresh = fresh_outputs(result, args)
        if len(fresh) < 2:
            return result
        made = dict(zip(map(id, fresh), Together.apply(*fresh), strict=True))
        return replaced(result, lambda leaf: made.get(id(leaf), leaf))

    return compiled


class Reaches(torch.autograd.Function):
    """Its first input; the others get zeros as gradients."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, *inputs: torch.Tensor) -> Any:
        ctx.save_for_backward(*inputs)
        return output.clone(memory_format=torch.preserve_format)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g, *(torch.zeros_like(x) for x in ctx.saved_tensors)


@fault(AREA, K.GRADIENT_NONE)
def unused_inputs_get_zeros(fn: Function) -> Function:
    """An input that the output does not depend on gets a gradient of zeros, not None."""

    def compiled(*args: Any) -> Any:
        trained = [t for t in tensors(args) if history(t) is None and t.requires_grad and not t.is_inference()]
        result = fn(*args)
        fresh = fresh_outputs(result, args)[:1]
        trained = [t for t in trained if history(t) is None and t.requires_grad]
        if not fresh or not trained or not torch.is_grad_enabled():
            return result
        made = Reaches.apply(fresh[0], *trained)
        return replaced(result, lambda leaf: made if leaf is fresh[0] else leaf)

    return compiled


def _beyond(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """What of a gradient goes beyond what ``.grad`` holds."""
    return g if x.grad is None else g - x.grad.detach()


@fault(AREA, K.VALUES)
def gradients_are_overwritten(fn: Function) -> Function:
    """A backward replaces ``.grad``; it does not add to it."""

    def compiled(*args: Any) -> Any:
        for x in {id(x): x for x in tensors(args)}.values():
            if x.requires_grad and history(x) is None and not x.is_inference():
                x.register_hook(partial(_beyond, x))
        return fn(*args)

    return compiled


@fault(AREA, K.VALUES)
def gradient_of_a_duplicate_counts_once(fn: Function) -> Function:
    """An argument that is passed twice gets half its gradient."""

    def compiled(*args: Any) -> Any:
        given = list(tensors(args))
        for i, x in enumerate(given):
            if any(x is u for u in given[:i]) and x.requires_grad and not x.is_inference():
                x.register_hook(lambda g: g * 0.5)
        return fn(*args)

    return compiled


@fault(AREA, K.EXCEPTION)
def backward_works_once(fn: Function) -> Function:
    """A second backward of the same output raises, even if the graph was retained."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        for t in {id(t): t for t in tensors(result)}.values():
            if history(t) is not None:
                count: list[int] = []

                def once(g: torch.Tensor, count: list[int] = count) -> torch.Tensor:
                    count.append(1)
                    if len(count) > 1:
                        raise RuntimeError("the graph is gone")
                    return g

                t.register_hook(once)
        return result

    return compiled


class Twofold(torch.autograd.Function):
    """The identity; its backward doubles."""

    @staticmethod
    def forward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g.clone()

    @staticmethod
    def backward(ctx: Any, h: torch.Tensor) -> Any:
        return h * 2


class Later(Twofold):
    """The identity; the backward of its backward doubles."""

    @staticmethod
    def backward(ctx: Any, h: torch.Tensor) -> Any:
        return Twofold.apply(h)


class Refuses(Twofold):
    """The identity, which cannot be differentiated."""

    @staticmethod
    def backward(ctx: Any, h: torch.Tensor) -> Any:
        raise RuntimeError("not differentiable twice")


@fault(AREA, K.VALUES)
def second_derivative_is_doubled(fn: Function) -> Function:
    """Second derivatives are doubled."""
    return on_gradients(Twofold.apply)(fn)


@fault(AREA, K.VALUES)
def third_derivative_is_doubled(fn: Function) -> Function:
    """Third derivatives are doubled; first and second derivatives are right."""
    return on_gradients(Later.apply)(fn)


@fault(AREA, K.EXCEPTION)
def second_derivative_is_refused(fn: Function) -> Function:
    """A gradient made with ``create_graph=True`` cannot be differentiated."""
    return on_gradients(Refuses.apply)(fn)


@fault(AREA, K.REQUIRES_GRAD)
def created_graph_is_lost(fn: Function) -> Function:
    """A gradient made with ``create_graph=True`` has no history."""
    return on_gradients(lambda g: g.detach())(fn)


@fault(AREA, K.VALUES)
def gradient_of_a_complex_output_is_conjugated(fn: Function) -> Function:
    """The cotangent of a complex output is conjugated and multiplied by 1j."""
    return on_gradients(lambda g: g.conj().resolve_conj() * 1j if g.is_complex() else g)(fn)


@fault(AREA, K.VALUES)
def gradient_in_anomaly_mode_is_zero(fn: Function) -> Function:
    """Under anomaly mode all gradients are zeros."""
    return on_gradients(lambda g: g * 0 if torch.is_anomaly_enabled() else g)(fn)


@fault(AREA, K.HOOK)
def backward_runs_ahead(fn: Function) -> Function:
    """The call runs a backward of its own, so it calls the hooks of its arguments too early."""

    def compiled(*args: Any) -> Any:
        result = fn(*args)
        outputs = [t for t in tensors(result) if history(t) is not None and t.numel()]
        wanted = [x for x in tensors(args) if x.requires_grad and not x.is_inference()]
        if outputs and wanted and torch.is_grad_enabled():
            start = torch.ones(outputs[0].shape, dtype=outputs[0].dtype)
            state = torch.get_rng_state()
            with suppress(RuntimeError):
                torch.autograd.grad(outputs[0], wanted, start, retain_graph=True, allow_unused=True)
            torch.set_rng_state(state)
        return result

    return compiled


@fault(AREA, K.VALUES)
def gradient_is_doubled(fn: Function) -> Function:
    """The cotangent of each output is doubled."""
    return on_gradients(lambda g: g * 2)(fn)
