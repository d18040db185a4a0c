"""Hoist uses of a cut axis out of branches.

`cond(p, sum, max, x)` becomes

    a, b = cond(p, (x, zeros), (zeros, x))
    s, m = sum(a), max(b)
    out = cond(p, s, m)

The branch that is not taken feeds zeros to its reduction, whose result is not read. Operations that
need one chunk only stay in the branch. Reductions that depend on one another are hoisted in stages,
with a `cond` before each, which recomputes what it needs, as passes do.

Operations that may not terminate on zeros, or whose evaluation is visible (`while` loops,
callbacks), are not hoisted; the branch is refused then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._jax.evaluation import Const, Ref, as_const, numbered, numbers_of, values_at, without_calls
from ..._jax.jaxprs import bound, equations, opened
from ..._jax.typed import AnyJaxpr, Aval, JaxprEqn
from ..interpreter import ragged_axes
from ..rules.control import depends_on_rows, inlined_program
from ..typed_jax import lax, make_jaxpr


@dataclass(frozen=True)
class _BranchStep:
    """An operation of a branch. `stage` is the number of hoisted operations that it depends on in a
    chain; `is_out` marks a hoisted one.
    """

    eqn: JaxprEqn
    reads: tuple[Ref, ...]
    makes: tuple[int, ...]
    stage: int
    is_out: bool


@dataclass(frozen=True)
class _Branch:
    takes: tuple[int, ...]
    gives: tuple[Ref, ...]
    steps: tuple[_BranchStep, ...]

    def out(self, stage: int) -> list[_BranchStep]:
        return [step for step in self.steps if step.is_out and step.stage == stage]

    def values(
        self, operands: Sequence[jax.Array], found: dict[int, Any], refs: Sequence[Ref]
    ) -> list[Any]:
        """Evaluate values of the branch from its operands and the hoisted results."""
        # Backward: the steps that are needed. Then forward: evaluate them.
        known = {**dict(zip(self.takes, operands, strict=True)), **found}
        needed = set(numbers_of(refs))
        todo: list[_BranchStep] = []
        for step in reversed(self.steps):
            if not step.is_out and not needed.isdisjoint(step.makes):
                todo.append(step)
                needed.update(numbers_of(step.reads))
        for step in reversed(todo):
            known.update(
                zip(step.makes, bound(step.eqn, values_at(step.reads, known)), strict=True)
            )
        return values_at(refs, known)


def hoist_uses(eqn: JaxprEqn, looks: Callable[[Any], bool]) -> Any | None:
    """A jaxpr equivalent to a `cond`, in which no branch uses the axis; None if hoisting is not
    possible, or there is nothing to hoist.

    Args:
        eqn: The `cond`.
        looks: Predicate: whether an operation uses the axis.
    """
    programs = eqn.params["branches"]
    if (
        eqn.effects
        or any(map(depends_on_rows, programs))
        or not any(looks(held) for held in _all(programs))
    ):
        return None
    branches = [_taken_apart(program, looks) for program in programs]
    avals = [
        jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype, weak_type=atom.aval.weak_type)
        for atom in eqn.invars
    ]
    out = [step for branch in branches for step in branch.steps if step.is_out]
    # Hoisted operations are fed zeros where their branch is not taken: NumPy dtypes only, no keys.
    made = [atom.aval for step in out for atom in (*step.eqn.invars, *step.eqn.outvars)]
    if not all(isinstance(aval.dtype, np.dtype) for aval in made):
        return None
    stages = 1 + max(step.stage for step in out)

    def whole(index: Any, *operands: jax.Array) -> list[Any]:
        found = [{} for _ in branches]
        for stage in range(stages):
            steps = [(b, step) for b, branch in enumerate(branches) for step in branch.out(stage)]
            parts = iter(_chosen(index, operands, branches, found, steps))
            for b, step in steps:
                read = [ref.value if isinstance(ref, Const) else next(parts) for ref in step.reads]
                found[b].update(zip(step.makes, bound(step.eqn, read), strict=True))
        return _finished(index, operands, branches, found, [atom.aval for atom in eqn.outvars])

    # Messages name the line of the user's `cond`, not of this file.
    program = make_jaxpr(whole)(*avals)
    lines = [
        made.replace(source_info=eqn.source_info) if made.primitive.name == "cond" else made
        for made in program.jaxpr.eqns
    ]
    return program.replace(jaxpr=program.jaxpr.replace(eqns=lines))


def _all(programs: Sequence[object]) -> Iterator[Any]:
    for program in programs:
        yield from equations(program)


def _taken_apart(program: AnyJaxpr, looks: Callable[[Any], bool]) -> _Branch:
    avals: dict[int, Any] = {}
    steps: list[_BranchStep] = []
    stage: dict[int, int] = {}

    def results(eqn: JaxprEqn, reads: list[Ref], _within: object) -> Sequence[Ref]:
        makes = numbered(eqn.outvars, avals)
        at, is_out = max((stage.get(n, 0) for n in numbers_of(reads)), default=0), looks(eqn)
        steps.append(_BranchStep(eqn, tuple(reads), makes, at, is_out))
        stage.update(dict.fromkeys(makes, at + is_out))
        return makes

    def inside(eqn: JaxprEqn) -> Any | None:
        return hoist_uses(eqn, looks) if eqn.primitive.name == "cond" else inlined_program(eqn)

    takes = numbered(opened(program)[0].invars, avals)
    gives = without_calls(program, takes, results, inside, constant=as_const)
    return _Branch(takes, tuple(gives), tuple(steps))


def _chosen(
    index: object,
    operands: Sequence[jax.Array],
    branches: Sequence[_Branch],
    found: list[dict[int, Any]],
    steps: Sequence[tuple[int, _BranchStep]],
) -> list[Any]:
    """The operands of the hoisted operations of one stage; zeros for those of branches that are not
    taken.
    """
    wanted = [
        (b, ref, atom.aval)
        for b, step in steps
        for ref, atom in zip(step.reads, step.eqn.invars, strict=True)
    ]
    wanted = [(b, ref, aval) for b, ref, aval in wanted if not isinstance(ref, Const)]

    def branch(b: int) -> Callable[[], list[Any]]:
        def taken() -> list[Any]:
            values = iter(
                branches[b].values(
                    operands, found[b], [ref for other, ref, _ in wanted if other == b]
                )
            )
            return [
                _strong(next(values), aval) if other == b else lax.full(aval.shape, 0, aval.dtype)
                for other, _, aval in wanted
            ]

        return taken

    return _switch(index, [branch(b) for b in range(len(branches))])


def _finished(
    index: object,
    operands: Sequence[jax.Array],
    branches: Sequence[_Branch],
    found: list[dict[int, Any]],
    avals: Sequence[Any],
) -> list[Any]:
    """The results of the `cond`, once all hoisted operations are done."""
    # Two conds: one for results with the axis, evaluated per chunk, one for the others, evaluated
    # once. In one cond the latter would count as made per chunk.
    out = [None for _ in avals]
    for has_axis in (False, True):
        mine = [i for i, aval in enumerate(avals) if bool(ragged_axes(aval.shape)) == has_axis]

        def branch(b: int, mine: Sequence[int] = mine) -> Callable[[], list[Any]]:
            def taken() -> list[Any]:
                values = branches[b].values(
                    operands, found[b], [branches[b].gives[i] for i in mine]
                )
                return [_strong(x, avals[i]) for x, i in zip(values, mine, strict=True)]

            return taken

        for i, x in zip(
            mine, _switch(index, [branch(b) for b in range(len(branches))]), strict=True
        ):
            out[i] = x
    return out


def _switch(index: object, branches: Sequence[Callable[[], list[Any]]]) -> list[Any]:
    """Call `lax.switch` on branches that close over their operands."""
    return list(lax.switch(index, branches))


def _strong(x: jax.Array, aval: Aval) -> Any:
    return lax.convert_element_type(x, aval.dtype)
