"""BEHAVIOUR 1: what becomes of what is around a function where it makes objects, and where it only looks at tensors."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from tests.behaviour.harness import check_session, leaf, plain


def registers():
    made, count = [], {"n": 0}

    class Made:
        total = 0

        def __init__(self, x):
            self.x = x
            made.append(self)
            count["n"] += 1
            Made.total += 1

    return lambda x: Made(x * 2).x, lambda: ([m.x for m in made], count, Made.total)


def numbers():
    count = {"n": 0}

    @dataclasses.dataclass
    class Made:
        x: torch.Tensor
        number: int = -1

        def __post_init__(self):
            self.number = count["n"]
            count["n"] += 1

    return lambda x: Made(x * 2).number + x, lambda: count


def counts_by_default():
    count = itertools.count()

    @dataclasses.dataclass
    class Made:
        x: torch.Tensor
        number: int = dataclasses.field(default_factory=lambda: next(count))

    return lambda x: Made(x * 2).number + x, lambda: None


def is_one():
    class One:
        made = None

        def __new__(cls):
            if cls.made is None:
                cls.made = super().__new__(cls)
                cls.made.total, cls.made.n = torch.ones(3), 0
            return cls.made

    def f(x):
        one = One()
        one.n += 1
        one.total = one.total + x
        return one.total * one.n

    return f, lambda: (One.made.total, One.made.n)


def shares_attributes():
    class Alike:
        shared: dict = {}  # noqa: RUF012  # is what this is about

        def __init__(self):
            self.__dict__ = self.shared

    def f(x):
        one = Alike()
        one.n = getattr(one, "n", 0) + 1
        return x * one.n

    return f, lambda: Alike.shared


@pytest.mark.parametrize("make", [registers, numbers, counts_by_default, is_one, shares_attributes])
def test_what_making_an_object_does_around_it_every_call_does(make):
    def session(compile):
        f, seen = make()
        g = compile(f)
        for k in range(4):
            yield g(plain(3, seed=k)), seen()

    check_session(session)


class Holder:
    """Has a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


LOOKS = {
    "dtype": lambda t: t.dtype,
    "shape": lambda t: t.shape,
    "length": len,
    "dimensions": lambda t: t.dim(),
    "strides": lambda t: t.stride(),
    "offset": lambda t: t.storage_offset(),
    "size of an element": lambda t: t.element_size(),
    "whether it requires grad": lambda t: t.requires_grad,
    "whether it is a leaf": lambda t: t.is_leaf,
    "whether it is complex": lambda t: t.is_complex(),
    "whether it is contiguous": lambda t: t.is_contiguous(),
    "whether it has a history": lambda t: t.grad_fn is None,
}


@pytest.mark.parametrize("where", ["attribute", "list", "module"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_tensor_that_is_only_looked_at(look, where):
    def session(compile):
        holder, tensors, net = Holder(None), [None], torch.nn.Module()

        def f(x):
            t = {"attribute": lambda: holder.tensor, "list": lambda: tensors[0], "module": lambda: net.kept}[where]()
            return x * 2, LOOKS[look](t)

        g = compile(f)
        for t in (
            plain(3),
            plain(4),
            plain(2, 3).t()[1:],
            plain(3, dtype=torch.complex128),
            leaf(3),
            leaf(3) * 2,
            plain(3),
        ):
            holder.tensor = tensors[0] = net.kept = t
            yield g(plain(3))

    check_session(session)


def test_the_dtype_of_a_model_that_is_only_looked_at():
    def session(compile):
        net = torch.nn.Linear(3, 3)
        g = compile(lambda x: x.to(next(net.parameters()).dtype) * 2)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.float32):
            net.to(dtype)
            yield g(plain(3))

    check_session(session)


def test_a_mask_that_is_made_again_for_other_types_and_shapes():
    def session(compile):
        holder = Holder(None)

        def f(x):
            mask = holder.tensor
            if mask is None or mask.dtype != x.dtype or mask.shape != x.shape:
                holder.tensor = torch.ones_like(x)
            holder.tensor = holder.tensor + 1
            return x * holder.tensor

        g = compile(f)
        for n, dtype in ((3, torch.float32), (3, torch.float64), (4, torch.float32), (4, torch.float32)):
            for _ in range(2):
                yield g(plain(n, dtype=dtype)), holder.tensor

    check_session(session)


def test_a_place_that_had_a_tensor_and_has_something_else():
    def session(compile):
        holder = Holder(None)

        def f(x):
            kept = holder.tensor
            if isinstance(kept, torch.Tensor):
                return x * kept
            return x * len(kept) if isinstance(kept, list) else x

        g = compile(f)
        for kept in (None, plain(3), [1, 2], "a", leaf(3), {}, None, plain(3)):
            holder.tensor = kept
            yield g(plain(3))

    check_session(session)
