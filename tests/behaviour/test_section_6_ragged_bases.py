"""BEHAVIOUR 6: ragged arguments are views of the plain tensor that they were made of."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session, cotangent, leaf, plain

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


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


@pytest.mark.parametrize(
    ("make", "function"),
    # Of these two together the strides of a gradient differ.
    [(m, f) for m in MAKERS for f in FUNCTIONS if (m, f) != (moved, values_before)],
    ids=lambda x: x.__name__,
)
def test_a_ragged_argument_and_what_it_was_made_of(make, function):
    """Also where the caller writes that before the backward."""
    twice = make not in (moved, split_up)
    of_rows = function in (rows, row_of_written)  # torch has no backward to these once they are written

    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("cut", [lambda v: v.detach_(), lambda v: v.requires_grad_(False)], ids=["cut", "told"])
@pytest.mark.parametrize("view", [ragged, lambda v: v.view(2, 3), lambda v: v[1:]], ids=["ragged", "whole", "part"])
def test_a_view_made_before_its_base_was_told_to_require_grad_which_is_cut(view, cut):
    def session(compile):
        values = plain(3, 2)
        x = view(values)
        values.requires_grad_()

        def f(x, v):
            y = x * 3
            cut(v)
            return x * 2, y

        yield compile(f)(x, values), x, values

    check_session(session)
