"""Functions that are Equinox modules: their arrays become data, so that what is left has a hash and
a program can be kept for it.

Two modules of one structure then share a program, whatever numbers they hold.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np


@dataclass(frozen=True)
class Held:
    """A function whose arrays come as the first argument after x, in a tuple with those of
    others.
    """

    rest: Callable[..., Any]
    i: int

    def __call__(self, x: Any, held: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
        """Put it together and call it."""
        return eqx.combine(held[self.i], self.rest)(x, *args, **kwargs)


def without_arrays(*functions: Any) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
    """Arrays of each function, or `None` if none is a module, and the functions without them."""
    if not any(map(_is_module, map(type, functions))):
        return None, functions
    return eqx.partition(functions, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))


@lru_cache(maxsize=1024)
def _is_module(kind: type) -> bool:
    return issubclass(kind, eqx.Module)


def argument_names(fun: Callable[..., Any], count: int) -> list[str]:
    """Names of the first positional parameters of a function after x; empty where they have
    none.
    """
    if isinstance(fun, Held):
        return ["", *argument_names(fun.rest, count - 1)]
    kinds = inspect.Parameter
    parameters = [
        p.name
        for p in inspect.signature(fun).parameters.values()
        if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    names = parameters[1 : count + 1]
    return [*names, *[""] * (count - len(names))]


def parameter_names(fun: Any, count: int) -> list[str]:
    """What the user calls the parameters: the arguments of a model, or entries of x."""
    model = getattr(getattr(fun, "rest", fun), "model", None)
    if hasattr(model, "parameter_names"):
        return list(model.parameter_names)
    named = [""] * count if model is None else argument_names(model, count)
    letter = "x" if model is None else "p"
    return [name or f"{letter}[{i}]" for i, name in enumerate(named)]
