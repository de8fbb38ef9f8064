"""BEHAVIOUR 5: which tangents are defined, of what layout and type, and which backward runs when."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.behaviour.harness import Given, Recorder, attempt_later, backward, check, check_session, given, leaf, plain

INF = float("inf")


# -- undefined tangents ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [
        lambda x: x * INF,
        lambda x: (x - x).sqrt(),
        lambda x: x / (x - x),
        lambda x: torch.where(x > 100, x, x * INF),
        lambda x: (x * 0).log(),
    ],
    ids=["times infinity", "sqrt of zero", "divided by zero", "where", "log of zero"],
)
@pytest.mark.parametrize("subset", [[0], [1], [0, 1]], ids=str)
def test_zero_times_infinity_does_not_arise(poison, subset: list[int]):
    check(lambda x: (poison(x), x * 2), lambda: given(leaf(3)), backward=subset)


def test_every_subset_of_four_tangents():
    def f(x, y, z):
        shared = x * y
        return shared * 2, shared.sum() + z, y * INF, z.exp() * 0

    def session(compile):
        compiled = compile(f)
        for size in range(5):
            for subset in itertools.combinations(range(4), size):
                x, y, z = leaf(3), leaf(3, seed=1), leaf(3, seed=2)
                outputs = compiled(x, y, z)
                if subset:
                    backward([outputs[k] for k in subset])
                yield subset, x, y, z

    check_session(session)


def test_each_set_of_tangents_has_a_backward_and_only_once():
    recorder = Recorder()
    f = recorder.compile(lambda x, y: (x * y, x * x * y))
    counts = []
    for subset in ([0], [1], [0, 1], [0], [1], [0, 1]):
        x, y = leaf(3), leaf(3, seed=1)
        outputs = f(x, y)
        backward([outputs[k] for k in subset])
        counts.append(len(recorder.backwards))
    assert counts[0] < counts[1] <= counts[2]
    assert counts[2] == counts[5]


def test_tangents_of_multi_output_operations_that_are_undefined():
    def f(x):
        values, indices = x.sort()
        a, b = x.split(2)
        return values, indices, a * INF, b * 2

    for subset in ([0], [1], [2], [0, 2]):
        check(f, lambda: given(leaf(4)), backward=subset)


def test_an_undefined_tangent_of_a_mutated_input():
    def f(x, y):
        x.mul_(y)
        return y * INF, x

    def make() -> Given:
        root = leaf(3)
        return given(root * 1, leaf(3, seed=1), also=[root])

    for subset in ([0], [1]):
        check(f, make, backward=subset)


def test_an_undefined_tangent_among_aliases():
    def f(x):
        y = x * 2
        return y, y[0], y.view(-1), x * INF

    for subset in ([0], [1], [2], [1, 2], [3]):
        check(f, lambda: given(leaf(2, 3)), backward=subset)


def test_a_custom_function_sees_none_or_zeros_as_it_asked():
    seen = []

    def two(materialize: bool):
        class Two(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, g, h):
                seen.append((g is None, h is None))
                return sum(t * 2 for t in (g, h) if t is not None)

        return Two

    for materialize in (True, False):
        for subset in ([0], [1], [0, 1]):
            check(two(materialize).apply, lambda: given(leaf(3)), backward=subset)


def test_a_custom_function_that_returns_none():
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    check(First.apply, lambda: given(leaf(3), leaf(3, seed=1)))
    check(lambda x, y: First.apply(x * 1, y * 1), lambda: given(leaf(3), leaf(3, seed=1)))


def test_an_input_reached_through_one_output_only():
    def f(x, y):
        return x * 2, (x * y).sum(), y.detach() * x

    for subset in ([0], [1], [2], [0, 2]):
        check(f, lambda: given(leaf(3), leaf(3, seed=1)), backward=subset)


def test_where_eager_gives_zeros_we_give_zeros():
    def f(x, y):
        return x * y * 0, torch.where(x > 100, y, x), x.clamp(min=100) + y.relu()

    for subset in ([0], [1], [2]):
        check(f, lambda: given(leaf(3), leaf(3, seed=1)), backward=subset)


# -- which backward ----------------------------------------------------------------------------------


def test_a_shared_node_that_saved_nothing_is_run_twice():
    def session(compile):
        x = leaf(3)
        a, b = compile(lambda x: ((y := x * 2) + 1, y * 3))(x)
        yield attempt_later(lambda: backward([a])), x
        yield attempt_later(lambda: backward([b])), x
        yield attempt_later(lambda: backward([a])), x

    check_session(session)


def test_a_shared_node_that_saved_something_is_not():
    def session(compile):
        x = leaf(3)
        a, b = compile(lambda x: ((y := x * x) + 1, y * 3))(x)
        yield attempt_later(lambda: backward([a]))
        yield attempt_later(lambda: backward([b]))

    check_session(session)


def test_some_outputs_are_shared_and_some_are_not():
    def session(compile):
        def f(x, y):
            s = x * y
            return s * x, s + 1, y * y, y + 2

        for order in itertools.permutations(range(4), 3):
            x, y = leaf(3), leaf(3, seed=1)
            outputs = compile(f)(x, y)
            yield [attempt_later(lambda root=outputs[k]: backward([root])) for k in order]

    check_session(session)


def test_retain_graph_then_none():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x.exp() * x)(x).sum()
        yield torch.autograd.grad(y, x, retain_graph=True)
        yield torch.autograd.grad(y, x)
        yield attempt_later(lambda: torch.autograd.grad(y, x))

    check_session(session, rtol=1e-6)


def test_a_backward_through_an_input_that_is_returned():
    def session(compile):
        root = leaf(3)
        x = root * root
        y, z = compile(lambda x: (x, x * 2))(x)
        yield attempt_later(lambda: backward([y])), root
        yield attempt_later(lambda: backward([z])), root

    check_session(session)


def test_create_graph_and_not_on_one_function():
    def session(compile):
        f = compile(lambda x, w: (x * w * w).sum())
        for create in (False, True, False, True):
            x, w = leaf(3), leaf(3, seed=1)
            (g,) = torch.autograd.grad(f(x, w), x, create_graph=create)
            yield g
            if create:
                g.sum().backward()
            yield x, w

    check_session(session)


# -- layout of tangents ------------------------------------------------------------------------------

LAYOUTS = {
    "contiguous": lambda: plain(2, 3, 4, 4),
    "channels last": lambda: plain(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: plain(2, 3, 4, 4).transpose(2, 3),
    "expanded": lambda: plain(1).expand(2, 3, 4, 4),
    "strided": lambda: plain(2, 3, 4, 8)[..., ::2],
    "zero strides": lambda: plain(2, 3, 1, 4).expand(2, 3, 4, 4),
    "offset": lambda: plain(3, 3, 4, 4)[1:],
    "negated": lambda: torch.complex(plain(2, 3, 4, 4), plain(2, 3, 4, 4)).conj().imag,
}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: x.view(2, 12, 4) * 2,
        lambda x: x + 1,
        lambda x: x.permute(0, 2, 3, 1) * x.permute(0, 2, 3, 1),
    ],
    ids=["product", "view", "sum", "permuted"],
)
def test_a_tangent_of_any_layout(function):
    def session(compile):
        f = compile(function)
        for make in LAYOUTS.values():
            x = leaf(2, 3, 4, 4)
            y = f(x)
            y.backward(make().reshape(2, 3, 16).reshape(y.shape) if y.shape != (2, 3, 4, 4) else make())
            yield x, x.grad.stride()

    check_session(session)


def test_a_tangent_of_a_channels_last_output():
    def session(compile):
        f = compile(lambda x: x.contiguous(memory_format=torch.channels_last) * 2)
        for make in LAYOUTS.values():
            x = leaf(2, 3, 4, 4)
            f(x).backward(make())
            yield x, x.grad.stride()

    check_session(session)


def test_the_layout_of_a_gradient_follows_its_leaf():
    def session(compile):
        f = compile(lambda x: (x * x).sum())
        for make in list(LAYOUTS.values())[:3]:
            x = make().requires_grad_()
            f(x).backward()
            yield x, x.grad.stride()

    check_session(session)


def test_a_complex_tangent_with_the_conjugate_bit():
    def session(compile):
        f = compile(lambda x: x * x)
        for make in (lambda: plain(3, dtype=torch.complex64), lambda: plain(3, dtype=torch.complex64).conj()):
            x = leaf(3, dtype=torch.complex64)
            f(x).backward(make())
            yield x

    check_session(session)


def test_a_lazy_tangent_without_elements():
    def session(compile):
        parts = compile(lambda x, y: torch.complex(x, y))
        for make in (lambda: plain(0, 2, dtype=torch.complex64).conj(), lambda: plain(0, 2, dtype=torch.complex64)):
            x, y = leaf(0, 2), leaf(0, 2)
            z = parts(x, y)
            z.backward(make(), retain_graph=True)
            z.conj().backward(make())
            yield x, y
        x, y = leaf(0), plain(0, dtype=torch.complex64).conj().imag
        compile(lambda x: x.exp())(x).backward(y)
        yield x, y

    check_session(session)


def test_a_tangent_of_another_dtype_or_shape_is_eagers_error():
    def session(compile):
        f = compile(lambda x: x * x)
        for make in (lambda: plain(3, dtype=torch.float64), lambda: plain(1), lambda: plain(4), lambda: plain(1, 3)):
            x = leaf(3)
            y = f(x)
            yield attempt_later(lambda y=y, make=make: y.backward(make())), x

    check_session(session)


def test_the_tangent_is_not_written():
    def session(compile):
        x = leaf(3)
        tangent = plain(3, seed=2)
        compile(lambda x: x * 1)(x).backward(tangent)
        x.grad.add_(1)
        yield tangent, x

    check_session(session)


def test_a_tangent_given_as_the_gradient_is_not_shared_unless_eager_shares_it():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        tangent = plain(3, seed=2)
        out = compile(lambda x, y: (x + y, y + 0))(x, y)
        torch.autograd.backward([out[0], out[1]], [tangent, tangent])
        yield tangent, x, y, x.grad, y.grad
        with torch.no_grad():
            x.grad.add_(1)
        yield tangent, x.grad, y.grad

    check_session(session)


def test_gradients_are_added_up_in_eagers_order():
    def f(x, view):  # a complex 1 + inf is nan where inf + 1 is not
        view.zero_()
        return x.clone(), view * INF

    def session(compile):
        source = leaf(3, dtype=torch.complex64)
        x = source * 1
        out = compile(f)(x, x.view(3))
        ones = [torch.ones_like(y) for y in out]
        yield torch.autograd.grad(out, [x, source], ones, retain_graph=True)
        yield torch.autograd.grad(out[::-1], [x, source], ones)

    check_session(session)


@pytest.mark.parametrize("warm", [False, True])
def test_an_empty_tangent_lies_as_it_is_given(warm):
    """Eager takes it for contiguous, whatever its strides, and then minds them."""

    def session(compile):
        f = compile(lambda x: torch.view_as_real(x.clone()))
        if warm:
            f(leaf(0, dtype=torch.complex64))
        x = leaf(0, dtype=torch.complex64)
        out = f(x)
        yield attempt_later(lambda: out.backward(torch.ones((), device=x.device).expand(0, 2)))
        yield x.grad

    check_session(session)


_TO_NOTHING = {
    "sum": lambda x: x.sum(0),
    "of a row": lambda x: x.unsqueeze(0).sum(1),
    "mean": lambda x: x.mean(0),
    "norm": lambda x: x.norm(dim=0),
    "each": lambda x: x * 2,
}
_LYING = {
    "expanded": lambda y: torch.ones(()).expand(y.shape),
    "strided": lambda y: torch.ones(*y.shape, 2)[..., 0],
    "in rows": torch.ones_like,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("lies", _LYING.values(), ids=_LYING)
@pytest.mark.parametrize("function", _TO_NOTHING.values(), ids=_TO_NOTHING)
def test_a_gradient_without_elements_has_strides_that_follow_from_those_of_the_tangent(function, lies, create_graph):
    """A view as complex numbers minds."""

    def session(compile):
        start = torch.ones(0, dtype=torch.complex64, requires_grad=True)
        x = torch.view_as_real(start)
        y = compile(function)(x)
        given = lies(y)
        (gradient,) = torch.autograd.grad([y], [x], [given], retain_graph=True, create_graph=create_graph)
        yield gradient, gradient.stride()
        yield attempt_later(lambda: y.backward(given))
        yield start.grad

    check_session(session)


def _of_a_written_base(x):
    parts = torch.view_as_real(x)
    x.zero_()
    return parts.clone()


def _of_a_part(x):
    parts = torch.view_as_real(x[:0])
    x.zero_()
    return parts.clone()


def _two_of_written_bases(x):
    parts, flat = torch.view_as_real(x), x.view(-1)
    x.zero_()
    return parts.clone(), flat.clone()


_OF_WRITTEN = {
    "whole": (_of_a_written_base, lambda x: x.clone().t()),
    "no view": (_of_a_written_base, torch.clone),
    "part": (_of_a_part, lambda x: torch.cat([x, torch.ones(2, dtype=x.dtype)]).t()),
    "two": (_two_of_written_bases, lambda x: x.clone().t()),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("lies", _LYING.values(), ids=_LYING)
@pytest.mark.parametrize(("function", "prepare"), _OF_WRITTEN.values(), ids=_OF_WRITTEN)
def test_what_the_gradient_is_not_computed_from_minds_how_an_empty_tangent_lies(function, prepare, lies, create_graph):
    """What is a view of a written base gives it zeros where it has no elements, whatever its own gradient is."""

    def session(compile):
        x = torch.ones(0, dtype=torch.complex64, requires_grad=True)
        out = compile(function)(prepare(x))
        out = out if isinstance(out, tuple) else (out,)
        tangents = [lies(y) for y in out]
        for roots in (slice(None), slice(1), slice(1, 2)):
            yield attempt_later(
                lambda roots=roots: torch.autograd.grad(
                    out[roots], [x], tangents[roots], retain_graph=True, create_graph=create_graph, allow_unused=True
                )
            )
        for y in out:
            yield attempt_later(lambda y=y: y.abs().sum().backward(retain_graph=True, create_graph=create_graph))
            yield x.grad

    check_session(session)


_LAZILY = {
    "expanded": lambda y: torch.ones((), dtype=y.dtype).expand(y.shape),
    "overlapping": lambda y: torch.ones(sum(y.shape), dtype=y.dtype).as_strided(y.shape, (1,) * y.dim()),
    "strided": lambda y: torch.ones(*y.shape, 2, dtype=y.dtype)[..., 0],
}


@pytest.mark.parametrize("lazy", [torch.conj, lambda t: t.conj().imag, lambda t: t], ids=["conj", "neg", "plain"])
@pytest.mark.parametrize("lies", _LAZILY.values(), ids=_LAZILY)
@pytest.mark.parametrize("rows", [1, 2])
def test_a_gradient_without_elements_by_a_tangent_that_is_lazily_conjugated_or_negated(rows, lies, lazy):
    def f(x):
        y = x.unsqueeze(-2).expand(rows, 2, 0).sum(-1) * 2
        return y, y.real

    def session(compile):
        x = torch.ones(0, dtype=torch.complex64, requires_grad=True)
        y, part = compile(f)(x)
        given = lazy(lies(y))
        yield torch.autograd.grad([y if given.is_complex() else part], [x], [given])

    check_session(session)
