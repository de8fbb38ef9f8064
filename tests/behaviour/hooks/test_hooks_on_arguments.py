"""The caller's hooks on arguments, leaves, post-accumulate."""

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, backward, cotangent, session
from tests.behaviour.inputs import leaf, plain


@session
def test_a_hook_on_an_argument_of_which_the_function_reads_grad(compile):
    seen = []
    x = leaf(3)
    x.register_hook(lambda g: seen.append(g.clone()))
    y = compile(lambda x: x * 2 if x.grad is None else x * 3)(x)
    backward([y])
    yield x, seen


@session
def test_hooks_on_leaves_registered_before_the_call(compile):
    seen = []
    x, w = leaf(3), leaf(3, seed=1)
    x.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    y = compile(lambda x, w: x * w)(x, w)
    backward([y])
    yield x, w, seen


@session
def test_a_hook_and_retain_grad_on_a_non_leaf_argument(compile):
    seen = []
    root = leaf(3)
    x = root * 2
    x.register_hook(lambda g: seen.append(g.clone()) or g * 3)
    x.retain_grad()
    y = compile(lambda x: x * x)(x)
    backward([y])
    yield root, x.grad, seen


@session
def test_a_multi_grad_hook_on_two_arguments(compile):
    seen = []
    x, w = leaf(3), leaf(3, seed=1)
    torch.autograd.graph.register_multi_grad_hook([x, w], lambda gs: seen.append([g is None for g in gs]))
    y, z = compile(lambda x, w: (x * w, w * 2))(x, w)
    backward([z], retain_graph=True)
    yield seen
    backward([y])
    yield x, w, seen


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2), lambda x: x.detach().add_(1)])
@session
def test_a_hook_on_a_view_argument_that_the_call_writes(compile, write):
    def f(x):
        y = x * 3
        write(x)
        return y, x * 5

    base = leaf(4) * 2
    x = base[1:]
    x.register_hook(lambda g: g * 7)
    out = compile(f)(x)
    yield out, x
    yield torch.autograd.grad(out, [base], [plain(3), plain(3, seed=1)], allow_unused=True)


@pytest.mark.parametrize("view", [lambda y: y.t(), lambda y: y[0], lambda y: y.view(-1), lambda y: y.unsqueeze(0)])
@pytest.mark.parametrize("reshape", [lambda y: y.transpose_(0, 1), lambda y: y.unsqueeze_(0)])
@session
def test_a_hook_on_a_view_argument_that_is_reshaped_after_a_view_of_it_was_made(compile, view, reshape):
    def f(y):
        made = view(y)
        reshape(y)
        return made

    seen = []
    root = leaf(2, 2)
    y = root.clone()[:1]
    y.register_hook(lambda g: seen.append(g.clone()))
    out = compile(f)(y)
    yield out, y
    for t in (y, out):
        yield torch.autograd.grad(t.sum(), root), seen


_VIEWED = {
    "conj": lambda z: z.conj(),
    "neg": lambda z: z.conj().imag,
    "view_as_real": torch.view_as_real,
    "view": lambda z: z.view(2, 2),
}


@pytest.mark.parametrize("hang", ["register_hook", "retain_grad"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("view", _VIEWED.values(), ids=_VIEWED)
@session
def test_an_argument_with_a_hook_is_viewed_between_writes_without_grad(compile, view, mode, hang):
    def f(x):
        x.zero_()
        beside = x.t() if x.dim() == 2 else x[0]
        x.zero_()
        return beside

    base = leaf(4, dtype=torch.complex64).view(2, 2)
    x = view(base)
    x.register_hook(lambda g: g * 2) if hang == "register_hook" else x.retain_grad()
    with mode():
        beside = compile(f)(x)
    yield beside.detach(), x.is_leaf, x
    yield attempt_later(lambda: torch.autograd.grad(x.clone().sum().abs(), base, allow_unused=True))


@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("view", _VIEWED.values(), ids=_VIEWED)
@session
def test_an_argument_with_a_hook_is_viewed_and_then_transposed_in_place(compile, view, root):
    def f(x):
        beside = x.mT
        x.transpose_(0, 1)
        return beside, x

    base = leaf(4, dtype=torch.complex64).view(2, 2) * 1
    x, seen = view(base), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    results = compile(f)(x)
    yield results, x
    yield torch.autograd.grad(results[root].abs().sum(), base), seen


_UNSEEN = {
    "by its data": lambda view, base: view.data.mul_(2),
    "by its base's": lambda view, base: base.data.mul_(2),
    "by an alias": lambda view, base: view.detach().mul_(2),
    "not": lambda view, base: None,
}

_SHAPED = {
    "transposed": lambda t: t.t_(),
    "squeezed": lambda t: t.unsqueeze_(0).squeeze_(0),
    "to itself": lambda t: t.as_strided_(t.shape, t.stride(), t.storage_offset()),
}


@pytest.mark.parametrize("reshaped_first", [False, True])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another view"])
@pytest.mark.parametrize("shape", _SHAPED.values(), ids=_SHAPED)
@pytest.mark.parametrize("write", _UNSEEN.values(), ids=_UNSEEN)
@pytest.mark.parametrize("make", [lambda t: t[:2], lambda t: t.t(), lambda t: t.view(2, 4)])
@session
def test_a_view_argument_with_a_hook_is_reshaped_and_written_through_data(
    compile, make, write, shape, beside, reshaped_first
):
    def function(view, base, *others):
        if reshaped_first:
            shape(view)
        write(view, base)
        if not reshaped_first:
            shape(view)
        return view * 3, base * 2, *[t * 5 for t in others]

    root, seen = leaf(4, 2), []
    base = root * 2
    view = make(base)
    view.register_hook(seen.append)
    others = (base[:, :1],) if beside else ()
    results = attempt(lambda: compile(function)(view, base, *others))
    yield results, view, base
    tangents = [torch.full_like(t, k) for k, t in enumerate(results, 2)]
    yield attempt_later(lambda: torch.autograd.grad(results, [root, base], tangents)), seen


@pytest.mark.parametrize("write", ["mul_", "exp_", "bernoulli_", "a view"])
@pytest.mark.parametrize("returned", ["nothing", "it", "another"])
@pytest.mark.parametrize("quietly", [False, True])
@session
def test_retain_grad_of_an_argument_that_is_written_then_reshaped(compile, write: str, returned: str, quietly: bool):
    def f(x):
        match write:
            case "mul_":
                x.mul_(3)
            case "a view":
                x[:, 1:].mul_(3)
            case _:
                getattr(x, write)()
        x.t_()
        if quietly:
            with torch.inference_mode():
                x.squeeze_(0)
        return {"nothing": None, "it": x, "another": x.sin()}[returned]

    root = leaf(1, 3)
    x = root * 2
    x.retain_grad()
    torch.manual_seed(0)
    compile(f)(x)
    y = x * 5
    yield attempt_later(lambda: y.backward(cotangent(y)))
    yield root.grad, x.grad, x.detach()


@session
def test_retain_grad_of_an_argument_reshaped_under_grad_and_in_inference_mode(compile):
    def f(x):
        x.t_()
        with torch.inference_mode():
            x.squeeze_(0)

    root = leaf(2, 3)
    x = root * 2
    x.retain_grad()
    compile(f)(x)
    y = x * 5
    y.backward(cotangent(y))
    yield root.grad, x.grad, x.detach()
