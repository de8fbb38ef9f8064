"""State of the process that a call may not change: modes, generators, and whether eager still works afterwards."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from aotcheck._torch import autograd_flags, dispatch_keys, has_saved_tensor_hooks, mode_depths


@dataclass(frozen=True)
class GlobalState:
    """The modes a call must leave as it found them."""

    grad_mode: bool
    inference_mode: bool
    autocast: tuple[bool, bool]
    autocast_dtype: str
    deterministic: bool
    default_dtype: str
    mode_depths: tuple[int, int]
    autograd_flags: tuple[bool, bool]
    anomaly: bool
    dispatch_keys: tuple[str, str]
    saved_tensor_hooks: bool

    def changes(self, later: GlobalState) -> tuple[str, ...]:
        """What differs in ``later``, one ``name: before -> after`` each."""
        pairs = ((f.name, getattr(self, f.name), getattr(later, f.name)) for f in fields(self))
        return tuple(f"{name}: {before} -> {after}" for name, before, after in pairs if before != after)


def global_state() -> GlobalState:
    """The modes as they are now."""
    return GlobalState(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        str(torch.get_autocast_dtype("cpu")),
        torch.are_deterministic_algorithms_enabled(),
        str(torch.get_default_dtype()),
        mode_depths(),
        autograd_flags(),
        torch.is_anomaly_enabled(),
        dispatch_keys(),
        has_saved_tensor_hooks(),
    )


def seed_generators(device: torch.device) -> None:
    """Put every generator that a program on ``device`` may draw from into a fixed state."""
    torch.default_generator.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(0)


def generator_states(device: torch.device) -> tuple[torch.Tensor, ...]:
    """The states of the generators that a program on ``device`` may draw from."""
    if device.type == "cuda":
        return torch.get_rng_state(), torch.cuda.get_rng_state(device)
    return (torch.get_rng_state(),)


def canary() -> str:
    """A small eager computation with a known answer; what is wrong with it, or nothing.

    A failed compilation can leave the process so that later eager programs are wrong (inference-mode tensors, a mode
    left on the stack); the next program would then be blamed for it.
    """
    try:
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        y = x[:1] * 3.0
        y.mul_(2.0)
        y.sum().backward()
        if x.grad is None or x.grad.tolist() != [6.0, 0.0]:
            return f"gradient is {None if x.grad is None else x.grad.tolist()}, not [6.0, 0.0]"
    except Exception as error:  # whatever it is, the process is poisoned
        return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return ""
