"""Some arguments of a program in its closure, where they are large arrays to jitney however small
they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax.numpy as jnp

from jitney import optimize
from jitney._jax.programs import large_constants

from ._options import Arrays, Option, Way, plain
from ._program import Program


def captured(
    rng: Any,
    fn: Callable[..., Any],
    program: Program,
    n: int,
) -> Way:
    """Close over all arguments but those that are drawn, and call twice."""
    names = [name for name, _ in program.takes]
    given = [name for name in names if rng.random() < 0.4]
    host = bool(rng.random() < 0.5)

    def ours(arrays: Arrays) -> Any:
        held = {name: arrays[name] for name in names if name not in given}
        if not host:
            held = {name: jnp.asarray(value) for name, value in held.items()}

        def body(**rest: Any) -> Any:
            # NumPy computes by other rules than JAX, so each is an array of JAX's in the body.
            return fn(**{name: jnp.asarray(value) for name, value in held.items()}, **rest)

        run = optimize(cache=False)(body)
        rest = {name: arrays[name] for name in given}
        with mock.patch.object(large_constants, "LARGE", 0):
            run(**rest)
            return run(**rest)

    closure = ", ".join(name for name in names if name not in given)
    return Way(ours, plain(fn), f"optimize(cache=False)(f with {closure} in its closure)")


CAPTURED = {"captured": Option(captured)}
