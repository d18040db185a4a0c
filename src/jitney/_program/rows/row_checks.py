"""Checks of the rows of a call, and numbers of rows in messages.

Rows of an argument are arrays of one rank and dtype, or trees of one structure; arguments agree on
how many there are. A message counts rows as the caller does, also where a stream calls with some of
them (`rows_from`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import jax
import numpy as np

from ..._body.function import FunctionInfo
from ..._errors import ContractError, DonationError, Where
from ..._jax.trees import Tracer, issubdtype
from ..._jax.typed import Array
from ..._signature.paths import root_of
from ..._values.array_likes import a_kind, means_more, numbers_of
from ..._view.layout import aval_parts
from .ragged import NumPyRows, PaddedRows

if TYPE_CHECKING:
    from .columns import Column

ARRAYS = (jax.Array, np.ndarray, Tracer, jax.ShapeDtypeStruct)
INSIDE_JIT = (
    "rows of unlike lengths are not mapped inside an outer `jit`, `scan` or the like.",
    "They run a program for each bucket, and there all is one program.",
    "call it outside of `jit`; `f.value_and_grad` is a gradient.",
)
"""What is wrong, the rule and the fix."""
_FIRST: ContextVar[int] = ContextVar("first row of a call", default=0)


class rows_from:  # noqa: N801 - it is called as a function
    """Scope of a call whose first row has this number in the caller's."""

    __slots__ = ("_first", "_token")

    def __init__(self, first: int):
        self._first = first

    def __enter__(self) -> None:
        self._token = _FIRST.set(self._first)

    def __exit__(self, *_: object) -> None:
        _FIRST.reset(self._token)


def number_of(row: int) -> int:
    """Return the caller's number of a row of the call."""
    return _FIRST.get() + int(row)


def in_row(
    where: Where,
    row: int,
    error: ContractError,
) -> ContractError:
    """Return the error of the call of one row, which then names the row."""
    place = f"{where}: "
    named = str(error).replace(place, f"{place}row {number_of(row)}: ", 1)
    return ContractError(named, code=error.code)


def demand_equal(
    where: Where,
    counts: dict[str, int],
    axis: str,
) -> None:
    (first, count), *others = counts.items()
    for name, other in others:
        if other != count:
            raise ContractError(
                where,
                f"axis {axis!r} has two sizes, {count} from {first!r} and {other} from {name!r}.",
                f"Every argument mapped over {axis!r} must agree on it.",
                "pass as many rows of each.",
                code="J210",
            )


def refuse_none(
    where: Where,
    name: str,
) -> ContractError:
    return ContractError(
        where,
        f"{name!r} has no rows.",
        "The shapes of a result are those of its rows, and there are none.",
        "leave the call out where there is no row.",
        code="J221",
    )


def demand_sizes(
    where: Where,
    name: str,
    rows: PaddedRows,
) -> None:
    """Check that the sizes of rows fit their array: `jax.tree.map` may have changed them.

    Raises:
        ContractError: They do not.
    """
    count, *longest = rows.values.shape
    for axis, given in rows.sizes.items():
        sizes = np.asarray(given)
        is_fit = (
            0 <= axis < len(longest)
            and sizes.shape == (count,)
            and sizes.dtype.kind in "iu"
            and not (sizes.size and (sizes.min() < 0 or sizes.max() > longest[axis]))
        )
        if not is_fit:
            raise ContractError(
                where,
                f"{name!r} is an array of shape {tuple(rows.values.shape)}, and the sizes of its"
                f" rows along axis {axis} are {sizes.tolist()!r:.80}.",
                "The sizes of PaddedRows are integers, one for each row, and at most as long as the"
                " array; they are leaves of its tree, so `jax.tree.map` changes them too.",
                "change the values alone: PaddedRows(change(rows.values), rows.sizes).",
                code="J221",
            )


