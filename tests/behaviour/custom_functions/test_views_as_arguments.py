"""Arguments that are views made by custom Functions, written or moved inside."""

from typing import Any

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import agrees, attempt, attempt_later, backward, check, session
from tests.behaviour.inputs import Given, given, leaf, plain
from tests.behaviour.shared import of_non_leaf


def test_a_custom_functions_view_as_an_input():
    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(2, 4)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(8) * 2

    check(lambda x: x * 3, of_non_leaf(Rows.apply))
    check(lambda x, y: (x * 3, y * 2), of_non_leaf(Rows.apply, lambda b: b[2:]))
    check(lambda x: x.mul_(2) * 3, of_non_leaf(Rows.apply))


class _ReturnsView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *grads):
        return grads[0]


class _ReturnsInput(_ReturnsView):
    @staticmethod
    def forward(ctx, x):
        return x


@pytest.mark.parametrize("written", [0, 1], ids=["itself", "base"])
@pytest.mark.parametrize("function", [_ReturnsView, _ReturnsInput])
def test_a_custom_view_read_after_a_write_is_eagers_error(function, written):
    def make():
        root = leaf(2, 2)
        base = root.clone()
        return given(function.apply(base), base, leaf(2, 2, seed=3), also=[root])

    def unused(*args):
        with torch.no_grad():
            args[written].fill_(1)
        args[0].view_as(args[0])
        return args[2] * 2

    def used(*args):
        with torch.no_grad():
            args[written].fill_(1)
        return args[0] * args[2]

    for body in (unused, used):
        check(body, make)


@pytest.mark.parametrize("before", [True, False], ids=["by the caller", "by an earlier call"])
@pytest.mark.parametrize(
    "use", [lambda x: x.zero_(), lambda x: x.detach() * 2, lambda x: x.view_as(x), lambda x: x * 2]
)
@pytest.mark.parametrize("function", [_ReturnsView, _ReturnsInput])
@session
def test_a_custom_view_argument_whose_grad_fn_is_an_error_in_eager(compile, function, use, before):
    @compile
    def f(x):
        with torch.no_grad():
            return None if use(x) is x else use(x)

    @compile
    def g(x):
        return use(x)

    root = leaf(2, 2)
    x = function.apply(root.clone())
    if before:
        with torch.no_grad():
            x.fill_(3)
    yield attempt(lambda: f(x))
    yield attempt(lambda: f(x))
    yield attempt(lambda: g(x))
    yield x.detach()


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("function", [_ReturnsView, _ReturnsInput])
@session
def test_a_custom_view_of_a_leaf_view_that_is_written(compile, function, quiet):
    def f(x):
        view = function.apply(x)
        with quiet():
            x.zero_()
        return view

    view = compile(f)(plain(2, 2).view(4).requires_grad_())
    yield view.requires_grad, view.detach()
    with pytest.raises(RuntimeError, match="has been modified inplace"):
        view.grad_fn.name()


class _Unsqueezes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].squeeze(0)


def test_a_view_of_a_custom_view_whose_base_is_set_or_moved():
    def base_set(x, view, y):
        v = view.mT
        x.set_(y)
        return v

    def given_data(x, view, y):
        view.data = view.clone()
        v = view.t()
        with torch.no_grad():
            view.zero_()
        return v

    def make() -> Given:
        roots = leaf(2), leaf(2, seed=1)
        x = roots[0] * 2
        return given(x, _Unsqueezes.apply(x), _Unsqueezes.apply(roots[1] * 2), also=roots)

    for body in (base_set, given_data):
        check(body, make, backward=None, probe=False)


class _ReturnsIt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


@agrees(lambda: given(_ReturnsIt.apply(leaf())), backward=None, probe=False)
def test_a_view_of_a_view_of_a_custom_result_made_before_a_write(x):
    v = x.t().t()
    with torch.no_grad():
        x.zero_()
    return v


@pytest.mark.parametrize("told", [True, False])
@agrees(lambda: given(View.apply(plain(2))))
def test_a_custom_view_whose_storage_grew_before_a_write(x, *, told):
    torch.ops.inductor.resize_storage_bytes_.default(x, 32)
    v = x.as_strided((2,), (4,))
    x.requires_grad_(told)
    x.zero_()
    return v[0]


@session
def test_the_base_of_a_custom_view_is_written_after_the_view_was_used(compile):
    def f(x, y):
        z = y * 3
        with torch.no_grad():
            x.add_(1)
        return z

    root = leaf(3)
    base = root * 2
    z = compile(f)(base, View.apply(base))
    yield z, base, attempt_later(lambda: backward([z])), root.grad


@session
def test_detach_in_place_of_a_custom_view_is_eagers_error(compile):
    def f(x, y):
        x.untyped_storage().resize_(0)
        y.detach_()

    x, y = plain(3), View.apply(leaf(3))
    yield attempt_later(lambda: compile(f)(x, y)), x.untyped_storage().nbytes(), y
