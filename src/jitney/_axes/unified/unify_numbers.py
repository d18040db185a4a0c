"""Numbers that differ between traces at known sizes: parameters of operations, shapes, constants.

Each becomes an expression of the sizes (`fitted_dims.py`), an array that is made of such, or a
value that Python computes for each call (`number_of_size.py`).

    limit_indices    (67,), (71,), (83,)       (n,)
    a constant       66.0, 70.0, 82.0          n - 1, as float32
    a constant       hanning(67), ...          number_of_size[shape=(n,)]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..._jax.equinox_checks import is_of_check, messages_of
from ..._jax.programs.program_parts import written_by
from ..._jax.trees import Tracer
from ..._jax.typed import Array, Aval, JaxprEqn, Value
from ..dims import Dim, is_ragged
from ..typed_jax import dtypes, jnp, lax
from ..witness.constants import equal_bits
from .fitted_dims import Sample, fit_dim
from .number_of_size import number_of_size

# Promises about positions, which another size may break: withdrawn where traces are unified.
_PROMISES = ("indices_are_sorted", "unique_indices")
_SIZES = frozenset(
    (
        "k",
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


class Differs(Exception):
    """Traces do other things at each size. Its text is a part of a sentence."""


class SampledNumbers:
    """The numbers of several traces of one function.

    Args:
        samples: The known sizes of each trace.
        dims: Symbol -> the symbolic size.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        dims: Mapping[str, Dim],
    ):
        self.samples = samples
        self.dims = dims
        self.is_one = len(samples) == 1
        self._fits: dict[tuple[int, ...], Dim | None] = {}
        # A length that JAX's rules made before is the same expression: (n - 1) // 2 + 1 for odd n,
        # where n // 2 + 1 would be as simple.
        self._made: dict[tuple[int, ...], Dim] = {}

    def params(self, eqns: Sequence[JaxprEqn], leaving: Sequence[str] = ()) -> dict[str, Value]:
        """The parameters of an operation that are not sub-jaxprs, as far as they differ."""
        changed: dict[str, Value] = {}
        if self.is_one:
            return changed
        if not is_same(written_by(eqn.params) for eqn in eqns):
            raise Differs("applies a function that its size changes")
        first = eqns[0].params
        if not is_same(tuple(sorted(eqn.params)) for eqn in eqns):
            raise Differs("does other operations at each size")
        for key in first:
            if key in leaving or key in _UNREAD:
                continue
            values = [eqn.params[key] for eqn in eqns]
            if key in _PROMISES:
                changed[key] = False
            elif key in ("callback", "callback_func") and all(map(is_of_check, eqns)):
                if not is_same(map(messages_of, eqns)):
                    raise Differs("has a check whose message tells a size")
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
        refusal = Differs(f"gives `{name}` another `{key}` at each size ({told})")
        if not is_same(map(type, values)):
            raise refusal
        if isinstance(first, (tuple, list)) and is_same(map(len, values)):
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
        if isinstance(first, Mapping) and is_same(tuple(each) for each in values):
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
            if is_same(each.dtype for each in values) and is_same(map(len, shapes)):
                return first.update(shape=self._shape(shapes))
            raise refusal

        if isinstance(first, np.ndarray):
            equal = all(equal_bits(first, other) for other in values)
        elif isinstance(first, float):
            equal = is_same(map(repr, values))
        else:
            equal = all(other is first or other == first for other in values)
        if equal:
            return first
        dim = None
        if isinstance(first, (int, np.integer)) and key in _SIZES:
            dim = self._fit([int(each) for each in values])
        if dim is None and callable(first):
            raise Differs("calls back into Python by a function that is made anew at each size")
        if dim is None:
            raise refusal
        return dim

    def _fit(
        self,
        values: Sequence[int],
    ) -> Dim | None:
        key = tuple(values)
        if key in self._made:
            return self._made[key]
        if key not in self._fits:
            self._fits[key] = fit_dim(key, self.samples, self.dims)
        return self._fits[key]

    def _fit_number(
        self,
        values: Sequence[int],
    ) -> Dim | None:
        """An expression of a number that is no length. Python computes it for each call as well, so
        one that may fit by chance is not needed.
        """
        key = tuple(values)
        if key in self._made:
            return self._made[key]
        return fit_dim(key, self.samples, self.dims, plain=True)

    def note(
        self,
        sizes: Sequence[int],
        dim: Dim,
    ) -> None:
        """Note a length that JAX's rules made, with its sizes in the traces. Where these are equal,
        it is one of a fixed number elsewhere.
        """
        if is_ragged(dim) and not is_same(sizes):
            self._made.setdefault(tuple(sizes), dim)

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
                raise Differs(f"makes arrays whose lengths are no simple expression ({told})")
            dims.append(dim)
        return tuple(dims)

    def constant(
        self,
        values: Sequence[Value],
        avals: Sequence[Value],
    ) -> Value:
        """A constant of the program: equal in all traces, or made of the sizes."""
        first, aval = values[0], avals[0]
        if self.is_one or all(other is first for other in values):
            return first
        if any(isinstance(value, Tracer) for value in values):
            raise Differs("closes over another traced value at each size")
        if not is_same(each.dtype for each in avals) or not is_same(len(a.shape) for a in avals):
            raise Differs("makes a constant of another form at each size")
        if dtypes.issubdtype(aval.dtype, dtypes.extended):
            arrays: list[Array] = list(values)
        else:
            arrays = [np.asarray(value, aval.dtype) for value in values]
        if all(equal_bits(arrays[0], other) for other in arrays[1:]):
            return first
        if dtypes.issubdtype(aval.dtype, dtypes.extended):
            raise Differs("makes random keys of its size")
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
        return self._fit_number([int(n) for n in numbers]) is not None

    def _size(
        self,
        arrays: Sequence[Array],
    ) -> Value:
        numbers = [int(np.asarray(each)) for each in arrays]
        dim = self._fit_number(numbers)
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


def is_same(values: Iterable[object]) -> bool:
    """Return whether all values are equal."""
    first, *others = values
    return all(other == first for other in others)


def _short(value: object) -> str:
    text = str(value).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
