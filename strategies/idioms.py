"""Short sequences of statements that people write together, and that single draws would hardly ever produce.

Each takes a chooser and a state, tries its statements, and keeps those that run; an idiom that finds nothing to work
with raises :class:`Impossible`.
"""

from collections.abc import Callable, Sequence

import torch

from aotcheck.program import Context, DType, Expr, GradMode, ListExpr, Literal, OpCall, Ref, SliceExpr, TupleExpr
from aotcheck.program.ops.registry import find
from aotcheck.program.running.memory import address, extent_in_bytes, size_of

from .arguments import Impossible
from .chooser import Chooser
from .state import EXPECTED, Outcome, State, overlaps_itself

__all__ = ["IDIOMS", "INSIDE", "Idiom", "draw_idiom"]

Named = tuple[str, torch.Tensor]
_SMALL = 36


def _size(sizes: Sequence[int]) -> Expr:
    return TupleExpr(tuple(Literal(int(n)) for n in sizes))


class Idiom:
    """What idioms have in common: picking tensors, trying statements."""

    def __init__(self, choose: Chooser, state: State) -> None:
        self.choose, self.state = choose, state

    def pick(self, fits: Callable[[torch.Tensor], bool]) -> Named:
        """A named tensor that fits."""
        found = [(name, t) for name, t in self.state.tensors() if fits(t)]
        if not found:
            raise Impossible
        return self.choose.one(found)

    def do(self, path: str, *args: Expr, **kwargs: Expr) -> bool:
        """Try a statement whose result is dropped; whether it was kept."""
        call = OpCall(None, path, args, tuple(kwargs.items()))
        return self.state.attempt(call, find(path)[0]) is Outcome.DONE

    def make(self, path: str, *args: Expr, **kwargs: Expr) -> Ref:
        """A value made by a statement."""
        name = self.state.fresh()
        call = OpCall(name, path, args, tuple(kwargs.items()))
        if self.state.attempt(call, find(path)[0]) is not Outcome.DONE:
            raise Impossible
        return Ref(name)

    def now(self, ref: Ref) -> torch.Tensor:
        """The tensor a reference stands for."""
        t = self.state.env[ref.name]
        assert isinstance(t, torch.Tensor)
        return t

    def silently(self, action: Callable[[], object]) -> None:
        """Do something under no_grad, if no block is open yet."""
        if self.state.context is not None:
            action()
            return
        if not self.state.selection.blocks:
            raise Impossible
        self.state.open(Context.NO_GRAD)
        try:
            action()
        finally:
            self.state.close()

    def perhaps(self, percent: int, path: str, *args: Expr) -> None:
        """Try a statement whose result is kept, now and then."""
        if self.choose.chance(percent):
            self.state.attempt(OpCall(self.state.fresh(), path, args), find(path)[0])

    def write(self, ref: Ref) -> bool:
        """Write to a tensor in one of the simple ways."""
        t = self.now(ref)
        options: list[tuple[str, tuple[Expr, ...]]] = [("Tensor.fill_", (Literal(3),)), ("Tensor.zero_", ())]
        if t.dtype != torch.bool:
            options += [("Tensor.mul_", (Literal(2),)), ("Tensor.add_", (Literal(1),)), ("Tensor.mul_", (Literal(-1),))]
        if t.is_complex():
            options += [("Tensor.mul_", (Literal(1j),)), ("Tensor.fill_", (Literal(2 - 1j),))]
        path, args = self.choose.one(options)
        return self.do(path, ref, *args)

    def window(self, t: torch.Tensor, most: int = 4) -> tuple[Expr, Expr, Expr] | None:
        """A size, stride and offset within the storage of ``t``, wherever ``t`` lies in it."""
        room = t.untyped_storage().nbytes() // t.itemsize
        if not room:
            return None
        n = self.choose.between(1, min(room, most))
        step = self.choose.between(1, 2) if (n - 1) * 2 < room else 1
        offset = self.choose.below(room - (n - 1) * step)
        return _size((n,)), _size((step,)), Literal(offset)

    def view(self, ref: Ref) -> Ref:
        """A view of a tensor, or a detached alias of it."""
        t = self.now(ref)
        options: list[tuple[str, tuple[Expr, ...]]] = [
            ("Tensor.detach", ()),
            ("Tensor.unsqueeze", (Literal(0),)),
            ("torch.ops.aten.alias.default", ()),
        ]
        if t.dim():
            options += [("getitem", (SliceExpr(0, 1),)), ("getitem", (SliceExpr(1, None),))]
        if t.dim() > 1:
            options.append(("Tensor.transpose", (Literal(0), Literal(1))))
        path, more = self.choose.one(options)
        return self.make(path, ref, *more)


