"""Factorisations and solves of padded matrices.

A square matrix A is completed to diag(A, I). Cholesky, LU and triangular solves of a block-diagonal
matrix are block-diagonal, and the block of A is the result of plain JAX. For QR and singular values
A is bordered by zeros, which change neither Householder reflections nor non-zero singular values.
Batch axes need no mask, since each matrix is factorised alone.

    cholesky of 5 valid rows, 8 allocated:   A 0   ->   L 0
                                             0 I        0 I
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from ..._jax.programs.jaxprs import abstract, called_jaxpr, equations, programs
from ..._jax.programs.primitives import CALLS, FACTORISATIONS
from ..._jax.typed import JaxprEqn, Values
from ..dims import Dim, is_ragged
from ..interpreter import Op, PaddedInterpreter, zero_of
from ..rule import Rule, Use, evaluate_unchanged, ragged_dims, refuse, use
from ..symbolic.jax_sizes import exact_position_dtypes
from ..typed_jax import InconclusiveDimensionOperation, jnp, lax, make_jaxpr


def _matrix_dims(op: Op) -> list[Dim]:
    """The symbolic sizes among the last two axes of the operands."""
    return ragged_dims(dim for operand in op.ins for dim in operand[-2:])


def _uses(what: str) -> Callable[[Op], Iterator[Use]]:
    def uses(op: Op) -> Iterator[Use]:
        dims = _matrix_dims(op)
        if dims:
            yield use(op, dims, "mixed", what)

    return uses


def _refusing(why: str) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = _matrix_dims(op)
        if dims:
            yield refuse(op, dims, why)

    return Rule(uses, evaluate_unchanged)


def _pad_with_zeros(
    walk: PaddedInterpreter,
    x: jax.Array,
    dims: Sequence[Dim],
) -> jax.Array:
    """Replace the padding of matrices by zeros."""
    last = len(dims) - 1
    axes = [last - 1, last]
    return walk.keep(x, dims, axes, zero_of(x))


def _pad_with_identity(
    walk: PaddedInterpreter,
    x: jax.Array,
    dims: Sequence[Dim],
) -> jax.Array:
    """Replace the padding of square matrices so that they are diag(valid part, identity)."""
    rows = len(dims) - 2
    size = dims[rows]
    if not is_ragged(size) or walk.is_full(size):
        return x
    diagonal = lax.eq(*_rows_and_columns(x))
    identity = lax.convert_element_type(diagonal, x.dtype)
    return lax.select(walk.inside_all(dims, [rows, rows + 1]), x, identity)


def _rows_and_columns(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The number of each element's row, and that of its column."""
    rows = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 2)
    columns = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
    return rows, columns


# Cholesky and triangular systems: diag(A, I) = diag(L, I) diag(L, I)^H, and a substitution runs
# through blocks that do not read each other.