def demand_arrays(
    where: Where,
    name: str,
    rows: Sequence[object],
) -> list[Array]:
    """Return rows as arrays, which they are of one rank and dtype.

    Raises:
        ContractError: They are not.
    """
    types = set(map(type, rows))
    if any(issubclass(kind, np.generic) for kind in types):
        rows = [np.asarray(row) if isinstance(row, np.generic) else row for row in rows]
        types = set(map(type, rows))
    strange = [kind for kind in types if not issubclass(kind, ARRAYS)]
    if strange:
        i = next(i for i, row in enumerate(rows) if type(row) in strange)
        fix = f"pass arrays: {name}=[np.asarray(row) for row in {name}]."
        if rows[i] is None:
            fix = "leave that row out, here and of all other arguments, or pass an array."
        raise ContractError(
            where,
            f"row {number_of(i)} of {name!r} is a {type(rows[i]).__name__}.",
            "A list for an array is a list of rows, each of which is an array.",
            fix,
            code="J221",
        )
    for kind in filter(means_more, types):
        i = next(i for i, row in enumerate(rows) if type(row) is kind)
        raise ContractError(
            where,
            f"row {number_of(i)} of {name!r} is {a_kind(rows[i])}, which is more than its numbers.",
            "Of a subclass of NumPy's array JAX sees the numbers alone: a mask or a unit would be"
            " lost.",
            f"{numbers_of(rows[i], 'row')}.",
            code="J213",
        )
    arrays = cast("list[Array]", rows)
    # NumPy's arrays are never weakly typed.
    if types == {np.ndarray}:
        dtypes = list(map(attrgetter("dtype"), arrays))
        ranks = set(map(attrgetter("ndim"), arrays))
        if dtypes.count(dtypes[0]) == len(dtypes) and len(ranks) == 1:
            return NumPyRows(arrays)
    kinds = list(map(_kind, rows))
    at = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), None)
    if at is not None:
        shape, first, _ = aval_parts(rows[0])
        dtype = str(first)
        is_rank = len(aval_parts(rows[at])[0]) != len(shape)
        fix = f"convert them: {name}=[np.asarray(row, {dtype!r}) for row in {name}]."
        raise ContractError(
            where,
            f"row {number_of(at)} of {name!r} is {kinds[at]}, and row {number_of(0)} {kinds[0]}.",
            "All rows of an argument have one dtype and one rank.",
            f"pass rows of {len(shape)} axes, as `row.reshape(...)` gives." if is_rank else fix,
            code="J221",
        )
    return arrays


def _kind(row: object) -> str:
    shape, dtype, weak = aval_parts(row)
    return f"{'weakly typed ' if weak else ''}{dtype} with {len(shape)} axes"


def demand_shared(
    core: FunctionInfo,
    columns: Sequence[Column],
) -> None:
    """Check that a gradient which is summed over rows is with respect to what all rows share.

    Raises:
        ContractError: It is with respect to rows too.
    """
    fn = core.fn()
    wrt, skip = getattr(fn, "wrt", None), getattr(fn, "skip", ())
    for column in columns:
        name = root_of(column.path)
        if column.kind == "shared" or name in skip:
            continue
        is_float = issubdtype(aval_parts(column.arrays[0])[1], np.inexact)
        if name in wrt if wrt is not None else is_float:
            raise ContractError(
                core.where,
                f"the gradient is summed over rows, and {name!r} has another array in each row.",
                "A sum over rows is the gradient with respect to what all rows share.",
                'name what they share: wrt="params".',
                code="J221",
            )


def donated_row(
    where: Where,
    columns: Sequence[Column],
) -> DonationError | None:
    """Error for a row whose buffer another call has taken; None if there is none."""
    for column in columns:
        for row, array in enumerate(column.arrays):
            if isinstance(array, Tracer) or not isinstance(array, jax.Array):
                continue
            if not array.is_deleted():
                continue
            which = f"of row {number_of(row)} " if len(column.arrays) > 1 else ""
            return DonationError(
                where,
                f"the buffer {which}of {column.path!r} has been donated to an earlier call.",
                "A donated buffer is gone once the call that took it has started.",
                "use what that call returned, pass a copy (jnp.copy), or take the name out of"
                " `donate`.",
            )
    return None
