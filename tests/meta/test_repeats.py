"""Programs that are equal once a strategy has mapped them are one program."""

from pathlib import Path

from aotcheck.campaign.record.events import BlockGenerated, ProgramChecked
from aotcheck.campaign.record.resume import Past
from aotcheck.campaign.setup.generate import digest_of, load_strategy, programs_of_block, repeats_in
from tests.meta.test_campaigns import campaign, settings

STRATEGY = "tests.meta.small:equal_to_others"


def test_programs_that_are_equal_keep_their_places_and_are_told() -> None:
    drawn = programs_of_block(load_strategy(STRATEGY), 1, 0)
    repeated = repeats_in(drawn)
    assert len(drawn) == 25 and len(set(drawn)) == 3
    assert [i for i in range(25) if i not in repeated] == [drawn.index(program) for program in dict.fromkeys(drawn)]
    assert {digest_of(program) for program in drawn} == {digest_of(program) for program in set(drawn)}
    assert len({digest_of(program) for program in drawn}) == 3


def test_a_campaign_runs_equal_programs_of_a_block_once_and_tells_how_many_were_equal(tmp_path: Path) -> None:
    events, tally = campaign(settings(tmp_path, "tests.meta.planted:doubles", strategy=STRATEGY))
    checked = [event for event in events if isinstance(event, ProgramChecked)]
    assert sorted({event.block for event in checked}) == [0, 1]
    assert len(checked) == tally.programs == 6 and tally.findings <= 6
    assert tally.repeated == 47, "50 were drawn, three of which differ"
    blocks = [event for event in events if isinstance(event, BlockGenerated)]
    assert all(len(event.repeated) == 22 for event in blocks) and len(blocks) == 2
    assert Past.of(events).done == {0: frozenset(range(25)), 1: frozenset(range(25))}, "nothing is run again"
