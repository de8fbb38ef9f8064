"""Second derivatives by tensors that ops saved: results, mutated arguments, written views, packed by hooks."""

import functools
import gc
import weakref

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, one_of, session
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import OF_THEMSELVES


def written_and_kept(op):
    def function(x):
        op(x)
        return x

    return function


KEEPING = {
    "tanh": torch.tanh,
    "exp_": written_and_kept(torch.exp_),
    "of a view": lambda x: x[1:].sigmoid(),
    "several": lambda x: torch.max(x.exp(), 0),
    "svd": lambda x: torch.linalg.svd(x[None] * x[:, None] + torch.eye(2, device=x.device))[1],
    "prod": lambda x: x.prod(0),
    "a single factor": lambda x: x[:1].prod(),
}


@pytest.mark.parametrize("function", KEEPING.values(), ids=KEEPING)
@pytest.mark.parametrize("unpack", [lambda t: t, lambda t: t.clone()], ids=["the same", "a copy"])
@session(rtol=1e-5)
def test_a_second_derivative_of_a_call_under_saved_tensor_hooks(compile, function, unpack):
    """It comes by results that their ops keep, and prod is differentiated by the formula that the data ask for."""

    compiled = compile(function)
    for zero in (False, True):
        root = leaf(2)
        x = root * 0 if zero else root.clone()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), unpack):
            y = compiled(x)
        y = y if isinstance(y, torch.Tensor) else y[0]
        (first,) = torch.autograd.grad(y, root, torch.ones_like(y), create_graph=True)
        yield first
        yield torch.autograd.grad(y.sum() + first.square().sum(), (root, y))


def packed_inside(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach() * 2, lambda t: t / 2):
        return x.tanh()


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)


