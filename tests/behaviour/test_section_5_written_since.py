"""BEHAVIOUR 5: backwards of what was written, or moved unseen by autograd, since it was saved."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.utils.checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, check_session, leaf, plain
from tests.behaviour.wrappers import jagged, nested, two

# -- what was written since -----------------------------------------------------------------------------


def _written_result(x, y):
    return (x.prod(-1),)


def _written_running_result(x, y):
    return (torch.cumprod(x, 0),)


def _written_argument(x, y):
    return (torch.gather(x, 0, torch.tensor([0, 0])),)


def _written_for_one_of_two(x, y):
    return x * y, torch.complex(x, y)


@pytest.mark.parametrize(
    "function", [_written_result, _written_running_result, _written_argument, _written_for_one_of_two]
)
@pytest.mark.parametrize("written", ["x", "y", "alias", "output"])
@pytest.mark.parametrize("differentiable", [False, True], ids=["once", "differentiable"])
def test_what_eager_saves_must_not_be_written_even_if_its_value_is_not_wanted(function, written, differentiable):
    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("lazy", [torch.conj, lambda z: z.conj().imag, lambda z: z.t()], ids=["conj", "neg", "no"])
def test_a_write_through_a_lazy_view_keeps_its_result_whatever_wrote_such_a_view_before(lazy):
    def session(compile):
        before = leaf(3, dtype=torch.complex64) * 1
        yield attempt_later(lambda: compile(lambda x: x.real.copy_(plain(3)))(before).sum().backward())
        x = leaf(3, dtype=torch.complex64)
        y = compile(torch.Tensor.exp_)(lazy(x * 1))
        with torch.no_grad():
            y.add_(1)
        yield attempt_later(lambda: torch.autograd.grad(y, x, torch.ones_like(y)))

    check_session(session)


@pytest.mark.parametrize(
    "lazy", [torch.conj, lambda z: z.conj().imag, lambda z: z.conj()[:2]], ids=["conj", "neg", "part"]
)
@pytest.mark.parametrize("write", [torch.Tensor.mul_, torch.Tensor.copy_, lambda v, y: v.addcmul_(y, y)])
@pytest.mark.parametrize("also", [True, False])
def test_a_write_through_a_lazy_view_keeps_its_operands(lazy, write, also):
    def session(compile):
        x = leaf(3, dtype=torch.complex64)
        y = (leaf(1) if also else plain(1)) * 1
        v = lazy(x * 1)
        compile(write)(v, y)
        with torch.no_grad():
            y.zero_()
        yield attempt_later(lambda: torch.autograd.grad(v, x, torch.ones_like(v)))

    check_session(session)


@pytest.mark.parametrize("where", ["around", "inside"])
def test_a_write_through_a_view_keeps_its_result_whatever_hooks_packed_such_a_one_before(where):
    hooks = torch.autograd.graph.saved_tensors_hooks
    nothing = contextlib.nullcontext

    def f(x):
        with hooks(lambda t: t, lambda t: t) if where == "inside" else nothing():
            return x.sigmoid_()

    def session(compile):
        with hooks(lambda t: t, lambda t: t) if where == "around" else nothing():
            y = compile(f)((leaf(3) * 1)[:2])
        yield attempt_later(lambda: y.sum().backward())
        x = leaf(3)
        y = compile(torch.Tensor.sigmoid_)((x * 1)[:2])
        with torch.no_grad():
            y.add_(1)
        yield attempt_later(lambda: torch.autograd.grad(y, x, torch.ones_like(y)))

    check_session(session)


class _Dirty(torch.autograd.Function):
    runs = 0

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        _Dirty.runs += 1
        (x,) = ctx.saved_tensors
        return g * x


_WRITES = {
    "relu_": lambda x, y: torch.relu_(x),
    "exp_": lambda x, y: x.exp_(),
    "mul_": lambda x, y: x.mul_(y),
    "add_": lambda x, y: x.add_(y),
    "zero_": lambda x, y: x.zero_(),
    "pow_": lambda x, y: x.pow_(2),
    "part": lambda x, y: x[:2].sigmoid_(),
    "custom": lambda x, y: _Dirty.apply(x),
    "custom of a part": lambda x, y: _Dirty.apply(x[:2]),
    "list": lambda x, y: torch._foreach_mul_([x[:1], x[1:]], [y[:1], y[1:]]),
}


@pytest.mark.parametrize("op", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("written", ["x", "y", "base", "output", "nothing"])
def test_what_a_write_through_a_view_saves_must_not_be_written(op, written):
    def f(x, y):
        op(x, y)
        return x[:], x * 1

    def session(compile):
        for part in (0, 1):
            root, other = leaf(2, 3), leaf(3, 2, seed=1)
            base, y = root * 1, other * 1
            x = base.t()
            outputs = compile(f)(x, y)
            with torch.no_grad():
                target = {"x": x, "y": y, "base": base, "output": outputs[0], "nothing": plain(2)}[written]
                target.add_(1)
            wanted, out = [root, other], outputs[part]
            yield attempt_later(
                lambda: torch.autograd.grad(out, wanted, plain(3, 2), allow_unused=True)  # noqa: B023
            )

    check_session(session)


class _Snapshot(torch.autograd.Function):
    """Keeps past autograd what it computed of its operands, which no result needs."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.kept = y.clone(), (x * y).sin()
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.kept[0], g * ctx.kept[1]


