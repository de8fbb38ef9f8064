"""BEHAVIOUR 5: hooks that the function registers on what is written, or changed in place, afterwards."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, backward, check_session, differentiable, leaf


def _once(x, note):
    y = x * 2
    y.register_hook(note("a", 3))
    return y.mul_(5)


def _between_writes(x, note):
    y = x * 2
    y.register_hook(note("a", 3))
    y.mul_(x)
    y.register_hook(note("b", 2))
    y.exp_()
    return y, y * y


def _used_before(x, note):
    y = x.sin()
    y.register_hook(note("a", 3))
    w = y * 2
    y.mul_(5)
    y.register_hook(note("b", 2))
    return y, w


def _base_written_by_a_view(x, note):
    base = x * 1
    base.register_hook(note("a", 3))
    base[:2].mul_(3)
    base.register_hook(note("b", 2))
    return base


def _view_whose_base_is_written(x, note):
    base = x * 1
    view = base[:2]
    view.register_hook(note("a", 3))
    w = view * 2
    base.mul_(3)
    view.register_hook(note("b", 2))  # eager has it beside the first
    return view.sum(), w


def _reshaped(x, note):
    y = (x * 1).view(3, 1).clone()
    y.register_hook(note("a", 3))
    y.t_()
    y.register_hook(note("b", 2))  # likewise
    return y


def _argument_between_writes(x, note):
    x = x if x.grad_fn is not None else x * 1
    x.mul_(2)
    x.register_hook(note("a", 3))
    x.mul_(5)
    return x


def _argument_reshaped_after_a_write(x, note):
    x = x if x.grad_fn is not None else x * 1
    x.cumsum_(0)
    x.register_hook(note("a", 3))
    x.unsqueeze_(1)
    return x * 1, x


def _view_of_an_argument(x, note):
    x = x if x.grad_fn is not None else x * 1
    view = x[:2]
    view.register_hook(note("a", 3))
    view.mul_(2)
    return view, view * 2, x


def _one_of_two_results(x, note):
    values, _ = (x * 2).sort()
    values.register_hook(note("a", 3))
    return values.mul_(2)


def _detached_in_place(x, note):
    y = x * 2
    w = y + x
    y.register_hook(note("a", 3))
    return y.detach_(), w


def _given_other_data(x, note):
    y = x * 2
    y.register_hook(note("a", 3))
    y.data = x[:1].detach()
    y.register_hook(note("b", 2))
    return y * 1


FUNCTIONS = [
    _once, _between_writes, _used_before, _base_written_by_a_view, _view_whose_base_is_written, _reshaped,
    _argument_between_writes, _argument_reshaped_after_a_write, _view_of_an_argument, _one_of_two_results,
    _detached_in_place, _given_other_data,
]  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__[1:] for f in FUNCTIONS])
@pytest.mark.parametrize("given", [lambda: leaf(3), lambda: leaf(3) * 1], ids=["leaf", "non-leaf"])
def test_it_sees_the_gradient_of_what_the_tensor_was_then(f, given):
    def session(compile):
        seen = []

        def note(name, factor):
            def hook(g):
                seen.append((name, g.clone()))
                return g * factor

            return hook

        compiled = compile(lambda x: f(x, note))
        for _ in range(2):
            x = given()
            results = differentiable(compiled(x))
            for y in results:
                yield attempt_later(lambda y=y: backward([y], retain_graph=True)), x, list(seen)
                seen.clear()
            yield attempt_later(lambda results=results: backward(results)), x, list(seen)
            seen.clear()
        x = given()
        losses = [(y * y).sum() for y in differentiable(compiled(x))]
        first = attempt(lambda: torch.autograd.grad(losses, [x], create_graph=True))
        yield first, list(seen)
        yield attempt(lambda: torch.autograd.grad((first[0] * first[0]).sum(), [x])), list(seen)

    check_session(session)


# -- gradients that are kept --------------------------------------------------------------------------


def _reshaped_before(x):
    x.t_()
    x.retain_grad()
    x.mul_(2)
    return x * 2, x


def _reshaped_after(x):
    x.mul_(2)
    x.retain_grad()
    x.t_()
    return x * 2, x


def _reshaped_before_and_after(x):
    x.mul_(2)
    x.t_()
    x.retain_grad()
    x.unsqueeze_(0)
    return x * 2, x


def _told_again(x):
    x.mul_(2)
    x.retain_grad()
    x.t_()
    x.retain_grad()
    return x * 2, x


def _used_before(x):
    x.mul_(2)
    w = x * x
    x.retain_grad()
    x.t_()
    return x, w


def _view_made_inside(x):
    v = (x * 1)[:1]
    v.retain_grad()
    v.mul_(2)
    v.t_()
    v.unsqueeze_(1)
    return v, v * 2


def _view_reshaped_before(x):
    v = (x * 1)[:1]
    v.unsqueeze_(0)
    v.retain_grad()
    v.mul_(2)
    return v, v * 2


def _result_reshaped_before(x):
    y = x * 1
    y.t_()
    y.retain_grad()
    y.mul_(2)
    return y, y * 2


KEEPING = [
    _reshaped_before, _reshaped_after, _reshaped_before_and_after, _told_again, _used_before, _view_made_inside,
    _view_reshaped_before, _result_reshaped_before,
]  # fmt: skip


@pytest.mark.parametrize("f", KEEPING, ids=[f.__name__[1:] for f in KEEPING])
@pytest.mark.parametrize("given", [lambda r: r * 2, lambda r: (r * 2)[:, :2]], ids=["non-leaf", "view"])
def test_what_keeps_its_gradient_and_is_reshaped_in_place_keeps_that_of_what_it_was(f, given):
    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            root = leaf(2, 3)
            x = given(root)
            results = compiled(x)
            for y in results:
                yield attempt_later(lambda y=y: backward([y], retain_graph=True)), root.grad
                yield [t.grad for t in (x, *results)], [t.retains_grad for t in (x, *results)]
            yield attempt_later(lambda results=results: backward(results)), [t.grad for t in (root, x, *results)]

    check_session(session)


def _used_together(x, note):
    h = x * 1
    a, b = h.sin(), h.cos()
    note(a, "a"), note(b, "b")
    return (b * 3 + a * 2,)


def _overlapping(x, note):
    h = x * 1
    a, b = h[:2], h[1:]
    note(a, "a"), note(b, "b")
    return b * 3, a * 2


def _of_parts(x, note):
    a, b = (x * 1).split([1, 2])
    a, b = a.sin(), b.cos()
    note(b, "b"), note(a, "a")
    return a * 2, b * 3


@pytest.mark.parametrize("function", [_used_together, _overlapping, _of_parts])
def test_hooks_on_what_waits_at_once_are_called_for_the_tensor_that_was_made_last_first(function):
    def session(compile):
        seen = []

        def note(t, name):
            t.register_hook(lambda g: seen.append((name, g.clone())))

        x = leaf(3)
        results = compile(lambda x: function(x, note))(x)
        yield attempt_later(lambda: backward(results)), x.grad, list(seen)

    check_session(session)


VIEWS = {"row": lambda b: b[0], "transposed": lambda b: b.t(), "real": lambda b: torch.view_as_complex(b).real}
DATA = {"reshaped": lambda x: x.unsqueeze(0), "alias": lambda x: x.view(x.shape), "fresh": lambda x: x.detach() * 2}
USES = {"reads": lambda v: v * 2, "gives it": lambda v: v}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_hook_on_a_view_that_is_given_other_data_and_written_under_no_grad(view, data, use, first):
    """Its history is what it has when it is first looked at, where it then lies."""

    def function(x):
        x.register_hook(lambda g: g * 3)
        v = x.view(-1, 1) if x.is_contiguous() else x.unsqueeze(0)
        x.data = data(x)
        with torch.no_grad():
            x.mul_(2)
        return use(v), x

    def session(compile):
        root = leaf(2, 2)
        x = view(root * 1)
        results = compile(function)(x)
        result = results[0 if first else 1]
        yield attempt_later(lambda: torch.autograd.grad(result, [x], torch.ones_like(result), retain_graph=True))
        yield results
        yield attempt_later(lambda: torch.autograd.grad(result, [root], torch.ones_like(result)))

    check_session(session)
