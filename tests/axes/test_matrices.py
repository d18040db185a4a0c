"""Matrices without a factor or an inverse, and with NaNs, on padded axes: what plain JAX says of
them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import linalg
from jaxtyping import Array, Float

import jitney
from jitney._axes import Refused, run_padded
from tests.axes import _cases as cases
from tests.axes.test_padded import GARBAGE, HIGH, padded, program

FUNCTIONS = {
    "cholesky": jnp.linalg.cholesky,
    "inverse": jnp.linalg.inv,
    "log-determinant": jnp.linalg.slogdet,
    "gradient of a determinant": jax.grad(jnp.linalg.det),
    "LU": linalg.lu_factor,
    "QR": jnp.linalg.qr,
    "singular values": jnp.linalg.svdvals,
    "lower triangle": lambda x: linalg.solve_triangular(x, x[0], lower=True),
    "upper triangle": lambda x: linalg.solve_triangular(x, x[0]),
}
SOLVED = ("inverse", "gradient of a determinant", "lower triangle", "upper triangle")


def matrices(n):
    """None of them as it should be, but for the first."""
    x = np.random.default_rng(n).integers(-4, 5, (n, n)).astype(np.float32)
    fine = x @ x.T + 9 * np.eye(n, dtype=np.float32)
    yield fine
    for row, column in ((0, 0), (2, 2), (2, 1), (n - 1, n - 1)):
        hole = fine.copy()
        hole[row, column] = hole[column, row] = np.nan
        yield hole
    for value in (0, np.nan):
        column, cross = fine.copy(), fine.copy()
        column[:, 1] = value
        cross[:, 2] = cross[2] = value
        yield from (column, cross)
    indefinite = fine.copy()
    indefinite[2, 2] = -9
    yield from (
        indefinite,
        np.zeros_like(x),
        np.full_like(x, np.nan),
        np.tril(fine) - np.diag(np.diag(fine)),
    )


@pytest.mark.rest
def test_infinite_pivots_beside_nans_leave_nothing_but_nans():
    """LAPACK makes zeros of some NaNs of such a column, as its blocks lie; no such zero is said to
    be a number.
    """
    x = np.full((33, 33), np.nan, np.float32)
    np.fill_diagonal(x, np.inf)
    case = cases.Case(
        "cholesky",
        lambda x: (jnp.linalg.cholesky(x, symmetrize_input=False), linalg.lu_factor(x)[0]),
        cases.SQUARE,
    )
    traced, _ = program(case, 33, 40)
    for factor in run_padded(
        traced.jaxpr, padded(case, [x], 40, GARBAGE), {"d0": 40}, {"d0": np.int32(33)}
    ):
        assert np.isnan(np.asarray(factor)[:33, :33][np.tril_indices(33)]).all()


def spoiled(rng, n):
    """A definite matrix with some elements of either triangle or the diagonal that are no numbers,
    or none.
    """
    x = rng.normal(size=(n, n)).astype(np.float32)
    x = x @ x.T + 9 * np.eye(n, dtype=np.float32)
    for _ in range(rng.integers(0, 4)):
        row, column = rng.integers(0, n, 2)
        row = column if rng.random() < 0.5 else row
        x[row, column] = np.inf if row == column else rng.choice([np.inf, -np.inf, np.nan])
    return x


@pytest.mark.rest
def test_what_a_cholesky_factor_says_beside_an_infinite_pivot():
    """NaNs if the lower triangle has another element that is no number; else what plain JAX says.
    The upper triangle is not read.
    """
    case = cases.Case(
        "cholesky",
        lambda x: jnp.linalg.cholesky(x, symmetrize_input=False),
        cases.SQUARE,
    )
    traced, _ = program(case)
    run = jax.jit(lambda n, x: run_padded(traced.jaxpr, [x], {"d0": HIGH}, {"d0": n}))
    rng = np.random.default_rng(0)
    seen = set()
    for n in (5, 7) * 60:
        x = spoiled(rng, n)
        (got,) = run(np.int32(n), *padded(case, [x], HIGH, GARBAGE))
        got, want = np.asarray(got)[:n, :n], np.asarray(case.exact([[x]])[0][0])
        at = np.tril_indices(n, -1)
        is_infinite = np.isinf(np.diag(want)).any()
        is_odd = not (np.isfinite(x[at]).all() and np.isfinite(want[at]).all())
        seen.add((is_infinite, is_odd))
        if is_infinite and is_odd:
            assert np.isnan(got[np.tril_indices(n)]).all()
        else:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert seen == {(False, False), (False, True), (True, False), (True, True)}


def without_infinities(name, numbers):
    """What a system's solution promises: where its pivot is zero, BLAS makes infinity or NaN of it
    as its kernels for this CPU lie.
    """
    return np.where(np.isinf(numbers), np.nan, numbers) if name in SOLVED else numbers


@pytest.mark.core("cholesky", "lower triangle")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_singular_matrices_and_nans_are_those_of_plain_jax(name):
    """What is not a number stands at the same places, and no pivot among the padding."""
    case = cases.Case(name, FUNCTIONS[name], cases.SQUARE)
    traced, _ = program(case)
    run = jax.jit(lambda n, x: run_padded(traced.jaxpr, [x], {"d0": HIGH}, {"d0": n}))
    for n in (5, 7):
        given = [*matrices(n)]
        for number, (x, wants) in enumerate(
            zip(given, case.exact([[x] for x in given]), strict=True)
        ):
            for got, want in zip(
                run(np.int32(n), *padded(case, [x], HIGH, GARBAGE)), wants, strict=True
            ):
                valid = np.asarray(got)[tuple(slice(0, size) for size in want.shape)]
                valid, want = (
                    without_infinities(name, valid),
                    without_infinities(name, np.asarray(want)),
                )
                np.testing.assert_allclose(
                    valid, want, rtol=1e-3, atol=1e-3, err_msg=f"matrix {number} at size {n}"
                )


@pytest.mark.rest
def test_complex_systems():
    """Their factors are Hermitian."""

    def body(x, b):
        matrix = jax.lax.complex(x, x.T)
        definite = matrix @ matrix.conj().T + 9 * jnp.eye(x.shape[0], dtype=matrix.dtype)
        return (
            jnp.linalg.solve(definite, b.astype(matrix.dtype)),
            jnp.linalg.cholesky(definite),
            jnp.linalg.qr(matrix),
        )

    case = cases.Case("complex", body, cases.SYSTEM, 1e-4)
    traced, _ = program(case)
    rng = np.random.default_rng(0)
    exact = [rng.normal(size=aval.shape).astype(aval.dtype) for aval in case.avals(6)]
    results = run_padded(
        traced.jaxpr, padded(case, exact, HIGH, GARBAGE), {"d0": HIGH}, {"d0": np.int32(6)}
    )
    for got, want in zip(results, case.flat(*exact), strict=True):
        np.testing.assert_allclose(
            np.asarray(got)[tuple(slice(0, size) for size in want.shape)],
            want,
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.rest
def test_a_batch_of_systems_of_a_batch_that_is_padded_too():
    """Each matrix is completed by itself, with as many of them as there are."""
    case = cases.Case(
        "batch",
        lambda x, b: jnp.linalg.solve(x + 9 * jnp.eye(x.shape[-1]), b[..., None]),
        [(("n", "n", "n"), np.float32), (("n", "n"), np.float32)],
    )
    traced, _ = program(case)
    rng = np.random.default_rng(0)
    exact = [rng.normal(size=aval.shape).astype(aval.dtype) for aval in case.avals(6)]
    (got,) = run_padded(
        traced.jaxpr, padded(case, exact, HIGH, GARBAGE), {"d0": HIGH}, {"d0": np.int32(6)}
    )
    want = np.linalg.solve(exact[0].astype(np.float64) + 9 * np.eye(6), exact[1][..., None])
    np.testing.assert_allclose(got[:6, :6], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("fn", "takes", "why"),
    [
        (
            lambda x: jnp.linalg.svd(x, full_matrices=False)[2],
            cases.M,
            r"takes singular vectors along it, whose signs change with it",
        ),
        (
            lambda x: jnp.linalg.eigh(x)[0],
            cases.SQUARE,
            r"takes eigenvectors along it, whose signs change with its size \(`eigh`\)",
        ),
        (
            lambda x: linalg.lu(x),
            cases.M,
            r"factorises matrices along it that are not square \(`lu`\)",
        ),
    ],
)
def test_what_changes_with_the_size_is_refused(fn, takes, why):
    """The reason is one of mathematics."""
    with pytest.raises(Refused, match=why):
        program(cases.Case("refused", fn, takes))


def test_a_function_that_has_the_name_of_a_pseudo_inverse_is_none():
    """Singular vectors are let through in JAX's own program alone."""

    @jax.jit
    def _pinv(x):
        u, s, v = jnp.linalg.svd(x, full_matrices=False)
        return (v.T / s) @ jnp.abs(u.T)

    with pytest.raises(Refused, match="takes singular vectors along it"):
        program(cases.Case("forged", _pinv, cases.M))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_tridiagonal_system_spreads_infinities_as_at_exact_size(n):
    """Of the right-hand side, at each place."""

    def solved(
        lower: Float[Array, "n"],
        diagonal: Float[Array, "n"],
        upper: Float[Array, "n"],
        b: Float[Array, "n k"],
    ) -> Float[Array, "n k"]:
        return jax.lax.linalg.tridiagonal_solve(lower, diagonal, upper, b)

    rng = np.random.default_rng(n)
    lower, upper = rng.normal(size=(2, n)).astype(np.float32)
    lower[0] = upper[-1] = 0
    b = rng.normal(size=(n, n + 1)).astype(np.float32)
    np.fill_diagonal(b, np.inf)
    given = lower, np.full(n, 4, np.float32), upper, b
    got = jitney.optimize(solved, pad={"n": [8]})(*given)
    np.testing.assert_allclose(got, jax.jit(solved)(*given), rtol=1e-4)
