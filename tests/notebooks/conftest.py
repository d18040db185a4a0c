"""One kernel for the cells of a file."""

from collections.abc import Iterator

import pytest

from tests.notebooks._kernel import Kernel, kernel

SETUP = """\
import numpy as np
import jax.numpy as jnp
import jitney
from jaxtyping import Array, Float"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel that has imported jitney."""
    with kernel(tmp_path_factory.mktemp("notebook")) as running:
        assert running.run(SETUP).error == ""
        yield running
