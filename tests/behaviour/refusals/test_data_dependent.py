"""Values asked of a trace, checks of values."""

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, backward, check, session
from tests.behaviour.inputs import given, leaf, plain

_ELEMENTS = {
    "apply_": lambda x: x.apply_(lambda a: a + 1),
    "map_": lambda x: x.map_(x, lambda a, b: a + b),
    "map2_": lambda x: x.map2_(x, x, lambda a, b, c: a + b + c),
    "str": lambda x: str(x),
    "repr": lambda x: repr(x),
    "f-string": lambda x: f"{x}",
    "percent": lambda x: "%s" % x,  # noqa: UP031
    "in a list": lambda x: str([x]),
}


@pytest.mark.parametrize("asks", _ELEMENTS.values(), ids=_ELEMENTS.keys())
def test_elements_and_text_of_a_tensor_are_refused(asks: Any):
    x = plain(3)
    before = x.clone()
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: (x * 1, asks(x)))(x)
    assert torch.equal(x, before)


def test_text_of_shapes_and_dtypes_is_not_refused():
    check(lambda x: (x * 2, f"{x.shape} {x.dtype} {x.requires_grad}"), lambda: given(plain(3)))


@session(rtol=1e-6)
def test_gaussian_nll_loss_checks_its_variance_as_in_eager(compile):
    f = compile(lambda x, v: F.gaussian_nll_loss(x, torch.ones(3, device=x.device), v))
    for sign in (1, 2, -1, 1):
        x, v = leaf(3), plain(3).abs().add_(1).mul_(sign).requires_grad_()
        out = attempt(lambda x=x, v=v: f(x, v))
        if isinstance(out, torch.Tensor):
            out.backward()
        yield out, x.grad, v.grad


MADE = {
    "normal": lambda a, b: distributions.Normal(a, b.exp()),
    "categorical": lambda a, b: distributions.Categorical(logits=a),
    "categorical of probabilities": lambda a, b: distributions.Categorical(probs=a.softmax(-1)),
    "beta": lambda a, b: distributions.Beta(a.exp(), b.exp()),
    "multivariate": lambda a, b: distributions.MultivariateNormal(a, scale_tril=torch.diag_embed(b.exp())),
    "independent": lambda a, b: distributions.Independent(distributions.Laplace(a, b.exp()), 1),
    "transformed": lambda a, b: distributions.TransformedDistribution(
        distributions.Normal(a, b.exp()), [distributions.TanhTransform(cache_size=1)]
    ),
}


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
@session(rtol=1e-4)
def test_distributions_validate_their_arguments_in_the_graph(compile, make):
    def f(a, b):
        d = make(a / 4, b / 4)
        drawn = d.rsample() if d.has_rsample else d.sample()
        return drawn, d.log_prob(drawn.detach())

    compiled = compile(f)
    for k in range(3):
        a, b = leaf(2, 3, seed=k), leaf(2, 3, seed=k + 1)
        drawn, likelihood = compiled(a, b)
        (drawn.sum() + likelihood.sum()).backward()
        yield drawn, likelihood, a.grad, b.grad


@pytest.mark.on_the_cpu
@session
def test_invalid_parameters_and_samples_of_distributions_raise_as_in_eager(compile):
    def f(mean, deviation, x):
        drawn = distributions.Normal(mean, deviation).rsample()
        return drawn, distributions.Exponential(deviation.abs()).log_prob(x)

    compiled = compile(f)
    for deviation, x in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (2.0, 2.0)):
        yield attempt(lambda d=deviation, x=x: compiled(plain(3), torch.full((3,), d), torch.full((3,), x)))


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("of", [tuple, lambda lengths: torch.tensor(lengths)], ids=["numbers", "tensors"])
@session(rtol=1e-5)
def test_ctc_loss_with_known_lengths_is_differentiated(compile, reduction, of):
    lengths = [((6, 6), (3, 2)), ((6, 5), (1, 3)), ((6, 2), (3, 3))]

    def f(x, targets, which):
        before, after = lengths[which]
        return F.ctc_loss(
            x.log_softmax(2), targets, of(before), of(after), reduction=reduction, zero_infinity=which == 2
        )

    compiled = compile(f)
    for which in (0, 1, 2, 0):
        x = leaf(6, 2, 5, seed=which)
        loss = compiled(x, plain(2, 3, dtype=torch.int64).abs() % 4 + 1, which)
        loss.sum().backward()
        yield loss, x.grad


@pytest.mark.on_the_cpu
@session
def test_ctc_loss_with_lengths_that_are_too_large_raises_as_in_eager(compile):
    compiled = compile(lambda x, t: F.ctc_loss(x.log_softmax(2), t, (7, 6), (3, 2)))
    yield attempt(lambda: compiled(leaf(6, 2, 5), torch.ones(2, 3, dtype=torch.int64)))