@pytest.mark.parametrize("make", [leaf, two, nested], ids=["plain", "two", "nested"])
def test_what_a_custom_function_keeps_past_autograd_is_as_it_was_in_the_forward(make):
    def session(compile):
        x, y = (leaf(3), leaf(3, seed=1)) if make is leaf else (make(3, grad=True), make(3, seed=1, grad=True))
        f = compile(lambda x, y: _Snapshot.apply(x, y) * 1)
        for _ in range(2):
            out = f(x, y)
            with torch.no_grad():
                x.add_(1)
                y.mul_(2)
            yield torch.autograd.grad(out.sum(), [x, y])

    check_session(session)


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
def test_what_an_op_on_lists_keeps_must_not_be_written(op, written, make):
    def session(compile):
        x = leaf(3) if make is leaf else make(3, grad=True)
        out = compile(op)(x)
        with torch.no_grad():
            [x, out, plain(3)][written].add_(1)
        yield attempt_later(lambda: torch.autograd.grad(out.sum(), x))

    check_session(session)


def test_a_view_written_by_one_call_and_by_the_next():
    def session(compile):
        x = (leaf(2, 3) * 1).t()
        f = compile(lambda x: x.relu_())
        f(x)
        f(x)
        yield attempt_later(lambda: x.backward(plain(3, 2)))

    check_session(session)


def test_the_backward_of_a_custom_write_through_a_view_is_traced_once():
    root = leaf(2, 3)
    base = root * 1
    _Dirty.runs = 0
    aotcheck.aot_function(lambda x: _Dirty.apply(x) * 2, fw_compiler=aotcheck.nop)(base.t())
    assert _Dirty.runs <= 1  # and not run to find out what it keeps


@pytest.mark.parametrize("written", ["x", "y", "mask", "nothing"])
def test_what_a_checkpoint_is_given_must_not_be_written(written):
    def f(x, y, mask):
        return torch.utils.checkpoint.checkpoint(
            lambda x, y, mask: torch.sin(x * y).masked_fill(mask, 0), x, y, mask, use_reentrant=False
        )

    def session(compile):
        x, y, mask = leaf(3) * 1, plain(3), plain(3) > 0
        out = compile(f)(x, y, mask)
        with torch.no_grad():
            {"x": x, "y": y, "mask": mask, "nothing": plain(2)}[written].zero_()
        yield attempt_later(lambda: out.sum().backward())

    check_session(session)


_SAVED_TWICE = {
    "exp": lambda x: x.exp(),
    "sin": lambda x: x.sin(),
    "mul": lambda x: x * x,
    "cumsum": lambda x: (x * 2).cumsum(0),
    "tanh of a part": lambda x: torch.cat([x[:1].tanh(), x[1:]]),
    "exp_": lambda x: x.exp_(),
    "exp_ of a view": lambda x: (x[:].exp_(), x)[1],
}


@pytest.mark.parametrize("op", _SAVED_TWICE.values(), ids=_SAVED_TWICE)
@pytest.mark.parametrize("written", ["x", "output", "tangent", "gradient", "nothing"])
@pytest.mark.parametrize("strided", [False, True])
def test_what_a_backward_saves_for_its_own_must_not_be_written(op, written, strided):
    def session(compile):
        root = leaf(3)
        x = root * 1
        out = compile(op)(x)
        tangent = plain(6)[::2].requires_grad_() if strided else leaf(3, seed=1)
        (gradient,) = torch.autograd.grad(out, root, tangent, create_graph=True)
        with torch.no_grad():
            tensors = {"x": x, "output": out, "tangent": tangent, "gradient": gradient, "nothing": plain(2)}
            tensors[written].add_(1)
        yield attempt_later(
            lambda: torch.autograd.grad(gradient, [root, tangent], plain(3), allow_unused=True, retain_graph=True)
        )

    check_session(session)


def test_what_two_backwards_save_for_a_third_must_not_be_written():
    def session(compile):
        root = leaf(3)
        x = root * 1
        out = compile(torch.sin)(x)
        (first,) = torch.autograd.grad(out.sum(), root, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), root, create_graph=True)
        with torch.no_grad():
            x.add_(1)
        yield attempt_later(lambda: torch.autograd.grad(second.sum(), root))

    check_session(session)


