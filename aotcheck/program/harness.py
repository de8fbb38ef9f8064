"""What every emitted script carries behind the program itself: build inputs, run both ways, print each difference.

The text below the marker is copied into scripts as it stands, so it imports torch alone and knows nothing of this
package. The
package uses the same functions to build inputs. The oracles proper are in :mod:`aotcheck.oracle`; this is the short
version a
stranger can read in a bug report.
"""

from __future__ import annotations

# -- harness 1: canonical text, ignored when the file is read back
import importlib
import sys

import torch
from torch.utils import _pytree as pytree


def storage(data, dtype, device):
    """A storage holding small integers as `dtype` (complex: real and imaginary parts in turn)."""
    if dtype.is_complex:
        parts = torch.tensor(data, dtype=torch.float64).reshape(len(data) // 2, 2)
        return torch.view_as_complex(parts).to(device, dtype).untyped_storage()
    return torch.tensor(data, dtype=dtype, device=device).untyped_storage()


def strided(s, dtype, size, stride, offset, requires_grad=False):
    """A leaf tensor on storage `s` that is nobody's view."""
    last = -1 if 0 in size else offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if (last + 1) * dtype.itemsize > s.nbytes():
        raise ValueError(f"a tensor of size {size}, stride {stride}, offset {offset} does not fit its storage")
    return torch.empty(0, dtype=dtype, device=s.device).set_(s, offset, size, stride).requires_grad_(requires_grad)


def cotangent(t, seed):
    """Ones for seed 0, else a pattern of small integers, shaped as `t`."""
    if seed == 0:
        return torch.ones_like(t, memory_format=torch.contiguous_format)
    pattern = (torch.arange(t.numel(), device=t.device) * 3 + seed) % 5 - 2
    return pattern.reshape(t.shape).to(t.dtype)


def poke(t, seed):
    """Write through `t` in place, as a caller might between a call and its next look."""
    with torch.no_grad():
        overlapping = any(n > 1 and step == 0 for n, step in zip(t.shape, t.stride(), strict=True))
        t.fill_(seed) if overlapping else t.copy_(cotangent(t, seed) + seed)


def tensors_in(tree):
    """The tensors of a pytree, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def named(scope):
    """The input-side tensors among a function's locals, by name."""
    return {name: t for name, t in scope.items() if isinstance(t, torch.Tensor)}


def error(e):
    """An exception's type, Dynamo's wrapping taken off."""
    while type(e).__module__.startswith("torch._dynamo") and (e.__cause__ or e.__context__):
        e = e.__cause__ or e.__context__
    return f"raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"


def describe(t):
    """What a tensor is, in words: type, dtype, geometry, flags. Strides of dimensions of size 1 are nobody's
    business."""
    stride = tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1) if t.numel() else ()
    flags = [
        *["requires grad"] * t.requires_grad,
        *["leaf"] * t.is_leaf,
        *["conj"] * t.is_conj(),
        *["neg"] * t.is_neg(),
    ]
    return f"{type(t).__name__} {t.dtype} {tuple(t.shape)} stride {stride} offset {t.storage_offset()} {flags}"


def value(t):
    """A copy of a tensor's value, or why there is none."""
    last = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    if t.numel() and (last + 1) * t.dtype.itemsize > t.untyped_storage().nbytes():
        return "past its storage"
    return t.detach().resolve_conj().resolve_neg().clone()


def attempt(look_at, t):
    """`look_at(t)`, or the error that torch raises for looking (views made in no_grad mode do that after a write)."""
    try:
        return look_at(t)
    except RuntimeError as e:
        return error(e)


def look(seen, where, tensors, values_only=False):
    """Note everything observable of `tensors` (label to tensor) under `where`."""
    for label, t in tensors.items():
        seen[f"{where} {label} value"] = attempt(value, t)
        if not values_only:
            seen[f"{where} {label} is"] = attempt(describe, t)
    storages = {label: t.untyped_storage() for label, t in tensors.items()}
    for i, (label, t) in enumerate(() if values_only else tensors.items()):
        earlier = list(tensors.items())[:i]
        alias = [
            k for k, u in earlier if storages[label].nbytes() and storages[k].data_ptr() == storages[label].data_ptr()
        ]
        seen[f"{where} {label} relations"] = f"is {[k for k, u in earlier if u is t]}, shares storage with {alias}"


