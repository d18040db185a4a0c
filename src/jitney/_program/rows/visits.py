"""Visits of the parts of the arguments of a call: rows, what `vmap` maps beside them, and what all
rows share.

    f((curves, scales, t))    rows at `p[0]`, a stack at `p[1]`, and `p[2]` is shared

Of an argument or item without rows the arrays are mapped as in a call without rows: by their ranks,
or by their paths where the option has the dict form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import jax

from ..._contract.contract import Contract
from ..._errors import ContractError, Where
from ..._jax.trees import keystr, tree_flatten, tree_flatten_with_path
from ..._jax.typed import Array
from ..._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
)
from ..._signature.options import VmapAxis
from ..._signature.paths import root_of, steps_of
from ..._stages.dict_form import position_in, refuse_unknown_part
from ..._stages.vmap import positions_by_rank
from ..._view.layout import aval_parts
from ..._view.view import Leaf, LeafHint, View, leaf_hints
from .ragged import is_list_of_rows
from .row_kinds import are_rows, container_hint, hint_of, holds_rows, items_of


def _as_it_is(leaf: object) -> object:
    return leaf


@dataclass(frozen=True)
class RowVisit:
    """Functions of the parts of arguments, which give what stands in their place.

    Args:
        where: The function, for messages.
        axis: The axis of rows.
        of_rows: Of rows: their path, themselves, their annotation.
        of_stack: Of an array that `vmap` maps: its path and itself.
        of_shared: Of a leaf that all rows share.
    """

    where: Where
    axis: VmapAxis
    of_rows: Callable[[str, object, Hint], object]
    of_stack: Callable[[str, Array], object]
    of_shared: Callable[[object], object] = _as_it_is
    # Paths of the option that no array has had yet, and the arrays so far.
    _unused: set[str] = field(init=False, default_factory=set[str])
    _seen: list[tuple[str, object]] = field(init=False, default_factory=list[tuple[str, object]])

    def arguments(
        self,
        contract: Contract,
        values: Sequence[object],
    ) -> tuple[object, ...]:
        """Visit all arguments of a call.

        Raises:
            ContractError: Arrays of an argument cannot be mapped as the option says.
        """
        self._unused.update(path for path, _ in self.axis.dims or ())
        changed: list[object] = []
        for parameter, value in zip(contract.parameters, values, strict=True):
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                keywords = sorted(cast("dict[str, object]", value).items())
                changed.append({key: self.part(key, of, parameter.hint) for key, of in keywords})
            else:
                changed.append(self.part(parameter.name, value, hint_of(parameter)))
        self._refuse_unknown_parts()
        return tuple(changed)

    def part(
        self,
        path: str,
        value: object,
        hint: Hint,
    ) -> object:
        """Visit an argument, or an item of one.

        Raises:
            ContractError: Its arrays cannot be mapped as the option says.
        """
        container = container_hint(value, hint)
        if container is not None and holds_rows(value, container):
            return self._items(path, value, container)
        if are_rows(value, hint):
            if self.axis.dims is not None and self._position(path) is None:
                raise _refuse_shared(self.where, path, self.axis.name)
            return self.of_rows(path, value, hint)
        if isinstance(hint, ScalarHint) and is_list_of_rows(value):
            raise _refuse_numbers(self.where, path, hint.kind)
        return self._leaves(path, value, hint)

    def _items(
        self,
        path: str,
        value: object,
        hint: ContainerHint,
    ) -> object:
        names = getattr(value, "_fields", None)
        items: dict[object, object] = {}
        for key, item, of in items_of(value, hint):
            step = f"[{key!r}]" if names is None else f".{names[key]}"
            items[key] = self.part(f"{path}{step}", item, of)
        if hint.kind is dict:
            return items
        return hint.kind(*items.values()) if names is not None else hint.kind(items.values())

    def _leaves(
        self,
        path: str,
        value: object,
        hint: Hint,
    ) -> object:
        """Visit the leaves of a value without rows."""
        leaves, treedef = tree_flatten(value)
        if self.axis.dims is None:
            paths, mapped = self._by_rank(path, value, hint, leaves)
        else:
            paths = [f"{path}{keystr(steps)}" for steps, _ in tree_flatten_with_path(value)[0]]
            hints = leaf_hints(hint, value)
            mapped = [self._by_path(*each) for each in zip(paths, leaves, hints, strict=True)]
        if not any(mapped):
            for leaf in leaves:
                self.of_shared(leaf)
            return value
        changed = [
            self.of_stack(at, cast("Array", leaf)) if is_mapped else self.of_shared(leaf)
            for at, leaf, is_mapped in zip(paths, leaves, mapped, strict=True)
        ]
        return jax.tree.unflatten(treedef, changed)

    def _by_rank(
        self,
        path: str,
        value: object,
        hint: Hint,
        leaves: Sequence[object],
    ) -> tuple[Sequence[str], Sequence[bool]]:
        """Paths of the leaves, and which of them have one axis more than their annotation."""
        none = [False] * len(leaves)
        if isinstance(hint, (AnyHint, ModuleHint, StaticHint)):
            return (), none
        hints = leaf_hints(hint, value)
        ranks = list(map(_rank, hints))
        mapped = [
            rank is not None and _dimensions(leaf) == rank + 1
            for leaf, rank in zip(leaves, ranks, strict=True)
        ]
        if not any(mapped):
            return (), none
        paths = [f"{path}{keystr(steps)}" for steps, _ in tree_flatten_with_path(value)[0]]
        view = View(
            tuple(_leaf(at, leaf, of) for at, leaf, of in zip(paths, leaves, hints, strict=True))
        )
        positions_by_rank(view, self.axis, self.where)
        return paths, mapped

    def _by_path(
        self,
        path: str,
        leaf: object,
        hint: LeafHint,
    ) -> bool:
        """Return whether an array is mapped by the dict form, whose positions are 0."""
        self._seen.append((path, leaf))
        if self._position(path) is None or not hasattr(leaf, "shape"):
            return False
        rank, dimensions = _rank(hint), _dimensions(leaf)
        # An array of the annotated rank is that of all rows.
        if rank is not None:
            return dimensions == rank + 1
        position_in(_leaf(path, leaf, hint), 0, self.axis, self.where)
        return True

    def _position(self, path: str) -> int | None:
        """Position of the axis at a path, by the longest path of the option that leads there."""
        entries = self.axis.entries_at(path)
        self._unused.difference_update(part for part, _ in entries)
        return entries[0][1] if entries else None

    def _refuse_unknown_parts(self) -> None:
        """Check that the paths of the option lead to arrays.

        Raises:
            ContractError: One does not, and its argument has arrays.
        """
        for part in sorted(self._unused):
            steps = steps_of(part) or ()
            if len(steps) > 1:
                view = View(tuple(_leaf(path, leaf, None) for path, leaf in self._seen))
                refuse_unknown_part(view, part, steps, self.where)


def _rank(hint: LeafHint) -> int | None:
    if isinstance(hint, ArrayHint):
        return hint.rank
    return 0 if isinstance(hint, ScalarHint) else None


def _dimensions(leaf: object) -> int | None:
    shape = getattr(leaf, "shape", None)
    return None if shape is None else len(shape)


def _leaf(path: str, leaf: object, hint: LeafHint) -> Leaf:
    shape, dtype, weak = aval_parts(leaf)
    return Leaf(path, root_of(path), shape, dtype, weak, hint)


def element(array: Array, row: int) -> Array:
    """Return one element of a stack, which may be an abstract value."""
    if isinstance(array, jax.ShapeDtypeStruct):
        weak = bool(array.weak_type)
        return cast("Array", jax.ShapeDtypeStruct(array.shape[1:], array.dtype, weak_type=weak))
    return array[row]


def _refuse_shared(
    where: Where,
    path: str,
    axis: str,
) -> ContractError:
    return ContractError(
        where,
        f"{path!r} is a list of rows, and `vmap` shares it.",
        f"Rows are mapped over {axis!r}, and vmap={{{axis!r}: ...}} does not name {path!r}.",
        f"name it: vmap={{{axis!r}: {{..., {path!r}: 0}}}}.",
        code="J221",
    )


def _refuse_numbers(
    where: Where,
    name: str,
    kind: str,
) -> ContractError:
    return ContractError(
        where,
        f"{name!r} is a list, and its annotation is `{kind}`.",
        "A number is the same for all rows, or an element of an array with one for each.",
        f"pass an array: {name}=np.asarray({name}).",
        code="J221",
    )
