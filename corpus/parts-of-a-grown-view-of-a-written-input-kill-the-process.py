# /// aotcheck
# format = 1
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to resize a view tensor to a larger size. This is not allowed in the functionalization pass')"
# alone = ["aot_eager"]
# [keys]
# aot_function = "(exception, forward, RuntimeError: Attempted to resize a view tensor to a larger size)"
# aot_eager = "(crash, process, killed by SIGSEGV)"
# [expect.aotcheck]
# "*" = "agree"
# [expect.aot_function]
# "2.13.0" = "differs"
# [expect.aot_eager]
# "2.13.0" = "differs"
# ///

import torch


def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())


def f(x0):
    v0 = x0.t()
    v0.resize_((4,))
    x0.zero_()
    v1, v2, v3, v4 = torch.unbind(v0)
    return v2


CALLS = [
    {"inputs": make_inputs_0, "grad_mode": "enabled", "steps": ()},
]


# -- harness 1: canonical text, ignored when the file is read back
import contextlib
import importlib
import sys
import warnings

import torch


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


def held(t):
    """The tensors that a wrapper subclass holds, by name; nothing for a plain tensor."""
    if not hasattr(type(t), "__tensor_flatten__"):
        return []
    return [(name, getattr(t, name)) for name in t.__tensor_flatten__()[0]]


def opened(tensors):
    """Tensors by name, each followed by those that it holds."""
    found = {}
    for name, t in tensors.items():
        found[name] = t
        found.update(opened({f"{name}.{inner}": x for inner, x in held(t)}))
    return found


def metadata(t):
    """What a wrapper subclass has beside tensors, in words."""
    return str(t.__tensor_flatten__()[1]) if held(t) else ""


def plain(numbers):
    """Sizes or strides; of a ragged tensor those that vary have a name of torch's that says nothing."""
    return tuple(n if type(n) is int else "ragged" for n in numbers)


def addressing(t):
    """The strides that address something: of sizes other than 1, that of a ragged tensor being how much it holds."""
    sizes, ragged = t.shape, plain(t.shape)
    if "ragged" in ragged:
        k = ragged.index("ragged")
        values = dict(held(t))["_values"].shape[k - 1 : k]
        sizes = (*sizes[:k], *(values or (0,)), *sizes[k + 1 :])  # what holds them may have got another shape
    return plain(s for n, s in zip(sizes, t.stride(), strict=True) if n != 1) if t.numel() else ()


def cotangent(t, seed=0, fill="pattern"):
    """A cotangent for `t`: ones for seed 0, else a pattern of small integers; None to leave it to autograd."""
    if fill == "implicit" and readable(t):
        return None
    if held(t):
        like = t.detach()
        inner = dict(held(t))
        for name in ("_values",) if t.layout is torch.jagged else tuple(inner):  # beside them a ragged one has offsets
            x = inner[name]
            inner[name] = cotangent(x, seed, fill if readable(x) else "pattern").detach()
        sizes = like if t.layout is torch.jagged else next(iter(inner.values()))
        made = type(t).__tensor_unflatten__(inner, like.__tensor_flatten__()[1], sizes.size(), sizes.stride())
        return made.requires_grad_() if fill == "trained" else made
    if fill == "expanded":
        return torch.full((), seed + 1, dtype=t.dtype, device=t.device).expand(t.shape)
    if readable(t):
        made = torch.ones_like(t, memory_format=torch.contiguous_format)
    else:  # ones_like would read a conjugate
        made = torch.ones(t.shape, dtype=t.dtype, device=t.device)
    if seed:
        made = ((torch.arange(t.numel(), device=t.device) * 3 + seed) % 5 - 2).reshape(t.shape).to(t.dtype)
    if fill == "zeros":
        made = made.zero_()
    elif fill == "strided":
        made = torch.stack([made, made], -1)[..., 0]
    elif fill == "infinite" and made.is_floating_point() and made.numel():
        made.view(-1)[0] = float("inf")
    return made.requires_grad_() if fill == "trained" else made


def readable(t):
    """Whether `t` lies within its storage."""
    if held(t):
        return all(readable(x) for _, x in held(t))
    last = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return not t.numel() or (last + 1) * t.itemsize <= t.untyped_storage().nbytes()


