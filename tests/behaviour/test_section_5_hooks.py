"""BEHAVIOUR 5: hooks, gradients taken inside, and what compilers and memory see of it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tests.behaviour.harness import (
    Recorder,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    plain,
)
from tests.behaviour.wrappers import TwoTensor

# -- writes in backward ------------------------------------------------------------------------------


# -- hooks -------------------------------------------------------------------------------------------


def test_saved_tensor_hooks_around_the_call():
    def session(compile):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            x = leaf(3)
            y = compile(lambda x: x * x)(x)
        backward([y])
        yield x

    check_session(session)


@pytest.mark.parametrize("op", [lambda x: torch._foreach_mul([x], 3)[0], lambda x: torch._foreach_neg([x])[0]])
def test_what_a_foreach_op_keeps_by_hooks_is_freed_by_its_backward(op):
    def session(compile):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            x = leaf(3)
            y = compile(op)(x)
        for _ in range(2):  # the second raises of what multiplied, not of what negated
            yield attempt_later(lambda: backward([y])), x

    check_session(session)


def test_saved_tensors_kept_elsewhere():
    def session(compile):
        with torch.autograd.graph.save_on_cpu():
            x = leaf(3)
            y = compile(lambda x: x.exp() * x)(x)
        backward([y])
        yield x

    check_session(session, rtol=1e-6)


def test_saved_tensor_hooks_inside():
    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
            y = x * x
        return y * 2

    check(f, lambda: given(leaf(3)))


def test_saved_tensor_hooks_disabled():
    def session(compile):
        x = leaf(3)
        with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
            y = compile(lambda x: x * x)(x)
        backward([y])
        yield x

    check_session(session)


def test_hooks_on_inputs_before_the_call():
    def session(compile):
        seen = []
        x, w = leaf(3), leaf(3, seed=1)
        x.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        y = compile(lambda x, w: x * w)(x, w)
        backward([y])
        yield x, w, seen

    check_session(session)


def test_hooks_on_a_non_leaf_input():
    def session(compile):
        seen = []
        root = leaf(3)
        x = root * 2
        x.register_hook(lambda g: seen.append(g.clone()) or g * 3)
        x.retain_grad()
        y = compile(lambda x: x * x)(x)
        backward([y])
        yield root, x.grad, seen

    check_session(session)


@pytest.mark.parametrize(
    "pick",
    [lambda x, y, z: y],
    ids=["intermediate"],
)
@pytest.mark.parametrize("grad", ["leaf", "non-leaf"])
def test_a_hook_registered_inside(pick, grad: str):
    def f(x):
        y = x * 2
        z = y * y
        pick(x, y, z).register_hook(lambda g: g * 3)
        return z

    def session(compile):
        root = leaf(3)
        x = root if grad == "leaf" else root * 1
        z = compile(f)(x)
        backward([z])
        yield root

    check_session(session)


@pytest.mark.parametrize(
    "pick",
    [lambda x, y, z: x, lambda x, y, z: y, lambda x, y, z: z],
    ids=["input", "intermediate", "output"],
)
def test_retain_grad_inside(pick):
    def f(x):
        y = x * 2
        z = y * y
        pick(x, y, z).retain_grad()
        return y, z

    def session(compile):
        root = leaf(3)
        x = root * 1
        y, z = compile(f)(x)
        backward([z])
        yield root, x.grad, y.grad, z.grad

    check_session(session)


@pytest.mark.parametrize("looked", [False, True])
def test_retain_grad_of_a_view_that_was_written_before_its_base_required_grad(looked):
    """Autograd takes the view for a leaf until it has looked for its history."""

    def f(x, view):
        view.mul_(2)
        x.requires_grad_()
        if looked:
            view.clone()
        view.retain_grad()
        return view

    def session(compile):
        x = plain(3)
        view = x.view(3)
        y = compile(f)(x, view)
        yield y.retains_grad
        backward([y])
        yield x.grad, view.grad

    check_session(session)


def test_retain_grad_on_outputs_that_alias():
    def session(compile):
        x = leaf(2, 3)
        a, b = compile(lambda x: ((y := x * 2), y.view(-1)))(x)
        a.retain_grad()
        b.retain_grad()
        backward([a * 2, b * 3])
        yield x, a.grad, b.grad

    check_session(session)


def test_hooks_on_nodes():
    def session(compile):
        seen = []
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
        y.grad_fn.register_hook(lambda gi, go: seen.append([g.clone() for g in go if g is not None]))
        y.grad_fn.register_prehook(lambda go: tuple(g * 2 for g in go))
        backward([y])
        yield x, seen

    check_session(session)


def test_a_multi_grad_hook():
    def session(compile):
        seen = []
        x, w = leaf(3), leaf(3, seed=1)
        torch.autograd.graph.register_multi_grad_hook([x, w], lambda gs: seen.append([g is None for g in gs]))
        y, z = compile(lambda x, w: (x * w, w * 2))(x, w)
        backward([z], retain_graph=True)
        yield seen
        backward([y])
        yield x, w, seen

    check_session(session)


def test_anomaly_mode_finds_the_nan():
    def session(compile):
        x = leaf(3)
        with torch.autograd.detect_anomaly(check_nan=True):
            y = compile(lambda x: (x - x).sqrt() * 0)(x)
            found = attempt_later(lambda: backward([y]))
        yield type(found), getattr(found, "type", None)

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        check_session(session)


# -- autograd inside ---------------------------------------------------------------------------------


def test_grad_inside_with_create_graph():
    def f(x):
        (g,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
        return g.sum() + (g * g)

    check(f, lambda: given(leaf(3)))


def test_grad_inside_of_an_intermediate():
    def f(x, w):
        y = x * w
        (g,) = torch.autograd.grad((y * y).sum(), y, retain_graph=True)
        return g * x, y

    check(f, lambda: given(leaf(3), leaf(3, seed=1)))


def test_an_optimizer_step_inside():
    def f(w, x):
        optimizer = torch.optim.SGD([w], lr=0.5)
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


# -- compilers, memory -------------------------------------------------------------------------------


def test_the_backward_is_compiled_under_the_contexts_of_the_forward():
    seen = []

    class Watching(Recorder):
        def backward(self, graph, examples):
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()))
            return super().backward(graph, examples)

    x = leaf(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y = Watching().compile(lambda x: x @ x)(x)
    with torch.no_grad():
        backward([y])
    assert seen
    assert all(grad and not inference for grad, _, inference in seen)


def test_activations_are_freed_as_backward_goes():
    """At the end of the backward nothing that was saved is alive, the output still being held."""
    saved = []

    class Keep(Recorder):
        def forward(self, graph, examples):
            run = super().forward(graph, examples)

            def call(*args):
                out = run(*args)
                flat = out if isinstance(out, (tuple, list)) else (out,)
                saved.extend(weakref.ref(t) for t in flat[1:] if isinstance(t, torch.Tensor))
                return out

            return call

    f = Keep().compile(lambda x: (x.exp() * x).sum())
    x = leaf(4)
    y = f(x)
    y.backward()
    alive = [r() for r in saved if r() is not None and r() is not x]
    assert not alive
    assert y.requires_grad


def test_no_reference_cycles_are_made():
    f = Recorder().compile(lambda x: (x * x, x.view(-1)))
    x = leaf(3)
    backward([f(x)[0]])
    while gc.collect():  # fake tensors of tests before are freed in several turns
        pass
    gc.disable()
    try:
        y, view = f(x)
        refs = weakref.ref(y), weakref.ref(view)
        backward([y])
        del y, view
        assert [r() for r in refs] == [None, None]
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["training", "aliases", "mutation", "double", "no backward"])
def test_nothing_leaks_over_a_thousand_calls(kind: str):
    def g(x, b):
        if kind == "mutation":
            b.add_(1)
        y = x * x
        return y, y.view(-1), x.view(-1) if kind == "aliases" else b * 2

    f = Recorder().compile(g)
    x, b = leaf(3), plain(3)

    def once() -> None:
        out = f(x, b)
        if kind == "double":
            (first,) = torch.autograd.grad(out[0].sum(), x, create_graph=True)
            torch.autograd.grad(first.sum(), x)
        elif kind != "no backward":
            backward([out[0]])

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    once()
    before = tensors()
    for _ in range(1000):
        once()
    assert tensors() <= before + 2


def test_a_hook_inside_on_a_view_whose_base_was_written():
    def f(x):
        y = x * 2
        v = y[:2]
        y.mul_(3)
        assert v.grad_fn is not None  # without this torch itself crashes
        v.register_hook(lambda g: g * 5)
        return y, v

    check(f, lambda: given(leaf(4)))
    check(f, lambda: given(leaf(4)), backward=[1])


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2), lambda x: x.detach().add_(1)])
def test_a_hook_on_a_view_that_the_call_writes(write):
    def f(x):
        y = x * 3
        write(x)
        return y, x * 5

    def session(compile):
        base = leaf(4) * 2
        x = base[1:]
        x.register_hook(lambda g: g * 7)
        out = compile(f)(x)
        yield out, x
        yield torch.autograd.grad(out, [base], [plain(3), plain(3, seed=1)], allow_unused=True)

    check_session(session)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.sin(), x.cos()),
        lambda x: (y := x * 2, y.clone(), y.clone()),
        lambda x: (x.sin().add_(1), x * x),
        lambda x: (x.sin()[:2], x.sin() * x),
    ],
)
def test_hooks_on_results_that_a_backward_does_not_reach(f):
    """Each result has a node of its own in eager: no hook is called without a gradient."""

    def session(compile):
        x = leaf(3)
        results = compile(f)(x)
        seen = []
        for k, r in enumerate(results):
            r.register_hook(lambda g, k=k: seen.append((k, g.tolist() if g is not None else None)))
        for r in results:
            seen.append("backward")
            backward([r], retain_graph=True)
        first = results[0].register_hook(lambda g: g * 3)
        backward([results[0]], retain_graph=True)
        first.remove()
        backward([results[0]])
        yield x, str(seen)

    check_session(session, rtol=1e-6)


_SPLITS = {
    "of an argument": lambda x: x.split(2),
    "some of them": lambda x: x.chunk(3)[1:],
    "of a result": lambda x: (x * 2).unbind(),
    "unseen by autograd": lambda x: (x * 2).unsafe_split(2),
    "beside their base": lambda x: (y := x * 2, *y.tensor_split(2)),
    "of a view": lambda x: x.view(2, 3).unbind(1),
}


@pytest.mark.parametrize("split", _SPLITS.values(), ids=_SPLITS)
def test_views_that_one_op_gave_share_a_node(split):
    def session(compile):
        compiled = compile(split)
        for _ in range(2):
            x = leaf(6)
            views = compiled(x)
            seen = []
            for k, v in enumerate(views):
                v.register_hook(lambda g, k=k, seen=seen: seen.append((k, None if g is None else g.clone())))
            yield views
            backward([views[-1]])
            yield x, seen

    check_session(session)


def test_hooks_on_a_result_that_is_written_after():
    def session(compile):
        x = leaf(3)
        a, b = compile(lambda x: (x * x, x * 3))(x)
        seen = []
        a.register_hook(lambda g: seen.append(("before", g.tolist())))
        a.mul_(2)
        a.register_hook(lambda g: seen.append(("after", g.tolist())))
        backward([b], retain_graph=True)
        backward([a])
        yield x, str(seen)

    check_session(session)


def test_a_view_told_to_keep_its_gradient_changes_its_geometry():
    def f(x):
        x.retain_grad()
        x.t_()
        return x

    def session(compile):
        root = leaf(2, 3)
        base = root.clone()
        x = base[:]
        y = compile(f)(x)
        yield y is x, x.retains_grad
        x.backward(plain(3, 2))
        yield root, x.grad

    check_session(session)


@pytest.mark.parametrize("which", [0, 1], ids=["used before", "used after"])
@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0).squeeze_(0)], ids=["t_", "cancelling"])
def test_an_argument_told_to_keep_its_gradient_changes_its_geometry(change, which):
    def f(x):
        x.retain_grad()
        before = x * 2
        change(x)
        return before, x * 3

    def session(compile):
        root = leaf(2, 3)
        x = root.clone()
        outputs = compile(f)(x)
        yield x.retains_grad, outputs, x
        outputs[which].sum().backward()
        yield root, x.grad

    check_session(session)


@pytest.mark.parametrize("split", [torch.unbind, lambda x: x.chunk(2), lambda x: torch.tensor_split(x, 2)])
@pytest.mark.parametrize("inner", [lambda v: v.sin(), lambda v: (v.sin(), v.exp())[1], lambda v: v[..., None] * 2])
def test_a_hook_on_a_part_is_called_where_a_backward_comes_by_another_part_alone(split, inner):
    def session(compile):
        def f(x):
            first, second = split(x)
            return second, inner(first)

        x = leaf(2)
        part, y = compile(f)(x)
        seen = []
        part.register_hook(lambda g: seen.append(None if g is None else g.clone()))
        yield torch.autograd.grad(y.sum(), x, retain_graph=True), seen
        (g,) = torch.autograd.grad((part.sum(), y.sum()), x, create_graph=True)
        yield g, seen
        yield torch.autograd.grad(g.sum(), x, allow_unused=True) if g.requires_grad else None, seen

    check_session(session)


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2)], ids=["zero", "mul"])
@pytest.mark.parametrize("reshape", [lambda x: x.t_(), lambda x: x.unsqueeze_(0).squeeze_(0)], ids=["t_", "twice"])
@pytest.mark.parametrize("roots", [[0], [1], [0, 1]])
def test_the_gradient_is_kept_of_an_argument_that_is_written_and_reshaped(write, reshape, roots):
    def f(x):
        write(x)
        used = x * 2
        reshape(x)
        return used, x, x * 3

    def session(compile):
        source = leaf(2, 3)
        x = source * 1
        x.retain_grad()
        out = compile(f)(x)
        outs = [out[k] for k in roots]
        grads = torch.autograd.grad([(y * y).sum() for y in outs], [source], create_graph=True)
        yield outs, grads, x.grad
        x.grad = None
        torch.autograd.backward([g.sum() for g in grads if g.requires_grad] + [y.sum() for y in outs])
        yield x.grad, source.grad

    check_session(session)


@pytest.mark.parametrize("view", [lambda y: y.t(), lambda y: y[0], lambda y: y.view(-1), lambda y: y.unsqueeze(0)])
@pytest.mark.parametrize("reshape", [lambda y: y.transpose_(0, 1), lambda y: y.unsqueeze_(0)])
def test_a_hook_on_a_view_argument_that_is_reshaped_after_a_view_of_it_was_made(view, reshape):
    def f(y):
        made = view(y)
        reshape(y)
        return made

    def session(compile):
        seen = []
        root = leaf(2, 2)
        y = root.clone()[:1]
        y.register_hook(lambda g: seen.append(g.clone()))
        out = compile(f)(y)
        yield out, y
        for t in (y, out):
            yield torch.autograd.grad(t.sum(), root), seen

    check_session(session)


class NegatesBesideProduct(torch.autograd.Function):
    """Negates its first argument in place, and gives it beside a product with what it was."""

    @staticmethod
    def forward(ctx, x, y):
        product = x * y
        ctx.save_for_backward(y)
        x.neg_()
        ctx.mark_dirty(x)
        return x, product

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return h * y - g, None


@pytest.mark.parametrize("root", ["written", "product", "both"])
@pytest.mark.parametrize("written_again", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_hooks_on_an_argument_that_a_function_with_several_results_wrote(inside, written_again, root):
    """In a backward from another of the results they are called with None, which they may take or not."""

    def f(x, y, hook):
        _, product = NegatesBesideProduct.apply(x, y)
        if inside:
            x.register_hook(hook)
        return product

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x = leaf(3)
            z, seen = x * 2, []

            def hook(g, seen=seen):
                seen.append(None if g is None else g.clone())
                return None if g is None else g * 3

            product = compiled(z, plain(3, seed=1), hook)
            if not inside:
                z.register_hook(hook)
            if written_again:
                z.mul_(2)
            roots = {"written": [z], "product": [product], "both": [z, product]}[root]
            backward(roots)
            yield x, seen

    check_session(session)


@pytest.mark.parametrize("takes_none", [True, False])
@pytest.mark.parametrize("made", ["argument", "inside"])
@pytest.mark.parametrize("parts", [lambda x: x.unbind(1), lambda x: x.split(2, 1), lambda x: x.chunk(2, 0)])
def test_a_hook_inside_on_a_part_of_a_wrapper_beside_the_one_that_is_returned(parts, made, takes_none):
    def f(x, hook):
        first, *_, last = parts(x if made == "argument" else x * 2)
        first.register_hook(hook)
        return last

    def session(compile):
        x = TwoTensor(plain(2, 4), plain(2, 4, seed=1)).requires_grad_()
        seen = []

        def hook(g):
            seen.append(g is None)
            return g if takes_none and g is None else g * 2

        last = compile(f)(x, hook)
        yield attempt_later(lambda: backward([last])), x, seen

    check_session(session)
