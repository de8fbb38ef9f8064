"""Custom ops, with declared mutation and views, with and without autograd and fake kernels."""

import pytest
import torch
from torch import Tensor

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, plain

pytestmark = pytest.mark.on_the_cpu

_NAMESPACE = "aotcheck_behaviour"


@torch.library.custom_op(f"{_NAMESPACE}::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


def test_an_op_without_a_fake_kernel():
    check(lambda x: twice(x) + 1, *[lambda: given(plain(2, 3))] * 2)


_SEEN: list[list[float]] = []
"""What the kernel of :func:`seen` was run on."""


@torch.library.custom_op(f"{_NAMESPACE}::seen", mutates_args=())
def seen(x: Tensor) -> Tensor:
    _SEEN.append(x.flatten().tolist())
    return x * 2


@torch.library.custom_op(f"{_NAMESPACE}::seen_unless_alike", mutates_args=())
def seen_unless_alike(x: Tensor) -> Tensor:
    _SEEN.append(x.flatten().tolist())
    if (x == x.flatten()[0]).all():
        raise ValueError("all elements are alike")
    return x * 2


def _seen_by_the_kernel_in_one_call(op) -> tuple[str, list[list[float]]]:
    """Why the call is refused, or nothing, and the values of the caller's that the kernel was run on."""
    x, refused = plain(3), ""
    _SEEN.clear()
    with aotcheck.patch_config(debug=False):  # which runs a kernel once more, to check its schema
        try:
            aotcheck.aot_function(lambda x: op(x) + 1)(x)
        except aotcheck.UnsupportedError as error:
            refused = error.reason
    return refused, [values for values in _SEEN if values == x.tolist()]


def test_a_kernel_without_a_fake_one_is_not_run_on_the_callers_values_while_tracing():
    refused, seen_of_x = _seen_by_the_kernel_in_one_call(seen)
    assert len(seen_of_x) == (0 if refused else 1), "once, where the graph runs"


def test_an_op_without_a_fake_kernel_is_refused_where_its_kernel_raises_on_other_values():
    refused, seen_of_x = _seen_by_the_kernel_in_one_call(seen_unless_alike)
    assert refused in ("no meta kernel", "op without a fake kernel") and seen_of_x == []


@torch.library.custom_op(f"{_NAMESPACE}::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x * x * x


cube.register_fake(lambda x: torch.empty_like(x))

cube.register_autograd(
    lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def test_an_op_with_autograd_and_a_fake_kernel():
    check(lambda x: cube(x * 2) + x, *[lambda: given(leaf(2, 3))] * 2)


@session
def test_a_second_derivative_of_a_custom_op(compile):
    x = leaf(3)
    (g,) = torch.autograd.grad(compile(cube)(x).sum(), x, create_graph=True)
    yield g
    backward([g])
    yield x


@session
def test_an_op_without_autograd_raises_in_the_backward_as_eager_does(compile):
    x = leaf(3)
    y = compile(twice)(x)
    yield y, attempt_later(lambda: backward([y]))


@torch.library.custom_op(f"{_NAMESPACE}::add_to", mutates_args=("x",))
def add_to(x: Tensor, y: Tensor) -> None:
    x.add_(y)


@torch.library.custom_op(f"{_NAMESPACE}::add_to_all", mutates_args=("xs", "maybe"))
def add_to_all(xs: list[Tensor], maybe: Tensor | None, y: Tensor) -> tuple[Tensor, Tensor]:
    for x in xs:
        x.add_(y)
    if maybe is not None:
        maybe.mul_(2)
    return y * 2, y * 3


_library = torch.library.Library(_NAMESPACE, "FRAGMENT")


def _define(schema: str, kernel, *, key: str = "CompositeExplicitAutograd"):
    name = _library.define(schema)
    _library.impl(name, kernel, key)
    return getattr(torch.ops.aotcheck_behaviour, name)


def _into(y, *, out):
    return out.copy_(y + 1)


scale_ = _define("scale_(Tensor(a!) x, float factor=2.0) -> Tensor(a!)", lambda x, factor=2.0: x.mul_(factor))

into = _define("into(Tensor y, *, Tensor(a!) out) -> Tensor(a!)", _into)

both_ = _define(
    "both_(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))", lambda x, y: (x.add_(1), y.mul_(3)), key="CPU"
)

parts = _define("parts(Tensor x, Tensor(a!)[] into) -> Tensor[]", lambda x, into: [into[0].add_(x) * 2, x + 1])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: add_to(x, y),
        lambda x, y: (add_to(x[0], y[0]), x * 2)[1],
        lambda x, y: (add_to(x.t(), y.t()), x)[1],
        lambda x, y: (add_to(x.t()[::2], y.t()[::2]), x.view(-1))[1],
        lambda x, y: scale_(x) is x,
        lambda x, y: scale_(x, 3.0) + y,
        lambda x, y: scale_(x[:, 1]),
        lambda x, y: into(y, out=x),
        lambda x, y: both_(x, y),
        lambda x, y: both_(x[0], y[1]) + both_(y[0], x[1]),
        lambda x, y: parts(x[0], [x[1], y]),
        lambda x, y: add_to_all([x, y[0]], None, y[1].clone()),
        lambda x, y: add_to_all([x], y, y.clone()),
    ],
)
def test_an_op_that_writes_its_arguments(function):
    check(function, *[lambda: given(plain(2, 3), plain(2, 3, seed=1))] * 2)


@pytest.mark.parametrize("inside", [False, True])
@session
def test_an_op_that_writes_an_inference_tensor(compile, inside):
    """Outside inference mode eager refuses, after the op has run; before torch 2.13 it does not."""

    compiled = compile(lambda x, y: add_to(x, y))
    for seed in range(2):
        with torch.inference_mode():
            x = plain(3, seed=seed)
        with torch.inference_mode(inside):
            result = attempt_later(lambda x=x: compiled(x, plain(3, seed=2)))
        yield result, x


@agrees(lambda: given(leaf(2, 3), plain(2, 3, seed=1)))
def test_an_op_writes_a_result_that_requires_grad_under_no_grad(x, y):
    z = x * 2
    with torch.no_grad():
        add_to(z, y)
    return z * x


@agrees(lambda: given(leaf(2, 3), plain(2, 3, seed=1)))
def test_an_op_that_writes_a_saved_tensor_makes_the_backward_raise(x, y):
    z = x * 2
    w = z * z
    with torch.no_grad():
        add_to(z, y)
    return w


def test_an_op_that_writes_inside_a_custom_function():
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.mark_dirty(x)
            ctx.save_for_backward(y)
            add_to(x, y)
            return x

        @staticmethod
        def backward(ctx, g):
            return g, cube(ctx.saved_tensors[0]) * g

    check(lambda x, y: Add.apply(x * 2, y) * y, *[lambda: given(leaf(2, 3), leaf(2, 3, seed=1))] * 2)


@torch.library.custom_op(f"{_NAMESPACE}::noisy", mutates_args=("x",), tags=(torch.Tag.nondeterministic_seeded,))
def noisy(x: Tensor) -> None:
    x.add_(torch.rand_like(x))


@agrees(*[lambda: given(plain(2, 3))] * 2)
def test_a_random_op_that_writes(x):
    noisy(x)
    return x + torch.rand(3)


def test_graphs_name_the_functional_variant_of_an_op_that_writes():
    recorder = check(lambda x, y: (add_to(x, y), scale_(y))[1], lambda: given(plain(2, 3), plain(2, 3, seed=1)))
    code = recorder.forwards[0].code
    assert "auto_functionalized" in code
    assert f"{_NAMESPACE}.add_to.default" in code
    assert f"functional_{_NAMESPACE}_scale_" in code


def test_memory_passed_twice_to_an_op_that_writes_it_is_refused():
    x = plain(2, 3)
    with pytest.raises(aotcheck.UnsupportedError, match=r"overlapping operands.*add_to"):
        aotcheck.aot_function(lambda x: add_to(x, x))(x)
    assert torch.equal(x, plain(2, 3))


row = _define("row(Tensor(a) x, int k) -> Tensor(a)", lambda x, k: x[k])


@agrees(*[lambda: given(plain(2, 3))] * 2)
def test_a_view_made_by_a_custom_op(x):
    y = row(x, 1)
    y.mul_(2)
    return y, x + 1


@agrees(lambda: given(plain(2, 3)))
def test_a_view_of_an_intermediate_made_by_a_custom_op(x):
    z = x * 2
    y = row(z, 1)
    z.add_(1)
    return y, z


square = _define("square(Tensor x) -> Tensor", lambda x: x * x, key="CPU")

square_of_any = _define("square_of_any(Tensor x) -> Tensor", lambda x: x * x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: square(x * 2) + x,
        lambda x: square_of_any(x) * x,
        lambda x: scale_(x * x, 3.0) * x,
        lambda x: (both_(y := x * 2, z := x * 3), y * z)[1],
        lambda x: row(x * 2, 1) * row(x, 0),
        lambda x: row(row(x, 1), 2),
        lambda x: into(x * 2, out=torch.empty(2, 3, device=x.device)) * x,
    ],
)
def test_gradients_go_through_a_python_kernel_without_registered_autograd(function):
    check(function, *[lambda: given(leaf(2, 3))] * 2)


