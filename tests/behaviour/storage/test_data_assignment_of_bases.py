""".data = of a tensor that has views, argument or intermediate: what becomes of the views."""

import pytest
import torch

from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, check, check_session, session
from tests.behaviour.inputs import given, leaf, non_leaf, plain, to_device
from tests.behaviour.storage.common import ARGUMENTS, MOVES, VIEW_PARAMS, other, session_of


@pytest.mark.parametrize("result", [False, True])
@pytest.mark.parametrize("view", [lambda z: z.imag, lambda z: z.imag[0], torch.view_as_real])
def test_a_real_view_of_a_tensor_that_is_assigned_its_own_conjugate(view, result):
    def function(z):
        z = z * 1 if result else z
        seen = view(z)
        z.data = z.conj()
        return seen * 2, seen, z

    for make in (leaf, plain):
        check(function, *[lambda make=make: (make(2, 3, dtype=torch.complex64),)] * 2)


def writes_the_view(base, view):
    view.mul_(2)
    return view


def writes_what_was_used(base, view):
    before = view * view
    view.add_(1)
    return before, view


def writes_by_the_base(base, view):
    view.copy_(view * 2)
    return view * 1, base * 1


@pytest.mark.parametrize("function", [writes_the_view, writes_what_was_used, writes_by_the_base])
@pytest.mark.parametrize(
    "data",
    [lambda: to_device(torch.empty(0)), lambda: to_device(torch.empty(0, 3)), lambda: to_device(torch.empty(2, 0))],
)
@pytest.mark.parametrize("view", [lambda b: b[:1], lambda b: b.view(-1), lambda b: b.t()])
@agrees(lambda: (leaf(2, 3),), lambda: (leaf(2, 3),))
def test_a_view_whose_base_is_assigned_data_without_elements(x, *, function, data, view):
    base = x * 1
    seen = view(base)
    base.data = data()
    return function(base, seen)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("data", [lambda y: y, lambda y: y[0], lambda y: y.unsqueeze(0), lambda y: y.double()])
@pytest.mark.parametrize("make", [non_leaf, lambda *shape: given(plain(*shape))])
def test_a_view_is_written_after_data_assignment_to_the_argument(make, data, used):
    def function(x, y):
        view = x[1:]
        before = view * view if used else None
        x.data = data(y)
        view.mul_(2)
        return view, before

    def arguments():
        made = make(2, 3)
        return given(*made.args, leaf(2, 3), also=made.also)

    check(function, arguments, arguments)


@pytest.mark.parametrize("make", ARGUMENTS)
@pytest.mark.parametrize("view", VIEW_PARAMS)
@pytest.mark.parametrize("data", MOVES)
def test_data_assigned_to_an_intermediate_that_has_a_view(make, view, data):
    def f(x):
        base = x.clone()
        v = view(base)
        base.data = data(base, x)
        return v, base

    check_session(session_of(f, make))


@pytest.mark.parametrize("make", ARGUMENTS)
@pytest.mark.parametrize("view", VIEW_PARAMS)
@pytest.mark.parametrize("data", MOVES)
def test_data_assigned_twice_to_an_intermediate_that_has_a_view(make, view, data):
    def f(x):
        base = x.clone()
        base.data = other(2, 3)
        v = view(base)
        base.data = data(base, x)
        base.mul_(2)
        return v, base

    check_session(session_of(f, make))


_VIEWS_THAT_WANDER = {
    "a transpose": lambda x: x.t(),
    "a part": lambda x: x.split([1, 2])[1],
    "no view": lambda x: x,
    "made inside": lambda x: x.clone().t(),
}

_BACK = {
    "its own": lambda v, x: v,
    "an alias of its own": lambda v, x: v.detach().t().t(),
    "its transpose's transpose": lambda v, x: v.t().data.t(),
    "where it came from": lambda v, x: x.view(3, 2)[:2] if v.shape == (2, 2) else x,
}


