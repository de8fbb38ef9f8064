"""What every emitted script carries behind the program itself, its second part: run both ways, print each difference.

The text below the marker is copied into scripts behind that of :mod:`aotcheck.program.harness`, so it uses what is
there and imports nothing. The oracles proper are in :mod:`aotcheck.oracle`; this is the short version that a stranger
can read in a bug report. It looks at the same things in the same order and calls them by the same names; tests hold the
two together.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings

import torch

from aotcheck.program.harness import (
    Scene,
    addressing,
    around,
    contents,
    forget,
    held,
    metadata,
    opened,
    perform,
    phase,
    plain,
    readable,
)

# -- harness 1: its second part


def unwrapped(e):
    """An exception with Dynamo's wrapping taken off."""
    while type(e).__module__ == "torch._dynamo.exc":
        inner = getattr(e, "inner_exception", None) or e.__cause__ or e.__context__
        if not isinstance(inner, BaseException):
            break
        e = inner
    return e


def modes():
    """What of torch's global state a call must leave as it found it."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        "anomaly mode": torch.is_anomaly_enabled(),
    }


def history(t):
    """Leafness and whether there is a grad_fn; "refused" of a view made under no_grad whose base was then written with
    grad enabled, "asserted" where torch fails an assertion of its own, which nobody need do: asked again it answers."""
    try:
        return t.is_leaf, t.grad_fn is not None
    except Exception as e:
        return ("asserted" if "INTERNAL ASSERT FAILED" in str(e) else "refused",) * 2


def facts(t):
    """What can be asked of a tensor. Strides that address nothing (size 1, no elements) are nobody's business."""
    is_leaf, has_grad_fn = history(t)
    return {
        "type": type(t).__qualname__,
        "metadata": metadata(t),
        "dtype": t.dtype,
        "device": str(t.device),
        "shape": plain(t.shape),
        "storage-offset": t.storage_offset(),
        "stride": addressing(t),
        "requires-grad": t.requires_grad,
        "leafness": is_leaf,
        "grad-fn": has_grad_fn,
        "conj": t.is_conj(),
        "neg": t.is_neg(),
        "inference": t.is_inference(),
    }


def window(t, size, stride, offset):
    """A copy of a window of the storage of `t`, in its dtype, whatever autograd thinks of `t`."""
    return torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage(), offset, size, stride).clone()


def value(t):
    """A copy of the value of `t`; None where it reaches past its storage."""
    if not readable(t):
        return None
    plain = window(t, t.shape, t.stride(), t.storage_offset())
    plain = plain.conj_physical() if t.is_conj() else plain
    return plain.neg() if t.is_neg() else plain


def gradient(seen, name, g):
    """What is seen of a gradient."""
    seen["gradient-none", name] = g is None
    if g is not None:
        kinds = ("type", "metadata", "dtype", "shape", "requires-grad")
        seen.update({(kind, name): facts(g)[kind] for kind in kinds})
        for inner, x in held(g):
            gradient(seen, f"{name}.{inner}", x)
        if held(g):
            return
        seen["values", name] = g.clone().resolve_conj().resolve_neg()  # zeros may have no memory


