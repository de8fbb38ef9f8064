"""A Hypothesis strategy of variations: changes of arguments combined with what a caller does, and a second call."""

from hypothesis import strategies as st

from aotcheck.checking.changes import CHANGES
from aotcheck.checking.variations import PLANS, Variation, VariedCall, plain_call

__all__ = ["variations"]

MOST_CHANGES = 2


def variations(second_call: bool = True) -> st.SearchStrategy[Variation]:
    """Variations to give to :func:`aotcheck.check`; the simplest is the call as given.

    Args:
        second_call: whether some make a second call, with other arguments or the same.
    """
    changes = st.lists(st.sampled_from(list(CHANGES.values())), max_size=MOST_CHANGES, unique=True).map(tuple)
    plans = st.sampled_from([("", plain_call()), *PLANS.items()])
    calls = st.builds(lambda plan, changed: (plan[0], VariedCall(plan[1], changed)), plans, changes)
    again = calls | st.just(("", VariedCall(plain_call(), None)))
    following = st.none() | again if second_call else st.none()
    return st.builds(_joined, calls, following)


def _joined(first: tuple[str, VariedCall], second: tuple[str, VariedCall] | None) -> Variation:
    calls = [first] if second is None else [first, second]
    return Variation("; then ".join(_shown(*each) for each in calls), tuple(call for _, call in calls))


def _shown(plan: str, call: VariedCall) -> str:
    if call.changes is None:
        return "same arguments"
    return ", ".join(part for part in (*(change.name for change in call.changes), plan) if part) or "as given"
