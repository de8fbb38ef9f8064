"""BEHAVIOUR 5: gradients, which of them exist, and when backward may be called."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

import aotcheck
from tests.behaviour.functions import Once
from tests.behaviour.harness import (
    Recorder,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    plain,
)

# -- undefined tangents ------------------------------------------------------------------------------


def test_an_undefined_tangent_is_never_zeros():
    def f(x):
        return x * float("inf"), x * 2

    check(f, lambda: given(leaf(3)), backward=[1])


@pytest.mark.parametrize("subset", [[0], [1], [2], [0, 2], [1, 2], []], ids=str)
def test_an_input_that_no_defined_tangent_reaches_gets_none(subset: list[int]):
    check(
        lambda x, y, z: (x * y, y * 2, z.exp()),
        lambda: given(leaf(3), leaf(3, seed=1), leaf(3, seed=2)),
        backward=subset,
    )


def test_an_unused_input_gets_none():
    check(lambda x, y: x * 2, lambda: given(leaf(3), leaf(3)))


def test_an_input_multiplied_by_zero_gets_zeros():
    check(lambda x: x * 0, lambda: given(leaf(3)))


def test_a_gradient_cut_by_detach_is_none():
    check(lambda x, y: x.detach() * y, lambda: given(leaf(3), leaf(3)))


def test_each_set_of_tangents_on_one_compiled_function():
    def session(compile):
        f = compile(lambda x, y: (x * y, y * 2, x + 1))
        for subset in ([0], [0, 1], [2], [1, 2], [0]):
            x, y = leaf(3), leaf(3, seed=1)
            outputs = f(x, y)
            backward([outputs[k] for k in subset])
            yield x, y

    check_session(session)


# -- which backward, and when ------------------------------------------------------------------------


def test_outputs_with_disjoint_graphs_are_backpropagated_separately():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        a, b = compile(lambda x, y: (x * x, y * y))(x, y)
        yield attempt_later(lambda: backward([a])), x, y
        yield attempt_later(lambda: backward([b])), x, y

    check_session(session)


def test_a_second_backward_through_freed_tensors_is_an_error():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
        yield attempt_later(lambda: backward([y])), x
        yield attempt_later(lambda: backward([y])), x

    check_session(session)


def test_a_second_backward_where_nothing_was_saved():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x * 2 + 1)(x)
        yield attempt_later(lambda: backward([y])), x
        yield attempt_later(lambda: backward([y])), x

    check_session(session)


def test_a_second_backward_with_retain_graph():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
        backward([y], retain_graph=True)
        yield x
        backward([y])
        yield x

    check_session(session)


def test_gradients_accumulate_over_calls():
    def session(compile):
        f = compile(lambda x: x * x)
        x = leaf(3)
        for _ in range(3):
            backward([f(x)])
            yield x

    check_session(session)


def test_several_calls_before_their_backwards():
    def session(compile):
        f = compile(lambda x, n: x * x * n)
        x = leaf(3)
        outputs = [f(x, plain(3, seed=k)) for k in range(3)]
        for output in reversed(outputs):
            backward([output])
            yield x

    check_session(session)


def test_a_compiled_function_inside_a_larger_graph():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        f = compile(lambda a, b: (a * b, a + b))
        p, q = f(x * 2, y + 1)
        backward([(p * q).sum() * 3])
        yield x, y

    check_session(session)


def test_grad_of_chosen_inputs():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        out = compile(lambda x, y: (x * y).sum())(x, y)
        yield torch.autograd.grad(out, [x], retain_graph=True)
        yield torch.autograd.grad(out, [y]), x, y

    check_session(session)


def test_grad_of_an_unused_input():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        out = compile(lambda x, y: x.sum())(x, y)
        yield attempt_later(lambda: torch.autograd.grad(out, [y], retain_graph=True))
        yield torch.autograd.grad(out, [x, y], allow_unused=True)

    check_session(session)


def test_a_cotangent_of_another_layout():
    def session(compile):
        x = leaf(2, 3)
        y = compile(lambda x: x * x)(x)
        y.backward(plain(3, 2).t())
        yield x
        y = compile(lambda x: x * x)(x)
        y.backward(plain(1, 1).expand(2, 3))
        yield x

    check_session(session)


def test_two_outputs_that_share_an_intermediate():
    def f(x):
        y = x.exp()
        return y * 2, y.sum()

    check(f, lambda: given(leaf(3, dtype=torch.float64) * 0, also=[]), probe=True)
    check(f, lambda: given(leaf(3, dtype=torch.float64)), rtol=1e-12)


# -- inside, hooks -----------------------------------------------------------------------------------


def test_a_gradient_taken_inside():
    def f(x):
        (g,) = torch.autograd.grad((x * x).sum(), x)
        return g * 2

    check(f, lambda: given(leaf(3)))


def test_tensor_hooks_on_inputs_and_outputs():
    def session(compile):
        seen = []
        x = leaf(3)
        x.register_hook(lambda g: seen.append(g.clone()))
        y = compile(lambda x: x * x)(x)
        y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        backward([y])
        yield x, seen

    check_session(session)


def test_retain_grad_on_an_output():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
        y.retain_grad()
        backward([y * 2])
        yield x, y.grad

    check_session(session)


def test_anomaly_mode():
    def session(compile):
        x = leaf(3)
        with torch.autograd.detect_anomaly(check_nan=True):
            y = compile(lambda x: x * x)(x)
            backward([y])
        yield x

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        check_session(session)


# -- compilers and memory ----------------------------------------------------------------------------


def test_the_backward_is_not_compiled_before_it_is_needed():
    recorder = Recorder()
    f = recorder.compile(lambda x: x * x)
    x = leaf(3)
    y = f(x)
    assert recorder.forwards
    assert not recorder.backwards
    backward([y])
    assert len(recorder.backwards) == 1
    backward([f(x)])
    assert len(recorder.backwards) == 1


def test_the_backward_compiler_is_called_with_grad_mode_on():
    modes = []

    class Watching(Recorder):
        def backward(self, graph, examples):
            modes.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
            return super().backward(graph, examples)

    y = Watching().compile(lambda x: x * x)(leaf(3))
    with torch.no_grad():
        backward([y])
    assert modes == [(True, False)]


def test_saved_activations_are_freed_with_the_output():
    """A caller that drops the output drops what was saved for it, without waiting for the garbage collector."""
    f = Recorder().compile(lambda x, w: (x * w).sum())
    x, w = leaf(3), plain(3) * 2
    y = f(x, w)
    gone = weakref.ref(w)
    gc.disable()
    try:
        del w, y
        assert gone() is None
    finally:
        gc.enable()


def test_nothing_is_kept_over_many_calls():
    f = Recorder().compile(lambda x: x * x)
    x = leaf(3)

    def tensors() -> int:
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    backward([f(x)])
    gc.collect()
    before = tensors()
    for _ in range(50):
        backward([f(x)])
    assert tensors() <= before + 2


def test_an_error_of_the_forward_leaves_the_function_usable():
    def session(compile):
        f = compile(lambda x, y: x @ y)
        yield attempt(lambda: f(leaf(2, 3), leaf(2, 3)))
        x, y = leaf(2, 3), leaf(3, 2)
        backward([f(x, y)])
        yield x, y

    check_session(session)


# -- derivatives of derivatives ------------------------------------------------------------------------


def _smooth(x, w):
    return (x * w + x * x * w * w).sum(-1)


def _in_place_through_a_view(x, w):
    y = x * w
    y[0].mul_(w[1] * w[0])
    return y * y


def _of_aliases(x, w):
    y = x * w
    return y, y[0] * x[0], y.t()


def _of_an_intermediate_only(x, w):
    return (x * w).detach() * w


@pytest.mark.parametrize("function", [_smooth, _in_place_through_a_view, _of_aliases, _of_an_intermediate_only])
@pytest.mark.parametrize("through_a_non_leaf", [False, True], ids=["leaves", "non-leaf"])
def test_second_and_third_derivatives(function, through_a_non_leaf):
    def session(compile):
        x, w = leaf(2, 3), leaf(2, 3, seed=1)
        f = compile(function)
        out = f(x * 1 if through_a_non_leaf else x, w)
        total = sum(o.sum() for o in (out if isinstance(out, tuple) else (out,)))
        first = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
        yield first
        once = sum(g.sum() for g in first if g is not None)
        if not once.requires_grad:
            return
        second = torch.autograd.grad(once, (x, w), create_graph=True, allow_unused=True)
        yield second
        twice = sum(g.sum() for g in second if g is not None)
        if twice.requires_grad:
            yield torch.autograd.grad(twice, (x, w), allow_unused=True)

    check_session(session)


def test_a_gradient_that_is_the_tangent_itself():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x + 1)(x)
        tangent = leaf(3, seed=2)
        (g,) = torch.autograd.grad(y, x, tangent, create_graph=True)
        yield g
        yield torch.autograd.grad((g * g).sum(), tangent)

    check_session(session)


def test_a_second_derivative_accumulates_into_leaves():
    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        y = compile(lambda x, w: (x * w * w).sum())(x, w)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()
        yield x.grad, w.grad
        y.backward()
        yield x.grad, w.grad

    check_session(session)


def test_a_gradient_penalty_over_ten_steps():
    def session(compile):
        critic = compile(lambda x, w, v: torch.relu(x @ w) @ v)
        w, v = leaf(3, 4), leaf(4, 1, seed=1)
        for step in range(10):
            x = plain(2, 3, seed=step).requires_grad_()
            score = critic(x, w, v)
            (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
            loss = score.sum() + ((g * g).sum() - 1) ** 2
            loss.backward()
            with torch.no_grad():
                w -= torch.sign(w.grad)
                v -= torch.sign(v.grad)
            yield loss, w.grad, v.grad
            w.grad = v.grad = None

    check_session(session)


def test_a_second_derivative_by_a_written_argument_that_others_are_computed_from():
    def session(compile):
        def f(x):
            x.exp_()
            return x * x

        x = leaf(3)
        argument = x * 1
        y = compile(f)(argument)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        yield y, g
        yield torch.autograd.grad(g.sum(), x)

    check_session(session)


def test_a_second_derivative_that_is_refused():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: Once.apply(x) * 2)(x)
        (g,) = torch.autograd.grad(y, x, leaf(3, seed=2), create_graph=True)
        yield g
        yield attempt(lambda: g.sum().backward())
        yield attempt(lambda: torch.autograd.grad(g.sum(), x, allow_unused=True))
        yield x.grad

    check_session(session)


# -- what was written since -----------------------------------------------------------------------------


def _written_result(x, y):
    return (x.prod(-1),)


def _written_argument(x, y):
    return (torch.gather(x, 0, torch.tensor([0, 0])),)


def _written_for_one_of_two(x, y):
    return x * y, torch.complex(x, y)


@pytest.mark.parametrize("function", [_written_result, _written_argument, _written_for_one_of_two])
@pytest.mark.parametrize("written", ["x", "y", "alias", "output"])
def test_what_eager_saves_must_not_be_written_even_if_its_value_is_not_wanted(function, written):
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
            yield attempt_later(lambda o=o, seed=seed: torch.autograd.grad(o, x, seed, retain_graph=True))

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


# -- results of one custom Function ------------------------------------------------------------------------


class _Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return h * 5 if g is None else g * 2 if h is None else g + h


def _each_by_itself(x):
    return _Two.apply(x)


def _one_squared(x):
    a, b = _Two.apply(x)
    return a * a, b


@pytest.mark.parametrize(
    ("function", "order"),
    [
        (_each_by_itself, [0, 1]),
        (_each_by_itself, [1, 0, 1]),
        (_one_squared, [0, 1]),
        (_one_squared, [0, 1, 0]),
        (_one_squared, [0, 1, 1]),
    ],
)
def test_results_of_a_custom_function_that_saves_nothing_are_backpropagated_separately(function, order):
    def session(compile):
        x = leaf(3)
        results = compile(function)(x)
        for k in order:
            yield attempt_later(lambda k=k: results[k].sum().backward())
            yield x.grad

    check_session(session)


def test_results_that_hang_on_each_other_in_a_circle():
    def session(compile):
        def f(x, y):
            a = x.exp()
            b, c = _Two.apply(a)
            d = b * y
            return a, d, (c * d).sum(), b, d.exp() * a

        x, y = leaf(3), leaf(3, seed=1)
        results = compile(f)(x, y)
        backward([r.sum() for r in results])
        yield x, y

    check_session(session)


@pytest.mark.parametrize(
    "op",
    [lambda x: x.mul_(2), lambda x: x.add_(2), lambda x: x.exp_(), lambda x: x.mul_(x)],
    ids=["mul", "add", "exp", "mul by itself"],
)
def test_a_backward_that_ends_at_a_written_input_frees_the_write(op):
    def session(compile):
        root = leaf(3)
        x = root.clone()
        out = compile(op)(x)
        yield attempt_later(lambda: out.sum().backward(inputs=[x])), root, x
        yield attempt_later(lambda: out.sum().backward()), root, x

    check_session(session)


def test_a_backward_that_would_raise_is_not_run_for_a_gradient_that_is_not_reached():
    def f(x, y):
        y.zero_()
        x.copy_(y)
        y.mul_(y)  # its backward needs what it overwrites
        return y

    def session(compile):
        a, b = leaf(3), leaf(3, seed=1)
        x, y = a.clone(), b.clone().t()
        out = compile(f)(x, y)
        yield torch.autograd.grad(out, a, plain(3), allow_unused=True, retain_graph=True)
        yield attempt_later(lambda: torch.autograd.grad(out, b, plain(3)))

    check_session(session)


def test_a_gradient_beside_one_that_would_be_refused():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        nowhere = torch.empty(0, dtype=torch.int64)
        out = compile(lambda x, y: torch.scatter(x, 0, nowhere, y))(x, y)
        out.backward(plain(3, seed=2), inputs=[x], retain_graph=True)
        yield x, y
        yield attempt_later(lambda: out.backward(plain(3, seed=2), inputs=[y]))
        yield attempt_later(lambda: out.backward(plain(3, seed=2)))

    check_session(session)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x.mul_(2) * y,
        lambda x, y: (x[1:].mul_(2), x[:1] * y, x[1:] * y)[1:],
        lambda x, y: (x.add_(1), x.as_strided((2,), (1,), 1) * y)[1],
        lambda x, y: (x[:1].zero_(), x[1:] * y)[1],
    ],
)
def test_saved_memory_that_is_written_without_a_trace(f):
    """Another tensor on the same storage counts writes by itself: eager's backward reads what is there then."""

    def session(compile):
        x, y = plain(3), leaf(1)
        other = torch.empty(0).set_(x.untyped_storage(), 0, (3,), (1,))
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

    check_session(session)


def test_a_view_that_is_saved_beside_a_write_to_another_argument_is_watched():
    def session(compile):
        x, y = plain(3), leaf(3)
        out = compile(lambda x, y: (x.zero_(), y.view(3, 1).sin())[1])(x, y)
        with torch.no_grad():
            y.add_(1)
        yield attempt_later(lambda: backward([out]))

    check_session(session)
