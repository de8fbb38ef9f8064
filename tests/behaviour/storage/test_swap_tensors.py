"""Swap_tensors anywhere."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import (
    Raised,
    agrees,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    refuses,
    session,
)
from tests.behaviour.inputs import given, given_of, leaf, plain, to_device
from tests.behaviour.wrappers import Tagged, tagged, two


@session
def test_retain_grad_of_an_argument_after_it_was_swapped(compile):
    def function(x):
        made = x * 2
        torch.utils.swap_tensors(x, made)
        x.retain_grad()
        return made * 2, x * 3

    compiled = compile(function)
    for _ in range(2):
        root = leaf(3)
        x = root * 1
        results = attempt(lambda x=x: compiled(x))
        yield root, x, results
        yield attempt_later(lambda results=results: sum(results).sum().backward()), root, x.grad


@pytest.mark.parametrize(
    "use",
    [lambda x: x.imag.zero_(), lambda x: torch.view_as_real(x).zero_(), lambda x: x[0].imag.zero_(), lambda x: x.imag],
    ids=["imag", "view_as_real", "part", "kept"],
)
@session
def test_an_argument_is_swapped_with_itself_after_a_part_was_written(compile, use):
    def f(x):
        use(x)
        torch.utils.swap_tensors(x, x)
        return x

    x = plain(2, 2, dtype=torch.complex64) * 2
    found = attempt(lambda: compile(f)(x))
    yield "raised" if isinstance(found, Raised) else found


@pytest.mark.parametrize("kept", ["swapped", "made"])
@session
def test_retain_grad_inside_of_a_swapped_tensor(compile, kept):
    def f(x):
        y = x.detach() if kept == "swapped" else x * 2
        torch.utils.swap_tensors(x, y)
        (y if kept == "swapped" else x).retain_grad()
        return y * 3

    x = leaf(2) * 1
    attempt(lambda: compile(f)(x))
    yield x.retains_grad, x


GOES = {
    "emptied": lambda x: x.set_(),
    "elsewhere": lambda x: x.set_(torch.zeros(1, dtype=x.dtype, device=x.device)),
    "stays": lambda x: None,
}

OTHERS = {"a view": lambda v: v.t(), "a result": lambda v: v * 2}


@pytest.mark.parametrize("view", [lambda x: x.conj(), lambda x: x.t(), lambda x: x[:1]], ids=["conj", "t", "part"])
@pytest.mark.parametrize("goes", GOES)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", ["written", "gone"])
def test_a_written_view_is_swapped(view, goes, other, first):
    def f(x, v):
        steps = [lambda: v.mul_(2), lambda: GOES[goes](x)]
        for step in steps if first == "written" else steps[::-1]:
            step()
        torch.utils.swap_tensors(OTHERS[other](v), v)

    def session(compile):
        root = leaf(2, 2, dtype=torch.complex64)
        x = root.clone()
        v = view(x)
        compile(f)(x, v)
        yield x, v, root
        yield attempt_later(lambda: torch.autograd.grad(v, root, torch.ones_like(v), allow_unused=True))

    check_session(session)


@pytest.mark.parametrize("with_argument", [True, False], ids=["argument", "result"])
@session
def test_the_values_of_a_jagged_tensor_were_swapped(compile, with_argument):
    def f(x, y):
        other = y if with_argument else y * 2
        torch.utils.swap_tensors(x, other)
        return torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 0, 1], device=x.device))

    x, y = plain(1, 4), plain(2, 3)
    made = compile(f)(x, y)
    yield x, y, made._values, made._values is x
    x.add_(1)
    yield x, y, made._values


@agrees(lambda: given_of(plain(3, seed=1), lambda shared: (plain(3), shared[:])))
def test_an_argument_swapped_with_a_view_is_then_set(x, y):
    v = y.t()
    y.data = x
    torch.utils.swap_tensors(x, v)
    x.set_(y)


@session
def test_the_caller_writes_an_intermediate_that_was_swapped_with_an_argument(compile):
    def f(x):
        v = x.clone()
        torch.utils.swap_tensors(x, v)
        return x, torch._foreach_mul([v], 2)

    root = leaf(3)
    x = root.clone()
    v, (w,) = compile(f)(x)
    with torch.no_grad():
        v.zero_()
    yield v is x, v, w
    yield attempt_later(lambda: torch.autograd.grad(w, root, plain(3)))


@agrees(lambda: given(plain(3), plain(4, seed=1)), lambda: given(leaf(3), leaf(4, seed=1)), anew=True)
def test_swap_tensors_of_two_inputs(x, y):
    torch.utils.swap_tensors(x, y)
    return x * 2, y * 3


@agrees(lambda: given(plain(3), plain(4, seed=1)))
def test_swap_tensors_of_an_input_and_an_intermediate(x, y):
    z = y * 2
    torch.utils.swap_tensors(x, z)
    return x * 2, z * 3


@session
def test_swap_tensors_of_an_input_with_a_post_accumulate_grad_hook(compile):
    x, seen = leaf(3), []

    def f(x):
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        y = x * 2
        torch.utils.swap_tensors(x, x.detach())
        return y

    y = compile(f)(x)
    yield x, y, attempt(lambda: y.backward(to_device(torch.ones(3)))), list(seen)


@session
def test_swap_tensors_in_inference_mode_of_a_written_view(compile):
    def f(x):
        view = x[:1]
        view.zero_()
        with torch.inference_mode():
            torch.utils.swap_tensors(view, x.topk(1)[0])
        return x * 2

    x = leaf(3)
    with torch.no_grad():
        yield compile(f)(x)
    yield x


@agrees(lambda: given(plain(3), plain(4, seed=1)))
def test_swap_tensors_twice_restores_the_inputs(x, y):
    torch.utils.swap_tensors(x, y)
    z = x * 2
    torch.utils.swap_tensors(x, y)
    return z, x * 3


@agrees(lambda: given(leaf(3), leaf(3, seed=1)), lambda: given(leaf(3), plain(2, seed=1)), anew=True)
def test_swap_tensors_of_leaves(x, y):
    z = x * x
    torch.utils.swap_tensors(x, y)
    return z, x * 2, y * 3


@agrees(lambda: given(leaf(3), plain(4), plain(2)))
def test_swap_tensors_of_three_inputs_in_a_circle(x, y, z):
    torch.utils.swap_tensors(x, y)
    torch.utils.swap_tensors(y, z)
    return x, y * 2, z


@session
def test_swap_tensors_with_a_view_made_inside_makes_the_argument_a_view(compile):
    def f(x):
        y = (x * 2)[0]
        torch.utils.swap_tensors(x, y)

    x = plain(1)
    compile(f)(x)
    made_of_it = x.view(1)
    yield x, made_of_it
    yield attempt(lambda: torch.utils.swap_tensors(x, plain(2)))  # which only its base would be kept from
    yield x


@session
def test_swap_tensors_poisons_a_leaf_that_was_used(compile):
    x, y = leaf(3), leaf(3, seed=1)
    before = x * 3
    after = compile(lambda x, y: (torch.utils.swap_tensors(x, y), x * 2)[1])(x, y)
    backward([after])
    yield after, x, y, attempt_later(lambda: backward([before]))


def test_swap_tensors_poisons_a_leaf_that_the_function_used():
    def itself(x, y):
        z = x * 3
        torch.utils.swap_tensors(x, x)
        return z

    def another(x, y):
        z = x * 3
        torch.utils.swap_tensors(x, y)
        return z + x + y

    def before_use(x, y):
        torch.utils.swap_tensors(x, y)
        return x * 2

    for f in (itself, another, before_use):

        def session(compile, f=f):
            x, y = leaf(3), leaf(3, seed=1)
            out = compile(f)(x, y)
            yield attempt_later(lambda: backward([out]))  # which gradients came before is the engine's affair

        check_session(session)


@pytest.mark.parametrize("of_leaf", [True, False])
@session
def test_gradients_of_an_input_that_was_swapped_with_an_intermediate(compile, of_leaf):
    def f(x, y):
        v = x.t() if of_leaf else x * 2
        torch.utils.swap_tensors(v, y)
        return y.clone()

    x, y = leaf(3), plain(3, seed=1)
    out = compile(f)(x, y)
    yield out, torch.autograd.grad(out, (x, y), plain(3), allow_unused=True)


@session
def test_a_reshaped_argument_is_swapped_with_a_view_of_its_alias(compile):
    def f(x):
        before = x.detach()
        x.t_()
        view = before.t()
        between = x.detach()
        x.t_()
        torch.utils.swap_tensors(x, view)
        return between

    root, compiled = leaf(2, 3), compile(f)
    with torch.no_grad():
        x = root.t()
        y = compiled(x)
    yield y, x, root


@pytest.mark.parametrize("made", [leaf, lambda *shape: leaf(*shape) * 1], ids=["leaf", "non-leaf"])
@session
def test_a_second_derivative_by_a_swapped_argument(compile, made):
    def f(x, y):
        torch.utils.swap_tensors(x, y)
        return y.exp() * x

    x, y = made(3), plain(3, seed=1)
    z = compile(f)(x, y)
    (first,) = torch.autograd.grad(z, y, torch.ones(3, requires_grad=True, device=plain(1).device), create_graph=True)
    second = torch.autograd.grad(first.sum(), y, allow_unused=True)
    yield x, y, first, second


@session(rtol=1e-5)
def test_a_view_that_one_call_wrote_is_swapped_by_another_call(compile):
    x = leaf(2, 3)
    a = x / 8
    v, other = a.t(), plain(3, 2)
    y = compile(lambda v: v.exp_() * 2)(v)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    del y
    yield attempt(lambda: compile(lambda v, other: torch.utils.swap_tensors(v, other))(v, other))
    yield a, v, other, first
    yield torch.autograd.grad(first.sum(), x, allow_unused=True)


_MADE = {
    "plain": lambda x: x.detach() * 2,
    "two": lambda x: TwoTensor(x.detach() * 2, x.detach() + 1),
    "tagged": lambda x: Tagged(x.detach() * 2, "t"),
}


@pytest.mark.parametrize("made", _MADE.values(), ids=_MADE)
@pytest.mark.parametrize("make", [plain, leaf, two, tagged, lambda *s: two(*s, grad=True)])
def test_an_argument_swapped_for_a_wrapper_is_refused(make, made):
    def f(x):
        y = made(x)
        torch.utils.swap_tensors(x, y)
        return x * 3, y

    x = make(3)
    if isinstance(made(x), TwoTensor | Tagged) or isinstance(x, TwoTensor | Tagged):
        with refuses("swapped wrapper"):
            aotcheck.aot_function(f)(x)
        assert type(x) is type(make(3))
    else:
        check(f, lambda: given(make(3)))


@pytest.mark.parametrize("first", [plain, two, tagged])
@pytest.mark.parametrize("second", [two, tagged])
def test_swapped_arguments_are_refused_if_one_is_a_wrapper(first, second):
    def f(x, y):
        torch.utils.swap_tensors(x, y)
        return x * 3, y + 1

    for x, y in ((first(3), second(3, seed=2)), (second(3, seed=2), first(3))):
        with refuses("swapped wrapper"):
            aotcheck.aot_function(f)(x, y)
        assert {type(x), type(y)} == {type(first(3)), type(second(3))}


@pytest.mark.parametrize("made", ["before", "after"])
@session
def test_a_wrapper_is_made_inside_of_a_tensor_before_or_after_it_is_swapped(compile, made: str):
    def f(d):
        x, y = d["x"], d["x"] * 2
        wrapper = Tagged(x, "before") if made == "before" else None
        torch.utils.swap_tensors(x, y)
        d["y"] = y
        return wrapper if wrapper is not None else Tagged(x, "after")

    compiled = compile(f)
    for _ in range(2):
        d = {"x": plain(3)}
        yield compiled(d), d
