"""What a refusal says of code that asks for a size as a number: the expression, and what does
without.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._axes import Refused, trace

X = np.arange(1, 6, dtype=np.float32)
TABLE = np.arange(20, dtype=np.float32)


def mean(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x) / len(x)


def as_float(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x) / float(x.shape[0])


def loop(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.stack([x[i] for i in range(x.shape[0])]))


def root(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x) / np.sqrt(x.shape[0]).astype(np.float32)


def logarithm(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x) / math.log(x.shape[0])


def prefix(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * TABLE[: x.shape[0]])


def repeated(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * jnp.array([1.0] * x.shape[0]))


def across_lines(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x) / int(
        # the expression stands on lines of its own
        x.shape[0]
    )


def as_tuple(größe: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.stack(tuple(größe))[0]


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (mean, r"\(mean\) needs to know a size, for `len\(x\)`; `x\.shape\[0\]` is the same"),
        (as_float, r"for `float\(x\.shape\[0\]\)`; `x\.shape\[0\]` alone will do"),
        (loop, r"for `range\(x\.shape\[0\]\)`; write `jax\.lax\.fori_loop`"),
        (root, r"for `np\.sqrt\(x\.shape\[0\]\)`; write `jnp\.sqrt`"),
        (logarithm, r"for `math\.log\(x\.shape\[0\]\)`; write `jnp\.log`"),
        (
            prefix,
            r"for `TABLE\[: x\.shape\[0\]\]`; write `jnp\.asarray\(TABLE\)\[:x\.shape\[0\]\]`",
        ),
        (repeated, r"for `\[1\.0\] \* x\.shape\[0\]`; write `jnp\.full`"),
        (across_lines, r"\(across_lines\) needs to know a size: "),
        (as_tuple, r"needs to know a size, for `tuple\(größe\)`"),
    ],
)
def test_a_refusal_names_the_expression_that_asks(fn, words):
    """Where no trace with symbolic sizes goes through."""
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    with pytest.raises(Refused, match=words):
        trace(lambda x: [fn(x)], avals, {"d0": (5, 8)}, {"d0": 5}, examples=False)


@pytest.mark.parametrize("fn", [loop, as_tuple])
def test_code_that_does_as_many_operations_as_its_size_says_is_refused(fn):
    """And runs at its exact size, as it does without `pad`."""
    program = jitney.optimize(pad={"n": "pow2"})(fn)
    with pytest.warns(jitney.JitneyWarning, match="needs to know a size"):
        np.testing.assert_allclose(program(X), fn(jnp.asarray(X)), rtol=1e-6)
