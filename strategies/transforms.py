"""Calls under a transform of ``torch.func``: the caller vectorizes or differentiates the function."""

from dataclasses import replace
from itertools import zip_longest

import torch

from aotcheck.program import Around, GradMode, Program, around, build_call, flat_calls, function_of, make_call
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.running.memory import tensors_of

from .chooser import Chooser
from .state import EXPECTED, tidy

__all__ = ["draw_transform"]

_TRANSFORMS = (Around.VMAP, Around.JACREV, Around.JVP)
_OPAQUE = frozenset(
    {
        Group.METADATA,
        Group.SET,
        Group.STORAGE,
        Group.CONTAINER,
        Group.SUBCLASS,
        Group.AUTOGRAD,
        Group.CONTROL,
        Group.OPTIMIZER,
        Group.OUT,
    }
)
"""What does things to tensors that are not theirs under a transform."""
_CPU = torch.device("cpu")


def draw_transform(choose: Chooser, program: Program) -> Program:
    """The program with one of its calls under a transform, if eager makes that call."""
    index, transform = choose.below(len(program.calls)), choose.one(_TRANSFORMS)
    call = program.calls[index]
    if call.inputs is None or call.grad_mode is GradMode.INFERENCE:
        return program
    ops = [find(made.path)[0] for made in (*flat_calls(program.body), *flat_calls(call.inputs.derived))]
    if any(op.group in _OPAQUE or op.undefined for op in ops):
        return program
    made = replace(call, around=(*call.around, transform))
    torch.default_generator.manual_seed(0)
    args = build_call(program, index).args
    given = list(tensors_of(args))
    try:
        with around(made, _CPU):
            result = make_call(made, function_of(program), args)
    except EXPECTED:
        return program
    # What the function puts into a container of the caller's would outlive the transform; a gradient of its may.
    outlives = any(a is not b for a, b in zip_longest(given, tensors_of(args)))
    if outlives or any(map(_is_of_a_transform, tensors_of(result))) or not tidy(list(tensors_of(result))):
        return program
    return replace(program, calls=(*program.calls[:index], made, *program.calls[index + 1 :]))


def _is_of_a_transform(t: torch.Tensor) -> bool:
    """Whether a transform that is over made the tensor, which then has no storage to look at."""
    try:
        t.untyped_storage()
    except NotImplementedError:
        return True
    return False
