"""BEHAVIOUR 1: attributes that tensors have, which no guard looks at."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, backward, check_session, leaf, plain

pytestmark = pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")


def test_an_attribute_of_an_argument_is_read_on_every_call():
    def session(compile):
        f = compile(lambda x: x * getattr(x, "scale", 1) * (2 if hasattr(x, "doubled") else 1))
        x = leaf(3)
        x.scale = 3
        for scale in (3, 4):
            x.scale = scale
            out = f(x)
            backward([out])
            yield x, out
        x.doubled = None
        yield f(x), f(plain(3))

    check_session(session)


@pytest.mark.parametrize("where", ["argument", "result", "module"])
def test_an_attribute_that_is_set_stays(where):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(plain(3))

        def forward(self, x):
            y = x * self.weight
            {"argument": x, "result": y, "module": self.weight}[where].seen = 5
            return y

    def session(compile):
        net = Net()
        compiled = compile(net)
        for _ in range(2):
            x = leaf(3)
            y = compiled(x)
            backward([y])
            yield x, y, net.weight, [getattr(t, "seen", None) for t in (x, y, net.weight)]

    check_session(session)


def test_gradients_kept_in_an_attribute_of_a_parameter():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(plain(3))
            self.weight.kept = plain(3, seed=1)

        def forward(self, x):
            if hasattr(self.weight, "kept"):
                self.weight.kept.add_(x.detach())
            return x * self.weight

    def session(compile):
        net = Net()
        compiled = compile(net)
        for _ in range(2):
            x = leaf(3)
            y = compiled(x)
            backward([y])
            yield x, y, net.weight, net.weight.kept

    check_session(session)


def test_attributes_that_nobody_asks_for_do_not_matter():
    before = aotcheck.counters().compiled

    def session(compile):
        def f(x):
            y = x * 2
            y.scale = 3
            return x * y.scale + y

        f = compile(f)
        x = leaf(3)
        x.scale = 5
        out = f(x)
        backward([out])
        yield x, out, x.scale

    check_session(session)
    assert aotcheck.counters().compiled == before + 1


def test_an_attribute_that_there_is_not_is_named_as_in_eager():
    def session(compile):
        f = compile(lambda x: x.nothing)
        yield attempt(lambda: f(plain(3))), attempt(lambda: f(nn.Parameter(plain(3))))
        g = compile(lambda x: getattr(x, "nothing", 2) * x)
        yield g(plain(3))

    check_session(session)


def test_it_is_said_once_that_the_function_runs_as_it_is():
    f = aotcheck.aot_function(lambda x: x * x.scale)
    x = plain(3)
    x.scale = 2
    with pytest.warns(RuntimeWarning, match="it reads the attribute 'scale' of a tensor") as caught:
        for _ in range(2):
            assert torch.equal(f(x), x * 2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
