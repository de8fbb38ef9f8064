"""Arguments described in a line: ``float32[2,3]+grad int64[4]``."""

import re
from collections.abc import Callable

import torch

__all__ = ["InputsSyntaxError", "inputs_from"]

_ONE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\](?P<grad>\+grad)?")


class InputsSyntaxError(ValueError):
    """A line does not describe arguments; the message is one line that says what to write."""


def inputs_from(text: str, device: str = "cpu") -> Callable[[], tuple[torch.Tensor, ...]]:
    """What makes the tensors that a line describes: normal random numbers, integers below 4, or bools.

    Args:
        text: tensors separated by spaces, each a dtype with a shape, ``+grad`` behind those that require grad.
        device: where they are made.

    Raises:
        InputsSyntaxError: it is no such line.
    """
    found = []
    for part in re.findall(r"[^\s\[]+\[[^\]]*\]\S*|\S+", text):
        match = _ONE.fullmatch(part)
        dtype = getattr(torch, match["dtype"], None) if match else None
        if match is None or not isinstance(dtype, torch.dtype):
            raise InputsSyntaxError(f"'{part}' describes no tensor; write float32[2,3], float32[2,3]+grad or int64[4]")
        if match["grad"] and not (dtype.is_floating_point or dtype.is_complex):
            raise InputsSyntaxError(f"'{part}': tensors of dtype {match['dtype']} cannot require grad")
        try:
            shape = tuple(int(n) for n in match["shape"].split(",") if n.strip())
        except ValueError:
            raise InputsSyntaxError(f"'{part}' has an odd shape; write float32[2,3]") from None
        found.append((dtype, shape, bool(match["grad"])))
    if not found:
        raise InputsSyntaxError("no tensors are described; write float32[2,3] int64[4]")
    return lambda: tuple(_tensor(*each, device) for each in found)


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], grad: bool, device: str) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.float64).to(device, dtype).requires_grad_(grad)
    return torch.randint(0, 2 if dtype is torch.bool else 4, shape).to(device, dtype)
