"""Minimisation of a call that fails verification, and the operation at fault, for the message and
the script.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax

from .._axes import Refused
from .._body.plain import plain_function
from .._errors import JitneyError
from .._jax.programs.evaluation import CallStack, without_calls
from .._jax.programs.jaxprs import called_jaxpr, name_of, rebind, source_of
from .._jax.programs.primitives import PLAIN_CALLS
from .._jax.trees import tree_flatten, tree_unflatten
from .._jax.typed import AnyJaxpr, Array, JaxprEqn
from .._signature.binding import signature_of
from .._signature.options import tolerance_of
from .._stages.vmap import levels_of
from .._view.named_axes import clash_of, named_axes, shape_at, sizes_of
from .._view.view import is_array

if TYPE_CHECKING:
    from .verification import Verification

SECONDS = 30.0
_SMALL = (2, 3, 5, 6, 9, 17, 33)
FAILURES = (
    JitneyError,
    Refused,
    TypeError,
    ValueError,
    RuntimeError,
    ArithmeticError,
    LookupError,
    NotImplementedError,
)
"""Exceptions that a function may raise for sizes that its caller never used."""


def shrunk(
    verification: Verification, arrays: Sequence[Array]
) -> tuple[list[Array], dict[str, int]]:
    """Return the arrays of a call cut along their named axes, as short as the difference stays, and
    the sizes that were cut.
    """
    body = verification.body
    if tolerance_of(body.core.options.precision) is not None:
        # The values of the call choose the policy.
        return list(arrays), {}

    # Axes that an option acts on come first.
    until = time.perf_counter() + SECONDS
    arrays, cut = list(arrays), dict[str, int]()
    view = body.layout.view(body.core.contract, arrays, body.statics)
    named = named_axes(view, levels_of(view, body.request))
    known = sizes_of(view, named)
    known = {name: size for name, size in known.items() if clash_of(name, view, named) is None}
    first = [name for change in verification.changes for name in change.axes if name in known]

    # Greedy, one axis after another: keep the smallest size at which the results still differ. A
    # size that the function rejects is skipped.
    for name in dict.fromkeys((*first, *known)):
        size = known[name]
        candidates = {*_SMALL, size // 8, size // 4, size // 2}
        for smaller in sorted(s for s in candidates if 1 < s < size):
            if time.perf_counter() > until:
                return arrays, cut
            try:
                shapes = [
                    shape_at(leaf, axes, known, {name: smaller})
                    for leaf, axes in zip(view.leaves, named, strict=True)
                ]
                candidate = [_cut(x, shape) for x, shape in zip(arrays, shapes, strict=True)]
                if _differs(verification, candidate):
                    arrays, known[name], cut[name] = candidate, smaller, smaller
                    view = body.layout.view(body.core.contract, arrays, body.statics)
                    break
            except FAILURES:
                continue
    return arrays, cut


def _cut(array: Array, shape: Sequence[int]) -> Array:
    if not is_array(array) or tuple(array.shape) == tuple(shape):
        return array
    return array[tuple(slice(0, size) for size in shape)]


def _differs(verification: Verification, arrays: Sequence[Array]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verification.difference(arrays, verification.again(arrays))[0] is not None


def first_operation(verification: Verification, arrays: Sequence[Array]) -> str | None:
    """Return the first operation of the body whose results differ, found by a function that returns
    the results of all operations.
    """
    fn = verification.body.core.fn()
    if (
        plain_function(fn) != fn
        or tolerance_of(verification.body.core.options.precision) is not None
    ):
        # A derivative that is built otherwise than the plain one has other operations.
        return None
    steps = EachOperation(fn)
    probe = verification.of(steps)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            difference = probe.difference(arrays, probe.again(arrays))[0]
    except FAILURES:
        return None
    if difference is None or difference.at is None:
        return None
    # The path begins with the index of the operation: "[3][0]".
    return steps.labels[int(difference.path[1 : difference.path.index("]")])]


_MOVES = (
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "convert_element_type",
    "copy",
    "iota",
    "select_n",
)


def _computes(eqn: JaxprEqn) -> bool:
    """Return whether an operation computes with the data.

    A program of symbolic sizes moves arrays and counts in other ways, around these operations.
    """
    has_axes = any(getattr(atom.aval, "ndim", 0) for atom in (*eqn.invars, *eqn.outvars))
    if not has_axes or eqn.primitive.name in _MOVES:
        return False
    dtypes = [getattr(var.aval, "dtype", None) for var in eqn.outvars]
    return all(getattr(dtype, "kind", "") in "fcV" for dtype in dtypes)


class EachOperation:
    """A function that returns the results of each operation of another function, in order; `labels`
    names the operations.
    """

    def __init__(self, fn: Callable[..., object]):
        self.fn = fn
        self.labels: list[str] = []
        self.__signature__ = signature_of(fn)
        self.__name__ = getattr(fn, "__name__", "steps")

    def __call__(
        self,
        /,
        *args: object,
        **kwargs: object,
    ) -> list[list[jax.Array]]:
        leaves, treedef = tree_flatten((args, kwargs))
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) or is_array(leaf)]

        def flat(*arrays: object) -> list[jax.Array]:
            whole = list(leaves)
            for i, array in zip(at, arrays, strict=True):
                whole[i] = array
            args, kwargs = tree_unflatten(treedef, whole)
            results = tree_flatten(self.fn(*args, **kwargs))[0]
            return [x for x in results if is_array(x)]

        # Evaluate the jaxpr operation by operation, and collect the results of those that compute.
        arrays = [leaves[i] for i in at]
        self.labels.clear()
        steps: list[list[jax.Array]] = []

        def results(
            eqn: JaxprEqn,
            operands: list[Array],
            _: CallStack,
        ) -> list[jax.Array]:
            out = rebind(eqn, operands)
            if _computes(eqn):
                place = source_of(eqn)
                at = f" at {place}" if place else ""
                self.labels.append(f"`{name_of(eqn)}`{at}")
                steps.append(out)
            return out

        program = jax.make_jaxpr(flat)(*arrays)
        without_calls(program, arrays, results, _inside)
        return steps


def _inside(eqn: JaxprEqn) -> AnyJaxpr | None:
    return called_jaxpr(eqn) if eqn.primitive.name in PLAIN_CALLS else None