def _cancel(i: Idiom) -> None:
    """A mutation and its inverse, which the caller must not be able to tell from nothing."""
    name, t = i.pick(lambda t: t.numel() <= _SMALL)
    ref, choose = Ref(name), i.choose
    pairs: list[tuple[tuple[str, Sequence[Expr]], tuple[str, Sequence[Expr]]]] = [
        (("Tensor.unsqueeze_", [Literal(0)]), ("Tensor.squeeze_", [Literal(0)]))
    ]
    if t.dtype != torch.bool:
        pairs += [
            (("Tensor.neg_", ()), ("Tensor.neg_", ())),
            (("Tensor.add_", [Literal(2)]), ("Tensor.sub_", [Literal(2)])),
        ]
    if t.dim() > 1:
        turn = ("Tensor.transpose_", [Literal(0), Literal(1)])
        pairs.append((turn, turn))
    if t.is_leaf and not t.requires_grad and (t.is_floating_point() or t.is_complex()):
        pairs.append((("Tensor.requires_grad_", ()), ("Tensor.requires_grad_", [Literal(False)])))
    if not t.requires_grad and t.dim() and t.is_contiguous():
        size = size_of(t)
        smaller = (max(size[0] - 1, 0), *size[1:])
        pairs.append((("Tensor.resize_", [_size(smaller)]), ("Tensor.resize_", [_size(size)])))
    other = [u for u, s in i.state.tensors() if s is not t and s.dtype == t.dtype]
    if other:
        swap = ("torch.utils.swap_tensors", [Ref(choose.one(other))])
        pairs.append((swap, swap))
    if choose.chance(35):
        kept = i.make("Tensor.clone" if choose.chance(50) else "Tensor.detach", ref)
        if other and choose.chance(50):
            path = choose.one(("Tensor.data=", "Tensor.set_"))
            pairs = [((path, [Ref(choose.one(other))]), (path, [kept]))]
        else:
            pairs = [(("Tensor.zero_", ()), ("Tensor.copy_", [kept]))]
    (path, args), (inverse, back) = choose.one(pairs)
    if i.do(path, ref, *args):
        i.perhaps(30, "torch.neg", ref)
        i.do(inverse, ref, *back)


def _left_behind(i: Idiom) -> None:
    """Views, and aliases, of a tensor that is then given other memory; written and read afterwards."""
    name, t = i.pick(lambda t: t.numel() > 0)
    ref = Ref(name)
    old = i.view(ref)
    path = i.choose.one(("Tensor.data=", "Tensor.set_", "Tensor.data=", "Tensor.set_", "torch.utils.swap_tensors"))
    if path == "Tensor.set_" and i.choose.chance(20):
        moved = i.do(path, ref)
    else:
        others = [u for u, s in i.state.tensors() if s is not t and s.dtype == t.dtype]
        if not others:
            raise Impossible
        moved = i.do(path, ref, Ref(i.choose.one(others)))
    if not moved:
        raise Impossible
    for which in i.choose.one(((old, ref), (ref, old), (old,), (ref,))):
        i.write(which)
    i.perhaps(60, "torch.neg", old)


