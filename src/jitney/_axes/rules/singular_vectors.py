"""Prove that results do not depend on which singular vectors LAPACK gives.

    A = U diag(s) V^T

leaves open the sign of each pair of vectors, a rotation R among those of equal values, and all
vectors of a value that is zero up to rounding. They change with the number of rows, so vectors are
let through only where these choices cancel:

    U, V          one axis is turned by R
    f(s)          element by element: the same wherever values are equal
    f(s) U        turned as U. f = 0 for all s <= c s[0], c >= eps: no vector of a zero is read
    V f(s) U^T b  contracted over the turned axis: R meets its inverse

This is what `lstsq`, its derivatives and other pseudo-inverses do. Each value of the program is one
of these, or does not depend on the vectors; what turns by R otherwise is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..._jax.programs.jaxprs import inside, is_literal, is_variable, open_jaxpr, runs
from ..._jax.programs.primitives import ARITHMETIC, LOGIC
from ..._jax.typed import AnyJaxpr, Atom, JaxprEqn, Var
from ..dims import Dim, is_ragged
from ..interpreter import shape_of
from ..typed_jax import dtypes
from .shape import NUMBER_OF_SIZE

Small = float | str | None
"""An element whose singular value is zero up to rounding: a number, one of these, or not known.

    value      the singular value itself
    count      a size, which is at least 1
    largest    s[0]
    cutoff     at least the dtype's eps
    least      a cutoff times s[0]
    not zero   s > 0
    not below  s >= least, which is true of a matrix of zeros
