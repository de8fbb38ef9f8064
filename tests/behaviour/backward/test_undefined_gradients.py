"""Undefined tangents and nodes that get no gradient."""

import itertools

import pytest
import torch

from tests.behaviour.harness import Raised, Recorder, attempt_later, backward, check, session
from tests.behaviour.inputs import Given, given, leaf
from tests.behaviour.shared import INF, GivesNothing


@pytest.mark.parametrize("subset", [[0], [1], [2], [0, 2], [1, 2], []], ids=str)
def test_an_input_that_no_defined_tangent_reaches_gets_none(subset: list[int]):
    check(
        lambda x, y, z: (x * y, y * 2, z.exp()),
        lambda: given(leaf(3), leaf(3, seed=1), leaf(3, seed=2)),
        backward=subset,
    )


@session(rtol=1e-5)
def test_attention_of_a_returned_intermediate_that_gets_an_undefined_gradient(compile):
    def f(w, x):
        q = (w * x).sin()
        h = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return torch.nn.functional.scaled_dot_product_attention(w * 2, h, h).sum(), h

    compiled = compile(f)
    for roots in ((0,), (1,), (0, 1)):
        w, x = leaf(1, 1, 3, 4), leaf(1, 1, 3, 4, seed=1)
        out = compiled(w, x)
        gradients = [torch.ones_like(out[k]) for k in roots]
        yield torch.autograd.grad([out[k] for k in roots], [w, x], gradients), out


