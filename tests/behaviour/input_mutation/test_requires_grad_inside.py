"""Requires_grad_() inside, leaves that begin, leaf errors."""

import pytest
import torch

from tests.behaviour.functions import Same
from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, check, session
from tests.behaviour.input_mutation.common import leaf_that_is_a_view
from tests.behaviour.inputs import given, given_of, leaf, non_leaf, plain, to_device
from tests.behaviour.shared import GRAD_MODES, VIEWS, leafness


@agrees(lambda: given(plain(3)))
def test_requires_grad_of_an_input_that_is_used_afterwards(x):
    y = x.requires_grad_()
    return y * 2


@pytest.mark.parametrize("change", [lambda x: x.squeeze_(), lambda x: x.mul_(2)])
@agrees(lambda: given(plain(1)))
def test_a_view_made_before_its_base_required_grad_and_then_did_not(x, *, change):
    v = x.t()
    x.requires_grad_()
    y = x.clone()
    x.requires_grad_(False)
    change(x)
    return y, v


def test_requires_grad_of_an_input_without_a_use():
    check(lambda x: x.requires_grad_() is x, lambda: given(plain(3)))


@agrees(lambda: given(plain(3), leaf(3, seed=1)), lambda: given(plain(3), plain(3, seed=1)), anew=True)
def test_requires_grad_of_an_input_that_was_used_before(x, w):
    y = x * w
    x.requires_grad_()
    return y, x * w


@agrees(lambda: given(plain(3)))
def test_requires_grad_of_a_mutated_input(x):
    x.add_(1)
    x.requires_grad_()
    return x * x


@agrees(lambda: given(leaf(3)), lambda: non_leaf(3), anew=True)
def test_requires_grad_set_to_false_after_a_use(x):
    y = x * 2
    x.requires_grad_(False)
    return y, x * 3


@agrees(lambda: given(plain(3)))
def test_requires_grad_under_no_grad(x):
    with torch.no_grad():
        x.requires_grad_()
        y = x * 2
    return y, x * 3


@agrees(lambda: given_of(plain(6), lambda base: (base[:4], base[2:])))
def test_requires_grad_of_one_of_two_aliases(x, y):
    x.requires_grad_()
    return x * 2, y * 3


@agrees(lambda: given_of(leaf(3), lambda x: (x, x.t())))
def test_a_leaf_stops_requiring_grad_after_its_view_was_read_behind_a_write(x, y):
    with torch.no_grad():
        x.zero_()
    y.clone()
    x.requires_grad = False


@agrees(lambda: given(plain(3, 2)))
def test_a_view_of_a_view_made_before_the_argument_requires_grad(x):
    v = x[0].t()
    x.requires_grad_()
    return v, x[0].t()


@session
def test_a_used_leaf_that_stops_requiring_grad_and_is_then_written(compile):
    def f(x):
        largest, _ = torch.max(x, -1)
        x.requires_grad = False
        x[[0]] = largest  # gradients that come to the leaf that it was must not end the process
        return largest, x

    for order in ((0,), (1,), (0, 1), (1, 0)):
        x = leaf(3)
        outputs = compile(f)(x)
        yield outputs
        for k in order:
            o = outputs[k]
            yield attempt_later(lambda o=o: o.sum().backward(retain_graph=True)), x.grad


@agrees(lambda: given(leaf(3)), probe=False)
def test_requires_grad_of_a_leaf_that_requires_grad_already(x):
    same, view = Same.apply(x), x[1:]
    x.requires_grad_()
    return same, view


@agrees(lambda: given_of(plain(3), lambda x: (x, x.view(3))))
def test_a_view_reshaped_in_place_before_its_base_requires_grad(x, view):
    view.set_(view.untyped_storage(), 0, (2,), (1,))
    view.as_strided_((1,), (1,), 1)
    x.requires_grad_()
    return view.repeat(2), x