"""


@dataclass(frozen=True)
class VectorKind:
    """The properties of a value.

    Args:
        axis: The axis along the singular values; None where it has none.
        is_turned: Whether it is turned by R along that axis.
        even: Axes along which all elements are equal.
        small: The factor of vectors of a small value, or the element itself.
    """

    axis: int | None = None
    is_turned: bool = False
    even: frozenset[int] = frozenset()
    small: Small = None


_PLAIN = VectorKind()


class _OpenChoice(Exception):
    """A result may depend on the choice."""


def vectors_cancel(jaxpr: AnyJaxpr) -> bool:
    """Return whether no result depends on the choice of singular vectors, of any SVD that the
    program or what it calls does.
    """
    turn, count = 0, 1
    try:
        while turn < count:
            walk = _VectorWalk(turn)
            given = open_jaxpr(jaxpr)[0].invars
            outs = walk.program(jaxpr, [_PLAIN] * len(given))
            if any(kind.is_turned for kind in outs):
                return False
            turn, count = turn + 1, walk.seen
    except _OpenChoice:
        return False
    return True


class _VectorWalk:
    """The kinds of all values of a program, by the vectors of one of its SVDs.

    Args:
        turn: The number of that SVD in the order of evaluation. A program that is called twice
            does two.
    """

    def __init__(
        self,
        turn: int,
    ):
        self.turn = turn
        self.seen = 0

    def program(
        self,
        jaxpr: AnyJaxpr,
        given: Sequence[VectorKind],
    ) -> list[VectorKind]:
        opened, _ = open_jaxpr(jaxpr)
        known: dict[Var, VectorKind] = dict(zip(opened.invars, given, strict=True))

        def read(atom: Atom) -> VectorKind:
            if is_literal(atom):
                return _constant(atom.val)
            return known.get(atom, _PLAIN) if is_variable(atom) else _PLAIN

        for eqn in opened.eqns:
            kinds = self._results(eqn, list(map(read, eqn.invars)))
            known.update(zip(eqn.outvars, kinds, strict=True))
        return list(map(read, opened.outvars))

    def _results(
        self,
        eqn: JaxprEqn,
        kinds: Sequence[VectorKind],
    ) -> list[VectorKind]:
        name = eqn.primitive.name
        program = runs(eqn)
        if program is not None:
            return self.program(program, kinds)
        if any(each.primitive.name == "svd" for each in inside(eqn)):
            raise _OpenChoice
        if name == "svd" and eqn.params["compute_uv"]:
            self.seen += 1
            if any(kind.axis is not None for kind in kinds):
                raise _OpenChoice
            return _of_svd(eqn) if self.seen == self.turn + 1 else [_PLAIN] * 3
        if name == NUMBER_OF_SIZE and eqn.params.get("is_cutoff"):
            return [VectorKind(small="cutoff")]
        # A symbol, not a difference, which may be 0.
        if name == "dim_as_value" and str(eqn.params["dim"]).isidentifier():
            return [VectorKind(small="count")]
        if name in ARITHMETIC or name in LOGIC:
            return [_each(eqn, kinds)]
        rule = _RULES.get(name)
        if rule is not None:
            return [rule(eqn, kinds)]
        if any(kind.axis is not None for kind in kinds):
            raise _OpenChoice
        return [_PLAIN] * len(eqn.outvars)


def _of_svd(eqn: JaxprEqn) -> list[VectorKind]:
    """Values, left vectors, right vectors."""
    (matrix,) = eqn.invars
    params = eqn.params
    values = shape_of(eqn.outvars[0])
    is_plain = (
        len(values) == 1
        and not is_ragged(values[0])
        and not params["full_matrices"]
        and params["subset_by_index"] is None
        and dtypes.issubdtype(matrix.aval.dtype, np.floating)
    )
    if not is_plain:
        raise _OpenChoice
    return [
        VectorKind(axis=0, small="value"),
        VectorKind(axis=1, is_turned=True, small=1.0),
        VectorKind(axis=0, is_turned=True, small=1.0),
    ]


def _constant(value: object) -> VectorKind:
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in "biuf" or not np.isfinite(array):
        return _PLAIN
    return VectorKind(small=float(array))


# Elementwise operations: of functions of the values any, of vectors the linear ones.


def _each(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    name = eqn.primitive.name
    shapes = list(map(shape_of, eqn.invars))
    axes = {kind.axis for kind in kinds if kind.axis is not None}
    if len(axes) > 1:
        raise _OpenChoice
    rank = range(len(shape_of(eqn.outvars[0])))
    even = frozenset(
        axis
        for axis in rank
        if all(
            map(
                _is_even,
                kinds,
                shapes,
                [axis] * len(kinds),
            )
        )
    )
    if not axes:
        return VectorKind(even=even, small=_small(eqn, kinds))
    (axis,) = axes
    for kind, shape in zip(kinds, shapes, strict=True):
        if kind.axis is None and not _is_even(kind, shape, axis):
            raise _OpenChoice
    small = _small(eqn, kinds)
    turned = [kind for kind in kinds if kind.is_turned]
    if not turned:
        return VectorKind(axis, even=even, small=small)
    dtype = eqn.outvars[0].aval.dtype
    match name:
        case "neg" | "copy" | "stop_gradient":
            linear = True
        case "convert_element_type":
            linear = dtypes.issubdtype(dtype, np.floating)
        case "mul":
            linear = len(turned) == 1
        case "div":
            linear = kinds[0].is_turned and kinds[1].axis is None
        case "add" | "add_any" | "sub":
            linear = len(turned) == len(kinds)
        case "select_n":
            linear = not kinds[0].is_turned
            for kind in kinds[1:]:
                linear = linear and (kind.is_turned or (kind.axis is None and kind.small == 0.0))
        case _:
            linear = False
    if not linear:
        raise _OpenChoice
    return VectorKind(
        axis,
        is_turned=True,
        even=even,
        small=small,
    )


def _is_even(
    kind: VectorKind,
    shape: Sequence[Dim],
    axis: int,
) -> bool:
    return not shape or axis in kind.even or (not is_ragged(shape[axis]) and shape[axis] == 1)


def _small(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> Small:
    """The factor, or the element, of small values."""
    smalls = [kind.small for kind in kinds]
    numbers = [small for small in smalls if isinstance(small, float)]
    name = eqn.primitive.name
    dtype = eqn.outvars[0].aval.dtype
    if any(kind.is_turned for kind in kinds) and name in ("add", "add_any", "sub", "div"):
        return 0.0 if smalls[0] == 0.0 and (name == "div" or smalls[1] == 0.0) else None
    match name:
        case "neg":
            return -numbers[0] if numbers else None
        case "copy" | "stop_gradient":
            return smalls[0]
        case "convert_element_type":
            return _converted(smalls[0], dtype)
        case "select_n":
            which, *cases = smalls
            if isinstance(which, float):
                return cases[int(which)]
            return cases[0] if len(set(cases)) == 1 else None
        case "mul":
            return _times(smalls, dtype)
        case "and":
            is_below = 0.0 in numbers or set(smalls) == {"not zero", "not below"}
            return 0.0 if is_below else _folded(name, numbers, len(smalls))
        case "gt" | "ge" | "lt" | "le":
            swaps = name in ("lt", "le")
            greater, less = smalls[::-1] if swaps else smalls
            is_strict = name in ("gt", "lt")
            if greater == "value" and less == "least":
                return 0.0 if is_strict else "not below"
            if greater == "value" and less == 0.0 and is_strict:
                return "not zero"
        case _:
            pass
    return _folded(name, numbers, len(smalls))


def _times(
    smalls: Sequence[Small],
    dtype: object,
) -> Small:
    one, other = smalls
    if isinstance(one, float) and isinstance(other, float):
        return one * other
    if 0.0 in smalls and "value" in smalls:
        return 0.0
    if not dtypes.issubdtype(dtype, np.floating):
        return None
    for name, factor in ((one, other), (other, one)):
        is_cutoff = isinstance(factor, float) and factor >= float(dtypes.finfo(dtype).eps)
        if name == "largest":
            return "least" if is_cutoff or factor == "cutoff" else None
        if name == "count" and is_cutoff:
            return "cutoff"
    return None


def _converted(
    small: Small,
    dtype: object,
) -> Small:
    if dtypes.issubdtype(dtype, np.floating):
        return small
    return small if isinstance(small, float) and small in (0.0, 1.0) else None


_FOLDS: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "div": lambda a, b: a / b if b else math.inf,
    "and": min,
    "or": max,
    "gt": lambda a, b: float(a > b),
    "ge": lambda a, b: float(a >= b),
    "lt": lambda a, b: float(a < b),
    "le": lambda a, b: float(a <= b),
}


def _folded(
    name: str,
    numbers: Sequence[float],
    count: int,
) -> Small:
    fold = _FOLDS.get(name)
    if fold is None or count != 2 or len(numbers) != 2:
        return None
    made = fold(*numbers)
    return made if math.isfinite(made) else None


# Moves and sums.


def _moved(
    kind: VectorKind,
    places: Mapping[int, int],
    even: Iterable[int] = (),
) -> VectorKind:
    """The same elements, of axes at other places."""
    axis = kind.axis
    if axis is not None and axis not in places:
        raise _OpenChoice
    kept = {places[each] for each in kind.even if each in places}
    moved = None if axis is None else places[axis]
    return replace(kind, axis=moved, even=frozenset((*kept, *even)))


def _broadcast(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    kind, before = kinds[0], shape_of(eqn.invars[0])
    after = shape_of(eqn.outvars[0])
    places = dict(enumerate(eqn.params["broadcast_dimensions"]))
    axis = kind.axis
    if axis is not None and before[axis] != after[places[axis]]:
        raise _OpenChoice
    ones = [axis for axis, size in enumerate(before) if not is_ragged(size) and size == 1]
    new = set(range(len(after))) - set(places.values())
    return _moved(
        kind,
        places,
        (*new, *(places[each] for each in ones if each != kind.axis)),
    )


def _transpose(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    places = {old: new for new, old in enumerate(eqn.params["permutation"])}
    return _moved(kinds[0], places)


def _without(
    kind: VectorKind,
    axes: Iterable[int],
    rank: int,
) -> VectorKind:
    left = [axis for axis in range(rank) if axis not in set(axes)]
    return _moved(kind, {old: new for new, old in enumerate(left)})


def _squeeze(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    return _without(
        kinds[0],
        eqn.params["dimensions"],
        len(shape_of(eqn.invars[0])),
    )


def _reshape(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    """Axes of size 1 come and go."""
    before, after = (
        [(axis, str(size)) for axis, size in enumerate(shape_of(atom)) if str(size) != "1"]
        for atom in (eqn.invars[0], eqn.outvars[0])
    )
    kind = kinds[0]
    if [size for _, size in before] == [size for _, size in after]:
        pairs = zip(before, after, strict=True)
        return _moved(kind, {old[0]: new[0] for old, new in pairs})
    if kind.axis is not None:
        raise _OpenChoice
    return VectorKind(small=kind.small)


def _slice(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    kind, axis = kinds[0], kinds[0].axis
    after = shape_of(eqn.outvars[0])
    if axis is None or after[axis] == shape_of(eqn.invars[0])[axis]:
        return kind
    if kind.is_turned:
        raise _OpenChoice
    is_first = eqn.params["start_indices"][axis] == 0 and after[axis] == 1
    return VectorKind(small="largest" if is_first and kind.small == "value" else None)


def _reduced(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    kind, axes = kinds[0], eqn.params["axes"]
    if kind.axis is None:
        return _PLAIN
    if kind.is_turned and eqn.primitive.name != "reduce_sum":
        raise _OpenChoice
    if kind.axis in axes:
        if kind.is_turned:
            raise _OpenChoice
        return _PLAIN
    out = _without(kind, axes, len(shape_of(eqn.invars[0])))
    return out if kind.is_turned else replace(out, small=None)


def _product(
    eqn: JaxprEqn,
    kinds: Sequence[VectorKind],
) -> VectorKind:
    contracted, batch = eqn.params["dimension_numbers"]
    one, other = kinds
    if one.axis is None and other.axis is None:
        return _PLAIN
    if any(
        kind.axis in axes
        for kind, axes in zip(
            kinds,
            batch,
            strict=True,
        )
    ):
        raise _OpenChoice
    are_summed = [kind.axis in axes for kind, axes in zip(kinds, contracted, strict=True)]
    if any(are_summed):
        # The turned axes meet, and vectors of zeros are left out.
        meets = (one.axis, other.axis) in zip(*contracted, strict=True)
        weights = (one.small, other.small)
        is_known = all(isinstance(each, float) for each in weights)
        if not (meets and one.is_turned and other.is_turned and is_known and 0.0 in weights):
            raise _OpenChoice
        return _PLAIN
    if one.axis is not None and other.axis is not None:
        raise _OpenChoice
    side = 0 if one.axis is not None else 1
    kind = kinds[side]
    if not kind.is_turned:
        raise _OpenChoice
    ranks = [len(shape_of(atom)) for atom in eqn.invars]
    gone = {*contracted[side], *batch[side]}
    free = [axis for axis in range(ranks[side]) if axis not in gone]
    first = len(batch[0])
    if side == 1:
        first += ranks[0] - len(contracted[0]) - len(batch[0])
    places = {axis: first + at for at, axis in enumerate(free)}
    return _moved(replace(kind, even=frozenset()), places)


_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
_RULES: Mapping[str, Callable[[JaxprEqn, Sequence[VectorKind]], VectorKind]] = {
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "reshape": _reshape,
    "slice": _slice,
    "dot_general": _product,
}
