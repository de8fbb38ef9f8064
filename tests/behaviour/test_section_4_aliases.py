"""BEHAVIOUR 4: what outputs are views of, for autograd, for memory and for the caller who writes them later."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.behaviour.functions import Flat, Halves, Same
from tests.behaviour.harness import (
    Given,
    attempt_later,
    backward,
    check,
    check_session,
    differentiable,
    given,
    leaf,
    plain,
    write,
)


def non_leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Given:
    root = leaf(*shape, dtype=dtype)
    return given(root * 1, also=[root])


def view_with_history(*shape: int) -> Given:
    root = leaf(2, *shape)
    base = root * 1
    return given(base[1], also=[root, base])


INPUTS = {
    "plain": lambda: given(plain(2, 4)),
    "leaf": lambda: given(leaf(2, 4)),
    "non-leaf": lambda: non_leaf(2, 4),
    "view": lambda: view_with_history(2, 4),
}


@pytest.fixture(params=INPUTS.values(), ids=INPUTS)
def make(request: pytest.FixtureRequest):
    return request.param


def describe(outputs: Any, args: Any) -> Any:
    """What autograd says about each output: whether it is a view, and of what; whether it has a node."""
    tensors = [x for x in pytree.tree_leaves((args, outputs)) if isinstance(x, torch.Tensor)]

    def of(x: torch.Tensor) -> Any:
        base = x._base
        return (
            x._is_view(),
            None if base is None else next((k for k, t in enumerate(tensors) if t is base), "another"),
            None if base is None else (tuple(base.shape), base.stride(), base.dtype, base.requires_grad),
            type(x.grad_fn).__name__ if x.grad_fn is None or "Backward" not in type(x.grad_fn).__name__ else "",
        )

    return [attempt_later(lambda x=x: of(x)) for x in tensors]


def check_views(function: Any, make: Any) -> None:
    """As `check`, and what autograd knows of each output besides, the node of a view by its name."""

    def session(compile):
        made = make()
        outputs = compile(function)(*made.args)
        yield describe(outputs, made.args)
        views = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor) and x._is_view()]
        yield [attempt_later(lambda x=x: type(x.grad_fn).__name__) for x in views]

    check_session(session)
    check(function, make)


VIEWS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[:, 1:],
    "select": lambda x: x[1],
    "ellipsis": lambda x: x[...],
    "expand": lambda x: x.unsqueeze(0).expand(2, 2, 4),
    "squeeze": lambda x: x[:1].squeeze(0),
    "permute": lambda x: x.unsqueeze(0).permute(2, 0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 2)),
    "and back": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 2)))[1],
    "dtype": lambda x: x.view(torch.int32),
    "dtype and back": lambda x: x.view(torch.int32).view(torch.float32),
    "narrower dtype": lambda x: x.view(torch.int16)[:, 2:],
    "as_strided": lambda x: x.as_strided((2, 2), (4, 2), 1),
    "as_strided of a view": lambda x: x[1:].as_strided((2,), (1,), 1),
    "long chain": lambda x: x.t()[1:].unsqueeze(0).transpose(0, 2)[:, ::2].expand(2, 2, 1),
    "detached": lambda x: x.detach(),
    "view of detached": lambda x: x.detach()[1],
    "data": lambda x: x.data[0],
    "alias": lambda x: torch.ops.aten.alias(x),
    "reshape": lambda x: x.reshape(4, 2),
    "flatten": lambda x: x.flatten(),
    "contiguous": lambda x: x.contiguous(),
    "to the same": lambda x: x.to(x.dtype),
    "view_as": lambda x: x.view_as(x),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2)[0],
    "unsafe_split": lambda x: torch.unsafe_split(x, 1)[1],
    "_unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, (8,)),
}


@pytest.fixture(params=VIEWS.values(), ids=VIEWS)
def view(request: pytest.FixtureRequest):
    return request.param


def test_an_alias_of_an_input_has_eagers_base_and_node(view, make):
    check_views(view, make)


def test_an_alias_beside_the_input_and_what_is_computed_from_it(view, make):
    check_views(lambda x: (view(x), x, x * 2), make)


def test_two_aliases_of_one_input(view, make):
    check_views(lambda x: (view(x), x[0], view(x)), make)


def test_an_alias_of_a_mutated_input(view):
    def f(x):
        before = view(x)
        x.mul_(2)
        return before, view(x), x * 1

    for kind in ("plain", "non-leaf", "view"):
        check_views(f, INPUTS[kind])


def test_an_alias_of_an_intermediate_alone(view):
    check_views(lambda x: view(x * 2), lambda: given(leaf(2, 4)))
    check_views(lambda x: view(x * 2), lambda: given(plain(2, 4)))


def test_an_alias_of_an_intermediate_and_the_base(view):
    def f(x):
        y = x * 2
        return view(y), y

    check_views(f, lambda: given(leaf(2, 4)))
    check_views(f, lambda: given(plain(2, 4)))


def test_aliases_of_an_intermediate_whose_base_is_not_returned(view):
    def f(x):
        y = x * 2
        return y[0], view(y), y.view(-1)

    check_views(f, lambda: given(leaf(2, 4)))
    check_views(f, lambda: given(plain(2, 4)))


def test_an_alias_of_a_mutated_intermediate(view):
    def f(x):
        y = x * 2
        before = view(y)
        y.mul_(3)
        return before, view(y)

    check_views(f, lambda: given(leaf(2, 4)))


def test_an_alias_made_under_no_grad(view, make):
    def f(x):
        with torch.no_grad():
            return view(x)

    check_views(f, make)


def test_an_alias_of_an_intermediate_made_under_no_grad(view):
    def f(x):
        y = x * 2
        with torch.no_grad():
            z = view(y)
        return y, z

    check_views(f, lambda: given(leaf(2, 4)))


def test_an_alias_made_under_no_grad_is_written_by_the_caller():
    def session(compile):
        def f(x):
            y = x * 2
            with torch.no_grad():
                z = y.view(-1)
            return y, z

        x = leaf(2, 4)
        y, z = compile(f)(x)
        yield attempt_later(lambda: z.mul_(2) is None)
        yield attempt_later(lambda: (z * 2, y * 2))
        yield attempt_later(lambda: backward(differentiable([y, z]))), x

    check_session(session)


def test_an_alias_made_under_no_grad_and_written_inside():
    def f(x, w):
        y = x * 2
        with torch.no_grad():
            z = y.view(-1)
        z.mul_(w)
        return y, z

    check(f, lambda: given(leaf(2, 4), plain(8)))
    check(f, lambda: given(leaf(2, 4), leaf(8)))


# -- later writes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["input", "first", "second"])
def test_a_callers_differentiable_write_is_seen_by_whom_eager_shows_it(view, target: str):
    def session(compile):
        root = leaf(2, 4)
        x = root * 1
        outputs = compile(lambda x: (view(x), x.view(-1)))(x)
        written = {"input": x, "first": outputs[0], "second": outputs[1]}[target]
        yield attempt_later(lambda: written.mul_(2) is None), x, outputs
        yield attempt_later(lambda: [(t * 3).sum() for t in (x, *outputs)]), x, outputs
        roots = [t for t in (x, *outputs) if attempt_later(lambda t=t: t.grad_fn is not None) is True]
        yield attempt_later(lambda: backward([t for t in roots if t.dtype.is_floating_point])), root

    check_session(session)


@pytest.mark.parametrize("target", [0, 1, 2])
def test_a_callers_differentiable_write_among_aliases_of_an_intermediate(view, target: int):
    def session(compile):
        def f(x):
            y = x * 2
            return view(y), y.view(-1), y[0]

        x = leaf(2, 4)
        outputs = compile(f)(x)
        yield attempt_later(lambda: outputs[target].mul_(2) is None), outputs
        roots = [t for t in outputs if attempt_later(lambda t=t: t.grad_fn is not None) is True]
        yield attempt_later(lambda: backward([t for t in roots if t.dtype.is_floating_point])), x

    check_session(session)


def test_a_fresh_output_is_not_seen_in_the_input_nor_in_another_output():
    def session(compile):
        def f(x):
            return x.clone(), x + 0, x * 1, x.contiguous().clone(), x[0].clone()

        x = leaf(2, 4)
        outputs = compile(f)(x)
        for output in outputs:
            write(output)
            yield x, outputs

    check_session(session)


def test_what_is_computed_alike_is_not_merged():
    def f(x):
        return x * 2, x * 2, x.clone(), x.clone(), x.view(-1), x.view(-1), torch.zeros(3), torch.zeros(3)

    check(f, lambda: given(leaf(3)))
    check(f, lambda: given(plain(3)))


def test_the_same_object_twice_among_views_and_inputs():
    def f(x):
        y = x.view(-1)
        z = x * 2
        w = z[0]
        return x, y, y, z, (w, w), {"x": x}

    check(f, lambda: given(leaf(2, 3)))
    check(f, lambda: non_leaf(2, 3))


def test_an_output_aliases_another_output():
    def f(x):
        y = x * 2
        z = y[0]
        return z, y, z.view(-1, 1), y.detach(), z.detach()

    check_views(f, lambda: given(leaf(2, 3)))
    check_views(f, lambda: given(plain(2, 3)))


def test_outputs_alias_one_another_through_several_bases():
    def f(x, y):
        a, b = x * 2, y * 3
        return a[0], b[0], a.t(), b.t(), x[0], y[1:]

    check_views(f, lambda: given(leaf(2, 3), leaf(2, 3, seed=1)))


# -- multi-output views ------------------------------------------------------------------------------

SPLITS = {
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(1),
    "split with sizes": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(2, 1),
    "tensor_split": lambda x: torch.tensor_split(x, 2, 1),
    "hsplit": lambda x: torch.hsplit(x, 2),
    "unsafe_split": lambda x: torch.unsafe_split(x, 1),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2),
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [1, 1]),
}


@pytest.fixture(params=SPLITS.values(), ids=SPLITS)
def split(request: pytest.FixtureRequest):
    return request.param


def test_multi_output_views_of_an_input(split, make):
    check_views(split, make)


def test_multi_output_views_of_an_intermediate(split):
    check_views(lambda x: split(x * 2), lambda: given(leaf(2, 4)))
    check_views(lambda x: (y := x * 2, split(y)), lambda: given(leaf(2, 4)))


def test_one_of_several_views_is_returned(split, make):
    check_views(lambda x: split(x)[1], make)
    check(lambda x: split(x * 2)[1], make)


def test_a_view_of_a_multi_output_view(split, make):
    check(lambda x: [y.contiguous().view(-1) for y in split(x)], make)
    check_views(lambda x: [y[0] for y in split(x)], make)


@pytest.mark.parametrize("which", [0, 1])
def test_a_multi_output_view_is_written_or_refused_as_eager_does(split, which: int):
    for kind in INPUTS.values():
        for function in (lambda x: split(x), lambda x: split(x * 2), lambda x: [y[0] for y in split(x)]):

            def session(compile, kind=kind, function=function):
                made = kind()
                outputs = compile(function)(*made.args)
                yield made.args, attempt_later(lambda: outputs[which].mul_(2) is None), outputs

            check_session(session)


def test_a_multi_output_view_written_inside(split):
    def f(x):
        split(x)[0].mul_(2)
        return x * 3

    for kind in INPUTS.values():
        check(f, kind)

    def of_an_intermediate(x):
        y = x * 2
        split(y)[0].mul_(2)
        return y

    for kind in INPUTS.values():
        check(of_an_intermediate, kind)


def test_a_multi_output_view_whose_base_the_caller_writes(split):
    def session(compile):
        root = leaf(2, 4)
        x = root * 1
        outputs = compile(split)(x)
        x.mul_(2)
        yield x, outputs
        yield attempt_later(lambda: backward([outputs[0] * 1])), root

    check_session(session)


def test_multi_output_views_made_under_no_grad(split):
    def f(x):
        with torch.no_grad():
            return split(x)

    for kind in INPUTS.values():
        check_views(f, kind)


def test_foreach_results_are_apart():
    check(lambda x, y: torch._foreach_mul([x, y], 2), lambda: given(leaf(3), leaf(3)))


# -- custom Functions --------------------------------------------------------------------------------


class TwoRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[0], x[1]

    @staticmethod
    def backward(ctx, g, h):
        return torch.stack([g, h]) * 2


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.mul_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return x, y * 2

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g * y, h * 2


@pytest.mark.parametrize("function", [Flat, TwoRows, Same], ids=lambda function: function.__name__)
def test_what_a_custom_function_gives_of_its_input(function, make):
    check(function.apply, make, probe=False)
    check(lambda x: (function.apply(x), x * 2), make, probe=False)
    check(lambda x: function.apply(x * 2), make, probe=False)


def test_a_view_made_by_a_custom_function_is_written_inside(make):
    def f(x):
        y = Flat.apply(x)
        y.mul_(3)
        return x * 2

    check(f, make)


def test_an_input_marked_dirty(make):
    check(Twice.apply, make)
    check(lambda x: (Twice.apply(x), x * 3)[1], make)


def test_an_intermediate_marked_dirty(make):
    def f(x):
        y = x * 2
        z = Twice.apply(y)
        return y, z, z is y

    check(f, make)


def test_a_view_marked_dirty(make):
    check(lambda x: (Twice.apply(x[0]), x * 3), make)

    def f(x):
        y = x * 2
        z = Twice.apply(y[0])
        return y, z

    check(f, make)


def test_one_output_marked_dirty_beside_another():
    def make() -> Given:
        root = leaf(3)
        return given(root * 1, leaf(3, seed=1), also=[root])

    check(lambda x, y: (*Dirty.apply(x, y), x), make)
    check(lambda x, y: (*Dirty.apply(x, y), x), lambda: given(plain(3), leaf(3, seed=1)))


class DirtyAndView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        view = x[None]
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, view, x[:1]

    @staticmethod
    def backward(ctx, g, h, k):
        return g * 2 + h.squeeze(0) * 3 + k.sum() * 5


@pytest.mark.parametrize("wanted", [0, 1, 2, slice(3)])
def test_views_beside_an_input_marked_dirty(wanted):
    check(lambda x: DirtyAndView.apply(x * 1)[wanted], lambda: given(leaf(3)), probe=False)


def test_an_output_marked_non_differentiable():
    check(Halves.apply, lambda: given(leaf(3)))


@pytest.mark.parametrize("how", ["no_grad", "grad"])
@pytest.mark.parametrize("view", [torch.t, lambda y: y[1:], lambda y: y.view(-1)])
def test_a_single_view_that_the_caller_writes(view, how):
    """Then autograd gives it another history, of which hooks that were registered before are not told."""

    def session(compile):
        x = leaf(3, 2)
        result = compile(lambda x: view(x.clone()))(x)
        seen = []
        result.register_hook(lambda g: seen.append(g.clone()))
        with torch.no_grad() if how == "no_grad" else torch.enable_grad():
            result.mul_(2)
        result.backward(torch.ones_like(result))
        yield seen, x.grad, result._is_view()

    check_session(session)


def _squeezed(x, y):
    z = y.clone()
    z.squeeze_(1)
    return x * z, z.data, z


def _parts(x, y):
    z = y.clone()
    return x * z.squeeze(1), z.data[:2], z.detach()[1:], z.data[1:]


@pytest.mark.parametrize("f", [_squeezed, _parts])
@pytest.mark.parametrize("which", [1, 2, 3, slice(1, 3)])
def test_aliases_that_count_their_writes_apart(f, which):
    def session(compile):
        x = leaf(3)
        product, *aliases = compile(f)(x, plain(3, 1))
        written = [product, *aliases][which] if which != 3 or f is _parts else aliases[0]
        for t in written if isinstance(written, list) else [written]:
            t.mul_(1)
        yield aliases
        yield attempt_later(lambda: torch.autograd.grad(product.sum(), x))

    check_session(session)


def test_a_write_to_the_data_of_a_result_that_was_reshaped_in_place_shows_in_a_backward():
    def session(compile):
        x = leaf(3)
        product, data, _ = compile(_squeezed)(x, plain(3, 1))
        data.zero_()
        yield torch.autograd.grad(product.sum(), x)

    check_session(session)


def test_a_conjugate_of_a_conjugate_whose_base_is_then_written():
    """To autograd that is the same op twice, not a window: a gradient that comes by it is the one that was given."""

    def session(compile):
        base = leaf(2, dtype=torch.complex64).clone()
        x = base.conj()

        def f(x):
            v = x.conj()
            x.zero_()
            return v

        y = compile(f)(x)
        g = torch.ones_like(y).requires_grad_()
        yield torch.autograd.grad(y, base, g)
        yield y.is_conj(), y.grad_fn.name()

    check_session(session)


def _names_behind(t):
    node, names = t.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.t().t_(),
        lambda x: x[1:].unsqueeze_(0).squeeze_(0),
        lambda x: torch.tensor_split(x, 2)[1].t_(),
        lambda x: (x[1:], x.t().t_()),
        lambda x: (x.t().t_(), x[1:].unsqueeze_(0)),
        lambda x: (x.t().mul_(2), x.t().t_()),
    ],
)
@pytest.mark.parametrize("kind", ["view", "no view", "leaf"])
def test_a_view_reshaped_in_place_has_the_history_with_which_it_was_made(f, kind):
    def session(compile):
        root = leaf(2, 2)
        x = root if kind == "leaf" else root.clone().t() if kind == "view" else root.clone()
        results = attempt_later(lambda: compile(f)(x))
        yield results
        for y in results if isinstance(results, tuple) else (results,):
            if isinstance(y, torch.Tensor):
                cotangent = plain(*y.shape).requires_grad_()
                (gradient,) = torch.autograd.grad(y, root, cotangent, retain_graph=True)
                yield gradient, gradient.requires_grad

    check_session(session)


@pytest.mark.parametrize("f", [lambda x: x.t().t_(), lambda x: x[1:].unsqueeze_(0).squeeze_(0)])
def test_a_view_of_a_view_reshaped_in_place_hangs_on_what_it_was_made_of(f):
    def session(compile):
        y = compile(f)(leaf(2, 2).clone().t())
        yield _names_behind(y)

    check_session(session)


@pytest.mark.parametrize("f", [lambda x: x.t().t_(), lambda x: x[1:].unsqueeze_(0).squeeze_(0)])
def test_a_view_reshaped_in_place_counts_once_however_many_arguments_share_the_counter(f):
    def session(compile):
        base = leaf(2, 2).clone()
        x = base.t()
        y = compile(lambda base, x, other: f(x))(base, x, base[1])
        yield _names_behind(y)
        yield torch.autograd.grad(y, base, plain(*y.shape))

    check_session(session)


@pytest.mark.parametrize("view", [lambda v: v, lambda v: v.t(), lambda v: v[0]])
def test_a_view_of_a_view_whose_base_was_given_that_for_data(view):
    """The base is made as it lies in the end; what gradients of the first view are transposed by is the history."""

    def f(x):
        y = x.sum(1)
        v = y.t()
        y.data = v
        return view(v)

    check(f, lambda: given(leaf(2, 1, 2)))


def test_a_view_of_what_a_function_of_the_users_gave_and_that_was_given_the_view_for_data():
    def f(x):
        y = Triple.apply(x)
        v = y.t()
        y.data = v
        return x, v

    check(f, lambda: given(leaf(1, 2)), probe=False)  # once it is written, autograd's refusal names a node


@pytest.mark.parametrize("view", [lambda x: x.real, lambda x: x.imag, torch.view_as_real])
def test_a_real_view_of_what_is_then_written_and_given_its_conjugate_for_data(view):
    """Of which there is no such view: it is made before."""

    def f(x):
        v, conjugate = view(x), x.conj()
        x.zero_()
        x.data = conjugate
        return v

    check(f, lambda: given(plain(3, dtype=torch.complex64)))


class Triple(torch.autograd.Function):
    """Gives its argument back."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3
