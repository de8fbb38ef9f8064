"""BEHAVIOUR 12: checks of values in torch's own code are made by the graph; where they object, the original runs."""

from __future__ import annotations

import pytest
import torch
from torch import distributions
from torch.nn import functional as F

from tests.behaviour import harness
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain


@pytest.fixture(autouse=True)
def on_device() -> None:
    """On other devices a check that fails ruins them, and none is made."""
    harness.set_device("cpu")


# -- distributions -----------------------------------------------------------------------------------

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


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_a_distribution_that_validates_its_arguments(make):
    def f(a, b):
        d = make(a / 4, b / 4)
        drawn = d.rsample() if d.has_rsample else d.sample()
        return drawn, d.log_prob(drawn.detach())

    def session(compile):
        compiled = compile(f)
        for k in range(3):
            a, b = leaf(2, 3, seed=k), leaf(2, 3, seed=k + 1)
            drawn, likelihood = compiled(a, b)
            (drawn.sum() + likelihood.sum()).backward()
            yield drawn, likelihood, a.grad, b.grad

    check_session(session, rtol=1e-4)


def test_parameters_and_samples_that_are_not_valid():
    def f(mean, deviation, x):
        drawn = distributions.Normal(mean, deviation).rsample()
        return drawn, distributions.Exponential(deviation.abs()).log_prob(x)

    def session(compile):
        compiled = compile(f)
        for deviation, x in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (2.0, 2.0)):
            yield attempt(lambda d=deviation, x=x: compiled(plain(3), torch.full((3,), d), torch.full((3,), x)))

    check_session(session)


# -- connectionist temporal classification -------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("of", [tuple, lambda lengths: torch.tensor(lengths)], ids=["numbers", "tensors"])
def test_lengths_that_are_known(reduction, of):
    def session(compile):
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

    check_session(session, rtol=1e-5)


def test_lengths_that_are_too_large():
    def session(compile):
        compiled = compile(lambda x, t: F.ctc_loss(x.log_softmax(2), t, (7, 6), (3, 2)))
        yield attempt(lambda: compiled(leaf(6, 2, 5), torch.ones(2, 3, dtype=torch.int64)))

    check_session(session)


def test_what_is_packed_by_lengths_is_refused_as_data_dependent():
    compiled = aotcheck.aot_function(lambda x, n: torch.nn.utils.rnn.pack_padded_sequence(x, n).data)
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        compiled(plain(4, 2, 3), torch.tensor([4, 2]))


# -- counts, least squares ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_counts_are_as_many_as_foretold_or_more(dtype, weights):
    def f(x, w, y):
        found = torch.bincount(x, w, minlength=4)
        return found, found.sum() * y

    def session(compile):
        compiled = compile(f)
        for x in ([0, 3, 1, 3, 3], [2, 2, 0, 0, 1], [], [3]):
            w = None if weights is None else plain(len(x), dtype=weights) / 4
            y = leaf(2)
            found, product = compiled(torch.tensor(x, dtype=dtype), w, y)
            yield found, product, torch.autograd.grad(product.sum(), y)

    check_session(session)


@pytest.mark.filterwarnings("ignore:.*runs this function eagerly")
def test_there_are_more_counts_than_foretold():
    def f(x):
        return torch.bincount(x, minlength=4) * 2

    compiled = aotcheck.aot_function(f, aotcheck.nop)
    for x in ([0, 3], [0, 7, 1], [2, 2], [4, 4]):
        assert torch.equal(compiled(torch.tensor(x)), f(torch.tensor(x)))
    assert aotcheck.counters().refused["data-dependent"]


def test_counts_of_numbers_that_are_none():
    def session(compile):
        compiled = compile(lambda x: torch.bincount(x, minlength=3))
        for x in ([0, 2], [0, -1], [1]):
            yield attempt(lambda x=x: compiled(torch.tensor(x)))

    check_session(session)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 5, 3)])
def test_least_squares(shape, driver):
    def f(a, b):
        found = torch.linalg.lstsq(a, b, driver=driver)
        return found.solution, found.residuals, found.rank, found.singular_values

    def session(compile):
        compiled = compile(f)
        for k in range(2):
            torch.manual_seed(k)
            a, b = torch.randn(shape, requires_grad=True), torch.randn((*shape[:-1], 2), requires_grad=True)
            solution, *others = compiled(a, b)
            (solution.square().sum()).backward()
            yield solution, others, a.grad, b.grad

    check_session(session, rtol=1e-4)
