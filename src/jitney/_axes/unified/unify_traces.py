"""Make one program with symbolic sizes from traces of a function at a few known sizes.

The traces are walked in step. Each operation must be the same in all of them; a number that differs
becomes an expression of the sizes (`fitted_dims.py`), or a value that Python computes for each call
(`number_of_size.py`). The operations are bound anew to values with symbolic shapes, so that JAX's
own rules check the types of the result.

    size 67   c:f32[66] = slice[limit_indices=(67,) ...] a;   d:f32[] = div b 66.0
    size 71   c:f32[70] = slice[limit_indices=(71,) ...] a;   d:f32[] = div b 70.0
    unified   c:f32[n-1] = slice[limit_indices=(n,) ...] a;   d:f32[] = div b (n - 1)

With a single trace nothing differs, and the walk only expands closed primitives: those of other
packages, whose implementation is a function that JAX traces when it compiles them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np

from ..._jax.programs.jaxprs import (
    abstract,
    at_line_of,
    called_jaxpr,
    equations,
    is_literal,
    open_jaxpr,
    programs,
    rebind,
    source_of,
    variables,
)
from ..._jax.programs.liveness import Used, live_equations
from ..._jax.typed import AnyJaxpr, ClosedJaxpr, JaxprEqn, Value, Values
from ..dims import Dim, evaluate
from ..interpreter import Op
from ..refusal import Refused
from ..rules.control import expand_hi_primitive
from ..symbolic.size_errors import first_line
from ..typed_jax import InconclusiveDimensionOperation, make_jaxpr
from .closed_primitives import expansion, is_closed
from .fitted_dims import Sample
from .unify_bodies import HOLDERS
from .unify_numbers import Differs, SampledNumbers, is_same

# In place of a result that nothing reads, and whose operations may differ.
_UNREAD: Value = None


def unify(
    traces: Sequence[AnyJaxpr],
    samples: Sequence[Sample],
    dims: Mapping[str, Dim],
    avals: Sequence[object],
) -> ClosedJaxpr:
    """The program with symbolic sizes.

    Args:
        traces: The programs at known sizes.
        samples: The known sizes of each trace.
        dims: Symbol -> the symbolic size.
        avals: The abstract arguments, of symbolic sizes.

    Raises:
        Refused: The traces do other operations, or JAX's rules cannot tell for all sizes.
    """
    unifier = Unifier(samples, dims)
    try:
        return unifier.program(traces, avals)
    except Differs as error:
        raise Refused(unifier.at, str(error)) from error.__cause__
    except InconclusiveDimensionOperation as error:
        raise Refused(unifier.at, f"compares sizes: {first_line(error)}") from error


def expand_closed(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with its closed primitives replaced by what they compute."""
    if not any(map(is_closed, equations(jaxpr))):
        return jaxpr
    return unify(
        [jaxpr],
        [{}],
        {},
        [abstract(aval) for aval in jaxpr.in_avals],
    )


