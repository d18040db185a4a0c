"""Random numbers: a draw for each row, if that row's draw does not depend on how many rows there are.

JAX's default generator counts the elements (`jax_threefry_partitionable`), so the draws of the leading rows are the same
whatever follows them. Another generator, or a size behind the leading axis, would draw other numbers, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from ..dims import is_ragged
from ..rule import Rule, Use, ragged_dims, refuse
from ..walk import Op, Walk


def _uses(op: Op) -> Iterator[Use]:
    shape = op.params["shape"]
    dims = ragged_dims(shape)
    options: Any = jax.config
    if not dims:
        return
    counted = options.jax_threefry_partitionable and str(op.eqn.invars[0].aval.dtype) == "key<fry>"
    if not counted:
        yield refuse(op, dims, "draws random numbers from a generator whose draws depend on how many there are")
    elif any(map(is_ragged, shape[1:])):
        yield refuse(op, dims, "draws random numbers with it behind the leading axis, so that they depend on its size")


def _draw(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    return walk.bind(op, values, shape=walk.shape(op.params["shape"]))


# A row's draw is that of its position, and what is drawn in a chunk would begin anew.
RULES: dict[str, Rule] = dict.fromkeys(("random_bits", "random_split"), Rule(_uses, _draw, whole="a draw of random numbers"))
