"""A function and its arguments as text, for the command line and for worker processes."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from aotcheck.checking.inputs import InputsSyntaxError, inputs_from
from aotcheck.checking.subject import Given, as_maker

__all__ = ["SpecError", "function_named", "inputs_named", "require_callable_with"]


class SpecError(ValueError):
    """A text names no function or no arguments. The message is one line, meant for the user."""


def require_callable_with(spec: str, function: Callable[..., Any], given: Given) -> None:
    """Say so at once if the arguments are too few or too many: eager would refuse every variation.

    Raises:
        SpecError: they are, or they cannot be made.
    """
    try:
        args = as_maker(given)()
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise SpecError(
            f"making the inputs failed: {next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        raise SpecError(f"'{spec}' cannot be called with these {len(args)} inputs: {error}") from error


def inputs_named(inputs: str, device: str) -> Given:
    """What makes the arguments: what ``module:attribute`` names, or the tensors that a line describes.

    Raises:
        SpecError: there is no such thing.
    """
    if ":" in inputs:
        return function_named(inputs)
    try:
        return inputs_from(inputs, device)
    except InputsSyntaxError as error:
        raise SpecError(str(error)) from error


def function_named(spec: str) -> Callable[..., Any]:
    """The function that ``module:attribute`` names.

    Raises:
        SpecError: there is none.
    """
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise SpecError(f"'{spec}' names nothing; write package.module:function")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise SpecError(
            f"importing '{module}' failed: {next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SpecError(f"'{module}' has no callable '{attribute}'")
    function: Callable[..., Any] = found
    return function
