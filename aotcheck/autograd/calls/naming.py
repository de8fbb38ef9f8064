"""What code names: attributes and variables that it reads, counts or only assigns.

Note [Counters]
A name that all code around a function only adds numbers to (``self.steps += 1``), or only assigns, tells nothing of
what the function computes: it is no part of the key of a call, and every call adds and assigns what the trace did. That
nothing reads it is seen in the code.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch

_STORES = frozenset(("STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL"))
_LOADS = frozenset(("LOAD_ATTR", "LOAD_DEREF", "LOAD_GLOBAL"))
_METHODS = frozenset(("LOAD_METHOD", "LOAD_ATTR"))
_APPENDING = frozenset(("append", "extend", "add"))
_NO_READS = frozenset(("LOAD_CLOSURE", "MAKE_CELL", "COPY_FREE_VARS", "STORE_FAST", "LOAD_FAST"))
_STORE_CODES = frozenset(dis.opmap[name] for name in _STORES)
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_LOAD_GLOBAL, _EXTENDED = dis.opmap["LOAD_GLOBAL"], dis.opmap["EXTENDED_ARG"]
_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr"))  # of an attribute
_OF_ALL = frozenset(("vars", "__dict__", "asdict", "fields", "attrgetter"))
_NOT_CALLED = frozenset(("__init__", "__new__", "__post_init__", "__repr__", "__str__", "__del__", "__init_subclass__"))
_NOT_CALLED |= {"__class_getitem__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__"}
MAKING = ("__init__", "__new__", "__post_init__")  # of an object; what they assign to that is nobody else's
_COMPARED = frozenset(("__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"))  # by a dataclass: all of it
_OF_FUNCTIONS = frozenset(("setup_context", "backward", "vjp", "jvp", "vmap"))  # autograd calls these
_CODE = (types.FunctionType, property, staticmethod, classmethod, functools.cached_property)
_OTHERS = (sys.stdlib_module_names - {"builtins", "__main__"}) | {"torch", "numpy", "aotcheck"}
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_LOOKED_INTO = frozenset(("torch", "collections", "argparse", "types", "dataclasses"))


def is_of_others(name: str | None) -> bool:
    """Whether the module of this name is of a library, whose variables nobody changes."""
    return _is_installed((name or "").split(".")[0])


@functools.lru_cache(4096)
def _is_installed(package: str) -> bool:
    if package in _OTHERS:
        return True
    module = sys.modules.get(package)
    where = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return str(where).startswith(_INSTALLED)


def is_looked_into(cls: type) -> bool:
    """Whether what methods of the class name is looked at: of libraries those of modules, optimizers and the like."""
    return (
        issubclass(cls, torch.nn.Module)
        or cls.__module__.split(".")[0] in _LOOKED_INTO
        or not is_of_others(cls.__module__)
    )


@dataclasses.dataclass(frozen=True)
class Named:
    """Names that code reads, adds to (``+=``) and assigns; ``dynamic``: and some that only show when it runs.

    Of those that it reads some it only ``appends`` to, ``log.append(x)``, and others it ``uses``.
    """

    reads: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    dynamic: bool = False
    appends: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()

    def __or__(self, other: Named) -> Named:
        if self is NOTHING:
            return other
        return Named(
            self.reads | other.reads,
            self.adds | other.adds,
            self.stores | other.stores,
            self.dynamic or other.dynamic,
            self.appends | other.appends,
            self.uses | other.uses,
        )

    @property
    def counted(self) -> frozenset[str]:
        """Those only added to."""
        return self.adds - self.reads - self.stores if self.adds else self.adds

    @property
    def assigned(self) -> frozenset[str]:
        """Those only assigned."""
        return self.stores - self.reads - self.adds if self.stores else self.stores

    @property
    def logs(self) -> frozenset[str]:
        """Those of lists and the like that are only appended to."""
        return self.appends - self.uses

    @property
    def watched(self) -> frozenset[str]:
        """Those that may matter to what is computed."""
        return self.reads | (self.adds & self.stores) if self.adds else self.reads


NOTHING = Named()
_TRAINING = Named(frozenset(("training",)))


@functools.lru_cache(4096)
def named_in(code: types.CodeType) -> Named:
    """What the code names, strings that may be names of attributes included."""
    strings = frozenset(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    names = frozenset((*code.co_names, *code.co_freevars))
    if _STORE_CODES.isdisjoint(code.co_code[::2]):
        found = Named(names | strings)
    else:
        made = code.co_varnames[0] if code.co_name in MAKING and code.co_argcount else None
        found = _read_and_stored(list(dis.get_instructions(code)), made)
        found = dataclasses.replace(found, reads=found.reads | strings)
    if _APPENDING.isdisjoint(code.co_names):
        found = dataclasses.replace(found, uses=found.reads)
    else:
        appends, uses = _appended_and_used(code)
        found = dataclasses.replace(found, appends=appends, uses=uses | strings)
    if not _OF_ALL.isdisjoint(names) or (not _BY_NAME.isdisjoint(names) and _reads_by_any_name(code)):
        found = dataclasses.replace(found, dynamic=not _is_of_torch(code))
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            found |= named_in(c)
    return found


def _appended_and_used(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names that the code appends to, and those that it loads for another purpose."""
    steps = list(dis.get_instructions(code))
    appends: set[str] = set()
    uses: set[str] = set()
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if step.opname in _LOADS and isinstance(step.argval, str):
            appending = following is not None and following.opname in _METHODS and following.argval in _APPENDING
            (appends if appending else uses).add(step.argval)
    return frozenset(appends), frozenset(uses)