def _grown_view(i: Idiom) -> None:
    """A view that grows in place, over memory of its base or past it."""
    name, t = i.pick(lambda t: t.dim() > 0 and size_of(t)[0] > 1 and not overlaps_itself(t))
    parts: tuple[Expr, ...] = (SliceExpr(0, 1), SliceExpr(1, None), Literal(0))
    view = i.make("getitem", Ref(name), i.choose.one(parts))
    made = i.now(view)
    room = t.untyped_storage().nbytes() // t.itemsize - int(made.storage_offset())
    grown = [made.numel() + 1, min(made.numel() * 2, room), room]
    if not made.requires_grad and i.choose.chance(60):
        i.do("Tensor.resize_", view, _size((i.choose.one([n for n in grown if n <= room] or [made.numel()]),)))
    elif (w := i.window(made, 6)) is not None:
        i.do("Tensor.as_strided_", view, *w)
    i.write(view)
    i.perhaps(50, "torch.neg", Ref(name))


def _out(i: Idiom) -> None:
    """``out=`` of the right size, of another, a view, or empty: eager resizes it."""
    choose = i.choose
    name, t = i.pick(lambda t: 0 < t.numel() <= _SMALL and (t.is_floating_point() or t.is_complex()))
    place = address(t)
    outs = [(u, s) for u, s in i.state.tensors() if s.dtype == t.dtype and not s.requires_grad and address(s) != place]
    if not outs:
        outs = [(made := i.make("torch.zeros_like", Ref(name)).name, i.now(Ref(made)))]
    out = Ref(choose.one(outs)[0])
    if choose.chance(25) and i.now(out).dim():
        parts: tuple[Expr, ...] = (SliceExpr(0, 1), Literal(0), SliceExpr(1, None))
        out = i.make("getitem", out, choose.one(parts))
    elif choose.chance(25):
        i.do("Tensor.resize_", out, _size((0,)))
    calls: list[tuple[str, tuple[Expr, ...]]] = [
        ("torch.neg", (Ref(name),)),
        ("torch.mul", (Ref(name), Literal(2))),
        ("torch.add", (Ref(name), Ref(name))),
        ("torch.stack", (ListExpr((Ref(name), Ref(name))),)),
    ]
    if t.dim():
        calls += [
            ("torch.sum", (Ref(name), Literal(0))),
            ("torch.cumsum", (Ref(name), Literal(0))),
            ("torch.cat", (ListExpr((Ref(name), Ref(name))),)),
        ]
    path, args = choose.one(calls)
    if t.requires_grad:
        i.silently(lambda: i.do(path, *args, out=out))
    else:
        i.do(path, *args, out=out)
    i.perhaps(40, "torch.neg", out)


def _beyond(i: Idiom) -> None:
    """``as_strided`` of a view, which is relative to the storage, read or written where the view does not reach."""
    name, _ = i.pick(lambda t: t.numel() > 0)
    view = i.view(Ref(name)) if i.choose.chance(70) else Ref(name)
    w = i.window(i.now(view))
    if w is None:
        raise Impossible
    window = i.make("Tensor.as_strided", view, *w)
    if i.choose.chance(70):
        i.write(window)
        i.perhaps(60, "torch.neg", i.choose.one((Ref(name), view)))
    else:
        i.write(Ref(name))
        i.perhaps(80, "torch.neg", window)


_FOREACH: tuple[tuple[str, tuple[Expr, ...]], ...] = (
    ("torch._foreach_zero_", ()),
    ("torch._foreach_add_", (Literal(1),)),
    ("torch._foreach_mul_", (Literal(2),)),
    ("torch._foreach_neg_", ()),
    ("torch._foreach_abs_", ()),
    ("torch._foreach_sign_", ()),
    ("torch._foreach_clamp_min_", (Literal(0),)),
)
"""Each does the same to any element twice, whichever comes first."""


