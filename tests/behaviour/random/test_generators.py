"""Generator arguments and captured generators; states saved and set, fork_rng; seeding inside."""

import pytest
import torch
from torch.nn import functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, backward, check, check_session, session
from tests.behaviour.inputs import generator, given, leaf, plain
from tests.behaviour.random.common import generator_states, other_devices, set_generator_states


@agrees(lambda: given(leaf(3)), lambda: given(leaf(3, seed=1)))
def test_numbers_drawn_again_after_set_rng_state_inside(x):
    states = generator_states(x)
    a = torch.rand(3, device=x.device)
    between = torch.rand(2, device=x.device)
    after = generator_states(x)
    set_generator_states(states, x)
    b = torch.rand(3, device=x.device)
    set_generator_states(after, x)
    return x * a, x * b, between, torch.rand(2, device=x.device)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (torch.manual_seed(0), x * 2)[1],
        lambda x: (torch.manual_seed(0), torch.rand(3, device=x.device))[1],
        lambda x: (
            torch.rand(3, device=x.device),
            torch.default_generator.manual_seed(5),
            torch.rand(3, device=x.device),
        )[0],
    ],
)
def test_manual_seed_inside_is_refused_and_does_not_touch_the_state(f):
    torch.manual_seed(0)  # the very state that one of them asks for
    state = torch.get_rng_state()
    with pytest.raises(aotcheck.UnsupportedError, match="seeding"):
        aotcheck.aot_function(f)(plain(3))
    assert torch.equal(torch.get_rng_state(), state)


def _forked(x):
    with torch.random.fork_rng(devices=other_devices(x)):
        a = torch.rand(3, device=x.device)
    return x * a


def _forked_and_on(x):
    with torch.random.fork_rng(devices=other_devices(x)):
        a = torch.rand(3, device=x.device)
    return x * a, x * torch.rand(3, device=x.device), x + torch.randn(2, 3, device=x.device)


def _forked_and_on_by_another_op(x):
    with torch.random.fork_rng(devices=other_devices(x)):
        a = torch.rand(3, device=x.device)
    return x * a, torch.randn(5, device=x.device)


def _nested(x):
    with torch.random.fork_rng(devices=other_devices(x)):
        a = torch.rand(3, device=x.device)
        with torch.random.fork_rng(devices=other_devices(x)):
            b = torch.randn(3, device=x.device)
        c = torch.randint(5, (3,), device=x.device)
    return x * a, b, c, torch.rand(1, device=x.device)


def _back_and_forth(x):
    start = generator_states(x)
    a = torch.rand(3, device=x.device)
    middle = generator_states(x)
    b = torch.randn(4, device=x.device)
    set_generator_states(middle, x)
    c = torch.rand(2, device=x.device)
    set_generator_states(start, x)
    return x * a, b, c, torch.rand(3, device=x.device)


def _left_where_it_was(x):
    start = generator_states(x)
    a = torch.rand(3, device=x.device)
    set_generator_states(start, x)
    return x * a


@pytest.mark.parametrize(
    "function", [_forked, _forked_and_on, _forked_and_on_by_another_op, _nested, _back_and_forth, _left_where_it_was]
)
def test_fork_rng_and_set_rng_state_to_an_earlier_state(function):
    check(function, *[lambda: given(leaf(2, 3) if function is not _nested else leaf(3))] * 2)


def _with_generator(function):
    def session(compile):
        compiled = compile(function)
        g = generator(7)
        for _ in range(2):
            x = leaf(2, 3)
            y = compiled(x, g)
            backward([y])
            yield x, y, g.get_state()

    check_session(session)


def _generator_set_back(x, g):
    state = g.get_state()
    a = torch.rand(3, generator=g, device=x.device)
    g.set_state(state)
    return x * a + torch.randn(3, device=x.device) * torch.randn(3, generator=g, device=x.device)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: x * torch.rand(3, generator=g, device=x.device) + torch.rand(3, device=x.device),
        lambda x, g: x * torch.empty(3, device=x.device).normal_(generator=g),
        lambda x, g: (torch.rand(3, generator=g, device=x.device), x * 2)[1],
        lambda x, g: F.dropout(x, 0.5) * torch.bernoulli(torch.full((3,), 0.5, device=x.device), generator=g),
        _generator_set_back,
    ],
)
def test_a_generator_as_an_argument(function):
    _with_generator(function)


