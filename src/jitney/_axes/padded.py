"""The padded evaluator: runs a jaxpr with symbolic sizes at the sizes of its buckets, and its
derivative likewise.

Reverse mode transposes the part of the derivative that is linear in the tangents. The transpose
multiplies the cotangents of padding, which are zero, by the values of padding. 0 * inf is NaN, so
in a derivative the padding of all non-linear values is set to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import jax
import numpy as np

from .._jax.programs.evaluation import without_calls
from .._jax.programs.jaxprs import is_literal, open_jaxpr, programs
from .._jax.programs.primitives import CALLS
from .._jax.trees import issubdtype
from .._jax.typed import AnyJaxpr, Array, Atom, ClosedJaxpr, JaxprEqn, Var
from .derivative import Derivative, with_derivative
from .interpreter import Numbers, Op, PaddedInterpreter, shape_of
from .monoids import MONOIDS
from .rules import RULES
from .typed_jax import jnp
from .xla_faults.overlapping_updates import overlapping_updates


def run_padded(
    jaxpr: AnyJaxpr,
    arrays: Sequence[object],
    allocated: Mapping[str, int],
    valid: Mapping[str, object],
    numbers: Numbers | None = None,
) -> list[jax.Array]:
    """Evaluate a program on padded arrays; the leading parts of the results are valid.

    Args:
        jaxpr: A program that `demand` has proven to be paddable.
        arrays: Its arguments, at the allocated sizes; their padding is never read.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
        numbers: Values that Python computed from the true size, by variables of the program.
    """
    walk = PaddedInterpreter(allocated, valid, RULES, numbers=numbers)
    walk.writes_apart = bool(overlapping_updates(jaxpr))
    return walk.run(jaxpr, arrays)


@dataclass(frozen=True)
class PaddedDerivative:
    """The derivative of a padded program.

    Args:
        jaxpr: Its program.
        variables: Its variables whose values Python computed from the true size.
        first: The place of the first of these values among the numbers of the padded program.
    """

    jaxpr: ClosedJaxpr
    variables: tuple[Var, ...] = ()
    first: int = 0

    def numbers(self, values: Sequence[Array]) -> Numbers:
        """Its values, among all numbers."""
        last = self.first + len(self.variables)
        return dict(zip(self.variables, values[self.first : last], strict=True))


_PRODUCTS = (
    "conv_general_dilated",
    "div",
    "dot_general",
    "mul",
    "triangular_solve",
    "tridiagonal_solve",
)
"""Operations that are linear in each operand, the divisor and the matrix of a system aside."""


def _is_finite(atom: Atom) -> bool:
    """Return whether it is known while tracing that a value is finite."""
    return is_literal(atom) and bool(np.all(np.isfinite(atom.val)))


def _tangents_among_results(program: AnyJaxpr, given: Iterable[bool]) -> list[bool]:
    """Return which results of a program may be tangents, given which arguments may: those that are
    computed of one (forward taint analysis).
    """

    def results(eqn: JaxprEqn, reads: Sequence[bool], _: object) -> list[bool]:
        return [any(reads)] * len(eqn.outvars)

    def constant(*_: object) -> bool:
        return False

    return without_calls(program, given, results, constant=constant)


class _Finite(PaddedInterpreter):
    """Interpreter of a derivative, in which the padding of values that are not linear in the
    tangents is 1.

    Args:
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the size of the valid part, an int32 scalar of the program.
        tangents: Variables of the program that are tangents.
        numbers: Values that Python computed from the true size, by variables of the program.
    """

    is_differentiated = True

    def __init__(
        self,
        allocated: Mapping[str, int],
        valid: Mapping[str, object],
        tangents: Sequence[Var],
        numbers: Numbers,
    ):
        super().__init__(allocated, valid, RULES, numbers=numbers)
        self._linear: set[Atom] = set(tangents)
        # What loops, branches and the like make of tangents, among which others may be.
        self._maybe: set[Atom] = set()
        # In a loop or branch, where tangents are not told from other values.
        self._is_within = False
        # Masks by the allocated shape, the position of the axis, and the text of its size; those of
        # several axes by the shape, no position, and the text of these; arrays of one value by
        # their shape, no position, and the text of their dtype and value.
        self._masks: dict[tuple[tuple[int, ...], int, str], jax.Array] = {}

    def run(
        self,
        jaxpr: object,
        values: Sequence[jax.Array],
    ) -> list[jax.Array]:
        # A mask that is made inside of a loop or branch is a tracer of that scope: not to be read
        # outside of it.
        outside, self._masks = self._masks, dict(self._masks)
        try:
            atoms = open_jaxpr(jaxpr)[0].invars
            given = zip(values, atoms, strict=True)
            finite = [self._finite(x, atom) for x, atom in given]
            return super().run(jaxpr, finite)
        finally:
            self._masks = outside

    def inside(
        self,
        dims: Sequence[object],
        axis: int,
    ) -> jax.Array:
        """The mask of `PaddedInterpreter.inside`, memoised by shape: JAX stores each mask as a
        residual.
        """
        key = (self.shape(dims), axis, str(dims[axis]))
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = super().inside(dims, axis)
        return mask

    def inside_all(
        self,
        dims: Sequence[object],
        axes: Sequence[int],
    ) -> jax.Array:
        """The mask of `PaddedInterpreter.inside_all`, memoised likewise."""
        key = (self.shape(dims), -1, " and ".join(f"{axis}: {dims[axis]}" for axis in axes))
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = super().inside_all(dims, axes)
        return mask

    def make(
        self,
        op: Op,
        values: Sequence[jax.Array],
    ) -> list[jax.Array]:
        # Forward dataflow: a result is linear if an operand is. Linear values keep their padding:
        # only the values that they are multiplied by have to be finite.
        linear = [self._is_linear(atom) for atom in op.eqn.invars]
        may_be = any(map(self.may_be_linear, op.eqn.invars))
        if op.name in CALLS and may_be:
            return self._evaluate_call(op, values, linear)
        if may_be:
            self._maybe.update(op.eqn.outvars)
        if any(linear) and not programs(op.params):
            self._linear.update(op.eqn.outvars)
            return super().make(op, self._cleared(op, values, linear))
        outside = self._is_within
        self._is_within = outside or (bool(programs(op.params)) and op.name not in CALLS)
        try:
            results = super().make(op, values)
        finally:
            self._is_within = outside
        made = zip(results, op.eqn.outvars, strict=True)
        return [self._finite(x, atom) for x, atom in made]

    def _cleared(
        self,
        op: Op,
        values: Sequence[jax.Array],
        linear: Sequence[bool],
    ) -> Sequence[jax.Array]:
        """Clear the padding of tangents that a factor without their axis multiplies. The factor may
        be infinite, and the zeros of the cotangent behind the true size meet it: JAX transposes the
        clearing too, and so clears the NaNs that they make there.
        """
        if op.name not in _PRODUCTS:
            return values
        atoms = zip(op.eqn.invars, linear, strict=True)
        factors = [atom for atom, is_linear in atoms if not is_linear]
        # An array that elements are multiplied by has a padding of its own, which is 1.
        has_ones = op.name in ("div", "mul") and any(map(shape_of, factors))
        if has_ones or all(map(_is_finite, factors)):
            return values
        # What sums are cleared with, so that both have one array.
        identity = MONOIDS["add"].identity
        return [
            self.keep(x, dims, range(len(dims)), identity(x.dtype)) if is_linear else x
            for x, dims, is_linear in zip(values, op.ins, linear, strict=True)
        ]

    def filled(self, x: jax.Array, value: object) -> jax.Array:
        """The array of `PaddedInterpreter.filled`, memoised as masks are."""
        key = (x.shape, -1, f"{x.dtype} {value!r}")
        known = self._masks.get(key)
        if known is None:
            known = self._masks[key] = super().filled(x, value)
        return known

    def within(self) -> PaddedInterpreter:
        other = copy(self)
        other._masks = dict(self._masks)
        return other

    def number(self, variable: Var) -> jax.Array:
        return self._finite(jnp.asarray(super().number(variable)), variable)

    def may_be_linear(self, atom: Atom) -> bool:
        if is_literal(atom):
            return False
        return self._is_within or atom in self._linear or atom in self._maybe

    def _is_linear(self, atom: Atom) -> bool:
        return not is_literal(atom) and atom in self._linear

    def _evaluate_call(
        self,
        op: Op,
        values: Sequence[jax.Array],
        linear: Sequence[bool],
    ) -> list[jax.Array]:
        """Evaluate a call with tangents among its arguments, and find the tangents among its
        results.
        """
        # Calls may share a jaxpr, hence its variables: each call starts with a fresh set.
        held = op.params[CALLS[op.name]]
        program = open_jaxpr(held)[0]
        arguments = zip(program.invars, linear, strict=True)
        maybe = [*map(self.may_be_linear, op.eqn.invars)]
        given = zip(program.invars, maybe, strict=True)
        outside, unsure = self._linear, self._maybe
        self._linear = {var for var, is_linear in arguments if is_linear}
        self._maybe = {var for var, may_be in given if may_be}
        # By the program itself: one without a padded axis is not walked through.
        found = _tangents_among_results(held, maybe)
        try:
            results = super().make(op, values)
            inner = zip(op.eqn.outvars, program.outvars, found, strict=True)
            for var, atom, may_be in inner:
                if self._is_linear(atom):
                    outside.add(var)
                if may_be:
                    unsure.add(var)
        finally:
            self._linear, self._maybe = outside, unsure
        return results

    def _finite(
        self,
        x: jax.Array,
        atom: Atom,
    ) -> jax.Array:
        dims = shape_of(atom)
        if not dims or atom in self._linear or not issubdtype(x.dtype, np.inexact):
            return x
        return self.keep(
            x,
            dims,
            range(len(dims)),
            1,
        )


_Beside = tuple[Mapping[str, object], Sequence[Array]]
"""True sizes, and the numbers that Python computed from them."""


def run_differentiable(
    jaxpr: ClosedJaxpr,
    derivative: Derivative[PaddedDerivative],
    arrays: Sequence[object],
    allocated: Mapping[str, int],
    valid: Mapping[str, object],
    variables: Iterable[Var] = (),
    numbers: Sequence[Array] = (),
) -> list[jax.Array]:
    """`run_padded`, differentiable once.

    Args:
        jaxpr: A program that `demand` has proven to be paddable.
        derivative: Its derivative, proven in the same way.
        arrays: Its arguments.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
        variables: Variables of the program whose values Python computed from the true size.
        numbers: These values, and behind them those of derivatives.
    """
    own = list(variables)

    def run(arrays: Sequence[jax.Array], beside: _Beside) -> list[jax.Array]:
        valid, numbers = beside
        values = dict(zip(own, numbers, strict=False))
        return run_padded(jaxpr, arrays, allocated, valid, values)

    def along(
        program: PaddedDerivative,
        arrays: Sequence[jax.Array],
        beside: _Beside,
        tangents: Sequence[jax.Array],
    ) -> list[jax.Array]:
        valid, numbers = beside
        linear = open_jaxpr(program.jaxpr)[0].invars[len(arrays) :]
        finite = _Finite(
            allocated,
            valid,
            linear,
            program.numbers(numbers),
        )
        finite.writes_apart = bool(overlapping_updates(program.jaxpr))
        return finite.run(program.jaxpr, [*arrays, *tangents])

    return with_derivative(
        run,
        along,
        derivative,
        arrays,
        (dict(valid), list(numbers)),
        len(jaxpr.out_avals),
    )
