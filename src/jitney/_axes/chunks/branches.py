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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import jax
import numpy as np

from ..._jax.programs.control import rebuild_cond
from ..._jax.programs.jaxprs import abstract, equations, rebind
from ..._jax.programs.ssa import (
    Const,
    Ref,
    SSAProgram,
    Step,
    flatten_into,
    live_steps,
    numbers_of,
    run_steps,
    values_at,
)
from ..._jax.typed import AnyJaxpr, Aval, ClosedJaxpr, JaxprEqn
from ..interpreter import ragged_axes
from ..rules.control import depends_on_rows, inlined_program
from ..typed_jax import lax, make_jaxpr

Values = dict[int, jax.Array]
"""Number of a hoisted result -> its value."""


@dataclass(frozen=True)
class BranchStep(Step):
    """An operation of a branch. `stage` is the number of hoisted operations that it depends on in a
    chain; `is_out` marks a hoisted one.
    """

    stage: int
    is_out: bool


@dataclass(frozen=True)
class Branch(SSAProgram[BranchStep]):
    """A branch, or the body of a loop."""

    def out(self, stage: int | None = None) -> list[BranchStep]:
        """The hoisted operations, all of them or those of one stage."""
        steps = [step for step in self.steps if step.is_out]
        if stage is None:
            return steps
        return [step for step in steps if step.stage == stage]

    def values(
        self,
        operands: Sequence[jax.Array | None],
        hoisted: Values,
        refs: Sequence[Ref],
    ) -> list[jax.Array]:
        """Evaluate values of the branch from its operands and the hoisted results."""
        known: dict[int, object] = dict(zip(self.takes, operands, strict=True))
        known.update(hoisted)
        run_steps(self.needed_steps(refs)[0], known)
        return values_at(refs, known)

    def needed_steps(self, refs: Sequence[Ref]) -> tuple[list[BranchStep], set[int]]:
        """The steps that values are made by, in order, hoisted ones aside; and the numbers of all
        that these steps read, and of the values themselves.
        """
        inner = [step for step in self.steps if not step.is_out]
        return live_steps(inner, numbers_of(refs))


def hoist_uses(
    eqn: JaxprEqn,
    looks: Callable[[JaxprEqn], bool],
) -> ClosedJaxpr | None:
    """A jaxpr equivalent to a `cond`, in which no branch uses the axis; None if hoisting is not
    possible, or there is nothing to hoist.

    Args:
        eqn: The `cond`.
        looks: Predicate: whether an operation uses the axis.
    """
    programs = eqn.params["branches"]
    if eqn.effects or any(map(depends_on_rows, programs)):
        return None
    if not any(map(looks, chain.from_iterable(map(equations, programs)))):
        return None
    branches = [numbered_branch(program, looks) for program in programs]

    # Hoisted operations are fed zeros where their branch is not taken: NumPy dtypes only, no keys.
    out = [step for branch in branches for step in branch.out()]
    for step in out:
        atoms = (*step.eqn.invars, *step.eqn.outvars)
        if not all(isinstance(atom.aval.dtype, np.dtype) for atom in atoms):
            return None
    # Every use is inside a nested `cond`, which is not hoisted: nothing to do here.
    if not out:
        return None
    last = max(step.stage for step in out)
    avals_out = [atom.aval for atom in eqn.outvars]

    def whole(index: jax.Array, *operands: jax.Array) -> list[jax.Array]:
        hoisted: list[Values] = [{} for _ in branches]
        # One `cond` gives the operands of all uses of a stage, which may read earlier stages.
        for stage in range(last + 1):
            steps: list[tuple[int, BranchStep]] = []
            for b, branch in enumerate(branches):
                steps += [(b, step) for step in branch.out(stage)]
            parts = iter(_select_operands(index, operands, branches, hoisted, steps))
            for b, step in steps:
                read = [ref.value if isinstance(ref, Const) else next(parts) for ref in step.reads]
                results = rebind(step.eqn, read)
                hoisted[b].update(zip(step.makes, results, strict=True))
        return _cond_results(
            index,
            operands,
            branches,
            hoisted,
            avals_out,
        )

    program = make_jaxpr(whole)(*(abstract(atom.aval) for atom in eqn.invars))

    # Messages name the line of the user's `cond`, not of this file.
    eqns: list[JaxprEqn] = []
    for each in program.jaxpr.eqns:
        is_cond = each.primitive.name == "cond"
        eqns.append(each.replace(source_info=eqn.source_info) if is_cond else each)
    return program.replace(jaxpr=program.jaxpr.replace(eqns=eqns))


