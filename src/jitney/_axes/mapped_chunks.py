"""A mapped axis evaluated in chunks, each of which is `jax.vmap` of the program of one element, or
one element at a time.

`jax.vmap` computes each element alone, so nothing is proven about operations here, and the program
is traced for one element once. What does not depend on the element is computed once, before the
loop:

    f(x[n], w) = x * sum(w)     s = sum(w);  scan over chunks of x:  vmap(x -> x * s)

One element at a time, a loop goes round the body, in which branches stay branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from .._jax.programs.evaluation import evaluate_jaxpr, interpret
from .._jax.programs.jaxprs import (
    calls_back,
    draws_jointly,
    equations,
    maps_jointly,
    open_jaxpr,
    rebind,
    runs,
    source_of,
)
from .._jax.programs.primitives import CALLBACKS, HOLDERS
from .._jax.programs.ssa import (
    Const,
    FlatProgram,
    Ref,
    Step,
    as_const,
    number_results,
    run_steps,
    values_at,
)
from .._jax.ticks import Ticks
from .._jax.typed import AnyJaxpr, Aval, ClosedJaxpr, DType, JaxprEqn
from .rules import RULES
from .typed_jax import jnp, lax, make_jaxpr
from .xla_faults.low_bits import as_bits, from_bits

Dims = Sequence[int | None]
"""The position of the axis in each array; None for arrays that all elements share."""
ChunkInputs = tuple[jax.Array, dict[int, jax.Array]]
"""Number of a chunk, and its part of those arrays that need not be sliced, by position."""
# Operations whose own rule for `jax.vmap` sees all elements together: what it makes of a chunk need
# not be what it makes of the whole. Collectives are over an axis of a mesh.
_JOINT = {
    "custom_vmap_call",
    "call_hi_primitive",
    "unvmap_any",
    "unvmap_all",
    "unvmap_max",
    "psum",
    "pmax",
    "pmin",
    "pure_callback",
    *CALLBACKS,
}
_ALONE = {*RULES, *HOLDERS, "platform_index"} - _JOINT
# Chunks that do not divide the axis are balanced, to multiples of the lanes of vector units.
_LANES = 16


def trace_element(
    fn: Callable[..., Sequence[object]],
    arrays: Sequence[jax.Array] | Sequence[jax.ShapeDtypeStruct],
    dims: Dims,
) -> ClosedJaxpr:
    """Trace a function of the arrays of one element."""
    avals: list[jax.ShapeDtypeStruct] = []
    for x, dim in zip(arrays, dims, strict=True):
        shape = list(x.shape)
        if dim is not None:
            del shape[dim]
        aval = jax.ShapeDtypeStruct(
            shape,
            x.dtype,
            weak_type=x.weak_type,
        )
        avals.append(aval)
    return make_jaxpr(fn)(*avals)


def computes_alone(jaxpr: AnyJaxpr) -> bool:
    """Return whether `jax.vmap` computes each element of a program alone, and does nothing else.

    True if all its operations are known to. A callback may see all elements, or is called for each
    chunk; a generator such as `rbg` draws for all elements from the first key.
    """
    for eqn in equations(jaxpr):
        is_known = eqn.primitive.name in _ALONE
        if eqn.effects or not is_known or draws_jointly(eqn):
            return False
    return True


def joint_rules(jaxpr: object) -> list[str]:
    """Return the user's lines of the operations with a rule of the user's for `jax.vmap`, which may
    make something else of a part of the elements.
    """
    return [source_of(eqn) for eqn in equations(jaxpr) if maps_jointly(eqn)]


def evaluate_element(program: ClosedJaxpr, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Evaluate a program of one element, inside of `jax.vmap` or not."""
    plain, constants = open_jaxpr(program)
    return evaluate_jaxpr(plain, constants, arrays)


