""".data = of views, of their bases, what becomes of views made before."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, attempt_later, check, check_session, one_of, refuses, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import KINDS_OF_VIEWS
from tests.behaviour.storage.common import ARGUMENTS, MOVES, NO_LEAVES, VIEW_PARAMS, other, session_of


def test_a_view_whose_base_got_more_elements_by_data_assignment_is_refused():
    base = leaf(1) * 1
    view = base.view(-1)
    base.data = plain(3)
    view.data = base
    with refuses("view of a base that has changed"):
        aotcheck.aot_function(lambda x, y: x.set_(x))(base, view)


@pytest.mark.parametrize("counted", [lambda x: x.squeeze_(0), lambda x: x.detach().mul_(2)], ids=["in vain", "written"])
@pytest.mark.parametrize("make", [leaf, plain, lambda *n: leaf(*n).clone()], ids=["leaf", "plain", "no leaf"])
@session
def test_data_assigned_to_a_view_after_a_hidden_write_to_its_base(compile, make, counted):
    def f(x, y):
        v = x[0:1]
        with torch.no_grad():
            counted(x)
        v.data = y
        return v

    x, y = make(2, 2), plain(2, 2, seed=3)
    v = compile(f)(x, y)
    yield v, x, y
    yield attempt_later(lambda: v.mul_(2)), v, x, y


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("turned", [False, True])
@session
def test_a_view_assigned_its_bases_data_keeps_that_memory_when_the_base_moves(compile, mode, turned):
    def f(x):
        base = x * 2
        with mode():
            v = base[..., 0]
        other = v * base
        v.data = base.t() if turned else base
        base.data = other.clone()
        return v

    x = plain(2, 2)
    yield compile(f)(x), x


@pytest.mark.parametrize("make", NO_LEAVES)
@pytest.mark.parametrize("view", VIEW_PARAMS)
@pytest.mark.parametrize("data", MOVES)
@pytest.mark.parametrize("written", ["before", "after", "before, and used", "not at all"])
@pytest.mark.parametrize("inside", [False, True], ids=["of the argument", "of what is made inside"])
def test_data_assigned_to_a_view_that_is_written_before_or_after(make, view, data, written, inside):
    def f(x):
        base = x.clone() if inside else x
        v = view(base)
        if written.startswith("before"):
            v.mul_(2)
        used = v * v if written == "before, and used" else None
        v.data = data(v, x)
        if written == "after":
            v.mul_(2)
        return [t for t in (v, used, base if inside else None) if t is not None]

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", ARGUMENTS[:4])
@pytest.mark.parametrize("second", [lambda x, v, w: v, lambda x, v, w: w, lambda x, v, w: x], ids=["v", "w", "base"])
@pytest.mark.parametrize("first", [lambda x, v, w: v, lambda x, v, w: w, lambda x, v, w: x], ids=["v", "w", "base"])
@pytest.mark.parametrize("written", [None, 0, 1, 2], ids=["not written", "v", "w", "base"])
def test_data_assigned_to_views_of_views_and_their_base(make, first, second, written):
    def f(x):
        base = x.clone()
        v = base.t()
        w = v[:1]
        first(base, v, w).data = other(2, 2)
        if written is not None:
            (v, w, base)[written].mul_(2)
        second(base, v, w).data = other(2, 1)
        return v, w, base

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", NO_LEAVES)
def test_data_assigned_to_a_view_and_then_to_a_written_view_of_it(make):
    def f(x):
        y = x.t()
        v = y.t()
        v.mul_(2)
        y.data = other(2, 2)
        used = v * v * y.sum()
        v.data = y
        return used, v, y

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", [ARGUMENTS[3], ARGUMENTS[4]])
def test_a_view_of_a_view_made_between_two_data_assignments(make):
    def f(x):
        y = x.view(2, 2)
        y.data = x
        v = y.t()
        y.data = other(2, 2)
        return v, y

    check_session(session_of(f, make))


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("recording", [True, False])
@session
def test_a_no_grad_view_made_a_leaf_stays_one_after_data_assignment(compile, writes, recording):
    def f(x):
        with torch.no_grad():
            view = x.t()
        if writes:
            x.zero_()
        other = x.clone()
        view.requires_grad_()
        view.data = other
        return view

    view = compile(f)(plain(2, 3))
    with torch.set_grad_enabled(recording):
        yield attempt_later(lambda: view.add_(1))
    yield attempt_later(lambda: view.is_leaf), view


@pytest.mark.parametrize("view", [lambda y: y.unsqueeze(0), lambda y: y.detach().unsqueeze(0)], ids=["view", "alias"])
@pytest.mark.parametrize("of_leaf", [True, False])
@pytest.mark.parametrize("calls", [1, 2, 3])
@session
def test_data_of_another_shape_assigned_to_a_no_grad_view_in_each_call(compile, calls, of_leaf, view):
    """No gradient ever arrives at it, of whatever shape."""

    def f(x):
        y = x * 2
        x.data = view(y)
        return y

    root = leaf(2)
    base = root if of_leaf else root * 1
    with torch.no_grad():
        x = base.view(2)
    g = compile(f)
    for _ in range(calls):
        y = g(x)
        yield y, x, attempt_later(lambda y=y: y.sum().backward()), root.grad


@pytest.mark.parametrize("after", [lambda x, y: None, lambda x, y: y.zero_(), lambda x, y: x.mul_(2)])
@session
def test_a_view_argument_is_written_after_its_data_was_assigned(compile, after):
    def f(x):
        y = x.clone()
        x.data = y
        x.zero_()
        with torch.no_grad():
            v = x.t()
        after(x, y)
        return v

    root = leaf(2, 3)
    base = root * 1
    x = base.t()
    v = compile(f)(x)
    yield v, attempt_later(lambda: v.is_leaf), x, base


@session
def test_an_alias_made_before_a_view_argument_is_assigned_a_clone(compile):
    def f(x):
        y = x.detach()
        x.data = x.clone()
        x.zero_()
        return y

    compiled = compile(f)
    root = leaf(2)
    base = root * 1
    x = base.view(2)
    for _ in range(3):
        y = compiled(x)
        with torch.no_grad():
            y.add_(1)
        yield y, x, base


def _beside_another_view(x, y):
    base = x + 1
    v, w = base.t(), base[:]
    v.data = y.clone()
    return v, w


def _where_another_result_is(x, y):
    base = x + 1
    v, w, z = base.t(), base[:], y.clone()
    v.data = z
    return v, w, z


def _its_base_goes(x, y):
    base, z = x + 1, y.clone()
    (v,) = torch.unsafe_chunk(base, 1)
    base.data = z
    return v, z


@pytest.mark.parametrize("f", [_beside_another_view, _where_another_result_is, _its_base_goes])
@pytest.mark.parametrize("kind", [plain, leaf])
def test_a_returned_view_moves_apart_from_a_base_that_is_not_returned(f, kind):
    check(f, lambda: given(kind(2), plain(2, seed=3)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("f", [lambda x, v: None, lambda x, v: x * 2, lambda x, v: v * 2])
@session
def test_data_of_another_dtype_assigned_to_a_no_grad_view_of_a_leaf(compile, dtype, f):
    def moved(x, y, v):
        v.data = y
        return f(x, v)

    x = leaf(3)
    with torch.no_grad():
        v = x.t()
    z = compile(moved)(x, plain(3, seed=2, dtype=dtype), v)
    yield z, x, v.dtype, v.data
    if z is not None:
        yield attempt_later(lambda: z.sum().backward()), x.grad


@session
def test_a_write_to_a_moved_view_of_a_leaf_is_eagers_error(compile):
    def f(y, view):
        view.data = y
        view.zero_()

    compiled = compile(f)
    root, y = leaf(2), plain(2, seed=1)
    view = root.view(2)
    for _ in range(2):
        yield attempt(lambda: compiled(y, view))
        yield y, view, root


@session
def test_data_assigned_to_a_view_and_to_its_base(compile):
    def f(x, y):
        view = y.t()
        y.data = x
        view.data = x
        return view, y

    whole = plain(2, 3, seed=1)
    x, y = whole[0], whole[1]
    compiled = compile(f)
    for _ in range(2):
        view, _ = compiled(x, y)
        yield view, x, y, whole
        view.add_(1)
        yield view, x, y, whole


@session
def test_a_no_grad_view_assigned_data_by_an_earlier_call_has_eagers_error(compile):
    def f(x, y):
        x.data = y
        x.clone()  # refused, also where nobody needs it
        return y * 2

    base, y = leaf(3), plain(3, seed=1)
    with torch.no_grad():
        x = base.view(3)
    compiled = compile(f)
    yield attempt(lambda: compiled(x, y)), x
    with torch.no_grad():
        x.add_(1)
    yield attempt(lambda: compiled(x, y)), x, y, base


@session
def test_data_of_another_dtype_assigned_to_a_no_grad_view_is_used(compile):
    def f(x, y):
        x.data = y
        return x * 2

    root = leaf(2).double().detach().requires_grad_()
    with torch.no_grad():
        view = root.view(2)
    yield compile(f)(view, plain(2)).requires_grad, view


view = one_of(KINDS_OF_VIEWS)


@pytest.mark.parametrize("view", [lambda v: v, lambda v: v.t(), lambda v: v[0]])
@agrees(lambda: given(leaf(2, 1, 2)))
def test_an_intermediate_gets_its_own_view_as_data(x, *, view):
    """The base is made as it lies in the end; what gradients of the first view are transposed by is the history."""
    y = x.sum(1)
    v = y.t()
    y.data = v
    return view(v)


class Triple(torch.autograd.Function):
    """Gives its argument back."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


