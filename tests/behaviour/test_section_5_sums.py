"""BEHAVIOUR 5: gradients are summed up where eager sums them, before the node that several of them come to runs."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import check_session, plain

INF = float("inf")


def numbers(*parts, dtype=torch.complex64):
    return torch.tensor(parts, dtype=dtype).requires_grad_()


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
def test_results_share_what_keeps_nothing(name, together):
    share, *uses = SHARED[name]

    def f(x):
        v = share(x)
        return [use(v) for use in uses]

    def session(compile):
        real = name in ("rounded", "broadcast", "scaled", "split")
        x = numbers(1.3, -2.7, 0.1, dtype=torch.float32 if real else torch.complex64)
        ys = compile(f)(x)
        seeds = [torch.full_like(y, 1.7) for y in ys]
        if together:
            yield torch.autograd.grad(ys, x, seeds)
        for y, seed in zip(ys, seeds, strict=True) if not together else ():
            yield torch.autograd.grad(y, x, seed, retain_graph=True)

    check_session(session)


@pytest.mark.parametrize(
    "cast", [lambda x: x.double(), lambda x: x.real, lambda x: x.abs()], ids=["cast", "real", "abs"]
)
@pytest.mark.parametrize(
    "use", [lambda v: v.sin() * INF, lambda v: v * v, lambda v: v.exp()], ids=["sin", "square", "exp"]
)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_a_real_result_and_its_gradient_lead_to_a_complex_leaf(cast, use):
    def session(compile):
        for parts in ((0, 1, -2), (INF, 2, 0)):
            x = numbers(*parts)
            y = compile(lambda x: use(cast(x)))(x)
            (g,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
            yield g
            yield torch.autograd.grad([y, g], x, [torch.full_like(y, INF), torch.ones_like(g)])

    check_session(session)


def difference(a, b):
    return (a - b).sin()


def through_complex(a, b):
    return (a + b.to(a.dtype)).t() * 2


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float32), (torch.complex64, torch.float32)], ids=["real", "complex"]
)
@pytest.mark.parametrize("function", [difference, through_complex], ids=["difference", "through complex"])
def test_a_gradient_is_computed_from_another(function, dtypes):
    def session(compile):
        a, b = (plain(2, 2, seed=k).to(dtype).requires_grad_() for k, dtype in enumerate(dtypes))
        y = compile(function)(a, b)
        seed = torch.full_like(y, 2).requires_grad_()
        ga, gb = torch.autograd.grad(y, [a, b], seed, create_graph=True)
        seen = []
        ga.register_hook(lambda g: seen.append(("first", g)))
        gb.register_hook(lambda g: seen.append(("second", g)))
        yield torch.autograd.grad(gb, [ga, gb, seed], torch.ones_like(gb), allow_unused=True, retain_graph=True)
        yield torch.autograd.grad(ga, [ga, gb, seed], torch.ones_like(ga), allow_unused=True, retain_graph=True)
        cotangents = [torch.full_like(g, INF) for g in (ga, gb)]
        yield torch.autograd.grad([ga, gb], [seed, a], cotangents, allow_unused=True), seen

    check_session(session)


def test_hooks_on_gradients_are_called_where_there_is_one():
    def session(compile):
        a, b = plain(3).requires_grad_(), plain(3, seed=1).requires_grad_()
        y = compile(lambda a, b: ((a - b) * (a + b)).sin())(a, b)
        gradients = torch.autograd.grad(y, [a, b], torch.ones_like(y), create_graph=True)
        seen = []
        for k, g in enumerate(gradients):
            g.register_hook(lambda grad, k=k: seen.append((k, grad)))
        for g in gradients:
            yield torch.autograd.grad(g.sum(), [a, b], retain_graph=True)
        yield seen

    check_session(session)


VIEWS = {"imag": lambda z: z.imag, "real": lambda z: z.real, "t": lambda z: z.t(), "row": lambda z: z[0]}


@pytest.mark.parametrize("first", [True, False], ids=["base first", "view first"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_written_base_and_its_view_times_infinity(view, first):
    """Of a sum of complex numbers the summand that comes second decides what becomes NaN."""

    def f(x):
        z = x.clone()
        v = VIEWS[view](z)
        v.fill_(3)
        ys = [z.clone(), v * INF] if first else [v * INF, z.clone()]
        return *ys, v

    def session(compile):
        x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
        *ys, _ = compile(f)(x)
        yield torch.view_as_real(*torch.autograd.grad(ys, x, [torch.full_like(y, 2) for y in ys]))

    check_session(session)


@pytest.mark.parametrize("view", ["imag", "real"])
def test_a_base_is_reshaped_before_its_view_is_written(view):
    def f(z, v):
        z.transpose_(0, 1)
        v.zero_()
        return z[1:], v, v * INF

    def session(compile):
        x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
        z = x.clone()
        part, _, y = compile(f)(z, VIEWS[view](z))
        yield torch.autograd.grad([part, y], x, [torch.full_like(part, 2), torch.ones_like(y)])

    check_session(session)


BEFORE = {"neg": torch.neg, "twice": lambda z: z * 2 * 3, "transposed": lambda z: (z * 2).t(), "sum": lambda z: z.sum()}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("before", BEFORE)
def test_a_result_leads_by_itself_to_what_a_write_leads_to_as_well(before, inside):
    """What was made before the write hands its gradient on after the write does."""

    def f(z):
        z = z.clone() if inside else z
        r = BEFORE[before](z)
        z.conj().mul_(INF)
        return z, r + z.sum()

    def session(compile):
        x = numbers(1, 2, 3, 4).detach().view(2, 2).requires_grad_()
        _, y = compile(f)(x.clone())
        yield torch.view_as_real(*torch.autograd.grad(y, x, torch.ones_like(y)))

    check_session(session)


@pytest.mark.parametrize("seeds", [(INF, 1), (1, INF), (INF, INF)], ids=["part", "use", "both"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("real", [lambda z: z.imag, lambda z: torch.view_as_real(z)[..., 0]], ids=["imag", "first"])
def test_a_part_of_a_real_view_and_what_is_computed_of_that(real, inside, seeds):
    """What comes by both is a real sum, though the function returns neither the view nor what it is a view of."""

    def f(z):
        v = real(z * 2 if inside else z)
        return v[:1], v * 3

    def session(compile):
        x = numbers(1, 2)
        ys = compile(f)(x.clone())
        cotangents = [torch.full_like(y, seed) for y, seed in zip(ys, seeds, strict=True)]
        yield torch.view_as_real(*torch.autograd.grad(ys, x, cotangents))

    check_session(session)


REAL_VIEWS = {
    "imag": lambda z: z.imag,
    "real": lambda z: z.real,
    "both": lambda z: torch.view_as_real(z).flip(1)[..., 0],
}


@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("second", REAL_VIEWS)
@pytest.mark.parametrize("first", REAL_VIEWS)
def test_real_views_of_a_complex_tensor_meet_in_a_matrix_product(first, second, written):
    """What is multiplied is kept, so its view stands by itself; the other hands its gradient on after or before it."""

    def f(z):
        if written:
            z.imag.mul_(2)
        bias = REAL_VIEWS[first](z)
        return torch.nn.functional.linear(REAL_VIEWS[second](z), torch.ones(2, 2), bias.sum())

    def session(compile):
        x = numbers(1, 2)
        y = compile(f)(x * 1 if written else x)
        for seed in (INF, 1):
            (g,) = torch.autograd.grad(y, x, torch.tensor([seed, 1.0]), retain_graph=True)
            yield torch.view_as_real(g)

    check_session(session)
