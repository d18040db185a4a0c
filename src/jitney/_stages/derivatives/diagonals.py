"""The diagonal of a Hessian, whose sum is the Laplacian: without the mixed derivatives.

Each element is differentiated twice along itself, forward over forward: a Hessian's row takes a
backward pass for entries that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ... import _sparsity
from ..._axes import ranges_at_hand
from ..._host.own_time import OWN_TIME
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array
from .arguments import DerivedCall
from .decisions import note_decision

Scalar = Callable[[Array], Array]
"""The function, of one of the arrays alone."""

_UNROLLED = 8
"""Elements up to which each has operations of its own: XLA makes faster kernels of these than of a
batch, and as many more of them.
"""


class Diagonal(DerivedCall):
    """`hessian_diag` at one set of arguments."""

    def _hessian_diag(self) -> object:
        leaves, treedef = tree_flatten(self.at)
        with OWN_TIME.running():
            traced = jax.make_jaxpr(self._scalar)(self.at)
        ways, why = _sparsity.possible(traced, ("forward",))
        if ways == ("forward",):
            second, passes = _along_forward, "forward"
        else:
            second, passes = _along_reverse, "reverse"
        how = "two passes for each element along itself, no mixed derivatives"
        note_decision(f"forward over {passes}", f"{how}; {why}" if why else how)

        def alone(i: int) -> Scalar:
            def scalar(leaf: Array) -> Array:
                changed = [*leaves[:i], leaf, *leaves[i + 1 :]]
                return self._scalar(tree_unflatten(treedef, changed))

            return scalar

        parts = [_diagonal(alone(i), leaf, second) for i, leaf in enumerate(leaves)]
        return self._by_name(tree_unflatten(treedef, parts))


def _diagonal(
    scalar: Scalar,
    leaf: Array,
    second: Callable[[Scalar, Array, Array], Array],
) -> Array:
    """Second derivatives with respect to each element of an array, in its shape."""
    size, shape, dtype = leaf.size, leaf.shape, leaf.dtype
    # One form for all sizes of a padded axis.
    if not ranges_at_hand() and size <= _UNROLLED:
        units = np.eye(size, dtype=dtype).reshape(size, *shape)
        each = [second(scalar, leaf, jnp.asarray(unit)) for unit in units]
        return jnp.stack(each).reshape(shape) if each else jnp.zeros(shape, dtype)
    units = jnp.eye(size, dtype=dtype).reshape(size, *shape)
    return jax.vmap(lambda unit: second(scalar, leaf, unit))(units).reshape(shape)


def _along_forward(scalar: Scalar, at: Array, unit: Array) -> Array:
    """Second derivative along a direction."""

    def slope(at: Array) -> Array:
        return jax.jvp(scalar, (at,), (unit,))[1]

    return jax.jvp(slope, (at,), (unit,))[1]


def _along_reverse(scalar: Scalar, at: Array, unit: Array) -> Array:
    """The same of a function that has a backward pass alone."""
    _, row = jax.jvp(jax.grad(scalar), (at,), (unit,))
    return jnp.vdot(unit, row)
