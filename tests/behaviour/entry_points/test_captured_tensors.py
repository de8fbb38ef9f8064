"""Tensors of closures, globals, defaults, attributes: read per call, written, differentiated, assigned."""

import pytest
import torch

from tests.behaviour.entry_points.common import Holder
from tests.behaviour.harness import backward, check_session, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.shared import _Object, _other


@session
def test_a_captured_tensor_is_read_on_every_call(compile):
    w = plain(3, seed=1)
    f = compile(lambda x: x * w)
    for _ in range(2):
        yield f(plain(3)), w
        w.add_(1)


@session
def test_a_captured_tensor_is_differentiated(compile):
    w = leaf(3, seed=1)
    f = compile(lambda x: x * w)
    for _ in range(2):
        x = leaf(3)
        out = f(x)
        yield out
        backward([out])
        yield x, w


@session
def test_a_captured_tensor_is_written(compile):
    count = plain(3, seed=1)

    def f(x):
        count.add_(x)
        return count * 2

    compiled = compile(f)
    for _ in range(3):
        yield compiled(plain(3)), count


@session
def test_a_closure_variable_bound_to_another_tensor_is_read_anew(compile):
    w = leaf(3, seed=1)
    f = compile(lambda x: x * w)
    yield f(plain(3)), w
    w = leaf(3, seed=2)
    out = f(plain(3))
    backward([out])
    yield out, w


@session
def test_a_captured_tensor_that_aliases_an_argument_sees_its_writes(compile):
    w = plain(4, seed=1)

    def f(x):
        x.add_(1)
        return w * 2

    compiled = compile(f)
    yield compiled(w[1:3]), w
    yield compiled(plain(2)), w


@session
def test_a_captured_tensor_and_its_view_are_returned(compile):
    w = leaf(3, seed=1)
    yield compile(lambda x: (x * 2, w, w.view(-1)))(leaf(3)), w


@session
def test_a_captured_tensor_that_starts_to_require_grad_gets_a_gradient(compile):
    w = plain(3, seed=1)
    f = compile(lambda x: x * w)
    yield f(plain(3)), w
    w.requires_grad_()
    out = f(plain(3))
    backward([out])
    yield out, w


_table = None


def test_a_global_tensor_made_by_the_first_call_persists():
    def f(x):
        global _table
        if _table is None:
            _table = torch.arange(3.0, device=x.device) * 2
        return x * _table

    def session(compile):
        global _table
        _table = None
        g = compile(f)
        for k in range(3):
            yield g(plain(3, seed=k)), _table
        first = _table
        yield g(plain(3)), _table is first

    check_session(session)


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
@session
def test_metadata_of_a_captured_tensor_is_read_on_every_call(compile, look, where):
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


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("later", ["the other", "the one that is read"])
@session
def test_a_captured_tensor_in_two_places_is_replaced_in_one_of_them(compile, later):
    w = torch.ones(3)
    o = _Object(all=[w, torch.ones(3)], last=w)
    compiled = compile(lambda x: x * (o.all[0] if len(x) > 1 else o.last))
    yield compiled(plain(2, 3))
    if later == "the other":
        o.last = _other()
    else:
        o.all[0] = _other()
    yield compiled(plain(2, 3))
    yield compiled(plain(1, 3))


def _require(t, wanted):
    t.requires_grad = wanted


def _give(t, data):
    t.data = data


DONE = {
    "hook": lambda x, w, b, seen: w.register_hook(lambda g: g * 2),
    "post-accumulate hook": lambda x, w, b, seen: w.register_post_accumulate_grad_hook(
        lambda t: seen.append(t.grad.clone())
    ),
    "told to require grad": lambda x, w, b, seen: b.requires_grad_(),
    "told not to": lambda x, w, b, seen: w.requires_grad_(len(x) > 2),
    "requires grad is assigned": lambda x, w, b, seen: _require(b, True),
    "data are assigned": lambda x, w, b, seen: _give(b, x.detach() * 2),
    "data of a leaf are assigned": lambda x, w, b, seen: _give(w, b * 2),
    "data are written": lambda x, w, b, seen: w.data.add_(1),
    "reshaped": lambda x, w, b, seen: b.unsqueeze_(0).t_().squeeze_(1),
    "written": lambda x, w, b, seen: b.add_(x.detach()),
    "written by an index": lambda x, w, b, seen: b.__setitem__(0, 5.0),
    "cut": lambda x, w, b, seen: b.detach_(),
    "gradient is dropped": lambda x, w, b, seen: setattr(w, "grad", None),
}


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("do", DONE.values(), ids=DONE.keys())
@session
def test_hooks_writes_and_flags_set_on_captured_tensors_are_as_in_eager(compile, do, used_before):
    w, b = leaf(3), plain(3, seed=2)
    seen: list[torch.Tensor] = []

    def f(x):
        before = x * w * b.detach().clone() if used_before else x
        do(x, w, b, seen)
        return before + x * w * b

    compiled = compile(f)
    for k in range(3):
        x = leaf(3, seed=k)
        y = compiled(x)
        y.sum().backward()
        yield y, x.grad, w, w.grad, b, b.grad, list(seen)
