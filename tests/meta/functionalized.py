"""A backend made of torch's own parts: ``torch.func.functionalize`` and ``make_fx``, and the graph run as it is."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


def functionalized(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` traced anew at each call, and the graph of functional ops run on the arguments."""

    def compiled(*args: Any) -> Any:
        leaves, given = pytree.tree_flatten(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        returned: list[Any] = []

        def flat(*replaced: torch.Tensor) -> list[torch.Tensor]:
            left = iter(replaced)
            full = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            results, spec = pytree.tree_flatten(fn(*pytree.tree_unflatten(full, given)))
            returned[:] = [results, spec]
            return [result for result in results if isinstance(result, torch.Tensor)]

        state = torch.get_rng_state()
        graph = make_fx(torch.func.functionalize(flat))(*tensors)
        torch.set_rng_state(state)
        made = iter(graph(*tensors))
        results, spec = returned
        full = [next(made) if isinstance(result, torch.Tensor) else result for result in results]
        return pytree.tree_unflatten(full, spec)

    return compiled
