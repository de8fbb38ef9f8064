"""Ten thousand malicious files: each is rejected with one line, and nothing in any of them runs.

Run as ``python -m tools.hostile``. A file is a program of the corpus with an attack put in somewhere, or spoilt at
random. An attack leaves a trap file if it ever runs. What is still a program after a random change is not run either.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from aotcheck.campaign.corpus.files import entry_of
from aotcheck.program import ProgramSyntaxError, UnknownOpError, parse_file
from aotcheck.program.source.emit import ENDING

EXPRESSIONS = (
    "__import__('os').system('touch {trap}')",
    "open('{trap}', 'w')",
    "(lambda: open('{trap}', 'w'))()",
    "[open('{trap}', 'w') for _ in (1,)]",
    "f\"{open('{trap}', 'w')}\"",
    "(x := open('{trap}', 'w'))",
    "exec(\"open('{trap}', 'w')\")",
    "eval(\"open('{trap}', 'w')\")",
    "getattr(torch, 'load')('{trap}')",
    "torch.load('{trap}')",
    "torch.hub.load('{trap}', 'x')",
    "torch.ops.load_library('{trap}')",
    "torch.utils.cpp_extension.load('x', ['{trap}'])",
    "().__class__.__base__.__subclasses__()",
    "x0.__reduce_ex__(2)",
    "x0.numpy().tofile('{trap}')",
    "x0.share_memory_().storage().write_file('{trap}')",
    "torch.save(x0, '{trap}')",
    "torch.from_file('{trap}', True, 9)",
    "{**globals()}",
    "9" * 6000,
    "-" * 3000 + "1",
    "(" * 200 + ")" * 200,
    "1 if open('{trap}', 'w') else 0",
    "await x0",
    "(yield)",
    "*x0",
    "torch.zeros.__globals__['os'].system('touch {trap}')",
)
STATEMENTS = (
    *EXPRESSIONS[:9],
    "import os; os.system('touch {trap}')",
    "from os import system",
    "global torch",
    "del torch",
    "raise SystemExit",
    "while True: pass",
    "for _ in iter(int, 1): pass",
    "with open('{trap}', 'w'): pass",
    "class A(metaclass=open): pass",
    "def g(): open('{trap}', 'w')",
    "@open\ndef g(): pass",
    "try: pass\nexcept: pass",
    "assert open('{trap}', 'w')",
    "torch.nn.Module.__call__ = open",
    "x: open('{trap}', 'w') = 1",
    "match open('{trap}', 'w'):\n    case _: pass",
)
HEADERS = (
    "format = 99",
    "format = ",
    "expect = 3",
    "[expect.eager]\n# '*' = 'run'",
    "[expect.eager]\n# '*' = ['agree']",
    "[expect.eager.eager]\n# '*' = 'agree'",
    "[[expect]]",
    "keys = 'x'",
    "\0",
)


def _lines(text: str) -> tuple[list[str], str]:
    """The lines of a script that are read, and the rest of it."""
    head, mark, tail = text.partition(ENDING)
    return head.splitlines(), mark + tail


def _statement(text: str, attack: str, chance: random.Random) -> str:
    """The attack as a statement, somewhere in the function or at the top."""
    lines, tail = _lines(text)
    inside = [i for i, line in enumerate(lines) if line.startswith("    ") and not line.lstrip().startswith("return")]
    ends = [i for i, line in enumerate(lines) if line.startswith(("def ", "CALLS"))]
    at = chance.choice(inside + ends)
    indent = "    " if lines[at].startswith("    ") and at in inside else ""
    lines[at:at] = [indent + line for line in attack.splitlines()]
    return "\n".join(lines) + "\n" + tail


def _expression(text: str, attack: str, chance: random.Random) -> str:
    """The attack in place of an operand, an index or a number."""
    lines, tail = _lines(text)
    body = [i for i, line in enumerate(lines) if line.startswith("    ") and "(" in line]
    at = chance.choice(body)
    before, _, after = lines[at].partition("(")
    lines[at] = f"{before}({attack}, {after}"
    return "\n".join(lines) + "\n" + tail


def _header(text: str, attack: str, chance: random.Random) -> str:
    return text.replace("# format = 2", f"# {attack}", 1)


def _spoilt(text: str, attack: str, chance: random.Random) -> bytes:
    """Some bytes of what is read changed, dropped or doubled."""
    data = bytearray(text.encode())
    end = data.index(ENDING.encode())
    for _ in range(chance.randint(1, 40)):
        at = chance.randrange(end - 50)
        match chance.randrange(3):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randint(1, 9)]
            case _:
                data[at:at] = data[at : at + chance.randint(1, 40)]
    return bytes(data)


KINDS: tuple[tuple[str, Callable[[str, str, random.Random], str | bytes], tuple[str, ...]], ...] = (
    ("statement", _statement, STATEMENTS),
    ("expression", _expression, EXPRESSIONS),
    ("header", _header, HEADERS),
    ("spoilt", _spoilt, ("",)),
)


def hostile(sources: list[str], count: int, trap: Path, seed: int = 1) -> Iterator[tuple[str, bytes]]:
    """So many hostile files, each with its kind."""
    chance = random.Random(seed)
    for number in range(count):
        kind, make, attacks = KINDS[number % len(KINDS)]
        made = make(chance.choice(sources), chance.choice(attacks).replace("{trap}", str(trap)), chance)
        yield kind, made if isinstance(made, bytes) else made.encode()


def verdict(path: Path) -> str:
    """The line with which a file is turned down; empty where it is a program. Raises what should never be raised."""
    try:
        entry_of(path, parse_file(path))
    except (ProgramSyntaxError, UnknownOpError) as error:
        return str(error)
    return ""


def main() -> None:
    """Make the files, read them, and say what came of it; exits 1 if any did harm or was let in."""
    parser = argparse.ArgumentParser(prog="python -m tools.hostile", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path("corpus").glob("*.py"))]
    refused: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    wrong: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trap, path = Path(folder) / "trap", Path(folder) / "stranger.py"
        for number, (kind, data) in enumerate(hostile(sources, options.count, trap)):
            path.write_bytes(data)
            try:
                line = verdict(path)
            except Exception as error:
                wrong.append(f"{number} ({kind}): {type(error).__name__}: {error}"[:200])
                continue
            (refused if line else taken)[kind] += 1
            if "\n" in line or len(line) > 500:
                wrong.append(f"{number} ({kind}): not one line: {line[:200]!r}")
            if not line and kind != "spoilt":
                wrong.append(f"{number} ({kind}): let in")
            if trap.exists():
                wrong.append(f"{number} ({kind}): it ran")
                trap.unlink()
    seconds = time.monotonic() - began
    print(f"{options.count} files in {seconds:.0f} s: turned down {refused.total()} ({dict(refused)}),")
    print(f"still programs after a random change: {taken.total()}; wrong: {len(wrong)}")
    for line in wrong[:20]:
        print(f"    {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
