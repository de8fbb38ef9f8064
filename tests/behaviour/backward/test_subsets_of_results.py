"""Several results one after the other or together; shared parts of graphs; asked for some gradients."""

import itertools

import pytest
import torch

from tests.behaviour.functions import Same, View
from tests.behaviour.harness import attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf


@session
def test_outputs_with_disjoint_graphs_are_backpropagated_separately(compile):
    x, y = leaf(3), leaf(3, seed=1)
    a, b = compile(lambda x, y: (x * x, y * y))(x, y)
    yield attempt_later(lambda: backward([a])), x, y
    yield attempt_later(lambda: backward([b])), x, y


def test_two_outputs_that_share_an_intermediate():
    def f(x):
        y = x.exp()
        return y * 2, y.sum()

    check(f, lambda: given(leaf(3, dtype=torch.float64) * 0, also=[]), probe=True)
    check(f, lambda: given(leaf(3, dtype=torch.float64)), rtol=1e-12)


class _Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return h * 5 if g is None else g * 2 if h is None else g + h


def _each_by_itself(x):
    return _Two.apply(x)


def _one_squared(x):
    a, b = _Two.apply(x)
    return a * a, b


@pytest.mark.parametrize(
    ("function", "order"),
    [
        (_each_by_itself, [0, 1]),
        (_each_by_itself, [1, 0, 1]),
        (_one_squared, [0, 1]),
        (_one_squared, [0, 1, 0]),
        (_one_squared, [0, 1, 1]),
    ],
)
@session
def test_results_of_a_custom_function_that_saves_nothing_are_backpropagated_separately(compile, function, order):
    x = leaf(3)
    results = compile(function)(x)
    for k in order:
        yield attempt_later(lambda k=k: results[k].sum().backward())
        yield x.grad


def by_a_function_that_returns_its_operand(x):
    return Same.apply(x)


def by_a_function_that_returns_a_view(x):
    return View.apply(x)


def by_a_write(x):
    y = x.view(-1)
    y.mul_(3)
    return y


def by_an_op(x):
    return x * 3


def by_a_view(x):
    return x.view(-1)


@pytest.mark.parametrize("roots", [(0, 1), (0,), (1,)], ids=str)
@pytest.mark.parametrize("options", [{}, {"create_graph": True}], ids=["graph freed", "graph created"])
@pytest.mark.parametrize(
    "parts",
    [lambda y: y.chunk(3, -1), lambda y: y.split([1, 2, 3], -1), lambda y: y.view(3, 2).unbind()],
    ids=["chunk", "split", "unbind"],
)
@pytest.mark.parametrize(
    "made",
    [by_a_function_that_returns_its_operand, by_a_function_that_returns_a_view, by_a_write, by_an_op, by_a_view],
    ids=lambda made: made.__name__,
)
@pytest.mark.parametrize("with_hook", [False, True], ids=["", "hook"])
@session
def test_one_part_of_a_split_is_returned_and_results_are_computed_from_others(
    compile, made, parts, options, roots, with_hook
):
    def function(x):
        first, second, third = parts(made(x))
        if with_hook:
            first.register_hook(lambda g: None if g is None else g * 2)
        return first * first, second, third.clone()

    root = leaf(6)
    x = root.clone() if made is by_a_write else root
    results = compile(function)(x)
    yield results
    given = [torch.ones_like(results[k], requires_grad=True) for k in roots]
    yield attempt_later(lambda: torch.autograd.backward([results[k] for k in roots], given, **options))
    yield root.grad
    if options and root.grad is not None and root.grad.requires_grad:
        grad = root.grad
        root.grad = None
        yield attempt_later(lambda: grad.backward(torch.ones_like(grad)))
        yield root.grad, [g.grad for g in given]


class Two(torch.autograd.Function):
    """Gives two results, each by what it kept of the other's operand."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, y * 2

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y, g * x + h * 2


@pytest.mark.parametrize(
    "view", [lambda t: t.t(), lambda t: t[:1], lambda t: t.view(4)], ids=["transpose", "row", "flat"]
)
@pytest.mark.parametrize("use", [torch.sub, torch.mul], ids=["difference", "product"])
@pytest.mark.parametrize("lead", [lambda x: x, lambda x: x * 1], ids=["leaf", "no leaf"])
@session
def test_views_of_two_results_of_a_custom_function_are_used_together(compile, view, use, lead):
    def f(x, y):
        a, b = Two.apply(x, y)
        part = view(b)
        return use(view(a), part), part

    x, y = lead(leaf(2, 2)), lead(leaf(2, 2, seed=1))
    result, part = compile(f)(x, y)
    seen = []
    part.register_hook(seen.append)
    yield torch.autograd.grad(result, [part, x, y], torch.full_like(result, 3), retain_graph=True), seen
    yield torch.autograd.grad([result, part], [x, y], [torch.ones_like(result), torch.ones_like(part)]), seen


class _TellsDefined(torch.autograd.Function):
    """Its backward tells which gradients are there."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return h * 5 if g is None else g * 2 if h is None else g + h


