"""The arguments of what is measured: put on the device before, and made again for what takes them
for itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._errors import OptionError, repr_of
from .._jax.trees import Tracer, device_put, is_a, issubdtype, tree_flatten, tree_map

_jax: Any = jax


@dataclass(frozen=True)
class Put:
    """Arguments on the device, and what it took to bring them there.

    Args:
        args, kwargs: What is called with.
        arrays: How many of them lay on the host.
        size: Their bytes.
        seconds: Until they were on the device.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arrays: int
    size: int
    seconds: float

    def copied(self) -> Put:
        """With arrays of their own, which may be donated."""
        args, kwargs = tree_map(_copy, (self.args, self.kwargs))
        _jax.block_until_ready((args, kwargs))
        return Put(args, kwargs, self.arrays, self.size, self.seconds)

    @property
    def taken(self) -> bool:
        """Whether a call has donated any of them."""
        return any(
            leaf.is_deleted()
            for leaf in tree_flatten((self.args, self.kwargs))[0]
            if is_a(leaf, jax.Array)
        )


def put(args: tuple[Any, ...], kwargs: dict[str, Any], *, on_device: bool) -> Put:
    """Bring NumPy's arrays to the device, where that is asked for.

    Raises:
        OptionError: There is nothing to measure on: an argument is being traced.
    """
    leaves = tree_flatten((args, kwargs))[0]
    if any(is_a(leaf, (Tracer, jax.ShapeDtypeStruct)) for leaf in leaves):
        raise OptionError(
            "jitney.measure()",
            "an argument has no value.",
            "Calls are timed on arrays, outside of any `jit` or `grad`.",
            "call it with arrays, at the top level of the program.",
            code="J208",
        )
    host = [leaf for leaf in leaves if on_device and _is_host(leaf)]
    start = time.perf_counter()
    if host:
        args, kwargs = tree_map(_put, (args, kwargs))
        _jax.block_until_ready((args, kwargs))
    return Put(
        args,
        kwargs,
        len(host),
        sum(leaf.nbytes for leaf in host),
        time.perf_counter() - start if host else 0.0,
    )


def check_calls(where: str, functions: Mapping[str, Any], kwargs: Any) -> None:
    """Check what is called, and with which arguments by name.

    Args:
        where: Who asks.
        functions: What is called, by the names of its parameters.
        kwargs: Arguments by name, or None.
    Raises:
        OptionError: It cannot be called, or these are no arguments by name.
    """
    for name, f in functions.items():
        if not callable(f):
            rule = "It is a function, which is called."
            raise OptionError(
                where,
                f"`{name}` is {shown(f)}.",
                rule,
                f"hand over a function as `{name}`.",
                code="J208",
            )
    if kwargs is not None and not (
        is_a(kwargs, Mapping) and all(is_a(name, str) for name in kwargs)
    ):
        rule = "It is a dict from names to arguments."
        raise OptionError(
            where, f"kwargs={shown(kwargs)}.", rule, 'write `kwargs={"x": x}`.', code="J208"
        )


def shown(value: Any) -> str:
    """A value, short."""
    text = repr_of(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


_LONG = 60


def _copy(leaf: Any) -> Any:
    return leaf.copy() if is_a(leaf, jax.Array) else leaf


def _put(leaf: Any) -> Any:
    return device_put(leaf) if _is_host(leaf) else leaf


def _is_host(leaf: Any) -> bool:
    return is_a(leaf, np.ndarray) and (leaf.dtype == np.bool_ or issubdtype(leaf.dtype, np.number))