def _is_of_torch(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_TORCH)


_TORCH = torch.__file__.rsplit("/", 1)[0]


def _read_and_stored(steps: list[dis.Instruction], made: str | None) -> Named:
    """What is assigned to attributes of ``made`` is left out."""
    reads, adds, stores = set(), set(), set()
    added: set[int] = set()  # stores that are the ends of additions
    for k, step in enumerate(steps):
        name = step.argval
        if not isinstance(name, str) or step.opname in _NO_READS or "CONST" in step.opname:
            continue
        if step.opname in _STORES:
            new = made is not None and step.opname == "STORE_ATTR" and steps[k - 1].argval == made
            if k not in added and not new:
                stores.add(name)
        elif (end := _end_of_addition(steps, k)) is not None:
            added.add(end)
            adds.add(name)
        else:
            reads.add(name)
    return Named(frozenset(reads), frozenset(adds), frozenset(stores))


def _end_of_addition(steps: list[dis.Instruction], k: int) -> int | None:
    """Where what is loaded is stored with a number added; None if that is not what is done with it."""
    if steps[k].opname not in _LOADS or k + 3 >= len(steps):
        return None
    number, add = steps[k + 1], steps[k + 2]
    if number.opname != "LOAD_CONST" or type(number.argval) is not int or add.argrepr not in ("+=", "-=", "+", "-"):
        return None
    owner = steps[k - 1]
    again = owner.opname == "LOAD_FAST" and (steps[k + 3].opname, steps[k + 3].argval) == ("LOAD_FAST", owner.argval)
    if "=" not in add.argrepr and not again and steps[k + 3].opname == "STORE_ATTR":
        return None
    end = k + 3 + (steps[k + 3].opname == "SWAP" or again)
    return end if end < len(steps) and steps[end].opname in _STORES and steps[end].argval == steps[k].argval else None


def _reads_by_any_name(code: types.CodeType) -> bool:
    """Whether it reads attributes whose names are made when it runs."""
    steps = list(dis.get_instructions(code))
    for k, step in enumerate(steps):
        if step.argval in _BY_NAME and step.opname.startswith("LOAD"):
            k += 2
            while k < len(steps) and steps[k].opname == "LOAD_ATTR":
                k += 1
            if k >= len(steps) or not (steps[k].opname == "LOAD_CONST" and isinstance(steps[k].argval, str)):
                return True
            if not any("CALL" in after.opname for after in steps[k + 1 : k + 3]):  # of which a name is made
                return True
    return False


