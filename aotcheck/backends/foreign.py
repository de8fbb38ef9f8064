"""Adapters of some ten lines for other people's compilers, each without the promises that the compiler does not give.

If a package is missing, the error names the extra that installs it.
"""

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aotcheck._torch import pytree
from aotcheck.backends.backend import EVERY_PROMISE, Backend, Function, Promise
from aotcheck.backends.errors import BackendUnavailableError
from aotcheck.backends.examples import with_examples

__all__ = ["MAKERS", "PACKAGES", "jit_trace", "onnxruntime", "openvino", "thunder", "torch_export"]

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "jit_trace": (),
    "torch_export": (),
    "thunder": ("thunder",),
    "openvino": ("openvino", "openvino.torch"),
    "onnxruntime": ("onnxruntime", "onnxscript"),
}
"""By backend, the modules that it needs beside torch; the extra that installs them is called as the backend is."""

_FIRST_KEY_ONLY = frozenset({Promise.GUARDS, Promise.EFFECTS})
_NO_ARGUMENT_BUT_TENSORS = frozenset(
    {Promise.CONSTANTS, Promise.PYTREES, Promise.OBJECTS, Promise.CONTAINERS, Promise.SUBCLASSES}
)
_VALUES_ONLY = frozenset(
    {
        Promise.GRADIENTS,
        Promise.DOUBLE_BACKWARD,
        Promise.MUTATION,
        Promise.ALIASING,
        Promise.STRIDES,
        Promise.RANDOM,
        Promise.SUBCLASSES,
        Promise.ERRORS,
    }
)
"""The promises that an inference engine does not give: it has arrays and no autograd."""

_THUNDER_HAS_NOT = ("Unknown attribute", "Failed to find a gradient transform", "unexpected keyword argument 'out'")
"""What thunder says of an op, a derivative or an ``out=`` that it has not got, in exceptions of other classes."""

_FULL_PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}
"""Without this OpenVINO computes float32 in bfloat16 on processors that have instructions for it, and says so in its
documentation: every product of matrices would differ."""

_fallbacks: Counter[str] = Counter()
_COUNTED = "counted_by_aotcheck"


# -- compilers that come with torch


jit_trace = with_examples(lambda fn, examples: torch.jit.trace(fn, examples, check_trace=False, strict=False))
"""torch.jit.trace: repeats the ops of one run of the function."""


def _export(fn: Function, examples: tuple[Any, ...]) -> Function:
    module: Function = torch.export.export(_Module(fn), examples).module()
    return module


torch_export = with_examples(_export)
"""torch.export, its program run by eager torch."""


class _Module(torch.nn.Module):
    """A function as a module, which exporters want."""

    def __init__(self, fn: Function) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        """Call it."""
        return self.fn(*args)


# -- compilers of others


def thunder(fn: Function) -> Function:
    """lightning-thunder: ``thunder.jit``."""
    (package,) = _packages("thunder")
    compiled: Function = package.jit(fn)

    def called(*args: Any) -> Any:
        try:
            return compiled(*args)
        except (AttributeError, RuntimeError, TypeError) as error:
            if any(words in str(error) for words in _THUNDER_HAS_NOT):
                raise NotImplementedError(str(error)) from error
            raise

    return called


def openvino(fn: Function) -> Function:
    """OpenVINO behind Dynamo: ``torch.compile(backend="openvino")``."""
    _packages("openvino")
    _count_openvinos_fallbacks()
    options: Any = {"config": dict(_FULL_PRECISION)}
    compiled: Function = torch.compile(fn, backend="openvino", dynamic=False, options=options)
    return compiled


def onnxruntime(fn: Function) -> Function:
    """The function exported to ONNX and run by ONNX Runtime, on the CPU and one thread."""
    runtime, _ = _packages("onnxruntime")

    def make(fn: Function, examples: tuple[Any, ...]) -> Function:
        shapes: list[Any] = []

        def flat(*tensors: torch.Tensor) -> tuple[Any, ...]:
            given = iter(tensors)
            result = fn(*(next(given) if isinstance(arg, torch.Tensor) else arg for arg in examples))
            leaves, shape = pytree.tree_flatten(result)
            shapes.append(shape)
            return tuple(leaves)

        exported = torch.onnx.export(_Module(flat).eval(), _arrays(examples), dynamo=True, verbose=False)
        assert exported is not None
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        session = runtime.InferenceSession(exported.model_proto.SerializeToString(), options)

        def run(*args: Any) -> Any:
            arrays = [t.detach().numpy() for t in _arrays(args)]
            feeds = {one.name: array for one, array in zip(session.get_inputs(), arrays, strict=True)}
            return pytree.tree_unflatten([torch.from_numpy(array) for array in session.run(None, feeds)], shapes[-1])

        return run

    return with_examples(make)(fn)