def _for_a_while(x, y):
    x.requires_grad_()
    v = x * 2
    x.requires_grad_(False)
    x.copy_(y)
    return v


def _written_from_itself(x, y):
    x.requires_grad_()
    v = x * 2
    x.requires_grad_(False)
    x.copy_(v)
    return v


def _a_part(x, y):
    v = x[0]
    v.requires_grad_()
    w = v * 2
    x.copy_(y)
    return w, v


def _a_part_for_a_while(x, y):
    v = x[0]
    v.requires_grad_()
    w = v * 2
    v.requires_grad_(False)
    x.copy_(y)
    return w, v


@pytest.mark.parametrize("f", [_for_a_while, _written_from_itself, _a_part, _a_part_for_a_while])
def test_an_argument_requires_grad_until_it_is_written(f):
    check(f, lambda: given(plain(3), leaf(3, seed=1)))


@pytest.mark.parametrize("write", [torch.Tensor.zero_, torch.Tensor.exp_, lambda v: v.t().mul_(2)])
@pytest.mark.parametrize("away", [True, False])
@agrees(lambda: given(plain(2, 2), plain(2, 2, seed=1)))
def test_a_view_written_before_its_base_requires_grad(x, y, *, write, away):
    v = x.t()
    if away:
        x.data = y
    write(v)
    x.requires_grad = True
    return v


@pytest.mark.parametrize("change", [lambda v: v.add_(1), lambda v: v.unsqueeze_(0), lambda v: v.set_(v)])
@agrees(lambda: given(plain(2, 2)))
def test_a_view_is_written_reshaped_or_set_before_its_base_requires_grad(x, *, change):
    view = x.view_as(x)
    change(view)
    x.requires_grad_()
    return view


@agrees(lambda: given(plain(2, 2, dtype=torch.complex64)))
def test_a_view_of_a_written_view_made_before_its_base_requires_grad(x):
    view = x.conj()
    view.zero_()
    result = view.unsqueeze(-1)
    x.requires_grad_()
    return result


@session
def test_a_no_grad_view_stops_requiring_grad_and_is_reshaped_in_each_call(compile):
    def make():
        base = leaf(2, 2).clone()
        with torch.no_grad():
            return given(base.view_as(base), also=[base])

    def f(x):
        x.requires_grad_(False)
        with torch.no_grad():
            x.transpose_(0, -1)
        return x

    compiled, made = compile(f), make()
    for _ in range(2):
        yield compiled(*made.args).shape, made.args[0].stride()


