"""A call warns of nothing that eager does not warn of."""

import warnings

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Doubled
from tests.behaviour.harness import Raised, attempt_later
from tests.behaviour.inputs import leaf, plain

FUNCTIONS = {
    "writes": lambda x: x.mul_(2),
    "writes a part": lambda x: x[:1].mul_(2),
    "writes a base": lambda x: (x.t(), x.mul_(2))[0],
    "reshapes": lambda x: x.t_() * 2,
    "goes elsewhere": lambda x: x.set_(torch.ones(2, 2, device=x.device)),
    "data": lambda x: setattr(x, "data", torch.ones(3, 2, device=x.device)),
    "detaches": lambda x: x.detach_(),
    "requires": lambda x: x.detach_().requires_grad_() * 2,
    "retains": lambda x: (x.retain_grad(), x * 2)[1],
    "marks dirty": Doubled.apply,
    "asks for a gradient": lambda x: x.grad,
    "gives a gradient": lambda x: setattr(x, "grad", torch.ones(2, 2, device=x.device)),
    "gradient inside": lambda x: torch.autograd.grad((x * x).sum(), x)[0],
    "swaps": lambda x: torch.utils.swap_tensors(x, x),
    "computes": lambda x: x * 2,
}

ARGUMENTS = {
    "no leaf": lambda: leaf(2, 2) * 1,
    "view": lambda: (leaf(2, 2) * 1).t(),
    "view of a leaf under no_grad": lambda: leaf(2, 2).detach().t().requires_grad_() * 1,
    "conjugate": lambda: (leaf(2, 2, dtype=torch.complex64) * 1).conj(),
    "nothing required": lambda: plain(2, 2),
}

ONCE = "Using backward() with create_graph=True"
"""How something begins that torch says once in a process."""


def _told(compiled, make, gradient):
    """What a call and its backward warn of or raise."""
    x = make()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        raised = attempt_later(lambda: compiled(x))
        if gradient != "none" and isinstance(raised, torch.Tensor) and raised.requires_grad:
            y, created = raised, gradient == "graph created"
            raised = attempt_later(lambda: y.backward(torch.ones_like(y), create_graph=created))
    told = {str(w.message).split(" (Triggered")[0] for w in found}
    return told | {repr(raised)} if isinstance(raised, Raised) else told


@pytest.mark.parametrize("gradient", ["backward", "none", "graph created"])
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_warns_of_nothing_that_eager_does_not_warn_of(function, argument, gradient):
    """What a function itself warns of is told when it is traced; nothing is told of what we do."""
    f, make = FUNCTIONS[function], ARGUMENTS[argument]
    compiled = aotcheck.aot_function(f)
    for _ in range(2):
        expected = _told(f, make, gradient)
        found = _told(compiled, make, gradient)
        assert {x for x in found if not x.startswith(ONCE)} <= expected


def test_a_refusal_that_runs_eagerly_is_warned_of_with_its_message():
    compiled = aotcheck.aot_function(lambda x: x.cpu().to_mkldnn().to_dense())
    with pytest.raises(aotcheck.UnsupportedError) as refused:
        compiled(plain(2, 2))
    from aotcheck.autograd.counters import _live

    _live.warned.discard(refused.value.reason)
    with aotcheck.patch_config(on_unsupported="eager"), pytest.warns(RuntimeWarning) as caught:
        compiled(plain(2, 2))
    assert str(refused.value) in str(caught[0].message)
    assert caught[0].filename == __file__
