"""Rows in every form that a caller may hold them in, beside NumPy in float64, row by row."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jitney import optimize
from tests._examples import examples

FORMS = {
    "whole": lambda row: row,
    "every second": lambda row: np.repeat(row, 2)[::2],
    "reversed": lambda row: row[::-1].copy()[::-1],
    "read only": lambda row: np.frombuffer(row.tobytes(), row.dtype),
    "a column": lambda row: np.stack([row, row], 1)[:, 0],
    "of JAX": jnp.asarray,
    "doubled": lambda row: row.astype(np.float64),
}


@optimize(vmap="row", pad={"n": [8, 16]}, cache=False)
def totals(x: Float[Array, "n"]):
    return jnp.sum(x) + x.shape[0], jnp.cumsum(x)


def holds(rows):
    sums, running = totals(rows)
    for row, total, own in zip(rows, sums, running, strict=True):
        exact = np.asarray(row, np.float64)
        np.testing.assert_allclose(total, exact.sum() + len(exact), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(own, np.cumsum(exact), rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 16), min_size=1, max_size=24),
    forms=st.lists(st.sampled_from(sorted({*FORMS} - {"doubled"})), min_size=1, max_size=3),
    seed=st.integers(0, 2**16),
)
@examples(
    {"lengths": [3, 0, 5, 16, 1, 9, 8, 2, 0, 11, 1, 7, 7, 12], "forms": ["whole"], "seed": 0},
    {"lengths": [9, 16, 11, 12, 10, 9, 15, 13, 14], "forms": ["whole", "every second"], "seed": 1},
    {"lengths": [3, 4, 5, 6, 7, 8, 2, 3, 4], "forms": ["reversed", "read only"], "seed": 2},
    {"lengths": [5, 12, 5, 1, 7], "forms": ["a column", "of JAX"], "seed": 3},
    {"lengths": [5, 12, 5, 16, 0], "forms": ["doubled"], "seed": 4},
)
def test_rows_of_any_form_are_as_they_are_alone(lengths, forms, seed):
    """Also once their numbers have changed in place, and once one has another length."""
    draw = np.random.default_rng(seed)
    plain = [draw.normal(size=length).astype(np.float32) for length in lengths]

    def formed():
        return [FORMS[forms[place % len(forms)]](row) for place, row in enumerate(plain)]

    rows = formed()
    holds(rows)
    for row in rows:
        if isinstance(row, np.ndarray) and row.flags.writeable:
            row *= -2
    holds(rows)
    rows[-1] = rows[0]
    holds(tuple(rows))
