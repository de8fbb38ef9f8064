"""Fuzz every faulty backend with one stream of programs until it is found."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from aotcheck.backends import Backend
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.campaign.setup.settings import BLOCK_SIZE
from aotcheck.oracle import CoarseKey, check
from tools.faulty.fault import Fault


@dataclass(frozen=True)
class Found:
    """A fault that was found: by the how manieth program of the stream, under which coarse key."""

    fault: Fault
    programs: int
    key: CoarseKey


def search(faults: Iterable[Fault], seed: int, most: int) -> Iterator[Found]:
    """Run the programs that a campaign with this seed runs on every fault that is not yet found."""
    strategy = load_strategy("strategies:programs")
    device = torch.device("cpu")
    hidden = list(faults)
    for number in range(most):
        block, index = divmod(number, BLOCK_SIZE)
        if not hidden:
            return
        if not index:
            programs = programs_of_block(strategy, seed, block)
        for fault in list(hidden):
            hard = check(programs[index], Backend(fault.name, fault.compile), device).hard
            if hard and hard[0].oracle in fault.shows:
                hidden.remove(fault)
                yield Found(fault, number + 1, hard[0].key)