def poke(t, seed, how="no_grad"):
    """Write through `t` in place, as a caller might between a call and its next look; not into freed memory.

    Returns what it wrote with that has a gradient of its own.
    """
    if not readable(t):
        return []
    if how != "no_grad":
        trained = how == "trained" and (t.is_floating_point() or t.is_complex())
        factor = torch.tensor(seed, dtype=t.dtype, device=t.device, requires_grad=True) if trained else seed
        t.mul_(factor)
        return [factor] if trained else []
    with torch.no_grad():
        overlapping = any(n > 1 and step == 0 for n, step in zip(t.shape, t.stride(), strict=True))
        t.fill_(seed) if overlapping else t.copy_(cotangent(t, seed) + seed)
    return []


def around(names, device="cpu"):
    """The contexts called `names`, entered."""
    stack = contextlib.ExitStack()
    for name in names:
        if name == "autocast":
            context = torch.autocast(torch.device(device).type, torch.bfloat16)
        elif name == "anomaly":  # a compiled graph has other intermediate gradients, so they are not searched for NaN
            context = torch.autograd.set_detect_anomaly(True, check_nan=False)
        elif name == "saved tensors":
            context = torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)
        elif name == "inference":
            context = torch.inference_mode()
        else:
            context = torch.set_grad_enabled(name == "enabled")
        stack.enter_context(context)
    return stack


class Scene:
    """A call's tensors, as its steps find them."""

    def __init__(self, args, inputs):
        self.args, self.inputs, self.outputs, self.structure, self.constants = args, inputs, {}, "", {}
        self.results, self.cotangents, self.result = [], [], ()

    def returned(self, result):
        """Take the result of the call."""
        self.structure, self.outputs, self.constants = leaves(result)
        self.result = (result,)

    def held(self):
        """The tensors in containers among the arguments, by name, that are none of the inputs."""
        inputs = {id(t) for t in self.inputs.values()}
        return {name: t for name, t in leaves(self.args, "argument")[1].items() if id(t) not in inputs}

    def words(self):
        """The structure of the result, and of the arguments if they hold lists or dicts, which may be written."""
        met = {}
        given = words(self.args, "argument", met, {id(t): name for name, t in self.inputs.items()})
        shown = words(self.result[0], "output", met, {}) if self.result else ""
        return f"{shown}; given {given}" if any(word in given for word in ("list(", "dict(")) else shown

    def wanted(self):
        """The tensors that a backward may be with respect to."""
        return differentiable(self.inputs.values())

    def side(self, site):
        """The tensors that a probe or a hook may be for."""
        if site == "gradient":
            return [t.grad for t in differentiable(self.inputs.values()) if t.grad is not None]
        return list((self.outputs if site == "output" else leaves(self.args)[1]).values())

    def roots(self, of):
        """The tensors that a backward may begin at."""
        outputs, results = differentiable(self.outputs.values()), differentiable(self.results)
        if of == "penalty":
            parts = [(t * t).sum() for t in self.results if t is not None]
            return differentiable([sum([t.sum() for t in outputs if readable(t)], sum(parts))] if parts else [])
        if of == "gradients":
            return differentiable(self.side("gradient"))
        return outputs if of == "outputs" else results


def differentiable(tensors):
    """Those that require grad, each object once."""
    return list({id(t): t for t in tensors if t is not None and t.requires_grad}.values())


def hang(t, kind, seen):
    """Hang a hook on `t` that appends what it sees to `seen`, if `t` may have it."""
    leaf = t.grad_fn is None  # asked first: torch 2.13 crashes in register_hook of a view whose base was written
    if not t.requires_grad:
        return
    if kind == "retain":
        t.retain_grad()
    elif kind in ("post", "clear") and leaf:

        def post(t):
            seen.append(None if t.grad is None else t.grad.detach().clone())
            if kind == "clear":
                t.grad = None

        t.register_post_accumulate_grad_hook(post)
    elif kind in ("watch", "double"):

        def hook(g):
            seen.append(None if g is None else g.detach().clone())
            return g * 2 if kind == "double" and g is not None else None

        t.register_hook(hook)


