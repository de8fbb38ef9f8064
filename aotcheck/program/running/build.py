"""Builds a call's arguments (fresh storages, tensors on them, derived views), and performs the steps around it."""

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
    """The arguments of a call, ready to pass.

    Attributes:
        args: positional arguments, pytrees of tensors and constants.
        named: every tensor that the inputs name, bases that are not passed included.
        leaves: those of ``named`` that are leaves and require grad.
    """

    args: tuple[Any, ...]
    named: Mapping[str, torch.Tensor]
    leaves: Mapping[str, torch.Tensor]


def build_call(
    program: Program, index: int, device: torch.device | str = "cpu", previous: BuiltCall | None = None
) -> BuiltCall:
    """Build the arguments of call ``index``; a call without inputs of its own gets those of ``previous``, as they are.

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
"""The tensors of a call that its steps may use."""


def scene_of(built: BuiltCall) -> Scene:
    """The scene of a call: its arguments; :meth:`Scene.returned` adds the result."""
    return harness.Scene(built.args, built.named)


_fields = lru_cache(maxsize=4096)(fields_of)


def perform(step: Step, scene: Scene, hooks: list[list[torch.Tensor | None]], device: torch.device) -> None:
    """Perform one step of a plan; raises what eager raises.

    Args:
        step: what to do.
        scene: the call it is done to.
        hooks: for each hook of the program, the gradients that it has got so far; a hook step appends a list.
        device: the device for which autocast is switched on.
    """
    harness.perform(_fields(step), scene, hooks, device)


def around(call: Call, device: torch.device) -> AbstractContextManager[object]:
    """The contexts around a call, entered."""
    return harness.around((call.grad_mode.value, *(one.value for one in call.around)), device)  # type: ignore[no-any-return]


def make_call(call: Call, function: Callable[..., Any], args: Sequence[Any]) -> object:
    """Call a function, transformed by ``torch.func`` if ``call`` says so; the result."""
    return harness.call(function, tuple(args), tuple(one.value for one in call.around))


def phase_of(step: Step) -> str:
    """The name of a step in scripts and findings."""
    return str(harness.phase(_fields(step)))


def forget(scenes: Sequence[Scene]) -> None:
    """Drop all gradients of calls: after a backward that raised, eager does not promise which of them exist."""
    harness.forget(scenes)
