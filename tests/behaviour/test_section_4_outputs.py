"""BEHAVIOUR 4: what a function returns, and what its outputs are views of."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import pytest
import torch

from tests.behaviour.harness import Given, attempt, attempt_later, backward, check, check_session, given, leaf, plain


def non_leaf(*shape: int) -> Given:
    root = leaf(*shape)
    return given(root.clone(), also=[root])


# -- fresh -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: (x + 1).t(),
        lambda x: x.sum(),
        lambda x: x.to(torch.float64),
        lambda x: x > 0,
        lambda x: x.argmax(-1),
        lambda x: x.new_zeros(0),
        lambda x: torch.complex(x, x),
        lambda x: (x * 2).unsqueeze(0).contiguous(memory_format=torch.channels_last),
        lambda x: (x * 2).expand(2, *x.shape),
        lambda x: (x * 2).detach(),
        lambda x: torch.complex(x, x).conj(),
    ],
    ids=[
        "same shape",
        "transposed",
        "zero-dim",
        "float64",
        "bool",
        "integer",
        "zero-size",
        "complex",
        "channels last",
        "expanded",
        "detached",
        "conjugate",
    ],
)
def test_a_fresh_output(function):
    check(function, lambda: given(leaf(2, 3, 2)))


def test_outputs_with_and_without_grad():
    check(lambda x, y: (x * 2, y * 2, x > y), lambda: given(leaf(3), plain(3, seed=1)))


# -- containers --------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2,),
        lambda x: [x * 2, x * 3],
        lambda x: {"z": x * 2, "a": [x * 3, (x * 4,)]},
        lambda x: Pair(x * 2, x * 3),
        lambda x: (x * 2, None, 3, 0.5, "text", True),
        lambda x: None,
        lambda x: 7,
        lambda x: (),
        lambda x: {},
    ],
    ids=[
        "one-tuple",
        "list",
        "nested, in order",
        "named tuple",
        "None and scalars",
        "None",
        "a scalar",
        "empty tuple",
        "empty dict",
    ],
)
def test_containers_survive(function):
    check(function, lambda: given(leaf(3)))


def test_the_same_object_twice_is_the_same_object_twice():
    def f(x):
        y = x * 2
        return y, [y], y.view(-1)

    check(f, lambda: given(leaf(3)))


def test_what_eager_keeps_apart_is_not_merged():
    check(lambda x: (x * 2, x * 2), lambda: given(leaf(3)))
    check(lambda x: (torch.zeros_like(x), torch.zeros_like(x)), lambda: given(plain(3)))


# -- inputs and their aliases ------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: given(leaf(3)), lambda: given(plain(3)), lambda: non_leaf(3)])
def test_an_input_returned_is_that_input(make):
    check(lambda x: (x, x * 2), make)


VIEWS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "select": lambda x: x[0],
    "expand": lambda x: x.unsqueeze(0).expand(2, 2, 3),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (2, 1), 1),
    "chain": lambda x: x.t()[1:].unsqueeze(0).permute(2, 0, 1),
    "alias of the same shape": lambda x: x.view(2, 3),
    "view of another dtype": lambda x: x.view(torch.int32),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize(
    "make",
    [lambda: given(leaf(2, 3)), lambda: given(plain(2, 3)), lambda: non_leaf(2, 3)],
    ids=["leaf", "plain", "non-leaf"],
)
def test_an_alias_of_an_input(view, make):
    check(lambda x: view(x), make)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_an_alias_of_an_intermediate(view):
    check(lambda x: view(x * 2), lambda: given(leaf(2, 3)))


def test_the_grad_fn_of_an_alias_is_that_of_its_view():
    def session(compile):
        x = leaf(2, 3)
        y = x * 1
        f = compile(lambda y: (y.t(), y.view(6), y[1:]))
        yield [type(alias.grad_fn).__name__ for alias in f(y)]

    check_session(session)


def test_an_alias_is_a_view_of_the_input_for_autograd():
    def session(compile):
        root = leaf(2, 3)
        x = root * 1
        alias = compile(lambda x: x.view(6))(x)
        alias.mul_(3)
        yield x, alias
        backward([x])
        yield root

    check_session(session)


def test_a_later_write_to_the_input_is_seen_by_the_alias_and_by_autograd():
    def session(compile):
        root = leaf(2, 3)
        x = root * 1
        alias = compile(lambda x: x[0])(x)
        x.mul_(3)
        yield x, alias
        backward([alias])
        yield root

    check_session(session)


def test_a_view_of_a_leaf_returned_is_not_written():
    def session(compile):
        x = leaf(2, 3)
        alias = compile(lambda x: x[0])(x)
        yield x, alias, attempt_later(lambda: alias.mul_(2))

    check_session(session)


def test_an_alias_of_a_mutated_input():
    def f(x):
        x.mul_(2)
        return x.view(-1), x[0]

    check(f, lambda: given(plain(2, 3)))
    check(f, lambda: non_leaf(2, 3))


def test_an_alias_made_before_the_mutation():
    def f(x):
        y = x[0]
        x.mul_(2)
        return y

    check(f, lambda: given(plain(2, 3)))
    check(f, lambda: non_leaf(2, 3))


def test_an_alias_written_and_returned():
    def f(x):
        y = x[0]
        y.mul_(2)
        return y, x.sum()

    check(f, lambda: given(plain(2, 3)))
    check(f, lambda: non_leaf(2, 3))


def test_a_real_part_of_a_complex_input():
    check(lambda x: (x.real, torch.view_as_real(x), x.conj()), lambda: given(plain(3, dtype=torch.complex64)))


# -- aliases of intermediates ------------------------------------------------------------------------


def test_an_intermediate_and_its_alias():
    def f(x):
        y = x * 2
        return y, y.view(-1)

    check(f, lambda: given(leaf(2, 3)))
    check(f, lambda: given(plain(2, 3)))


def test_several_aliases_of_an_intermediate_that_is_not_returned():
    def f(x):
        y = x * 2
        return y.t(), y[0], y.view(-1)

    check(f, lambda: given(leaf(2, 3)))


def test_a_write_to_one_alias_of_an_intermediate_is_seen_by_autograd_in_the_other():
    def session(compile):
        def f(x):
            y = x * 2
            return y.view(-1), y.t()

        x = leaf(2, 3)
        a, b = compile(f)(x)
        a.mul_(3)
        yield a, b
        backward([b])
        yield x

    check_session(session)


def test_an_intermediate_written_through_a_view():
    def f(x):
        y = x * 2
        y[0].mul_(3)
        z = y.t()
        z[1:].zero_()
        return y

    check(f, lambda: given(leaf(2, 3)))


@pytest.mark.parametrize(
    "split",
    [lambda y: y.unbind(0), lambda y: y.split(1), lambda y: y.chunk(2, 1), lambda y: torch.tensor_split(y, 2)],
    ids=["unbind", "split", "chunk", "tensor_split"],
)
def test_multi_output_views_refuse_writes_as_eagers_do(split):
    def session(compile):
        for make in (lambda: leaf(2, 4), lambda: leaf(2, 4) * 1, lambda: plain(2, 4)):
            for function in (lambda x: split(x), lambda x: split(x * 2)):
                x = make()
                outputs = compile(function)(x)
                yield x, outputs
                yield x, outputs, attempt_later(lambda outputs=outputs: outputs[0].mul_(2))

    check_session(session)
    check(lambda x: split(x * 2), lambda: given(leaf(2, 4)))


def test_views_made_under_no_grad_cut_the_gradient():
    def f(x):
        y = x * 2
        with torch.no_grad():
            z = y.view(-1)
        return y, z

    check(f, lambda: given(leaf(2, 3)))


def test_a_view_of_an_input_made_under_no_grad():
    def f(x):
        with torch.no_grad():
            return x.view(-1)

    check(f, lambda: given(leaf(2, 3)))
    check(f, lambda: non_leaf(2, 3))


def test_detached_aliases():
    def f(x):
        y = x * 2
        return y, y.detach(), x.detach()

    check(f, lambda: given(leaf(2, 3)))


def test_an_output_written_by_the_caller_before_backward_is_eagers_error_or_none():
    check(lambda x: x.exp(), lambda: given(leaf(3)), after=lambda args, y: y.add_(1) is None)
    check(lambda x: x + 1, lambda: given(leaf(3)), after=lambda args, y: y.mul_(2) is None)


def test_an_output_that_gets_requires_grad():
    def f(x):
        return (x * 2).detach().requires_grad_()

    check(f, lambda: given(leaf(3)))


def test_a_parameter_returned():
    net = torch.nn.Linear(2, 2, dtype=torch.float32)

    def f(weight, x):
        return x @ weight, weight

    check(f, lambda: given(torch.nn.Parameter(net.weight.detach().clone().fill_(2).to(plain(1).device)), plain(2, 2)))


def test_a_reshape_that_is_a_view_for_one_layout_and_a_copy_for_another():
    check(lambda x: x.reshape(-1), lambda: given(leaf(2, 3)), lambda: given(plain(3, 2).t().requires_grad_()))


def test_contiguous_returns_its_input_where_it_is():
    check(lambda x: x.contiguous(), lambda: given(leaf(2, 3)), lambda: given(plain(3, 2).t()))


def test_the_imaginary_part_of_what_is_then_written():
    def f(x):
        y = x.clone()
        part = y.imag
        y.mul_(2)
        return part

    check(f, lambda: given(leaf(3, dtype=torch.complex64)))


def test_a_result_that_is_saved_beside_views_of_it_that_eager_refuses():
    def f(x):
        v = torch.stack([x])
        parts = torch.split(v, 1)
        v.sigmoid_()
        return parts[0], v

    def session(compile):
        x = leaf()
        part, v = compile(f)(x)
        yield torch.autograd.grad(v, x, torch.ones_like(v)), v
        with pytest.raises(RuntimeError, match="is a view and its base or another view of its base"):
            _ = part.grad_fn

    check_session(session)


def test_a_view_of_what_was_made_of_a_no_grad_view_before_a_write():
    def f(x):
        v = x.t()
        with torch.no_grad():
            x.zero_()
            return v.t()

    def make():
        root = leaf(3)
        with torch.no_grad():
            view = root.t()
        return given(view, also=[root])

    check(f, make)


# -- the memory around a result ----------------------------------------------------------------------


@pytest.mark.parametrize("made", ["after", "before"])
def test_a_caller_widens_a_part_of_what_was_written(made):
    def session(compile):
        @compile
        def f(x):
            whole = torch.zeros(3)
            part = whole[:1]
            whole.add_(1)
            part.add_(1)
            return part if made == "before" else whole[:1]

        y = f(plain(1))
        yield y, y.untyped_storage().nbytes()
        yield y, y.as_strided((3,), (1,)), y.resize_(2)

    check_session(session)


@pytest.mark.parametrize("pool", [torch.max_pool1d, torch.nn.functional.max_pool1d, torch.nn.MaxPool1d(2)])
@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("lies", ["in rows", "transposed", "transposed twice"])
def test_how_the_result_of_max_pool1d_lies(lies, context, make, pool):
    def f(x):
        for _ in range({"in rows": 0, "transposed": 1, "transposed twice": 2}[lies]):
            x = x.transpose(1, 2)
        return pool(x) if isinstance(pool, torch.nn.Module) else pool(x, 2)

    def session(compile):
        x = make(2, 4, 6)
        with context():
            out = compile(f)(x)
        yield out, out.stride()

    check_session(session)


@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_the_result_of_max_pool1d_is_no_view(context):
    def f(x):
        pooled = torch.max_pool1d(x, 2)
        return pooled.detach_(), pooled[0]

    def session(compile):
        compiled = compile(f)
        for x in (plain(2, 4), plain(1, 2, 4)):
            with context():
                pooled, part = attempt(lambda x=x: compiled(x))
            yield pooled, part, getattr(part._base, "shape", None)

    check_session(session)


@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_an_op_that_hangs_on_strides_of_what_is_foretold_otherwise(make, n):
    def f(x):
        normal = torch.nn.functional.batch_norm(x.t(), None, None, training=True)
        return normal.expand(2, n, n).view(torch.uint8), x * 1

    check(f, lambda: given(make(n, n)))
