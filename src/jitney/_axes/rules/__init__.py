"""The one table: what every operation of JAX that is known does along an axis, by family.

An operation that is not here is refused as soon as a symbolic size touches it.
"""

from ..rule import Rule as Rule
from . import (
    callback,
    control,
    elementwise,
    index,
    linear,
    mapped,
    matrices,
    order,
    pooling,
    random,
    reduce,
    shape,
    windows,
)

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **shape.RULES,
    **reduce.RULES,
    **mapped.RULES,
    **windows.RULES,
    **linear.RULES,
    **matrices.RULES,
    **order.RULES,
    **index.RULES,
    **random.RULES,
    **control.RULES,
    **callback.RULES,
    **pooling.RULES,
}
