"""Sparse gradients of embeddings; gradients, tangents and histories of sparse tensors."""

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.harness import agrees, attempt_later, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.refusals.common import LAYOUTS, holey, holey_leaf, integers


def indices():
    return integers(1, 0, 1)


def looked_up(i, w):
    return F.embedding(i, w, sparse=True)


@session
def test_a_sparse_grad_of_an_argument_is_read_inside(compile):
    w = leaf(4, 3)
    compiled = compile(lambda i, w: (looked_up(i, w) * 2, w.grad))
    for _ in range(2):
        out, gradient = compiled(indices(), w)
        yield out, gradient
        out.backward(plain(3, 3))


EMBEDDINGS = {
    "alone": looked_up,
    "and a loss": lambda i, w: (looked_up(i, w) ** 2).sum(),
    "twice": lambda i, w: looked_up(i, w) * 2 + looked_up(i.flip(0), w) * 3,
    "two results": lambda i, w: (looked_up(i, w), looked_up(i + 1, w) * 2),
    "beside a dense use": lambda i, w: looked_up(i, w).sum() + (w * w).sum(),
    "dense and sparse results": lambda i, w: (looked_up(i, w), w * 2),
    "of something computed": lambda i, w: looked_up(i, w * 2),
    "of something computed and returned": lambda i, w: (lambda v: (v, looked_up(i, v)))(w.square()),
    "two dimensions": lambda i, w: looked_up(torch.stack([i, i + 1]), w),
    "an offset of a bag": lambda i, w: F.embedding_bag(i, w, i.new_tensor([0, 2]), sparse=True),
    "a bag that sums": lambda i, w: F.embedding_bag(i, w, i.new_tensor([0, 2]), mode="sum", sparse=True),
    "a bag of rows": lambda i, w: F.embedding_bag(i.reshape(1, 3), w, sparse=True),
    "with padding": lambda i, w: F.embedding(i, w, padding_idx=1, sparse=True),
    "with padding, all of it": lambda i, w: F.embedding(i * 0 + 1, w, padding_idx=1, sparse=True),
    "with padding, two dimensions": lambda i, w: F.embedding(torch.stack([i, i + 1]), w, padding_idx=2, sparse=True),
    "a bag with padding": lambda i, w: F.embedding_bag(i, w, i.new_tensor([0, 2]), sparse=True, padding_idx=0),
    "an index that is written": lambda i, w: looked_up(i.add_(1), w),
    "a scale that eager refuses": lambda i, w: F.embedding(i, w, scale_grad_by_freq=True, sparse=True),
}


@pytest.mark.parametrize("f", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize("which", [None, [0], [-1]], ids=["all", "first", "last"])
def test_sparse_gradients_of_embeddings(f, which):
    options = {} if which is None else {"backward": which}
    check(f, lambda: given(indices(), leaf(4, 3)), lambda: given(indices(), leaf(4, 3, seed=1)), **options)


@agrees(lambda: given(indices(), leaf(4, 3), leaf(3)))
def test_a_sparse_embedding_bag_with_per_sample_weights(i, w, p):
    return F.embedding_bag(i, w, i.new_tensor([0, 2]), mode="sum", sparse=True, per_sample_weights=p)


@session
def test_sparse_and_dense_gradients_accumulate(compile):
    w = leaf(4, 3)
    sparse, dense = compile(lambda i, w: looked_up(i, w) * 2), compile(lambda i, w: w[i] * 2)
    for f in (sparse, sparse, dense, sparse):
        (f(indices(), w) * plain(3, 3)).sum().backward()
        yield w, w.grad


@session
def test_sparse_gradients_by_autograd_grad(compile):
    w = leaf(4, 3)
    out = compile(lambda i, w: looked_up(i, w) * 2)(indices(), w)
    yield torch.autograd.grad(out, w, plain(3, 3), retain_graph=True)
    yield torch.autograd.grad(out, w, plain(3, 3, seed=1))
    yield attempt_later(lambda: torch.autograd.grad(out, w, plain(3, 3)))


@session
def test_hooks_see_sparse_gradients(compile):
    def f(i, w):
        w.register_hook(lambda g: g * 3)
        return looked_up(i, w)

    w, seen = leaf(4, 3), []
    w.register_hook(seen.append)
    w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad))
    compile(f)(indices(), w).backward(plain(3, 3))
    yield w, w.grad, seen


