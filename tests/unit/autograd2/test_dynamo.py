"""torch.compile inside of a compiled function, and around it."""

from __future__ import annotations

import torch
from torch import Tensor

from aotcheck.autograd2.api import aot_function
from tests.unit.autograd2.agrees import agrees


def test_what_torch_compile_made_is_traced_as_it_is_written() -> None:
    inner = torch.compile(lambda x: x.sin() * x, backend="eager")
    agrees(lambda x: inner(x) + 1, lambda: (torch.ones(3, requires_grad=True),))


def test_torch_compile_leaves_a_compiled_function_as_it_is() -> None:
    compiled = aot_function(lambda x: x.exp() * 2)

    @torch.compile(backend="eager")
    def around(x: Tensor) -> Tensor:
        return compiled(x.neg()) + 1  # type: ignore[no-any-return]  # what aot_function returns is untyped

    x = torch.ones(2, requires_grad=True)
    y = around(x)
    y.sum().backward()
    assert torch.equal(y, x.neg().exp() * 2 + 1)
    assert x.grad is not None and torch.equal(x.grad, -2 * x.neg().exp())