def run(f, calls, device):
    """Make the calls on `f`; everything seen, by a label that says where."""
    seen, args, scope, wanted = {}, (), {}, {}
    for i, call in enumerate(calls):
        if call["inputs"] is not None:
            args, scope = call["inputs"](device)
            wanted = {name: t for name, t in scope.items() if t.requires_grad and t.is_leaf}
        where, outputs, grads = f"call {i}", {}, {}
        torch.manual_seed(0)
        try:
            with torch.set_grad_enabled(call["grad_mode"] == "enabled"):
                result = f(*args)
            result = tuple(result) if type(result) is list else result  # aot_function returns flat tuples as lists
            leaves, spec = pytree.tree_flatten(result)
            seen[f"{where} structure"] = f"{spec} {[None if isinstance(x, torch.Tensor) else x for x in leaves]}"
            outputs = {f"output {k}": t for k, t in enumerate(tensors_in(result))}
        except Exception as e:
            seen[f"{where} raised"] = error(e)
        look(seen, where, {**scope, **outputs})
        if outputs and call["backward"] is not None:
            chosen, seed = call["backward"]
            roots = list({id(t): t for t in outputs.values() if t.requires_grad}.values())
            roots = [roots[k] for k in chosen if k < len(roots)]
            try:
                if roots and wanted:
                    cotangents = [cotangent(t, seed) for t in roots]
                    found = torch.autograd.grad(roots, list(wanted.values()), cotangents, allow_unused=True)
                    grads = dict(zip(wanted, found, strict=True))
            except Exception as e:
                seen[f"{where} backward raised"] = error(e)
            for name, g in grads.items():
                seen[f"{where} gradient of {name}"] = g if g is None else g.detach().clone()
        flat = {"output": list(outputs.values()), "input": tensors_in(args)}
        for k, (site, index, seed) in enumerate(call["probes"]):
            if index < len(flat[site]):
                try:
                    poke(flat[site][index], seed)
                except Exception as e:
                    seen[f"{where} probe {k} raised"] = error(e)
                look(seen, f"{where} after probe {k} ({site} {index})", {**scope, **outputs}, values_only=True)
    return seen


def same(x, y, exact):
    """Whether two things seen are equal; tensors bitwise, or closely for a program with inexact ops."""
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return (
            type(x) is type(y) and str(x).split(":")[0] == str(y).split(":")[0]
            if str(x).startswith("raises")
            else type(x) is type(y) and x == y
        )
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return torch.allclose(x, y, 1e-3, 1e-3, equal_nan=True) if not exact else torch.allclose(x, y, 0, 0, equal_nan=True)


def compiled(f, name):
    """`f` through the backend called `name`."""
    if name == "eager":
        return f
    if name == "aot_function":
        from functorch.compile import aot_function, nop

        return aot_function(f, nop, nop)
    if name == "aotcheck":
        return importlib.import_module("aotcheck").aot_function(f)
    if ":" in name:
        module, attribute = name.split(":", 1)
        return getattr(importlib.import_module(module), attribute)(f)
    return torch.compile(f, backend={"dynamo_eager": "eager"}.get(name, name.removeprefix("dynamo+")), dynamic=False)


def main(f, calls, backend, exact=True):
    """Compare eager with a backend (`--backend NAME`, `--device NAME`); the number of differences, printed one by
    one."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    backend, device = options.get("--backend", backend), options.get("--device", "cpu")
    expected, actual = run(f, calls, device), run(compiled(f, backend), calls, device)
    labels = [k for k in {**actual, **expected} if not same(expected.get(k), actual.get(k), exact)]
    one_raised = {k.removesuffix("raised") for k in labels if k.endswith(" raised") and " probe " not in k}
    labels = [
        k
        for k in labels
        if k.endswith("raised") or not (k.startswith(tuple(one_raised)) and k in expected.keys() ^ actual)
    ]
    for k in labels:
        print(f"DIFFERENT {k}\n    eager: {expected.get(k, 'nothing')}\n    {backend}: {actual.get(k, 'nothing')}")
    print(f"{len(labels)} differences between eager and {backend} on {device}, torch {torch.__version__}")
    return len(labels)