def _cholesky(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    dims = op.ins[0]
    if not is_ragged(dims[-1]):
        return walk.bind(op, values)
    x = _pad_with_identity(walk, values[0], dims)
    (factor,) = walk.bind(op, [x])
    return [_nan_at_infinite_pivot(factor, x, lower_only=True)]


def _nan_at_infinite_pivot(
    factor: jax.Array,
    x: jax.Array,
    *,
    lower_only: bool = False,
) -> jax.Array:
    """The factor, or NaNs if a pivot is infinite and another element is not finite.

    LAPACK turns the column of such a pivot into zeros or NaNs depending on the blocks in which it
    works, and its blocks depend on the size: plain JAX and the padded program would differ.

    Args:
        factor: The factor; its lower triangle is looked at.
        x: The matrix.
        lower_only: Whether the lower triangle of the matrix is looked at, or the whole.
    """
    # By columns, in which LAPACK stores them: across them, XLA reads 512 rows half as fast.
    x, by_columns = jnp.swapaxes(x, -1, -2), jnp.swapaxes(factor, -1, -2)
    columns, rows = _rows_and_columns(x)
    pivots, in_lower = lax.eq(rows, columns), lax.ge(rows, columns)

    # A pivot that is infinite, and an element that is not finite and no such pivot.
    infinite = jnp.isinf(by_columns) & pivots
    if lower_only:
        odd = ~(jnp.isfinite(x) & jnp.isfinite(by_columns)) & in_lower
    else:
        odd = ~(jnp.isfinite(x) & (jnp.isfinite(by_columns) | ~in_lower))
    others = jnp.where(pivots, jnp.isnan(x), odd)

    # One sum finds out whether the matrix has both: inf - inf is NaN, in whatever order one adds.
    zero, inf = np.float32(0), np.float32(np.inf)
    signs = jnp.where(infinite, inf, zero) - jnp.where(others, inf, zero)
    has_both = jnp.isnan(jnp.sum(signs, (-2, -1), keepdims=True))
    return jnp.where(has_both, np.asarray(np.nan, x.dtype), factor)


def _systems(op: Op) -> int:
    """The axis of the right-hand sides along which systems are solved; the other axis numbers the
    systems.
    """
    rank = len(op.ins[1])
    return rank - 2 if op.params["left_side"] else rank - 1


def _triangular_uses(op: Op) -> Iterator[Use]:
    dim = op.ins[1][_systems(op)]
    if is_ragged(dim):
        yield use(op, dim, "mixed", "solved along it")


def _triangular(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    a, b = values
    a_dims, b_dims = op.ins
    a = _pad_with_identity(walk, a, a_dims)
    axis = _systems(op)
    b = walk.keep(b, b_dims, [axis], zero_of(b))
    return walk.bind(op, [a, b])


# LU: the identity block goes in front, diag(I, A). Its columns pivot on themselves, and its rows
# are zero in the columns of A, so elimination leaves A alone. With the identity block behind A, a
# column of zeros or NaNs in A would fill rows of padding with NaNs, and one of these rows could
# become a pivot.


def _lu_uses(op: Op) -> Iterator[Use]:
    rows, columns = op.ins[0][-2:]
    dims = ragged_dims((rows, columns))
    if dims and str(rows) != str(columns):
        yield refuse(op, dims, "factorises matrices along it that are not square")
    elif dims:
        yield use(op, rows, "mixed", "factorised along it")


def _lu(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    (x,), (dims,) = values, op.ins
    rows, columns = x.ndim - 2, x.ndim - 1
    size = dims[rows]
    if not is_ragged(size) or walk.is_full(size):
        return walk.bind(op, values)

    # Rotate rows and columns: diag(A, I) -> diag(I, A). Rotate the factors back; pivots count from
    # the first row of A again.
    count = walk.count(size)
    allocated = np.int32(x.shape[rows])
    front = lax.sub(allocated, count)
    x = _pad_with_identity(walk, x, dims)
    x = _rotate(_rotate(x, rows, count), columns, count)
    lu, pivots, permutation = walk.bind(op, [x])
    places = [
        lax.sub(_rotate(each, rows, front), lax.broadcast(front, each.shape))
        for each in (pivots, permutation)
    ]
    lu = _nan_at_infinite_pivot(lu, x)
    lu = _rotate(_rotate(lu, rows, front), columns, front)
    return [lu, *places]


def _rotate(x: jax.Array, axis: int, start: jax.Array) -> jax.Array:
    """Rotate an axis so that it begins at `start`."""
    twice = lax.concatenate([x, x], axis)
    return lax.dynamic_slice_in_dim(twice, start, x.shape[axis], axis)


def _permutation_uses(op: Op) -> Iterator[Use]:
    count, size = op.ins[0][-1], op.params["permutation_size"]
    dims = ragged_dims((count, size))
    if dims:
        yield use(op, dims, "mixed", "permuted along it")


def _permutation(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    """Permutation of the pivots, in which a row of padding is swapped with itself."""
    (pivots,), dims = values, op.ins[0]
    axis = len(dims) - 1
    if is_ragged(dims[axis]):
        inside = walk.inside(dims, axis)
        own = lax.broadcasted_iota(pivots.dtype, pivots.shape, axis)
        pivots = lax.select(inside, pivots, own)
    (size,) = walk.shape([op.params["permutation_size"]])
    return walk.bind(op, [pivots], permutation_size=size)


# Householder's method: rows of zeros add nothing to a column's norm and stay zero under each
# reflection; the reflection of a column of zeros is the identity.


def _qr_uses(op: Op) -> Iterator[Use]:
    dims = _matrix_dims(op)
    if dims and op.params.get("pivoting"):
        yield refuse(
            op, dims, "factorises matrices along it with columns in an order that rounding decides"
        )
    elif dims:
        yield use(op, dims, "mixed", "factorised along it, by Householder's method")


def _householder(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    padded = _pad_with_zeros(walk, values[0], op.ins[0])
    return walk.bind(op, [padded])


def _product(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    reflectors, scales = values
    matrix_dims, scale_dims = op.ins
    reflectors = _pad_with_zeros(walk, reflectors, matrix_dims)
    last = scales.ndim - 1
    scales = walk.keep(scales, scale_dims, [last], zero_of(scales))
    return walk.bind(op, [reflectors, scales])


def _reflect(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    """Multiply by the orthogonal factor: reflectors that are zero in the padding leave it alone."""
    reflectors, scales, x = values
    matrix_dims, scale_dims, dims = op.ins
    reflectors = _pad_with_zeros(walk, reflectors, matrix_dims)
    scales = walk.keep(scales, scale_dims, [scales.ndim - 1], zero_of(scales))
    return walk.bind(op, [reflectors, scales, _pad_with_zeros(walk, x, dims)])


# A tridiagonal system: in front of the valid rows the identity, which no row is coupled to. Behind
# them elimination would carry an infinity of the last row on, and 0 times it back.


def _tridiagonal_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims([op.ins[1][-1]])
    if dims:
        yield use(op, dims, "mixed", "solved along it")


def _tridiagonal(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    lower, diagonal, upper, b = values
    dims, b_dims = op.ins[1], op.ins[3]
    last = len(dims) - 1
    size = dims[last]
    if not is_ragged(size) or walk.is_full(size):
        return walk.bind(op, values)
    count = walk.count(size)
    allocated = np.int32(diagonal.shape[last])
    lower = walk.keep(lower, dims, [last], zero_of(lower))
    upper = walk.keep(upper, dims, [last], zero_of(upper))
    diagonal = walk.keep(
        diagonal,
        dims,
        [last],
        np.ones((), diagonal.dtype),
    )
    # The first element of the lower diagonal stands beside no column.
    positions = lax.broadcasted_iota(np.int32, lower.shape, last)
    lower = jnp.where(positions > 0, lower, zero_of(lower))
    rows = b.ndim - 2
    b = walk.keep(b, b_dims, [rows], zero_of(b))
    bands = [_rotate(x, last, count) for x in (lower, diagonal, upper)]
    (out,) = walk.bind(op, [*bands, _rotate(b, rows, count)])
    return [_rotate(out, rows, lax.sub(allocated, count))]


# Singular values: a border of zeros adds singular values of zero only, and the values descend, so
# that the new ones come last.


def _svd_uses(op: Op) -> Iterator[Use]:
    dims = _matrix_dims(op)
    if not dims:
        return
    if op.params["compute_uv"]:
        yield refuse(op, dims, "takes singular vectors along it, whose signs change with its size")
    elif op.params["subset_by_index"] is not None:
        yield refuse(op, dims, "takes some of the singular values along it")
    else:
        yield use(op, dims, "mixed", "its singular values")


# Singular vectors are refused, but in a pseudo-inverse V diag(1/s) U^H each left vector meets its
# right partner, so that signs cancel; so do the rotations among vectors of equal singular values;
# and vectors of a zero value are left out. The equations of a program do not show this, so its
# jaxpr must equal the one that JAX traces for these functions.


_PSEUDO_INVERSES = {"_pinv": jnp.linalg.pinv, "_lstsq": jnp.linalg.lstsq}
"""Name of the called jaxpr -> the JAX function that it is traced from."""


def is_pseudo_inverse(op: Op) -> bool:
    """Return whether an operation is a call of `jnp.linalg.pinv` or `lstsq`, of arrays and an
    optional tolerance: the two programs in which an SVD with vectors is allowed.
    """
    name = op.params.get("name")
    if op.name not in CALLS or not isinstance(name, str):
        return False
    fn = _PSEUDO_INVERSES.get(name)
    if fn is None:
        return False
    structs = [abstract(atom.aval) for atom in op.eqn.invars]
    # A user's function may have the same name, and take other arguments.
    try:
        with exact_position_dtypes():
            own = make_jaxpr(fn)(*structs)
    except (TypeError, ValueError, InconclusiveDimensionOperation):
        return False
    mine = _text(op.eqn)
    if mine is None:
        return False
    named = (eqn for eqn in equations(own) if eqn.params.get("name") == name)
    return any(_text(eqn) == mine for eqn in named)


def _text(eqn: JaxprEqn) -> str | None:
    """The printed jaxpr of a call; None if it closes over arrays, which printing leaves out."""
    program = called_jaxpr(eqn)
    held = [program]
    for inner in equations(program):
        held += programs(inner.params)
    closes_over = any(getattr(each, "consts", ()) for each in held)
    return None if closes_over else str(program)


_OTHERS = {
    "eig": "takes eigenvalues along it, whose order changes with its size",
    "eigh": "takes eigenvectors along it, whose signs change with its size",
    "schur": "takes a Schur form along it, whose signs and order change with its size",
}


def _whole(
    uses: Callable[[Op], Iterator[Use]],
    pad: Callable[[PaddedInterpreter, Op, Values], Values],
) -> Rule:
    """A rule of an operation that runs at once where its axis is cut, as plain JAX does it: signs
    and orders that change with the size are those of this size then.
    """
    return Rule(uses, pad, at_once=True, at_size=True)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (*sorted(FACTORISATIONS), "tridiagonal"),
        _refusing("factorises matrices along it"),
    ),
    **{name: _refusing(why) for name, why in _OTHERS.items()},
    "cholesky": Rule(_uses("factorised along it"), _cholesky),
    "triangular_solve": _whole(_triangular_uses, _triangular),
    "lu": _whole(_lu_uses, _lu),
    "lu_pivots_to_permutation": _whole(_permutation_uses, _permutation),
    "qr": _whole(_qr_uses, _householder),
    "geqrf": _whole(_uses("factorised along it, by Householder's method"), _householder),
    "householder_product": _whole(_uses("multiplied along it"), _product),
    "ormqr": _whole(_uses("multiplied along it"), _reflect),
    "tridiagonal_solve": _whole(_tridiagonal_uses, _tridiagonal),
    "svd": _whole(_svd_uses, _householder),
}
