"""Changes of a call's arguments, after which a backend must still do what eager does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["CHANGES", "Arguments", "Change", "NotApplicableError"]


class NotApplicableError(Exception):
    """The arguments have nothing to which this change applies."""


@dataclass
class Arguments:
    """The arguments of a call, while changes are applied.

    Args:
        leaves: the arguments, flattened.
        further: by name, tensors that are not passed but compared: bases, and leaves from which arguments are computed.
    """

    leaves: list[Any]
    further: dict[str, torch.Tensor] = field(default_factory=dict)

    def tensors(self) -> list[tuple[int, torch.Tensor]]:
        """The tensors among the leaves and where they are."""
        return [(i, leaf) for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True)
class Change:
    """One change of arguments.

    Args:
        name: its name.
        text: its effect, in a sentence.
        make: changes arguments; raises :class:`NotApplicableError` if there is nothing to change.
    """

    name: str
    text: str
    make: Callable[[Arguments], None]


CHANGES: dict[str, Change] = {}
"""Every change by name."""


def _change(make: Callable[[Arguments], None]) -> Callable[[Arguments], None]:
    name = make.__name__.replace("_", " ").strip()
    CHANGES[name] = Change(name, " ".join((make.__doc__ or "").split()), make)
    return make


def _differentiable(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _on(
    storage: torch.UntypedStorage, t: torch.Tensor, offset: int, stride: tuple[int, ...], copy: bool = True
) -> torch.Tensor:
    """A leaf like ``t`` on a storage, which holds the values of ``t`` there."""
    made = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, offset, t.shape, stride)
    if copy:
        made.copy_(t.detach())
    return made.requires_grad_(t.requires_grad)


def _laid_out(
    given: Arguments,
    fits: Callable[[torch.Tensor], bool],
    layout: Callable[[torch.Tensor], tuple[int, tuple[int, ...]]],
) -> None:
    """Each tensor that fits on a storage of its own: at an offset, with strides."""
    chosen = [(i, t) for i, t in given.tensors() if fits(t)]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        offset, stride = layout(t)
        room = offset + 3 + sum((n - 1) * s for n, s in zip(t.shape, stride, strict=True))
        base = torch.zeros(max(room, 1), dtype=t.dtype, device=t.device)
        given.leaves[i] = _on(base.untyped_storage(), t, offset, stride)
        given.further[f"base[{i}]"] = base


def _row_major(shape: torch.Size) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@_change
def without_grad(given: Arguments) -> None:
    """No argument requires grad."""
    chosen = [(i, t) for i, t in given.tensors() if t.requires_grad]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        given.leaves[i] = t.detach().clone()


@_change
def with_grad(given: Arguments) -> None:
    """Every argument that can be is a leaf that requires grad."""
    chosen = [(i, t) for i, t in given.tensors() if _differentiable(t) and not t.requires_grad]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        given.leaves[i] = t.detach().clone().requires_grad_()


@_change
def non_leaves(given: Arguments) -> None:
    """Every argument that can be was computed from a leaf that requires grad."""
    chosen = [(i, t) for i, t in given.tensors() if _differentiable(t)]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        leaf = t.detach().clone().requires_grad_()
        given.further[f"leaf[{i}]"] = leaf
        given.leaves[i] = leaf * 1


@_change
def part_of_a_larger_storage(given: Arguments) -> None:
    """Every argument begins behind the start of its storage and ends before its end."""
    _laid_out(given, lambda t: True, lambda t: (2, _row_major(t.shape)))


@_change
def transposed(given: Arguments) -> None:
    """Arguments of two dimensions and more are laid out column by column."""
    _laid_out(given, lambda t: t.dim() > 1 and t.numel() > 1, lambda t: (0, tuple(reversed(_row_major(t.shape[::-1])))))


@_change
def every_other_element(given: Arguments) -> None:
    """Arguments take up every other element of their storage."""
    _laid_out(given, lambda t: t.dim() > 0 and t.numel() > 1, lambda t: (0, tuple(2 * s for s in _row_major(t.shape))))


@_change
def expanded(given: Arguments) -> None:
    """Arguments are a first row, expanded."""
    chosen = [(i, t) for i, t in given.tensors() if t.dim() and t.shape[0] > 1]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        row = t.detach()[:1].clone().requires_grad_(t.requires_grad)
        given.further[f"base[{i}]"] = row
        given.leaves[i] = row.expand(t.shape)


@_change
def conjugated_lazily(given: Arguments) -> None:
    """Complex arguments are conjugates that nobody has computed."""
    chosen = [(i, t) for i, t in given.tensors() if t.is_complex()]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        base = t.detach().conj().resolve_conj().clone().requires_grad_(t.requires_grad)
        given.further[f"base[{i}]"] = base
        given.leaves[i] = base.conj()


@_change
def made_in_inference_mode(given: Arguments) -> None:
    """Arguments that require no grad are inference tensors."""
    chosen = [(i, t) for i, t in given.tensors() if not t.requires_grad]
    if not chosen:
        raise NotApplicableError
    for i, t in chosen:
        with torch.inference_mode():
            given.leaves[i] = t.clone()


# -- arguments that alias


def _pair(given: Arguments, alike: bool) -> tuple[tuple[int, torch.Tensor], tuple[int, torch.Tensor]]:
    """Two arguments of one dtype, or of one shape too."""
    found = given.tensors()
    for k, (j, u) in enumerate(found):
        for i, t in found[:k]:
            if t.dtype == u.dtype and u.numel() and t.numel() and (not alike or t.shape == u.shape):
                return (i, t), (j, u)
    raise NotApplicableError


@_change
def the_same_object(given: Arguments) -> None:
    """Two arguments of one shape and dtype are one tensor."""
    (_, t), (j, _) = _pair(given, True)
    given.leaves[j] = t


@_change
def a_detached_alias(given: Arguments) -> None:
    """Of two arguments of one shape and dtype the second is the first, detached."""
    (_, t), (j, _) = _pair(given, True)
    given.leaves[j] = t.detach()


@_change
def a_view_of_another(given: Arguments) -> None:
    """Of two arguments of one shape and dtype the second is a view of the first, which is no leaf."""
    (i, t), (j, _) = _pair(given, True)
    base = t
    if t.requires_grad and t.is_leaf:
        given.further[f"leaf[{i}]"] = t
        base = t * 1
    given.leaves[i], given.leaves[j] = base, base.view_as(base)


def _together(given: Arguments, apart: bool) -> None:
    (i, t), (j, u) = _pair(given, False)
    offset = t.numel() if apart else 1
    base = torch.zeros(max(t.numel(), offset + u.numel()) + 1, dtype=t.dtype, device=t.device)
    storage = base.untyped_storage()
    given.leaves[j] = _on(storage, u, offset, _row_major(u.shape))
    given.leaves[i] = _on(storage, t, 0, _row_major(t.shape))
    given.further[f"base[{i}]"] = base


@_change
def overlapping(given: Arguments) -> None:
    """Two arguments of one dtype overlap on one storage, and are nobody's views."""
    _together(given, apart=False)


@_change
def neighbours(given: Arguments) -> None:
    """Two arguments of one dtype lie side by side on one storage."""
    _together(given, apart=True)


def named(leaves: list[Any], names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among leaves with the names of their places; a tensor that is there twice once."""
    met: set[int] = set()
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, torch.Tensor) and id(leaf) not in met:
            met.add(id(leaf))
            yield name, leaf
