"""Values compared: bitwise for exact programs, against a float64 run for inexact ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch


class Agreement(Enum):
    """How two values compare."""

    EQUAL = "equal"
    SIGNED_ZEROS = "signed zeros differ"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two tensors, and for people where they differ first."""

    agreement: Agreement
    eager: str = ""
    compiled: str = ""


EQUAL = Comparison(Agreement.EQUAL)

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

ERROR_FACTOR = 8.0
"""The compiled error of an inexact program may be this many times eager's own ..."""

EPSILONS = 64.0
"""... plus this many epsilons of the largest value."""

EPSILONS_WITHOUT_REFERENCE = 512.0
"""Where there is no float64 run: this many epsilons of the largest value."""


def _bits(value: torch.Tensor) -> torch.Tensor:
    if value.dtype is torch.bool or not (value.dtype.is_floating_point or value.dtype.is_complex):
        return value
    real = _real(value)
    return real.view(_INTEGER_OF_SIZE[real.element_size()])


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.dtype.is_complex else value


def same_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Per element whether ``first`` and ``second`` are the same, NaNs being the same as each other."""
    if not (first.dtype.is_floating_point or first.dtype.is_complex):
        return first == second
    a, b = _real(first), _real(second)
    same = (a == b) | (a.isnan() & b.isnan())
    return same.all(-1) if first.dtype.is_complex else same


def compare_values(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    *,
    defined: torch.Tensor | None = None,
    reference: torch.Tensor | None = None,
    exact: bool = True,
    rtol: float = 0.0,
) -> Comparison:
    """Compare two dense values of the same dtype and shape.

    Args:
        eager: what eager computed.
        compiled: what the compiled path computed.
        defined: bool, per element whether it is defined at all (Note [Undefined memory]); None for everywhere.
        reference: the float64 value, for inexact programs.
        exact: whether the values must be equal.
        rtol: what floating values may differ by whatever the program, as a share of the largest magnitude.
    """
    if torch.equal(_bits(eager), _bits(compiled)):
        return EQUAL
    same = same_bits(eager, compiled)
    if defined is not None:
        same = same | ~defined
    if not exact and not bool(same.all()):
        same = same | _within(eager, compiled, reference)
    if rtol and not bool(same.all()):
        same = same | _near(eager, compiled, rtol)
    if bool(same.all()):
        zeros = _signs_differ(eager, compiled, defined) if exact else False
        return Comparison(Agreement.SIGNED_ZEROS, "0.0", "-0.0") if zeros else EQUAL
    where = tuple(int(i) for i in (~same).nonzero()[0])
    count = int((~same).sum())
    at = f"{list(where)} ({count} of {eager.numel()} elements differ)" if where else "[]"
    return Comparison(Agreement.DIFFERENT, f"{eager[where].item()!r} at {at}", f"{compiled[where].item()!r}")


def _signs_differ(eager: torch.Tensor, compiled: torch.Tensor, defined: torch.Tensor | None) -> bool:
    a, b = _real(eager), _real(compiled)
    if not a.dtype.is_floating_point:
        return False
    signs = (a == 0) & (a.signbit() != b.signbit())
    if defined is not None:
        signs = signs & (defined.unsqueeze(-1) if eager.dtype.is_complex else defined)
    return bool(signs.any())


def _near(eager: torch.Tensor, compiled: torch.Tensor, rtol: float) -> torch.Tensor:
    """Per element whether the values differ by at most ``rtol`` of the largest magnitude that eager shows."""
    dtype = eager.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros(eager.shape, dtype=torch.bool, device=eager.device)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    e, c = eager.to(wide), compiled.to(wide)
    finite = e.abs()[e.isfinite()]
    return (c - e).abs() <= rtol * (float(finite.max()) if finite.numel() else 0.0)


def _within(eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor | None) -> torch.Tensor:
    """Per element whether the compiled error is within what eager shows; infinities and NaNs must be the same."""
    dtype = eager.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros(eager.shape, dtype=torch.bool, device=eager.device)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    e, c = eager.to(wide), compiled.to(wide)
    finite = e.abs()[e.isfinite()]
    scale = max(float(finite.max()) if finite.numel() else 0.0, 1.0) * torch.finfo(dtype).eps
    if reference is None or reference.shape != eager.shape:
        return (c - e).abs() <= EPSILONS_WITHOUT_REFERENCE * scale
    r = reference.to(wide)
    own = (e - r).abs().nan_to_num(posinf=0.0)
    return (c - r).abs() <= ERROR_FACTOR * own.max() + EPSILONS * scale
