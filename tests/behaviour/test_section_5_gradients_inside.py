"""BEHAVIOUR 5: `.backward()` inside the function, and `.grad` of its arguments read and written there."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Doubled, Same, View
from tests.behaviour.harness import Raised, attempt, attempt_later, backward, check, check_session, given, leaf, plain


def calls(function, *make, times: int = 3):
    """A session that calls one compiled function several times on the same tensors."""

    def session(compile):
        args = [m() for m in make]
        compiled = compile(function)
        for _ in range(times):
            yield attempt(lambda: compiled(*args)), args, [a.grad for a in args]

    check_session(session)


# -- backward inside ---------------------------------------------------------------------------------


def test_gradients_accumulate_over_calls():
    def f(x, w):
        loss = (x * w).sum()
        loss.backward()
        return loss.detach()

    calls(f, lambda: leaf(3), lambda: leaf(3, seed=1))


def test_gradients_that_are_there_and_that_are_not():
    def session(compile):
        def f(x):
            (x * x).sum().backward()

        compiled = compile(f)
        x = leaf(3)
        for gradient in (None, plain(3, seed=2), None, plain(3, seed=4)):
            x.grad = gradient
            compiled(x)
            yield x, gradient  # accumulated in place where there was one

    check_session(session)


def _through_a_view(x, g, kept):
    x.view(4).backward(g)


def _through_two_views(x, g, kept):
    (x.view(4) + x.view(4)).backward(g)


def _itself(x, g, kept):
    x.clone().view(4).backward(g)


def _as_it_is(x, g, kept):
    x.backward(g.view(2, 2))


def _of_other_strides(x, g, kept):
    x.t().reshape(4).backward(g)


def _kept_by_a_hook(x, g, kept):
    y = x.clone()
    y.register_hook(lambda gradient: kept.append(gradient))
    y.view(4).backward(g)


def _given_by_a_hook(x, g, kept):
    y = x.view(4)
    y.register_hook(lambda gradient: gradient.detach())
    y.backward(g)


def _through_both(x, g, kept):
    y = x.view(4)
    z = y.detach().requires_grad_()
    (y + z).backward(g)
    kept.append(z.grad)


_ARRIVALS = [
    _through_a_view,
    _through_two_views,
    _itself,
    _as_it_is,
    _of_other_strides,
    _kept_by_a_hook,
    _given_by_a_hook,
    _through_both,
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("arrive", _ARRIVALS, ids=lambda f: f.__name__.strip("_"))
def test_a_gradient_may_be_a_window_on_what_a_backward_was_called_with(arrive, there: bool):
    def f(x, g):
        kept: list[torch.Tensor] = []
        g = g.clone()
        arrive(x, g, kept)
        g.add_(1)
        return g, kept

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x = leaf(2, 2)
            x.grad = plain(2, 2, seed=3) if there else None
            g, kept = compiled(x, plain(4, seed=1))
            yield x.grad, g, kept
            x.grad.mul_(2)
            yield x.grad, g, kept

    check_session(session)


def test_two_backwards_inside_and_one_outside():
    def f(x, w):
        y = x * w
        y.sum().backward(retain_graph=True)
        (y * y).sum().backward(retain_graph=True)
        return y * 2

    def session(compile):
        compiled = compile(f)
        x, w = leaf(3), leaf(3, seed=1)
        for _ in range(2):
            y = compiled(x, w)
            yield x, w
            backward([y])
            yield x, w, y

    check_session(session)


def test_what_a_backward_inside_freed_cannot_be_used_outside():
    def f(x):
        y = x * x
        y.sum().backward()
        return y

    def session(compile):
        x = leaf(3)
        y = compile(f)(x)
        yield x
        yield attempt_later(lambda: backward([y]))
        yield x

    check_session(session)


def test_a_backward_inside_with_create_graph():
    def f(x):
        (x * x * x).sum().backward(create_graph=True)
        penalty = (x.grad * x.grad).sum()
        x.grad = None
        return penalty

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of it once in a process
        check(f, lambda: given(leaf(3)))


def test_parameters_of_a_closure():
    def session(compile):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)

        def f(x):
            loss = net(x).square().sum()
            loss.backward()
            return loss.detach()

        compiled = compile(f)
        for k in range(3):
            yield compiled(plain(4, 3, seed=k)), list(net.parameters())

    check_session(session)


def test_parameters_of_a_module():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            loss = self.linear(x).square().sum()
            loss.backward()
            return loss.detach()

    def session(compile):
        torch.manual_seed(0)
        net = Net()
        compiled = compile(net)
        for k in range(3):
            yield compiled(plain(4, 3, seed=k)), list(net.parameters())

    check_session(session)


def test_a_whole_training_step_inside():
    def session(compile):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            return loss.detach()

        compiled = compile(step)
        for k in range(4):
            yield compiled(plain(5, 3, seed=k)), list(net.parameters())

    check_session(session)


def test_a_leaf_made_inside_and_returned_with_its_gradient():
    def f(x):
        w = torch.ones(3, requires_grad=True)
        (w * x).sum().backward()
        return w, w.grad

    check(f, lambda: given(plain(3)))


# -- reading and writing -----------------------------------------------------------------------------


def test_reading_a_gradient():
    def session(compile):
        compiled = compile(lambda x: x * 3 if x.grad is None else x.grad * 2)
        x = leaf(3)
        for gradient in (None, plain(3, seed=1), plain(3, seed=2), None):
            x.grad = gradient
            yield compiled(x), x

    check_session(session)


def test_returning_a_gradient_and_writing_to_it_afterwards():
    def session(compile):
        x = leaf(3)
        x.grad = plain(3, seed=1)
        out = compile(lambda x: (x.grad, x.grad.view(-1)))(x)
        yield out, x, out[0] is x.grad
        out[1].add_(1)
        yield out, x.grad

    check_session(session)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: setattr(x, "grad", x.detach() * 2),
        lambda x: setattr(x, "grad", None),
        lambda x: x.grad.mul_(2),
        lambda x: x.grad.zero_(),
        lambda x: setattr(x, "grad", x.grad * 2),
        lambda x: delattr(x, "grad"),
        lambda x: setattr(x, "grad", x.detach()),
    ],
    ids=["assigned", "removed", "scaled", "zeroed", "replaced", "deleted", "an alias of itself"],
)
def test_writing_a_gradient(write):
    def f(x):
        write(x)
        return x * 3

    def session(compile):
        compiled = compile(f)
        x = leaf(3)
        for _ in range(3):
            before = x.grad = plain(3, seed=1)
            y = compiled(x)
            yield y, x, before, x.grad
            backward([y])
            yield x, before, x.grad

    check_session(session)


def test_a_gradient_that_is_an_argument_too():
    def f(x, g):
        x.grad.mul_(2)
        return g + 1

    def session(compile):
        compiled = compile(f)
        x = leaf(3)
        for passed in (True, False, True):
            x.grad = plain(3, seed=1)
            g = x.grad if passed else plain(3, seed=1)
            yield compiled(x, g), x, g

    check_session(session)


def test_the_gradient_of_a_tensor_that_is_not_used_otherwise():
    def session(compile):
        w = leaf(3)
        compiled = compile(lambda x: x * 2 if w.grad is None else x * w.grad)
        for gradient in (None, plain(3, seed=1), None):
            w.grad = gradient
            yield compiled(plain(3)), w

    check_session(session)


def test_an_optimizer_step_alone_inside():
    def session(compile):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        compiled = compile(lambda: optimizer.step())
        for k in range(3):
            net(plain(4, 3, seed=k)).square().sum().backward()
            compiled()
            yield list(net.parameters())
            optimizer.zero_grad()
            compiled()
            yield list(net.parameters())

    check_session(session)


def test_the_gradient_of_a_non_leaf_that_retains_it():
    def session(compile):
        root = leaf(3)
        x = root * 2
        x.retain_grad()
        (x * x).sum().backward()
        yield compile(lambda x: x.grad * 2)(x), root

    check_session(session)


@pytest.mark.parametrize("change", [lambda x: x.unsqueeze_(1), lambda x: x.mul_(2)], ids=["reshaped", "written"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_a_backward_inside_retains_the_gradient_of_what_it_is_asked_for_as_that_then_is(change, grad):
    def f(x):
        x.backward(torch.ones_like(x), retain_graph=True, inputs=[x])
        change(x)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            root = leaf(3)
            x = root * 2
            with torch.set_grad_enabled(grad):
                compiled(x)
            yield x, x.grad
            yield attempt_later(lambda x=x: x.backward(torch.ones_like(x))), root.grad, x.grad

    check_session(session)


# -- refusals ----------------------------------------------------------------------------------------


def _over_a_hook_for_after_accumulation():
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda t: None)
    return lambda x: (x * x).sum().backward(), x


@pytest.mark.parametrize("make", [_over_a_hook_for_after_accumulation])
def test_what_is_refused(make):
    f, x = make()
    with pytest.raises(aotcheck.UnsupportedError):
        aotcheck.aot_function(f)(x)
    assert x.grad is None


def test_hooks_do_not_matter_where_no_backward_runs_inside():
    def session(compile):
        seen = []
        x = leaf(3)
        x.register_hook(lambda g: seen.append(g.clone()))
        y = compile(lambda x: x * 2 if x.grad is None else x * 3)(x)
        backward([y])
        yield x, seen

    check_session(session)


# -- the caller's graph behind the arguments ---------------------------------------------------------


def test_gradient_of_an_argument_by_another_that_it_was_computed_from_is_refused():
    def f(x, y):
        return torch.autograd.grad([y * 2], [x], [x], allow_unused=True)

    compiled = aotcheck.aot_function(f)
    x = leaf(3)
    for _ in range(2):
        assert compiled(x, leaf(3)) == f(x, leaf(3)) == (None,)
        with pytest.raises(aotcheck.UnsupportedError, match="backward inside"):
            compiled(x, x * 3)


def test_accumulating_into_an_argument_by_way_of_another_is_refused():
    compiled = aotcheck.aot_function(lambda x, y: y.backward(x, inputs=[x]))
    x = leaf(3)
    with pytest.raises(aotcheck.UnsupportedError, match="backward inside"):
        compiled(x, x * 3)
    assert x.grad is None


class _ReturnsView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3


def test_a_backward_inside_by_a_view_that_a_custom_function_made_and_whose_base_is_written_is_refused():
    def f(x, v, writes):
        v.backward(torch.ones_like(v))
        return x.zero_() if writes else x * 2

    root = leaf(3)
    compiled = aotcheck.aot_function(f)
    x = root * 1
    with pytest.raises(aotcheck.UnsupportedError, match="custom Function"):
        compiled(x, _ReturnsView.apply(x), True)
    assert root.grad is None
    calls(lambda x: f(x, _ReturnsView.apply(x), False), lambda: leaf(3) * 1)


@pytest.mark.parametrize("make", [lambda x: x.t(), lambda x: x[:], lambda x: x * 1], ids=["t", "slice", "no view"])
@pytest.mark.parametrize("seed", [lambda x: x, lambda x: x.detach(), lambda x: x * 2], ids=["itself", "alias", "new"])
@pytest.mark.parametrize("grad_mode", [True, False])
def test_a_leaf_behind_takes_over_the_memory_of_an_argument(make, seed, grad_mode):
    def f(x):
        x.backward(seed(x))
        x.zero_()

    def session(compile):
        root = leaf(2, 2)
        x = make(root.clone())
        with torch.set_grad_enabled(grad_mode):
            yield attempt(lambda: compile(f)(x))
        yield root.grad, x
        with torch.no_grad():
            x.add_(1)
        yield root.grad

    check_session(session)


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize("behind", [lambda x: x * 1, lambda x: x.clone()], ids=["mul", "clone"])
def test_what_a_backward_was_called_with_is_written_afterwards(behind, returned):
    def f(x):
        y = x.sum()
        y.backward(y)
        y.zero_()
        return y if returned else None

    def session(compile):
        root = leaf(3)
        x = behind(root)
        yield compile(f)(x)
        yield root.grad, x

    check_session(session)


@pytest.mark.parametrize("part", [lambda g: g[2:], lambda g: g[3:], lambda g: g.unfold(0, 2, 2)])
@pytest.mark.parametrize("written", [True, False])
def test_a_part_of_what_a_backward_was_called_with_is_returned(part, written):
    def f(x):
        g = torch.ones_like(x)
        x.backward(g)
        result = part(g)
        return result.zero_() if written else result

    def session(compile):
        root = leaf(3)
        result = compile(f)(root.clone())
        yield root.grad, result
        result.fill_(5)
        yield root.grad

    check_session(session)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_leads_to_an_argument_without_a_gradient_leaves_none_behind_it(place):
    def f(x, y):
        torch._foreach_mul([x, y, x], 2.0)[place].sum().backward()

    def session(compile):
        root, other = leaf(3), leaf(3, seed=1)
        compile(f)(root * 1, other * 1)
        yield root.grad, other.grad

    check_session(session)


def test_gradient_of_an_argument_by_another_that_has_nothing_to_do_with_it():
    def f(x, y):
        return torch.autograd.grad([x * y], [y], [x], retain_graph=True)

    calls(f, lambda: leaf(3) * 2, lambda: leaf(3, seed=1) * 3)


def test_gradient_of_a_view_by_its_base():
    def session(compile):
        compiled = compile(lambda x, y: torch.autograd.grad([y * 2], [x], [y]))
        base = leaf(2, 3) * 2
        yield compiled(base, base.t())

    check_session(session)


_VIEWS = {
    "t": lambda x: x.t(),
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.transpose(-1, -2),
    "permute": lambda x: x.permute(-1, 0),
    "row": lambda x: x[-1],
    "slice": lambda x: x[:, -2:],
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x[:1].squeeze(0).squeeze(),
    "expand": lambda x: x[:1].expand(3, 2),
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.as_strided((2,), (2,)),
    "split": lambda x: x.split(1)[1],
    "real": lambda x: torch.view_as_real(torch.view_as_complex(x)),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("leads", [False, True], ids=["leaf", "non-leaf"])
def test_gradient_of_any_view_by_its_base(create_graph, leads):
    def f(view, base, g):
        g = g.clone()
        (found,) = torch.autograd.grad([view], [base], [g], create_graph=create_graph)
        with torch.no_grad():
            found.add_(1)
        return g, found

    def session(compile):
        compiled = compile(f)
        for view in _VIEWS.values():
            base = leaf(2, 2)
            base = base * 2 if leads else base
            v = view(base)
            yield attempt(lambda v=v, base=base: compiled(v, base, plain(*v.shape, seed=1)))

    check_session(session)


def test_a_gradient_that_an_argument_keeps_in_a_later_call():
    def session(compile):
        compiled = compile(lambda x: torch.autograd.grad([x], [x], [x.detach()]))
        compiled(leaf(3))
        x = leaf(3) * 2
        compiled(x)
        x.retain_grad()
        for _ in range(2):
            yield compiled(x), x.grad

    check_session(session)


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2)], ids=["zero", "mul"])
def test_a_gradient_that_a_written_argument_keeps(write):
    def f(x):
        write(x)
        return torch.autograd.grad([x], [x], [x.detach()], retain_graph=True)

    def session(compile):
        compiled = compile(f)
        compiled(leaf(3, 3) * 2)
        for _ in range(2):
            x = leaf(3, 3) * 2
            x.retain_grad()
            yield compiled(x), x.grad
            x.sum().backward()
            yield x.grad

    check_session(session)


@pytest.mark.parametrize("written", ["base", "view"])
@pytest.mark.parametrize("read", [lambda x: x, lambda x: x * 2], ids=["itself", "result"])
def test_a_gradient_that_a_view_of_a_written_argument_keeps(read, written):
    def f(base, view):
        (base if written == "base" else view).mul_(2)
        y = read(view)
        return torch.autograd.grad([y], [base], [torch.ones_like(y)], retain_graph=True, allow_unused=True)

    def arguments():
        base = leaf(2, 2).clone()
        return base, base.view(4)

    def session(compile):
        compiled = compile(f)
        compiled(*arguments())
        for _ in range(2):
            base, view = arguments()
            view.retain_grad()
            yield compiled(base, view), view.grad
            (base * 2).sum().backward(retain_graph=True)
            yield view.grad
            (view * 2).sum().backward()
            yield view.grad

    check_session(session)


# -- through arguments that are no leaves --------------------------------------------------------------


def _once(x, y):
    (x * y).sum().backward()


def _twice(x, y):
    (x * y).sum().backward(retain_graph=True)
    (x * 2).sum().backward()


def _twice_freeing(x, y):
    (x * y).sum().backward()
    (x * 2).sum().backward()


def _with_a_leaf(x, y):
    w = (x * 1).detach().requires_grad_()
    (x * w).sum().backward()
    return w.grad * 2


def _then_written(x, y):
    (x * y).sum().backward()
    with torch.no_grad():
        x.mul_(2)
    return x * 3


def _and_returned(x, y):
    z = x * y
    z.sum().backward(retain_graph=True)
    return z, x.view(-1)


def _after_a_write(x, y):
    x.mul_(2)
    (x * y).sum().backward(retain_graph=True)
    return x * 3


def _after_a_write_beside_it(x, y):
    with torch.no_grad():
        y.mul_(2)
    (x * y).sum().backward()
    return x * 3


_ONWARD = [
    _once,
    _twice,
    _twice_freeing,
    _with_a_leaf,
    _then_written,
    _and_returned,
    _after_a_write,
    _after_a_write_beside_it,
]
_BEHIND = {
    "a product": lambda root: (root * root, root.detach() * 3),
    "of one leaf": lambda root: (root * 2, root * root),
    "a view": lambda root: ((root * root).view(3), root.detach() * 3),
    "freed at once": lambda root: (root.exp2(), root.detach() * 3),
}


@pytest.mark.parametrize("behind", _BEHIND)
@pytest.mark.parametrize("function", _ONWARD, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("hooked", [False, True])
def test_a_backward_inside_goes_on_in_the_callers_graph(function, behind, hooked):
    hooked = hooked and behind != "a view"  # whose hooks a trace with its base does not know
    if function is _after_a_write and behind == "freed at once":
        hooked = False  # it raises, and then the argument has not yet another history

    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            root, seen = leaf(3), []
            x, y = _BEHIND[behind](root)
            if hooked:
                x.register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 3)
            out = attempt_later(lambda x=x, y=y: compiled(x, y))
            yield out, root, x, y, seen
            yield attempt_later(lambda x=x: x.sum().backward()), root, seen

    check_session(session)


@pytest.mark.parametrize(
    "lead", [lambda r: r[:], lambda r: r.view(4), lambda r: r * 3], ids=["slice", "view", "product"]
)
@pytest.mark.parametrize("arrive", _ARRIVALS, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_a_gradient_of_a_leaf_behind_an_argument_may_be_a_window_too(lead, arrive, copied, written):
    def f(x, g):
        kept: list[torch.Tensor] = []
        g = g.clone() if copied else g
        arrive(x.view(2, 2), g, kept)
        if written:
            g.add_(1)
        return g, kept

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            root = leaf(2, 2)
            g, kept = compiled(lead(root), plain(4, seed=1))
            yield root, root.grad, g, kept
            root.grad.mul_(2)
            yield root.grad, g, kept

    check_session(session)


@pytest.mark.parametrize("lead", [lambda r: r[:], lambda r: r * 3], ids=["slice", "product"])
@pytest.mark.parametrize("change", [lambda g: g.add_(1), lambda g: g.resize_(1).mul_(3)], ids=["written", "resized"])
def test_a_gradient_that_is_written_when_it_has_gone_on(lead, change):
    def f(x):
        g = torch.ones_like(x)
        x.backward(g)
        change(g)

    def session(compile):
        root = leaf(4)
        compile(f)(lead(root))
        yield root, root.grad

    check_session(session)


def _by_a_view(x, y):
    x.backward(torch.ones_like(x), retain_graph=True)
    return x * 2


def _beside_a_write(x, y):
    with torch.no_grad():
        y.add_(1)
    x.backward(torch.ones_like(x), retain_graph=True)
    return x * 2


def _between_writes(x, y):
    x.detach().mul_(2)
    x.backward(torch.ones_like(x), retain_graph=True)
    y.detach().mul_(2)
    x.detach().mul_(3)
    return x * 2


def _between_several_writes(x, y):
    for t in (y, x, x):
        x.backward(torch.ones_like(x), retain_graph=True)
        t.detach().mul_(2)
    (x * 3).sum().backward(retain_graph=True)
    return x * 2


def _between_writes_under_grad(x, y):
    x.mul_(2)
    x.backward(torch.ones_like(x), retain_graph=True)
    x.mul_(2)
    return x * 2


def _freed_between_writes(x, y):
    y.detach().mul_(2)
    (x * x).sum().backward()
    y.detach().mul_(2)
    return y * 1


def _between_a_write_and_a_change_of_shape(x, y):
    x.detach().mul_(2)
    x.unsqueeze_(0)
    x.backward(torch.ones_like(x), retain_graph=True)
    y.detach().mul_(2)
    return y * 2


_LEADING = [
    _by_a_view, _beside_a_write, _between_writes, _between_several_writes, _between_writes_under_grad,
    _freed_between_writes, _between_a_write_and_a_change_of_shape,
]  # fmt: skip
_ARGUMENTS = {
    "apart": lambda a, b: (a * 2, b * 3),
    "squares": lambda a, b: (a * a, b * b),
    "keeping itself": lambda a, b: (a.exp(), b * 2),
    "view of a leaf": lambda a, b: (a[:2], b * 2),
    "view": lambda a, b: ((a * 2)[:2], b * 2),
    "and a leaf behind it": lambda a, b: (a * b, b),
    "view of a leaf, and that": lambda a, b: (a[:2], a),
    "view, and its base": lambda a, b: (lambda c: (c[:2], c))(a * 2),
    "and what it was detached from": lambda a, b: (a.exp(), a.detach()),
    "and another of one leaf": lambda a, b: (a * 2, a.exp()),
}


@pytest.mark.parametrize("arguments", _ARGUMENTS.values(), ids=_ARGUMENTS)
@pytest.mark.parametrize("function", _LEADING, ids=[f.__name__[1:] for f in _LEADING])
@pytest.mark.parametrize("hooked", [False, True], ids=["", "hooked"])
def test_a_backward_inside_goes_on_to_other_arguments_and_between_writes(function, arguments, hooked):
    if hooked and function is _between_several_writes:
        hooked = False  # a hook on a view is then called after a backward that went on: refused

    def session(compile):
        compiled = compile(function)
        for k in range(2):
            roots, seen = [leaf(3), leaf(3, seed=1)], []
            if k:
                for r in roots:
                    r.grad = torch.ones_like(r)
            x, y = arguments(*roots)
            for t in (x, y) if hooked else ():
                if t.requires_grad:
                    t.register_hook(lambda g, seen=seen: seen.append(g.clone()))
            made = attempt_later(lambda x=x, y=y: compiled(x, y))
            yield made, x, y, [r.grad for r in roots], seen
            if not isinstance(made, Raised):
                yield attempt_later(lambda made=made: backward([made])), [r.grad for r in roots]

    check_session(session)


def test_a_backward_inside_through_a_view_of_what_is_no_argument():
    def session(compile):
        compiled = compile(lambda v: v.backward(torch.ones_like(v)))
        for _ in range(2):
            base, seen = leaf(4), []
            base.register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 2)
            for _ in range(2):
                compiled(base[1:3])
                yield base, base.grad, seen

    check_session(session)


def test_a_backward_inside_through_an_argument_to_another_whose_gradient_is_used_is_refused():
    def read(x, root):
        x.sum().backward()
        return root.grad * 2

    def besides(x, root):
        (x * root).sum().backward()

    def hidden(x, y):
        x.data.mul_(2)
        x.sum().backward()
        y.data.mul_(2)
        x.data.mul_(2)

    for f in (read, besides, hidden):
        root = leaf(3)
        with pytest.raises(aotcheck.UnsupportedError, match=r"to another argument|between writes"):
            aotcheck.aot_function(f)(root * 2, root)
        assert root.grad is None


def _only_there(x, y):
    return torch.autograd.grad((x * x).sum(), y, retain_graph=True, allow_unused=True)[0], x * 2


def _there_and_here(x, y):
    z = x * y
    (g,) = torch.autograd.grad(z, [y], torch.ones_like(z), retain_graph=True)
    return g * z


def _for_several(x, y):
    return *torch.autograd.grad((x * y).sum(), [y, x, y], retain_graph=True), x * 2


def _for_several_times(x, y):
    (g,) = torch.autograd.grad((x * 2).sum(), y, retain_graph=True, allow_unused=True)
    (h,) = torch.autograd.grad((x * x).sum(), y, retain_graph=True, allow_unused=True)
    return (x * 2, x * 3) if g is None else (g + h, x * g)


def _for_what_is_written_then(x, y):
    (g,) = torch.autograd.grad((x * 2).sum(), y, retain_graph=True, allow_unused=True)
    x.mul_(2)
    return g, x * 1


def _the_other_way(x, y):
    return torch.autograd.grad(y.sum(), x, retain_graph=True, allow_unused=True)[0], x * 1


def _unused_here(x, y):
    return torch.autograd.grad(y.sum(), x, retain_graph=True), x * 1


_ASKED = [
    _only_there, _there_and_here, _for_several, _for_several_times, _for_what_is_written_then, _the_other_way,
    _unused_here,
]  # fmt: skip
_LED_TO = {
    "product": lambda a, b: (a * 2, a),
    "square": lambda a, b: (a * a, a),
    "non-leaf": lambda a, b: (lambda c: (c * c, c))(a * 2),
    "one of two": lambda a, b: (a * b, b),
    "keeping itself": lambda a, b: (a.exp(), a),
    "view of a custom Function": lambda a, b: (lambda c: (Same.apply(c), c))(a * 3),
    "not led to": lambda a, b: (a * 2, b * 3),
}


_VIEWS_WRITTEN = (_for_what_is_written_then, "view of a custom Function")  # refused


@pytest.mark.parametrize(("function", "led"), [(f, a) for f in _ASKED for a in _LED_TO if (f, a) != _VIEWS_WRITTEN])
def test_a_gradient_is_asked_for_that_comes_by_the_callers_graph(function, led):
    arguments = _LED_TO[led]

    def session(compile):
        compiled = compile(function)
        for k in range(2):
            roots, seen = [leaf(3), leaf(3, seed=1)], []
            x, y = arguments(*roots)
            if k and function is not _for_several:  # then a hook on one of them is refused
                x.register_hook(lambda g, seen=seen: (seen.append(g.clone()), g * 2)[1])
            made = attempt_later(lambda x=x, y=y: compiled(x, y))
            yield made, [r.grad for r in roots], seen
            yield attempt_later(lambda x=x: x.sum().backward()), [r.grad for r in roots], seen

    check_session(session)


def test_a_gradient_with_a_graph_that_comes_by_the_callers():
    def f(x, y):
        return torch.autograd.grad((x * 3).sum(), y, create_graph=True)[0] * x

    def session(compile):
        root = leaf(3)
        x = root * 2
        y = compile(f)(x, root)
        yield y
        backward([y])
        yield root.grad

    check_session(session)
    root = leaf(3)
    with pytest.raises(aotcheck.UnsupportedError, match="requires grad"):
        aotcheck.aot_function(f)(root * root, root)


def test_a_gradient_that_comes_by_the_callers_graph_is_refused_where_it_cannot_be_had():
    def freed(x, root):
        return torch.autograd.grad(x.sum(), root)

    def differentiated(x, root):
        return torch.autograd.grad((x * x).sum(), root, create_graph=True)

    def written(x, root):
        x.detach().mul_(2)
        return torch.autograd.grad(x.sum(), root, retain_graph=True)

    for f in (freed, differentiated, written):
        root = leaf(3)
        with pytest.raises(aotcheck.UnsupportedError, match="to another argument"):
            aotcheck.aot_function(f)(root * 2, root)


def test_a_gradient_of_a_leaf_beside_what_leads_to_others_by_nodes_of_the_callers():
    """A custom Function's view is another way to what it is a view of, by a node that no trace has."""

    def f(x, y, v):
        (g,) = torch.autograd.grad([x], [y], [torch.ones_like(x)], retain_graph=True, allow_unused=True)
        return v * 2, g is None

    def make():
        root = leaf(2, 2)
        y = root * 2
        return given(leaf(3), y, View.apply(y), also=[root])

    check(f, make)


