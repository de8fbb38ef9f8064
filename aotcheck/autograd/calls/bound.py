"""Arguments that are what they are: a function that is called with them is compiled for each choice of them.

Note [Bound arguments]
A module, or a function with a closure, that is an argument brings along what it reads: parameters, hooks, numbers. So
does an object that cannot be taken apart as Note [Objects] has it, because it holds a lock or an iterator, and one that
the function reaches by another way as well: what it does to either it does to both. A function that is called with such
arguments is compiled as one that has them in its closure, once for each choice.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck.autograd.calls.contents import GENERATORS
from aotcheck.autograd.calls.naming import is_of_others
from aotcheck.autograd.calls.objects import may_be_object
from aotcheck.autograd.calls.specialize import PLAIN_LEAVES
from aotcheck.autograd.tensors.plain_values import plain_key

_WITHOUT_STATE = (type, types.BuiltinFunctionType)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_OPS = (type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))


def bindable(flat: Sequence[Any], bound: Collection[int]) -> list[Any]:
    """What of the leaves of a call is to be bound and is not yet ``bound``, by id."""
    leaves = [a for a in flat if type(a) not in PLAIN_LEAVES and id(a) not in bound and _is_bound(a)]
    return [a for a in leaves if not (bound and callable(a))]  # one just like that is bound


def _is_bound(a: Any) -> bool:
    """Whether it is a function, module or the like, or an object.

    Functions of libraries change nothing and read nothing.
    """
    if isinstance(a, (Tensor, *_WITHOUT_STATE, *_OPS)):
        return False
    if not callable(a):
        return isinstance(a, GENERATORS) or (
            plain_key(a) is None and may_be_object(type(a)) and not isinstance(a, _SYMBOLIC)
        )
    return not (type(a) is types.FunctionType and is_of_others(a.__module__))