@pytest.mark.parametrize("again", _BACK.values(), ids=_BACK)
@pytest.mark.parametrize("view", _VIEWS_THAT_WANDER.values(), ids=_VIEWS_THAT_WANDER)
@pytest.mark.parametrize("make", [lambda r: r * 2, lambda r: r.detach()], ids=["with a history", "without"])
@pytest.mark.parametrize("both", [False, True])
def test_a_view_made_between_two_data_assignments_to_its_base(both, make, view, again):
    """What it is given may be what it has: then it stays, and so do views of it."""

    def function(x):
        v = view(x)
        v.data = v.detach().clone()
        made = v.t()
        v.data = again(v, x)
        return [v, made] if both else [made]

    check_session(session_of(function, make))


@pytest.mark.parametrize("returned", ["later", "both"])
@pytest.mark.parametrize("change", ["nothing", "reshaped", "written"])
@pytest.mark.parametrize("size", [2, 3])
@agrees(lambda size: given(plain(size)[:2]))
def test_a_complex_view_whose_base_moved_to_memory_that_holds_no_complex_number(x, *, change: str, returned: str):
    """On half of a complex number there is no complex tensor."""
    elsewhere = x.as_strided((0,), (0,), 1)
    torch.sum(torch.ones((0, 2), device=x.device), 0, out=elsewhere)
    view = torch.view_as_complex(x)
    x.data = elsewhere
    later = view.t()
    if change == "reshaped":
        view.t_()
    elif change == "written":
        view.add_(1)
    return later if returned == "later" else (view, later)


SMALLER = {
    "a number": lambda: to_device(torch.ones(())),
    "one element": lambda: to_device(torch.ones(1)),
    "nothing": lambda: to_device(torch.ones(0)),
    "another shape": lambda: to_device(torch.ones(3, 2)),
}

VIEWS_OF_IT = {
    "transposed": lambda x: x.t(),
    "part": lambda x: x[1:],
    "flat": lambda x: x.view(-1),
    "detached": lambda x: x.detach(),
}


@pytest.mark.parametrize("view", VIEWS_OF_IT.values(), ids=VIEWS_OF_IT)
@pytest.mark.parametrize("data", SMALLER.values(), ids=SMALLER)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
@pytest.mark.parametrize("then", ["nothing", "used", "base written", "view written", "viewed"])
@session
def test_a_no_grad_view_whose_base_moves_to_a_smaller_storage(compile, view, data, mode, then):
    def function(x, y):
        match then:
            case "used":
                result = y * 2, x * 2
            case "base written":
                result = x.mul_(2), y * 3
            case "view written":
                result = (y.mul_(2),)
            case "viewed":
                result = (y.unsqueeze(0),)
            case _:
                result = ()
        x.data = data().to(x.device)
        return result

    compiled = compile(function)
    root = leaf(2, 2)
    x = root.clone()
    with mode():
        y = view(x)
    for _ in range(2):
        results = attempt(lambda: compiled(x, y))
        yield results if isinstance(results, Raised) else len(results)
        for t in (*(() if isinstance(results, Raised) else results), x, y):
            yield attempt_later(lambda t=t: (t.shape, t.requires_grad, t.is_leaf, t.grad_fn is None, t.detach()))
            if t.requires_grad:
                ones = torch.ones_like(t)
                yield attempt_later(
                    lambda t=t, ones=ones: torch.autograd.grad(t, [root], ones, retain_graph=True, allow_unused=True)
                )


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@agrees(lambda shape: given(*non_leaf(2, 3).args, plain(*shape)))
def test_a_written_view_whose_base_is_assigned_data_of_another_shape(x, w):
    view = x.t()
    view.zero_()
    x.data = w
    return view


def test_a_view_keeps_its_history_when_its_base_moves():
    def fresh(x):
        v = x * 2
        w = v.t()
        v.data = w
        return w, v

    def inference(x):
        with torch.inference_mode():
            v = x.t()
        w = v.t()
        v.data = x
        return w

    for body in (fresh, inference):
        check(body, lambda: given(leaf(1, 2)))
        check(body, lambda: given(leaf(2, 2)))


