"""Pairs of traits in a campaign: counted, told, aimed at, whatever the order in which workers report."""

import random
import sys
from collections import Counter

import pytest

import strategies
from aotcheck.campaign.record.coverage import EPOCH, Coverage
from aotcheck.campaign.record.events import BlockFailed, BlockGenerated, Event, ProgramChecked
from aotcheck.campaign.setup.declared import undrawn_by
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.campaign.setup.settings import SettingsError
from aotcheck.program import traits_of
from aotcheck.program.vocabulary.traits import TRAITS, bits_of


def generated(block: int, *programs: tuple[str, ...]) -> BlockGenerated:
    return BlockGenerated(block, len(programs), 0.0, tuple(f"{bits_of(traits):x}" for traits in programs))


A, B, C, D = TRAITS[:4]


def test_pairs_are_counted_by_program_and_observed_where_judged() -> None:
    coverage = Coverage()
    for event in (
        generated(0, (A, B), (A, B, C)),
        ProgramChecked(0, 0, "agrees", 0.0),
        ProgramChecked(0, 1, "refused", 0.0),
    ):
        coverage.feed(event)
    told = coverage.counted()
    assert (told.pairs_exercised, told.pairs_observed, told.triples_exercised, told.programs) == (3, 1, 1, 2)
    assert told.triples_observed == 0, "the only program with three was refused"
    coverage.feed(ProgramChecked(0, 1, "differs", 0.0))
    assert coverage.counted().triples_observed == 1
    assert told.exercised[1][0] == 2 and told.exercised[2] == (1, 1)
    assert told.observed[1][0] == 1 and told.observed[2] == (0, 0)
    assert (A, D) in coverage.missing() and (A, B) not in coverage.missing()


def test_a_block_that_a_worker_took_with_it_counts_once() -> None:
    coverage = Coverage()
    coverage.feed(generated(3, (A, B)))
    coverage.feed(generated(3, (A, B)))
    assert coverage.counted().programs == 1


def _events(blocks: int) -> list[Event]:
    rng = random.Random(7)
    return [generated(b, *(tuple(rng.sample(TRAITS, 20)) for _ in range(5))) for b in range(blocks)]


@pytest.mark.parametrize("seed", range(3))
def test_what_a_block_aims_at_does_not_depend_on_the_order_of_reports(seed: int) -> None:
    events = _events(2 * EPOCH)
    shuffled = [*events[:EPOCH], *random.Random(seed).sample(events[EPOCH:], EPOCH)]
    random.Random(seed).shuffle(shuffled[:EPOCH])
    wanted = []
    for order in (events, shuffled):
        coverage = Coverage()
        for event in order:
            coverage.feed(event)
        wanted.append([coverage.wanted(b) for b in (2 * EPOCH, 2 * EPOCH + 1, 3 * EPOCH)])
    assert wanted[0] == wanted[1]
    assert wanted[0][0] == wanted[0][1] != wanted[0][2]


def test_a_worker_waits_only_for_the_epoch_before_the_last() -> None:
    coverage = Coverage()
    for event in _events(EPOCH - 1):
        coverage.feed(event)
    assert coverage.ready(2 * EPOCH - 1, {EPOCH - 1})
    assert not coverage.ready(2 * EPOCH, {EPOCH - 1})
    assert coverage.ready(2 * EPOCH, {EPOCH, EPOCH + 1})
    coverage.feed(BlockFailed(EPOCH - 1, "cannot be drawn"))
    assert coverage.ready(2 * EPOCH, {EPOCH - 1})


def test_the_first_epochs_aim_at_nothing_and_the_rarest_pairs_come_first() -> None:
    coverage = Coverage()
    for event in _events(EPOCH):
        coverage.feed(event)
    assert coverage.wanted(EPOCH) == ()
    wanted, missing = coverage.wanted(2 * EPOCH), coverage.missing()
    first = wanted[: len(missing)]
    assert missing and set(first) <= set(missing) and len(first) == min(300, len(missing))


def test_nothing_aims_at_a_trait_that_the_strategy_never_draws() -> None:
    undrawn = frozenset(TRAITS[40:45])
    events = [
        generated(b, *(tuple({*random.Random(f"{b}/{i}").sample(TRAITS, 20)} - undrawn) for i in range(5)))
        for b in range(EPOCH)
    ]
    plain, told = Coverage(), Coverage(undrawn)
    for event in events:
        plain.feed(event)
        told.feed(event)
    without = plain.wanted(2 * EPOCH), told.wanted(2 * EPOCH)
    assert any(undrawn.intersection(pair) for pair in without[0])
    assert not any(undrawn.intersection(pair) for pair in without[1])
    left = [pair for pair in without[0] if undrawn.isdisjoint(pair)]
    assert list(without[1][: len(left)]) == left, "the others are aimed at as before, and more of them"
    assert len(without[0]) == len(without[1])


def test_pairs_that_the_strategy_never_draws_are_no_possible_ones() -> None:
    n, coverage = len(TRAITS), Coverage(frozenset({B}))
    coverage.feed(generated(0, (A, C)))
    told = coverage.counted()
    assert told.pairs_possible == Coverage().counted().pairs_possible - (n - 1)
    assert {(i, j) for i, j, _ in told.excluded} == {(max(1, k), min(1, k)) for k in range(n) if k != 1}
    assert not any(B in pair for pair in coverage.missing()) and (A, D) in coverage.missing()


def test_a_strategy_that_says_nothing_may_draw_everything() -> None:
    assert undrawn_by("tests.meta.small:nothing") == frozenset()


UNDRAWN: object = {}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"mine": {"op:view", "op:veiw"}}, "UNDRAWN of '.*' gives 'mine' what is no trait: op:veiw"),
        (["op:view"], "UNDRAWN of '.*' is a list, not a mapping from names of strategies"),
    ],
)
def test_what_is_said_wrongly_is_named(said: object, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "UNDRAWN", said)
    with pytest.raises(SettingsError, match=error):
        undrawn_by(f"{__name__}:mine")


@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", [name for name, undrawn in strategies.UNDRAWN.items() if undrawn])
def test_what_a_strategy_says_it_never_draws_it_does_not(name: str) -> None:
    undrawn = undrawn_by(f"strategies:{name}")
    assert undrawn == strategies.UNDRAWN[name]
    strategy = load_strategy(f"strategies:{name}", tuple((A, trait) for trait in sorted(undrawn)))
    for block in range(3):
        for program in programs_of_block(strategy, 11, block):
            assert undrawn.isdisjoint(traits_of(program))


WANTED = (
    ("input:inference", "context:call-anomaly"),
    ("op:swap", "step:created-freed"),
    ("context:call-autocast", "context:call-anomaly"),
    ("argument:list", "argument:tuple"),
    ("layout:neg", "step:hook-clear"),
    ("op:data", "step:probe-gradient"),
)
"""Pairs that a stream by itself has in hardly one of a thousand programs."""


def test_programs_that_aim_at_pairs_have_them() -> None:
    strategy = load_strategy("strategies:programs", WANTED)
    met: Counter[tuple[str, str]] = Counter()
    for block in range(6):
        for program in programs_of_block(strategy, 5, block):
            traits = traits_of(program)
            met.update(pair for pair in WANTED if traits.issuperset(pair))
    assert sum(met.values()) >= 10
    assert len(met) >= 4, met
