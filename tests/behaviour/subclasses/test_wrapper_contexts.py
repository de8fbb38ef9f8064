"""Random numbers, autocast, modes, dispatch modes with wrappers."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor, TwoTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tests.behaviour.harness import agrees, attempt, attempt_later, check, cotangent, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import extra, jagged, quantized, tagged, two


@pytest.mark.parametrize("make", [two, extra, tagged], ids=lambda make: make.__name__)
@session
def test_broadcast_of_a_wrapper_with_a_leaf_in_inference_mode(compile, make):
    def inside(x, y):
        with torch.inference_mode():
            return torch.broadcast_tensors(x, y)

    compiled = compile(inside)
    for y in (leaf(2, 3), leaf(2, 3).requires_grad_(False)):
        yield attempt(lambda y=y: compiled(make(2, 3, grad=False), y))


@session
def test_a_detached_alias_of_a_wrapper_made_in_inference_mode(compile):
    x = two(3)
    with torch.inference_mode():
        y = compile(lambda x: TwoTensor(x, x).detach())(x)
    # Its class cannot detach it again, outside.
    yield type(y), y.is_inference(), [(type(t), t.is_inference(), t.a, t.b) for t in (y.a, y.b)], x


class Doubling(TorchDispatchMode):
    """Changes what an op gives."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func in (torch.ops.aten.sin.default, torch.ops.aten.cos.default) else out


@pytest.mark.parametrize("make", [leaf, lambda *s: two(*s, grad=True), lambda *s: tagged(*s, grad=True)])
@session(rtol=1e-6)
def test_a_dispatch_mode_around_some_calls_changes_results(compile, make):
    compiled = compile(lambda x: x.sin() + x.cos() * 2)
    for active in (False, True, False):
        x = make(3)
        if active:
            with Doubling():
                y = compiled(x)
                y.backward(cotangent(y))
        else:
            y = compiled(x)
            y.backward(cotangent(y))
        yield x, y


@session(rtol=1e-6)
def test_a_dispatch_mode_around_the_backward_alone_changes_gradients(compile):
    x = leaf(3)
    y = compile(lambda x: x.sin() * x)(x)
    with Doubling():
        y.backward(to_device(torch.ones(3)))
    yield x, y


@session(rtol=1e-6)
def test_a_dispatch_mode_around_the_forward_alone_changes_results(compile):
    x = leaf(3)
    with Doubling():
        y = compile(lambda x: x.sin() * x)(x)
    y.backward(to_device(torch.ones(3)))
    yield x, y


@session
def test_a_dispatch_mode_that_makes_wrappers_around_the_forward_alone(compile):
    compiled = compile(lambda x: torch.zeros(3, device=x.device) + x)
    for _ in range(2):
        x = leaf(3)
        with TwoTensorMode():
            y = compiled(x)
        yield x, y, attempt_later(lambda: y.backward(cotangent(y))), x  # noqa: B023