@pytest.mark.parametrize(
    "view",
    [lambda x, y: x.conj(), lambda x, y: y.t(), lambda x, y: y.conj(), lambda x, y: x.t()],
    ids=["conj", "conj.t", "conj.conj", "t"],
)
@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: None], ids=["written", "not written"])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_view_keeps_its_conjugate_bit_when_its_base_is_assigned_a_conjugate(compile, view, write, grad):
    def f(x, y):
        v = view(x, y)
        with torch.no_grad():
            write(x)
        x.data = y
        return v

    root = leaf(2, 2, dtype=torch.complex64)
    x = root * 1 if grad else root
    out = compile(f)(x, x.conj())
    yield out, x, out.is_conj(), x.is_conj(), out.is_neg()
    yield attempt_later(lambda: torch.autograd.grad(out.real.sum(), root))


def test_a_view_of_a_no_grad_view_that_moves_and_is_written_by_an_alias():
    def f(x, y):
        v, d = y.t(), y.detach()
        y.data = x
        d.zero_()
        return v

    def make():
        root = leaf(3)
        with torch.no_grad():
            view = root.t()
        return given(plain(3), view, also=[root])

    check(f, make)


@pytest.mark.parametrize("leave", [lambda x, y: x.set_(y), lambda x, y: setattr(x, "data", y)], ids=["set_", "data"])
@pytest.mark.parametrize("grad", [False, True])
@agrees(lambda grad: given(leaf(3) * 2 if grad else plain(3), plain(4)))
def test_views_made_before_and_after_set_or_data_assignment(x, y, *, leave):
    before = x.view(-1)
    leave(x, y)
    after = before[1:]
    x.mul_(2)
    return before, after, x * 3


@agrees(lambda: given(leaf(2, 2, dtype=torch.complex64)), backward=None, probe=False)
def test_a_no_grad_conjugate_of_an_intermediate_that_is_assigned_data(x):
    y = x.clone()
    with torch.no_grad():
        view = y.conj()
    y.data = x
    return view


@pytest.mark.parametrize("grad", [False, True])
@agrees(lambda grad: given(plain(2).requires_grad_(grad)))
def test_a_view_whose_base_is_assigned_a_part_of_its_own_data(x):
    y = x.clone()
    view = y.t()
    y.data = y.detach()[0]
    y.zero_()
    return view.as_strided((2,), (0,))


@pytest.mark.parametrize("place", [0, 1])
@agrees(lambda: given(plain(1, dtype=torch.complex64)))
def test_a_real_view_whose_base_is_assigned_an_empty_part_of_itself(x, *, place):
    y = x.clone()
    part = torch.view_as_real(y)[..., place]
    y.data = y[1:]
    return y.zero_(), part


@pytest.mark.parametrize("view", [torch.conj, lambda x: x.conj()[1:]], ids=["conj", "part"])
@pytest.mark.parametrize("make", [plain, leaf, lambda *args, **kwargs: leaf(*args, **kwargs) * 1])
@agrees(lambda make: given(make(2, dtype=torch.complex64)))
def test_a_conjugate_of_an_argument_that_is_assigned_its_conjugate_and_written(x, *, view):
    v = view(x)
    with torch.no_grad():
        x.data = x.conj()
        x.mul_(2)
    return v


@pytest.mark.parametrize("elsewhere", [lambda x, y: setattr(y, "data", y.clone()), lambda x, y: setattr(y, "data", x)])
@pytest.mark.parametrize("first", [lambda y: y.t_(), lambda y: y.squeeze_(0), lambda y: y.mul_(2)], ids=range(3))
@pytest.mark.parametrize("view", [lambda y: y.mT, lambda y: y[..., 0]], ids=["turned", "part"])
@pytest.mark.parametrize("told", ["before", "after"])
@pytest.mark.parametrize("shares", [False, True])
@session
def test_a_view_of_an_argument_that_requires_grad_inside_and_then_moves(compile, shares, told, view, first, elsewhere):
    def f(x, y):
        first(y)
        if told == "before":
            y.requires_grad_()
        v = view(y)
        if told == "after":
            y.requires_grad_()
        elsewhere(x, y)
        return v

    x = plain(2, 2)
    y = x.view(2, 2) if shares else plain(2, 2, seed=3)
    v = compile(f)(x, y)
    yield v.detach(), x, y