class _Caller(torch.autograd.Function):
    """A node of the caller's that gives zeros where it is given no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g


def _one_of_two_squared(x, y):
    a, b = _TellsDefined.apply(x)
    return a * a, b


def _to_different_arguments(x, y):
    h = x.sin()
    return h * 2, h * y


def _by_a_third(x, y):
    a, b = x.sin(), y.cos()
    return a * 1, a * b, b * 1


def _by_what_was_written_since(x, y):
    h = (x * 0.5).sin_()
    r = h * y
    h.mul_(2)
    return h, r


def _written_away(x, y):
    x.mul_(0.5)
    r = y * x
    x.zero_()
    return x, r


def _two_results_of_one_op(x, y):
    variance, mean = torch.var_mean(x, -1)
    return variance, mean * y.sum()


def _of_three(x, y):
    u, s, _ = torch.linalg.svd(x.diag() + 1)
    return s, u.abs().sum(0) * y, (u.abs() * s).sum(0)


def _in_a_circle(x, y):
    a = x.sin()
    b, c = _TellsDefined.apply(a)
    d = b * y
    return a, d, (c * d).sum(), d.sin() * a


def _cell(x, y):
    i, o = (x * y).sin().chunk(2)
    c = i.sigmoid() * i
    return o.mean().sigmoid() * c.tanh(), c


def _cell_of_three(x, y):
    z = x * y
    r, u = z.sin(), z.cos()
    c = r.sigmoid() * r
    d = c.tanh() * u * r
    return d.exp() * u, d, c


_FUNCTIONS = {
    f.__name__.strip("_"): f
    for f in (
        _one_of_two_squared,
        _to_different_arguments,
        _by_a_third,
        _by_what_was_written_since,
        _written_away,
        _two_results_of_one_op,
        _of_three,
        _in_a_circle,
        _cell,
        _cell_of_three,
    )
}


def _subsets(count):
    return [s for n in range(1, count + 1) for s in itertools.combinations(range(count), n)]


def _backward(results, which, **options):
    roots = [results[k] for k in which]
    return torch.autograd.backward(roots, [torch.full_like(r, 1.0 + k) for k, r in enumerate(roots)], **options)


@pytest.mark.parametrize("function", _FUNCTIONS.values(), ids=_FUNCTIONS)
@pytest.mark.parametrize("keep", [False, True], ids=["freeing", "keeping"])
@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
@session(rtol=1e-5)
def test_any_subset_of_results_after_any_other(compile, function, keep, hooked):
    compiled = compile(function)
    count = len(function(leaf(3), leaf(3)) if function is not _written_away else "ab")
    for order in itertools.product(_subsets(count), repeat=2):
        x, y = leaf(3), leaf(3, seed=1)
        results = compiled(_Caller.apply(x) * 1, _Caller.apply(y) * 1)
        seen = []
        for name, t in [*enumerate(results), ("x", x), ("y", y)] if hooked else ():
            t.register_hook(lambda g, name=name: seen.append((name, g)))  # noqa: B023  # this round's list
        for which in order:
            yield attempt_later(lambda: _backward(results, which, retain_graph=keep))  # noqa: B023  # called now
            yield x.grad, y.grad, seen


_OF_LEAVES = {
    f"{'leaves' if leaves else 'non-leaves'}-{name}": (leaves, function)
    for leaves in (True, False)
    for name, function in _FUNCTIONS.items()
    if not (leaves and function is _written_away)  # a leaf cannot be written
}


@pytest.mark.parametrize(("leaves", "function"), _OF_LEAVES.values(), ids=_OF_LEAVES)
@session(rtol=1e-9)
def test_second_and_third_derivatives_of_any_subset_of_results(compile, function, leaves):
    compiled = compile(function)
    count = len(function(leaf(3), leaf(3)) if function is not _written_away else "ab")
    for which in _subsets(count):
        x, y = leaf(3, dtype=torch.float64), leaf(3, seed=1, dtype=torch.float64)
        results = compiled(x, y) if leaves else compiled(x * 1, y * 1)
        roots = [results[k] for k in which]
        tangents = [torch.full_like(r, 1.0 + k).requires_grad_() for k, r in enumerate(roots)]

        def derive(of, wanted):
            found = torch.autograd.grad(of, wanted, create_graph=True, allow_unused=True)
            return found, sum((g**2).sum() for g in found if g is not None)

        def thrice():
            given = sum((r * t).sum() for r, t in zip(roots, tangents, strict=True))  # noqa: B023  # called now
            first, norm = derive(given, [x, y])  # noqa: B023
            second, norm = derive(norm, [x, y, *tangents])  # noqa: B023
            norm.backward()
            return first, second

        yield attempt_later(thrice)
        yield x.grad, y.grad


@session
def test_a_shared_node_that_saved_nothing_is_run_twice(compile):
    x = leaf(3)
    a, b = compile(lambda x: ((y := x * 2) + 1, y * 3))(x)
    yield attempt_later(lambda: backward([a])), x
    yield attempt_later(lambda: backward([b])), x
    yield attempt_later(lambda: backward([a])), x


@session
def test_a_shared_node_that_saved_something_is_an_error_the_second_time(compile):
    x = leaf(3)
    a, b = compile(lambda x: ((y := x * x) + 1, y * 3))(x)
    yield attempt_later(lambda: backward([a]))
    yield attempt_later(lambda: backward([b]))


@session
def test_results_with_and_without_shared_nodes_in_any_order(compile):
    def f(x, y):
        s = x * y
        return s * x, s + 1, y * y, y + 2

    for order in itertools.permutations(range(4), 3):
        x, y = leaf(3), leaf(3, seed=1)
        outputs = compile(f)(x, y)
        yield [attempt_later(lambda root=outputs[k]: backward([root])) for k in order]


@session
def test_a_backward_through_an_input_that_is_returned(compile):
    root = leaf(3)
    x = root * root
    y, z = compile(lambda x: (x, x * 2))(x)
    yield attempt_later(lambda: backward([y])), root
    yield attempt_later(lambda: backward([z])), root
