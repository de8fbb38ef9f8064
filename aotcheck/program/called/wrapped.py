"""How programs make tensors of wrapper subclasses, and two such classes of the suite's own."""

import torch
from torch.testing._internal.custom_tensor import ConstantExtraMetadataTensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

__all__ = ["ConstantExtraMetadataTensor", "Tagged", "TwoTensor", "Wraps", "wrapped"]


class Tagged(torch.Tensor):
    """A tensor with a name and a number that are no tensors; products double the number."""

    @staticmethod
    def __new__(cls, elem, tag, number=1):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            elem.shape,
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=elem.device,
        )

    def __init__(self, elem, tag, number=1):
        self.elem, self.tag, self.number = elem, tag, number

    def __repr__(self):
        return f"Tagged({self.elem}, {self.tag!r}, {self.number})"

    def __tensor_flatten__(self):
        return ["elem"], (self.tag, self.number)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Tagged(inner["elem"], *context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        first = next(t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tagged))
        number = first.number * 2 if func is torch.ops.aten.mul.Tensor else first.number
        plain_args, plain_kwargs = pytree.tree_map_only(Tagged, lambda t: t.elem, (args, kwargs or {}))
        out = func(*plain_args, **plain_kwargs)
        out = pytree.tree_map_only(torch.Tensor, lambda t: Tagged(t, first.tag, number), out)
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


class Wraps(torch.autograd.Function):
    """Wraps a plain tensor; gradients pass through."""

    @staticmethod
    def forward(ctx, x):
        return TwoTensor(x * 1, x * 2)

    @staticmethod
    def backward(ctx, g):
        return g.a + 2 * g.b


class wrapped:
    """The makers of registered subclasses by their keys, and ``inner``, which reads a tensor that a wrapper holds."""

    @staticmethod
    def two(x, y):
        return TwoTensor(lone(x), lone(y))

    @staticmethod
    def constant(x):
        return ConstantExtraMetadataTensor(lone(x))

    @staticmethod
    def tagged(x):
        return Tagged(lone(x), "tag")

    @staticmethod
    def differentiable(x):
        return Wraps.apply(x)

    @staticmethod
    def jagged(x):
        n = len(x)
        return torch.nested.nested_tensor_from_jagged(lone(x), torch.tensor([0, n // 2, n], device=x.device))

    @staticmethod
    def inner(x, which):
        names = x.__tensor_flatten__()[0]
        return getattr(x, names[which % len(names)])


def lone(t):
    """`t` for a wrapper to hold: without a history, which is the wrapper's own."""
    return t.detach() if t.requires_grad else t
