"""The `Rule` of an operation: its uses of an axis, its evaluation on padded arrays, and the state
that it carries from chunk to chunk where the axis is cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Literal, TypeVar

import jax
import numpy as np

from .._jax.typed import Aval, DType
from .dims import Dim, evaluate, is_ragged, size_per_element, symbols
from .interpreter import Op, PaddedInterpreter, ragged_axes
from .monoids import MONOIDS, Monoid, to_dtype
from .typed_jax import jnp

T = TypeVar("T")

Kind = Literal["reduced", "scanned", "sorted", "gathered", "contracted", "mixed"]


@dataclass(frozen=True)
class Use:
    """A dependence of an operation on elements at other positions of an axis. An elementwise
    operation has no use.

    Args:
        symbols: The axes, by the symbols of their sizes.
        kind: Class of the dependence.
        how: Its description for people: the monoid of a reduction, or what is mixed.
        op: JAX's name of the operation.
        place: The user's line, "fit.py:12 (residual)".
        refused: Why it cannot be carried out on a padded axis; None if it can.
        monoid: The monoid that reduces the elements along the axes, if nothing else is done with
            them.
    """

    symbols: frozenset[str]
    kind: Kind
    how: str
    op: str
    place: str
    refused: str | None = None
    monoid: Monoid | None = field(default=None, repr=False)

    @property
    def is_sum(self) -> bool:
        """True if the elements along the axes are summed, and no rule refuses that."""
        return self.monoid is MONOIDS["add"] and self.refused is None


State = list[jax.Array]
"""The values that an operation carries from chunk to chunk."""
Outputs = Sequence[jax.Array | None]
"""Results of an operation for one chunk; None for those that are known only after the pass."""


@dataclass(frozen=True)
class ChunkStep:
    """One chunk, as an operation meets it whose state is carried over.

    Args:
        walk: Interpreter of the chunk.
        op: The operation.
        values: Its operands for the chunk.
        back: True if chunks come from the last to the first.
    """

    walk: PaddedInterpreter
    op: Op
    values: list[jax.Array]
    back: bool

    def start_along(self, axis: int) -> jax.Array:
        """The position of the chunk in an axis of the first operand."""
        return self.walk.start_of(self.op.ins[0][axis])

    def whole_size(self, axis: int) -> jax.Array:
        """The size of a whole axis of the first operand."""
        return jnp.asarray(evaluate(self.op.ins[0][axis], self.walk.whole), np.int32)

    def evaluate(self, values: list[jax.Array], op: Op | None = None) -> list[jax.Array]:
        """Evaluate the operation by its rule on these operands; `op` has other parameters."""
        return self.walk.rules[self.op.name].pad(self.walk, op or self.op, values)


@dataclass(frozen=True)
class Carrier(ABC):
    """The state that an operation carries from chunk to chunk where its axis is cut: how it begins,
    what a chunk makes of it, and the results that it gives at the end. The classes are in
    `carriers/`; one object serves all operations of a rule.
    """

    monoid: Monoid | None
    """The monoid of the operation; None if it has none."""

    is_combined: ClassVar[bool] = False
    """True if the monoid combines the states of two parts of the axis, value by value."""
    reads_few: ClassVar[bool] = False
    """True if it reads a few elements, which a materialised operand gives without a pass."""
    refused_on_devices: ClassVar[str | None] = None
    """Why the axis cannot be sharded over devices, as a part of a sentence; None if it can."""

    def runs_along(self, op: Op) -> bool:
        """Return whether the operation is a loop over the axis."""
        del op
        return False

    def can_be_cut(self, op: Op, uses: Sequence[Use]) -> bool:
        """Return whether the operation can be evaluated in chunks, if it has these uses, of which
        none is refused.
        """
        del op, uses
        return True

    def accumulates(self, op: Op) -> bool:
        """Return whether the results without the axis are known only when all chunks are done."""
        return any(map(ragged_axes, op.ins))

    def emits(self, op: Op) -> bool:
        """Return whether results come out chunk by chunk that depend on the chunks before."""
        del op
        return False

    def direction(self, op: Op) -> bool | None:
        """The order of chunks: True from the end, False from the front, None if either will do."""
        del op
        return None

    def initial(self, op: Op, operands: Sequence[T]) -> list[T]:
        """Those of the operands that the state begins from."""
        del op, operands
        return []

    def accumulators(self, op: Op) -> list[DType]:
        """The dtypes that the operation accumulates in, where they may differ from those of its
        results.
        """
        del op
        return []

    def state_bytes(self, op: Op) -> int:
        """Bytes of the state, for each element of the axis if it has that."""
        return bytes_of(atom.aval for atom in op.eqn.outvars)

    @abstractmethod
    def begin(
        self,
        op: Op,
        initial: Sequence[jax.Array],
        is_first: jax.Array | None = None,
    ) -> State:
        """The state before the first chunk.

        Args:
            op: The operation.
            initial: The values of the operands that it begins from.
            is_first: Where the axis is sharded, whether this is the first device, which alone
                begins from the operands.
        """

    @abstractmethod
    def step(self, chunk: ChunkStep, state: State) -> tuple[Outputs, State]:
        """The results for one chunk, and the state after it, from that before it."""

    def merge(self, states: State) -> State:
        """The state of all devices, from those of each one, stacked along a leading axis. It is
        asked for where `is_combined` is False.
        """
        raise AssertionError(f"{type(self).__name__} is not sharded: {len(states)} values")

    def finish(self, op: Op, state: State) -> list[jax.Array]:
        """The results that are known when the pass is over, in the dtypes of the program."""
        results = zip(state, op.eqn.outvars, strict=False)
        return [to_dtype(x, atom.aval.dtype) for x, atom in results]


def bytes_of(avals: Iterable[Aval]) -> int:
    """Bytes of values, for each element of the cut axis if they have it."""
    return sum(size_per_element(aval.shape) * aval.dtype.itemsize for aval in avals)


@dataclass(frozen=True)
class Rule:
    """The rule of a primitive.

    Args:
        uses: Yields the uses of each axis of symbolic size.
        pad: Evaluates the operation on operands whose leading parts are valid, so that the leading
            parts of the results are; a chunk is such an operand as well.
        carrier: The state from chunk to chunk; None if there is none, so that an operation with a
            use of the axis has no chunked form.
        at_once: True if the operation may run on materialised operands, where it has no chunked
            form.
        at_size: True if a use is refused for the padding alone, so that the operation may run at
            once in spite of it, at the size of the call.
        makes: True if a new axis, which no operand has, comes out right in each chunk: the elements
            are equal, are counted from the start of the chunk, or come from a sub-jaxpr.
    """

    uses: Callable[[Op], Iterable[Use]]
    pad: Callable[[PaddedInterpreter, Op, list[Any]], list[jax.Array]]
    carrier: Carrier | None = None
    at_once: bool = False
    at_size: bool = False
    makes: bool = False

    def uses_of(self, op: Op) -> list[Use]:
        """The uses of an operation along each axis. An operation that makes an axis which no
        operand has counts as a use of it, unless `makes` is set.
        """
        # A chunk has a part of the new axis. Only a rule with `makes` knows which part that is.
        uses = list(self.uses(op))
        if uses or self.makes:
            return uses
        of_operands: set[str] = set()
        for dim in chain.from_iterable(op.ins):
            of_operands |= symbols(dim)
        results = ragged_dims(chain.from_iterable(op.outs))
        new = [dim for dim in results if not of_operands.issuperset(symbols(dim))]
        return [use(op, new, "gathered", "made of what does not have it")] if new else []


def use(
    op: Op,
    dims: Dim | Sequence[Dim],
    kind: Kind,
    how: str = "",
    *,
    monoid: Monoid | None = None,
    refused: str | None = None,
) -> Use:
    """Make a `Use` of the axes with these sizes; `how` defaults to the name of the monoid."""
    sizes: Sequence[Dim] = dims if isinstance(dims, (tuple, list)) else (dims,)
    of_sizes = frozenset[str]().union(*map(symbols, sizes))
    if not how and monoid is not None:
        how = monoid.word
    return Use(
        of_sizes,
        kind,
        how,
        op.name,
        op.place,
        refused,
        monoid,
    )


def refuse(
    op: Op,
    dims: Dim | Sequence[Dim],
    why: str,
) -> Use:
    return use(
        op,
        dims,
        "mixed",
        why,
        refused=why,
    )


def ragged_dims(dims: Iterable[Dim]) -> list[Dim]:
    return [dim for dim in dims if is_ragged(dim)]


def no_uses(op: Op) -> Iterator[Use]:
    """No uses: each element is treated alone."""
    return iter(())


def evaluate_unchanged(
    walk: PaddedInterpreter,
    op: Op,
    values: list[jax.Array],
) -> list[jax.Array]:
    """Evaluate the operation unchanged, on padded operands."""
    return walk.bind(op, values)


POINTWISE = Rule(no_uses, evaluate_unchanged)
