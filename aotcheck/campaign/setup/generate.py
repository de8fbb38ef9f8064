"""The programs of a block."""

import hashlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.internal import constants_ast
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import SearchStrategy

from aotcheck.campaign.setup.settings import BLOCK_SIZE, SettingsError
from aotcheck.named import module_of
from aotcheck.program import Program


def load_strategy(spec: str, wanted: tuple[tuple[str, str], ...] = ()) -> SearchStrategy[Program]:
    """The strategy that ``module:attribute`` names: a strategy, or a function without arguments that returns one.

    Args:
        spec: its name; ``?sizes=N`` after it asks a function for N more calls at other sizes in each program.
        wanted: pairs of traits to aim at; the function is told if it has a parameter of this name.

    Raises:
        SettingsError: there is no such thing.
    """
    name, _, sizes = spec.partition("?sizes=")
    try:
        found: Any = getattr(module_of(name), name.partition(":")[2])
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise SettingsError(f"strategy '{spec}' cannot be imported: {' '.join(str(error).split())}") from error
    if isinstance(found, SearchStrategy) and not sizes:
        return found
    try:
        more: dict[str, Any] = {"sizes": int(sizes)} if sizes else {}
        steered = {"wanted": wanted} if wanted and "wanted" in inspect.signature(found).parameters else {}
        strategy = found(**steered, **more)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise SettingsError(f"strategy '{spec}' gives no Hypothesis strategy: {said}") from error
    if not isinstance(strategy, SearchStrategy):
        raise SettingsError(f"strategy '{spec}' is a {type(strategy).__name__}, not a Hypothesis strategy")
    return strategy


def programs_of_block(strategy: SearchStrategy[Program], seed: int, block: int) -> tuple[Program, ...]:
    """The ``BLOCK_SIZE`` programs of a block: the same for the same torch and Hypothesis, whoever runs it and when.

    Hypothesis generates until enough programs were valid. Its first example of a round is always the simplest one,
    the same in every block, and is left out.
    """
    programs: list[Program] = []
    for attempt in range(100):
        digest = hashlib.sha256(f"{seed}/{block}/{attempt}".encode()).digest()
        programs.extend(_generate(strategy, int.from_bytes(digest[:8], "big"), BLOCK_SIZE - len(programs) + 1)[1:])
        if len(programs) >= BLOCK_SIZE:
            return tuple(programs[:BLOCK_SIZE])
    raise RuntimeError(f"after 100 rounds the strategy has given {len(programs)} valid programs of {BLOCK_SIZE}")


def repeats_in(programs: Sequence[Program]) -> frozenset[int]:
    """The places of programs that equal an earlier one; a strategy that maps others may make several draws equal.

    They keep their places, so that a block's other programs have the numbers that they always had.
    """
    first: dict[Program, int] = {}
    return frozenset(index for index, program in enumerate(programs) if first.setdefault(program, index) != index)


def digest_of(program: Program) -> str:
    """A short digest by which equal programs of different blocks are told."""
    return hashlib.blake2b(repr(program).encode(), digest_size=6).hexdigest()


@contextmanager
def _no_constants_of_loaded_modules() -> Iterator[None]:
    """Keep Hypothesis from drawing constants that it finds in the source of whatever local modules are loaded.

    Note [Constants]: it looks for them in ``sys.modules``, so the programs of a block would depend on what the process
    had imported by then, on whether the package is installed or a checkout, and on every edit of our own code. There is
    no setting for it; a Hypothesis that lacks the name has no such constants.
    """
    original = getattr(providers, "_get_local_constants", None)
    empty = getattr(constants_ast, "Constants", None)
    if original is None or empty is None:
        yield
        return
    nothing = empty()
    providers.CONSTANTS_CACHE.cache.clear()
    providers._get_local_constants = lambda: nothing
    try:
        yield
    finally:
        providers._get_local_constants = original
        providers.CONSTANTS_CACHE.cache.clear()


def _generate(strategy: SearchStrategy[Program], seed: int, count: int) -> list[Program]:
    found: list[Program] = []

    def collect(program: Program) -> None:
        found.append(program)

    given: Callable[[], None] = hypothesis.given(strategy)(collect)
    configured = hypothesis.settings(
        max_examples=count,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=False,
        print_blob=False,
    )(given)
    with warnings.catch_warnings(), _no_constants_of_loaded_modules():
        warnings.simplefilter("ignore")
        hypothesis.seed(seed)(configured)()
    return found
