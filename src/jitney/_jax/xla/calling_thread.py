"""Programs that a CPU runs in the thread that calls them.

JAX hands a program of more than about a thousand operations to a thread of its own. Who waits for a
small one at once waits for two threads to wake up, which takes longer than the program. JAX runs a
program that may call Python in the calling thread. So this adds a callback to a number which XLA
drops, as it is multiplied by zero:

    a:i32[] = or number 0*pure_callback()   ->   a = number

The compiled operations are the same, and nothing calls Python. But JAX does not write a program
with callbacks into its persistent cache, so this is for programs that are not cached.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

_INT32 = jax.ShapeDtypeStruct((), np.int32)


def in_calling_thread(number: jax.Array) -> jax.Array:
    """Return an int32 scalar as it is; a program that returns it runs in the calling thread.

    Other devices than a CPU run it as before.
    """
    return lax.platform_dependent(number, cpu=_with_callback, default=_as_it_is)


def _with_callback(number: jax.Array) -> jax.Array:
    return number | 0 * jax.pure_callback(_zero, _INT32)


def _as_it_is(number: jax.Array) -> jax.Array:
    return number


def _zero() -> np.ndarray:
    return np.zeros((), np.int32)
