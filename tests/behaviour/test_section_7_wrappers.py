"""BEHAVIOUR 7 for wrapper subclasses: random numbers, recomputation, autocast, grad and inference mode inside."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.behaviour.harness import check, check_session, cotangent, given, leaf, plain
from tests.behaviour.wrappers import extra, jagged, nested, quantized, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


# -- random numbers ------------------------------------------------------------------------------------


@every_class
def test_dropout(make):
    check(lambda x: torch.nn.functional.dropout(x, 0.5), lambda: given(make(3, 4, grad=True)))


def test_dropout_of_a_ragged_batch():
    check(lambda x: torch.nn.functional.dropout(x, 0.5), lambda: given(jagged(2, 3, grad=True)), probe=False)


@every_class
def test_a_write_of_random_numbers(make):
    def f(x):
        x.bernoulli_(0.5)
        return x * 2

    check(f, lambda: given(make(3, 4)))


def test_random_numbers_that_are_not_used():
    def f(x):
        torch.rand_like(x)
        return x * 2

    check(f, lambda: given(two(3, grad=True)))


def test_random_numbers_like_a_wrapper_and_like_a_plain_tensor():
    check(lambda x, y: (x + torch.rand_like(x), torch.rand_like(y)), lambda: given(tagged(3, grad=True), plain(3)))


def test_a_generator():
    def session(compile):
        generator = torch.Generator(plain(1).device).manual_seed(3)
        compiled = compile(lambda x, g: x.bernoulli_(0.5, generator=g))
        for _ in range(2):
            x = two(3, 4)
            yield compiled(x, generator), x, generator.get_state()

    check_session(session)


def test_a_forked_generator():
    def f(x):
        with torch.random.fork_rng(devices=[]):
            y = torch.nn.functional.dropout(x, 0.5)
        return y, torch.nn.functional.dropout(x, 0.5)

    check(f, lambda: given(two(4, 4, grad=True)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_recomputes_dropout(reentrant):
    def part(x):
        return torch.nn.functional.dropout(x.sin(), 0.5)

    check(lambda x: checkpoint(part, x, use_reentrant=reentrant), lambda: given(two(4, 4, grad=True)))


# -- autocast ------------------------------------------------------------------------------------------


@every_class
def test_autocast_inside(make):
    def f(x, y):
        with torch.autocast(x.device.type, torch.bfloat16):
            return x @ y

    check(f, lambda: given(make(3, 3, grad=True), make(3, 3, seed=1, grad=True)))


def test_autocast_inside_of_a_wrapper_and_a_plain_tensor():
    def f(x, y):
        with torch.autocast(x.device.type, torch.bfloat16):
            z = x @ y
            with torch.autocast(x.device.type, enabled=False):
                return z, x @ y

    check(f, lambda: given(two(3, 3, grad=True), leaf(3, 3)))


def test_autocast_around_the_call_and_off_inside():
    def session(compile):
        def f(x, y):
            z = x @ y
            with torch.autocast(x.device.type, enabled=False):
                return z, x @ y

        compiled, x, y = compile(f), two(3, 3, grad=True), two(3, 3, seed=1)
        with torch.autocast(x.device.type, torch.bfloat16):
            z, w = compiled(x, y)
        yield x, y, z, w
        (z.float() + w).sum().backward()
        yield x, y

    check_session(session)


def test_autocast_around_the_backward():
    def session(compile):
        x, y = two(3, 3, grad=True), two(3, 3, seed=1, grad=True)
        z = compile(torch.mm)(x, y)
        with torch.autocast(x.device.type, torch.bfloat16):
            z.backward(cotangent(z))
        yield x, y, z

    check_session(session)


def test_autocast_of_a_quantized_weight():
    def f(x, weight):
        with torch.autocast(x.device.type, torch.bfloat16):
            return torch.nn.functional.linear(x, weight)

    check(f, lambda: given(leaf(2, 3), quantized(4, 3)), backward=None)


# -- modes ---------------------------------------------------------------------------------------------


@every_class
def test_grad_mode_changed_inside(make):
    def f(x):
        with torch.no_grad():
            y = x * 2
        with torch.enable_grad():
            return y, x * 3

    check(f, lambda: given(make(3, grad=True)))


@every_class
def test_inference_mode_around_the_call(make):
    def session(compile):
        x = make(3)
        with torch.inference_mode():
            y = compile(lambda x: (x * 2, x.mul_(3)))(x)
        yield x, y, [t.is_inference() for t in y]

    check_session(session)