@pytest.mark.parametrize("function", [packed_inside, checkpointed])
@session(rtol=1e-5)
def test_a_second_derivative_by_a_result_that_hooks_or_a_checkpoint_inside_packed(compile, function):
    x = leaf(2)
    y = compile(function)(x)
    (first,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    yield first
    yield torch.autograd.grad(y.sum() + first.square().sum(), (x, y))


WRITES = {
    "exp_": lambda x: x.exp_(),
    "relu_": lambda x: x.relu_(),
    "two": lambda x: x.tanh_().sigmoid_(),
    "not kept": lambda x: x.sigmoid_().mul_(2),
    "read afterwards": lambda x: (x.square_(), x.sin())[0],
}

VIEWS = {"itself": lambda x: x, "transposed": lambda x: x.t(), "a part": lambda x: x[1:]}


@pytest.mark.parametrize("inner", VIEWS)
@pytest.mark.parametrize("outer", VIEWS)
@pytest.mark.parametrize("op", WRITES)
@session(rtol=1e-5)
def test_a_second_derivative_by_a_written_view_that_saved_tensor_hooks_packed(compile, op, outer, inner):
    root = leaf(3)
    x = VIEWS[outer](root * 2)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        out = compile(lambda x: WRITES[op](VIEWS[inner](x)))(x)
    (gradient,) = torch.autograd.grad(out.sum(), root, create_graph=True)
    yield out.detach(), torch.autograd.grad(gradient.square().sum(), (root, out), allow_unused=True)


@session
def test_a_second_derivative_by_a_mutated_argument_that_a_result_is_computed_from(compile):
    def f(x):
        x.exp_()
        return x * x

    x = leaf(3)
    argument = x * 1
    y = compile(f)(argument)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    yield y, g
    yield torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize(
    "operands", [lambda x: [x.t()], lambda x: [x, x.t()], lambda x: [x * 1, x.t()]], ids=["t", "x,t", "y,t"]
)
@pytest.mark.parametrize("write", [torch._foreach_abs_, torch._foreach_exp_, torch._foreach_neg_])
@pytest.mark.parametrize("read", [torch._foreach_abs, lambda ts: torch._foreach_mul(ts, ts)], ids=["abs", "square"])
@session(rtol=1e-4)
def test_second_derivatives_of_lists_that_foreach_ops_mutated(compile, operands, write, read):
    def f(x):
        ts = operands(x)
        write(ts)
        return ts, read(ts)

    x = leaf(2, 2)
    out = compile(f)(x / 8)
    yield out
    for t in [t for ts in out for t in ts]:
        (g,) = torch.autograd.grad(t.sum(), x, create_graph=True)
        yield g
        if g.requires_grad:
            yield torch.autograd.grad((g * g).sum(), x, retain_graph=True, allow_unused=True)


_WRITTEN_VIEWS = {
    "its view written": lambda a, v: (v.exp_(), None)[1],
    "the view, returned": lambda a, v: v.relu_(),
    "what is made of both": lambda a, v: (v.sigmoid_(), v * 3, a * 2)[1:],
    "a view of the view": lambda a, v: v[1].exp_(),
    "of a list": lambda a, v: (torch._foreach_exp_([v]), v)[1],
    "a view made inside": lambda a, v: a.t().exp_(),
    "a base made inside": lambda a, v: ((b := a * 2), b.t().exp_()),
    "a view of what was made inside": lambda a, v: (a * 2).t().exp_(),
}


def _seen(gradients):
    return [None if g is None else g.detach().clone() for g in gradients]


@pytest.mark.parametrize("function", _WRITTEN_VIEWS.values(), ids=_WRITTEN_VIEWS)
@pytest.mark.parametrize("ended", [False, True], ids=["lasting", "ended"])
@session(rtol=1e-5)
def test_second_and_third_derivatives_by_a_written_view_and_its_hooks(compile, function, ended):
    compiled = compile(function)
    for _ in range(2):
        x = leaf(2, 3)
        a = x / 8
        v = a.t()
        out = compiled(a, v)
        out = [a, v, *(out if isinstance(out, tuple) else () if out is None else (out,))]
        root = out[-1]
        if ended:  # hooks of a base are called for a view that ended: docs/limits.md
            del v, out[1]
        hooked = {id(t): t for t in out}.values() if not ended else []
        seen = []
        for k, t in enumerate(hooked):
            assert t.grad_fn is not None  # where a view was written by another, torch needs that look at it first
            t.register_hook(lambda g, k=k, seen=seen: seen.append((k, *_seen([g]))))
        cotangent = torch.full_like(root, 2).detach().requires_grad_()
        (first,) = torch.autograd.grad([root], [x], [cotangent], create_graph=True)
        to = [x, cotangent, *([] if ended else out)]
        ones = torch.ones_like(first)
        second = torch.autograd.grad([first], to, [ones], create_graph=True, allow_unused=True)
        yield out, first, second, _seen([g for _, g in seen]), [k for k, _ in seen]
        third = sum(g.sum() for g in second if g is not None)
        for root, gradient in ((third, [torch.ones_like(third)]), (first, [ones])):
            again = functools.partial(torch.autograd.grad, [root], to, gradient, allow_unused=True)
            yield attempt_later(again)
        yield _seen([g for _, g in seen]), [k for k, _ in seen]


of_itself = one_of(OF_THEMSELVES)


@session(rtol=1e-5)
def test_second_derivatives_by_a_saved_result_call_its_hooks(compile, of_itself):
    compiled = compile(of_itself)
    for _ in range(2):
        x = leaf(3)
        y = compiled(x * 0.5)
        seen = []
        y.register_hook(lambda g, seen=seen: seen.append(g.detach().clone()))
        y.register_hook(lambda g: g * 2)
        (g,) = torch.autograd.grad([y], [x], [plain(3, seed=1)], create_graph=True)
        second = torch.autograd.grad([g], [x, y], [plain(3, seed=2)], allow_unused=True, create_graph=True)
        yield seen, g, second
        third = [s for s in second if s is not None and s.requires_grad]
        yield torch.autograd.grad(third, [x, y], [plain(3, seed=3)] * len(third), allow_unused=True), seen


def test_a_saved_result_and_its_second_derivative_are_freed_without_a_cycle(of_itself):
    compiled = aotcheck.aot_function(of_itself)

    def once():
        x = leaf(3)
        y = compiled(x * 0.5)
        (g,) = torch.autograd.grad([y], [x], [plain(3)], create_graph=True)
        g.sum().backward(retain_graph=True)
        return weakref.ref(y), weakref.ref(g)

    gc.collect()
    gc.disable()
    try:
        assert [r() for _ in range(2) for r in once()] == [None] * 4
    finally:
        gc.enable()


SAVING_WRITES = {
    "keeps its operand": lambda v: v.sin_(),
    "keeps its result": lambda v: v.exp_(),
    "keeps it by another": lambda v: v.mul_(v.clone()),
    "by a part": lambda v: v[:1].cos_(),
    "twice": lambda v: v.pow_(2).exp_(),
    "nothing": lambda v: v.mul_(2),
    "several": lambda v: torch._foreach_cos_([v]),
}


@pytest.mark.parametrize("changes", [False, True], ids=["looks", "changes"])
@pytest.mark.parametrize("used", [False, True], ids=["only written", "used before"])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[0], lambda x: x.view(-1)[1:]])
@pytest.mark.parametrize("make_written", SAVING_WRITES.values(), ids=SAVING_WRITES)
@session(rtol=1e-5)
def test_higher_derivatives_by_the_history_that_a_written_view_had_before_the_call(
    compile, make_written, view, used, changes
):
    """What a write through a view keeps has the history that the view had when the call began, with its hooks."""

    def f(x, v, w):
        before = (v * 3).sin() if used else v.detach()
        make_written(v)
        return x * 1, w.sin(), before

    root, seen = leaf(2, 2), []
    with torch.no_grad():
        root /= 4
    x = root * 2
    v = view(x)
    for t in (x, v):
        t.register_hook(lambda g: (seen.append(g.detach().contiguous()), g * 2 if changes else None)[1])
    results = compile(f)(x, v, x[:1])
    gradients = [y for y in results if y.requires_grad]
    for _ in range(3):
        gradients = torch.autograd.grad([g.sum() for g in gradients], root, create_graph=True)
        yield gradients[0].detach(), list(seen)
        seen.clear()
        if not gradients[0].requires_grad:
            break


