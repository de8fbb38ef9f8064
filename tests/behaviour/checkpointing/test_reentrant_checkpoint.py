"""Torch.utils.checkpoint with use_reentrant=True."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.behaviour.harness import Raised, attempt_later, backward, session
from tests.behaviour.inputs import leaf


def checkpointed(x, y):
    return checkpoint(torch.mul, x, y, use_reentrant=True)


def write_first(x, y):
    x.mul_(2)
    return checkpointed(x * 1, y), x * y


def write_the_other_since(x, y):
    s = x * 2
    a = checkpoint(torch.mul, x, x, use_reentrant=True)
    y.mul_(2)
    return s, a


def keep_the_operand(x, y):
    z = x * x
    return z, checkpointed(z, y), z.sum()


PROGRAMS = [
    lambda x, y: (checkpointed(x, y), x * y),
    lambda x, y: (checkpointed(x, y).sin(), (x * x * y).sum()),
    write_first,
    write_the_other_since,
    keep_the_operand,
]


def halves():
    behind = leaf(6)
    whole = behind * 1
    return whole[:3], whole[3:], behind


def factors():
    behind = leaf(3)
    return behind * 2, behind * 3, behind


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("arguments", [halves, factors])
@pytest.mark.parametrize("create_graph", [False, True])
@session
def test_results_that_share_leaves_with_a_reentrant_checkpoint(compile, program, arguments, create_graph):
    """Gradients arrive at what others are computed from, and have a graph where one is created."""

    x, y, behind = arguments()
    out = compile(program)(x, y)
    seen = []
    if x.grad_fn is not None:  # asked first: torch crashes in register_hook of a view whose base was written
        x.register_hook(lambda g: seen.append(g.detach().clone()))
    for k in (*range(len(out)), None):
        roots = out if k is None else [out[k]]
        said = attempt_later(lambda roots=roots: backward(roots, retain_graph=True, create_graph=create_graph))
        if said is not None:  # how far it came is nobody's business
            seen.clear()
            behind.grad = None
        yield said, out, x, y, behind, behind.grad, seen


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("arguments", [halves, factors])
@session
def test_second_derivatives_of_results_next_to_a_reentrant_checkpoint(compile, program, arguments):
    x, y, behind = arguments()
    out = compile(program)(x, y)
    for o in out:
        gradient = attempt_later(lambda o=o: torch.autograd.grad([o.sum()], [behind], create_graph=True))
        if isinstance(gradient, tuple):
            yield gradient
            if gradient[0].requires_grad:
                yield torch.autograd.grad([gradient[0].sum()], [behind], retain_graph=True)


REENTRANT = {
    "of an argument": lambda x, y: (checkpoint(torch.exp, x, use_reentrant=True) * y,),
    "of what is computed": lambda x, y: (checkpoint(torch.sin, x * 2, use_reentrant=True) * y,),
    "of both": lambda x, y: (checkpoint(torch.mul, x, y, use_reentrant=True) + x,),
    "beside another result": lambda x, y: (checkpoint(torch.exp, x, use_reentrant=True), x * y),
    "one behind the other": lambda x, y: (
        checkpoint(torch.mul, checkpoint(torch.exp, x, use_reentrant=True), y, use_reentrant=True),
    ),
}


def _backpropagate(result, wanted, way):
    ones = torch.ones_like(result)
    match way:
        case "grad":
            return torch.autograd.grad(result, wanted, ones, allow_unused=True)
        case "inputs":
            return result.backward(ones, retain_graph=True, inputs=wanted)
        case _:
            return result.backward(ones, retain_graph=True)


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("way", ["backward", "inputs", "grad"])
@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("f", REENTRANT.values(), ids=REENTRANT)
@session
def test_a_reentrant_checkpoint_with_inputs_and_autograd_grad(compile, f, wanted, way, is_leaf):
    compiled = compile(f)
    for seed in (0, 1):
        leaves = leaf(3, seed=seed), leaf(3, seed=2)
        given = leaves if is_leaf else [t * 1 for t in leaves]
        for result in compiled(*given):
            done = attempt_later(functools.partial(_backpropagate, result, [given[k] for k in wanted], way))
            yield done
            if not isinstance(done, Raised):  # how far that came before it raised is an order that nobody promises
                yield [t.grad for t in leaves]


BODIES = {
    "once": lambda x, w: checkpoint(lambda a: (a * w).sin(), x, use_reentrant=True),
    "and directly": lambda x, w: checkpoint(lambda a: (a * w).sin(), x, use_reentrant=True) * w,
    "twice": lambda x, w: checkpoint(
        lambda a: a.sin() * w, checkpoint(lambda a: (a * w).sin(), x, use_reentrant=True), use_reentrant=True
    ),
    "a view": lambda x, w: checkpoint(lambda a: a * w[:1], x, use_reentrant=True),
    "within another": lambda x, w: checkpoint(
        lambda a: checkpoint(lambda b: b * w, a * 2, use_reentrant=True), x, use_reentrant=True
    ),
}

# Eager's backward inside frees what lies behind, so by a second way there it raises.
BY_ONE_WAY = [(b, t) for b in ("once", "a view", "within another") for t in ("computed", "computed twice")]


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize(("body", "trained"), [*((b, "leaf") for b in BODIES), *BY_ONE_WAY])
@session
def test_a_tensor_captured_by_a_reentrant_checkpoint_gets_its_gradient(compile, body: str, trained: str):
    f = compile(BODIES[body])
    for seed in range(2):
        x, weight = leaf(3, seed=seed), leaf(3, seed=seed + 2)
        w = weight if trained == "leaf" else weight * 2
        w = w.exp() if trained == "computed twice" else w
        out = f(x, w)
        out.sum().backward()
        yield out, x.grad, weight.grad
