"""What holds tensors: pytrees, modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree


def pytree_children(node: Any) -> list[Any] | None:
    """What a pytree node holds; None for a leaf."""
    definition = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))
    return None if definition is None else list(definition.flatten_fn(node)[0])


def state_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The module's own parameters and buffers, as the dictionaries in which it keeps them."""
    return module._parameters, module._buffers


def forward_hooks_of(modules: Sequence[torch.nn.Module]) -> list[Callable[..., Any]]:
    """The hooks that run when the ``modules`` themselves are called."""
    return [h for m in modules for hooks in (m._forward_pre_hooks, m._forward_hooks) for h in hooks.values()]
