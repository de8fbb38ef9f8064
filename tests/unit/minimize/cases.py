"""One planted case for each pass: a program and a predicate whose minimal program only that pass can reach."""

from dataclasses import dataclass

from aotcheck.minimize.edit import read_by
from aotcheck.minimize.passes import (
    Pass,
    delete_arguments,
    delete_calls,
    delete_derived,
    delete_outputs,
    delete_pairs,
    delete_statements,
    delete_steps,
    delete_unused,
    drop_contexts,
    hoist_statements,
    inline_views,
    lower_names,
    merge_arguments,
    rename,
    results_for_out,
    same_inputs,
    shrink_data,
    shrink_shapes,
    simplify_dtypes,
    simplify_literals,
    simplify_ops,
    simplify_signatures,
    simplify_steps,
    simplify_tensors,
    unnest_arguments,
    unpack_results,
)
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.snapshot import TensorFacts
from aotcheck.program import Backward, Program, Ref, flat_calls
from tests.unit.minimize.scripts import (
    ONCE,
    PLAIN,
    Predicate,
    both,
    eagerly,
    has,
    inputs_hold,
    paths,
    program,
    runs,
    text,
)


@dataclass(frozen=True)
class Case:
    """What is minimized, by what, to what."""

    made_by: Pass
    before: Program
    fails: Predicate
    after: Program


RETURNS_NOTHING = "def f(x0):\n    return None"
TWO = """
def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())
"""


def plan(*calls: str) -> str:
    return "CALLS = [\n" + "".join(f"    {{{call}}},\n" for call in calls) + "]\n"


PROBE = '"do": "probe", "site": "input", "index": 0, "seed": 3'
BACKWARD = '"do": "backward", "roots": (0, 1), "cotangents": (("pattern", 2), ("zeros", 0))'
PLAINEST_BACKWARD = '"do": "backward", "roots": (0,)'


def call(inputs: str, mode: str = "enabled", *steps: str) -> str:
    done = "".join(f"{{{step}}}, " for step in steps)
    return f'"inputs": {inputs}, "grad_mode": "{mode}", "steps": ({done})'


def vector(data: str, size: str, stride: str, offset: int = 0, extra: str = "", dtype: str = "float32") -> str:
    return f"""
def make_inputs_0(device):
    s0 = storage({data}, torch.{dtype}, device)
    a0 = strided(s0, torch.{dtype}, {size}, {stride}, {offset}{extra})
    return (a0,), named(locals())
"""


def arguments(made: Program) -> tuple[TensorFacts, ...]:
    """What is known of the tensors of the inputs, after the first call."""
    return tuple(t for t in eagerly(made)[0].snapshot.tensors if t.role is Role.INPUT)


def results(made: Program) -> tuple[TensorFacts, ...]:
    """What is known of the tensors that the first call returns."""
    return tuple(t for t in eagerly(made)[0].snapshot.tensors if t.role is Role.OUTPUT)


def everything(made: Program) -> tuple[TensorFacts, ...]:
    """The tensors of the inputs and results."""
    return (*arguments(made), *results(made))


def written(made: Program) -> bool:
    """An input was written to; building one counts as the first write."""
    return any(t.version > 1 for t in arguments(made))


def reads(made: Program, path: str, *names: str) -> bool:
    """Whether some call of an op reads one of these names."""
    return any(read_by(call) & set(names) for call in flat_calls(made.body) if call.path == path)


def returns_what(made: Program, path: str) -> bool:
    """Whether a tensor that some call of an op makes, or writes to ``out=``, is returned alone, and is no argument."""
    if made.outputs in map(Ref, made.params):
        return False
    made_by = [c for c in flat_calls(made.body) if c.path == path]
    return made.outputs in {Ref(str(c.target)) for c in made_by} | {dict(c.kwargs).get("out") for c in made_by}


def chunks(made: Program) -> list[str]:
    """The names of chunks, unpacked or taken out."""
    calls = list(flat_calls(made.body))
    whole = [c.target for c in calls if c.path == "torch.chunk" and isinstance(c.target, str)]
    unpacked = [name for c in calls if c.path == "torch.chunk" and isinstance(c.target, tuple) for name in c.target]
    return unpacked + [name for c in calls if c.path == "getitem" and read_by(c) & set(whole) for name in c.targets]


def given(count: int) -> Predicate:
    """Eager runs it, and it takes so many arguments."""
    return both(runs, lambda made: len(made.params) == count)