@pytest.mark.on_the_cpu
def test_pack_padded_sequence_is_refused_as_data_dependent():
    compiled = aotcheck.aot_function(lambda x, n: torch.nn.utils.rnn.pack_padded_sequence(x, n).data)
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        compiled(plain(4, 2, 3), torch.tensor([4, 2]))


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("weights", [None, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@session
def test_bincount_of_values_below_minlength_is_as_in_eager(compile, dtype, weights):
    def f(x, w, y):
        found = torch.bincount(x, w, minlength=4)
        return found, found.sum() * y

    compiled = compile(f)
    for x in ([0, 3, 1, 3, 3], [2, 2, 0, 0, 1], [], [3]):
        w = None if weights is None else plain(len(x), dtype=weights) / 4
        y = leaf(2)
        found, product = compiled(torch.tensor(x, dtype=dtype), w, y)
        yield found, product, torch.autograd.grad(product.sum(), y)


@pytest.mark.on_the_cpu
@pytest.mark.filterwarnings("ignore:.*runs this function eagerly")
def test_bincount_of_values_beyond_minlength_runs_eagerly_and_is_counted():
    def f(x):
        return torch.bincount(x, minlength=4) * 2

    compiled = aotcheck.aot_function(f, aotcheck.nop)
    for x in ([0, 3], [0, 7, 1], [2, 2], [4, 4]):
        assert torch.equal(compiled(torch.tensor(x)), f(torch.tensor(x)))
    assert aotcheck.counters().refused["data-dependent"]


@pytest.mark.on_the_cpu
@session
def test_bincount_of_negative_values_raises_as_in_eager(compile):
    compiled = compile(lambda x: torch.bincount(x, minlength=3))
    for x in ([0, 2], [0, -1], [1]):
        yield attempt(lambda x=x: compiled(torch.tensor(x)))


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("driver", [None, "gels", "gelsy"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 5, 3)])
@session(rtol=1e-4)
def test_lstsq_with_every_driver_is_differentiated(compile, shape, driver):
    def f(a, b):
        found = torch.linalg.lstsq(a, b, driver=driver)
        return found.solution, found.residuals, found.rank, found.singular_values

    compiled = compile(f)
    for k in range(2):
        torch.manual_seed(k)
        a, b = torch.randn(shape, requires_grad=True), torch.randn((*shape[:-1], 2), requires_grad=True)
        solution, *others = compiled(a, b)
        (solution.square().sum()).backward()
        yield solution, others, a.grad, b.grad


def test_value_checks_of_istft_and_cov_are_made_by_the_graph():
    """``istft`` looks at its window, ``cov`` at its weights; where they object, eager's error is raised."""

    def spectrum(x):
        return torch.stft(x, 8, window=torch.ones(8, device=x.device), return_complex=True)

    check(lambda z, window: torch.istft(z, 8, window=window), lambda: given(spectrum(plain(32)), leaf(8).abs()))
    check(
        lambda x, w: torch.cov(x, aweights=w),
        lambda: given(leaf(3, 4), plain(4).abs() + 1),
        lambda: given(leaf(3, 4), -plain(4).abs() - 1),
        lambda: given(leaf(3, 4, seed=1), plain(4, seed=1).abs() + 1),
        rtol=1e-6,
    )


def test_a_value_check_that_fails_at_a_later_call_runs_the_original():
    def f(x):
        return x * 2 if torch.equal((x.min() < 0), torch.ones((), dtype=torch.bool).new_ones(())) else x * 3

    compiled = aotcheck.aot_function(f)
    before = aotcheck.counters().refused.get("data-dependent", 0)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2) * 2):
        assert torch.equal(compiled(x), f(x))
    assert aotcheck.counters().refused.get("data-dependent", 0) == before + 1


@session
def test_shapes_that_depend_on_constants_are_not_refused(compile):
    def f(x):
        i = torch.tensor([2, 0, 2]).unique()
        return x[i] * 2, x[torch.tensor([0, 1, 1]).nonzero()[:, 0]], torch.trace(x)

    x = leaf(3, 3)
    out = compile(f)(x)
    yield out
    (first,) = torch.autograd.grad(out[2], x, create_graph=True)
    yield first
    backward(out[:2])
    yield x


READ = {
    "numpy": lambda t: torch.from_numpy(t.numpy()),
    "tolist": lambda t: t.tolist()[0],
    "item": lambda t: t[0].item(),
    "data_ptr": lambda t: 2 if t.data_ptr() else 1,
}


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("read", READ.values(), ids=READ.keys())
def test_values_of_a_captured_tensor_are_refused(read):
    w = plain(3)
    before = w.clone()
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: x * read(w))(plain(3))
    assert torch.equal(w, before)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.arange(5).sum().item(),
        lambda x: x * 2 if torch.ones(3).equal(torch.ones(3)) else x * 3,
        lambda x: x * float(torch.tensor(2.5) * 2),
        lambda x: [x * n for n in (torch.arange(3) * 2).tolist()],
        lambda x: [x * len(n) for n in torch.ones(2, 0).tolist()],
        lambda x: torch.istft(torch.stft(x.reshape(-1).repeat(8), 8, return_complex=True), 8),
    ],
)
def test_a_value_that_depends_on_no_input_may_be_asked_for(function):
    check(function, *[lambda: given(leaf(2, 3))] * 2, rtol=1e-5)


def test_the_value_of_a_random_tensor_is_refused_as_data_dependent():
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: x * torch.rand(()).item())(plain(3))


@pytest.mark.parametrize("classes", [4, 3])
@session
def test_one_hot_with_a_number_of_classes_checks_values_as_in_eager(compile, classes: int):
    """Eager checks the values; where they are too large the original runs and raises."""

    f = compile(lambda x, k: nn.functional.one_hot(k, classes).to(x.dtype) @ x)
    x = leaf(classes, 2)
    for indices in ([[0, 2, 1]], [[2, 2, 0]], [[0, 1, 3]], [[0, 1, -1]], [[1, 1, 1]]):
        if x.is_cuda and not 0 <= min(indices[0]) <= max(indices[0]) < classes:
            continue  # the kernel asserts that it is in bounds: no op works in the process then
        k = torch.tensor(indices, device=x.device)
        y = attempt(functools.partial(f, x, k))
        if isinstance(y, torch.Tensor):
            backward([y])
        yield y, x
