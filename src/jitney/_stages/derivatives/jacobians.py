"""Jacobians and Hessians: dense or by colouring, at known sizes or at any size.

The diagonal of a Hessian, whose sum is the Laplacian, has no mixed derivatives: each element is
differentiated twice along itself, forward over forward. A Hessian's row takes a backward pass for
entries that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import InconclusiveDimensionOperation

from ... import _sparsity
from ..._axes import Refused, ranges_at_hand
from ..._errors import DerivativeError, Where, shortlist
from ..._host.own_time import OWN_TIME
from ..._jax.arrays import bcoo
from ..._jax.trees import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from ..._jax.typed import Array
from ..._sparsity import REVERSE, WAYS, Mode, PassMode
from .arguments import Arguments, DerivedCall, Primal
from .decisions import note_decision

Blocks = dict[str, Any]
"""Jacobian with respect to each argument."""


@dataclass(frozen=True)
class _Positions:
    """Array that index positions are computed from.

    Args:
        argument: Argument that holds the array; "" if there is none.
        path: Path of the array in the argument.
        line: User's line that reads or writes at the positions.
        is_whole: True if the argument holds integer arrays only.
    """

    argument: str
    path: str
    line: str
    is_whole: bool


def _traced_positions(
    where: Where,
    sources: Sequence[_Positions],
    elements: int,
) -> DerivativeError:
    """Error of a sparse derivative of a function that indexes at traced positions."""
    arguments = tuple(dict.fromkeys(source.argument for source in sources))
    paths = list(dict.fromkeys(source.path for source in sources if source.path))
    line = next((source.line for source in sources if source.line), "")
    arrays = shortlist([repr(path) for path in paths]) or "a value that is traced"
    at_line = f", at {line}" if line else ""
    what = (
        f"which elements are read hangs on {arrays}{at_line},"
        f" and is not known while it is traced: all {elements:,} elements of the sparse derivative"
        " may be nonzero."
    )
    rule = (
        "The structure is found before the numbers are there, so positions are integers that the"
        " call has, or static."
    )

    if all(source.is_whole for source in sources):
        names = arguments[0] if len(arguments) == 1 else arguments
        them = "it" if len(paths) == 1 else "them"
        fix = f"declare {them} static: @optimize(static={names!r}), or leave out `sparse`."
    else:
        fix = (
            "pass the positions as an argument of their own, an array of integers, or leave out"
            " `sparse`."
        )

    error = DerivativeError(where, what, rule, fix, code="J245")
    error.positions = arguments
    return error


class Jacobian(DerivedCall):
    """`jacobian`, `value_and_jacobian` and `hessian` at one set of arguments."""

    def _jacobian(self) -> object:
        _, jacobian = self._value_and_jacobian()
        return jacobian

    def _value_and_jacobian(self) -> tuple[object, object]:
        value, blocks = self._jacobian_of(self._differentiable, self.derived.mode)
        return value, self._by_name(blocks)

    def _hessian(self) -> object:
        mode: Mode = "auto" if self.derived.mode == "reverse" else self.derived.mode
        gradient = jax.grad(self._scalar)
        _, rows = self._jacobian_of(gradient, mode, ("forward",), of=self._scalar)
        blocks: dict[str, object] = {}
        for a in self.names:
            blocks[a] = self._by_name({b: rows[b][a] for b in self.names})
        return self._by_name(blocks)

    def _jacobian_of(
        self,
        fn: Callable[..., object],
        mode: Mode,
        ways: tuple[PassMode, ...] = WAYS,
        of: Primal | None = None,
    ) -> tuple[object, Blocks]:
        """Value of a function of the arguments, and its Jacobian by argument, in the structure of
        the value.

        Args:
            fn: Function to differentiate.
            mode: Requested mode.
            ways: Modes that may be chosen.
            of: Function that `fn` is the gradient of; None if it is not a gradient.
        """
        over = "" if ways == WAYS else " over reverse"
        leaves, treedef = tree_flatten(self.at)
        form: Hashable = None

        def flat(arrays: Sequence[jax.Array]) -> list[Any]:
            nonlocal form
            out, form = tree_flatten(fn(tree_unflatten(treedef, arrays)))
            return out

        # Three cases: JAX's own dense transformations, known sizes with sparsity detection, and
        # symbolic sizes, where a colouring has to hold at every size.
        if self.derived.plain:
            made = None
        elif not ranges_at_hand():
            with OWN_TIME.running():
                # A symmetric Hessian allows a star colouring, which needs fewer colours.
                symmetric = False
                if of is not None:
                    symmetric = _sparsity.has_symmetric_hessian(jax.make_jaxpr(of)(self.at))
            made = _sparsity.jacobian(
                flat,
                leaves,
                mode,
                ways,
                as_sparse=self.derived.sparse,
                budget=self._budget,
                symmetric=symmetric,
                at_a_time=self.derived.at_a_time,
                tried=self.derived.tried,
            )
            if isinstance(made, _sparsity.UnknownPositions):
                sources = [self._position(value, line) for value, line in made.sources]
                columns = _sparsity.elements(leaves)
                rows = _sparsity.elements(jax.eval_shape(flat, leaves))
                raise _traced_positions(self.where, sources, columns * rows)
        elif self.derived.sparse:
            raise Refused(
                "",
                "makes a sparse Jacobian, which has as many elements as the structure at each size",
            )
        else:
            made = None if mode in WAYS else _sparsity.coloured_jacobian(flat, leaves, mode, ways)
        if made is None:
            if mode in WAYS:
                way, why = mode, f"mode={mode!r}"
            else:
                way = self._way_at_any_size(fn, ways)
                why = "dense passes at each size: no structure halves them"
            note_decision(way + over, why)
            return self._jacobian_at_any_size(fn, way)

        note_decision(
            made.mode + over,
            made.why,
            made.directions,
            made.at_a_time,
        )
        rows = [tree_unflatten(treedef, blocks) for blocks in made.blocks]
        value = tree_unflatten(form, made.value)
        jacobian: Blocks = {}
        for name in self.names:
            jacobian[name] = tree_unflatten(form, [row[name] for row in rows])
        return value, jacobian

    def _position(self, value: object, line: str) -> _Positions:
        """Find the argument that holds an array of positions."""
        for name, given in self.bound.arguments.items():
            # By identity: arrays with the same numbers may stand in several arguments.
            leaves, _ = tree_flatten_with_path(given)
            path = next((path for path, leaf in leaves if leaf is value), None)
            if path is not None:
                dtypes = [getattr(leaf, "dtype", np.dtype(object)) for _, leaf in leaves]
                is_whole = all(dtype.kind in "iub" for dtype in dtypes)
                return _Positions(name, name + keystr(path), line, is_whole)
        return _Positions("", "", line, is_whole=False)

    def _way_at_any_size(
        self,
        fn: Callable[..., object],
        ways: tuple[PassMode, ...],
    ) -> PassMode:
        """Choose the cheaper dense mode, the same for all sizes.

        Raises:
            Refused: Forward is cheaper at some sizes and reverse at others.
        """
        with OWN_TIME.running():
            traced, shape = jax.make_jaxpr(fn, return_shape=True)(self.at)
        ways, _ = _sparsity.possible(traced, ways)
        if len(ways) == 1:
            return ways[0]
        columns, rows = _sparsity.elements(self.at), _sparsity.elements(shape)
        try:
            return "forward" if columns <= REVERSE * rows else "reverse"
        except InconclusiveDimensionOperation as error:
            what = (
                "has a Jacobian that is cheaper forward at some sizes and in reverse at others: say"
                ' mode="forward" or mode="reverse"'
            )
            raise Refused("", what) from error

    def _jacobian_at_any_size(
        self,
        fn: Callable[..., object],
        way: PassMode,
    ) -> tuple[object, Blocks]:
        """Dense Jacobian, by the same passes at every size."""
        transform = jax.jacfwd if way == "forward" else jax.jacrev

        def twice(at: Arguments) -> tuple[object, object]:
            out = fn(at)
            return out, out

        blocks, value = transform(twice, has_aux=True)(self.at)
        if self.derived.sparse and self.derived.plain:
            blocks = jax.tree.map(_sparse, blocks)
        treedef = jax.tree.structure(value)
        parts = treedef.flatten_up_to(blocks)
        jacobian: Blocks = {}
        for name in self.names:
            jacobian[name] = treedef.unflatten([part[name] for part in parts])
        return value, jacobian


def _sparse(block: Any) -> Any:
    return bcoo().fromdense(block, nse=block.size)


Scalar = Callable[[Array], Array]
"""The function, of one of the arrays alone."""

_UNROLLED = 8
"""Elements up to which each has operations of its own: XLA makes faster kernels of these than of a
batch, and as many more of them.
"""


class Diagonal(DerivedCall):
    """`hessian_diag` at one set of arguments."""

    def _hessian_diag(self) -> object:
        leaves, treedef = tree_flatten(self.at)
        with OWN_TIME.running():
            traced = jax.make_jaxpr(self._scalar)(self.at)
        ways, why = _sparsity.possible(traced, ("forward",))
        if ways == ("forward",):
            second, passes = _along_forward, "forward"
        else:
            second, passes = _along_reverse, "reverse"
        how = "two passes for each element along itself, no mixed derivatives"
        note_decision(f"forward over {passes}", f"{how}; {why}" if why else how)

        def alone(i: int) -> Scalar:
            def scalar(leaf: Array) -> Array:
                changed = [*leaves[:i], leaf, *leaves[i + 1 :]]
                return self._scalar(tree_unflatten(treedef, changed))

            return scalar

        parts: list[Array] = []
        for i, leaf in enumerate(leaves):
            parts.append(_diagonal(alone(i), leaf, second))
        return self._by_name(tree_unflatten(treedef, parts))


def _diagonal(
    scalar: Scalar,
    leaf: Array,
    second: Callable[[Scalar, Array, Array], Array],
) -> Array:
    """Second derivatives with respect to each element of an array, in its shape."""
    size, shape, dtype = leaf.size, leaf.shape, leaf.dtype
    # One form for all sizes of a padded axis.
    if not ranges_at_hand() and size <= _UNROLLED:
        units = np.eye(size, dtype=dtype).reshape(size, *shape)
        each = [second(scalar, leaf, jnp.asarray(unit)) for unit in units]
        if not each:
            return jnp.zeros(shape, dtype)
        return jnp.stack(each).reshape(shape)
    units = jnp.eye(size, dtype=dtype).reshape(size, *shape)

    def along(unit: Array) -> Array:
        return second(scalar, leaf, unit)

    return jax.vmap(along)(units).reshape(shape)


def _along_forward(scalar: Scalar, at: Array, unit: Array) -> Array:
    """Second derivative along a direction."""

    def slope(at: Array) -> Array:
        return jax.jvp(scalar, (at,), (unit,))[1]

    return jax.jvp(slope, (at,), (unit,))[1]


def _along_reverse(scalar: Scalar, at: Array, unit: Array) -> Array:
    """The same of a function that has a backward pass alone."""
    gradient = jax.grad(scalar)
    _, row = jax.jvp(gradient, (at,), (unit,))
    return jnp.vdot(unit, row)