@agrees(lambda: given(leaf(1, 2)), probe=False)
def test_a_result_of_a_custom_function_gets_its_own_view_as_data(x):
    y = Triple.apply(x)
    v = y.t()
    y.data = v
    return x, v


@pytest.mark.parametrize("view", [lambda x: x.real, lambda x: x.imag, torch.view_as_real])
@agrees(lambda: given(plain(3, dtype=torch.complex64)))
def test_a_real_view_of_an_argument_that_is_written_and_gets_its_conjugate_as_data(x, *, view):
    """Of which there is no such view: it is made before."""
    v, conjugate = view(x), x.conj()
    x.zero_()
    x.data = conjugate
    return v


def _to_a_part(x):
    v = x[1:]
    x.data = v
    return v * 1, v


def _to_its_transpose(x):
    v = x[1:]
    x.data = x.data.t()
    return v * 1, v


def _a_view_of_a_view(x):
    v = x[1:].t()
    x.data = x[:2]
    return v


@pytest.mark.parametrize("function", [_to_a_part, _to_its_transpose, _a_view_of_a_view])
@pytest.mark.parametrize("through_a_non_leaf", [False, True], ids=["leaf", "non-leaf"])
@session
def test_a_view_made_before_data_assignment_of_its_base_leads_to_the_old_data(compile, function, through_a_non_leaf):
    x = leaf(4, 2)
    argument = x * 1 if through_a_non_leaf else x
    results = compile(function)(argument)
    results = results if isinstance(results, tuple) else (results,)
    yield argument, results
    yield torch.autograd.grad(results, x, [torch.ones_like(r) for r in results])
