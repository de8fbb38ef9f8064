"""State of the process that a call may not change: modes, generators, and whether eager still works afterwards."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from aotcheck._torch import autograd_flags, dispatch_keys, has_saved_tensor_hooks, mode_depths

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class GlobalState:
    """The modes that a call must not change."""

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
        """The modes that differ in ``later``, each as ``name: before -> after``."""
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
    """Seed every generator from which a program on ``device`` may draw, always with the same seed.

    ``torch.manual_seed`` seeds those of all devices: 50 times slower, and it keeps three stack traces each time.
    """
    torch.default_generator.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(0)


def generator_states(device: torch.device) -> tuple[torch.Tensor, ...]:
    """The states of the generators that a program on ``device`` may draw from."""
    if device.type == "cuda":
        return torch.get_rng_state(), torch.cuda.get_rng_state(device)
    return (torch.get_rng_state(),)


def canary(device: torch.device = _CPU) -> str:
    """Run a small eager computation with a known answer, on the CPU and on ``device``; returns what is wrong with the
    answer, or an empty string.

    A failed compilation can leave the process in a state that makes later eager programs wrong (inference tensors, a
    mode on the stack). A kernel on a GPU that fails an assertion leaves it in a state where no op works on the GPU.
    Without a canary the next program would be blamed.
    """
    return _canary_on(_CPU) or (_canary_on(device) if device.type != "cpu" else "")


def _canary_on(device: torch.device) -> str:
    try:
        x = torch.tensor([2.0, 3.0], requires_grad=True, device=device)
        y = x[:1] * 3.0
        y.mul_(2.0)
        y.sum().backward()
        if x.grad is None or x.grad.tolist() != [6.0, 0.0]:
            return f"gradient is {None if x.grad is None else x.grad.tolist()}, not [6.0, 0.0]"
    except Exception as error:  # whatever it is, the process is poisoned
        return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return ""
