"""BEHAVIOUR 4: inference tensors and inference mode, outside and inside."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import (
    Raised,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    plain,
    write,
)
from tests.behaviour.wrappers import jagged


def test_outputs_of_an_inference_mode_inside():
    def f(x):
        with torch.inference_mode():
            y = x * 2
            z = x.view(-1)
        return y, z, x * 3

    check(f, lambda: given(leaf(2, 3)))
    check(f, lambda: given(plain(2, 3)))


def test_an_inference_mode_inside_that_writes_an_input():
    def f(x):
        with torch.inference_mode():
            x.add_(1)
        return x * 2

    check(f, lambda: given(plain(3)))


def test_a_call_under_inference_mode():
    def session(compile):
        f = compile(lambda x, y: (x * 2, x.view(-1), y.add_(1), y))
        with torch.inference_mode():
            x, y = plain(2, 3), plain(3)
            yield f(x, y), x, y
        x, y = plain(2, 3), plain(3)
        with torch.inference_mode():
            out = f(x, y)
        yield out, x, y

    check_session(session)


def test_inference_tensors_given_outside_inference_mode():
    def session(compile):
        with torch.inference_mode():
            x = plain(2, 3)
        yield compile(lambda x: (x * 2, x.view(-1), x))(x), x
        yield attempt_later(lambda: compile(lambda x: x.add_(1))(x)), x

    check_session(session)


def test_a_function_called_in_and_out_of_inference_mode():
    def session(compile):
        f = compile(lambda x, y: (x.mul_(2), x * y)[1])
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
            x, y = plain(3), leaf(3, seed=1)
            with mode():
                out = f(x, y)
            yield out, x, y
            if out.requires_grad:
                backward([out])
            yield out, x, y

    check_session(session)


def test_overlapping_inference_tensors():
    def f(x, y):
        x.mul_(2)
        return x * 3, y * 5

    def session(compile):
        compiled = compile(f)
        with torch.inference_mode():
            base = plain(8)
            yield compiled(base[:5], base[3:]), base
        made_inside = base[:5], base[2:7]
        yield attempt_later(lambda: compiled(*made_inside)), base

    check_session(session)


def test_an_alias_made_in_inference_mode_beside_the_tensor():
    def f(x, y):
        x.mul_(2)
        return x * 3, y * 5

    def session(compile):
        base = plain(8)
        with torch.inference_mode():
            view = base[2:]
        yield attempt_later(lambda: compile(f)(base, view)), base, view
        yield attempt_later(lambda: compile(f)(view, base)), base, view

    check_session(session)


def test_a_view_of_an_inference_tensor_is_refused_writes_outside():
    def session(compile):
        with torch.inference_mode():
            x = plain(2, 3)
        yield attempt_later(lambda: compile(lambda x: x.t().zero_())(x)), x

    check_session(session)


def test_requires_grad_of_an_inference_tensor_made_inside():
    def f(x):
        with torch.inference_mode():
            y = x * 2
            y.requires_grad_()
        return y, x * 3

    check(f, lambda: given(plain(3)))


@pytest.mark.parametrize(
    "op", [lambda x: torch.unsafe_split(x, 1), lambda x: [torch.ops.aten._unsafe_view(x, (3,))]], ids=["split", "view"]
)
def test_unsafe_views_are_views_under_inference_mode(op):
    def f(x):
        with torch.inference_mode():
            y = op(x)[0]
        return y.zero_()

    def session(compile):
        x = leaf(3)
        yield attempt_later(lambda: compile(f)(x)), x
        with torch.inference_mode():
            yield compile(lambda x: (op(x)[0], x.zero_())[0])(x), x

    check_session(session)


def test_set_and_data_between_inference_tensors_and_others():
    def f(x, y):
        z, w = x * 2, x * 3
        z.set_(y)
        w.data = y
        return z, w

    def session(compile):
        with torch.inference_mode():
            y = plain(3)
        yield compile(f)(plain(3), y), y
        yield compile(f)(plain(3), plain(3))
        x, y = plain(3), plain(3)
        with torch.inference_mode():
            yield compile(f)(x, y)
        yield x, y

    check_session(session)


@pytest.mark.parametrize(
    "put",
    [
        lambda x, w: x.set_(w),
        lambda x, w: x.set_(w).mul_(2),
        lambda x, w: x.view(3).set_(w),
        lambda x, w: x.set_(w).requires_grad_(),
    ],
    ids=["set_", "written", "view", "leaf"],
)
@pytest.mark.parametrize("of", ["plain", "leaf", "no leaf"])
@pytest.mark.parametrize("late", [None, "x", "y"])
def test_what_was_put_on_the_memory_of_an_inference_tensor_is_saved(put, of, late):
    def f(x, y, w):
        with torch.set_grad_enabled(of != "leaf"):
            t = put(x, w)
        return torch.sin(t), y * t, t

    def session(compile):
        source = leaf(3)
        x = {"plain": plain(3), "leaf": leaf(3), "no leaf": source * 1}[of]
        y = leaf(3) * 2
        with torch.inference_mode():
            w = plain(3)
        out = attempt(lambda: compile(f)(x, y, w))
        yield out, x, y, w
        if late is not None:
            write({"x": x, "y": y}[late])
        for t in out if isinstance(out, tuple) else ():
            yield attempt_later(lambda t=t: backward([t], retain_graph=True)), x, y, source

    check_session(session)


def test_data_of_an_input_under_inference_mode():
    def session(compile):
        x, y = plain(4, dtype=torch.complex64), plain(3)
        with torch.inference_mode():
            compile(lambda x: setattr(x, "data", x.imag))(x)
            compile(lambda y: setattr(y, "data", y * 2))(y)
        yield x, y, x * 2

    check_session(session)


def test_detach_in_place_under_inference_mode_does_nothing():
    def f(x):
        with torch.inference_mode():
            x.detach_()

    check(f, lambda: given(leaf(3) * 2))


def test_dropout_under_inference_mode():
    def session(compile):
        x = plain(8)
        for p in (0.0, 1.0, 0.5):
            f = compile(lambda x, p=p: torch.nn.functional.dropout(x, p=p))
            torch.manual_seed(0)
            with torch.inference_mode():
                y = f(x)
            yield y, y is x, torch.get_rng_state()

    check_session(session)


def test_a_view_made_in_inference_mode_beside_what_is_written():
    def session(compile):
        root = leaf(2, 2)
        with torch.inference_mode():
            view = root.t()
        x = root * 2
        out = compile(lambda x, y: (x * y, x.zero_())[0])(x, view)
        backward([out])
        yield out, x, view, root

    check_session(session)


def test_results_made_outside_inference_mode_in_a_call_under_it():
    def f(x, y):
        with torch.inference_mode(False):
            with torch.enable_grad():
                v, z = x.view(-1), x * 2
            with torch.no_grad():
                w = x.view(-1)
            u = y.view(-1)
        return v, w, u, z

    def session(compile):
        x, y = leaf(2, 3), plain(2, 3)
        with torch.inference_mode():
            out = compile(f)(x, y)
        yield out, x, y
        backward([out[0], out[3]])
        yield x

    check_session(session)


COMPOSITES = {
    "long": lambda x: x.long(),
    "reshape": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous(),
    "flatten of its transpose": lambda x: x.T.flatten(),
    "matmul": lambda x: x.matmul(x),
    "where": lambda x: torch.where(x > 0, x, 0),
    "dropout of everything": lambda x: torch.nn.functional.dropout(x, 1.0),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_ops_on_inference_tensors(name: str, inside: bool):
    def session(compile):
        f = compile(COMPOSITES[name])
        with torch.inference_mode():
            x = plain(3, 3)
        with torch.inference_mode(inside):
            yield x, f(x)
            yield x, f(x)

    check_session(session)


def test_an_alias_of_an_inference_tensor_made_outside_may_be_written():
    def session(compile):
        with torch.inference_mode():
            x = plain(3)
        y = compile(lambda x: x.detach())(x)
        yield attempt_later(lambda: y.add_(1)), x
        yield attempt_later(lambda: compile(lambda x: x.detach().mul_(2))(x)), x
        yield attempt_later(lambda: compile(lambda x: torch._foreach_mul_([x], 2))(x)), x

    check_session(session)


def test_an_alias_made_outside_inference_mode_of_what_was_made_inside_can_be_written():
    def f(x):
        with torch.inference_mode():
            v = x.clone()
        return v.detach()

    def session(compile):
        v = compile(f)(plain(3))
        yield v, v.is_inference(), v._version
        v.add_(1)
        yield v, v._version

    check_session(session)


def test_data_of_an_inference_tensor_given_after_a_storage_was_set():
    def f(x):
        v = x.clone()
        x.set_()
        x.data = v

    def session(compile):
        x = plain(3)
        with torch.inference_mode():
            compile(f)(x)
        yield x, x.is_inference()

    check_session(session)


_MODES = {
    "grad": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "outside": lambda: torch.inference_mode(False),
}


@pytest.mark.parametrize("made", _MODES.values(), ids=_MODES)
@pytest.mark.parametrize("reshaped", _MODES.values(), ids=_MODES)
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_reshaped_in_a_call_under_inference_mode(made, reshaped, grad):
    def f(x):
        with made():
            y = x.view(2, 2)
        with reshaped():
            y.t_()
        return y, x

    def session(compile):
        source = leaf(2, 2)
        with torch.set_grad_enabled(grad):
            x = (source * 1).view(2, 2)
        with torch.inference_mode():
            out = attempt(lambda: compile(f)(x))
        if isinstance(out, Raised):
            yield out
            return
        y = out[0]
        yield isinstance(attempt_later(lambda: y.is_leaf), Raised), y.requires_grad, y.shape, y.is_inference()
        gradients = attempt_later(lambda: torch.autograd.grad(y.sum(), source))
        yield "refused" if isinstance(gradients, Raised) else gradients

    check_session(session)


@pytest.mark.parametrize("op", [torch.unsafe_chunk, torch.unsafe_split])
@pytest.mark.parametrize("written", [False, True])
def test_a_part_that_counts_its_versions_alone_is_written(op, written):
    """Whether autograd refuses to say its history depends on the versions that it and its base have."""

    def session(compile):
        x = leaf(3)
        if written:
            with torch.no_grad():
                x.mul_(2)

        def f(x):
            parts = op(x, 2)
            parts[0].zero_()
            return parts

        with torch.inference_mode():
            parts = compile(f)(x)
        yield [part._version for part in parts], attempt_later(lambda: parts[0].is_leaf)

    check_session(session)


@pytest.mark.parametrize("op", [torch.unsafe_chunk, torch.unsafe_split])
@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x.view(2), lambda x: torch.unsafe_split(x, 2)[0]])
@pytest.mark.parametrize("inside", [False, True])
def test_a_part_of_a_view_that_counts_its_versions_alone_is_written(op, times, part, inside):
    def f(x, written):
        with torch.inference_mode():
            y = part(x)
            if "before" in written:
                y.mul_(2)
            parts = op(y, 2)
            if "part" in written:
                parts[0].neg_()
            if "whole" in written:
                x.neg_()
            return parts

    def session(compile):
        compiled = compile(f)
        for written in ("", "part", "whole", "part, whole", "before", "before, part", "before, whole"):
            x = leaf(2) * 1
            with torch.no_grad():
                for _ in range(times):
                    x.mul_(2)
            with torch.inference_mode(not inside):
                parts = compiled(x.view(2), written)
            yield x, parts, [p._version for p in parts], [attempt_later(lambda p=p: p.is_leaf) for p in parts]

    check_session(session)


@pytest.mark.parametrize("returned", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("part", [lambda t: t[0], lambda t: t.view(-1), lambda t: t], ids=["row", "view", "itself"])
def test_what_is_detached_outside_of_what_was_made_inside_may_be_written(returned, part):
    def f(x):
        with torch.inference_mode():
            whole = x.clone()
            some = part(whole)
        several = whole, some, some.detach()
        return [several[k] for k in returned]

    def session(compile):
        out = compile(f)(plain(2, 2))
        yield out, [attempt_later(lambda t=t: t._version) for t in out]
        for t in out:
            yield attempt_later(lambda t=t: t.add_(1)), out

    check_session(session)


@pytest.mark.parametrize("function", [torch.broadcast_tensors, torch.atleast_2d, torch.meshgrid, torch.cartesian_prod])
def test_inference_tensors_in_a_list(function):
    def session(compile):
        with torch.inference_mode():
            x, y = plain(3), plain(3, seed=1)
        yield compile(lambda x, y: function(x, y))(x, y)

    check_session(session)


def test_a_ragged_tensor_written_in_inference_mode_whose_views_have_histories():
    def session(compile):
        x = jagged(2, 3, grad=True) * 2
        v = x.unsqueeze(-1)
        with torch.inference_mode():
            out = compile(lambda x, v: (x.sin_(), v)[1])(x, v)
        yield out, x

    check_session(session)


def test_strides_that_meta_kernels_foretell_wrongly_in_inference_mode():
    def session(compile):
        f = compile(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True))
        with torch.inference_mode():
            yield f(plain(2, 2).t())

    check_session(session)


@pytest.mark.parametrize(
    "change",
    [lambda v, x: v, lambda v, x: v.set_(x), lambda v, x: v.add_(1)],
    ids=["as it is", "on another place", "written"],
)
@pytest.mark.parametrize("counted", [0, 1, 2])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
def test_views_that_count_by_themselves_of_what_has_counted_writes(split, counted, change):
    """Autograd compares what such a view has counted with what its base had when the view was made."""

    def session(compile):
        x = leaf(4)
        with torch.no_grad():
            for _ in range(counted):
                x.add_(1)
        with torch.inference_mode():
            v = compile(lambda x: change(split(x, 2)[0], x))(x)
        yield v.requires_grad, isinstance(attempt_later(lambda: v.grad_fn), Raised)

    check_session(session)


def test_such_views_of_what_an_op_squeezed_inside_itself():
    def f(x):
        y = torch.nn.functional.linear(x, torch.ones(3, 4))
        with torch.inference_mode():
            return torch.unsafe_split(y, 2)[0]

    def session(compile):
        v = compile(f)(leaf(4))
        yield v.requires_grad, isinstance(attempt_later(lambda: v.grad_fn), Raised)

    check_session(session)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
@pytest.mark.parametrize("size", [0, 4])
def test_an_alias_made_outside_of_what_has_another_dtype_in_inference_mode(dtype, size):
    def f(x):
        y = x * 2
        with torch.inference_mode():
            view = y.view(dtype)
            view.zero_()
        return view.detach(), y

    check(f, lambda: (plain(size, size),))


@pytest.mark.parametrize("use", [lambda x: x * 2, lambda x: x.view(2), lambda x: x.detach().zero_(), torch.neg_])
def test_what_was_an_inference_tensor_counts_no_versions(use):
    def f(x, y):
        use(x)
        x.data = y

    def session(compile):
        compiled = compile(f)
        for make in (plain, leaf):
            with torch.inference_mode():
                x = make(2)
            for _ in range(3):
                yield attempt(lambda x=x: compiled(x, plain(2, seed=1))), x

    check_session(session)


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("written", ["nothing", "base before", "base after", "view after"])
def test_a_view_made_in_inference_mode_and_detached_in_place(requires_grad, written):
    def f(x):
        v = x.t()
        if written == "base before":
            x.zero_()
        v.detach_()
        if written == "base after":
            x.zero_()
        elif written == "view after":
            v.zero_()
        return v, v * 2

    def session(compile):
        x = plain(3, 2).requires_grad_(requires_grad)
        with torch.inference_mode():
            v, y = compile(f)(x)
        yield v, y, attempt_later(lambda: v.is_leaf), attempt_later(lambda: v.grad_fn), v._base is x

    check_session(session)


@pytest.mark.parametrize("view", [torch.view_as_real, lambda x: x.t(), torch.conj], ids=["real", "t", "conj"])
@pytest.mark.parametrize("kind", ["leaf", "result"])
def test_a_leaf_is_reshaped_in_inference_mode_inside_and_used_there(view, kind):
    def f(x, v):
        with torch.inference_mode():
            x.t_()
            x.clone()
        return v, v.clone()

    def session(compile):
        source = leaf(2, 3, dtype=torch.complex64)
        x = source if kind == "leaf" else source * 1
        v = view(x)
        out = compile(f)(x, v)
        yield out, x, v.is_leaf
        yield attempt_later(
            lambda: torch.autograd.grad(
                [torch.view_as_real(y).sum() if y.is_complex() else y.sum() for y in out], [source]
            )
        )

    check_session(session)


@pytest.mark.parametrize("f", [lambda x: x.t(), lambda x: x.add_(1), lambda x: x.set_()], ids=["t", "add_", "set_"])
@pytest.mark.parametrize("moves", [lambda v: v.set_(), lambda v: setattr(v, "data", plain(4))], ids=["set_", "data"])
def test_a_view_that_left_its_base_comes_in_inference_mode(f, moves):
    def session(compile):
        compiled = compile(f)
        x = leaf(2) * 1
        v = x[1:]
        moves(v)
        with torch.inference_mode():
            out = compiled(v)
        yield out, out.is_inference(), v, v.is_inference(), out.requires_grad

    check_session(session)