@functools.lru_cache(4096)
def globals_in(code: types.CodeType) -> frozenset[str]:
    """The global variables that the code reads."""
    raw, found, high = code.co_code, set(), 0
    for k in range(0, len(raw), 2):
        argument = raw[k + 1] | high
        if raw[k] == _LOAD_GLOBAL:
            found.add(code.co_names[argument >> 1])
        high = argument << 8 if raw[k] == _EXTENDED else 0
    return frozenset(found).union(*(globals_in(c) for c in code.co_consts if isinstance(c, types.CodeType)))


@functools.lru_cache(4096)
def imports_in(code: types.CodeType) -> frozenset[tuple[int, str]]:
    """The modules that the code imports when it runs: how many packages up, and which."""
    found: set[tuple[int, str]] = set()
    if _IMPORT_NAME in code.co_code[::2]:
        steps = list(dis.get_instructions(code))
        for k, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                found.add((steps[k - 2].argval, step.argval))
    return frozenset(found).union(*(imports_in(c) for c in code.co_consts if isinstance(c, types.CodeType)))


@functools.lru_cache(1024)
def _named_in_all(code: frozenset[types.CodeType]) -> Named:
    found = NOTHING
    for c in code:
        found |= named_in(c)
    return found


def read_around(code: Iterable[types.CodeType], classes: Collection[type], before: Named) -> Named:
    """What the code names, and methods of the classes that it names or that Python calls by itself."""
    if not classes:
        return before | _named_in_all(frozenset(code))
    found = before
    for c in code:
        found |= named_in(c)
    pending: frozenset[str] = found.reads.union(*map(called_implicitly, classes))
    seen: frozenset[str] = frozenset()
    while pending:
        seen |= pending
        for cls in classes:
            for name in pending:
                for c in _code_of(cls, name):
                    found |= named_in(c)
        pending = found.reads - seen
    if not found.reads.isdisjoint(("train", "eval")):  # methods of all modules, which are not looked into
        found |= _TRAINING
    return found


def called_implicitly(cls: type) -> frozenset[str]:
    """The methods of the class that Python calls without their being named."""
    own = [c for c in cls.__mro__ if is_looked_into(c) and c.__module__.split(".")[0] != "torch"]
    found = {n for c in own for n, f in vars(c).items() if n[:2] == "__" and isinstance(f, types.FunctionType)}
    found.add("forward")
    if issubclass(cls, torch.autograd.Function):
        found |= _OF_FUNCTIONS
    return frozenset(found - _NOT_CALLED - (_COMPARED if hasattr(cls, "__dataclass_fields__") else frozenset()))


def functions_of(attribute: Any) -> Iterator[types.FunctionType]:
    """The Python functions that an attribute of a class runs."""
    if isinstance(attribute, property):
        for part in (attribute.fget, attribute.fset):
            if isinstance(part, types.FunctionType):
                yield part
    elif isinstance(attribute, _CODE) or hasattr(type(attribute), "cache_info"):
        for name in ("__func__", "func"):
            attribute = getattr(attribute, name, attribute)
        while attribute is not None:
            if isinstance(attribute, types.FunctionType):
                yield attribute
            attribute = getattr(attribute, "__wrapped__", None)


def code_called(hook: Any) -> Iterator[types.CodeType]:
    """The Python code that runs when ``hook``, a function or an object, is called."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    hook = getattr(hook, "__func__", hook)
    if not isinstance(hook, types.FunctionType):
        hook = next((vars(c)["__call__"] for c in type(hook).__mro__ if "__call__" in vars(c)), None)
    for function in functions_of(hook):
        yield function.__code__


def _code_of(cls: type, name: str) -> Iterator[types.CodeType]:
    for c in cls.__mro__:
        if c is torch.nn.Module:
            return
        attribute = vars(c).get(name) if is_looked_into(c) else None
        if attribute is not None:
            for function in functions_of(attribute):
                yield function.__code__
