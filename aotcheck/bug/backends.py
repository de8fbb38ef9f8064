"""How a backend is called in a script of plain torch."""

from dataclasses import dataclass

__all__ = ["Called", "called"]


@dataclass(frozen=True)
class Called:
    """A backend in a script.

    Args:
        imports: the lines that it needs beside ``import torch``.
        ways: expressions that compile ``f``, what reads best first.
        title: how people call it.
        needs: the project that has to be installed beside torch; empty for none.
    """

    imports: tuple[str, ...]
    ways: tuple[str, ...]
    title: str
    needs: str = ""


def _dynamo(name: str, needs: str = "", imports: tuple[str, ...] = ()) -> Called:
    plain = f'torch.compile(f, backend="{name}")'
    ways = plain, f'torch.compile(f, backend="{name}", dynamic=False)'
    return Called(imports, ways, plain.replace("f, ", ""), needs)


_AOT = "from functorch.compile import aot_function, nop"
_MIN_CUT = "from functorch.compile import aot_function, min_cut_rematerialization_partition, nop"

_OURS = "from aotcheck import aot_function"

_CALLED = {
    "eager": Called((), ("f",), "eager"),
    "dynamo_eager": _dynamo("eager"),
    "aot_eager": _dynamo("aot_eager"),
    "aot_eager_decomp_partition": _dynamo("aot_eager_decomp_partition"),
    "inductor": Called(
        (),
        (
            "torch.compile(f)",
            "torch.compile(f, dynamic=False)",
            'torch.compile(f, dynamic=False, options={"fallback_random": True})',
        ),
        "torch.compile",
    ),
    "dynamo+aotcheck": _dynamo("aotcheck", "aotcheck"),
    "aot_function": Called((_AOT,), ("aot_function(f, nop)",), "functorch.compile.aot_function"),
    "aot_function_min_cut": Called(
        (_MIN_CUT,),
        ("aot_function(f, nop, partition_fn=min_cut_rematerialization_partition)",),
        "functorch.compile.aot_function with the min-cut partition",
    ),
    "aotcheck": Called((_OURS,), ("aot_function(f)",), "aotcheck.aot_function", "aotcheck"),
    "openvino": _dynamo("openvino", "openvino", ("import openvino.torch",)),
    "thunder": Called(("import thunder",), ("thunder.jit(f)",), "thunder.jit", "lightning-thunder"),
}


def called(name: str) -> Called:
    """How the backend ``name`` is called: by its own interface where this project knows it."""
    if name in _CALLED:
        return _CALLED[name]
    module, colon, attribute = name.partition(":")
    if colon:
        root = attribute.partition(".")[0]
        return Called((f"from {module} import {root}",), (f"{attribute}(f)",), name, module.partition(".")[0])
    return Called(("from aotcheck.backends import resolve",), (f'resolve("{name}").compile(f)',), name, "aotcheck")
