"""A program whose sums of 8-bit floats are accumulated in float32 and rounded once.

It is what docs/memory.md promises of chunks. XLA rounds such a sum on the way, in groups of its
own, so it can be a half away, and not finite where the sum is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jitney._jax.programs.jaxprs import scan_parts, while_parts

SUMS = (
    "reduce_sum",
    "reduce_prod",
    "cumsum",
    "cumprod",
    "dot_general",
    "scatter-add",
    "scatter_add",
    "reduce_window_sum",
    "psum",
    "add_any",
)
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def is_narrow(dtype: Any) -> bool:
    """If it is a float of eight bits."""
    return jax.dtypes.issubdtype(dtype, np.floating) and np.dtype(dtype).itemsize == 1


def rounded_once(theirs: Any, arrays: Mapping[str, Any]) -> Any:
    """The result of `theirs`, operation by operation, with each sum in float32."""
    closed, shape = jax.make_jaxpr(theirs, return_shape=True)(dict(arrays))
    out = _run(closed.jaxpr, closed.consts, jax.tree.leaves(dict(arrays)))
    return jax.tree.unflatten(jax.tree.structure(shape), out)


def _run(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

    def value(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else known[atom]

    for eqn in jaxpr.eqns:
        out = _one(eqn, [value(atom) for atom in eqn.invars])
        known |= dict(zip(eqn.outvars, out, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _closed(jaxpr: Any, given: Sequence[Any]) -> list[Any]:
    return _run(getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ()), given)


def _one(eqn: Any, given: list[Any]) -> list[Any]:
    params, name = eqn.params, eqn.primitive.name
    if name == "scan":
        return _scan(eqn, given)
    if name == "while":
        asked, held, carry = while_parts(eqn, given)
        while bool(_closed(params["cond_jaxpr"], [*asked, *carry])[0]):
            carry = _closed(params["body_jaxpr"], [*held, *carry])
        return carry
    if name == "cond":
        which = int(np.clip(int(given[0]), 0, len(params["branches"]) - 1))
        return _closed(params["branches"][which], given[1:])
    for inner in _INNER:
        if inner in params and name not in SUMS:
            return _closed(params[inner], given)

    dtypes = [var.aval.dtype for var in eqn.outvars]
    if name in SUMS and is_narrow(dtypes[0]):
        given = [jnp.asarray(x).astype(jnp.float32) if is_narrow(x.dtype) else x for x in given]
        if "preferred_element_type" in params:
            params = {**params, "preferred_element_type": jnp.dtype("float32")}
    made = eqn.primitive.bind(*given, **params)
    made = made if eqn.primitive.multiple_results else [made]
    return [x if x.dtype == d else x.astype(d) for x, d in zip(made, dtypes, strict=True)]


def _scan(eqn: Any, given: list[Any]) -> list[Any]:
    params, (consts, carry, xs) = eqn.params, scan_parts(eqn, given)
    length, made = params["length"], []
    for k in range(length)[::-1] if params["reverse"] else range(length):
        out = _closed(params["jaxpr"], [*consts, *carry, *(x[k] for x in xs)])
        carry, made = out[: len(carry)], [*made, out[len(carry) :]]
    made = made[::-1] if params["reverse"] else made
    like = params["jaxpr"].out_avals[len(carry) :]
    stacked = [
        jnp.stack([each[at] for each in made]) if made else jnp.zeros((0, *a.shape), a.dtype)
        for at, a in enumerate(like)
    ]
    return [*carry, *stacked]
