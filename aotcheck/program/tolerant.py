"""What findings' scripts carry for a backend that does not promise everything.

The text below the marker is copied into such scripts behind the harness, whose functions it replaces.
"""

from __future__ import annotations

import torch

from aotcheck.program.both_ways import differences, same

__all__ = ["tolerate"]

# -- tolerances 1: canonical text, ignored when the file is read back


def tolerate(kinds, rtol=0.0):
    """From here on leave out differences of these kinds, which the backend does not promise to avoid, and differences
    of floating values of at most `rtol` of the largest magnitude in their tensor."""
    global differences, same
    every, equal = differences, same

    def told(where, eager, other, exact, lists=False):
        found = every(where, eager, other, exact, lists or "container types" in kinds)
        return [one for one in found if kinds.isdisjoint((one[0], f"{one[0]} of {role(one[1])}"))]

    def near(kind, x, y, exact):
        if equal(kind, x, y, exact):
            return True
        if not rtol or kind != "values" or not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            return False
        if not (x.is_floating_point() or x.is_complex()):
            return False
        largest = max([0.0, *x[x.isfinite()].abs().flatten().tolist()])
        return bool(((x == y) | ((x != x) & (y != y)) | ((x - y).abs() <= rtol * largest)).all())

    differences, same = told, near


def role(thing):
    """What kind of thing was looked at."""
    if ".grad" in thing:
        return "gradient"
    name = thing.partition("[")[0].partition(".")[0]
    return name if name in ("output", "call", "process", "result", "hook") else "input"
