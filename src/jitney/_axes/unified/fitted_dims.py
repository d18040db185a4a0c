"""Expressions of sizes through numbers that were seen at a few known sizes.

    66, 70, 82 at n = 67, 71, 83    n - 1
    33, 35, 41                      floordiv(n, 2)
    67, 70, 70                      min(n, 70)

An expression is a guess. It is right at the sizes it was made from; the witness decides at each
other size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

import numpy as np
from jax import core

from ..dims import Dim, evaluate

Sample = Mapping[str, int]
"""Symbol -> a known size."""

_DIVISORS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32, 64)
# Numbers that are added to a size in code as it is mostly written.
_NEAR = 2


def fit_dim(
    values: Sequence[int],
    samples: Sequence[Sample],
    dims: Mapping[str, Dim],
    *,
    plain: bool = False,
) -> Dim | None:
    """The simplest expression with these values at the samples; None if none was found.

    Args:
        values: One number for each sample.
        samples: The known sizes.
        dims: Symbol -> the symbolic size.
        plain: Whether to look among those alone that three numbers seldom fit by chance.
    """
    if len(set(values)) == 1:
        return values[0]
    for dim in _plain(values, samples, dims) if plain else _candidates(values, samples, dims):
        if all(
            evaluate(dim, sample) == value
            for value, sample in zip(
                values,
                samples,
                strict=True,
            )
        ):
            return dim
    return None


def _plain(
    values: Sequence[int],
    samples: Sequence[Sample],
    dims: Mapping[str, Dim],
) -> Iterator[Dim]:
    """Sums of symbols, min(n, 9) and n // 2, with a number of at most two."""
    varying = _varying(samples, dims)
    yield from _polynomial(values, samples, dims, [(name,) for name in varying])
    for name in varying:
        sizes = [sample[name] for sample in samples]
        yield from _clipped(values, sizes, dims[name], most=_NEAR)
        yield from _quotients(values, sizes, dims[name], most=1, near=_NEAR)


def _varying(
    samples: Sequence[Sample],
    dims: Mapping[str, Dim],
) -> list[str]:
    return [name for name in dims if len({sample[name] for sample in samples}) > 1]


def _candidates(
    values: Sequence[int],
    samples: Sequence[Sample],
    dims: Mapping[str, Dim],
) -> Iterator[Dim]:
    varying = _varying(samples, dims)
    sizes = {name: [sample[name] for sample in samples] for name in varying}
    # Sums of symbols first, then min(n, 9), n // 2, a product more, halves: n * (n + 1) // 2.
    yield from _polynomial(values, samples, dims, [(name,) for name in varying])
    for name in varying:
        yield from _clipped(values, sizes[name], dims[name], most=_NEAR)
    for name in varying:
        # Three numbers are always fitted by a square too, of which JAX can tell less.
        yield from _quotients(values, sizes[name], dims[name], most=1)
    for pair in combinations_with_replacement(varying, 2):
        for monomials in ([pair], [*((name,) for name in varying), pair]):
            yield from _polynomial(values, samples, dims, monomials)
            for dim in _polynomial([2 * each for each in values], samples, dims, monomials):
                yield dim // 2
    for name in varying:
        yield from _quotients(values, sizes[name], dims[name], near=_NEAR)
        yield from _clipped(values, sizes[name], dims[name])
        yield from _quotients(values, sizes[name], dims[name])


def _polynomial(
    values: Sequence[int],
    samples: Sequence[Sample],
    dims: Mapping[str, Dim],
    monomials: Sequence[tuple[str, ...]],
) -> Iterator[Dim]:
    """A sum of the monomials with whole coefficients, and a number."""
    # Fewer samples would be fitted by anything.
    if len(samples) <= len(monomials):
        return
    rows = [[1, *(_product(sample, names) for names in monomials)] for sample in samples]
    matrix = np.asarray(rows, np.float64)
    scale = np.abs(matrix).max(axis=0)
    exact = np.asarray(values, np.float64)
    found, _, rank, _ = np.linalg.lstsq(matrix / scale, exact, rcond=None)
    if rank < matrix.shape[1]:
        return
    first, *others = (round(each) for each in found / scale)
    dim: Dim = first
    for coefficient, names in zip(
        others,
        monomials,
        strict=True,
    ):
        if coefficient:
            dim = coefficient * _product(dims, names) + dim
    yield dim


def _product(
    sizes: Mapping[str, Dim],
    names: Sequence[str],
) -> Dim:
    out: Dim = 1
    for name in names:
        out = out * sizes[name]
    return out


def _quotients(
    values: Sequence[int],
    sizes: Sequence[int],
    dim: Dim,
    most: int | None = None,
    near: int | None = None,
) -> Iterator[Dim]:
    """Quotients by a small number, rounded down or up: of multiples of the size, and multiples of
    these, by at most the factor `most`, and a number of at most `near`.
    """
    (low, least), *_, (high, largest) = sorted(
        zip(
            sizes,
            values,
            strict=True,
        )
    )
    slope = (largest - least) / (high - low)
    for divisor in _DIVISORS:
        factor = round(slope * divisor)
        if not factor or (most is not None and abs(factor) > most):
            continue
        for shift in (0, divisor - 1, 1, -1, divisor // 2):
            for inner, outer in ((1, factor), (factor, 1)):
                more = values[0] - outer * ((inner * sizes[0] + shift) // divisor)
                if near is None or abs(more) <= near:
                    yield outer * ((inner * dim + shift) // divisor) + more


def _clipped(
    values: Sequence[int],
    sizes: Sequence[int],
    dim: Dim,
    most: int | None = None,
) -> Iterator[Dim]:
    """min(n + a, c), max(n + a, c) and the same of a - n, with a of at most `most` or c = 0."""
    least, *_, last = sorted(zip(sizes, values, strict=True))
    up, down = (core.min_dim, max(values)), (core.max_dim, min(values))
    for factor, (low, high) in ((1, (up, down)), (-1, (down, up))):
        for (size, value), (clip, end) in ((least, low), (last, high)):
            more = value - factor * size
            if most is None or abs(more) <= most or end == 0:
                yield clip(factor * dim + more, end)
