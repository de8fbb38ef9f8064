"""BEHAVIOUR 5: results that share a part of their graph, backpropagated one after the other and together."""

import itertools

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf

pytestmark = pytest.mark.usefixtures("device")


class _Two(torch.autograd.Function):
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
    a, b = _Two.apply(x)
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
    b, c = _Two.apply(a)
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
def test_any_after_any(function, keep, hooked):
    def session(compile):
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

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("function", _FUNCTIONS.values(), ids=_FUNCTIONS)
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "non-leaves"])
def test_second_and_third_derivatives(function, leaves):
    if leaves and function is _written_away:
        pytest.skip("a leaf cannot be written")

    def session(compile):
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

    check_session(session, rtol=1e-9)


class GivesNothingToTheSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def _by_a_list(x, y):
    _, b = torch._foreach_mul([x, y], 2)
    c, d = torch._foreach_mul([x, b], 3)
    return c, b, d


def _by_a_custom_function(x, y):
    b = y.exp2()
    return GivesNothingToTheSecond.apply(x, b), b


def _by_both(x, y):
    b = y.exp2()
    c, d = torch._foreach_mul([x, b * b], 3)
    return GivesNothingToTheSecond.apply(c, d), b, d


def _by_a_view(x, y):
    b = y.exp2()
    return GivesNothingToTheSecond.apply(x, b.t() * 2), b


@pytest.mark.parametrize("function", [_by_a_list, _by_a_custom_function, _by_both, _by_a_view])
@pytest.mark.parametrize("keep", [False, True], ids=["freeing", "keeping"])
@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
@pytest.mark.parametrize("written", ["nothing", "x", "y", "1"])
def test_what_a_backward_comes_by_without_a_gradient(function, keep, hooked, written):
    def session(compile):
        x, y = leaf(2, 2), leaf(2, 2, seed=1)
        results = compile(function)(x, y)
        calls = []
        for k, t in enumerate(results if hooked else ()):
            t.register_hook(lambda g, k=k: calls.append((k, g is None)))
        if written != "nothing":
            with torch.no_grad():
                (x if written == "x" else y if written == "y" else results[1]).mul_(2)
        for which in (0, 1, 0, -1):
            found = attempt_later(lambda which=which: results[which].sum().backward(retain_graph=keep))
            yield found is None, calls
            if found is not None:  # what has arrived by then, and what is objected to first, is a matter of order
                x.grad = y.grad = None
            yield x, y

    check_session(session)


_KEEP_THEIR_RESULTS = {
    "group norm": lambda x, y: torch.nn.functional.group_norm((x * y)[None], 2),
    "native group norm": lambda x, y: torch.native_group_norm(x.sin()[None], y[:, 0], None, 1, 4, 4, 2, 1e-5)[0],
    "left singular vectors": lambda x, y: torch.linalg.svd(x @ y, full_matrices=False)[0].abs(),
    "singular values": lambda x, y: torch.linalg.svd(x @ y, full_matrices=False)[1] * y,
    "eigenvectors": lambda x, y: torch.linalg.eigh(x @ x.t() + y.diagonal().diag())[1].abs(),
    "qr": lambda x, y: torch.linalg.qr(x @ y)[1],
    "logarithm of a determinant": lambda x, y: torch.linalg.slogdet(x @ y)[1],
    "lu": lambda x, y: torch.linalg.lu_factor(x @ y)[0],
}


@pytest.mark.parametrize("f", _KEEP_THEIR_RESULTS.values(), ids=_KEEP_THEIR_RESULTS)
@pytest.mark.parametrize("of", [(True, True), (True, False), (False, True)], ids=["both", "first", "second"])
def test_derivatives_by_results_that_an_op_keeps_and_nobody_returns(f, of):
    def session(compile):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).add_(torch.eye(4) * 3)
        y = torch.randn(4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64).add_(torch.eye(4) * 3)
        x.requires_grad_(of[0])
        y.requires_grad_(of[1])
        trained = [t for t in (x, y) if t.requires_grad]
        for _ in range(2):
            out = compile(f)(x, y)
            first = torch.autograd.grad(out.square().sum(), trained, create_graph=True)
            yield [t.detach() for t in first]
            squares = sum(t.square().sum() for t in first)
            yield attempt_later(lambda s=squares: torch.autograd.grad(s, trained, create_graph=True, allow_unused=True))
            yield attempt_later(lambda s=squares: torch.autograd.grad(s * 2, trained, allow_unused=True))
            yield attempt_later(lambda o=out: o.sum().backward())
            yield [t.grad for t in trained]

    check_session(session, rtol=1e-6)


_OTHER_VIEWS_READ_LATER = {
    "linear": lambda x, y: torch.nn.functional.linear(x[0], y),
    "linear with a bias": lambda x, y: torch.nn.functional.linear(x[0], y, x[1]),
    "addr": lambda x, y: torch.addr(x @ y, x[0], y[1]),
    "lu solve": lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), y),
    "triangular solve": lambda x, y: torch.linalg.solve_triangular(x.triu(), y, upper=True),
    "logdet": lambda x, y: torch.logdet(x @ x.t()),
    "product of matrices": lambda x, y: torch.linalg.multi_dot([x[0], y, x[1]]),
    "columns": lambda x, y: (x[:, 0].unsqueeze(1) * y.t()).sin(),
}


@pytest.mark.parametrize("f", _OTHER_VIEWS_READ_LATER.values(), ids=_OTHER_VIEWS_READ_LATER)
@pytest.mark.parametrize("of", [(True, True), (True, False), (False, True)], ids=["both", "first", "second"])
def test_derivatives_that_read_other_views_of_what_is_saved(f, of):
    def session(compile):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).add_(torch.eye(4) * 3)
        y = torch.randn(4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64).add_(torch.eye(4) * 3)
        x.requires_grad_(of[0])
        y.requires_grad_(of[1])
        trained = [t for t in (x, y) if t.requires_grad]
        compiled = compile(f)
        for _ in range(2):
            found = [compiled(x, y)]
            for _ in range(4):
                terms = [t.sin().sum() for t in found if t is not None and t.requires_grad]
                if not terms:
                    break
                found = torch.autograd.grad(sum(terms), trained, create_graph=True, allow_unused=True)
                yield [None if t is None else t.detach() for t in found]

    check_session(session, rtol=1e-6)
