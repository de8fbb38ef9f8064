"""Silences compilers, which log a page for each function that they fail on."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from aotcheck._torch import TRACE_LOG

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is logged and nothing is warned of; an error still is one."""
    level, unheeding = logging.root.manager.disable, logging.getLogger(TRACE_LOG)
    disabled = unheeding.disabled
    logging.disable(logging.CRITICAL)
    unheeding.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        unheeding.disabled = disabled
        logging.disable(level)