class Unifier:
    """A walk over several traces of one function in step. Its methods raise `Differs`.

    Args:
        samples: The known sizes of each trace.
        dims: Symbol -> the symbolic size.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        dims: Mapping[str, Dim],
    ):
        self.numbers = SampledNumbers(samples, dims)
        # The place of the latest operation, for messages.
        self.at = ""

    def program(
        self,
        traces: Sequence[AnyJaxpr],
        avals: Sequence[object],
    ) -> ClosedJaxpr:
        """The program, of arguments with these abstract values."""

        def unified(*values: Value) -> Values:
            return self.walk(traces, values)

        return make_jaxpr(unified)(*avals)

    def walk(
        self,
        traces: Sequence[AnyJaxpr],
        values: Sequence[Value],
        used: Used | None = None,
    ) -> Values:
        """The results of the unified program at these values; `_UNREAD` in place of those that are
        not used, where it is given which are.
        """
        opened = [open_jaxpr(trace) for trace in traces]
        jaxprs = [jaxpr for jaxpr, _ in opened]
        lengths = [
            tuple(map(len, (jaxpr.invars, jaxpr.constvars, jaxpr.outvars))) for jaxpr in jaxprs
        ]
        if not is_same(lengths):
            raise Differs("does other operations at each size")
        needed = (True,) * len(jaxprs[0].outvars) if used is None else used
        live = [_live(jaxpr, needed, is_one=self.numbers.is_one) for jaxpr in jaxprs]
        bodies = [[eqn for eqn, _ in body] for body in live]
        used_of = {id(eqn): results for body in live for eqn, results in body}

        known = _Slots(self)
        # A constant has the line of the operation that reads it first.
        readers = {each: eqn for eqn in reversed(bodies[0]) for each in variables(eqn.invars)}
        for constvars, constants in zip(
            zip(*(jaxpr.constvars for jaxpr in jaxprs), strict=True),
            zip(*(held for _, held in opened), strict=True),
            strict=True,
        ):
            reader = readers.get(constvars[0])
            with nullcontext() if reader is None else at_line_of(reader):
                known.define(constvars, self.constant(constants, constvars))
        given = zip(*(jaxpr.invars for jaxpr in jaxprs), strict=True)
        for invars, value in zip(
            given,
            values,
            strict=True,
        ):
            known.define(invars, value)

        for row in list(_side_by_side(bodies)):
            eqns = known.with_whole_slices(row)
            self.at = source_of(eqns[0]) or self.at
            same = ([eqn.primitive.name for eqn in eqns], [len(eqn.invars) for eqn in eqns])
            if not all(map(is_same, same)) or not is_same(len(eqn.outvars) for eqn in eqns):
                raise Differs("does other operations at each size")
            taken = zip(*(eqn.invars for eqn in eqns), strict=True)
            with at_line_of(eqns[0]), eqns[0].ctx.manager:
                operands = [known.read(atoms) for atoms in taken]
            # A whole slice in place of none has one result, which is used.
            uses = [used_of.get(id(eqn), (True,)) for eqn in eqns]
            results = self._results(eqns, operands, tuple(map(any, zip(*uses, strict=True))))
            made = zip(*(eqn.outvars for eqn in eqns), strict=True)
            for outvars, value in zip(
                made,
                results,
                strict=True,
            ):
                if value is _UNREAD:
                    continue
                self._check(outvars, value)
                self._note(outvars, value)
                known.define(outvars, value)
        outs = zip(*(jaxpr.outvars for jaxpr in jaxprs), strict=True)
        return [
            known.read(atoms) if is_needed else _UNREAD
            for atoms, is_needed in zip(outs, needed, strict=True)
        ]

    def constant(
        self,
        values: Sequence[Value],
        atoms: Sequence[Value],
    ) -> Value:
        """A constant of the program, from those of the traces."""
        with _asking_JAX("makes a constant of its size"):
            return self.numbers.constant(values, [atom.aval for atom in atoms])

    def params(self, eqns: Sequence[JaxprEqn], leaving: Sequence[str] = ()) -> dict[str, Value]:
        """The parameters of an operation that are not sub-jaxprs, as far as they differ."""
        return self.numbers.params(eqns, leaving)

    def bind(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Value],
        params: Mapping[str, Value],
    ) -> Values:
        """The results of an operation, by JAX's own rules."""
        with _asking_JAX(f"does `{eqn.primitive.name}`"):
            return rebind(eqn, operands, **params)

    def _check(
        self,
        outvars: Sequence[Value],
        value: Value,
    ) -> None:
        """Check that a result has the shape of the traces at their sizes, by JAX's rules."""
        for variable, sample in zip(
            outvars,
            self.numbers.samples,
            strict=True,
        ):
            shape = tuple(getattr(variable.aval, "shape", ()))
            if (
                not self.numbers.is_one
                and tuple(evaluate(d, sample) for d in np.shape(value)) != shape
            ):
                raise Differs("makes arrays of another shape at each size")
            if getattr(variable.aval, "dtype", None) != getattr(value, "dtype", None):
                raise Differs("computes in another dtype at each size")

    def _note(
        self,
        outvars: Sequence[Value],
        value: Value,
    ) -> None:
        if self.numbers.is_one:
            return
        shapes = [getattr(variable.aval, "shape", ()) for variable in outvars]
        for axis, dim in enumerate(np.shape(value)):
            self.numbers.note([shape[axis] for shape in shapes], dim)

    def _results(
        self,
        eqns: Sequence[JaxprEqn],
        operands: Values,
        used: Used,
    ) -> Values:
        eqn = eqns[0]
        if is_closed(eqn):
            expanded = [expansion(each) for each in eqns]
            opened = [each for each in expanded if each is not None]
            if len(opened) == len(eqns):
                return self.walk(opened, operands, used)
        elif self.numbers.is_one and not any(
            is_closed(inner) for program in programs(eqn.params) for inner in equations(program)
        ):
            return rebind(eqn, operands)

        elif eqn.primitive.name in HOLDERS:
            return HOLDERS[eqn.primitive.name](self, eqns, operands)
        # One that holds a size is made of it, and says nothing at another one.
        elif eqn.primitive.name == "call_hi_primitive":
            return self.walk([expand_hi_primitive(Op(each)) for each in eqns], operands)
        # Rules of derivatives are done with: they have been applied by now.
        elif called_jaxpr(eqn) is not None:
            called: list[Value] = list(map(called_jaxpr, eqns))
            return self.walk(called, operands, used)
        return self.bind(
            eqn,
            operands,
            self.params(eqns),
        )