@session
def test_gradients_of_sparse_gradients(compile):
    w = leaf(4, 3)
    out = compile(lambda i, w: looked_up(i, w) ** 2)(indices(), w)
    (g,) = torch.autograd.grad(out, w, plain(3, 3), create_graph=True)
    yield g
    g.to_dense().pow(2).sum().backward()
    yield w.grad


@session
def test_a_backward_inside_gives_a_sparse_gradient(compile):
    def f(i, w):
        (looked_up(i, w) * 2).sum().backward()
        return w * 1

    w = leaf(4, 3)
    yield compile(f)(indices(), w), w.grad


@session
def test_a_sparse_tangent_of_a_dense_result(compile):
    w = leaf(4, 3)
    made = compile(lambda w: w.square())
    for tangent in (plain(4, 3).to_sparse(1), plain(4, 3), holey(4, 3).to_sparse()):
        made(w).backward(tangent)
        yield w, w.grad
    v = made(w)
    compile(looked_up)(indices(), v).backward(plain(3, 3))
    yield w, w.grad


@pytest.mark.parametrize(
    "make",
    [
        lambda w: torch.optim.SGD([w], lr=0.5),
        lambda w: torch.optim.SGD([w], lr=0.5, momentum=0.5),
        lambda w: torch.optim.SparseAdam([w], lr=0.5),
        lambda w: torch.optim.Adagrad([w], lr=0.5),
    ],
    ids=["SGD", "SGD with momentum", "SparseAdam", "Adagrad"],
)
@session(rtol=1e-6)
def test_optimizers_take_sparse_gradients(compile, make):
    table = torch.nn.Embedding(4, 3, sparse=True, _weight=plain(4, 3))
    compiled, optimizer = compile(table), make(table.weight)
    for k in range(3):
        optimizer.zero_grad()
        (compiled(indices() + k % 2) ** 2).sum().backward()
        optimizer.step()
        yield table.weight


THROUGH = {
    "there and back": lambda x, d: (x * x).to_sparse().to_dense(),
    "scaled": lambda x, d: (x.to_sparse() * 2).to_dense() * x,
    "hybrid": lambda x, d: x.to_sparse(1).to_dense() * 2,
    "product": lambda x, d: torch.sparse.mm(x.to_sparse(), d),
    "product of what has no gradient": lambda x, d: torch.sparse.mm(x.detach().to_sparse(), d),
    "product with what has no gradient": lambda x, d: torch.sparse.mm(x.to_sparse(), d.detach()),
    "added": lambda x, d: torch.sparse.addmm(d[:2], x.to_sparse(), d),
    "a sum": lambda x, d: torch.sparse.sum(x.to_sparse(), 0).to_dense(),
    "pointwise": lambda x, d: x.to_sparse().abs().tanh().to_dense(),
    "sum of two": lambda x, d: (x.to_sparse() + x.to_sparse() * 2).to_dense(),
    "product of two": lambda x, d: (x.to_sparse() * (x * 2).to_sparse()).to_dense(),
    "beside dense": lambda x, d: x + x.to_sparse(),
    "transposed": lambda x, d: torch.sparse.mm(x.to_sparse().t(), d[:2]),
    "cut": lambda x, d: x.to_sparse().detach().to_dense() * x,
    "hook": lambda x, d: (lambda s: (s.register_hook(lambda g: g * 2), s.to_dense())[1])((x * x).to_sparse()),
}


@pytest.mark.parametrize("f", THROUGH.values(), ids=THROUGH)
def test_gradients_through_sparse_tensors(f):
    check(f, lambda: given(holey_leaf(2, 3), leaf(3, 2)), lambda: given(leaf(2, 3), leaf(3, 2)), rtol=1e-6)