class Logging(TorchDispatchMode):
    """Notes which ops run."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@session
def test_a_dispatch_mode_around_the_call_sees_eagers_ops(compile):
    compiled = compile(lambda x: (x * 2).sin())
    with Logging() as mode:
        y = compiled(plain(3))
    yield y, mode.seen


@session(rtol=1e-6)
def test_a_dispatch_mode_around_a_call_that_writes_an_argument(compile):
    def f(x, w):
        x.add_(w.sin())
        return x.t(), x * 2

    compiled = compile(f)
    for make in (plain, two):
        x, w = make(2, 3), make(2, 3, seed=1)
        with Doubling():
            y = compiled(x, w)
        yield x, w, y


@session(rtol=1e-6)
def test_a_dispatch_mode_around_a_call_with_a_jagged_tensor(compile):
    x = jagged(2, 3, grad=True)
    with Doubling():
        y = compile(lambda x: x.sin())(x)
    y.backward(torch.ones_like(y))
    yield x, y


@session
def test_a_wrapper_argument_is_written_in_a_call_under_inference_mode(compile):
    def f(x):
        return x.mul_(2) + 1

    x = two(3)
    g = compile(f)
    with torch.inference_mode():
        y = g(x)
    yield x, y


@session
def test_a_dispatch_mode_that_makes_wrappers_around_one_of_two_calls(compile):
    f = compile(lambda x: x * torch.ones(3, device=x.device))
    with TwoTensorMode():
        y = f(plain(3))
    yield f(plain(3)), y


@session
def test_autocast_around_a_call_with_wrappers(compile):
    f = compile(lambda x, w: x @ w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = f(two(2, 3), two(3, 2))
    yield y, f(two(2, 3), two(3, 2))


@session
def test_no_grad_around_a_call_with_a_wrapper(compile):
    f = compile(lambda x: (x * x, x.view(-1)))
    with torch.no_grad():
        yield f(two(3, grad=True))
    yield f(two(3, grad=True))


@every_class
def test_dropout_of_a_wrapper(make):
    check(lambda x: torch.nn.functional.dropout(x, 0.5), lambda: given(make(3, 4, grad=True)))


@every_class
@agrees(lambda make: given(make(3, 4)))
def test_random_numbers_are_written_into_a_wrapper(x):
    x.bernoulli_(0.5)
    return x * 2


@agrees(lambda: given(two(3, grad=True)))
def test_unused_random_numbers_like_a_wrapper_are_drawn(x):
    torch.rand_like(x)
    return x * 2


def test_random_numbers_like_a_wrapper_and_like_a_plain_tensor():
    check(lambda x, y: (x + torch.rand_like(x), torch.rand_like(y)), lambda: given(tagged(3, grad=True), plain(3)))


@session
def test_a_generator_argument_fills_a_wrapper(compile):
    generator = torch.Generator(plain(1).device).manual_seed(3)
    compiled = compile(lambda x, g: x.bernoulli_(0.5, generator=g))
    for _ in range(2):
        x = two(3, 4)
        yield compiled(x, generator), x, generator.get_state()


@agrees(lambda: given(two(4, 4, grad=True)))
def test_dropout_of_a_wrapper_in_fork_rng(x):
    with torch.random.fork_rng(devices=[]):
        y = torch.nn.functional.dropout(x, 0.5)
    return y, torch.nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_recomputes_dropout_of_a_wrapper(reentrant):
    def part(x):
        return torch.nn.functional.dropout(x.sin(), 0.5)

    check(lambda x: checkpoint(part, x, use_reentrant=reentrant), lambda: given(two(4, 4, grad=True)))


@every_class
@agrees(lambda make: given(make(3, 3, grad=True), make(3, 3, seed=1, grad=True)))
def test_autocast_inside_with_wrappers(x, y):
    with torch.autocast(x.device.type, torch.bfloat16):
        return x @ y


@agrees(lambda: given(two(3, 3, grad=True), leaf(3, 3)))
def test_autocast_inside_of_a_wrapper_and_a_plain_tensor(x, y):
    with torch.autocast(x.device.type, torch.bfloat16):
        z = x @ y
        with torch.autocast(x.device.type, enabled=False):
            return z, x @ y


@session
def test_autocast_around_a_call_with_wrappers_and_off_inside(compile):
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


@session
def test_autocast_around_the_backward_of_wrappers(compile):
    x, y = two(3, 3, grad=True), two(3, 3, seed=1, grad=True)
    z = compile(torch.mm)(x, y)
    with torch.autocast(x.device.type, torch.bfloat16):
        z.backward(cotangent(z))
    yield x, y, z


@agrees(lambda: given(leaf(2, 3), quantized(4, 3)), backward=None)
def test_autocast_inside_with_a_quantized_weight(x, weight):
    with torch.autocast(x.device.type, torch.bfloat16):
        return torch.nn.functional.linear(x, weight)


@every_class
@agrees(lambda make: given(make(3, grad=True)))
def test_grad_mode_is_changed_inside_with_a_wrapper(x):
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad():
        return y, x * 3


@every_class
@session
def test_inference_mode_around_a_call_that_writes_a_wrapper(compile, make):
    x = make(3)
    with torch.inference_mode():
        y = compile(lambda x: (x * 2, x.mul_(3)))(x)
    yield x, y, [t.is_inference() for t in y]