def test_a_second_derivative_by_an_argument_whose_history_has_another_shape():
    def f(x):
        x.unsqueeze_(0)
        x.zero_()
        return x.sin()

    def session(compile):
        root = leaf(3, dtype=torch.complex64)
        x = torch.view_as_real(root * 1)
        out = compile(f)(x)
        (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        yield gradient
        yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), root))

    check_session(session)


@pytest.mark.parametrize("op", [torch.relu_, torch.tanh_, torch.exp_], ids=["relu_", "tanh_", "exp_"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_second_derivative_by_a_written_argument_whose_graph_was_freed(op, keep):
    def session(compile):
        root = leaf(3)
        x = root * 1
        compile(op)(x)
        (gradient,) = torch.autograd.grad(x.sum(), root, create_graph=True, retain_graph=keep)
        yield gradient
        yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), root))

    check_session(session)


# -- arguments that move unseen by autograd ----------------------------------------------------------------


def _to_a_part(x):
    v = x[1:]
    x.data = v
    return v * 1, v


def _to_its_transpose(x):
    v = x[1:]
    x.data = x.data.t()
    return v * 1, v


def _a_view_of_a_view(x):
    v = x[1:].t()
    x.data = x[:2]
    return v


@pytest.mark.parametrize("function", [_to_a_part, _to_its_transpose, _a_view_of_a_view])
@pytest.mark.parametrize("through_a_non_leaf", [False, True], ids=["leaf", "non-leaf"])
def test_a_view_of_an_argument_whose_data_is_then_set_leads_to_where_it_was(function, through_a_non_leaf):
    def session(compile):
        x = leaf(4, 2)
        argument = x * 1 if through_a_non_leaf else x
        results = compile(function)(argument)
        results = results if isinstance(results, tuple) else (results,)
        yield argument, results
        yield torch.autograd.grad(results, x, [torch.ones_like(r) for r in results])

    check_session(session)


def _by_data(x, y):
    v = torch.ones(3)
    z = x * v
    v.data.mul_(z.detach())
    return z


def _by_a_detached_alias(x, y):
    v = y.clone()
    z = x * v
    v.detach().data.add_(z.detach())
    return z


def _by_running_statistics(x, y):
    v = torch.ones(3)
    z = x.view(1, 3) * v
    torch.nn.functional.batch_norm(z.repeat(2, 1), v, y, training=True)
    return z


@pytest.mark.parametrize("function", [_by_data, _by_a_detached_alias, _by_running_statistics])
@pytest.mark.parametrize("written", ["nothing", "the result", "the argument"])
def test_what_is_saved_is_what_the_function_left_there_unseen_whatever_is_written_since(function, written):
    def session(compile):
        x, y = leaf(3), plain(3, seed=1)
        z = compile(function)(x, y)
        with torch.no_grad():
            if written == "the result":
                z.mul_(2)
            elif written == "the argument":
                y.mul_(2)
        yield z, x, y
        yield attempt_later(lambda: z.sum().backward()), x


def _data_and_itself(x, w):
    return x.data * w, x * w


def _set_to_its_memory(x, w):
    y = torch.empty(0)
    y.set_(x.detach())
    return y * w


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: torch.addcmul(w, x.data, x),
        lambda x, w: x.detach() * w,
        _data_and_itself,
        _set_to_its_memory,
    ],
    ids=["data", "detach", "both", "set_"],
)
def test_what_is_saved_of_memory_by_an_alias_that_counts_by_itself(f):
    def session(compile):
        root, w = leaf(3), leaf(3, seed=2)
        x = root.clone()
        results = compile(f)(x, w)
        with torch.no_grad():
            x.mul_(2)
        for r in results if isinstance(results, tuple) else (results,):
            yield attempt_later(lambda r=r: torch.autograd.grad(r.sum(), (root, w), allow_unused=True))

    check_session(session)


@pytest.mark.parametrize("place", [lambda y: y.as_strided((6,), (1,)), lambda y: y.as_strided((6,), (0,), 2)])
def test_what_an_argument_saves_that_was_given_memory_of_a_result_is_what_that_holds_by_then(place):
    def f(x):
        y = x.sin()
        x.data = place(y)
        return y

    def session(compile):
        x = leaf(6)
        y = compile(f)(x)
        with torch.no_grad():
            y.copy_(plain(6, seed=3))
        yield attempt_later(lambda: torch.autograd.grad(y.sum(), x))

    check_session(session)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[0]], ids=["itself", "t", "row"])
