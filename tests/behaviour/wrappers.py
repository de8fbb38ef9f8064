"""Wrapper subclasses for the tests: torch's own, and two that are written as authors of subclasses write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.custom_tensor import ConstantExtraMetadataTensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from tests.behaviour.inputs import plain


class Tagged(torch.Tensor):
    """A tensor with a name and a scale that is no tensor; both survive every op, the scale doubles in products."""

    elem: torch.Tensor
    tag: str
    scale: int

    @staticmethod
    def __new__(cls, elem: torch.Tensor, tag: str, scale: int = 1) -> Any:
        """A wrapper of ``elem``'s geometry."""
        return torch.Tensor._make_wrapper_subclass(
            cls,
            elem.shape,
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=elem.device,
        )

    def __init__(self, elem: torch.Tensor, tag: str, scale: int = 1) -> None:
        self.elem, self.tag, self.scale = elem, tag, scale

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Tagged({self.elem}, {self.tag!r}, {self.scale})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["elem"], {"tag": self.tag, "scale": self.scale}

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> Tagged:
        return Tagged(inner["elem"], context["tag"], context["scale"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        flat = [a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, Tagged)]
        scale = flat[0].scale * 2 if func in (torch.ops.aten.mul.Tensor, torch.ops.aten.mul.Scalar) else flat[0].scale
        unwrapped = pytree.tree_map_only(Tagged, lambda t: t.elem, (args, kwargs or {}))
        out = func(*unwrapped[0], **unwrapped[1])
        out = pytree.tree_map_only(torch.Tensor, lambda t: type(flat[0])(t, flat[0].tag, scale), out)
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


class Quantized(torch.Tensor):
    """Integers and a scale per row, as quantization libraries write weights: each class has a table of what it can do.

    Whatever is not in the tables falls back to real numbers.
    """

    data_: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, data_: torch.Tensor, scale: torch.Tensor) -> Any:
        """Claims to be a float tensor of the shape of ``data_``."""
        return torch.Tensor._make_wrapper_subclass(
            cls, data_.shape, strides=data_.stride(), dtype=scale.dtype, device=data_.device
        )

    def __init__(self, data_: torch.Tensor, scale: torch.Tensor) -> None:
        self.data_, self.scale = data_, scale

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Quantized({self.data_}, {self.scale})"

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        """The real numbers."""
        return self.data_.to(self.scale.dtype) * self.scale.unsqueeze(-1)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["data_", "scale"], ()

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> Quantized:
        return Quantized(inner["data_"], inner["scale"])

    @classmethod
    def __torch_function__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in FUNCTIONS:
            return FUNCTIONS[func](*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in OPS:
            return return_and_correct_aliasing(func, args, kwargs or {}, OPS[func](*args, **(kwargs or {})))
        real = pytree.tree_map_only(Quantized, lambda t: t.dequantize(), (args, kwargs or {}))
        return func(*real[0], **real[1])


class _Linear(torch.autograd.Function):
    """A product with a quantized weight, whose gradient is that of the real numbers."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        return x @ weight.dequantize().t()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return g @ weight.dequantize(), g.t() @ x


def _linear(x: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
    out: torch.Tensor = _Linear.apply(x, weight)
    return out if bias is None else out + bias


aten = torch.ops.aten
FUNCTIONS: dict[Any, Callable[..., Any]] = {torch.nn.functional.linear: _linear}
OPS: dict[Any, Callable[..., Any]] = {
    aten.detach.default: lambda t: Quantized(t.data_.detach(), t.scale.detach()),
    aten.alias.default: lambda t: Quantized(t.data_.view_as(t.data_), t.scale.view_as(t.scale)),
    aten.clone.default: lambda t, **_: Quantized(t.data_.clone(), t.scale.clone()),
    aten._to_copy.default: lambda t, **_: Quantized(t.data_.clone(), t.scale.clone()),
    aten.slice.Tensor: lambda t, dim, a, b: Quantized(t.data_[a:b], t.scale[a:b]),
}


# -- how tests make them


class Wraps(torch.autograd.Function):
    """Makes a wrapper of a plain tensor, differentiably."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        """A wrapper."""
        return TwoTensor(x * 1, x * 2)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Of both that it holds."""
        return g.a + 2 * g.b


def two(*shape: int, seed: int = 0, grad: bool = False) -> TwoTensor:
    """A TwoTensor of small integers."""
    return TwoTensor(plain(*shape, seed=seed), plain(*shape, seed=seed + 3)).requires_grad_(grad)


def extra(*shape: int, seed: int = 0, grad: bool = False, constant: int = 4) -> ConstantExtraMetadataTensor:
    """A tensor with an attribute that is no tensor."""
    made = ConstantExtraMetadataTensor(plain(*shape, seed=seed))
    made.constant_attribute = constant
    return made.requires_grad_(grad)


def tagged(*shape: int, seed: int = 0, grad: bool = False, tag: str = "t") -> Any:
    """A :class:`Tagged` of small integers."""
    return Tagged(plain(*shape, seed=seed), tag).requires_grad_(grad)


def quantized(rows: int, columns: int, seed: int = 0, grad: bool = False) -> Any:
    """A :class:`Quantized` weight."""
    return Quantized(plain(rows, columns, seed=seed, dtype=torch.int8), plain(rows, seed=seed + 1)).requires_grad_(grad)


def nested(*shape: int, seed: int = 0, grad: bool = False) -> TwoTensor:
    """A TwoTensor of TwoTensors."""
    return TwoTensor(two(*shape, seed=seed), two(*shape, seed=seed + 7)).requires_grad_(grad)


def jagged(*lengths: int, width: int = 2, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """A ragged batch, rows of ``width``."""
    rows = [plain(n, width, seed=seed + k) for k, n in enumerate(lengths)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, device=rows[0].device).requires_grad_(grad)
