"""Interpreter of jaxprs with symbolic sizes, on arrays that are longer than their valid part.

Each value keeps one invariant: along an axis of symbolic size n, its first n elements are those of
the function at the exact size. The elements behind them, the padding, are arbitrary, NaNs too. An
operation that mixes elements along an axis first replaces the padding by its identity element (see
`rules/`), so padding never reaches a valid number. This holds in a derivative too, which is traced
before it is interpreted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._jax.programs.evaluation import interpret
from .._jax.programs.jaxprs import inside, open_jaxpr, programs, rebind, source_of
from .._jax.programs.primitives import CALLBACKS, HOLDERS
from .._jax.typed import Atom, JaxprEqn, NumPyArray, Var
from .dims import Dim, evaluate, extent, is_ragged, symbols, tree_dims
from .refusal import Refused
from .typed_jax import dtypes, jnp, lax
from .x64 import x64_scope
from .xla_faults.clamped_starts import calls_with_starts, in_bounds
from .xla_faults.lost_nans import bind_extreme, is_extreme
from .xla_faults.overlapping_updates import is_update
from .xla_faults.partitioner_fixes import bind_partition_safe

if TYPE_CHECKING:
    from .rule import Rule

Ranges = Mapping[str, tuple[int, int]]
"""Symbol -> the least and the largest size it stands for."""
Numbers = Mapping[Var, Any]
"""Variable of a program -> the value that Python computed from the sizes."""


@dataclass(frozen=True)
class Op:
    """An equation of a traced program, with the range of sizes of each symbol. `seen_at` is the
    user's line of the equation that holds it.
    """

    eqn: JaxprEqn
    ranges: Ranges = field(default_factory=dict[str, tuple[int, int]])
    seen_at: str = ""

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    @property
    def params(self) -> dict[str, Any]:
        return self.eqn.params

    def replace_params(self, **params: object) -> Op:
        """The same operation with other parameters."""
        return replace(self, eqn=self.eqn.replace(params={**self.params, **params}))

    @cached_property
    def ins(self) -> list[tuple[Dim, ...]]:
        return [shape_of(atom) for atom in self.eqn.invars]

    @cached_property
    def outs(self) -> list[tuple[Dim, ...]]:
        return [shape_of(atom) for atom in self.eqn.outvars]

    @property
    def place(self) -> str:
        return source_of(self.eqn, self.seen_at)

    @property
    def is_ragged(self) -> bool:
        """True if a size of an operand or result, or among the parameters, is symbolic."""
        if any(map(is_ragged, chain.from_iterable((*self.ins, *self.outs)))):
            return True
        return any(True for _ in tree_dims(self.params))


def shape_of(atom: Atom) -> tuple[Dim, ...]:
    return tuple(getattr(atom.aval, "shape", ()))


def ragged_axes(dims: Sequence[Dim]) -> list[int]:
    """The positions of the axes whose size is symbolic."""
    return [axis for axis, dim in enumerate(dims) if is_ragged(dim)]


class PaddedInterpreter:
    """Interpreter of one evaluation, with the allocated and the valid size of each symbol.

    Args:
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the size of the valid part, an int32 scalar of the program.
        rules: Name of a primitive -> its rule.
        whole: Symbol -> the size that the body computes with: the valid size, unless the arrays are
            chunks of longer ones.
        start: Symbol -> the position of a chunk in its axis.
        numbers: Variable of the program -> the value that Python computed from the sizes, which is
            used in place of the equation.
    """

    is_spread = False
    """True if XLA's partitioner shards other axes, and adds collectives to reductions over them."""
    is_differentiated = False
    """True in the evaluation of a derivative, which JAX splits into a linear part and the rest; a
    barrier around both would keep them together.
    """
    is_mute = False
    """True if operations are evaluated without their callbacks; nothing reads their results then.
    """
    writes_apart = False
    """True if updates are written element by element: see `xla_faults/overlapping_updates.py`."""

    def __init__(
        self,
        allocated: Mapping[str, int],
        valid: Mapping[str, object],
        rules: Mapping[str, Rule],
        whole: Mapping[str, object] | None = None,
        start: Mapping[str, object] | None = None,
        numbers: Numbers | None = None,
    ):
        self.allocated = allocated
        self.valid = valid
        self.rules = rules
        self.whole = valid if whole is None else whole
        self.start = start or {}
        self.numbers = numbers or {}

    def shape(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """The allocated shape of an array."""
        return tuple(evaluate(dim, self.allocated) for dim in dims)

    def count(self, dim: Dim) -> jax.Array:
        """The number of valid elements along an axis, as an int32 scalar."""
        return jnp.asarray(evaluate(dim, self.valid), np.int32)

    def whole_count(self, dim: Dim) -> jax.Array:
        """The number of elements along the whole axis, as an int32 scalar: more than `count` where
        the array is a chunk.
        """
        return jnp.asarray(evaluate(dim, self.whole), np.int32)

    def start_of(self, dim: Dim) -> Any:
        """The start of a chunk along an axis, whose length may be a multiple of the cut size; None
        if the axis is not cut.
        """
        at = {name: self.start[name] for name in symbols(dim) if name in self.start}
        return jnp.asarray(evaluate(dim, at), np.int32) if at else None

    def inside(
        self,
        dims: Sequence[Dim],
        axis: int,
    ) -> jax.Array:
        """Mask of the elements that are valid along an axis, in the shape of the array."""
        positions = lax.broadcasted_iota(
            np.int32,
            self.shape(dims),
            axis,
        )
        return lax.lt(positions, lax.broadcast(self.count(dims[axis]), positions.shape))

    def keep(
        self,
        x: jax.Array,
        dims: Sequence[Dim],
        axes: Sequence[int],
        identity: object,
    ) -> jax.Array:
        """Replace the padding of `x` along `axes` by the identity of an operation."""
        # A `select`, not a product with the mask: padding may be NaN, and 0 * NaN is NaN.
        for axis in axes:
            if not is_ragged(dims[axis]) or self.is_full(dims[axis]):
                continue
            valid = self.inside(dims, axis)
            x = lax.select(
                valid,
                x,
                self.filled(x, identity),
            )
        return x

    def filled(self, x: jax.Array, value: object) -> jax.Array:
        """An array of the shape and dtype of `x` with one value everywhere."""
        return lax.full(x.shape, value, x.dtype)

    def within(self) -> PaddedInterpreter:
        """The same evaluation in a loop or branch that a rule makes, whose tracers stay there."""
        return self

    def may_be_linear(self, atom: Atom) -> bool:
        """Return whether a value may be a tangent, so that JAX transposes what is made of it."""
        del atom
        return False

    def is_full(self, dim: Dim) -> bool:
        """Return whether it is known while tracing that the axis has no padding."""
        return all(
            isinstance(self.valid[name], int) and self.valid[name] == self.allocated[name]
            for name in symbols(dim)
        )

    def bind(
        self,
        op: Op,
        values: Sequence[Any],
        **changed: object,
    ) -> list[jax.Array]:
        """Evaluate the operation itself, with some parameters changed."""
        eqn = op.replace_params(**changed).eqn if changed else op.eqn
        if self.is_spread:
            return bind_partition_safe(eqn, values)
        return bind_extreme(eqn, values) if is_extreme(eqn) else rebind(eqn, values)

    def without_callbacks(self) -> PaddedInterpreter:
        """The same evaluation, without callbacks."""
        other = copy(self)
        other.is_mute = True
        return other

    def make(
        self,
        op: Op,
        values: Sequence[jax.Array],
    ) -> list[jax.Array]:
        """Evaluate an operation: by its rule if a symbolic size occurs in it, else unchanged."""
        is_muted = self.is_mute and bool(op.eqn.effects)
        if is_muted and op.name in CALLBACKS:
            return zero_results(op)
        # A rule also evaluates sub-jaxprs with this interpreter: needed to mute callbacks in them,
        # to put in Python's values, to clamp starts, and to write apart.
        is_held = self._holds_numbers(op) or self._holds_writes(op)
        if mentions(op) or is_muted or is_held or calls_with_starts(op.eqn):
            return self.rules[op.name].pad(
                self,
                op,
                list(values),
            )
        return self.bind(op, in_bounds(op.eqn, values))

    def _holds_numbers(self, op: Op) -> bool:
        """Return whether a sub-jaxpr of an operation holds a value that Python computed from the
        sizes: `n % 0.5` is a call, which need not mention a size.

        Raises:
            Refused: No rule evaluates that sub-jaxpr.
        """
        if not self.numbers:
            return False
        if not any(map(self._is_number, inside(op.eqn))):
            return False
        if op.name not in HOLDERS:
            raise Refused(op.place, f"computes a number of the size inside `{op.name}`")
        return True

    def _holds_writes(self, op: Op) -> bool:
        """Return whether an operation writes a window, which may be into an array of fixed size
        that a padded one has been cut to.
        """
        if not self.writes_apart:
            return False
        return is_update(op.eqn) or (op.name in HOLDERS and any(map(is_update, inside(op.eqn))))

    def _is_number(self, eqn: JaxprEqn) -> bool:
        """Return whether Python has computed the result of an equation."""
        return bool(eqn.outvars) and eqn.outvars[0] in self.numbers

    def number(self, variable: Var) -> jax.Array:
        """The value of a variable that Python computed from the sizes."""
        return self.numbers[variable]

    def run(
        self,
        jaxpr: object,
        values: Sequence[Any],
    ) -> list[jax.Array]:
        """Evaluate a jaxpr, closed or open."""

        def results(eqn: JaxprEqn, operands: list[jax.Array]) -> list[jax.Array]:
            # Python's value, in place of the equation that would compute it from symbols.
            if self._is_number(eqn):
                return [self.number(eqn.outvars[0])]
            with x64_scope(eqn):
                return self.make(Op(eqn), operands)

        return interpret(jaxpr, values, results)


def zero_results(op: Op) -> list[jax.Array]:
    """Zeros in place of the results of an operation that has no symbolic size."""
    avals = [atom.aval for atom in op.eqn.outvars]
    return [lax.full(aval.shape, 0, aval.dtype) for aval in avals]


def grows(dim: Dim, ranges: Ranges) -> bool:
    """Return whether a size never exceeds its value at the largest sizes of all symbols."""
    if not is_ragged(dim):
        return True
    own = {symbol: ranges[symbol] for symbol in symbols(dim)}
    return extent(dim).grows(own)


def mentions(op: Op) -> bool:
    """Return whether a symbolic size occurs in an operation, or in the sub-jaxprs that it holds."""
    if op.is_ragged:
        return True
    for program in programs(op.params):
        if any(mentions(Op(eqn)) for eqn in open_jaxpr(program)[0].eqns):
            return True
    return False


def zero_of(x: jax.Array) -> NumPyArray:
    """A zero of the dtype of `x`, for padding that a product meets."""
    return np.zeros((), x.dtype)


def take(
    x: jax.Array,
    positions: object,
    axis: int,
) -> jax.Array:
    """The elements of `x` at positions along an axis; positions out of bounds are clamped."""
    return jnp.take(
        x,
        positions,
        axis=axis,
        mode="clip",
    )


def to_int32(positions: jax.Array) -> jax.Array:
    """Convert positions to int32, so that they can be compared with a size, which a narrower type
    may not hold. A position beyond int32 is beyond any array, and is clamped.
    """
    dtype, info = positions.dtype, np.iinfo(np.int32)
    if dtype == np.int32:
        return positions
    own = dtypes.iinfo(dtype)
    if own.max > info.max:
        least = np.asarray(max(own.min, info.min), dtype)
        most = np.asarray(info.max, dtype)
        positions = lax.clamp(least, positions, most)
    return lax.convert_element_type(positions, np.int32)
