"""The passes: each takes a program and yields candidates, from bold to careful.

A pass neither runs nor judges its candidates. :mod:`aotcheck.minimize.reduce` drops those that are not well formed or
not simpler, so a pass may propose any.
"""

from collections.abc import Callable, Iterator

from aotcheck.minimize.passes.inputs import (
    delete_arguments,
    delete_derived,
    delete_unused,
    hoist_statements,
    inline_views,
    merge_arguments,
    unnest_arguments,
)
from aotcheck.minimize.passes.names import lower_names, rename
from aotcheck.minimize.passes.ops import (
    results_for_out,
    simplify_literals,
    simplify_ops,
    simplify_signatures,
    unpack_results,
)
from aotcheck.minimize.passes.outputs import delete_outputs
from aotcheck.minimize.passes.plan import delete_calls, delete_steps, same_inputs, simplify_steps
from aotcheck.minimize.passes.statements import delete_pairs, delete_statements, drop_contexts
from aotcheck.minimize.passes.tensors import shrink_data, shrink_shapes, simplify_dtypes, simplify_tensors
from aotcheck.program import Program

__all__ = ["PASSES", "Pass"]

Pass = Callable[[Program], Iterator[Program]]

PASSES: tuple[Pass, ...] = (
    delete_calls,
    delete_steps,
    delete_statements,
    delete_outputs,
    delete_arguments,
    delete_unused,
    drop_contexts,
    delete_derived,
    inline_views,
    unnest_arguments,
    merge_arguments,
    same_inputs,
    delete_pairs,
    hoist_statements,
    simplify_tensors,
    shrink_shapes,
    simplify_ops,
    results_for_out,
    simplify_signatures,
    simplify_dtypes,
    lower_names,
    shrink_data,
    simplify_literals,
    unpack_results,
    simplify_steps,
    rename,
)
"""Every pass, those that take most away first."""