def balanced(
    size: int,
    width: int,
) -> int:
    """Return the length of the chunks of at most that width that have the fewest elements too many
    together.
    """
    count = -(-size // width)
    each = -(-size // count)
    return min(width, -(-each // _LANES) * _LANES)


def map_in_chunks(
    program: ClosedJaxpr,
    arrays: Sequence[jax.Array],
    dims: Dims,
    size: int,
    width: int,
    progress: str | None = None,
) -> list[jax.Array]:
    """Map the program of one element over an axis with the results of `jax.vmap`, chunk by chunk.

    All chunks have one length, so that there is one program for all: the last begins earlier, and
    what the one before it has computed too is left out.

    Args:
        program: The program, of which `computes_alone` is true.
        arrays: Its arguments, with the axis.
        dims: Where they have it.
        size: The size of the axis, more than a chunk.
        width: Elements of a chunk, at most.
        progress: Name of the bar that shows how many chunks are done; None for none.
    """
    hoisted = _Hoisted.of(program, arrays, dims)
    width = balanced(size, width)
    count = -(-size // width)
    ticks = None if progress is None else Ticks(progress, count, "chunks")
    positions = {i: dim for i, dim in enumerate(dims) if dim is not None}
    movable = {i: as_bits(arrays[i]) for i in positions}
    mapped = jax.vmap(hoisted.element, in_axes=(*positions.values(),))
    # Filled in when the body is traced: the bits of a result do not tell its dtype.
    dtypes: list[DType] = []

    # Chunks that divide the first axis of an array lie one behind the other, and are not cut out.
    stacks: dict[int, jax.Array] = {}
    for i, x in movable.items():
        if positions[i] == 0 and size % width == 0:
            stacks[i] = lax.reshape(x, (count, width, *x.shape[1:]))

    def chunk(_: None, here: ChunkInputs) -> tuple[None, list[jax.Array]]:
        number, stacked = here
        start = lax.min(number * np.int32(width), np.int32(size - width))
        parts: list[jax.Array] = []
        for i, x in movable.items():
            part = stacked.get(i)
            if part is None:
                part = lax.dynamic_slice_in_dim(
                    x,
                    start,
                    width,
                    positions[i],
                )
            parts.append(from_bits(part, arrays[i].dtype))
        results = mapped(*parts)
        if ticks is not None:
            ticks.trace(number + np.int32(1))
        dtypes[:] = [x.dtype for x in results]
        return None, [as_bits(x) for x in results]

    numbers = jnp.arange(count, dtype=np.int32)
    _, made = lax.scan(chunk, None, (numbers, stacks))
    joined = [_join(x, size) for x in made]
    made = [from_bits(x, dtype) for x, dtype in zip(joined, dtypes, strict=True)]
    return hoisted.all_results(made, size)


def _join(
    chunks: jax.Array,
    size: int,
) -> jax.Array:
    """Join chunks that are stacked along a leading axis, without what the last but one has too."""
    count, width = chunks.shape[:2]
    joined = lax.reshape(chunks, (count * width, *chunks.shape[2:]))
    rest = size % width
    if not rest:
        return joined
    first = lax.slice_in_dim(joined, 0, size - rest)
    last = lax.slice_in_dim(joined, count * width - rest, count * width)
    return lax.concatenate([first, last], 0)


@dataclass(frozen=True)
class _Hoisted(FlatProgram):
    """A program of one element, of which all that does not depend on the element is computed. Its
    arguments are those that have the axis.
    """

    @classmethod
    def of(
        cls,
        program: ClosedJaxpr,
        arrays: Sequence[jax.Array],
        dims: Dims,
    ) -> _Hoisted:
        """Compute what does not depend on the element."""
        avals: dict[int, Aval] = {}
        invars = open_jaxpr(program)[0].invars
        mapped = [i for i, dim in enumerate(dims) if dim is not None]
        takes = number_results([invars[i] for i in mapped], avals)
        given: list[Ref] = [*map(Const, arrays)]
        for i, number in zip(mapped, takes, strict=True):
            given[i] = number
        steps: list[Step] = []

        def results(eqn: JaxprEqn, reads: list[Ref]) -> Sequence[Ref]:
            known = [ref.value for ref in reads if isinstance(ref, Const)]
            if len(known) == len(reads):
                return [Const(x) for x in rebind(eqn, known)]
            # A call that reads something known may compute from that alone.
            called = runs(eqn) if known else None
            if called is not None:
                return interpret(called, reads, results, constant=as_const)
            makes = number_results(eqn.outvars, avals)
            steps.append(Step(eqn, tuple(reads), makes))
            return makes

        gives = interpret(program, given, results, constant=as_const)
        return cls(
            tuple(steps),
            takes,
            tuple(gives),
            avals,
        )

    def element(self, *values: jax.Array) -> list[jax.Array]:
        """Compute the results that depend on the element."""
        made: dict[int, object] = dict(zip(self.takes, values, strict=True))
        run_steps(self.steps, made)
        return values_at([ref for ref in self.gives if isinstance(ref, int)], made)

    def all_results(
        self,
        made: Sequence[jax.Array],
        size: int,
    ) -> list[jax.Array]:
        """Return all results, from those that depend on the element."""
        left = iter(made)
        out: list[jax.Array] = []
        for ref in self.gives:
            if isinstance(ref, int):
                out.append(next(left))
                continue
            value = jnp.asarray(ref.value)
            out.append(lax.broadcast(value, (size,)))
        return out


Parts = dict[int, jax.Array]
"""Position of an array that has the axis -> the array, or its part for one element."""


def map_sequentially(
    fn: Callable[..., Sequence[object]],
    dims: Sequence[int | None],
    *,
    is_differentiated: bool,
) -> Callable[..., list[jax.Array]]:
    """Map a function over an axis with the results of `jax.vmap`, by a loop, as `jax.lax.map` does.

    Under `jax.vmap` a `cond` whose predicate differs between elements becomes a select of both
    branches, and a `while_loop` runs for all elements until the slowest is done. Here both stay as
    they are.

    Args:
        fn: Function of the arrays of one element.
        dims: The position of the axis in each array; None for arrays that all elements share.
        is_differentiated: Whether JAX may differentiate through the loop. Then the body is
            rematerialised, so that only its arguments are stored; and arrays of low types are moved
            as numbers, since their bits have no derivative.
    """
    movable: Callable[[jax.Array], jax.Array] = jnp.asarray if is_differentiated else as_bits

    def looped(*arrays: jax.Array) -> list[jax.Array]:
        parts: Parts = {}
        for i, (x, dim) in enumerate(zip(arrays, dims, strict=True)):
            if dim is not None:
                parts[i] = movable(jnp.moveaxis(x, dim, 0))
        # Filled in when the body is traced: the bits of a result do not tell its dtype.
        dtypes: list[DType] = []

        def one(element: Parts) -> list[jax.Array]:
            values = list(arrays)
            for i, part in element.items():
                values[i] = from_bits(part, arrays[i].dtype)
            results = [jnp.asarray(x) for x in fn(*values)]
            dtypes[:] = [x.dtype for x in results]
            return [movable(x) for x in results]

        body = _rematerialise(one, parts) if is_differentiated else one
        results = lax.map(body, parts)
        return [from_bits(x, dtype) for x, dtype in zip(results, dtypes, strict=True)]

    return looped


def _rematerialise(
    one: Callable[[Parts], list[jax.Array]], parts: Parts
) -> Callable[[Parts], list[jax.Array]]:
    """Rematerialise the function of one element; unless it calls Python, since the callback would
    run twice.
    """
    elements = {
        i: jax.ShapeDtypeStruct(x.shape[1:], x.dtype, weak_type=x.weak_type)
        for i, x in parts.items()
    }
    program = make_jaxpr(one)(elements)
    if program.effects or calls_back(program):
        return one
    # The forward pass and the rematerialised one are in different loops, so XLA cannot merge them:
    # no barrier is needed.
    return jax.checkpoint(one, prevent_cse=False)
