"""What several tests of storage use."""

import pytest
import torch

from tests.behaviour.harness import Raised, attempt, attempt_later, cotangent
from tests.behaviour.inputs import Given, given, leaf, plain


def _quietly(act):
    def done(x, y):
        with torch.no_grad():
            act(x, y)

    return done


def other(*shape):
    return plain(*shape, seed=4)


def found(action):
    """What it gives; of errors, whose messages name nodes, that there is one."""
    result = attempt_later(action)
    return "raised" if isinstance(result, Raised) else result


def gradients_one_by_one(outputs, root):
    for t in outputs:
        if t.requires_grad:
            yield found(lambda t=t: torch.autograd.grad([t], root, [cotangent(t)], retain_graph=True)[0].contiguous())


def session_of(function, make):
    """The call, and then what the caller writes to each result, with the gradients before and after."""

    def session(compile):
        root = leaf(3, 2)
        x = make(root)
        outputs = compile(function)(x)
        yield outputs, x, root
        yield list(gradients_one_by_one(outputs, root))
        for t in outputs:
            yield found(lambda t=t: t.mul_(2)), outputs, x
            yield list(gradients_one_by_one(outputs, root))

    return session


def no_grad_part(root):
    with torch.no_grad():
        return root[1:]


ARGUMENTS = [
    pytest.param(lambda root: root, id="leaf"),
    pytest.param(lambda root: root * 1, id="computed"),
    pytest.param(lambda root: root[1:], id="view of a leaf"),
    pytest.param(lambda root: root.clone()[1:], id="view"),
    pytest.param(no_grad_part, id="view made under no_grad"),
]

NO_LEAVES = [ARGUMENTS[1], ARGUMENTS[3]]  # of which views may be written

VIEW_PARAMS = [
    pytest.param(lambda x: x.t(), id="t"),
    pytest.param(lambda x: x[:1], id="part"),
    pytest.param(lambda x: x[1], id="row"),
    pytest.param(lambda x: x.view(-1).view(x.shape), id="view of a view"),
]

MOVES = [
    pytest.param(lambda t, x: other(2, 2), id="other data"),
    pytest.param(lambda t, x: other(3), id="other shape"),
    pytest.param(lambda t, x: x.detach()[-2:], id="data of the argument"),
]


def _allocate(w: torch.Tensor, data: torch.Tensor) -> None:
    """Let ``w`` have memory, and in it ``data``, unnoticed by autograd."""
    w.untyped_storage().resize_(data.numel() * data.element_size())
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(w):
        w.copy_(data)


def _free(w: torch.Tensor) -> None:
    w.untyped_storage().resize_(0)


def _non_leaf_and_plain(*shape: int) -> Given:
    root = leaf(*shape)
    return given(root.clone(), plain(3, 2, seed=4), also=[root])


def _view(*shape: int) -> Given:
    root = leaf(*shape)
    base = root.clone()
    return given(base[:], plain(3, 2, seed=4), also=[root, base])


def _without_grad(x, y):
    with torch.no_grad():
        x.set_(y)


MOVES_BY_SETATTR = {
    "data": lambda x, y: setattr(x, "data", y),
    "set_": lambda x, y: x.set_(y),
    "set_ under no_grad": _without_grad,
}


def odd_view():
    root = leaf(2, 2)
    with torch.no_grad():
        return root.view(2, 2)


PLAIN_AND_LEAVES = {
    "plain": lambda: plain(2, 2),
    "plain view": lambda: plain(2, 2).view(2, 2),
    "leaf": lambda: leaf(2, 2),
    "no leaf": lambda: leaf(2, 2).clone(),
    "view": lambda: leaf(2, 2).clone().view(2, 2),
    "odd view": odd_view,
}

DATA = {
    "fewer elements": lambda: plain(2, seed=1),
    "no dimension": lambda: plain(seed=1),
    "one more dimension": lambda: plain(1, 3, seed=1),
    "another dtype": lambda: plain(3, dtype=torch.float64, seed=1),
    "requires grad": lambda: leaf(2, seed=1),
}


def _session(f, inputs, cotangents):
    """The gradients of the first result for each cotangent, which has a shape of its own, by everything."""

    def session(compile):
        for make in cotangents:
            found: Given = inputs()
            args = found.args
            out = attempt(lambda: compile(f)(*args))  # noqa: B023
            yield out, found.args, found.also
            wanted = [t for t in (*args, *found.also) if t.requires_grad]
            yield attempt_later(lambda: torch.autograd.grad(out, wanted, make(), allow_unused=True))  # noqa: B023

    return session


SETS = {
    "tensor": lambda x, y: x.set_(y),
    "storage": lambda x, y: x.set_(y.untyped_storage()),
    "storage, window": lambda x, y: x.set_(y.untyped_storage(), 1, (2,), (1,)),
    "tensor, window": lambda x, y: x.set_(y, 1, (2,), (1,)),
    "nothing": lambda x, y: x.set_(),
    "view": lambda x, y: x.set_(y[1:]),
}

RESIZES = {
    "untyped_storage": lambda x, n: x.untyped_storage().resize_(n),
    "inductor": lambda x, n: torch.ops.inductor.resize_storage_bytes_(x, n),
}


def _freed(n: int) -> torch.Tensor:
    x = plain(n)
    x.untyped_storage().resize_(0)
    return x


def _two_non_leaves() -> Given:
    roots = leaf(2, 2), leaf(2, 2, seed=1)
    return given(roots[0].clone(), roots[1].clone(), also=roots)


def _views() -> Given:
    roots = leaf(2, 2), leaf(2, 2, seed=1)
    bases = roots[0].clone(), roots[1].clone()
    return given(bases[0][:], bases[1][:], also=[*roots, *bases])
