"""Loops in a search for a NaN: compiled runs up to the next iteration that produces one.

    run compiled from i  ->  iteration j puts a new NaN or infinity into the carry or a result
    interpret iteration j  ->  its marks
    run compiled from j + 1 ...

Runs do not stop again for a slot whose maker is known. They begin at any iteration and stop before
any, so this loop is written here: `_jax/programs/control.py` binds whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import jax
import jax.numpy as jnp

from jitney._jax.programs.evaluation import evaluate_jaxpr
from jitney._jax.programs.jaxprs import (
    open_jaxpr,
    scan_parts,
    while_parts,
)

from ..._jax.typed import AnyJaxpr, JaxprEqn
from .marked_values import KINDS, Kind, Mark, MarkedValue, is_inexact, keep_marks

_TRACED_TEST: Final[dict[Kind, Callable[[jax.Array], jax.Array]]] = {
    "NaN": jnp.isnan,
    "inf": jnp.isinf,
}
Index = TypeVar("Index", int, jax.Array)
# Number of iterations of a loop that are interpreted.
_VISITS: Final = 64
Follow = Callable[[object, Sequence[MarkedValue], tuple[str, ...], str], list[MarkedValue]]
"""Interpret a jaxpr on arguments: the calls and loops around it, and the line where it is seen."""
_State = tuple[jax.Array, list[jax.Array], jax.Array]
"""Iteration, carry, and whether the loop has stopped."""


@dataclass(frozen=True)
class Loop:
    """A scan or while loop in one form: `body(*constants, *carry, *x) -> (*carry, *y)`."""

    name: str
    body: AnyJaxpr
    constants: list[MarkedValue]
    carry: list[MarkedValue]
    xs: list[MarkedValue]
    length: int | None = None
    reverse: bool = False
    condition: AnyJaxpr | None = None
    condition_constants: tuple[object, ...] = ()

    @classmethod
    def read(cls, eqn: JaxprEqn, operands: list[MarkedValue]) -> Loop:
        """Read the loop of an equation, with the values of its operands."""
        params = eqn.params
        if eqn.primitive.name == "while":
            of_condition, constants, carry = while_parts(eqn, operands)
            fixed = tuple(value.data for value in of_condition)
            return cls(
                "while",
                params["body_jaxpr"],
                constants,
                carry,
                [],
                condition=params["cond_jaxpr"],
                condition_constants=fixed,
            )
        return cls(
            "scan", params["jaxpr"], *scan_parts(eqn, operands), params["length"], params["reverse"]
        )

    def marks(
        self,
        follow: Follow,
        results: list[MarkedValue],
        path: tuple[str, ...],
        source: str,
    ) -> list[dict[Kind, Mark]]:
        """Marks of the results; if infinities come and go in too many iterations, those of NaNs
        alone.
        """
        has_nan = any(value.has("NaN") for value in results)
        marks = self.visit(follow, KINDS if has_nan else ("inf",), path, source)
        if marks is None and has_nan:
            marks = self.visit(follow, ("NaN",), path, source)
        return [{} for _ in results] if marks is None else marks

    def visit(
        self,
        follow: Follow,
        kinds: tuple[Kind, ...],
        path: tuple[str, ...],
        source: str,
    ) -> list[dict[Kind, Mark]] | None:
        """Interpret each iteration that produces a new NaN or infinity; None if there are too
        many.
        """
        # Alternate: run compiled until the next such iteration, then interpret it to find the
        # operation.
        carry, i = self.carry, 0
        body, _ = open_jaxpr(self.body)
        ys: list[dict[Kind, Mark]] = [{} for _ in body.outvars[len(carry) :]]
        stride = self.stride(kinds)
        for _ in range(_VISITS):
            # Slots whose maker is known do not stop the run again.
            settled = [
                [_has_maker(marks, kind) for kind in kinds]
                for marks in (*(value.marks for value in carry), *ys)
            ]
            at, data, stopped = stride(
                i,
                [x.data for x in carry],
                settled,
                [x.data for x in self.constants],
                [x.data for x in self.xs],
            )
            # A slot keeps its marks as long as it still has a NaN or an infinity.
            carry = [keep_marks(new, old.marks) for new, old in zip(data, carry, strict=True)]
            if not bool(stopped):
                return [*(value.marks for value in carry), *ys]
            i = int(at)
            position = self.position(i)
            inputs = [
                *self.constants,
                *carry,
                *(keep_marks(x.data[position], x.marks) for x in self.xs),
            ]
            outputs = follow(
                self.body, inputs, (*path, f"{self.name} iteration {position}"), source
            )
            carry, new = outputs[: len(carry)], outputs[len(carry) :]
            ys = [{**value.marks, **_lasting(marks)} for value, marks in zip(new, ys, strict=True)]
            i += 1
        return None

    def position(self, i: Index) -> Index:
        """Row of the stacked arrays that iteration `i` reads and writes."""
        if self.reverse and self.length is not None:
            return self.length - 1 - i
        return i

    def more(self, i: jax.Array, carry: Sequence[object]) -> jax.Array:
        """Condition of the loop before iteration `i`, traced."""
        if self.condition is None:
            return i < (self.length or 0)
        return _evaluate(self.condition, [*self.condition_constants, *carry])[0]

    def stride(self, kinds: tuple[Kind, ...]) -> Callable[..., _State]:
        """Compile a run from iteration `i` to the start of the next one that produces something, or
        to the end.
        """

        def run(
            i: jax.Array,
            carry: list[jax.Array],
            settled: list[list[jax.Array]],
            constants: list[jax.Array],
            xs: list[jax.Array],
        ) -> _State:
            def going(state: _State) -> jax.Array:
                i, carry, stopped = state
                return ~stopped & self.more(i, carry)

            def advance(state: _State) -> _State:
                i, carry, _ = state
                row = self.position(i)
                x = [jax.lax.dynamic_index_in_dim(x, row, keepdims=False) for x in xs]
                out = _evaluate(self.body, [*constants, *carry, *x])

                # A result of one iteration has no value before: all that is bad in it is new.
                new = out[: len(carry)]
                before = [*carry, *(None for _ in out[len(carry) :])]
                slots = zip(before, out, settled, strict=True)
                stopped = jnp.any(jnp.array([_news(*slot, kinds) for slot in slots]))
                # Return the carry from before that iteration, so that it can be interpreted from
                # its inputs.
                kept = [jax.lax.select(stopped, *both) for both in zip(carry, new, strict=True)]
                return jnp.where(stopped, i, i + 1), kept, stopped

            begin = i, carry, jnp.zeros((), bool)
            return jax.lax.while_loop(going, advance, begin)

        return jax.jit(run)


def _news(
    old: jax.Array | None,
    new: jax.Array,
    settled: Sequence[jax.Array],
    kinds: tuple[Kind, ...],
) -> jax.Array | bool:
    """Return whether an iteration puts a new NaN or infinity into a slot whose maker is not
    known.
    """
    if not is_inexact(new):
        return False
    news: jax.Array | bool = False
    for kind, known in zip(kinds, settled, strict=True):
        bad = _TRACED_TEST[kind](new)
        if old is None:
            news |= jnp.any(bad) & ~known
        else:
            before = _TRACED_TEST[kind](old)
            # NaN != NaN; an infinity counts as the same only with its sign.
            same = before if kind == "NaN" else before & (old == new)
            news |= jnp.any(bad & ~same) & ~(known & jnp.any(before))
    return news


def _has_maker(marks: dict[Kind, Mark], kind: Kind) -> bool:
    """Return whether a maker that is worth reporting is known, so that later ones are not looked
    for.
    """
    return kind in marks and not marks[kind].rank[0]


def _lasting(marks: dict[Kind, Mark]) -> dict[Kind, Mark]:
    return {kind: mark for kind, mark in marks.items() if not mark.rank[0]}


def _evaluate(jaxpr: AnyJaxpr, arguments: Sequence[object]) -> list[jax.Array]:
    return evaluate_jaxpr(*open_jaxpr(jaxpr), arguments)
