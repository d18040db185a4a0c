"""Loops that go on until all elements of the cut axis are done, with the number of their iterations
counted first.

    while any(active) and k < most: ...     k, and all that is shared, hangs on all elements

No chunk alone knows how many iterations the loop takes, since its condition asks all elements. But
the condition is false for the whole where it is false for each chunk. So passes of their own find
the number T of iterations, and then the loop takes T of them in each chunk:

    T = while any(active) and k < most      a value that is accumulated, by the maximum
    for _ in range(T): ...                  a loop of a known number of iterations

All that is shared is then the same in each chunk and in the program that is not cut, also in a
result, and in the loop of a gradient, which goes back as many iterations. Nothing has to be proven
about elements that are finished.

T is a fixpoint. A chunk that is finished might begin again while others go on. So a chunk takes at
least as many iterations as any chunk before it, and goes on from there until its own condition is
false. No chunk takes more than T, since some chunk has gone on in each iteration. If a whole pass
over all chunks has not raised the number, then all of them are finished at it, and it is T.

A number of iterations is a state of its pass, which begins anew from the numbers of the pass before
until they stay as they are. `in_memory.py` repeats it inside of a program, and `jitney.stream` from
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np

from ..._jax.programs.control import restore_weak_types, while_beside
from ..._jax.programs.evaluation import interpret
from ..._jax.programs.jaxprs import abstract, equations, open_jaxpr, rebind, while_parts
from ..._jax.typed import Aval, ClosedJaxpr, JaxprEqn
from ..interpreter import Op, PaddedInterpreter, Ranges, mentions
from ..rules.partials import is_fixed
from ..typed_jax import jnp, lax, make_jaxpr
from ..x64 import x64_scope
from .branches import Branch, numbered_branch, strong
from .cut_axis import refusal
from .partial_results import carry_until_all_done

State = tuple[jax.Array, list[jax.Array]]
"""Number of the iteration, and the carry of the loop."""
_TURNS = np.dtype(np.uint32)
"""The dtype of a number of iterations."""


@dataclass(frozen=True)
class CountedLoop:
    """A loop that goes on until all elements are done, in two programs.

    Args:
        counting: The loop with those of its carries that its condition depends on, from the
            operands.
        counted: The loop of a given number of iterations, from that number and the operands.
    """

    counting: ClosedJaxpr
    counted: ClosedJaxpr

    @property
    def number(self) -> Aval:
        """The abstract value of the number of iterations."""
        return self.counted.jaxpr.invars[0].aval


def counted_loop(op: Op) -> CountedLoop | None:
    """The two programs of a `while` whose iterations have to be counted; None if it is another
    operation.

    Raises:
        Refused: Its condition calls back, or is one of each element of a mapped axis.
    """
    if op.name != "while" or not mentions(op):
        return None
    carry = carry_until_all_done(op)
    if carry is None:
        return None
    if open_jaxpr(op.params["cond_jaxpr"])[0].effects:
        what = "calls back in its condition, which is evaluated again to count its iterations"
        raise refusal(op, what)
    # JAX's `while` under `vmap`: elements stop one by one, so each would have a number of its own.
    if open_jaxpr(op.params["cond_jaxpr"])[0].outvars[0].aval.shape:
        what = "goes on, for each element of `vmap` by itself, until all along the axis are done"
        raise refusal(op, what)
    loop = _UntilDone(op.eqn)
    shared = {i for i, value in enumerate(carry) if is_fixed(value)}
    with x64_scope(op.eqn):
        return CountedLoop(loop.counting(), loop.counted(loop.separable(shared)))


def counts_iterations(jaxpr: object, ranges: Ranges) -> bool:
    """Return whether a program holds a loop whose iterations are counted."""
    ops = (Op(eqn, ranges) for eqn in equations(jaxpr) if eqn.primitive.name == "while")
    return any(mentions(op) and carry_until_all_done(op) is not None for op in ops)


class _UntilDone:
    """A `while` in SSA form, whose loops are written here: they carry some of its carries only, and
    one of them has no condition.

    Args:
        eqn: Its equation.
    """

    def __init__(self, eqn: JaxprEqn):
        self.eqn = eqn
        self.condition = numbered_branch(eqn.params["cond_jaxpr"], _is_never_hoisted)
        self.body = numbered_branch(eqn.params["body_jaxpr"], _is_never_hoisted)

    def counting(self) -> ClosedJaxpr:
        """The loop with those of its carries that its condition depends on."""
        # What the condition does not read, in any number of iterations, is not computed.
        _, read = self.condition.needed_steps(self.condition.gives)
        of_condition, _, _ = while_parts(self.eqn, list(self.eqn.invars))
        first = len(of_condition)
        chosen = self._closure(_positions(self.condition, first, read))

        def counting(*operands: jax.Array) -> list[jax.Array]:
            of_condition, of_body, start = while_parts(self.eqn, list(operands))

            def more(carry: list[jax.Array]) -> jax.Array:
                given = [*of_condition, *self._spread(carry, chosen)]
                return self.condition.values(given, {}, self.condition.gives)[0]

            def body(carry: list[jax.Array]) -> list[jax.Array]:
                return self._step(of_body, carry, chosen)

            return lax.while_loop(more, body, [start[i] for i in chosen])

        return self._trace(counting)

    def counted(self, shared: Sequence[int]) -> ClosedJaxpr:
        """The loop of a given number of iterations. The carries at the positions `shared` come from
        a loop of their own, which is not evaluated in each chunk.
        """

        def counted(turns: jax.Array, *operands: jax.Array) -> list[jax.Array]:
            _, of_body, start = while_parts(self.eqn, list(operands))

            def more(state: State) -> jax.Array:
                k, _ = state
                return lax.lt(k, turns)

            def take(
                step: Callable[[list[jax.Array]], list[jax.Array]],
                carry: list[jax.Array],
            ) -> list[jax.Array]:
                def body(state: State) -> State:
                    k, carry = state
                    return k + _TURNS.type(1), step(carry)

                begin = lax.full((), 0, _TURNS)
                _, last = lax.while_loop(more, body, (begin, carry))
                return last

            # All of the body, with the callbacks that no carry depends on.
            def whole(carry: list[jax.Array]) -> list[jax.Array]:
                program = self.eqn.params["body_jaxpr"]
                new = interpret(program, [*of_body, *carry], rebind)
                return restore_weak_types(new, carry)

            def alone(carry: list[jax.Array]) -> list[jax.Array]:
                return self._step(of_body, carry, shared)

            results = take(whole, start)
            if shared:
                made_once = take(alone, [start[i] for i in shared])
                for i, x in zip(shared, made_once, strict=True):
                    results[i] = x
            typed = zip(results, self.eqn.outvars, strict=True)
            return [strong(x, atom.aval) for x, atom in typed]

        return self._trace(counted, jax.ShapeDtypeStruct((), _TURNS))

    def separable(self, shared: set[int]) -> list[int]:
        """The positions of the carries that are shared by all elements, if a loop of their own can
        make them; none otherwise.
        """
        chosen = self._closure(shared)
        steps, _ = self.body.needed_steps([self.body.gives[i] for i in chosen])
        if not shared.issuperset(chosen):
            return []
        for step in steps:
            if step.eqn.effects or mentions(Op(step.eqn)):
                return []
        return chosen

    def _closure(self, wanted: set[int]) -> list[int]:
        """The positions of the carries that some carries depend on, in any iteration."""
        first = len(self.body.takes) - len(self.body.gives)
        while True:
            _, read = self.body.needed_steps([self.body.gives[i] for i in wanted])
            more = wanted | _positions(self.body, first, read)
            if more == wanted:
                return sorted(wanted)
            wanted = more

    def _step(
        self,
        constants: Sequence[jax.Array],
        carry: list[jax.Array],
        chosen: Sequence[int],
    ) -> list[jax.Array]:
        """The next values of some of the carries."""
        given = [*constants, *self._spread(carry, chosen)]
        new = self.body.values(given, {}, [self.body.gives[i] for i in chosen])
        return restore_weak_types(new, carry)

    def _spread(self, carry: Sequence[jax.Array], chosen: Sequence[int]) -> list[jax.Array | None]:
        """All carries, with None for those that are not chosen, which nothing reads."""
        known = dict(zip(chosen, carry, strict=True))
        return [known.get(i) for i in range(len(self.body.gives))]

    def _trace(self, fn: object, *before: jax.ShapeDtypeStruct) -> ClosedJaxpr:
        operands = [abstract(atom.aval) for atom in self.eqn.invars]
        program = make_jaxpr(fn)(*before, *operands)
        # Messages name the line of the user's loop, not of this file.
        eqns: list[JaxprEqn] = []
        for each in program.jaxpr.eqns:
            is_loop = each.primitive.name == "while"
            eqns.append(each.replace(source_info=self.eqn.source_info) if is_loop else each)
        return program.replace(jaxpr=program.jaxpr.replace(eqns=eqns))


def _positions(branch: Branch, first: int, read: set[int]) -> set[int]:
    """The positions of the carries, which begin at an argument, among the values that are read."""
    return {i for i, n in enumerate(branch.takes[first:]) if n in read}


def _is_never_hoisted(_eqn: JaxprEqn) -> bool:
    return False


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

    def more(k: jax.Array, *given: jax.Array) -> jax.Array:
        (goes_on,) = quiet.run(op.params["cond_jaxpr"], given)
        return lax.lt(k, least) | goes_on

    def body(k: jax.Array, *given: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        return k + np.ones((), k.dtype), quiet.run(op.params["body_jaxpr"], given)

    begin = jnp.zeros_like(least)
    return while_beside(begin, op.eqn, while_parts(op.eqn, operands), more, body)[0]


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
