"""Written (or moved) by the caller between forward and backward."""

import functools

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import gradients
from tests.behaviour.wrappers import nested, two


def test_a_saved_input_modified_by_the_caller_is_an_error_at_backward():
    check(lambda b, x: x * b, lambda: given(plain(3), leaf(3)), after=lambda args, out: args[0].add_(1) is None)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.add_(1),
        lambda b: b[0].add_(1),
        lambda b: b.detach().add_(1),
        lambda b: b.view(-1).add_(1),
        lambda b: b.t_(),
        lambda b: b.resize_(2, 3),
    ],
    ids=["itself", "a view", "a detached alias", "a flat view", "metadata only", "resized to its own size"],
)
def test_a_saved_argument_changed_by_the_caller_before_the_backward(change):
    check(
        lambda b, x: (x * b, x + b),
        lambda: given(plain(2, 3), leaf(2, 3)),
        after=lambda args, out: change(args[0]) is None,
    )


def test_the_caller_writes_an_output_that_was_saved():
    for function in (lambda x: x.exp(), lambda x: x.sigmoid(), lambda x: x.relu(), lambda x: x * 2):
        check(function, lambda: given(leaf(3)), after=lambda args, y: y.mul_(2) is None, rtol=1e-6)


@session
def test_the_caller_writes_an_alias_of_a_saved_argument(compile):
    base, x = plain(6), leaf(3)
    y = compile(lambda b, x: x * b)(base[:3], x)
    base[3:].add_(1)
    yield attempt_later(lambda: backward([y])), x


@session
def test_the_caller_writes_a_leaf_between_forward_and_backward(compile):
    x, w = leaf(3), leaf(3, seed=1)
    y = compile(lambda x, w: x * w)(x, w)
    with torch.no_grad():
        w.add_(1)
    yield attempt_later(lambda: backward([y])), x, w


def test_an_output_written_before_the_backward_raises_exactly_where_eager_does():
    check(lambda x: x.exp(), lambda: given(leaf(3)), after=lambda args, y: y.add_(1) is None)
    check(lambda x: x + 1, lambda: given(leaf(3)), after=lambda args, y: y.mul_(2) is None)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x.mul_(2) * y,
        lambda x, y: (x[1:].mul_(2), x[:1] * y, x[1:] * y)[1:],
        lambda x, y: (x.add_(1), x.as_strided((2,), (1,), 1) * y)[1],
        lambda x, y: (x[:1].zero_(), x[1:] * y)[1],
    ],
)
@session
def test_a_saved_argument_written_through_an_alias_with_its_own_version_counter(compile, f):
    """Another tensor on the same storage counts writes by itself: eager's backward reads what is there then."""

    x, y = plain(3), leaf(1)
    other = to_device(torch.empty(0)).set_(x.untyped_storage(), 0, (3,), (1,))
    outputs = compile(f)(x, y)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    backward(outputs, retain_graph=True)
    yield y.grad.clone()
    other.fill_(7)
    backward(outputs, retain_graph=True)
    yield x, y
    x.add_(1)
    for o in outputs:
        yield attempt_later(lambda o=o: backward([o], retain_graph=True))


@session
def test_writing_an_argument_of_which_a_view_is_saved_is_an_error(compile):
    x, y = plain(3), leaf(3)
    out = compile(lambda x, y: (x.zero_(), y.view(3, 1).sin())[1])(x, y)
    with torch.no_grad():
        y.add_(1)
    yield attempt_later(lambda: backward([out]))


FOREACH = {
    "mul by a number": lambda x, y: torch._foreach_mul([x, y], 2),
    "mul": lambda x, y: torch._foreach_mul([x, y], [y, x]),
    "neg": lambda x, y: torch._foreach_neg([x, y]),
    "abs": lambda x, y: torch._foreach_abs([x, y]),
    "add": lambda x, y: torch._foreach_add([x, y], [y, y]),
    "reciprocal": lambda x, y: torch._foreach_reciprocal([x, y]),
}


@pytest.mark.soft("freed")
@pytest.mark.parametrize("written", [None, "x", "y", "result"])
@pytest.mark.parametrize("name", FOREACH)
@session
def test_what_foreach_ops_save_must_not_be_written_and_is_freed(compile, name: str, written):
    x, y = leaf(3), leaf(3, seed=1)
    results = compile(lambda x, y: tuple(FOREACH[name](x, y)))(x, y)
    if written is not None:
        with torch.no_grad():
            {"x": x, "y": y, "result": results[0]}[written].add_(1)
    for k in (0, 0, 1):
        yield attempt_later(functools.partial(gradients, results[k], (x, y)))


READS = {
    "itself": lambda w: w.sin(),
    "a transpose": lambda w: w.t().sin(),
    "a part": lambda w: w[:1].exp() * w[1:].sin(),
    "a view of a view": lambda w: w.t()[1:].sin(),
    "a product with its transpose": lambda w: w.t() @ w.t(),
    "a layer": lambda w: torch.nn.functional.linear(w.detach() * 2, w).relu(),
    "what was made of it": lambda w: (w * 2).sin(),
    "a view of what was made of it": lambda w: (w * 2).t().sin(),
    "an expanded one": lambda w: w.unsqueeze(0).expand(2, 2, 2) ** 2,
    "its shape": lambda w: w.t().gather(0, torch.zeros(2, 2, dtype=torch.int64, device=w.device)),
}

