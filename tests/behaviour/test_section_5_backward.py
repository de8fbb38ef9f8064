"""BEHAVIOUR 5: gradients, which of them exist, and when backward may be called."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

from tests.behaviour.harness import Recorder, attempt, attempt_later, backward, check, check_session, given, leaf, plain

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


@pytest.mark.parametrize(
    "write", [lambda x, y: x.mul_(y), lambda x, y: x[1:].mul_(y[1:]), lambda x, y: x.mul_(y).add_(1)]
)
@pytest.mark.parametrize("made", [lambda y: torch.tensor([2, 3, 4]), lambda y: y, lambda y: y + 1])
@pytest.mark.parametrize("is_view", [False, True], ids=["whole", "view"])
@pytest.mark.parametrize("also_leaf", [False, True], ids=["there", "leaf"])
def test_a_backward_that_ends_at_a_written_input_looks_at_what_the_write_kept(write, made, is_view, also_leaf):
    def f(x, y):
        factor = made(y)
        write(x, factor)
        return factor

    def session(compile):
        root = leaf(3)
        x = root.clone().view(3) if is_view else root.clone()
        factor = compile(f)(x, plain(3, seed=2))
        factor.add_(1)
        wanted = [x, root] if also_leaf else [x]
        yield attempt_later(lambda: x.sum().backward(inputs=wanted, retain_graph=True)), root, x.detach()
        yield attempt_later(lambda: torch.autograd.grad(x.sum(), x))

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


PARTS_APART = {
    "part": lambda part: part.zero_(),
    "window": lambda part: part.as_strided((1,), (0,)).zero_(),
    "both": lambda part: (part.mul_(2), part.as_strided((1,), (0,)).zero_()),
    "bytes": lambda part: part.view(torch.int32).as_strided((1,), (0,)).fill_(1 << 29),
}


@pytest.mark.parametrize("write", PARTS_APART)
@pytest.mark.parametrize("saves", ["before", "after", "transposed"])
@pytest.mark.parametrize("grad", [True, False])
def test_saved_memory_of_which_a_part_that_counts_by_itself_is_written(write, saves, grad):
    """Eager's backward reads what the function wrote to the part, and what the caller writes to it later."""

    def f(x):
        part = torch.unsafe_chunk(x, 3)[0]
        y = x.sin() if saves == "before" else None
        with torch.set_grad_enabled(grad):
            PARTS_APART[write](part)
        if saves != "before":
            y = x.t().sin() if saves == "transposed" else x.sin()
        return y, part

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x = leaf(3, 2)
            y, part = compiled(x)
            yield torch.autograd.grad(y.sum(), x, retain_graph=True)
            with torch.no_grad():
                part.fill_(3)
            yield y, x, torch.autograd.grad(y.sum(), x)

    check_session(session)


def test_a_view_that_is_saved_beside_a_write_to_another_argument_is_watched():
    def session(compile):
        x, y = plain(3), leaf(3)
        out = compile(lambda x, y: (x.zero_(), y.view(3, 1).sin())[1])(x, y)
        with torch.no_grad():
            y.add_(1)
        yield attempt_later(lambda: backward([out]))

    check_session(session)


@pytest.mark.parametrize("ends_at", ["result", "argument", "leaf", "beside"])
@pytest.mark.parametrize("written", ["argument", "clone"])
def test_what_has_no_derivative_raises_where_a_backward_begins_with_it_and_ends_there(written, ends_at):
    def session(compile):
        def f(x):
            return (x if written == "argument" else x.clone()).floor_divide_(2), x.sum()

        root = leaf(3)
        x = root * 5
        y, total = compile(f)(x)
        ends = {"result": y, "argument": x, "leaf": root, "beside": total}[ends_at]
        yield attempt_later(lambda: y.backward(torch.ones_like(y), inputs=[ends], retain_graph=True))
        yield attempt_later(lambda: (y.sum() + total).backward(inputs=[ends], retain_graph=True))
        yield root.grad

    check_session(session)