def differentiate(scene, step, device):
    """Do a backward of a plan: through the chosen ones of the tensors there are, nothing if none is left."""
    roots = scene.roots(step.get("of", "outputs"))
    roots = [roots[k] for k in step["roots"] if k < len(roots)]
    wanted = scene.wanted()
    if "inputs" in step:
        wanted = [wanted[k] for k in step["inputs"] if k < len(wanted)]
    way, graph = step.get("way", "backward"), step.get("graph", "freed")
    if not roots or not (wanted or (way == "backward" and "inputs" not in step)):
        return
    fills = step.get("cotangents", (("pattern", 0),))
    seeds = [cotangent(t, seed, fill) for t, (fill, seed) in zip(roots, fills + fills[-1:] * len(roots), strict=False)]
    options = {} if graph == "freed" else {"retain_graph": "freed" not in graph, "create_graph": "created" in graph}
    scene.cotangents += differentiable(seeds)
    with around(step.get("around", ()), device):
        if way == "backward":
            torch.autograd.backward(roots, seeds, inputs=wanted if "inputs" in step else None, **options)
        else:
            scene.results = []
            scene.results = list(torch.autograd.grad(roots, wanted, seeds, allow_unused=way == "grad", **options))


def perform(step, scene, hooks, device):
    """Do one step of a plan on what a call gave; `hooks` has what each hook of the program has seen."""
    if step["do"] == "backward":
        differentiate(scene, step, device)
        return
    for t in scene.side(step["site"])[step["index"] :][:1]:
        if step["do"] == "hook":
            hooks.append([])
            hang(t, step["kind"], hooks[-1])
        else:
            scene.cotangents += poke(t, step["seed"], step.get("how", "no_grad"))


def forget(scenes):
    """Drop all gradients: how far a backward came before it raised is an order that nobody promises."""
    for scene in scenes:
        for t in differentiable([*scene.inputs.values(), *scene.outputs.values()]):
            t.grad = None
        scene.results, scene.cotangents = [], []


def phase(step):
    """What a step is called."""
    if step["do"] != "backward":
        return step["do"]
    first = step.get("of", "outputs") == "outputs"
    return f"{'' if first else 'double '}{'grad' if step.get('way', '').startswith('grad') else 'backward'}"


def leaves(value, name="output"):
    """A result taken apart: its structure in words, its tensors by name, its other leaves by name."""
    if isinstance(value, torch.Tensor):
        return "Tensor", {name: value}, {}
    if isinstance(value, dict):
        parts = [leaves(v, f"{name}[{k!r}]") for k, v in value.items()]
        words = [f"{k!r}: {part[0]}" for k, part in zip(value, parts, strict=True)]
    elif isinstance(value, (tuple, list)):
        parts = [leaves(v, f"{name}[{i}]") for i, v in enumerate(value)]
        words = [part[0] for part in parts]
    else:
        return type(value).__qualname__, {}, {name: repr(value)}
    tensors, constants = ({k: v for part in parts for k, v in part[i].items()} for i in (1, 2))
    return f"{type(value).__qualname__}({', '.join(words)})", tensors, constants


def words(value, place, met, names):
    """The structure of a value: tensors by their name if they have one, a list or dict met before with its place."""
    if isinstance(value, torch.Tensor):
        return names.get(id(value), "Tensor")
    if isinstance(value, dict):
        inner = [f"{k!r}: {words(v, f'{place}[{k!r}]', met, names)}" for k, v in value.items()]
    elif isinstance(value, (tuple, list)):
        inner = [words(v, f"{place}[{i}]", met, names) for i, v in enumerate(value)]
    else:
        return type(value).__qualname__
    first = place if isinstance(value, tuple) else met.setdefault(id(value), place)
    return f"{type(value).__qualname__}{'' if first == place else f'@{first}'}({', '.join(inner)})"


def contents(shown):
    """A structure in words without which containers hold what: the result's alone, lists for tuples."""
    parts = shown.split("; given ")[0].replace("tuple", "list").split("@")
    return parts[0] + "".join(part[part.index("(") :] for part in parts[1:])


def named(scope):
    """The input-side tensors among a function's locals, by name."""
    return {name: t for name, t in scope.items() if isinstance(t, torch.Tensor)}


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


if __name__ == "__main__":
    sys.exit(1 if main(f, CALLS, "aot_function", True) else 0)