def _foreach(i: Idiom) -> None:
    """``_foreach_*_`` on the same tensor twice, or on overlapping ones."""
    choose = i.choose
    name, t = i.pick(lambda t: t.dtype != torch.bool and not t.is_complex() and not overlaps_itself(t))
    others = [
        u for u, s in i.state.tensors() if address(s) == address(t) and s.dtype == t.dtype and not overlaps_itself(s)
    ]
    other = Ref(choose.one([name, *others]))
    if choose.chance(40):
        other = i.view(other)
    pair = [Ref(name), other] if choose.chance(50) else [other, Ref(name)]
    path, args = choose.one(_FOREACH)
    i.do(path, ListExpr(tuple(pair)), *args)
    i.perhaps(80, "torch.neg", choose.one(pair))


def _repeated(t: torch.Tensor) -> int | None:
    """The first dimension along which all elements lie in one place."""
    return next((d for d, (n, s) in enumerate(zip(t.shape, t.stride(), strict=True)) if s == 0 and n > 1), None)


def _expanded(i: Idiom) -> None:
    """A write through an expanded tensor: what stores one value everywhere, or one that reaches each element once."""
    wide = [(u, s) for u, s in i.state.tensors() if s.numel() and _repeated(s) is not None]
    if wide and i.choose.chance(70):
        name, t = i.choose.one(wide)
        ref = Ref(name)
    else:
        base, t = i.pick(lambda t: t.dim() < 3 and 0 < t.numel() <= 12)
        ref = i.make("Tensor.expand", Ref(base), _size((2, *size_of(t))))
        t = i.now(ref)
    if i.choose.chance(50):
        i.do(i.choose.one(("Tensor.fill_", "Tensor.fill_")), ref, Literal(2))
    else:
        one = i.make("Tensor.select", ref, Literal(_repeated(t)), Literal(i.choose.below(2)))
        i.write(one)
    i.perhaps(50, "torch.neg", ref)


def _bits(i: Idiom) -> None:
    """Aliases that read the same bits otherwise, one of them written."""
    choose = i.choose
    complexes = [(u, s) for u, s in i.state.tensors() if s.is_complex() and s.numel() <= _SMALL]
    if complexes:
        name, _ = choose.one(complexes)
        path = choose.one(("Tensor.conj", "Tensor.real", "Tensor.imag", "torch.view_as_real", "Tensor.conj"))
        alias = i.make(path, Ref(name))
        if path == "Tensor.conj" and choose.chance(50):
            alias = i.make("Tensor.imag", alias)  # has the neg bit
        elif path == "torch.view_as_real" and choose.chance(50):
            alias = i.make("getitem", alias, TupleExpr((Literal(...), Literal(0))))  # type: ignore[arg-type]
    else:
        name, t = i.pick(lambda t: t.dim() > 0 and not t.requires_grad and t.dtype in (torch.float32, torch.int32))
        alias = i.make("Tensor.view", Ref(name), DType("int32" if t.dtype == torch.float32 else "float32"))
        i.do("Tensor.zero_", alias) if choose.chance(50) else i.write(Ref(name))
        i.perhaps(60, "Tensor.clone", choose.one((Ref(name), alias)))
        return
    written, read = choose.one(((alias, Ref(name)), (Ref(name), alias)))
    i.write(written)
    i.perhaps(70, "Tensor.clone", read)


