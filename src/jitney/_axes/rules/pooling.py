"""Derivatives of pooling, for windows along other axes only: these treat each element of the named
axis alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..._jax.typed import Values
from ..dims import is_ragged
from ..interpreter import Op, PaddedInterpreter
from ..rule import Rule, Use, refuse
from .windows import sizes_of_windows

# Size, stride, padding (low, high) and the two dilations of a window of one element.
_ALONE = (1, 1, 0, 0, 1, 1)


def is_alone(op: Op, axis: int) -> bool:
    """Return whether each window along an axis consists of one element."""
    params = op.params
    sizes, strides, padding = (
        params[name] for name in ("window_dimensions", "window_strides", "padding")
    )
    ones = (1,) * len(sizes)
    base = params.get("base_dilation") or ones
    window = params.get("window_dilation") or ones
    return (sizes[axis], strides[axis], *padding[axis], base[axis], window[axis]) == _ALONE


def _uses(op: Op) -> Iterator[Use]:
    for axis, dim in enumerate(op.ins[0]):
        if is_ragged(dim) and not is_alone(op, axis):
            yield refuse(op, dim, "reduces windows along it")


def _evaluate(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    return walk.bind(op, values, **sizes_of_windows(walk, op))


RULES: dict[str, Rule] = dict.fromkeys(
    ("select_and_gather_add", "select_and_scatter_add"),
    Rule(_uses, _evaluate, at_once=True, at_size=True),
)
