"""What runs in a process that may die: all samples of one subject on one side."""

import dataclasses
import os
import time

import torch

from tools.op_coverage import subjects
from tools.op_coverage.compare import Side, check
from tools.op_coverage.subjects import Subject


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one subject fared: how many samples ran, and why those failed that did, by number."""

    samples: int
    failures: dict[int, str]
    seconds: float

    @property
    def reason(self) -> str | None:
        """The first failure's reason, None if all is well."""
        return next(iter(self.failures.values()), None)


def prepare() -> None:
    """Make a fresh process quiet and single-threaded."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    torch.set_num_threads(1)


def run(subject: Subject, side: Side, most: int) -> Outcome:
    """Check at most ``most`` samples of ``subject`` on ``side``."""
    begin = time.perf_counter()
    count, failures = 0, {}
    try:
        for sample in subjects.samples(subject, most):
            said = check(sample, side)
            if said is not None:
                failures[count] = said
            count += 1
    except Exception as error:  # the databases hold samples that this build of torch cannot make
        if count == 0:
            return Outcome(0, {}, time.perf_counter() - begin)
        failures[count] = f"the samples: {type(error).__name__}: {str(error)[:80]}"
    return Outcome(count, failures, time.perf_counter() - begin)
