"""A mapped axis evaluated one element at a time, by a loop around the body in which branches stay
branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from .._jax.programs.jaxprs import calls_back
from .._jax.typed import DType
from .low_bits import as_bits, from_bits
from .typed_jax import jnp, lax, make_jaxpr

Parts = dict[int, jax.Array]
"""Position of an array that has the axis -> the array, or its part for one element."""


def map_sequentially(
    fn: Callable[..., Sequence[object]],
    dims: Sequence[int | None],
    *,
    is_differentiated: bool,
) -> Callable[..., list[jax.Array]]:
    """Map a function over an axis with the results of `jax.vmap`, by a loop, as `jax.lax.map` does.

    Under `jax.vmap` a `cond` whose predicate differs between elements becomes a select of both
    branches, and a `while_loop` runs for all elements until the slowest is done. Here both stay as
    they are.

    Args:
        fn: Function of the arrays of one element.
        dims: The position of the axis in each array; None for arrays that all elements share.
        is_differentiated: Whether JAX may differentiate through the loop. Then the body is
            rematerialised, so that only its arguments are stored; and arrays of low types are moved
            as numbers, since their bits have no derivative.
    """
    movable: Callable[[jax.Array], jax.Array] = jnp.asarray if is_differentiated else as_bits

    def looped(*arrays: jax.Array) -> list[jax.Array]:
        parts: Parts = {}
        for i, (x, dim) in enumerate(zip(arrays, dims, strict=True)):
            if dim is not None:
                parts[i] = movable(jnp.moveaxis(x, dim, 0))
        # Filled in when the body is traced: the bits of a result do not tell its dtype.
        dtypes: list[DType] = []

        def one(element: Parts) -> list[jax.Array]:
            values = list(arrays)
            for i, part in element.items():
                values[i] = from_bits(part, arrays[i].dtype)
            results = [jnp.asarray(x) for x in fn(*values)]
            dtypes[:] = [x.dtype for x in results]
            return [movable(x) for x in results]

        body = _rematerialise(one, parts) if is_differentiated else one
        results = lax.map(body, parts)
        return [from_bits(x, dtype) for x, dtype in zip(results, dtypes, strict=True)]

    return looped


def _rematerialise(
    one: Callable[[Parts], list[jax.Array]], parts: Parts
) -> Callable[[Parts], list[jax.Array]]:
    """Rematerialise the function of one element; unless it calls Python, since the callback would
    run twice.
    """
    elements = {
        i: jax.ShapeDtypeStruct(x.shape[1:], x.dtype, weak_type=x.weak_type)
        for i, x in parts.items()
    }
    program = make_jaxpr(one)(elements)
    if program.effects or calls_back(program):
        return one
    # The forward pass and the rematerialised one are in different loops, so XLA cannot merge them:
    # no barrier is needed.
    return jax.checkpoint(one, prevent_cse=False)
