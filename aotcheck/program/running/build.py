"""Build a call's arguments: fresh storages, tensors on them, derived views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from aotcheck.program.data.model import Call, OpCall, Program, Step
from aotcheck.program.data.plans import fields_of
from aotcheck.program.running import harness
from aotcheck.program.running.interpret import dtype_of, evaluate, run_body
from aotcheck.program.running.memory import reads_nothing_missing

__all__ = ["BuiltCall", "Scene", "around", "build_call", "forget", "make_call", "perform", "phase_of", "scene_of"]


@dataclass(frozen=True)
class BuiltCall:
    """A call's arguments, ready to pass.

    Attributes:
        args: positional arguments, pytrees of tensors and constants.
        named: every input-side tensor by name, bases that are not passed included.
        leaves: those of ``named`` that are leaves requiring grad.
    """

    args: tuple[Any, ...]
    named: Mapping[str, torch.Tensor]
    leaves: Mapping[str, torch.Tensor]


def build_call(
    program: Program, index: int, device: torch.device | str = "cpu", previous: BuiltCall | None = None
) -> BuiltCall:
    """The arguments of call ``index``; for a call without inputs of its own, ``previous``'s, as they are now.

    Raises:
        ValueError: a call without inputs needs ``previous``; a tensor reaches past its storage, or is read once its
            memory is freed.
    """
    inputs = program.calls[index].inputs
    if inputs is None:
        if previous is None:
            raise ValueError(f"call {index} reuses the arguments of the call before: pass previous=")
        return previous
    env: dict[str, Any] = {}
    for s in inputs.storages:
        env[s.name] = harness.storage(s.data, dtype_of(s.dtype), device)
    for t in inputs.tensors:
        env[t.name] = harness.strided(
            env[t.storage], dtype_of(t.dtype), t.size, t.stride, t.offset, requires_grad=t.requires_grad
        )
    run_body(inputs.derived, env, _whole)
    named = {name: value for name, value in env.items() if isinstance(value, torch.Tensor)}
    leaves = {name: t for name, t in named.items() if t.requires_grad and t.is_leaf}
    return BuiltCall(tuple(evaluate(a, env) for a in inputs.args), named, leaves)


def _whole(call: OpCall, env: MutableMapping[str, Any]) -> None:
    if not reads_nothing_missing(call, env):
        raise ValueError(f"{call.path} would read freed memory")


Scene = harness.Scene
"""A call's tensors, as its steps find them."""


def scene_of(built: BuiltCall) -> Scene:
    """What the steps of a call find: its arguments now, what it returns once that is known."""
    return harness.Scene(built.args, built.named)


_fields = lru_cache(maxsize=4096)(fields_of)


def perform(step: Step, scene: Scene, hooks: list[list[torch.Tensor | None]], device: torch.device) -> None:
    """Do one step of a plan, as scripts do it; raises what eager raises.

    Args:
        step: what to do.
        scene: the call it is done to.
        hooks: what each hook of the program has been called with so far; a hook step appends a list.
        device: where autocast is switched on.
    """
    harness.perform(_fields(step), scene, hooks, device)


def around(call: Call, device: torch.device) -> AbstractContextManager[object]:
    """The contexts around a call, entered."""
    return harness.around((call.grad_mode.value, *(one.value for one in call.around)), device)  # type: ignore[no-any-return]


def make_call(call: Call, function: Callable[..., Any], args: Sequence[Any]) -> object:
    """What a function gives on arguments, as a call has it called: plainly, or under a transform of ``torch.func``."""
    return harness.call(function, tuple(args), tuple(one.value for one in call.around))


def phase_of(step: Step) -> str:
    """What scripts and findings call a step."""
    return str(harness.phase(_fields(step)))


def forget(scenes: Sequence[Scene]) -> None:
    """Drop all gradients of calls: after a backward that raised, nobody promises which of them are there."""
    harness.forget(scenes)
