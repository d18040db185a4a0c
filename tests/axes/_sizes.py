"""Sizes of one bucket, and a comparison at each."""

import warnings

import numpy as np
from jaxtyping import Array, Float

from jitney import JitneyWarning

V = Float[Array, "n"]
SIZES = (299, 300, 512)  # one bucket


def agrees(padded, plain, n, rtol=0.0):
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitneyWarning)
        got = padded(x)
    np.testing.assert_allclose(got, plain(x), rtol=rtol, atol=0)