@pytest.mark.parametrize("shrink", [lambda g: g.as_strided_((1,), (1,)), lambda g: g.resize_(0), lambda g: g[:1]])
def test_a_gradient_that_goes_on_in_the_callers_graph_is_made_smaller_then(shrink):
    def f(x):
        g = x.clone()
        x.backward(g)
        return shrink(g)

    def make():
        root = leaf(3)
        return given(root * 2, also=[root])

    check(f, make, probe=False)


@pytest.mark.parametrize("given", [lambda x: x.detach(), lambda x: x], ids=["a gradient", "itself"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_hook_on_an_argument_that_the_graph_cannot_call_in_time_is_refused(given, goes_on):
    """It is called for another gradient first, or of one that requires grad."""

    def f(x):
        if goes_on:
            x.backward(given(x))
        return torch.autograd.grad(x, x, given(x))[0]

    x = leaf(3) * 2
    x.register_hook(lambda g: None)
    if goes_on or given(x) is x:
        with pytest.raises(aotcheck.UnsupportedError, match="hooks"):
            aotcheck.aot_function(f)(x)
    else:
        aotcheck.aot_function(f)(x)


@pytest.mark.parametrize("way", ["detached", "data", "under no_grad", "not at all"])
@pytest.mark.parametrize("registered", ["before", "between", "after"])
def test_a_hook_of_the_function_is_called_once_by_a_backward_that_goes_on(way, registered):
    def write(x):
        if way == "detached":
            x.detach().copy_(torch.ones(3))
        elif way == "data":
            x.data.mul_(2)
        elif way == "under no_grad":
            with torch.no_grad():
                x.add_(1)

    def f(x):
        moments = {
            "before": lambda: write(x),
            "between": lambda: x.sum().backward(retain_graph=True),
            "after": lambda: None,
        }
        for moment, do in moments.items():
            if moment == registered:
                x.register_hook(lambda g: g * 2)
            do()

    def session(compile):
        root = leaf(3)
        x = root * 3
        compile(f)(x)
        yield x, root.grad
        x.sum().backward()
        yield root.grad

    check_session(session)


# -- gradients that are lost -------------------------------------------------------------------------

MARKED = {
    "alone": Doubled.apply,
    "told to keep it": lambda x: (x.retain_grad(), Doubled.apply(x))[1],
    "under no_grad": torch.no_grad()(Doubled.apply),
    "a view": lambda x: (Doubled.apply(x[:1]), x)[1],
    "written before": lambda x: Doubled.apply(x.mul_(1)),
    "written after": lambda x: Doubled.apply(x).mul_(3),
    "asked for it": lambda x: (Doubled.apply(x), x.grad)[1],
    "asked for it before": lambda x: (x.grad, Doubled.apply(x)),
    "given one before": lambda x: (setattr(x, "grad", torch.ones(2)), Doubled.apply(x))[1],
    "given one after": lambda x: (Doubled.apply(x), setattr(x, "grad", torch.ones(2)))[0],
    "only written": lambda x: x.mul_(2),
}
HAVING = {
    "no leaf": lambda: leaf(2) * 1,
    "view": lambda: (leaf(2) * 1).view(2),
    "leaf": lambda: leaf(2),
    "nothing required": lambda: plain(2),
}


@pytest.mark.parametrize("has", ["kept", "given", "none"])
@pytest.mark.parametrize("argument", HAVING)
@pytest.mark.parametrize("marked", MARKED)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_what_a_custom_function_marks_as_written_loses_its_gradient(marked, argument, has):
    def session(compile):
        x, compiled = HAVING[argument](), compile(MARKED[marked])
        if has == "kept" and x.requires_grad:
            x.retain_grad()
            (x * 2).sum().backward(retain_graph=True)
        elif has == "given":
            x.grad = plain(2, seed=1)
        for _ in range(2):
            y = attempt_later(lambda: compiled(x))
            yield y, x.grad, x.retains_grad
            if isinstance(y, torch.Tensor) and y.requires_grad:
                yield attempt_later(lambda y=y: backward([y])), x.grad

    check_session(session)