class _Slots:
    """The values of a program, by the variables of each trace."""

    def __init__(self, unifier: Unifier):
        self._unifier = unifier
        # In each trace a variable has the same slot as in the others; one that is its own whole
        # slice has two.
        self._slots: list[dict[Value, set[int]]] = [{} for _ in unifier.numbers.samples]
        self._known: Values = []

    def define(
        self,
        same: Sequence[Value],
        value: Value,
    ) -> None:
        for slots, variable in zip(
            self._slots,
            same,
            strict=True,
        ):
            slots.setdefault(variable, set()).add(len(self._known))
        self._known.append(value)

    def with_whole_slices(self, row: Sequence[JaxprEqn | None]) -> list[JaxprEqn]:
        """Operations side by side, with a slice of the whole array where JAX has left it out."""
        given = next(eqn for eqn in row if eqn is not None)
        slots = self._slots[row.index(given)]
        return [eqn or self._whole_slice(given, slots, i) for i, eqn in enumerate(row)]

    def _whole_slice(
        self,
        given: JaxprEqn,
        slots: Mapping[Value, set[int]],
        trace: int,
    ) -> JaxprEqn:
        """A slice of the whole array in one trace, from the slice in another and its slots."""
        (places,) = (slots[atom] for atom in given.invars)
        same = [variable for variable, own in self._slots[trace].items() if own & places]
        if len(same) != 1:
            raise Differs("reads other values at each size")
        shape = same[0].aval.shape
        whole = {**given.params, "start_indices": (0,) * len(shape), "limit_indices": shape}
        return given.replace(
            invars=same,
            outvars=same,
            params=whole,
        )

    def read(self, atoms: Sequence[Value]) -> Value:
        if all(map(is_literal, atoms)):
            return self._unifier.constant([atom.val for atom in atoms], atoms)
        if any(map(is_literal, atoms)):
            raise Differs("does other operations at each size")
        places = [
            slots[atom]
            for slots, atom in zip(
                self._slots,
                atoms,
                strict=True,
            )
        ]
        same = set[int].intersection(*places)
        if not same:
            raise Differs("reads other values at each size")
        return self._known[min(same)]


@contextmanager
def _asking_JAX(what: str) -> Generator[None]:
    """Context in which a rule of JAX may not be able to tell for all sizes."""
    try:
        yield
    except (
        # JAX asserts that shapes are equal where it adds cotangents, and cannot tell of all sizes.
        AssertionError,
        InconclusiveDimensionOperation,
        NotImplementedError,
        TypeError,
        ValueError,
    ) as error:
        why = f"by numbers that JAX cannot have as symbols: {first_line(error)}"
        raise Differs(f"{what} {why}") from error


def _live(jaxpr: Value, used: Used, *, is_one: bool) -> list[tuple[JaxprEqn, Used]]:
    """The equations that a result or an effect depends on, in order, with which of their results
    are used; of a single trace all.
    """
    if is_one:
        return [(eqn, (True,) * len(eqn.outvars)) for eqn in jaxpr.eqns]
    results = [atom for atom, is_used in zip(jaxpr.outvars, used, strict=True) if is_used]
    return live_equations(jaxpr, results)[0]


def _side_by_side(bodies: Sequence[Sequence[JaxprEqn]]) -> Iterator[Sequence[JaxprEqn | None]]:
    """The operations of several traces in step; None where one has no slice and others have, as
    JAX writes no `slice` of a whole array.

        size 20   c = mul a a                        None
        size 30   c = mul a a    d = slice[limit_indices=(25,)] c
    """
    rest = [deque(body) for body in bodies]
    while any(rest):
        row = [body[0] if body else None for body in rest]
        slices = [eqn is not None and eqn.primitive.name == "slice" for eqn in row]
        if any(slices):
            row = [eqn if is_slice else None for eqn, is_slice in zip(row, slices, strict=True)]
        elif None in row:
            raise Differs("does as many operations as its size says, or others at each size")
        for body, eqn in zip(rest, row, strict=True):
            if eqn is not None:
                body.popleft()
        yield row
