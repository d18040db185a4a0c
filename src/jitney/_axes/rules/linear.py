"""Contractions and transforms: an axis that is summed over gets zeros for padding, any other axis
may keep what it has.

The theorem is that 0 * 0 adds nothing to a sum. Both operands are cleared, since 0 times an
infinity or a NaN in the padding of the other one is a NaN. Convolutions, where an element meets
others than its own, are in `convolution.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..._jax.typed import Values
from ..carriers.folds import Fold
from ..interpreter import Op, PaddedInterpreter, zero_of
from ..monoids import MONOIDS
from ..rule import Rule, Use, evaluate_unchanged, ragged_dims, refuse, use

# dot_general.


def _dot_uses(op: Op) -> Iterator[Use]:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = op.ins
    of_left = [a[axis] for axis in left]
    of_right = [b[axis] for axis in right]
    dims = ragged_dims(of_left + of_right)
    if dims:
        yield use(op, dims, "contracted", monoid=MONOIDS["add"])


def _dot(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (left, right), _ = op.params["dimension_numbers"]
    a, b = values
    a_dims, b_dims = op.ins
    a = walk.keep(a, a_dims, left, zero_of(a))
    b = walk.keep(b, b_dims, right, zero_of(b))
    return walk.bind(op, [a, b])


# Fourier transform.


def _fft_uses(op: Op) -> Iterator[Use]:
    lengths = op.params["fft_lengths"]
    dims = ragged_dims((*op.ins[0][-len(lengths) :], *lengths))
    if dims:
        yield refuse(op, dims, "transforms along it")


RULES: dict[str, Rule] = {
    "dot_general": Rule(_dot_uses, _dot, Fold(MONOIDS["add"])),
    "fft": Rule(_fft_uses, evaluate_unchanged),
}