@torch.no_grad()
def look(scene, hooks, failed):
    """Everything observable of the tensors now: (kind, thing) to what is seen. Gradients not if a backward failed."""
    seen, storages, objects = {}, {}, {}
    outputs = opened(scene.outputs)
    for name, t in {**opened({**scene.inputs, **scene.held()}), **outputs}.items():
        s = t.untyped_storage()  # torch has one object per storage
        new = id(s) not in storages, id(t) not in objects
        if not held(t):
            seen["aliasing", name] = f"shares the storage of {storages.setdefault(id(s), (name, s))[0]}"
        seen["identity", name] = f"is the object {objects.setdefault(id(t), name)}"
        known = facts(t)
        seen.update({(kind, name): fact for kind, fact in known.items()})
        if held(t):
            pass  # it has no memory of its own
        elif name in outputs:
            seen["values", name] = value(t)
        else:
            seen["storage-size", name] = s.nbytes()
            if new[0]:
                seen["values", name] = window(t, (s.nbytes() // t.itemsize,), (1,), 0)
        if new[1] and t.requires_grad and known["leafness"] != "refused" and not failed:
            gradient(seen, f"{name}.grad", t.grad)
    if not failed:
        for k, g in enumerate(scene.results):
            gradient(seen, f"result[{k}]", g)
        for k, t in enumerate(scene.cotangents):
            gradient(seen, f"cotangent[{k}].grad", t.grad)
        for k, gradients in enumerate(hooks):
            seen["hook", f"hook[{k}]"] = len(gradients)
            for n, g in enumerate(gradients):
                gradient(seen, f"hook[{k}][{n}]", g)
    for gradients in hooks:
        gradients.clear()
    return seen


def steps(f, make, calls, device):
    """Make the calls on `make(f)`; after each step (a call, what the caller does around it) where it was and what is
    seen."""
    g, scenes, hooks, broken = None, [], [], False
    for i, call in enumerate(calls):
        if call["inputs"] is not None:
            args, inputs = call["inputs"](device)
        scene, made = Scene(args, inputs), {}
        scenes.append(scene)
        torch.manual_seed(0)

        def step(phase, action, scene=scene, i=i, made=made):
            before, result, error = modes(), None, None
            try:
                result = action()
            except Exception as e:
                error = unwrapped(e)
            changed = {k: after for k, after in modes().items() if before[k] != after}
            torch.set_grad_enabled(before["grad mode"])
            made[phase] = made.get(phase, 0) + 1
            where = f"{phase}{f' {made[phase]}' if made[phase] > 1 else ''} of call {i + 1}"
            return result, where, error, changed

        def seen(scene, error, changed, failed=False):
            try:
                looked = look(scene, hooks, failed)
            except Exception:
                if error is None:
                    raise
                looked = {}  # what raised has left the process so that nothing can be looked at
            raised = error and f"raises {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            return {
                ("exception", "call"): raised and (type(error), raised),
                ("global-state", "process"): changed,
                ("structure", "output"): scene.words(),
                **{("constant", name): c for name, c in scene.constants.items()},
                **looked,
                ("rng", "process"): torch.get_rng_state(),
            }

        for done in call.get("before", ()):
            _, where, error, changed = step(phase(done), lambda done=done: perform(done, scene, hooks, device))  # noqa: B023
            yield where, seen(scene, error, changed)

        def forward():
            nonlocal g
            g = make(f) if g is None else g
            return g(*args)  # noqa: B023

        with around((call["grad_mode"], *call.get("around", ())), device):
            result, where, raised, changed = step("forward", forward)
        if raised is None:
            scene.returned(result)
        yield where, seen(scene, raised, changed)
        if g is None:
            return
        for done in call["steps"]:
            ago = done.get("calls_ago", 0)
            if ago >= len(scenes) or (raised is not None and not ago) or (broken and done["do"] == "backward"):
                continue
            on = scenes[-1 - ago]
            _, where, error, changed = step(phase(done), lambda done=done, on=on: perform(done, on, hooks, device))
            failed = error is not None and done["do"] == "backward"
            yield where, seen(on, error, changed, failed)
            if failed:  # what it has freed by then is such an order too
                forget(scenes)
                broken = "freed" in done.get("graph", "freed")


@contextlib.contextmanager
def filled(byte):
    """Memory that eager leaves uninitialized holds `byte` everywhere: two such runs tell what nobody has written."""
    empty = torch.empty
    makers = [(torch, "empty"), (torch, "empty_like"), (torch.Tensor, "resize_"), (torch.UntypedStorage, "resize_")]
    makers.append((torch.ops.inductor.resize_storage_bytes_, "default"))
    originals = [getattr(owner, name) for owner, name in makers]

    def filling(name, original):
        def made(first, *args, **kwargs):
            kept = 0 if name.startswith("empty") else memory(first).nbytes()
            result = original(first, *args, **kwargs)
            t = first if result is None else result
            fill(t, kept)
            return result

        return made

    def fill(t, kept):
        for _, x in held(t):
            fill(x, kept)
        s, dtype = memory(t), torch.bool if getattr(t, "dtype", None) == torch.bool else torch.uint8
        if kept < s.nbytes() and not held(t):
            tail = empty(0, dtype=dtype, device=s.device).set_(s, kept, (s.nbytes() - kept,), (1,))
            tail.fill_(byte & 1 if dtype == torch.bool else byte)

    def memory(t):
        return t.untyped_storage() if isinstance(t, torch.Tensor) else t

    for (owner, name), original in zip(makers, originals, strict=True):
        setattr(owner, name, filling(name, original))
    try:
        yield
    finally:
        for (owner, name), original in zip(makers, originals, strict=True):
            setattr(owner, name, original)


def undefined(f, calls, device):
    """Eager twice more, with uninitialized memory filled in two ways, by step; nothing where `f` makes none."""
    if not {"empty", "empty_like", "resize_", "resize_storage_bytes_"} & {*f.__code__.co_names}:
        return {}
    runs = []
    for byte in (0x3E, 0xFF):
        with filled(byte):
            runs.append(dict(steps(f, lambda f: f, calls, device)))
    return {where: (runs[0][where], runs[1][where]) for where in runs[0] if where in runs[1]}


def masked(eager, other, fills):
    """What `other` shows, with eager's values where nobody has written."""
    one, two = fills
    for key, x in eager.items():
        y, a, b = other.get(key), one.get(key), two.get(key)
        tensors = all(isinstance(t, torch.Tensor) for t in (x, y, a, b))
        if key[0] == "values" and tensors and x.shape == y.shape == a.shape == b.shape and x.dtype == y.dtype:
            agree = [(u == v) | ((u != u) & (v != v)) for u, v in ((a, b), (x, a))]
            other[key] = torch.where(agree[0] & agree[1], y, x)
    return other


KINDS = [
    "exception", "global-state", "structure", "constant", "type", "metadata", "dtype", "device", "shape",
    "gradient-none", "hook", "identity", "aliasing", "storage-offset", "storage-size", "stride", "requires-grad",
    "leafness", "grad-fn", "conj", "neg", "inference", "values", "rng",
]  # fmt: skip


def same(kind, x, y, exact):
    """Whether two things seen are equal: values bitwise but for the sign of zero, or within rounding if inexact."""
    if kind == "exception":
        return (x and x[0]) == (y and y[0])
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return kind == "values" or x == y
    if (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
        return True  # which is a difference of another kind
    x, y = (torch.view_as_real(t) if t.is_complex() else t for t in (x, y))
    equal = (x == y) | ((x != x) & (y != y))
    if not exact and x.is_floating_point():
        largest = max([1.0, *x[x.isfinite()].abs().flatten().tolist()])
        equal |= (x - y).abs() <= 512 * torch.finfo(x.dtype).eps * largest
    return bool(equal.all())


def differences(where, eager, other, exact, lists=False):
    """What differs after one step, causes before consequences: (kind, thing, eager's, the other's)."""
    one_raised = (eager["exception", "call"] is None) != (other["exception", "call"] is None)
    found = []
    for key in sorted((key for key in eager if key in other), key=lambda key: KINDS.index(key[0])):
        kind, thing = key
        x, y = eager[key], other[key]
        if one_raised and kind not in ("exception", "global-state"):
            continue  # all else follows from that
        if kind == "exception" and one_raised and y is None and where.startswith("probe"):
            continue  # a write that eager refuses and the other accepts
        if kind in ("leafness", "grad-fn") and x == "asserted":
            continue
        if kind == "structure" and lists:  # aot_function returns lists for tuples, and new ones
            x, y = contents(x), contents(y)
        if not same(kind, x, y, exact):
            found.append((kind, thing, x, y))
    return found


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


def first_differences(f, calls, make, exact=True, device="cpu", lists=False):
    """The differences of the first step that has any, and which step that is."""
    expected = list(steps(f, lambda f: f, calls, device))
    fills = undefined(f, calls, device)
    for (where, eager), (_, other) in zip(expected, steps(f, make, calls, device), strict=False):
        if where in fills:
            other = masked(eager, other, fills[where])
        found = differences(where, eager, other, exact, lists)
        if found:
            return where, found
    return "", []


def main(f, calls, backend, exact=True):
    """Compare eager with a backend (`--backend NAME`, `--device NAME`): prints what differs after the first step that
    shows a difference, and returns how much that is."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    backend, device = options.get("--backend", backend), options.get("--device", "cpu")
    warnings.simplefilter("ignore")
    where, found = first_differences(
        f, calls, lambda f: compiled(f, backend), exact, device, lists=backend == "aot_function"
    )
    for kind, thing, x, y in found:
        if kind == "exception":
            x, y = (raised[1] if raised else "raises nothing" for raised in (x, y))
        print(f"DIFFERENT {kind} of {thing} after {where}\n    eager: {x}\n    {backend}: {y}")
    count = f"{len(found)} difference{'s' * (len(found) != 1)}"
    print(f"{count} between eager and {backend} on {device}, torch {torch.__version__}")
    return len(found)
