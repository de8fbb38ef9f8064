"""BEHAVIOUR 3: inputs and views whose place in the graph changes: requires_grad_, detach_, leaves made inside."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Same
from tests.behaviour.harness import Given, attempt_later, backward, check, check_session, given, leaf, non_leaf, plain

# -- requires_grad_ and leaves made inside ---------------------------------------------------------


def test_requires_grad_of_an_input_without_a_use():
    check(lambda x: x.requires_grad_() is x, lambda: given(plain(3)))


def test_requires_grad_of_an_input_that_was_used_before():
    def f(x, w):
        y = x * w
        x.requires_grad_()
        return y, x * w

    check(f, lambda: given(plain(3), leaf(3, seed=1)))
    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_requires_grad_of_a_mutated_input():
    def f(x):
        x.add_(1)
        x.requires_grad_()
        return x * x

    check(f, lambda: given(plain(3)))


def test_requires_grad_taken_back():
    def f(x):
        y = x * 2
        x.requires_grad_(False)
        return y, x * 3

    check(f, lambda: given(leaf(3)))
    check(f, lambda: non_leaf(3))


def test_requires_grad_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.requires_grad_()
            y = x * 2
        return y, x * 3

    check(f, lambda: given(plain(3)))


def test_requires_grad_of_a_view_of_an_input():
    def f(x):
        y = x[1:].requires_grad_()
        return y * y, y

    check(f, lambda: given(plain(4)))


def test_requires_grad_of_a_view_of_an_input_that_is_written_beside_it():
    def f(x):
        y = x[1:].requires_grad_()
        z = y * 2
        x[0] = 9
        return z, x * 2

    check(f, lambda: given(plain(4)))


def test_requires_grad_of_a_detached_alias_of_an_input():
    def f(x):
        y = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((y * y).sum(), y)
        return g * x, y

    check(f, lambda: given(leaf(4)))


def test_requires_grad_of_one_of_two_aliases():
    def f(x, y):
        x.requires_grad_()
        return x * 2, y * 3

    def make() -> Given:
        base = plain(6)
        return given(base[:4], base[2:], also=[base])

    check(f, make)


def test_a_leaf_made_inside_gets_its_grad():
    def f(x):
        y = (x * 2).detach().requires_grad_()
        return y, y * y

    def session(compile):
        x = leaf(3)
        y, z = compile(f)(x)
        backward([z])
        yield x, y, z, y.grad

    check_session(session)


def test_a_leaf_made_inside_of_which_an_alias_is_returned():
    def f(x):
        y = (x * 2).detach().requires_grad_()
        return y, y.view(-1), y * 3

    check(f, lambda: given(leaf(2, 3)))


def test_a_leaf_made_inside_is_not_returned_but_used():
    def f(x):
        y = (x * 2).detach().requires_grad_()
        return y * y

    check(f, lambda: given(leaf(3)))


def test_backward_inside_into_a_leaf_made_inside():
    def f(x):
        y = (x * 2).detach().requires_grad_()
        (y * y).sum().backward()
        return y.grad * x

    check(f, lambda: given(leaf(3)))


def test_a_factory_that_requires_grad():
    def f(x):
        y = torch.ones(3, device=x.device, requires_grad=True)
        return y, x * y

    check(f, lambda: given(leaf(3)))
    check(f, lambda: given(plain(3)))


# -- detach_ -----------------------------------------------------------------------------------------


def test_detach_in_place_of_a_leaf():
    def f(x, y):
        x.detach_()
        return x * y

    check(f, lambda: given(leaf(3), leaf(3, seed=1)))
    check(f, lambda: given(plain(3), leaf(3, seed=1)))


def test_detach_in_place_of_a_tensor_used_before():
    def f(x, y):
        z = x * y
        x.detach_()
        return z, x * y

    def make() -> Given:
        root = leaf(3)
        return given(root * 2, leaf(3, seed=1), also=[root])

    check(f, make)
    check(f, make, backward=[0])
    check(f, make, backward=[1])


def test_detach_in_place_with_a_view_made_before():
    def f(x):
        view = x[1:]
        x.detach_()
        return view, x * 2

    check(f, lambda: non_leaf(4))


def test_detach_in_place_with_a_view_made_after():
    def f(x):
        x.detach_()
        return x[1:], x * 2

    check(f, lambda: non_leaf(4))


def test_detach_in_place_and_a_write_after_it():
    def f(x, w):
        x.detach_()
        x.mul_(w)
        return x * 2

    def make() -> Given:
        root = leaf(4)
        return given(root * 1, plain(4, seed=1), also=[root])

    check(f, make)

    def with_grad() -> Given:
        root = leaf(4)
        return given(root * 1, leaf(4, seed=1), also=[root])

    check(f, with_grad)


def test_detach_in_place_and_a_write_through_a_view_made_before():
    def f(x):
        view = x[1:]
        x.detach_()
        view.mul_(2)
        return view * 3, x * 2

    check(f, lambda: non_leaf(4))


def test_detach_in_place_and_a_write_through_a_view_made_after():
    def f(x, w):
        x.detach_()
        x[1:].mul_(w)
        return x * 2

    def make() -> Given:
        root = leaf(4)
        return given(root * 1, leaf(3, seed=1), also=[root])

    check(f, make)


def test_detach_in_place_after_a_write():
    def f(x):
        x.mul_(2)
        x.detach_()
        return x * 3

    check(f, lambda: non_leaf(4))


def test_detach_in_place_of_an_input_that_is_a_view():
    def make() -> Given:
        root = leaf(4)
        base = root * 1
        return given(base[1:], also=[root, base])

    check(lambda x: (x.detach_(), x * 2)[1], make)


def test_detach_in_place_of_a_view_made_inside():
    check(lambda x: (x.view(-1).detach_(), x * 2)[1], lambda: given(leaf(2, 3)))


def test_detach_in_place_of_an_intermediate():
    def f(x):
        y = x * 2
        z = y * y
        y.detach_()
        return y, z, y * x

    check(f, lambda: given(leaf(3)))
    check(f, lambda: given(leaf(3)), backward=[0])
    check(f, lambda: given(leaf(3)), backward=[1])


def test_a_view_used_after_a_write_before_its_leaf_stops_requiring_grad():
    def f(x, y):
        with torch.no_grad():
            x.zero_()
        y.clone()
        x.requires_grad = False

    def make():
        x = leaf(3)
        return given(x, x.t())

    check(f, make)


def test_a_view_made_before_its_fresh_base_requires_grad():
    def f(x):
        v = x.clone()
        before = v.t()
        v.requires_grad_()
        return v, before, v.t()

    check(f, lambda: given(plain(3)))


def test_a_view_of_a_view_made_before_the_argument_requires_grad():
    def f(x):
        v = x[0].t()
        x.requires_grad_()
        return v, x[0].t()

    check(f, lambda: given(plain(3, 2)))


def test_a_used_leaf_that_stops_requiring_grad_and_is_then_written():
    def f(x):
        largest, _ = torch.max(x, -1)
        x.requires_grad = False
        x[[0]] = largest  # gradients that come to the leaf that it was must not end the process
        return largest, x

    def session(compile):
        for order in ((0,), (1,), (0, 1), (1, 0)):
            x = leaf(3)
            outputs = compile(f)(x)
            yield outputs
            for k in order:
                o = outputs[k]
                yield attempt_later(lambda o=o: o.sum().backward(retain_graph=True)), x.grad

    check_session(session)


def test_a_leaf_that_is_told_once_more_to_require_grad():
    def f(x):
        same, view = Same.apply(x), x[1:]
        x.requires_grad_()
        return same, view

    check(f, lambda: given(leaf(3)), probe=False)


def test_a_view_that_changed_its_geometry_before_its_base_required_grad():
    def f(x, view):
        view.set_(view.untyped_storage(), 0, (2,), (1,))
        view.as_strided_((1,), (1,), 1)
        x.requires_grad_()
        return view.repeat(2), x

    def make():
        x = plain(3)
        return given(x, x.view(3))

    check(f, make)


# -- for a while -----------------------------------------------------------------------------------------


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
def test_what_requires_grad_until_it_is_written(f):
    check(f, lambda: given(plain(3), leaf(3, seed=1)))


@pytest.mark.parametrize("stops", [True, False])
def test_a_view_that_requires_grad_until_its_base_is_written(stops):
    def f(x, view, y):
        view.requires_grad_()
        w = view * 2
        if stops:
            view.requires_grad_(False)
        x.copy_(y)
        return w, view * 3

    def alone(x, view, y):
        return f(x, view, y)[0]

    def make():
        x = plain(3)
        return given(x, x.view(3), leaf(3, seed=1))

    for body in (f, alone):
        check(body, make)


# -- leaves that are views ---------------------------------------------------------------------------


def _written_quietly(view, base=None):
    with torch.no_grad():
        view.mul_(2)
    return view * 3


def _base_written(view, base):
    with torch.no_grad():
        base.mul_(2)
    return view * 3


def _written_detached(view, base=None):
    view.detach().mul_(2)
    return view * view


def _transposed_quietly(view, base=None):
    with torch.no_grad():
        view.t_()
    return view * 3


def _refused(view, base=None):
    return view.mul_(2)


@pytest.mark.parametrize("f", [_written_quietly, _written_detached, _transposed_quietly, _refused])
def test_a_view_that_requires_grad_by_itself(f):
    """As what is made by reshaping does."""
    check(f, lambda: given(plain(12).view(4, 3).requires_grad_()))


@pytest.mark.parametrize("f", [_written_quietly, _base_written, _written_detached])
@pytest.mark.parametrize("first", ["view", "base"])
def test_a_view_that_requires_grad_by_itself_and_its_base(f, first):
    def make():
        base = plain(12)
        view = base.view(4, 3).requires_grad_()
        return given(view, base) if first == "view" else given(base, view)

    check(f if first == "view" else lambda base, view: f(view, base), make)
    if first == "view":

        def session(compile):
            view, base = make().args
            compile(f)(view, base)
            yield view._version, base._version

        check_session(session)


def test_a_view_made_inside_that_requires_grad_after_its_base_was_written():
    def f(x):
        view = x.t()
        x.zero_()
        view.requires_grad_()
        return view

    check(f, lambda: given(plain(2, 3)))


# -- views that autograd was not told of, which require grad as their bases do until they are told themselves


def _quiet_view(grad, told, of=lambda base: base.t(), base=lambda: leaf(2, 3)):
    made_of = base()
    with grad():
        view = of(made_of)
    if told:
        view.requires_grad_()
    return given(view, also=[made_of])


def _told(x):
    x.requires_grad_()
    return x, x * 2


def _told_by_assignment(x):
    y = x * 2
    x.requires_grad = True
    return x, y, x * 3


def _no_longer_told(x):
    y = x * 2
    x.requires_grad_(False)
    return x, y, x * 3


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("f", [torch.clone, lambda x: (x, x.clone()), _told, _told_by_assignment, _no_longer_told])
def test_a_quiet_view_of_a_leaf_is_told_to_require_grad(grad, told, f):
    check(f, lambda: _quiet_view(grad, told))


def test_quiet_views_that_require_grad_by_themselves_are_told_from_those_that_do_not():
    def session(compile):
        f = compile(lambda x: x * 2)
        for told in (False, True, None, False, True):
            view = leaf(3, 2) if told is None else _quiet_view(torch.no_grad, told).args[0]
            f(view).sum().backward()
            yield view.grad

    check_session(session)


def test_a_view_made_inside_is_told_to_require_grad_where_a_later_call_makes_it_quietly():
    def session(compile):
        f = compile(lambda x: x.t().requires_grad_())
        x = leaf(2, 3)
        for grad in (torch.enable_grad, torch.no_grad):
            with grad():
                view = f(x)
            (g,) = torch.autograd.grad(view, [view], [torch.ones_like(view)])
            yield view.is_leaf, g

    check_session(session)


@pytest.mark.parametrize("grad", [torch.no_grad, torch.enable_grad])
def test_a_view_of_a_view_that_requires_grad_by_itself_whose_base_is_written(grad):
    def f(base, view):
        inner = view.t()
        with grad():
            base.zero_()
        return inner

    def make():
        base = plain(2, 3)
        with torch.no_grad():
            view = base.t()
        return given(base, view.requires_grad_())

    check(f, make)


def test_a_leaf_made_inside_that_an_out_argument_reshapes_quietly():
    def f(x, y):
        y.requires_grad_()
        z = y.clone()
        with torch.no_grad():
            torch.cumsum(x, 0, out=y)
        return z

    check(f, lambda: given(plain(1), plain()))


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("grad", [torch.enable_grad, torch.no_grad])
def test_a_view_is_not_detached_in_place(told, grad):
    def make():
        with grad():
            view = plain(2, 3).t()
        return given(view.requires_grad_(told))

    check(lambda x: x.detach_(), make)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made_of", [lambda x: x, lambda x: x.view(6)])
def test_a_view_made_quietly_of_one_that_requires_grad_by_itself(context, made_of):
    """It requires grad as their base does, which does not."""

    def f(x):
        inner = made_of(x)
        with context():
            view = inner[1:]
        return view.clone(), inner * 2

    check(f, lambda: given(plain(2, 3).view(3, 2).requires_grad_()))


def test_an_inference_mode_write_to_a_lazy_conjugate_that_then_shall_require_no_grad():
    def session(compile):
        base = leaf(3, dtype=torch.complex64)
        view = base.conj()

        def f(x):
            x.zero_()
            x.requires_grad_(False)

        with torch.inference_mode():
            yield attempt_later(lambda: compile(f)(view))

    check_session(session)


def test_a_leaf_used_while_it_had_other_data_of_another_shape():
    def f(x, w):
        before = x.detach()
        x.data = w
        y = x.clone()
        x.data = before
        return y

    def session(compile):
        w, x = plain(2), leaf(3, 4)
        y = compile(f)(x, w)
        yield y, x.detach(), attempt_later(lambda: torch.autograd.grad(y, [x], [torch.ones_like(y)]))

    check_session(session)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_a_written_view_of_what_then_gets_other_data_of_another_shape(shape):
    def f(x, w):
        view = x.t()
        view.zero_()
        x.data = w
        return view

    check(f, lambda: given(*non_leaf(2, 3).args, plain(*shape)))


def test_a_base_is_written_from_its_view_that_requires_grad_by_itself():
    """Then the leaf is in the graph's interior, and no gradient may arrive at it."""

    def session(compile):
        base = plain(2, 3)
        view = base.t().requires_grad_()
        result = compile(lambda base, view: base.copy_(view.t()))(base, view)
        yield attempt_later(lambda: result.backward(torch.ones_like(result))), view.grad, view.is_leaf

    check_session(session)


