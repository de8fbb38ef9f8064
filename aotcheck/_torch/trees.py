"""What holds tensors: pytrees, modules; and what tells that a dictionary was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._C._dynamo.guards import dict_version
from torch.nn.modules import module as _modules

__all__ = [
    "GLOBAL_HOOKS",
    "children_of",
    "dict_version",
    "forward_hooks_of",
    "hooks_of",
    "is_pytree_node",
    "pytree_children",
    "state_of",
]

# Hooks of all modules.
GLOBAL_HOOKS: tuple[dict[int, Any], ...] = (
    _modules._global_forward_pre_hooks,
    _modules._global_forward_hooks,
    _modules._global_backward_pre_hooks,
    _modules._global_backward_hooks,
)


def pytree_children(node: Any) -> list[Any] | None:
    """What a pytree node holds; None for a leaf."""
    definition = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))
    return None if definition is None else list(definition.flatten_fn(node)[0])


def is_pytree_node(kind: type) -> bool:
    """Whether pytree knows the class by itself."""
    return kind in pytree.SUPPORTED_NODES


def state_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The module's own parameters and buffers, as the dictionaries in which it keeps them; TorchScript's keeps none."""
    if isinstance(module, torch.jit.ScriptModule):
        return {}, {}
    return module._parameters, module._buffers


def forward_hooks_of(modules: Sequence[torch.nn.Module]) -> list[Callable[..., Any]]:
    """The hooks that run when the ``modules`` themselves are called."""
    return [h for m in modules for hooks in (m._forward_pre_hooks, m._forward_hooks) for h in hooks.values()]


def children_of(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """The modules that ``module`` is made of, as the dictionary in which it keeps them."""
    return module._modules


def hooks_of(module: torch.nn.Module) -> tuple[dict[int, Any], ...]:
    """The dictionaries of hooks that run when the module is called or backpropagated through."""
    return module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks
