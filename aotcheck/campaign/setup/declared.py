"""What the module of a strategy says about it, in attributes: ``UNDRAWN``, ``FLOORS`` and ``INSPECT``."""

from collections.abc import Mapping
from typing import Any

from aotcheck.campaign.setup.settings import SettingsError
from aotcheck.named import module_of
from aotcheck.program import Feature
from aotcheck.program.vocabulary.traits import TRAITS

__all__ = ["floors_by", "inspection_by", "undrawn_by"]


def undrawn_by(spec: str) -> frozenset[str]:
    """The traits that the strategy which ``spec`` names says it never draws.

    A module says so in ``UNDRAWN``, a mapping from the names of its strategies. One that says nothing may draw all.

    Raises:
        SettingsError: the module cannot be imported, or says it otherwise.
    """
    undrawn = frozenset(_of_strategy(spec, "UNDRAWN") or ())
    if unknown := undrawn.difference(TRAITS):
        names = ", ".join(sorted(map(str, unknown)))
        module, _, attribute = spec.partition("?")[0].partition(":")
        raise SettingsError(f"UNDRAWN of '{module}' gives '{attribute}' what is no trait: {names}")
    return undrawn


def floors_by(spec: str) -> dict[str, float]:
    """The least share of programs with a feature (:class:`aotcheck.program.Feature`) that a strategy says it wants.

    A module says so in ``FLOORS``, a mapping from the names of its strategies to mappings from names of features. A
    strategy that is not in it wants none, and none are shown.

    Raises:
        SettingsError: the module cannot be imported, or says it otherwise.
    """
    said = _of_strategy(spec, "FLOORS") or {}
    module, _, attribute = spec.partition("?")[0].partition(":")
    if not isinstance(said, Mapping):
        raise SettingsError(f"FLOORS of '{module}' gives '{attribute}' a {type(said).__name__}, not a mapping")
    if unknown := set(said).difference(Feature.__members__):
        names = ", ".join(sorted(map(str, unknown)))
        raise SettingsError(f"FLOORS of '{module}' gives '{attribute}' what is no feature: {names}")
    return {feature: float(least) for feature, least in said.items()}


def inspection_by(spec: str, default: str) -> str:
    """The inspection (:class:`aotcheck.minimize.Subject`) that programs of a strategy must pass while minimized.

    A module names its own in ``INSPECT``: a function of a program that raises where the outcome is not well defined, or
    ``module:attribute`` of one, or None for no inspection at all.

    Args:
        spec: the strategy.
        default: the inspection of a module that names none.

    Raises:
        SettingsError: the module cannot be imported, or says it otherwise.
    """
    module = spec.partition(":")[0]
    said = getattr(_module(spec), "INSPECT", default)
    if callable(said):
        return f"{module}:INSPECT"
    if said is None or isinstance(said, str):
        return said or ""
    raise SettingsError(f"INSPECT of '{module}' is a {type(said).__name__}, not a function or the name of one")


def _of_strategy(spec: str, attribute: str) -> Any:
    """What ``attribute`` of the module says of the strategy."""
    said = getattr(_module(spec), attribute, {})
    module, _, name = spec.partition("?")[0].partition(":")
    if not isinstance(said, Mapping):
        raise SettingsError(
            f"{attribute} of '{module}' is a {type(said).__name__}, not a mapping from names of strategies"
        )
    return said.get(name)


def _module(spec: str) -> Any:
    try:
        return module_of(spec)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise SettingsError(f"strategy '{spec}' cannot be imported: {' '.join(str(error).split())}") from error