@session
def test_a_generator_from_a_closure(compile):
    g = generator(3)
    f = compile(lambda x: x * torch.rand(3, generator=g, device=x.device))
    for _ in range(2):
        y = f(leaf(2, 3))
        yield y, g.get_state()


@pytest.mark.parametrize("seed", [3, 5])
@session
def test_a_function_that_seeds_a_captured_generator_runs_eagerly(compile, seed):
    """Also where it has that very seed already."""

    own = generator(seed)

    def function(x):
        own.manual_seed(3)
        return x * torch.rand(3, generator=own, device=x.device)

    f = compile(function)
    yield f(plain(3)), f(plain(3)), own.get_state(), own.initial_seed()


def test_a_refusal_has_no_effect_on_a_captured_generator():
    own = generator(5)
    torch.rand(3, generator=own, device=own.device)
    state = own.get_state()
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: (own.device, x * bool(x.sum() > 0))[1])(plain(3))
    assert torch.equal(state, own.get_state())
    assert own.initial_seed() == 5


def _seeded_in_a_fork(x):
    with torch.random.fork_rng(devices=other_devices(x)):
        torch.manual_seed(3)
        return x * torch.rand(3, device=x.device)


def _state_of_seed(seed):
    return torch.Generator().manual_seed(seed).get_state()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.manual_seed(1), x * torch.rand(3, device=x.device))[1],
        lambda x: (torch.manual_seed(1), x * 2)[1],
        lambda x: (torch.seed(), x * 2)[1],
        lambda x: (torch.set_rng_state(_state_of_seed(11)), x * torch.rand(3, device=x.device))[1],
        _seeded_in_a_fork,
    ],
)
def test_seeding_inside_is_refused(function):
    state = torch.get_rng_state()
    with pytest.raises(aotcheck.UnsupportedError, match="seeding inside"):
        aotcheck.aot_function(function)(leaf(2, 3))
    assert torch.equal(state, torch.get_rng_state())


def test_seeding_a_generator_argument_inside_is_refused():
    g = generator(5)
    state = g.get_state()
    with pytest.raises(aotcheck.UnsupportedError, match="seeding inside"):
        aotcheck.aot_function(lambda x, g: (g.manual_seed(3), x * torch.rand(3, generator=g, device=x.device))[1])(
            plain(3), g
        )
    assert torch.equal(state, g.get_state())


def test_tracing_advances_no_generator():
    x = leaf(2, 3)
    state = torch.get_rng_state()
    torch.manual_seed(4)
    expected = [F.dropout(x, 0.5), torch.get_rng_state()]
    torch.set_rng_state(state)
    compiled = aotcheck.aot_function(lambda x: F.dropout(x, 0.5))
    torch.manual_seed(4)
    assert torch.equal(compiled(x), expected[0])
    assert torch.equal(torch.get_rng_state(), expected[1])


@session
def test_two_generators_as_arguments_and_the_default_generator(compile):
    compiled = compile(
        lambda x, g, h: (
            x * torch.rand(3, generator=g, device=x.device)
            + torch.rand(3, generator=h, device=x.device)
            * torch.rand(3, device=x.device)
            * torch.rand(3, generator=g, device=x.device)
        )
    )
    g, h = generator(1), generator(2)
    for pair in ((g, h), (h, g), (g, g), (g, h)):
        x = leaf(2, 3)
        y = compiled(x, *pair)
        backward([y])
        yield x, y, g.get_state(), h.get_state()


@session
def test_the_default_generator_as_an_argument(compile):
    compiled = compile(lambda x, g: x * torch.rand(3, generator=g, device=x.device) + torch.rand(3, device=x.device))
    for _ in range(2):
        x = plain(2, 3)
        default = torch.cuda.default_generators[x.get_device()] if x.is_cuda else torch.default_generator
        yield compiled(x, default), torch.rand(1, device=x.device)
