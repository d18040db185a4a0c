"""Hold the package to stricter rules than users get."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def _strict_dtype_promotion() -> Iterator[None]:
    """Make every silent promotion an error, in all threads (a `with jax.numpy_dtype_promotion`
    would cover only one).
    """
    before = jax.config.jax_numpy_dtype_promotion
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    yield
    jax.config.update("jax_numpy_dtype_promotion", before)