def test_an_op_with_a_python_kernel_is_one_graph_node_if_no_gradient_is_recorded():
    recorder = check(lambda x: square(x) + 1, lambda: given(plain(2, 3)))
    assert f"{_NAMESPACE}.square.default" in recorder.forwards[0].code


liar_writes = _define("liar_writes(Tensor x) -> Tensor", lambda x: x.mul_(2) + 1, key="CPU")
_library.impl("liar_writes", lambda x: torch.empty_like(x), "Meta")

liar_aliases = _define("liar_aliases(Tensor x) -> Tensor", lambda x: x[0], key="CPU")
_library.impl("liar_aliases", lambda x: x.new_empty(x.shape[1:]), "Meta")


@pytest.mark.parametrize("liar", [liar_writes, liar_aliases], ids=["writes", "aliases"])
def test_debug_mode_names_an_op_whose_schema_lies(liar):
    x = plain(2, 3)
    with aotcheck.patch_config(debug=True), pytest.raises(aotcheck.SchemaError, match=str(liar)):
        aotcheck.aot_function(lambda x: liar(x * 2) + 1)(x)
    assert torch.equal(x, plain(2, 3))


def test_debug_mode_names_an_op_in_the_backward_whose_schema_lies():
    class Lying(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return liar_writes(g * 2)

    with aotcheck.patch_config(debug=True):
        y = aotcheck.aot_function(Lying.apply)(leaf(3))
        with pytest.raises(aotcheck.SchemaError, match="liar_writes"):
            y.sum().backward()


def test_debug_mode_finds_no_fault_with_honest_ops():
    def f(x, y):
        z = cube(x * 2) + twice(y)
        add_to(z, y)
        return both_(z[0], y[1]), row(z, 1), scale_(y[0])

    with aotcheck.patch_config(debug=True):
        check(f, *[lambda: given(plain(2, 3), plain(2, 3, seed=1))] * 2)
