"""Backward(inputs=) and autograd.grad that ask for some gradients: what runs, what is checked, what is freed."""

import functools

import pytest
import torch

from tests.behaviour.functions import Square
from tests.behaviour.harness import attempt_later, backward, session
from tests.behaviour.inputs import leaf, plain


@pytest.mark.parametrize(
    "op",
    [lambda x: x.mul_(2), lambda x: x.add_(2), lambda x: x.exp_(), lambda x: x.mul_(x)],
    ids=["mul", "add", "exp", "mul by itself"],
)
@pytest.mark.soft("freed")
@session
def test_a_backward_whose_inputs_are_a_mutated_argument_frees_the_mutation(compile, op):
    root = leaf(3)
    x = root.clone()
    out = compile(op)(x)
    yield attempt_later(lambda: out.sum().backward(inputs=[x])), root, x
    yield attempt_later(lambda: out.sum().backward()), root, x


@pytest.mark.parametrize(
    "write", [lambda x, y: x.mul_(y), lambda x, y: x[1:].mul_(y[1:]), lambda x, y: x.mul_(y).add_(1)]
)
@pytest.mark.parametrize("made", [lambda y: torch.tensor([2, 3, 4], device=y.device), lambda y: y, lambda y: y + 1])
@pytest.mark.parametrize("is_view", [False, True], ids=["whole", "view"])
@pytest.mark.parametrize("also_leaf", [False, True], ids=["there", "leaf"])
@pytest.mark.soft("freed")
@session
def test_a_backward_whose_inputs_are_a_mutated_argument_checks_what_the_mutation_saved(
    compile, write, made, is_view, also_leaf
):
    def f(x, y):
        factor = made(y)
        write(x, factor)
        return factor

    root = leaf(3)
    x = root.clone().view(3) if is_view else root.clone()
    factor = compile(f)(x, plain(3, seed=2))
    factor.add_(1)
    wanted = [x, root] if also_leaf else [x]
    yield attempt_later(lambda: x.sum().backward(inputs=wanted, retain_graph=True)), root, x.detach()
    yield attempt_later(lambda: torch.autograd.grad(x.sum(), x))


@session
def test_a_node_whose_saved_tensor_was_overwritten_raises_only_for_gradients_through_it(compile):
    def f(x, y):
        y.zero_()
        x.copy_(y)
        y.mul_(y)  # its backward needs what it overwrites
        return y

    a, b = leaf(3), leaf(3, seed=1)
    x, y = a.clone(), b.clone().t()
    out = compile(f)(x, y)
    yield torch.autograd.grad(out, a, plain(3), allow_unused=True, retain_graph=True)
    yield attempt_later(lambda: torch.autograd.grad(out, b, plain(3)))


@session
def test_an_error_of_one_gradient_is_not_raised_where_inputs_exclude_it(compile):
    x, y = leaf(3), leaf(3, seed=1)
    nowhere = torch.empty(0, dtype=torch.int64, device=x.device)
    out = compile(lambda x, y: torch.scatter(x, 0, nowhere, y))(x, y)
    out.backward(plain(3, seed=2), inputs=[x], retain_graph=True)
    yield x, y
    yield attempt_later(lambda: out.backward(plain(3, seed=2), inputs=[y]))
    yield attempt_later(lambda: out.backward(plain(3, seed=2)))


@pytest.mark.parametrize("ends_at", ["result", "argument", "leaf", "beside"])
@pytest.mark.parametrize("written", ["argument", "clone"])
@pytest.mark.soft("freed")
@session
def test_an_in_place_op_without_derivative_raises_wherever_the_backward_ends(compile, written, ends_at):
    def f(x):
        return (x if written == "argument" else x.clone()).floor_divide_(2), x.sum()

    root = leaf(3)
    x = root * 5
    y, total = compile(f)(x)
    ends = {"result": y, "argument": x, "leaf": root, "beside": total}[ends_at]
    yield attempt_later(lambda: y.backward(torch.ones_like(y), inputs=[ends], retain_graph=True))
    yield attempt_later(lambda: (y.sum() + total).backward(inputs=[ends], retain_graph=True))
    yield root.grad


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
@pytest.mark.soft("freed")
@session
def test_autograd_grad_of_one_input_after_the_other(compile, f, retains, creates):
    for order in ORDERS:
        leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
        results = _results(compile(f)(*leaves))
        for n, k in enumerate(order):
            asked = leaves if k is None else [leaves[k]]
            roots = results[:1] if n == 1 else results
            how = {"allow_unused": True, "retain_graph": retains and n == 0, "create_graph": creates}
            yield attempt_later(functools.partial(torch.autograd.grad, roots, asked, _ones(roots), **how))


# Of "a chain" a backward to the first comes by everything; which error the next one raises is another matter.
@pytest.mark.parametrize("f", [f for name, f in FUNCTIONS.items() if name != "a chain"])
@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("between", [False, True], ids=["before", "between"])
@pytest.mark.soft("freed")
@session
def test_an_input_that_only_other_gradients_need_may_be_written(compile, f, written, between):
    for order in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
        leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
        results = _results(compile(f)(*leaves))
        for n, k in enumerate(order):
            if n == between:
                with torch.no_grad():
                    leaves[written].add_(1)
            how = {"allow_unused": True}
            yield attempt_later(functools.partial(torch.autograd.grad, results, [leaves[k]], _ones(results), **how))


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@session
def test_backward_with_one_input_after_the_other(compile, f):
    for order in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
        leaves = [leaf(3), leaf(3, seed=1), leaf(3, seed=2)]
        given = [x * 1 for x in leaves]
        results = _results(compile(f)(*given))
        for k in order:
            yield attempt_later(functools.partial(backward, results, inputs=[leaves[k]]))
            yield [x.grad for x in leaves]
        yield attempt_later(functools.partial(backward, results))


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("creates", [False, True], ids=["plain", "create_graph"])
@session
def test_autograd_grad_and_leaf_hooks_on_a_second_call(compile, f, creates):
    """Whether a leaf is asked for is found out in another way from the second call on."""

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