@pytest.mark.parametrize("write", [lambda x: x.mul_(x), lambda x: x.mul_(2), lambda x: x.exp_().add_(1)])
@pytest.mark.parametrize("end", ["leaf", "base", "view"])
def test_a_backward_that_ends_at_what_was_written_runs_the_write(view, write, end):
    def session(compile):
        x = leaf(2, 2)
        base = x * 1
        argument = view(base)
        y = compile(lambda x: write(x) * 1)(argument)
        to = {"leaf": x, "base": base, "view": argument}[end]
        yield attempt_later(lambda: y.sum().backward(inputs=[to], retain_graph=True)), x
        found = attempt_later(lambda: torch.autograd.grad(y.sum(), to, retain_graph=True))
        yield [g.contiguous() for g in found] if isinstance(found, tuple) else found
        yield attempt_later(lambda: y.sum().backward(inputs=[to])), x
        yield attempt_later(lambda: y.sum().backward()), x

    check_session(session)


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x * x, (4,)),
        (lambda x: x @ x, (1, 2)),
        (torch.nn.functional.softplus, (4,)),
        (lambda x: torch.nn.functional.layer_norm(x, (2,)), (4,)),
        (lambda x: torch.nn.functional.layer_norm(x, (2,)), (2, 1, 2)),  # which suits the kernel
    ],
    ids=["mul", "matmul", "softplus", "layer_norm", "suitable"],
)
def test_what_was_saved_has_another_shape_by_the_backward_and_the_kernel_says_so(f, shape):
    def moved(x):
        y = f(x)
        x.data = torch.ones(shape)
        return y

    def session(compile):
        x = leaf(2, 2)
        y = compile(moved)(x)
        yield attempt_later(lambda: torch.autograd.grad(y.sum(), x))

    check_session(session)


# -- what leads to nobody --------------------------------------------------------------------------------


def _index_written(v, x):
    index = torch.zeros(3, dtype=torch.long)
    y = torch.gather(v, 0, index).copy_(x)
    index.zero_()
    return y


WRITTEN_INSIDE = {
    "index": _index_written,
    "own result": lambda v, x: torch.amax(v, 0, keepdim=True).copy_(x[:1]),
    "through a view": lambda v, x: (y := torch.amax(v, 0, keepdim=True), y[:].copy_(x[:1]))[0],
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("function", WRITTEN_INSIDE.values(), ids=WRITTEN_INSIDE)
def test_a_node_that_leads_nowhere_raises_where_what_it_keeps_was_written(function, mode):
    """A view of which autograd was not told requires grad as its base does, and gradients that come to it end there."""

    def session(compile):
        x = leaf(3)
        with mode():
            v = x.view(3)
        y = compile(function)(v, x)
        yield torch.autograd.grad(y.sum(), [x], retain_graph=True)  # which does not come by it
        yield attempt_later(lambda: y.sum().backward())

    check_session(session)


def test_a_leaf_that_is_a_view_kept_by_an_op_on_a_list_and_written_by_its_base():
    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("size", [0, 2])
def test_a_saved_result_that_an_op_reshaped_in_place_is_watched(size):
    """As ``matmul`` does with what it gives for a vector."""

    def session(compile):
        x = leaf(1)
        y, v = compile(lambda x: (lambda v: (v.sin(), v))(torch.matmul(x, torch.ones(1, size))))(x)
        with torch.no_grad():
            v.add_(1)
        yield attempt_later(lambda: torch.autograd.grad(y.sum(), x))

    check_session(session)


@pytest.mark.parametrize("size", [0, 2])
def test_a_saved_result_that_lies_otherwise_than_foretold_is_watched(size):
    """As a copy of an empty view does, whose base was written before."""

    def session(compile):
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

    check_session(session)


WRITTEN_AND_FREED = {
    "the result of a write": lambda x: x.tanh_(),
    "a written argument": lambda x: (x.mul_(2), x.sin())[1],
    "a result": lambda x: x.exp(),
    "a written view": lambda x: x.transpose(-2, -1).exp_(),
    "two results": lambda x: x.exp() * x.sin(),
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("function", "argument"),
    [(f, "plain") for f in WRITTEN_AND_FREED] + [(f, "ragged") for f in WRITTEN_AND_FREED if "view" not in f],
)
def test_what_a_backward_freed_is_missed_before_it_is_seen_that_it_was_written(function, argument, kept):
    def session(compile):
        x = (leaf(3, 2) if argument == "plain" else jagged(1, 2, grad=True)) * 1
        y = compile(WRITTEN_AND_FREED[function])(x)
        torch.autograd.backward(y, torch.ones_like(y), retain_graph=kept)
        with torch.no_grad():
            y.mul_(2)
            x.mul_(3)
        yield attempt_later(lambda: torch.autograd.backward(y, torch.ones_like(y)))

    check_session(session)
