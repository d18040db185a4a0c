"""A function with `precision="f64"` inside an outer `jit` whose numbers have 32 bits: what JAX
cannot make of it is said here.

Its arrays have 64 bits there all the same, and most programs can be lowered so. JAX's own error of
one that cannot names an operation that nobody wrote, and comes when the outer function has been
traced. What it makes of that outer function later, another `vmap` or derivative around it, is out
of sight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from .._body.body import Body
from .._errors import JitneyWarning, OptionError
from .._jax.tracing import times_differentiated
from .._jax.trees import issubdtype
from .._owners import users_level

_jax: Any = jax
_FIX = (
    'make the outer function the one with precision="f64", or call it inside `with'
    " jax.enable_x64(True):`."
)


def demand_lowered(body: Body, arrays: Sequence[Any], jitted: Any) -> None:
    """Check that an outer program whose numbers have 32 bits can hold this one.

    JAX lowers some operations by tracing what they are made of (`argmax`, random bits, Bessel
    functions). It does so when it lowers the outer program, with the setting of then.

    What JAX makes of it under a derivative is tried too. Whether that is one forward or backward
    nobody knows here: what works forward alone is a warning.

    Raises:
        OptionError: It cannot.
    """
    like = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=bool(getattr(x, "weak_type", False)))
        for x in map(jax.typeof, arrays)
    ]
    with body.numbers():
        program = jitted.trace(*like)
    error = _not_lowered(program.lower)
    if error is not None:
        raise _not_in_32_bits(body, "", error) from error
    if not times_differentiated(arrays):
        return
    forward, backward = (
        partial(_jax.jit(derivative).lower, *like)
        for derivative in _derivatives(body, jitted, like)
    )
    error = _not_lowered(backward)
    if error is not None and _not_lowered(forward) is not None:
        raise _not_in_32_bits(body, ", differentiated", error) from error
    if error is not None and body.core.counters.warn_once("gradient in 32 bits"):
        how, fix = (
            ", differentiated backward (forward it works)",
            f"take its gradient with `.grad`, a program of its own; or {_FIX}",
        )
        text = str(_not_in_32_bits(body, how, error, fix))
        warnings.warn(text, JitneyWarning, stacklevel=users_level())


def _derivatives(body: Body, jitted: Any, like: Sequence[Any]) -> tuple[Any, Any]:
    """What JAX makes of a program under `jax.jvp` and under `jax.vjp` where the numbers around it
    have 32 bits.
    """
    at = [i for i, x in enumerate(like) if issubdtype(x.dtype, np.inexact)]

    def directed(arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
        def called(*varied: Any) -> list[Any]:
            given = [*arrays]
            for i, x in zip(at, varied, strict=True):
                given[i] = x
            with body.numbers():
                return [
                    out
                    for out in _jax.tree.leaves(jitted(*given))
                    if issubdtype(out.dtype, np.inexact)
                ]

        return called, [arrays[i] for i in at]

    def forward(*arrays: Any) -> Any:
        called, varied = directed(arrays)
        return _jax.jvp(called, varied, varied)

    def backward(*arrays: Any) -> Any:
        called, varied = directed(arrays)
        out, pull = _jax.vjp(called, *varied)
        return pull(out)

    return forward, backward


def _not_lowered(lower: Callable[[], Any]) -> Exception | None:
    """What JAX says where it cannot lower a program with the numbers that are set now."""
    try:
        with warnings.catch_warnings():
            # which it says on the way
            warnings.filterwarnings("ignore", "Explicitly requested dtype")
            lower()
    except (TypeError, ValueError) as error:
        return error
    return None


def _not_in_32_bits(body: Body, how: str, error: Exception, fix: str = _FIX) -> OptionError:
    said = str(error).partition(". ")[0].rstrip(".")
    return OptionError(
        body.core.where,
        f'precision="f64" inside an outer `jit` whose numbers have 32 bits{how}: {said}.',
        "JAX lowers the outer program as a whole, and an operation of this one is made of others"
        " there, with 32 bits.",
        fix,
        code="J201",
    )