_KEEP_THEIR_RESULTS = {
    "group norm": lambda x, y: torch.nn.functional.group_norm((x * y)[None], 2),
    "native group norm": lambda x, y: torch.native_group_norm(x.sin()[None], y[:, 0], None, 1, 4, 4, 2, 1e-5)[0],
    "left singular vectors": lambda x, y: torch.linalg.svd(x @ y, full_matrices=False)[0].abs(),
    "singular values": lambda x, y: torch.linalg.svd(x @ y, full_matrices=False)[1] * y,
    "eigenvectors": lambda x, y: torch.linalg.eigh(x @ x.t() + y.diagonal().diag())[1].abs(),
    "qr": lambda x, y: torch.linalg.qr(x @ y)[1],
    "logarithm of a determinant": lambda x, y: torch.linalg.slogdet(x @ y)[1],
    "lu": lambda x, y: torch.linalg.lu_factor(x @ y)[0],
}


def _invertible(seed):
    made = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return to_device(made.add_(torch.eye(4) * 3))


@pytest.mark.parametrize("f", _KEEP_THEIR_RESULTS.values(), ids=_KEEP_THEIR_RESULTS)
@pytest.mark.parametrize("of", [(True, True), (True, False), (False, True)], ids=["both", "first", "second"])
@session(rtol=1e-6)
def test_second_derivatives_by_saved_results_that_are_not_returned(compile, f, of):
    x = _invertible(1)
    y = _invertible(2)
    x.requires_grad_(of[0])
    y.requires_grad_(of[1])
    trained = [t for t in (x, y) if t.requires_grad]
    for _ in range(2):
        out = compile(f)(x, y)
        first = torch.autograd.grad(out.square().sum(), trained, create_graph=True)
        yield [t.detach() for t in first]
        squares = sum(t.square().sum() for t in first)
        yield attempt_later(lambda s=squares: torch.autograd.grad(s, trained, create_graph=True, allow_unused=True))
        yield attempt_later(lambda s=squares: torch.autograd.grad(s * 2, trained, allow_unused=True))
        yield attempt_later(lambda o=out: o.sum().backward())
        yield [t.grad for t in trained]


_OTHER_VIEWS_READ_LATER = {
    "linear": lambda x, y: torch.nn.functional.linear(x[0], y),
    "linear with a bias": lambda x, y: torch.nn.functional.linear(x[0], y, x[1]),
    "addr": lambda x, y: torch.addr(x @ y, x[0], y[1]),
    "lu solve": lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), y),
    "triangular solve": lambda x, y: torch.linalg.solve_triangular(x.triu(), y, upper=True),
    "logdet": lambda x, y: torch.logdet(x @ x.t()),
    "product of matrices": lambda x, y: torch.linalg.multi_dot([x[0], y, x[1]]),
    "columns": lambda x, y: (x[:, 0].unsqueeze(1) * y.t()).sin(),
}


@pytest.mark.parametrize("f", _OTHER_VIEWS_READ_LATER.values(), ids=_OTHER_VIEWS_READ_LATER)
@pytest.mark.parametrize("of", [(True, True), (True, False), (False, True)], ids=["both", "first", "second"])
@session(rtol=1e-6)
def test_higher_derivatives_that_read_other_views_of_what_was_saved(compile, f, of):
    x = _invertible(1)
    y = _invertible(2)
    x.requires_grad_(of[0])
    y.requires_grad_(of[1])
    trained = [t for t in (x, y) if t.requires_grad]
    compiled = compile(f)
    for _ in range(2):
        found = [compiled(x, y)]
        for _ in range(4):
            terms = [t.sin().sum() for t in found if t is not None and t.requires_grad]
            if not terms:
                break
            found = torch.autograd.grad(sum(terms), trained, create_graph=True, allow_unused=True)
            yield [None if t is None else t.detach() for t in found]


@session
def test_a_second_derivative_by_an_argument_that_was_reshaped_in_place_and_written(compile):
    def f(x):
        x.unsqueeze_(0)
        x.zero_()
        return x.sin()

    root = leaf(3, dtype=torch.complex64)
    x = torch.view_as_real(root * 1)
    out = compile(f)(x)
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    yield gradient
    yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), root))