CASES = [
    Case(
        delete_calls,
        program(RETURNS_NOTHING, calls=plan(call("make_inputs_0"), call("None"), call("None"))),
        given(1),
        program(RETURNS_NOTHING),
    ),
    Case(
        delete_steps,
        program(RETURNS_NOTHING, calls=plan(call("make_inputs_0", "no_grad", PROBE))),
        given(1),
        program(RETURNS_NOTHING),
    ),
    Case(
        delete_statements,
        program("""
            def f(x0):
                v0 = torch.sin(x0)
                v1 = v0.t()
                return v1
        """),
        both(runs, has("torch.sin")),
        program("def f(x0):\n    torch.sin(x0)\n    return None"),
    ),
    Case(
        delete_outputs,
        program('def f(x0):\n    v0 = x0.t()\n    return ([x0, {"k": v0}], 7, v0)'),
        both(runs, lambda made: bool(results(made))),
        program("def f(x0):\n    return x0"),
    ),
    Case(
        delete_arguments,
        program("def f(x0, x1):\n    x1.zero_()\n    x0.neg_()\n    return None", TWO),
        both(runs, has("Tensor.neg_")),
        program("def f(x0):\n    x0.neg_()\n    return None"),
    ),
    Case(
        delete_unused,
        program(
            RETURNS_NOTHING,
            """
            def make_inputs_0(device):
                s0 = storage([0], torch.float32, device)
                s1 = storage([0], torch.float32, device)
                a0 = strided(s0, torch.float32, (), (), 0)
                a1 = strided(s1, torch.float32, (), (), 0)
                return (a0,), named(locals())
            """,
        ),
        given(1),
        program(RETURNS_NOTHING),
    ),
    Case(
        drop_contexts,
        program("""
            def f(x0):
                with torch.no_grad():
                    x0.zero_()
                    with torch.enable_grad():
                        x0.neg_()
                return None
        """),
        both(runs, has("Tensor.neg_")),
        program("def f(x0):\n    x0.neg_()\n    return None"),
    ),
    Case(
        delete_derived,
        program(RETURNS_NOTHING, PLAIN.replace("    return", "    a0.neg_()\n    a0.zero_()\n    return")),
        given(1),
        program(RETURNS_NOTHING),
    ),
    Case(
        inline_views,
        program(
            RETURNS_NOTHING,
            """
            def make_inputs_0(device):
                s0 = storage([0, 0, 0, 0], torch.float32, device)
                a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
                a1 = a0.t()
                a2 = a1[1]
                return (a2,), named(locals())
            """,
        ),
        both(given(1), lambda made: any((t.shape, t.stride, t.offset) == ((2,), (2,), 1) for t in arguments(made))),
        program(RETURNS_NOTHING, vector("[0, 0, 0, 0]", "(2,)", "(2,)", 1)),
    ),
    Case(
        hoist_statements,
        program("def f(x0):\n    v0 = x0.unsqueeze(0)\n    v0.zero_()\n    return v0"),
        both(
            given(1), has("Tensor.zero_"), lambda made: written(made) and any(t.shape == (1,) for t in everything(made))
        ),
        program("def f(x0):\n    x0.zero_()\n    return None", vector("[0]", "(1,)", "(1,)")),
    ),
    Case(
        unnest_arguments,
        program(
            "def f(x0):\n    v0 = x0[0]\n    v1 = x0[1]\n    v0.copy_(v1)\n    return None",
            TWO.replace("(a0, a1),", "((a0, a1),),"),
        ),
        both(runs, has("Tensor.copy_"), lambda made: len({t.identity for t in arguments(made)}) == 2),
        program("def f(x0, x1):\n    x0.copy_(x0)\n    return None", TWO),
    ),
    Case(
        unnest_arguments,
        program(
            "def f(x0):\n    v0 = x0.hidden\n    v0.zero_()\n    return None",
            PLAIN.replace("(a0,)", "(State(hidden=a0, scale=2),)"),
        ),
        both(runs, has("Tensor.zero_"), written),
        program("def f(x0):\n    x0.zero_()\n    return None", PLAIN),
    ),
    Case(
        merge_arguments,
        program("def f(x0, x1):\n    x1.copy_(x0)\n    return None", TWO),
        given(2),
        program("def f(x0, x1):\n    return None", PLAIN.replace("return (a0,)", "return (a0, a0)")),
    ),
    Case(
        same_inputs,
        program(
            RETURNS_NOTHING,
            PLAIN + PLAIN.replace("make_inputs_0", "make_inputs_1"),
            plan(call("make_inputs_0"), call("make_inputs_1")),
        ),
        both(given(1), lambda made: len(made.calls) == 2),
        program(RETURNS_NOTHING, calls=plan(call("make_inputs_0"), call("None"))),
    ),
    Case(
        delete_pairs,
        program("def f(x0):\n    x0.neg_()\n    x0.sin_()\n    x0.neg_()\n    return None"),
        both(runs, has("Tensor.sin_"), lambda made: sum(p == "Tensor.neg_" for p in paths(made)) % 2 == 0),
        program("def f(x0):\n    x0.sin_()\n    return None"),
    ),
    Case(
        simplify_tensors,
        program(RETURNS_NOTHING, vector("[1, 2, 3, 4, 5, 6, 7]", "(2, 2)", "(1, 2)", 3, ", requires_grad=True")),
        both(runs, inputs_hold(lambda t: t.size == (2, 2))),
        program(RETURNS_NOTHING, vector("[0, 0, 0, 0]", "(2, 2)", "(2, 1)")),
    ),
    Case(
        shrink_shapes,
        program("def f(x0):\n    v0 = x0.view((3, 2))\n    return v0", vector("[0, 0, 0, 0, 0, 0]", "(6,)", "(1,)")),
        both(runs, has("Tensor.view"), lambda made: any(len(t.shape) == 2 for t in results(made))),
        program("def f(x0):\n    v0 = x0.view((1, 1))\n    return v0"),
    ),
    Case(
        simplify_ops,
        program("def f(x0):\n    v0 = torch.logsumexp(x0, 0)\n    return v0"),
        both(runs, lambda made: any(t.storage == t.name for t in results(made))),
        program("def f(x0):\n    v0 = x0.clone()\n    return v0"),
    ),
    Case(
        unpack_results,
        program(
            "def f(x0):\n    v0 = torch.chunk(x0, 2)\n    v1 = v0[0]\n    v1.zero_()\n    return None",
            vector("[0, 0]", "(2,)", "(1,)"),
        ),
        both(given(1), lambda made: reads(made, "Tensor.zero_", *chunks(made))),
        program(
            "def f(x0):\n    v0, = torch.chunk(x0, 1)\n    v0.zero_()\n    return None", vector("[0]", "(1,)", "(1,)")
        ),
    ),
    Case(
        results_for_out,
        program("def f(x0):\n    v0 = x0.clone()\n    torch.cumsum(x0, 0, out=v0)\n    return v0"),
        both(runs, lambda made: returns_what(made, "torch.cumsum")),
        program("def f(x0):\n    v0 = torch.cumsum(x0, 0)\n    return v0"),
    ),
    Case(
        simplify_signatures,
        program("def f(x0):\n    v0 = x0.add_(x0, alpha=1)\n    return None"),
        both(runs, has("Tensor.add_")),
        program("def f(x0):\n    x0.add_(x0)\n    return None"),
    ),
    Case(
        simplify_dtypes,
        program(
            "def f(x0):\n    v0 = x0.to(torch.float64)\n    return None",
            vector("[0]", "()", "()", dtype="complex128").replace("[0]", "[0, 0]"),
        ),
        both(runs, has("Tensor.to"), lambda made: any(len(c.args) > 1 for c in flat_calls(made.body))),
        program("def f(x0):\n    x0.to(torch.float32)\n    return None"),
    ),
    Case(
        lower_names,
        program("def f(x0):\n    v0 = x0.clone()\n    v1 = v0.clone()\n    return (v1, v0)"),
        both(runs, lambda made: len(results(made)) == 2 and made.statements == 2),
        program("def f(x0):\n    x0.clone()\n    x0.clone()\n    return (x0, x0)"),
    ),
    Case(
        shrink_data,
        program(RETURNS_NOTHING, vector("[-7, 4, 3]", "(3,)", "(1,)")),
        both(
            runs, lambda made: any(v % 2 for c in made.calls if c.inputs for s in c.inputs.storages for v in s.data[:1])
        ),
        program(RETURNS_NOTHING, vector("[1]", "()", "()")),
    ),
    Case(
        simplify_literals,
        program("def f(x0):\n    x0.add_(-5)\n    return None"),
        both(runs, has("Tensor.add_")),
        program("def f(x0):\n    x0.add_(0)\n    return None"),
    ),
    Case(
        simplify_literals,
        program("def f(x0):\n    v0 = torch.mul(x0, complex(2.0, -3.0))\n    return v0"),
        both(runs, lambda made: "torch.mul" in paths(made) and "complex(" in text(made) and ", 0.0)" not in text(made)),
        program("def f(x0):\n    torch.mul(x0, complex(0.0, 1.0))\n    return None"),
    ),
    Case(
        simplify_steps,
        program(
            "def f(x0):\n    v0 = x0.clone()\n    return (v0, x0)",
            vector("[0]", "()", "()", extra=", requires_grad=True"),
            plan(call("make_inputs_0", "enabled", BACKWARD)),
        ),
        both(given(1), lambda made: any(isinstance(s, Backward) for c in made.calls for s in c.steps)),
        program(RETURNS_NOTHING, calls=plan(call("make_inputs_0", "enabled", PLAINEST_BACKWARD))),
    ),
    Case(
        rename,
        program("def f(y):\n    w = y.sin_()\n    return w", PLAIN.replace("a0", "b").replace("s0", "store"), ONCE),
        both(runs, has("Tensor.sin_")),
        program("def f(x0):\n    x0.sin_()\n    return None"),
    ),
]
