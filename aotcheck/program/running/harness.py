"""Builds the inputs of a call, and performs the steps around a call, from plain data."""

import contextlib

import torch

from aotcheck.program.called.objects import OBJECTS, attributes
from aotcheck.program.ops.subclasses import held


def storage(data, dtype, device):
    """A storage holding small integers as `dtype` (complex: real and imaginary parts in turn)."""
    if dtype.is_complex:
        parts = torch.tensor(data, dtype=torch.float64).reshape(len(data) // 2, 2)
        return torch.view_as_complex(parts).to(device, dtype).untyped_storage()
    return torch.tensor(data, dtype=dtype, device=device).untyped_storage()


def strided(s, dtype, size, stride, offset, requires_grad=False):
    """A leaf tensor on storage `s`, a view of no tensor; `stride` and `offset` in elements of `dtype`."""
    last = -1 if 0 in size else offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if (last + 1) * dtype.itemsize > s.nbytes():
        raise ValueError(f"a tensor of size {size}, stride {stride}, offset {offset} does not fit its storage")
    return torch.empty(0, dtype=dtype, device=s.device).set_(s, offset, size, stride).requires_grad_(requires_grad)


def opened(tensors):
    """Tensors by name, each wrapper followed by its inner tensors."""
    found = {}
    for name, t in tensors.items():
        found[name] = t
        found.update(opened({f"{name}.{inner}": x for inner, x in held(t)}))
    return found


def metadata(t):
    """The context of a wrapper (what it has besides inner tensors) as text; empty for a plain tensor."""
    return str(t.__tensor_flatten__()[1]) if held(t) else ""


def plain(numbers):
    """Sizes or strides, with "ragged" in place of torch's symbol for a size that varies."""
    return tuple(n if type(n) is int else "ragged" for n in numbers)


def addressing(t):
    """The strides of dimensions whose size is not 1; the size of a ragged dimension is the length of all its parts."""
    sizes, ragged = t.shape, plain(t.shape)
    if "ragged" in ragged:
        k = ragged.index("ragged")
        values = dict(held(t))["_values"].shape[k - 1 : k]
        sizes = (*sizes[:k], *(values or (0,)), *sizes[k + 1 :])  # what holds them may have got another shape
    return plain(s for n, s in zip(sizes, t.stride(), strict=True) if n != 1) if t.numel() else ()


def cotangent(t, seed=0, fill="pattern"):
    """A cotangent for `t`: ones for seed 0, else a pattern of small integers; None if `fill` is "implicit"."""
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
    """Write to `t` in place, unless its memory is freed.

    Returns the leaf by which it multiplied, in a list; an empty list if there is none.
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
    """The contexts with these names, entered as one; transforms are ignored."""
    stack = contextlib.ExitStack()
    for name in names:
        if name in TRANSFORMS:
            continue
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


TRANSFORMS = "vmap", "jacrev", "jvp"


def suited(name, args):
    """The index of the argument to transform: the first tensor with dimensions (vmap) or with a floating dtype."""
    tensors = [(k, t) for k, t in enumerate(args) if isinstance(t, torch.Tensor)]
    return next((k for k, t in tensors if (t.dim() if name == "vmap" else t.is_floating_point())), 0)


def call(f, args, names=()):
    """Call `f`, transformed by the transform of torch.func that is among `names`, if there is one."""
    name = next((name for name in names if name in TRANSFORMS), "")
    k = suited(name, args)
    if name == "vmap":
        return torch.func.vmap(f, tuple(0 if n == k else None for n in range(len(args))))(*args)
    if name == "jacrev":
        return torch.func.jacrev(f, k)(*args)
    if name == "jvp":
        return torch.func.jvp(lambda t: f(*args[:k], t, *args[k + 1 :]), (args[k],), (torch.ones_like(args[k]),))
    return f(*args)


class Scene:
    """The tensors of a call that its steps may use."""

    def __init__(self, args, inputs):
        self.args, self.inputs, self.outputs, self.structure, self.constants = args, inputs, {}, "", {}
        self.results, self.cotangents, self.result = [], [], ()
        self.distinct = None  # names of the outputs that backwards may begin at; None: each object once
        self.partly = False  # whether a backward was for some inputs only

    def returned(self, result):
        """Take the result of the call."""
        self.structure, self.outputs, self.constants = leaves(result)
        self.result = (result,)

    def held(self):
        """The tensors by name in containers among the arguments that the function has put there: they are no inputs."""
        inputs = {id(t) for t in self.inputs.values()}
        return {name: t for name, t in leaves(self.args, "argument")[1].items() if id(t) not in inputs}

    def words(self):
        """The structure of the result as text, and of the arguments if they have lists, dicts or objects."""
        met = {}
        given = words(self.args, "argument", met, {id(t): name for name, t in self.inputs.items()})
        shown = words(self.result[0], "output", met, {}) if self.result else ""
        return f"{shown}; given {given}" if any(f"{word}(" in given for word in ("list", "dict", *OBJECTS)) else shown

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
        if self.distinct is not None:
            chosen = [self.outputs[name] for name in self.distinct if name in self.outputs]
            outputs = [t for t in chosen if t.requires_grad]
        if of == "penalty":
            parts = [(t * t).sum() for t in self.results if t is not None]
            return differentiable([sum([t.sum() for t in outputs if readable(t)], sum(parts))] if parts else [])
        if of == "gradients":
            return differentiable(self.side("gradient"))
        return outputs if of == "outputs" else results


def differentiable(tensors):
    """The tensors that require grad, each object once."""
    return list({id(t): t for t in tensors if t is not None and t.requires_grad}.values())


def hang(t, kind, seen):
    """Register a hook on `t` that appends the gradients that it gets to `seen`, if `t` may have the hook."""
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
    """Run a backward of a plan from those of its roots that exist; nothing if none does."""
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
    scene.partly = scene.partly or "inputs" in step
    scene.cotangents += differentiable(seeds)
    with around(step.get("around", ()), device):
        if way == "backward":
            torch.autograd.backward(roots, seeds, inputs=wanted if "inputs" in step else None, **options)
        else:
            scene.results = []
            scene.results = list(torch.autograd.grad(roots, wanted, seeds, allow_unused=way == "grad", **options))


def perform(step, scene, hooks, device):
    """Perform one step of a plan on a call's tensors; `hooks` has the gradients that each hook of the program got."""
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
    """Drop all gradients: eager does not promise how far a backward came before it raised."""
    for scene in scenes:
        for t in differentiable([*scene.inputs.values(), *scene.outputs.values()]):
            t.grad = None
        scene.results, scene.cotangents = [], []


def phase(step):
    """The name of a step."""
    if step["do"] != "backward":
        return step["do"]
    first = step.get("of", "outputs") == "outputs"
    return f"{'' if first else 'double '}{'grad' if step.get('way', '').startswith('grad') else 'backward'}"


def leaves(value, name="output"):
    """The parts of a result: its structure as text, its tensors by name, its other leaves by name."""
    if isinstance(value, torch.Tensor):
        return "Tensor", {name: value}, {}
    if attributes(value) is not value:
        parts = [leaves(v, f"{name}.{k}") for k, v in attributes(value).items()]
        words = [part[0] for part in parts]
    elif isinstance(value, dict):
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
    """The structure of a value as text: tensors by name, a list or dict that occurred before with its first place."""
    if isinstance(value, torch.Tensor):
        return names.get(id(value), "Tensor")
    if attributes(value) is not value:
        held = attributes(value).items()
        inner = [words(v, f"{place}.{k}", met, names) if isinstance(v, torch.Tensor) else repr(v) for k, v in held]
    elif isinstance(value, dict):
        inner = [f"{k!r}: {words(v, f'{place}[{k!r}]', met, names)}" for k, v in value.items()]
    elif isinstance(value, (tuple, list)):
        inner = [words(v, f"{place}[{i}]", met, names) for i, v in enumerate(value)]
    else:
        return type(value).__qualname__
    first = place if isinstance(value, tuple) else met.setdefault(id(value), place)
    return f"{type(value).__qualname__}{'' if first == place else f'@{first}'}({', '.join(inner)})"


def contents(shown):
    """The structure of the result alone, without the identity of containers, and with lists for tuples."""
    parts = shown.split("; given ")[0].replace("tuple", "list").split("@")
    return parts[0] + "".join(part[part.index("(") :] for part in parts[1:])


def named(scope):
    """The tensors among a function's locals, by name."""
    return {name: t for name, t in scope.items() if isinstance(t, torch.Tensor)}
