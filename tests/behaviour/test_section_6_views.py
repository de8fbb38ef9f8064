"""BEHAVIOUR 6: views of wrapper subclasses whose base or own geometry changes, or was written, around their making."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.functions import Flat
from tests.behaviour.harness import Raised, attempt_later, check, check_session, cotangent, given, leaf, plain
from tests.behaviour.wrappers import extra, jagged, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


# -- a write after the view was made -------------------------------------------------------------------


@every_class
def test_a_detached_alias_of_what_is_then_written(make):
    def f(x):
        alias = x.detach()
        x.zero_()
        return alias

    check(f, lambda: given(make(3)))


def test_a_detached_alias_made_under_no_grad_of_a_leaf_that_is_then_written():
    def f(x):
        with torch.no_grad():
            alias = x.detach()
            x.zero_()
        return alias

    check(f, lambda: given(two(3, grad=True)))


def test_views_made_under_no_grad_of_what_is_then_written_have_a_history_that_eager_refuses_to_say():
    def f(x):
        with torch.no_grad():
            first = x.view(-1)
            x.mul_(2)
            second = x.view(-1)
        return first, second

    check(f, lambda: given(two(3, 2, grad=True)), backward=None, probe=False)


def test_views_of_one_of_several_results_that_is_written_under_no_grad():
    def f(x):
        first, second = x.split(1)
        part = first.select(0, 0)
        with torch.no_grad():
            first.mul_(2)
        return first, part, second

    check(f, lambda: given(two(2, 2, grad=True)), backward=None, probe=False)


@pytest.mark.parametrize("last", [lambda y: y, lambda y: y[1:]], ids=["the view", "a later view of it"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_view_of_a_view_leads_to_what_that_is_a_view_of_once_it_was_written_without_grad(mode, last):
    def f(x):
        y = x.t()
        with mode():
            x.zero_()
        return last(y)

    def session(compile):
        root = two(3, 2, grad=True)
        x = root.t()
        y = compile(f)(x)
        yield attempt_later(lambda: torch.autograd.backward([y], [torch.ones_like(y)], inputs=[x, root]))
        yield x.grad, root.grad  # autograd looked for both histories anew, and found them apart

    check_session(session)


def test_a_view_of_one_of_several_results_that_is_reshaped_under_no_grad():
    def session(compile):
        def f(x):
            first, _ = x.split([0, 1])
            part = first.imag
            with torch.no_grad():
                first.t_()
            return part

        x = leaf(1, dtype=torch.complex64)
        part = compile(f)(x)
        yield part.shape, part.requires_grad, part._base is x
        yield attempt_later(lambda: part.grad_fn)  # autograd refuses to say it

    check_session(session)


def test_a_view_made_under_no_grad_of_an_intermediate():
    def f(x):
        y = x * 2
        with torch.no_grad():
            return y.t()

    check(f, lambda: given(two(3, 2, grad=True)), backward=None)


def test_a_view_made_under_grad_of_one_made_under_no_grad():
    def session(compile):
        leaf_ = two(3, 2, grad=True)
        with torch.no_grad():
            v = leaf_.view(-1)
        y = compile(lambda x, v: v.unsqueeze(1))(leaf_, v)
        yield leaf_, v, y
        y.backward(cotangent(y))
        yield leaf_, v, y

    check_session(session)


def test_what_data_gives_counts_writes_apart():
    def session(compile):
        x = two(3, grad=True) * 2
        y = compile(lambda x: (x.data, x.detach()))(x)
        versions = [x._version, y[0]._version, y[1]._version]
        y[0].add_(1)
        yield x, y, versions, x._version
        y[1].add_(1)
        yield x, y, x._version

    check_session(session)


@pytest.mark.parametrize("write", ["one by one", "foreach"])
def test_a_view_that_is_written_by_the_class_alone(write):
    """A foreach op on a wrapper counts no write, so that views made before keep their history."""

    def session(compile):
        leaf_ = two(3, 2, grad=True)
        x = leaf_ * 2
        v = x.view(-1)

        def f(x, v):
            torch._foreach_mul_([v], 3) if write == "foreach" else v.mul_(3)
            return x + 1, v

        y, w = compile(f)(x, v)
        yield leaf_, x, v, y, v._version
        y.backward(cotangent(y), retain_graph=True)
        w.backward(cotangent(w))
        yield leaf_, x, v, y

    check_session(session)


def test_a_plain_tensor_that_is_written_beside_a_wrapper():
    def f(x, p):
        y = p * p
        v = y.view(-1)
        torch._foreach_zero_([x, v])
        return x, y, v

    check(f, lambda: given(two(3), leaf(3)), probe=False)


def test_a_view_without_its_base_where_another_view_is_written():
    """The trace with bases must not count the gradient of the view and that of its base."""

    def session(compile):
        leaf_, other = two(3, 2, grad=True), leaf(3, 2)
        x, p = leaf_.t(), (other * 1).t()

        def f(x, p):
            p.zero_()
            return x * 2

        y = compile(f)(x, p)
        y.backward(cotangent(y))
        yield leaf_, other, x, p, y

    check_session(session)


@pytest.mark.parametrize("lazily", [torch.conj, lambda x: x.conj().imag, lambda x: x])
def test_what_is_split_unsafely_of_what_is_to_be_conjugated_or_negated(lazily):
    def session(compile):
        x = torch.view_as_complex(plain(3, 2, 2))
        parts = compile(lambda x: torch.unsafe_split(x, 1, 1))(TwoTensor(lazily(x), lazily(x)))
        yield parts, parts[0].a.is_conj(), parts[0].a.is_neg()
        parts[1].a.mul_(2)
        yield x, parts

    check_session(session)


@pytest.mark.parametrize("written", ["base", "view"])
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_saved_of_a_view_is_written_through_what_counts_with_it(written, grad):
    def f(x, v, y):
        z = v * y
        with torch.no_grad():
            (x if written == "base" else v).add_(1)
        return z * 2, v * y

    def session(compile):
        x, y = two(3, 2, grad=grad), leaf(2, 3)
        v = x.t()
        first, second = compile(f)(x, v, y)
        yield x, v, first, second
        yield attempt_later(lambda: second.sum().backward())
        yield attempt_later(lambda: first.sum().backward())
        yield x, y

    check_session(session)


# -- geometry ------------------------------------------------------------------------------------------


@every_class
def test_a_view_that_changes_its_geometry(make):
    def f(x):
        v = x[1:]
        v.unsqueeze_(0)
        return v, v + 1

    check(f, lambda: given(make(3, 2)))


def test_a_view_made_under_no_grad_that_changes_its_geometry():
    def f(x):
        with torch.no_grad():
            v = x[None]
        v.unsqueeze_(3)
        return v

    check(f, lambda: given(two(3, 2)), backward=None)


@every_class
def test_a_view_of_an_input_that_then_changes_its_geometry(make):
    def f(x):
        v = x[1:]
        x.unsqueeze_(0)
        return v, x[0]

    check(f, lambda: given(make(3, 2)))


@every_class
@pytest.mark.parametrize("kind", ["no grad", "no leaf"])
@pytest.mark.parametrize("back", [False, True])
def test_a_view_of_an_input_between_changes_of_its_geometry(make, kind, back):
    def f(x):
        first = x[1:]
        x.unsqueeze_(0)
        second = x.diagonal()
        x.transpose_(1, 2)
        third = x[:, 1:]
        x.squeeze_(0).t_() if back else x.transpose_(0, 2)
        return first, second, third, x[0]

    def make_():
        root = make(3, 2, grad=kind == "no leaf")
        return given(root * 1 if kind == "no leaf" else root, also=[root])

    check(f, make_)


def test_views_of_a_view_made_before_and_after_it_changes_its_geometry():
    def f(x):
        alias = x.detach()
        v = alias[1:]
        before = v.mT
        v.unsqueeze_(0)
        after = v[0]
        v.squeeze_(0).t_()
        return before, after, v, alias

    check(f, lambda: given(two(3, 2)))


@every_class
def test_a_detached_alias_of_what_then_changes_its_geometry(make):
    def f(x):
        fresh = x.clone()
        alias = fresh.detach()
        fresh.unsqueeze_(0)
        return alias

    def both(x):
        fresh = x.clone()
        alias = fresh.detach()
        fresh.unsqueeze_(0)
        return alias, fresh

    check(f, lambda: given(make(3)))
    check(both, lambda: given(make(3)))


def test_a_view_of_a_view_that_is_then_written():
    def session(compile):
        def f(x):
            v = x.t()
            x.zero_()
            return v

        root = tagged(3, 2, grad=True)
        base = root.clone()
        x = base.t()
        v = compile(f)(x)
        yield v, x, base
        found = torch.autograd.grad(v, [root, base, x], cotangent(v), allow_unused=True)
        yield [g is None for g in found], found

    check_session(session)


def test_a_view_that_changes_its_geometry_and_is_written():
    def f(x):
        v = x[0]
        v.as_strided_((2,), (1,), 1)
        v.mul_(-1)
        return v

    check(f, lambda: given(two(4)))


def test_a_view_passed_without_its_base_that_changes_its_geometry():
    def session(compile):
        leaf_ = tagged(3, grad=True)
        x = (leaf_ * 2)[1:]

        def f(x):
            x.unsqueeze_(1)
            return x.sin()

        y = compile(f)(x)
        yield leaf_, x, y
        y.backward(cotangent(y), retain_graph=True)
        z = x * 3
        z.backward(cotangent(z))
        yield leaf_, x, y, z

    check_session(session)


def test_a_wrapper_made_of_an_argument_that_has_changed_its_geometry():
    def f(x):
        x.unsqueeze_(0)
        return two_of(x.data, x), x

    def two_of(a, b):
        return type(two(1))(a, b)

    check(f, lambda: given(plain(3, 2)))


# -- history -------------------------------------------------------------------------------------------


def test_a_base_cut_from_its_history_and_a_view_of_it():
    def session(compile):
        leaf_ = two(4, grad=True)
        x = leaf_ * 2
        v = x[::2]

        def f(x, v):
            x.detach_()
            x.mul_(2)
            return x.sin(), v

        y = compile(f)(x, v)
        yield leaf_, x, v, y

    check_session(session)


def test_a_view_that_a_custom_function_gave_may_not_be_written():
    def session(compile):
        x = two(3, 2, grad=True)
        y = compile(Flat.apply)(x)
        yield x, y, y._base is x
        y.backward(cotangent(y), retain_graph=True)
        yield x, y
        yield isinstance(attempt_later(lambda: y.mul_(2)), Raised)  # the message names a node

    check_session(session)


def test_an_integer_wrapper_that_is_written_from_one_that_requires_grad():
    def f(x, y):
        x.eq_(y)
        return x[0]

    def make():
        return given(torch.ops.aten.detach(two(3)).long(), two(3, seed=1, grad=True))

    check(f, make, backward=None, probe=False)


def test_a_view_in_inference_mode():
    def session(compile):
        x = two(3, 2, grad=True)
        v = x.view(-1)

        def f(x, v):
            x.mul_(2)
            return v.data, v + 1

        with torch.inference_mode():
            y = compile(f)(x, v)
        yield x, v, y, [t.is_inference() for t in y]

    check_session(session)


@pytest.mark.parametrize("both", [False, True])
def test_a_view_of_what_changes_its_geometry_afterwards(both: bool):
    def f(x):
        y = x * 2
        view = y.permute(2, 0, 1)
        y.squeeze_()
        return (view, y) if both else view

    # Once it was written eager would make the view again of what has another geometry by then, and fail.
    check(f, lambda: given(tagged(1, 3, 1)), probe=False)


def test_a_view_that_its_base_no_longer_gives_after_that_was_reshaped_and_written():
    def f(x, view):
        x.squeeze_(1)
        x.fill_(1)
        return x.sum()

    def make():
        root = two(2, 1, grad=True)
        x = root * 2
        return given(x, x.transpose(0, 1), also=[root])

    def session(compile):
        given = make()
        with torch.no_grad():
            out = compile(f)(*given.args)
        yield out.a, given.args[0].shape, given.args[0].a

    check_session(session)


def test_a_view_under_no_grad_of_a_view_whose_base_stopped_to_require_grad():
    """Eager fails an assertion of its own where it is asked for the history of the view, and does not ask here."""

    def f(x, v):
        x.requires_grad = False
        x.zero_()
        with torch.no_grad():
            return v.t()

    def session(compile):
        x = two(2, 3, grad=True)
        v = x[:]
        out = compile(f)(x, v)
        yield x, out, out._base is x, v.requires_grad

    check_session(session)


@every_class
@pytest.mark.parametrize("later", [lambda x, v: v.add_(1), lambda x, v: x.add_(1)], ids=["view", "base"])
def test_a_view_of_what_then_requires_grad_and_is_written_by_the_caller(later, make):
    """Autograd was told of the view, so that it looks for its history after the write."""

    def f(x):
        y = x.detach().clone()
        v = y.t()
        y.requires_grad_()
        return y, v

    def session(compile):
        y, v = compile(f)(make(2, 3))
        with torch.no_grad():
            later(y, v)
        yield v.requires_grad, v.is_leaf, v.grad_fn is not None
        v.backward(torch.ones_like(v).detach())
        yield y.grad

    check_session(session)


@pytest.mark.parametrize("k", [0, 1])
def test_a_gradient_arrives_at_a_view_of_which_a_foreach_op_keeps_nothing_that_says_so(k):
    """Whether such an op keeps the view is found out as if it was written, which is no reason for another history."""

    def f(x):
        with torch.no_grad():
            x.zero_()
        a, b = torch._foreach_mul([x, x], 2)
        return a.clone(), b

    def session(compile):
        base = leaf(4)
        x = base[1:]
        results = compile(f)(x)
        yield torch.autograd.grad(results[k], (x, base), plain(3), allow_unused=True)

    check_session(session)


_SPLITS = {
    "split": lambda x: torch.split(x, 1, 2),
    "chunk": lambda x: torch.chunk(x, 2, 2),
    "one of them": lambda x: torch.split(x, 1, 2)[1:],
    "of what is computed": lambda x: torch.split(x * 2, 1, 2),
}


@pytest.mark.parametrize("split", _SPLITS.values(), ids=_SPLITS)
@pytest.mark.parametrize("root", [False, True])
def test_parts_of_a_ragged_tensor_share_a_node(split, root):
    """Of what is split, ``split`` alone cannot say what a part without a gradient is like."""

    def session(compile):
        x = jagged(2, 3, grad=True)
        parts = compile(split)(x * 1 if root else x)
        g = attempt_later(lambda: torch.autograd.grad(parts, x, [torch.ones_like(p) for p in parts]))
        yield [p.detach() for p in parts], g

    check_session(session)


def _ragged_of_numbers():
    offsets = torch.tensor([0, 2, 4])
    return torch.nested.nested_tensor_from_jagged(torch.arange(8).reshape(4, 2), offsets)


_GIVES_IT_BACK = {
    "resolve_neg": torch.resolve_neg,
    "resolve_conj": torch.resolve_conj,
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(x.dtype),
}


@pytest.mark.parametrize("op", _GIVES_IT_BACK.values(), ids=_GIVES_IT_BACK)
@pytest.mark.parametrize("make", [_ragged_of_numbers, lambda: two(3, 2)], ids=["ragged", "two"])
def test_an_op_in_inference_mode_that_gives_a_wrapper_back_beside_a_view_of_it(make, op):
    def f(x):
        alias = x.detach()
        with torch.inference_mode():
            view = alias.unflatten(2, (-1, 1)) if x.is_nested else alias.unsqueeze(-1)
            back = op(x)
        return back, view

    check(f, lambda: given(make()))
