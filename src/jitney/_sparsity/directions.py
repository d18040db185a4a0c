"""Linearisation of a function at a point: its sparsity pattern, and its products with stacks of
directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.extend import core

from .._jax.programs.jaxprs import open_jaxpr
from .dependence import dependence
from .pattern import MaybePattern, Pattern, TooDenseError
from .typed_numpy import Ints, np

Shape = tuple[int, ...]
Leaves = Sequence[jax.Array]
"""Arguments or results of a function, or stacks of directions of them."""
AbstractLeaves = Sequence[jax.Array | jax.ShapeDtypeStruct]
"""Arrays of which only the shapes and dtypes are read."""


def ends_of(shapes: Iterable[Shape]) -> Ints:
    """Flat position at which each array starts, and the end of the last one."""
    return np.cumsum([0, *map(math.prod, shapes)])


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
    program: object
    out: Sequence[jax.ShapeDtypeStruct]

    @classmethod
    def of(
        cls,
        fn: Callable[[Leaves], Leaves],
        at: Leaves,
        *,
        forward: bool,
    ) -> Linearized:
        if not forward:
            out = jax.eval_shape(fn, at)
            return cls(fn, at, None, out)
        count = len(at)

        def both(*arrays: object) -> object:
            point = list(arrays[:count])
            tangents = list(arrays[count:])
            return jax.jvp(fn, (point,), (tangents,))

        trace = jax.make_jaxpr(both, return_shape=True)
        program, (value, _) = trace(*at, *at)
        return cls(fn, at, program, value)

    @property
    def ins(self) -> list[Shape]:
        return [tuple(leaf.shape) for leaf in self.at]

    @property
    def outs(self) -> list[Shape]:
        return [tuple(leaf.shape) for leaf in self.out]

    def pattern(self, blurred: dict[int, tuple[object, str]] | None = None) -> Pattern | None:
        """Sparsity pattern of the Jacobian; None if it is almost dense.

        Args:
            blurred: Output. Gets, by `id`, the closed-over values from which unknown positions are
                computed; each with its line. An unknown position may be any.
        """
        # Without a JVP, follow the VJP: its pattern is the transposed one.
        if self.program is None:
            program = self._pullback()
            seeded, targets = self.outs, self.ins
        else:
            program = self.program
            seeded, targets = self.ins, self.outs

        sizes = list(map(math.prod, seeded))
        ends = np.cumsum([0, *sizes])
        columns = int(ends[-1])
        # Primal arguments depend on nothing; the seeds are the tangents (or cotangents).
        patterns: list[MaybePattern] = [None] * len(self.at)
        for start, size in zip(ends, sizes, strict=False):
            patterns.append(Pattern.identity(int(start), size, columns))

        sources: dict[int, str] = {}
        try:
            results = dependence(program, patterns, blurred=sources)
        except TooDenseError:
            return None
        # Also if it was too dense: unknown positions may be why.
        finally:
            constants = open_jaxpr(program)[1]
            if blurred is not None:
                for i, line in sources.items():
                    if i < len(constants):
                        blurred[id(constants[i])] = (constants[i], line)

        derivatives = results[-len(targets) :]
        row_ends = ends_of(targets)
        rows: list[Ints] = [np.zeros(0, np.int64)]
        indices: list[Ints] = [np.zeros(0, np.int64)]
        for part, row in zip(derivatives, row_ends, strict=False):
            if part is not None:
                rows.append(part.rows + row)
                indices.append(part.indices)
        whole = Pattern.of_pairs(
            np.concatenate(rows),
            np.concatenate(indices),
            int(row_ends[-1]),
            columns,
        )
        return whole.transpose if self.program is None else whole

    def _pullback(self) -> object:
        """Jaxpr of the VJP, from point and cotangents to cotangents."""

        def pull(at: Leaves, direction: Leaves) -> object:
            _, transposed = jax.vjp(self.fn, at)
            return transposed(direction)[0]

        return jax.make_jaxpr(pull)(list(self.at), list(self.out))

    def push_tangents(
        self,
        seeds: Leaves,
        batch: int | None,
        axis: int = 0,
    ) -> tuple[Leaves, Leaves]:
        """Value, and the JVP for a stack of tangents, stacked along `axis`.

        At most `batch` directions run at a time.
        """
        half = len(self.out)

        def run(seed: Leaves) -> tuple[Leaves, Leaves]:
            evaluate = core.jaxpr_as_fun(self.program)
            both = evaluate(*self.at, *seed)
            return both[:half], both[half:]

        if batch is None or len(seeds[0]) <= max(batch, 1):
            return _evaluate_seeds(
                run,
                seeds,
                self.out,
                axis,
                lambda: self.fn(self.at),
            )
        zeros = [jnp.zeros_like(leaf) for leaf in self.at]
        value, _ = run(zeros)

        def push(seed: Leaves) -> Leaves:
            _, tangents = run(seed)
            return tangents

        return value, _in_batches(push, seeds, batch, axis)

    def pull_cotangents(
        self,
        seeds: Leaves,
        batch: int | None,
        axis: int = 0,
    ) -> tuple[Leaves, Leaves]:
        """Value, and the VJP for a stack of cotangents, stacked along `axis`.

        At most `batch` directions run at a time.
        """
        value, transposed = jax.vjp(self.fn, list(self.at))

        def pull(seed: Leaves) -> Leaves:
            return transposed(seed)[0]

        if batch is None or len(seeds[0]) <= max(batch, 1):
            _, cotangents = _evaluate_seeds(
                lambda seed: ((), pull(seed)), seeds, self.at, axis, tuple
            )
            return value, cotangents
        return value, _in_batches(pull, seeds, batch, axis)


def _evaluate_seeds(
    run: Callable[[Leaves], tuple[Leaves, Leaves]],
    seeds: Leaves,
    like: AbstractLeaves,
    axis: int,
    value: Callable[[], Leaves],
) -> tuple[Leaves, Leaves]:
    """Value, and a derivative for each seed. A single seed costs no `vmap`."""
    count = len(seeds[0])
    if count == 0:
        empty: list[jax.Array] = []
        result = value()
        for leaf in like:
            shape = (0, *leaf.shape) if axis == 0 else (*leaf.shape, 0)
            empty.append(jnp.zeros(shape, leaf.dtype))
        return result, empty
    if count == 1:
        result, along = run([seed[0] for seed in seeds])
        return result, [jnp.expand_dims(leaf, axis) for leaf in along]
    # The value does not depend on the seed, so it has no batch dimension.
    return jax.vmap(run, out_axes=(None, axis))(list(seeds))


def _in_batches(
    run: Callable[[Leaves], Leaves],
    seeds: Leaves,
    batch: int,
    axis: int,
) -> Leaves:
    stacks = jax.lax.map(run, list(seeds), batch_size=batch)
    return [jnp.moveaxis(stack, 0, axis) for stack in stacks]
