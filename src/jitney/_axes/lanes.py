"""A mapped axis worked on one element after the other: the body itself in a loop, with branches
that stay branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from .._jax.jaxprs import calls_back
from .low_bits import as_bits, from_bits
from .typed_jax import jnp, lax, make_jaxpr

_jax: Any = jax


def one_by_one(
    fn: Callable[..., Sequence[Any]], dims: Sequence[int | None], *, is_differentiated: bool
) -> Callable[..., list[Any]]:
    """The function mapped over an axis as `jax.vmap` maps it, by a loop, as `jax.lax.map` does.

    Under `jax.vmap` a `cond` whose predicate differs between the elements becomes a select of both
    branches, and a `while_loop` goes on for all of them until the slowest is done. Here neither is
    touched.

    Args:
        fn: Takes the arrays of one element.
        dims: The position of the axis in each array; None for those that all elements share.
        is_differentiated: Whether JAX may go back through the loop. It keeps the arguments alone
            then, and runs the body again on the way back; and arrays of low types are moved as
            numbers, since their bits have no derivative.
    """
    kept = jnp.asarray if is_differentiated else as_bits

    def looped(*arrays: Any) -> list[Any]:
        parts = {
            i: kept(jnp.moveaxis(x, dim, 0))
            for i, (x, dim) in enumerate(zip(arrays, dims, strict=True))
            if dim is not None
        }
        dtypes: list[Any] = []

        def one(given: dict[int, Any]) -> list[Any]:
            values = [
                from_bits(given[i], x.dtype) if i in given else x for i, x in enumerate(arrays)
            ]
            results = [jnp.asarray(x) for x in fn(*values)]
            dtypes[:] = [x.dtype for x in results]
            return [kept(x) for x in results]

        results = lax.map(_recomputed(one, parts) if is_differentiated else one, parts)
        return [from_bits(x, dtype) for x, dtype in zip(results, dtypes, strict=True)]

    return looped


def _recomputed(
    one: Callable[[dict[int, Any]], list[Any]], parts: dict[int, Any]
) -> Callable[[dict[int, Any]], list[Any]]:
    """The function of one element, run again on the way back; as it is if it calls Python, which
    would be called twice then.
    """
    elements = {
        i: jax.ShapeDtypeStruct(x.shape[1:], x.dtype, weak_type=x.weak_type)
        for i, x in parts.items()
    }
    program = make_jaxpr(one)(elements)
    if program.effects or calls_back(program):
        return one
    # What runs forward and what is run again lie in loops of their own: nothing has to be kept
    # apart.
    return _jax.checkpoint(one, prevent_cse=False)