@pytest.mark.parametrize("places", [(2, 0, 2), (0, 1, 2)], ids=["twice", "once"])
def test_gradients_of_the_values_of_a_sparse_tensor(places):
    def f(i, v, d):
        s = torch.sparse_coo_tensor(i, v, (4,))
        t = torch.sparse_coo_tensor(torch.cat([i, i]), v * 2, (3, 3))
        return s, s.to_dense(), torch.sparse.mm(t, d)

    def last_two(outs):
        torch.autograd.backward(outs[1:], [plain(*o.shape) for o in outs[1:]])

    check(f, lambda: given(integers(*places)[None], leaf(3), leaf(3, 2)), backward=last_two, probe=False)


RETURNED = {
    "alone": lambda x: (x * x).to_sparse() * 3,
    "transposed": lambda x: (x * x).to_sparse().t(),
    "with what is computed from it": lambda x: (lambda s: (s, s * 2))((x * x).to_sparse()),
    "with a dense result": lambda x: (lambda s: (s, s.to_dense() * x))((x * x).to_sparse()),
    "as it came": lambda x: x.to_sparse(),
}


@pytest.mark.parametrize("f", RETURNED.values(), ids=RETURNED)
@session
def test_sparse_results_with_histories(compile, f):
    compiled = compile(f)
    for last in (False, True):
        x = holey_leaf(2, 3)
        out = compiled(x)
        outs = out if isinstance(out, tuple) else (out,)
        seen = []
        for s in outs:
            s.register_hook(seen.append)
            s.retain_grad()
        wanted = outs[-1:] if last else outs
        dense = [s.to_dense() if s.is_sparse else s for s in wanted]
        torch.autograd.backward(dense, [plain(*d.shape) for d in dense])
        yield x, outs, [s.grad for s in outs], seen


@session
def test_tangents_of_sparse_results(compile):
    x = holey_leaf(2, 3)
    compiled = compile(lambda x: (x * x).to_sparse())
    for tangent in (plain(2, 3).to_sparse(), plain(2, 3)):
        yield attempt_later(lambda t=tangent: compiled(x).backward(t)), x.grad
    torch.sparse.sum(compiled(x)).backward()
    yield x.grad, torch.autograd.grad(compiled(x), x, plain(2, 3).to_sparse())


def test_to_sparse_of_a_complex_leaf_raises_as_in_eager():
    for f in (lambda x: x.to_sparse(), lambda x: x.to_sparse_csr()):
        check(f, lambda: given(leaf(2, 2, dtype=torch.complex128)))


@pytest.mark.parametrize("to", list(LAYOUTS.values())[:2], ids=list(LAYOUTS)[:2])
def test_gradients_through_compressed_sparse_tensors(to):
    check(lambda x: to(x * x).to_dense() * x, lambda: given(holey_leaf(2, 3)), lambda: given(leaf(2, 3)))
    check(lambda s: s.to_dense() * 2, lambda: given(to(holey(2, 3)).requires_grad_()))


@pytest.mark.parametrize("roots", [(0,), (1,), (0, 1), (1, 2), (0, 2)], ids=str)
@session
def test_second_derivatives_through_a_sparse_result(compile, roots):
    x = leaf(2, 3)
    results = compile(lambda x: (x * 3, (x * x).to_sparse(), x.to_sparse()))(x)
    chosen = [results[k] for k in roots]
    given = [plain(2, 3, seed=k).to_sparse() if t.is_sparse else plain(2, 3, seed=k) for k, t in enumerate(chosen)]
    (first,) = torch.autograd.grad(chosen, x, given, create_graph=True)
    yield first.detach(), first.requires_grad
    if first.requires_grad:
        yield torch.autograd.grad(first.square().sum(), x)


def test_a_sparse_embedding_of_a_weight_that_does_not_require_grad():
    check(
        lambda i, w: torch.nn.functional.embedding(i, w, sparse=True),
        lambda: given(to_device(torch.tensor([1, 0])), plain(4, 3)),
    )
