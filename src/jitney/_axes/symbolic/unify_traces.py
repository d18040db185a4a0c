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

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import jax
import numpy as np

from ..._jax.equinox_checks import is_of_check, messages_of
from ..._jax.jaxprs import (
    abstract,
    at_line_of,
    called_jaxpr,
    equations,
    is_literal,
    open_jaxpr,
    programs,
    rebind,
    scan_parts,
    source_of,
    variables,
    while_parts,
)
from ..._jax.primitives import CALLS, PLAIN_CALLS, REMATS
from ..._jax.program_parts import written_by
from ..._jax.trees import Tracer
from ..._jax.typed import AnyJaxpr, Array, Aval, ClosedJaxpr, JaxprEqn, Value, Values
from ..dims import Dim, evaluate
from ..interpreter import Op, mentions
from ..refusal import Refused
from ..rules import RULES
from ..typed_jax import dtypes, jnp, lax, make_jaxpr
from .constants import equal_bits
from .fitted_dims import Sample, fit_dim
from .number_of_size import number_of_size

# Promises about positions, which another size may break: withdrawn where traces are unified.
_PROMISES = ("indices_are_sorted", "unique_indices")
_SIZES = frozenset(
    (
        "length",
        "limit_indices",
        "new_sizes",
        "padding",
        "padding_config",
        "permutation_size",
        "reps",
        "shape",
        "size",
        "sizes",
        "slice_sizes",
        "start_indices",
        "window_dimensions",
    )
)
"""Parameters that may hold sizes, which rules read as such."""
# Parameters that follow from the name of a scatter; `written_by` compares the others.
_UNREAD = ("update_jaxpr", "update_consts")
_LONGEST = 40


def is_closed(eqn: JaxprEqn) -> bool:
    """Return whether an equation is of a closed primitive: one of another package than JAX, of
    which no rule is known.
    """
    primitive = eqn.primitive
    name, impl = primitive.name, primitive.impl
    if name in RULES or name in CALLS or (programs(eqn.params) and name == "shard_map"):
        return False
    maker = getattr(impl, "func", impl)
    package = str(getattr(maker, "__module__", "jax")).partition(".")[0]
    return package not in ("jax", "jaxlib", "jitney")


def reads_sizes_inside(jaxpr: object) -> bool:
    """Return whether a symbolic size occurs in a closed primitive of a program, at any depth."""
    return any(is_closed(eqn) and mentions(Op(eqn)) for eqn in equations(jaxpr))