def test_data_that_is_one_of_several_parts_of_what_it_replaces():
    def f(x):
        first, second = torch.unsafe_chunk(x, 2)
        x.data = first
        return second

    check(f, lambda: given(plain(4)))
    check(f, lambda: given(leaf(4)))


@pytest.mark.parametrize("write", [torch.Tensor.zero_, torch.Tensor.exp_, lambda v: v.t().mul_(2)])
@pytest.mark.parametrize("away", [True, False])
def test_a_view_written_before_its_base_requires_grad(write, away):
    def f(x, y):
        v = x.t()
        if away:
            x.data = y
        write(v)
        x.requires_grad = True
        return v

    check(f, lambda: given(plain(2, 2), plain(2, 2, seed=1)))


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[0], lambda x: x.view(torch.float64)])
def test_a_quiet_view_of_integers_that_require_grad(view, quiet):
    """As those do that were written by comparing with what requires grad."""

    def f(x, y):
        x.gt_(y)
        with quiet():
            return view(x)

    check(f, lambda: given(torch.arange(4).view(2, 2), leaf(2, 2)), backward=None)


@pytest.mark.parametrize("make", [lambda x: x.detach(), lambda x: x * 2, lambda x: x[1:]], ids=["alias", "new", "part"])
@pytest.mark.parametrize("again", [True, False])
def test_what_was_made_inside_requires_grad_for_a_while(make, again):
    def f(x):
        with torch.no_grad():
            v = make(x)
        before = v[:1]
        v.requires_grad_()
        y = v * 3
        v.requires_grad_(False)
        return v, y, before, v * 2

    def session(compile):
        v, y, before, after = compile(f)(plain(3))
        yield v, y, before, after
        v.requires_grad_(again)
        backward([y])
        yield v, v.grad

    check_session(session)