class _OfTheFirst(torch.autograd.Function):
    """Gives its second operand no gradient."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


def _through_a_view(x):
    y = x.clone()
    y[:1].mul_(x[1:])
    return y


def _filled(x):
    y = x.clone()
    y.t().zero_()
    return y


BEHIND = {
    "a write through a view": _filled,
    "one that keeps its operands": _through_a_view,
    "an op that keeps its operand": lambda x: x.sin(),
    "both": lambda x: _through_a_view(x).sin(),
    "both, the other way round": lambda x: _through_a_view(x.sin()),
    "nothing kept": lambda x: x + 1,
}

CASES = [(k, first) for k in BEHIND for first in ("backward", "write", "both") if (k, first) != ("both", "write")]


@pytest.mark.parametrize(("behind", "first"), CASES)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.soft("freed")
@session
def test_a_node_that_was_freed_or_whose_saved_tensor_was_written_gets_no_gradient(compile, behind, beside, first):
    """A write through a view is not even looked at then."""

    def f(x):
        y = BEHIND[behind](x)
        z = _OfTheFirst.apply(x, y)
        return (z, y, y.exp()) if beside else (z, y)

    x = leaf(2)
    z, y, *_ = compile(f)(x)
    if first != "write":
        y.sum().backward()
    if first != "backward":
        with torch.no_grad():
            x.add_(1)
            y.add_(1)
    yield attempt_later(lambda: z.sum().backward()), x.grad


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
@pytest.mark.soft("freed")
@session
def test_nodes_with_undefined_gradients_are_freed_checked_and_call_hooks(compile, function, keep, hooked, written):
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
        yield found and Raised(RuntimeError, "derivative for"), calls
        if found is not None:  # what has arrived by then, and what is objected to first, is a matter of order
            x.grad = y.grad = None
        yield x, y


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
def test_an_undefined_tangent_does_not_make_nan_of_zero_times_infinity(poison, subset: list[int]):
    check(lambda x: (poison(x), x * 2), lambda: given(leaf(3)), backward=subset)


@session
def test_every_subset_of_four_tangents(compile):
    def f(x, y, z):
        shared = x * y
        return shared * 2, shared.sum() + z, y * INF, z.exp() * 0

    compiled = compile(f)
    for size in range(5):
        for subset in itertools.combinations(range(4), size):
            x, y, z = leaf(3), leaf(3, seed=1), leaf(3, seed=2)
            outputs = compiled(x, y, z)
            if subset:
                backward([outputs[k] for k in subset])
            yield subset, x, y, z


def test_each_set_of_defined_tangents_is_compiled_once():
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


def test_undefined_tangents_of_multi_output_ops():
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


class Materializing(torch.autograd.Function):
    """Two results; given no gradient at all it is given zeros, if it wants that."""

    @staticmethod
    def forward(ctx, x, materializes):
        ctx.set_materialize_grads(materializes)
        ctx.save_for_backward(x)
        return x * 2, x * 5

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        if g is None and h is None:
            return None, None
        return (g if h is None else h * 2 if g is None else g + h) * x, None


def first(x, y, materializes):
    return (Materializing.apply(x, materializes)[0],)


def both(x, y, materializes):
    return Materializing.apply(x, materializes)


def behind(x, y, materializes):
    return (Materializing.apply(x, materializes)[0].exp(),)


def beside_one(x, y, materializes):
    a, b = Materializing.apply(x, materializes)
    return a + y, b


def written(x, y, materializes):
    a = x.clone()
    a[1:] = Materializing.apply(x, materializes)[0][1:]
    return (a,)


@pytest.mark.parametrize("given", [(0,), (0, 1), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("materializes", [False, True])
@pytest.mark.parametrize("function", [first, both, behind, beside_one, written])
@pytest.mark.soft("freed")
@session
def test_a_custom_function_gets_an_undefined_gradient_of_another(
    compile, function, materializes, create_graph, order, given
):
    x, y = leaf(3), leaf(3, seed=1)

    def f(x, y):
        results = function(x, y, materializes)
        return GivesNothing.apply(results[0], y), *results

    results = compile(f)(x, y)
    wanted = [results[k] for k in given if k < len(results)]

    def gradients(of):
        return torch.autograd.grad(
            of, [x, y], [torch.ones_like(r) for r in of], retain_graph=True, create_graph=create_graph,
            allow_unused=True,
        )  # fmt: skip

    for of in ([wanted, results[:1]], [results[:1], wanted])[order]:
        found = gradients(of)
        yield found
        more = [g for g in found if g is not None and g.requires_grad]
        if more:
            yield gradients(more)
    yield attempt_later(lambda: wanted[0].sum().backward())
    yield attempt_later(lambda: wanted[0].sum().backward())
    yield x.grad, y.grad


@session
def test_a_returned_operand_that_is_dropped_gets_an_undefined_gradient(compile):
    class AndItself(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gives):
            ctx.gives = gives
            return x, x * 2

        @staticmethod
        def backward(ctx, g, h):
            return (g + h if ctx.gives else None), None

    x = leaf(3)

    def f(x):
        a, b = AndItself.apply(x.clone(), True)
        return AndItself.apply(a, False)[0], b

    a, b = compile(f)(x)
    yield torch.autograd.grad(a, x, torch.ones_like(a), retain_graph=True, allow_unused=True)
    yield torch.autograd.grad(b, x, torch.ones_like(b), retain_graph=True)
    yield torch.autograd.grad([a, b], x, [torch.ones_like(a), torch.ones_like(b)])


WRITES = {
    "by a list op without a derivative": lambda x, y: torch._foreach_copy_([x], [y]),
    "by an op without a derivative": lambda x, y: x.floor_divide_(2),
    "by one that keeps it": lambda x, y: x.exp_(),
}

PLACES = {"itself": lambda x: x, "what is computed of it": lambda x: x * 1, "a view of it": lambda x: x[:2]}


@pytest.mark.parametrize("then", ["nothing", "a write"])
@pytest.mark.parametrize("way", ["backward", "gradients", "others", "inputs"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.soft("freed")
@session
def test_an_in_place_op_that_gets_an_undefined_gradient(compile, write, place, way, then):
    def f(x, y):
        t = place(x)
        write(t, y[: len(t)])
        return t, torch._foreach_mul([t, y], 2)[1]

    root, y = leaf(3), leaf(3, seed=1).requires_grad_(way in ("others", "inputs"))
    x = root * 1
    _, result = compile(f)(x, y)
    if then == "a write":
        with torch.no_grad():
            x.add_(1)
    ones = torch.ones_like(result)
    if way == "backward":
        yield attempt_later(lambda: result.backward(ones))
    elif way == "inputs":
        yield attempt_later(lambda: result.backward(ones, inputs=[y]))
    else:
        wanted = root if way == "gradients" else y
        yield attempt_later(lambda: torch.autograd.grad(result, wanted, ones, allow_unused=True))
    yield root.grad, y.grad
