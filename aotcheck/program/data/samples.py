"""A few programs written by hand, to try things with before anything is drawn."""

from aotcheck.program.data.model import (
    Backward,
    Call,
    Cotangent,
    Fill,
    GradMode,
    Inputs,
    Literal,
    OpCall,
    Probe,
    Program,
    Ref,
    Site,
    Storage,
    Strided,
    TupleExpr,
)

__all__ = ["ALIASED_VIEWS", "REFUSED_COPY", "SAMPLES", "TRANSPOSED_IN_PLACE"]

_SIX = Storage("s0", "float32", (1, -2, 3, 0, 2, -1))
_OUTPUT, _INPUT = Probe(Site.OUTPUT, 0, 3), Probe(Site.INPUT, 0, 5)

ALIASED_VIEWS = Program(
    params=("x0", "x1"),
    body=(
        OpCall(None, "Tensor.add_", (Ref("x0"), Literal(1))),
        OpCall("v0", "Tensor.view", (Ref("x1"), TupleExpr((Literal(2), Literal(2))))),
        OpCall("v1", "torch.mul", (Ref("v0"), Literal(2))),
    ),
    outputs=TupleExpr((Ref("v0"), Ref("v1"), Ref("x0"), Literal(None))),
    calls=(
        Call(
            Inputs(
                (_SIX,),
                (Strided("a0", "s0", "float32", (4,), (1,), 0), Strided("a1", "s0", "float32", (4,), (1,), 2)),
                (),
                (Ref("a0"), Ref("a1")),
            ),
            steps=(_OUTPUT, _INPUT),
        ),
        Call(None, GradMode.NO_GRAD),
        Call(
            Inputs(
                (_SIX, Storage("s1", "float32", (1, 2, 3, 4))),
                (Strided("a0", "s0", "float32", (4,), (1,)), Strided("a1", "s1", "float32", (4,), (1,))),
                (),
                (Ref("a0"), Ref("a1")),
            )
        ),
    ),
)
"""Two overlapping inputs, a write to one, a view and a product of the other; then other aliasing."""

REFUSED_COPY = Program(
    params=("x0", "x1"),
    body=(
        OpCall("v0", "torch.mul", (Ref("x0"), Ref("x1"))),
        OpCall(None, "Tensor.copy_", (Ref("x1"), Ref("v0"))),
        OpCall("v1", "Tensor.sum", (Ref("x1"),)),
    ),
    outputs=TupleExpr((Ref("v1"), Ref("x1"))),
    calls=(
        Call(
            Inputs(
                (_SIX,),
                (Strided("a0", "s0", "float32", (2, 3), (3, 1), 0, True),),
                (OpCall("a1", "Tensor.clone", (Ref("a0"),)), OpCall("a2", "getitem", (Ref("a1"), Literal(0)))),
                (Ref("a0"), Ref("a2")),
            ),
            steps=(Backward((0,)),),
        ),
    ),
)
"""Refused by eager: the product does not fit the row it is copied to. The row's base is not passed."""

TRANSPOSED_IN_PLACE = Program(
    params=("x0", "x1"),
    body=(
        OpCall(None, "Tensor.t_", (Ref("x0"),)),
        OpCall("v0", "Tensor.mul_", (Ref("x0"), Literal(2))),
        OpCall("v1", "torch.add", (Ref("x1"), Ref("x0"))),
    ),
    outputs=TupleExpr((Ref("v0"), Ref("v1"))),
    calls=(
        Call(
            Inputs(
                (_SIX,),
                (Strided("a0", "s0", "float32", (2, 3), (3, 1), 0, True),),
                (OpCall("a1", "torch.mul", (Ref("a0"), Literal(3))),),
                (Ref("a1"), Ref("a1")),
            ),
            steps=(Backward((0, 1), (Cotangent(Fill.PATTERN, 2),)), _OUTPUT),
        ),
    ),
)
"""The same non-leaf passed twice, its metadata and its data mutated, with a backward."""

SAMPLES = (ALIASED_VIEWS, REFUSED_COPY, TRANSPOSED_IN_PLACE)
