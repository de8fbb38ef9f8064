"""Where and in which order gradients are summed; complex; formulas that depend on data."""

import itertools

import pytest
import torch

from tests.behaviour.harness import session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import INF, numbers
from tests.behaviour.wrappers import tagged

_SUMMED = {
    "a view first": lambda x: (x.view(2, 1), x * float("inf")),
    "a view last": lambda x: (x * float("inf"), x.view(2, 1)),
    "returned the other way round": lambda x: (x.view(2, 1), x * float("inf"))[::-1],
    "by an intermediate": lambda x: ((h := x.clone()) * float("inf"), h.clone()),
    "by an intermediate, the other way round": lambda x: ((h := x.clone()).clone(), h * float("inf")),
    "views of views": lambda x: (x.view(2, 1).t(), x * float("inf"), x[:1]),
}


@pytest.mark.parametrize("function", _SUMMED.values(), ids=_SUMMED)
@pytest.mark.parametrize("given_x", [lambda x: x, lambda x: x * 1], ids=["leaf", "non-leaf"])
@session
def test_gradients_of_results_are_summed_in_the_order_of_the_program(compile, function, given_x):
    """A sum of complex infinities says in which order it was made."""

    root = leaf(2, dtype=torch.complex64)
    for out in (compile(function)(given_x(root)),):
        torch.autograd.backward(out, [torch.ones_like(y) for y in out])
        yield torch.view_as_real(root.grad)


USES = {
    "large": lambda x: x * 1e8,
    "minus large": lambda x: x * -1e8,
    "sine": lambda x: (x * 3).sin() * 1e7,
    "view": lambda x: x.t(),
    "row": lambda x: x.select(0, 0),
    "of a view": lambda x: x.t()[0] * -3e7,
    "written": lambda x: x.mul_(1),
}


@pytest.mark.parametrize("names", itertools.combinations(USES, 4), ids="-".join)
@pytest.mark.parametrize("make", [plain, tagged], ids=["plain", "wrapper"])
@session
def test_gradients_of_four_uses_of_a_tensor_are_summed_in_eagers_order(compile, names, make):
    for order in (names, names[::-1], (*names[2:], *names[:2]), (names[1], names[3], names[0], names[2])):
        root = make(2, 2).requires_grad_()
        x = root * 1
        outputs = compile(lambda x, order=order: [USES[name](x) for name in order])(x)
        yield torch.autograd.grad(outputs, [root], [torch.ones_like(o) for o in outputs])


@pytest.mark.parametrize("function", [torch.sin, lambda x: x.cos() * 3], ids=["sin", "cos"])
@pytest.mark.parametrize("make", [plain, tagged], ids=["plain", "wrapper"])
@pytest.mark.parametrize("lead", [lambda r: r.clone(), lambda r: r * 3, lambda r: r], ids=["clone", "product", "leaf"])
@session
def test_first_and_second_derivatives_are_summed_in_eagers_order(compile, function, make, lead):
    root = make(2, 2).requires_grad_()
    x = lead(root)
    y = compile(function)(x)
    first = torch.autograd.grad(y, [root, x], torch.ones_like(y), create_graph=True)
    penalty = sum((g * g).sum() for g in first)
    (y.sum() + penalty).backward()
    yield first, root.grad


OF_TWO = {
    "large": lambda x, view: x * 1e8,
    "minus large of the view": lambda x, view: view * -1e8,
    "of the view": lambda x, view: view.exp() * 3e7,
    "base": lambda x, view: x,
    "view": lambda x, view: view,
    "another view": lambda x, view: x.t(),
}


def _quietly(t):
    with torch.no_grad():
        t.mul_(2)


@pytest.mark.parametrize("names", itertools.combinations(OF_TWO, 4), ids="-".join)
@pytest.mark.parametrize(
    "write",
    [
        lambda x, view: x.mul_(2),
        lambda x, view: view.mul_(2),
        lambda x, view: _quietly(x),
        lambda x, view: _quietly(view),
    ],
    ids=["base", "view", "base quietly", "view quietly"],
)
@session
def test_gradients_of_a_written_base_and_its_view_are_summed_in_eagers_order(compile, names, write):
    for order in itertools.permutations(names):
        root = plain(2, 2).requires_grad_()
        x = root * 1
        view = x.t()

        def f(x, view, order=order):
            write(x, view)
            return [OF_TWO[name](x, view) for name in order]

        outputs = compile(f)(x, view)
        yield torch.autograd.grad(outputs, [root], [torch.ones_like(o) for o in outputs])