def _turned(i: Idiom) -> None:
    """What is multiplied by complex numbers, or has them added, in place and not, by an alias and not."""
    choose = i.choose
    complexes = [(u, s) for u, s in i.state.tensors() if s.is_complex() and s.numel() <= _SMALL]
    if complexes and choose.chance(80):
        ref = Ref(choose.one(complexes)[0])
    else:
        name, _ = i.pick(lambda t: 0 < t.numel() <= _SMALL and t.dtype in (torch.float32, torch.float64, torch.int64))
        ref = i.make("torch.mul", Ref(name), Literal(choose.one((1j, 1 + 2j))))
    number = Literal(choose.one((1j, complex(0, -1), 2 - 1j, 2j, 2 + 0j)))
    options: list[tuple[str, tuple[Expr, ...]]] = [
        ("Tensor.mul_", (number,)),
        ("Tensor.add_", (number,)),
        ("Tensor.sub_", (number,)),
        ("Tensor.fill_", (number,)),
        ("Tensor.mul_", (number,)),
    ]
    written = i.make(choose.one(("Tensor.conj", "Tensor.real", "Tensor.imag")), ref) if choose.chance(30) else ref
    if choose.chance(40) and i.now(written).is_complex():
        written = i.view(written) if choose.chance(50) else written
        path, args = choose.one(options)
        i.do(path, written, *args)
    apart = ("torch.mul", "torch.add", "torch.sub", "torch.rsub", "torch.full_like", "torch.masked_fill", "torch.mul")
    path = choose.one(apart)
    mask = (i.make("torch.eq", ref, Literal(1)),) if path == "torch.masked_fill" else ()
    i.make(path, choose.one((ref, ref, written)), *mask, number)


def _cycle(i: Idiom) -> None:
    """Memory that is there only while it is used: grown, filled, used, freed."""
    choose, state = i.choose, i.state
    resize = choose.one(("Tensor.untyped_storage().resize_", "torch.ops.inductor.resize_storage_bytes_.default"))
    freed = state.freed()
    if freed:
        name, t = choose.one(freed)
        ref = Ref(name)
    else:
        name, t = i.pick(lambda t: 0 < t.numel() <= _SMALL and t.dtype != torch.bool and not t.requires_grad)
        ref = Ref(name)
        if not i.do(resize, ref, Literal(0)):
            raise Impossible
    held = t.untyped_storage().nbytes()
    if not i.do(resize, ref, Literal(max(extent_in_bytes(t), held))):
        raise Impossible
    elsewhere = ((u, s) for u, s in state.tensors() if address(s) != address(t))
    alike = [u for u, s in elsewhere if s.shape == t.shape and s.dtype == t.dtype]
    fill = ("Tensor.copy_", Ref(choose.one(alike))) if alike and choose.chance(60) else ("Tensor.fill_", Literal(2))

    def filled() -> None:
        i.do(fill[0], ref, fill[1])
        if t.requires_grad and choose.chance(70):
            i.perhaps(80, "torch.square", ref)  # leaves nothing for a backward to read

    i.silently(filled) if t.requires_grad or choose.chance(40) else filled()
    if choose.chance(70):
        i.perhaps(90, choose.one(("torch.neg", "Tensor.clone")), ref)
    if choose.chance(60):
        i.do(resize, ref, Literal(0))


def _no_grad_view(i: Idiom) -> None:
    """A view made under no_grad or in inference mode, written or returned outside."""
    name, _ = i.pick(lambda t: t.numel() > 0)
    if i.state.context is not None or not i.state.selection.blocks:
        raise Impossible
    made: list[Ref] = []
    i.state.open(i.choose.one((Context.NO_GRAD, Context.NO_GRAD, Context.INFERENCE)))
    try:
        made.append(i.view(Ref(name)))
        if i.choose.chance(25):
            i.write(made[0])
    finally:
        i.state.close()
    if i.choose.chance(60):
        i.write(i.choose.one((made[0], Ref(name))))
    i.perhaps(50, "torch.neg", i.choose.one((made[0], Ref(name))))


def _trained(i: Idiom) -> Named:
    """A tensor to differentiate inside, where grad mode is on."""
    if i.state.context not in (None, Context.ENABLE_GRAD) or i.state.mode is not GradMode.ENABLED:
        raise Impossible
    return i.pick(lambda t: t.requires_grad and not t.is_inference() and 0 < t.numel() <= _SMALL)


