"""The command line.

Exit codes: 0 clean, 1 findings, 2 usage, 3 infrastructure. What the user can put right is one line on stderr.
"""

import os
import sys

import click

from aotcheck.cli.base import INSPECTION, STRATEGY, OneLine, Usage, seconds
from aotcheck.cli.bug import bug
from aotcheck.cli.check import check
from aotcheck.cli.corpus import corpus
from aotcheck.cli.explain import blame, minimize
from aotcheck.cli.fuzz import fuzz
from aotcheck.cli.nightly import nightly
from aotcheck.cli.replay import refresh, replay
from aotcheck.cli.report import report
from aotcheck.cli.zoo import zoo

__all__ = ["INSPECTION", "STRATEGY", "Usage", "main", "seconds"]


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aotcheck", message="%(package)s %(version)s")
def main() -> None:
    """Property-based tests for PyTorch compilers, and an AOT autograd of its own."""
    if (here := os.getcwd()) not in sys.path:  # as for python -m: a backend may be a module that lies here
        sys.path.insert(0, here)


for command in (fuzz, check, replay, refresh, minimize, blame, bug, corpus, nightly, report, zoo):
    main.add_command(command)
