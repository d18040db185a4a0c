"""JAX's modules typed as `Any`, since many of their functions have no complete types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy
from jax import dtypes as _jax_dtypes
from jax.extend.core import InconclusiveDimensionOperation as InconclusiveDimensionOperation

lax: Any = jax.lax
jnp: Any = jax.numpy
dtypes: Any = _jax_dtypes
_all: Any = jax
make_jaxpr: Any = _all.make_jaxpr
