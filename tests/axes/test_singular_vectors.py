"""Singular vectors are let through where no result depends on which of them LAPACK gives.

References: plain JAX at exact size; and each program that is let through gives the same with the
vectors of a matrix turned as they may be.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._axes.rules.singular_vectors import vectors_cancel
from jitney.errors import PaddingWarning

F32 = np.float32
EPS = float(np.finfo(F32).eps)
K = 1.5 * np.ones(
    (),
    F32,
)
TALL = jax.ShapeDtypeStruct(
    (7, 3),
    F32,
)
Vector = Float[Array, "n"]
Number = Float[Array, ""]


def svd(a):
    return jnp.linalg.svd(
        a,
        full_matrices=False,
    )


def inverse(
    s,
    cutoff,
):
    mask = s > cutoff
    return jnp.where(
        mask,
        1 / jnp.where(mask, s, 1),
        0,
    )


def solved(
    a,
    b,
    factor=10 * EPS,
):
    u, s, v = svd(a)
    return v.T @ (
        inverse(
            s,
            factor * s[0],
        )
        * (u.T @ b)
    )


def columns(a):
    """Projected onto its columns."""
    u, s, _ = svd(a)
    return u @ (
        jnp.where(
            s > 10 * EPS * s[0],
            1.0,
            0.0,
        )[:, None]
        * u.T
    )


def twice(a):
    first = jax.jit(svd)
    (u, s, v), (w, t, x) = first(a), first(2 * a)
    return v.T @ (
        inverse(
            s,
            1e-5 * s[0],
        )[:, None]
        * u.T
    ), x.T @ (
        inverse(
            t,
            1e-5 * t[0],
        )[:, None]
        * w.T
    )


def crossed(a):
    """The vectors of two matrices, of one program that is called twice."""
    first = jax.jit(svd)
    (u, s, _), (_, _, v) = first(a), first(2 * a)
    return v.T @ (
        inverse(
            s,
            1e-5 * s[0],
        )[:, None]
        * u.T
    )


CANCELS = {
    "least squares": lambda a: solved(
        a,
        a[:, 0],
    ),
    "of JAX": lambda a: jnp.linalg.lstsq(
        a,
        a[:, :2],
    )[0],
    "to its own eps": lambda a: solved(
        a,
        a[:, 0],
        EPS,
    ),
    "gradient by the right side": lambda a: jax.grad(
        lambda b: jnp.sum(
            solved(
                a,
                b,
            )
            ** 2
        )
    )(a[:, 0]),
    "projection": columns,
    "values beside": lambda a: (
        solved(
            a,
            a[:, 0],
        ),
        svd(a)[1],
    ),
    "of two matrices": twice,
}
DEPENDS = {
    "vectors": lambda a: svd(a)[0],
    "a vector": lambda a: svd(a)[2][0],
    "their magnitude": lambda a: jnp.abs(svd(a)[0]),
    "a sum of them": lambda a: jnp.sum(
        svd(a)[0],
        axis=1,
    ),
    "all that is not zero": lambda a: (
        jnp.where(
            svd(a)[1] > 0,
            1 / svd(a)[1],
            0,
        )
        @ svd(a)[0].T
    ),
    "zeros not left out": lambda a: svd(a)[2].T @ (svd(a)[0].T @ a[:, 0] / svd(a)[1]),
    "polar": lambda a: (lambda u, s, v: u @ v)(*svd(a)),
    "signs of zero": lambda a: (lambda u, s, v: (u * jnp.sign(s)) @ v)(*svd(a)),
    "a cutoff below eps": lambda a: solved(
        a,
        a[:, 0],
        EPS / 4,
    ),
    "a cutoff that is not relative": lambda a: (
        lambda u, s, v: (
            v.T
            @ (
                inverse(
                    s,
                    1e-3,
                )
                * (u.T @ a[:, 0])
            )
        )
    )(*svd(a)),
    "numbered": lambda a: (
        lambda u, s, v: (
            v.T
            @ (
                inverse(
                    s,
                    1e-5 * s[0],
                )
                * jnp.arange(3.0)
                * (u.T @ a[:, 0])
            )
        )
    )(*svd(a)),
    "reversed": lambda a: (
        lambda u, s, v: (
            v.T
            @ (
                inverse(
                    s,
                    1e-5 * s[0],
                )
                * (u.T @ a[:, 0])[::-1]
            )
        )
    )(*svd(a)),
    "squared": lambda a: (
        lambda u, s, v: (
            v.T
            @ (
                inverse(
                    s,
                    1e-5 * s[0],
                )
                * (u.T @ a[:, 0]) ** 2
            )
        )
    )(*svd(a)),
    "cumulated": lambda a: (
        lambda u, s, v: (
            v.T
            @ jnp.cumsum(
                inverse(
                    s,
                    1e-5 * s[0],
                )
                * (u.T @ a[:, 0])
            )
        )
    )(*svd(a)),
    "left by a column": lambda a: (
        lambda u, s, v: (
            inverse(
                s,
                1e-5 * s[0],
            )
            * u[0]
            @ jnp.eye(3)
        )
    )(*svd(a)),
    "of a loop": lambda a: jax.lax.fori_loop(
        0,
        2,
        lambda _, c: svd(c)[0],
        a,
    ),
    "crossed": crossed,
    "the gradient by the matrix": jax.grad(
        lambda a: jnp.sum(
            solved(
                a,
                a[:, 0],
            )
        )
    ),
}


@pytest.mark.parametrize("name", CANCELS)
def test_what_cancels_is_proven(name):
    assert vectors_cancel(jax.make_jaxpr(CANCELS[name])(TALL))


@pytest.mark.parametrize("name", DEPENDS)
def test_what_depends_on_the_vectors_is_not(name):
    assert not vectors_cancel(jax.make_jaxpr(DEPENDS[name])(TALL))


def rows(y):
    return jnp.stack(
        [jnp.ones_like(y), jnp.cos(y), 1 + y],
        axis=1,
    )


def lstsq(
    k: Number,
    y: Vector,
) -> Number:
    return jnp.sum(
        jnp.linalg.lstsq(
            rows(y),
            k * y,
        )[0]
        ** 2
    )


def by_hand(
    k: Number,
    y: Vector,
) -> Number:
    a = rows(y)
    u, s, v = svd(a)
    cutoff = np.float32(EPS * max(a.shape)) * s[0]
    return jnp.sum(
        (
            v.T
            @ (
                inverse(
                    s,
                    cutoff,
                )
                * (u.T @ (k * y))
            )
        )
        ** 2
    )


def deficient(
    k: Number,
    y: Vector,
) -> Number:
    """A column twice: which of the vectors of zero LAPACK gives does not count."""
    a = jnp.stack(
        [jnp.ones_like(y), y, y],
        axis=1,
    )
    return jnp.sum(
        jnp.linalg.lstsq(
            a,
            k * y + y**2,
            rcond=1e-4,
        )[0]
        ** 2
    )


def repeated(
    k: Number,
    y: Vector,
) -> Number:
    """Two values that are equal."""
    at = jnp.arange(y.shape[0])
    a = jnp.stack(
        [at == 0, at == 1],
        axis=1,
    ).astype(y.dtype)
    x, _, rank, s = jnp.linalg.lstsq(
        a,
        k * y,
    )
    return jnp.sum(x**3) + rank.astype(x.dtype) + jnp.sum(s)


def detrended(
    k: Number,
    y: Vector,
) -> Number:
    return jnp.sum(jax.scipy.signal.detrend(k * y) ** 3)


@pytest.mark.parametrize(
    "fn",
    [lstsq, by_hand, deficient, repeated, detrended],
)
def test_a_pseudo_inverse_is_padded_with_its_gradient(fn):
    """Without a warning, one program for all sizes of a bucket."""
    program = jitney.optimize(pad={"n": "pow2"})(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (11, 16, 9):
            y = (
                np.linspace(
                    0.1,
                    1,
                    n,
                    dtype=F32,
                )
                ** 2
            )
            got, slope = program.value_and_grad(
                K,
                y,
                wrt="k",
            )
            want, exact = jax.value_and_grad(fn)(
                K,
                y,
            )
            np.testing.assert_allclose(
                got,
                want,
                rtol=2e-4,
            )
            np.testing.assert_allclose(
                slope,
                exact,
                rtol=2e-4,
            )
    assert program.value_and_grad.stats.compiles == 1


def vanishing(
    k: Number,
    y: Vector,
) -> Number:
    a = rows(y)
    u, s, v = svd(a)
    cutoff = np.float32(1e-5 * a.shape[0] if a.shape[0] != 12 else 0.0) * s[0]
    return jnp.sum(
        (
            v.T
            @ (
                inverse(
                    s,
                    cutoff,
                )
                * (u.T @ (k * y))
            )
        )
        ** 2
    )


def above_two(
    k: Number,
    y: Vector,
) -> Number:
    """JAX compares two columns with the size."""
    return jnp.sum(
        jnp.linalg.lstsq(
            rows(y)[:, :2],
            k * y,
        )[0]
        ** 2
    )


def test_a_size_above_the_end_of_a_shorter_range_is_padded():
    """With symbols the bucket would end at 2; at known sizes it does not."""
    program = jitney.optimize(pad={"n": [16]})(above_two)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (11, 2, 16):
            y = (
                np.linspace(
                    0.1,
                    1,
                    n,
                    dtype=F32,
                )
                ** 2
            )
            np.testing.assert_allclose(
                program(K, y),
                above_two(K, y),
                rtol=2e-4,
            )
    assert program.stats.compiles == 1


def test_a_cutoff_of_the_size_is_demanded_at_each_size():
    """Python makes it zero at 12, where no vector of a zero would be left out."""
    program = jitney.optimize(pad={"n": "pow2"})(vanishing)
    y = np.linspace(
        0.1,
        1,
        16,
        dtype=F32,
    )
    np.testing.assert_allclose(
        program(K, y[:14]),
        vanishing(K, y[:14]),
        rtol=1e-3,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        np.testing.assert_allclose(
            program(K, y[:12]),
            vanishing(K, y[:12]),
            rtol=1e-3,
        )
    assert [each.category for each in told] == [PaddingWarning]
