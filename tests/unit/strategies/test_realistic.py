"""The realistic stream is what its table says: ops by their shares, and what people do around them."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache

import pytest

from aotcheck.campaign.setup.generate import programs_of_block
from aotcheck.program import Backward, Block, Context, Literal, OpCall, Probe, Program, Ref, Statement, flat_calls
from aotcheck.program.ops.registry import find
from strategies import realistic
from strategies.realistic import path_of, profile

pytestmark = pytest.mark.filterwarnings("ignore")  # eager's, of what is deprecated and drawn
BLOCKS = 12
CONSTANTS = ("torch.ones", "torch.tensor")
"""Weights and indices that an op needs and that are not there."""


@lru_cache(maxsize=1)
def stream() -> tuple[Program, ...]:
    strategy = realistic()
    return tuple(program for block in range(BLOCKS) for program in programs_of_block(strategy, 3, block))


def test_an_ops_share_is_that_of_the_table() -> None:
    paths = (call.path for program in stream() for call in flat_calls(program.body))
    drawn = Counter(path for path in paths if path not in CONSTANTS)
    usage = profile().usage
    assert usage
    table = Counter(dict(usage.ops))
    distance = sum(abs(drawn[p] / drawn.total() - table[p] / table.total()) for p in {*drawn, *table}) / 2
    assert distance < 0.2  # total variation: the share of statements that would have to be others
    common = [path for path, share in usage.ops if share >= 100]
    assert len(common) > 15 and all(drawn[path] for path in common)


def _blocks(body: tuple[Statement, ...]) -> Iterator[Context]:
    for statement in body:
        if isinstance(statement, Block):
            yield statement.context
            yield from _blocks(statement.body)


def _calls(*paths: str) -> Callable[[Program], bool]:
    return lambda program: any(call.path in paths for call in flat_calls(program.body))


def _steps(kind: type) -> Callable[[Program], bool]:
    return lambda program: any(isinstance(step, kind) for call in program.calls for step in call.steps)


def _sizes(program: Program) -> list[int]:
    return [call.inputs.tensors[0].size[0] for call in program.calls if call.inputs]


def _accumulates(program: Program) -> bool:
    first, *later = program.calls
    again = any(call.inputs is None and call.steps for call in later)
    return again and len(first.steps) == 1 and isinstance(first.steps[0], Backward)


def _numbers(program: Program) -> int:
    given = (arg.value for call in program.calls if call.inputs for arg in call.inputs.args if isinstance(arg, Literal))
    return len({value for value in given if isinstance(value, float)})


def _caches(program: Program) -> bool:
    if _calls("list.append", "object.hidden=")(program) or any(_key(call) for call in flat_calls(program.body)):
        return True
    last = [call.inputs.tensors[-1].size[0] for call in program.calls if call.inputs and call.inputs.tensors[-1].size]
    return len(last) > 1 and sorted(set(last)) == last


def _key(call: OpCall) -> bool:
    return call.path == "setitem" and call.args[1] == Literal("k0")


def _buffers(program: Program) -> bool:
    writes = (
        call for call in flat_calls(program.body) if find(call.path)[0].writes or call.path == "Module.batch_norm"
    )
    return any(isinstance(arg, Ref) and arg.name in program.params for call in writes for arg in call.args)


def _wrapped(program: Program) -> bool:
    inputs = program.calls[0].inputs
    return inputs is not None and any(call.path.startswith("wrapped.") for call in flat_calls(inputs.derived))


IDIOMS: dict[str, tuple[Callable[[Program], bool], float]] = {
    "training step": (_steps(Backward), 0.6),
    "optimizer": (_steps(Probe), 0.55),
    "optimizer inside": (_calls("torch.autograd.grad", "Optimizer.adam", "Optimizer.sgd"), 0.005),
    "backward inside": (_calls("Tensor.backward"), 0.003),
    "accumulation": (_accumulates, 0.003),
    "cache": (_caches, 0.01),
    "mask": (_calls("torch.masked_fill", "torch.where"), 0.03),
    "schedule": (lambda program: _numbers(program) > 1, 0.015),
    "checkpoint": (_calls("Inside.checkpointed"), 0.02),
    "autocast": (lambda program: Context.AUTOCAST in _blocks(program.body), 0.006),
    "no_grad": (lambda program: Context.NO_GRAD in _blocks(program.body), 0.1),
    "wrapper": (_wrapped, 0.006),
    "a buffer written": (_buffers, 0.1),
    "a smaller batch": (lambda program: min(_sizes(program)) < _sizes(program)[0], 0.3),
}
"""What programs do, and the least share of those that do it."""


@pytest.mark.parametrize("name", IDIOMS)
def test_programs_do_what_people_do(name: str) -> None:
    does, least = IDIOMS[name]
    assert sum(map(does, stream())) >= least * len(stream())


def test_most_programs_make_several_calls_that_train() -> None:
    assert sum(len(program.calls) > 1 for program in stream()) > 0.9 * len(stream())


def test_the_grammar_has_what_torch_calls_by_another_path() -> None:
    assert path_of("Tensor.matmul") == "torch.matmul"
    assert path_of("torch.nothing") is None
