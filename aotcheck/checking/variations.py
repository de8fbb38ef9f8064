"""The variations: what a caller may do with a function's arguments, around the call, before it and after it."""

from dataclasses import dataclass

from aotcheck.checking.changes import CHANGES, Change
from aotcheck.program import (
    Around,
    Backward,
    Call,
    Cotangent,
    Fill,
    GradMode,
    Graph,
    Hook,
    HookKind,
    Of,
    Probe,
    Site,
    Step,
    Way,
    Write,
)

__all__ = ["VARIATIONS", "Variation", "VariedCall", "plain_call"]

ALL = tuple(range(16))
"""Indices for every output that requires grad; those past the last output are ignored."""


@dataclass(frozen=True)
class VariedCall:
    """A call of a variation.

    Args:
        call: the modes around it and the steps before and after; its ``inputs`` are ignored.
        changes: the changes of the arguments, in order; None for the same argument objects as in the call before.
    """

    call: Call
    changes: tuple[Change, ...] | None = ()


@dataclass(frozen=True)
class Variation:
    """A variation: its name and its calls."""

    name: str
    calls: tuple[VariedCall, ...]


BACKWARD = Backward(ALL)
AFTER: tuple[Step, ...] = (BACKWARD, Probe(Site.OUTPUT, 0, 3), Probe(Site.INPUT, 0, 2))
"""A backward, then writes by the caller through the first output and the first argument: who sees them?"""


def plain_call(*steps: Step, mode: GradMode = GradMode.ENABLED, around: tuple[Around, ...] = ()) -> Call:
    """A call with these steps after it, by default those of ``AFTER``."""
    return Call(None, mode, steps or AFTER, (), around)


def _plans() -> dict[str, Call]:
    """What is done around one call, by name."""
    grad = Backward(ALL, way=Way.RETURN)
    created = Backward(ALL, (Cotangent(Fill.TRAINED, 1),), way=Way.RETURN, graph=Graph.CREATED)
    watch = Hook(HookKind.WATCH, Site.OUTPUT, 0)
    return {
        "gradients returned": plain_call(grad),
        "gradient of the first output alone": plain_call(Backward((0,)), BACKWARD),
        "backward twice": plain_call(Backward(ALL, graph=Graph.RETAINED), BACKWARD),
        "backward twice, graph freed": plain_call(BACKWARD, BACKWARD),
        "double backward": plain_call(created, Backward(ALL, of=Of.RESULTS)),
        "gradient penalty": plain_call(created, Backward((0,), of=Of.PENALTY)),
        "expanded cotangent": plain_call(Backward(ALL, (Cotangent(Fill.EXPANDED, 1),))),
        "strided cotangent": plain_call(Backward(ALL, (Cotangent(Fill.STRIDED, 1),))),
        "output written before the backward": plain_call(Probe(Site.OUTPUT, 0, 3), BACKWARD),
        "output multiplied before the backward": plain_call(Probe(Site.OUTPUT, 0, 3, Write.GRAD), BACKWARD),
        "argument written before the backward": plain_call(Probe(Site.INPUT, 0, 3), BACKWARD),
        "hook on the output": plain_call(watch, BACKWARD),
        "under no_grad": plain_call(mode=GradMode.NO_GRAD),
        "under inference_mode": plain_call(mode=GradMode.INFERENCE),
        "under autocast": plain_call(around=(Around.AUTOCAST,)),
        "under anomaly mode": plain_call(around=(Around.ANOMALY,)),
        "under saved-tensor hooks": plain_call(around=(Around.SAVED_TENSORS,)),
    }


PLANS = _plans()
_SECOND = ("without grad", "with grad", "transposed", "part of a larger storage", "the same object", "overlapping")


def _variations() -> dict[str, Variation]:
    plain = plain_call()
    made = [Variation("as given", (VariedCall(plain),))]
    made += [Variation(name, (VariedCall(plain, (change,)),)) for name, change in CHANGES.items()]
    made += [Variation(name, (VariedCall(call),)) for name, call in PLANS.items()]
    again = VariedCall(plain, None)
    made.append(Variation("again, same arguments", (VariedCall(plain_call(BACKWARD)), again)))
    made.append(Variation("again, other values", (VariedCall(plain), VariedCall(plain))))
    made.append(Variation("again, under no_grad", (VariedCall(plain), VariedCall(plain_call(mode=GradMode.NO_GRAD)))))
    for name in _SECOND:
        made.append(Variation(f"again, {name}", (VariedCall(plain), VariedCall(plain, (CHANGES[name],)))))
    return {variation.name: variation for variation in made}


VARIATIONS = _variations()
"""Every variation that :func:`aotcheck.check` tries, by name."""
