"""BEHAVIOUR 6: writes to wrapper subclasses, views of them, tangents unlike their results, modes around the call."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.custom_tensor import ConstantExtraMetadataTensor
from torch.testing._internal.two_tensor import TwoTensor, TwoTensorMode

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, check, check_session, cotangent, given, leaf, plain
from tests.behaviour.wrappers import Tagged, extra, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


# -- data --------------------------------------------------------------------------------------------


@every_class
def test_a_written_input(make):
    def f(x, y):
        x.add_(y)
        return x * y

    check(f, lambda: given(make(3), make(3, seed=1, grad=True)))


@every_class
def test_an_input_written_through_a_view(make):
    def f(x):
        x[1:].mul_(2)
        x.view(-1)[0].zero_()
        return x + 1

    check(f, lambda: given(make(4)))


def test_a_non_leaf_written():
    def session(compile):
        leaf_ = two(3, grad=True)
        x = leaf_ * 2
        y = compile(lambda x: x.mul_(3))(x)
        yield leaf_, x, y
        x.backward(cotangent(x))
        yield leaf_, x, y

    check_session(session)


def test_a_non_leaf_written_through_a_view():
    def session(compile):
        leaf_ = two(4, grad=True)
        x = leaf_ * 2

        def f(x):
            x[1:].mul_(3)
            return x * x

        y = compile(f)(x)
        yield leaf_, x, y
        y.backward(cotangent(y))
        yield leaf_, x, y

    check_session(session)


def test_an_input_that_starts_to_require_grad():
    def f(x, y):
        x.mul_(y)
        return x + 1

    check(f, lambda: given(two(3), two(3, seed=2, grad=True)))


def test_requires_grad_of_an_input():
    def f(x):
        x.requires_grad_()
        return x * x

    check(f, lambda: given(two(3)))


def test_a_leaf_written_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.mul_(2)
        return x * x

    check(f, lambda: given(two(3, grad=True)))


def test_a_leaf_written():
    check(lambda x: x.mul_(2), lambda: given(two(3, grad=True)))


def test_an_input_written_through_detach():
    def f(x):
        y = x * 1
        x.detach().add_(1)
        return y * 2, x * 3

    check(f, lambda: given(two(3, grad=True)))


def test_values_saved_before_a_write():
    def f(x, y):
        z = x.exp() * y
        with torch.no_grad():
            y.add_(1)
        return z

    check(f, lambda: given(plain(3), two(3)))


def test_what_is_saved_is_written_by_the_caller():
    check(
        lambda x, y: x * y,
        lambda: given(two(3, grad=True), two(3, seed=1)),
        after=lambda args, outputs: args[1].add_(1),
    )


@every_class
@pytest.mark.parametrize("op", [torch.exp, torch.sin, lambda x: x[:].sigmoid_()], ids=["exp", "sin", "view"])
@pytest.mark.parametrize("written", ["x", "output", "nothing"])
def test_what_a_wrapper_saves_is_written_by_the_caller(make, op, written):
    def session(compile):
        root = make(3, grad=True)
        x = root * 1
        out = compile(op)(x)
        write = {"x": x, "output": out, "nothing": plain(2)}[written]
        (gradient,) = torch.autograd.grad(out.sum(), root, create_graph=True)
        with torch.no_grad():
            write.add_(1)
        yield gradient
        yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), root, retain_graph=True))
        yield attempt_later(lambda: torch.autograd.grad(out.sum(), root))

    check_session(session)


def test_what_is_saved_is_written_inside():
    def f(x, y):
        z = x * y
        y.add_(1)
        return z

    check(f, lambda: given(two(3, grad=True), two(3, seed=1)))


def test_a_plain_tensor_written_from_a_wrapper():
    def f(x, y):
        with torch.no_grad():
            x.copy_(y.a)
        return x * 2

    check(f, lambda: given(plain(3), two(3, seed=1)))


def test_an_input_resized_to_zero_and_written_under_inference_mode():
    def f(x):
        return x.mul_(2) + 1

    def session(compile):
        x = two(3)
        g = compile(f)
        with torch.inference_mode():
            y = g(x)
        yield x, y

    check_session(session)


# -- metadata ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.unsqueeze_(0),
        lambda x: x.unsqueeze_(0).squeeze_(0),
        lambda x: x.as_strided_((2,), (1,), 1),
    ],
    ids=["t_", "transpose_", "unsqueeze_", "cancelling", "as_strided_"],
)
@pytest.mark.parametrize("make", [two, tagged], ids=["two", "tagged"])
def test_changed_metadata(make, change):
    def f(x):
        change(x)
        return x * 2

    check(f, lambda: given(make(2, 3)))


def test_changed_metadata_and_data():
    def f(x, y):
        x.t_()
        x.mul_(2)
        x[0].add_(y)
        return x + 1

    check(f, lambda: given(two(2, 3), two(2, seed=1)))


def test_changed_metadata_of_a_non_leaf():
    def session(compile):
        leaf_ = two(2, 3, grad=True)
        x = leaf_ * 2

        def f(x):
            x.t_()
            return x * x

        y = compile(f)(x)
        yield leaf_, x, y
        y.backward(cotangent(y))
        yield leaf_, x, y

    check_session(session)


def test_detach_in_place():
    def session(compile):
        leaf_ = two(3, grad=True)
        x = leaf_ * 2

        def f(x):
            y = x * 3
            x.detach_()
            return y

        y = compile(f)(x)
        yield leaf_, x, y
        y.backward(cotangent(y))
        yield leaf_, x, y

    check_session(session)


def _used_before_and_after(x, w):
    before = x * 2
    x.detach_()
    cut = x * 5
    x.mul_(w)
    return x, before, cut, x * 3


@every_class
@pytest.mark.parametrize("kind", ["leaf", "no leaf"])
@pytest.mark.parametrize("f", [lambda x, w: x.detach_().mul_(w), _used_before_and_after])
def test_detach_in_place_and_then_a_write_under_grad(make, kind, f):
    """What was before the cut gets no gradient by what was written, not even zeros."""

    def session(compile):
        root, w = make(3, grad=True), make(3, seed=2, grad=True)
        x = root * 1 if kind == "no leaf" else root
        results = compile(f)(x, w)
        for r in results if isinstance(results, tuple) else (results,):
            if r.requires_grad:
                yield attempt_later(lambda r=r: r.backward(cotangent(r), retain_graph=True))
            yield root.grad, w.grad, results

    check_session(session)


# -- views -------------------------------------------------------------------------------------------


@every_class
def test_a_view_of_an_input(make):
    check(lambda x: (x.view(-1), x[1:]), lambda: given(make(3, 2, grad=True)))


def test_a_view_of_an_input_written_by_the_caller():
    def session(compile):
        leaf_ = two(3, 2, grad=True)
        x = leaf_ * 2
        y = compile(lambda x: x.view(-1))(x)
        y.mul_(3)
        z = x * x
        yield leaf_, x, y, z, y._base is x
        z.backward(cotangent(z))
        yield leaf_, x, y, z

    check_session(session)


def test_a_view_of_a_view_of_an_input():
    check(lambda x: x.t()[1:].unsqueeze(0), lambda: given(two(3, 2, grad=True)))


def test_several_results_of_a_view():
    check(lambda x: x.split(2), lambda: given(two(4, grad=True)))


def test_views_of_an_intermediate():
    def f(x):
        y = x * 2
        return y, y.view(-1), y[0]

    check(f, lambda: given(two(3, 2, grad=True)))


def test_views_of_an_intermediate_that_is_not_returned():
    def f(x):
        y = x * 2
        return y.view(-1), y[0]

    check(f, lambda: given(two(3, 2, grad=True)))


def test_a_detached_alias_of_an_input():
    check(lambda x: x.detach(), lambda: given(two(3, grad=True)))


def test_a_view_made_under_no_grad():
    def f(x):
        with torch.no_grad():
            return x.view(-1)

    check(f, lambda: given(two(3, 2, grad=True)), backward=None)


def test_a_view_of_a_written_input():
    def f(x, w):
        y = x.view(-1)
        x.mul_(w)
        return y, x[0]

    check(f, lambda: given(two(3, 2), two(3, 2, seed=1, grad=True)))


def test_a_view_and_its_base_passed():
    def session(compile):
        leaf_ = two(3, 2, grad=True)
        x = leaf_ * 2
        v = x.view(-1)
        y = compile(lambda x, v: x * v.view(3, 2))(x, v)
        yield leaf_, x, v, y
        y.backward(cotangent(y))
        yield leaf_, x, v, y

    check_session(session)


@pytest.mark.parametrize("written", ["base", "view"])
def test_a_view_and_its_base_passed_and_one_written(written):
    def session(compile):
        leaf_ = two(3, 2, grad=True)
        x = leaf_ * 2
        v = x.view(-1)

        def f(x, v):
            (x if written == "base" else v).mul_(3)
            return x * v.view(3, 2)

        y = compile(f)(x, v)
        yield leaf_, x, v, y
        y.backward(cotangent(y))
        yield leaf_, x, v, y

    check_session(session)


def test_a_view_passed_without_its_base_and_written():
    def session(compile):
        leaf_ = two(3, 2, grad=True)
        x = leaf_ * 2
        v = x[1:]

        def f(v):
            v.mul_(3)
            return v + 1

        y = compile(f)(v)
        z = x * 2
        yield leaf_, x, v, y, z
        torch.autograd.backward([y, z], [cotangent(y), cotangent(z)])
        yield leaf_, x, v, y, z

    check_session(session)


# -- backward ----------------------------------------------------------------------------------------


def test_one_result_of_two():
    check(lambda x: (x * x, x.exp() * 0 + x), lambda: given(two(3, grad=True)), backward=[1])


def test_outputs_backpropagated_one_after_the_other():
    def separately(roots):
        for r in roots:
            r.backward(cotangent(r))

    check(lambda x, y: (x * x, y * y), lambda: given(two(3, grad=True), leaf(3)), backward=separately)


def test_a_second_backward():
    def twice(roots):
        for _ in range(2):
            roots[0].backward(cotangent(roots[0]))

    check(lambda x: x * x, lambda: given(two(3, grad=True)), backward=twice)


def test_a_gradient_penalty():
    def penalty(roots):
        (y,) = roots
        (g,) = torch.autograd.grad(y, leaves, cotangent(y), create_graph=True)
        g.backward(cotangent(g, 2))

    leaves = []

    def make():
        leaves[:] = [two(3, grad=True)]
        return given(*leaves)

    check(lambda x: x * x * x, make, backward=penalty)


@pytest.mark.parametrize("make", [two, tagged], ids=["two", "tagged"])
def test_a_plain_tangent_for_a_wrapper(make):
    def session(compile):
        x = make(3, grad=True)
        y = compile(lambda x: x * x)(x)
        y.backward(plain(3, seed=3))
        yield x, y

    check_session(session)


@every_class
@pytest.mark.parametrize("lazily", [torch.conj, lambda x: x.conj().imag, lambda x: x.conj().t()])
@pytest.mark.parametrize("made", [torch.complex, lambda x, y: torch.polar(x, y) * x])
def test_what_a_tangent_holds_is_to_be_conjugated_or_negated(make, lazily, made):
    def session(compile):
        x = make(3, grad=True)
        out = attempt_later(lambda: compile(lambda x: lazily(made(x, x)))(x))
        yield out
        if isinstance(out, torch.Tensor):
            yield attempt_later(lambda: out.backward(torch.ones_like(out)))
            yield x

    check_session(session)


def test_a_wrapper_for_the_tangent_of_a_plain_result():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x * x)(x)
        y.backward(two(3, seed=3))
        yield x, y
        x.grad = None
        y = compile(lambda x: x * x)(x)
        y.backward(plain(3, seed=3))
        yield x, y

    check_session(session)


def test_a_tangent_with_other_metadata():
    def session(compile):
        f = compile(lambda x: x * x)
        for tag in ("a", "b", "a"):
            x = tagged(3, tag="x", grad=True)
            y = f(x)
            y.backward(Tagged(plain(3, seed=3), tag, 5))
            yield x, y

    check_session(session)


def test_a_tangent_of_another_class():
    def session(compile):
        x = two(3, grad=True)
        y = compile(lambda x: x + x)(x)
        y.backward(TwoTensor(two(3, seed=3), two(3, seed=4)))
        yield x, y

    check_session(session)


class Coerced(Tagged):
    """Turns tangents into what is expected of them, as distributed tensors do."""

    coerced = 0

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Coerced(inner["elem"], context["tag"], context["scale"])

    def __coerce_tangent_metadata__(self):
        return Coerced(self.elem, "tangent", 1)

    def __coerce_same_metadata_as_tangent__(self, context, kind=None):
        Coerced.coerced += 1
        return Coerced(self.elem * self.scale, context["tag"], context["scale"])


def test_a_class_that_coerces_its_tangents():
    x = Coerced(plain(3), "x").requires_grad_()
    y = aotcheck.aot_function(lambda x: x + x)(x)
    Coerced.coerced = 0
    y.backward(Coerced(plain(3, seed=2), "other", 3))
    assert Coerced.coerced == 1
    assert x.grad is not None
    assert torch.equal(x.grad.elem, 2 * 3 * plain(3, seed=2))


def test_hooks_of_the_caller():
    def session(compile):
        seen = []
        x = two(3, grad=True)
        x.register_hook(lambda g: seen.append(g * 1))
        y = compile(lambda x: x * x)(x)
        y.register_hook(lambda g: g * 2)
        y.backward(cotangent(y))
        yield x, y, seen

    check_session(session)


# -- modes -------------------------------------------------------------------------------------------


def test_a_mode_around_the_call():
    def session(compile):
        f = compile(lambda x: x * torch.ones(3))
        with TwoTensorMode():
            y = f(plain(3))
        yield f(plain(3)), y

    check_session(session)


def test_autocast_around_the_call():
    def session(compile):
        f = compile(lambda x, w: x @ w)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = f(two(2, 3), two(3, 2))
        yield y, f(two(2, 3), two(3, 2))

    check_session(session)


def test_no_grad_around_the_call():
    def session(compile):
        f = compile(lambda x: (x * x, x.view(-1)))
        with torch.no_grad():
            yield f(two(3, grad=True))
        yield f(two(3, grad=True))

    check_session(session)


def test_an_error_of_the_class():
    def session(compile):
        f = compile(lambda x, y: TwoTensor(x, y) * 2)
        yield attempt(lambda: f(plain(3), plain(4)))
        yield f(plain(3), plain(3))

    check_session(session)


def test_a_subclass_that_is_no_wrapper_is_refused():
    class Odd(torch.Tensor):
        pass

    x = plain(3).as_subclass(Odd)
    with pytest.raises(aotcheck.UnsupportedError, match="Odd"):
        aotcheck.aot_function(lambda x: x * 2)(x)


def test_a_result_of_the_wrong_kind_of_cotangent_names_both():
    def session(compile):
        x = two(3, grad=True)
        y = compile(lambda x: x.exp() * x)(x)
        yield attempt_later(lambda: y.backward(extra(3)))

    check_session(session)


def _under_no_grad(write):
    with torch.no_grad():
        write()


LEAVES = {
    "written, then required": lambda x, v: (x.zero_(), x.requires_grad_()),
    "required, then written": lambda x, v: (x.requires_grad_(), _under_no_grad(x.zero_)),
    "required alone": lambda x, v: x.requires_grad_(),
    "written through the view": lambda x, v: (v.zero_(), x.requires_grad_()),
    "the view required": lambda x, v: (x.zero_(), v.requires_grad_()),
}


@pytest.mark.parametrize("act", LEAVES.values(), ids=LEAVES)
@every_class
def test_a_base_that_begins_to_require_grad(make, act):
    def make_inputs():
        base = make(2, 2)
        return given(base, base.t())

    def f(x, v):
        act(x, v)
        return x * 2

    check(f, make_inputs, backward=None, probe=False)


_LAZY = {
    "imag": lambda: (base := torch.view_as_complex(plain(2, 2)), base.conj().imag),
    "neg": lambda: (base := plain(2), torch._neg_view(base)),
    "conj": lambda: (base := torch.view_as_complex(plain(2, 2)), base.conj()),
}
_WRITES = {
    "add_": lambda x: x.add_(1),
    "add_ itself": lambda x: x.add_(x),
    "mul_": lambda x: x.mul_(2),
    "mul_ by what has no dimensions": lambda x: x.mul_(torch.tensor(2.0, dtype=torch.float64, device=x.device)),
    "copy_": lambda x: x.copy_(x.new_ones(2)),
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "pow_": lambda x: x.pow_(2),
    "addcmul_": lambda x: x.addcmul_(x, x),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 1),
    "masked_fill_": lambda x: x.masked_fill_(torch.tensor([True, False], device=x.device), 2),
    "foreach": lambda x: torch._foreach_add_([x], 1),
    "foreach by lists": lambda x: torch._foreach_mul_([x], [x]),
    "out": lambda x: torch.mul(x, x, out=x),
    "through a view": lambda x: x[:1].mul_(2),
    "of integers": lambda x: x.add_(torch.tensor([1, 2], device=x.device)),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("kind", _LAZY)
def test_what_a_wrapper_holds_is_written_as_its_memory_is(kind, write):
    """Below the class of a wrapper kernels do not see that a tensor is conjugated or negated lazily."""

    def f(x):
        write(x)

    def make():
        base, lazy = _LAZY[kind]()
        return given(ConstantExtraMetadataTensor(lazy), also=[base])

    check(f, make)


@pytest.mark.parametrize(
    "alias", [lambda x: x.detach(), lambda x: x.data, lambda x: x[:]], ids=["detach", "data", "view"]
)
@pytest.mark.parametrize("grad", [False, True])
def test_an_alias_of_a_wrapper_is_written_after_the_wrapper_was_saved(alias, grad):
    """What counts writes with it makes the backward raise; ``.data`` does not."""

    def f(x, v, w):
        y = x * w
        with torch.no_grad():
            v.zero_()
        return y

    def session(compile):
        x, w = two(3, grad=grad), leaf(3, seed=2)
        x = x * 1 if grad else x
        v = alias(x)
        y = compile(f)(x, v, w)
        yield y, x.detach(), v.detach(), attempt_later(lambda: torch.autograd.grad(y, w, cotangent(y)))

    check_session(session)