@session
def test_a_loss_is_differentiated_by_two_sets_of_parameters(compile):
    def losses(fake, real, g, d):
        made = fake * g
        return (d * made).relu().sum() + (d * real).relu().sum()

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


@pytest.mark.parametrize("asked", ["leaf", "result", "both"])
@pytest.mark.parametrize("grows", [False, True])
@session
def test_a_backward_whose_inputs_are_an_argument_written_outside_its_own_elements(compile, asked, grows):
    def f(x):
        if grows:
            x.untyped_storage().resize_(8)
        x.as_strided((1,), (1,), 1).zero_()
        return x

    x = leaf(1)
    y = x.clone() if grows else torch.cat([x, x])[:1]
    r = compile(f)(y)
    inputs = {"leaf": [x], "result": [y], "both": [x, y]}[asked]
    yield attempt_later(functools.partial(r.backward, torch.ones_like(r), inputs=inputs))
    yield x.grad, r if not grows else None


@pytest.mark.parametrize("then", [0, 1])
@pytest.mark.parametrize("ends", ["base", "view", "leaf"])
@pytest.mark.parametrize("begins", [0, 1])
@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2)], ids=["zero", "mul"])
@pytest.mark.soft("freed")
@session
def test_a_backward_whose_inputs_are_a_written_base_frees_only_the_last_write(
    compile, write, begins: int, ends: str, then: int
):
    def f(x):
        write(x)
        between = x.clone()
        write(x)
        return between, x

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


class _GivesNone(torch.autograd.Function):
    """Gives its second operand no gradient."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def _past_what_was_written(x, y):
    one = torch.ones(3, device=x.device)
    r = _GivesNone.apply(x, x * one + y)
    one.zero_()
    return r


def _by_what_was_written(x, y):
    one = torch.ones(3, device=x.device)
    r = _GivesNone.apply(x, (x + y) * one)
    one.zero_()
    return r


def _beside_what_was_written(x, y):
    one = torch.ones(3, device=x.device)
    r = _GivesNone.apply(y, x * one + y) + y * y
    one.zero_()
    return r


@pytest.mark.parametrize("f", [_past_what_was_written, _by_what_was_written, _beside_what_was_written])
@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1), None])
@pytest.mark.parametrize("creates", [False, True], ids=["plain", "create_graph"])
@pytest.mark.parametrize("way", ["inputs", "grad"])
@pytest.mark.filterwarnings("ignore:Using backward")
@session
def test_a_saved_tensor_off_the_path_of_undefined_gradients_may_be_written(compile, f, asked, creates, way):
    compiled = compile(f)
    for _ in range(3):
        leaves = [leaf(3), leaf(3, seed=1)]
        r = compiled(*leaves)
        ends = None if asked is None else [leaves[k] for k in asked]
        if way == "inputs":
            how = {"inputs": ends, "create_graph": creates}
            yield attempt_later(functools.partial(torch.autograd.backward, r, torch.ones_like(r), **how))
        else:
            how = {"allow_unused": True, "create_graph": creates}
            yield attempt_later(functools.partial(torch.autograd.grad, r, ends or leaves, torch.ones_like(r), **how))
        if ends is not None and len(ends) == 1:  # how far one comes that raises is an order that nobody promises
            yield [x.grad for x in leaves]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 1)])
@session
def test_autograd_grad_of_undefined_gradients_one_after_the_other(compile, order):
    leaves = [leaf(3), leaf(3, seed=1)]
    r = compile(_past_what_was_written)(*leaves)
    for k in order:
        yield attempt_later(functools.partial(torch.autograd.grad, r, leaves[k], torch.ones_like(r), allow_unused=True))


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[0]], ids=["itself", "t", "row"])
@pytest.mark.parametrize("write", [lambda x: x.mul_(x), lambda x: x.mul_(2), lambda x: x.exp_().add_(1)])
@pytest.mark.parametrize("end", ["leaf", "base", "view"])
@pytest.mark.soft("freed")
@session
def test_a_backward_whose_inputs_are_a_mutated_argument_runs_the_mutations_backward(compile, view, write, end):
    x = leaf(2, 2)
    base = x * 1
    argument = view(base)
    y = compile(lambda x: write(x) * 1)(argument)
    to = {"leaf": x, "base": base, "view": argument}[end]
    yield attempt_later(lambda: y.sum().backward(inputs=[to], retain_graph=True)), x
    found = attempt_later(lambda: torch.autograd.grad(y.sum(), to, retain_graph=True))
    yield [g.contiguous() for g in found] if isinstance(found, tuple) else found
    yield attempt_later(lambda: y.sum().backward(inputs=[to])), x
    yield attempt_later(lambda: y.sum().backward()), x