GIVEN = {
    "other data": lambda w: setattr(w, "data", plain(2, 2, seed=1)),
    "nothing": lambda w: setattr(w, "data", plain(0)),
    "itself": lambda w: setattr(w, "data", w.detach()),
    "other data, and back": lambda w: [setattr(w, "data", x) for x in (plain(5), w.detach())],
    "numbers": lambda w: w.data.mul_(2),
}


@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("read", READS)
@session
def test_the_caller_assigns_data_of_an_argument_before_its_backward(compile, read, given, is_leaf):
    compiled = compile(READS[read])
    for later in (False, True):
        root = leaf(2, 2)
        w = root if is_leaf else root * 2
        y = compiled(w)
        if not later:
            GIVEN[given](w)
        found = attempt_later(lambda y=y, w=w: torch.autograd.grad(y.sum(), w, create_graph=True))
        if isinstance(found, Raised):  # it has another shape by now
            yield "raised"
            continue
        (g,) = found
        yield g.detach()
        if later:
            GIVEN[given](w)
        found = attempt_later(lambda g=g, w=w: torch.autograd.grad((g * g).sum(), w, allow_unused=True))
        yield "raised" if isinstance(found, Raised) else found


def _written_result(x, y):
    return (x.prod(-1),)


def _written_running_result(x, y):
    return (torch.cumprod(x, 0),)


def _written_argument(x, y):
    return (torch.gather(x, 0, torch.tensor([0, 0], device=x.device)),)


def _written_for_one_of_two(x, y):
    return x * y, torch.complex(x, y)


@pytest.mark.parametrize(
    "function", [_written_result, _written_running_result, _written_argument, _written_for_one_of_two]
)
@pytest.mark.parametrize("written", ["x", "y", "alias", "output"])
@pytest.mark.parametrize("differentiable", [False, True], ids=["once", "differentiable"])
@session
def test_what_eager_saves_must_not_be_written_even_if_its_value_is_not_needed(
    compile, function, written, differentiable
):
    x, y = leaf(3), leaf(3, seed=1)
    a, b = x * 1, y * 1
    f = compile(function)
    outputs = f(a.view(3), b)
    with torch.no_grad():
        target = {"x": a, "y": b, "alias": a.detach(), "output": outputs[0].view(-1)}[written]
        target.add_(1)
    for o in outputs:
        seed = torch.ones_like(o)
        yield attempt_later(
            lambda o=o, seed=seed: torch.autograd.grad(o, x, seed, retain_graph=True, create_graph=differentiable)
        )


@pytest.mark.parametrize("make", [leaf, two, nested], ids=["plain", "two", "nested"])
@pytest.mark.parametrize("written", [0, 1, 2], ids=["the operand", "the result", "nothing"])
@pytest.mark.parametrize(
    "op",
    [
        lambda x: torch._foreach_mul([x, x * 2], 2.0)[0],
        lambda x: torch._foreach_exp([x])[0],
        lambda x: torch._foreach_add([x], [x])[0],
    ],
    ids=["mul", "exp", "add"],
)
@session
def test_what_a_foreach_op_saves_must_not_be_written_for_wrappers_too(compile, op, written, make):
    x = leaf(3) if make is leaf else make(3, grad=True)
    out = compile(op)(x)
    with torch.no_grad():
        [x, out, plain(3)][written].add_(1)
    yield attempt_later(lambda: torch.autograd.grad(out.sum(), x))


@pytest.mark.soft("freed")
@session
def test_a_leaf_view_saved_by_a_foreach_op_is_written_through_its_base(compile):
    x = plain(3)
    v = x.t().requires_grad_()

    def f(x, v):
        with torch.no_grad():
            x.mul_(2)
        return torch._foreach_mul([v], 2)[0]

    y = compile(f)(x, v)
    with torch.no_grad():
        x.zero_()
    yield attempt_later(lambda: y.sum().backward())


@pytest.mark.parametrize("size", [0, 2])
@session
def test_a_saved_result_of_matmul_with_a_vector_must_not_be_written(compile, size):
    """As ``matmul`` does with what it gives for a vector."""

    x = leaf(1)
    y, v = compile(lambda x: (lambda v: (v.sin(), v))(torch.matmul(x, torch.ones(1, size, device=x.device))))(x)
    with torch.no_grad():
        v.add_(1)
    yield attempt_later(lambda: torch.autograd.grad(y.sum(), x))


@pytest.mark.parametrize("size", [pytest.param(0, marks=pytest.mark.soft("freed")), 2])
@session
def test_a_saved_result_with_other_strides_than_its_meta_function_must_not_be_written(compile, size):
    """As a copy of an empty view does, whose base was written before."""

    a = leaf(size).clone()
    x = a.unsqueeze(0)
    x.mul_(2)

    def f(x):
        y = x.clone()
        x.mul_(y)
        return y, x

    y, x = compile(f)(x)
    with torch.no_grad():
        y.add_(1)
    yield attempt_later(lambda: x.sum().backward())
