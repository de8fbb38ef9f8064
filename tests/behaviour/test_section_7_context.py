"""BEHAVIOUR 7 so far: randomness, grad modes, autocast, errors, and the state a call leaves behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

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