@pytest.mark.parametrize("kind", [lambda: given(leaf(2, 3)), leaf_that_is_a_view], ids=["leaf", "view"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_requires_grad_false_of_an_argument_after_a_view_of_it_was_made(view, kind):
    def function(x):
        seen = view(x)
        before = seen * 2
        with torch.no_grad():
            x.add_(1)
        x.requires_grad_(False)
        return before, seen

    check(function, kind, kind)


@pytest.mark.parametrize("ambient", ["grad", "no_grad"])
@pytest.mark.parametrize("returned", ["alone", "beside another part", "beside a result", "a view of it", "cut"])
@session
def test_requires_grad_of_the_real_part_of_a_leaf_that_the_caller_writes(compile, ambient, returned):
    def function(x):
        v = x.real.requires_grad_()
        match returned:
            case "alone":
                return (v,)
            case "beside another part":
                return v, x.imag
            case "beside a result":
                return v, v * 2
            case "a view of it":
                return (v[1:],)
        return (v.detach(),)

    for written in (lambda v: v.add_(1), lambda v: v.data.add_(1)):
        x = to_device(torch.zeros(3, dtype=torch.complex64)).t().requires_grad_()
        with GRAD_MODES[ambient]():
            results = compile(function)(x)
        with torch.no_grad():
            written(results[0])
        for t in (*results, x):
            yield leafness(t)  # torch fails an assertion, and by that forgets the history
            yield leafness(t)


TOLD = [(kind, told) for kind in ("a row", "values", "a view", "a part") for told in ("once", "beside a view", "used")]

TOLD += [(kind, told) for kind in ("a view", "a part") for told in ("before it is cut", "before it is written")]


@pytest.mark.parametrize(("kind", "told"), TOLD)
@session
def test_requires_grad_of_a_view_argument_that_requires_grad_already(compile, kind, told):
    def make():
        if kind in ("a row", "values"):
            ragged = torch.nested.nested_tensor_from_jagged(
                plain(4, 2), to_device(torch.tensor([0, 2, 4]))
            ).requires_grad_()
            return ragged, ragged[0] if kind == "a row" else ragged.values()
        base = plain(4, 2).t().requires_grad_()
        return base, base[0] if kind == "a view" else base.split(1)[0]

    def function(x):
        match told:
            case "used":
                y = x * 2
                x.requires_grad_()
                return y
            case "before it is cut":
                x.requires_grad_()
                return x.detach_()
            case "before it is written":
                x.requires_grad_()
                with torch.no_grad():
                    x.mul_(2)
            case "beside a view":
                v = x[:1]
                x.requires_grad_()
                return v
            case _:
                x.requires_grad_()
        return None

    for written in (lambda x: x.add_(1), lambda x: x.data.add_(1), lambda x: None):
        base, x = make()
        result = attempt(lambda x=x: compile(function)(x))
        yield x.requires_grad
        with torch.no_grad():
            written(x)
        yield result if isinstance(result, Raised) else None
        for t in (result, x, base):
            if isinstance(t, torch.Tensor):
                yield leafness(t)  # torch may fail an assertion, and by that forgets the history
                yield leafness(t)


def made_inside(x, y):
    made = torch.ones(2, device=x.device) * 2
    out = x * made
    made.requires_grad_()
    return out, made


def argument(x, y):
    out = x * y
    y.requires_grad_()
    return out, y


def used_again(x, y):
    out = x * y
    y.requires_grad_()
    return out * y, y


def used_beside(x, y):
    out = x * y
    y.requires_grad_()
    return out, y * x, y


def view_of_what_stays(x, y):
    part = y.clone()[:2]
    out = x * part
    part.requires_grad_()
    return out, part


def told_twice(x, y):
    made = y.clone()
    out = x * made
    made.requires_grad_(False)
    made.requires_grad_()
    return out * 2 * made, made


def other_data(x, y):
    made = y.clone()
    out = x * made
    made.data = torch.full((2,), 3.0, device=x.device)
    made.requires_grad_()
    return out, made


FUNCTIONS = [made_inside, argument, used_again, used_beside, view_of_what_stays, told_twice, other_data]


@pytest.mark.parametrize("f", FUNCTIONS)
@session
def test_second_and_third_derivatives_by_a_tensor_that_ops_saved_before_it_required_grad(compile, f):
    x, y = leaf(2), plain(2, seed=1)
    out, *others = compile(f)(x, y)
    ends = [x, *others] if all(o.is_leaf for o in others) else [x, others[-1]]
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    yield first.detach(), first.requires_grad
    second = torch.autograd.grad((first**3).sum(), ends, create_graph=True, allow_unused=True)
    yield [None if g is None else g.detach() for g in second]
    known = sum([(g**2).sum() for g in second if g is not None and g.requires_grad])
    yield torch.autograd.grad(known, ends, allow_unused=True)


@pytest.mark.parametrize("f", FUNCTIONS)
@session
def test_the_caller_undoes_requires_grad_of_a_tensor_that_required_it_inside(compile, f):
    x, y = leaf(2), plain(2, seed=1)
    out, *others = compile(f)(x, y)
    others[-1].requires_grad_(False)
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    yield first.detach()
    if f in (made_inside, argument):
        return  # nothing else leads anywhere
    yield torch.autograd.grad((first**3).sum() + (x**2).sum(), x)
