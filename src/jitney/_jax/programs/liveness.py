"""Backward liveness of jaxprs: the equations and operands that given results need.

XLA removes dead code, and with it the checks of values that nothing reads. An interpreter that
moves the checks into data has to drop the same ones:

    a b = f x     # a check inside            used = (False, True): the result is d
    c   = g a                             ->  `c` and with it `a` are dead; `b` is live
    d   = h b                                 Live.results = {id(f): (False, True), id(h): (True,)}

An array without elements is dead as well: XLA replaces whatever computes it by another empty array
of its type, and so does `evaluate_flagged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jax.dtypes import float0

from ..trees import extended, issubdtype
from ..typed import AnyJaxpr, Atom, Aval, Jaxpr, JaxprEqn
from .jaxprs import is_literal, open_jaxpr, runs, scan_parts, variables

Used = tuple[bool, ...]


def live_equations(
    program: Jaxpr,
    results: Iterable[Atom],
    reads: Callable[[JaxprEqn, Used], Iterable[Atom]] | None = None,
) -> tuple[list[tuple[JaxprEqn, Used]], set[Atom]]:
    """Backward liveness of the equations of a program, without those inside of them. An equation is
    live if one of its results is, or if it has effects.

    Args:
        program: The program.
        results: The results that are needed.
        reads: Transfer function: the operands that the needed results of an equation need; all by
            default.

    Returns:
        The live equations in order, each with which of its results are needed; and the variables
        that are live.
    """
    live: set[Atom] = set(variables(results))
    equations: list[tuple[JaxprEqn, Used]] = []
    for eqn in reversed(program.eqns):
        used = tuple(atom in live for atom in eqn.outvars)
        if any(used) or eqn.effects:
            equations.append((eqn, used))
            live.update(variables(eqn.invars if reads is None else reads(eqn, used)))
    return equations[::-1], live


def is_empty(aval: Aval) -> bool:
    """Return whether an array has no elements and can be rebuilt from its shape and dtype alone."""
    sizes = [size for size in getattr(aval, "shape", ()) if isinstance(size, int)]
    if 0 not in sizes or getattr(aval, "weak_type", False):
        return False
    return aval.dtype != float0 and not issubdtype(aval.dtype, extended)


def _is_needed(atom: Atom) -> bool:
    return not (is_literal(atom) or is_empty(atom.aval))


@dataclass(frozen=True)
class Live:
    """Live part of a program for given live results.

    Args:
        inputs: Whether each argument is live.
        results: Live results of each live equation, by the identity of the equation.
    """

    inputs: Used
    results: dict[int, Used] = field(compare=False)


class Liveness:
    """Liveness analysis, memoised by program and set of live results."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Used], tuple[Jaxpr, Live]] = {}

    def of(
        self,
        program: AnyJaxpr,
        used: Sequence[bool],
    ) -> Live:
        """Return what the given results of a program need."""
        plain, _ = open_jaxpr(program)
        # The entry holds the program, so that its id is not given to another object.
        key = (id(plain), tuple(used))
        if key not in self._known:
            self._known[key] = (plain, self._of(plain, key[1]))
        return self._known[key][1]

    def _of(self, plain: Jaxpr, used: Used) -> Live:
        def reads(eqn: JaxprEqn, used: Used) -> Iterator[Atom]:
            return _live_atoms(eqn.invars, self.inputs(eqn, used))

        equations, live = live_equations(plain, _live_atoms(plain.outvars, used), reads)
        inputs = tuple(atom in live for atom in plain.invars)
        return Live(inputs, {id(eqn): used for eqn, used in equations})

    def inputs(self, eqn: JaxprEqn, used: Used) -> Used:
        """Transfer function: the operands of an equation that its live results need."""
        name, params = eqn.primitive.name, eqn.params
        program = runs(eqn)
        if program is not None:
            return self.of(program, used).inputs
        # The branch index is always live; an operand is, if one of the branches reads it.
        if name == "cond":
            branches = [self.of(branch, used).inputs for branch in params["branches"]]
            return (True, *map(any, zip(*branches, strict=True)))
        if name == "scan":
            # Constants and rows are live if the body reads them. A carry can be live without being
            # read by the body: its last value is a result.
            results = self.loop_results(eqn, used)
            body = self.of(params["jaxpr"], results).inputs
            fixed, carry, rows = scan_parts(eqn, list(body))
            return (*fixed, *results[: len(carry)], *rows)
        if name == "while":
            carry = self.loop_results(eqn, used)
            test = self.of(params["cond_jaxpr"], (True,)).inputs
            body = self.of(params["body_jaxpr"], carry).inputs
            of_test = test[: params["cond_nconsts"]]
            of_body = body[: params["body_nconsts"]]
            return (*of_test, *of_body, *carry)
        # Primitives without a rule need all of their operands.
        return (True,) * len(eqn.invars)

    def loop_results(self, eqn: JaxprEqn, used: Used) -> Used:
        """Grow the live results of a loop by the carries that live carries need in later
        iterations.

        The results of a `while`, and the first results of a `scan`, are its carry.
        """
        params = eqn.params
        if eqn.primitive.name == "scan":
            positions = list(range(len(eqn.invars)))
            _, carry, _ = scan_parts(eqn, positions)
            return self._fixpoint(params["jaxpr"], used, carry)
        # The condition decides how many iterations run, so the carries that it reads are live.
        condition = self.of(params["cond_jaxpr"], (True,))
        read = condition.inputs[params["cond_nconsts"] :]
        used = tuple(map(any, zip(used, read, strict=True)))
        first = params["body_nconsts"]
        carry = range(first, first + len(used))
        return self._fixpoint(params["body_jaxpr"], used, carry)

    def _fixpoint(
        self,
        body: AnyJaxpr,
        used: Used,
        carry: Sequence[int],
    ) -> Used:
        """Least fixpoint of `loop_results`: repeat until the body reads no further carry.

        Args:
            body: Body of the loop, which returns the carry first.
            used: Live results to begin with.
            carry: Position of each carry among the arguments of the body.
        """
        while True:
            inputs = self.of(body, used).inputs
            # The set only grows and is bounded by the number of results, so this ends.
            more = list(used)
            for i, position in enumerate(carry):
                more[i] = more[i] or inputs[position]
            if tuple(more) == used:
                return used
            used = tuple(more)


def _live_atoms(atoms: Sequence[Atom], live: Used) -> Iterator[Atom]:
    """Live atoms, without literals and arrays that have no elements."""
    for atom, is_live in zip(atoms, live, strict=True):
        if is_live and _is_needed(atom):
            yield atom