def test_what_was_a_leaf_inside_and_is_then_written_from_what_leads_to_it_is_refused():
    def f(x):
        v = x.detach().requires_grad_()
        y = v * 1
        v.requires_grad_(False)
        return v.mul_(y), y

    with pytest.raises(aotcheck.UnsupportedError, match="leaf made inside"):
        aotcheck.aot_function(f)(plain(3))


_SINCE = {
    "nothing": lambda x, y, view: None,
    "written": lambda x, y, view: x.mul_(2),
    "written and cut again": lambda x, y, view: x.mul_(y).detach_(),
    "told to require grad": lambda x, y, view: x.requires_grad_(),
    "told so and used": lambda x, y, view: x.requires_grad_() * 2,
    "reshaped": lambda x, y, view: x.t_(),
}
_WRITES_TO_BASE = {
    "by the view": lambda x, y, view: view.copy_(y),
    "itself": lambda x, y, view: x.copy_(y),
    "twice": lambda x, y, view: (view.copy_(y), x.mul_(2)),
    "and the view is reshaped": lambda x, y, view: (view.copy_(y), view.t_()),
}


@pytest.mark.parametrize("write", _WRITES_TO_BASE.values(), ids=_WRITES_TO_BASE)
@pytest.mark.parametrize("since", _SINCE.values(), ids=_SINCE)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("seen", [0, 1, 2])
def test_an_argument_is_cut_from_the_history_that_a_write_gave_it_beside_a_view_of_it(seen, trained, since, write):
    """The view, an argument too, keeps its history; where the base was written since, that leads nowhere."""

    def function(x, y, view):
        made = x[0] if seen == 0 else None
        write(x, y, view)
        made = x[0] if seen == 1 else made
        x.detach_()
        since(x, y, view)
        return x[0] if seen == 2 else made

    def session(compile):
        root, y = leaf(2, 2), leaf(2, 2, seed=1)
        x = root * 2 if trained else plain(2, 2, seed=2)
        view = x.t()
        made = compile(function)(x, y, view)
        yield x, view, made
        for t in (view, made):
            wanted = [y, root]
            yield attempt_later(lambda t=t, wanted=wanted: torch.autograd.grad(t.sum(), wanted, allow_unused=True))

    check_session(session)
