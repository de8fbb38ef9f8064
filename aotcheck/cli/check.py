"""``aotcheck check``: one function of the user's own under every variation of its inputs and calls."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from aotcheck.cli.base import Usage

if TYPE_CHECKING:
    from aotcheck.checking.subject import Given


@click.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--inputs",
    required=True,
    help="What makes the arguments, as MODULE:FUNCTION, or the arguments: 'float32[2,3]+grad int64[4]'.",
)
@click.option("--backend", default="aotcheck", show_default=True, help="What to test: a name or module:callable.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--only", multiple=True, help="Variations to try: 'as given,transposed'. Default: all.")
@click.option("--exact", is_flag=True, help="Values must be equal bitwise.")
def check(function: str, inputs: str, backend: str, device: str, only: tuple[str, ...], exact: bool) -> None:
    """Compare a function of yours with its compiled form: aliasing, layouts, requires_grad, contexts, second calls.

    FUNCTION is a function over tensors, a module, or a custom op. Exits 0 when it does as eager does, 1 if it differs.
    """
    from aotcheck.backends import BackendError
    from aotcheck.campaign import ExitCode
    from aotcheck.checking import VARIATIONS
    from aotcheck.checking import check as compare
    from aotcheck.report.checking import print_report
    from aotcheck.report.console import Console

    variations = [name for text in only for name in _variations(text, VARIATIONS)]
    named, given = _named(function), _given(inputs, device)
    _require_callable_with(function, named, given)
    try:
        report = compare(named, given, backend, device=device, variations=variations or None, exact=exact)
    except BackendError as error:
        raise Usage(str(error)) from error
    print_report(report, Console())
    sys.exit(int(ExitCode.CLEAN if report.agrees else ExitCode.FINDINGS))


def _variations(text: str, known: Collection[str]) -> list[str]:
    """The variations that ``text`` names, separated by commas; names may hold commas themselves."""
    pieces, found = [piece.strip() for piece in text.split(",")], list[str]()
    while pieces:
        lengths = (n for n in range(len(pieces), 0, -1) if ", ".join(pieces[:n]) in known)
        length = next(lengths, 0)
        if not length:
            near = difflib.get_close_matches(pieces[0], known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are: {'; '.join(known)}"
            raise Usage(f"no variation is called '{pieces[0]}'; {hint}")
        found.append(", ".join(pieces[:length]))
        pieces = pieces[length:]
    return found


def _require_callable_with(spec: str, function: Callable[..., Any], given: Given) -> None:
    """Say so at once if the arguments are too few or too many: eager would refuse every variation, and so agree."""
    import torch

    from aotcheck.checking.subject import as_maker

    try:
        args = as_maker(given)()
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise Usage(f"making the inputs failed: {next(iter(str(error).splitlines()), type(error).__name__)}") from error
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        raise Usage(f"'{spec}' cannot be called with these {len(args)} inputs: {error}") from error


def _given(inputs: str, device: str) -> Given:
    from aotcheck.checking.inputs import InputsSyntaxError, inputs_from

    if ":" in inputs:
        return _named(inputs)
    try:
        return inputs_from(inputs, device)
    except InputsSyntaxError as error:
        raise Usage(str(error)) from error


def _named(spec: str) -> Callable[..., Any]:
    """What ``module:attribute`` names."""
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise Usage(f"'{spec}' names nothing; write package.module:function")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise Usage(
            f"importing '{module}' failed: {next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise Usage(f"'{module}' has no callable '{attribute}'")
    function: Callable[..., Any] = found
    return function