def _arrays(args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(arg for arg in args if isinstance(arg, torch.Tensor))


# -- as backends


def _jit_trace() -> Backend:
    """Tensors in, tensors out, and only what the example did; what eager refuses it may do otherwise."""
    without = _FIRST_KEY_ONLY | _NO_ARGUMENT_BUT_TENSORS | {Promise.ERRORS}
    return Backend("jit_trace", jit_trace, EVERY_PROMISE - without)


def _torch_export() -> Backend:
    """A functional program: no aliases, no wrappers, and nothing outside torch.export's own list of errors."""
    without = _FIRST_KEY_ONLY | {
        Promise.OBJECTS,
        Promise.ALIASING,
        Promise.SUBCLASSES,
        Promise.ERRORS,
        Promise.DOUBLE_BACKWARD,
    }
    return Backend("torch_export", torch_export, EVERY_PROMISE - without, torch.compiler.reset)


def _thunder() -> Backend:
    """It traces into its own functional ops: results are no aliases and have strides of their own, random ops are its
    own, and of gradients there are first ones only. What it does not know it refuses by NotImplementedError."""
    _packages("thunder")
    without = {
        Promise.DOUBLE_BACKWARD,
        Promise.ALIASING,
        Promise.STRIDES,
        Promise.RANDOM,
        Promise.SUBCLASSES,
        Promise.ERRORS,
        Promise.EFFECTS,
        Promise.OBJECTS,
    }
    return Backend("thunder", thunder, EVERY_PROMISE - without, refuses=("NotImplementedError",))


def _openvino() -> Backend:
    """An engine for inference behind Dynamo, whose guards and containers it has. What it cannot compile runs on
    Inductor or in eager; a program of which that is true counts as refused."""
    _packages("openvino")
    without = _VALUES_ONLY | {Promise.HALF, Promise.FLOAT64, Promise.COMPLEX}

    def reset() -> None:
        torch.compiler.reset()
        importlib.import_module("openvino.frontend.pytorch.torchdynamo.execute").clear_caches()

    promises = (EVERY_PROMISE - without) | {Promise.MODULES}
    return Backend("openvino", openvino, promises, reset, lambda: dict(_fallbacks), rtol=1e-4)


def _onnxruntime() -> Backend:
    """An engine for inference that takes arrays and gives arrays. What the exporter has no ONNX function for, and what
    the runtime has no kernel for, is refused."""
    _packages("onnxruntime")
    without = _VALUES_ONLY | _FIRST_KEY_ONLY | _NO_ARGUMENT_BUT_TENSORS
    without |= {Promise.HALF, Promise.FLOAT64, Promise.COMPLEX, Promise.EMPTY}
    refuses = (
        "ConversionError",
        "TorchExportError",
        "NotImplemented",
    )  # what the exporter has no ONNX for, the runtime no kernel
    promises = EVERY_PROMISE - without
    return Backend("onnxruntime", onnxruntime, promises, torch.compiler.reset, rtol=1e-4, refuses=refuses)


MAKERS: Mapping[str, Callable[[], Backend]] = {
    "jit_trace": _jit_trace,
    "torch_export": _torch_export,
    "thunder": _thunder,
    "openvino": _openvino,
    "onnxruntime": _onnxruntime,
}
"""The backends of this module by name."""


def _packages(backend: str) -> tuple[Any, ...]:
    """The modules that a backend needs.

    Raises:
        BackendUnavailableError: one is missing or cannot be imported; the message says how to install it.
    """
    try:
        return tuple(importlib.import_module(module) for module in PACKAGES[backend])
    except Exception as error:  # a package for another version of torch raises anything
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise BackendUnavailableError(
            f"backend '{backend}' needs packages that cannot be imported ({why}); "
            f"pip install 'aotcheck[{backend}]' (docs/other_backends.md says with which torch)"
        ) from error


# -- what OpenVINO hands to others


def _count_openvinos_fallbacks() -> None:
    """Count from now on whatever OpenVINO's backend leaves to Inductor or to eager; it says so in no other way."""
    backend: Any = importlib.import_module("openvino.frontend.pytorch.torchdynamo.backend")
    execute: Any = importlib.import_module("openvino.frontend.pytorch.torchdynamo.execute")
    if hasattr(backend.compile_fx, _COUNTED):
        return
    compile_fx, run_partition, make_partitions = (
        backend.compile_fx,
        execute.openvino_execute,
        backend.Partitioner.make_partitions,
    )

    def counted_compile(*args: Any, **kwargs: Any) -> Any:
        _fallbacks["OpenVINO leaves the graph to Inductor"] += 1
        return compile_fx(*args, **kwargs)

    def counted_run(*args: Any, **kwargs: Any) -> Any:
        try:
            return run_partition(*args, **kwargs)
        except Exception:
            _fallbacks["OpenVINO leaves a partition to eager"] += 1
            raise

    def counted_partitions(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = make_partitions(self, *args, **kwargs)
        if not any(node.op == "call_module" for node in made.graph.nodes):
            _fallbacks["OpenVINO compiles no op of the graph"] += 1
        return made

    setattr(counted_compile, _COUNTED, True)
    backend.compile_fx, execute.openvino_execute = counted_compile, counted_run
    backend.Partitioner.make_partitions = counted_partitions
