"""Checks for `precision="f64"` inside an outer `jit` with 32-bit numbers: an error that names the
function, in place of a later one of JAX.

The arrays of the function have 64 bits there all the same, and most programs can be lowered so.
JAX's own error for one that cannot names an operation that nobody wrote, and comes only after the
outer function has been traced. Transforms that JAX applies to that outer function later, another
`vmap` or derivative around it, are out of sight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._body.body import CallPlanner
from ..._errors import OptionError, PrecisionWarning
from ..._jax.tracing import times_differentiated
from ..._jax.trees import Tracer, issubdtype
from ..._jax.typed import Jitted
from ..._owners import users_level

T = TypeVar("T")
_FIX = (
    'make the outer function the one with precision="f64", or call it inside `with'
    " jax.enable_x64(True):`."
)


def as_typed(arrays: Sequence[T]) -> tuple[T, ...]:
    """Return the arrays, and traced ones with values of the bits that their types have.

    JAX keeps a NumPy array that `vmap` or `jvp` is called with as it was given, and a float64 one
    is not the float32 that the trace says, once a program takes it in the scope of 64 bits.
    """
    return tuple(cast("T", jnp.copy(x)) if isinstance(x, Tracer) else x for x in arrays)


def check_lowering(
    body: CallPlanner,
    arrays: Sequence[object],
    jitted: Jitted,
) -> None:
    """Check that an outer program with 32-bit numbers can hold this one.

    JAX lowers some operations by tracing their implementation (`argmax`, random bits, Bessel
    functions). It does so when it lowers the outer program, under the x64 setting of that moment.

    Derivatives are tried too if the call is differentiated. Whether forward or backward is not
    known here: a program that only works forward gets a warning.

    Raises:
        OptionError: The outer program cannot hold it.
    """
    like: list[jax.ShapeDtypeStruct] = []
    for aval in map(jax.typeof, arrays):
        weak = bool(getattr(aval, "weak_type", False))
        like.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak))

    # Trace with 64 bits, lower with the setting around.
    with body.numbers():
        program = jitted.trace(*like)
    error = _lowering_error(program.lower)
    if error is not None:
        raise _not_in_32_bits(body, "", error) from error

    if not times_differentiated(arrays):
        return

    # Failing both ways is an error. Failing backward only is a warning, as the derivative may be
    # forward.
    forward, backward = (
        partial(jax.jit(derivative).lower, *like) for derivative in _derivatives(body, jitted, like)
    )
    error = _lowering_error(backward)
    if error is not None and _lowering_error(forward) is not None:
        raise _not_in_32_bits(body, ", differentiated", error) from error
    if error is not None and body.core.counters.warn_once("gradient in 32 bits"):
        how = ", differentiated backward (forward it works)"
        fix = f"take its gradient with `.grad`, a program of its own; or {_FIX}"
        text = str(_not_in_32_bits(body, how, error, fix))
        warnings.warn(text, PrecisionWarning, stacklevel=users_level())


def _derivatives(
    body: CallPlanner,
    jitted: Jitted,
    like: Sequence[jax.ShapeDtypeStruct],
) -> tuple[Callable[..., object], Callable[..., object]]:
    """Return the program under `jax.jvp` and under `jax.vjp`, for lowering where the numbers around
    it have 32 bits.
    """
    at = [i for i, x in enumerate(like) if issubdtype(x.dtype, np.inexact)]

    def directed(arrays: Sequence[object]) -> tuple[Callable[..., list[jax.Array]], list[object]]:
        def called(*varied: object) -> list[jax.Array]:
            given = [*arrays]
            for i, x in zip(at, varied, strict=True):
                given[i] = x
            with body.numbers():
                results = jax.tree.leaves(jitted(*given))
                return [out for out in results if issubdtype(out.dtype, np.inexact)]

        return called, [arrays[i] for i in at]

    def forward(*arrays: object) -> object:
        called, varied = directed(arrays)
        return jax.jvp(called, varied, varied)

    def backward(*arrays: object) -> object:
        called, varied = directed(arrays)
        out, pull = jax.vjp(called, *varied)
        return pull(out)

    return forward, backward


def _lowering_error(lower: Callable[[], object]) -> Exception | None:
    """Return JAX's error if it cannot lower a program with the current number types, else None."""
    try:
        with warnings.catch_warnings():
            # JAX's warning about 64-bit dtypes that it truncates, on the way.
            warnings.filterwarnings("ignore", "Explicitly requested dtype")
            lower()
    except (TypeError, ValueError) as error:
        return error
    return None


def _not_in_32_bits(
    body: CallPlanner,
    how: str,
    error: Exception,
    fix: str = _FIX,
) -> OptionError:
    reason = str(error).partition(". ")[0].rstrip(".")
    return OptionError(
        body.core.where,
        f'precision="f64" inside an outer `jit` whose numbers have 32 bits{how}: {reason}.',
        "JAX lowers the outer program as a whole, and an operation of this one is made of others"
        " there, with 32 bits.",
        fix,
        code="J201",
    )
