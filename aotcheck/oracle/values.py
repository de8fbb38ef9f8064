"""Compares values: bitwise for exact programs, with the help of a float64 run for inexact ones."""

from dataclasses import dataclass, replace
from enum import Enum

import torch

from aotcheck._torch import is_batched, unbatched_later
from aotcheck.oracle.kinds import Deviation


class Agreement(Enum):
    """How two values compare."""

    EQUAL = "equal"
    SIGNED_ZEROS = "signed zeros differ"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two tensors: the first difference as text, and for keys how the values deviate."""

    agreement: Agreement
    eager: str = ""
    compiled: str = ""
    deviation: Deviation = Deviation.PLAIN


EQUAL = Comparison(Agreement.EQUAL)

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Tolerance:
    """How far an inexact value may be from the float64 run, or without one from eager.

    Args:
        factor: the compiled error may be this many times eager's own ...
        epsilons: ... plus this many epsilons of the largest value.
        without_reference: without a float64 run, values may differ by this many epsilons of the largest value ...
        part: ... or by this part of it, if that is more.
    """

    factor: float
    epsilons: float
    without_reference: float
    part: float = 0.0


FUZZED = Tolerance(factor=8.0, epsilons=64.0, without_reference=512.0)
"""The tolerance for random programs."""

CAST = replace(FUZZED, part=2.0**-5)
"""The tolerance of gradients under autocast: one of float32 may be a sum of values of bfloat16.

The order in which contributions to what is returned and used besides are summed is no promise: three of them, of a
program that fuzzing found, differ by one epsilon of bfloat16, and four are allowed.
"""

ROUNDING = 2.0**-10
"""A difference is rounding if it is at most this part of the largest value (for integers: of the element) ..."""

ROUNDING_EPSILONS = 4.0
"""... or this many epsilons, if that is more."""


def _bits(value: torch.Tensor) -> torch.Tensor:
    if value.dtype is torch.bool or not (value.dtype.is_floating_point or value.dtype.is_complex):
        return value
    real = _real(value)
    return real.view(_INTEGER_OF_SIZE[real.element_size()])


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.dtype.is_complex else value


def same_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Per element, whether ``first`` and ``second`` are equal; NaN equals NaN."""
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
    tolerance: Tolerance = FUZZED,
) -> Comparison:
    """Compare two dense values of the same dtype and shape.

    Args:
        eager: eager's value.
        compiled: the compiled path's value, of the same dtype and shape.
        defined: a bool per element, whether eager defines it (Note [Undefined memory]); None if it defines all.
        reference: the value in float64, for inexact programs.
        exact: whether the values must be equal.
        rtol: the share of the largest magnitude by which floating values may differ in any program.
        tolerance: how far values may differ in programs that are not exact.
    """
    if is_batched(eager) or is_batched(compiled):  # a gradient that outlives its backward with ``is_grads_batched``
        return _compare_batched(eager, compiled)
    if torch.equal(_bits(eager), _bits(compiled)):
        return EQUAL
    same = same_bits(eager, compiled)
    if defined is not None:
        same = same | ~defined
    if not exact and not bool(same.all()):
        same = same | _within(eager, compiled, reference, tolerance)
    if rtol and not bool(same.all()):
        same = same | _near(eager, compiled, rtol)
    if bool(same.all()):
        zeros = _signs_differ(eager, compiled, defined) if exact else False
        return Comparison(Agreement.SIGNED_ZEROS, "0.0", "-0.0") if zeros else EQUAL
    where = tuple(int(i) for i in (~same).nonzero()[0])
    count = int((~same).sum())
    at = f"{list(where)} ({count} of {eager.numel()} elements differ)" if where else "[]"
    shown = f"{eager[where].item()!r} at {at}", f"{compiled[where].item()!r}"
    return Comparison(Agreement.DIFFERENT, *shown, _deviation(eager, compiled, ~same))


def _compare_batched(eager: torch.Tensor, compiled: torch.Tensor) -> Comparison:
    """Compare gradients of which at least one stands for several."""
    if is_batched(eager) and is_batched(compiled):
        return compare_values(unbatched_later(eager), unbatched_later(compiled))
    several, one = "several gradients at once", "one gradient"
    shown = (several, one) if is_batched(eager) else (one, several)
    return Comparison(Agreement.DIFFERENT, *shown)


def _deviation(eager: torch.Tensor, compiled: torch.Tensor, differ: torch.Tensor) -> Deviation:
    """The class of the difference between values of one dtype, where they ``differ``."""
    e, c = eager[differ], compiled[differ]
    if e.dtype is torch.bool:
        return Deviation.PLAIN
    if not (e.dtype.is_floating_point or e.dtype.is_complex):
        return _deviation_of_integers(e, c)
    wide = torch.complex128 if e.dtype.is_complex else torch.float64
    tolerance = max(ROUNDING, ROUNDING_EPSILONS * torch.finfo(e.dtype).eps)
    whole, e, c = eager.to(wide), e.to(wide), c.to(wide)
    finite = e.isfinite() & c.isfinite()
    if not bool(finite.any()):
        return Deviation.NOT_FINITE
    scale = max(float(whole[whole.isfinite()].abs().max()), 1.0)
    near = bool(finite.all()) and bool(((e - c).abs() <= tolerance * scale).all())
    return Deviation.ROUNDING if near else Deviation.PLAIN


def _deviation_of_integers(eager: torch.Tensor, compiled: torch.Tensor) -> Deviation:
    e, c = eager.to(torch.int64), compiled.to(torch.int64)
    for narrow in (torch.int32, torch.int16, torch.int8, torch.uint8):
        info = torch.iinfo(narrow)
        left_of_it = e.to(narrow).to(torch.int64), e.clamp(info.min, info.max)
        too_large = narrow.itemsize < eager.dtype.itemsize and bool(((e < info.min) | (e > info.max)).all())
        if too_large and any(torch.equal(c, left) for left in left_of_it):
            return Deviation.NARROWED
    far, whole = (e.double() - c.double()).abs(), e.double().abs()
    return Deviation.ROUNDING if bool((far <= ROUNDING * whole).all()) else Deviation.PLAIN


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


def _within(
    eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> torch.Tensor:
    """Per element whether the compiled error is within what eager shows; infinities and NaNs must be the same."""
    dtype = eager.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros(eager.shape, dtype=torch.bool, device=eager.device)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    e, c = eager.to(wide), compiled.to(wide)
    finite = e.abs()[e.isfinite()]
    scale = max(float(finite.max()) if finite.numel() else 0.0, 1.0) * torch.finfo(dtype).eps
    if reference is None or reference.shape != eager.shape:
        part = tolerance.part / torch.finfo(dtype).eps
        return (c - e).abs() <= max(tolerance.without_reference, part) * scale
    r = reference.to(wide)
    own = (e - r).abs().nan_to_num(posinf=0.0)
    return (c - r).abs() <= tolerance.factor * own.max() + tolerance.epsilons * scale
