"""Which traits no program of a profile has: no campaign aims at them or counts them as missing."""

from collections.abc import Iterator, Mapping

from aotcheck.program.ops.registry import INSIDE, Group
from aotcheck.program.vocabulary.traits import TRAITS

from .profile import Family, Profile, Training, Writes
from .selection import Selection, selection_of

__all__ = ["undrawn"]

_OF_FAMILY: Mapping[Family, tuple[str, ...]] = {
    Family.FREED: ("input:freed",),
    Family.INFERENCE: ("input:inference",),
    Family.WRAPPER: ("input:subclass",),
}
"""The traits that only a family of arguments leads to, in programs of one call."""
_OF_DTYPES: Mapping[str, frozenset[str]] = {
    "dtype:float32": frozenset({"float32"}),
    "dtype:float64": frozenset({"float64"}),
    "dtype:half": frozenset({"float16", "bfloat16"}),
    "dtype:complex": frozenset({"complex64", "complex128"}),
    "dtype:integer": frozenset({"int64", "int32", "uint8"}),
    "dtype:bool": frozenset({"bool"}),
}
_NEEDED = frozenset({Group.INDEX, Group.VIEW, Group.FACTORY, Group.COMPARE, Group.POINTWISE, Group.FILL})
"""Groups that are no trait, or of ops that other ops need: what is nested is opened, masks and constants are made."""
_AROUND = ("context:call-autocast", "context:call-anomaly", "context:call-saved-tensors", "context:backward-")
_OF_ONE_BACKWARD = ("step:backward", "step:grad")
_COTANGENTS = ("cotangent:pattern", "cotangent:zeros", "cotangent:expanded", "cotangent:strided")


def undrawn(profile: Profile) -> frozenset[str]:
    """The traits (:mod:`aotcheck.program.vocabulary.traits`) that no program of ``profile`` has."""
    return frozenset(
        (
            *_by_share(profile),
            *_by_ops(profile, selection_of(profile)),
            *_by_inputs(profile),
            *_by_training(profile),
            *(_by_usage() if profile.usage else ()),
        )
    )


def _by_share(profile: Profile) -> Iterator[str]:
    without = {
        (*(f"op:{group.value}" for group in INSIDE), "context:block-autocast"): profile.inside,
        ("op:subclass", "input:subclass"): profile.wrappers,
        ("step:probe-trained",): profile.trained_writes,
        ("context:block-no-grad", "context:block-enable-grad", "context:block-inference"): profile.blocks,
        ("context:block-autocast",): profile.blocks,
        ("context:call-no-grad", "context:call-inference"): profile.other_modes,
    }
    further = profile.second_call or profile.trained_later
    calls = ("step:interleaved", *(trait for trait in TRAITS if trait.startswith("call:")))
    for traits, share in {**without, calls: further}.items():
        if not share:
            yield from traits


def _by_ops(profile: Profile, selection: Selection) -> Iterator[str]:
    if not selection.restricted:
        return
    for group in Group:
        if group not in _NEEDED and not any(op.group is group for op in selection.ops):
            yield f"op:{group.value}"
    for trait, path in (("op:data", "Tensor.data="), ("op:swap", "torch.utils.swap_tensors")):
        if not selection.allows(path):
            yield trait
    if Group.CONTAINER not in profile.groups:
        yield "output:container-of-caller"
    if profile.writes is not Writes.ANYTHING:
        yield from ("end:mutated", "end:metadata-changed")


def _by_inputs(profile: Profile) -> Iterator[str]:
    if not (profile.second_call or profile.trained_later):
        for family, traits in _OF_FAMILY.items():
            if family not in profile.inputs:
                yield from traits
    for trait, dtypes in _OF_DTYPES.items():
        if dtypes.isdisjoint(profile.dtypes):
            yield trait


def _by_usage() -> Iterator[str]:
    """What :class:`strategies.practice.Practice` never does."""
    plans = ("step:", "cotangent:", "context:call-", *_AROUND)
    kept = ("step:backward", "step:several", "step:probe-input", "cotangent:pattern")
    yield from (trait for trait in TRAITS if trait.startswith(plans) and trait not in kept)
    yield from ("context:block-enable-grad", "context:block-inference", "output:nested", "output:constant")
    yield from ("input:one", "input:non-leaf", "input:freed", "input:inference", "argument:tuple", "dtype:float64")
    yield from ("output:freed", "output:inference", "output:container-of-caller", "end:refused", "end:backward-refused")
    yield from (f"call:other-{what}" for what in ("grad", "aliasing", "strides", "mode"))


def _by_training(profile: Profile) -> Iterator[str]:
    match profile.training:
        case Training.ANYTHING:
            return
        case Training.NOTHING:
            yield from (trait for trait in TRAITS if trait.startswith(("step:", "cotangent:", *_AROUND)))
            yield from ("input:leaf", "input:non-leaf", "input:detached", "output:trained", "end:backward-refused")
        case Training.ONE_BACKWARD:
            kept = (*_OF_ONE_BACKWARD, *_COTANGENTS)
            yield from (t for t in TRAITS if t.startswith(("step:", "cotangent:", *_AROUND)) and t not in kept)
