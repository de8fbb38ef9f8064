"""BEHAVIOUR 7 so far: randomness, grad modes, autocast, errors, and the state a call leaves behind."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Recorder, attempt, backward, check, check_session, given, leaf, plain

# -- randomness --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.rand_like(x),
        lambda x: nn.functional.dropout(x, 0.5),
        lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)),
        lambda x: x.clone().normal_(),
        lambda x: x + torch.randperm(3, device=x.device).to(x.dtype),
        lambda x: (torch.randn_like(x), x * 2)[1],
    ],
    ids=["rand_like", "dropout", "bernoulli", "normal_", "randperm", "unused"],
)
def test_random_values_and_the_generators_state_are_eagers(function):
    check(function, *[lambda: given(leaf(4, 3))] * 2)


def test_a_generator_advances_under_no_grad_too():
    def session(compile):
        f = compile(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x))
        with torch.no_grad():
            yield f(leaf(3))
        yield f(leaf(3))

    check_session(session)


# -- grad modes --------------------------------------------------------------------------------------


def test_no_grad_inside():
    def f(x, y):
        with torch.no_grad():
            z = x * y
        return z * x, z

    check(f, lambda: given(leaf(3), leaf(3, seed=1)))


def test_enable_grad_inside_a_no_grad_call():
    def f(x):
        with torch.enable_grad():
            y = x * x
        return y, x * 2

    def session(compile):
        x = leaf(3)
        with torch.no_grad():
            y, z = compile(f)(x)
            yield x, y, z
        backward([y])
        yield x

    check_session(session)


def test_a_decorated_function():
    check(torch.no_grad()(lambda x: x * 2), lambda: given(leaf(3)))


def test_the_grad_mode_set_by_the_function_is_left_as_eager_leaves_it():
    def session(compile):
        def f(x):
            y = x * 2
            torch.set_grad_enabled(False)
            return y

        try:
            yield compile(f)(leaf(3))
        finally:
            torch.set_grad_enabled(True)

    check_session(session)


def test_a_mutation_under_no_grad_of_the_caller():
    def session(compile):
        x = leaf(3)
        with torch.no_grad():
            yield compile(lambda x: x.mul_(2))(x), x

    check_session(session)


# -- autocast ----------------------------------------------------------------------------------------


def test_autocast_outside(device: str):
    def session(compile):
        f = compile(lambda x, y: x @ y)
        for enabled in (True, False, True):
            x, y = leaf(2, 3), leaf(3, 2, seed=1)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
                out = f(x, y)
            backward([out])
            yield x, y, out

    check_session(session)


def test_autocast_inside(device: str):
    def f(x, y):
        with torch.autocast(device, dtype=torch.bfloat16):
            z = x @ y
            with torch.autocast(device, enabled=False):
                w = x @ y
        return z, w

    check(f, lambda: given(leaf(2, 3), leaf(3, 2, seed=1)))


# -- the state a call depends on and leaves behind ---------------------------------------------------


def test_the_default_dtype_is_read_on_every_call():
    def session(compile):
        f = compile(lambda x: (x + torch.ones(3, device=x.device), torch.tensor([0.5], device=x.device)))
        yield f(plain(3).int())
        torch.set_default_dtype(torch.float64)
        try:
            yield f(plain(3).int())
        finally:
            torch.set_default_dtype(torch.float32)

    check_session(session)


def test_global_state_after_an_error():
    def session(compile):
        def f(x):
            with torch.no_grad():
                return x @ x

        yield attempt(lambda: compile(f)(leaf(2, 3)))
        yield torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    check_session(session)


def test_an_error_raised_by_the_function_itself():
    class Mine(Exception):
        pass

    def f(x):
        x.add_(1)
        raise Mine("on purpose")

    check(f, lambda: given(plain(3)))


def test_a_compiler_that_fails_leaves_inputs_and_state_alone():
    def failing(graph, examples):
        raise ValueError("no code for you")

    recorder = Recorder()
    recorder.forward = failing
    x = plain(3)
    f = recorder.compile(lambda x: x.add_(1))
    with pytest.raises(ValueError, match="no code for you"):
        f(x)
    assert torch.equal(x, plain(3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x,
        lambda x: x.view(7),
        lambda x: x + torch.ones(5, device=x.device),
        lambda x: x[9],
        lambda x: x.nothing,
        lambda x: torch.cat([x, x.sum()]),
        lambda x: x.int().requires_grad_(),
    ],
    ids=["matmul", "view", "broadcast", "index", "attribute", "cat", "requires_grad_"],
)
def test_an_error_of_the_program_is_eagers(function):
    check(function, lambda: given(leaf(2, 3)))


def test_an_error_of_the_program_leaves_inputs_as_eager_leaves_them():
    def f(x, y):
        x.mul_(2)
        y.t_()
        return x @ y @ x

    check(f, lambda: given(plain(2, 3), plain(2, 3, seed=1)))


# -- inference mode ------------------------------------------------------------------------------------


def _mixed(x, y):
    x.mul_(2)
    with torch.inference_mode():
        z = y * 3
        w = y[1:]
    return z, w, z[:1], x


@pytest.mark.parametrize("outside", [False, True], ids=["inside alone", "outside too"])
def test_inference_mode(outside):
    def session(compile):
        x, y = plain(3), plain(3, seed=1)
        f = compile(_mixed)
        for _ in range(2):
            with torch.inference_mode(outside):
                out = f(x, y)
            yield [t.is_inference() for t in out], out, x

    check_session(session)


def test_inference_tensors_as_arguments():
    def session(compile):
        with torch.inference_mode():
            x = plain(3)
        f = compile(lambda x, y: (x * y, x[1:]))
        out = f(x, plain(3, seed=1))
        yield [t.is_inference() for t in out], out
        with torch.inference_mode():
            yield compile(lambda x: x.add_(1))(x)

    check_session(session)


# -- autocast: outside, inside, nested, off in parts ---------------------------------------------------


def _nested_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        with torch.autocast("cpu", dtype=torch.float16):
            b = x @ y
            with torch.autocast("cpu", enabled=False):
                c = x @ y
            d = x @ y
        e = x @ y
    return a, b, c, d, e, x @ y


def _off_in_parts(x, y):
    a = x @ y
    with torch.autocast("cpu", enabled=False):
        b = a.float() @ a.float().t()
    return a, b, (b @ b).sum()


@torch.autocast("cpu", dtype=torch.bfloat16)
def _decorated(x, y):
    return (x @ y).relu()


def _wide_and_narrow(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        return a.exp(), a.pow(2).sum(), torch.cat([a, x[:, :2]]), nn.functional.mse_loss(a, a * 2), a.softmax(0)


class _CustomForward(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g @ y.t(), x.t() @ g


@pytest.mark.parametrize("outside", [False, True], ids=["inside alone", "outside too"])
@pytest.mark.parametrize(
    "function",
    [_nested_autocast, _off_in_parts, _decorated, _wide_and_narrow, lambda x, y: _CustomForward.apply(x, y) @ y.t()],
    ids=["nested", "off in parts", "decorated", "wide and narrow", "custom_fwd"],
)
def test_autocast_regions(function, outside):
    def session(compile):
        f = compile(function)
        for _ in range(2):
            x, y = leaf(2, 3), leaf(3, 2, seed=1)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outside):
                out = f(x, y)
            yield out
            backward(pytree.tree_leaves(out))
            yield x, y

    check_session(session)


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_autocast_around_the_forward_or_the_backward(forward, backwards):
    def session(compile):
        f = compile(lambda x, y: (x @ y).pow(3).exp())
        for _ in range(2):
            x, y = leaf(2, 3).div(4).detach().requires_grad_(), leaf(3, 2, seed=1).div(4).detach().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=forward):
                out = f(x, y)
            yield out
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=backwards):
                backward([out])
            yield x, y

    check_session(session)


def test_a_backward_traced_when_other_tensors_have_the_places_of_captured_ones():
    def session(compile):
        held = [plain(2, 2, seed=k) for k in range(40)]
        f = compile(lambda x: [x @ w for w in held][-1].pow(3))
        x = leaf(3, 2).detach().div(4).requires_grad_()
        out = f(x)
        yield out
        held.clear()
        with torch.autocast("cpu", dtype=torch.bfloat16):  # a backward of its own
            backward([out])
        yield x

    check_session(session)


def test_a_backward_under_autocast_after_one_without():
    def session(compile):
        f = compile(lambda x, y: (x @ y).pow(3))
        for enabled in (False, True, False):
            x, y = leaf(2, 3), leaf(3, 2, seed=1)
            out = f(x, y)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                backward([out])
            yield x, y

    check_session(session)


def test_autocast_casts_a_weight_once():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w) * (x @ w)

    check(f, *[lambda: given(leaf(2, 3), leaf(3, 2, seed=1))] * 2)


def test_a_module_under_autocast():
    def session(compile):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))
        compiled = compile(module)
        for enabled in (True, False, True):
            x = leaf(2, 3)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                out = compiled(x)
            backward([out])
            yield x, out, [p.grad for p in module.parameters()]

    check_session(session, rtol=1e-6)


def test_an_error_within_autocast_leaves_it():
    def session(compile):
        def f(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x

        yield attempt(lambda: compile(f)(leaf(2, 3)))
        yield torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    check_session(session)


# -- deterministic mode ------------------------------------------------------------------------------


def _deterministic(x, k):
    y = torch.zeros_like(x).index_put((k,), x[k], accumulate=True)
    return y + torch.zeros_like(x).scatter_add(0, k[:, None].expand(2, 3), x), torch.empty(3).isnan()


def test_deterministic_mode_is_read_on_every_call():
    def session(compile):
        f = compile(_deterministic)
        before = torch.are_deterministic_algorithms_enabled()
        try:
            for enabled in (True, True):
                torch.use_deterministic_algorithms(enabled)
                x = leaf(2, 3)
                out = f(x, torch.tensor([0, 1]))
                backward([out[0]])
                yield x, out
        finally:
            torch.use_deterministic_algorithms(before)

    check_session(session)


def test_an_op_that_deterministic_mode_forbids_raises_only_then():
    def session(compile):
        f = compile(
            lambda x: nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear").put(
                torch.tensor([0, 0]), torch.tensor([1.0, 2.0])
            )
        )
        try:
            for enabled in (False, True, False):
                torch.use_deterministic_algorithms(enabled)
                yield attempt(lambda: f(plain(2, 3)).shape)
        finally:
            torch.use_deterministic_algorithms(False)

    check_session(session)


# -- what the function sets for good -------------------------------------------------------------------


def _sets_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x * torch.ones(3)


def _sets_determinism(x):
    torch.use_deterministic_algorithms(True)
    return x * 2


def _sets_autocast(x):
    torch.set_autocast_enabled("cpu", True)
    return x @ x.t()


@pytest.mark.parametrize("function", [_sets_default_dtype, _sets_determinism, _sets_autocast])
def test_a_function_that_sets_global_state_for_good_is_refused_and_the_state_left_alone(function):
    before = _state()
    with pytest.raises(aotcheck.UnsupportedError, match="global state"):
        aotcheck.aot_function(function)(leaf(2, 3))
    assert _state() == before


def _state():
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
    )


def _restores_what_it_sets(x):
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3)
    finally:
        torch.set_default_dtype(torch.float32)
    return x * y, torch.ones(3)


def test_a_function_that_restores_what_it_sets():
    check(_restores_what_it_sets, *[lambda: given(leaf(2, 3))] * 2)


# -- grad mode, changed in every way there is --------------------------------------------------------------


def _switched(x, y):
    a = x * y
    torch.set_grad_enabled(False)
    b = a * y
    torch.set_grad_enabled(True)
    c = b * x
    with torch.set_grad_enabled(False), torch.enable_grad():
        d = c * x
    return a, b, c, d


def _written_without_grad(x, y):
    z = x * 2
    with torch.no_grad():
        z.mul_(y)
        w = z * 2
    z.add_(1)
    return z, w


def _inference_within(x, y):
    with torch.inference_mode():
        a = y.detach() * 2
        with torch.inference_mode(False):
            b = x * 3
    return a, b


@pytest.mark.parametrize("enabled", [True, False], ids=["under grad", "under no_grad"])
@pytest.mark.parametrize("function", [_switched, _written_without_grad, _inference_within])
def test_grad_mode_changed_inside(function, enabled):
    def session(compile):
        f = compile(function)
        for _ in range(2):
            x, y = leaf(3), leaf(3, seed=1)
            with torch.set_grad_enabled(enabled):
                out = f(x, y)
            yield out, torch.is_grad_enabled()
            backward([t for t in out if t.requires_grad and not t.is_inference()] or [x.sum()])
            yield x, y

    check_session(session)


# -- values that depend on no input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.arange(5).sum().item(),
        lambda x: x * 2 if torch.ones(3).equal(torch.ones(3)) else x * 3,
        lambda x: x * float(torch.tensor(2.5) * 2),
        lambda x: [x * n for n in (torch.arange(3) * 2).tolist()],
        lambda x: [x * len(n) for n in torch.ones(2, 0).tolist()],
        lambda x: torch.istft(torch.stft(x.reshape(-1).repeat(8), 8, return_complex=True), 8),
    ],
)
def test_a_value_that_depends_on_no_input_may_be_asked_for(function):
    check(function, *[lambda: given(leaf(2, 3))] * 2, rtol=1e-5)


def test_a_drawn_value_may_not_be_asked_for():
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: x * torch.rand(()).item())(plain(3))


@pytest.mark.parametrize("classes", [4, 3])
def test_one_hot_with_a_number_of_classes(classes: int):
    """Eager checks the values; where they are too large the original runs and raises."""

    def session(compile):
        f = compile(lambda x, k: nn.functional.one_hot(k, classes).to(x.dtype) @ x)
        x = leaf(classes, 2)
        for indices in ([[0, 2, 1]], [[2, 2, 0]], [[0, 1, 3]], [[0, 1, -1]], [[1, 1, 1]]):
            k = torch.tensor(indices, device=x.device)
            y = attempt(functools.partial(f, x, k))
            if isinstance(y, torch.Tensor):
                backward([y])
            yield y, x

    check_session(session)
