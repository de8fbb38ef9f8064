"""BEHAVIOUR 7: custom ops, with mutation and views, with and without registered autograd and fake kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, backward, check, check_session, given, leaf, plain

_NAMESPACE = "aotcheck_behaviour"


@torch.library.custom_op(f"{_NAMESPACE}::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op(f"{_NAMESPACE}::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x * x * x


cube.register_fake(lambda x: torch.empty_like(x))
cube.register_autograd(
    lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


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


@torch.library.custom_op(f"{_NAMESPACE}::noisy", mutates_args=("x",), tags=(torch.Tag.nondeterministic_seeded,))
def noisy(x: Tensor) -> None:
    x.add_(torch.rand_like(x))


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
square = _define("square(Tensor x) -> Tensor", lambda x: x * x, key="CPU")
square_of_any = _define("square_of_any(Tensor x) -> Tensor", lambda x: x * x)
row = _define("row(Tensor(a) x, int k) -> Tensor(a)", lambda x, k: x[k])
liar_writes = _define("liar_writes(Tensor x) -> Tensor", lambda x: x.mul_(2) + 1, key="CPU")
liar_aliases = _define("liar_aliases(Tensor x) -> Tensor", lambda x: x[0], key="CPU")
_library.impl("liar_writes", lambda x: torch.empty_like(x), "Meta")
_library.impl("liar_aliases", lambda x: x.new_empty(x.shape[1:]), "Meta")


@pytest.fixture(autouse=True)
def on_the_cpu(device):
    if device != "cpu":
        pytest.skip("the kernels are the CPU's")


# -- ops that write nothing --------------------------------------------------------------------------


def test_an_op_without_a_fake_kernel():
    check(lambda x: twice(x) + 1, *[lambda: given(plain(2, 3))] * 2)


def test_an_op_with_autograd_and_a_fake_kernel():
    check(lambda x: cube(x * 2) + x, *[lambda: given(leaf(2, 3))] * 2)


def test_a_second_derivative_of_an_op():
    def session(compile):
        x = leaf(3)
        (g,) = torch.autograd.grad(compile(cube)(x).sum(), x, create_graph=True)
        yield g
        backward([g])
        yield x

    check_session(session)


def test_an_op_without_autograd_raises_in_the_backward_as_eager_does():
    def session(compile):
        x = leaf(3)
        y = compile(twice)(x)
        yield y, attempt_later(lambda: backward([y]))

    check_session(session)


# -- ops that write their arguments ------------------------------------------------------------------


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
def test_an_op_that_writes(function):
    check(function, *[lambda: given(plain(2, 3), plain(2, 3, seed=1))] * 2)


@pytest.mark.parametrize("inside", [False, True])
def test_an_op_that_writes_an_inference_tensor(inside):
    """Outside inference mode eager refuses, after the op has run; before torch 2.13 it does not."""

    def session(compile):
        compiled = compile(lambda x, y: add_to(x, y))
        for seed in range(2):
            with torch.inference_mode():
                x = plain(3, seed=seed)
            with torch.inference_mode(inside):
                result = attempt_later(lambda x=x: compiled(x, plain(3, seed=2)))
            yield result, x

    check_session(session)


def test_a_write_to_a_result_that_needs_gradients_is_eagers():
    def f(x, y):
        z = x * 2
        with torch.no_grad():
            add_to(z, y)
        return z * x

    check(f, lambda: given(leaf(2, 3), plain(2, 3, seed=1)))


def test_a_write_to_what_was_saved_raises_in_the_backward_as_eager_does():
    def f(x, y):
        z = x * 2
        w = z * z
        with torch.no_grad():
            add_to(z, y)
        return w

    check(f, lambda: given(leaf(2, 3), plain(2, 3, seed=1)))


def test_a_write_that_a_custom_function_hides():
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


def test_a_random_op_that_writes():
    def f(x):
        noisy(x)
        return x + torch.rand(3)

    check(f, *[lambda: given(plain(2, 3))] * 2)


def test_the_graph_names_the_op_to_a_compiler():
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


# -- views -------------------------------------------------------------------------------------------


def test_a_view_made_by_a_custom_op():
    def f(x):
        y = row(x, 1)
        y.mul_(2)
        return y, x + 1

    check(f, *[lambda: given(plain(2, 3))] * 2)


def test_a_view_of_an_intermediate_made_by_a_custom_op():
    def f(x):
        z = x * 2
        y = row(z, 1)
        z.add_(1)
        return y, z

    check(f, lambda: given(plain(2, 3)))


# -- ops with a kernel in Python and none for autograd, which autograd looks into ----------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: square(x * 2) + x,
        lambda x: square_of_any(x) * x,
        lambda x: scale_(x * x, 3.0) * x,
        lambda x: (both_(y := x * 2, z := x * 3), y * z)[1],
        lambda x: row(x * 2, 1) * row(x, 0),
        lambda x: row(row(x, 1), 2),
        lambda x: into(x * 2, out=torch.empty(2, 3)) * x,
    ],
)
def test_gradients_go_through_a_kernel_that_autograd_looks_into(function):
    check(function, *[lambda: given(leaf(2, 3))] * 2)


def test_such_an_op_is_one_node_where_no_gradient_is_recorded():
    recorder = check(lambda x: square(x) + 1, lambda: given(plain(2, 3)))
    assert f"{_NAMESPACE}.square.default" in recorder.forwards[0].code


# -- schemas that lie --------------------------------------------------------------------------------


@pytest.mark.parametrize("liar", [liar_writes, liar_aliases], ids=["writes", "aliases"])
def test_a_schema_that_lies_is_caught_in_debug_mode_by_the_ops_name(liar):
    x = plain(2, 3)
    with aotcheck.patch_config(debug=True), pytest.raises(aotcheck.SchemaError, match=str(liar)):
        aotcheck.aot_function(lambda x: liar(x * 2) + 1)(x)
    assert torch.equal(x, plain(2, 3))


def test_a_schema_that_lies_is_caught_in_the_backward():
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
