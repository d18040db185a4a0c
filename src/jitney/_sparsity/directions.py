"""Linearisation of a function at a point: its sparsity pattern, and its products with stacks of
directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from .._jax.jaxprs import opened
from .dependence import dependence
from .pattern import Pattern, TooDenseError
from .typed_numpy import np

Shape = tuple[int, ...]
Leaves = Sequence[Any]


@dataclass(frozen=True)
class Linearized:
    """Function of lists of arrays at one point, with its derivatives there.

    Args:
        fn: Function from a list of arrays to a list of arrays.
        at: The point.
        program: Jaxpr of the JVP, from point and tangents to value and tangents. None if only the
            VJP is used.
        out: Abstract results.
    """

    fn: Callable[[Leaves], Leaves]
    at: Leaves
    program: Any
    out: Leaves

    @classmethod
    def of(cls, fn: Callable[[Leaves], Leaves], at: Leaves, *, forward: bool) -> Linearized:
        if not forward:
            return cls(fn, at, None, jax.eval_shape(fn, at))
        count = len(at)

        def both(*arrays: object) -> Any:
            return jax.jvp(fn, (list(arrays[:count]),), (list(arrays[count:]),))

        program, (value, _) = jax.make_jaxpr(both, return_shape=True)(*at, *at)
        return cls(fn, at, program, value)

    @property
    def ins(self) -> list[Shape]:
        return [tuple(leaf.shape) for leaf in self.at]

    @property
    def outs(self) -> list[Shape]:
        return [tuple(leaf.shape) for leaf in self.out]

    def pattern(self, blurred: dict[int, tuple[Any, str]] | None = None) -> Pattern | None:
        """Sparsity pattern of the Jacobian; None if it is almost dense.

        Args:
            blurred: Output. Gets, by `id`, the closed-over values from which unknown positions are
                computed; each with its line. An unknown position may be any.
        """
        sizes = list(map(math.prod, self.ins if self.program is not None else self.outs))
        ends = np.cumsum([0, *sizes])
        seeds = [
            Pattern.identity(int(start), size, int(ends[-1]))
            for start, size in zip(ends, sizes, strict=False)
        ]

        # Without a JVP, follow the VJP: its pattern is the transposed one.
        program = self.program
        if program is None:

            def pull(at: Leaves, direction: Leaves) -> Any:
                return jax.vjp(self.fn, at)[1](direction)[0]

            program = jax.make_jaxpr(pull)(list(self.at), list(self.out))
            targets = self.ins
        else:
            targets = self.outs
        found: dict[int, str] = {}
        try:
            # Primal arguments depend on nothing; the seeds are the tangents (or cotangents).
            patterns = dependence(program, [*(None for _ in self.at), *seeds], blurred=found)[
                -len(targets) :
            ]
        except TooDenseError:
            return None
        # Also if it was too dense: unknown positions may be why.
        finally:
            constants = opened(program)[1]
            if blurred is not None:
                blurred.update(
                    (id(constants[i]), (constants[i], line))
                    for i, line in found.items()
                    if i < len(constants)
                )
        rows = np.cumsum([0, *map(math.prod, targets)])
        pairs = [
            (part.rows + row, part.indices)
            for part, row in zip(patterns, rows, strict=False)
            if part is not None
        ]
        places = [np.concatenate(parts) for parts in zip(*pairs, strict=True)] or [
            np.zeros(0, np.int64)
        ] * 2
        whole = Pattern.of_pairs(places[0], places[1], int(rows[-1]), int(ends[-1]))
        return whole if self.program is not None else whole.transposed

    def pushed(self, seeds: Leaves, batch: int | None, axis: int = 0) -> tuple[Leaves, Leaves]:
        """Value, and the JVP for a stack of tangents, stacked along `axis`.

        At most `batch` directions run at a time.
        """
        half = len(self.out)

        def run(seed: Leaves) -> tuple[Leaves, Leaves]:
            both = core.jaxpr_as_fun(self.program)(*self.at, *seed)
            return both[:half], both[half:]

        if batch is None or len(seeds[0]) <= max(batch, 1):
            return _each(run, seeds, self.out, axis, lambda: self.fn(self.at))
        value, _ = run([jnp.zeros_like(leaf) for leaf in self.at])

        def push(seed: Leaves) -> Leaves:
            return run(seed)[1]

        return value, _in_batches(push, seeds, batch, axis)

    def pulled(self, seeds: Leaves, batch: int | None, axis: int = 0) -> tuple[Leaves, Leaves]:
        """Value, and the VJP for a stack of cotangents, stacked along `axis`.

        At most `batch` directions run at a time.
        """
        value, transposed = jax.vjp(self.fn, list(self.at))

        def pull(seed: Leaves) -> Leaves:
            return transposed(seed)[0]

        if batch is None or len(seeds[0]) <= max(batch, 1):
            return value, _each(lambda seed: ((), pull(seed)), seeds, self.at, axis, tuple)[1]
        return value, _in_batches(pull, seeds, batch, axis)


def _each(
    run: Callable[[Leaves], tuple[Any, Leaves]],
    seeds: Leaves,
    like: Leaves,
    axis: int,
    value: Callable[[], Any],
) -> tuple[Leaves, Leaves]:
    """Value, and a derivative for each seed. A single seed costs no `vmap`."""
    if not len(seeds[0]):
        return value(), [
            jnp.zeros((0, *leaf.shape) if axis == 0 else (*leaf.shape, 0), leaf.dtype)
            for leaf in like
        ]
    if len(seeds[0]) == 1:
        result, along = run([seed[0] for seed in seeds])
        return result, [jnp.expand_dims(leaf, axis) for leaf in along]
    # The value does not depend on the seed, so it has no batch dimension.
    return jax.vmap(run, out_axes=(None, axis))(list(seeds))


def _in_batches(run: object, seeds: Leaves, batch: int, axis: int) -> Leaves:
    stacks = jax.lax.map(run, list(seeds), batch_size=batch)
    return [jnp.moveaxis(stack, 0, axis) for stack in stacks]