SHARED = {
    "rounded": (lambda x: x.to(torch.bfloat16), lambda v: v * 1.0625, lambda v: v.float() * 7.3, lambda v: v * 0.013),
    "broadcast": (lambda x: x.expand(3, *x.shape), lambda v: v * 1e8, lambda v: v.sin(), lambda v: v * -1e8),
    "scaled": (lambda x: x * 1.1, lambda v: v * 1e8, lambda v: (v * 3.3).cos(), lambda v: v * -1e8),
    "made real": (torch.view_as_real, lambda v: v * INF, lambda v: v * 2, lambda v: v.sin()),
    "cast to real": (lambda x: x.real.double(), lambda v: v * INF, lambda v: v * -1, lambda v: v.exp()),
    "split": (lambda x: (x * 1.1).unbind(), lambda v: v[0] * 1e8, lambda v: v[0] * -1e8, lambda v: v[1].sin()),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@session
def test_results_that_share_a_node_that_saves_nothing(compile, name, together):
    share, *uses = SHARED[name]

    def f(x):
        v = share(x)
        return [use(v) for use in uses]

    real = name in ("rounded", "broadcast", "scaled", "split")
    x = numbers(1.3, -2.7, 0.1, dtype=torch.float32 if real else torch.complex64)
    ys = compile(f)(x)
    seeds = [torch.full_like(y, 1.7) for y in ys]
    if together:
        yield torch.autograd.grad(ys, x, seeds)
    for y, seed in zip(ys, seeds, strict=True) if not together else ():
        yield torch.autograd.grad(y, x, seed, retain_graph=True)


VIEWS = {"imag": lambda z: z.imag, "real": lambda z: z.real, "t": lambda z: z.t(), "row": lambda z: z[0]}


@pytest.mark.parametrize("first", [True, False], ids=["base first", "view first"])
@pytest.mark.parametrize("view", VIEWS)
@session
def test_a_written_base_and_its_view_times_infinity(compile, view, first):
    """Of a sum of complex numbers the summand that comes second decides what becomes NaN."""

    def f(x):
        z = x.clone()
        v = VIEWS[view](z)
        v.fill_(3)
        ys = [z.clone(), v * INF] if first else [v * INF, z.clone()]
        return *ys, v

    x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
    *ys, _ = compile(f)(x)
    yield torch.view_as_real(*torch.autograd.grad(ys, x, [torch.full_like(y, 2) for y in ys]))


@pytest.mark.parametrize("view", ["imag", "real"])
@session
def test_a_base_is_reshaped_in_place_before_its_real_view_is_written(compile, view):
    def f(z, v):
        z.transpose_(0, 1)
        v.zero_()
        return z[1:], v, v * INF

    x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
    z = x.clone()
    part, _, y = compile(f)(z, VIEWS[view](z))
    yield torch.autograd.grad([part, y], x, [torch.full_like(part, 2), torch.ones_like(y)])


BEFORE = {"neg": torch.neg, "twice": lambda z: z * 2 * 3, "transposed": lambda z: (z * 2).t(), "sum": lambda z: z.sum()}


@pytest.mark.parametrize("before", BEFORE)
@session
def test_a_result_made_before_a_write_is_summed_after_the_write(compile, before):
    """What was made before the write hands its gradient on after the write does."""

    def f(z):
        r = BEFORE[before](z)
        z.conj().mul_(INF)
        return z, r + z.sum()

    x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
    _, y = compile(f)(x.clone())
    yield torch.view_as_real(*torch.autograd.grad(y, x, torch.ones_like(y)))


@pytest.mark.parametrize("seeds", [(INF, 1), (1, INF), (INF, INF)], ids=["part", "use", "both"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("real", [lambda z: z.imag, lambda z: torch.view_as_real(z)[..., 0]], ids=["imag", "first"])
@session
def test_a_part_of_a_real_view_and_a_result_of_that_view(compile, real, inside, seeds):
    """What comes by both is a real sum, though the function returns neither the view nor what it is a view of."""

    def f(z):
        v = real(z * 2 if inside else z)
        return v[:1], v * 3

    x = numbers(1, 2)
    ys = compile(f)(x.clone())
    cotangents = [torch.full_like(y, seed) for y, seed in zip(ys, seeds, strict=True)]
    yield torch.view_as_real(*torch.autograd.grad(ys, x, cotangents))


REAL_VIEWS = {
    "imag": lambda z: z.imag,
    "real": lambda z: z.real,
    "both": lambda z: torch.view_as_real(z).flip(1)[..., 0],
}


@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("second", REAL_VIEWS)
@pytest.mark.parametrize("first", REAL_VIEWS)
@session
def test_two_real_views_of_a_complex_tensor_in_a_matrix_product(compile, first, second, written):
    """What is multiplied is kept, so its view stands by itself; the other hands its gradient on after or before it."""

    def f(z):
        if written:
            z.imag.mul_(2)
        bias = REAL_VIEWS[first](z)
        return torch.nn.functional.linear(REAL_VIEWS[second](z), torch.ones(2, 2, device=z.device), bias.sum())

    x = numbers(1, 2)
    y = compile(f)(x * 1 if written else x)
    for seed in (INF, 1):
        (g,) = torch.autograd.grad(y, x, to_device(torch.tensor([seed, 1.0])), retain_graph=True)
        yield torch.view_as_real(g)


@session
def test_gradients_of_a_clone_and_a_written_view_are_summed_in_eagers_order(compile):
    def f(x, view):  # a complex 1 + inf is nan where inf + 1 is not
        view.zero_()
        return x.clone(), view * INF

    source = leaf(3, dtype=torch.complex64)
    x = source * 1
    out = compile(f)(x, x.view(3))
    ones = [torch.ones_like(y) for y in out]
    yield torch.autograd.grad(out, [x, source], ones, retain_graph=True)
    yield torch.autograd.grad(out[::-1], [x, source], ones)
