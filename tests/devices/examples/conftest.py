"""The examples' own rules."""

import pytest


@pytest.fixture(autouse=True)
def _strict_dtype_promotion():
    """Not here: optax and the examples promote an int to a float where they need to."""
