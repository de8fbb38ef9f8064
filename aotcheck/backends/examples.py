"""Backends that compile from example inputs: they trace a function with one set of arguments."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from aotcheck._torch import base_of, is_view, pytree, storage_key
from aotcheck.backends.backend import Function

__all__ = ["Copies", "Maker", "with_examples"]

Maker = Callable[[Function, tuple[Any, ...]], Function]
"""Takes a function and example arguments, returns the compiled function."""


def with_examples(make: Maker) -> Callable[[Function], Function]:
    """A backend's ``compile``, made from a compiler that needs example arguments.

    The first call of the compiled function calls ``make(fn, examples)`` once, with copies (:class:`Copies`) of its
    arguments. Whatever the compiler does with them, the arguments and the random number generators are unchanged. The
    first call and all later ones then call the result of ``make`` with their own arguments.

    Example::

        traced = Backend("traced", with_examples(torch.jit.trace), promises=EVERY_PROMISE - {Promise.GUARDS})
    """

    def compile_function(fn: Function) -> Function:
        made: list[Function] = []

        def compiled(*args: Any) -> Any:
            if not made:
                with torch.random.fork_rng():
                    examples = tuple(pytree.tree_map(Copies().of, args))
                    made.append(make(fn, examples))
            return made[0](*args)

        return compiled

    return compile_function


class Copies:
    """Copies of arguments; a function can tell them from the arguments only by their addresses.

    A tensor that occurs twice is copied once. Tensors that share a storage share a copy of it, with the same offsets
    and strides; a freed storage gets a freed copy. A leaf is copied to a leaf with the same ``requires_grad``, a
    parameter to a parameter, a view to a view of the copy of its base, with a history iff the view has one. Any other
    tensor with a history becomes the result of an op on a new leaf. Wrappers, sparse tensors and views that
    ``as_strided`` cannot reproduce are detached and cloned by their own ``clone``.
    """

    def __init__(self) -> None:
        self._of: dict[int, Any] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._originals: list[torch.Tensor] = []  # alive, so that their ids stay theirs

    def of(self, leaf: Any) -> Any:
        """The copy of a leaf of a pytree."""
        if not isinstance(leaf, torch.Tensor):
            return copy.deepcopy(leaf)
        if id(leaf) not in self._of:
            self._originals.append(leaf)
            with torch.inference_mode(leaf.is_inference()):
                self._of[id(leaf)] = self._tensor(leaf)
        return self._of[id(leaf)]

    def _tensor(self, t: torch.Tensor) -> torch.Tensor:
        if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout is not torch.strided or t.is_neg():
            return t.detach().clone().requires_grad_(t.requires_grad)
        base = base_of(t) if is_view(t) else None
        if base is not None and (base.dtype, base.is_conj()) == (t.dtype, t.is_conj()):
            with torch.set_grad_enabled(_has_history(t)):
                made = self.of(base).as_strided(t.shape, t.stride(), t.storage_offset())
            if made.requires_grad == t.requires_grad:
                return made  # type: ignore[no-any-return]
        if _has_history(t):
            result = torch.zeros(t.shape, dtype=t.dtype, device=t.device, requires_grad=True).clone()
            result.data = self._alias(t)
            return result
        alias = self._alias(t)
        if isinstance(t, torch.nn.Parameter):
            return torch.nn.Parameter(alias, t.requires_grad)
        return alias.requires_grad_(t.requires_grad)

    def _alias(self, t: torch.Tensor) -> torch.Tensor:
        """A tensor without history, where ``t`` lies in the copy of its storage."""
        key = storage_key(t)
        if key not in self._storages:
            self._storages[key] = t.untyped_storage().clone()
        storage = self._storages[key]
        size = storage.nbytes()
        with torch.no_grad():
            made = torch.empty(0, dtype=t.dtype, device=t.device)
            made.set_(storage, t.storage_offset(), t.shape, t.stride())
            if storage.nbytes() != size:  # it was freed: set_ has made room
                storage.resize_(size)
            return made.conj() if t.is_conj() else made


def _has_history(t: torch.Tensor) -> bool:
    try:
        return t.grad_fn is not None
    except RuntimeError:  # a view made under no_grad, of a base that was written with grad mode on
        return False
