"""Jagged tensors as views of the plain tensors that they were made of, inside or by the caller."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, backward, check, check_session, cotangent, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.subclasses.common import nested_of


@pytest.mark.parametrize("write", ["mul_", "fill_", "exp_"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside its base"])
@session
def test_a_jagged_view_of_a_part_of_a_plain_tensor_is_written(compile, write, beside):
    """What the view does not show of its base keeps its gradient."""

    def function(x, *_):
        getattr(x, write)(*([2] if write != "exp_" else []))
        return ()

    root = leaf(3, 2)
    base = root * 1
    offsets = torch.tensor([0, 1, 3], device=root.device)
    x = torch.nested.nested_tensor_from_jagged(base[:, 0], offsets)
    compile(function)(x, *([base] if beside else []))
    yield base, attempt_later(lambda: backward([base])), root


_BACK_TO_PLAIN = {
    "values": lambda x: nested_of(x, torch.tensor([0, 2], device=x.device)).values(),
    "values of a product": lambda x: nested_of(x * 2, torch.tensor([0, 2], device=x.device)).values(),
    "values and what they are of": lambda x: (
        lambda y: (y, nested_of(y, torch.tensor([0, 2], device=y.device)).values())
    )(x * 2),
}


@pytest.mark.parametrize("function", _BACK_TO_PLAIN.values(), ids=_BACK_TO_PLAIN)
@pytest.mark.parametrize("make", [plain, leaf, lambda *shape: leaf(*shape) * 2])
def test_the_values_of_a_jagged_tensor_made_inside(function, make):
    check(function, lambda: given(make(2, 3)))


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
@session
def test_values_and_rows_of_a_jagged_tensor_made_inside_are_views_of_the_argument(compile, function, kind, later):
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

    compiled = compile(function)
    for seed in range(2):
        yield from once(compiled, plain(3, 2, seed=seed))


def test_an_in_place_reshape_of_the_values_of_a_jagged_tensor_is_refused():
    with pytest.raises(aotcheck.UnsupportedError, match="ragged"):
        aotcheck.aot_function(lambda x: ragged_inside(x).values().t_())(plain(3, 2))


def _written_after(make_views):
    """What the function makes of plain values and offsets, and what the caller then writes."""

    def session(compile):
        compiled = compile(make_views)
        for kind in ("plain", "leaf", "non-leaf"):
            for written in ("batch", "values"):
                for mode in (torch.no_grad, torch.enable_grad):
                    root = values = leaf(5, 2) if "leaf" in kind else plain(5, 2)
                    values = values * 1 if kind == "non-leaf" else values
                    offsets = to_device(torch.tensor([0, 2, 5]))
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
def test_the_caller_writes_a_jagged_view_made_inside_or_its_plain_base(make_views):
    _written_after(make_views)


def ragged(values, **options):
    offsets = torch.tensor([0, 1, 3], device=values.device)
    return torch.nested.nested_tensor_from_jagged(values, offsets, **options)


def of_plain():
    values = plain(3, 2)
    return ragged(values), values


def a_leaf():
    values = plain(3, 2)
    return ragged(values).requires_grad_(), values


def of_result():
    values = leaf(3, 2) * 1
    return ragged(values), values


def of_leaf():
    values = leaf(3, 2)
    return ragged(values), values


def under_no_grad():
    values = leaf(3, 2)
    with torch.no_grad():
        return ragged(values), values


def under_no_grad_of_result():
    values = leaf(3, 2) * 1
    with torch.no_grad():
        return ragged(values), values


def required_later():
    values = plain(3, 2)
    x = ragged(values)
    values.requires_grad_()
    return x, values


def of_window():
    values = leaf(4, 2) * 1
    return ragged(values[1:]), values


def moved():
    values = leaf(3, 2) * 1
    return ragged(values).transpose(1, 2), values


def split_up():
    values = leaf(3, 2) * 1
    return ragged(values, max_seqlen=2, min_seqlen=1).unflatten(-1, (2, 1)), values


def two_of_one():
    values = leaf(3, 2) * 1
    return ragged(values), ragged(values)


MAKERS = [
    of_plain,
    a_leaf,
    of_result,
    of_leaf,
    under_no_grad,
    under_no_grad_of_result,
    required_later,
    of_window,
    moved,
    split_up,
    two_of_one,
]


def used_then_base(x, v):
    y = x * x
    v.mul_(2)
    return y


def base_then_used(x, v):
    v.mul_(2)
    return x * x


def used_then_base_quietly(x, v):
    y = x * x
    with torch.no_grad():
        v.mul_(2)
    return y, x * 1


def base_cut(x, v):
    v.detach_()
    return x * 2


def base_required(x, v):
    v.requires_grad_()
    return x * 2


def itself(x, v):
    x.mul_(2)
    return v * 3, x


def itself_twice(x, v):
    y = v.sin()
    x.mul_(2)
    z = v.sin()
    x.sin_()
    return y, z, x * 2


def row_quietly(x, v):
    with torch.no_grad():
        r = x.unbind()[0]
    return r * 2


def values_written(x, v):
    y = x.values()
    y.mul_(2)
    return y, x * 1


def values_before(x, v):
    y = x.values()
    v.mul_(2)
    return y * 2, x


def rows(x, v):
    r = x.unbind()
    return r[0], r[1].square(), x.detach()


def row_of_written(x, v):
    v.mul_(2)
    return x[1], x[1] * 3


def both(x, v):
    return x * 2, v * 3


def another_from_base(x, v):
    v.mul_(3)
    return v.sum(), x.values().sum()


FUNCTIONS = [
    used_then_base,
    base_then_used,
    used_then_base_quietly,
    base_cut,
    base_required,
    itself,
    itself_twice,
    row_quietly,
    values_written,
    values_before,
    rows,
    row_of_written,
    both,
    another_from_base,
]


def gradients(out, inputs, twice):
    seed = torch.ones_like(out.detach()) if out.layout is torch.jagged else cotangent(out)
    for create_graph in (False, True)[: 1 + twice]:
        made = torch.autograd.grad(out, inputs, seed, allow_unused=True, retain_graph=True, create_graph=create_graph)
        yield made
        again = [g.sum() for g in made if g is not None and g.requires_grad]
        if again:
            yield torch.autograd.grad(again, inputs, allow_unused=True, retain_graph=True)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("make", "function"),
    # Of these two together the strides of a gradient differ.
    [(m, f) for m in MAKERS for f in FUNCTIONS if (m, f) != (moved, values_before)],
    ids=lambda x: x.__name__,
)
@session
def test_a_jagged_argument_is_passed_with_the_plain_tensor_it_was_made_of(compile, make, function):
    """Also where the caller writes that before the backward."""
    twice = make not in (moved, split_up)
    of_rows = function in (rows, row_of_written)  # torch has no backward to these once they are written

    compiled = compile(function)
    for written in (False, True):
        x, v = make()
        made = attempt(lambda x=x, v=v: compiled(x, v))
        yield x, v, made
        if not isinstance(made, (torch.Tensor, tuple, list)):
            return
        outs = [made] if isinstance(made, torch.Tensor) else list(made)
        yield attempt_later(lambda x=x, outs=outs: [t._base is not None for t in (x, *outs)])
        if written and not of_rows:
            with torch.no_grad():
                yield attempt_later(lambda v=v: v.add_(1))
        inputs = [t for t in (x, v) if t.requires_grad]
        for out in [t for t in outs if t.requires_grad and inputs]:
            yield attempt_later(lambda out=out, inputs=inputs: list(gradients(out, inputs, twice)))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("cut", [lambda v: v.detach_(), lambda v: v.requires_grad_(False)], ids=["cut", "told"])
@pytest.mark.parametrize("view", [ragged, lambda v: v.view(2, 3), lambda v: v[1:]], ids=["ragged", "whole", "part"])
@session
def test_a_view_made_before_its_base_required_grad_and_was_detached_inside(compile, view, cut):
    values = plain(3, 2)
    x = view(values)
    values.requires_grad_()

    def f(x, v):
        y = x * 3
        cut(v)
        return x * 2, y

    yield compile(f)(x, values), x, values
