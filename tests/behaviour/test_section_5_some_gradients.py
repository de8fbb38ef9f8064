"""BEHAVIOUR 5: backwards that are asked for some gradients, one after the other."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Square
from tests.behaviour.harness import attempt_later, backward, check_session, leaf


def _head(b, c, d):
    h = b * b
    return h * c, h + d * d


ONE_RESULT = {
    "summands": lambda b, c, d: b * b + c * c,
    "factors": lambda b, c, d: (b * b) * (c * c),
    "linear": lambda b, c, d: b * 2 + c * c,
    "a chain": lambda b, c, d: ((b * 2).relu() * c).relu() * d,
    "custom Functions": lambda b, c, d: Square.apply(b) + Square.apply(c) * d,
    "in place": lambda b, c, d: (b * b).mul_(c * c).add_(d * d),
    "a view of what was written": lambda b, c, d: (b * b).mul_(c)[:2] + (d * d)[:2],
}
SEVERAL = {
    "results apart": lambda b, c, d: (b * b + c * c, (b * b) * (d * d)),
    "results of one trunk": _head,
    "a result and a view": lambda b, c, d: ((b * b)[:2] * (c * c)[:2], (d * d)[1:]),
}
FUNCTIONS = {**ONE_RESULT, **SEVERAL}
ORDERS = [(0, 1, 2), (1, 0, 0), (0, 0, 1), (0, None, 1), (2, 2, 0), (2, 1, None), (None, 0, 1)]  # None: all of them


def _results(made):
    return [made] if isinstance(made, torch.Tensor) else list(made)


def _ones(results):
    return [torch.ones_like(r) for r in results]


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("retains", [False, True], ids=["frees", "retains at first"])
@pytest.mark.parametrize("creates", [False, True], ids=["plain", "create_graph"])
def test_gradients_asked_for_one_after_the_other(f, retains, creates):
    def session(compile):
        for order in ORDERS:
            leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
            results = _results(compile(f)(*leaves))
            for n, k in enumerate(order):
                asked = leaves if k is None else [leaves[k]]
                roots = results[:1] if n == 1 else results
                how = {"allow_unused": True, "retain_graph": retains and n == 0, "create_graph": creates}
                yield attempt_later(functools.partial(torch.autograd.grad, roots, asked, _ones(roots), **how))

    check_session(session)


# Of "a chain" a backward to the first comes by everything; which error the next one raises is another matter.
@pytest.mark.parametrize("f", [f for name, f in FUNCTIONS.items() if name != "a chain"])
@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("between", [False, True], ids=["before", "between"])
def test_what_other_gradients_need_may_have_been_written(f, written, between):
    def session(compile):
        for order in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
            leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
            results = _results(compile(f)(*leaves))
            for n, k in enumerate(order):
                if n == between:
                    with torch.no_grad():
                        leaves[written].add_(1)
                how = {"allow_unused": True}
                yield attempt_later(functools.partial(torch.autograd.grad, results, [leaves[k]], _ones(results), **how))

    check_session(session)


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_inputs_of_backward_one_after_the_other(f):
    def session(compile):
        for order in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
            leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
            given = [x * 1 for x in leaves]
            results = _results(compile(f)(*given))
            for k in order:
                yield attempt_later(functools.partial(backward, results, inputs=[leaves[k]]))
                yield [x.grad for x in leaves]
            yield attempt_later(functools.partial(backward, results))

    check_session(session)


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("creates", [False, True], ids=["plain", "create_graph"])
def test_gradients_asked_for_of_calls_after_one_whose_gradients_were(f, creates):
    """Whether a leaf is asked for is found out in another way from the second call on."""

    def session(compile):
        g = compile(f)
        for order in [(None,), *ORDERS]:
            leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
            hooked = []
            for k, x in enumerate(leaves):
                x.register_post_accumulate_grad_hook(lambda x, k=k, hooked=hooked: hooked.append(k))
                x.register_hook(lambda grad, k=k, hooked=hooked: hooked.append(-k))
            results = _results(g(*leaves))
            for n, k in enumerate(order):
                asked = leaves if k is None else [leaves[k]]
                how = {"allow_unused": True, "retain_graph": n == 0, "create_graph": creates}
                yield attempt_later(functools.partial(torch.autograd.grad, results, asked, _ones(results), **how))
            results = _results(g(*leaves))
            yield attempt_later(functools.partial(backward, results, inputs=leaves[1:]))
            results = _results(g(*leaves))
            yield attempt_later(functools.partial(backward, results))
            yield [x.grad for x in leaves], [x.grad is not None and x.grad._base is None for x in leaves], set(hooked)

    check_session(session)


def test_losses_of_one_call_are_differentiated_by_their_own_parameters():
    def losses(fake, real, g, d):
        made = fake * g
        return (d * made).relu().sum() + (d * real).relu().sum()

    def session(compile):
        g, d = leaf(3), leaf(3, seed=1)
        for _ in range(3):
            loss = compile(losses)(leaf(3, seed=3).detach(), leaf(3, seed=4).detach(), g, d)
            (by_d,) = torch.autograd.grad(loss, [d], retain_graph=True)
            (by_g,) = torch.autograd.grad(loss, [g])
            with torch.no_grad():
                d -= by_d
                g += by_g
            yield loss, by_d, by_g, g, d
            yield attempt_later(functools.partial(torch.autograd.grad, loss, [g]))

    check_session(session)


@pytest.mark.parametrize("asked", ["bc", "cb"])
def test_what_no_backward_needs_any_more_is_let_go(asked):
    b, c = leaf(3), leaf(3, seed=1)
    r = aotcheck.aot_function(lambda b, c: (b * 2).exp() + (c * 2).exp())(b, c)
    first, second = [b if name == "b" else c for name in asked]
    torch.autograd.grad(r, [first], torch.ones_like(r))
    assert len(r.grad_fn.left.saved_tensors) == 2
    torch.autograd.grad(r, [second], torch.ones_like(r))
    with pytest.raises(RuntimeError, match="a second time"):
        len(r.grad_fn.left.saved_tensors)


@pytest.mark.parametrize("asked", ["leaf", "result", "both"])
@pytest.mark.parametrize("grows", [False, True])
def test_a_backward_that_ends_at_what_was_written_beyond_what_its_gradient_holds(asked, grows):
    def f(x):
        if grows:
            x.untyped_storage().resize_(8)
        x.as_strided((1,), (1,), 1).zero_()
        return x

    def session(compile):
        x = leaf(1)
        y = x.clone() if grows else torch.cat([x, x])[:1]
        r = compile(f)(y)
        inputs = {"leaf": [x], "result": [y], "both": [x, y]}[asked]
        yield attempt_later(functools.partial(r.backward, torch.ones_like(r), inputs=inputs))
        yield x.grad, r if not grows else None

    check_session(session)


@pytest.mark.parametrize("then", [0, 1])
@pytest.mark.parametrize("ends", ["base", "view", "leaf"])
@pytest.mark.parametrize("begins", [0, 1])
@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2)], ids=["zero", "mul"])
def test_a_backward_that_ends_at_a_written_base_frees_the_last_write_alone(write, begins: int, ends: str, then: int):
    def f(x):
        write(x)
        between = x.clone()
        write(x)
        return between, x

    def session(compile):
        start = leaf(2)
        base = start.clone()
        view = base.view(2)
        results = compile(f)(view)
        end = {"base": base, "view": view, "leaf": start}[ends]
        base.retain_grad()
        yield attempt_later(lambda: torch.autograd.backward([results[begins].sum()], inputs=[end]))
        for k in (then, 1 - then):
            yield attempt_later(lambda k=k: torch.autograd.backward([results[k].sum()], inputs=[base, start]))
        yield base.grad, start.grad

    check_session(session)


class _GivesNone(torch.autograd.Function):
    """Gives its second operand no gradient."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def _past_what_was_written(x, y):
    one = torch.ones(3)
    r = _GivesNone.apply(x, x * one + y)
    one.zero_()
    return r


