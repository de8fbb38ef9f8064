"""Draw a call's inputs: which families of tensors, how often, and what each is there for."""

from collections.abc import Callable, Mapping

from aotcheck.program import Inputs

from .chooser import Chooser
from .inputs import ELEMENT_TYPES, Drawing
from .profile import Profile, Training

__all__ = ["draw_inputs"]

_PATTERNS: tuple[tuple[Callable[[Drawing], None], int], ...] = (
    (Drawing.plain, 4),
    (Drawing.non_leaf, 5),
    (Drawing.views, 5),
    (Drawing.view_that_requires_grad, 1),
    (Drawing.one_storage, 3),
    (Drawing.odd_strides, 2),
    (Drawing.twice, 1),
    (Drawing.detached, 2),
    (Drawing.dtypes, 1),
    (Drawing.complex_pair, 2),
    (Drawing.expanded, 1),
    (Drawing.leaf_and_view, 1),
    (Drawing.flat, 1),
    (Drawing.freed, 1),
    (Drawing.inference, 1),
    (Drawing.from_function, 1),
    (Drawing.wrapper, 3),
)
_WEIGHTED = tuple(pattern for pattern, weight in _PATTERNS for _ in range(weight))
_DTYPES_OF: Mapping[Callable[[Drawing], None], frozenset[str]] = {
    Drawing.view_that_requires_grad: frozenset({"float32", "complex64"}),
    Drawing.dtypes: frozenset({*ELEMENT_TYPES, *(other for made in ELEMENT_TYPES.values() for other in made)}),
    Drawing.complex_pair: frozenset({"complex64", "float32"}),
    Drawing.wrapper: frozenset({"float32", "float64", "int64"}),
    **dict.fromkeys(
        (Drawing.leaf_and_view, Drawing.flat, Drawing.freed, Drawing.inference, Drawing.from_function),
        frozenset({"float32"}),
    ),
}
"""The dtypes of a pattern that has its own."""
_LEADS_TO: Mapping[Callable[[Drawing], None], tuple[str, ...]] = {
    Drawing.plain: ("input:one", "input:apart", "input:leaf"),
    Drawing.non_leaf: ("input:non-leaf",),
    Drawing.views: ("input:view",),
    Drawing.one_storage: ("input:no-view", "input:disjoint", "layout:offset"),
    Drawing.odd_strides: ("layout:strided", "layout:expanded", "layout:offset"),
    Drawing.twice: ("input:same-object",),
    Drawing.detached: ("input:detached",),
    Drawing.dtypes: ("input:otherwise-read",),
    Drawing.complex_pair: ("layout:conj", "layout:neg", "input:otherwise-read", "dtype:complex"),
    Drawing.expanded: ("layout:expanded",),
    Drawing.flat: ("input:one-buffer", "input:disjoint"),
    Drawing.freed: ("input:freed", "output:freed"),
    Drawing.inference: ("input:inference",),
}
"""The traits that a pattern is there for."""


def _patterns(wrappers: bool, profile: Profile) -> tuple[Callable[[Drawing], None], ...]:
    """The patterns of a profile's families that it has the dtypes for."""

    def selected(pattern: Callable[[Drawing], None]) -> bool:
        if pattern is Drawing.wrapper and not wrappers:
            return False
        if pattern is Drawing.view_that_requires_grad and profile.training is Training.NOTHING:
            return False
        return pattern.__name__ in profile.inputs and _DTYPES_OF.get(pattern, frozenset()) <= profile.dtypes

    return tuple(pattern for pattern in _WEIGHTED if selected(pattern)) or (Drawing.plain,)


def draw_inputs(choose: Chooser, wrappers: bool, profile: Profile) -> Inputs:
    """One to three families of tensors, at most five arguments; of wrapper subclasses only if ``wrappers``."""
    drawing = Drawing(choose, profile)
    patterns = _patterns(wrappers, profile)
    for _ in range(choose.one((1, 2, 2, 1, 3))):
        choose.toward(patterns, lambda pattern: _LEADS_TO.get(pattern, ()))(drawing)
    args = drawing.arguments()
    return Inputs(tuple(drawing.storages), tuple(drawing.tensors), tuple(drawing.derived), args)