def numbered_branch(
    program: AnyJaxpr,
    looks: Callable[[JaxprEqn], bool],
) -> Branch:
    """A branch in SSA form, and the stage of each operation."""
    stages: dict[int, int] = {}

    def step_of(
        eqn: JaxprEqn,
        reads: tuple[Ref, ...],
        makes: tuple[int, ...],
    ) -> BranchStep:
        stage = max((stages.get(n, 0) for n in numbers_of(reads)), default=0)
        is_out = looks(eqn)
        stages.update(dict.fromkeys(makes, stage + is_out))
        return BranchStep(eqn, reads, makes, stage, is_out)

    def inside(eqn: JaxprEqn) -> object | None:
        if eqn.primitive.name == "cond":
            return hoist_uses(eqn, looks)
        return inlined_program(eqn)

    flat = flatten_into({}, program, step_of, inside)
    return Branch(
        flat.steps,
        flat.takes,
        flat.gives,
        flat.avals,
    )


def _select_operands(
    index: jax.Array,
    operands: Sequence[jax.Array],
    branches: Sequence[Branch],
    hoisted: Sequence[Values],
    steps: Sequence[tuple[int, BranchStep]],
) -> list[jax.Array]:
    """The operands of the hoisted operations of one stage; zeros for those of branches that are not
    taken.
    """
    wanted: list[tuple[int, Ref, Aval]] = []
    for b, step in steps:
        for ref, atom in zip(step.reads, step.eqn.invars, strict=True):
            if not isinstance(ref, Const):
                wanted.append((b, ref, atom.aval))

    def branch(b: int, positions: Sequence[int]) -> Callable[[], list[jax.Array]]:
        def taken() -> list[jax.Array]:
            refs = [wanted[i][1] for i in positions if wanted[i][0] == b]
            values = iter(branches[b].values(operands, hoisted[b], refs))
            out: list[jax.Array] = []
            for other, _, aval in (wanted[i] for i in positions):
                if other == b:
                    out.append(strong(next(values), aval))
                else:
                    out.append(lax.full(aval.shape, 0, aval.dtype))
            return out

        return taken

    return _two_conds(index, [aval for _, _, aval in wanted], len(branches), branch)


def _cond_results(
    index: jax.Array,
    operands: Sequence[jax.Array],
    branches: Sequence[Branch],
    hoisted: Sequence[Values],
    avals: Sequence[Aval],
) -> list[jax.Array]:
    """The results of the `cond`, once all hoisted operations are done."""

    def branch(b: int, positions: Sequence[int]) -> Callable[[], list[jax.Array]]:
        def taken() -> list[jax.Array]:
            refs = [branches[b].gives[i] for i in positions]
            values = branches[b].values(
                operands,
                hoisted[b],
                refs,
            )
            return [strong(x, avals[i]) for x, i in zip(values, positions, strict=True)]

        return taken

    return _two_conds(index, avals, len(branches), branch)


def _two_conds(
    index: jax.Array,
    avals: Sequence[Aval],
    count: int,
    branch: Callable[[int, Sequence[int]], Callable[[], list[jax.Array]]],
) -> list[jax.Array]:
    """Values with these abstract values from one `cond` for those with the axis, evaluated per
    chunk, and one for the others, evaluated once. In one cond the latter would count as made per
    chunk.

    Args:
        branch: Makes a branch, from its number and the positions of the values that it returns.
    """
    out: Values = {}
    for has_axis in (False, True):
        positions = [i for i, aval in enumerate(avals) if bool(ragged_axes(aval.shape)) == has_axis]
        results = rebuild_cond([index], [branch(b, positions) for b in range(count)])
        out.update(zip(positions, results, strict=True))
    return [out[i] for i in range(len(avals))]


def strong(x: jax.Array, aval: Aval) -> jax.Array:
    """The value in the dtype of an abstract value, without a weak type."""
    return lax.convert_element_type(x, aval.dtype)