def _grad_inside(i: Idiom) -> None:
    """``torch.autograd.grad`` inside, what it returns used and perhaps differentiated again."""
    name, _ = _trained(i)
    start = i.make("torch.ones_like", Ref(name))
    others = [u for u, s in i.state.tensors() if s.requires_grad and u != name]
    if not others:
        raise Impossible
    wanted = dict.fromkeys(i.choose.one(others) for _ in range(i.choose.between(1, 2)))
    made = tuple(i.state.fresh() for _ in wanted)
    options = {"create_graph": Literal(True)} if i.choose.chance(60) else {"retain_graph": Literal(True)}
    lists = (ListExpr((Ref(name),)), ListExpr(tuple(map(Ref, wanted))), ListExpr((start,)))
    call = OpCall(made, "torch.autograd.grad", lists, (*options.items(), ("allow_unused", Literal(True))))
    if i.state.attempt(call, find(call.path)[0]) is not Outcome.DONE:
        raise Impossible
    for gradient in made:
        if isinstance(i.state.env[gradient], torch.Tensor):
            i.perhaps(70, "torch.mul", Ref(gradient), Literal(2))


def _backward_inside(i: Idiom) -> None:
    """``.backward()`` inside, to the leaves there are or to some inputs."""
    name, _ = _trained(i)
    start = i.make("torch.ones_like", Ref(name))
    inputs = [u for u in i.state.params if isinstance(t := i.state.env[u], torch.Tensor) and t.requires_grad]
    chosen = {"inputs": ListExpr((Ref(i.choose.one(inputs)),))} if inputs and i.choose.chance(40) else {}
    i.do("Tensor.backward", Ref(name), start, retain_graph=Literal(True), **chosen)


def _load_state(i: Idiom) -> None:
    """Parameters loaded as ``load_state_dict`` does: copied to under no_grad, then used."""
    name, t = i.pick(lambda t: t.requires_grad and t.is_leaf and 0 < t.numel() <= _SMALL)
    alike = [u for u, s in i.state.tensors() if s is not t and s.shape == t.shape and s.dtype == t.dtype]
    source = Ref(i.choose.one(alike)) if alike else i.make("torch.ones_like", Ref(name))
    i.silently(lambda: i.do("Tensor.copy_", Ref(name), source))
    i.perhaps(80, "torch.mul", Ref(name), Literal(2))


IDIOMS: tuple[tuple[Callable[[Idiom], None], int], ...] = (
    (_cancel, 3),
    (_left_behind, 3),
    (_grown_view, 2),
    (_out, 4),
    (_beyond, 3),
    (_foreach, 2),
    (_expanded, 2),
    (_turned, 2),
    (_bits, 3),
    (_cycle, 3),
    (_no_grad_view, 2),
)
"""Every idiom and how often it is drawn."""

INSIDE: tuple[tuple[Callable[[Idiom], None], int], ...] = ((_grad_inside, 3), (_backward_inside, 1), (_load_state, 1))
"""Those of functions that differentiate and train while they run."""

_WEIGHTED = tuple(idiom for idiom, weight in IDIOMS for _ in range(weight))
_LEADS_TO: dict[Callable[[Idiom], None], tuple[str, ...]] = {
    _out: ("op:out",),
    _cycle: ("op:storage", "output:freed"),
    _foreach: ("op:foreach",),
    _left_behind: ("op:data", "op:swap", "op:set"),
    _cancel: ("op:swap",),
    _expanded: ("layout:expanded",),
    _bits: ("op:dtype_view",),
    _turned: ("dtype:complex",),
    _beyond: ("op:strided_view",),
    _grad_inside: ("op:autograd",),
    _backward_inside: ("op:autograd",),
    _no_grad_view: ("context:block-no-grad", "context:block-inference"),
}
"""The traits that an idiom is there for."""


_ALL = (*_WEIGHTED, *(idiom for idiom, weight in INSIDE for _ in range(weight)))


def draw_idiom(choose: Chooser, state: State, inside: bool = False) -> bool:
    """Draw one idiom, of those ``inside`` too; whether all that it needs was there."""
    try:
        choose.toward(_ALL if inside else _WEIGHTED, lambda idiom: _LEADS_TO.get(idiom, ()))(Idiom(choose, state))
    except (Impossible, *EXPECTED):
        return False
    return True
