"""Features: named sets of traits that make a program worth running. Floors say how many programs must have one."""

from collections.abc import Collection, Set
from enum import Enum

from aotcheck.program.data.model import Fill
from aotcheck.program.vocabulary.traits import NAMES, Facet

__all__ = ["Feature", "features_in"]


def _those(facet: Facet, without: Collection[str] = ()) -> frozenset[str]:
    return frozenset(f"{facet}:{name}" for name in NAMES[facet] if name not in without)


class Feature(Enum):
    """A reason to run a program; a program has the feature if it has one of these traits."""

    MUTATES_INPUT = frozenset({"end:mutated", "end:metadata-changed"})
    METADATA_MUTATION = frozenset({"end:metadata-changed"})
    INPUTS_SHARE_STORAGE = frozenset({"event:inputs-share-storage"})
    RETURNS_ALIAS = frozenset({"event:returns-alias"})
    RETURNS_INPUT = frozenset({"event:returns-input"})
    SECOND_CALL = _those(Facet.CALL)
    SECOND_CALL_OTHER_KEY = frozenset({"event:second-call-other-key"})
    EAGER_REFUSES = frozenset({"end:refused"})
    BACKWARD = frozenset({"step:backward", "step:grad", "step:grad-of-used"})
    BACKWARD_REFUSED = frozenset({"end:backward-refused"})
    SEVERAL_BACKWARDS = frozenset({"step:several"})
    DOUBLE_BACKWARD = frozenset({"step:of-results", "step:of-penalty", "step:of-gradients"})
    THIRD_DERIVATIVE = frozenset({"event:third-derivative"})
    MANY_BACKWARDS = frozenset({"step:several", "step:of-results", "step:of-penalty", "step:of-gradients"})
    RETURNED_GRADIENT = frozenset({"step:grad", "step:grad-of-used"})
    CHOSEN_INPUTS = frozenset({"step:chosen-inputs"})
    ODD_COTANGENT = _those(Facet.COTANGENT, without=(Fill.PATTERN.value, Fill.ZEROS.value))
    WRITE_BEFORE_BACKWARD = frozenset({"step:write-before-backward"})
    HOOK = frozenset({"event:hook"})
    INTERLEAVED_CALLS = frozenset({"step:interleaved"})
    CONTEXT_AROUND_CALL = frozenset({"event:context-around-call"})
    CONTEXT_AROUND_BACKWARD = frozenset({"event:context-around-backward"})
    SET_OR_RESIZE = frozenset({"source:set-or-resize"})
    USES_RNG = frozenset({"source:uses-rng"})
    INEXACT = frozenset({"source:inexact"})
    MAY_BE_UNDEFINED = frozenset({"source:may-be-undefined"})
    GRAD_MODE_BLOCK = frozenset({"source:grad-mode-block"})
    DATA_ASSIGNED = frozenset({"source:data-assigned"})
    SWAPPED = frozenset({"source:swapped"})
    STORAGE_RESIZED = frozenset({"source:storage-resized"})
    CUSTOM_FUNCTION = frozenset({"source:custom-function"})
    CONTAINER_WRITTEN = frozenset({"event:container-written"})
    AUTOGRAD_INSIDE = frozenset({"source:autograd-inside"})
    MODULE_CALLED = frozenset({"source:module-called"})
    OUT_RESIZED = frozenset({"event:out-resized"})
    INFERENCE_BLOCK = frozenset({"source:inference-block"})
    INFERENCE_CALL = frozenset({"source:inference-call"})
    INFERENCE_INPUT = frozenset({"input:inference"})
    FREED_INPUT = frozenset({"input:freed"})
    INPUTS_READ_BITS_OTHERWISE = frozenset({"input:otherwise-read"})
    EXPANDED_INPUT = frozenset({"event:expanded-input"})
    PARAMETERS_OF_ONE_BUFFER = frozenset({"input:one-buffer"})
    FOREACH_TWICE = frozenset({"event:foreach-twice"})
    FOREACH_ALIAS = frozenset({"event:foreach-alias"})
    EXPANDED_WRITE = frozenset({"event:expanded-write"})
    DUPLICATE_INDICES = frozenset({"event:duplicate-indices"})
    BEYOND_THE_VIEW = frozenset({"event:beyond-the-view"})
    RETURNS_ONE_OBJECT_TWICE = frozenset({"output:twice"})
    RETURNS_CONTAINER_OF_CALLER = frozenset({"output:container-of-caller"})
    RETURNS_INFERENCE_TENSOR = frozenset({"output:inference"})
    RETURNS_FREED = frozenset({"output:freed"})
    SUBCLASS = frozenset({"source:subclass"})
    COMPLEX_NUMBER = frozenset({"source:complex-number"})


def features_in(traits: Set[str]) -> frozenset[Feature]:
    """The features of a program with these traits."""
    return frozenset(feature for feature in Feature if not feature.value.isdisjoint(traits))