def expand_closed(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with its closed primitives replaced by what they compute."""
    if not any(map(is_closed, equations(jaxpr))):
        return jaxpr
    return Unifier([{}], {}).program([jaxpr], [abstract(aval) for aval in jaxpr.in_avals])


def _expansion(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The program of a closed primitive, from its implementation; None if JAX cannot trace that."""
    avals = [abstract(atom.aval) for atom in eqn.invars]
    primitive = eqn.primitive

    def computed(*operands: object) -> list[object]:
        out = primitive.impl(*operands, **eqn.params)
        return list(out) if primitive.multiple_results else [out]

    # Code of others: it may ask for a number, or call NumPy.
    try:
        with eqn.ctx.manager:
            return make_jaxpr(computed)(*avals)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None


class Unifier:
    """A walk over several traces of one function in step.

    Args:
        samples: The known sizes of each trace.
        dims: Symbol -> the symbolic size.
    """

    def __init__(self, samples: Sequence[Sample], dims: Mapping[str, Dim]):
        self.samples = samples
        self.dims = dims
        self.is_one = len(samples) == 1
        # The place of the latest operation, for messages.
        self._at = ""
        self._fits: dict[tuple[int, ...], Dim | None] = {}

    def program(
        self,
        traces: Sequence[AnyJaxpr],
        avals: Sequence[object],
    ) -> ClosedJaxpr:
        """The program, of arguments with these abstract values.

        Raises:
            Refused: The traces do other operations.
        """

        def unified(*values: Value) -> Values:
            return self._walk(traces, values)

        return make_jaxpr(unified)(*avals)

    def _walk(
        self,
        traces: Sequence[AnyJaxpr],
        values: Sequence[Value],
    ) -> Values:
        opened = [open_jaxpr(trace) for trace in traces]
        jaxprs = [jaxpr for jaxpr, _ in opened]
        bodies = [jaxpr.eqns if self.is_one else _live(jaxpr) for jaxpr in jaxprs]
        lengths = [
            tuple(map(len, (eqns, jaxpr.invars, jaxpr.constvars, jaxpr.outvars)))
            for eqns, jaxpr in zip(
                bodies,
                jaxprs,
                strict=True,
            )
        ]
        if not _is_same(lengths):
            self._differ("does as many operations as its size says, or others at each size")

        # In each trace a variable has the same slot as in the others.
        slots: list[dict[Value, int]] = [{} for _ in jaxprs]
        known: Values = []

        def define(
            same: Sequence[Value],
            value: Value,
        ) -> None:
            for each, variable in zip(
                slots,
                same,
                strict=True,
            ):
                each[variable] = len(known)
            known.append(value)

        def read(atoms: Sequence[Value]) -> Value:
            if all(map(is_literal, atoms)):
                return self._constant([atom.val for atom in atoms], [atom.aval for atom in atoms])
            if any(map(is_literal, atoms)):
                self._differ("does other operations at each size")
            places = [
                each[atom]
                for each, atom in zip(
                    slots,
                    atoms,
                    strict=True,
                )
            ]
            if not _is_same(places):
                self._differ("reads other values at each size")
            return known[places[0]]

        for constvars, constants in zip(
            zip(*(jaxpr.constvars for jaxpr in jaxprs), strict=True),
            zip(*(held for _, held in opened), strict=True),
            strict=True,
        ):
            define(constvars, self._constant(constants, [each.aval for each in constvars]))
        given = zip(*(jaxpr.invars for jaxpr in jaxprs), strict=True)
        for invars, value in zip(
            given,
            values,
            strict=True,
        ):
            define(invars, value)

        for eqns in zip(
            *bodies,
            strict=True,
        ):
            self._at = source_of(eqns[0]) or self._at
            same = ([eqn.primitive.name for eqn in eqns], [len(eqn.invars) for eqn in eqns])
            if not all(map(_is_same, same)) or not _is_same(len(eqn.outvars) for eqn in eqns):
                self._differ("does other operations at each size")
            taken = zip(*(eqn.invars for eqn in eqns), strict=True)
            with at_line_of(eqns[0]), eqns[0].ctx.manager:
                operands = [read(atoms) for atoms in taken]
            results = self._results(eqns, operands)
            made = zip(*(eqn.outvars for eqn in eqns), strict=True)
            for outvars, value in zip(
                made,
                results,
                strict=True,
            ):
                self._check(outvars, value)
                define(outvars, value)
        return [read(atoms) for atoms in zip(*(jaxpr.outvars for jaxpr in jaxprs), strict=True)]

    def _check(
        self,
        outvars: Sequence[Value],
        value: Value,
    ) -> None:
        """Check that a result has the shape of the traces at their sizes, by JAX's rules."""
        for variable, sample in zip(
            outvars,
            self.samples,
            strict=True,
        ):
            shape = tuple(getattr(variable.aval, "shape", ()))
            if not self.is_one and tuple(evaluate(d, sample) for d in np.shape(value)) != shape:
                self._differ("makes arrays of another shape at each size")
            if getattr(variable.aval, "dtype", None) != getattr(value, "dtype", None):
                self._differ("computes in another dtype at each size")

    def _results(
        self,
        eqns: Sequence[JaxprEqn],
        operands: Values,
    ) -> Values:
        eqn = eqns[0]
        name = eqn.primitive.name
        if is_closed(eqn):
            expanded = [_expansion(each) for each in eqns]
            opened = [each for each in expanded if each is not None]
            if len(opened) == len(eqns):
                return self._walk(opened, operands)
            return self._bind(eqn, operands, self._params(eqns))
        if self.is_one and not any(
            is_closed(inner) for program in programs(eqn.params) for inner in equations(program)
        ):
            return rebind(eqn, operands)

        called = [each for each in map(called_jaxpr, eqns) if each is not None]
        if called:
            if name in PLAIN_CALLS or name in REMATS:
                return self._call(eqns, called, operands)
            # Rules of derivatives are done with: they have been applied by now.
            return self._walk(called, operands)

        if name == "scan":
            return self._scan(eqns, operands)
        if name == "while":
            return self._while(eqns, operands)
        if name == "cond":
            return self._cond(eqns, operands)
        if name == "custom_linear_solve":
            return self._solve(eqns, operands)
        params = self._params(eqns)
        return self._bind(
            eqn,
            operands,
            params,
        )

    def _bind(
        self, eqn: JaxprEqn, operands: Sequence[Value], params: Mapping[str, Value]
    ) -> Values:
        try:
            return rebind(eqn, operands, **params)
        except Refused:
            raise
        # JAX's rule of this operation cannot tell for all sizes.
        except (TypeError, ValueError, NotImplementedError) as error:
            why = str(error).partition("\n")[0].rstrip(".")
            name = eqn.primitive.name
            raise Refused(
                self._at, f"does `{name}` by numbers that JAX cannot have as symbols: {why}"
            ) from error

    # Sub-jaxprs.

    def _inside(
        self,
        traces: Sequence[AnyJaxpr],
        avals: Sequence[Value],
    ) -> ClosedJaxpr:
        """The program of a sub-jaxpr, whose arguments have these abstract values."""
        first = open_jaxpr(traces[0])[0].invars
        structs = [
            abstract(aval.update(weak_type=getattr(var.aval, "weak_type", False)))
            for aval, var in zip(
                avals,
                first,
                strict=True,
            )
        ]
        return self.program(traces, structs)

    def _call(
        self,
        eqns: Sequence[JaxprEqn],
        called: Sequence[Value],
        operands: Values,
    ) -> Values:
        eqn = eqns[0]
        inner = self._inside(called, _avals(operands))
        key = CALLS[eqn.primitive.name]
        # A call by an open jaxpr has no room for constants.
        if inner.consts:
            return self._walk(called, operands)
        program = inner if hasattr(called[0], "jaxpr") else open_jaxpr(inner)[0]
        return self._bind(
            eqn,
            operands,
            {key: program},
        )

    def _scan(
        self,
        eqns: Sequence[JaxprEqn],
        operands: Values,
    ) -> Values:
        given: list[Value] = operands
        constants, carry, xs = scan_parts(eqns[0], given)
        counts = [tuple(map(len, scan_parts(eqn, operands))) for eqn in eqns]
        if not _is_same(counts):
            self._differ("does another loop at each size")
        rows = [aval.update(shape=aval.shape[1:]) for aval in _avals(xs)]
        bodies = [eqn.params["jaxpr"] for eqn in eqns]
        inner = self._inside(bodies, [*_avals(constants), *_avals(carry), *rows])
        self._demand_carry(carry, inner.out_avals[: len(carry)])
        changed = self._params(
            eqns,
            leaving=("jaxpr",),
        )
        return self._bind(
            eqns[0],
            operands,
            {**changed, "jaxpr": inner},
        )

    def _while(
        self,
        eqns: Sequence[JaxprEqn],
        operands: Values,
    ) -> Values:
        of_condition, of_body, carry = while_parts(eqns[0], operands)
        changed: dict[str, Value] = self._params(
            eqns,
            leaving=("cond_jaxpr", "body_jaxpr"),
        )
        for key, constants in (("cond_jaxpr", of_condition), ("body_jaxpr", of_body)):
            traces = [eqn.params[key] for eqn in eqns]
            changed[key] = self._inside(traces, _avals([*constants, *carry]))
        self._demand_carry(carry, changed["body_jaxpr"].out_avals)
        return self._bind(
            eqns[0],
            operands,
            changed,
        )

    def _demand_carry(
        self,
        carry: Sequence[Value],
        out_avals: Sequence[Value],
    ) -> None:
        for before, after in zip(_avals(carry), out_avals, strict=True):
            if not _is_alike(before, after):
                self._differ("has a loop whose values change their shape with the size")

    def _cond(
        self,
        eqns: Sequence[JaxprEqn],
        operands: Values,
    ) -> Values:
        if not _is_same(len(eqn.params["branches"]) for eqn in eqns):
            self._differ("does other operations at each size")
        avals = _avals(operands[1:])
        branches = [
            self._inside(
                traces,
                avals,
            )
            for traces in zip(*(eqn.params["branches"] for eqn in eqns), strict=True)
        ]
        for branch in branches[1:]:
            for one, other in zip(
                branches[0].out_avals,
                branch.out_avals,
                strict=True,
            ):
                if not _is_alike(one, other):
                    self._differ("has branches whose results differ in shape with the size")
        changed = self._params(
            eqns,
            leaving=("branches",),
        )
        return self._bind(eqns[0], operands, {**changed, "branches": tuple(branches)})

    def _solve(
        self,
        eqns: Sequence[JaxprEqn],
        operands: Values,
    ) -> Values:
        """A `custom_linear_solve`: all of its programs, each of its own constants and right-hand
        sides.
        """
        lengths = eqns[0].params["const_lengths"]
        if not _is_same(tuple(eqn.params["const_lengths"]) for eqn in eqns):
            self._differ("does other operations at each size")
        given = operands[sum(lengths) :]
        programs_of: dict[str, Value] = {}
        start = 0
        for key in ("matvec", "vecmat", "solve", "transpose_solve"):
            count = getattr(lengths, key)
            constants, start = operands[start : start + count], start + count
            traces = [getattr(eqn.params["jaxprs"], key) for eqn in eqns]
            if traces[0] is not None:
                programs_of[key] = self._inside(traces, _avals([*constants, *given]))
        if any(program.consts for program in programs_of.values()):
            self._differ("solves by a program with numbers of its size")
        changed = self._params(
            eqns,
            leaving=("jaxprs",),
        )
        jaxprs = eqns[0].params["jaxprs"]._replace(**programs_of)
        return self._bind(
            eqns[0],
            operands,
            {**changed, "jaxprs": jaxprs},
        )

    # Parameters and constants.

    def _params(self, eqns: Sequence[JaxprEqn], leaving: Sequence[str] = ()) -> dict[str, Value]:
        """The parameters of an operation that are not sub-jaxprs, as far as they differ."""
        changed: dict[str, Value] = {}
        if self.is_one:
            return changed
        if not _is_same(written_by(eqn.params) for eqn in eqns):
            self._differ("applies a function that its size changes")
        first = eqns[0].params
        if not _is_same(tuple(sorted(eqn.params)) for eqn in eqns):
            self._differ("does other operations at each size")
        for key in first:
            if key in leaving or key in _UNREAD:
                continue
            values = [eqn.params[key] for eqn in eqns]
            if key in _PROMISES:
                changed[key] = False
            elif key in ("callback", "callback_func") and all(map(is_of_check, eqns)):
                if not _is_same(map(messages_of, eqns)):
                    self._differ("has a check whose message tells a size")
            else:
                changed[key] = self._param(values, eqns[0].primitive.name, key)
        return changed

    def _param(
        self,
        values: Sequence[Value],
        name: str,
        key: str,
    ) -> Value:
        """A parameter, whose sizes may differ and nothing else."""
        first = values[0]
        told = ", ".join(map(_short, values))
        refusal = Refused(self._at, f"gives `{name}` another `{key}` at each size ({told})")
        if not _is_same(map(type, values)):
            raise refusal
        if isinstance(first, (tuple, list)) and _is_same(map(len, values)):
            parts = [
                self._param(each, name, key)
                for each in zip(
                    *values,
                    strict=True,
                )
            ]
            plain = type(first) in (tuple, list)
            kind: Value = type(first)
            return kind(parts) if plain else kind(*parts)
        if isinstance(first, Mapping) and _is_same(tuple(each) for each in values):
            items = {
                k: self._param(
                    [each[k] for each in values],
                    name,
                    key,
                )
                for k in first
            }
            kind = type(first)
            return kind(items)
        if isinstance(first, Aval):
            shapes = [tuple(each.shape) for each in values]
            if _is_same(each.dtype for each in values) and _is_same(map(len, shapes)):
                return first.update(shape=self._shape(shapes))
            raise refusal

        if isinstance(first, np.ndarray):
            is_same = all(equal_bits(first, other) for other in values)
        elif isinstance(first, float):
            is_same = _is_same(map(repr, values))
        else:
            is_same = all(other is first or other == first for other in values)
        if is_same:
            return first
        dim = None
        if isinstance(first, (int, np.integer)) and key in _SIZES:
            dim = self._fit([int(each) for each in values])
        if dim is None and callable(first):
            self._differ("calls back into Python by a function that is made anew at each size")
        if dim is None:
            raise refusal
        return dim

    def _fit(
        self,
        values: Sequence[int],
    ) -> Dim | None:
        key = tuple(values)
        if key not in self._fits:
            self._fits[key] = fit_dim(key, self.samples, self.dims)
        return self._fits[key]

    def _shape(
        self,
        shapes: Sequence[Sequence[int]],
    ) -> tuple[Dim, ...]:
        dims: list[Dim] = []
        for sizes in zip(
            *shapes,
            strict=True,
        ):
            dim = self._fit(sizes)
            if dim is None:
                told = ", ".join(map(str, sizes))
                self._differ(f"makes arrays whose lengths are no simple expression ({told})")
            dims.append(dim)
        return tuple(dims)

    def _constant(
        self,
        values: Sequence[Value],
        avals: Sequence[Value],
    ) -> Value:
        """A constant of the program: equal in all traces, or made of the sizes."""
        first, aval = values[0], avals[0]
        if self.is_one or all(other is first for other in values):
            return first
        if any(isinstance(value, Tracer) for value in values):
            self._differ("closes over another traced value at each size")
        if not _is_same(each.dtype for each in avals) or not _is_same(len(a.shape) for a in avals):
            self._differ("makes a constant of another form at each size")
        if dtypes.issubdtype(aval.dtype, dtypes.extended):
            arrays: list[Array] = list(values)
        else:
            arrays = [np.asarray(value, aval.dtype) for value in values]
        if all(equal_bits(arrays[0], other) for other in arrays[1:]):
            return first
        if dtypes.issubdtype(aval.dtype, dtypes.extended):
            self._differ("makes random keys of its size")
        shape = self._shape([array.shape for array in arrays])
        return (
            self._size(arrays)
            if not shape and self._is_whole(arrays)
            else self._array(arrays, shape)
        )

    def _is_whole(
        self,
        arrays: Sequence[Array],
    ) -> bool:
        """Return whether scalars are whole numbers that are an expression of the sizes."""
        numbers = [np.asarray(each).item() for each in arrays]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers):
            return False
        if not all(abs(n) < 2**24 and float(n).is_integer() for n in numbers):
            return False
        return self._fit([int(n) for n in numbers]) is not None

    def _size(
        self,
        arrays: Sequence[Array],
    ) -> Value:
        numbers = [int(np.asarray(each)) for each in arrays]
        dim = self._fit(numbers)
        return lax.convert_element_type(jnp.asarray(dim), arrays[0].dtype)

    def _array(
        self,
        arrays: Sequence[Array],
        shape: tuple[Dim, ...],
    ) -> Value:
        """An array of equal elements, the positions along an axis, or a placeholder."""
        dtype = np.dtype(arrays[0].dtype)
        rows = [np.asarray(array).reshape(-1) for array in arrays]
        first = rows[0][:1]
        if shape and all(equal_bits(row, np.repeat(first, len(row))) for row in rows):
            return lax.full(shape, first[0], dtype)
        if len(shape) == 1 and dtype.kind in "iu":
            begin = rows[0][0]
            if all(equal_bits(row, begin + np.arange(len(row), dtype=dtype)) for row in rows):
                return lax.add(lax.iota(dtype, shape[0]), lax.full(shape, begin, dtype))
        return number_of_size(shape, dtype)

    def _differ(
        self,
        what: str,
    ) -> NoReturn:
        raise Refused(self._at, what)


def _live(jaxpr: Value) -> list[JaxprEqn]:
    """The equations that a result or an effect depends on, in order."""
    read: set[Value] = set(variables(jaxpr.outvars))
    live: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not read.isdisjoint(eqn.outvars):
            live.append(eqn)
            read.update(variables(eqn.invars))
    return live[::-1]


def _avals(values: Sequence[Value]) -> list[Value]:
    return [jax.typeof(value) for value in values]


def _is_same(values: Iterable[object]) -> bool:
    first, *others = values
    return all(other == first for other in others)


def _is_alike(
    one: Value,
    other: Value,
) -> bool:
    return tuple(one.shape) == tuple(other.shape) and one.dtype == other.dtype


def _short(value: object) -> str:
    text = str(value).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
