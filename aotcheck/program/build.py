"""Build a call's arguments: fresh storages, tensors on them, derived views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotcheck.program import harness
from aotcheck.program.interpret import dtype_of, evaluate, run_body
from aotcheck.program.model import Program

__all__ = ["BuiltCall", "build_call", "cotangent", "poke"]


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
        ValueError: a call without inputs needs ``previous``; a tensor reaches past its storage.
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
    run_body(inputs.derived, env)
    named = {name: value for name, value in env.items() if isinstance(value, torch.Tensor)}
    leaves = {name: t for name, t in named.items() if t.requires_grad and t.is_leaf}
    return BuiltCall(tuple(evaluate(a, env) for a in inputs.args), named, leaves)


def cotangent(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """The cotangent for an output: all ones for seed 0, else a pattern of small integers."""
    made: torch.Tensor = harness.cotangent(tensor, seed)
    return made


def poke(tensor: torch.Tensor, seed: int) -> None:
    """A probe's write: small integers, in place, without grad."""
    harness.poke(tensor, seed)
