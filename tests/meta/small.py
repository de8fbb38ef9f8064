"""Small programs to plant faults in, and strategies of them for campaigns."""

from hypothesis import strategies as st

from aotcheck.program import (
    Backward,
    Call,
    Expr,
    Inputs,
    Literal,
    OpCall,
    Probe,
    Program,
    Ref,
    Site,
    Step,
    Storage,
    Strided,
    TupleExpr,
)

X = Ref("x0")
V0 = Ref("v0")


def op(target: str | tuple[str, ...] | None, path: str, *args: Expr | complex) -> OpCall:
    """A statement; numbers are constants."""
    return OpCall(target, path, tuple(Literal(a) if isinstance(a, (int, complex)) else a for a in args))


def program(
    *body: OpCall,
    outputs: Expr = V0,
    size: tuple[int, ...] = (4,),
    dtype: str = "float32",
    requires_grad: bool = False,
    backward: bool = False,
    steps: tuple[Step, ...] = (),
    calls: int = 1,
) -> Program:
    """A program of one argument, ``x0``; a backward through all that it returns."""
    numel = 1
    for n in size:
        numel *= n
    stride = tuple(_product(size[i + 1 :]) for i in range(len(size)))
    data = tuple(range(1, numel * (2 if dtype.startswith("complex") else 1) + 1))
    inputs = Inputs(
        (Storage("s0", dtype, data),), (Strided("a0", "s0", dtype, size, stride, 0, requires_grad),), (), (Ref("a0"),)
    )
    call = Call(inputs, steps=(*((Backward((0, 1)),) if backward else ()), *steps))
    return Program(("x0",), body, outputs, (call,) * calls)


def _product(sizes: tuple[int, ...]) -> int:
    found = 1
    for n in sizes:
        found *= n
    return found


def pair(*names: str) -> TupleExpr:
    return TupleExpr(tuple(Ref(name) for name in names))


DOUBLE = program(op("v0", "torch.mul", X, 2))
VIEW = program(op("v0", "Tensor.view", X, TupleExpr((Literal(2), Literal(2)))))
TRAINED = program(op("v0", "torch.mul", X, 2), requires_grad=True, backward=True)
MUTATES = program(op(None, "Tensor.add_", X, 1), op("v0", "torch.mul", X, 2))
REFUSED = program(op("v0", "Tensor.view", X, TupleExpr((Literal(3), Literal(3)))))
RETURNS_A_RANDOM_NUMBER = program(op("v0", "torch.rand_like", X))
OUTPUT, INPUT = Probe(Site.OUTPUT, 0, 3), Probe(Site.INPUT, 0, 3)

drawn = st.tuples(st.integers(1, 12), st.integers(-9, 9)).map(
    lambda drawn: program(op("v0", "torch.mul", X, drawn[1]), size=(drawn[0],))
)
"""Programs of one product; about one in twelve has as many elements as the planted killers are waiting for."""

now_and_then_refused = st.tuples(st.integers(1, 12), st.booleans(), st.integers(5, 20)).map(
    lambda drawn: program(
        op("v0", "Tensor.view", X, TupleExpr((Literal(5), Literal(drawn[2]))))
        if drawn[1]
        else op("v0", "torch.mul", X, drawn[2]),
        size=(drawn[0],),
    )
)
"""Programs of one statement, which eager refuses in about every second one."""


def _broken(size: int) -> Program:
    raise OSError("planted")


broken = st.integers().map(_broken)
"""A strategy that cannot draw."""

products_and_dropouts = st.tuples(st.integers(5, 9), st.integers(-9, 9), st.booleans()).map(
    lambda drawn: program(
        op("v0", "Module.dropout", X, False) if drawn[2] else op("v0", "torch.mul", X, drawn[1]), size=(drawn[0],)
    )
)
"""Programs of one statement. Torch's ``aot_eager`` returns another tensor than eager from a dropout of nothing."""


def equal_to_others() -> st.SearchStrategy[Program]:
    """Draws that differ and, once they are mapped, are one of three programs."""
    return st.integers(0, 10**6).map(lambda n: program(op("v0", "torch.mul", X, n % 3)))
