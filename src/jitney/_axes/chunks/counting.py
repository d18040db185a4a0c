"""Counting the iterations of loops over the chunks, until no chunk takes more: see `turns.py`.

A number of iterations is a state of its pass, which begins anew from the numbers of the pass before
until they stay as they are. `in_memory.py` repeats it inside of a program, and `jitney.stream` from
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from ..._jax.programs.jaxprs import while_parts
from ..interpreter import Op, PaddedInterpreter
from ..rules.control import State, restore_weak_types
from ..typed_jax import jnp, lax

T = TypeVar("T")
Counts = list[jax.Array]
"""The numbers of iterations of loops."""


def iterations_of_chunk(
    walk: PaddedInterpreter,
    op: Op,
    operands: list[jax.Array],
    least: jax.Array,
) -> jax.Array:
    """Count the iterations of a loop on one chunk: `least` of them, and as many more as its
    condition asks for.
    """
    quiet = walk.without_callbacks()
    of_condition, of_body, start = while_parts(op.eqn, operands)

    def more(state: State) -> jax.Array:
        k, carry = state
        (goes_on,) = quiet.run(op.params["cond_jaxpr"], [*of_condition, *carry])
        return lax.lt(k, least) | goes_on

    def body(state: State) -> State:
        k, carry = state
        new = quiet.run(op.params["body_jaxpr"], [*of_body, *carry])
        return k + np.ones((), k.dtype), restore_weak_types(new, carry)

    carry = [jnp.asarray(x) for x in start]
    return lax.while_loop(more, body, (jnp.zeros_like(least), carry))[0]


def until_known(initial: Counts, sweep: Callable[[Counts], Counts]) -> Counts:
    """Repeat a pass, which takes numbers of iterations and returns those that its chunks take from
    there, until they stay as they are.
    """

    def grows(state: tuple[Counts, Counts]) -> jax.Array:
        pairs = zip(*state, strict=True)
        return jnp.any(jnp.stack([a != b for a, b in pairs]))

    def again(state: tuple[Counts, Counts]) -> tuple[Counts, Counts]:
        _, reached = state
        return reached, sweep(reached)

    # The first comparison is of unlike numbers, so that there is a first run.
    unlike = [x + np.ones((), x.dtype) for x in initial]
    return lax.while_loop(grows, again, (unlike, initial))[1]


def numbers_of_iterations(state: Sequence[Sequence[T]], places: Sequence[int]) -> list[T]:
    """The numbers of iterations among the states of a pass, which are at these places."""
    return [state[i][0] for i in places]


def begin_from(
    state: Sequence[Sequence[T]],
    places: Sequence[int],
    counts: Sequence[T],
) -> list[Sequence[T]]:
    """The initial states of a pass, with the numbers of iterations that are known so far."""
    known = dict(zip(places, counts, strict=True))
    return [[known[i]] if i in known else values for i, values in enumerate(state)]
