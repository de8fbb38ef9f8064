"""BEHAVIOUR 6, item by item: parameters and buffers, changes of metadata, inner tensors that alias, ragged batches."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import (
    Raised,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    cotangent,
    given,
    leaf,
    plain,
)
from tests.behaviour.wrappers import Tagged, extra, jagged, nested, tagged, two

nested_of = torch.nested.nested_tensor_from_jagged
CLASSES = [two, extra, tagged, nested]
every_class = pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)


# -- parameters and buffers --------------------------------------------------------------------------


class Scale(nn.Module):
    """A weight and a buffer, both of one class, the buffer a running mean."""

    def __init__(self, make):
        super().__init__()
        self.weight = nn.Parameter(make(3))
        self.register_buffer("mean", make(3, seed=4))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.5).add_(x)
        return x * self.weight + self.mean


@every_class
def test_a_parameter_and_a_buffer_that_is_written(make):
    def session(compile):
        module = Scale(make)
        compiled = compile(module)
        for seed in (0, 1):
            x = make(3, seed=seed)
            y = compiled(x)
            yield x, y, dict(module.named_parameters()), dict(module.named_buffers())
            y.backward(cotangent(y))
            yield module.weight, module.weight.grad

    check_session(session)


def _steps(module):
    with torch.no_grad():
        module.weight.sub_(module.weight.grad)


def _replaces(module):
    module.weight = nn.Parameter(module.weight.detach() * 2)


def _loads(module):
    module.load_state_dict(copy.deepcopy(module.state_dict()))


def _freezes(module):
    module.weight.requires_grad_(False)


def _thaws_another_class(module):
    module.weight = nn.Parameter(tagged(3, seed=7) if not isinstance(module.weight, Tagged) else two(3))


@every_class
@pytest.mark.parametrize("change", [_steps, _replaces, _loads, _freezes, _thaws_another_class])
def test_a_parameter_that_the_caller_changes_between_calls(make, change):
    def session(compile):
        module = Scale(make)
        module.mean = torch.zeros(3)
        module.forward = lambda x: x * module.weight
        compiled = compile(module)
        for _ in range(3):
            x = leaf(3) if make is not tagged and change is not _thaws_another_class else plain(3)
            y = compiled(x)
            yield x, y, dict(module.named_parameters())
            if y.requires_grad:
                y.backward(cotangent(y))
            yield x, module.weight, module.weight.grad
            change(module)

    check_session(session)


@every_class
def test_a_parameter_that_two_modules_share(make):
    def session(compile):
        first, second = Scale(make), Scale(make)
        second.weight = first.weight
        module = nn.Sequential(first, second)
        x = make(3)
        y = compile(module)(x)
        y.backward(cotangent(y))
        yield x, y, dict(module.named_parameters()), dict(module.named_buffers())

    check_session(session)


@every_class
def test_a_parameter_passed_and_returned(make):
    check(lambda p: (p, p * 2, p.detach(), p.t()), lambda: given(nn.Parameter(make(2, 3))))


def test_a_ragged_parameter():
    def session(compile):
        p = nn.Parameter(jagged(2, 3))
        y = compile(lambda p: (p * 2).sin())(p)
        y.backward(torch.ones_like(y))
        yield p, y, type(p)

    check_session(session, rtol=1e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("make", [two, nested])
def test_training(make, optimizer):
    def session(compile):
        module = Scale(make)
        compiled, o = compile(module), optimizer(module.parameters(), lr=0.5)
        for seed in range(3):
            o.zero_grad()
            y = compiled(make(3, seed=seed))
            y.sum().backward()
            o.step()
            yield y, dict(module.named_parameters()), dict(module.named_buffers())

    check_session(session, rtol=1e-6)


# -- metadata ----------------------------------------------------------------------------------------

_CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "as_strided_": lambda x: x.as_strided_((2,), (1,), 1),
    "twice": lambda x: x.t_().unsqueeze_(0).t_() if x.dim() < 2 else x.t_().unsqueeze_(0),
    "cancelling": lambda x: x.t_().t_(),
}


@every_class
@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
@pytest.mark.parametrize("also", ["nothing", "a write", "a write before", "a view", "an alias"])
def test_a_change_of_metadata(make, change, also):
    def f(x, w):
        v = x[1:] if also == "a view" else x.detach() if also == "an alias" else None
        if also == "a write before":
            x.mul_(2)
        change(x)
        if also == "a write":
            x.mul_(w.flatten()[0])
        return x * 2, v

    def session(compile):
        compiled = compile(f)
        for base in (False, True):  # an argument without history, and one with
            x, w = make(2, 3, grad=base), make(1)
            root = x
            x = x * 1 if base else x
            out = compiled(x, w)
            yield root, x, out
            x.detach().add_(1)
            yield root, x, out
            if out[0].requires_grad:
                yield attempt_later(lambda: out[0].sum().backward())  # noqa: B023
                yield root, x, out

    check_session(session)


@every_class
def test_a_change_of_metadata_of_one_passed_twice_and_of_a_view_passed_beside(make):
    def session(compile):
        compiled = compile(lambda x, y, v: (x.t_(), y.mul_(2), v * 3))
        x = make(2, 3)
        v = x[0]
        out = compiled(x, x, v)
        yield x, v, out
        v.zero_()
        yield x, v, out

    check_session(session)


# -- what they hold ----------------------------------------------------------------------------------

_SHARED = {
    "one twice": lambda t: TwoTensor(t, t),
    "of a view": lambda t: TwoTensor(t[1:], t[1:]),
    "of two views": lambda t: TwoTensor(t.view(2, 2), t.view(4).view(2, 2)),
    "of overlapping wrappers": lambda t: Tagged(Tagged(t[:3], "u"), "v"),
    "of a wrapper": lambda t: TwoTensor(TwoTensor(t, t[:]), TwoTensor(t, t)),
    "another class": lambda t: Tagged(t[1:], "t"),
}
_ON_SHARED = {
    "out of place": lambda x, t: (x * 2, t + 1),
    "the wrapper is written": lambda x, t: (x.mul_(2), t + 1),
    "the plain one is written": lambda x, t: (t.mul_(2), x + 1),
    "both are written": lambda x, t: (x.add_(1), t.mul_(2), x * 3),
    "a view is written": lambda x, t: (x.view(-1)[:1].zero_(), t * 2),
    "an inner one is returned": lambda x, t: (getattr(x, x.__tensor_flatten__()[0][0]), t.view(-1)),
    "a detached one is written": lambda x, t: (x.detach().zero_(), t * 2),
}


@pytest.mark.parametrize("make", _SHARED.values(), ids=_SHARED)
@pytest.mark.parametrize("function", _ON_SHARED.values(), ids=_ON_SHARED)
def test_inner_tensors_alias_each_other_and_a_plain_argument(function, make):
    def arguments():
        t = plain(4)
        return given(make(t), t)

    check(function, arguments, arguments)


@pytest.mark.parametrize("make", _SHARED.values(), ids=_SHARED)
@pytest.mark.parametrize("grad", ["wrapper", "plain"])
def test_inner_tensors_alias_a_plain_argument_and_one_is_trained(make, grad):
    def session(compile):
        def f(x, t):
            t.mul_(2) if grad == "wrapper" else None
            return (x * x).sum(), (t * t).sum()

        t = plain(4)
        x = make(t)
        if grad == "wrapper":
            x.requires_grad_()
        out = compile(f)(x, t)
        yield x, t, out
        for o in out:
            if o.requires_grad:
                yield attempt_later(lambda: o.backward(cotangent(o)))  # noqa: B023
        yield x, t

    check_session(session)


def test_two_wrappers_of_one_memory_where_one_is_trained():
    def session(compile):
        t = plain(4)
        x, y = TwoTensor(t, t * 1).requires_grad_(), TwoTensor(t, t * 2)
        out = compile(lambda x, y: (x * 3, y.add_(1)))(x, y)
        yield x, y, out
        yield attempt_later(lambda: out[0].backward(cotangent(out[0])))
        yield x, y, out

    check_session(session)


# -- tangents ----------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize(
    "lay", [lambda g: g, lambda g: g.t().contiguous().t(), lambda g: g[:1].expand(2, 3)], ids=["same", "t", "expand"]
)
def test_layouts_of_tangents(make, lay):
    def session(compile):
        compiled = compile(lambda x: x.sin() * x)
        for _ in range(2):
            x = make(2, 3, grad=True)
            y = compiled(x)
            y.backward(lay(cotangent(y)))
            yield x, y

    check_session(session, rtol=1e-6)


@every_class
def test_tangents_of_some_of_several_results(make):
    def session(compile):
        compiled = compile(lambda x, w: (x * w, x + 1, (w * w).sum()))
        for which in ([0], [1], [2], [0, 2], [1, 0]):
            x, w = make(3, grad=True), make(3, seed=2, grad=True)
            out = compiled(x, w)
            torch.autograd.backward([out[k] for k in which], [cotangent(out[k]) for k in which])
            yield x, w, out

    check_session(session)


# -- ragged batches ----------------------------------------------------------------------------------


def _with_offsets(make_values):
    offsets = torch.tensor([0, 2, 5])
    return torch.nested.nested_tensor_from_jagged(make_values, offsets), offsets


_ON_RAGGED = {
    "offsets": lambda x: (x * 2, x.offsets()),
    "a write": lambda x: x.detach().clone().mul_(2),
    "values": lambda x: x.values() * 2,
    "sum of a batch": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(dim=1),
    "mean of columns": lambda x: x.mean(-1),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (2,)),
    "cat": lambda x: torch.cat([x, x], dim=-1),
    "chunk": lambda x: x.chunk(2, dim=-1),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.5) * 2,
    "clone": lambda x: (x.clone(), x.detach()),
    "view": lambda x: x.transpose(1, 2),
    "unsqueezed": lambda x: x.unsqueeze(-1) * 2,
    "like": lambda x: torch.zeros_like(x) + x,
    "other dtype": lambda x: x.double() * 2,
    "comparison": lambda x: torch.where(x > 0, x, x * 2),
    "a scalar": lambda x: x * x.max(),
    "of its values": lambda x: torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()) + x,
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "gelu": lambda x: nn.functional.gelu(x),
}


@pytest.mark.parametrize("kind", ["plain", "leaf", "non-leaf"])
@pytest.mark.parametrize("function", _ON_RAGGED.values(), ids=_ON_RAGGED)
def test_ragged(function, kind):
    def session(compile):
        compiled = compile(function)
        for lengths in ((2, 3), (1, 4), (2, 1, 3)):
            root = x = jagged(*lengths, grad=kind != "plain")
            if kind == "non-leaf":
                x = x * 2
            out = attempt(lambda: compiled(x))  # noqa: B023
            yield root, x, out
            if isinstance(out, Raised):
                continue
            outs = [o for o in torch.utils._pytree.tree_leaves(out) if o.requires_grad]
            if outs:
                gradients = [torch.ones_like(o) for o in outs]
                yield attempt_later(lambda: torch.autograd.backward(outs, gradients))  # noqa: B023
            yield root, x, out

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("grad", [False, True])
def test_offsets_and_values_passed_beside_the_batch(grad):
    def make():
        values = plain(5, 2)
        x, offsets = _with_offsets(values)
        return given(x.detach().requires_grad_(grad), values, offsets)

    def f(x, values, offsets):
        return x * 2, values + 1, offsets + 1, torch.nested.nested_tensor_from_jagged(values * 3, offsets)

    check(f, make, make, probe=False)


def test_offsets_shared_by_argument_and_result_in_the_backward():
    def session(compile):
        x, w = jagged(2, 3, grad=True), leaf(2)
        y = compile(lambda x, w: (x * w, (x * x).sum()))(x, w)
        yield attempt_later(lambda: y[0].backward(x.detach(), retain_graph=True))
        yield attempt_later(lambda: y[1].backward())
        yield x, w, y
        assert x.grad.offsets() is x.offsets() and y[0].offsets() is x.offsets()

    check_session(session)


def test_a_gradient_penalty_of_a_ragged_batch():
    def session(compile):
        x = jagged(2, 3, grad=True)
        y = compile(lambda x: (x * x * x).sum())(x)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        yield g
        (g * g).sum().backward()
        yield x

    check_session(session)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_ragged_batch_without_grad(mode):
    def session(compile):
        compiled = compile(lambda x: (x * 2, x.transpose(1, 2), x.values()))
        with mode():
            yield compiled(jagged(2, 3))
        yield compiled(jagged(2, 3))

    check_session(session)


def test_a_ragged_batch_from_a_closure_and_in_a_container():
    def session(compile):
        w = jagged(2, 3, grad=True)
        compiled = compile(lambda d: {"y": d["x"] * 2, "w": w * 3})
        out = compiled({"x": jagged(2, 2)})
        out["w"].backward(torch.ones_like(out["w"]))
        yield out, w

    check_session(session)


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.zero_(), lambda x: x.values().add_(1)])
@pytest.mark.parametrize("kind", ["plain", "leaf", "non-leaf", "view", "view of a leaf", "view of a non-leaf"])
def test_a_ragged_batch_is_written(write, kind):
    def session(compile):
        def f(x):
            write(x)
            return x * 2

        root = x = jagged(2, 3, grad="leaf" in kind)
        x = x * 1 if "non-leaf" in kind else x
        x = x.transpose(1, 2) if "view" in kind else x
        out = attempt(lambda: compile(f)(x))
        yield root, x, out
        if isinstance(out, torch.Tensor) and out.requires_grad:
            yield attempt_later(lambda: out.backward(torch.ones_like(out)))
        yield root, x

    check_session(session)


_BACK_TO_PLAIN = {
    "values": lambda x: nested_of(x, torch.tensor([0, 2])).values(),
    "values of a product": lambda x: nested_of(x * 2, torch.tensor([0, 2])).values(),
    "values and what they are of": lambda x: (lambda y: (y, nested_of(y, torch.tensor([0, 2])).values()))(x * 2),
}


@pytest.mark.parametrize("function", _BACK_TO_PLAIN.values(), ids=_BACK_TO_PLAIN)
@pytest.mark.parametrize("make", [plain, leaf, lambda *shape: leaf(*shape) * 2])
def test_the_values_of_a_ragged_tensor_made_inside(function, make):
    check(function, lambda: given(make(2, 3)))


def test_a_written_view_beside_a_wrapper():
    """To find out how it was made costs no memory, and leaves nothing in the graph."""

    def f(x):
        view = x[1:]
        batch = two(3).view(3, 1)
        view.fill_(3)
        return view[:1], batch

    check(f, lambda: given(plain(4)), lambda: given(leaf(4) * 2))


class _KeepsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := x * 2)
        return y

    @staticmethod
    def backward(ctx, *grads):
        return grads[0] * ctx.saved_tensors[0]


def test_a_custom_function_that_keeps_its_ragged_result():
    def session(compile):
        values = plain(4, 2)
        x = nested_of(values, torch.tensor([0, 1, 4], device=values.device))
        values.requires_grad_()  # it is the ragged tensor's, which does not require grad by itself
        y = compile(_KeepsItsResult.apply)(x)
        yield x, y
        yield attempt_later(lambda: y.values().sum().backward()), values

    check_session(session)


def ragged_inside(x):
    return nested_of(x, torch.tensor([0, 1, 3], device=x.device))


_OF_RAGGED_INSIDE = {
    "values": lambda x: ragged_inside(x).values(),
    "values beside it": lambda x: [(n := ragged_inside(x)).values(), n],
    "values twice": lambda x: [(n := ragged_inside(x)).values(), n.values()],
    "values and what is computed": lambda x: [(v := ragged_inside(x).values()), v.sin(), x * 2],
    "part of values": lambda x: ragged_inside(x).values()[1:],
    "values of a part": lambda x: ragged_inside(x.view(3, 2)).values(),
    "rows": lambda x: ragged_inside(x).unbind(),
    "row": lambda x: ragged_inside(x).unbind()[1],
    "detached": lambda x: ragged_inside(x.detach()).values(),
    "values of what is computed": lambda x: (ragged_inside(x) * 2).values(),
    "values of what is computed, beside it": lambda x: [(n := ragged_inside(x) * 2).values(), n],
    "values of two": lambda x: [(n := ragged_inside(x) * 2).values(), n.sin().values()],
}


_GIVEN = {
    "plain": lambda root: root,
    "leaf": lambda root: root.requires_grad_(),
    "non-leaf": lambda root: root.requires_grad_() * 2,
    "view": lambda root: (root.requires_grad_() * 2)[:],
}


@pytest.mark.parametrize("later", ["nothing", "argument", "result"])
@pytest.mark.parametrize("kind", _GIVEN)
@pytest.mark.parametrize("function", _OF_RAGGED_INSIDE.values(), ids=_OF_RAGGED_INSIDE)
def test_a_view_by_way_of_a_ragged_tensor_made_inside(function, kind, later):
    """It is one of what the ragged tensor was made of: the two count writes, and have a history, together."""

    def once(compiled, root):
        x = _GIVEN[kind](root)
        factor = torch.tensor(3.0, device=x.device, requires_grad=True)
        y = compiled(x)
        ys = [v for v in (y if isinstance(y, (list, tuple)) else [y]) if not v.is_nested]
        yield [v._base is x for v in ys], [v._base is None for v in ys]
        if later != "nothing":
            yield attempt_later(lambda: (x if later == "argument" else ys[0]).mul_(factor))
        yield attempt_later(lambda: [v.requires_grad for v in ys])
        yield attempt_later(lambda: backward([v for v in ys if v.requires_grad])), root, factor

    def session(compile):
        compiled = compile(function)
        for seed in range(2):
            yield from once(compiled, plain(3, 2, seed=seed))

    check_session(session)


def test_what_was_ragged_is_reshaped_in_place():
    with pytest.raises(aotcheck.UnsupportedError, match="ragged"):
        aotcheck.aot_function(lambda x: ragged_inside(x).values().t_())(plain(3, 2))


def test_a_plain_tensor_is_not_padded():
    """Eager has no kernel for that, and says so."""
    check(lambda x: torch.nested.to_padded_tensor(x * 2, 0.0), lambda: given(leaf(3)))


_NUMBERS_OF_OFFSETS = {
    "unbind": lambda x: x.unbind(),
    "rows": lambda x: [row * 2 for row in x.unbind()],
    "row": lambda x: x[0],
    "part of a row": lambda x: x[-1][1:].sin(),
    "row of a result": lambda x: (x * 2)[1].sum(),
    "chunks": lambda x: [c * 1 for c in x.chunk(2)],
    "a number": lambda x: x.values() * x.offsets()[1].item(),
}


@pytest.mark.parametrize("function", _NUMBERS_OF_OFFSETS.values(), ids=_NUMBERS_OF_OFFSETS)
@pytest.mark.parametrize("grad", [False, True])
def test_what_asks_for_the_numbers_in_offsets(function, grad):
    def session(compile):
        f = compile(function)
        for lengths in ((2, 3), (1, 4), (2, 3), (3, 3)):
            x = jagged(*lengths, grad=grad)
            out = f(x)
            yield out
            if grad:
                sum(t.sin().sum() for t in pytree.tree_leaves(out)).backward()
                yield x.grad

    check_session(session)


def test_attention_by_way_of_nested_tensors_of_another_layout_is_refused():
    def attend(x):
        return nn.functional.scaled_dot_product_attention(*[x.unflatten(-1, (1, 2)).transpose(1, 2)] * 3)

    with pytest.raises(aotcheck.UnsupportedError, match="layout"):
        aotcheck.aot_function(attend)(jagged(2, 3))


def test_numbers_of_other_tensors_are_no_part_of_the_key():
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x, i: x[i[0].item()])(jagged(2, 3), torch.tensor([1]))


# -- ragged batches that are views of plain tensors


def _written_after(make_views):
    """What the function makes of plain values and offsets, and what the caller then writes."""

    def session(compile):
        compiled = compile(make_views)
        for kind in ("plain", "leaf", "non-leaf"):
            for written in ("batch", "values"):
                for mode in (torch.no_grad, torch.enable_grad):
                    root = values = leaf(5, 2) if "leaf" in kind else plain(5, 2)
                    values = values * 1 if kind == "non-leaf" else values
                    offsets = torch.tensor([0, 2, 5])
                    out = compiled(values, offsets)
                    yield out, values, [t._version for t in out], values._version, out[0]._base is values
                    target = {"batch": out[0], "values": values}[written]
                    with mode():
                        yield attempt_later(lambda: target.mul_(2).shape[0])  # noqa: B023
                    yield values, [t._version for t in out], values._version
                    seen = attempt_later(lambda: (values * values).sum())  # noqa: B023
                    for t in (seen, out[0]):
                        if isinstance(t, torch.Tensor) and attempt_later(lambda: t.requires_grad) is True:  # noqa: B023
                            yield attempt_later(lambda: t.backward(torch.ones_like(t)))  # noqa: B023
                    yield root

    check_session(session)


_OF_PLAIN = {
    "a view": lambda values, offsets: (nested_of(values, offsets), offsets),
    "under no_grad": torch.no_grad()(lambda values, offsets: (nested_of(values, offsets), offsets)),
    "of a view": lambda values, offsets: (nested_of(values.view(5, 2), offsets), offsets),
    "of a detached alias": lambda values, offsets: (nested_of(values.detach(), offsets), values.view(-1)),
    "of an intermediate": lambda values, offsets: (nested_of(values * 2, offsets), offsets),
    "of one that is returned too": lambda values, offsets: (lambda v: (nested_of(v, offsets), v))(values * 2),
    "with offsets made inside": lambda values, offsets: (nested_of(values, offsets + 0), offsets),
    "written inside": lambda values, offsets: (nested_of(values.detach(), offsets).mul_(2), values.view(-1)),
    "a view of the view": lambda values, offsets: (nested_of(values, offsets).transpose(1, 2), values.view(-1)),
    "twice": lambda values, offsets: (nested_of(values, offsets), nested_of(values, offsets)),
    "a leaf": lambda values, offsets: (nested_of(values.detach(), offsets).requires_grad_(), offsets),
    "beside several views": lambda values, offsets: (nested_of(values.detach(), offsets), *values.split(2)),
}


@pytest.mark.parametrize("make_views", _OF_PLAIN.values(), ids=_OF_PLAIN)
def test_a_ragged_view_of_a_plain_tensor(make_views):
    _written_after(make_views)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("lengths", [(0, 0), (2, 3)], ids=["empty", "filled"])
@pytest.mark.parametrize("inference", [False, True], ids=["grad", "inference"])
def test_dropout_of_a_ragged_tensor(p, lengths, inference):
    def f(x):
        with torch.inference_mode(inference):
            return torch.nn.functional.dropout(x, p)

    check(f, lambda: given(jagged(*lengths, grad=not inference)))


# -- what says how ragged a part is, which is made with the part, and what is computed of the part holds too ----------


PARTED = {
    "dropout": lambda v: torch.nn.functional.dropout(v, 0.5),
    "product": lambda v: v * 2,
    "of a product": lambda v: (v * 2).sin(),
    "cast": lambda v: v.to(torch.float64),
}


@pytest.mark.parametrize("op", PARTED.values(), ids=PARTED)
@pytest.mark.parametrize("split", ["chunk", "one of three", "both"])
@pytest.mark.parametrize("kind", ["leaf", "of a plain leaf", "with a history", "no grad"])
@pytest.mark.parametrize("order", ["part first", "result first"])
@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
def test_a_part_of_a_ragged_tensor_and_what_is_computed_of_it_are_equally_ragged(op, split, kind, order, written):
    def function(x):
        if written:
            x.mul_(2)
        parts = torch.chunk(x, 3 if split == "one of three" else 2)
        results = [op(v) for v in (parts if split == "both" else parts[:1])]
        return (*parts, *results, x) if order == "part first" else (*results, *parts)

    def session(compile):
        values = plain(6, 2)
        x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 4, 6], device=values.device))
        if kind == "of a plain leaf":
            values.requires_grad_()
        elif kind != "no grad":
            x.requires_grad_()
        given = x * 2 if kind == "with a history" else x
        torch.manual_seed(0)
        results = attempt(lambda: compile(function)(given))
        if isinstance(results, Raised):  # of a leaf that is written
            yield results
            return
        yield [[a.offsets() is b.offsets() for b in results] for a in results]
        yield [[a.shape == b.shape for b in results] for a in results]
        if kind != "no grad":
            # Torch looks at whether a gradient is as ragged as what it is for.
            for t in results:
                yield attempt_later(lambda t=t: torch.autograd.grad(t, [x], torch.ones_like(t), retain_graph=True))
            yield attempt_later(lambda: torch.autograd.backward(results, [torch.ones_like(t) for t in results]))
            yield x.grad, values.grad

    check_session(session)