def _by_what_was_written(x, y):
    one = torch.ones(3)
    r = _GivesNone.apply(x, (x + y) * one)
    one.zero_()
    return r


def _beside_what_was_written(x, y):
    one = torch.ones(3)
    r = _GivesNone.apply(y, x * one + y) + y * y
    one.zero_()
    return r


@pytest.mark.parametrize("f", [_past_what_was_written, _by_what_was_written, _beside_what_was_written])
@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1), None])
@pytest.mark.parametrize("creates", [False, True], ids=["plain", "create_graph"])
@pytest.mark.parametrize("way", ["inputs", "grad"])
@pytest.mark.filterwarnings("ignore:Using backward")
def test_what_a_backward_without_gradients_does_not_come_by_may_be_written(f, asked, creates, way):
    def session(compile):
        compiled = compile(f)
        for _ in range(3):
            leaves = [leaf(3), leaf(3, seed=1)]
            r = compiled(*leaves)
            ends = None if asked is None else [leaves[k] for k in asked]
            if way == "inputs":
                how = {"inputs": ends, "create_graph": creates}
                yield attempt_later(functools.partial(torch.autograd.backward, r, torch.ones(3), **how))
            else:
                how = {"allow_unused": True, "create_graph": creates}
                yield attempt_later(functools.partial(torch.autograd.grad, r, ends or leaves, torch.ones(3), **how))
            if ends is not None and len(ends) == 1:  # how far one comes that raises is an order that nobody promises
                yield [x.grad for x in leaves]

    check_session(session)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 1)])
def test_backwards_without_gradients_one_after_the_other(order):
    def session(compile):
        leaves = [leaf(3), leaf(3, seed=1)]
        r = compile(_past_what_was_written)(*leaves)
        for k in order:
            yield attempt_later(functools.partial(torch.autograd.grad, r, leaves[k], torch.ones(3), allow_unused=True))

    check_session(session)
